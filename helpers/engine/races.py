"""Finds races: accesses by programs of one launch to the same element, which a GPU may make in any order or at once.

Two programs race for an element that one of them stores and the other loads or stores, unless atomic updates order
them: a release after the first access, and a later acquire of the same word before the second access. For example, an
atomic counter tells a program that it is the last of its row, and this program loads what the others have stored.
Updates do not race with each other or with volatile loads. Nor do stores of the same bits, such as stores of
overlapping tiles.

Two lanes of one program also race for an element that one lane stores and the other loads afterwards, or stores with
other bits, with no tl.debug_barrier and no update between the two. A lane is the same in all tiles of one size. A
single number is stored by one thread and loaded by all.

This module does not ask whether a program's own lanes wait for each other between a store and an update.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MOST_IN_PAIRS = 2000
"""Accesses of one element of which all pairs are looked at; of more, neighbours alone."""


@dataclass(frozen=True)
class Sync:
    """A volatile load, or an update and what it puts in order."""

    acquires: bool = False
    releases: bool = False


class Touch(NamedTuple):
    """One access, by the program that ran as number `turn`, of these addresses of the tensor number `space`."""

    turn: int
    action: str
    addresses: np.ndarray
    width: int
    space: int
    sync: Sync | None = None
    values: np.ndarray | None = None
    """What a store stores, lane by lane."""
    lanes: np.ndarray | None = None
    """The numbers of the lanes in their tile."""
    tile: int = 0
    phase: int = 0
    """Barriers and updates that the program has met before."""


class Race(NamedTuple):
    """Two accesses that nothing puts in order, and the address at which they meet."""

    first: Touch
    second: Touch
    address: int


class Crowd(NamedTuple):
    """One of more than MOST_IN_PAIRS accesses of an address: nobody has looked at all pairs of them."""

    one: Touch
    address: int


def race(touches: list[Touch], extents: list[tuple[int, int]]) -> Race | Crowd | None:
    """The race that shows first among the accesses of a launch, in the order in which they were made, or None.

    A Crowd if none shows and not everything was looked at.

    `extents` has for each tensor its first address and the one after its last.
    """
    stored_to = {extents[touch.space] for touch in touches if touch.action != "load"}
    shared = [any(low < end and start < high for low, high in stored_to) for start, end in extents]
    met = [touch for touch in touches if shared[touch.space]]
    if len({touch.turn for touch in met}) < 2:
        return None
    unit = min(touch.width for touch in met)
    parts = [_parts(touch, unit) for touch in met]
    elements, owner = np.concatenate(parts), np.repeat(np.arange(len(met)), [len(part) for part in parts])
    order = np.argsort(elements, kind="stable")
    elements, owner = elements[order], owner[order]
    turns = np.array([touch.turn for touch in met])[owner]
    meets = (elements[1:] == elements[:-1]) & (turns[1:] != turns[:-1])
    if not meets.any():
        return None
    several = np.isin(elements, elements[1:][meets])
    elements, owner, turns = elements[several], owner[several], turns[several]
    bits = np.concatenate([_bits(touch, unit) for touch in met])[order][several]
    writes, synced = (
        np.array(flags)[owner]
        for flags in ([touch.action != "load" for touch in met], [touch.sync is not None for touch in met])
    )
    one, other, crowds = _pairs(elements, writes, synced)
    same_bits = (writes & ~synced)[one] & (writes & ~synced)[other] & (bits[one] == bits[other])
    races = (turns[one] != turns[other]) & ~(synced[one] & synced[other]) & ~same_bits
    one, other = one[races], other[races]
    chains = _Chains(met)
    for index in np.argsort(owner[other], kind="stable"):
        first, second = owner[one[index]], owner[other[index]]
        if not chains.put_in_order(first, second):
            return Race(met[first], met[second], int(elements[one[index]]) * unit)
    return Crowd(met[owner[crowds[0]]], int(elements[crowds[0]]) * unit) if len(crowds) else None


def race_of_lanes(touches: list[Touch]) -> Race | None:
    """The race of two lanes of one program that shows first; None if there is none."""
    groups: dict[tuple[int, int, int], list[Touch]] = defaultdict(list)
    for touch in touches:
        if touch.lanes is not None and touch.sync is None and touch.action != "update":
            groups[touch.turn, touch.phase, touch.space].append(touch)
    for group in groups.values():
        first = next((at for at, touch in enumerate(group) if touch.action == "store"), None)
        if first is not None and (found := _among_lanes(group[first:])):
            return found
    return None


def _among_lanes(group: list[Touch]) -> Race | None:
    """The race among accesses of one program to one tensor, the first of which stores."""
    unit = min(touch.width for touch in group)
    parts = [_parts(touch, unit) for touch in group]
    elements, owner = np.concatenate(parts), np.repeat(np.arange(len(group)), [len(part) for part in parts])
    order = np.argsort(elements, kind="stable")
    elements, owner = elements[order], owner[order]
    if (elements[1:] > elements[:-1]).all():
        return None
    lanes = np.concatenate([np.repeat(touch.lanes, touch.width // unit) for touch in group])[order]
    tiles = np.array([touch.tile for touch in group])[owner]
    writes = np.array([touch.action == "store" for touch in group])[owner]
    bits = np.concatenate([_bits(touch, unit) for touch in group])[order]
    position = np.arange(len(elements))
    before = np.r_[-1, np.maximum.accumulate(np.where(writes, position, -1))[:-1]]
    meets = (before >= 0) & (elements[before] == elements)
    one, other = before[meets], position[meets]
    same_thread = (lanes[one] == lanes[other]) & (tiles[one] == tiles[other]) & (writes[other] | (tiles[other] > 1))
    races = ~same_thread & ~(writes[other] & (bits[one] == bits[other]))
    if not races.any():
        return None
    first = int(np.argmin(np.where(races, owner[other], len(group))))
    return Race(group[owner[one[first]]], group[owner[other[first]]], int(elements[one[first]]) * unit)


def _parts(touch: Touch, unit: int) -> np.ndarray:
    """The numbers of the units of memory that an access touches, lane by lane."""
    first = touch.addresses // np.uint64(unit)
    if touch.width == unit:
        return first
    return (first[:, None] + np.arange(touch.width // unit, dtype=np.uint64)).ravel()


def _bits(touch: Touch, unit: int) -> np.ndarray:
    """What a store puts into each unit; for other accesses zeros."""
    if touch.values is None or touch.values.itemsize != touch.width:
        return np.zeros(touch.addresses.size * (touch.width // unit), dtype=np.uint64)
    return np.ascontiguousarray(touch.values).view(f"u{unit}").astype(np.uint64)


def _pairs(elements: np.ndarray, writes: np.ndarray, synced: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of accesses of one element, at least one of which writes: earlier and later ones, by their positions; and
    where the accesses of each element begin that are too many for all their pairs.

    Each access with the last write before it and each load with the next write after it are enough where these writes
    must be in order themselves. Updates need not be: where they meet other accesses, all pairs are looked at.
    """
    position, count = np.arange(len(elements)), len(elements)
    before = np.r_[-1, np.maximum.accumulate(np.where(writes, position, -1))[:-1]]
    after = np.r_[np.minimum.accumulate(np.where(writes, position, count)[::-1])[::-1][1:], count]
    has_before = (before >= 0) & (elements[before] == elements)
    has_after = (after < count) & (elements[after.clip(max=count - 1)] == elements) & ~writes
    pairs = [(before[has_before], position[has_before]), (position[has_after], after[has_after])]
    mixed = np.intersect1d(elements[synced & writes], elements[~synced])
    starts, ends = (np.searchsorted(elements, mixed, side) for side in ("left", "right"))
    crowded = ends - starts > MOST_IN_PAIRS
    for start, end in zip(starts[~crowded], ends[~crowded], strict=True):
        one, other = np.triu_indices(end - start, 1)
        written = writes[start + one] | writes[start + other]
        pairs.append((start + one[written], start + other[written]))
    return np.concatenate([one for one, _ in pairs]), np.concatenate([other for _, other in pairs]), starts[crowded]


