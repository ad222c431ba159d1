"""Whole numbers: checks the numbers that callers give, and writes numbers in sentences."""

from __future__ import annotations

from numbers import Integral
from operator import index
from typing import Any


def as_int(number: Any) -> Any:
    """The int that a whole number of another library's is, such as np.int64; anything else as it came."""
    try:
        return number if isinstance(number, bool) else index(number)
    except TypeError:
        return number


def refuse_below_one(**numbers: object) -> None:
    """Raises ValueError, with the name, for the first of these that is not a whole number of at least 1."""
    for name, number in numbers.items():
        whole = isinstance(number, float) and number.is_integer()
        if whole or (isinstance(number, Integral) and not isinstance(number, int)):
            raise ValueError(f"{name} must be an int of Python, as int({name}) makes one; it is {number!r}.")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1; it is {number!r}.")


def counted(number: int, thing: str) -> str:
    """Such as "1 warp" and "2,048 warps"."""
    return f"{number:,} {thing}{'s' * (number != 1)}"
