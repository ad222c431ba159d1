"""How systems lay out submissions: which student, attempt and lesson the path of a file speaks of.

`LAYOUTS` has a function for each system. It sees a path from one of its parts on, and answers where that part is one
that the system makes. Students choose the names of their files and of the folders in their archives, so the outermost
part that a system has made decides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from helpers.instructor.collect.names import composed, folder_name, is_notebook, without_suffix
from helpers.instructor.collect.roster import Person, letters_of
from helpers.make.working_copy import RENAMED

Parts = tuple[str, ...]
"""A path: the names of folders and archives, and of the file."""


@dataclass(frozen=True)
class HandIn:
    """What a path says of a file: who handed it in, under what name, and when, as far as the system says it."""

    student: str
    """As a name of a folder; "" where nobody is named."""
    file: Parts
    """The part of the path that the student has chosen."""
    who: Person = Person()
    system: str = ""
    attempt: str = ""
    """When it was handed in, so that later attempts sort after earlier ones."""
    upload: int = 0
    """The number of the upload, which grows."""
    late: bool = False
    spoken: Parts = ()
    """Other words of the path, in which the lesson may be named."""
    lesson: str = ""
    sure: int = 0
    """How clearly the lesson is named: 4 where the file has its name and nothing else, 0 where it is not named."""


def _canvas(parts: Parts) -> HandIn | None:
    """`lovelaceada_LATE_12345_67890_02_x-1.ipynb`, `anon_a1B2c_67890_02_x.ipynb`, `lovelaceada_12345_text.html`."""
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


def _moodle(parts: Parts) -> HandIn | None:
    """`Ada Lovelace_4711_assignsubmission_file/02_x.ipynb`, or in one name; `Participant_4711_…`; teams."""
    match = re.match(
        r"(?P<name>.+?)(?:_(?P<number>\d+))?_assignsubmission_(?P<kind>[^\W_]+)(?:_(?P<file>.*))?$", parts[0]
    )
    if match is None:
        return None
    file = (match["file"], *parts[1:]) if match["file"] else parts[1:]
    number = match["number"] or ""
    student = "_".join(filter(None, [match["name"], number]))
    return HandIn(student, file, Person(name=match["name"], participant=number))


def _blackboard(parts: Parts) -> HandIn | None:
    """`Homework 2_alovelace_attempt_2024-11-20-13-45-02_02_x.ipynb`; the student is what `_of_blackboard` leaves."""
    match = re.match(r"(?P<stem>.+?)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|\.txt)$", parts[0])
    if match is None:
        return None
    file = (match["file"] or parts[0], *parts[1:])
    return HandIn(match["stem"], file, attempt=match["when"], spoken=(match["stem"],))


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def _brightspace(parts: Parts) -> HandIn | None:
    """`12345-67890 - Ada Lovelace - Nov 20, 2024 145 PM/02_x.ipynb`, or with the file in the same name."""
    match = re.match(
        r"(?P<id>\d+)-\d+ ?- ?(?P<name>.+?) ?- ?(?P<when>[^-]*\b\d{4}\b[^-]*?)(?: ?- ?(?P<file>.+))?$", parts[0]
    )
    if match is None:
        return None
    file = (match["file"], *parts[1:]) if match["file"] else parts[1:]
    who = Person(name=match["name"], id=match["id"])
    return HandIn(f"{match['name']}_{match['id']}", file, who, attempt=_moment(match["when"]))


def _moment(text: str) -> str:
    """`Nov 20, 2024 145 PM` as `2024-11-20-13-45`; "" where it is written otherwise."""
    month = re.search(r"[A-Za-z]{3}", text)
    numbers = re.search(r"\b(\d{1,2}),? .*?(\d{4})\D+(\d{1,2})[.:]?(\d\d)\s*(AM|PM)?", text, re.IGNORECASE)
    if month is None or numbers is None or month[0].casefold() not in _MONTHS:
        return ""
    day, year, hour, minute = (int(number) for number in numbers.groups()[:4])
    if numbers[5]:
        hour = hour % 12 + 12 * (numbers[5].upper() == "PM")
    return f"{year}-{_MONTHS.index(month[0].casefold()) + 1:02}-{day:02}-{hour:02}-{minute:02}"


def _ilias(parts: Parts) -> HandIn | None:
    """`Lovelace_Ada_alovelace_1234/02_x.ipynb`, in older versions with fourteen digits of the time before the file."""
    match = re.match(r"(?P<name>.*_.*)_(?P<login>[^_]+)_(?P<id>\d+)$", parts[0])
    if match is None or len(parts) < 2:
        return None
    file = re.match(r"(?P<late>(?:Late|Too late|Versp(?:ä|ae|a)tet)[^-]* - )?(?:(?P<when>\d{14})_)?", parts[1], re.I)
    left = parts[1][file.end() :]
    name = " ".join(reversed(match["name"].split("_", 1))).replace("_", " ").strip()
    who = Person(name=name, id=match["id"], username=match["login"])
    return HandIn(parts[0], (left, *parts[2:]), who, attempt=file["when"] or "", late=bool(file["late"]))


def _github(parts: Parts) -> HandIn | None:
    """`homework-2-submissions/homework-2-alovelace/lessons/02_x.ipynb`."""
    slug = parts[0].removesuffix("-submissions")
    if slug == parts[0] or len(parts) < 3 or not parts[1].startswith(f"{slug}-") or parts[1] == parts[0]:
        return None
    user = parts[1].removeprefix(f"{slug}-")
    return HandIn(user, parts[2:], Person(username=user), spoken=(slug,)) if user else None


def _sakai(parts: Parts) -> HandIn | None:
    """`Homework 2/Lovelace, Ada(alovelace)/Submission attachment(s)/02_x.ipynb`."""
    if len(parts) < 3 or parts[1].casefold() not in ("submission attachment(s)", "feedback attachment(s)"):
        return None
    match = re.match(r"(?P<name>.+?) ?\((?P<login>[^()]+)\)$", parts[0])
    who = Person(name=match["name"], username=match["login"]) if match else Person(name=parts[0])
    return HandIn(parts[0], parts[2:], who)


def _teams(parts: Parts) -> HandIn | None:
    """`Submitted files/Ada Lovelace/Homework 2/Version 1/02_x.ipynb`; a later version is a later attempt."""
    match = re.match(r"Version (?P<number>\d+)$", parts[2]) if len(parts) > 3 else None
    if match is None:
        return None
    attempt = f"version {match['number']:0>4}"
    return HandIn(parts[0], parts[3:], Person(name=parts[0]), attempt=attempt, spoken=(parts[1],))


LAYOUTS: dict[str, Callable[[Parts], HandIn | None]] = {
    "moodle": _moodle,
    "blackboard": _blackboard,
    "brightspace": _brightspace,
    "github": _github,
    "canvas": _canvas,
    "ilias": _ilias,
    "sakai": _sakai,
    "teams": _teams,
}
"""The layouts tried, in this order, the most specific first."""


def understood_as(
    paths: Sequence[str], lessons: Sequence[str], lesson: str = "", usernames: Sequence[str] = ()
) -> list[HandIn]:
    """What each path of one export speaks of; files that name no lesson are of `lesson`.

    A path that no system has made is a student's folder, `ada/02_x.ipynb`, or has the name before the lesson's,
    `ada_02_x.ipynb`. Folders that hold everything are nobody's.
    """
    split = [tuple(composed(part) for part in path.split("/")) for path in paths]
    notebooks = [parts for parts in split if is_notebook(parts[-1])] or split
    common = os.path.commonprefix([[parts[at] for at in _of_persons(parts, lessons)] for parts in notebooks])
    unnamed = (len(_of_persons(p, lessons)) == len(common) and _names_nobody(p, lessons) for p in notebooks)
    only = _unzipped(common[-1]) if common and all(unnamed) else ""
    owns = [_own(parts, common, lessons) for parts in split]
    wanted = set(notebooks)
    anywhere = _hold_classes([(p, own) for p, own in zip(split, owns, strict=True) if p in wanted], lessons)
    found = []
    for parts, own in zip(split, owns, strict=True):
        outermost = own[0] if own else len(parts) - 1
        made = _of_systems(parts, len(parts) if anywhere else outermost + 1, lessons)
        found.append(made or _of_people(parts, own, only, lessons))
    return _of_blackboard([_with_lesson(one, lessons, lesson) for one in found], usernames)


def _own(parts: Parts, common: Sequence[str], lessons: Sequence[str]) -> list[int]:
    """The places of the folders that may be people's, without the folders that hold everything."""
    folders = _of_persons(parts, lessons)
    return folders[len(os.path.commonprefix([[parts[at] for at in folders], common])) :]


