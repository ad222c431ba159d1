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
from helpers.softmax.kernels.streamed import strided_gradient_kernel, strided_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import LOOKS, Launch, Launcher, Zeros
from helpers.softmax.plans.columns import (
    MERGED,
    ColumnsPlan,
    SharedGroup,
    Streamed,
    ThreeLaunches,
    plan_columns,
    plan_columns_gradient,
    plan_of_writing,
    plan_streamed,
)
from helpers.softmax.plans.gpu import H200, Chip
from helpers.softmax.plans.layout import Axis, columns_in_a_vector, folded_axes, neighbours_in_a_vector
from helpers.softmax.plans.pace import pace_of, policy_of, turns_of
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
    gpu: Chip = H200,
) -> Launcher:
    """The launcher for a softmax over `columns`, which are x's `dim`: as planned, or as `chosen`."""
    itemsize, aligned = x.element_size(), x.data_ptr() % 16 == 0
    VEC = neighbours_in_a_vector(outer, inner, columns, itemsize) if aligned else 1
    per_vector = columns_in_a_vector(outer, inner, columns, itemsize) if aligned else 0
    chosen = chosen or plan_columns(inner.size, columns.size, itemsize, VEC * itemsize == 16, per_vector)
    if chosen.FOLD > 1:
        VEC, inner, columns = 16 // itemsize, *folded_axes(inner, columns, chosen.FOLD)
    axes = [axis if axis.size > 1 else Axis(1, 0, 0) for axis in (outer, inner, columns)]
    read = dict(zip(("x_outer", "x_inner", "x_col"), (axis.x_stride for axis in axes), strict=True))
    written = dict(zip(("y_outer", "y_inner", "y_col"), (axis.y_stride for axis in axes), strict=True))
    strides = [tuple(of.values())[1:] for of in (read, written)]
    if not all(_is_near(of, chosen, inner.size, columns.size, itemsize) for of in strides):
        chosen = plan_streamed(inner.size, columns.size)
    groups = outer.size * triton.cdiv(inner.size, chosen.WIDTH)
    if groups * chosen.SPLIT > _MOST_PROGRAMS:
        return lambda tensors, stream, zeros=None: softmax_by_torch_into(*tensors, dim)
    sizes = {"INNER": inner.size, "N": columns.size}
    common = {"grid": (groups, 1, 1), "warps": chosen.num_warps, "registers": chosen.maxnreg} | read | written | sizes
    if isinstance(chosen, Streamed):
        return Launch(strided_kernel, **common, WIDTH=chosen.WIDTH, BLOCK=chosen.BLOCK)
    if isinstance(chosen, ThreeLaunches):
        kernels = pairs_of_parts_kernel, write_tiles_kernel
        return _in_three_launches(
            *kernels, outer.size, read, read | written, sizes, VEC, itemsize, chosen, gpu.starts_early
        )
    policy = policy_of(x.numel() * itemsize)
    if isinstance(chosen, SharedGroup):
        gpu = gpu._replace(fetches_ahead=gpu.fetches_ahead and (itemsize == 4 or chosen.FOLD == 1))
        return _by_programs(shared_columns_kernel, groups, read | written | sizes, VEC, chosen, policy, gpu, itemsize)
    if chosen.FOLD > 1:
        return Launch(folded_columns_kernel, **common, **_folds(inner.size, VEC, chosen), POLICY=policy)
    tile = {"WIDTH": chosen.WIDTH, "BLOCK": chosen.BLOCK, "REST": chosen.REST}
    return Launch(columns_kernel, **common, VEC=VEC, **tile, POLICY=policy)


