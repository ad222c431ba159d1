"""Rows that lie over several ranks: the cases, the right results of softmax and loss."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from helpers.check.trial.ranked import Ranked, Rows

_INF = float("inf")
HOLD = 2e-5
"""The error that a result may have, relative to 1 plus its size."""

WIDE = 640
"""Columns of the case that tells logits from numbers of a row: each of 4 ranks has 160."""


MOST_COLLECTIVES, MOST_BYTES_A_ROW = 1, 64
"""Enough for every right answer. A rank hands in these bytes for each row: float64 fits, and so do the slots of four
ranks in one all-reduce."""


def _random(draw: Random, M: int, N: int) -> Rows:
    return [[draw.gauss(0, 2) for _ in range(N)] for _ in range(M)]


def _apart(draw: Random) -> Rows:
    """The maxima of shards of 6 columns lie 200 apart, in either order."""
    rows = _random(draw, 4, 24)
    for row, first in zip(rows, (0, 6, 12, 18), strict=True):
        row[first : first + 6] = [value + 200 for value in row[first : first + 6]]
    return rows


def _large(draw: Random) -> Rows:
    return [[value + 500 for value in row] for row in _random(draw, 3, 24)]


def _low(draw: Random) -> Rows:
    return [[value - 500 for value in row] for row in _random(draw, 3, 24)]


def _with_an_empty_row(draw: Random) -> Rows:
    """A row of only −inf below others."""
    return [*_random(draw, 4, 24), [-_INF] * 24]


def _padded(draw: Random) -> Rows:
    """The last shard of 6 columns holds only −inf, in the second row the first too, and in the third the first two."""
    rows = _random(draw, 4, 24)
    for row in rows:
        row[18:] = [-_INF] * 6
    rows[1][:6] = [-_INF] * 6
    rows[2][:12] = [-_INF] * 12
    return rows


def _nothing(draw: Random) -> Rows:
    """A row of only −inf between others."""
    rows = _random(draw, 3, 12)
    rows[1] = [-_INF] * 12
    return rows


_EQUAL = [6] * 4


def softmax_cases(draw: Random) -> dict[str, tuple[tuple, Any]]:
    """The cases of the softmax: rows and the sizes of shards; the right softmax of the whole rows."""
    made: dict[str, tuple[Rows, list[int]]] = {
        "four equal shards": (_random(draw, 4, 24), _EQUAL),
        "shards of four widths": (_random(draw, 4, 24), [9, 1, 12, 2]),
        "two ranks": (_random(draw, 5, 24), [14, 10]),
        "an empty shard": (_random(draw, 4, 24), [8, 0, 16]),
        "maxima 200 apart": (_apart(draw), _EQUAL),
        "scores about 500": (_large(draw), _EQUAL),
        "scores about −500, an empty shard": (_low(draw), [10, 0, 14]),
        "a shard of only −inf": (_padded(draw), _EQUAL),
        "a row of only −inf": (_nothing(draw), [4, 4, 4]),
        "one rank": (_random(draw, 3, 24), [24]),
        "many columns": (_random(draw, 5, WIDE), [WIDE // 4] * 4),
    }
    return {case: (args, torch.tensor(args[0], dtype=torch.float64).softmax(1).tolist()) for case, args in made.items()}


def loss_cases(draw: Random) -> dict[str, tuple[tuple, Any]]:
    """The cases of the loss: rows, sizes and targets; the right gradient of the whole rows, and the mean loss."""
    some = [draw.randrange(24) for _ in range(3)]
    made: dict[str, tuple[Rows, list[int], list[int]]] = {
        "four equal shards": (_random(draw, 5, 24), _EQUAL, [*some, 2, 21]),
        "ignored rows": (_random(draw, 6, 24), _EQUAL, [3, -100, 20, -100, -100, 9]),
        "all targets on one rank": (_random(draw, 4, 24), [8, 8, 8], [17, 20, 16, 23]),
        "first and last columns": (_random(draw, 6, 24), [7, 5, 12], [0, 6, 7, 11, 12, 23]),
        "shards of four widths": (_random(draw, 5, 24), [9, 1, 12, 2], [9, 0, 23, 10, 15]),
        "two ranks": (_random(draw, 5, 24), [14, 10], [3, 14, 13, -100, 20]),
        "an empty shard": (_random(draw, 4, 24), [8, 0, 16], [8, 7, 23, -100]),
        "maxima 200 apart": (_apart(draw), _EQUAL, [1, 2, 13, 5]),
        "scores about 500": (_large(draw), _EQUAL, [20, 4, 11]),
        "scores about −500, an empty shard": (_low(draw), [10, 0, 14], [20, 4, 11]),
        "an ignored row of only −inf": (_with_an_empty_row(draw), _EQUAL, [3, 20, 9, 14, -100]),
        "a shard of only −inf": (_padded(draw), _EQUAL, [7, 9, 15, 17]),
        "only ignored rows": (_random(draw, 3, 24), _EQUAL, [-100, -100, -100]),
        "many columns": (_random(draw, 5, WIDE), [WIDE // 4] * 4, [some[0], 200, 500, 639, -100]),
    }
    cases = {}
    for case, (rows, sizes, target) in made.items():
        x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor(target))
        (gradient,) = torch.autograd.grad(loss, x)
        gradient[torch.tensor(target) == -100] = 0  # torch has NaN in an ignored row of only −inf
        cases[case] = (rows, sizes, target), (gradient.tolist(), loss.item())
    return cases


def agree(a: torch.Tensor, b: torch.Tensor, hold: float = HOLD) -> bool:
    """Whether all numbers agree, NaN included."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=hold, atol=hold, equal_nan=True)


def parts_of(seen: Ranked, args: tuple) -> list[torch.Tensor] | None:
    """What each rank returned for its shard, if it has its shape: the softmax, or behind a loss the gradient."""
    rows, sizes, *target = args
    found = []
    for one, size in zip(seen.returned, sizes, strict=True):
        tensors = one.tensors if one.is_several == bool(target) and len(one.tensors) == 1 + len(target) else ()
        if not tensors or tensors[-1].shape != (len(rows), size) or (target and tensors[0].numel() != 1):
            return None
        found.append(tensors[-1])
    return found


def losses_of(seen: Ranked) -> list[float]:
    """The loss that each rank returned."""
    return [one.tensors[0].item() for one in seen.returned]
