"""Learning management systems (LMS): how each one exports submissions, calls its columns, and reads grades.

Whatever differs from system to system is one `System` here. Collecting, rosters, exports and the command line go
through `SYSTEMS` and know no system by name. To add a system, write a `System` with some examples and add it to
`SYSTEMS`: `tests/instructor/test_lms.py` compares every system with its own examples.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.instructor.collect.person import Person

Parts = tuple[str, ...]
"""A path: the names of folders and archives, and then of the file."""


@dataclass(frozen=True)
class HandIn:
    """What a path says about a file: who handed it in, under what name, and when, as far as the system says so."""

    student: str
    """The name of the student's folder; "" if the path names nobody."""
    file: Parts
    """The part of the path that the student has chosen."""
    who: Person = Person()
    system: str = ""
    """The `name` of the system that made the path; "" if no system did."""
    attempt: str = ""
    """When the file was handed in, as a text that sorts by time."""
    upload: int = 0
    """The number of the upload, which grows."""
    late: bool = False
    spoken: Parts = ()
    """Other parts of the path in which the lesson may be named."""
    lesson: str = ""
    sure: int = 0
    """How clearly the lesson is named: 4 if the file's name is the lesson's name, 0 if nothing names the lesson."""


@dataclass(frozen=True)
class GradeTable:
    """How a system reads grades: a CSV file with these columns, followed by a column for each lesson."""

    columns: Mapping[str, str]
    """The field of `Person` that stands under each heading. A roster may have the same headings."""
    matching: Sequence[str]
    """The headings by which the system recognises a student. One of the cells must be filled."""
    matched_by: str
    """The same for a sentence: what a roster must give so that the system recognises a student."""
    by_one: bool = False
    """Whether it recognises all students by the same heading, and refuses the table for a line without it."""
    nothing: str = ""
    """The cell of a lesson without points."""
    possible: str = ""
    """The first cell of a line below the headings that has the points of each lesson; "" for a table without it."""
    of_one_lesson: Mapping[str, str] = field(default_factory=dict)
    """The columns after the student's for a table of one lesson; {points} and {most} may stand in the cells."""
    spelling: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    """For a field of `Person` that this table spells otherwise: the function that spells it."""


@dataclass(frozen=True)
class System:
    """What is peculiar to one system."""

    name: str
    """The name in the ledger of collected files."""
    title: str
    """The name in sentences."""
    layout: Callable[[Parts], HandIn | None]
    """Reads a path from one of its parts on; None if this system does not make such a part."""
    examples: Mapping[str, str]
    """Paths as the system exports them, each with the name of the student's folder. `grade --help` shows them."""
    headings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By field of `Person`: the system's own headings in a roster, in small letters; its tables have others."""
    not_people: Sequence[str] = ()
    """Names in its lists that are not the names of people."""
    tables: Mapping[str, GradeTable] = field(default_factory=dict)
    """The tables of grades that it reads, by the name that `export --format` takes."""
    adds: Sequence[str] = ()
    """Files that the system itself puts into an export, in small letters."""
    root: str = ""
    """The end of an export's own name, if the name of the export is a part of the layout."""
    returned: str = ""
    """A pattern for the part of a hand-in's path that, with `_` and a name, is the name of a file to give back; in a
    zip of these the system knows the students."""
    renumbers: bool = False
    """Whether a student has another number in each assignment, so that only the name stays the same."""
    students: Callable[[Sequence[HandIn], Sequence[str]], list[HandIn]] | None = None
    """Finds the students if that needs all paths of an export; the usernames of the roster are its second argument."""


# Canvas


