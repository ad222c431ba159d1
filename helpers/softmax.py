"""softmax(x, dim): a drop-in for torch.softmax that reads and writes each element once, at every row length.

Three forward kernels, chosen by `plan`:

- `tile_kernel`: a row, or several short ones, in the registers of one program;
- `shared_kernel`: a longer row in the registers of several programs, whose pairs (m, l) meet in global memory;
- `strided_kernel`: any other layout, such as a softmax over the channels of an image, streamed as in lesson 05.

Where kernels run interpreted, programs run one after another and cannot wait for each other: there a longer row takes
the two launches of `helpers.kernels.split_row_softmax`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from helpers.kernels import split_row_softmax
from helpers.runtime import DEVICE, INTERPRETED

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

LOOKS = 4096
"""How often a program looks for the pairs of its row, about a microsecond each, before it computes them itself."""


@triton.jit
def _whole_vectors(start, N, V: tl.constexpr):
    """The first address of a row that a load of V elements can start from, and the elements up to its last such one."""
    first = (start + V - 1) // V * V
    return tl.multiple_of(first, V), ((start + N) // V * V - first).to(tl.int32)


@triton.jit
def _edge(start, N, first, n, V: tl.constexpr):
    """The places of the elements before and after the whole vectors, less than V on either side, and which exist."""
    lanes = tl.arange(0, 2 * V)
    at = first + tl.where(lanes < V, lanes - V, n + lanes - V)
    return at, (at >= start) & (at < start + N) & ((lanes < V) | (at >= first))


@triton.jit
def tile_kernel(
    y_ptr, x_ptr, y_stride, x_stride, M, N, V: tl.constexpr, EDGES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    start = rows * x_stride
    first, n = _whole_vectors(start, N, V)
    to_y = tl.multiple_of(rows * y_stride - start, V)[:, None]
    rows, start, first, n = rows[:, None], start[:, None], first[:, None], n[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    # A mask that is the same for V lanes lets the compiler move them with one instruction of 16 bytes.
    mask = (cols // V < n // V) & (rows < M)
    x = tl.load(x_ptr + first + cols, mask=mask, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=1)[:, None]
    if EDGES:
        at, exists = _edge(start, N, first, n, V)
        exists &= rows < M
        x_edge = tl.load(x_ptr + at, mask=exists, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x_edge, axis=1)[:, None])
    # exp2 and one division a row take 2/3 of the instructions of exp and a division an element.
    e = tl.exp2((x - m) * LOG2E)
    l = tl.sum(e, axis=1)[:, None]
    if EDGES:
        e_edge = tl.exp2((x_edge - m) * LOG2E)
        l += tl.sum(e_edge, axis=1)[:, None]
        tl.store(y_ptr + to_y + at, e_edge * (1 / l), mask=exists)
    tl.store(y_ptr + to_y + first + cols, e * (1 / l), mask=mask)


@triton.jit
def _load_slice(x_ptr, start, part, N, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """A program's slice of a row, and the row's edge, which belongs to the first slice."""
    first, n = _whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + first + cols, mask=cols // V < n // V, other=-float("inf"))
    x_edge = tl.full([2 * V], -float("inf"), tl.float32)
    if EDGES:
        at, exists = _edge(start, N, first, n, V)
        x_edge = tl.load(x_ptr + at, mask=exists & (part == 0), other=-float("inf")).to(tl.float32)
    return x, x_edge


@triton.jit
def _pair(x, x_edge, EDGES: tl.constexpr):
    """x itself, and (m, l) of a slice. m is at least the lowest number, so that a slice of only −inf has l = 0 and not NaN."""
    m = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
    if EDGES:
        m = tl.maximum(m, tl.max(x_edge, axis=0))
    x = _packed(x)
    l = tl.sum(tl.exp2((x.to(tl.float32) - m) * LOG2E), axis=0)
    if EDGES:
        l += tl.sum(tl.exp2((x_edge - m) * LOG2E), axis=0)
    return x, m, l


@triton.jit
def _packed(x):
    """x itself. Of 16-bit elements two stay in a register: without this the compiler keeps each as a float32 of its own,
    and half as much of the row would fit on the chip."""
    if x.dtype.primitive_bitwidth == 16:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    return x


@triton.jit
def _publish(word_ptr, m, l):
    """Writes a pair as one 64-bit word, which nobody can see half of: it is value and flag at once.

    No pair is 0, since l ≥ 1 wherever m = 0. No other memory is read because of the word, so relaxed order is enough.
    """
    m_bits = m.to(tl.uint32, bitcast=True).to(tl.uint64)
    l_bits = l.to(tl.uint32, bitcast=True).to(tl.uint64)
    tl.atomic_xchg(word_ptr, ((m_bits << 32) | l_bits).to(tl.int64), sem="relaxed")


@triton.jit
def _pairs_of_row(word_ptr, SPLIT, looks, PARTS: tl.constexpr):
    """The words of the row after at most so many looks at those that are missing, and whether all have come."""
    at = word_ptr + tl.minimum(tl.arange(0, PARTS), SPLIT - 1)
    words = tl.load(at, volatile=True)
    complete = tl.min((words != 0).to(tl.int32), axis=0)
    while (complete == 0) & (looks > 0):
        words |= tl.load(at, mask=words == 0, other=0, volatile=True)
        complete = tl.min((words != 0).to(tl.int32), axis=0)
        looks -= 1
    return words, complete != 0


@triton.jit
def _write_slice(
    y_ptr, words, y_start, start, part, N, SPLIT, x, x_edge,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merges the pairs of the row, always in the same order, and writes the slice."""
    exists = tl.arange(0, PARTS) < SPLIT
    m_parts = tl.where(exists, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), LOWEST)
    l_parts = tl.where(exists, (words & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    m = tl.max(m_parts, axis=0)
    l = tl.sum(l_parts * tl.exp2((m_parts - m) * LOG2E), axis=0)

    first, n = _whole_vectors(start, N, V)
    to_y = tl.multiple_of(y_start - start, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    y = tl.exp2((_packed(x).to(tl.float32) - m) * LOG2E) * (1 / l)
    tl.store(y_ptr + to_y + first + cols, y, mask=cols // V < n // V)
    if EDGES:
        at, exists = _edge(start, N, first, n, V)
        y_edge = tl.exp2((x_edge - m) * LOG2E) * (1 / l)
        tl.store(y_ptr + to_y + at, y_edge, mask=exists & (part == 0))


@triton.jit(noinline=True)
def _help(
    y_ptr, x_ptr, word_ptr, y_start, start, part, N, SPLIT,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes the pairs that have not come, then does the program's own slice anew.

    Out of line, so that this rare path takes no registers from the usual one.
    """
    for i in range(1, SPLIT):
        other = (part + i) % SPLIT
        if tl.load(word_ptr + other, volatile=True) == 0:
            x, x_edge = _load_slice(x_ptr, start, other, N, V, EDGES, BLOCK)
            _, m, l = _pair(x, x_edge, EDGES)
            _publish(word_ptr + other, m, l)
    x, x_edge = _load_slice(x_ptr, start, part, N, V, EDGES, BLOCK)
    words = tl.load(word_ptr + tl.minimum(tl.arange(0, PARTS), SPLIT - 1), volatile=True)
    _write_slice(y_ptr, words, y_start, start, part, N, SPLIT, x, x_edge, V, EDGES, PARTS, BLOCK)


@triton.jit
def shared_kernel(
    y_ptr, x_ptr, word_ptr, y_stride, x_stride, N, SPLIT, looks,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    start = row * x_stride
    word_ptr += row * SPLIT
    x, x_edge = _load_slice(x_ptr, start, part, N, V, EDGES, BLOCK)
    x, m, l = _pair(x, x_edge, EDGES)
    _publish(word_ptr + part, m, l)
    # Programs that hold the GPU while they wait for programs that cannot start would wait for ever: so no wait is endless.
    words, complete = _pairs_of_row(word_ptr, SPLIT, looks, PARTS)
    if complete:
        _write_slice(y_ptr, words, row * y_stride, start, part, N, SPLIT, x, x_edge, V, EDGES, PARTS, BLOCK)
    else:
        _help(y_ptr, x_ptr, word_ptr, row * y_stride, start, part, N, SPLIT, V, EDGES, PARTS, BLOCK)
