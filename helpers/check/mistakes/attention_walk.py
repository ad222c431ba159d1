"""Attention with one thing done otherwise: what a wrong kernel returns, tile by tile of keys, in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from helpers.check.mistakes.recognise import Explains, Seen
from helpers.check.problems.cases import INF
from helpers.check.problems.kind import Kind
from helpers.check.problems.problem import Inputs


@dataclass(frozen=True)
class ScoreTile:
    """All queries and one tile of keys: scores (H, L, n), −inf where a key is not seen, and values (H, n, d)."""

    s: torch.Tensor
    v: torch.Tensor
    seen: torch.Tensor
    m: torch.Tensor
    m_new: torch.Tensor
    l: torch.Tensor
    o: torch.Tensor
    exp: Callable[[torch.Tensor], torch.Tensor]

    @property
    def shift(self) -> torch.Tensor:
        """What is subtracted: m_new, or 0 where that is −inf."""
        return self.m_new.masked_fill(self.m_new == -INF, 0.0)

    @property
    def factor(self) -> torch.Tensor:
        """What the old sums shrink by."""
        return self.exp(self.m - self.shift)

    def p(self, shift: torch.Tensor | None = None) -> torch.Tensor:
        """The weights of this tile."""
        return self.exp(self.s - (self.shift if shift is None else shift)[..., None])

    def terms(self, p: torch.Tensor | None = None) -> Inputs:
        """What the tile adds to l and to o."""
        p = self.p() if p is None else p
        return p.sum(-1), p.to(self.v.dtype).float() @ self.v.float()

    def summed(self, p: torch.Tensor | None = None, l_by: torch.Tensor | None = None,
               o_by: torch.Tensor | None = None) -> Inputs:  # fmt: skip
        """l and o after the tile, the old sums multiplied by these factors, by default the right ones."""
        of_l, of_o = self.terms(p)
        l_by, o_by = (self.factor if by is None else by for by in (l_by, o_by))
        return self.l * l_by + of_l, self.o * o_by[..., None] + of_o


def _scale(d: int) -> float:
    return d**-0.5


def _sees(keys: torch.Tensor, rows: torch.Tensor, L: int, N: int, BLOCK_M: int) -> torch.Tensor:
    return keys <= rows


def _divided(m: torch.Tensor, l: torch.Tensor, o: torch.Tensor) -> Inputs:
    return o / l.masked_fill(l == 0, 1.0)[..., None], m + torch.log(l)


def _divided_by_safe(m: torch.Tensor, l: torch.Tensor, o: torch.Tensor) -> Inputs:
    """As `_divided`, where the logarithm too is of 1 if l is 0: as right, if m is −inf there."""
    safe = l.masked_fill(l == 0, 1.0)
    return o / safe[..., None], m + torch.log(safe)


@dataclass(frozen=True)
class Walk:
    """How a kernel goes about it. The defaults are right."""

    scale: Callable[[int], float] = _scale
    score: Callable[[torch.Tensor], torch.Tensor] = lambda s: s
    start: float = -INF
    hidden: float | None = -INF
    """The score of a key that is not seen; None: the score is multiplied by 0."""
    beyond: float = -INF
    """The score of a lane past the last key; its value is 0."""
    counted: Callable[[int, int], int] = lambda L, N: N
    """Lanes up to this number count: those past the last key with a score and a value of 0."""
    top_beyond: float = -INF
    """The score of a lane past the last key, in the maximum alone."""
    whole_tiles: bool = False
    """Lanes past the last key are walked too, whatever they hold."""
    sees: Callable[..., torch.Tensor] = _sees
    """Of keys, rows, L, N and BLOCK_M: which keys a causal query sees."""
    end: Callable[[torch.Tensor, int, int, int], torch.Tensor] | None = None
    """Of rows, N, BLOCK_M and BLOCK_N: where the loop of a row's program ends, if not at N."""
    exp: Callable[[torch.Tensor], torch.Tensor] = torch.exp
    top: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = torch.maximum
    """The new m, of the old one and of the tile's maximum."""
    step: Callable[[ScoreTile], Inputs] = ScoreTile.summed
    keep: Callable[[ScoreTile], torch.Tensor] = lambda tile: tile.m_new
    finish: Callable[..., Inputs] = _divided
    inputs: Callable[..., Inputs] = lambda q, k, v: (q, k, v)

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, BLOCK_M: int,
                 BLOCK_N: int) -> Inputs:  # fmt: skip
        """o in q's dtype, and the log-sum-exps."""
        dtype = q.dtype
        q, k, v = self.inputs(q, k, v)
        (H, L, d), N = q.shape, k.shape[1]
        rows = torch.arange(L)[:, None]
        m = torch.full((H, L), self.start)
        l, o = torch.zeros(H, L), torch.zeros(H, L, v.shape[2])
        ends = torch.full((L,), N) if self.end is None else self.end(rows[:, 0], N, BLOCK_M, BLOCK_N)
        for start in range(0, max([N, *ends.tolist()]), BLOCK_N):
            n = max(0, min(N - start, BLOCK_N))
            lanes = torch.arange(start, start + (BLOCK_N if self._walks_whole_tiles(L, N) else n))
            padded = (torch.nn.functional.pad(x[:, start : start + n], (0, 0, 0, len(lanes) - n)) for x in (k, v))
            keys, values = (one.float() if i == 0 else one for i, one in enumerate(padded))
            s = self.score((q.float() @ keys.mT) * self.scale(d))
            s = s.masked_fill(lanes >= self.counted(L, N), self.beyond)
            seen = self.sees(lanes, rows, L, N, BLOCK_M) if causal else torch.ones(L, len(lanes), dtype=torch.bool)
            seen = seen | (lanes >= self.counted(L, N))
            s = s * seen if self.hidden is None else s.masked_fill(~seen, self.hidden)
            top = s.amax(-1) if self.top_beyond == -INF else s.masked_fill(lanes >= N, self.top_beyond).amax(-1)
            tile = ScoreTile(s, values, seen, m, self.top(m, top), l, o, self.exp)
            l_new, o_new = self.step(tile)
            loaded = (start < ends)[None]
            m, l = torch.where(loaded, self.keep(tile), m), torch.where(loaded, l_new, l)
            o = torch.where(loaded[..., None], o_new, o)
        o, lse = self.finish(m, l, o)
        return o.to(dtype), lse

    def _walks_whole_tiles(self, L: int, N: int) -> bool:
        return self.whole_tiles or (self.beyond, self.top_beyond) != (-INF, -INF) or self.counted(L, N) > N