def _hold_classes(notebooks: Sequence[tuple[Parts, list[int]]], lessons: Sequence[str]) -> bool:
    """Whether the outermost folders and archives are exports of a system, each of a class, and not of people.

    Students may put what looks like another's folder into an archive of their own. So one of several archives is a
    student's where it holds one student, and all are students' where one is called as somebody within is.
    """
    within: dict[str, set[str]] = {}
    named: set[str] = set()
    for parts, own in notebooks:
        made = _of_systems(parts, len(parts), lessons)
        if made is None:
            return False
        if own and not _of_systems(parts, own[0] + 1, lessons):
            within.setdefault(parts[own[0]], set()).add(made.student)
            named |= {letters_of(made.student), letters_of(made.who.name), letters_of(made.who.username)} - {""}
    alone = len(within) > 1 and any(_unzipped(part) != part and len(students) == 1 for part, students in within.items())
    return not alone and not any(letters_of(_unzipped(part)) in named for part in within)


def students_of_systems(paths: Sequence[str], lessons: Sequence[str]) -> set[str]:
    """The students whom paths speak of as a system writes them."""
    return {one.student for one in understood_as(paths, lessons) if one.system}


def _of_persons(parts: Parts, lessons: Sequence[str]) -> list[int]:
    """The places of the folders that may be people's: not nbgrader's folders and not lessons."""
    nobody_s = ("submitted", ".", "..")
    return [at for at, part in enumerate(parts[:-1]) if part not in nobody_s and not _in_full(part, lessons)]


