"""Counts the collectives that a function of ranks calls, and the bytes that they send and receive."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from helpers.ranks.meeting import Call
from helpers.ranks.running import calls_of
from helpers.table import Table, Tabular


@dataclass(frozen=True, repr=False)
class Messages(Tabular):
    """The collectives that `count` saw, of each rank; `results` is what each has returned."""

    calls: tuple[tuple[Call, ...], ...]
    results: tuple[Any, ...] = ()

    @property
    def collectives(self) -> int:
        """Calls of the rank that makes most of them."""
        return max(map(len, self.calls))

    @property
    def sent(self) -> int:
        """Bytes that a rank sends, of the rank that sends most: what goes to several others counts once."""
        return max(sum(call.sent for call in calls) for calls in self.calls)

    @property
    def received(self) -> int:
        """Bytes that a rank receives from the others, of the one that receives most: a sum counts as one number."""
        return max(sum(call.received for call in calls) for calls in self.calls)

    def table(self) -> Table:
        """One line for each rank."""
        rows = []
        for rank, calls in enumerate(self.calls):
            kinds = list(dict.fromkeys(call.kind for call in calls))
            names = [f"{sum(call.kind == kind for call in calls)} {kind}" for kind in kinds]
            sent, received = sum(call.sent for call in calls), sum(call.received for call in calls)
            rows.append([str(rank), ", ".join(names) or "none", f"{sent:,}", f"{received:,}"])
        return Table(["rank", "collectives", "bytes sent", "bytes received"], rows, align="llrr")


def count(function: Callable[..., Any], *shards: Any, world: int | None = None, limit_s: int = 20) -> Messages:
    """Runs the function as `run` does, and returns the collectives that each rank called, with their bytes.

    Bytes do not depend on the algorithm that carries them. What a rank hands in is sent once, however many receive it.
    It receives what the others hand in, or what reductions make of it. So a rank of W sends n numbers and receives
    n · (W − 1) in an all-gather of n, and sends and receives n in an all-reduce. A message between two ranks, as of
    dist.send, counts as a collective on both. Raises what `run` raises.
    """
    _self_test()
    results, calls = calls_of(function, shards, world, limit_s)
    return Messages(tuple(map(tuple, calls)), tuple(results))


def _gathers(group: dist.ProcessGroup) -> None:
    x = torch.zeros(5)
    dist.all_gather([torch.empty_like(x) for _ in range(group.size())], x, group=group)


@functools.cache
def _self_test() -> None:
    """Raises RuntimeError unless an all-gather of 5 float32 on 3 ranks counts once, with 20 bytes sent and 40 received.

    Run once, before the first count.
    """
    _, calls = calls_of(_gathers, (), 3)
    seen = Messages(tuple(map(tuple, calls)))
    if (seen.collectives, seen.sent, seen.received) != (1, 20, 40):
        raise RuntimeError(
            f"an all-gather of 20 bytes on 3 ranks was counted as {seen.collectives} collectives with {seen.sent} "
            f"bytes sent and {seen.received} received: this version of torch has moved what helpers/ranks/group.py "
            "defines."
        )
