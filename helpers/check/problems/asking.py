"""Functions that call an answer of a learner's, and keep an account of what it asks for and of what it changes.

In a notebook they run in the answer's process, a forked child; where answers are graded, in the grader's process, out
of reach of the answer, which is a function in another one (instructor/grade/remote.py).
"""

from __future__ import annotations

import itertools
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from helpers.check.trial.trial import number


class GivenChanged(ValueError):
    """An answer has changed a list that it was given."""

    def __init__(self) -> None:
        super().__init__("a list that was given is changed, and it is the caller's")


def keeping(answer: Callable[..., Any], *given: Any) -> Any:
    """What the answer returns for copies of these. Raises GivenChanged if it has changed a list in them."""
    lent = deepcopy(given)
    found = answer(*lent)
    if lent != given:
        raise GivenChanged
    return found


LOOKED_UP, UNSTEADY = "looked up", "unsteady"
_ROOM, _RECORD = "helpers.choosing.", {"pick", "thumb", "of_gpu"}


def own_launch(answer: Callable[..., Any], *shape: Any) -> Any:
    """What the answer returns for a shape; [LOOKED_UP, what it returns] if it has asked `pick` or the record.

    It is asked twice: [UNSTEADY, the first, the second] if it returns something else then.
    """
    asked = False

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal asked
        module = str(frame.f_globals.get("__name__"))
        asked |= event == "call" and frame.f_code.co_name in _RECORD and module.startswith(_ROOM)

    sys.setprofile(look)
    try:
        found, again = answer(*shape), answer(*shape)
    finally:
        sys.setprofile(None)
    if asked:
        return [LOOKED_UP, found]
    return found if _text(found) == _text(again) else [UNSTEADY, found, again]


def _text(value: Any) -> str:
    """A value as text, by which values of any class are compared; an address in it is none of the value."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def loss_of_row(x: Sequence[float], target: int) -> float:
    """m + log(l) − x[target] of a row, a Python float whatever the row is made of."""
    row = [float(value) for value in x]
    m = max(row)
    return m + math.log(sum(math.exp(value - m) for value in row)) - row[target]


@dataclass
class Account:
    """What a function that finds slopes of a row x has asked for.

    `asked` counts the rows whose loss it has asked for, and `itself` those among them that were the list x itself.
    `moved` are the numbers of x that another row had moved, by their places, and `step` is the farthest that one moved.
    """

    asked: int = 0
    itself: int = 0
    moved: set[int] = field(default_factory=set)
    step: float = 0.0

    def note(self, row: Any, given: list[float], x: list[float]) -> None:
        """Notes that the loss of a row was asked for; `given` is the list x itself."""
        self.asked += 1
        self.itself += row is given
        away = {i: abs(float(a) - b) for i, (a, b) in enumerate(zip(row, x, strict=False)) if float(a) != b}
        self.moved |= set(away)
        self.step = max([self.step, *away.values()])


def slopes_of(answer: Callable[..., Any], x: list[float], target: int) -> list[Any]:
    """What the answer returns for the loss of x as a function of a row, and x; an array or a tensor as a list. Behind
    it the fields of the Account, of `moved` the number.

    Raises GivenChanged if the answer has changed x.
    """
    given, account = list(x), Account()

    def loss(row: Any) -> float:
        found = loss_of_row(row, target)
        account.note(row, given, x)
        return found

    found = answer(loss, given)
    if given != x:
        raise GivenChanged
    listed = found.tolist() if hasattr(found, "tolist") else found
    return [listed, account.asked, account.itself, len(account.moved), account.step]


GRID, COARSE = 256, 32
"""Steps of the numbers u from 0 to 1, if there is one, and if there are two."""
NOT_BY_U = "another pick for the same u"


def shares_of_picks(answer: Callable[..., Any], a: tuple, b: tuple, shift: float = 0.0) -> list[Any]:
    """Merges two triples (m, l, pick) by the answer, with each u of a grid; a pair of triples is merged first, with
    each of two numbers. All numbers but 0 are moved by `shift` of a step.

    Returns the pairs (m, l) that there are, two at most; each pick with its share of the grid; and how nearly the grid
    shows a share. If the answer returns something else than three numbers, just that; NOT_BY_U if it is asked again, in
    another order, and picks otherwise.
    """
    pairs, picked = [], {}
    inner = next((one for one in (a, b) if len(one) == 2), None)
    steps = COARSE if inner else GRID
    every = list(itertools.product(range(steps), repeat=2 if inner else 1))
    for numbers in every + random.sample(every, COARSE):
        u, *v = ((n + shift) / steps if n else 0.0 for n in numbers)
        parts = [_plain(answer(*one, *v)) if one is inner else one for one in (a, b)]
        odd = [one for one in parts if not _are_numbers(one)]
        got = odd[0] if odd else _plain(answer(*parts, u))
        if not _are_numbers(got):
            return got
        if len(pairs) < 2 and list(got[:2]) not in pairs:
            pairs.append(list(got[:2]))
        if picked.setdefault(numbers, got[2]) != got[2]:
            return NOT_BY_U
    picks = Counter(picked.values())
    return [pairs, [[pick, count / picks.total()] for pick, count in sorted(picks.items())], len([u, *v]) / steps]


def _plain(got: Any) -> Any:
    return tuple(map(number, got)) if isinstance(got, tuple | list) else got


def _are_numbers(got: Any) -> bool:
    return isinstance(got, tuple | list) and [isinstance(one, float | int) for one in got] == [True] * 3
