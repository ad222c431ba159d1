"""How softmax over another dimension, and its gradient, are launched: by the layout, and by what is planned for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton

from helpers.softmax.kernels.columns import columns_kernel, folded_columns_kernel, shared_columns_kernel
from helpers.softmax.kernels.columns_gradient import (
    columns_gradient_kernel,
    folded_columns_gradient_kernel,
    shared_columns_gradient_kernel,
)
from helpers.softmax.kernels.long_columns import (
    merge_parts_kernel,
    pairs_of_parts_kernel,
    sums_of_parts_kernel,
    write_gradient_tiles_kernel,
    write_tiles_kernel,
)
from helpers.softmax.kernels.shared import LOOKS
from helpers.softmax.kernels.streamed import strided_gradient_kernel, strided_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import Launch, Launcher, Words
from helpers.softmax.plans.layout import Axis, columns_in_a_vector, folded_axes, neighbours_in_a_vector
from helpers.softmax.plans.rows import (
    MERGED,
    ColumnsPlan,
    pace_of,
    plan_columns,
    plan_columns_gradient,
    plan_of_writing,
    plan_streamed,
    policy_of,
)
from helpers.softmax.torch_side import gradient_by_torch_into, softmax_by_torch_into

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
    read = dict(zip(("x_outer", "x_inner", "x_col"), (axis.x_stride for axis in axes), strict=True))
    written = dict(zip(("y_outer", "y_inner", "y_col"), (axis.y_stride for axis in axes), strict=True))
    strides = [tuple(of.values())[1:] for of in (read, written)]
    if not all(_is_near(of, chosen, inner.size, columns.size, itemsize) for of in strides):
        chosen = plan_streamed(inner.size, columns.size)
    groups = outer.size * triton.cdiv(inner.size, chosen.WIDTH)
    if groups * chosen.SPLIT > _MOST_PROGRAMS:
        return lambda tensors, stream, words=None: softmax_by_torch_into(*tensors, dim)
    sizes = {"INNER": inner.size, "N": columns.size}
    how = {"grid": (groups, 1, 1), "warps": chosen.num_warps, "registers": chosen.maxnreg} | read | written | sizes
    if chosen.kernel == "streamed":
        return Launch(strided_kernel, **how, ROWS=chosen.WIDTH, BLOCK=chosen.BLOCK)
    if chosen.kernel == "three launches":
        kernels = pairs_of_parts_kernel, write_tiles_kernel
        return _in_three_launches(*kernels, outer.size, read, read | written, sizes, V, itemsize, chosen, early)
    policy = policy_of(x.numel() * itemsize)
    if chosen.SPLIT > 1:
        # On an H200, 16-bit columns that are taken for one took up to 1 % more time so, most others 2 to 7 % less.
        ahead = ahead and (itemsize == 4 or chosen.FOLD == 1)
        return _by_programs(shared_columns_kernel, groups, read | written | sizes, V, chosen, policy, ahead)
    if chosen.FOLD > 1:
        return Launch(folded_columns_kernel, **how, **_folds(inner.size, V, chosen), POLICY=policy)
    tile = {"WIDTH": chosen.WIDTH, "BLOCK": chosen.BLOCK, "REST": chosen.REST}
    return Launch(columns_kernel, **how, V=V, **tile, POLICY=policy)


def _folds(inner: int, V: int, chosen: ColumnsPlan) -> dict[str, int]:
    """V, WIDTH, FOLD, WORDS and BLOCK of a plan with `inner` neighbours."""
    words = chosen.WIDTH if chosen.FOLD == 1 else triton.next_power_of_2(inner // chosen.FOLD)
    return {"V": V, "WIDTH": chosen.WIDTH, "FOLD": chosen.FOLD, "WORDS": words, "BLOCK": chosen.BLOCK}


def _by_programs(
    kernel: Any, groups: int, sizes: dict[str, int], V: int, chosen: ColumnsPlan, policy: str, ahead: bool
) -> Launch:
    """The launcher of a kernel in which SPLIT programs share each of the groups, load by a `policy` and may fetch
    `ahead`."""
    teams, folds = triton.cdiv(chosen.SPLIT, chosen.TEAM), _folds(sizes["INNER"], V, chosen)
    WORDS = folds["WORDS"]
    # With a lane for every thread, one thread reads each word, and all warps agree on the words that came.
    PARTS, MATES = (max(triton.next_power_of_2(n), 32 * chosen.num_warps // WORDS) for n in (teams, chosen.TEAM))
    pace = pace_of(groups, chosen, ahead)
    return Launch(
        kernel,
        (groups * chosen.SPLIT, 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=groups * (chosen.SPLIT + (teams if chosen.TEAM > 1 else 0)) * WORDS,
        **sizes,
        **folds,
        SPLIT=chosen.SPLIT,
        looks=LOOKS,
        TEAM=chosen.TEAM,
        MATES=MATES,
        PARTS=PARTS,
        POLICY=policy,
        TURNS=pace.TURNS,
        AHEAD=pace.AHEAD,
    )


class ThreeLaunches(NamedTuple):
    """A launch that finds `pairs` pairs of parts, their merge, and a launch that loads again and writes."""

    finding: Launch
    merging: Launch
    writing: Launch
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
    read: dict[str, int],
    written: dict[str, int],
    sizes: dict[str, int],
    V: int,
    itemsize: int,
    found: ColumnsPlan,
    early: bool,
) -> ThreeLaunches:
    """A kernel that finds pairs as planned, their merge, and one that writes; the last two begin `early`, or not.

    `read` are the strides that the first kernel takes, `written` the strides that the last one takes.
    """
    inner, columns = sizes["INNER"], sizes["N"]
    apart = inner // found.FOLD
    tiles_of_a_part = triton.cdiv(columns, found.BLOCK * found.SPLIT)
    parts = triton.cdiv(columns, found.BLOCK * tiles_of_a_part)
    last = plan_of_writing(inner, columns, itemsize, V > 1)
    tiles = triton.cdiv(columns, last.BLOCK)
    finding = Launch(
        find,
        (outer * triton.cdiv(inner, found.WIDTH) * parts, 1, 1),
        warps=found.num_warps,
        registers=found.maxnreg,
        **read,
        **sizes,
        SPLIT=parts,
        TILES=tiles_of_a_part,
        **_folds(inner, V, found),
    )
    merging = Launch(
        merge_parts_kernel,
        (outer * triton.cdiv(apart, MERGED.WIDTH), 1, 1),
        warps=MERGED.num_warps,
        registers=MERGED.maxnreg,
        early=early,
        INNER=apart,
        SPLIT=parts,
        WIDTH=MERGED.WIDTH,
        PARTS=min(MERGED.BLOCK, triton.next_power_of_2(parts)),
        EARLY=early,
    )
    writing = Launch(
        write,
        (outer * triton.cdiv(inner, last.WIDTH) * tiles, 1, 1),
        warps=last.num_warps,
        registers=last.maxnreg,
        early=early,
        **written,
        **sizes,
        SPLIT=parts,
        TILES=tiles,
        V=V,
        WIDTH=last.WIDTH,
        FOLD=found.FOLD,
        BLOCK=last.BLOCK,
        EARLY=early,
    )
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
    sizes = {"INNER": inner, "N": N}
    how = {"grid": (groups, 1, 1), "warps": chosen.num_warps, "registers": chosen.maxnreg} | sizes
    if chosen.kernel == "streamed":
        return Launch(strided_gradient_kernel, **how, ROWS=chosen.WIDTH, BLOCK=chosen.BLOCK)
    V = math.gcd(inner, 16 // itemsize) if aligned else 1
    strides = {"outer_stride": N * inner, "inner_stride": 1, "col_stride": inner}
    if chosen.kernel == "three launches":
        kernels = sums_of_parts_kernel, write_gradient_tiles_kernel
        return _in_three_launches(*kernels, outer, strides, strides, sizes, V, itemsize, chosen, early)
    policy = policy_of(math.prod(shape) * itemsize)
    if chosen.SPLIT > 1:
        # On an H200 float32, where a register spills then, and columns that are taken for one took between 1.5 % less
        # and 1.3 % more time so; the others took up to 8 % less.
        ahead = ahead and itemsize == 2 and chosen.FOLD == 1
        return _by_programs(shared_columns_gradient_kernel, groups, strides | sizes, V, chosen, policy, ahead)
    if chosen.FOLD > 1:
        return Launch(folded_columns_gradient_kernel, **how, **strides, **_folds(inner, V, chosen), POLICY=policy)
    tile = {"WIDTH": chosen.WIDTH, "BLOCK": chosen.BLOCK}
    return Launch(columns_gradient_kernel, **how, **strides, V=V, **tile, POLICY=policy)


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
