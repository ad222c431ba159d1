"""Keeps the learner's guesses until the counted and the measured values come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from numbers import Integral, Real

from helpers.table import Table

_guesses: dict[str, dict[str, float | None]] = {}


def guess(question: str, *unnamed: float | None, **values: float | None) -> None:
    """Keeps a guess for each named quantity of `question`; None stands for no guess yet.

    Raises TypeError for a number without a name and for anything that is not a number.
    """
    if unnamed:
        raise TypeError(f"give each number a name, as in loads=5; {', '.join(map(repr, unnamed))} came without one.")
    for name, value in values.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise TypeError(f"{name} must be a number, or None for no guess; it is {value!r}.")
    values = {name: value if value is None else _plain(value) for name, value in values.items()}
    _guesses[question] = values
    made = {name: value for name, value in values.items() if value is not None}
    if made:
        print("Kept: " + ", ".join(f"{name} = {value:g}" for name, value in made.items()))
    else:
        print("No guess yet. Replace None by a number and run this cell again; guessing wrong is the point.")


def _plain(value: Real) -> float:
    """A number, which may be NumPy's, as one of Python."""
    return int(value) if isinstance(value, Integral) else float(value)


def reveal(question: str, **answers: Mapping[str, float]) -> Table:
    """Returns a table of the guess for `question` next to `answers`, such as counted={"loads": 5.01}.

    Notes below it say so where `guess` was never called for this question, or was given a name that no answer has.
    """
    guesses = _guesses.get(question, {})
    asked = dict.fromkeys(name for values in answers.values() for name in values)
    names = dict.fromkeys([*guesses, *asked])
    columns = [guesses, *answers.values()]
    rows = [[name, *(_number(values.get(name)) for values in columns)] for name in names]
    notes = [] if question in _guesses else [_unguessed(question)]
    if asked:
        notes += [_unasked(name, asked) for name, value in guesses.items() if value is not None and name not in asked]
    return Table([question, "your guess", *(answer.replace("_", " ") for answer in answers)], rows, notes)


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
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
