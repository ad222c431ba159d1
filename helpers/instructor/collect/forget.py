"""Removes every trace of a student from a course directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry

from helpers.engine.files import write_whole
from helpers.instructor.collect.course import COURSE_ID, GRADING, RETURNED, lessons_of
from helpers.instructor.collect.ledger import Ledger, absent, meant, read_ledger, who_is, write_ledger
from helpers.instructor.collect.names import composed, printable
from helpers.instructor.collect.person import Person, meant_by
from helpers.instructor.collect.roster import without

_FOLDERS = ("submitted", "autograded", "feedback", f"{GRADING}/results")
_OURS = ("release", "source")
_LARGEST = 50 << 20


@dataclass
class Forgotten:
    """The files removed of a student, and the files that still hold the name."""

    student: str
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def forget(course: Path, called: str, people: Iterable[Person] = (), roster: Path | None = None) -> Forgotten:
    """Removes all that a course directory holds of a student: hand-ins, results, pages, grades.

    `called` is the folder, or a name, email, id or username that one student alone has. A student has handed something
    in, or is among the roster's `people`. The line of the `roster` goes only where one is given.

    Raises NotebookError for a folder that is not a course directory, and where nobody or several are called so.
    """
    lessons_of(course)
    ledger = read_ledger(course)
    people = list(people)
    students = _students(course, ledger)
    known, others = who_is(students, people, ledger), absent(students, people, ledger)
    student, one = meant(called, known, others)
    done = Forgotten(student)
    for path in _places(course, student):
        done.removed.append(_relative(path, course))
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if _leave_gradebook(course / "gradebook.db", student):
        done.removed.append("gradebook.db: the student, all submissions, grades and comments")
    if ledger.pop(student, None):
        write_ledger(course, ledger)
        done.removed.append(f"{GRADING}/collected.json: the entry")
    if roster and (person := meant_by(people, one)):
        write_whole(roster, without(roster, person))
        done.removed.append(f"{roster.name}: the line")
    namesakes = [other.name for name, other in known.items() if name != student] + [person.name for person in others]
    texts = [text for text in (student, one.name, one.email) if text and (text == student or text not in namesakes)]
    done.left += [_relative(path, course) for path in _naming(course, texts)]
    return done


def _students(course: Path, ledger: Ledger) -> set[str]:
    folders = [course / folder for folder in _FOLDERS]
    found = {composed(entry.name) for folder in folders if folder.is_dir() for entry in os.scandir(folder)}
    found = {name.removesuffix(".html") for name in found if not name.startswith(".")} | set(ledger)
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as gradebook:
        return found | {student.id for student in gradebook.students}


def _places(course: Path, student: str) -> Iterator[Path]:
    """The folders and files that are a student's alone, and what holds everybody: the report, archives of pages."""
    for folder in _FOLDERS:
        for path in sorted((course / folder).glob("*")) if (course / folder).is_dir() else ():
            if composed(path.name) in (student, f"{student}.html"):
                yield path
    yield from sorted((course / RETURNED).glob("*.zip"))
    for name in ("report.html", "report.png"):
        if (report := course / name).exists():
            yield report


def _leave_gradebook(path: Path, student: str) -> bool:
    """Removes a student from the gradebook, from its unused pages too; whether it was there."""
    with Gradebook(f"sqlite:///{path}", COURSE_ID) as gradebook:
        try:
            gradebook.remove_student(student)
        except MissingEntry:
            return False
    with closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM")
    return True


def _naming(course: Path, texts: Iterable[str]) -> Iterator[Path]:
    """The files whose name or content still holds one of the texts as words of their own."""
    forms = {form for text in texts for form in (text, unicodedata.normalize("NFD", text), json.dumps(text)[1:-1])}
    words = re.compile("|".join(rf"(?<!\w){re.escape(form)}(?!\w)" for form in sorted(forms)))
    for folder, folders, names in os.walk(course):
        if Path(folder) == course:
            folders[:] = [name for name in folders if name not in _OURS]
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
                continue
            if words.search(name) or words.search(path.read_bytes().decode(errors="replace")):
                yield path


def _relative(path: Path, course: Path) -> str:
    return printable(path.relative_to(course).as_posix()) + ("/" if path.is_dir() else "")
