"""A function of ranks, called on all of them: what each rank returned, what crossed between them, or why they stopped.

In a notebook the ranks are forked from the process that has the answer. A grader gives each rank a sandbox of its own,
which holds its shard alone, and keeps the meeting of the ranks to itself (instructor/grade/ranked.py).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from helpers import ranks
from helpers.check.trial.trial import is_number, number, same, shown
from helpers.engine.isolate import NOT_RUN
from helpers.ranks.meeting import Call, Fault, RankError

LIMIT_S = 5
"""Seconds of processor time that a rank may take, and seconds for which it may sleep."""

_MOST = 20_000
"""Numbers of a tensor that are looked at; the right results have fewer."""

_OUT_OF_TIME: set[int] = set()
"""The processes in which a rank has taken all of its time: they try no further case."""

Rows = list[list[float]]


class Sharded(NamedTuple):
    """Rows whose columns lie over the ranks of a group: the arguments of `on_ranks`, but for the answer.

    Of several `groups` of equal size, which have every rank of the world between them, this is the last one: with 2 of
    2 ranks, its ranks are 1 and 3 of 4. The ranks of every other group have the same rows, in reverse order.
    """

    rows: Rows
    sizes: Sequence[int]
    """The columns of each shard."""
    target: Sequence[int] | None = None
    dtype: str = "float32"
    groups: int = 1

    @property
    def world(self) -> int:
        """The ranks of all groups."""
        return self.groups * len(self.sizes)

    @property
    def members(self) -> slice:
        """The ranks of the group, among all ranks of the world."""
        return slice(self.groups - 1, None, self.groups)


def arguments(sharded: Sharded) -> list[tuple]:
    """What each rank of the world is given: its shard, a view of rows; with a target (M,) that, and the shard's
    first class."""
    rows, sizes, target, dtype, groups = sharded
    x = torch.tensor(rows, dtype=getattr(torch, dtype))
    own, others = (one.split(list(sizes), dim=1) for one in (x, x.flip(0)))
    pairs = zip(own, others, strict=True)
    shards = [_alone(one) for mine, theirs in pairs for one in [theirs] * (groups - 1) + [mine]]
    if target is None:
        return [(shard,) for shard in shards]
    starts = [sum(sizes[: rank // groups]) for rank in range(len(shards))]
    return [(shard, torch.tensor(target), start) for shard, start in zip(shards, starts, strict=True)]


def _alone(shard: torch.Tensor) -> torch.Tensor:
    """A shard as a view of rows of its own, equally wide, that hold nothing else: a rank can read all of them."""
    start = shard.storage_offset()
    rows = shard.new_full((len(shard), shard.stride(0)), torch.nan)
    return rows[:, start : start + shard.shape[1]].copy_(shard)


def on_ranks(answer: Callable[..., Any], *case: Any) -> list[Any]:
    """What a call of the answer on the ranks of a case, the fields of `Sharded`, has shown of the group's ranks, as
    plain values: Ranked.of reads them."""

    if os.getpid() in _OUT_OF_TIME:
        return [NOT_RUN.said, str(NOT_RUN.end), 0, ""]
    sharded = Sharded(*case)

    def on_rank(*given: Any) -> list[Any]:
        return called_on_rank(answer, given[:-1], own_group(given[-1], sharded.groups))

    try:
        seen = ranks.count(on_rank, *arguments(sharded), limit_s=LIMIT_S)
    except RankError as error:
        if error.fault is Fault.OUT_OF_TIME:
            _OUT_OF_TIME.add(os.getpid())
        return fault(error)
    return told_of_ranks(seen.calls[sharded.members], seen.results[sharded.members])


def own_group(world: dist.ProcessGroup, groups: int) -> dist.ProcessGroup:
    """In a rank of the world: its own group, one of several. Every rank makes all of them."""
    if groups == 1:
        return world
    made = [dist.new_group(list(range(first, world.size(), groups))) for first in range(groups)]
    return made[world.rank() % groups]


def called_on_rank(answer: Callable[..., Any], given: Sequence[Any], group: dist.ProcessGroup) -> list[Any]:
    """In a rank: what the answer returned, and whether its tensors are as they were."""
    before = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's new names for collectives say nothing of an answer
        found = _described(answer(*given, group))
    pairs = [pair for pair in zip(before, given, strict=True) if isinstance(pair[0], torch.Tensor)]
    kept = all(torch.equal(a, b) if not a.is_floating_point() else same(a, b) for a, b in pairs)
    return [found, kept]


def told_of_ranks(calls: Sequence[Sequence[Call]], results: Sequence[Any]) -> list[Any]:
    """What ranks have called, and what `called_on_rank` has of each of them."""
    kinds = [[call.kind for call in of_rank] for of_rank in calls]
    sent = [sum(call.sent for call in of_rank) for of_rank in calls]
    left = [sum(not call.taken for call in of_rank) for of_rank in calls]
    return ["", kinds, sent, left, list(results)]


def fault(error: RankError) -> list[Any]:
    """Why the ranks have stopped."""
    return [str(error), str(error.fault), error.rank, error.error]


def _described(value: Any) -> list[Any]:
    """A returned value as plain values, with the kind of each."""
    if value is None:
        return ["none"]
    if isinstance(value, tuple | list):
        return ["several", [_described(one) for one in value[:4]], len(value)]
    if isinstance(value, torch.Tensor) and value.numel() <= _MOST:
        numbers = value.detach().double().flatten().tolist()
        return ["tensor", str(value.dtype).removeprefix("torch."), list(value.shape), numbers]
    if is_number(number(value)):
        return ["number", float(number(value))]
    return ["other", shown(value)]


@dataclass(frozen=True)
class Returned:
    """What one rank returned: its kind in words, and its tensors, as float64, with their dtypes."""

    words: str
    tensors: tuple[torch.Tensor, ...] = ()
    dtypes: tuple[str, ...] = ()
    is_several: bool = False
    is_none: bool = False


@dataclass(frozen=True)
class Ranked:
    """What a call on ranks has shown. With a `fault`, there are no results."""

    said: str = ""
    fault: str = ""
    rank: int = -1
    error: str = ""
    kinds: tuple[tuple[str, ...], ...] = ()
    """By rank, the collectives that it called."""
    sent: tuple[int, ...] = ()
    """By rank, the bytes that it handed in."""
    returned: tuple[Returned, ...] = ()
    kept: bool = True
    """The tensors that were given are as they were."""
    left: int = 0
    """Collectives that a rank began and never waited for."""

    @property
    def collectives(self) -> int:
        """Of the rank that made most of them."""
        return max(map(len, self.kinds), default=0)

    @classmethod
    def of(cls, answer: Any) -> Ranked | None:
        """What `told_of_ranks` or `fault` made; None for anything else: a rank may be a learner's process."""
        match answer:
            case [str(said), str(fault), int(rank), str(error)] if said:
                return cls(said=said, fault=fault, rank=rank, error=error)
            case ["", [*kinds], [*sent], [*left], [*results]] if len(kinds) == len(sent) == len(left) == len(results):
                try:
                    shown_by = [(_read(found), kept is True) for found, kept in results]
                except Exception:  # other values than `_described` makes have torch and Python raise anything
                    return None
                return cls(
                    kinds=tuple(tuple(map(str, of_rank)) for of_rank in kinds),
                    sent=tuple(map(int, sent)),
                    returned=tuple(found for found, _ in shown_by),
                    kept=all(kept for _, kept in shown_by),
                    left=max(left, default=0),
                )
        return None


def _read(found: Any) -> Returned:
    """Raises ValueError for what `_described` does not make."""
    match found:
        case ["none"]:
            return Returned("None; is a return missing?", is_none=True)
        case ["number", float(value) | int(value)]:
            return Returned("a number", (torch.tensor(float(value), dtype=torch.float64),), ("float64",))
        case ["tensor", str(dtype), [*shape], [*numbers]]:
            x = torch.tensor(numbers, dtype=torch.float64).reshape(tuple(map(int, shape)))
            return Returned(f"a tensor {tuple(x.shape)} {dtype[:20]}", (x,), (dtype[:20],))
        case ["several", [*parts], int(count)]:
            read = [_read(part) for part in parts]
            words = f"({', '.join(one.words for one in read)}{', …' * (count > len(read))})"
            single = all(len(one.tensors) == 1 and not one.is_several for one in read) and count == len(read)
            tensors = tuple(one.tensors[0] for one in read) if single else ()
            return Returned(words, tensors, tuple(one.dtypes[0] for one in read) if single else (), is_several=True)
        case ["other", str(words)]:
            return Returned(words[:80])
    raise ValueError("no description of what a rank returned")
