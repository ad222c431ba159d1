"""Which exercises have been attempted and passed: the table in every lesson's last cell."""

from __future__ import annotations

from helpers import recall
from helpers.check import kept
from helpers.check.exercises import EXERCISES
from helpers.table import Table


def table() -> Table:
    """Every exercise of the course: not attempted, attempted or passed, and the points of the best attempt."""
    best = kept.points()
    rows = [
        [
            f"{exercise.number} {name}",
            _state(best.get(name), exercise.points),
            f"{best.get(name, 0):g} of {exercise.points}",
        ]
        for name, exercise in EXERCISES.items()
    ]
    points, most = sum(best.values()), sum(exercise.points for exercise in EXERCISES.values())
    right = len(recall.once_right())
    notes = [f"Questions from earlier lessons: {right} of {len(recall.QUESTIONS)} once right."] * bool(right)
    if (folder := kept.place_not_written()) is not None:
        notes.append(f"{kept.FILE} cannot be written in {folder}: what is new here is forgotten with the kernel.")
    return Table(["exercise", "state", "points"], [*rows, ["together", "", f"{points:g} of {most}"]], notes)


def _state(points: float | None, most: float) -> str:
    return "not attempted" if points is None else "passed" if points == most else "attempted"
