"""What `grade --from` has collected, and how an LMS knows whose it is: a table in the course directory."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path

from helpers.engine.files import write_whole
from helpers.instructor.collect.course import GRADING
from helpers.instructor.collect.names import composed, listed, printable
from helpers.instructor.collect.person import Person, comparable, meant_by, numbers_of, surely
from helpers.instructor.publish.notebooks import NotebookError

LEDGER = Path(GRADING) / "collected.json"


@dataclass(frozen=True)
class Collected:
    """One notebook: the path that it had, when it was handed in, and Moodle's number of the student for it."""

    path: str
    attempt: str = ""
    late: bool = False
    participant: str = ""


@dataclass
class Known:
    """A student as an LMS knows them, and their collected files, by lesson."""

    who: Person
    system: str = ""
    lessons: dict[str, Collected] = field(default_factory=dict)


Ledger = dict[str, Known]
"""By the student's folder."""


def read_ledger(course: Path) -> Ledger:
    """All files collected so far. Raises NotebookError for a table that is damaged."""
    path = course / LEDGER
    if not path.exists():
        return {}
    try:
        return {
            student: Known(
                Person(**entry["who"]),
                entry["system"],
                {lesson: Collected(**one) for lesson, one in entry["lessons"].items()},
            )
            for student, entry in json.loads(path.read_text(encoding="utf-8")).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        raise NotebookError(f"{path} is damaged: delete it and collect again with `--from`.") from None


def who_is(students: Iterable[str], people: Sequence[Person], ledger: Ledger) -> dict[str, Person]:
    """Every student with all that the roster and the LMS know; nobody of the roster is two students by the name."""
    known = {student: Person(folder=student).or_else(one) for student, one in _compared(students, people, ledger)}
    meant = {student: meant_by(people, one) for student, one in known.items()}
    claims = Counter(person for person in meant.values() if person)
    for student, person in meant.items():
        if person and (claims[person] == 1 or surely(person, known[student])):
            known[student] = Person(folder=student).or_else(person).or_else(known[student])
    return known


def _compared(students: Iterable[str], people: Sequence[Person], ledger: Ledger) -> list[tuple[str, Person]]:
    """Every student as the LMS knows them, with its number where that can be compared with the roster's."""
    numbers = numbers_of(people, [(known.who, known.system) for known in ledger.values()])
    return [
        (
            student,
            comparable(ledger[student].who, ledger[student].system, numbers if people else ledger[student].system),
        )
        if student in ledger
        else (student, Person())
        for student in students
    ]


def in_several_folders(students: Iterable[str], people: Sequence[Person], ledger: Ledger) -> list[str]:
    """A sentence for each person of the roster who has handed in under several names."""
    folders: dict[Person, list[str]] = defaultdict(list)
    for student, one in who_is(students, people, ledger).items():
        if person := meant_by(people, one):
            folders[person].append(student)
    return [
        f"{printable(person.key)} of the roster has several folders, {listed(sorted(own), 10)}. If these are one "
        "person, move the lessons into one folder in submitted/, `forget` the others, and `grade` again; if not, give "
        "each a line in the roster, with the folder."
        for person, own in folders.items()
        if len(own) > 1
    ]


def absent(students: Iterable[str], people: Sequence[Person], ledger: Ledger) -> list[Person]:
    """The people of the roster who are none of the students."""
    known = who_is(students, people, ledger)
    there = {person for one in known.values() if (person := meant_by(people, one))}
    return [person for person in people if person not in there]


def not_listed(students: Iterable[str], people: Sequence[Person], ledger: Ledger) -> list[str]:
    """The students whom the roster does not have; none where there is no roster."""
    known = who_is(students, people, ledger) if people else {}
    return [student for student, one in known.items() if not meant_by(people, one)]


def write_ledger(course: Path, ledger: Ledger) -> None:
    """Writes the table."""
    text = json.dumps({student: asdict(known) for student, known in ledger.items()}, indent=1, ensure_ascii=False)
    write_whole(course / LEDGER, text.encode())


def meant(called: str, known: Mapping[str, Person], others: Iterable[Person] = ()) -> tuple[str, Person]:
    """The student who is called so: one who is `known` by a folder, or one of the `others` of the roster.

    By the folder, or a name, email, id or username that one student alone has. Raises NotebookError where nobody or
    several are called so, with the names that are near.
    """
    called = composed(called)
    if called in known:
        return called, known[called]
    folded, everybody = called.casefold(), [*known.items(), *((person.key, person) for person in others)]
    found = [
        (student, one)
        for student, one in everybody
        if student == called or folded in {text.casefold() for text in (*one.ids, one.name, one.email, one.username)}
    ]
    if len(found) == 1:
        return found[0]
    if found:
        names = listed([student for student, _ in found])
        raise NotebookError(f"Several students are called {printable(called)}: {names}; say which folder, email or id.")
    raise NotebookError(f"Nobody is called {printable(called)} here; {_near(folded, everybody)}.")


def _near(folded: str, everybody: Iterable[tuple[str, Person]]) -> str:
    """Who is called nearly so, or else who there is, as the end of a sentence."""
    names: dict[str, set[str]] = defaultdict(set)
    for student, one in everybody:
        for text in (student, one.name, one.email, one.username):
            names[text.casefold()].add(student)
    near = get_close_matches(folded, names.keys() - {""})
    near += [text for text in names if folded in text]
    if near:
        return f"near are {listed(sorted(set().union(*(names[text] for text in near))), 10)}"
    students = sorted({student for student, _ in everybody})
    return f"the students are {listed(students, 10)}" if students else "there are no students yet"
