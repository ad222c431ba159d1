"""Enters results into nbgrader's gradebook, and writes the notebooks that its formgrader shows.

Only this process opens the gradebook. A result is entered in one transaction, as often as one likes, and what a person
has entered (manual scores, comments, extra credit) stays.
"""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from nbgrader.api import (
    Assignment,
    BaseCell,
    Grade,
    Gradebook,
    MissingEntry,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)
from nbgrader.utils import parse_utc
from sqlalchemy.exc import SAWarning

from helpers.check.report import Diagnosis, Finding, Report
from helpers.engine.files import NotRegular, read_regular, write_whole
from helpers.instructor.collect.course import COURSE_ID, GRADING
from helpers.instructor.collect.submissions import same_as, submitted
from helpers.instructor.publish.notebooks import NotebookError, to_bytes
from helpers.instructor.report.rule import rule_of

EARLIER = "earlier"
"""The folder, next to a student's results, with earlier ones of the same notebooks."""


@dataclass(frozen=True)
class Result:
    """What grading has found out about one student's notebook for one lesson; `data` is grading.grade_notebook's."""

    student: str
    lesson: str
    data: dict[str, Any]

    @property
    def points(self) -> float:
        """Points of all exercises of the lesson."""
        return sum(exercise["points"] for exercise in self.data["exercises"])

    @property
    def max_points(self) -> float:
        """Points that the lesson has."""
        return sum(exercise["max_points"] for exercise in self.data["exercises"])


@dataclass(frozen=True)
class ByHand:
    """What a person has entered in the gradebook for a submission: points and comments by the names of cells."""

    points: Mapping[str, float]
    comments: Mapping[str, str]
    penalty: float = 0
    """Points taken off for handing in late."""


NOT_BY_HAND = ByHand({}, {})
"""Of a submission for which nobody has entered anything."""


def entered_by_hand(course: Path) -> dict[tuple[str, str], ByHand]:
    """What a person has entered, by student and lesson; points are there where they are not the check's."""
    found: dict[tuple[str, str], ByHand] = {}
    with book_of(course) as gradebook:
        for submission in gradebook.db.query(SubmittedAssignment):
            grades = [grade for notebook in submission.notebooks for grade in notebook.grades]
            comments = [comment for notebook in submission.notebooks for comment in notebook.comments]
            one = ByHand(
                {grade.name: grade.score for grade in grades if grade.manual_score is not None or grade.extra_credit},
                {comment.name: comment.comment for comment in comments if comment.comment},
                submission.late_submission_penalty or 0,
            )
            if one != NOT_BY_HAND:
                found[submission.student_id, submission.name] = one
    return found


@contextmanager
def book_of(course: Path) -> Iterator[Gradebook]:
    """The gradebook of a course directory, while the context lasts."""
    with (
        warnings.catch_warnings(category=SAWarning, action="ignore"),
        Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as gradebook,
    ):
        yield gradebook


def report_of(exercise: dict[str, Any]) -> Report:
    """The report of one exercise of a result, as its check would show it."""
    named = exercise["diagnosis"]
    return Report(
        exercise["check"],
        exercise["max_points"],
        exercise["attempted"],
        tuple(Finding(*finding) for finding in exercise["findings"]),
        exercise["points"],
        Diagnosis(**named) if named else None,
        exercise["printed"],
    )


def enter(course: Path, results: Iterable[Result]) -> tuple[int, list[str]]:
    """Enters results into the gradebook where it has others; how many it changed, and a sentence for each refused.

    The instructor's rule gives points, if there is one. Of points that an exercise does not have nothing is entered.
    """
    changed, refused, rule = 0, [], rule_of(course)
    with book_of(course) as gradebook:
        entered = _entered(gradebook)
        for result in results:
            key = result.student, result.lesson
            shown = course / "autograded" / Path(*key) / f"{result.lesson}.ipynb"
            try:
                result = replace(result, data=rule(result.data))
                wanted = _wanted(result)
                if entered.get(key) == wanted and not _is_older(shown, kept(course, *key)):
                    continue
                write_whole(shown, _autograded(course, result))
                _enter(gradebook, course, result, wanted)
                changed += 1
            except MissingEntry:
                gradebook.db.rollback()
                course_again = f"python -m helpers.instructor course {shlex.quote(str(course))}"
                refused.append(
                    f"{result.student}, {result.lesson}: not in the gradebook; run `{course_again}`, then this."
                )
            except Exception as error:  # of one student, which is not to stop the class
                gradebook.db.rollback()
                refused.append(f"{result.student}, {result.lesson}: not entered ({type(error).__name__}: {error}).")
    return changed, refused


