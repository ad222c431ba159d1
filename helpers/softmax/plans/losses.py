"""What to compute of logits and targets, and the launch for it.

The numbers come from sweeps on one H100, and on one H200 for rows that programs share: EXPERIMENTS.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from triton import cdiv, next_power_of_2

from helpers.softmax.plans.gpu import EIGHT_WARPS, FIVE_WARPS, FOUR_WARPS, H200, SEVEN_WARPS, Chip
from helpers.softmax.plans.rows import Flat, Shared, Tile, Tiles, flat_plan, shared_plan


class LossOptions(NamedTuple):
    """What to compute of logits and targets, besides a gradient."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    loss_dtype: torch.dtype


COUNTING_WORDS = 2
"""Words that count complete groups and targets."""

MOST_IN_A_GROUP, PROGRAMS_IN_A_GROUP = 4096, 32
"""Losses that a word adds up at most; and programs, where each hands in the sum of its tiles: up to 32768 it fits."""

_SHORT_GROUP, _LONG_BYTES = 256, 16384
"""Losses that a word adds up of rows that are no longer than this: words that many programs add to are slow."""

_MOST_READ_AGAIN = 2**18
"""With more targets than this and no gradient, each program counts only the targets that it reads."""

_LEAST_ROWS, _ONE_BY_ONE = 2112, 128
"""The fewest rows that programs share in tiles, 16 for each of 132 SMs; and the longest whose elements are moved one by
one."""

_SIXTEEN_EACH = (8, 16)
"""Columns of a tile of which a thread has 16 elements if they are moved one by one, and else 8: rows of 21 spilled."""

_FLAT = {False: {4: range(2, 64), 2: range(2, 128)}, True: {4: range(2, 48), 2: range(2, 64)}}
"""By whether there is a gradient, and by bytes of an element: the rows that are moved flat unless they fill vectors."""

_SHORT, _SHORT_BYTES = 512, 1024
"""The longest row of which one warp holds a tile; and bytes of the longest that lies in one if nobody adds the losses
up."""

_WHOLE_BYTES = 6144
"""The longest row that one program holds."""

_LEAST_LANES = 64
"""Two for each thread of a warp: elements of 16 bits are packed in twos."""

_SLICE_BYTES = 8192
"""The slice that one warp holds."""

_WARP_WORDS, _MOST_SLICES = 80, 256
"""The most words of a row that one warp merges, and the most slices of 16 kB; a longer row has larger ones."""

_TWO_WARP_SLICES = range(32, 81)
"""How many such slices a row of 16 bits has that is shared in slices of twice the size, held by two warps."""

_FEW_SLICES, _FEW_ROWS_BLOCK = 1024, 2048
"""With fewer slices than this, a program takes one of 2048 columns: too few programs would load at a time."""

_SMALL_BYTES, _MOST_SMALL_SLICES = 2**27, 128
"""Bytes of logits whose loss alone is found in slices of 4 kB, and the most of them that a row has. With smoothing,
edges of 16-bit rows would spill."""

_MOST_FEW_SLICES = 1320
"""10 for each of 132 SMs, which hold 8: if there are more, some begin after others have ended, so they are twice as
long."""

_IN_BACKWARD, _OVER_THE_GRADIENT = 8448, 264
"""Programs of a launch in backward: 64 for each of 132 SMs, and 2 if the gradient is scaled in place: if 1 arrives, the
launch has nothing to do."""


def words_to_add_up(n: int, GROUP: int) -> int:
    """How many words n losses take besides the COUNTING_WORDS, in groups of at most GROUP."""
    groups = cdiv(n, GROUP)
    return (2 + cdiv(n, groups)) * groups


def rows_of_a_group(n_cols: int, itemsize: int) -> int:
    """How many losses of rows a word adds up."""
    return _SHORT_GROUP if n_cols * itemsize <= _LONG_BYTES else MOST_IN_A_GROUP


def counts_its_own(options: LossOptions, grad: bool, n_targets: int) -> bool:
    """Whether each program counts the targets that it reads, where programs take tile after tile."""
    return options.reduction == "mean" and not grad and n_targets > _MOST_READ_AGAIN


