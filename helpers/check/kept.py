"""What a notebook keeps of its checks: the answers that passed, in memory, and the best points, in a file next to it.

The file is a convenience: nothing depends on it, and deleting it loses nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from helpers.check import failed_cells
from helpers.check.exercise import Exercise, WrongArgument
from helpers.check.exercises import EXERCISES
from helpers.check.report import Report
from helpers.engine.files import write_whole

FILE = "progress.json"

_passed: dict[str, Any] = {}
_unwritten: dict[str, float] = {}
"""The best points that the file has not taken: they last as long as the kernel."""


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return Path()


_folder = _working_directory()
"""Where the file is: a cell that changes the working directory later does not move it."""


def remembered(exercise: Exercise) -> Callable[[Any], Report]:
    """The check of an exercise as notebooks call it: its report, after what comes of it is kept.

    An answer of another kind, such as a list for a function, has a report as well.
    """

    def check(answer: Any) -> Report:
        try:
            report = exercise.report_on(answer)
        except WrongArgument as error:
            report = exercise.misunderstood(error)
        remember(report, answer)
        return replace(report, failed_cell=failed_cells.earlier_version(exercise.name, answer))

    check.__name__ = check.__qualname__ = exercise.name
    check.__doc__ = exercise.about
    return check


def remember(report: Report, answer: Any) -> None:
    """Keeps an answer that has passed, forgets an earlier one where this has not, and notes the best points so far.

    The points go to the directory in which the notebook began, where it can be written to.
    """
    if report.passed:
        _passed[report.exercise] = answer
    else:
        _passed.pop(report.exercise, None)
    if report.attempted:
        noted = points()
        best = max(report.points, noted.get(report.exercise, 0))
        note({report.exercise: best})


def points() -> dict[str, float]:
    """The best points by exercise. A file that is missing or broken counts as empty; of a strange one numbers count."""
    noted = {
        name: min(number, EXERCISES[name].points)
        for name, number in _noted().items()
        if name in EXERCISES and isinstance(number, int | float) and number >= 0
    }
    return noted | {name: max(best, noted.get(name, 0)) for name, best in _unwritten.items()}


def place_not_written() -> Path | None:
    """The folder whose file has not taken the last points, if there is one."""
    return _folder if _unwritten else None


RECALL = "recall"
"""The entry of the file that recall.py keeps."""


def recalled() -> dict[str, Any]:
    """What recall.py has kept; empty where the file has nothing of it."""
    kept = _noted().get(RECALL)
    return kept if isinstance(kept, dict) else {}


def note(entries: dict[str, Any]) -> None:
    """Writes entries into the file; the entries of other exercises and of recall.py stay, anything else goes.

    A folder that cannot be written to is not an error: points are kept in memory then.
    """
    known = points() | {RECALL: recalled()} if recalled() else points()
    try:
        write_whole(_folder / FILE, json.dumps(known | entries, indent=1).encode() + b"\n")
        _unwritten.clear()
    except OSError:
        _unwritten.update({name: best for name, best in entries.items() if name in EXERCISES})


def _noted() -> dict[str, Any]:
    try:
        noted = json.loads((_folder / FILE).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return {}
    return noted if isinstance(noted, dict) else {}


def yours_or_ours(name: str) -> Callable:
    """Returns the learner's function for exercise `name` where its check has passed, else the course's, and says so."""
    ours = _ours(name)
    if name in _passed:
        print(f"From here on: your {getattr(_passed[name], '__name__', 'function')}.")
        return _passed[name]
    print(f"From here on: the course's {ours.__name__}, until yours passes its check.")
    return ours


def yours(name: str, **options: object) -> dict[str, Callable]:
    """Returns {"yours": fn} for a comparison where the learner's function has passed its check, else an empty dict.

    `options`, such as BLOCK=8192, are passed on to the function in every call.
    """
    _ours(name)
    return {"yours": partial(_passed[name], **options)} if name in _passed else {}


def _ours(name: str) -> Callable:
    known = {exercise.name: exercise.ours for exercise in EXERCISES.values() if exercise.ours}
    if name not in known:
        said = f"{name!r} asks for no function" if name in EXERCISES else f"no exercise is called {name!r}"
        raise ValueError(f"{said}; there are {', '.join(known)}.")
    return known[name]
