"""Simulates programs that share rows on a GPU of few places: they publish words, look for other words, and help.

A program is a Python function program(words, part, x, load). `words` has a 64-bit word for each slice of its row, 0
until one is stored; `part` is the number of its slice, x the numbers in that slice, and load(part) returns the numbers
of another slice. The program returns (m, l) of the row. If it is a generator, other programs go on at each `yield`. A
seed makes the order hostile: programs go on in an irregular order, and other programs may go on while one looks at a
word, stores one, or loads a slice.

The programs may run in another process (stepped.py). All that is judged is counted here.
"""

from __future__ import annotations

import math
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from helpers.engine.numbers import refuse_below_one
from helpers.gpu.stepped import SteppedPrograms, Went

_Pair = tuple[float, float]
Numbers = Callable[[int, int], list[float]]
"""The numbers in a slice, by its row and its part."""

LOWEST_FLOAT32 = -(2.0 - 2.0**-23) * 2.0**127
"""The lowest float32. It stands for m if a slice holds only −inf."""
PATIENCE = 4000
"""If nothing changes for this number of rounds, the programs wait forever.

In a hostile order a program goes on in half of the rounds: the 1000 looks of exercise 9.3 take about 2000 rounds.
"""
_DEEPEST, _OFTEN = 3, 0.2
"""Programs that are in the midst of a step at once, and how often another one goes on in the midst of one."""
_ROUNDS, _BURST = 60, 40
"""After this number of rounds in which nothing changes, a program whose turn it is goes on for as long at once."""
_UNSEEN = 100
"""Yields without a look that a program may make, besides those after a look."""


def pair_in(word: int) -> _Pair:
    """The pair (m, l) that a word holds. Raises ValueError for a number that is not a word of 64 bits."""
    if isinstance(word, bool) or not isinstance(word, int) or not 0 <= word < 2**64:
        raise ValueError(f"a word is a whole number of 64 bits, as word(m, l) makes it; it is {word!r}.")
    l, m = struct.unpack("<ff", struct.pack("<Q", word))
    return m, l


def pair_of_slice(x: Sequence[float]) -> _Pair:
    """(m, l) of the numbers in a slice; (LOWEST_FLOAT32, 0) if all are −inf."""
    m = max(x)
    return (LOWEST_FLOAT32, 0.0) if m == -math.inf else (m, sum(math.exp(number - m) for number in x))


def pair_of_row(numbers: Numbers, row: int, parts: int) -> _Pair:
    """(m, l) of all slices of a row."""
    return pair_of_slice([number for part in range(parts) for number in numbers(row, part)])


def near(found: _Pair, right: _Pair) -> bool:
    """True if two pairs differ only by the rounding to float32."""
    close = [math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-30) for a, b in zip(found, right, strict=True)]
    return all(close)


@dataclass(eq=False)
class _Running:
    """A program that has a place: its slice, the round in which it begins, and what it has done so far.

    `busy` says whether it is in the midst of a step. `missed` says whether the word of its slice was missing when it
    let others go on, loaded another slice or ended; `late`, whether it has stored that word afterwards; `reloaded`,
    whether it has loaded its own slice.
    """

    row: int
    part: int
    begins: int
    begun: bool = False
    busy: bool = False
    result: Any = None
    ended: bool = False
    yields: int = 0
    looked: int = 0
    missed: bool = False
    published: bool = False
    late: bool = False
    reloaded: bool = False

    def looks(self) -> int:
        """Looks after which it let others go on, or, if that is more, its yields beyond the _UNSEEN that are free."""
        return max(self.looked, self.yields - _UNSEEN)


@dataclass(frozen=True)
class SharedEnd:
    """How programs that share rows came to an end.

    `results` has [row, part, what the program returned] for each program that ended; `early` counts the programs that
    ended while words of their row were missing. `loads` counts the slices that programs loaded for others, and
    `needless` those whose word was already there. `stores` names every fault of a stored word.

    A program owes the word of its own slice if the word is missing when the program lets others go on, loads another
    slice or ends. `unpublished` counts the programs that owe it and have not stored it, and the programs that loaded
    their own slice because of that; `late` counts the programs that stored it afterwards. `looks` is the largest number
    of looks of one program after each of which it let others go on. `reloaded` counts the programs that loaded their
    own slice.
    """

    results: list[list[Any]]
    waiting: int
    never_started: int
    loads: int
    needless: int
    early: int
    stores: list[str]
    unpublished: int
    late: int
    looks: int
    reloaded: int


