"""Reads the roster, a CSV file that says who is in the class, with a line for each student.

A person has written the file, or an LMS has exported it. The columns may stand in any order, and one column that names
a person is enough:

    folder       the student's folder in submitted/
    name         or `first name` and `last name`
    email        the address by which Moodle knows the student
    id           the number by which Canvas, ILIAS or Brightspace knows the student, or Moodle's ID number; the numbers
                 must come from one system
    canvas id, brightspace id, ilias id, moodle id
                 the same, if the class comes from several systems
    username     the login of Blackboard, ILIAS, GitHub, JupyterHub
    participant  Moodle's "Participant 4718"; several numbers, such as 4718 5102, because Moodle gives a student another
                 number in each assignment
    sis, section as Canvas has them
    extension    days that somebody has more: 3 for each lesson, or 02:3 05:1 for these

The gradebook that Canvas exports can be used as a roster unchanged, and so can Moodle's list of participants and its
grading worksheet.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from helpers.instructor import REPOSITORY
from helpers.instructor.collect.lms import SYSTEMS, headings_of
from helpers.instructor.collect.names import composed, folder_name, unusable
from helpers.instructor.collect.person import Person, letters_of
from helpers.instructor.publish.notebooks import NotebookError

ROSTER = "roster.csv"
"""The roster of a course directory."""

_HEADINGS = {
    "folder": ["folder"],
    "name": ["name", "student name"],
    "first": ["first name", "firstname", "first", "vorname", "prénom"],
    "last": ["last name", "lastname", "last", "surname", "family name", "nachname", "nom"],
    "email": ["email", "e-mail", "mail", "e-mail address", "e-mail-adresse"],
    "id": ["id", "id number", "student id", "user id", "matrikelnummer"],
    "username": ["username", "user name", "login", "login id", "benutzername"],
    "participant": ["participant", "participants"],
    "sis": ["sis"],
    "section": ["section"],
    "extension": ["extension", "extensions"],
}
"""By field of `Person`, or `first` and `last`: headings that people write; `lms` has the systems' own."""
_NUMBERS = {f"{name} id": name for name in SYSTEMS}
"""The columns of rosters with numbers of several systems, and whose they are."""


def read_roster(path: Path) -> list[Person]:
    """The people of a roster.

    Raises NotebookError for a file that cannot be read as UTF-8, has no column that names a person or one whose name is
    nearly a known one, or has two lines for one folder, email, number or login.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise NotebookError(f"{path.name} is not UTF-8: save it as “CSV UTF-8”.") from None
    except OSError as error:
        raise NotebookError(f"The roster {path} cannot be read ({error.strerror}).") from None
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text)))
    rows = [row for row in rows if any(map(str.strip, row))]
    columns = _columns(rows[0]) if rows else {}
    if "id" in columns and columns.keys() & _NUMBERS.keys():
        raise NotebookError(f"{path.name} has a column id and one of a system's own: say whose its numbers are.")
    if not columns:
        raise NotebookError(f"{path.name} has no column folder, name, email, id or username in its first line.")
    for heading, known in _misspelt(rows[0], columns):
        raise NotebookError(f"{path.name} has a column {heading}: is it {known}? Rename it, or leave it out.")
    people = [person for row in rows[1:] if (person := _person(row, columns)).key]
    for person in people:
        try:
            person.extensions()
        except ValueError:
            said = f"{path.name}, {person.key}: the extension {person.extension!r} is not days, as 3 or 02:3 05:1."
            raise NotebookError(said) from None
    for column in ("folder", "email", "id", "username", "sis"):
        cells = [getattr(person, column) for person in people]
        each = [one for cell in cells for one in (cell.split() if column == "id" and ":" in cell else [cell]) if one]
        uses = Counter(one.casefold() for one in each)
        if several := next((one for one in each if uses[one.casefold()] > 1), ""):
            raise NotebookError(
                f"{path.name} has several lines for the {column} {several}: each student has one line, and one of "
                f"their own."
            )
    return people


def roster_of(course: Path, given: Path | None = None) -> list[Person]:
    """The people of the roster that is given, or else of the course directory; [] where there is none.

    Raises NotebookError as `read_roster` does, and for an extension for a lesson that there is not.
    """
    path = given or course / ROSTER
    people = read_roster(path) if given or path.exists() else []
    lessons = {one.stem for folder in (course / "release", REPOSITORY / "solutions") for one in folder.rglob("*.ipynb")}
    for person in people:
        for named in person.extensions():
            if not any(lesson.startswith(named) for lesson in lessons):
                raise NotebookError(f"{path.name}: {person.key} has more days for {named}, and no lesson begins so.")
    return people


def without(path: Path, person: Person) -> bytes:
    """The content of a roster without the lines of a person."""
    content = path.read_bytes()
    text = content.decode("utf-8-sig")
    mark = _separator(text)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=mark))
    columns = _columns(rows[0])
    out = io.StringIO()
    kept = [row for number, row in enumerate(rows) if number == 0 or _person(row, columns) != person]
    csv.writer(out, delimiter=mark, lineterminator="\r\n" if "\r\n" in text else "\n").writerows(kept)
    return out.getvalue().encode("utf-8-sig" if content.startswith(codecs.BOM_UTF8) else "utf-8")


def _separator(text: str) -> str:
    return max(",;\t", key=(text.splitlines() or [""])[0].count)


def _plain(head: Sequence[str]) -> list[str]:
    return [" ".join(re.split(r"[\s_]+", composed(cell).strip().casefold())) for cell in head]


def _misspelt(head: Sequence[str], columns: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The headings that are not understood, each with the one of a column that is not there which it nearly is."""
    known = _HEADINGS | {heading: [heading] for heading in _NUMBERS}
    missing = [name for column, names in known.items() if column not in columns for name in names]
    for at, heading in enumerate(_plain(head)):
        if at not in columns.values() and (near := difflib.get_close_matches(heading, missing, n=1, cutoff=0.85)):
            yield heading, near[0]


