"""Programs in Python that share rows, on a simulated GPU of few places: they publish words, look for others, and help.

A program is program(words, part, x, load). `words` has a 64-bit word for each slice of its row, 0 until one is stored;
`part` is the number of its slice, x the numbers in it, and load(part) gives the numbers of another slice. It returns
(m, l) of the row. A generator lets others go on at each `yield`. A seed makes the order hostile: programs go on in an
order without a rule, and others may go on in the midst of one, whenever it looks at a word or stores one.
"""

from __future__ import annotations

import math
import random
import struct
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.engine.numbers import refuse_below_one

_Pair = tuple[float, float]
Numbers = Callable[[int, int], list[float]]
"""The numbers in a slice, by its row and its part."""

NO_MAXIMUM = -(2.0 - 2.0**-23) * 2.0**127
"""The lowest float32, which stands for m where a slice holds only −inf."""
PATIENCE = 4000
"""Rounds in which nothing changes, or looks in which nobody else may go on, after which programs wait forever.

In a hostile order a program goes on in half of the rounds: the 1000 looks of exercise 9.3 take some 2000.
"""
_DEEPEST = 3


class WaitsInPlace(RuntimeError):
    """A program looks again and again, and never lets another one go on."""


def pair_in(word: int) -> _Pair:
    """The pair (m, l) that a word holds. Raises ValueError for a number that is not a word of 64 bits."""
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < 2**64:
        raise ValueError(f"a word is a whole number of 64 bits, as word(m, l) makes it; it is {word!r}.")
    l, m = struct.unpack("<ff", struct.pack("<Q", word))
    return m, l


def pair_of_slice(x: Sequence[float]) -> _Pair:
    """(m, l) of the numbers in a slice; (NO_MAXIMUM, 0) where all are −inf."""
    m = max(x)
    return (NO_MAXIMUM, 0.0) if m == -math.inf else (m, sum(math.exp(number - m) for number in x))


def pair_of_row(numbers: Numbers, row: int, parts: int) -> _Pair:
    """(m, l) of all slices of a row."""
    return pair_of_slice([number for part in range(parts) for number in numbers(row, part)])


def near(found: _Pair, right: _Pair) -> bool:
    """Whether two pairs are the same but for the rounding to float32."""
    close = [math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-30) for a, b in zip(found, right, strict=True)]
    return all(close)


class _Words:
    """The words of one row, as a program sees them. At every look and every store others may go on."""

    def __init__(self, gpu: _Gpu, row: int) -> None:
        self._gpu, self._row = gpu, row

    def __len__(self) -> int:
        return self._gpu.parts

    def __getitem__(self, part: Any) -> Any:
        self._gpu.looked()
        return self._gpu.stored[self._row][part]

    def __setitem__(self, part: int, word: int) -> None:
        self._gpu.store(self._row, part, word)

    def __iter__(self) -> Iterator[int]:
        return (self[part] for part in range(len(self)))


@dataclass(eq=False)
class _Running:
    """A program that has a place: its slice, the generator that it is, and whether it is in the midst of a step."""

    row: int
    part: int
    steps: Generator | None = None
    busy: bool = False
    result: Any = None
    ended: bool = False
    unpublished: bool = False


@dataclass(frozen=True)
class SharedEnd:
    """How programs that share rows came to an end.

    `results` are [row, part, what the program returned] of each that ended, `early` how many of these ended while
    words of their row were missing. `loads` counts the slices that were loaded for others, `needless` those among
    them whose word was there. `stores` names what else than a pair in its place was stored. `unpublished` counts the
    programs that loaded a slice, ended or waited to the end while the word of their own slice was missing.
    """

    results: list[list[Any]]
    waiting: int
    never_started: int
    loads: int
    needless: int
    early: int
    stores: list[str]
    unpublished: int


