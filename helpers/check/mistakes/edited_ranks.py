"""A mistake as an edit of an answer that is a function of ranks, which are called in turn, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from helpers.check.mistakes.edited import Answer, Edit, edited
from helpers.check.mistakes.recognise import INF, Seen
from helpers.check.problems.sharded import HOLD, agree, parts_of
from helpers.check.trial.ranked import Ranked, arguments
from helpers.ranks.collectives import Collective, filled_with, for_rank
from helpers.ranks.group import RankGroup

NEAR = 2e-3
"""How nearly two results must agree to be one. Results of 16-bit shards are rounded: see `near`."""


def near(case: Seen) -> float:
    """How nearly two results of a case must agree to be one."""
    return NEAR if case.x.dtype == "float32" else 5 * NEAR


@lru_cache(maxsize=64)
def ranked(case: Seen) -> Ranked:
    """What the ranks of a case have shown."""
    return Ranked.of(case.trial.answer) or Ranked()


def returned_parts(case: Seen) -> list[torch.Tensor] | None:
    """What each rank returned for its shard; None if one returned nothing of its shape, or a fault stopped them."""
    seen = ranked(case)
    return parts_of(seen, case.x) if seen.returned else None


@lru_cache(maxsize=64)
def pairs_of(shard: torch.Tensor) -> torch.Tensor:
    """m and l of each row of a shard, as the kernel computes them that is given: NaN is no maximum. A tensor equals
    itself alone."""
    x = torch.cat([shard.float(), torch.full((len(shard), 1), -INF)], dim=1)
    m = x.where(~x.isnan(), -INF).amax(dim=1)
    l = torch.exp(x - torch.where(m == -INF, 0.0, m)[:, None]).sum(dim=1)
    return torch.stack([m, l], dim=1)


class OfRanks(Answer):
    """An answer that is a function of ranks. Of a loss and a gradient, an edit may explain the losses alone."""

    most_pairs = 300

    def __init__(self, *parts: Callable, losses_alone: bool = False) -> None:
        super().__init__(*parts)
        self.losses_alone = losses_alone

    def share(self, edit: Edit, seen: Sequence[Seen]) -> float:
        """As of every answer; less if losses alone agree."""
        whole = super().share(edit, seen)
        if whole or self.losses_alone or all(case.x.target is None for case in seen):
            return whole
        return _LOSSES_ALONE * OfRanks(*self.parts, losses_alone=True).share(edit, seen)

    def cases(self, seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
        """The wrong and the right cases that returned, few ranks first; none if few of the wrong ones did."""
        returned = sorted((one for one in seen if returned_parts(one) is not None), key=lambda one: len(one.x.sizes))
        wrong = [one for one in returned if not (all(self.agreeing((), one)) if self.losses_alone else one.ok)]
        few = 8 * len(wrong) < sum(not case.ok for case in seen)
        return ([], []) if few else (wrong, [case for case in returned if case not in wrong])

    def agrees(self, edit: Edit, case: Seen) -> bool:
        """Whether the edited answer returns on all ranks what the learner's did, and no right result."""
        return all(self.agreeing(edit, case)) and (case.ok or self.losses_alone or not self._is_right(edit, case))

    def agreeing(self, edit: Edit, case: Seen) -> list[bool]:
        """By rank, whether the edited answer returns what the learner's did, which returned."""
        made = _in_turn(self.parts, edit, case)
        if made is None:
            return [False]
        some = slice(1) if self.losses_alone else slice(None)
        pairs = zip(ranked(case).returned, made, strict=True)
        return [_are_near(got.tensors[some], one[some], near(case)) for got, one in pairs]

    def _is_right(self, edit: Edit, case: Seen) -> bool:
        pairs = zip(_in_turn(self.parts, (), case), _in_turn(self.parts, edit, case), strict=True)
        return all(_are_near(*of_rank, HOLD) for of_rank in pairs)


def _are_near(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor], hold: float) -> bool:
    return all(agree(a.float(), b.float(), hold) for a, b in zip(some, others, strict=True))


_LOSSES_ALONE = 0.8
"""How much an edit explains that explains all losses: so little that a second mistake is looked for."""


class _Waits(BaseException):
    """A rank waits for the ranks that are called after it."""


class _InTurn(RankGroup):
    """A group whose ranks are called in turn, in one process: `met` are the collectives that all have called."""

    def __init__(self, rank: int, size: int, met: Sequence[dict[int, Collective]], now: dict[int, Collective]) -> None:
        super().__init__(None, rank, size)
        self.met, self.now, self.place = met, now, 0

    def announce(self, call: Collective, moves: object) -> None:
        """Fills what has met, and notes what the rank hands in to the next collective."""
        if self.place == len(self.met):
            self.now[self.rank()] = call._replace(inputs=[x.clone() for x in call.inputs])
            raise _Waits
        calls = self.met[self.place]
        handed = [for_rank(calls[other], self.size(), self.rank()) for other in range(self.size())]
        for x, got in zip(call.outputs, filled_with(call, handed, self.rank()), strict=False):
            x.copy_(got.view(x.shape))
        self.place += 1


@lru_cache(maxsize=64)
def _given(case: Seen) -> list[tuple]:
    return arguments(case.x)[case.x.members]


@lru_cache(maxsize=1024)
def _in_turn(parts: tuple[Callable, ...], edit: Edit, case: Seen) -> list[tuple] | None:
    """What the edited answer returns on each rank, called again once all have met; None if it does not return."""
    answer, met = edited(parts, edit), []
    while True:
        now: dict[int, Collective] = {}
        returned = []
        for rank, given in enumerate(_given(case)):
            try:
                found = answer(*given, _InTurn(rank, len(case.x.sizes), met, now))
            except _Waits:
                continue
            except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
                return None
            returned.append(found if isinstance(found, tuple) else (found,))
        if not now:
            return returned
        if returned:
            return None
        met.append(now)
