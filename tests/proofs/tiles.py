"""Launches that the tests of other dimensions share: several programs for each group of neighbours."""

import pytest

from helpers.softmax.launcher import PreparedLauncher
from helpers.softmax.plan import ColumnsPlan

SHARED = ColumnsPlan("columns", 8, 32, 1, 128, SPLIT=10)
TEAMS = SHARED._replace(TEAM=4)
RELAYED = TEAMS._replace(kernel="relayed", BEHIND=13)
BY_PROGRAMS = pytest.mark.parametrize("chosen", [SHARED, TEAMS, RELAYED], ids=["shared", "teams", "relayed"])


def with_looks(launch: PreparedLauncher, looks: int) -> PreparedLauncher:
    """The launcher with programs that look `looks` times more before they help."""
    names = [name for name in launch.kernel.arg_names if not name.endswith("_ptr")]
    at = names.index("looks")
    launch.arguments = (*launch.arguments[:at], looks, *launch.arguments[at + 1 :])
    return launch
