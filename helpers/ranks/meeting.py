"""Which ranks have called which collectives, and whether any of them can go on: without processes, and without a clock.

A fault is one sentence with the rank and the line. It is looked for once every rank has ended or waits for others, so
that it does not depend on which rank was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Key = tuple[str, str, int]
"""A collective: its group, the pair of ranks that it is between, or "", and its number there."""


class Fault(StrEnum):
    """Why ranks did not all return."""

    RAISED = "raised"
    DEADLOCK = "deadlock"
    MISMATCH = "mismatch"
    OUT_OF_TIME = "out of time"
    PRINTED = "printed too much"
    DIED = "died"


class RankError(RuntimeError):
    """The ranks did not all return: the message is one sentence. `rank` is the one at fault, `fault` says how, and
    `error` is the name of the exception's class if it raised one."""

    def __init__(self, fault: Fault, rank: int, said: str, error: str = "") -> None:
        super().__init__(said)
        self.fault, self.rank, self.error = fault, rank, error

    def __reduce__(self) -> tuple:
        return RankError, (self.fault, self.rank, str(self), self.error)


class Call(NamedTuple):
    """A rank's call of a collective: what it says of it, and what it hands over."""

    kind: str
    says: tuple[str, ...]
    line: str = ""
    sent: int = 0
    received: int = 0
    parts: tuple[bytes, ...] = (b"",)
    """One for all members, or one for each of them."""
    members: tuple[int, ...] = ()
    taken: bool = False
    """Whether the rank has waited for it, and got what the others handed over."""


@dataclass
class Ending:
    """How a rank has ended: it returned, or `fault` and `said` say why not."""

    fault: Fault | None = None
    said: str = ""
    error: str = ""


@dataclass
class _Shared:
    """A collective as far as it has been called."""

    members: tuple[int, ...]
    is_message: bool = False
    """Whether it goes from the first of two members to the second."""
    calls: dict[int, Call] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return len(self.calls) == len(self.members)

    def name_for(self, rank: int) -> str:
        """What one of its members has called."""
        return "recv" if self.is_message and rank == self.members[1] else self.calls[rank].kind

    def handed_to(self, rank: int) -> list[bytes]:
        """What its members have handed over to one of them."""
        place = self.members.index(rank)
        return [self.calls[member].parts[place % len(self.calls[member].parts)] for member in self.members]


