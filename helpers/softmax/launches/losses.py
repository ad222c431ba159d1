"""The launches of a loss: its own, with its gradient or without, and that of backward."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from triton import cdiv, next_power_of_2

from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.loss_backward import backward_kernel
from helpers.softmax.kernels.loss_columns import columns_backward_kernel, cross_entropy_columns_kernel
from helpers.softmax.kernels.loss_flat import cross_entropy_flat_kernel
from helpers.softmax.kernels.loss_rows import cross_entropy_kernel
from helpers.softmax.kernels.loss_tiles import cross_entropy_tile_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import LOOKS, Launch, Zeros, gpu_of, keep_launcher, on_stream
from helpers.softmax.launches.rows import grid_and_parts
from helpers.softmax.plans.layout import axes_of, vectors
from helpers.softmax.plans.losses import (
    COUNTING_WORDS,
    MOST_CLASSES,
    PROGRAMS_IN_A_GROUP,
    ColumnTiles,
    LossOptions,
    counts_its_own,
    fits_a_tile,
    inner_in_a_vector,
    loss_columns_plan,
    loss_plan,
    plan_backward,
    plan_loss_tiles,
    rows_of_a_group,
    words_to_add_up,
)
from helpers.softmax.plans.pace import pace_of, policy_of, turns_of
from helpers.softmax.plans.rows import Flat, RowsPlan, Tiles

_launchers: dict[tuple, Launch] = {}


def columns_of(logits: torch.Tensor) -> torch.Tensor | None:
    """The logits (M, C, …) as (M, C, INNER), a view whose columns lie one behind another; None where no tile takes it,
    or where its elements overlap."""
    if logits.dim() < 3 or not 0 < logits.shape[1] <= MOST_CLASSES:
        return None
    axes = axes_of(logits.shape, logits.stride(), 1)
    if axes is None or axes[1].size == 1 or axes[1].x_stride != 1:
        return None
    columns = logits.flatten(2)
    return columns if are_columns(columns) else None


def are_columns(x: torch.Tensor) -> bool:
    """Whether a tile can take an (OUTER, C, INNER) tensor, whose elements do not overlap."""
    (outer, C, inner), (by_outer, by_class, by_inner) = x.shape, x.stride()
    classes_apart = C == 1 or by_class >= inner
    within, between = by_outer >= (C - 1) * by_class + inner, by_outer >= inner and by_class >= outer * by_outer
    apart = classes_apart and (outer == 1 or within or between)
    return by_inner == 1 and apart and fits_a_tile(C, by_class)


def loss_launcher_of(
    x: torch.Tensor, target: torch.Tensor, options: LossOptions, gradient: torch.Tensor | None, pairs: bool
) -> Launch:
    """The launcher for logits of x's layout, and targets and a gradient as aligned as these. It is made once and
    remembered."""
    # The kernel could be compiled for targets that lie anywhere: 16-bit rows then took up to 5 % more time.
    addresses = x.data_ptr() % 16, target.data_ptr() % 16, None if gradient is None else gradient.data_ptr() % 16
    y_strides = None if gradient is None else gradient.stride()
    key = (x.shape, x.stride(), x.dtype, x.get_device(), addresses, y_strides, options, pairs)
    launcher = _launchers.get(key)
    if launcher is None:
        if x.dim() == 3:
            launcher = loss_columns_launcher(x, options, y_strides, pairs)
        else:
            launcher = loss_launcher(x, options, gradient is not None, pairs)
        keep_launcher(_launchers, key, launcher)
    return launcher


def loss_launcher(
    x: torch.Tensor,
    options: LossOptions,
    grad: bool,
    pairs: bool = False,
    chosen: RowsPlan | Flat | None = None,
    looks: int = LOOKS,
) -> Launch:
    """The launcher of a loss, with its gradient or without, for (M, C) logits with contiguous rows.

    It launches as `plan_loss_tiles` or `loss_plan` say, or as `chosen` if another plan is to be tried. The tensors that
    it takes:

    - the gradient, or anything if there is none;
    - the losses, or their sum or mean;
    - the logits;
    - the targets;
    - M + 1 words: with `pairs`, the pair of each row, and last how many targets count; of flat rows only the last word
      is written.
    """
    (M, N), stride = x.shape, x.stride(0) if x.shape[0] > 1 else x.shape[1]
    itemsize, aligned, gpu = x.element_size(), x.data_ptr() % 16 == 0, gpu_of(x.get_device())
    widest = 16 // itemsize
    VEC = widest if aligned and stride % widest == 0 and N % widest == 0 else 1
    flat = aligned and stride == N
    chosen = chosen or plan_loss_tiles(M, N, itemsize, VEC, options.reduction, flat, grad, gpu)
    if isinstance(chosen, Flat):
        tile = {"VEC": widest, "USED": chosen.USED, "ROWS": next_power_of_2(chosen.USED)}
        tile |= {"BLOCK": next_power_of_2(N), "RUN": chosen.RUN}
        programs = min(cdiv(M, chosen.USED), gpu.programs_at_once(chosen.num_warps, chosen.maxnreg))
        return _tiles_launcher(cross_entropy_flat_kernel, x, options, grad, pairs, chosen, programs, looks, **tile)
    if isinstance(chosen, Tiles):
        tile = {"stride": stride, "VEC": VEC, "ROWS": chosen.ROWS, "BLOCK": chosen.BLOCK}
        programs = min(cdiv(M, chosen.ROWS), gpu.programs_at_once(chosen.num_warps, chosen.maxnreg))
        return _tiles_launcher(cross_entropy_tile_kernel, x, options, grad, pairs, chosen, programs, looks, **tile)
    VEC, EDGES = vectors(N, widest, aligned and (stride - N) % widest == 0)
    chosen = chosen or loss_plan(M, N, itemsize, options.reduction, options.label_smoothing > 0, grad, gpu)
    whole = chosen.SPLIT == 1
    row_words = 0 if whole else chosen.SPLIT * (2 if options.label_smoothing else 1)
    grid, PARTS = grid_and_parts(M, chosen, row_words)
    GROUP = rows_of_a_group(N, itemsize)
    # Without a gradient one program of a row waits for words, and fetching ahead costs more than it gains.
    pace = pace_of(M, chosen, gpu._replace(fetches_ahead=grad and gpu.fetches_ahead))
    return Launch(
        cross_entropy_kernel,
        grid,
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=COUNTING_WORDS + M * row_words + (0 if options.reduction == "none" else words_to_add_up(M, GROUP)),
        stride=stride,
        **_of_every_loss(x, options, grad, pairs, chosen.num_warps, looks),
        M=M,
        N=N,
        WHOLE=whole,
        VEC=VEC,
        EDGES=EDGES,
        PARTS=PARTS,
        BLOCK=chosen.BLOCK,
        GROUP=GROUP,
        AHEAD=pace.AHEAD,
        **turns_of(pace, chosen.BLOCK * itemsize, gpu),
    )


def _of_every_loss(
    x: torch.Tensor, options: LossOptions, grad: bool, pairs: bool, num_warps: int, looks: int
) -> dict[str, Any]:
    """The arguments that the kernels of all losses have in common."""
    return {
        "ignore_index": options.ignore_index,
        "looks": looks,
        "GRAD": grad,
        "PAIRS": pairs,
        "REDUCTION": options.reduction,
        "SMOOTHING": options.label_smoothing,
        "THREADS": 1 if INTERPRETED else 32 * num_warps,  # threads that load one word together load it once
        "POLICY": policy_of(x.numel() * x.element_size()) if grad else "",  # a loss alone gains nothing
    }


def _tiles_launcher(
    kernel: Any,
    x: torch.Tensor,
    options: LossOptions,
    grad: bool,
    pairs: bool,
    chosen: Tiles | Flat | ColumnTiles,
    programs: int,
    looks: int,
    **tile: int,
) -> Launch:
    """The launcher of a kernel whose `programs`, all that the GPU holds, take one `tile` of rows after another.

    Flat rows need at most 16 kB of shared memory: registers run out first.
    """
    n_targets = x.numel() // x.shape[1]
    return Launch(
        kernel,
        (programs, 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=COUNTING_WORDS + (0 if options.reduction == "none" else words_to_add_up(programs, PROGRAMS_IN_A_GROUP)),
        M=n_targets,
        N=x.shape[1],
        **_of_every_loss(x, options, grad, pairs, chosen.num_warps, looks),
        OWN=counts_its_own(options, grad, n_targets),
        GROUP=PROGRAMS_IN_A_GROUP,
        **tile,
    )


def loss_columns_launcher(
    x: torch.Tensor,
    options: LossOptions,
    y_strides: tuple[int, ...] | None,
    pairs: bool = False,
    chosen: ColumnTiles | None = None,
    looks: int = LOOKS,
) -> Launch:
    """The launcher of a loss of (OUTER, C, INNER) logits, with a gradient of these strides or without one.

    It launches as planned, or as `chosen`. Its tensors are `loss_launcher`'s, but that the last one has a single word,
    the number of targets that count, which with `pairs` it writes.
    """
    outer, C, inner = x.shape
    chosen = chosen or loss_columns_plan(outer, C, inner, gpu_of(x.get_device()))
    y_outer, y_class, *_ = y_strides or (0, 0)
    tiles = outer * cdiv(inner, chosen.WIDTH)
    programs = min(tiles, chosen.programs)
    return _tiles_launcher(
        cross_entropy_columns_kernel,
        x,
        options,
        y_strides is not None,
        pairs,
        chosen,
        programs,
        looks,
        grad_outer=y_outer,
        grad_class=y_class,
        x_outer=x.stride(0),
        x_class=x.stride(1),
        INNER=inner,
        tiles=tiles,
        VEC=inner_in_a_vector(outer, C, inner, x.stride(), y_strides or x.stride()),
        WIDTH=chosen.WIDTH,
        BLOCK=chosen.BLOCK,
    )


def loss_of(
    x: torch.Tensor,
    target: torch.Tensor,
    options: LossOptions,
    gradient: torch.Tensor | None = None,
    pairs: torch.Tensor | None = None,
    zeros: Zeros = mailbox.zeros,
    shape: tuple[int, ...] | None = None,
) -> torch.Tensor:
    """The loss of (M, C) logits, or of (OUTER, C, INNER) ones with M = OUTER · INNER targets. Where they are given,
    `gradient`, which may be x, and the `pairs` are filled.

    Losses that nobody reduces have the `shape`, or (M,).
    """
    shape = () if options.reduction != "none" else target.shape if shape is None else shape
    loss = torch.empty(shape, dtype=options.loss_dtype, device=x.device)
    target = target.contiguous()
    tensors = x if gradient is None else gradient, loss, x, target, loss if pairs is None else pairs
    on_stream(x, loss_launcher_of(x, target, options, gradient, pairs is not None), tensors, zeros)
    return loss


def gradient_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for the gradient. Rows lie as x's do: then whole vectors start at the same columns."""
    if x.dim() == 3:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    M, C = x.shape
    step = C if x.stride(0) == C or M == 1 else x.stride(0)  # M may depend on data: it is asked last
    return torch.empty_strided((M, C), (step, 1), dtype=x.dtype, device=x.device)


