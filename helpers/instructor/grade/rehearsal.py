"""A trial before a class is graded: the instructor's own cases, on the course's own solutions."""

from __future__ import annotations

import difflib
import json
import traceback
from pathlib import Path
from typing import Any

import torch

from helpers import check
from helpers.check.exercise import TensorExercise
from helpers.check.problems.cases import SOFTMAX
from helpers.check.problems.problem import Make
from helpers.instructor.collect import course as courses
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed, HeldBack
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.publish.notebooks import NotebookError

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def require_cases(workshop: Workshop, held_back: HeldBack, course: Path) -> None:
    """Raises NotebookError, with its line, for a case that no answer can pass, and for an exercise that there is not.

    Each case has to make a matrix, and the course's solution, where the course directory has it, to be right there.
    """
    for name, makers in held_back.items():
        if name not in check.EXERCISES:
            near = difflib.get_close_matches(name, check.EXERCISES, 1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(check.EXERCISES)}."
            raise _wrong(f"no exercise is called {name!r}{meant}")
        exercise = check.EXERCISES[name]
        if not (isinstance(exercise, TensorExercise) and exercise.kind is SOFTMAX):
            raise _wrong(f"the exercise {name!r} takes no matrix, so it can have no cases.")
        for case, make in makers.items():
            _require_matrix(name, case, make)
    solved = _solved(course) if held_back else {}
    for name, makers in held_back.items():
        if makers and name in solved:
            grader = Grader(workshop.for_submission(), {name: makers})
            _require_right(grader, *solved[name])


def _wrong(said: str, line: int | None = None) -> NotebookError:
    return NotebookError(f"{courses.HELD_BACK}{f', line {line}' if line else ''}: {said} Nothing is graded.")


def _require_matrix(exercise: str, case: str, make: Make) -> None:
    where = f"the case {case!r} of {exercise}"
    try:
        x: Any = make(torch.Generator().manual_seed(0))
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == _FILE]
        raise _wrong(f"{where} fails: {type(error).__name__}: {error}.", (lines or [_line(make)])[-1]) from error
    if not (isinstance(x, torch.Tensor) and x.dim() == 2 and x.dtype in _DTYPES and x.device.type == "cpu"):
        made = f"a tensor of {x.dim()} dimensions and {x.dtype}" if isinstance(x, torch.Tensor) else repr(x)[:80]
        raise _wrong(f"{where} makes {made}, not a matrix of fp32, bf16 or fp16.", _line(make))


_FILE = str(courses.HELD_BACK)


def _line(make: Make) -> int | None:
    code = getattr(make, "__code__", None)
    return code.co_firstlineno if code is not None and code.co_filename == _FILE else None


def _solved(course: Path) -> dict[str, tuple[list[str], GradedCell]]:
    """By exercise: the code of the course's solution up to its check, and the graded cell."""
    found = {}
    for lesson, released in courses.lessons_of(course).items():
        path = course / "source" / lesson / f"{lesson}.ipynb"
        graded = {cell.grade_id: cell for cell in courses.graded_cells(released.read_bytes())}
        if not path.exists():
            continue
        sources: list[str] = []
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            own = graded.get(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))
            if own is not None:
                found[own.check] = list(sources), own
            if cell["cell_type"] == "code":
                sources.append("".join(cell["source"]))
    return found


def _require_right(grader: Grader, sources: list[str], cell: GradedCell) -> None:
    scored = grader.score(Handed(sources, len(sources)), cell)
    makers = grader.held_back[cell.check]
    for finding in (scored.with_held_back or scored.report).findings:
        if not finding.ok and finding.case in makers:
            said = f"the course's own solution is wrong in the case {finding.case!r} of {cell.check}: {finding.seen}."
            raise _wrong(said, _line(makers[finding.case]))
    if not scored.report.passed:
        why = scored.note or next((f"{one.case}: {one.seen}" for one in scored.report.findings if not one.ok), "")
        raise _wrong(f"with these cases the course's own solution of {cell.check} does not pass: {why}.")