def plan_loss_tiles(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    VEC: int,
    reduction: str = "mean",
    flat: bool = False,
    grad: bool = True,
    gpu: Chip = H200,
) -> Tiles | Flat | None:
    """The launch in which programs share tiles of short rows, moved in vectors of VEC elements, or, if they may be,
    flat: then they lie one behind another. None for few rows, or longer ones."""
    many = n_rows >= gpu.share(_LEAST_ROWS)
    if flat and VEC == 1 and many and n_cols in _FLAT[grad][itemsize]:
        return _plan_of_flat_rows(n_cols, itemsize, grad)
    nbytes = _SHORT_BYTES if reduction == "none" else _WHOLE_BYTES
    longest = min(_ONE_BY_ONE if VEC == 1 else nbytes, nbytes // itemsize)
    if not many or n_cols > longest:
        return None
    BLOCK = next_power_of_2(n_cols)
    if VEC == 1:
        elements, maxnreg = (512, FIVE_WARPS) if BLOCK in _SIXTEEN_EACH else (256, EIGHT_WARPS)
        return Tiles(BLOCK, 1, maxnreg, elements // BLOCK)
    if BLOCK <= _SHORT:
        return Tiles(BLOCK, 1, FIVE_WARPS, 1024 // BLOCK)
    return Tiles(BLOCK, *((2, FOUR_WARPS) if itemsize == 2 else (4, FIVE_WARPS)), 4096 // BLOCK)


def _plan_of_flat_rows(n_cols: int, itemsize: int, grad: bool) -> Flat:
    """A program moves 4 kB at a time; of the gradient of longer rows of 16 bits, which would spill most, 16 rows. Four
    warps hold the other gradients of 16 bits or of longer rows, and the shortest rows; else two are faster.

    Compiled for sm_90 by Triton 3.6, the shortest rows spill up to 64 bytes a thread, 136 with smoothing; losses of 67
    to 85 columns of 16 bits up to 40, and 80 with it.
    """
    RUN, longer = 4096 // itemsize, n_cols > 32
    if grad and itemsize == 2 and longer:
        return flat_plan(n_cols, itemsize, RUN // 2, 2).replaced(USED=16)
    if grad and (itemsize == 2 or longer):
        return flat_plan(n_cols, itemsize, RUN, 4)
    if n_cols <= 16:
        return flat_plan(n_cols, itemsize, RUN, 4, EIGHT_WARPS)
    return flat_plan(n_cols, itemsize, RUN, 2)


def loss_plan(
    n_rows: int,
    n_cols: int,
    itemsize: int,
    reduction: str = "mean",
    smoothing: bool = False,
    grad: bool = True,
    gpu: Chip = H200,
) -> Tile | Shared:
    """The launch for rows of contiguous logits of `itemsize` bytes.

    A short row has one program. A longer one is shared in slices of 8 kB, each held by one warp, or, of 16 bits and for
    a mean, in slices of 16 kB held by two: without the mean's count the compiler spills there. The longest rows are
    shared in slices of 16 or 32 kB held by four; where there are few rows, in slices of 2048 columns held by four. With
    `smoothing`, elements of 16 bits need more registers, and so more warps. Without a gradient no program keeps its
    slice: four warps then hold 16 kB or, of a small tensor, one warp 4 kB; and two hold 8 kB of 16-bit rows with edges.
    """
    if n_cols * itemsize <= _WHOLE_BYTES:
        lanes = max(_LEAST_LANES, next_power_of_2(n_cols))
        return Tile(lanes, max(1, lanes // 2048), FIVE_WARPS)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= 2 * BLOCK:
        return shared_plan(n_cols, BLOCK // 2, 2 if smoothing and itemsize == 2 else 1, EIGHT_WARPS)
    slices = -(-n_cols // _FEW_ROWS_BLOCK)
    if n_rows * -(-n_cols // BLOCK) < gpu.share(_FEW_SLICES) and slices <= 256:
        twice = n_rows * slices > gpu.share(_MOST_FEW_SLICES)
        return shared_plan(n_cols, 2 * _FEW_ROWS_BLOCK if twice else _FEW_ROWS_BLOCK, 4, EIGHT_WARPS)
    if n_cols > 2 * _MOST_SLICES * BLOCK:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    small = shared_plan(n_cols, BLOCK // 2, 1, EIGHT_WARPS)
    if not (grad or smoothing) and n_rows * n_cols * itemsize <= _SMALL_BYTES and small.SPLIT <= _MOST_SMALL_SLICES:
        return small
    if smoothing and itemsize == 2:  # one warp or two would spill hundreds of bytes
        return shared_plan(n_cols, 2 * BLOCK, 4, SEVEN_WARPS)
    if not grad:
        halves = shared_plan(n_cols, BLOCK, 2, EIGHT_WARPS)
        has_edges = n_cols * itemsize % 16 > 0
        if itemsize == 2 and has_edges and halves.SPLIT <= _WARP_WORDS:
            return halves
        return shared_plan(n_cols, 2 * BLOCK, 4, EIGHT_WARPS)
    launch = shared_plan(n_cols, BLOCK, 1, FIVE_WARPS)
    if itemsize == 2 and reduction == "mean" and launch.SPLIT in _TWO_WARP_SLICES:
        return shared_plan(n_cols, 2 * BLOCK, 2, FIVE_WARPS)
    if launch.SPLIT * (2 if smoothing else 1) <= _WARP_WORDS:
        return launch
    if itemsize == 4:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    return shared_plan(n_cols, 2 * BLOCK, 4, EIGHT_WARPS)


class BackwardPlan(NamedTuple):
    """`programs` of num_warps warps that take one slice of BLOCK columns after another."""

    BLOCK: int
    num_warps: int
    programs: int


def plan_backward(n_rows: int, n_cols: int, VEC: int, over: bool, gpu: Chip = H200) -> BackwardPlan:
    """The launch in backward for rows that are moved in vectors of VEC; `over`: the gradient is scaled in place."""
    # Elements that are moved one by one need an address each: 4096 of them would spill.
    BLOCK, num_warps = (1024, 4) if VEC == 1 else (16384, 8) if over else (4096, 4)
    whole = next_power_of_2(n_cols)
    if whole < BLOCK:
        BLOCK, num_warps = whole, max(1, num_warps * whole // BLOCK)
    programs = gpu.share(_OVER_THE_GRADIENT) * min(8, 16384 // BLOCK) if over else gpu.share(_IN_BACKWARD)
    return BackwardPlan(BLOCK, num_warps, min(programs, n_rows * cdiv(n_cols, BLOCK)))


# Classes that others lie behind


MOST_CLASSES = 2048
"""Of a tile of 16 neighbours, whose 16 warps fill an SM."""

_VEC = 2
"""Neighbours that a thread moves together, so that it has many classes of each: in vectors of 16 bytes more of a column
lies in other threads."""

_LEAST_ELEMENTS, _MOST_ELEMENTS = 8, 64
"""Of a tile, for each thread."""

_WIDTH, _LEAST_TILES = 16, 528
"""The least neighbours of a tile where there are more; and tiles that are wanted, 4 for each of 132 SMs, before they
are made larger."""

_FARTHEST = 2**31 - 1
"""The farthest that a tile reaches, whose places are 32-bit numbers."""


@dataclass(frozen=True)
class ColumnTiles:
    """Tiles of WIDTH neighbours and BLOCK classes, which `programs` of num_warps warps share: all that the GPU holds.
    A thread gets maxnreg registers at most."""

    WIDTH: int
    BLOCK: int
    num_warps: int
    maxnreg: int
    programs: int

    def replaced(self, **values: Any) -> ColumnTiles:
        """The same plan with other numbers."""
        return replace(self, **values)


@lru_cache(maxsize=1024)
def loss_columns_plan(outer: int, C: int, inner: int, gpu: Chip = H200) -> ColumnTiles:
    """The launch for (outer, C, inner) logits.

    A thread has all C classes of two neighbours where that is 8 to 64 elements. A tile has four warps: more if it would
    have less than 16 neighbours of many classes, and fewer, with fewer neighbours, where there would be too few tiles.
    """
    BLOCK = next_power_of_2(C)
    of_thread = min(max(_VEC * BLOCK, _LEAST_ELEMENTS), _MOST_ELEMENTS)
    WIDTH = min(max(_WIDTH, 4 * 32 * of_thread // BLOCK), next_power_of_2(inner))
    while WIDTH > _WIDTH and outer * cdiv(inner, WIDTH) < gpu.share(_LEAST_TILES):
        WIDTH //= 2
    num_warps = max(1, WIDTH * BLOCK // (32 * of_thread))
    maxnreg = FOUR_WARPS if of_thread == _MOST_ELEMENTS else EIGHT_WARPS
    return ColumnTiles(WIDTH, BLOCK, num_warps, maxnreg, gpu.programs_at_once(num_warps, maxnreg))


def inner_in_a_vector(outer: int, C: int, inner: int, *strides: tuple[int, ...]) -> int:
    """How many neighbours a thread moves together, in tensors of (outer, C, inner) with these strides."""
    apart = [by for by_outer, by_class, _ in strides for by in (by_outer * (outer > 1), by_class * (C > 1))]
    return math.gcd(_VEC, inner, *apart) if all(by_inner == 1 for *_, by_inner in strides) else 1


def fits_a_tile(C: int, by_class: int) -> bool:
    """Whether a tile of C classes, `by_class` elements apart, reaches no farther than 32-bit numbers."""
    return next_power_of_2(C) * by_class <= _FARTHEST
