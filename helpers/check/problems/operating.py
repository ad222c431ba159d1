"""An operator of PyTorch, the softmax along a dimension, mostly of three, and its gradient: inputs, and right results.

An answer is a function of x and dy (B, M, N) and of dim, an integer in a tensor. It returns y and dx in x's shape and
dtype.
"""

from __future__ import annotations

from functools import partial

import torch

from helpers.check.problems import cases
from helpers.check.problems.axes import VALUES, Asked, Dimension, Sizes, derived
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make


def _drawn(dim: int, generator: torch.Generator, sizes: Sizes) -> Inputs:
    shape = tuple(sizes[letter] for letter in "BMN")
    x, dy = (2 * torch.randn(shape, generator=generator) for _ in range(2))
    return x, dy, torch.tensor(dim)


def _of_row(generator: torch.Generator, row: torch.Tensor) -> Inputs:
    x = row.repeat(1, 2, 1)
    return x, torch.randn(x.shape, generator=generator), torch.tensor(2)


def _along(dim: int, *shape: int) -> Make:
    return lambda generator: _drawn(dim, generator, dict(zip("BMN", shape, strict=True)))


def _summed(generator: torch.Generator) -> Inputs:
    """The gradient of (w · y).sum(): all rows have the same one."""
    x, dy, dim = _drawn(2, generator, {"B": 2, "M": 3, "N": 70})
    return x, dy[0, 0].expand_as(x), dim


def _around_100(generator: torch.Generator) -> Inputs:
    """y is 1 / 512, without an error; 16-bit arithmetic has no digits for dy and for what they differ by."""
    dy = 100 + torch.randint(-8, 9, (2, 2, 512), generator=generator) / 2
    return torch.zeros(2, 2, 512).bfloat16(), dy.bfloat16(), torch.tensor(2)


_FAR = {
    f"{of} of {name} far apart in memory": "rows are copied where no strides lead along them"
    for of in ("matrices", "rows", "columns")
    for name in ("x", "dy")
}
_OF_LESSON_03 = {
    f"rows {words}": "the kernel that runs forward is lesson 03's, whose check has it"
    for words in VALUES
    if words not in ("around 1,000", "of −inf at the end", "of −inf alone")
}
_ASKED = Asked(
    dimensions={
        "B": Dimension("matrix", many="matrices", usual=2),
        "M": Dimension("row", usual=3, beyond=9, empty=True),
        "N": Dimension("column", usual=40, near=64, beyond=3000),
    },
    tensors={"x": "BMN", "dy": "BMN", "dim": ""},
    draw=partial(_drawn, -1),
    of_row=_of_row,
    row="rows",
    length=200,
    left_out=_FAR | _OF_LESSON_03,
)


def _shaped(dim: int, *shape: int) -> Make:
    return lambda generator: (*(2 * torch.randn(shape, generator=generator) for _ in range(2)), torch.tensor(dim))


_OWN = {
    "two dimensions, along the first": _shaped(0, 5, 3),
    "four dimensions, along the second": _shaped(1, 2, 5, 2, 3),
    "along the first dimension": _along(0, 5, 2, 3),
    "along the middle dimension": _along(1, 2, 5, 3),
    "along the first dimension, counted from the end": _along(-3, 70, 2, 2),
    "the gradient of a weighted sum": _summed,
    "equal numbers in bfloat16, dy around 100": _around_100,
}
OPERATOR_CASES: dict[str, Make] = _OWN | derived(_ASKED)
"""By name, makers of the problems."""
COPIED = (*_OWN, *(case for case in OPERATOR_CASES if "at one place" in case or case == "strides of their own"))
"""Cases in which tensors may be copied."""


def _right(x: torch.Tensor, dy: torch.Tensor, dim: torch.Tensor) -> Inputs:
    y = torch.softmax(x.double(), int(dim))
    return y, y * (dy.double() - (dy.double() * y).sum(int(dim), keepdim=True))


def _error(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, float]:
    """As `cases.tolerance` of the rows along dim."""
    rows = x.movedim(dim, -1)
    if not x.numel():
        return x.double(), 0.0
    rtol, atol = cases.tolerance(rows.reshape(-1, rows.shape[-1]))
    return rtol.expand(rows.numel() // rows.shape[-1], rows.shape[-1]).reshape(rows.shape).movedim(-1, dim), atol


def _y_allowed(want: torch.Tensor, x: torch.Tensor, dy: torch.Tensor, dim: torch.Tensor) -> torch.Tensor:
    rtol, atol = _error(x, int(dim))
    return atol + rtol * want.abs()


def _dx_allowed(want: torch.Tensor, x: torch.Tensor, dy: torch.Tensor, dim: torch.Tensor) -> torch.Tensor:
    """y is off as in float32, and rounded, before it is multiplied, in each term, and dx after it."""
    rtol, atol = _error(x.float(), int(dim))
    y, size = torch.softmax(x.double(), int(dim)), dy.double().abs()
    off = atol + 2 * rtol * y + (y.to(x.dtype).double() - y).abs()
    rounding = 0.0
    if x.dtype.itemsize == 2:
        least = torch.finfo(x.dtype)
        off, rounding = off + least.smallest_normal * least.eps, 0.75 * least.eps * want.abs() + atol
    terms = (off + 2 * rtol * y) * size
    return rounding + terms + y * terms.sum(int(dim), keepdim=True) + off * (size * y).sum(int(dim), keepdim=True)


_LIKE_X = lambda x, dy, dim: (tuple(x.shape), x.dtype)  # noqa: E731
_TELLING = (
    "small random values", *_OWN, "2 matrices, 2 rows, 64 columns", "bfloat16", "rows around 1,000", "no rows",
    "rows of −inf at the end", "strides of their own", "every column at one place", "every row at one place",
)  # fmt: skip
OPERATOR = Kind(
    (Output("y", _LIKE_X, _y_allowed), Output("dx", _LIKE_X, _dx_allowed)),
    _right,
    telling=_TELLING,
    on_gpu=_TELLING,
)
"""The softmax y of x along a dimension, and the gradient of x."""
