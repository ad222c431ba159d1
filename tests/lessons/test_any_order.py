"""Nothing that a solution shows depends on the order of a launch's programs: on a GPU they have none."""

import os
import subprocess
import sys

import pytest

import needs
from exercises import ROOT

pytestmark = [pytest.mark.proof, needs.interpreter]

BACKWARDS = """
from helpers.engine import interpreter, memory

backwards = interpreter.watching(lambda launch: None, order=memory.backwards)
backwards.__enter__()
"""
STOPPED_FIRST = r"""
[which program is stopped depends on the order]
regex: program \d+ of (\w+) (loads|stores) element \d+
replace: a program
"""


@pytest.fixture
def backwards(tmp_path):
    """An environment in whose kernels the last program of each launch runs first."""
    startup = tmp_path / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "backwards.py").write_text(BACKWARDS, encoding="utf-8")
    return os.environ | {"IPYTHONDIR": str(tmp_path)}


@pytest.mark.parametrize("solution", sorted(ROOT.glob("solutions/*.ipynb")), ids=lambda path: path.stem)
def test_a_solution_shows_the_same_if_programs_run_backwards(backwards, tmp_path, solution):
    sanitized = tmp_path / "sanitized.cfg"
    sanitized.write_text((ROOT / "tests" / "nbval.cfg").read_text(encoding="utf-8") + STOPPED_FIRST, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--nbval-sanitize-with", sanitized, solution]
    run = subprocess.run(command, cwd=ROOT, env=backwards, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
