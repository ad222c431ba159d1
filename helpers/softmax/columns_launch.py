"""How softmax over another dimension, and its gradient, are launched: by the layout, and by what is planned for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton

from helpers.softmax import mailbox
from helpers.softmax.columns import columns_kernel, folded_columns_kernel, shared_columns_kernel
from helpers.softmax.columns_gradient import (
    columns_gradient_kernel,
    folded_columns_gradient_kernel,
    shared_columns_gradient_kernel,
)
from helpers.softmax.dispatch import gradient_by_torch_into, softmax_by_torch_into
from helpers.softmax.launcher import Launcher, PreparedLauncher, Words
from helpers.softmax.layout import Axis, columns_in_a_vector, folded_axes, neighbours_in_a_vector
from helpers.softmax.long_columns import (
    merge_parts_kernel,
    pairs_of_parts_kernel,
    sums_of_parts_kernel,
    write_gradient_tiles_kernel,
    write_tiles_kernel,
)
from helpers.softmax.plan import (
    MERGED,
    ColumnsPlan,
    pace_of,
    plan_columns,
    plan_columns_gradient,
    plan_of_writing,
    plan_streamed,
    policy_of,
)
from helpers.softmax.shared import LOOKS
from helpers.softmax.strided import strided_gradient_kernel, strided_kernel

_MOST_PROGRAMS = _FARTHEST = 2**31 - 1
"""The most programs of a grid; and the farthest that a tile of columns reaches, whose places are 32-bit numbers."""


def columns_launcher(
    x: torch.Tensor,
    dim: int,
    outer: Axis,
    inner: Axis,
    columns: Axis,
    chosen: ColumnsPlan | None = None,
    ahead: bool = False,
    early: bool = False,
) -> Launcher:
    """The launcher for a softmax over `columns`, which are x's `dim`, by a GPU on which fetching `ahead` pays or not,
    and launches can begin `early` or not.

    It launches as planned, or as `chosen`.
    """
    itemsize, aligned = x.element_size(), x.data_ptr() % 16 == 0
    V = neighbours_in_a_vector(outer, inner, columns, itemsize) if aligned else 1
    together = columns_in_a_vector(outer, inner, columns, itemsize) if aligned else 0
    chosen = chosen or plan_columns(inner.size, columns.size, itemsize, V * itemsize == 16, together)
    if chosen.FOLD > 1:
        V, inner, columns = 16 // itemsize, *folded_axes(inner, columns, chosen.FOLD)
    axes = [axis if axis.size > 1 else Axis(1, 0, 0) for axis in (outer, inner, columns)]
    strides = [axis.x_stride for axis in axes] + [axis.y_stride for axis in axes]
    if not all(_is_near(of, chosen, inner.size, columns.size, itemsize) for of in (strides[1:3], strides[4:])):
        chosen = plan_streamed(inner.size, columns.size)
    groups = outer.size * triton.cdiv(inner.size, chosen.WIDTH)
    if groups * chosen.SPLIT > _MOST_PROGRAMS:
        return lambda tensors, stream, words=None: softmax_by_torch_into(*tensors, dim)
    sizes, grid, how = (*strides, inner.size, columns.size), (groups, 1, 1), (chosen.num_warps, chosen.maxnreg)
    if chosen.kernel == "streamed":
        return PreparedLauncher(strided_kernel, grid, (*sizes, chosen.WIDTH, chosen.BLOCK), *how)
    if chosen.kernel == "three launches":
        read_sizes = *strides[:3], inner.size, columns.size
        kernels = pairs_of_parts_kernel, write_tiles_kernel
        return _in_three_launches(*kernels, outer.size, read_sizes, sizes, V, itemsize, chosen, early)
    policy = policy_of(x.numel() * itemsize)
    if chosen.SPLIT > 1:
        # On an H200, 16-bit columns that are taken for one took up to 1 % more time so, most others 2 to 7 % less.
        ahead = ahead and (itemsize == 4 or chosen.FOLD == 1)
        return _by_programs(shared_columns_kernel, groups, sizes, V, chosen, policy, ahead)
    if chosen.FOLD > 1:
        return PreparedLauncher(
            folded_columns_kernel, grid, (*sizes, *_folds(inner.size, V, chosen), chosen.BLOCK, policy), *how
        )
    return PreparedLauncher(columns_kernel, grid, (*sizes, V, chosen.WIDTH, chosen.BLOCK, chosen.REST, policy), *how)


def _folds(inner: int, V: int, chosen: ColumnsPlan) -> tuple[int, int, int, int]:
    """V, WIDTH, FOLD and WORDS of a plan with `inner` neighbours."""
    words = chosen.WIDTH if chosen.FOLD == 1 else triton.next_power_of_2(inner // chosen.FOLD)
    return V, chosen.WIDTH, chosen.FOLD, words


def _by_programs(
    kernel: Any, groups: int, sizes: tuple[int, ...], V: int, chosen: ColumnsPlan, policy: str, ahead: bool
) -> PreparedLauncher:
    """The launcher of a kernel in which SPLIT programs share each of the groups, load by a `policy` and may fetch
    `ahead`."""
    teams, folds = triton.cdiv(chosen.SPLIT, chosen.TEAM), _folds(sizes[-2], V, chosen)
    WORDS = folds[-1]
    # With a lane for every thread, one thread reads each word, and all warps agree on the words that came.
    PARTS, MATES = (max(triton.next_power_of_2(n), 32 * chosen.num_warps // WORDS) for n in (teams, chosen.TEAM))
    pace = pace_of(groups, chosen, ahead)
    letters = *folds, chosen.TEAM, MATES, PARTS, chosen.BLOCK, policy, pace.TURNS, pace.AHEAD
    arguments = (*sizes, chosen.SPLIT, LOOKS, *letters)
    words = groups * (chosen.SPLIT + (teams if chosen.TEAM > 1 else 0)) * WORDS
    return PreparedLauncher(kernel, (groups * chosen.SPLIT, 1, 1), arguments, chosen.num_warps, chosen.maxnreg, words)


class ThreeLaunches(NamedTuple):
    """A launch that finds `pairs` pairs of parts, their merge, and a launch that loads again and writes."""

    finding: PreparedLauncher
    merging: PreparedLauncher
    writing: PreparedLauncher
    pairs: int

    def __call__(self, tensors: tuple[torch.Tensor, ...], stream: int, words: Words = mailbox.zeros) -> None:
        """Fills the first of the tensors from the others."""
        result, *inputs = tensors
        pairs = torch.empty(self.pairs, dtype=torch.int64, device=result.device)
        self.finding((pairs, *inputs), stream)
        self.merging((pairs,), stream)
        self.writing((result, pairs, *inputs), stream)


def _in_three_launches(
    find: Any,
    write: Any,
    outer: int,
    read_sizes: tuple,
    sizes: tuple,
    V: int,
    itemsize: int,
    found: ColumnsPlan,
    early: bool,
) -> ThreeLaunches:
    """A kernel that finds pairs as planned, their merge, and one that writes; the last two begin `early`, or not."""
    inner, columns = sizes[-2:]
    apart = inner // found.FOLD
    tiles_of_a_part = triton.cdiv(columns, found.BLOCK * found.SPLIT)
    parts = triton.cdiv(columns, found.BLOCK * tiles_of_a_part)
    written = plan_of_writing(inner, columns, itemsize, V > 1)
    tiles = triton.cdiv(columns, written.BLOCK)

    def of(kernel: Any, programs: int, plan: ColumnsPlan, *arguments: Any, waits: bool = False) -> PreparedLauncher:
        grid = outer * programs, 1, 1
        return PreparedLauncher(kernel, grid, arguments, plan.num_warps, plan.maxnreg, early=waits)

    letters = *_folds(inner, V, found), found.BLOCK
    finding = of(find, triton.cdiv(inner, found.WIDTH) * parts, found, *read_sizes, parts, tiles_of_a_part, *letters)
    letters = MERGED.WIDTH, min(MERGED.BLOCK, triton.next_power_of_2(parts)), early
    merged = triton.cdiv(apart, MERGED.WIDTH)
    merging = of(merge_parts_kernel, merged, MERGED, apart, parts, *letters, waits=early)
    letters = V, written.WIDTH, found.FOLD, written.BLOCK, early
    written_tiles = triton.cdiv(inner, written.WIDTH) * tiles
    writing = of(write, written_tiles, written, *sizes, parts, tiles, *letters, waits=early)
    return ThreeLaunches(finding, merging, writing, outer * parts * apart)


def gradient_columns_launcher(
    outer: int,
    inner: int,
    N: int,
    itemsize: int,
    aligned: bool,
    chosen: ColumnsPlan | None = None,
    ahead: bool = False,
    early: bool = False,
) -> Launcher:
    """The launcher of contiguous (outer, N, inner) dx, dy and y, by a GPU on which fetching `ahead` pays or not, and
    launches can begin `early` or not.

    It launches as `plan_columns_gradient` says, or as `chosen`.
    """
    axes = (Axis(size, stride, stride) for size, stride in ((outer, N * inner), (inner, 1), (N, inner)))
    together = columns_in_a_vector(*axes, itemsize) if aligned else 0
    chosen, shape = chosen or plan_columns_gradient(inner, N, itemsize, together), (outer, N, inner)
    if chosen.FOLD > 1:
        inner, N = inner * chosen.FOLD, N // chosen.FOLD
    if not _is_near((1, inner), chosen, inner, N, itemsize):
        chosen = plan_streamed(inner, N)
    groups = outer * triton.cdiv(inner, chosen.WIDTH)
    if groups * chosen.SPLIT > _MOST_PROGRAMS:
        return lambda tensors, stream, words=None: gradient_by_torch_into(*tensors, shape)
    grid, how = (groups, 1, 1), (chosen.num_warps, chosen.maxnreg)
    if chosen.kernel == "streamed":
        return PreparedLauncher(strided_gradient_kernel, grid, (inner, N, chosen.WIDTH, chosen.BLOCK), *how)
    V = math.gcd(inner, 16 // itemsize) if aligned else 1
    sizes = N * inner, 1, inner, inner, N
    if chosen.kernel == "three launches":
        kernels = sums_of_parts_kernel, write_gradient_tiles_kernel
        return _in_three_launches(*kernels, outer, sizes, sizes, V, itemsize, chosen, early)
    policy = policy_of(math.prod(shape) * itemsize)
    if chosen.SPLIT > 1:
        # On an H200 float32, where a register spills then, and columns that are taken for one took between 1.5 % less
        # and 1.3 % more time so; the others took up to 8 % less.
        ahead = ahead and itemsize == 2 and chosen.FOLD == 1
        return _by_programs(shared_columns_gradient_kernel, groups, sizes, V, chosen, policy, ahead)
    if chosen.FOLD > 1:
        letters = *_folds(inner, V, chosen), chosen.BLOCK, policy
        return PreparedLauncher(folded_columns_gradient_kernel, grid, (*sizes, *letters), *how)
    return PreparedLauncher(columns_gradient_kernel, grid, (*sizes, V, chosen.WIDTH, chosen.BLOCK, policy), *how)


def _is_near(strides: Sequence[int], chosen: ColumnsPlan, inner: int, columns: int, itemsize: int) -> bool:
    """Whether 32-bit numbers are enough for the places within a tile; strides: of neighbours, of columns.

    Columns that are taken for one, of small groups alone, lie one behind another.
    """
    tiles = [chosen]
    if chosen.kernel == "three launches":
        tiles.append(plan_of_writing(inner, columns, itemsize, True))
    return chosen.FOLD > 1 or max(_reach(strides, tile) for tile in tiles) <= _FARTHEST


def _reach(strides: Sequence[int], tile: ColumnsPlan) -> int:
    """How many elements lie between the first of a tile and the last."""
    inner, column = strides
    return (tile.WIDTH - 1) * inner + (tile.BLOCK - 1) * column
