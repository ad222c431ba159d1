"""What kernels of attention and of one query a head do otherwise, in a tile of keys or at the end, in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from helpers.check.mistakes.attention_walk import ScoreTile
from helpers.check.problems.cases import INF
from helpers.check.problems.problem import Inputs

LOW_SCORES = (-1e3, -1e4, -1e5, -1e6, -1e9, -1e30)
"""What is taken for a score of −inf."""
_LOG2E = 1.4426950408889634
WRONG_LSE: dict[str, tuple[Callable[..., torch.Tensor], ...]] = {
    "lse_base_2": (
        lambda m, l, o: m + torch.log2(l),
        lambda m, l, o: m * _LOG2E + torch.log2(l),
        lambda m, l, o: m * _LOG2E + torch.log(l),
    ),
    "lse_without_m": (lambda m, l, o: torch.log(l), lambda m, l, o: l),
    "lse_without_log": (lambda m, l, o: m + l, lambda m, l, o: m),
    "lse_negative": (lambda m, l, o: -m - torch.log(l), lambda m, l, o: m - torch.log(l)),
}
"""Of each mistake in the log-sum-exp, what it may be in place of m + log l."""


# Factors of the old sums


def not_rescaled(tile: ScoreTile) -> torch.Tensor:
    """The old sums stay what they are."""
    return torch.ones_like(tile.m)


def grown(tile: ScoreTile) -> torch.Tensor:
    """What the sums would grow by, 0 in the first tile."""
    return tile.exp(tile.shift - tile.m).masked_fill(tile.m == -INF, 0.0)


# l and o after the tile


def nothing_rescaled(tile: ScoreTile) -> Inputs:
    """The terms are added to the old sums as they are."""
    return tile.summed(l_by=not_rescaled(tile), o_by=not_rescaled(tile))


def after_adding(tile: ScoreTile, of_l: bool, of_o: bool) -> Inputs:
    """The sum of exponentials, the sum of values, or both, with a factor that the new terms get too."""
    l, o = tile.summed()
    l_term, o_term = tile.terms()
    late = (tile.l + l_term) * tile.factor, (tile.o + o_term) * tile.factor[..., None]
    return late[0] if of_l else l, late[1] if of_o else o


LAST_TILE_ALONE: tuple[Callable[[ScoreTile], Inputs], ...] = (
    ScoreTile.terms,
    lambda tile: (tile.summed()[0], tile.terms()[1]),
    lambda tile: (tile.terms()[0], tile.summed()[1]),
)
"""Steps that forget the old sums: both, or one of them."""


def with_old_maximum(tile: ScoreTile) -> Inputs:
    """The new terms are made with the old m, or with 0 where that is −inf."""
    return tile.summed(tile.p(tile.m.masked_fill(tile.m == -INF, 0.0)))


def divided_in_tile(tile: ScoreTile) -> Inputs:
    """o is divided by l."""
    l, o = tile.summed()
    return l, o / l.masked_fill(l == 0, 1.0)[..., None]


def weighed_with_scores(tile: ScoreTile) -> Inputs:
    """The values are weighed with scores."""
    o = tile.o * tile.factor[..., None] + tile.s.masked_fill(tile.s == -INF, 0.0) @ tile.v.float()
    return tile.summed()[0], o


def kept_in(dtype: torch.dtype, l_too: bool = False) -> Callable[[ScoreTile], Inputs]:
    """Sums that are rounded to 16 bits after each tile."""

    def step(tile: ScoreTile) -> Inputs:
        l, o = tile.summed()
        return l.to(dtype).float() if l_too else l, o.to(dtype).float()

    return step


def _unguarded(tile: ScoreTile) -> torch.Tensor:
    return tile.exp(tile.m - tile.m_new)


UNGUARDED: tuple[Callable[[ScoreTile], Inputs], ...] = (
    lambda tile: tile.summed(tile.p(tile.m_new), _unguarded(tile), _unguarded(tile)),
    lambda tile: tile.summed(None, _unguarded(tile), _unguarded(tile)),
    lambda tile: tile.summed(tile.p(tile.m_new)),
)
"""Steps that subtract m_new even where it is −inf: in the terms, in the factor, or in both."""
