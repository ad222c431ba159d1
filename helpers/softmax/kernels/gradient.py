"""The gradient of softmax over rows: dx = y · (dy − Σ dy · y), each element of y and dy loaded once.

As in the forward pass, a row, or several short ones, lies in the registers of one program (`rows.py`), and a longer row
in several programs' tiles, whose sums meet in global memory (`shared.py`). y, dy and dx are contiguous. A tile also has
the gradient of log-softmax: dy − exp(y) · Σ dy.
Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.rows import vector_columns
from helpers.softmax.kernels.shared import (
    NO_LOG,
    NO_POLICY,
    edge,
    fetch,
    in_float32,
    load_slice,
    pair_of_word,
    pairs_of_row,
    part_row_and_split,
    places_of_words,
    publish_pair,
    take_turns,
    whole_vectors,
)


@triton.jit
def _summand(y, dy, LOG: tl.constexpr):
    """What is summed over a row: dy · y or, where y is a LOG, dy."""
    return dy if LOG else y * dy


@triton.jit
def _slope(y, dy, total, LOG: tl.constexpr):
    """dx of softmax or its LOG, from the sum over the row."""
    return dy - tl.exp(y) * total if LOG else y * (dy - total)


@triton.jit
def tile_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, M, N,
    VEC: tl.constexpr, EDGES: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY, LOG: tl.constexpr = NO_LOG,
):  # fmt: skip
    """Each program writes dx = y · (dy − Σ dy · y) of ROWS rows of N columns: a tile of BLOCK columns and the EDGES.

    The tile holds whole vectors of VEC, LANES columns at a time, loaded by the POLICY. With LOG, y is the logarithm of
    softmax, and its gradient dy − exp(y) · Σ dy.
    """
    # Where the rows begin, and where their whole vectors do.
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = rows * N
    first, n = whole_vectors(start, N, VEC)
    rows, start, first, n = rows[:, None], start[:, None], first[:, None], n[:, None]
    cols = vector_columns(0, BLOCK, LANES)
    mask = (cols // VEC < (n // VEC)[:, None]) & (rows < M)[:, None]
    at_tile = first[:, None] + cols
    # Load both tiles, and add up over them and the edges; then write.
    y = tl.load(y_ptr + at_tile, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    dy = tl.load(dy_ptr + at_tile, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    dot = tl.sum(tl.sum(_summand(y, dy, LOG), axis=1), axis=1)[:, None]
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        exists &= rows < M
        y_edge = tl.load(y_ptr + at, mask=exists, other=0.0).to(tl.float32)
        dy_edge = tl.load(dy_ptr + at, mask=exists, other=0.0).to(tl.float32)
        dot += tl.sum(_summand(y_edge, dy_edge, LOG), axis=1)[:, None]
        tl.store(dx_ptr + at, _slope(y_edge, dy_edge, dot, LOG), mask=exists)
    tl.store(dx_ptr + at_tile, _slope(y, dy, dot[:, None], LOG), mask=mask)


@triton.jit
def _load_both(
    dy_ptr, y_ptr, start, part, N,
    VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """A slice of BLOCK columns of y and of dy, their edges (EDGES, VEC), and the sum of all the products (POLICY as in
    the kernel)."""
    y, y_edge = load_slice(y_ptr, start, part, N, VEC, EDGES, BLOCK, 0.0, POLICY)
    dy, dy_edge = load_slice(dy_ptr, start, part, N, VEC, EDGES, BLOCK, 0.0, POLICY)
    dot = tl.sum(in_float32(y) * in_float32(dy), axis=0)
    if EDGES:
        dot += tl.sum(y_edge * dy_edge, axis=0)
    return y, dy, y_edge, dy_edge, dot


@triton.jit
def _publish_sum(word_ptr, dot):
    """Writes a sum as one word, which is never 0: its upper half is the pair's first number, here always 1."""
    publish_pair(word_ptr, tl.full([], 1.0, tl.float32), dot)


