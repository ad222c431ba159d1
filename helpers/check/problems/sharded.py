"""Rows that lie over several ranks: the cases, derived from axes; the right results of softmax and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, cycle
from math import isnan
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from helpers.check.trial.ranked import Ranked, Rows, Sharded

_INF, _NAN = float("inf"), float("nan")
HOLD = 2e-5
"""The error that a float32 result may have, relative to 1 plus its size."""

_ROUNDED = 0.75
"""The error that a 16-bit result may have, in units in its last place: it is rounded once, at the end."""

MOST_COLLECTIVES, MOST_BYTES_A_ROW, FEW_RANKS = 1, 64, 4
"""Enough for every right answer. A rank hands in these bytes for each row: float64 fits, and so do the slots of four
ranks in one all-reduce. Bytes are not counted for more ranks, which have more slots."""


# Axes: what a case is made of


_RANKS: dict[str, tuple[list[int], int, int]] = {
    "two groups of two ranks": ([10, 14], 2, 4),
    "four ranks, the last without columns": ([12, 1, 11, 0], 1, 5),
    "two ranks": ([14, 10], 1, 5),
    "four ranks with many columns": ([160] * 4, 1, 4),
    "one rank": ([24], 1, 4),
    "three ranks, the first without columns": ([0, 9, 15], 1, 4),
    "five ranks with a column each, one row": ([1] * 5, 1, 1),
    "nine ranks": ([3, 1, 2, 0, 4, 1, 5, 1, 2], 1, 4),
    "two groups of three ranks, the last without columns": ([8, 16, 0], 2, 4),
}
"""The columns of each shard, the number of groups, and that of rows. 160 columns tell logits from numbers of a row."""


def _random(draw: Random, M: int, sizes: list[int]) -> Rows:
    return [[draw.gauss(0, 2) for _ in range(sum(sizes))] for _ in range(M)]


def _levels(draw: Random, M: int, sizes: list[int]) -> Rows:
    levels = cycle((0, 200, -500, 500))
    return [[value + level for value in row] for row, level in zip(_random(draw, M, sizes), levels, strict=False)]


def _apart(draw: Random, M: int, sizes: list[int]) -> Rows:
    """The maxima of shards lie 200 apart, in either order: that of another shard in each row."""
    return [
        [value + 200 * (shard == place) for value, shard in zip(row, _shard_of(sizes), strict=True)]
        for row, place in zip(_random(draw, M, sizes), _places(sizes), strict=False)
    ]


def _equal(draw: Random, M: int, sizes: list[int]) -> Rows:
    return [[draw.gauss(0, 2)] * sum(sizes) for _ in range(M)]


def _steep(draw: Random, M: int, sizes: list[int]) -> Rows:
    """A sum of 1 and of less than half a unit in bfloat16's last place there, in another shard for each row."""
    rows = [[-_INF] * sum(sizes) for _ in range(M)]
    for row, place in zip(rows, _places(sizes), strict=False):
        first = sum(sizes[:place])
        row[(first + 1) % len(row)], row[first] = -5.5625, 0.0
    return rows


def _without_numbers(draw: Random, M: int, sizes: list[int]) -> Rows:
    """−inf in the last shard; in all others; in all columns but one, whose score is very low; in every second one."""
    rows, last = _random(draw, M, sizes), max(_shard_of(sizes))
    for number, row in enumerate(rows):
        for column, shard in enumerate(_shard_of(sizes)):
            if (shard == last > 0, shard != last, column > 0, column % 2 == 0)[number % 4]:
                row[column] = -_INF
        if number % 4 == 2:
            row[0] = -1e10
    return rows


def _nothing(draw: Random, M: int, sizes: list[int]) -> Rows:
    """The second row is only −inf, the fourth has NaN."""
    rows = _random(draw, M, sizes)
    for row, value, width in zip(rows[1::2], (-_INF, _NAN), (sum(sizes), 1), strict=False):
        row[:width] = [value] * width
    return rows


def _shard_of(sizes: list[int]) -> list[int]:
    """The rank of each column."""
    return [rank for rank, size in enumerate(sizes) for _ in range(size)]


def _places(sizes: list[int]) -> Iterator[int]:
    """The ranks that have columns, from the last, again and again."""
    return cycle([rank for rank, size in enumerate(sizes) if size][::-1])


_VALUES: dict[str, Callable[[Random, int, list[int]], Rows]] = {
    "maxima 200 apart": _apart,
    "a row of only −inf, one with NaN": _nothing,
    "shards of only −inf": _without_numbers,
    "rows at levels from −500 to 500": _levels,
    "random numbers": _random,
    "equal numbers": _equal,
    "sums that 16 bits round": _steep,
}
_DTYPES = "bfloat16", "float16"
"""All ranks have float32; few ranks with few columns have these too, in turn."""

# Left out: no rows, of which the text says nothing; so many rows that 16 bits round their number, for the interpreter
# takes some milliseconds for each; groups in another order than the world's, for dist.new_group sorts them; a second
# call, for the processes of a rank end with it; loads of the shard, for the text limits what crosses the link alone.


