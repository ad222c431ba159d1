"""Writes the grades for other systems. They come from the gradebook, so that what a person has changed there counts."""

from __future__ import annotations

import codecs
import csv
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nbgrader.api import Gradebook, SubmittedAssignment

from helpers.instructor.collect.course import COURSE_ID, lessons_of
from helpers.instructor.collect.ledger import Ledger, absent, read_ledger, who_is
from helpers.instructor.collect.lms import CANVAS, GRADE_TABLES, GradeTable
from helpers.instructor.collect.names import listed, printable
from helpers.instructor.collect.person import Person, meant_by
from helpers.instructor.publish.notebooks import NotebookError

SPREADSHEET = "csv"
"""The format that is for people; the others are the tables of `lms.GRADE_TABLES`."""
_IDENTIFY = ("email", "id", "username")
"""The columns of the spreadsheet that no two students may share."""


@dataclass(frozen=True)
class Grades:
    """Points by student and lesson, the most that each lesson gives, and who the students are."""

    points: Mapping[str, Mapping[str, float]]
    most: Mapping[str, float]
    people: Mapping[str, Person] = field(default_factory=dict)
    late: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By student the lessons that came late, with the hours and lost points where they are known."""
    participants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By student and lesson the number that Moodle has given for it."""
    numbers: Mapping[str, str] = field(default_factory=dict)
    """By student the system that has given the `id`; the roster's is that of the system which has the grades."""

    def person(self, student: str, system: str) -> Person:
        """A student, without a number that another system than this one has given."""
        one = self.people.get(student, Person())
        return replace(one, id=one.id_for(system) if self.numbers.get(student, "") in ("", system) else "")


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
                points[submission.student.id][lesson] = submission.score - submission.late_submission_penalty
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
            given |= {student: CANVAS.name} if number else {}
    numbers = {
        student: {lesson: one.participant for lesson, one in entry.lessons.items()} for student, entry in ledger.items()
    }
    return Grades(dict(sorted(points.items())), most, known, late, numbers, given)


def _late(submission: SubmittedAssignment, ledger: Ledger) -> list[str]:
    """The lesson of a submission, where the LMS says that it came late, or its time is after the formgrader's."""
    seconds = submission.total_seconds_late if submission.assignment.duedate else 0
    if seconds:
        less = f", {submission.late_submission_penalty:g} points less" if submission.late_submission_penalty else ""
        return [f"{submission.name} ({seconds / 3600:.1f} h{less})"]
    entry = ledger.get(submission.student.id)
    collected = entry.lessons.get(submission.name) if entry else None
    return [submission.name] if collected and collected.late else []


Lines = tuple[list[list[str]], dict[str, list[str]]]
"""The lines at the top of a table, the first of which has the headings; then the line of each student."""


def _spreadsheet(found: Grades) -> Lines:
    """The table for people: the most points of each lesson in its heading, the sum, and what was late."""
    lessons = [f"{lesson} ({most:g})" for lesson, most in found.most.items()]
    head = ["student", "name", *_IDENTIFY, *lessons, f"total ({sum(found.most.values()):g})", "late"]
    rows = {}
    for student, points in found.points.items():
        one = found.people.get(student, Person())
        who = [_cell(student), _cell(one.name), *(_identifier(getattr(one, heading)) for heading in _IDENTIFY)]
        own = [_number(points.get(lesson)) for lesson in found.most]
        rows[student] = [*who, *own, _number(sum(points.values())), "; ".join(found.late.get(student, ()))]
    return [head], rows


def _for_system(found: Grades, form: str) -> Lines:
    """The table that a system reads. Raises NotebookError if it is that of one lesson and there are others."""
    system, table = GRADE_TABLES[form]
    if table.of_one_lesson and len(found.most) != 1:
        raise NotebookError(f"{form} is the table of one lesson: say which with `--lessons NAME`.")
    head = [[*table.columns, *(table.of_one_lesson or found.most)]]
    if table.possible:
        blank = [""] * (len(table.columns) - 1)
        head.append([table.possible, *blank, *(f"{most:g}" for most in found.most.values())])
    rows = {}
    for student, points in found.points.items():
        one = found.person(student, system.name)
        if table.of_one_lesson:
            ((lesson, most),) = found.most.items()
            numbers = found.participants.get(student, {})
            if numbers.get(lesson) or one.participant in numbers.values():  # a number is that of one lesson alone
                one = replace(one, participant=numbers.get(lesson, ""))
            values = {"points": _number(points.get(lesson)), "most": f"{most:g}"}
            own = [cell.format(**values) for cell in table.of_one_lesson.values()]
        else:
            own = [_number(points.get(lesson)) or table.nothing for lesson in found.most]
        one = replace(one, name=one.name or student)
        rows[student] = [*(_field(one, name, table) for name in table.columns.values()), *own]
    return _full(head, rows, table.matching) if table.by_one else (head, rows)


