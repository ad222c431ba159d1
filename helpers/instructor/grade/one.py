"""Grades one notebook by itself, without a course directory: for a forge's classroom, Gradescope and CI."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from helpers.engine.files import NotRegular, link_in, read_regular
from helpers.instructor.collect.names import printable
from helpers.instructor.collect.paths import says
from helpers.instructor.collect.sources import LARGEST
from helpers.instructor.grade import notebook
from helpers.instructor.grade.exercise import Grader
from helpers.instructor.grade.jobs import Died, Endless, Job
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.sandbox import walls
from helpers.instructor.sandbox.client import NoSandbox
from helpers.table import Table

ALL, SOME, NOT_GRADED = 0, 1, 2
"""Exit status: all points; some are missing; the notebook could not be graded."""


class WrongFile(NotebookError):
    """The file that was handed in cannot be read, or is another lesson's: no fault of the machine's."""


_OF_AN_EXERCISE = ("check", "points", "max_points", "attempted", "passed", "diagnosis", "error", "note")


def lesson_of(path: Path, lessons: Path, name: str = "") -> Path:
    """The lesson, of the folder `lessons`, that a notebook is for, by its file's name or by `name`, e.g. "02".

    Raises NotebookError where that is not known.
    """
    known = {lesson.stem: lesson for lesson in sorted(lessons.glob("*.ipynb"))}
    found = says(f"{name}.ipynb" if name else path.name, list(known))
    if found not in known:
        raise NotebookError(f"{printable(name or path.name)} speaks of no lesson: say which it is, as in --lesson 02.")
    return known[found]


def grade_one(path: Path, lesson: Path, kinds: Sequence[str] = walls.ENOUGH) -> dict[str, Any]:
    """The result for the notebook at `path`, handed in for `lesson`, as plain values.

    Raises NotebookError where it cannot be graded: no notebook can be read there, or this machine has failed.
    """
    try:
        if link := link_in(path):
            raise NotRegular(f"{link} is a link; a notebook counts where it lies, so name the path without links")
        content = read_regular(path, LARGEST)
        workshop = Workshop(kinds)
    except (NotRegular, OSError, NoSandbox) as error:
        raise NotebookError(f"{path.name} could not be graded: {error}") from None
    try:
        result = Job(partial(notebook.graded_result, Grader(workshop, {}), content, lesson.read_bytes())).outcome()
    except (Died, Endless, NoSandbox, notebook.NotGraded) as error:
        raise NotebookError(f"{path.name} could not be graded ({error}); run it again.") from None
    finally:
        workshop.close()
    if result["problem"]:
        raise WrongFile(f"{path.name} could not be graded: {result['problem']}")
    exercises = [_exercise(one) for one in result["exercises"]]
    points, most = (sum(one[name] for one in exercises) for name in ("points", "max_points"))
    return {"notebook": path.name, "lesson": lesson.stem, "points": points, "max_points": most, "exercises": exercises}


def gradescope_of(result: dict[str, Any]) -> dict[str, Any]:
    """The result as Gradescope reads it, in its results.json: a test for each exercise."""
    tests = [
        {
            "name": one["check"],
            "score": one["points"],
            "max_score": one["max_points"],
            "status": "passed" if one["passed"] else "failed",
            "output": _fault(one),
        }
        for one in result["exercises"]
    ]
    return {"score": result["points"], "tests": tests}


def table_of(result: dict[str, Any]) -> Table:
    """A line for each exercise, with its first fault."""
    rows = [
        [one["check"], f"{one['points']:g} of {one['max_points']:g}", " ".join(_fault(one).split())]
        for one in result["exercises"]
    ]
    total = f"{result['lesson']}: {result['points']:g} of {result['max_points']:g} points."
    return Table(["exercise", "points", "what was seen"], rows, [total], align="lrl")


def _fault(exercise: dict[str, Any]) -> str:
    if exercise["note"]:
        return exercise["note"]
    if not exercise["attempted"]:
        return "not attempted"
    if exercise["passed"]:
        return "right"
    if exercise["diagnosis"]:
        return exercise["diagnosis"]["name"]
    return next((f"{one['case']}: {one['seen']}" for one in exercise["findings"] if not one["ok"]), "")[:100]


def _exercise(found: dict[str, Any]) -> dict[str, Any]:
    findings = [{"case": case, "ok": ok, "seen": seen} for case, ok, seen in found["findings"]]
    left_out = [f"line {one['number']}, `{one['line']}`: {one['said']}" for one in found["left_out"]]
    return {**{name: found[name] for name in _OF_AN_EXERCISE}, "findings": findings, "left_out": left_out}
