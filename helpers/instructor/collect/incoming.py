"""Brings what an LMS has exported, a folder or a zip, to nbgrader's submitted/."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from helpers.engine.files import NotRegular, write_whole
from helpers.instructor.collect.ledger import Collected, Known, Ledger, read_ledger, write_ledger
from helpers.instructor.collect.lms import SYSTEMS, HandIn
from helpers.instructor.collect.names import is_notebook, listed, printable
from helpers.instructor.collect.paths import students_of_systems, understood_as
from helpers.instructor.collect.person import Person, comparable, meant_by, numbers_of, surely
from helpers.instructor.collect.roster import encoding_of
from helpers.instructor.collect.sources import MOST_FILES, SourceFile, opened
from helpers.instructor.collect.submissions import ATTEMPTS
from helpers.instructor.publish.notebooks import NotebookError

_ADDED = {file for system in SYSTEMS.values() for file in system.adds}
_COPY = re.compile(r"cop(y|ie|ia)|kopie|checkpoint", re.IGNORECASE)

COUNTS = "last", "in-time", "best"
"""Which of several attempts counts."""
InTime = Callable[[HandIn | Collected], bool]

Arrived = tuple[SourceFile, HandIn]
"""A file, and what its path says."""


@dataclass
class Collection:
    """What `collect` has done: how many notebooks came, which files were passed over, and notes."""

    count: int = 0
    passed_over: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect(
    source: Path,
    course: Path,
    lessons: Sequence[str],
    lesson: str = "",
    people: Sequence[Person] = (),
    counts: str = COUNTS[0],
    due: Mapping[str, datetime] | None = None,
) -> Collection:
    """Copies the notebooks of a folder or zip, as an LMS exports them, to submitted/STUDENT/LESSON/.

    Files whose names speak of no lesson are of `lesson`. `people` is the roster: a student in it gets the folder that
    it says. Of several attempts of a student the newest counts, of several files of one attempt the one that is called
    as the lesson is. `counts` is one of COUNTS: with "in-time" the newest before the lesson's `due` date, if there is
    one, comes first, and "best" also puts all of them into attempts/, of which grading takes the best.

    Raises NotebookError for a source that is neither folder nor zip, or is submitted/ itself, and for a damaged table
    of the collected files.
    """
    if source.resolve().is_relative_to((course / "submitted").resolve()):
        raise NotebookError(f"The files of {source} are where they belong already: leave `--from` away.")
    done = Collection()
    ledger = read_ledger(course)

    def holds_class(paths: Sequence[str]) -> bool:
        return len(students_of_systems(paths, lessons)) > 1

    with opened(source, holds_class, partial(encoding_of, people)) as found:
        root = source.name.removesuffix(".zip")
        prefix = f"{root}/" if any(one.root and root.endswith(one.root) for one in SYSTEMS.values()) else ""
        usernames = [person.username for person in people if person.username]
        paths = [prefix + file.path for file in found.files]
        arrived = list(zip(found.files, understood_as(paths, lessons, lesson, usernames), strict=True))
        arrived = _within_limits(arrived, done)
        folders = _Folders(ledger, people, [one for _, one in arrived])
        notebooks: dict[tuple[str, str], list[Arrived]] = defaultdict(list)
        for file, one in sorted(arrived, key=lambda pair: pair[1].lesson):
            if not is_notebook(file.path):
                continue
            if problem := file.problem or _unclear(one):
                done.passed_over.append(f"{printable(file.path)}: {problem}.")
            else:
                notebooks[folders.of(one), one.lesson].append((file, one))
        of_classes = any(len(_students_within(several, key[1], lessons)) > 1 for key, several in notebooks.items())
        for (student, its_lesson), several in sorted(notebooks.items()):
            within = _students_within(several, its_lesson, lessons) if of_classes else []
            if within:
                done.passed_over.append(
                    f"{printable(student)}: holds {its_lesson} within {listed(within)}; if these are students, give "
                    f"{printable(student)} to `--from`, and if not, leave one of them."
                )
            else:
                days = _days(student, several[0][1].who, its_lesson, people)
                in_time = partial(_in_time, (due or {}).get(its_lesson), days) if counts == "in-time" else _always
                folder = course / "submitted" / student / its_lesson
                _take(folder, several, ledger, done, in_time, counts)
        if guessed := {folders.of(one) for file, one in arrived if file.guessed and not one.student.isascii()}:
            done.notes.append(
                f"The archive does not say what the letters of some names are, and {listed(sorted(guessed))} may be "
                f"wrong: with a roster that has the names, {printable(source.name)} is read rightly."
            )
        others = [(file, one) for file, one in arrived if not is_notebook(file.path)]
        _name_others([(folders.of(one), file, one) for file, one in others], set(notebooks), done)
    if found.of_systems:
        done.notes.append(f"{found.of_systems} files that systems have made (checkpoints, __MACOSX, …) are left.")
    if folders.by_name:
        titles = listed(one.title for one in SYSTEMS.values() if one.renumbers)
        done.notes.append(
            f"{titles} gives students new numbers in each assignment; "
            f"known by their names: {listed(sorted(folders.by_name))}."
        )
    try:
        write_ledger(course, ledger)
    except OSError as error:
        done.passed_over.append(
            f"Whose these files are could not be written down ({error.strerror}): make room and use `--from` again."
        )
    return done


def _within_limits(arrived: list[Arrived], done: Collection) -> list[Arrived]:
    """The files of all students but the ones who hand in too many, who are named."""
    numbers = Counter(one.student for _, one in arrived if one.student)
    too_many = {student: number for student, number in numbers.items() if number > MOST_FILES}
    for student, number in sorted(too_many.items()):
        done.passed_over.append(
            f"{printable(student)}: handed in {number:,} files, and {MOST_FILES:,} are the most; none of them is taken."
        )
    return [(file, one) for file, one in arrived if one.student not in too_many]


def _unclear(one: HandIn) -> str:
    """What a path does not say; "" where it says whose it is and for which lesson."""
    if not one.student:
        return "names no student"
    made = "names no lesson that this course directory has; `--lesson` says which it is, `course` adds lessons"
    return "" if one.lesson else made


class _Folders:
    """The folders of students: the roster's, earlier ones, or the ones that the system names."""

    def __init__(self, ledger: Ledger, people: Sequence[Person], hand_ins: Iterable[HandIn]) -> None:
        self.by_name: set[str] = set()
        """Students who are known by their names, because the system has given them another number."""
        self._people = people
        self._known = {student: (known.who, known.system) for student, known in ledger.items()}
        self._numbers = {
            student: {lesson: one.participant for lesson, one in known.lessons.items()}
            for student, known in ledger.items()
        }
        hand_ins = list(hand_ins)
        self._numbers_of = numbers_of(people, [*self._known.values(), *((one.who, one.system) for one in hand_ins)])
        numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in hand_ins:
            numbers[one.who.name, one.lesson].add(one.who.participant)
        self._namesakes = {name for (name, _), own in numbers.items() if len(own) > 1}
        self._chosen: dict[tuple[str, str, str], str] = {}

    def of(self, one: HandIn) -> str:
        """The folder of the student of a hand-in."""
        key = one.system, one.student, one.lesson
        if key not in self._chosen:
            folder = self._chosen[key] = self._choose(one)
            self._known.setdefault(folder, (one.who, one.system))
            self._numbers.setdefault(folder, {})[one.lesson] = one.who.participant
        return self._chosen[key]

    def _choose(self, one: HandIn) -> str:
        who = comparable(one.who, one.system, self._numbers_of)
        who = who if one.system else replace(who, folder=one.student)
        person = meant_by(self._people, who)
        renumbered = one.system in SYSTEMS and SYSTEMS[one.system].renumbers
        namesake = renumbered and one.who.name in self._namesakes
        if person and namesake and not surely(person, who):
            person = None
        if person and person.folder:
            return person.folder
        number = one.who.participant
        for folder, (known, system) in self._known.items():
            if number and number in self._numbers[folder].values():
                return folder
            compared = comparable(known, system, self._numbers_of)
            if person and system == one.system and meant_by(self._people, compared) is person:
                return folder
        return self._by_name(one) if number and not namesake else one.student

    def _by_name(self, one: HandIn) -> str:
        """The folder of the one student who has this name and has not handed in this lesson under another number.

        A name without a space is that of anonymous marking, and everybody has the same one.
        """
        same = [
            folder
            for folder, (known, system) in self._known.items()
            if (system, known.name) == (one.system, one.who.name) and " " in known.name
        ]
        several = sum(person.name == one.who.name for person in self._people) > 1
        if len(same) != 1 or several or self._numbers[same[0]].get(one.lesson):
            return one.student
        self.by_name.add(one.who.name)
        return same[0]


