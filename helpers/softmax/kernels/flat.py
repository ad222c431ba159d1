"""Short rows that do not fill whole vectors, and their gradient: moved as the flat memory that they are.

A row of 9 columns of 16 bits begins and ends within vectors of 16 bytes. Moved one by one, its elements take more
instructions than the GPU has time for. Here a program moves many rows, one behind another, as one run of whole vectors;
shared memory hands each thread all columns of its rows, and back. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import LOG2E, NO_POLICY


@triton.jit
def run_of_rows(tile, M, N: tl.constexpr, VEC: tl.constexpr, USED: tl.constexpr, RUN: tl.constexpr):
    """Where the elements of a tile's USED rows of N columns lie, in RUN lanes, and which of them exist: the whole
    vectors that M // VEC · VEC rows fill."""
    lanes = tl.arange(0, RUN)
    first = tile.to(tl.int64) * (USED * N)
    count = tl.minimum(tl.cast(M // VEC, tl.int64) * (VEC * N) - first, USED * N).to(tl.int32)
    return tl.multiple_of(first, VEC) + lanes, lanes // VEC < count // VEC


@triton.jit
def run_as_columns(run, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr):
    """A run as (BLOCK, ROWS): all N columns of a row, and any elements after these. Where there are rows enough, each
    thread has all columns of its rows."""
    places = tl.arange(0, BLOCK)[:, None] + tl.arange(0, ROWS)[None, :] * N
    return tl.reshape(tl.gather(run, tl.reshape(tl.minimum(places, RUN - 1), (BLOCK * ROWS,)), 0), (BLOCK, ROWS))


@triton.jit
def columns_as_run(columns, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr):
    """(BLOCK, ROWS) as a run of RUN lanes, N columns a row."""
    lanes = tl.arange(0, RUN)
    places = lanes % N * ROWS + tl.minimum(lanes // N, ROWS - 1)
    return tl.gather(tl.reshape(columns, (BLOCK * ROWS,)), places, 0)


@triton.jit
def last_rows(M, N: tl.constexpr, VEC: tl.constexpr, BLOCK: tl.constexpr):
    """Where the last rows of N columns lie, fewer than VEC, as (BLOCK, VEC), and which elements exist.

    They end within a vector.
    """
    rows, cols = M // VEC * VEC + tl.arange(0, VEC)[None, :].to(tl.int64), tl.arange(0, BLOCK)[:, None]
    return rows * N + cols, (rows < M) & (cols < N)


@triton.jit
def _softmax_of_columns(x):
    """Softmax over the first dimension."""
    e = tl.exp2((x - tl.max(x, axis=0)[None, :]) * LOG2E)
    return e * (1 / tl.sum(e, axis=0))[None, :]


@triton.jit
def flat_kernel(
    y_ptr, x_ptr, M,
    N: tl.constexpr, VEC: tl.constexpr, USED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes y = exp(x − m) / l of USED rows of N columns, moved as RUN lanes, computed as (BLOCK, ROWS).

    The first one also writes the last rows, fewer than VEC. Runs are loaded by the POLICY.
    """
    # A run of whole vectors: as columns it is computed, and as a run stored.
    at, mask = run_of_rows(tl.program_id(0), M, N, VEC, USED, RUN)
    x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    x = tl.where(tl.arange(0, BLOCK)[:, None] < N, run_as_columns(x, N, ROWS, BLOCK, RUN), -float("inf"))
    tl.store(y_ptr + at, columns_as_run(_softmax_of_columns(x), N, ROWS, BLOCK, RUN), mask=mask)
    # The last rows, one element at a time.
    if (tl.program_id(0) == 0) & (M % VEC > 0):
        at_last, mask_last = last_rows(M, N, VEC, BLOCK)
        x_last = tl.load(x_ptr + at_last, mask=mask_last, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + at_last, _softmax_of_columns(x_last), mask=mask_last)


@triton.jit
def flat_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, M,
    N: tl.constexpr, VEC: tl.constexpr, USED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes dx = y · (dy − Σ dy · y) of USED rows of N columns. Only the sums are made as (BLOCK, ROWS).

    VEC, RUN and POLICY as in `flat_kernel`.
    """
    # Runs of y and dy. The products become columns, and each lane gets the sum of its row.
    at, mask = run_of_rows(tl.program_id(0), M, N, VEC, USED, RUN)
    y = tl.load(y_ptr + at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    products = tl.where(tl.arange(0, BLOCK)[:, None] < N, run_as_columns(y * dy, N, ROWS, BLOCK, RUN), 0.0)
    dot = tl.gather(tl.sum(products, axis=0), tl.minimum(tl.arange(0, RUN) // N, ROWS - 1), 0)
    tl.store(dx_ptr + at, y * (dy - dot), mask=mask)
    # The last rows, one element at a time.
    if (tl.program_id(0) == 0) & (M % VEC > 0):
        at_last, mask_last = last_rows(M, N, VEC, BLOCK)
        y_last = tl.load(y_ptr + at_last, mask=mask_last, other=0.0).to(tl.float32)
        dy_last = tl.load(dy_ptr + at_last, mask=mask_last, other=0.0).to(tl.float32)
        dot_last = tl.sum(y_last * dy_last, axis=0)[None, :]
        tl.store(dx_ptr + at_last, y_last * (dy_last - dot_last), mask=mask_last)