@dataclass
class _Gpu:
    grid: deque[tuple[int, int]]
    parts: int
    places: int
    numbers: Numbers
    hostile: random.Random | None
    late: int
    programs: SteppedPrograms | None = None
    stored: dict[int, list[int]] = field(default_factory=dict)
    started: list[_Running] = field(default_factory=list)
    resident: list[_Running] = field(default_factory=list)
    ended: list[_Running] = field(default_factory=list)
    loads: int = 0
    needless: int = 0
    early: int = 0
    stores: dict[str, None] = field(default_factory=dict)
    round: int = 0
    quiet: int = 0
    depth: int = 0

    def run(self) -> None:
        """Lets programs go on until all have ended, or nothing has changed for PATIENCE rounds."""
        while (self.grid or self.resident) and self.quiet <= PATIENCE:
            steps = 1 if self.quiet < _ROUNDS else _BURST
            self.quiet += steps
            self.round += 1
            while self.grid and len(self.resident) < self.places:
                row, part = self.grid.popleft()
                self.stored.setdefault(row, [0] * self.parts)
                program = _Running(row, part, self.round + self.late * (part % 2))
                self.started.append(program)
                self.resident.append(program)
                self.quiet = 0
            for program in self._order():
                self._go_on(program, steps)
            self.resident = [program for program in self.resident if not program.ended]
        for program in self.resident:
            self._note_missed(program)

    def _note_missed(self, program: _Running) -> None:
        program.missed |= not self.stored[program.row][program.part]

    def _order(self) -> list[_Running]:
        if self.hostile is None:
            return list(self.resident)
        chosen = [program for program in self.resident if self.hostile.random() < 0.5]
        self.hostile.shuffle(chosen)
        return chosen

    def _go_on(self, program: _Running, steps: int = 1) -> None:
        if program.busy or program.ended or program.begins > self.round:
            return
        number, seen = self.started.index(program), self._seen(program)
        program.busy = True
        try:
            if program.begun:
                went = self.programs.go_on(number, steps, *seen)
            else:
                program.begun = True
                x = list(self.numbers(program.row, program.part))
                went = self.programs.begin(number, program.part, x, *seen)
        finally:
            program.busy = False
        self._note(program, went)

    def _note(self, program: _Running, went: Went) -> None:
        program.yields += went["yields"]
        program.looked += went["looked"]
        if went["yields"] or went["ended"]:
            self._note_missed(program)
        if went["ended"]:
            program.result, program.ended, self.quiet = went["result"], True, 0
            self.early += not all(self.stored[program.row])
            self.ended.append(program)

    def _seen(self, program: _Running) -> tuple[list[int], int]:
        """The words of a program's row, and after how many looks another program may go on; 0 for never."""
        looks = 0
        if self.hostile and self.depth < _DEEPEST and self.quiet < _ROUNDS:
            looks = 1 + int(math.log(1 - self.hostile.random()) / math.log(1 - _OFTEN))
        return list(self.stored[program.row]), looks

    def asked(self, what: str, number: int, *given: Any) -> tuple:
        """Does what a program in the midst of a step asks for; see stepped.Ask. Raises what its call is to raise."""
        program = self.started[number]
        if not program.busy:
            raise ValueError("a program that is not in the midst of a step asks for nothing.")
        loaded = (self._load(program, *given),) if what == "load" else ()
        if self.hostile and (what == "look" or self.hostile.random() < _OFTEN):
            self._others_go_on()
        if what == "store":
            self._store(program, *given)
        return *self._seen(program), *loaded

    def _others_go_on(self) -> None:
        others = [one for one in self.resident if not one.busy and not one.ended]
        if self.depth < _DEEPEST and others:
            self.depth += 1
            self._go_on(self.hostile.choice(others))
            self.depth -= 1

    def _require_part(self, part: Any, what: str) -> None:
        if isinstance(part, bool) or not isinstance(part, int) or not 0 <= part < self.parts:
            raise IndexError(f"the row has the {what}s 0 to {self.parts - 1}; {what} {part!r} does not exist.")

    def _load(self, program: _Running, part: int) -> list[float]:
        self._require_part(part, "slice")
        self.loads += 1
        if part == program.part:
            program.reloaded = True
        else:
            self._note_missed(program)
        self.needless += part == program.part or bool(self.stored[program.row][part])
        return list(self.numbers(program.row, part))

    def _store(self, program: _Running, part: int, word: int) -> None:
        """Stores a word, and notes its fault."""
        row, found = program.row, pair_in(word)
        self._require_part(part, "word")
        if part == program.part and not program.published:
            program.published, program.late = True, program.missed
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
        if found == (-math.inf, 0) and right[0] == LOWEST_FLOAT32:
            return "−inf, not the lowest number"
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
    "−inf, not the lowest number", "m and l swapped", "half of a pair", "the pair of another slice",
    "a word added to one that was there", "something else",
)  # fmt: skip
"""The faults that a stored word can have."""


def some_numbers(row: int, part: int) -> list[float]:
    """Four numbers for a slice; each slice has another maximum."""
    return [0.5 * row + (5 * part + 3 * number) % 7 for number in range(4)]


def shared_run(
    program: Callable,
    grid: Sequence[tuple[int, int]],
    *,
    places: int,
    seed: int | None = None,
    numbers: Numbers = some_numbers,
    late: int = 0,
) -> SharedEnd:
    """Runs a program for each slice (row, part) of `grid`, which start in this order, on a GPU of `places`.

    With a `seed` the order is hostile. Programs of odd slices begin `late` rounds after they have found a place. An
    exception that the program raises is not caught. A program in another process has an attribute `programs`, which is
    used in place of stepped.SteppedPrograms. Raises ValueError for less than one place and for a grid without slices.
    """
    refuse_below_one(places=places)
    if not grid:
        raise ValueError("there is nothing to run: give at least one slice, such as [(0, 0)].")
    parts = 1 + max(part for _, part in grid)
    gpu = _Gpu(deque(grid), parts, places, numbers, None if seed is None else random.Random(seed), late)
    gpu.programs = getattr(program, "programs", partial(SteppedPrograms, program))(gpu.asked)
    gpu.run()
    every = [*gpu.ended, *gpu.resident]
    return SharedEnd(
        results=[[one.row, one.part, one.result] for one in gpu.ended],
        waiting=len(gpu.resident),
        never_started=len(gpu.grid),
        loads=gpu.loads,
        needless=gpu.needless,
        early=gpu.early,
        stores=list(gpu.stores),
        unpublished=sum(one.missed and (one.reloaded or not one.published) for one in every),
        late=sum(one.late and not one.reloaded for one in every),
        looks=max(one.looks() for one in every),
        reloaded=sum(one.reloaded for one in every),
    )