def _always(one: HandIn | Collected) -> bool:
    return True


def _in_time(due: datetime | None, days: float, one: HandIn | Collected) -> bool:
    """Whether neither the system says that it is late, nor its time."""
    when = _when(one.attempt)
    return not (one.late or (due and when and when > due + timedelta(days=days)))


def _days(student: str, who: Person, lesson: str, people: Sequence[Person]) -> float:
    """The days that the roster gives somebody more for a lesson."""
    person = meant_by(people, Person(folder=student)) or meant_by(people, who)
    return (person and person.days_for(lesson)) or 0


def _take(
    folder: Path, several: Sequence[Arrived], ledger: Ledger, done: Collection, in_time: InTime, counts: str
) -> None:
    """Writes the notebook that counts to the folder of a student's lesson, and names the others."""
    student, lesson = folder.parent.name, folder.name
    ranked = sorted(several, key=lambda one: (in_time(one[1]), *_rank(one)), reverse=True)
    (file, one), *others = ranked
    if counts == "best":
        for another, _ in ranked:
            with suppress(NotRegular, OSError):  # of the one that counts it is said below
                content = another.read()
                write_whole(folder / ATTEMPTS / f"{sha256(content).hexdigest()[:16]}.ipynb", content)
        if others:
            done.notes.append(f"{printable(student)}: of {len(ranked)} files for {lesson} the best counts.")
        others = []
    for other, earlier in others:
        line = f"{printable(other.path)}: {printable(file.path)} counts"
        if earlier.attempt < one.attempt:
            done.notes.append(f"{line}, the newest attempt.")
        elif in_time(earlier) < in_time(one):
            done.notes.append(f"{line}, which came in time.")
        else:
            done.passed_over.append(f"{line}.")
    known = ledger.get(student, Known(Person()))
    before = known.lessons.get(lesson)
    if before and (in_time(one), one.attempt) < (in_time(before), before.attempt):
        why = f"of {before.attempt} is there already, which is newer" if one.attempt else "in time is there already"
        done.notes.append(f"{printable(file.path)}: an attempt {why}.")
        return
    try:
        content = file.read()
        write_whole(folder / f"{lesson}.ipynb", content)
        _note_time(folder / "timestamp.txt", one.attempt)
    except NotRegular as error:
        done.passed_over.append(f"{printable(file.path)}: {error}.")
        return
    except OSError as error:
        done.passed_over.append(f"{printable(file.path)}: cannot be written ({error.strerror}).")
        return
    numbers = sorted({*known.who.participant.split(), one.who.participant} - {""})
    who = replace(one.who.or_else(known.who), participant=" ".join(numbers))
    collected = Collected(file.path, one.attempt, one.late, one.who.participant)
    ledger[student] = Known(who, one.system or known.system, known.lessons | {lesson: collected})
    done.count += 1