def _canvas(parts: Parts) -> HandIn | None:
    """A file's name begins with the student's name, an ID and the number of the upload."""
    match = re.match(
        r"(?:(?P<name>.+?)_)??(?P<late>LATE_)?(?:(?P<id>\d+)|anon_(?P<anonymous>[^\W_]+))_"
        r"(?:(?P<upload>\d+)_(?P<file>.+)|(?P<page>(?:text|link)\.html))$",
        parts[0],
    )
    if match is None or not (match["name"] or match["anonymous"]):
        return None
    student = f"{match['name']}_{match['id']}" if match["id"] else f"anon_{match['anonymous']}"
    who = Person(name=match["name"] or "", id=match["id"] or "")
    file = (match["file"] or match["page"], *parts[1:])
    return HandIn(student, file, who, upload=int(match["upload"] or 0), late=bool(match["late"]))


CANVAS = System(
    name="canvas",
    title="Canvas",
    layout=_canvas,
    examples={
        "lovelaceada_LATE_12345_67890_02_….ipynb": "lovelaceada_12345",
        "anon_a1B2c_67890_02_….ipynb": "anon_a1B2c",
    },
    not_people=("Points Possible", "Student, Test"),
    returned=r"(?:[^/]+?_)??(?:LATE_)?(?:\d+|anon_[^\W_]+)_\d+(?=_)",
    tables={
        "canvas": GradeTable(  # Canvas matches the lessons by name; the student's name may be spelled otherwise
            columns={
                "Student": "name",
                "ID": "id",
                "SIS User ID": "sis",
                "SIS Login ID": "username",
                "Section": "section",
            },
            matching=("ID", "SIS User ID", "SIS Login ID"),
            matched_by="an ID of Canvas or a login",
            possible="    Points Possible",
        )
    },
)


# Moodle


def _moodle(parts: Parts) -> HandIn | None:
    """A folder, or the beginning of a file's name, has the student's name and number; groups have no number."""
    match = re.match(
        r"(?P<name>.+?)(?:_(?P<number>\d+))?_assignsubmission_(?P<kind>[^\W_]+)(?:_(?P<file>.*))?$", parts[0]
    )
    if match is None:
        return None
    file = (match["file"], *parts[1:]) if match["file"] else parts[1:]
    number = match["number"] or ""
    student = "_".join(filter(None, [match["name"], number]))
    return HandIn(student, file, Person(name=match["name"], participant=number))


def _participant(number: str) -> str:
    """A number as Moodle's worksheet has it; "" if a roster has several and none is known to be this assignment's."""
    return f"Participant {number}" if number.isdigit() else "" if number[:1].isdigit() else number


MOODLE = System(
    name="moodle",
    title="Moodle",
    layout=_moodle,
    examples={
        "Ada Lovelace_4711_assignsubmission_file/02_….ipynb": "Ada Lovelace_4711",
        "Ada Lovelace_4711_assignsubmission_file_02_….ipynb": "Ada Lovelace_4711",
        "Participant_4718_assignsubmission_file_/02_….ipynb": "Participant_4718",
    },
    headings={
        "name": ("vollständiger name", "nom complet"),
        "email": ("adresse de courriel",),
        "participant": ("id des eintrags",),
    },
    tables={
        "moodle": GradeTable(  # an empty cell would be 0 where the lesson is a new grade item
            columns={"username": "username", "email": "email", "idnumber": "id", "name": "name"},
            matching=("username", "email", "idnumber"),
            by_one=True,
            nothing="-",
            matched_by="the username, email or ID number that the others have",
        ),
        "moodle-worksheet": GradeTable(  # anonymous students are matched, too
            columns={"Identifier": "participant", "Full name": "name", "Email address": "email"},
            matching=("Identifier",),
            matched_by="a number of Moodle for this lesson",
            of_one_lesson={"Grade": "{points}", "Maximum grade": "{most}", "Last modified (grade)": "-"},
            spelling={"participant": _participant},
        ),
    },
    returned=r"[^/]+?_\d+_assignsubmission_file",
    renumbers=True,
)


# Blackboard


def _blackboard(parts: Parts) -> HandIn | None:
    """A file's name begins with the assignment's title and the login, both of which may hold underscores."""
    match = re.match(r"(?P<stem>.+?)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|\.txt)$", parts[0])
    if match is None:
        return None
    file = (match["file"] or parts[0], *parts[1:])
    return HandIn(match["stem"], file, attempt=match["when"], spoken=(match["stem"],))