def _full(head: list[list[str]], rows: dict[str, list[str]], matching: Sequence[str]) -> Lines:
    """The lines that have one of the headings, that of most lines, and of the headings those that all of them have."""
    places = [head[0].index(heading) for heading in matching]
    most = max(places, key=lambda at: sum(bool(row[at]) for row in rows.values()))
    rows = {student: row for student, row in rows.items() if row[most]}
    kept = [at for at in range(len(head[0])) if at not in places or all(row[at] for row in rows.values())]
    lines = {student: [row[at] for at in kept] for student, row in rows.items()}
    return [[row[at] for at in kept] for row in head], lines


def _field(one: Person, name: str, table: GradeTable) -> str:
    """A field of a person as a cell of a table."""
    text = table.spelling.get(name, str)(getattr(one, name))
    return _cell(text) if name in ("name", "section") else _identifier(text)


def _lines(found: Grades, form: str) -> Lines:
    return _spreadsheet(found) if form == SPREADSHEET else _for_system(found, form)


def written(found: Grades, form: str) -> str:
    """The grades as a CSV file: SPREADSHEET, or one of `lms.GRADE_TABLES`.

    Raises NotebookError if the table is that of one lesson and there are others.
    """
    head, rows = _lines(found, form)
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([*head, *rows.values()])
    return out.getvalue()


def encoded(text: str, form: str) -> bytes:
    """The result of `written` as bytes. The spreadsheet alone has a byte order mark, which an LMS cannot read."""
    return (codecs.BOM_UTF8 if form == SPREADSHEET else b"") + text.encode()


def unmatched(found: Grades, form: str) -> list[str]:
    """A sentence that names the students whom the system cannot recognise; [] if it recognises all of them."""
    if form == SPREADSHEET:
        return []
    head, rows = _lines(found, form)
    system, table = GRADE_TABLES[form]
    places = [at for at, heading in enumerate(head[0]) if heading in table.matching]
    names = [one for one in found.points if one not in rows or not any(rows[one][at] for at in places)]
    if not names:
        return []
    out = f" They are left out: {system.title} would refuse the file with them." if table.by_one else ""
    return [f"No line of a roster gives {table.matched_by}, for {listed(names, 20)}.{out}"]


def doubled(found: Grades, form: str) -> list[str]:
    """A sentence for each value that identifies students and that several of them share."""
    head, rows = _lines(found, form)
    sentences = []
    identify = _IDENTIFY if form == SPREADSHEET else GRADE_TABLES[form][1].matching
    for heading in (one for one in identify if one in head[0]):
        owners: dict[str, list[str]] = defaultdict(list)
        for student, row in rows.items():
            owners[row[head[0].index(heading)]].append(student)
        sentences += [
            f"{listed(own, 10)} have the same {heading}, {printable(shared)}."
            for shared, own in owners.items()
            if shared and len(own) > 1
        ]
    return sentences


def _number(points: float | None) -> str:
    return "" if points is None else f"{points:g}"


def _cell(name: str) -> str:
    """A name that a spreadsheet does not take for a formula, nor a terminal for a command."""
    name = "".join(letter for letter in name if letter in "\t\r\n" or unicodedata.category(letter) != "Cc")
    return f"'{name}" if name[:1] in tuple("=+-@\t\r＝＋－＠") else name


def _identifier(text: str) -> str:
    """What a system matches stays as it is where it can do no harm: letters, digits and . @ + - alone call nothing."""
    return text if re.fullmatch(r"[+@-]?[\w.@+-]*", text) else _cell(text)
