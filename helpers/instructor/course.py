"""An instructor's course directory: what nbgrader expects, one assignment for each lesson."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from helpers.instructor.notebooks import NotebookError


@dataclass(frozen=True)
class Exercise:
    """One graded cell of a lesson: check.`check`(`answer`), for `points`; `solutions` are the cells to fill in before it."""

    grade_id: str
    check: str
    answer: str
    points: float
    solutions: tuple[str, ...]


@cache
def exercises(lesson: Path) -> tuple[Exercise, ...]:
    """The exercises of a lesson as it was handed out, in order.

    Raises:
        NotebookError: a graded cell does not end in check.NAME(ANSWER).
    """
    found: list[Exercise] = []
    waiting: list[str] = []
    for cell in json.loads(lesson.read_text(encoding="utf-8"))["cells"]:
        marks = cell["metadata"].get("nbgrader", {})
        if marks.get("grade"):
            call = re.search(r"^check\.(\w+)\((\w+)\)\s*$", "".join(cell["source"]), re.MULTILINE)
            if call is None:
                raise NotebookError(f"{lesson.name}: the graded cell {marks['grade_id']} does not end in check.NAME(ANSWER).")
            found.append(Exercise(marks["grade_id"], *call.groups(), marks["points"], tuple(waiting)))
            waiting = []
        elif marks.get("solution"):
            waiting.append(marks["grade_id"])
    return tuple(found)
