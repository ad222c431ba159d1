"""Which kernel takes a shape, and how it is launched: `plan_launch`, a pure function.

Its numbers come from sweeps of tiles, slices, warps and registers on one H200. `helpers.make.sweep` repeats the sweep:
it times the planned launch beside its alternatives and a copy, and `python -m helpers.make.record --only plan` writes
the times to `helpers/recorded/GPU/plan.json`. A test compares the plan with that record.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from triton import next_power_of_2

FEW_PROGRAMS = 256
"""With fewer programs than this, some of the 132 SMs of an H200 hold no more than one: a row is shared by more."""

MOST_WORDS = 4096
"""The most slices of a row whose words one program merges; a longer row takes two launches."""

_TILE_BYTES = 6144
"""The longest row that is held by one program."""

_ABOVE_TWO_SLICES = range(8193, 10241)
"""Bytes of longer aligned rows that one program holds: of a third slice of 4 kB they would use no more than half."""

_BYTES_TO_LOAD = 1300
"""Bytes that each program must load to keep up with a copy: the GPU starts 1.65 programs per nanosecond."""

_MOST_ROWS, _MOST_UNALIGNED_ROWS = 128, 16
"""The most rows of a program: the addresses of more rows would spill, and edges have addresses of their own."""

_REST_BYTES = 512
"""The smallest rest of a row that is worth a tile of its own: 16 bytes for each thread of a warp."""

_SHORT_COLUMNS = 16384
"""The longest row that is shared in slices of half the size."""

_SLICE_BYTES = 8192
"""The slice that one warp holds. Longer rows than _WARP_SLICES of them are shared by programs of four warps."""

_WARP_SLICES = 32

_FEW_ROWS_COLUMNS, _FEW_ROWS_BLOCK = range(4097, 64 * 2048 + 1), 2048
"""Columns of rows that more programs share where there are few of them, and the slice that each takes."""

EIGHT_WARPS, SIX_WARPS, FIVE_WARPS, THREE_WARPS = 64, 80, 96, 168
"""Registers of a thread with which 8, 6, 5 and 3 warps fit on each quarter of an SM, which has 16384 registers."""


class Plan(NamedTuple):
    """`tile`: ROWS rows a program, BLOCK + REST lanes each; `shared`: SPLIT programs a row, of BLOCK lanes; `two
    launches`: as in lesson 08. A thread gets maxnreg registers at most."""

    kernel: str
    BLOCK: int
    num_warps: int
    maxnreg: int
    ROWS: int = 1
    REST: int = 0
    SPLIT: int = 1


@lru_cache(maxsize=4096)
def plan_launch(n_rows: int, n_cols: int, itemsize: int, aligned: bool = True) -> Plan:
    """The launch for rows of contiguous elements of `itemsize` bytes.

    `aligned` says whether every row begins and ends at a multiple of 16 bytes; if not, the tile skips up to 15 bytes at
    either end. A row is shared where its tile would leave too few programs on an SM or in the whole GPU: among as few
    programs as possible, but by one warp each where 32 of them suffice.
    """
    vector = 1 if aligned else 16 // itemsize
    n_cols = max(1, n_cols // vector * vector)
    launch = _many_rows(n_cols, itemsize, aligned)
    if n_rows * launch.SPLIT < FEW_PROGRAMS and n_cols in _FEW_ROWS_COLUMNS:
        return shared_plan(n_cols, _FEW_ROWS_BLOCK, 4, EIGHT_WARPS)
    return launch


def shared_plan(n_cols: int, BLOCK: int, num_warps: int, maxnreg: int) -> Plan:
    """A row of n_cols in slices of BLOCK columns, a program for each."""
    return Plan("shared", BLOCK, num_warps, maxnreg, SPLIT=-(-n_cols // BLOCK))


def _many_rows(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    nbytes = n_cols * itemsize
    if nbytes <= _TILE_BYTES or (aligned and nbytes in _ABOVE_TWO_SLICES):
        return _tile(n_cols, itemsize, aligned)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= _SHORT_COLUMNS:
        return shared_plan(n_cols, BLOCK // 2, 1, EIGHT_WARPS)
    if n_cols <= _WARP_SLICES * BLOCK:
        # 16-bit rows with edges spill with 80 registers.
        return shared_plan(n_cols, BLOCK, 1, SIX_WARPS if aligned or itemsize == 4 else 88)
    launch = shared_plan(n_cols, 4 * BLOCK, 4, SIX_WARPS if aligned else FIVE_WARPS)
    return launch if launch.SPLIT <= MOST_WORDS else launch._replace(kernel="two launches")


def _tile(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    most_rows = _MOST_ROWS if aligned else _MOST_UNALIGNED_ROWS
    ROWS = min(next_power_of_2(-(-_BYTES_TO_LOAD // (n_cols * itemsize))), most_rows)
    lanes = next_power_of_2(n_cols)
    # Just above a power of two, a second, smaller tile for the rest of the row leaves fewer lanes idle.
    for REST in (lanes // 8, lanes // 4):
        if REST * itemsize * ROWS >= _REST_BYTES and n_cols <= lanes // 2 + REST:
            registers = THREE_WARPS if lanes >= 4096 else SIX_WARPS
            return Plan("tile", lanes // 2, max(1, lanes // 4096), registers, ROWS, REST)
    return Plan("tile", lanes, max(1, lanes // 2048), FIVE_WARPS, ROWS)


# The gradient


_GRADIENT_TILE = 8192
"""Elements of the longest row whose gradient one program holds."""


@lru_cache(maxsize=4096)
def plan_gradient(n_rows: int, n_cols: int, itemsize: int, aligned: bool = True) -> Plan:
    """The launch for the gradient of rows, whose y and dy a program holds; `aligned` as in `plan_launch`."""
    vector = 1 if aligned else 16 // itemsize
    n_cols = max(1, n_cols // vector * vector)
    if n_cols <= _GRADIENT_TILE:
        most_rows = _MOST_ROWS if aligned else _MOST_UNALIGNED_ROWS
        ROWS = min(next_power_of_2(-(-_BYTES_TO_LOAD // (2 * n_cols * itemsize))), most_rows)
        BLOCK = next_power_of_2(n_cols)
        return Plan("tile", BLOCK, max(1, ROWS * BLOCK // 1024), 96, ROWS)
    if n_cols * itemsize <= 32 * 4096:
        return shared_plan(n_cols, 4096 // itemsize, 1, FIVE_WARPS)
    return shared_plan(n_cols, 16384 // itemsize, 4, FIVE_WARPS)


# Other dimensions


class ColumnsPlan(NamedTuple):
    """`columns`: WIDTH neighbours a group, which SPLIT programs share in tiles of BLOCK columns, with NEAR groups at the
    same time; `streamed`: WIDTH rows beside each other, in tiles of BLOCK columns."""

    kernel: str
    WIDTH: int
    BLOCK: int
    num_warps: int
    maxnreg: int = 128
    SPLIT: int = 1
    NEAR: int = 1


_MOST_WORDS_OF_A_GROUP = 4096
_TILE_OF_COLUMNS = 8192
_STREAMED = 4096
"""Elements of a tile."""


def plan_columns(outer: int, inner: int, n_cols: int, itemsize: int) -> ColumnsPlan:
    """The launch for a softmax over n_cols columns with `inner` neighbours each, `outer` times."""
    whole = next_power_of_2(n_cols)
    line = min(next_power_of_2(inner), 128 // itemsize)
    if line * whole <= _TILE_OF_COLUMNS:
        WIDTH = min(next_power_of_2(inner), max(line, 1024 // whole))
        return ColumnsPlan("columns", WIDTH, whole, max(1, min(8, WIDTH * whole // 1024)))
    WIDTH = min(line, 64 // itemsize)
    BLOCK = min(whole, _TILE_OF_COLUMNS // WIDTH)
    SPLIT = -(-n_cols // BLOCK)
    if next_power_of_2(SPLIT) * WIDTH <= _MOST_WORDS_OF_A_GROUP:
        return ColumnsPlan("columns", WIDTH, BLOCK, 8, SPLIT=SPLIT)
    return _streamed(inner, n_cols)


def plan_columns_gradient(outer: int, inner: int, n_cols: int, itemsize: int) -> ColumnsPlan:
    """The launch for the gradient of a softmax over n_cols columns with `inner` neighbours each, `outer` times."""
    whole = next_power_of_2(n_cols)
    WIDTH = min(next_power_of_2(inner), max(32 // itemsize, min(128 // itemsize, _TILE_OF_COLUMNS // whole)))
    if WIDTH * whole <= _TILE_OF_COLUMNS:
        return ColumnsPlan("columns", WIDTH, whole, max(1, min(8, WIDTH * whole // 1024)))
    return _streamed(inner, n_cols)


def _streamed(inner: int, n_cols: int) -> ColumnsPlan:
    WIDTH = min(64, next_power_of_2(inner))
    return ColumnsPlan("streamed", WIDTH, min(_STREAMED // WIDTH, next_power_of_2(n_cols)), 4)
