"""What the path of a collected file says: which student handed it in, for which lesson, in which attempt.

`lms.SYSTEMS` knows the folders that each system makes. A path that no system has made names the student by a folder or
by the name of the file. Students choose the names of their files and of the folders in their archives, so the outermost
part that a system has made decides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from helpers.instructor.collect.lms import SYSTEMS, HandIn, Parts
from helpers.instructor.collect.names import composed, folder_name, is_notebook, without_suffix
from helpers.instructor.collect.person import Person, letters_of
from helpers.make.working_copy import RENAMED


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
    return _of_whole_exports([_with_lesson(one, lessons, lesson) for one in found], usernames)


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
        for system in SYSTEMS.values():
            one = system.layout((*folders[start:], parts[-1]))
            if one and one.file and not _loses_lesson(parts[start], one, lessons):
                return replace(
                    one, student=folder_name(one.student), system=system.name, spoken=one.spoken + parts[:start]
                )
    return None


def _loses_lesson(part: str, one: HandIn, lessons: Sequence[str]) -> bool:
    """Whether a lesson's number was taken for one of a system's, as in `group_1_02_x.ipynb`."""
    return bool(_in_full(part, lessons)) and not any(_in_full(text, lessons) for text in (*one.file, *one.spoken))


def _of_whole_exports(found: Sequence[HandIn], usernames: Sequence[str]) -> list[HandIn]:
    """The same, with the students of systems that need all paths of an export to find them."""
    found = list(found)
    for system in SYSTEMS.values():
        own = [at for at, one in enumerate(found) if one.system == system.name]
        if system.students and own:
            for at, one in zip(own, system.students([found[at] for at in own], usernames), strict=True):
                found[at] = one
    return found


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
