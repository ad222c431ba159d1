"""Which kernel takes a shape, and how it is launched: `plan_launch`, a pure function."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from triton import next_power_of_2

_FEW = 256
"""With fewer programs than this, some of the 132 SMs of an H200 hold no more than one: a row is shared by more."""

_MOST_WORDS = 4096
"""Slices of a row whose words one program still merges; a longer row takes two launches."""


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

    `aligned` says whether every row begins and ends at a multiple of 16 bytes; if not, up to 15 bytes at either end are
    no matter of the tile. The rules are those that sweeps of tiles, warps and registers on one H200 came to. A row is
    shared where its tile would leave too few programs on an SM or in the whole GPU: among as few programs as possible,
    but by one warp each where 32 of them suffice.
    """
    vector = 1 if aligned else 16 // itemsize
    n_cols = max(1, n_cols // vector * vector)
    launch = _many_rows(n_cols, itemsize, aligned)
    if n_rows * launch.SPLIT < _FEW and 4096 < n_cols <= 64 * 2048:
        return _shared(n_cols, 2048, 4, 64)
    return launch


def _many_rows(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    nbytes = n_cols * itemsize
    if nbytes <= 6144 or (aligned and 8192 < nbytes <= 10240):
        return _tile(n_cols, itemsize, aligned)
    if n_cols <= 16384:
        return _shared(n_cols, 4096 // itemsize, 1, 64)
    BLOCK = 8192 // itemsize
    # With 80 registers six warps fit on each quarter of an SM; where that would spill, it is five with more.
    if n_cols <= 32 * BLOCK:
        return _shared(n_cols, BLOCK, 1, 80 if aligned or itemsize == 4 else 88)
    launch = _shared(n_cols, 4 * BLOCK, 4, 80 if aligned else 96)
    return launch if launch.SPLIT <= _MOST_WORDS else launch._replace(kernel="two launches")


def _shared(n_cols: int, BLOCK: int, num_warps: int, maxnreg: int) -> Plan:
    return Plan("shared", BLOCK, num_warps, maxnreg, SPLIT=-(-n_cols // BLOCK))


def _tile(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    """The GPU starts 1.65 programs a nanosecond: at the speed of a copy each must have 1.3 kB to load."""
    ROWS = min(next_power_of_2(-(-1300 // (n_cols * itemsize))), 128 if aligned else 16)  # more addresses would spill
    lanes = next_power_of_2(n_cols)
    # Just above a power of two a second, smaller tile for the rest of the row leaves fewer lanes idle.
    for REST in (lanes // 8, lanes // 4):
        if REST * itemsize * ROWS >= 512 and n_cols <= lanes // 2 + REST:
            return Plan("tile", lanes // 2, max(1, lanes // 4096), 168 if lanes >= 4096 else 80, ROWS, REST)
    return Plan("tile", lanes, max(1, lanes // 2048), 96, ROWS)