class _Chains:
    """What updates put in order: all before a release comes before all after a later acquire of the same word."""

    def __init__(self, touches: list[Touch]) -> None:
        self.turns = [touch.turn for touch in touches]
        self.acquired: dict[int, list[tuple[int, list[int]]]] = defaultdict(list)
        self.released: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.known: dict[tuple[int, int], dict[int, int]] = {}
        for number, touch in enumerate(touches):
            if touch.sync and touch.sync.acquires:
                self.acquired[touch.turn].append((number, touch.addresses.tolist()))
            if touch.sync and touch.sync.releases:
                for word in set(touch.addresses.tolist()):
                    self.released[word].append((number, touch.turn))

    def put_in_order(self, first: int, second: int) -> bool:
        """Whether access number `first` comes before number `second`, of another program, on a GPU too."""
        turn = self.turns[second]
        acquires = bisect_left(self.acquired.get(turn, []), (second,))
        if not acquires:
            return False
        if (turn, acquires) not in self.known:
            self.known[turn, acquires] = self._before(turn, second)
        return self.known[turn, acquires].get(self.turns[first], -1) > first

    def _before(self, turn: int, number: int) -> dict[int, int]:
        """For each program, the last of its releases that comes before access `number` of the program `turn`."""
        known, looked_at = {turn: number}, defaultdict(int)
        waiting = [turn]
        while waiting:
            at = waiting.pop()
            for acquire, words in self.acquired.get(at, ()):
                for word in words if acquire <= known[at] else ():
                    releases = self.released.get(word, [])
                    upto = bisect_left(releases, (acquire,))
                    for release, by in releases[looked_at[word] : upto]:
                        if release > known.get(by, -1):
                            known[by] = release
                            waiting.append(by)
                    looked_at[word] = max(looked_at[word], upto)
        del known[turn]
        return known