def _folds(inner: int, VEC: int, chosen: ColumnsPlan) -> dict[str, int]:
    """VEC, WIDTH, FOLD, DISTINCT and BLOCK of a plan with `inner` neighbours."""
    distinct = chosen.WIDTH if chosen.FOLD == 1 else triton.next_power_of_2(inner // chosen.FOLD)
    return {"VEC": VEC, "WIDTH": chosen.WIDTH, "FOLD": chosen.FOLD, "DISTINCT": distinct, "BLOCK": chosen.BLOCK}


def _by_programs(
    kernel: Any,
    groups: int,
    sizes: dict[str, int],
    VEC: int,
    chosen: SharedGroup,
    policy: str,
    gpu: Chip,
    place_bytes: int,
) -> Launch:
    """The launcher of a kernel in which SPLIT programs share each of the groups, and load by a `policy` `place_bytes`
    for each place of a tile."""
    teams, folds = triton.cdiv(chosen.SPLIT, chosen.TEAM), _folds(sizes["INNER"], VEC, chosen)
    DISTINCT = folds["DISTINCT"]
    # With a lane for every thread, one thread reads each word, and all warps agree on the words that came.
    PARTS, MATES = (max(triton.next_power_of_2(n), 32 * chosen.num_warps // DISTINCT) for n in (teams, chosen.TEAM))
    pace = pace_of(groups, chosen, gpu)
    return Launch(
        kernel,
        (groups * chosen.SPLIT, 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=groups * (chosen.SPLIT + (teams if chosen.TEAM > 1 else 0)) * DISTINCT,
        **sizes,
        **folds,
        SPLIT=chosen.SPLIT,
        looks=LOOKS,
        TEAM=chosen.TEAM,
        MATES=MATES,
        PARTS=PARTS,
        POLICY=policy,
        AHEAD=pace.AHEAD,
        **turns_of(pace, chosen.WIDTH * chosen.BLOCK * place_bytes, gpu),
    )


class ThreeInARow(NamedTuple):
    """A launch that finds `pairs` pairs of parts, their merge, and a launch that loads again and writes."""

    finding: Launch
    merging: Launch
    writing: Launch
    pairs: int

    def __call__(self, tensors: tuple[torch.Tensor, ...], stream: int, zeros: Zeros = mailbox.zeros) -> None:
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
    VEC: int,
    itemsize: int,
    found: ThreeLaunches,
    early: bool,
) -> ThreeInARow:
    """A kernel that finds pairs as planned, their merge, and one that writes; the last two begin `early`, or not.

    `read` are the strides that the first kernel takes, `written` the strides that the last one takes.
    """
    inner, columns = sizes["INNER"], sizes["N"]
    apart = inner // found.FOLD
    tiles_of_a_part = triton.cdiv(columns, found.BLOCK * found.SPLIT)
    parts = triton.cdiv(columns, found.BLOCK * tiles_of_a_part)
    last = plan_of_writing(inner, columns, itemsize, VEC > 1)
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
        **_folds(inner, VEC, found),
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
        VEC=VEC,
        WIDTH=last.WIDTH,
        FOLD=found.FOLD,
        BLOCK=last.BLOCK,
        EARLY=early,
    )
    return ThreeInARow(finding, merging, writing, outer * parts * apart)


def gradient_columns_launcher(
    outer: int,
    inner: int,
    N: int,
    itemsize: int,
    aligned: bool,
    chosen: ColumnsPlan | None = None,
    gpu: Chip = H200,
) -> Launcher:
    """The launcher of contiguous (outer, N, inner) dx, dy and y, as `plan_columns_gradient` says, or as `chosen`."""
    axes = (Axis(size, stride, stride) for size, stride in ((outer, N * inner), (inner, 1), (N, inner)))
    per_vector = columns_in_a_vector(*axes, itemsize) if aligned else 0
    chosen, shape = chosen or plan_columns_gradient(inner, N, itemsize, per_vector), (outer, N, inner)
    if chosen.FOLD > 1:
        inner, N = inner * chosen.FOLD, N // chosen.FOLD
    if not _is_near((1, inner), chosen, inner, N, itemsize):
        chosen = plan_streamed(inner, N)
    groups = outer * triton.cdiv(inner, chosen.WIDTH)
    if groups * chosen.SPLIT > _MOST_PROGRAMS:
        return lambda tensors, stream, zeros=None: gradient_by_torch_into(*tensors, shape)
    sizes = {"INNER": inner, "N": N}
    common = {"grid": (groups, 1, 1), "warps": chosen.num_warps, "registers": chosen.maxnreg} | sizes
    if isinstance(chosen, Streamed):
        return Launch(strided_gradient_kernel, **common, WIDTH=chosen.WIDTH, BLOCK=chosen.BLOCK)
    VEC = math.gcd(inner, 16 // itemsize) if aligned else 1
    strides = {"outer_stride": N * inner, "inner_stride": 1, "col_stride": inner}
    if isinstance(chosen, ThreeLaunches):
        kernels = sums_of_parts_kernel, write_gradient_tiles_kernel
        return _in_three_launches(*kernels, outer, strides, strides, sizes, VEC, itemsize, chosen, gpu.starts_early)
    policy = policy_of(math.prod(shape) * itemsize)
    if isinstance(chosen, SharedGroup):
        gpu = gpu._replace(fetches_ahead=gpu.fetches_ahead and itemsize == 2 and chosen.FOLD == 1)
        return _by_programs(
            shared_columns_gradient_kernel, groups, strides | sizes, VEC, chosen, policy, gpu, 2 * itemsize
        )
    if chosen.FOLD > 1:
        return Launch(folded_columns_gradient_kernel, **common, **strides, **_folds(inner, VEC, chosen), POLICY=policy)
    tile = {"WIDTH": chosen.WIDTH, "BLOCK": chosen.BLOCK}
    return Launch(columns_gradient_kernel, **common, **strides, VEC=VEC, **tile, POLICY=policy)


def _is_near(strides: Sequence[int], chosen: ColumnsPlan, inner: int, columns: int, itemsize: int) -> bool:
    """Whether 32-bit numbers are enough for the places within a tile; strides: of neighbours, of columns.

    Columns that are taken for one, of small groups alone, lie one behind another.
    """
    tiles = [chosen]
    if isinstance(chosen, ThreeLaunches):
        tiles.append(plan_of_writing(inner, columns, itemsize, True))
    return chosen.FOLD > 1 or max(_reach(strides, tile) for tile in tiles) <= _FARTHEST


def _reach(strides: Sequence[int], tile: ColumnsPlan) -> int:
    """How many elements lie between the first of a tile and the last."""
    inner, column = strides
    return (tile.WIDTH - 1) * inner + (tile.BLOCK - 1) * column
