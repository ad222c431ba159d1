"""Functions that call an answer of a learner's, in the learner's process: what the answer may not do is seen there."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def statistics_of(
    answer: Callable[[list[list[float]]], tuple[float, float]], blocks: list[list[float]]
) -> tuple[float, float]:
    """The answer's (m, l). Raises ValueError where it has changed the blocks."""
    given = [list(block) for block in blocks]
    found = answer(given)
    if given != blocks:
        raise ValueError("the blocks were changed, and they are the caller's")
    return found


LOOKED_UP = "looked up"
_ROOM, _RECORD = "helpers.choosing.", {"pick", "thumb", "of_gpu"}


def own_launch(answer: Callable[..., Any], *shape: Any) -> Any:
    """What the answer returns for a shape; [LOOKED_UP, what it returns] where it has asked `pick` or the record."""
    asked = False

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal asked
        module = str(frame.f_globals.get("__name__"))
        asked |= event == "call" and frame.f_code.co_name in _RECORD and module.startswith(_ROOM)

    sys.setprofile(look)
    try:
        found = answer(*shape)
    finally:
        sys.setprofile(None)
    return [LOOKED_UP, found] if asked else found


def loss_of_row(x: list[float], target: int) -> float:
    """m + log(l) − x[target] of a row of Python's floats."""
    m = max(x)
    return m + math.log(sum(math.exp(value - m) for value in x)) - x[target]


def slopes_of(answer: Callable[..., Any], x: list[float], target: int) -> Any:
    """What the answer returns for the loss of x as a function of a row, and x; an array or a tensor as a list.

    Raises ValueError where it changed x.
    """
    given = list(x)
    found = answer(lambda row: loss_of_row(row, target), given)
    if given != x:
        raise ValueError("the row was changed, and it is the caller's")
    return found.tolist() if hasattr(found, "tolist") else found
