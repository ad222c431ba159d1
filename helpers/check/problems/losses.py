"""Losses of rows: logits and targets on which wrong kernels go wrong, and what is right.

An answer is a function of logits (M, V) and targets (M,). It returns the loss of each row as float32, 0 where the
target is IGNORED, and, where a gradient is asked for, the gradient of the sum of these losses as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from helpers.check.problems import cases
from helpers.check.problems.axes import Asked, Dimension, derived
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make

IGNORED = -100
"""The target of a row that has no part in the loss."""


def _problem(
    rows: Callable[[torch.Generator], torch.Tensor], target: Callable[[torch.Tensor], list[int] | torch.Tensor]
) -> Make:
    def make(generator: torch.Generator) -> Inputs:
        x = rows(generator)
        return x, torch.as_tensor(target(x))

    return make


def _spread(x: torch.Tensor) -> list[int]:
    """A column for each row, the first and the last of x among them."""
    M, N = x.shape
    return [row * (N - 1) // max(1, M - 1) for row in range(M)]


def _columns_in_turn(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(x)) % x.shape[1]


def _at_top(x: torch.Tensor) -> list[int]:
    return x.argmax(dim=1).tolist()


def _spikes_of_minus_inf(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(3, 50, generator=generator)
    x[:, ::2] = -cases.INF
    return x


def _nearly_certain(generator: torch.Generator) -> torch.Tensor:
    x = 0.1 * torch.randn(3, 20, generator=generator)
    x[:, 4] = 7.0
    return x.bfloat16()


def _one_row_with_nan(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(3, 64, generator=generator)
    x[1, 7] = math.nan
    return x


def _rows_that_are_no_numbers(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(6, 30, generator=generator)
    x[1, 2], x[2, 0], x[4] = math.nan, cases.INF, -cases.INF
    return x


def _of_row(generator: torch.Generator, row: torch.Tensor) -> Inputs:
    """The row three times, with its first, its middle and its last class as targets."""
    return row.repeat(3, 1), torch.tensor([0, len(row) // 2, len(row) - 1])


_ASKED = Asked(
    dimensions={
        "M": Dimension("row", usual=5, near=4, beyond=40),
        "N": Dimension("class", usual=100, many="classes", near=128, beyond=1500),
    },
    tensors={"x": "MN", "target": "M"},
    draw=lambda generator, sizes: _problem(cases.randn(sizes["M"], sizes["N"]), _spread)(generator),
    of_row=_of_row,
    row="logits",
    length=200,
    left_out=dict.fromkeys(
        ("classes of x far apart in memory", "every class at one place", "strides of their own"),
        "by the text rows lie apart, and classes one after the other",
    ),
)
"""No kernel is given a stride of the targets, and no grid is empty: there is no case of either."""

LOGITS: dict[str, Make] = {
    **derived(_ASKED),
    "every column of a short row": _problem(cases.randn(6, 6, scale=2.0), lambda x: list(range(6))),
    "the target at the maximum": _problem(cases.randn(4, 70, scale=10.0), _at_top),
    "a target far below the maximum": _problem(cases.spikes(60, 5, 59), lambda x: [6, 0]),
    "a target of −inf": _problem(_spikes_of_minus_inf, lambda x: [0, 1, 48]),
    "some rows ignored, the first of them": _problem(cases.randn(6, 40), lambda x: [IGNORED, 3, IGNORED, 39, 0, 7]),
    "ignored rows that hold NaN, inf, or only −inf": _problem(
        _rows_that_are_no_numbers, lambda x: [0, IGNORED, IGNORED, 29, IGNORED, 4]
    ),
    "a loss of 3·10⁻⁷": _problem(lambda g: torch.tensor([[0.0, -15.0]]), lambda x: [0]),
    "a row that counts holds NaN": _problem(_one_row_with_nan, _spread),
    "ignored rows only": _problem(cases.randn(2, 40), lambda x: [IGNORED, IGNORED]),
    "one column": _problem(cases.randn(3, 1, shift=5.0), lambda x: [0, IGNORED, 0]),
    "rows with a gap between them": _problem(lambda g: torch.randn(5, 90, generator=g)[1:, 7:71], _spread),
    "a target that is nearly certain, bfloat16": _problem(_nearly_certain, lambda x: [4, 4, 0]),
    "float16, 1,000 columns": _problem(cases.randn(2, 1000, scale=2.0, dtype=torch.float16), lambda x: [999, 500]),
    "a class beyond 32,767": _problem(cases.randn(1, 40000), lambda x: [35000]),
    "2,097,156 rows of 1,024": _problem(cases.overlapping(2**21 + 4, 1024), _columns_in_turn),
    "targets of N and more": _problem(
        lambda g: torch.randn(6, 400, generator=g)[:, 7:47], lambda x: [3, 40, 63, 64, 40 + 256, 39]
    ),
}
"""By name, makers of the problems on which wrong losses go wrong. A target of N or more names no class: such a row's
loss may be any number, but nothing outside the row may be loaded for it."""

_ON_GPU = (
    "small random values", "5 rows, 129 classes", "a target of −inf", "some rows ignored, the first of them",
    "one column", "bfloat16", "float16, 1,000 columns", "rows with a gap between them", "1,500 classes",
)  # fmt: skip


def expected_losses(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses (M,) and the gradient (M, C) of their sum, in float64; of no meaning if the target is C or more."""
    double, kept = x.double(), target != IGNORED
    at = target.where(kept & is_class(x, target), 0)[:, None]
    losses = torch.where(kept, -torch.log_softmax(double, 1).gather(1, at)[:, 0], 0.0)
    onehot = torch.zeros_like(double).scatter(1, at, 1.0)
    return losses, torch.where(kept[:, None], torch.softmax(double, 1) - onehot, 0.0)


