"""Grades as other systems read them: from the gradebook, so that what a person has changed there counts."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nbgrader.api import Gradebook, SubmittedAssignment

from helpers.instructor.collect.course import COURSE_ID, lessons_of
from helpers.instructor.collect.ledger import Ledger, absent, read_ledger, who_is
from helpers.instructor.collect.names import listed, printable
from helpers.instructor.collect.roster import Person, meant_by
from helpers.instructor.publish.notebooks import NotebookError


@dataclass(frozen=True)
class Grades:
    """Points by student and lesson, the most that each lesson gives, and who the students are."""

    points: Mapping[str, Mapping[str, float]]
    most: Mapping[str, float]
    people: Mapping[str, Person] = field(default_factory=dict)
    late: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By student the lessons that came late, with the hours where they are known."""
    participants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By student and lesson the number that Moodle has given for it."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """By student the system that has given the `id`; the roster's is that of the system which has the grades."""

    def person(self, student: str, system: str) -> Person:
        """A student, without a number that another system than this one has given."""
        one = self.people.get(student, Person())
        return one if self.numbers.get(student, "") in ("", system) else replace(one, id="")


def grades(course: Path, people: Sequence[Person] = (), lessons: Sequence[str] = ()) -> Grades:
    """What the gradebook of a course directory holds, manual grades and extra credit included.

    Who is in the roster `people` and has handed in nothing has a line without points. Of `lessons` alone, where named.
    """
    wanted = list(lessons) or list(lessons_of(course))
    ledger = read_ledger(course)
    names: dict[str, Person] = {}
    points: dict[str, dict[str, float]] = {}
    late: dict[str, list[str]] = {}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as gradebook:
        for student in gradebook.students:
            name = " ".join(filter(None, [student.first_name, student.last_name]))
            names[student.id] = Person(name=name, email=student.email or "", id=student.lms_user_id or "")
            points[student.id], late[student.id] = {}, []
        assignments = sorted(gradebook.assignments, key=lambda assignment: assignment.name)
        most = {one.name: one.max_score for one in assignments if one.name in wanted}
        for lesson in most:
            for submission in gradebook.assignment_submissions(lesson):
                points[submission.student.id][lesson] = submission.score
                late[submission.student.id] += _late(submission, ledger)
    known = {student: one.or_else(names[student]) for student, one in who_is(points, people, ledger).items()}
    for person in absent(points, people, ledger):
        key = person.key if person.key not in points else f"{person.key} ({person.email or person.id})"
        points[key], known[key] = {}, person
    given: dict[str, str] = {}
    for student, one in known.items():
        named = ledger[student].system if student in ledger else ""
        person = meant_by(people, one)
        if one.id and not (person and person.id == one.id):
            given[student] = named
        if not named and one.folder and not (one.username or one.email or one.id):
            number = re.search(r"_(\d+)$", student)  # as `--from` names a student of Canvas
            known[student] = replace(one, id=number[1]) if number else replace(one, username=student)
            given |= {student: "canvas"} if number else {}
    numbers = {
        student: {lesson: one.participant for lesson, one in entry.lessons.items()} for student, entry in ledger.items()
    }
    return Grades(dict(sorted(points.items())), most, known, late, numbers, given)


def _late(submission: SubmittedAssignment, ledger: Ledger) -> list[str]:
    """The lesson of a submission, where the LMS says that it came late, or its time is after the formgrader's."""
    seconds = submission.total_seconds_late if submission.assignment.duedate else 0
    if seconds:
        return [f"{submission.name} ({seconds / 3600:.1f} h)"]
    entry = ledger.get(submission.student.id)
    collected = entry.lessons.get(submission.name) if entry else None
    return [submission.name] if collected and collected.late else []


def _csv(found: Grades) -> list[list[str]]:
    head = [
        "student",
        "name",
        "email",
        "id",
        "username",
        *(f"{lesson} ({most:g})" for lesson, most in found.most.items()),
        f"total ({sum(found.most.values()):g})",
        "late",
    ]
    rows = []
    for student, points in found.points.items():
        one = found.people.get(student, Person())
        who = [_cell(student), _cell(one.name), *map(_identifier, (one.email, one.id, one.username))]
        own = [_number(points.get(lesson)) for lesson in found.most]
        rows.append([*who, *own, _number(sum(points.values())), "; ".join(found.late.get(student, ()))])
    return [head, *rows]


