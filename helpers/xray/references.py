"""The kernels that `python -m helpers.xray` reports: all of helpers/kernels.py, with arguments."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from helpers import kernels
from helpers.engine.runtime import DEVICE


class Reference(NamedTuple):
    """A kernel of helpers/kernels.py with arguments for one program, to launch it or to ask the compiler about it."""

    name: str
    kernel: Any
    args: tuple[Any, ...]
    options: dict[str, int]


def references(dtype: torch.dtype = torch.float32) -> list[Reference]:
    """The reference kernels, for contiguous rows: each moves a row of N columns, or several, of `dtype`."""
    x = torch.zeros((8, 16384), dtype=dtype, device=DEVICE)
    y = torch.empty_like(x)
    pairs = torch.zeros((2, 2), dtype=torch.float32, device=DEVICE)

    def row(name: str, kernel: Any, N: int, BLOCK: int, num_warps: int) -> Reference:
        return Reference(name, kernel, (y, x, N, N, 1, N), {"BLOCK": BLOCK, "num_warps": num_warps})

    tile = {"BLOCK": 8192, "num_warps": 16}
    return [
        row("single tile", kernels.single_tile_kernel, 8192, **tile),
        row("single tile", kernels.single_tile_kernel, 1024, BLOCK=1024, num_warps=4),
        row("single tile", kernels.single_tile_kernel, 65536, BLOCK=65536, num_warps=32),
        Reference(
            "several rows",
            kernels.several_rows_kernel,
            (y, x, 256, 256, 1, 8, 256),
            {"ROWS": 8, "BLOCK": 256, "num_warps": 4},
        ),
        Reference("persistent", kernels.persistent_kernel, (y, x, 8192, 8192, 1, 1, 8192), {**tile, "STAGES": 2}),
        row("two-pass", kernels.two_pass_kernel, 16384, **tile),
        row("online", kernels.online_kernel, 16384, **tile),
        Reference("split: statistics", kernels.split_statistics_kernel, (pairs, x, 16384, 1, 16384), tile),
        Reference(
            "split: write", kernels.split_write_kernel, (y, pairs, x, 16384, 16384, 1, 16384), {**tile, "PARTS": 2}
        ),
    ]
