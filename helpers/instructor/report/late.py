"""Late work: the extensions that the roster gives, and the points that the instructor's formula takes off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nbgrader.api import SubmittedAssignment
from nbgrader.plugins import LateSubmissionPlugin

from helpers.instructor.collect.course import names_in
from helpers.instructor.collect.ledger import read_ledger, who_is
from helpers.instructor.collect.person import Person
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report.gradebook import book_of

FORMULA = Path("private") / "late.py"
"""Where an instructor may put a class of nbgrader's LateSubmissionPlugin; without it no points are taken off."""


def due_dates(course: Path) -> dict[str, datetime]:
    """By lesson the due date that the formgrader has."""
    with book_of(course) as gradebook:
        return {one.name: one.duedate.replace(tzinfo=UTC) for one in gradebook.assignments if one.duedate}


def count_late(course: Path, people: Sequence[Person] = ()) -> list[str]:
    """Enters the extensions of the roster `people`, and the points that late work loses; a sentence for each loss.

    Without a formula the gradebook keeps the penalties that it has.
    Raises NotebookError for a formula that fails, or that gives no number.
    """
    formula, said = _formula(course), []
    with book_of(course) as gradebook:
        submissions = gradebook.db.query(SubmittedAssignment).all()
        known = who_is({one.student_id for one in submissions}, people, read_ledger(course))
        for one in submissions:
            if (days := known[one.student_id].days_for(one.name)) is not None:
                one.extension = timedelta(days=days) if days else None
            if formula is None:
                continue
            late = one.total_seconds_late if one.assignment.duedate else 0
            for notebook in one.notebooks:
                less = _points(formula, one.student_id, notebook.score, late) if late else 0
                notebook.late_submission_penalty = less or None
                if less:
                    said.append(f"{one.student_id}, {one.name}: {late / 3600:.1f} h late, {less:g} points less.")
        gradebook.db.commit()
    return said


def _points(formula: LateSubmissionPlugin, student: str, score: float, late: float) -> float:
    """The points that the formula takes off, from 0 to all that there are."""
    try:
        less = float(formula.late_submission_penalty(student, score, late) or 0)
    except Exception as error:
        raise NotebookError(f"{FORMULA}: {type(error).__name__}: {error}") from error
    if not math.isfinite(less):
        raise NotebookError(f"{FORMULA} takes {less} points off.")
    return min(max(0.0, less), score)


def _formula(course: Path) -> LateSubmissionPlugin | None:
    """The one of the instructor, if there is one."""
    path = course / FORMULA
    if not path.exists():
        return None
    for one in names_in(path.read_text(encoding="utf-8"), FORMULA).values():
        if isinstance(one, type) and issubclass(one, LateSubmissionPlugin) and one is not LateSubmissionPlugin:
            return one()
    raise NotebookError(f"{FORMULA} needs a class that is a LateSubmissionPlugin of nbgrader.plugins.")
