"""How a tensor lies in memory, as softmax over one of its dimensions sees it: pure functions of shapes and strides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Axis(NamedTuple):
    """Neighbouring dimensions that one stride runs through, in x and in the contiguous y."""

    size: int
    x_stride: int
    y_stride: int


def axes_of(shape: Sequence[int], strides: Sequence[int], dim: int) -> tuple[Axis, Axis, Axis] | None:
    """The dimensions before `dim`, the dimensions after it, and `dim`, each as one; None where one has two strides."""
    shape, strides = list(shape) or [1], list(strides) or [1]
    dim %= len(shape)
    y_strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    axes = [Axis(*axis) for axis in zip(shape, strides, y_strides, strict=True)]
    before, after = _merged(axes[:dim]), _merged(axes[dim + 1 :])
    columns = axes[dim] if shape[dim] > 1 else Axis(1, 1, 1)
    return None if before is None or after is None else (before, after, columns)


def _merged(axes: list[Axis]) -> Axis | None:
    """All axes as one, if a single stride runs through them."""
    merged = Axis(1, 0, 0)
    for axis in reversed(axes):
        if merged.size == 1:
            merged = axis
        elif axis.size > 1:
            if axis.x_stride != merged.size * merged.x_stride:
                return None
            merged = merged._replace(size=merged.size * axis.size)
    return merged


def neighbours_in_a_vector(outer: Axis, inner: Axis, columns: Axis, itemsize: int) -> int:
    """How many neighbours along `inner` one instruction can move, in x and in y: 16 bytes at most, 1 at least."""
    if (inner.x_stride, inner.y_stride) != (1, 1):
        return 1
    apart = [stride for axis in (outer, columns) if axis.size > 1 for stride in axis[1:]]
    return math.gcd(16 // itemsize, inner.size, *apart)


def columns_in_a_vector(outer: Axis, inner: Axis, columns: Axis, itemsize: int) -> int:
    """How many columns, whose neighbours all lie one behind another, vectors of 16 bytes move together: 1, 2, 4 or 8.

    0 where they do not lie so in x and in y, or where the last of them would be alone.
    """
    V = 16 // itemsize
    together = V // math.gcd(inner.size, V)
    in_order = (inner.x_stride, columns.x_stride, columns.y_stride) == (1, inner.size, inner.size)
    aligned = outer.size == 1 or outer.x_stride % V == 0
    return together if in_order and aligned and columns.size % together == 0 else 0


def folded_axes(inner: Axis, columns: Axis, FOLD: int) -> tuple[Axis, Axis]:
    """`inner` and `columns` where FOLD columns that lie one behind another are taken for one."""
    size = FOLD * inner.size
    return Axis(size, 1, 1), Axis(columns.size // FOLD, size, size)


def vectors(N: int, V: int, aligned: bool) -> tuple[int, bool]:
    """The elements that one instruction moves, V or 1, and whether rows of N have edges that vectors leave out.

    In a row of only a few vectors, the edges would be most of the row.
    """
    EDGES = N % V != 0
    return (V, EDGES) if aligned and not (EDGES and N < 4 * V) else (1, False)