@dataclass
class _Gpu:
    program: Callable
    grid: deque[tuple[int, int]]
    parts: int
    places: int
    numbers: Numbers
    hostile: random.Random | None
    stored: dict[int, list[int]] = field(default_factory=dict)
    resident: list[_Running] = field(default_factory=list)
    ended: list[_Running] = field(default_factory=list)
    loads: int = 0
    needless: int = 0
    early: int = 0
    stores: dict[str, None] = field(default_factory=dict)
    quiet: int = 0
    looks: int = 0
    depth: int = 0

    def run(self) -> None:
        """Lets programs go on until all have ended, or nothing has changed for PATIENCE rounds."""
        while (self.grid or self.resident) and self.quiet <= PATIENCE:
            self.quiet += 1
            while self.grid and len(self.resident) < self.places:
                row, part = self.grid.popleft()
                self.stored.setdefault(row, [0] * self.parts)
                self.resident.append(_Running(row, part))
                self.quiet = 0
            for program in self._order():
                self._go_on(program)
            self.resident = [program for program in self.resident if not program.ended]
        for program in self.resident:
            self._note_unpublished(program)

    def _note_unpublished(self, program: _Running) -> None:
        program.unpublished |= not self.stored[program.row][program.part]

    def _order(self) -> list[_Running]:
        if self.hostile is None:
            return list(self.resident)
        chosen = [program for program in self.resident if self.hostile.random() < 0.5]
        self.hostile.shuffle(chosen)
        return chosen

    def _go_on(self, program: _Running) -> None:
        if program.busy or program.ended:
            return
        program.busy, self.looks = True, 0
        try:
            if program.steps is None:
                self._begin(program)
            else:
                next(program.steps)
        except StopIteration as end:
            self._end(program, end.value)
        finally:
            program.busy = False

    def _begin(self, program: _Running) -> None:
        def load(part: int) -> list[float]:
            self.loads += 1
            self._note_unpublished(program)
            self.needless += part == program.part or bool(self.stored[program.row][part])
            return list(self.numbers(program.row, part))

        x = list(self.numbers(program.row, program.part))
        found = self.program(_Words(self, program.row), program.part, x, load)
        if isinstance(found, Generator):
            program.steps = found
            next(found)
        else:
            self._end(program, found)

    def _end(self, program: _Running, result: Any) -> None:
        program.result, program.ended, self.quiet = result, True, 0
        self._note_unpublished(program)
        self.early += not all(self.stored[program.row])
        self.ended.append(program)

    def looked(self) -> None:
        """A program looks at a word: in a hostile order another one may go on first."""
        self.looks += 1
        if self.looks > PATIENCE * self.parts:
            raise WaitsInPlace("the program looks without end, and lets no other one go on: where is its yield?")
        if self.hostile and self.depth < _DEEPEST and self.hostile.random() < 0.2:
            others = [one for one in self.resident if not one.busy and not one.ended]
            if others:
                self.depth += 1
                looks = self.looks
                self._go_on(self.hostile.choice(others))
                self.depth, self.looks = self.depth - 1, looks

    def store(self, row: int, part: int, word: int) -> None:
        """Stores a word, and notes its fault."""
        self.looked()
        found = pair_in(word)
        if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < self.parts:
            raise IndexError(f"the row has the words 0 to {self.parts - 1}; word {part!r} does not exist.")
        if self.stored[row][part] != word:
            self.quiet = 0
        if wrong := self._wrong(row, part, word, found):
            self.stores[wrong] = None
        self.stored[row][part] = word

    def _wrong(self, row: int, part: int, word: int, found: _Pair) -> str:
        """The fault of a word that is not the pair of its slice, one of STORES; "" where it has none."""
        right = pair_of_slice(self.numbers(row, part))
        if near(found, right):
            return ""
        if near(found, right[::-1]):
            return "m and l swapped"
        if found[0] == right[0] and found[1] == 0 or found[0] == 0 and near((0, found[1]), (0, right[1])):
            return "half of a pair"
        if any(near(found, pair_of_slice(self.numbers(row, other))) for other in range(self.parts)):
            return "the pair of another slice"
        if self.stored[row][part] and near(pair_in((word - self.stored[row][part]) % 2**64), right):
            return "a word added to one that was there"
        return "something else"


STORES = (
    "m and l swapped", "half of a pair", "the pair of another slice", "a word added to one that was there",
    "something else",
)  # fmt: skip
"""The faults of a stored word."""


def some_numbers(row: int, part: int) -> list[float]:
    """Four numbers of a slice, with another maximum in each."""
    return [0.5 * row + (5 * part + 3 * number) % 7 for number in range(4)]


def shared_run(
    program: Callable,
    grid: Sequence[tuple[int, int]],
    *,
    places: int,
    seed: int | None = None,
    numbers: Numbers = some_numbers,
) -> SharedEnd:
    """Runs a program for each slice (row, part) of `grid`, which start in this order, on a GPU of `places`.

    With a `seed` the order is hostile. Whatever the program raises comes out. Raises ValueError for less than one place
    and for a grid without slices.
    """
    refuse_below_one(places=places)
    if not grid:
        raise ValueError("there is nothing to run: give at least one slice, such as [(0, 0)].")
    parts = 1 + max(part for _, part in grid)
    gpu = _Gpu(program, deque(grid), parts, places, numbers, None if seed is None else random.Random(seed))
    gpu.run()
    results = [[one.row, one.part, one.result] for one in gpu.ended]
    unpublished = sum(one.unpublished for one in (*gpu.ended, *gpu.resident))
    counts = len(gpu.resident), len(gpu.grid), gpu.loads, gpu.needless, gpu.early
    return SharedEnd(results, *counts, list(gpu.stores), unpublished)
