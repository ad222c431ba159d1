"""The launches of a loss whose classes others lie behind, such as the channels of an image."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
import triton

from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.add_up import COUNTERS, PROGRAMS_IN_A_GROUP, counts_its_own, words_to_add_up
from helpers.softmax.kernels.loss_columns import columns_backward_kernel, cross_entropy_columns_kernel
from helpers.softmax.kernels.shared import LOOKS
from helpers.softmax.launches.launch import Launch, can_start_early
from helpers.softmax.plans.layout import axes_of
from helpers.softmax.plans.losses import How
from helpers.softmax.plans.rows import EIGHT_WARPS, FOUR_WARPS, SMS, policy_of, programs_at_once

MOST_CLASSES = 2048
"""Of a tile of 16 neighbours, whose 16 warps fill an SM."""

_V = 2
"""Neighbours that a thread moves together, so that it has many classes of each. In vectors of 16 bytes, with which more
of a column lies in other threads, bfloat16 of 2000 classes took an H100 11 to 22 % more time (in no record)."""

_LEAST_ELEMENTS, _MOST_ELEMENTS = 8, 64
"""Of a tile, for each thread."""

_WIDTH, _LEAST_TILES = 16, 4 * SMS
"""The least neighbours of a tile where there are more; and tiles that are wanted before they are made larger."""

_FARTHEST = 2**31 - 1
"""The farthest that a tile reaches, whose places are 32-bit numbers."""


class LossColumnsPlan(NamedTuple):
    """Tiles of WIDTH neighbours and BLOCK classes, which `programs` of num_warps warps share: all that the GPU holds.
    A thread gets maxnreg registers at most."""

    WIDTH: int
    BLOCK: int
    num_warps: int
    maxnreg: int
    programs: int


def columns_of(logits: torch.Tensor) -> torch.Tensor | None:
    """The logits (M, N, …) as (M, N, INNER), a view whose columns lie one behind another; None where no tile takes it,
    or where its elements overlap."""
    if logits.dim() < 3 or not 0 < logits.shape[1] <= MOST_CLASSES:
        return None
    axes = axes_of(logits.shape, logits.stride(), 1)
    if axes is None or axes[1].size == 1 or axes[1].x_stride != 1:
        return None
    columns = logits.flatten(2)
    return columns if are_columns(columns) else None


def are_columns(x: torch.Tensor) -> bool:
    """Whether a tile can take an (OUTER, N, INNER) tensor, whose elements do not overlap."""
    (outer, N, inner), (by_outer, by_class, by_inner) = x.shape, x.stride()
    classes_apart = N == 1 or by_class >= inner
    within, between = by_outer >= (N - 1) * by_class + inner, by_outer >= inner and by_class >= outer * by_outer
    apart = classes_apart and (outer == 1 or within or between)
    return by_inner == 1 and apart and triton.next_power_of_2(N) * by_class <= _FARTHEST


@lru_cache(maxsize=1024)
def loss_columns_plan(outer: int, N: int, inner: int) -> LossColumnsPlan:
    """The launch for (outer, N, inner) logits.

    A thread has all N classes of two neighbours where that is 8 to 64 elements. A tile has four warps: more if it would
    have less than 16 neighbours of many classes, and fewer, with fewer neighbours, where there would be too few tiles.
    Found by sweeps on one H100 (in no record).
    """
    BLOCK = triton.next_power_of_2(N)
    of_thread = min(max(_V * BLOCK, _LEAST_ELEMENTS), _MOST_ELEMENTS)
    WIDTH = min(max(_WIDTH, 4 * 32 * of_thread // BLOCK), triton.next_power_of_2(inner))
    while WIDTH > _WIDTH and outer * triton.cdiv(inner, WIDTH) < _LEAST_TILES:
        WIDTH //= 2
    num_warps = max(1, WIDTH * BLOCK // (32 * of_thread))
    maxnreg = FOUR_WARPS if of_thread == _MOST_ELEMENTS else EIGHT_WARPS
    return LossColumnsPlan(WIDTH, BLOCK, num_warps, maxnreg, programs_at_once(num_warps, maxnreg))


def loss_columns_launcher(
    x: torch.Tensor,
    how: How,
    y_strides: tuple[int, ...] | None,
    pairs: bool = False,
    chosen: LossColumnsPlan | None = None,
    looks: int = LOOKS,
) -> Launch:
    """The launcher of a loss of (OUTER, N, INNER) logits, with a gradient of these strides or without one.

    It launches as planned, or as `chosen`. Its tensors are `loss_launcher`'s, but that the place of the pairs has one
    word, the number of targets that count, which with `pairs` it fills.
    """
    outer, N, inner = x.shape
    chosen, grad = chosen or loss_columns_plan(outer, N, inner), y_strides is not None
    y_outer, y_class, *_ = y_strides or (0, 0)
    tiles = outer * triton.cdiv(inner, chosen.WIDTH)
    programs = min(tiles, chosen.programs)
    return Launch(
        cross_entropy_columns_kernel,
        (programs, 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=COUNTERS + (0 if how.reduction == "none" else words_to_add_up(programs, PROGRAMS_IN_A_GROUP)),
        grad_outer=y_outer,
        grad_class=y_class,
        x_outer=x.stride(0),
        x_class=x.stride(1),
        INNER=inner,
        M=outer * inner,
        N=N,
        tiles=tiles,
        ignore_index=how.ignore_index,
        looks=looks,
        GRAD=grad,
        OWN=counts_its_own(how, grad, outer * inner),
        PAIRS=pairs,
        REDUCTION=how.reduction,
        SMOOTHING=how.label_smoothing,
        V=_together(outer, N, inner, x.stride(), y_strides or x.stride()),
        WIDTH=chosen.WIDTH,
        BLOCK=chosen.BLOCK,
        THREADS=1 if INTERPRETED else 32 * chosen.num_warps,
        GROUP=PROGRAMS_IN_A_GROUP,
        POLICY=policy_of(x.numel() * x.element_size()) if grad else "",
    )


@lru_cache(maxsize=1024)
def columns_backward_launcher(
    dtypes: tuple[torch.dtype, torch.dtype],
    shape: tuple[int, int, int],
    y_strides: tuple[int, ...],
    x_strides: tuple[int, ...],
    by_stride: int,
    addresses: tuple[int, int],
    device: int,
    how: How,
    over: bool,
    again: bool,
    chosen: LossColumnsPlan | None = None,
) -> Launch:
    """The launcher of `columns_backward_kernel`, which makes the gradient of logits `again`, or multiplies a gradient.

    It launches as planned, or as `chosen`. It depends on the `dtypes` of x and of what arrives, and on two `addresses`
    modulo 16: the kernel is compiled for these.
    """
    outer, N, inner = shape
    chosen = chosen or loss_columns_plan(*shape)
    tiles = outer * triton.cdiv(inner, chosen.WIDTH)
    (y_outer, y_class, y_inner), (x_outer, x_class, x_inner) = y_strides, x_strides
    early = can_start_early(device)
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
        by_stride=by_stride,
        INNER=inner,
        N=N,
        tiles=tiles,
        ignore_index=how.ignore_index,
        AGAIN=again,
        REDUCTION=how.reduction,
        SMOOTHING=how.label_smoothing,
        OF_ROWS=by_stride != 0,
        OVER=over,
        EARLY=early,
        V=_together(outer, N, inner, y_strides, x_strides),
        WIDTH=chosen.WIDTH,
        BLOCK=chosen.BLOCK,
    )


def _together(outer: int, N: int, inner: int, *strides: tuple[int, ...]) -> int:
    """How many neighbours a thread moves together."""
    apart = [by for by_outer, by_class, _ in strides for by in (by_outer * (outer > 1), by_class * (N > 1))]
    return math.gcd(_V, inner, *apart) if all(by_inner == 1 for *_, by_inner in strides) else 1