RIGHT = Walk()
_BLOCKS = ((64, 32), (64, 64), (64, 16), (128, 128))
"""Tiles that are tried: the driver's first."""


def up_to_the_diagonal(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    """The end of the loop of a causal kernel that loads no tile which none of its queries sees."""
    return ((rows // BLOCK_M + 1) * BLOCK_M).clamp(max=N)


def gives_walked(*walks: Walk, causal: bool, kind: Kind, near: float = 1.0) -> Explains:
    """Explains what one of these returns: four fifths of the wrong cases, and nine tenths of all that returned.

    In a case, the share `near` of the numbers is to agree: of sums rounded to 16 bits, a few fall to the other side.
    If causal, each is tried with all tiles, and without those that no query sees. Each is tried with both right ends.
    """
    walks += tuple(replace(walk, finish=_divided_by_safe) for walk in walks if walk.finish is _divided)
    if causal:
        walks = tuple(w for walk in walks for w in (walk, replace(walk, end=walk.end or up_to_the_diagonal)))

    def explains(seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if case.trial.results]
        ran = sum(not case.ok for case in seen)
        wrong = [case for case in answered if not case.ok]
        if not wrong or 3 * len(wrong) < ran:
            return 0.0
        ordered = sorted(wrong, key=_size) + sorted((case for case in answered if case.ok), key=_size)
        return max(
            _share(ordered, len(wrong), walk, causal, kind, blocks, near) for walk in walks for blocks in _BLOCKS
        )

    return explains


def _size(case: Seen) -> int:
    return sum(one.numel() for one in case.inputs)


def _share(seen: Sequence[Seen], wrong: int, walk: Walk, causal: bool, kind: Kind, blocks: tuple[int, int],
           near: float) -> float:  # fmt: skip
    """The mean of the shares of the first `wrong` cases, and of all, that the walk explains; 0 as soon as too few."""
    agreed: list[bool] = []
    for case in seen:
        agreed.append(_agrees(case, walk(*case.inputs, causal, *blocks), kind, near))
        if agreed[:wrong].count(False) > 0.2 * wrong or agreed.count(False) > 0.1 * len(seen):
            return 0.0
    return 0.5 * (sum(agreed[:wrong]) / wrong + sum(agreed) / len(agreed))


def _agrees(seen: Seen, results: Inputs, kind: Kind, share: float) -> bool:
    """Whether this share of these came back, and they are right just if what came back is.

    What is nearly right shows no such mistake.
    """
    rtol = 2e-3 if seen.x.dtype == torch.float32 else 2e-2
    near = all(
        got.shape == one.shape
        and (~torch.isclose(got.float(), one.float(), rtol, 1e-3, equal_nan=True)).sum() <= (1 - share) * got.numel()
        for got, one in zip(seen.trial.results, results, strict=True)
    )
    return near and kind.is_right(seen.inputs, results) == seen.ok


def wrong_only(kind: Kind, *places: int) -> Explains:
    """Explains a little if of the results of every wrong case just these are wrong, each of them in some case."""

    def explains(seen: Sequence[Seen]) -> float:
        wrong = [_wrong_places(kind, case) for case in seen if not case.ok]
        return 0.2 * (bool(wrong) and set().union(*wrong) == set(places) and all(wrong))

    return explains


def right_to_a_hundredth(*kinds: Kind) -> Explains:
    """Explains some if most wrong results of float32 are right to a hundredth: large scores show lost digits more."""

    def explains(seen: Sequence[Seen]) -> float:
        wrong = [case for case in seen if case.trial.results and case.x.dtype == torch.float32 and not case.ok]
        return 0.6 * (len(wrong) > 3 and sum(_is_near(case, kinds) for case in wrong) > 0.7 * len(wrong))

    return explains


def _is_near(seen: Seen, kinds: Sequence[Kind]) -> bool:
    """Whether what came back is near to the results of one of these kinds."""
    return any(
        all(
            torch.isclose(got.double(), want, 1e-2, 1e-2, equal_nan=True).all()
            for got, want in zip(seen.trial.results, kind.expected(*seen.inputs), strict=True)
        )
        for kind in kinds
    )


def _wrong_places(kind: Kind, seen: Seen) -> set[int]:
    """Which of a case's results are wrong; none if none came back."""
    wrong = kind.wrong(seen.inputs, seen.trial.results) if seen.trial.results else ()
    return {place for place, one in enumerate(wrong) if one.any()}


def other(walk: Walk = RIGHT, **changes: object) -> Walk:
    """A walk with other parts."""
    return replace(walk, **changes)


def ending(o: Callable[..., torch.Tensor] | None = None, lse: Callable[..., torch.Tensor] | None = None) -> Callable:
    """The end of a walk with another o or another log-sum-exp: functions of m, l and o."""

    def finish(m: torch.Tensor, l: torch.Tensor, sums: torch.Tensor) -> Inputs:
        right = RIGHT.finish(m, l, sums)
        return o(m, l, sums) if o else right[0], lse(m, l, sums) if lse else right[1]

    return finish
