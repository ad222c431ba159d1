"""A student as rosters and learning management systems (LMS) know them, and which of several people is meant."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from helpers.instructor.collect.names import composed

TAGGED = "tagged"
"""In place of a system, if a roster says of each number whose it is."""


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
    extension: str = ""
    """Days that somebody has more: `3` for each lesson, `02:3 05:1` for these."""

    @property
    def key(self) -> str:
        """What the student is called in tables: the folder, or whatever else is known."""
        return self.folder or self.name or self.email or self.username or self.id

    @property
    def ids(self) -> list[str]:
        """The numbers of somebody, of `canvas:4711 ilias:99` both."""
        return [one.rpartition(":")[2] for one in self.id.split()]

    def id_for(self, system: str) -> str:
        """The number by which a system knows somebody: `4711`, or of `canvas:4711 ilias:99` the one that is its own."""
        tagged = dict(one.partition(":")[::2] for one in self.id.split() if ":" in one)
        return tagged.get(system, "") if tagged else self.id

    def extensions(self) -> dict[str, float]:
        """The days that are more, by the beginning of a lesson's name, "" for all. ValueError for other text."""
        days: dict[str, float] = {}
        for part in re.split(r"[\s,;]+", self.extension.strip()) if self.extension else ():
            named, _, number = part.rpartition(":")
            days[named.zfill(2) if named.isdigit() else named] = more = float(number)
            if not 0 <= more < 10_000:
                raise ValueError(number)
        return days

    def days_for(self, lesson: str) -> float | None:
        """The days that are more for a lesson; None if nothing is said of it."""
        days = self.extensions()
        return next((days[named] for named in sorted(days, reverse=True) if lesson.startswith(named)), None)

    def or_else(self, other: Person) -> Person:
        """This person, with what the other one knows besides."""
        own = {field.name: getattr(self, field.name) or getattr(other, field.name) for field in fields(self)}
        return replace(self, **own)


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
    TAGGED where the roster says whose they are.
    """
    if any(":" in person.id for person in people):
        return TAGGED
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
    if numbers == TAGGED and system and one.id:
        return replace(one, id=f"{system}:{one.id}")
    return one if system in ("", numbers) else replace(one, id="")


def surely(person: Person, one: Person) -> bool:
    """Whether a person of a roster is meant by `one` by more than the name."""
    return any(same(person, one) for same in (_folder, _number, _address)) and not _is_another(person, one)


def _is_another(person: Person, one: Person) -> bool:
    """Whether two are known by numbers or logins that differ, so that the same name is that of a namesake."""
    system, tag, number = one.id.partition(":")
    known = person.id_for(system) if tag else person.id
    return bool(
        (one.id and known and (number if tag else one.id) not in (known, person.sis))
        or (one.username and person.username and one.username.casefold() != person.username.casefold())
    )


def _folder(person: Person, one: Person) -> bool:
    return bool(one.folder) and person.folder == one.folder


def _number(person: Person, one: Person) -> bool:
    numbers = set(re.findall(r"\d+", person.participant)) & set(re.findall(r"\d+", one.participant))
    return bool(numbers) or bool(one.id) and one.id in (person.id, *person.id.split(), person.sis)


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
