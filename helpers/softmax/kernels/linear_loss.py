"""The kernels of the loss of a linear layer: log-sum-exps of logits that are never stored, and a scaled gradient."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile_at(t, rows, cols, first_row, first_col, n_rows, n_cols, row_stride, col_stride, DESCRIBED: tl.constexpr):
    """A tile of t, which is a descriptor if DESCRIBED, and else a pointer; 0 outside of t."""
    if DESCRIBED:
        tile = t.load([first_row, first_col])
    else:
        rows, cols = first_row + rows, first_col + cols
        at = rows.to(tl.int64)[:, None] * row_stride + cols.to(tl.int64)[None, :] * col_stride
        tile = tl.load(t + at, mask=(rows < n_rows)[:, None] & (cols < n_cols)[None, :], other=0.0)
    return tile


@triton.jit
def log_sum_exp_kernel(
    lse_ptr, picked_ptr, x, w, bias_ptr, target_ptr, x_row, x_col, w_row, w_col, M, V, each,
    H: tl.constexpr, BIAS: tl.constexpr, DESCRIBED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_H: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """log₂ Σ 2^(z · log₂ e) over a part of the classes, and z of the target, of the logits z = x Wᵀ + bias.

    Program (tile, part) has BLOCK_M rows, and walks over the `each` classes of its part in tiles of BLOCK_V; a tile of
    logits is a product over H in steps of BLOCK_H, loaded STAGES ahead. z of the target is stored by the part that the
    target is in. With BIAS there is one; if DESCRIBED, x and w are descriptors.
    """
    first_row, part = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    tile_rows, tile_cols, steps = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_V), tl.arange(0, BLOCK_H)
    rows = first_row + tile_rows
    target = tl.load(target_ptr + rows, mask=rows < M, other=-1)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(part * each, tl.minimum(part * each + each, V), BLOCK_V):
        # A tile of logits, which no memory ever holds.
        z = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
        for h in tl.range(0, H, BLOCK_H, num_stages=STAGES):
            a = tile_at(x, tile_rows, steps, first_row, h, M, H, x_row, x_col, DESCRIBED)
            b = tile_at(w, tile_cols, steps, first, h, V, H, w_row, w_col, DESCRIBED)
            z = tl.dot(a, b.T, z, input_precision="ieee")
        cols = first + tile_cols
        if BIAS:
            z += tl.load(bias_ptr + cols, mask=cols < V, other=0.0).to(tl.float32)[None, :]
        # Most tiles have the target of no row.
        here = (target >= first) & (target < tl.minimum(first + BLOCK_V, V))
        if tl.max(here.to(tl.int32), axis=0) > 0:
            picked = tl.sum(tl.where(cols[None, :] == target[:, None], z, 0.0), axis=1)
            tl.store(picked_ptr + rows, picked, mask=here)
        z = tl.where((cols < V)[None, :], z * LOG2_E, -float("inf"))
        m_new = tl.maximum(m, tl.max(z, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp2(m - shift) + tl.sum(tl.exp2(z - shift[:, None]), axis=1)
        m = m_new
    tl.store(lse_ptr + part * M + rows, m + tl.log2(l), mask=rows < M)


@triton.jit
def scale_kernel(y_ptr, factor_ptr, n, BLOCK: tl.constexpr):
    """y · factor in the memory of y, n elements, BLOCK for each program. If the factor is 1, nothing is moved."""
    factor = tl.load(factor_ptr)
    if factor != 1.0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + at, mask=at < n).to(tl.float32)
        tl.store(y_ptr + at, y * factor, mask=at < n)