def pairs_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for the pair (m, l) of each row, and for the number of rows that count; of columns for this alone.

    For tiles of short rows, backward reads only the last word, the number.
    """
    return torch.empty(x.shape[0] + 1 if x.dim() == 2 else 1, dtype=torch.int64, device=x.device)


def scaled(
    y: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor, arrived: torch.Tensor, options: LossOptions
) -> None:
    """Fills y, which may be `gradient`, with it times `arrived`: one number or one for each of the M targets."""
    launcher = _launcher_in_backward(y, gradient, arrived, options, y is gradient, again=False)
    on_stream(gradient, launcher, (y, gradient, arrived, target.contiguous(), arrived))


def gradient_again(
    y: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    pairs: torch.Tensor,
    arrived: torch.Tensor,
    options: LossOptions,
    over: bool = False,
) -> None:
    """Fills y with the gradient of x times `arrived`; with `over`, y holds the gradient for 1 already."""
    launcher = _launcher_in_backward(y, x, arrived, options, over, again=True)
    words = pairs if launcher.kernel is backward_kernel else pairs[-1:]  # columns need the number of targets alone
    on_stream(x, launcher, (y, x, arrived, target.contiguous(), words))


def _launcher_in_backward(
    y: torch.Tensor, x: torch.Tensor, arrived: torch.Tensor, options: LossOptions, over: bool, again: bool
) -> Launch:
    """By what a launch depends on: dtypes, sizes, strides, two addresses modulo 16, the device, and what to do."""
    by_stride = arrived.stride(0) if arrived.dim() else 0
    dtypes, addresses = (x.dtype, arrived.dtype), (x.data_ptr() % 16, y.data_ptr() % 16)
    if x.dim() == 3:
        layouts = tuple(x.shape), y.stride(), x.stride()
        return columns_backward_launcher(dtypes, *layouts, by_stride, addresses, x.get_device(), options, over, again)
    return _backward_launcher(dtypes, *x.shape, y.stride(0), by_stride, addresses, x.get_device(), options, over, again)


@lru_cache(maxsize=1024)
def columns_backward_launcher(
    dtypes: tuple[torch.dtype, torch.dtype],
    shape: tuple[int, int, int],
    y_strides: tuple[int, ...],
    x_strides: tuple[int, ...],
    by_stride: int,
    addresses: tuple[int, int],
    device: int,
    options: LossOptions,
    over: bool,
    again: bool,
    chosen: ColumnTiles | None = None,
) -> Launch:
    """The launcher of `columns_backward_kernel`, which makes the gradient of logits `again`, or multiplies a gradient.

    It launches as planned, or as `chosen`. It depends on the `dtypes` of x and of what arrives, and on two `addresses`
    modulo 16: the kernel is compiled for these.
    """
    outer, C, inner = shape
    gpu = gpu_of(device)
    chosen = chosen or loss_columns_plan(*shape, gpu)
    tiles = outer * cdiv(inner, chosen.WIDTH)
    (y_outer, y_class, y_inner), (x_outer, x_class, x_inner) = y_strides, x_strides
    early = gpu.starts_early
    return Launch(
        columns_backward_kernel,
        (min(tiles, chosen.programs), 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        early=early,
        y_outer=y_outer,
        y_inner=y_inner,
        y_class=y_class,
        x_outer=x_outer,
        x_inner=x_inner,
        x_class=x_class,
        INNER=inner,
        N=C,
        tiles=tiles,
        **_of_what_arrives(options, by_stride, over, again, early),
        VEC=inner_in_a_vector(outer, C, inner, y_strides, x_strides),
        WIDTH=chosen.WIDTH,
        BLOCK=chosen.BLOCK,
    )


@lru_cache(maxsize=1024)
def _backward_launcher(
    dtypes: tuple[torch.dtype, torch.dtype],
    M: int,
    N: int,
    stride: int,
    by_stride: int,
    addresses: tuple[int, int],
    device: int,
    options: LossOptions,
    over: bool,
    again: bool,
) -> Launch:
    """The launcher of `backward_kernel`, which makes the gradient of logits `again`, or multiplies a gradient; of many
    short rows that of `columns_backward_kernel`: a column for each, whose classes lie one behind another, and whose
    places in a tile are 32-bit numbers."""
    gpu = gpu_of(device)
    tiles = plan_loss_tiles(M, N, dtypes[0].itemsize, 1, gpu=gpu)
    if tiles and tiles.ROWS * stride < 2**31:
        programs = gpu.programs_at_once(tiles.num_warps, tiles.maxnreg)
        chosen = ColumnTiles(tiles.ROWS, tiles.BLOCK, tiles.num_warps, tiles.maxnreg, programs)
        layouts = (1, N, M), (0, 1, stride), (0, 1, stride)
        return columns_backward_launcher(dtypes, *layouts, by_stride, addresses, device, options, over, again, chosen)
    widest = 16 // dtypes[0].itemsize
    VEC, EDGES = vectors(N, widest, addresses == (0, 0) and (stride - N) % widest == 0)
    BLOCK, num_warps, programs = plan_backward(M, N, VEC, over, gpu)
    early = gpu.starts_early
    return Launch(
        backward_kernel,
        (programs, 1, 1),
        warps=num_warps,
        early=early,
        stride=stride,
        M=M,
        N=N,
        **_of_what_arrives(options, by_stride, over, again, early),
        VEC=VEC,
        EDGES=EDGES,
        BLOCK=BLOCK,
    )


def _of_what_arrives(options: LossOptions, by_stride: int, over: bool, again: bool, early: bool) -> dict[str, Any]:
    """The arguments that both kernels of the backward pass take, whatever layout the logits have."""
    return {
        "by_stride": by_stride,
        "ignore_index": options.ignore_index,
        "AGAIN": again,
        "REDUCTION": options.reduction,
        "SMOOTHING": options.label_smoothing,
        "OF_ROWS": by_stride != 0,
        "OVER": over,
        "EARLY": early,
    }
