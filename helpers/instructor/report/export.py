"""Grades as other systems read them: from the gradebook, so that what a person has changed there counts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook

from helpers.instructor.collect.course import COURSE_ID, lessons_of


@dataclass(frozen=True)
class Grades:
    """Points by student and lesson, and the most that each lesson gives."""

    points: Mapping[str, Mapping[str, float]]
    most: Mapping[str, float]
    names: Mapping[str, tuple[str, str]]
    """First and last name and of each student, where the gradebook has them."""


def grades(course: Path) -> Grades:
    """What the gradebook of a course directory holds, manual grades and extra credit included."""
    lessons_of(course)
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as gradebook:
        assignments = sorted(gradebook.assignments, key=lambda assignment: assignment.name)
        points: dict[str, dict[str, float]] = {student.id: {} for student in gradebook.students}
        for assignment in assignments:
            for submission in gradebook.assignment_submissions(assignment.name):
                points[submission.student.id][assignment.name] = submission.score
        names = {student.id: (student.first_name or "", student.last_name or "") for student in gradebook.students}
        return Grades(points, {assignment.name: assignment.max_score for assignment in assignments}, names)


def _csv(found: Grades) -> list[list[str]]:
    head = [
        "student",
        *(f"{lesson} ({most:g})" for lesson, most in found.most.items()),
        f"total ({sum(found.most.values()):g})",
    ]
    rows = []
    for student, points in found.points.items():
        own = [_number(points.get(lesson)) for lesson in found.most]
        rows.append([_cell(student), *own, _number(sum(points.values()))])
    return [head, *rows]


def _canvas(found: Grades) -> list[list[str]]:
    """Canvas's gradebook import: the points possible follow the head, and lessons are matched by name."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *found.most]
    possible = ["    Points Possible", "", "", "", "", *(f"{most:g}" for most in found.most.values())]
    rows = []
    for student, points in found.points.items():
        first, last = found.names[student]
        user = re.search(r"_(\d+)$", student)
        name = ", ".join(filter(None, [last, first])) or student
        own = [_number(points.get(lesson)) for lesson in found.most]
        rows.append([_cell(name), user[1] if user else "", "", "" if user else _cell(student), "", *own])
    return [head, possible, *rows]


def _moodle(found: Grades) -> list[list[str]]:
    """Moodle's import of grades: username identifies, and an empty cell leaves a grade as it is."""
    head = ["username", *found.most]
    return [head, *([_cell(s), *(_number(p.get(lesson)) for lesson in found.most)] for s, p in found.points.items())]


FORMATS: dict[str, Callable[[Grades], list[list[str]]]] = {"csv": _csv, "canvas": _canvas, "moodle": _moodle}


def written(found: Grades, form: str) -> str:
    """The grades as a file of one of FORMATS."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(FORMATS[form](found))
    return out.getvalue()


def _number(points: float | None) -> str:
    return "" if points is None else f"{points:g}"


def _cell(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name[:1] in "=+-@\t" else name
