"""The checks of the exercises: each takes the learner's function, or answer, and returns a Report.

A softmax is right if it agrees with float64 on every case; a kernel must also stay within its traffic budget and do the
work itself. Whatever the function does, it does it in a child process, and a mistake that is known is named.
`check.NAME` is the check of the exercise NAME, which `exercises/` finds in the file of its lesson.
`yours_or_ours(name)` gives later cells the learner's function if it has passed, and the course's if it has not;
`yours(name)` lets it join a comparison. `report_on(name, answer)` gives the report and remembers nothing. Of a warm-up
nothing is noted.
"""

from __future__ import annotations

from typing import Any

from helpers.check import failed_cells
from helpers.check.exercises import EXERCISES
from helpers.check.exercises.warm_ups import WARM_UPS
from helpers.check.kept import remembered, yours, yours_or_ours
from helpers.check.report import Finding, Report
from helpers.check.trial import place
from helpers.engine.runtime import at_first

_CHECKED = (*EXERCISES.values(), *WARM_UPS)

__all__ = ["EXERCISES", "Finding", "Report", "report_on", "yours", "yours_or_ours", *(one.name for one in _CHECKED)]


def report_on(name: str, answer: Any) -> Report:
    """The report on the answer to an exercise. Raises KeyError for an unknown name, TypeError for the wrong kind."""
    return EXERCISES[name].report_on(answer)


def __getattr__(name: str) -> Any:
    """Says which exercises there are: a copy of a lesson may be older than the course."""
    said = f"the course has no exercise {name!r}; it has {', '.join(EXERCISES)}"
    raise AttributeError(f"{said}. A notebook that asks for it may be of another edition.")


globals().update({one.name: remembered(one) for one in _CHECKED})  # check.single_tile, …

at_first.extend((failed_cells.watch, place.start_early))