@triton.jit
def _write_gradient_slice(
    dx_ptr, words, start, part, N, SPLIT, y, dy, y_edge, dy_edge,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Adds the SPLIT sums of the row, in PARTS lanes and always in the same order, and writes BLOCK columns.

    They are whole vectors of VEC; with EDGES, the first slice also has the row's edge.
    """
    _, sums = pair_of_word(words)
    dot = tl.sum(tl.where(tl.arange(0, PARTS) < SPLIT, sums, 0.0), axis=0)
    first, n = whole_vectors(start, N, VEC)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    y, dy = in_float32(y), in_float32(dy)
    tl.store(dx_ptr + first + cols, y * (dy - dot), mask=cols // VEC < n // VEC)
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        tl.store(dx_ptr + at, y_edge * (dy_edge - dot), mask=exists & (part == 0))


@triton.jit(noinline=True)
def _help_gradient(dy_ptr, y_ptr, word_ptr, N, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """Computes the missing sums of the row, a slice of BLOCK columns each (VEC and EDGES as in the kernel)."""
    _, row, SPLIT = part_row_and_split()
    word_ptr += row * SPLIT
    for part in tl.range(SPLIT, disable_licm=True):
        if tl.atomic_add(word_ptr + part, 0, sem="relaxed") == 0:
            y, dy, y_edge, dy_edge, dot = _load_both(dy_ptr, y_ptr, row * N, part, N, VEC, EDGES, BLOCK)
            _publish_sum(word_ptr + part, dot)


@triton.jit(noinline=True)
def _begin_gradient_again(
    dx_ptr, dy_ptr, y_ptr, word_ptr, N, VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Loads the program's own slice again and writes it, now that all sums are there: BLOCK columns, PARTS words, VEC
    and EDGES, as in the kernel."""
    part, row, SPLIT = part_row_and_split()
    y, dy, y_edge, dy_edge, _ = _load_both(dy_ptr, y_ptr, row * N, part, N, VEC, EDGES, BLOCK)
    words = tl.load(places_of_words(word_ptr + row * SPLIT, SPLIT, PARTS), volatile=True)
    _write_gradient_slice(
        dx_ptr, words, row * N, part, N, SPLIT, y, dy, y_edge, dy_edge, VEC, EDGES, PARTS, BLOCK
    )  # fmt: skip


@triton.jit(do_not_specialize=["looks"])
def shared_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, word_ptr, M, N, looks,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    TURNS: tl.constexpr = 0, SMS: tl.constexpr = 0, CYCLES: tl.constexpr = 0, PAUSE: tl.constexpr = 0,
):  # fmt: skip
    """SPLIT programs write dx = y · (dy − Σ dy · y) for each of M rows of N columns, each a slice of BLOCK columns.

    They exchange the sums of their slices as `shared` explains: `word_ptr` points to (M, SPLIT) zeros of int64.
    """
    part, row, SPLIT = part_row_and_split()
    take_turns(TURNS, SMS, CYCLES)
    if row < M:
        # Both slices, and their sum.
        word_row = word_ptr + row * SPLIT
        fetch(word_row + part)
        y, dy, y_edge, dy_edge, dot = _load_both(dy_ptr, y_ptr, row * N, part, N, VEC, EDGES, BLOCK, POLICY)
        # Publish the sum, and look for the sums of the others.
        _publish_sum(word_row + part, dot)
        words, complete = pairs_of_row(word_row, SPLIT, looks, PARTS, PAUSE)
        if complete:
            # Add up and write.
            _write_gradient_slice(
                dx_ptr, words, row * N, part, N, SPLIT, y, dy, y_edge, dy_edge, VEC, EDGES, PARTS, BLOCK
            )  # fmt: skip
        else:
            # Help: compute what is missing, then begin again.
            _help_gradient(dy_ptr, y_ptr, word_ptr, N, VEC, EDGES, BLOCK)
            tl.debug_barrier()  # what one thread has published, all threads read
            _begin_gradient_again(dx_ptr, dy_ptr, y_ptr, word_ptr, N, VEC, EDGES, PARTS, BLOCK)


@triton.jit
def log_gradient_kernel(dx_ptr, dy_ptr, y_ptr, N, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    """Each program writes dx = dy − exp(y) · Σ dy for a row of N columns; one that is not WHOLE is streamed twice."""
    # Σ dy; a row that is WHOLE is written at once.
    row = tl.program_id(0).to(tl.int64) * N
    total = 0.0
    for begin in range(0, N, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += tl.sum(dy, axis=0)
        if WHOLE:
            y = tl.load(y_ptr + row + cols, mask=cols < N).to(tl.float32)
            tl.store(dx_ptr + row + cols, dy - tl.exp(y) * total, mask=cols < N)
    # Load a longer row again, and write it.
    if not WHOLE:
        for begin in range(0, N, BLOCK):
            cols = begin + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row + cols, mask=cols < N).to(tl.float32)
            y = tl.load(y_ptr + row + cols, mask=cols < N).to(tl.float32)
            tl.store(dx_ptr + row + cols, dy - tl.exp(y) * total, mask=cols < N)
