"""The launch for a softmax over a dimension that others lie behind, and for its gradient.

The numbers come from sweeps on one H200, and on one H100 for columns that are read twice: EXPERIMENTS.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from triton import next_power_of_2

from helpers.softmax.plans.gpu import FIVE_WARPS, THREE_WARPS

_T = TypeVar("_T", bound="ColumnsPlan")


@dataclass(frozen=True)
class ColumnsPlan:
    """How columns are launched: WIDTH neighbours are taken together, a group, in tiles of BLOCK columns.

    A program has num_warps warps, whose threads get maxnreg registers at most. FOLD columns are taken for one, so that
    vectors can move their neighbours, in whole lines. SPLIT programs share a group.
    """

    WIDTH: int
    BLOCK: int
    num_warps: int
    maxnreg: int = 128
    SPLIT = 1
    REST = 0
    FOLD = 1

    def replaced(self: _T, **values: Any) -> _T:
        """The same plan with other numbers."""
        return replace(self, **values)


@dataclass(frozen=True)
class Group(ColumnsPlan):
    """A program for a group, which holds BLOCK columns and REST more."""

    REST: int = 0
    FOLD: int = 1


@dataclass(frozen=True)
class SharedGroup(ColumnsPlan):
    """SPLIT programs for a group, in TEAMs, whose last program merges what the others publish."""

    SPLIT: int = 1
    TEAM: int = 1
    FOLD: int = 1


@dataclass(frozen=True)
class ThreeLaunches(ColumnsPlan):
    """Longer columns: the pairs of SPLIT parts, their merge, and the result."""

    SPLIT: int = 1
    FOLD: int = 1


@dataclass(frozen=True)
class Streamed(ColumnsPlan):
    """One program reads the columns of a group twice, however many they are."""


_FEW_COLUMNS = 32
"""The most columns that a warp holds with 256 bytes of neighbours."""

_LEAST_ELEMENTS, _MOST_ELEMENTS = 2048, 16384
"""Elements of a tile: enough to be worth a program; the most that one program holds of whole columns."""

_LINES = {4: ((256, 16384), (128, 16384)), 2: ((128, 16384),)}
_GRADIENT_LINES = {4: ((128, 8192),), 2: ((128, 8192),)}
"""By bytes of an element: bytes of neighbours side by side, and the most elements of a tile that is so wide."""

_MOST_NARROW_COLUMNS = 256
"""The most columns in a tile narrower than 128 bytes although there are neighbours to fill it. The number is for 16
bits and for gradients; it doubles for float32 and for elements that are moved one by one, and it is 4 times this for a
gradient that is moved so. Longer ones are shared, by wider tiles."""

_WIDE_COLUMNS = 16384
"""The most float32 columns for which lines of 256 bytes are worth the words that their neighbours exchange."""

_MOST_GROUP_BYTES = 2**23
"""A group that all programs of the GPU hold several times, so that some load while others wait."""

_ALONE = 512
"""The most words of a group that each program merges by itself; of more, teams of parts merge theirs first."""

_MOST_FOLDED, _LEAST_FOLDED = 256, 4096
"""The most neighbours, and the fewest elements, for which several columns are taken for one where vectors do not fit a
single one: to put together what lanes know costs time."""

_FOUND = {4: (8192, 4, 128, 4), 2: (16384, 4, THREE_WARPS, 1)}
_FOUND_ONE_BY_ONE = (2048, 2, 128, 4)
"""Elements, warps and registers of the tiles in which pairs of longer columns are found, and how many tiles are a part,
for which one program finds the pairs."""

_MOST_PARTS, _FOUND_WIDTH, _MOST_FOUND = 1024, 64, 1024
"""The most parts of longer columns; the neighbours of a tile, and the most that it has where columns are taken for one:
if vectors fit them, up to _MOST_FOLDED neighbours, so that lines are whole."""

MERGED = Group(4, 512, 8, FIVE_WARPS)
"""How pairs of parts are merged: of WIDTH neighbours BLOCK parts at a time."""

_WRITTEN, _WRITTEN_ONE_BY_ONE = 4096, 2048
"""Elements of a tile of longer columns that is written, with 256 bytes of neighbours."""

_STREAMED = 4096


def plan_columns(inner: int, n_cols: int, itemsize: int, vectors: bool = True, per_vector: int = 1) -> ColumnsPlan:
    """The launch for a softmax over n_cols columns that have `inner` neighbours each.

    `vectors` is False if the neighbours do not lie side by side, or begin anywhere; `per_vector` is how many columns
    fill whole vectors, 0 if they do not lie one behind another.
    """
    if n_cols <= _FEW_COLUMNS:
        return _few_columns(inner, n_cols, itemsize)
    if per_vector > 1 and inner <= _MOST_FOLDED and _LEAST_FOLDED <= n_cols * inner <= _MOST_GROUP_BYTES // itemsize:
        return _folded(inner, n_cols, per_vector, _folded_tile(n_cols * inner, itemsize))
    neighbours, whole = next_power_of_2(inner), next_power_of_2(n_cols)
    one_by_one = inner * itemsize % 16 != 0
    in_pairs = itemsize == 2 and vectors and not one_by_one  # two to a register
    lines = _LINES if in_pairs or itemsize == 4 else _GRADIENT_LINES
    WIDTH = _width(inner, n_cols, itemsize, lines[itemsize])
    narrow = WIDTH < min(neighbours, 128 // itemsize)
    split_early = (narrow and whole > _MOST_NARROW_COLUMNS * (1 if in_pairs else 2)) or (
        one_by_one and itemsize == 4 and WIDTH < min(64, neighbours)
    )
    if WIDTH * whole <= _MOST_ELEMENTS and not split_early:
        num_warps = max(1, min(4 if in_pairs else 8, WIDTH * whole * itemsize // 4096))
        return Group(WIDTH, whole, num_warps, _registers(WIDTH * whole, num_warps, itemsize))
    tile = _tile_of_a_group(n_cols, neighbours, itemsize, one_by_one or not (in_pairs or itemsize == 4))
    return _plan_of_groups(inner, n_cols, itemsize, tile, 1, one_by_one or not vectors, per_vector)


class _GroupTile(NamedTuple):
    """The tile that a program holds of a group: of WIDTH neighbours at most."""

    WIDTH: int
    elements: int
    maxnreg: int
    num_warps: int = 4


def _folded_tile(elements: int, itemsize: int) -> _GroupTile:
    """As wide as its threads move at a time, so that each sees few neighbours; one tile for all, if it can be."""
    if itemsize == 2:
        return _GroupTile(2048, 32768, 128, 8)
    if 8192 < elements <= 16384:
        return _GroupTile(1024, 16384, 128, 8)
    return _GroupTile(512, 8192, 128 if elements <= 8192 else FIVE_WARPS)


def _folded_gradient_tile(elements: int, itemsize: int) -> _GroupTile:
    if itemsize == 2:
        return _GroupTile(2048, 16384, 128, 8) if elements <= 16384 else _GroupTile(1024, 8192, FIVE_WARPS)
    return _GroupTile(1024, 16384, FIVE_WARPS, 16) if 8192 < elements <= 16384 else _GroupTile(512, 8192, THREE_WARPS)


def _folded(inner: int, n_cols: int, per_vector: int, tile: _GroupTile) -> ColumnsPlan:
    """The launch in which columns, a multiple of `per_vector`, are taken for one until they fill the tile."""
    smaller = max(1, min(tile.num_warps, tile.elements // next_power_of_2(n_cols * inner)))
    tile = _GroupTile(tile.WIDTH // smaller, tile.elements // smaller, tile.maxnreg, tile.num_warps // smaller)
    FOLD = _folds_up_to(tile.WIDTH, inner, n_cols, per_vector)
    WIDTH, columns = next_power_of_2(FOLD * inner), n_cols // FOLD
    BLOCK = min(next_power_of_2(columns), max(1, tile.elements // WIDTH))
    SPLIT = -(-columns // BLOCK)
    TEAM = _team(SPLIT, next_power_of_2(inner))
    if SPLIT == 1:
        return Group(WIDTH, BLOCK, tile.num_warps, tile.maxnreg, FOLD=FOLD)
    return SharedGroup(WIDTH, BLOCK, tile.num_warps, tile.maxnreg, SPLIT, TEAM, FOLD)


def _tile_of_a_group(n_cols: int, neighbours: int, itemsize: int, one_by_one: bool) -> _GroupTile:
    if one_by_one:
        return _GroupTile(64, 8192, 128)
    if itemsize == 4:
        return _GroupTile(64 if n_cols <= _WIDE_COLUMNS else 32, 16384, THREE_WARPS)
    if n_cols <= 512:
        WIDTH = min(128, neighbours)
        return _GroupTile(WIDTH, 256 * WIDTH, THREE_WARPS)
    # Tiles of 512 columns, unless they would leave many lanes idle.
    return _GroupTile(64, 32768, THREE_WARPS) if -n_cols % 512 <= n_cols // 4 else _GroupTile(64, 16384, 128)


def _plan_of_groups(
    inner: int, n_cols: int, itemsize: int, tile: _GroupTile, inputs: int, one_by_one: bool, per_vector: int
) -> ColumnsPlan:
    """The launch by several programs a group, as `tile` says, or, of larger groups, in three launches.

    `inputs` is how many elements are loaded for one of the result, `one_by_one` whether no vectors fit;
    `per_vector` columns fill whole vectors, or 0 if they do not lie one behind another.
    """
    WIDTH = min(tile.WIDTH, next_power_of_2(inner))
    if n_cols * WIDTH * itemsize * inputs <= _MOST_GROUP_BYTES:
        BLOCK = min(tile.elements // WIDTH, next_power_of_2(n_cols) // 2)
        SPLIT = -(-n_cols // BLOCK)
        return SharedGroup(WIDTH, BLOCK, tile.num_warps, tile.maxnreg, SPLIT, _team(SPLIT, WIDTH))
    WIDTH, FOLD = min(_FOUND_WIDTH, next_power_of_2(inner)), 1
    whole_vectors = per_vector > 0 and per_vector * inner * itemsize % 16 == 0
    if whole_vectors and inner <= _MOST_FOLDED and inner * per_vector <= _MOST_FOUND:
        FOLD, one_by_one = _folds_up_to(_MOST_FOUND, inner, n_cols, per_vector), False
        WIDTH = next_power_of_2(FOLD * inner)
    elements, num_warps, maxnreg, tiles = _FOUND_ONE_BY_ONE if one_by_one else _FOUND[itemsize]
    BLOCK = elements // WIDTH
    SPLIT = min(_MOST_PARTS, -(-n_cols // (FOLD * BLOCK * tiles)))
    return ThreeLaunches(WIDTH, BLOCK, num_warps, maxnreg, SPLIT, FOLD)


def _folds_up_to(lanes: int, inner: int, n_cols: int, per_vector: int) -> int:
    """How many columns, a multiple of `per_vector`, are taken for one: their neighbours fill `lanes` at most."""
    FOLD = per_vector
    while 2 * FOLD * inner <= lanes and n_cols % (2 * FOLD) == 0:
        FOLD *= 2
    return FOLD


def plan_of_writing(inner: int, n_cols: int, itemsize: int, vectors: bool) -> ColumnsPlan:
    """The third of three launches, for columns that have `inner` neighbours each, moved in `vectors` or one by one."""
    WIDTH = min(256 // itemsize, next_power_of_2(inner))
    BLOCK = (_WRITTEN if vectors else _WRITTEN_ONE_BY_ONE) // WIDTH
    return Group(WIDTH, min(BLOCK, next_power_of_2(n_cols)), 4, FIVE_WARPS)


def _team(SPLIT: int, WORDS: int) -> int:
    """How many of SPLIT programs are a team, whose last one merges WORDS for each of them."""
    return 1 if SPLIT * WORDS <= _ALONE else 8 if SPLIT <= 256 else 32


def _few_columns(inner: int, n_cols: int, itemsize: int) -> ColumnsPlan:
    """256 bytes of neighbours in one warp. Just above a power of two, a smaller tile leaves fewer lanes idle."""
    whole = next_power_of_2(n_cols)
    WIDTH = min(next_power_of_2(inner), max(256 // itemsize, _LEAST_ELEMENTS // whole))
    for REST in (whole // 8, whole // 4):
        if REST >= 4 and n_cols <= whole // 2 + REST:
            return Group(WIDTH, whole // 2, 1, 128, REST=REST)
    num_warps = 2 if itemsize == 4 and WIDTH * whole == _LEAST_ELEMENTS else 1
    return Group(WIDTH, whole, num_warps, THREE_WARPS)


def _registers(elements: int, num_warps: int, itemsize: int) -> int:
    if num_warps > 4 or (itemsize == 2 and elements == _MOST_ELEMENTS):
        return 128
    return FIVE_WARPS if itemsize == 2 and num_warps > 1 else THREE_WARPS


def plan_columns_gradient(inner: int, n_cols: int, itemsize: int, per_vector: int = 1) -> ColumnsPlan:
    """The launch for the gradient of a softmax over n_cols columns that have `inner` neighbours each (`per_vector` as
    above)."""
    if per_vector > 1 and inner <= _MOST_FOLDED and _LEAST_FOLDED <= n_cols * inner <= _MOST_GROUP_BYTES // itemsize:
        return _folded(inner, n_cols, per_vector, _folded_gradient_tile(n_cols * inner, itemsize))
    WIDTH, whole = _width(inner, n_cols, itemsize, _GRADIENT_LINES[itemsize]), next_power_of_2(n_cols)
    one_by_one = inner * itemsize % 16 != 0
    one_tile = whole <= _MOST_NARROW_COLUMNS * (4 if one_by_one else 1) or WIDTH == next_power_of_2(inner)
    if WIDTH * whole <= _MOST_ELEMENTS and one_tile:
        num_warps = max(1, min(16, WIDTH * whole * itemsize // 2048))
        return Group(WIDTH, whole, num_warps, THREE_WARPS if num_warps <= 4 else 128)
    tile = _GroupTile(128 // itemsize, 32768 // itemsize, THREE_WARPS)
    if one_by_one:  # an address for each element
        tile = _GroupTile(32, 2048, 128, 2)
    return _plan_of_groups(inner, n_cols, itemsize, tile, 2, one_by_one, per_vector)


def _width(inner: int, n_cols: int, itemsize: int, lines: tuple[tuple[int, int], ...]) -> int:
    """How many neighbours share a tile: the bytes that `lines` allow, more of few columns, 64 or 32 bytes of many."""
    whole = next_power_of_2(n_cols)
    WIDTH = 0
    for nbytes, most in (*lines, (64, _MOST_ELEMENTS), (32, math.inf)):
        WIDTH = min(next_power_of_2(inner), max(nbytes // itemsize, _LEAST_ELEMENTS // whole))
        if WIDTH * whole <= most:
            break
    return WIDTH


def plan_streamed(inner: int, n_cols: int) -> ColumnsPlan:
    """The launch that reads the columns twice, however many they are."""
    WIDTH = min(64, next_power_of_2(inner))
    return Streamed(WIDTH, min(_STREAMED // WIDTH, next_power_of_2(n_cols)), 4)