def _of_systems(parts: Parts, most: int, lessons: Sequence[str]) -> HandIn | None:
    """What a system says in the outermost part that it may have made, which is among the first `most`."""
    folders = tuple(_unzipped(part) for part in parts[:-1])
    for start in range(most):
        for system, layout in LAYOUTS.items():
            one = layout((*folders[start:], parts[-1]))
            if one and one.file and not _loses_lesson(parts[start], one, lessons):
                return replace(one, student=folder_name(one.student), system=system, spoken=one.spoken + parts[:start])
    return None


def _loses_lesson(part: str, one: HandIn, lessons: Sequence[str]) -> bool:
    """Whether a lesson's number was taken for one of a system's, as in `group_1_02_x.ipynb`."""
    return bool(_in_full(part, lessons)) and not any(_in_full(text, lessons) for text in (*one.file, *one.spoken))


def _of_blackboard(found: Sequence[HandIn], usernames: Sequence[str]) -> list[HandIn]:
    """The same, with the title of the assignment, which all of a lesson have in common, taken from before the logins.

    A login may hold underscores, as a title may: one that is known is recognised.
    """
    stems: dict[str, set[str]] = {}
    for one in found:
        if one.system == "blackboard":
            stems.setdefault(one.lesson, set()).add(one.student)
    titles = {}
    for _, own in sorted(stems.items()):  # receipts, which name no lesson, come first
        common = os.path.commonprefix(sorted(own))
        titles |= dict.fromkeys(own, common[: common.rfind("_") + 1])

    def named(one: HandIn) -> HandIn:
        if one.system != "blackboard":
            return one
        known = [name for name in usernames if one.student.casefold().endswith(f"_{name.casefold()}")]
        login = max(known, key=len) if known else one.student.removeprefix(titles[one.student])
        return replace(one, student=login, who=Person(username=login))

    return [named(one) for one in found]


def _of_people(parts: Parts, own: Sequence[int], only: str, lessons: Sequence[str]) -> HandIn:
    """What a path says that no system has made; `only` is the one student of the export, where there is one."""
    if own:
        name = _unzipped(parts[own[0]])
        return HandIn(folder_name(name), parts[own[0] + 1 :], Person(name=name), spoken=parts[: own[0]])
    name = _name_in_file(parts, lessons) or only
    return HandIn(folder_name(name) if name else "", parts[-1:], Person(name=name), spoken=parts[:-1])


