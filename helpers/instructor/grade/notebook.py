"""Grades one submission: from the bytes of a notebook to a result of plain values, whatever the notebook does."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import triton

from helpers.check.report import Report
from helpers.instructor import REPOSITORY
from helpers.instructor.collect.course import HELD_BACK, GradedCell, graded_cells, names_in
from helpers.instructor.collect.submissions import same_as
from helpers.instructor.grade.exercise import Grader, Handed, HeldBack, Scored, as_text
from helpers.instructor.publish import editions
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.sandbox.cells import bound, read_cells
from helpers.instructor.sandbox.client import Ended, NoSandbox

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
_LONGEST_ANSWER = 20_000
"""Characters of the answer to an exercise that are kept to be shown."""
_LONGEST_OWN = 200_000
"""Characters of what else a learner has written."""


def result_key(contents: Iterable[bytes], lesson: bytes, held_back: str, gpu: bool) -> str:
    """Names everything that a result depends on: after the "-" the notebook, and before it all else."""
    others = [f"{engine()} {gpu}".encode(), lesson, held_back.encode()]
    return f"{same_as(others)}-{same_as(contents)}"


@cache
def load_held_back(text: str) -> HeldBack:
    """The cases that an instructor has added: CASES = {exercise: {name: maker}} in a Python file with this text.

    Raises NotebookError for a text without such a dict.
    """
    found = names_in(text, HELD_BACK).get("CASES", {} if not text else None)
    if not isinstance(found, dict) or not all(
        isinstance(made, dict) and all(map(callable, made.values())) for made in found.values()
    ):
        raise NotebookError(f"{HELD_BACK} needs CASES = {{exercise: {{name: function of a torch.Generator}}}}.")
    return found


@dataclass(frozen=True)
class _Lesson:
    """A lesson as it was handed out: its exercises, and its code cells as they are compared."""

    exercises: tuple[GradedCell, ...]
    cells: list[dict[str, str]]

    @classmethod
    def of(cls, lesson: bytes) -> _Lesson:
        return cls(graded_cells(lesson), [_marked(cell) for cell in read_cells(lesson)])

    def names(self, cell: GradedCell) -> frozenset[str]:
        """What the cells to fill in for an exercise define, and its answer."""
        stubs = (found["source"] for found in self.cells if found["grade_id"] in cell.solutions)
        return frozenset({cell.answer}).union(*map(bound, stubs))

    def is_given(self, found: dict[str, str]) -> bool:
        """Whether a cell of a notebook is as it was handed out."""
        return _compared(found["source"]) in {_compared(cell["source"]) for cell in self.cells}

    def without_repeats(self, cells: list[dict[str, str]]) -> list[dict[str, str]]:
        """The cells but for stubs that stand once more, as they were handed out, below the last cell of the answer.

        Whoever pastes a cell of the lesson below an answer has not taken it back.
        """
        repeats = set()
        for one in self.exercises:
            own, seen = self.own(cells, one), set()
            for place, cell in enumerate(cells):
                mark = cell["grade_id"]
                if mark in seen and own and own[-1] < place and self.is_given(cell):
                    repeats.add(place)
                seen |= {mark} & set(one.solutions)
        return [cell for place, cell in enumerate(cells) if place not in repeats]

    def own(self, cells: list[dict[str, str]], cell: GradedCell) -> list[int]:
        """The places of the cells that answer an exercise: those to fill in where they are changed, and others of the
        learner's that define what these ought to."""
        solutions = {name for one in self.exercises for name in one.solutions}
        names = "|".join(map(re.escape, self.names(cell)))
        defines = re.compile(rf"^(?:\s*(?:async\s+)?def\s+(?:{names})\b|(?:{names})\s*(?:=(?!=)|[:,]))", re.MULTILINE)
        return [
            place
            for place, found in enumerate(cells)
            if not self.is_given(found)
            and (found["grade_id"] in cell.solutions
                 or (found["grade_id"] not in solutions and defines.search(found["source"])))
        ]  # fmt: skip


def _compared(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip().splitlines())


class NotGraded(RuntimeError):
    """This machine has failed at a submission, which says nothing about it; the message says at what."""


def graded_result(grader: Grader, content: bytes, lesson: bytes) -> dict[str, Any]:
    """The result that counts. Raises NotGraded, and NoSandbox, where this machine has failed."""
    result = grade_notebook(grader, content, lesson)
    if grader.workshop.failures:
        raise NotGraded(grader.workshop.failures[0])
    return result