def results_of(course: Path) -> list[Result]:
    """Every result that has been kept, with the points of the instructor's rule."""
    found, rule = [], rule_of(course)
    for path in sorted((course / GRADING / "results").glob("*/*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        found.append(Result(path.parent.name, path.stem, rule(data)))
    return found


def ungraded(course: Path, lessons: Sequence[str]) -> list[str]:
    """The hand-ins of which there is no result, or that of another notebook, as in "ada, 02_your_first_kernel"."""
    missing = []
    for one in submitted(course, lessons)[0]:
        try:
            key = json.loads(kept(course, one.student, one.lesson).read_text(encoding="utf-8"))["key"]
            if key.rpartition("-")[2] not in ("", same_as(one.contents())):
                missing.append(f"{one.student}, {one.lesson}")
        except NotRegular:
            continue
        except (OSError, ValueError, KeyError):
            missing.append(f"{one.student}, {one.lesson}")
    return missing


def kept(course: Path, student: str, lesson: str) -> Path:
    """Where the result for one submission is."""
    return course / GRADING / "results" / student / f"{lesson}.json"


def free(course: Path, student: str, lesson: str) -> Path:
    """Where a result is kept when another one takes its place: EARLIER/LESSON-1.json, EARLIER/LESSON-2.json, …"""
    folder = kept(course, student, lesson).parent / EARLIER
    return next(path for number in count(1) if not (path := folder / f"{lesson}-{number}.json").exists())


def _is_older(shown: Path, result: Path) -> bool:
    """Whether a page does not show the result, as when a new notebook has the points that the old one had."""
    if not (shown.exists() and result.exists()):
        return not shown.exists()
    return shown.stat().st_mtime_ns < result.stat().st_mtime_ns


def _wanted(result: Result) -> dict[str, tuple[float, bool]]:
    """Points of every exercise, from 0 to its maximum and nothing else, and whether a person has to look at it."""
    found = {}
    for exercise in result.data["exercises"]:
        points, most = exercise["points"], exercise["max_points"]
        if not (isinstance(points, int | float) and math.isfinite(points) and 0 <= points <= most):
            raise NotebookError(f"{result.student}, {exercise['check']}: {points!r} of {most} points are not accepted.")
        found[exercise["grade_id"]] = float(points), bool(exercise["note"])
    return found


def _entered(gradebook: Gradebook) -> dict[tuple[str, str], dict[str, tuple[float | None, bool]]]:
    """What the gradebook has, by student and lesson, then by exercise."""
    rows = (
        gradebook.db.query(
            SubmittedAssignment.student_id, Assignment.name, BaseCell.name, Grade.auto_score, Grade.needs_manual_grade
        )
        .select_from(Grade)
        .join(SubmittedNotebook, Grade.notebook_id == SubmittedNotebook.id)
        .join(SubmittedAssignment, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
        .join(Assignment, SubmittedAssignment.assignment_id == Assignment.id)
        .join(BaseCell, Grade.cell_id == BaseCell.id)
    )
    found: dict[tuple[str, str], dict[str, tuple[float | None, bool]]] = {}
    for student, lesson, cell, points, by_hand in rows:
        found.setdefault((student, lesson), {})[cell] = points, bool(by_hand)
    return found


def _enter(gradebook: Gradebook, course: Path, result: Result, wanted: dict[str, tuple[float, bool]]) -> None:
    database = gradebook.db
    if database.get(Student, result.student) is None:
        gradebook.add_student(result.student)
    options = _timestamp(course / "submitted" / result.student / result.lesson / "timestamp.txt")
    submission = gradebook.update_or_create_submission(result.lesson, result.student, **options)
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            if grade.name in wanted:
                grade.auto_score, look = wanted[grade.name]
                grade.needs_manual_grade = look or grade.manual_score is not None
    database.commit()


def _timestamp(path: Path) -> dict[str, Any]:
    """When it was handed in, as nbgrader's collect notes it."""
    try:
        text = read_regular(path, 100).decode().strip()
        parse_utc(text)
    except (NotRegular, OSError, ValueError, OverflowError):
        return {}
    return {"timestamp": text}


def _autograded(course: Path, result: Result) -> bytes:
    """What the formgrader shows: the lesson with the student's answers and other cells, our reports, and a link."""
    notebook = deepcopy(nbformat.read(course / "release" / result.lesson / f"{result.lesson}.ipynb", as_version=4))
    exercises = {exercise["grade_id"]: exercise for exercise in result.data["exercises"]}
    answers, own = result.data["answers"], list(result.data.get("own", ()))
    path = quote(f"submitted/{result.student}/{result.lesson}/{result.lesson}.ipynb")  # of an open JupyterLab
    cells = [_text("handed-in", f"[The notebook as it was handed in](../../../lab/tree/{path})")]
    above = 0
    for number, cell in enumerate(notebook.cells):
        cells += _shown(own, above)
        marks = cell.metadata.get("nbgrader", {})
        name = marks.get("grade_id")
        if name in answers:
            cell.source = answers[name]
        elif marks.get("solution"):
            cell.source = "# This cell is not in the notebook that was handed in."
        if name in exercises:
            report = report_of(exercises[name])
            data = {"text/plain": repr(report), "text/html": report._repr_html_()}
            cell.outputs = [nbformat.v4.new_output("execute_result", data=data, execution_count=number + 1)]
            cell.execution_count = number + 1
        cells.append(cell)
        above += cell.cell_type == "code"
    notebook.cells = [*cells, *_shown(own, math.inf)]
    return to_bytes(notebook)


def _shown(own: list[Any], above: float) -> list[nbformat.NotebookNode]:
    """Takes the student's own cells, up to this number of given ones above them, from the list, to be shown."""
    shown = []
    while own and own[0][0] <= above:
        source = own.pop(0)[1]
        shown.append(_text(f"own-{len(own)}", "Written or changed by the student:"))
        shown.append(nbformat.v4.new_code_cell(source, id=f"own-code-{len(own)}"))
    return shown


def _text(name: str, words: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(words, id=name)
