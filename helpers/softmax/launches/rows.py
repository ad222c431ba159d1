"""The launches for rows of contiguous elements: softmax, its logarithm, and the gradients of both."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from triton import cdiv, next_power_of_2

from helpers.kernels import split_row_softmax
from helpers.softmax.kernels.flat import flat_gradient_kernel, flat_kernel
from helpers.softmax.kernels.gradient import log_gradient_kernel, shared_gradient_kernel, tile_gradient_kernel
from helpers.softmax.kernels.rows import tile_kernel
from helpers.softmax.kernels.shared import shared_kernel
from helpers.softmax.launches.launch import LOOKS, Launch, Launcher, gpu_of
from helpers.softmax.plans.gpu import H200, Chip
from helpers.softmax.plans.gradients import plan_gradient
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.losses import loss_plan
from helpers.softmax.plans.pace import NO_PAUSE, PAUSE_OF_GRADIENTS, PAUSE_OF_ROWS, Pause, pace_of, policy_of, turns_of
from helpers.softmax.plans.rows import Flat, RowsPlan, Shared, Tile, TwoLaunches, plan_rows


def rows_launcher(x: torch.Tensor, M: int, N: int, stride: int, chosen: RowsPlan | Flat | None = None) -> Launcher:
    """The launcher for M rows of N contiguous columns, a row every `stride` elements from x's first one on.

    It launches as `plan_rows` says, or as `chosen` if another plan is to be tried.
    """
    itemsize, aligned, gpu = x.element_size(), x.data_ptr() % 16 == 0, gpu_of(x.get_device())
    # Vectors of x and y start at the same columns only if both rows are equally far from a multiple of 16 bytes.
    VEC, EDGES = vectors(N, 16 // itemsize, aligned and (M == 1 or (stride - N) * itemsize % 16 == 0))
    chosen = chosen or plan_rows(M, N, itemsize, VEC, EDGES, aligned and (M == 1 or stride == N), gpu)
    if isinstance(chosen, Flat):
        return flat_launcher(flat_kernel, M, N, itemsize, chosen)
    if isinstance(chosen, Tile):
        return tile_launcher(M, N, stride, itemsize, VEC, EDGES, chosen)
    if isinstance(chosen, TwoLaunches):
        return lambda tensors, stream, zeros=None: _in_two_launches(*tensors, (M, N), stride)
    return shared_launcher(M, N, stride, itemsize, VEC, EDGES, chosen, gpu)


def _in_two_launches(y: torch.Tensor, x: torch.Tensor, shape: tuple[int, int], stride: int) -> None:
    y.copy_(split_row_softmax(x.as_strided(shape, (stride, 1)), BLOCK=16384).view(y.shape))


def flat_launcher(kernel: Any, M: int, N: int, itemsize: int, chosen: Flat) -> Launch:
    """The launcher of a kernel of `kernels.flat`, for M rows of N columns one behind another."""
    return Launch(
        kernel,
        (cdiv(M, chosen.USED), 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        M=M,
        N=N,
        VEC=16 // itemsize,
        USED=chosen.USED,
        ROWS=next_power_of_2(chosen.USED),
        BLOCK=next_power_of_2(N),
        RUN=chosen.RUN,
        POLICY=policy_of(M * N * itemsize),
    )


def tile_launcher(
    M: int, N: int, stride: int, itemsize: int, VEC: int, EDGES: bool, chosen: Tile, log: bool = False
) -> Launch:
    """The launcher of `tile_kernel` for M rows of N columns, a row every `stride` elements; `log`: of the logarithm."""
    strides = {"y_stride": N, "x_stride": stride}
    return _tiles(tile_kernel, M, N, itemsize, VEC, EDGES, chosen, **strides, REST=chosen.REST, LOG=log)


def _tiles(kernel: Any, M: int, N: int, itemsize: int, VEC: int, EDGES: bool, chosen: Tile, **more: Any) -> Launch:
    """The launcher of a kernel whose programs hold ROWS of M rows of N columns, with `more` of its arguments."""
    return Launch(
        kernel,
        (cdiv(M, chosen.ROWS), 1, 1),
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        M=M,
        N=N,
        VEC=VEC,
        EDGES=EDGES,
        ROWS=chosen.ROWS,
        LANES=lanes_of_a_row(VEC, chosen),
        BLOCK=chosen.BLOCK,
        POLICY=policy_of(M * N * itemsize),
        **more,
    )


def lanes_of_a_row(VEC: int, chosen: Tile) -> int:
    """Columns that all the threads of a row move together in a tile."""
    return min(max(4, 32 * chosen.num_warps // chosen.ROWS) * VEC, chosen.REST or chosen.BLOCK)


def shared_launcher(
    M: int,
    N: int,
    stride: int,
    itemsize: int,
    VEC: int,
    EDGES: bool,
    chosen: RowsPlan,
    gpu: Chip = H200,
    looks: int = LOOKS,
    log: bool = False,
) -> Launch:
    """The launcher of `shared_kernel` for M rows of N columns, a row every `stride` elements; `log`: of the logarithm,
    also of rows that one program holds."""
    pace = pace_of(M, chosen, gpu, PAUSE_OF_ROWS)
    more = {"y_stride": N, "x_stride": stride, "AHEAD": pace.AHEAD, "LOG": log, "WHOLE": chosen.SPLIT == 1}
    more |= turns_of(pace, chosen.BLOCK * itemsize, gpu)
    return _slices(shared_kernel, M, N, itemsize, VEC, EDGES, chosen, looks, PAUSE=pace.PAUSE, **more)


def _slices(
    kernel: Any, M: int, N: int, itemsize: int, VEC: int, EDGES: bool, chosen: RowsPlan, looks: int, **more: Any
) -> Launch:
    """The launcher of a kernel in which SPLIT programs share each of M rows of N columns, with `more` arguments."""
    grid, PARTS = grid_and_parts(M, chosen)
    return Launch(
        kernel,
        grid,
        warps=chosen.num_warps,
        registers=chosen.maxnreg,
        words=M * chosen.SPLIT,
        M=M,
        N=N,
        looks=looks,
        VEC=VEC,
        EDGES=EDGES,
        PARTS=PARTS,
        BLOCK=chosen.BLOCK,
        POLICY=policy_of(M * N * itemsize),
        **more,
    )


def grid_and_parts(M: int, chosen: RowsPlan, words: int | None = None) -> tuple[tuple[int, int, int], int]:
    """The grid for M rows that SPLIT programs share, and PARTS for the `words` of a row: by default one a program."""
    layers = cdiv(M, 65535)  # CUDA allows 65535 programs in the second dimension of a grid
    words = chosen.SPLIT if words is None else words
    return (chosen.SPLIT, cdiv(M, layers), layers), max(next_power_of_2(max(1, words)), 32 * chosen.num_warps)


def log_softmax_launcher(M: int, N: int, itemsize: int, aligned: bool, gpu: Chip = H200, looks: int = LOOKS) -> Launch:
    """The launcher for the logarithm of M contiguous rows of N columns; `aligned` says whether the first row begins at
    a multiple of 16 bytes. Of the shortest rows a program has several."""
    VEC, EDGES = vectors(N, 16 // itemsize, aligned)
    short = plan_rows(M, N, itemsize, VEC, EDGES, packed=False, gpu=gpu)
    if short.ROWS > 1:
        return tile_launcher(M, N, N, itemsize, VEC, EDGES, short, log=True)
    chosen = loss_plan(M, N, itemsize, "none", gpu=gpu)
    return shared_launcher(M, N, N, itemsize, VEC, EDGES, chosen, gpu, looks, log=True)


# The gradients


def gradient_rows_launcher(
    M: int, N: int, itemsize: int, aligned: bool, chosen: RowsPlan | Flat | None = None, gpu: Chip = H200
) -> Launch:
    """The launcher of dx, dy and y of M rows of N columns of `itemsize` bytes; `aligned`: they begin at 16 bytes.

    It launches as `plan_gradient` says, or as `chosen`.
    """
    VEC, EDGES = vectors(N, 16 // itemsize, aligned)
    chosen = chosen or plan_gradient(N, itemsize, VEC, EDGES, aligned)
    if isinstance(chosen, Flat):
        return flat_launcher(flat_gradient_kernel, M, N, itemsize, chosen)
    if isinstance(chosen, Tile):
        return tile_gradient_launcher(M, N, itemsize, VEC, EDGES, chosen)
    return shared_gradient_launcher(M, N, itemsize, VEC, EDGES, chosen, gpu, PAUSE_OF_GRADIENTS[itemsize])


def tile_gradient_launcher(
    M: int, N: int, itemsize: int, VEC: int, EDGES: bool, chosen: Tile, log: bool = False
) -> Launch:
    """The launcher of `tile_gradient_kernel` for M rows of N columns; `log`: for the logarithm's gradient."""
    return _tiles(tile_gradient_kernel, M, N, itemsize, VEC, EDGES, chosen, LOG=log)


