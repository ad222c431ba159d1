"""Softmax of a row by a cluster: programs that may read each other's shared memory, on Hopper and later GPUs.

Written in Gluon, the language below Triton's, after the idea of Triton's Gluon tutorial on several CTAs: where a layout
spreads a row over the programs of a cluster, a reduction crosses them by itself. Triton 3.8 is the first that
compiles that.
"""

from __future__ import annotations

import torch
from triton import next_power_of_2
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

MOST_CLUSTERED = 2**18
"""The longest row. Of 16 programs an H100 or H200 can launch a cluster; of 8, every GPU that has clusters."""

_ALONE = 32768
"""The longest row that one program holds. On an H200 a cluster took 1.1 times as long for it."""


@gluon.jit
def cluster_kernel(
    y_ptr, x_ptr, y_stride, x_stride, N, V: gl.constexpr, BLOCK: gl.constexpr, BASES: gl.constexpr
):  # fmt: skip
    """Each cluster writes the softmax of one row of N columns in BLOCK lanes, V side by side in a thread.

    BASES are where the shares of the second, third, fifth and ninth program begin, in shares.
    """
    layout: gl.constexpr = gl.BlockedLayout([V], [32], [gl.num_warps()], [0], cga_layout=BASES)
    row = gl.program_id(0).to(gl.int64)
    cols = gl.arange(0, BLOCK, layout)
    x = gl.load(x_ptr + row * x_stride + cols, mask=cols < N, other=-float("inf")).to(gl.float32)
    m = gl.max(x, axis=0)
    e = gl.exp2((x - m) * 1.4426950408889634)
    l = gl.sum(e, axis=0)
    gl.store(y_ptr + row * y_stride + cols, (e * (1 / l)).to(y_ptr.dtype.element_ty), mask=cols < N)


def cluster_of(n_cols: int) -> tuple[int, int, int]:
    """BLOCK, programs of a cluster and warps of each for a row of n_cols."""
    BLOCK = max(128, next_power_of_2(n_cols))
    if BLOCK <= _ALONE:
        return BLOCK, 1, max(1, min(16, BLOCK // 1024))
    return BLOCK, 16, BLOCK // 16 // 2048


def cluster_softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of an (M, N) tensor of float32, bfloat16 or float16 with contiguous rows of at most
    MOST_CLUSTERED columns, and at least one of them.

    Raises ValueError for longer rows, and Triton's errors where the GPU has no clusters.
    """
    n_rows, n_cols = x.shape
    if n_cols > MOST_CLUSTERED:
        raise ValueError(f"a cluster holds {MOST_CLUSTERED} columns of a row; this one has {n_cols}.")
    BLOCK, num_ctas, num_warps = cluster_of(n_cols)
    bases = tuple((2**k,) for k in range(num_ctas.bit_length() - 1))
    y, V = torch.empty_like(x), 16 // x.element_size()
    arguments = y, x, y.stride(0), x.stride(0), n_cols, V, BLOCK, bases
    cluster_kernel[(n_rows,)](*arguments, num_warps=num_warps, num_ctas=num_ctas)
    return y
