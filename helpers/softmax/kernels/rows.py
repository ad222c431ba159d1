"""Rows in the registers of one program, and how a row of any alignment is moved in whole vectors.

Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import LOG2E, NO_LOG, NO_POLICY, edge, whole_vectors


@triton.jit
def vector_columns(begin, COUNT: tl.constexpr, LANES: tl.constexpr):
    """COUNT columns from `begin` on, as (1, COUNT / LANES, LANES).

    A thread's own elements lie along the middle axis. A tile that is reduced over it first costs one reduction among
    threads, and not one for each vector.
    """
    return (begin + tl.arange(0, COUNT // LANES) * LANES)[None, :, None] + tl.arange(0, LANES)[None, None, :]


@triton.jit
def _softmax_or_log(x, m, e, l, LOG: tl.constexpr):
    """Softmax of x from its exponentials e, or its LOG."""
    return x - m - tl.log(l) if LOG else e * (1 / l)


@triton.jit
def tile_kernel(
    y_ptr, x_ptr, y_stride, x_stride, M, N,
    VEC: tl.constexpr, EDGES: tl.constexpr,
    ROWS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    LOG: tl.constexpr = NO_LOG,
):  # fmt: skip
    """Each program writes y = exp(x − m) / l of ROWS rows of N contiguous columns, held in its registers, or its LOG,
    x − m − log(l).

    It loads up to three pieces of each row and stores each once: a tile of BLOCK columns, a tile of REST columns, and
    the EDGES. Both tiles hold whole vectors of VEC, LANES columns at a time, loaded by the POLICY.
    """
    # Where the rows begin in x and in y, and where their whole vectors do.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = rows * x_stride
    first, n = whole_vectors(start, N, VEC)
    to_y = tl.multiple_of(rows * y_stride - start, VEC)[:, None]
    rows, start, first, n = rows[:, None], start[:, None], first[:, None], n[:, None]
    # Load the pieces, and find m = max x over all of them.
    cols = vector_columns(0, BLOCK, LANES)
    # A mask that is the same for VEC lanes lets the compiler move them with one instruction of 16 bytes.
    mask = (cols // VEC < (n // VEC)[:, None]) & (rows < M)[:, None]
    x = tl.load(x_ptr + first[:, None] + cols, mask=mask, other=-float("inf"), eviction_policy=POLICY).to(tl.float32)
    m = tl.max(x, axis=1)
    if REST:
        cols_rest = vector_columns(BLOCK, REST, LANES)
        mask_rest = (cols_rest // VEC < (n // VEC)[:, None]) & (rows < M)[:, None]
        at_rest = x_ptr + first[:, None] + cols_rest
        x_rest = tl.load(at_rest, mask=mask_rest, other=-float("inf"), eviction_policy=POLICY).to(tl.float32)
        m = tl.maximum(m, tl.max(x_rest, axis=1))
    m = tl.max(m, axis=1)[:, None]
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        exists &= rows < M
        x_edge = tl.load(x_ptr + at, mask=exists, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=1)[:, None])
    # l = Σ exp(x − m). exp2 and one division a row take 2/3 of the instructions of exp and a division an element.
    e = tl.exp2((x - m[:, None]) * LOG2E)
    l = tl.sum(e, axis=1)
    if REST:
        e_rest = tl.exp2((x_rest - m[:, None]) * LOG2E)
        l += tl.sum(e_rest, axis=1)
    l = tl.sum(l, axis=1)[:, None]
    # The edges complete l; then all pieces are written.
    if EDGES:
        e_edge = tl.exp2((x_edge - m) * LOG2E)
        l += tl.sum(e_edge, axis=1)[:, None]
        tl.store(y_ptr + to_y + at, _softmax_or_log(x_edge, m, e_edge, l, LOG), mask=exists)
    if REST:
        y_rest = _softmax_or_log(x_rest, m[:, None], e_rest, l[:, None], LOG)
        tl.store(y_ptr + (to_y + first)[:, None] + cols_rest, y_rest, mask=mask_rest)
    tl.store(y_ptr + (to_y + first)[:, None] + cols, _softmax_or_log(x, m[:, None], e, l[:, None], LOG), mask=mask)
