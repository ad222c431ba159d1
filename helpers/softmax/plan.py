"""Which kernel takes a shape: `plan`, a pure function."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from helpers.launches import tile

_FEW = 256
"""With fewer programs than this, some of the 132 SMs of an H200 hold no more than one: a row is shared by more."""

_MOST_WORDS = 4096
"""Slices of a row whose words one program still merges; a longer row takes two launches."""


class Plan(NamedTuple):
    """`tile`: ROWS rows a program; `shared`: SPLIT programs a row; `two launches`: as in lesson 08. Tiles of BLOCK."""

    kernel: str
    BLOCK: int
    num_warps: int
    ROWS: int = 1
    SPLIT: int = 1


@lru_cache(maxsize=4096)
def plan(n_rows: int, n_cols: int, itemsize: int, aligned: bool = True) -> Plan:
    """The launch for rows of contiguous elements of `itemsize` bytes.

    `aligned` says whether every row begins and ends at a multiple of 16 bytes. The rules are those that a sweep of
    tiles and warps on one H200 came to: a thread holds 64 elements, of shared 16-bit rows 128; a warp at least 2 kB of
    short rows. A row is shared where its tile would leave too few programs on an SM or in the whole GPU, among as few
    programs as possible but by one warp each where 32 of them suffice.
    """
    launch = _many_rows(n_cols, itemsize, aligned)
    if n_rows * launch.SPLIT < _FEW and 4096 < n_cols <= 64 * 2048:
        return _shared(n_cols, 2048, 4)
    return launch


def _many_rows(n_cols: int, itemsize: int, aligned: bool) -> Plan:
    longest = 16384 if itemsize == 4 else 8192 if aligned else 4096
    if n_cols <= longest:
        BLOCK = tile(n_cols)
        return Plan("tile", BLOCK, max(1, BLOCK // 2048), ROWS=max(1, 2048 // (BLOCK * itemsize)))
    for num_warps in (1, 2, 4):
        launch = _shared(n_cols, num_warps * 8192 // itemsize, num_warps)
        if launch.SPLIT <= 32:
            break
    return launch if launch.SPLIT <= _MOST_WORDS else launch._replace(kernel="two launches")


def _shared(n_cols: int, BLOCK: int, num_warps: int) -> Plan:
    return Plan("shared", BLOCK, num_warps, SPLIT=-(-n_cols // BLOCK))
