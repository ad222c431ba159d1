"""Keeps the learner's guesses until the counted and the measured values come, and notes both for progress.show."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import NamedTuple

from helpers.engine import notes
from helpers.engine.words import say
from helpers.table import Table

_guesses: dict[str, dict[str, float | None]] = {}
_answered: dict[str, dict[str, str]] = {}
"""For each question, the guesses as they stood when their answers were first shown."""


def guess(question: str, *unnamed: float | None, **values: float | None) -> None:
    """Keeps a guess for each named quantity of `question`; None stands for no guess yet.

    A guess that is changed after `reveal` has shown its answer is shown as changed from then on. Raises TypeError for a
    number without a name and for anything that is not a number.
    """
    if unnamed:
        raise TypeError(f"give each number a name, as in loads=5; {', '.join(map(repr, unnamed))} came without one.")
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise TypeError(f"{name} must be a number, or None for no guess; it is {value!r}.")
    values = {name: value if value is None else _plain(value) for name, value in values.items()}
    _guesses[question] = values
    made = {name: _number(value) for name, value in values.items() if value is not None}
    if made:
        say("Kept: " + ", ".join(f"{name} = {value}" for name, value in made.items()))
    else:
        say("No guess yet. Replace None by a number and run this cell again; guessing wrong is the point.")


def _plain(value: Real) -> float:
    """A number, which may be NumPy's, as one of Python."""
    return int(value) if isinstance(value, Integral) else float(value)


def reveal(question: str, **answers: Mapping[str, float]) -> Table:
    """Returns a table of the guess for `question` next to `answers`, such as counted={"loads": 5.01}.

    A guess that was changed after its answer was first shown stands behind the guess that it had then. Notes below the
    table name such guesses; they also say if `guess` was never called for this question, or with a name that no answer
    has. The guesses are noted, with their answers, for progress.show.
    """
    note(question, _guesses.get(question, {}), **answers)
    return with_answers(question, **answers)


def with_answers(question: str, **answers: Mapping[str, float]) -> Table:
    """The table that `reveal` returns; nothing is noted."""
    guesses = _guesses.get(question, {})
    asked = dict.fromkeys(name for values in answers.values() for name in values)
    names = dict.fromkeys([*guesses, *asked])
    now = {name: _number(guesses.get(name)) for name in names}
    first = _answered.setdefault(question, {})
    first.update({name: now[name] for name in asked if name not in first})
    changed = {name: f"{first[name]}, then {now[name]}" for name in asked if now[name] != first[name]}
    shown = now | changed
    rows = [[name, shown[name], *(_number(values.get(name)) for values in answers.values())] for name in names]
    said = [] if question in _guesses else [_unguessed(question)]
    if asked:
        said += [_unasked(name, asked) for name, value in guesses.items() if value is not None and name not in asked]
    if changed:
        said.append(f"Changed after the answer was shown: {', '.join(changed)}.")
    return Table([question, "your guess", *(answer.replace("_", " ") for answer in answers)], rows, said)


PREDICTIONS = "predictions"
"""The entry of a notebook's file that has, by question and name, the first guess and the answer."""


class Prediction(NamedTuple):
    """A guess as it was when its answer was first shown, and that answer."""

    question: str
    name: str
    guess: float
    answer: float
    how: str
    """How the answer was found: "counted", "timed", …"""

    @property
    def is_near(self) -> bool:
        """Whether the guess is within 10 % of the answer."""
        return math.isclose(self.guess, self.answer, rel_tol=0.1)


def note(question: str, guesses: Mapping[str, float | None], **answers: Mapping[str, float | None]) -> None:
    """Notes guesses and their answers, of several the last. The first guess stays, whatever is guessed later, and one
    that comes after its answer does not count."""
    noted, shown = notes.entry(PREDICTIONS), _answered.get(question, {})
    before = noted.get(question)
    found = dict(before) if isinstance(before, dict) else {}
    for how, values in answers.items():
        for name, answer in values.items():
            guess = None if shown.get(name) == _number(None) else guesses.get(name)
            if guess is not None and answer is not None:
                first = found[name][0] if name in found else guess
                found[name] = [first, _plain(answer), how.replace("_", " ")]
    if found and found != before:
        notes.put({PREDICTIONS: noted | {question: found}})


def predictions() -> list[Prediction]:
    """All predictions of this and earlier sessions, in the order in which their answers were first shown."""
    found = []
    for question, names in notes.entry(PREDICTIONS).items():
        for name, noted in names.items() if isinstance(names, dict) else ():
            match noted:
                case [int() | float() as guess, int() | float() as answer, str(how)]:
                    found.append(Prediction(question, name, guess, answer, how))
    return found


def _unguessed(question: str) -> str:
    near = "".join(f" One was run for {kept!r}." for kept in get_close_matches(question, _guesses, 1))
    return f"No guess cell was run for {question!r}.{near}"


def _unasked(name: str, asked: Collection[str]) -> str:
    near = get_close_matches(name, asked, 1) or list(asked)
    return f"The question does not ask for {name}, but for {' and '.join(near)}."


def guessed(question: str) -> Mapping[str, float | None]:
    """The guess for each named quantity of `question`, None where there is none yet; empty if it was never asked."""
    return dict(_guesses.get(question, {}))


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
