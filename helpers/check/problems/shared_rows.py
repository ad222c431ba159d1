"""The simulated launches of exercise 9.3, and what becomes of an answer's programs in each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache
from random import Random

from helpers.gpu.sharing import Numbers, shared_run, some_numbers

FAIR, SLOW, ONE_PLACE = "a place for every program", "half of the programs are late", "one place"
LATE = 20
"""Rounds by which half of the programs begin late in SLOW: a program must have this number of looks in it."""
LOOKS_ALLOWED = 1000
"""The most looks of a program."""


@dataclass(frozen=True)
class SharedLaunch:
    """The slices in the order in which their programs start, the places, and the numbers in the slices.

    Programs of odd slices begin `late` rounds after they have found a place.
    """

    grid: tuple[tuple[int, int], ...]
    places: int
    hostile: bool = False
    numbers: Numbers = some_numbers
    late: int = 0

    def runs(self) -> int:
        """Orders that it is run in."""
        return _SEEDS if self.hostile else 1


def _levels(row: int, part: int) -> list[float]:
    return [500.0 * (part - 1) - 20 * row + number for number in some_numbers(row, part)]


def _with_empty_slices(row: int, part: int) -> list[float]:
    """Row 0 has numbers in its last slice only, row 1 has none."""
    return some_numbers(row, part) if (row, part) == (0, 2) else [-math.inf] * 4


def _rows(rows: int, parts: int) -> tuple[tuple[int, int], ...]:
    return tuple((row, part) for row in range(rows) for part in range(parts))


SHARED_LAUNCHES = {
    "one slice": SharedLaunch(_rows(1, 1), 1),
    FAIR: SharedLaunch(_rows(2, 4), 8),
    SLOW: SharedLaunch(_rows(2, 4), 8, late=LATE),
    "a place too few": SharedLaunch(_rows(1, 4), 3),
    ONE_PLACE: SharedLaunch(_rows(2, 3), 1),
    "slice 0 of all rows first": SharedLaunch(tuple((row, part) for part in range(3) for row in range(4)), 5),
    "a hostile order": SharedLaunch(_rows(2, 4), 8, hostile=True),
    "a hostile order, too few places": SharedLaunch(_rows(3, 4), 3, hostile=True),
    "slices at different levels": SharedLaunch(_rows(2, 3), 6, numbers=_levels),
    "slices of only −inf": SharedLaunch(_rows(2, 3), 6, numbers=_with_empty_slices),
}
"""By name: launches on which a program that is wrong goes wrong."""

_SEEDS = 8
"""Hostile orders that a launch is run in."""


@cache
def drawn_numbers(case: str, seed: int) -> Numbers:
    """The numbers in the slices of a launch: the numbers that it is about, each row moved by eighths that are drawn."""
    moved = Random(seed)
    by_row = {row: moved.randrange(-64, 64) / 8 for row, _ in SHARED_LAUNCHES[case].grid}
    return lambda row, part: [number + by_row[row] for number in SHARED_LAUNCHES[case].numbers(row, part)]


def share_rows(program: Callable, case: str, seed: int) -> list[tuple]:
    """What becomes of the programs of a launch: for each order that it is run in, the fields of a SharedEnd."""
    launch, numbers = SHARED_LAUNCHES[case], drawn_numbers(case, seed)
    seeds = [seed + number for number in range(_SEEDS)] if launch.hostile else [None]
    return [
        astuple(shared_run(program, launch.grid, places=launch.places, seed=s, numbers=numbers, late=launch.late))
        for s in seeds
    ]
