"""Turns a Launch into the function that launches it, and into the arguments that its kernel is compiled for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import triton

from helpers import kernels
from helpers.choosing.launches import Launch


def softmax_of(launch: Launch) -> Callable[[torch.Tensor], torch.Tensor]:
    """The softmax of one (M, N) tensor with exactly this launch."""
    name, arguments = launch.call()
    return partial(getattr(kernels, name), **arguments)


def compiled_as(launch: Launch, n_cols: int, dtype: torch.dtype) -> tuple[triton.JITFunction, tuple, dict[str, int]]:
    """The kernel of a launch on contiguous rows of n_cols, with arguments and options to compile it for.

    Use them as `xray.report(kernel, *args, **options)`: the arguments have the right types, but they are too small for
    a launch. A split row has two kernels; this is the second, which writes the result.
    """
    x, N, tile = torch.empty(16, dtype=dtype), n_cols, {"BLOCK": launch.BLOCK}
    pairs = torch.empty(16, dtype=torch.float32)
    stages = kernels.default_num_stages(launch.BLOCK * dtype.itemsize)
    parts = triton.next_power_of_2(launch.programs_per_row(n_cols))
    kernel, args, constants = {
        "single tile": (kernels.single_tile_kernel, (x, x, N, N, 1, N), tile),
        "several rows": (kernels.several_rows_kernel, (x, x, N, N, 1, 2, N), {"ROWS": launch.rows, **tile}),
        "persistent": (kernels.persistent_kernel, (x, x, N, N, 1, 2, N), {"STAGES": stages, **tile}),
        "two-pass": (kernels.two_pass_kernel, (x, x, N, N, 1, N), tile),
        "online": (kernels.online_kernel, (x, x, N, N, 1, N), tile),
        "split row": (kernels.split_write_kernel, (x, pairs, x, N, N, 1, N), {"PARTS": parts, **tile}),
    }[launch.variant]
    return kernel, args, {**constants, "num_warps": launch.num_warps}
