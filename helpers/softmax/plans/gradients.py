"""The launch for the gradient of a softmax over rows."""

from __future__ import annotations

from functools import lru_cache

from triton import next_power_of_2

from helpers.softmax.plans.gpu import FIVE_WARPS, SIX_WARPS, THREE_WARPS
from helpers.softmax.plans.rows import (
    BYTES_TO_LOAD,
    MOST_ROWS,
    MOST_SLICES,
    MOST_UNALIGNED_ROWS,
    WARP_SLICES,
    Flat,
    Shared,
    Tile,
    flat_plan,
    shared_plan,
)

_FLAT = {4: (16, 1024, 2), 2: (64, 4096, 4)}
"""By bytes of an element: rows shorter than this, one behind another, are moved flat unless they fill vectors; the
lanes that move them; and the warps."""

_COLUMNS = 2048
"""Columns of the longest row whose y and dy one program holds."""

_SLICE_BYTES = 4096
"""The slice of each that one warp holds."""


@lru_cache(maxsize=4096)
def plan_gradient(n_cols: int, itemsize: int, VEC: int, EDGES: bool, aligned: bool = True) -> Tile | Flat | Shared:
    """The launch for the gradient of rows, moved in vectors of VEC, with EDGES or without.

    `aligned` says that all tensors begin at a multiple of 16 bytes.
    """
    most, RUN, num_warps = _FLAT[itemsize]
    if aligned and n_cols < most and n_cols * itemsize % 16:
        return flat_plan(n_cols, itemsize, RUN, num_warps)
    lanes = max(1, n_cols // VEC * VEC)
    BLOCK = next_power_of_2(lanes)
    if lanes <= _COLUMNS:
        most_rows = MOST_UNALIGNED_ROWS if EDGES else MOST_ROWS
        ROWS = min(next_power_of_2(-(-BYTES_TO_LOAD // (2 * lanes * itemsize))), most_rows)
        if BLOCK <= 32 and (VEC == 1 or (EDGES and itemsize == 2)):  # four elements a thread
            return Tile(BLOCK, max(1, min(8, ROWS * BLOCK // 128)), FIVE_WARPS, ROWS)
        if BLOCK <= 128 and (EDGES or VEC == 1):  # twice the rows, by four times the warps
            ROWS = min(most_rows, 2 * ROWS)
            return Tile(BLOCK, max(1, min(8, ROWS * BLOCK // 256)), SIX_WARPS, ROWS)
        return Tile(BLOCK, max(1, ROWS * BLOCK // 1024), FIVE_WARPS, ROWS)
    if VEC == 1:  # every element has an address of its own, in registers
        one, four = shared_plan(lanes, 1024, 1, THREE_WARPS), shared_plan(lanes, 4096, 4, THREE_WARPS)
        return one if one.SPLIT <= WARP_SLICES else four if four.SPLIT <= 256 else shared_plan(lanes, 8192, 8, 128)
    BLOCK = _SLICE_BYTES // itemsize
    if lanes <= WARP_SLICES * BLOCK:
        return shared_plan(lanes, BLOCK, 1, FIVE_WARPS)
    registers = SIX_WARPS if itemsize == 4 else FIVE_WARPS  # 16-bit elements spill with 80
    four, more = shared_plan(lanes, 4 * BLOCK, 4, registers), shared_plan(lanes, 8 * BLOCK, 4, THREE_WARPS)
    if four.SPLIT <= (MOST_SLICES if itemsize == 4 else MOST_SLICES // 2):
        return four
    return more if more.SPLIT <= 2 * MOST_SLICES else more.replaced(num_warps=8, maxnreg=128)
