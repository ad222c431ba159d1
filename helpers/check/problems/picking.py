"""One column drawn of each row: inputs on which wrong kernels go wrong, and the columns that are right.

An answer is a function of x (M, N) and of the numbers u (M, T), or (M, T + 1) in parts, as `helpers.softmax.picks` has
them. It returns M columns in int64. The text says which number decides what, so a column is right or wrong. Where a
number lies so near to a boundary that rounding decides, the columns on both sides are right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from helpers.check.problems.axes import Asked, Dimension, Sizes, derived
from helpers.check.problems.cases import INF
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make
from helpers.softmax.picks import TILES, tiles_for

_GRID = 128
"""Numbers in [0, 1) are multiples of 1 / _GRID, which all dtypes hold."""
_BELOW_1 = 1.0 - 2.0**-24
"""The largest float32 below 1."""


def _numbers(generator: torch.Generator, M: int, T: int) -> torch.Tensor:
    return torch.randint(_GRID, (M, T), generator=generator) / _GRID


def _bounds(weights: torch.Tensor, place: torch.Tensor, slack: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last of the weights (M, W) in which `place` may lie, if they are laid end to end."""
    ends, some = weights.cumsum(1), weights > 0
    last = (some * torch.arange(weights.shape[1])).amax(1)
    past = [(ends > at[:, None]) & some for at in (place - slack, place + slack)]
    first, end = (torch.where(one.any(1), one.int().argmax(1), last) for one in past)
    return first, end


def _part(x: torch.Tensor, u: torch.Tensor, tiles: range, BLOCK: int, error: float) -> tuple[torch.Tensor, ...]:
    """m and l of some tiles of each row, and the first and the last column that are right."""
    m, l = torch.full((len(x),), -INF, dtype=torch.float64), torch.zeros(len(x), dtype=torch.float64)
    low = high = torch.full((len(x),), -1)
    for tile in tiles:
        cols = x[:, tile * BLOCK : (tile + 1) * BLOCK]
        m_new = torch.maximum(m, cols.amax(1))
        shift = m_new.nan_to_num(neginf=0.0)
        e, old = torch.exp(cols - shift[:, None]), l * torch.exp(m - shift)
        s, m = e.sum(1), m_new
        l = old + s
        place, slack = u[:, tile] * l, error * l
        first, end = (tile * BLOCK + one for one in _bounds(e, place, slack))
        wins = (s > 0) & ((place + slack < s) | (old == 0))
        may_win = (s > 0) & (place - slack < s)
        low = torch.where(wins, first, torch.where(may_win, low.minimum(first), low))
        high = torch.where(wins, end, torch.where(may_win, high.maximum(end), high))
    return m, l, low, high


def _right(x: torch.Tensor, u: torch.Tensor, in_parts: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """The first and the last column of each row that are right."""
    x, u = x.double(), u.double()
    tiles, BLOCK = tiles_for(x.shape[1], u.shape[1] - in_parts)
    error, each = 1e-6 + 3e-8 * x.shape[1], TILES if in_parts else tiles
    starts = range(0, tiles, each)
    parts = [_part(x, u, range(tiles)[start : start + each], BLOCK, error) for start in starts]
    m, l, low, high = (torch.stack(one, dim=1) for one in zip(*parts, strict=True))
    s = l * torch.exp(m - m.amax(1, keepdim=True).nan_to_num(neginf=0.0))
    total, lanes = s.sum(1), torch.arange(len(parts))
    first, end = _bounds(s, u[:, -1] * total, error * total)
    out = (lanes < first[:, None]) | (lanes > end[:, None])
    return low.masked_fill(out, x.shape[1]).amin(1), high.masked_fill(out, -1).amax(1)


def _middle(in_parts: bool, x: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor]:
    low, high = _right(x, u, in_parts)
    return ((low + high).double() / 2,)


def _halfway(in_parts: bool, want: torch.Tensor, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    low, high = _right(x, u, in_parts)
    return (high - low).double() / 2


def _drawn(more: int, generator: torch.Generator, sizes: Sizes) -> Inputs:
    M, N, T = (sizes[letter] for letter in "MNT")
    return 2 * torch.randn(M, N, generator=generator), _numbers(generator, M, T + more)


def _of_row(T: int, generator: torch.Generator, row: torch.Tensor) -> Inputs:
    return row.repeat(2, 1), _numbers(generator, 2, T)


def _hidden(more: int, M: int, N: int, T: int, *hidden: slice, u: float | None = None) -> Make:
    """Some columns are −inf, and all numbers are u, if it is given."""

    def make(generator: torch.Generator) -> Inputs:
        x, numbers = _drawn(more, generator, {"M": M, "N": N, "T": T})
        for columns in hidden:
            x[:, columns] = -INF
        return x, numbers if u is None else torch.full_like(numbers, u)

    return make


_BEHIND_TILE = "u just below 1, −inf at the end of a tile"
_BEHIND_PARTS = "u just below 1, −inf at the end of the row"


def _behind_parts(generator: torch.Generator) -> Inputs:
    """In 32 parts but the last, a column each: added in turn, their weights stay at the first one's, and their sum does
    not."""
    x = torch.full((2, 1024), -INF)
    x[:, : -16 * TILES : 16 * TILES] = -25 * math.log(2)
    x[:, 0] = 0.0
    return x, torch.full((2, 1024 // 16 + 1), _BELOW_1)


def _made(in_parts: bool) -> dict[str, Make]:
    """The cases; in parts each row has one number more, which is the merge's."""
    more, T = int(in_parts), 7 if in_parts else 3
    asked = Asked(
        dimensions={
            "M": Dimension("row", usual=3, near=2, beyond=9, empty=True),
            "N": Dimension("column", usual=100, near=128, beyond=5000),
            "T": Dimension("tile", usual=T, near=T + 1, beyond=40),
        },
        tensors={"x": "MN", "u": "MT"},
        draw=partial(_drawn, more),
        of_row=partial(_of_row, T + more),
        row="logits",
        length=150,
        options=({"M": 1, "N": 560, "T": 20},),
    )
    behind_tile = _hidden(more, 8, 4000, 2, slice(1948, 2048), u=_BELOW_1)
    return {
        **derived(asked),
        "tiles of −inf between others": _hidden(more, 3, 200, 12, slice(32, 96)),
        "u = 0, −inf at both ends": _hidden(more, 3, 200, 12, slice(140), slice(160, 161), slice(170, None), u=0.0),
        f"u just below 1, −inf at the end of {'the row' if in_parts else 'a tile'}": _behind_parts
        if in_parts
        else behind_tile,
    }


def _kind(in_parts: bool) -> Kind:
    like: Callable = lambda x, u: ((len(x),), torch.int64)  # noqa: E731
    result = Output("the picks", like, partial(_halfway, in_parts), one_a_row="pick")
    return Kind((result,), partial(_middle, in_parts), telling=_TELLING, on_gpu=_TELLING)


_TELLING = (
    "small random values", "2 rows, 128 columns, 4 tiles", "2 rows, 128 columns, 8 tiles",
    "1 row, 560 columns, 20 tiles", "bfloat16", "logits that rise, from −500 to 500", "logits around −1,000",
    "logits of −inf at the start", "strides of their own", "u = 0, −inf at both ends",
)  # fmt: skip
PICKS, PICKS_OF_PARTS = _kind(False), _kind(True)
ROWS, ROWS_IN_PARTS = _made(False), _made(True)
"""By name, makers of the problems: one program a row, and one for each part."""
