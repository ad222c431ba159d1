"""Grades one submission: from the bytes of a notebook to a result of plain values, whatever the notebook does."""

from __future__ import annotations

import hashlib
import time
from functools import cache
from typing import Any

import torch
import triton

from helpers.check.report import Report
from helpers.instructor.collect.course import GradedCell, graded_cells
from helpers.instructor.grade.exercise import Grader, HeldBack, Scored
from helpers.instructor.publish import editions
from helpers.instructor.publish.notebooks import REPOSITORY, NotebookError
from helpers.instructor.sandbox.client import Ended

READING_S = 60
"""Seconds that reading a notebook may take."""


@cache
def engine() -> str:
    """Names the code that grades: a result of other code is graded again."""
    digest = hashlib.sha256(f"{torch.__version__} {triton.__version__}".encode())
    for path in sorted((REPOSITORY / "helpers").rglob("*.py")):
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_LONGEST_WORDS = 1_000
"""Characters of what a finding says."""


def result_key(content: bytes, lesson: bytes, held_back: str, gpu: bool) -> str:
    """Names everything that a result depends on."""
    parts = [f"{engine()} {gpu}".encode(), content, lesson, held_back.encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


@cache
def load_held_back(text: str) -> HeldBack:
    """The cases that an instructor has added: CASES = {exercise: {name: maker}} in a Python file with this text.

    Raises NotebookError for a text without such a dict.
    """
    names: dict[str, Any] = {"__name__": "held_back_cases"}
    try:
        exec(compile(text, "private/cases.py", "exec"), names)
    except Exception as error:
        raise NotebookError(f"private/cases.py: {type(error).__name__}: {error}") from error
    found = names.get("CASES", {} if not text else None)
    if not isinstance(found, dict) or not all(
        isinstance(made, dict) and all(map(callable, made.values())) for made in found.values()
    ):
        raise NotebookError("private/cases.py needs CASES = {exercise: {name: function of a torch.Generator}}.")
    return found


def grade_notebook(grader: Grader, content: bytes, lesson: bytes) -> dict[str, Any]:
    """The result for a notebook handed in for `lesson`, as JSON can hold it."""
    began = time.monotonic()
    graded = graded_cells(lesson)
    try:
        with grader.workshop.sandbox() as reader:
            cells = _cells(reader.ask({"do": "read", "content": content}, READING_S))
        problem = ""
    except Ended as error:
        cells, problem = [], f"the notebook cannot be read: {error}"
    scored = [_scored(grader, cells, cell, problem) for cell in graded]
    exercises = [{**_told(one), "seconds": round(seconds, 2)} for one, seconds in scored]
    sources = [cell["source"] for cell in cells]
    answers = {name for cell in graded for name in cell.solutions}
    return {
        "exercises": editions.noted(exercises, sources, lesson, editions.of_lesson(lesson)),
        "answers": {cell["grade_id"]: cell["source"] for cell in cells if cell["grade_id"] in answers},
        "problem": problem,
        "sandbox": grader.workshop.kind,
        "seconds": round(time.monotonic() - began, 2),
    }


def _cells(sent: Any) -> list[dict[str, str]]:
    if not isinstance(sent, list) or not all(isinstance(cell, dict) for cell in sent):
        raise Ended("what was read is no list of cells")
    return [{name: str(cell.get(name, "")) for name in ("source", "grade_id")} for cell in sent]


def _scored(grader: Grader, cells: list[dict[str, str]], cell: GradedCell, problem: str) -> tuple[Scored, float]:
    began = time.monotonic()
    if problem:
        one = _unread(cell, problem)
    else:
        one = grader.score([found["source"] for found in cells[: _end(cells, cell)]], cell)
    return one, time.monotonic() - began


def _unread(cell: GradedCell, problem: str) -> Scored:
    return Scored(cell, Report(cell.check, cell.points, attempted=False, findings=()), note=problem)


def unreadable(cell: GradedCell, problem: str) -> dict[str, Any]:
    """The result of an exercise in a notebook that cannot be had."""
    return {**_told(_unread(cell, problem)), "seconds": 0.0}


def _end(cells: list[dict[str, str]], cell: GradedCell) -> int:
    """Where the exercise's check stands: at the last cell with its mark, else after its answer, else at the end."""
    for marks, after in (((cell.grade_id,), 0), (cell.solutions, 1)):
        places = [index for index, found in enumerate(cells) if found["grade_id"] in marks]
        if places:
            return places[-1] + after
    return len(cells)


def _told(one: Scored) -> dict[str, Any]:
    report = one.report
    return {
        "grade_id": one.cell.grade_id,
        "check": one.cell.check,
        "points": float(report.points),
        "max_points": float(one.cell.points),
        "attempted": report.attempted,
        "passed": report.passed,
        "findings": [
            [str(finding.case)[:_LONGEST_WORDS], bool(finding.ok), str(finding.seen)[:_LONGEST_WORDS]]
            for finding in report.findings
        ],
        "diagnosis": report.diagnosis and report.diagnosis.plain(),
        "printed": report.printed,
        "failed": list(one.failed),
        "note": one.note,
        "speed": one.speed,
    }