def _without_titles(found: Sequence[HandIn], usernames: Sequence[str]) -> list[HandIn]:
    """Takes the assignment's title, which all files of a lesson begin with, away from the logins.

    A login that the roster has is recognised whatever the title is.
    """
    stems: dict[str, set[str]] = {}
    for one in found:
        stems.setdefault(one.lesson, set()).add(one.student)
    titles = {}
    for _, own in sorted(stems.items()):  # receipts, which name no lesson, come first
        common = os.path.commonprefix(sorted(own))
        titles |= dict.fromkeys(own, common[: common.rfind("_") + 1])

    def named(one: HandIn) -> HandIn:
        known = [name for name in usernames if one.student.casefold().endswith(f"_{name.casefold()}")]
        login = max(known, key=len) if known else one.student.removeprefix(titles[one.student])
        return replace(one, student=login, who=Person(username=login))

    return [named(one) for one in found]


BLACKBOARD = System(
    name="blackboard",
    title="Blackboard",
    layout=_blackboard,
    examples={"Homework 2_alovelace_attempt_2026-11-20-13-45-02_02_….ipynb": "alovelace"},
    students=_without_titles,
)


# Brightspace

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def _brightspace(parts: Parts) -> HandIn | None:
    """A folder, or the beginning of a file's name, has an ID, the student's name and the time."""
    match = re.match(
        r"(?P<id>\d+)-\d+ ?- ?(?P<name>.+?) ?- ?(?P<when>[^-]*\b\d{4}\b[^-]*?)(?: ?- ?(?P<file>.+))?$", parts[0]
    )
    if match is None:
        return None
    file = (match["file"], *parts[1:]) if match["file"] else parts[1:]
    who = Person(name=match["name"], id=match["id"])
    return HandIn(f"{match['name']}_{match['id']}", file, who, attempt=_moment(match["when"]))


def _moment(text: str) -> str:
    """`Nov 20, 2024 145 PM` as `2024-11-20-13-45`; "" for a time that is written otherwise."""
    month = re.search(r"[A-Za-z]{3}", text)
    numbers = re.search(r"\b(\d{1,2}),? .*?(\d{4})\D+(\d{1,2})[.:]?(\d\d)\s*(AM|PM)?", text, re.IGNORECASE)
    if month is None or numbers is None or month[0].casefold() not in _MONTHS:
        return ""
    day, year, hour, minute = (int(number) for number in numbers.groups()[:4])
    if numbers[5]:
        hour = hour % 12 + 12 * (numbers[5].upper() == "PM")
    return f"{year}-{_MONTHS.index(month[0].casefold()) + 1:02}-{day:02}-{hour:02}-{minute:02}"


BRIGHTSPACE = System(
    name="brightspace",
    title="Brightspace",
    layout=_brightspace,
    examples={"12345-678 - Ada Lovelace - Nov 20, 2026 145 PM/02_….ipynb": "Ada Lovelace_12345"},
    headings={"id": ("org defined id", "orgdefinedid")},
    adds=("index.html",),
)


# ILIAS


def _ilias(parts: Parts) -> HandIn | None:
    """A folder has the last name, the first name, the login and an ID; older versions put the time before the file."""
    match = re.match(r"(?P<name>.*_.*)_(?P<login>[^_]+)_(?P<id>\d+)$", parts[0])
    if match is None or len(parts) < 2:
        return None
    file = re.match(r"(?P<late>(?:Late|Too late|Versp(?:ä|ae|a)tet)[^-]* - )?(?:(?P<when>\d{14})_)?", parts[1], re.I)
    left = parts[1][file.end() :]
    name = " ".join(reversed(match["name"].split("_", 1))).replace("_", " ").strip()
    who = Person(name=name, id=match["id"], username=match["login"])
    return HandIn(parts[0], (left, *parts[2:]), who, attempt=file["when"] or "", late=bool(file["late"]))