def _name_in_file(parts: Parts, lessons: Sequence[str]) -> str:
    """The name that a file has before the lesson, or else the archive that it is in."""
    archives = [part for part in parts[-2::-1] if part.casefold().endswith(".zip")]
    return next(filter(None, (_before_lesson(part, lessons) for part in (parts[-1], *archives))), "")


def _names_nobody(parts: Parts, lessons: Sequence[str]) -> bool:
    """Whether a file is called as its lesson is, or as a copy of it, and holds nobody's name before or after."""
    name = without_suffix(parts[-1])
    lesson = says(name, lessons)
    rest = _words(lesson).sub("", name) if _in_full(name, lessons) else re.sub(r"^\d+", "", name)
    copy = r"(?:cop(?:y|ie|ia)(?: of)?|kopie(?: von)?|checkpoint|final|v|\d+|[\s_().-])*"
    return not _name_in_file(parts, lessons) and bool(not lesson or re.fullmatch(copy, rest, re.IGNORECASE))


def _before_lesson(file: str, lessons: Sequence[str]) -> str:
    """What stands before the lesson in the name of a file."""
    name = without_suffix(file)
    lesson = says(name, lessons)
    number = rf"[\s_-]{lesson.partition('_')[0]}(?:[\s_-]*\(\d+\))?$"
    place = (_words(lesson).search(name) or re.search(number, name)) if lesson else None
    if place is None:
        return ""
    return re.sub(r"^copy of\b", "", name[: place.start()], flags=re.IGNORECASE).strip(" _-.")


def _with_lesson(one: HandIn, lessons: Sequence[str], otherwise: str) -> HandIn:
    """The same, with the lesson that the file, or else the folders around it, name; or else the one that is given."""
    name = without_suffix(one.file[-1])
    if lesson := says(name, lessons):
        sure = {_plain(lesson): 4, lesson.partition("_")[0]: 3}.get(_plain(name), 2)
        return replace(one, lesson=lesson, sure=sure)
    for lesson in (*(says(text, lessons) for text in one.file[-2::-1]), *(_in_full(t, lessons) for t in one.spoken)):
        if lesson:
            return replace(one, lesson=lesson, sure=1)
    if otherwise and not one.student:  # a loose file that has the name of a person
        return replace(one, student=folder_name(name), who=Person(name=name), lesson=otherwise)
    return replace(one, lesson=otherwise)


def says(name: str, lessons: Sequence[str]) -> str:
    """The one lesson that a name speaks of, in full, or by its number at the beginning or the end; "" otherwise.

    `02.ipynb`, `02-Copy1.ipynb` and `ada_02.ipynb` are of lesson 02; a date is of none. In full is also a name that the
    lesson had in an earlier edition.
    """
    name = without_suffix(name)
    plain = _plain(name)
    found = _named(name, lessons)
    for lesson in () if found else lessons:
        number = lesson.partition("_")[0]
        at_an_end = rf"{number}(?:$|_*[^\W\d_]|_*\()|.*[^\W\d_]_+{number}(?:_*\(\d+\))?$"
        if number.isdigit() and re.match(at_an_end, plain):
            found.append(lesson)
    return found[0] if len(found) == 1 else ""


def _in_full(name: str, lessons: Sequence[str]) -> str:
    """The one lesson whose full name stands in a name; "" otherwise."""
    found = _named(name, lessons)
    return found[0] if len(found) == 1 else ""


def _named(name: str, lessons: Sequence[str]) -> list[str]:
    """The lessons whose full names stand in a name, or else the ones whose earlier names do."""
    now = [lesson for lesson in lessons if re.search(_as_pattern(lesson), name, re.IGNORECASE)]
    return now or [lesson for lesson in lessons if _words(lesson).search(name)]


@cache
def _words(lesson: str) -> re.Pattern[str]:
    """Where a lesson's name stands in another, or a name that it had."""
    names = [lesson, *(earlier for earlier, now in RENAMED.items() if now == lesson)]
    return re.compile("|".join(map(_as_pattern, names)), re.IGNORECASE)


def _as_pattern(lesson: str) -> str:
    return r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", lesson)))


def _unzipped(name: str) -> str:
    return re.sub(r"\.zip$", "", name, flags=re.IGNORECASE)


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "_", text.casefold())