def grade_notebook(grader: Grader, content: bytes, lesson: bytes) -> dict[str, Any]:
    """The result for a notebook handed in for `lesson`, as JSON can hold it."""
    began = time.monotonic()
    released = _Lesson.of(lesson)
    try:
        with grader.workshop.sandbox() as reader:
            cells = released.without_repeats(_cells(reader.ask({"do": "read", "content": content}, READING_S)))
        problem = editions.of_another_lesson([cell["source"] for cell in cells], lesson)
    except Ended as error:
        cells, problem = [], as_text(f"the notebook cannot be read: {str(error).removeprefix('Unreadable: ')}")
    exercises = [_exercise(grader, cells, cell, released, problem) for cell in released.exercises]
    sources = [cell["source"] for cell in cells]
    answers = {name for cell in released.exercises for name in cell.solutions}
    return {
        "exercises": editions.noted(exercises, sources, lesson, editions.of_lesson(lesson)),
        "answers": {cell["grade_id"]: cell["source"] for cell in cells if cell["grade_id"] in answers},
        "own": _own(cells, released, answers),
        "problem": problem,
        "sandbox": grader.workshop.kind,
        "processor_s": round(grader.workshop.budget.processor_s, 2),
        "waited_s": round(grader.workshop.budget.waited_s, 2),
        "seconds": round(time.monotonic() - began, 2),
    }


def _cells(sent: Any) -> list[dict[str, str]]:
    if not isinstance(sent, list) or not all(isinstance(cell, dict) for cell in sent):
        raise Ended("the file holds something other than a list of cells")
    return [_marked(cell) for cell in sent]


def _marked(cell: dict[str, Any]) -> dict[str, str]:
    return {name: str(cell.get(name, "")) for name in ("source", "grade_id")}


def _own(cells: list[dict[str, str]], released: _Lesson, answers: set[str]) -> list[list[Any]]:
    """What else the learner has written or changed: of each cell the number of given ones above it, and its source."""
    given, shown, left = 0, [], _LONGEST_OWN
    for cell in cells:
        if released.is_given(cell) or cell["grade_id"] in answers:
            given += 1
        elif left > 0 and cell["source"].strip():
            shown.append([given, cell["source"][:left]])
            left -= len(cell["source"])
    return shown


def _exercise(
    grader: Grader, cells: list[dict[str, str]], cell: GradedCell, released: _Lesson, problem: str
) -> dict[str, Any]:
    began = time.monotonic()
    if problem:
        return unreadable(cell, problem)
    own = released.own(cells, cell)
    sources = [found["source"] for found in cells]
    try:
        one = _undisturbed(grader, Handed(sources, _end(cells, cell), own, released.names(cell)), cell)
    except (NoSandbox, OSError, MemoryError):  # this machine's
        raise
    except Exception as error:  # of one exercise, which is not to stop the others
        one = _unread(cell, f"the grader failed at it: {type(error).__name__}: {error}")
    answer = "\n\n".join(sources[place] for place in own)[:_LONGEST_ANSWER]
    return {**_told(one), "answer": answer, "seconds": round(time.monotonic() - began, 2)}


def _undisturbed(grader: Grader, handed: Handed, cell: GradedCell) -> Scored:
    """The score of an exercise; found once more where processes were killed, which may have been this machine's doing.

    Where the system kills processes for lack of memory both times, that is a failure of this machine.
    """
    for _ in range(2):
        killed, starved = grader.workshop.budget.killed, processes_starved()
        one = grader.score(handed, cell)
        if one.report.passed or (killed, starved) == (grader.workshop.budget.killed, processes_starved()):
            return one
    if starved != processes_starved():
        grader.workshop.failures.append("this machine has too little memory for this number of jobs")
    return one


def processes_starved() -> int:
    """How many processes this system has killed for lack of memory since it started; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def _unread(cell: GradedCell, problem: str) -> Scored:
    return Scored(cell, Report(cell.check, cell.points, attempted=False, findings=()), note=problem)


def unreadable(cell: GradedCell, problem: str) -> dict[str, Any]:
    """The result of an exercise in a notebook that cannot be had."""
    return {**_told(_unread(cell, problem)), "answer": "", "seconds": 0.0}


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
            [as_text(finding.case, _LONGEST_WORDS), bool(finding.ok), as_text(finding.seen, _LONGEST_WORDS)]
            for finding in report.findings
        ],
        "error": as_text(next((finding.error for finding in report.findings if finding.error), ""), 100),
        "diagnosis": report.diagnosis and report.diagnosis.plain(),
        "printed": as_text(report.printed, 5 * _LONGEST_WORDS),
        "left_out": [asdict(one) for one in one.left_out],
        "note": as_text(one.note),
        "speed": one.speed,
    }
