"""Who is in the class: a CSV file, written by hand or exported by an LMS, with a line for each student.

The columns may stand in any order, and only one that names a person is needed:

    folder       the student's folder in submitted/
    name         or `first name` and `last name`
    email        the address by which Moodle knows the student
    id           the number by which Canvas, ILIAS or Brightspace knows the student; Moodle's ID number; of one system
    username     the login of Blackboard, ILIAS, GitHub, JupyterHub
    participant  Moodle's "Participant 4718"; several, as Moodle has another for each assignment: 4718 5102
    sis, section as Canvas has them

The gradebook that Canvas exports, and Moodle's list of participants or grading worksheet, are rosters as they are.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path

from helpers.instructor.collect.names import composed, folder_name, unusable
from helpers.instructor.publish.notebooks import NotebookError

ROSTER = "roster.csv"
"""The roster of a course directory."""

_COLUMNS = {
    "folder": ["folder"],
    "name": ["name", "full name", "student", "student name", "vollständiger name", "nom complet"],
    "first": ["first name", "firstname", "first", "vorname", "prénom"],
    "last": ["last name", "lastname", "last", "surname", "family name", "nachname", "nom"],
    "email": ["email", "e-mail", "mail", "email address", "e-mail address", "e-mail-adresse", "adresse de courriel"],
    "id": ["id", "id number", "idnumber", "student id", "user id", "matrikelnummer", "org defined id", "orgdefinedid"],
    "username": ["username", "user name", "login", "login id", "sis login id", "github username", "benutzername"],
    "participant": ["participant", "participants", "identifier", "id des eintrags"],
    "sis": ["sis", "sis user id"],
    "section": ["section"],
}


@dataclass(frozen=True)
class Person:
    """A student as a roster or an LMS knows them; unknown fields are empty."""

    folder: str = ""
    name: str = ""
    email: str = ""
    id: str = ""
    username: str = ""
    participant: str = ""
    sis: str = ""
    section: str = ""

    @property
    def key(self) -> str:
        """What the student is called in tables: the folder, or whatever else is known."""
        return self.folder or self.name or self.email or self.username or self.id

    def or_else(self, other: Person) -> Person:
        """This person, with what the other one knows besides."""
        own = {field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)}
        return replace(self, **own)


def read_roster(path: Path) -> list[Person]:
    """The people of a roster.

    Raises NotebookError for a file that cannot be read as UTF-8, has no column that names a person, or has two lines
    for one folder, email, number or login.
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
    if not columns:
        raise NotebookError(f"{path.name} has no column folder, name, email, id or username in its first line.")
    people = [person for row in rows[1:] if (person := _person(row, columns)).key]
    for column in ("folder", "email", "id", "username", "sis"):
        uses = Counter(getattr(person, column).casefold() for person in people)
        for person in people:
            if (cell := getattr(person, column)) and uses[cell.casefold()] > 1:
                raise NotebookError(
                    f"{path.name} has several lines for the {column} {cell}: each student has one line, and one of "
                    f"their own."
                )
    return people


def roster_of(course: Path, given: Path | None = None) -> list[Person]:
    """The people of the roster that is given, or else of the course directory; [] where there is none."""
    path = given or course / ROSTER
    return read_roster(path) if given or path.exists() else []


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


def _columns(head: Sequence[str]) -> dict[str, int]:
    """The number of each column that is understood."""
    plain = [" ".join(re.split(r"[\s_]+", composed(cell).strip().casefold())) for cell in head]
    return {
        column: plain.index(found)
        for column, names in _COLUMNS.items()
        if (found := next((name for name in names if name in plain), None)) is not None
    }


def _person(row: Sequence[str], columns: Mapping[str, int]) -> Person:
    cells = {column: composed(row[at].strip()) if at < len(row) else "" for column, at in columns.items()}
    first, last = cells.pop("first", ""), cells.pop("last", "")
    if cells.get("name") in ("Points Possible", "Student, Test"):  # lines of Canvas's gradebook
        return Person()
    name = cells.pop("name", "") or " ".join(filter(None, [first, last]))
    folder = cells.pop("folder", "").rstrip("/")
    if "/" in folder or folder.startswith(".") or unusable(folder):
        folder = folder_name(folder)
    return Person(name=name, folder=folder, **cells)


def meant_by(people: Iterable[Person], one: Person) -> Person | None:
    """The person of a roster who is meant by `one`; None where nobody is, or where it could be several."""
    people = [person for person in people if not _is_another(person, one)]
    for same in (_folder, _number, _address, _name):
        found = [person for person in people if same(person, one)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def numbers_of(people: Sequence[Person], known: Iterable[tuple[Person, str]]) -> str:
    """The system whose numbers a roster has in the column `id`, of those by which students are `known`.

    Canvas, Brightspace and ILIAS count for themselves, so that 4711 may be two people. Where students come from several
    of them, it is the one in which most numbers have the same name as in the roster; "" where none has.
    """
    several = [(one, system) for one, system in known if system and one.id]
    systems = {system for _, system in several}
    if len(systems) < 2:
        return next(iter(systems), "")
    by_id = {person.id: person for person in people if person.id}
    agree = Counter(system for one, system in several if one.id in by_id and _name(by_id[one.id], one))
    ranked = agree.most_common(2)
    return ranked[0][0] if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]) else ""


def comparable(one: Person, system: str, numbers: str) -> Person:
    """A student as a `system` knows them, without its number where the roster has the `numbers` of another."""
    return one if system in ("", numbers) else replace(one, id="")


def surely(person: Person, one: Person) -> bool:
    """Whether a person of a roster is meant by `one` by more than the name."""
    return any(same(person, one) for same in (_folder, _number, _address)) and not _is_another(person, one)


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


def _is_another(person: Person, one: Person) -> bool:
    """Whether two are known by numbers or logins that differ, so that the same name is that of a namesake."""
    return bool(
        (one.id and person.id and one.id not in (person.id, person.sis))
        or (one.username and person.username and one.username.casefold() != person.username.casefold())
    )


def _folder(person: Person, one: Person) -> bool:
    return bool(one.folder) and person.folder == one.folder


def _number(person: Person, one: Person) -> bool:
    numbers = set(re.findall(r"\d+", person.participant)) & set(re.findall(r"\d+", one.participant))
    return bool(numbers) or bool(one.id) and one.id in (person.id, person.sis)


def _address(person: Person, one: Person) -> bool:
    known = {text.casefold() for text in (person.email, person.username) if text}
    return bool(known & {text.casefold() for text in (one.email, one.username, one.folder) if text})


def _name(person: Person, one: Person) -> bool:
    """Whether the names have the same letters: Canvas leaves out spaces, Moodle puts a group before the name."""
    known = {
        letters_of(person.name),
        letters_of(" ".join(reversed(person.name.split(",")))),
        letters_of(person.name, True),
    }
    named = one.name or one.folder
    return bool(person.name) and bool(known & {letters_of(named), letters_of(named.partition("-")[2])} - {""})


def letters_of(name: str, last_first: bool = False) -> str:
    """The letters and digits of a name, without spaces, signs and capitals; the last word first where it is asked."""
    words = name.split()
    text = "".join(words[-1:] + words[:-1]) if last_first else name
    return "".join(letter for letter in composed(text).casefold() if letter.isalnum() or not letter.isascii())
