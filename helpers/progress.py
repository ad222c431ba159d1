"""Which exercises have been attempted and passed, kept in a file beside the notebooks.

The file is a convenience: nothing depends on it, and deleting it loses nothing else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.table import Table

if TYPE_CHECKING:
    from helpers.check.report import Report

FILE = "progress.json"
EXERCISES = {
    "overflow": ("1.1", 2), "eager": ("1.2", 2), "single_tile": ("2.1", 4), "masked": ("3.1", 4),
    "two_pass": ("4.1", 4), "merge": ("5.1", 2), "recurrence": ("5.2", 1), "online": ("5.3", 5),
    "occupancy": ("6.1", 2), "spill": ("6.2", 2), "cliff": ("6.3", 2), "my_pick": ("6.4", 4),
    "exhibit": ("7.1", 2), "benchmark": ("7.2", 6),
    "split_row": ("8.1", 4), "deadlock": ("8.2", 2), "l2": ("8.3", 2),
}  # fmt: skip
"""Number and points of each exercise, by the name of its check."""


def record(report: Report) -> None:
    """Keeps the points of a check that was attempted, the best so far, in the working directory.

    A folder that cannot be written to is no error: nothing is kept there.
    """
    if not report.attempted:
        return
    kept = _read()
    best = max(report.points, kept.get(report.exercise, 0))
    partial = Path(f".{FILE}.{os.getpid()}")
    try:
        partial.write_text(json.dumps(kept | {report.exercise: best}, indent=1) + "\n")
        partial.replace(FILE)
    except OSError:
        partial.unlink(missing_ok=True)


def table() -> Table:
    """Every exercise of the course: not attempted, attempted or passed, and the points of the best attempt."""
    kept = _read()
    rows = [
        [f"{number} {name}", _state(kept.get(name), most), f"{kept.get(name, 0):g} of {most}"]
        for name, (number, most) in EXERCISES.items()
    ]
    points, most = sum(kept.get(name, 0) for name in EXERCISES), sum(most for _, most in EXERCISES.values())
    return Table(["exercise", "state", "points"], [*rows, ["together", "", f"{points:g} of {most}"]])


def _state(points: float | None, most: float) -> str:
    return "not attempted" if points is None else "passed" if points == most else "attempted"


def _read() -> dict[str, float]:
    """Points by exercise; a file that is missing or broken counts as empty, and of a strange one the numbers count."""
    try:
        kept = json.loads(Path(FILE).read_text())
    except (OSError, ValueError):
        return {}
    items = kept.items() if isinstance(kept, dict) else ()
    return {
        name: min(points, EXERCISES[name][1])
        for name, points in items
        if name in EXERCISES and isinstance(points, int | float)
    }