class Meeting:
    """What `world` ranks have called, and what each of them waits for."""

    def __init__(self, world: int) -> None:
        self.world = world
        self.shared: dict[Key, _Shared] = {}
        """Those under way: one that all members have called alike, and whose numbers they have got, is gone."""
        self.made: list[dict[Key, Call]] = [{} for _ in range(world)]
        """By rank: its calls, in their order, without what they handed over."""
        self.waiting: dict[int, tuple[Key, str]] = {}
        """By rank: what it waits for, and the line in which it does."""
        self.ended: dict[int, Ending] = {}
        self._differs = False
        """Whether one of `shared` has been called differently: nobody goes on."""

    def call(self, rank: int, key: Key, members: Sequence[int], call: Call) -> None:
        """A rank has called a collective."""
        shared = self.shared.setdefault(key, _Shared(tuple(members), is_message=key[1] != ""))
        shared.calls[rank] = call._replace(members=tuple(members))
        self._differs |= len({_as_called(one) for one in shared.calls.values()}) > 1
        self.made[rank][key] = shared.calls[rank]._replace(kind=shared.name_for(rank), parts=())

    def is_open(self, rank: int, key: Key) -> bool:
        """Whether the rank has called it, and has not got what the others hand over."""
        return key in self.made[rank] and not self.made[rank][key].taken

    def wait(self, rank: int, key: Key, line: str) -> None:
        """A rank waits until the others have called the same, for a collective that is open to it."""
        self.waiting[rank] = key, line

    def is_complete(self, key: Key) -> bool:
        """Whether all have called it."""
        return key not in self.shared or self.shared[key].is_complete

    def end(self, rank: int, ending: Ending) -> None:
        """A rank has ended."""
        self.ended[rank] = ending
        self.waiting.pop(rank, None)

    def arrivals(self) -> list[tuple[int, list[bytes]]]:
        """Takes the ranks whose wait is over, each with what the members of the collective have handed in."""
        if self._differs:
            return []
        found = []
        for rank, (key, _) in list(self.waiting.items()):
            if (shared := self.shared[key]).is_complete:
                del self.waiting[rank]
                found.append((rank, shared.handed_to(rank)))
                self.made[rank][key] = self.made[rank][key]._replace(taken=True)
                if all(self.made[member][key].taken for member in shared.members):
                    del self.shared[key]
        return found

    def calls(self) -> list[list[Call]]:
        """By rank: what it has called."""
        return [list(made.values()) for made in self.made]

    def running(self) -> list[int]:
        """The ranks that neither wait for others nor have ended."""
        return [rank for rank in range(self.world) if rank not in self.waiting and rank not in self.ended]

    def fault(self) -> RankError | None:
        """Why the ranks cannot all return, once no rank runs any more; None if they have returned."""
        for rank, ending in sorted(self.ended.items()):
            if ending.fault is not None:
                return RankError(ending.fault, rank, ending.said, ending.error)
        return self.mismatch() or (self._deadlock() if self.waiting else None)

    def mismatch(self) -> RankError | None:
        """The first collective that ranks have called differently."""
        for shared in self.shared.values():
            kinds = {rank: _as_called(call) for rank, call in sorted(shared.calls.items())}
            if len(set(kinds.values())) > 1:
                return self._said_of_mismatch(shared, kinds)
        return None

    def _said_of_mismatch(self, shared: _Shared, kinds: dict[int, tuple]) -> RankError:
        most = max(kinds.values(), key=list(kinds.values()).count)  # of equally many, what the first rank calls
        odd = next(rank for rank in kinds if kinds[rank] != most)
        some = next(rank for rank in kinds if kinds[rank] == most)
        others = ranks_in_words([rank for rank in kinds if kinds[rank] == most])
        calls = [(shared.name_for(rank), shared.calls[rank]) for rank in (odd, some)]
        groups = [f" among {ranks_in_words(call.members)}" for _, call in calls]
        groups = groups if groups[0] != groups[1] else ["", ""]
        one, other = (
            f"{name}{_of(call.says)}{group}{_in(call.line)}" for (name, call), group in zip(calls, groups, strict=True)
        )
        return RankError(Fault.MISMATCH, odd, f"Rank {odd} calls {one}, and {others} {other}.")

    def _deadlock(self) -> RankError:
        """All ranks that have not returned wait for others."""
        waits: dict[tuple[str, str], list[int]] = {}
        for rank, (key, line) in sorted(self.waiting.items()):
            shared = self.shared[key]
            missing = [member for member in shared.members if member not in shared.calls]
            kind = shared.name_for(rank) + (f", with rank {missing[0]}," if shared.is_message else "")
            waits.setdefault((kind, line), []).append(rank)
        said = [
            f"{ranks_in_words(ranks)} wait{'s' * (len(ranks) == 1)} in {kind.rstrip(',')}{_in(line)}"
            for (kind, line), ranks in waits.items()
        ]
        if returned := sorted(self.ended):
            once = "has returned" if len(returned) == 1 else "have returned"
            said.append(f"{ranks_in_words(returned)} {once}{self._last(returned[0])}")
        at_fault = returned or next(iter(sorted(waits.values(), key=len)))
        text = f"{'; '.join(said)}: a collective needs all ranks of its group, in the same order."
        return RankError(Fault.DEADLOCK, at_fault[0], text[0].upper() + text[1:])

    def last(self, rank: int) -> Call | None:
        """The last that a rank has called."""
        return next(reversed(self.made[rank].values()), None)

    def _last(self, rank: int) -> str:
        if (last := self.last(rank)) is None:
            return " without a collective"
        return f" after {last.kind}{_in(last.line)}"


def _as_called(call: Call) -> tuple:
    """What is the same on all members of a collective."""
    return call.kind, call.says, call.members


def ranks_in_words(ranks: Sequence[int]) -> str:
    """Such as "rank 2", and "ranks 0, 1 and 3"."""
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def _of(says: tuple[str, ...]) -> str:
    return f" of {', '.join(says)}" if says else ""


def _in(line: str) -> str:
    return f" ({line})" if line else ""
