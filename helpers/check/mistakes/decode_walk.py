"""Attention in parts of the keys, with one thing done otherwise: what wrong kernels return, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from helpers.check.mistakes.attention_walk import Walk, ending, gives_walked
from helpers.check.mistakes.recognise import Explains
from helpers.check.problems.cases import INF
from helpers.check.problems.decoding import DECODE, group_of
from helpers.check.problems.problem import Inputs

GIVEN_PARTS = 6
"""Parts of the keys in the driver that is given."""
Bounds = Callable[[int, int, int, int], tuple[int, int]]
"""Of part, parts, N and BLOCK_N: the first key of a part, and the key after its last."""


@dataclass(frozen=True)
class PartSums:
    """What the parts of all heads have left: m and l (H, S), and o (H, S, d)."""

    m: torch.Tensor
    l: torch.Tensor
    o: torch.Tensor

    @property
    def top(self) -> torch.Tensor:
        """The largest m of each head."""
        return self.m.amax(1)

    @property
    def lse(self) -> torch.Tensor:
        """The log-sum-exp of each part."""
        return self.m + torch.log(self.l)

    def weights(
        self, top: torch.Tensor | None = None, exp: Callable[[torch.Tensor], torch.Tensor] = torch.exp
    ) -> torch.Tensor:
        """What a part's sums are multiplied by."""
        top = self.top if top is None else top
        return exp(self.m - top.masked_fill(top == -INF, 0.0)[:, None])

    def summed(
        self, l_by: torch.Tensor | None = None, o_by: torch.Tensor | None = None, top: torch.Tensor | None = None
    ) -> Inputs:
        """m, l and o of all parts, whose sums are multiplied by these weights, by default the right ones."""
        l_by, o_by = (self.weights(top) if by is None else by for by in (l_by, o_by))
        return self.top if top is None else top, (l_by * self.l).sum(1), (o_by[..., None] * self.o).sum(1)

    def taken(self, place: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> PartSums:
        """The parts that a merge finds if it looks for part i of a head at this place, of all that there are."""
        H, S = self.m.shape
        at = place(torch.arange(H)[:, None], torch.arange(S)[None]).expand(H, S) % (H * S)
        return PartSums(self.m.flatten()[at], self.l.flatten()[at], self.o.flatten(0, 1)[at])

    def only(self, chosen: slice) -> PartSums:
        """Some of the parts of each head."""
        return PartSums(self.m[:, chosen], self.l[:, chosen], self.o[:, chosen])


def _bounds(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    each = -(-N // parts)
    return min(N, part * each), min(N, (part + 1) * each)


@dataclass(frozen=True)
class Split(Walk):
    """How kernels go about it: a walk through each part, a merge, and the walk's end. The defaults are right."""

    bounds: Bounds = _bounds
    merge: Callable[[PartSums], Inputs] = PartSums.summed
    S: int = GIVEN_PARTS

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, BLOCK_M: int,
                 BLOCK_N: int) -> Inputs:  # fmt: skip
        """o in q's dtype, and the log-sum-exps."""
        found = self.parts(*self.inputs(q, k, v), BLOCK_N)
        o, lse = self.finish(*self.merge(found))
        return o.to(q.dtype), lse

    def parts(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, BLOCK_N: int) -> PartSums:
        """What the parts leave."""
        kept = {name: getattr(self, name) for name in _OF_A_PART}
        bounds = tuple(self.bounds(part, self.S, k.shape[1], BLOCK_N) for part in range(self.S))
        walk = Walk(**kept, finish=_triple)
        return _walked(walk, bounds, _ANY if walk == _RIGHT else BLOCK_N, q, k, v)


_OF_A_PART = ("scale", "score", "start", "beyond", "exp", "top", "step", "keep")
_ANY = 1 << 20
"""Keys of a tile that holds all keys of a part: if nothing is wrong, tiles change nothing."""


def _triple(m: torch.Tensor, l: torch.Tensor, o: torch.Tensor) -> Inputs:
    return o, torch.stack((m, l), -1)


_RIGHT = Walk(finish=_triple)


@lru_cache(maxsize=64)
def _walked(walk: Walk, bounds: tuple[tuple[int, int], ...], BLOCK_N: int, q: torch.Tensor, k: torch.Tensor,
            v: torch.Tensor) -> PartSums:  # fmt: skip
    """What a walk leaves of each part; kept, since many mistakes begin after that. A tensor equals itself alone."""
    group = group_of(q, k)
    rows = q.float().reshape(len(k), group, q.shape[1])
    sums, pairs = [], []
    for first, end in bounds:
        keys = slice(first, max(first, end))
        o, pair = walk(rows, k[:, keys], v[:, keys], False, group, BLOCK_N)
        sums.append(o.flatten(0, 1))
        pairs.append(pair.flatten(0, 1))
    m, l = torch.stack(pairs, 1).unbind(-1)
    return PartSums(m, l, torch.stack(sums, 1))


RIGHT_SPLIT = Split()


def with_merges(*merges: Callable[[PartSums], Inputs]) -> tuple[Split, ...]:
    """Splits with other merges."""
    return tuple(replace(RIGHT_SPLIT, merge=merge) for merge in merges)


def with_bounds(*bounds: Bounds) -> tuple[Split, ...]:
    """Splits with other bounds."""
    return tuple(replace(RIGHT_SPLIT, bounds=one) for one in bounds)


def stepped(**changes: object) -> Split:
    """A split whose walk through each part is another."""
    return replace(RIGHT_SPLIT, **changes)


def result_of(o: Callable[..., torch.Tensor] | None = None, lse: Callable[..., torch.Tensor] | None = None) -> Split:
    """A split with another o or another log-sum-exp: functions of m, l and o of all parts."""
    return stepped(finish=ending(o, lse))


def gives_split(*splits: Split | Sequence[Split]) -> Explains:
    """Explains what one of these returns, as `gives_walked` does."""
    every = [one for some in splits for one in ([some] if isinstance(some, Split) else some)]
    return gives_walked(*every, causal=False, kind=DECODE)
