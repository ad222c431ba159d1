"""The checks of the exercises: each takes the learner's function, or answer, and returns a Report.

A softmax is right if it agrees with float64 on every case; a kernel must also stay within its traffic budget and do the
work itself. Whatever the function does, it does it in a child process, and a mistake that is known is named.
`yours_or_ours(name)` gives later cells the learner's function where it has passed, and the course's where it has not;
`yours(name)` lets it join a comparison. `report_on(name, answer)` gives the report and remembers nothing.
"""

from __future__ import annotations

from typing import Any

from helpers.check import failed_cells, place
from helpers.check.exercises import (
    EXERCISES,
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_06,
    lesson_07,
    lesson_08,
    lesson_09,
    lesson_10,
)  # fmt: skip
from helpers.check.kept import remembered, yours, yours_or_ours
from helpers.check.report import Finding, Report

__all__ = [
    "EXERCISES", "Finding", "Report", "benchmark", "cliff", "deadlock", "eager", "exhibit", "in_flight", "l2",
    "loss_and_gradient", "masked", "merge", "my_pick", "occupancy", "online", "overflow", "predict_time", "recurrence",
    "report_on", "row_loss", "row_program", "single_tile", "slopes", "spill", "split_row", "trips", "two_pass", "yours",
    "yours_or_ours",
]  # fmt: skip


def report_on(name: str, answer: Any) -> Report:
    """The report on the answer to an exercise. Raises KeyError for an unknown name, TypeError for the wrong kind."""
    return EXERCISES[name].report_on(answer)


overflow, eager = map(remembered, lesson_01.EXERCISES)
(single_tile,) = map(remembered, lesson_02.EXERCISES)
(masked,) = map(remembered, lesson_03.EXERCISES)
(two_pass,) = map(remembered, lesson_04.EXERCISES)
merge, recurrence, online = map(remembered, lesson_05.EXERCISES)
occupancy, in_flight, predict_time = map(remembered, lesson_06.EXERCISES)
spill, cliff, my_pick = map(remembered, lesson_07.EXERCISES)
exhibit, benchmark = map(remembered, lesson_08.EXERCISES)
split_row, deadlock, row_program, l2 = map(remembered, lesson_09.EXERCISES)
row_loss, slopes, loss_and_gradient, trips = map(remembered, lesson_10.EXERCISES)

failed_cells.watch()
place.start_early()
