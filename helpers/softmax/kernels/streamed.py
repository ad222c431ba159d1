"""Softmax over any dimension of any layout, streamed in tiles of several rows; and its gradient.

A tensor is seen as (OUTER, N, INNER), softmax taken over N, where dimensions that one stride runs through are one.

Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.columns import groups_of
from helpers.softmax.kernels.shared import LOG2E, LOWEST


@triton.jit
def strided_kernel(
    y_ptr, x_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program writes y = exp(x − m) / l of WIDTH adjacent rows, streamed twice in tiles of WIDTH × BLOCK columns.

    The recurrence is that of lesson 05, with strides of x and y for each of the three dimensions. m starts from LOWEST
    and not from −inf, so that no difference of two infinities occurs.
    """
    tiles = groups_of(INNER, WIDTH)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    inner = ((tl.program_id(0) % tiles) * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)[:, None]
    x_row = x_ptr + outer * x_outer + inner * x_inner
    y_row = y_ptr + outer * y_outer + inner * y_inner
    m = tl.full([WIDTH, 1], LOWEST, tl.float32)
    l = tl.zeros([WIDTH, 1], tl.float32)
    # m and l, tile by tile.
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK).to(tl.int64)[None, :]
        x = tl.load(x_row + cols * x_col, mask=(inner < INNER) & (cols < N), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1)[:, None])
        l = l * tl.exp2((m - m_new) * LOG2E) + tl.sum(tl.exp2((x - m_new) * LOG2E), axis=1)[:, None]
        m = m_new
    # Load each tile again, and write it.
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK).to(tl.int64)[None, :]
        mask = (inner < INNER) & (cols < N)
        x = tl.load(x_row + cols * x_col, mask=mask, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols * y_col, tl.exp2((x - m) * LOG2E) * (1 / l), mask=mask)


@triton.jit
def strided_gradient_kernel(dx_ptr, dy_ptr, y_ptr, INNER, N, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Each program writes dx = y · (dy − Σ dy · y) for WIDTH adjacent rows, streamed twice in tiles of WIDTH ×
    BLOCK columns; all three tensors are contiguous."""
    tiles = groups_of(INNER, WIDTH)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    inner = ((tl.program_id(0) % tiles) * WIDTH + tl.arange(0, WIDTH)).to(tl.int64)[:, None]
    row = outer * N * INNER + inner
    dot = tl.zeros([WIDTH, 1], tl.float32)
    # Σ dy · y, tile by tile.
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK).to(tl.int64)[None, :]
        mask = (inner < INNER) & (cols < N)
        y = tl.load(y_ptr + row + cols * INNER, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + cols * INNER, mask=mask, other=0.0).to(tl.float32)
        dot += tl.sum(y * dy, axis=1)[:, None]
    # Load each tile again, and write it.
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK).to(tl.int64)[None, :]
        mask = (inner < INNER) & (cols < N)
        y = tl.load(y_ptr + row + cols * INNER, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + cols * INNER, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row + cols * INNER, y * (dy - dot), mask=mask)