def shared_gradient_launcher(
    M: int,
    N: int,
    itemsize: int,
    VEC: int,
    EDGES: bool,
    chosen: Shared,
    gpu: Chip = H200,
    pause: Pause = NO_PAUSE,
    looks: int = LOOKS,
) -> Launch:
    """The launcher of `shared_gradient_kernel` for M rows of N columns, whose programs `pause`."""
    pace = pace_of(M, chosen, gpu._replace(fetches_ahead=False), pause)
    more = {"PAUSE": pace.PAUSE} | turns_of(pace, 2 * chosen.BLOCK * itemsize, gpu)
    return _slices(shared_gradient_kernel, M, N, itemsize, VEC, EDGES, chosen, looks, **more)


@lru_cache(maxsize=1024)
def log_gradient_launcher(
    M: int, N: int, dtype: torch.dtype, _dtype_of_dx: torch.dtype, addresses: tuple[int, int, int], _device: int
) -> Launch:
    """The launcher for the logarithm's gradient of M rows of N columns; dx, dy and y lie at these addresses modulo 16.

    A kernel is compiled for all of this.
    """
    VEC, EDGES = vectors(N, 16 // dtype.itemsize, addresses == (0, 0, 0))
    short = plan_gradient(N, dtype.itemsize, VEC, EDGES, aligned=False)  # never flat
    if isinstance(short, Tile):
        return tile_gradient_launcher(M, N, dtype.itemsize, VEC, EDGES, short, log=True)
    BLOCK = next_power_of_2(N) if N <= 16384 else 4096
    warps = max(1, min(16, BLOCK // 1024))
    return Launch(log_gradient_kernel, (M, 1, 1), warps=warps, registers=128, N=N, WHOLE=BLOCK >= N, BLOCK=BLOCK)
