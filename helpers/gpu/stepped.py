"""Runs the programs of helpers.gpu.sharing step by step, in the process that holds the answer's code.

A program goes on when this module is told to continue it. What a program does to others is passed on, through `Ask`, to
the process with the simulated GPU: every store, every load, and now and then a look at a word. All other looks are
answered from a copy of the row's words, which every such request renews.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

AskGpu = Callable[..., Any]
"""ask("look", number), ask("store", number, part, word) and ask("load", number, part) of a program by its number.

Each returns the words of its row and after how many looks it is to ask again, 0 for never; behind them a load returns
the numbers of the slice.
"""
Went = dict[str, Any]
"""How a program went on: its `yields`, how many of these came after a look, whether it has `ended`, its `result`."""
MOST_LOOKS = 4000
"""Looks at each word, in one step, after which a program is taken to wait in place."""


class WaitsInPlace(RuntimeError):
    """A program looks again and again and never lets another program go on."""


class _Words:
    """The words of one row, as a program sees them."""

    def __init__(self, ask: AskGpu, number: int) -> None:
        self._ask, self._number = ask, number
        self.looks = 0

    def renew(self, words: Sequence[int], looks: int) -> None:
        self._now, self._until = list(words), looks

    def __len__(self) -> int:
        return len(self._now)

    def __getitem__(self, part: Any) -> Any:
        self.looks += 1
        if self.looks > MOST_LOOKS * len(self):
            raise WaitsInPlace("the program looks without end, and lets no other one go on: where is its yield?")
        self._until -= 1
        if self._until == 0:
            self.renew(*self._ask("look", self._number))
        return self._now[part]

    def __setitem__(self, part: int, word: int) -> None:
        self.renew(*self._ask("store", self._number, part, word))

    def __iter__(self) -> Iterator[int]:
        return (self[part] for part in range(len(self)))


class SteppedPrograms:
    """The programs of a launch. An exception that a program raises is not caught here."""

    def __init__(self, program: Callable, ask: AskGpu) -> None:
        self._program, self._ask = program, ask
        self._words: dict[int, _Words] = {}
        self._steps: dict[int, Generator] = {}

    def begin(self, number: int, part: int, x: Sequence[float], words: Sequence[int], looks: int) -> Went:
        """Starts a program for slice `part`, whose numbers are x, and lets it go on to its first yield."""
        seen = self._words[number] = _Words(self._ask, number)
        seen.renew(words, looks)

        def load(part: int) -> list[float]:
            words, looks, numbers = self._ask("load", number, part)
            seen.renew(words, looks)
            return list(numbers)

        found = self._program(seen, part, list(x), load)
        if not isinstance(found, Generator):
            return {"yields": 0, "looked": 0, "ended": True, "result": found}
        self._steps[number] = found
        return self._went(number, 1)

    def go_on(self, number: int, steps: int, words: Sequence[int], looks: int) -> Went:
        """Lets a program go on for at most this number of yields."""
        self._words[number].renew(words, looks)
        return self._went(number, steps)

    def _went(self, number: int, steps: int) -> Went:
        words, looked = self._words[number], 0
        for step in range(steps):
            words.looks = 0
            try:
                next(self._steps[number])
            except StopIteration as end:
                return {"yields": step, "looked": looked, "ended": True, "result": end.value}
            looked += words.looks > 0
        return {"yields": steps, "looked": looked, "ended": False, "result": None}
