"""Simulates programs that wait for each other on a GPU with few places: which launches end, and which hang.

A program publishes the word of its slice. Then it keeps its place until the words of all slices of that row are there,
and goes on to its next slice. After its last slice it leaves. Programs start in the order of the grid, each as soon as
a place is free. Launches that run at the same time start one program each in turn.

A grid is a list of programs. A program is the list of the slices, (row, part), that it works on, one after the other.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from helpers.engine.numbers import refuse_below_one
from helpers.table import Table, Tabular

Slice = tuple[int, int]
Grid = list[list[Slice]]

_MOST_LINES = 8


def parts_first(rows: int, parts: int) -> Grid:
    """One program for each slice: the slices of row 0, then the slices of row 1, and so on."""
    refuse_below_one(rows=rows, parts=parts)
    return [[(row, part)] for row in range(rows) for part in range(parts)]


def rows_first(rows: int, parts: int) -> Grid:
    """One program for each slice: part 0 of every row, then part 1 of every row, and so on."""
    refuse_below_one(rows=rows, parts=parts)
    return [[(row, part)] for part in range(parts) for row in range(rows)]


def persistent(rows: int, parts: int, programs: int) -> Grid:
    """A fixed number of programs. Program p takes the slices numbered p, p + programs, p + 2 · programs, …"""
    refuse_below_one(rows=rows, parts=parts, programs=programs)
    slices = [(row, part) for row in range(rows) for part in range(parts)]
    return [slices[program::programs] for program in range(programs)]


@dataclass(frozen=True)
class Waiting:
    """A program that keeps its place, its slice, and the missing parts of its row, each with the reason in words."""

    name: str
    slice: Slice
    missing: dict[int, str]


@dataclass(frozen=True, repr=False)
class EndState(Tabular):
    """The programs on a GPU of `places` when none can go on: how many ended, which wait forever, how many never start.

    `helped` counts the pairs that a program other than their own computed.
    """

    places: int
    ended: int
    waiting: tuple[Waiting, ...]
    never_started: int
    helped: int = 0

    @property
    def hangs(self) -> bool:
        """True if any program waits forever."""
        return bool(self.waiting)

    def table(self) -> Table:
        """A table of which program waits for which, and one sentence on all programs."""
        note = f"{self.places} places: {self.ended} programs ended, {len(self.waiting)} wait forever, "
        note += f"{self.never_started} never start."
        if self.helped:
            note += f" Pairs that other programs computed: {self.helped}."
        rows = [
            [waiting.name, f"row {waiting.slice[0]}, slice {waiting.slice[1]}", _listed(waiting.missing)]
            for waiting in self.waiting[:_MOST_LINES]
        ]
        if len(self.waiting) > _MOST_LINES:
            rows.append([f"and {len(self.waiting) - _MOST_LINES} more", "", ""])
        return Table(["program", "holds", "waits for"], rows or [["none", "", ""]], [note], "lll")


@dataclass(eq=False)
class _Program:
    """A program: the launch that it belongs to, and the slices that it has not finished."""

    launch: int
    name: str
    slices: deque[Slice] = field(default_factory=deque)


class _Words:
    """The words of all launches: for each row, the parts whose words are still missing."""

    def __init__(self, grids: tuple[Grid, ...]) -> None:
        self.missing: dict[tuple[int, int], set[int]] = defaultdict(set)
        for launch, grid in enumerate(grids):
            for row, part in (at for program in grid for at in program):
                self.missing[launch, row].add(part)

    def publish(self, launch: int, at: Slice) -> None:
        self.missing[launch, at[0]].discard(at[1])

    def of(self, program: _Program) -> set[int]:
        """The parts whose words are missing in the row that the program works on."""
        return self.missing[program.launch, program.slices[0][0]]


def run(*grids: Grid, places: int, helps: bool = False) -> EndState:
    """Runs the grids at the same time, each as a launch of its own, on a GPU of `places`, until no program can go on.

    The outcome does not depend on how fast programs are: a program that can go on does so sooner or later, and the
    order in which programs get a free place is fixed. With `helps`, a program that would wait forever computes the
    missing pairs of its row itself. Raises ValueError for less than one place and for grids without programs.
    """
    refuse_below_one(places=places)
    _refuse_none(grids)
    words, queue = _Words(grids), _in_turn(grids)
    resident: list[_Program] = []
    ended = helped = 0
    while queue or resident:
        newcomers = [queue.popleft() for _ in range(min(places - len(resident), len(queue)))]
        for program in newcomers:
            _publish(program, words)
        resident += newcomers
        moved = [_go_on(program, words) for program in resident]
        ended += sum(not program.slices for program in resident)
        resident = [program for program in resident if program.slices]
        if not (newcomers or any(moved)):
            if not helps:
                break
            helped += len(words.of(resident[0]))
            words.of(resident[0]).clear()
    where = {(p.launch, *at): f"of {p.name}, which waits itself" for p in resident for at in p.slices}
    where |= {(p.launch, *at): "of programs that have not started" for p in queue for at in p.slices}
    waiting = tuple(
        Waiting(p.name, p.slices[0], {part: where[p.launch, p.slices[0][0], part] for part in sorted(words.of(p))})
        for p in resident
    )
    return EndState(places, ended, waiting, len(queue), helped)


def _in_turn(grids: tuple[Grid, ...]) -> deque[_Program]:
    """The programs in the order in which they start: one of each launch in turn."""
    queue = deque()
    for number in range(max(map(len, grids))):
        for launch, grid in enumerate(grids):
            if number < len(grid):
                name = f"program {number}" if len(grids) == 1 else f"program {number} of launch {launch}"
                queue.append(_Program(launch, name, deque(grid[number])))
    return queue


def _publish(program: _Program, words: _Words) -> None:
    if program.slices:
        words.publish(program.launch, program.slices[0])


def _go_on(program: _Program, words: _Words) -> bool:
    """Lets a program work on its slices until one has words missing. Returns whether it finished any slice."""
    left = len(program.slices)
    while program.slices and not words.of(program):
        program.slices.popleft()
        _publish(program, words)
    return len(program.slices) < left


def _listed(missing: dict[int, str]) -> str:
    """The missing parts in words; parts that are missing for the same reason stand together."""
    by_reason: dict[str, list[int]] = defaultdict(list)
    for part, reason in missing.items():
        by_reason[reason].append(part)
    said = [f"{_span(parts)} {reason}" for reason, parts in by_reason.items()]
    return "; ".join(said[:3] + ["…"] * (len(said) > 3))


def _span(parts: list[int]) -> str:
    if len(parts) == 1:
        return f"slice {parts[0]}"
    together = parts[-1] - parts[0] == len(parts) - 1
    return f"slices {parts[0]} to {parts[-1]}" if together else f"slices {', '.join(map(str, parts))}"


def _refuse_none(grids: tuple[Grid, ...]) -> None:
    if not grids or not all(grids):
        raise ValueError("there is nothing to run: give at least one grid, such as waiting.parts_first(4, 3).")


VARIANTS: dict[str, tuple[Grid, ...]] = {
    "parts first": (parts_first(32, 16),),
    "rows first": (rows_first(32, 16),),
    "two launches at once": (parts_first(1, 100), parts_first(1, 100)),
    "persistent, 132 programs": (persistent(128, 16, 132),),
    "persistent, 133 programs": (persistent(128, 16, 133),),
}
"""The launches of exercise 9.2: by name, the grids that run at the same time."""
