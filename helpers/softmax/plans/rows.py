"""The launch for a softmax over rows of contiguous elements: pure functions of numbers, `plan_rows` first of all.

The numbers come from sweeps on one H200: EXPERIMENTS.md. `python -m helpers.measure.record --only plan` repeats the
sweep, and a test compares the plan with its record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from triton import next_power_of_2

from helpers.softmax.plans.gpu import EIGHT_WARPS, FIVE_WARPS, H200, SIX_WARPS, THREE_WARPS, Chip

MOST_WORDS = 2048
"""The most slices of a row whose words one program merges: more would spill, and a longer row takes two launches."""

_FEW_PROGRAMS, _FEW_WARPS = 256, 2048
"""With fewer programs than this, some of 132 SMs hold no more than one: a row is shared by more. And programs of one
warp that leave 132 SMs half empty: 16-bit rows are shared by more."""

_TILE_BYTES, _ABOVE_TWO_SLICES = 6144, range(8193, 10241)
"""Bytes of the longest row that one program holds; and bytes of longer aligned rows that it holds too: shared in slices
of 4 kB, they would fill at most half of a third slice."""

BYTES_TO_LOAD = 1300
"""Bytes that each program must load to keep up with a copy: the GPU starts 1.65 programs per nanosecond."""

MOST_ROWS, MOST_UNALIGNED_ROWS = 128, 16
"""The most rows of a program: the addresses of more rows would spill, and edges have addresses of their own."""

_SHORT_COLUMNS = 16384
"""The longest row that is shared in slices of half the size."""

_SLICE_BYTES, WARP_SLICES = 8192, 32
"""The slice that one warp holds. Longer rows than WARP_SLICES of them are shared by programs of four warps."""

MOST_SLICES = 128
"""The most slices of a row that four warps hold; in a longer row slices are longer, or their words would spill."""

_FEW_ROWS_BLOCK = 2048
"""Columns of the least slice of long rows that more programs share where there are few of them."""

_SHORT_FEW_ROWS, _FEW_ELEMENTS = 65536, 2**22
"""The longest few rows that are cut into slices of half the size or less; and the most elements of rows that are few,
half of that where rows are so short."""

_FEW_ROWS, _FEW_BYTES = range(256, 8193), 2**24
"""Rows, and bytes of all of them, that are held by one program each although several could share one."""

_FLAT = {4: (20, 1024), 2: (32, 2048)}
"""By bytes of an element: rows shorter than this, one behind another, are moved flat unless they fill vectors; and the
lanes that move them."""

_ONE_BY_ONE = 256
"""The longest row whose elements are moved one by one for which a program has several rows."""

_T = TypeVar("_T", bound="RowsPlan")


@dataclass(frozen=True)
class RowsPlan:
    """How rows are launched: by programs of num_warps warps, whose threads get maxnreg registers at most.

    A program holds BLOCK lanes of each of ROWS rows, and REST more; SPLIT programs share a row.
    """

    BLOCK: int
    num_warps: int
    maxnreg: int
    ROWS = 1
    REST = 0
    SPLIT = 1

    def replaced(self: _T, **values: Any) -> _T:
        """The same plan with other numbers."""
        return replace(self, **values)


@dataclass(frozen=True)
class Tile(RowsPlan):
    """A program for ROWS whole rows, of BLOCK + REST lanes each."""

    ROWS: int = 1
    REST: int = 0


@dataclass(frozen=True)
class Tiles(RowsPlan):
    """Programs that take one tile of ROWS whole rows after another."""

    ROWS: int = 1


@dataclass(frozen=True)
class Shared(RowsPlan):
    """SPLIT programs for a row, BLOCK lanes each."""

    SPLIT: int = 1


@dataclass(frozen=True)
class TwoLaunches(Shared):
    """Longer rows, as in lesson 09: one launch for the pairs, and one that merges and writes."""


@dataclass(frozen=True)
class Flat:
    """A program for USED short rows, moved all together as a RUN of lanes."""

    RUN: int
    num_warps: int
    maxnreg: int
    USED: int

    def replaced(self, **values: Any) -> Flat:
        """The same plan with other numbers."""
        return replace(self, **values)


def plan_rows(
    n_rows: int, n_cols: int, itemsize: int, VEC: int, EDGES: bool, packed: bool, gpu: Chip = H200
) -> RowsPlan | Flat:
    """The launch for rows that are moved in vectors of VEC, with EDGES or without, or one by one (VEC = 1).

    `packed` says that the rows lie one behind another, the first of them at a multiple of 16 bytes.
    """
    most, RUN = _FLAT[itemsize]
    if packed and n_cols < most and n_cols * itemsize % 16:
        return flat_plan(n_cols, itemsize, RUN, 2)
    if VEC == 1 and n_cols <= _ONE_BY_ONE:
        ROWS = min(64, _last_power_of_2(1023 // n_cols))
        return Tile(next_power_of_2(n_cols), 4, FIVE_WARPS, ROWS)
    return plan_launch(n_rows, n_cols, itemsize, not EDGES, gpu)


def flat_plan(n_cols: int, itemsize: int, RUN: int, num_warps: int, maxnreg: int = FIVE_WARPS) -> Flat:
    """The launch in which a program moves the short rows that fit into RUN lanes, a multiple of a vector's elements."""
    VEC = 16 // itemsize
    return Flat(RUN, num_warps, maxnreg, USED=RUN // n_cols // VEC * VEC)


def _last_power_of_2(n: int) -> int:
    return 1 << (n.bit_length() - 1)


@lru_cache(maxsize=4096)
def plan_launch(n_rows: int, n_cols: int, itemsize: int, aligned: bool = True, gpu: Chip = H200) -> RowsPlan:
    """The launch for rows of contiguous elements of `itemsize` bytes that are moved in whole vectors.

    `aligned` says whether every row begins and ends at a multiple of 16 bytes; if not, the tile skips up to 15 bytes at
    either end. A row is shared if its tile would leave too few programs on an SM or in the whole GPU: among as few
    programs as possible, but by one warp each where 32 of them suffice.
    """
    vector = 1 if aligned else 16 // itemsize
    n_cols = max(1, n_cols // vector * vector)
    launch = _many_rows(n_cols, itemsize, aligned)
    few = n_rows < _FEW_ROWS[0] and n_cols > 2 * _FEW_ROWS_BLOCK
    if few and (shared := _few_rows(n_rows, n_cols, itemsize, launch, gpu)):
        return shared
    if aligned and n_rows in _FEW_ROWS and n_rows * n_cols * itemsize <= _FEW_BYTES:
        whole = next_power_of_2(n_cols)
        if _SLICE_BYTES // 2 <= whole * itemsize <= 2 * _SLICE_BYTES and whole <= 1.25 * n_cols:
            return Tile(whole, 4, FIVE_WARPS)
    if itemsize == 2 and launch.SPLIT > 1 and launch.num_warps == 1 and n_rows * launch.SPLIT <= gpu.share(_FEW_WARPS):
        return shared_plan(n_cols, _FEW_ROWS_BLOCK, 1, EIGHT_WARPS)
    return launch


def _few_rows(n_rows: int, n_cols: int, itemsize: int, many: RowsPlan, gpu: Chip) -> Shared | None:
    """A launch by more programs than that for `many` rows, where that one would leave the GPU half empty."""
    elements = n_rows * n_cols
    if n_cols <= _SHORT_FEW_ROWS:
        if elements <= _FEW_ELEMENTS // 2:
            return shared_plan(n_cols, 2048 // itemsize if n_cols <= _SHORT_COLUMNS else 1024, 1, EIGHT_WARPS)
        return None
    # More than 128 slices are more words than four warps have threads, and 16 kB are what they hold with 64 registers.
    least = max(_FEW_ROWS_BLOCK, next_power_of_2(-(-n_cols // 128)))
    if least == _FEW_ROWS_BLOCK and elements <= _FEW_ELEMENTS:
        return shared_plan(n_cols, least, 4 if itemsize == 4 and elements <= _FEW_ELEMENTS // 2 else 2, EIGHT_WARPS)
    if n_rows * many.SPLIT < gpu.share(_FEW_PROGRAMS) and least * itemsize <= 16384:
        return shared_plan(n_cols, least, 4, EIGHT_WARPS)
    return None


def shared_plan(n_cols: int, BLOCK: int, num_warps: int, maxnreg: int) -> Shared:
    """A row of n_cols in slices of BLOCK columns, a program for each."""
    return Shared(BLOCK, num_warps, maxnreg, SPLIT=-(-n_cols // BLOCK))


def _many_rows(n_cols: int, itemsize: int, aligned: bool) -> RowsPlan:
    nbytes = n_cols * itemsize
    if nbytes <= _TILE_BYTES or (aligned and nbytes in _ABOVE_TWO_SLICES):
        return _tile(n_cols, itemsize, aligned)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= _SHORT_COLUMNS:
        return shared_plan(n_cols, BLOCK // 2, 1, EIGHT_WARPS)
    if n_cols <= WARP_SLICES * BLOCK:
        # 16-bit rows with edges spill with 80 registers.
        return shared_plan(n_cols, BLOCK, 1, SIX_WARPS if aligned or itemsize == 4 else 88)
    launch = shared_plan(n_cols, 4 * BLOCK, 4, SIX_WARPS if aligned else FIVE_WARPS)
    if launch.SPLIT <= MOST_SLICES:
        return launch
    launch = shared_plan(n_cols, 8 * BLOCK, 8, 128)
    return launch if launch.SPLIT <= MOST_WORDS else TwoLaunches(launch.BLOCK, 8, 128, launch.SPLIT)


def _tile(n_cols: int, itemsize: int, aligned: bool) -> Tile:
    lanes = next_power_of_2(n_cols)
    if not aligned and lanes * itemsize <= 256:  # the edges need registers, and more warps share these
        num_warps = min(4, max(1, lanes // 16 if itemsize == 4 else next_power_of_2(n_cols // 16)))
        return Tile(lanes, num_warps, FIVE_WARPS, MOST_UNALIGNED_ROWS)
    ROWS = min(next_power_of_2(-(-BYTES_TO_LOAD // (n_cols * itemsize))), MOST_ROWS)
    # Just above a power of two, a second, smaller tile for the rest of the row leaves fewer lanes idle.
    for REST in (lanes // 8, lanes // 4):
        if n_cols <= lanes // 2 + REST:
            registers = THREE_WARPS if lanes >= 4096 else SIX_WARPS
            return Tile(lanes // 2, max(1, lanes // 4096), registers, ROWS, REST)
    return Tile(lanes, max(1, lanes // 2048), FIVE_WARPS, ROWS)