def _canvas(found: Grades) -> list[list[str]]:
    """Canvas's gradebook import: the points possible follow the head, and lessons are matched by name.

    A student is matched by the ID, or else by one of SIS; the name may be written otherwise.
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *found.most]
    possible = ["    Points Possible", "", "", "", "", *(f"{most:g}" for most in found.most.values())]
    rows = []
    for student, points in found.points.items():
        one = found.person(student, "canvas")
        who = [_cell(one.name or student), *map(_identifier, (one.id, one.sis, one.username)), _cell(one.section)]
        rows.append([*who, *(_number(points.get(lesson)) for lesson in found.most)])
    return [head, possible, *rows]


def _moodle(found: Grades) -> list[list[str]]:
    """Moodle's import of grades: one of the first three columns identifies; an empty cell leaves a grade as it is."""
    head = ["username", "email", "idnumber", "name", *found.most]
    rows = []
    for student, points in found.points.items():
        one = found.person(student, "moodle")
        who = [*map(_identifier, (one.username, one.email, one.id)), _cell(one.name or student)]
        rows.append([*who, *(_number(points.get(lesson)) for lesson in found.most)])
    return [head, *rows]


def _worksheet(found: Grades) -> list[list[str]]:
    """The worksheet of one assignment of Moodle, which matches students by "Participant 4718", also anonymous ones."""
    if len(found.most) != 1:
        raise NotebookError("Moodle has a worksheet for each assignment: say which with `--lessons NAME`.")
    ((lesson, most),) = found.most.items()
    head = ["Identifier", "Full name", "Email address", "Grade", "Maximum grade", "Last modified (grade)"]
    rows = []
    for student, points in found.points.items():
        one = found.people.get(student, Person())
        number = found.participants.get(student, {}).get(lesson, "") or one.participant
        identifier = f"Participant {number}" if number.isdigit() else "" if number[:1].isdigit() else number
        own = [_number(points.get(lesson)), f"{most:g}", "-"]
        rows.append([_identifier(identifier), _cell(one.name or student), _identifier(one.email), *own])
    return [head, *rows]


FORMATS: dict[str, Callable[[Grades], list[list[str]]]] = {
    "csv": _csv, "canvas": _canvas, "moodle": _moodle, "moodle-worksheet": _worksheet,
}  # fmt: skip

_MATCHED_BY: dict[str, tuple[str, range]] = {
    "canvas": ("an ID of Canvas or a login", range(1, 4)),
    "moodle": ("a username, email or ID number", range(3)),
    "moodle-worksheet": ("a number of Moodle for this lesson", range(1)),
}
"""What a system matches students by, and the columns in which it stands."""


_IDENTIFIES = {form: columns for form, (_, columns) in _MATCHED_BY.items()} | {"csv": range(2, 5)}
"""The columns that no two students may share."""


def written(found: Grades, form: str) -> str:
    """The grades as a file of one of FORMATS.

    Raises NotebookError for a worksheet of Moodle that is to have several lessons.
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(FORMATS[form](found))
    return out.getvalue()


def encoded(text: str, form: str) -> bytes:
    """What `written` gives as the bytes of a file: with a mark for spreadsheets, which an LMS would not read."""
    return (codecs.BOM_UTF8 if form == "csv" else b"") + text.encode()


def unmatched(found: Grades, form: str) -> list[str]:
    """The students whom the system of a format cannot match, as a sentence; [] where it can match all."""
    if form not in _MATCHED_BY:
        return []
    what, columns = _MATCHED_BY[form]
    rows = FORMATS[form](found)[-len(found.points) :] if found.points else []
    names = [student for student, row in zip(found.points, rows, strict=True) if not any(row[at] for at in columns)]
    return [f"{len(names)} students have no line of a roster that gives {what}: {listed(names, 20)}."] if names else []


def doubled(found: Grades, form: str) -> list[str]:
    """A sentence for everything by which students are matched that several of them share."""
    lines = FORMATS[form](found)
    rows = dict(zip(found.points, lines[-len(found.points) :], strict=True)) if found.points else {}
    sentences = []
    for column in _IDENTIFIES[form]:
        owners: dict[str, list[str]] = defaultdict(list)
        for student, row in rows.items():
            owners[row[column]].append(student)
        sentences += [
            f"{listed(own, 10)} have the same {lines[0][column]}, {printable(shared)}."
            for shared, own in owners.items()
            if shared and len(own) > 1
        ]
    return sentences


def _number(points: float | None) -> str:
    return "" if points is None else f"{points:g}"


def _cell(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name[:1] in tuple("=+-@\t\r＝＋－＠") else name


def _identifier(text: str) -> str:
    """What a system matches stays as it is where it can do no harm: letters, digits and . @ + - alone call nothing."""
    return text if re.fullmatch(r"[+@-]?[\w.@+-]*", text) else _cell(text)