def _sharded(draw: Random) -> Iterator[tuple[str, Sharded]]:
    """All ranks in float32, then the small ones in 16 bits, each with the values whose turn it is."""
    small = [ranks for ranks, (sizes, *_) in _RANKS.items() if len(sizes) <= 4 and sum(sizes) < 100]
    made = [(ranks, "float32") for ranks in _RANKS] + list(zip(small, cycle(_DTYPES), strict=False))
    for (ranks, dtype), (values, make) in zip(made, cycle(_VALUES.items()), strict=False):
        sizes, groups, M = _RANKS[ranks]
        rows = torch.tensor(make(draw, M, sizes), dtype=getattr(torch, dtype)).tolist()
        case = f"{ranks}: {values}" + (f", {dtype}" if dtype in _DTYPES else "")
        yield case, Sharded(rows, sizes, None, dtype, groups)


def softmax_cases(draw: Random) -> dict[str, tuple[Sharded, Any]]:
    """The cases of the softmax; the right softmax of the whole rows."""
    cases = {}
    for case, one in _sharded(draw):
        cases[case] = one, torch.tensor(one.rows, dtype=torch.float64).softmax(1).tolist()
    return cases


def _some_ignored(draw: Random, row: int, finite: list[list[int]]) -> int:
    return -100 if row % 3 == 1 else draw.choice(draw.choice(finite))


def _at_edges(draw: Random, row: int, finite: list[list[int]]) -> int:
    return finite[row % len(finite)][-1 if row % 2 else 0]


def _on_last(draw: Random, row: int, finite: list[list[int]]) -> int:
    return draw.choice(finite[-1])


def _targets(draw: Random, one: Sharded, choose: Callable[[Random, int, list[list[int]]], int]) -> list[int]:
    """A target for each row; rows of only −inf, and with NaN, are ignored.

    `choose` is given the number of a row and, of each rank that has any, the columns with finite numbers.
    """
    found, ends = [], list(accumulate(one.sizes))
    for number, row in enumerate(one.rows):
        shards = [range(end - size, end) for size, end in zip(one.sizes, ends, strict=True)]
        finite = [[column for column in shard if row[column] > -_INF] for shard in shards]
        finite = [columns for columns in finite if columns]
        found.append(-100 if not finite or any(map(isnan, row)) else choose(draw, number, finite))
    return found


def loss_cases(draw: Random) -> dict[str, tuple[Sharded, Any]]:
    """The cases of the loss; the right gradient of the whole rows, and the mean loss."""
    made = {}
    for (case, one), choose in zip(_sharded(draw), cycle((_some_ignored, _at_edges, _on_last)), strict=False):
        made[case] = one._replace(target=_targets(draw, one, choose))
    made["two ranks, a target 100 columns before the second: random numbers"] = Sharded(
        _random(draw, 2, [138]), [130, 8], [30, 134]
    )
    made["four equal shards: no row counts"] = Sharded(_random(draw, 3, [24]), [6] * 4, [-100] * 3)
    cases = {}
    for case, one in made.items():
        x = torch.tensor(one.rows, dtype=torch.float64, requires_grad=True)
        target = torch.tensor(one.target)
        loss = F.cross_entropy(x, target)
        (gradient,) = torch.autograd.grad(loss, x)
        gradient[target == -100] = 0  # torch has NaN in an ignored row of only −inf
        cases[case] = one, (gradient.tolist(), loss.item())
    return cases


def agree(a: torch.Tensor, b: torch.Tensor, hold: float = HOLD) -> bool:
    """Whether all numbers agree, NaN included."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=hold, atol=hold, equal_nan=True)


def errors(got: torch.Tensor, want: torch.Tensor, one: Sharded) -> torch.Tensor:
    """How far each number of a rank's part is from the right one, as a share of what it may be; inf if one is NaN."""
    may = HOLD * (1 + want.abs())
    if one.dtype in _DTYPES:
        kind = torch.finfo(getattr(torch, one.dtype))
        last_place = kind.eps * torch.exp2(torch.frexp(want.abs().clamp(min=kind.tiny)).exponent - 1.0)
        x = torch.tensor(one.rows, dtype=torch.float64).nan_to_num(0.0, neginf=0.0)
        of_float32 = (2**-22 * (1 + x.abs().amax(1, keepdim=True))).clamp(max=HOLD)
        may = _ROUNDED * last_place + of_float32
    share = ((got - want).abs() / may).nan_to_num(nan=_INF)
    return share.masked_fill(got.isnan() & want.isnan(), 0)


def parts_of(seen: Ranked, one: Sharded) -> list[torch.Tensor] | None:
    """What each rank returned for its shard, if it has its shape: the softmax, or behind a loss the gradient."""
    several = one.target is not None
    found = []
    for returned, size in zip(seen.returned, one.sizes, strict=True):
        fits = returned.is_several == several and len(returned.tensors) == 1 + several
        tensors = returned.tensors if fits else ()
        if not tensors or tensors[-1].shape != (len(one.rows), size) or (several and tensors[0].numel() != 1):
            return None
        found.append(tensors[-1])
    return found


def dtypes_of(seen: Ranked) -> list[str]:
    """The dtype of each rank's part."""
    return [returned.dtypes[-1] for returned in seen.returned]


def losses_of(seen: Ranked) -> list[float]:
    """The loss that each rank returned."""
    return [one.tensors[0].item() for one in seen.returned]