def _students_within(several: Sequence[Arrived], lesson: str, lessons: Sequence[str]) -> list[str]:
    """The students whom a system names within what seems to be one student's.

    Or the folders there in which the lesson lies, unless it also lies above them. If somebody has several, they may be
    the students, and what is around them a class.
    """
    if by_systems := students_of_systems(["/".join(one.file) for _, one in several if not one.system], lessons):
        return sorted(by_systems)
    within = {tuple(part for part in one.file[:-1] if part != lesson)[:1] for _, one in several}
    plain = not any(one.system for _, one in several)
    return sorted(part for (part,) in within) if plain and () not in within else []


def _rank(arrived: Arrived) -> tuple:
    """What makes a notebook the one that counts, the weightiest first."""
    file, one = arrived
    original = not _COPY.search(one.file[-1]) and "solutions" not in one.file
    return one.attempt, one.sure > 0, original, one.upload, one.sure, -len(one.file), file.modified, file.path


def _when(attempt: str) -> datetime | None:
    """The time of an attempt, in UTC; None if the system has not told one."""
    try:
        local = datetime.strptime(attempt.replace("-", "").ljust(14, "0"), "%Y%m%d%H%M%S") if attempt else None
    except ValueError:
        return None
    return local and local.astimezone(UTC)


def _note_time(path: Path, attempt: str) -> None:
    """Writes when it was handed in as nbgrader does, in UTC; the LMS has told the time of this place."""
    if when := _when(attempt):
        write_whole(path, f"{when:%Y-%m-%d %H:%M:%S} UTC".encode())
        return
    path.unlink(missing_ok=True)


def _name_others(
    others: Iterable[tuple[str, SourceFile, HandIn]], have: set[tuple[str, str]], done: Collection
) -> None:
    """Names the files that are not notebooks: next to one they are left, in the place of one they are passed over."""
    students = {student for student, _ in have}
    beside: dict[str, list[str]] = defaultdict(list)
    instead: dict[str, list[str]] = defaultdict(list)
    for student, file, one in others:
        if file.problem:
            done.passed_over.append(f"{printable(file.path)}: {file.problem}.")
        elif not one.student:
            found = done.notes if file.path.casefold() in _ADDED else done.passed_over
            found.append(f"{printable(file.path)}: is not a notebook, and names no student.")
        elif (student, one.lesson) in have or not one.lesson and student in students:
            beside[student].append(one.file[-1])
        else:
            instead[student].append(one.file[-1])
    for student, files in sorted(instead.items()):
        done.passed_over.append(
            f"{printable(student)}: handed in {listed(files)} and no notebook; only notebooks count."
        )
    for student, files in sorted(beside.items()):
        done.notes.append(f"{printable(student)}: {listed(files)} next to the notebook is left; only notebooks count.")