ILIAS = System(
    name="ilias",
    title="ILIAS",
    layout=_ilias,
    examples={
        "Lovelace_Ada_alovelace_1234/02_….ipynb": "Lovelace_Ada_alovelace_1234",
        "Exercise 2/Team 12/Lovelace_Ada_alovelace_1234/20261120134502_02_….ipynb": "Lovelace_Ada_alovelace_1234",
    },
    adds=("status.csv", "status.xls", "status.xlsx"),
)


# Sakai, Teams, GitHub Classroom


def _sakai(parts: Parts) -> HandIn | None:
    """A folder has the name and the login; within it is a folder of attachments."""
    if len(parts) < 3 or parts[1].casefold() not in ("submission attachment(s)", "feedback attachment(s)"):
        return None
    match = re.match(r"(?P<name>.+?) ?\((?P<login>[^()]+)\)$", parts[0])
    who = Person(name=match["name"], username=match["login"]) if match else Person(name=parts[0])
    return HandIn(parts[0], parts[2:], who)


SAKAI = System(
    name="sakai",
    title="Sakai",
    layout=_sakai,
    examples={
        "Homework 2/Lovelace, Ada(alovelace)/Submission attachment(s)/02_….ipynb": "Lovelace, Ada(alovelace)",
    },
)


def _teams(parts: Parts) -> HandIn | None:
    """A folder for each student holds one for each assignment, and that one a folder for each version."""
    match = re.match(r"Version (?P<number>\d+)$", parts[2]) if len(parts) > 3 else None
    if match is None:
        return None
    attempt = f"version {match['number']:0>4}"
    return HandIn(parts[0], parts[3:], Person(name=parts[0]), attempt=attempt, spoken=(parts[1],))


TEAMS = System(
    name="teams",
    title="Teams",
    layout=_teams,
    examples={"Submitted files/Ada Lovelace/Homework 2/Version 1/02_….ipynb": "Ada Lovelace"},
)


def _github(parts: Parts) -> HandIn | None:
    """The export is called after the assignment, and within it is a repository for each user."""
    slug = parts[0].removesuffix("-submissions")
    if slug == parts[0] or len(parts) < 3 or not parts[1].startswith(f"{slug}-") or parts[1] == parts[0]:
        return None
    user = parts[1].removeprefix(f"{slug}-")
    return HandIn(user, parts[2:], Person(username=user), spoken=(slug,)) if user else None


GITHUB = System(
    name="github",
    title="GitHub Classroom",
    layout=_github,
    examples={"homework-2-submissions/homework-2-alovelace/lessons/02_….ipynb": "alovelace"},
    headings={"username": ("github username",)},
    adds=("readme.md",),
    root="-submissions",
)


SYSTEMS = {one.name: one for one in (MOODLE, BLACKBOARD, BRIGHTSPACE, GITHUB, CANVAS, ILIAS, SAKAI, TEAMS)}
"""Every system by its name, in the order in which layouts are tried: the most specific first."""

GRADE_TABLES = {form: (system, table) for system in SYSTEMS.values() for form, table in system.tables.items()}
"""By the name that `export --format` takes: the system, and the table that it reads."""


def headings_of(field_of_person: str) -> list[str]:
    """The systems' headings of a column of a roster, in small letters, of their lists and of their tables."""
    found = []
    for system in SYSTEMS.values():
        found += system.headings.get(field_of_person, ())
        for table in system.tables.values():
            found += [heading.casefold() for heading, named in table.columns.items() if named == field_of_person]
    return list(dict.fromkeys(found))


def examples() -> str:
    """A table in plain text: what each system exports, and what the student's folder is called then."""
    lines = [(one.title, path, student) for one in SYSTEMS.values() for path, student in one.examples.items()]
    wide, long = (max(len(line[column]) for line in lines) for column in (0, 1))
    return "\n".join(f"  {title:{wide}}  {path:{long}}  {student}" for title, path, student in lines)