def is_class(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Which rows have a target that is a class, or are ignored: the results of the others may be anything."""
    return target < x.shape[1]


def loss_allowed(want: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """m, log(l) and the target's logit are exact to a few units of the largest of them, and the sum as a softmax's.

    The target's logit is m + log(l) less the loss, and log(l) is no larger than log N.
    """
    m, want = (part.where(part.isfinite(), 0.0).abs() for part in (x.double().amax(dim=1), want))
    size = 2 * m + 2 * want + 1
    allowed = torch.finfo(torch.float32).eps * (4 + x.shape[1] ** 0.5 / 4) * size
    return allowed.where(is_class(x, target), torch.inf)


def _slope_allowed(slope: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """That of a softmax, where 1 has been taken from one of its elements, and all are rounded once to x's dtype."""
    rtol, atol = cases.tolerance(x.float())
    onehot = torch.zeros(x.shape, dtype=torch.float64).scatter(1, target.clamp(0, x.shape[1] - 1)[:, None], 1.0)
    least = torch.finfo(x.dtype)
    rounding = 0.75 * least.eps * slope.abs() if x.dtype != torch.float32 else 0.0
    allowed = atol + least.smallest_normal * least.eps + rtol * (torch.softmax(x.double(), 1) + onehot) + rounding
    return allowed.where(is_class(x, target)[:, None], torch.inf)


_LOSSES = Output("the losses", lambda x, target: ((len(x),), torch.float32), loss_allowed, one_a_row="loss")
_GRADIENT = Output("the gradient", lambda x, target: (tuple(x.shape), x.dtype), _slope_allowed)

LOSSES = Kind((_LOSSES,), lambda x, target: expected_losses(x, target)[:1], on_gpu=_ON_GPU)
"""The loss of each row."""
LOSSES_AND_GRADIENT = Kind((_LOSSES, _GRADIENT), expected_losses, on_gpu=_ON_GPU)
"""The loss of each row, and the gradient of their sum."""