def _columns(head: Sequence[str]) -> dict[str, int]:
    """The number of each column that is understood."""
    plain = _plain(head)
    own = {heading: plain.index(heading) for heading in _NUMBERS if heading in plain}
    return own | {
        column: plain.index(found)
        for column, names in _HEADINGS.items()
        if (found := next((name for name in [*names, *headings_of(column)] if name in plain), None)) is not None
    }


def _person(row: Sequence[str], columns: Mapping[str, int]) -> Person:
    cells = {column: composed(row[at].strip()) if at < len(row) else "" for column, at in columns.items()}
    first, last = cells.pop("first", ""), cells.pop("last", "")
    numbers = [f"{name}:{number}" for heading, name in _NUMBERS.items() if (number := cells.pop(heading, ""))]
    cells |= {"id": " ".join(numbers)} if numbers else {}
    if any(cells.get("name") in system.not_people for system in SYSTEMS.values()):
        return Person()
    name = cells.pop("name", "") or " ".join(filter(None, [first, last]))
    folder = cells.pop("folder", "").rstrip("/")
    if "/" in folder or folder.startswith(".") or unusable(folder):
        folder = folder_name(folder)
    return Person(name=name, folder=folder, **cells)


_ENCODINGS = ("cp437", "cp850", "cp1252", "gb18030", "cp932", "big5", "euc_kr", "cp866", "cp1251", "cp1250", "cp1253")
"""What programs write the names in a zip in that is not UTF-8: of DOS and Windows, for Europe and East Asia."""

_MOST_COMPARED = 500
"""Names of an archive by which its encoding is found."""


def encoding_of(people: Iterable[Person], names: Iterable[bytes]) -> str:
    """The encoding in which most of the names hold that of somebody in the class; "" where none does."""
    written = {text for person in people for text in (person.name, person.folder) if not text.isascii()}
    known = {form for text in written for form in (letters_of(text), letters_of(text, True))} - {""}
    several = list(islice(names, _MOST_COMPARED))
    best, most = "", 0
    for encoding in _ENCODINGS if known else ():
        read = [letters_of(name.decode(encoding, errors="replace")) for name in several]
        if (found := sum(any(one in text for one in known) for text in read)) > most:
            best, most = encoding, found
    return best
