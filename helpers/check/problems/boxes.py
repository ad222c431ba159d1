"""Exercise 16.2's kernels, five right and twelve wrong, as functions whose insides nobody sees: tensors go in and out.

Each computes in PyTorch what a kernel with its fault would store. Sizes of its tiles are drawn anew. Where answers are
graded the kernels are in the grader's process, and an answer has nothing of them but what they return.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch

from helpers.check.problems.cases import INF
from helpers.kernels import DTYPES

BlackBox = Callable[[torch.Tensor], torch.Tensor]
MOST_COLUMNS = 1 << 18
"""Numbers of a row: some kernels take eight at a time, in Python."""


def _whole(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), dim=1).to(x.dtype)


def _in_tiles(
    BLOCK: int, x: torch.Tensor, guarded: bool = True, rescaled: bool = True, sum_in: torch.dtype = torch.float32
) -> torch.Tensor:
    """Lesson 05's recurrence, a tile after the other."""
    m, l = x.new_full((len(x), 1), -INF, dtype=torch.float32), x.new_zeros((len(x), 1), dtype=sum_in)
    for tile in x.float().split(BLOCK, dim=1):
        m_new = torch.maximum(m, tile.amax(1, keepdim=True))
        shift = m_new.masked_fill(m_new == -INF, 0.0) if guarded else m_new
        factor = torch.exp(m - shift) if rescaled else 1.0
        l = (l * factor + torch.exp(tile - shift).sum(1, keepdim=True)).to(sum_in)
        m = m_new
    shift = m.masked_fill(m == -INF, 0.0) if guarded else m
    return (torch.exp(x.float() - shift) / l.float()).to(x.dtype)


def _powers_of_2(x: torch.Tensor) -> torch.Tensor:
    """A bfloat16 is cut, and not rounded, as Triton's interpreter does it."""
    z = (x.float() - x.float().amax(1, keepdim=True)) * (1 / math.log(2))
    y = torch.exp2(z) * (1 / torch.exp2(z).sum(1, keepdim=True))
    if x.dtype == torch.bfloat16:
        y = (y.view(torch.int32) & -(1 << 16)).view(torch.float32)
    return y.to(x.dtype)


def _rows_apart(x: torch.Tensor) -> torch.Tensor:
    """The rows of the result begin at multiples of 16 elements."""
    return torch.nn.functional.pad(_whole(x), (0, 16 - x.shape[1] % 16))[:, : x.shape[1]]


def _flushed(x: torch.Tensor) -> torch.Tensor:
    """Numbers below the least normal one are 0, as in a GPU's fast exponential."""
    y = torch.softmax(x.float(), dim=1)
    return y.masked_fill(y < torch.finfo(torch.float32).smallest_normal, 0.0).to(x.dtype)


def _idle_lanes(x: torch.Tensor) -> torch.Tensor:
    lanes = 1 << (x.shape[1] - 1).bit_length()
    return _whole(torch.nn.functional.pad(x, (0, lanes - x.shape[1])))[:, : x.shape[1]]


def _at(x: torch.Tensor, strides: tuple[int, int]) -> torch.Tensor:
    """The softmax of what lies at these strides, as far as there is memory."""
    size = x.untyped_storage().nbytes() // x.element_size()
    row, col = (torch.arange(n, device=x.device) * stride for n, stride in zip(x.shape, strides, strict=True))
    places = (x.storage_offset() + row[:, None] + col).clamp(max=size - 1)
    return _whole(x.as_strided((size,), (1,), 0)[places])


def _no_maximum(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x.float())
    return (e / e.sum(1, keepdim=True)).to(x.dtype)


def _last_rows_missing(rows: int, x: torch.Tensor) -> torch.Tensor:
    y = _whole(x)
    y[len(x) // rows * rows :] = 0.0
    return y


class _FirstResult:
    """What the first call for a shape and dtype returned."""

    def __init__(self) -> None:
        self.kept: dict[tuple, torch.Tensor] = {}

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.kept.setdefault((x.shape, x.dtype), _whole(x)).clone()


def _through_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return _whole(x).bfloat16().to(x.dtype)


RIGHT_KERNELS: dict[str, Callable[[Random], BlackBox]] = {
    "one tile": lambda draw: _whole,
    "tiles, one after the other": lambda draw: partial(_in_tiles, draw.choice((64, 128, 256))),
    "powers of 2, cut to bfloat16": lambda draw: _powers_of_2,
    "rows of the result lie apart": lambda draw: _rows_apart,
    "the smallest numbers become 0": lambda draw: _flushed,
}
"""By what they do, makers of right kernels."""
WRONG_KERNELS: dict[str, Callable[[Random], BlackBox]] = {
    "lanes past the end of a row hold 0": lambda draw: _idle_lanes,
    "the last rows are missing": lambda draw: partial(_last_rows_missing, draw.choice((2, 4))),
    "l is never rescaled": lambda draw: partial(_in_tiles, draw.choice((512, 1024)), rescaled=False),
    "the column stride is taken to be 1": lambda draw: lambda x: _at(x, (x.stride(0), 1)),
    "the row stride is taken to be N": lambda draw: lambda x: _at(x, (x.shape[1], x.stride(1))),
    "the maximum is not subtracted": lambda draw: _no_maximum,
    "a first tile of only −inf makes NaN": lambda draw: partial(_in_tiles, draw.choice((512, 1024)), guarded=False),
    "the result is float32, whatever x is": lambda draw: lambda x: torch.softmax(x.float(), dim=1),
    "16-bit inputs are summed in 16 bits": lambda draw: lambda x: _in_tiles(draw.choice((8, 16)), x, sum_in=x.dtype),
    "the result passes through bfloat16": lambda draw: _through_bfloat16,
    "every number is 0": lambda draw: torch.zeros_like,
    "a second call returns the first one's result": lambda draw: _FirstResult(),
}
"""By their fault, makers of wrong ones."""


def said_of_kernel(answer: Callable[[BlackBox], Any], kernel: str, seed: int) -> Any:
    """What the answer says of the kernel of this name, whose tiles `seed` draws."""
    stored_by = (RIGHT_KERNELS | WRONG_KERNELS)[kernel](Random(seed))

    def fn(x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch.Tensor) or x.dim() != 2 or not all(x.shape):
            raise ValueError("a kernel takes a tensor of shape (M, N), with M and N of 1 or more")
        if x.shape[1] > MOST_COLUMNS:
            raise ValueError(f"a kernel takes rows of at most {MOST_COLUMNS:,} numbers, not {x.shape[1]:,}")
        if x.dtype not in DTYPES.values():
            raise TypeError(f"a kernel takes float32, bfloat16 or float16, not {x.dtype}")
        return stored_by(x.detach())

    return answer(fn)
