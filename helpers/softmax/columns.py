"""Softmax over a dimension that others lie behind or between, such as the channels of an image: one load and one store.

A tensor is seen as (OUTER, N, INNER), softmax taken over N, where dimensions that one stride runs through are one. A
group is WIDTH neighbours along INNER; a program holds a tile of BLOCK columns of a group, in which the columns of a
neighbour are one softmax. Where one tile does not hold all N columns, the SPLIT programs of a group meet as those of a
row do in `shared.py`, with a word for each neighbour. The letters are those of `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.rows import LOG2E
from helpers.softmax.shared import LOWEST, packed, publish_pair


@triton.jit
def _pointers(
    ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N,
    V: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pointers to a tile of BLOCK columns and WIDTH neighbours, and which of its elements exist.

    INNER and the strides are multiples of V, so that V neighbours exist together. Within a tile, places are 32-bit
    numbers, which take half the registers. Where it begins is a 64-bit number from the first multiplication on: Triton
    3.6 puts a 32-bit one beside the thread's number in a vector, and shifts bits of that into it.
    """
    if V > 1:
        outer_stride, col_stride = tl.multiple_of(outer_stride, V), tl.multiple_of(col_stride, V)
    tiles = tl.cdiv(INNER, WIDTH)
    outer, first_inner = (group // tiles).to(tl.int64), (group % tiles).to(tl.int64) * WIDTH
    first_col = tl.cast(part, tl.int64) * BLOCK
    neighbours, cols = tl.arange(0, WIDTH)[None, :], tl.arange(0, BLOCK)[:, None]
    mask = (neighbours // V < (INNER - first_inner).to(tl.int32) // V) & (cols < (N - first_col).to(tl.int32))
    first = outer * outer_stride + first_inner * inner_stride + first_col * col_stride
    return ptr + first + (neighbours * inner_stride + cols * col_stride), mask


@triton.jit
def columns_kernel(
    y_ptr, x_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N,
    V: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes a group: WIDTH neighbours in a tile that holds all their N columns, at most BLOCK."""
    group = tl.program_id(0)
    x_at, mask = _pointers(x_ptr, group, 0, x_outer, x_inner, x_col, INNER, N, V, WIDTH, BLOCK)
    x = tl.load(x_at, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp2((x - tl.max(x, axis=0)[None, :]) * LOG2E)
    y_at, mask = _pointers(y_ptr, group, 0, y_outer, y_inner, y_col, INNER, N, V, WIDTH, BLOCK)
    tl.store(y_at, e * (1 / tl.sum(e, axis=0))[None, :], mask=mask)


@triton.jit
def columns_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, outer_stride, inner_stride, col_stride, INNER, N,
    V: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes y · (dy − Σ dy · y) of WIDTH neighbours in a tile that holds their N columns, at most BLOCK.

    All three tensors have the same strides.
    """
    group = tl.program_id(0)
    at, mask = _pointers(y_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, V, WIDTH, BLOCK)
    y = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    at, _ = _pointers(dy_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, V, WIDTH, BLOCK)
    dy = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    at, _ = _pointers(dx_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, V, WIDTH, BLOCK)
    tl.store(at, y * (dy - tl.sum(y * dy, axis=0)[None, :]), mask=mask)


@triton.jit
def _load_tile(
    x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, V: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """A tile of WIDTH neighbours and BLOCK columns, and (m, l) of each neighbour; LOWEST and 0 where nothing exists."""
    at, mask = _pointers(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, V, WIDTH, BLOCK)
    x = tl.load(at, mask=mask, other=-float("inf"))
    m = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
    x = packed(x)
    l = tl.sum(tl.exp2((x.to(tl.float32) - m[None, :]) * LOG2E), axis=0)
    return x, m, l


@triton.jit
def _write_tile(
    y_ptr, x, words, group, part, y_outer, y_inner, y_col, INNER, N, SPLIT,
    V: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merges the SPLIT pairs of each of WIDTH neighbours, in PARTS lanes and always in the same order, and writes BLOCK
    columns."""
    exists = (tl.arange(0, PARTS) < SPLIT)[:, None]
    m_parts = tl.where(exists, (words >> 32).to(tl.int32).to(tl.float32, bitcast=True), LOWEST)
    l_parts = tl.where(exists, (words & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True), 0.0)
    m = tl.max(m_parts, axis=0)
    l = tl.sum(l_parts * tl.exp2((m_parts - m[None, :]) * LOG2E), axis=0)
    e = tl.exp2((packed(x).to(tl.float32) - m[None, :]) * LOG2E)
    at, mask = _pointers(y_ptr, group, part, y_outer, y_inner, y_col, INNER, N, V, WIDTH, BLOCK)
    tl.store(at, e * (1 / l)[None, :], mask=mask)


@triton.jit
def _word_places(word_ptr, group, SPLIT, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Pointers to the words of a group: PARTS × WIDTH, of which those past the last part point to that one again."""
    parts = tl.minimum(tl.arange(0, PARTS), SPLIT - 1)
    return word_ptr + (group.to(tl.int64) * SPLIT + parts[:, None]) * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def _words_of_group(at, looks):
    """The words at these places after at most `looks` polls of the missing ones, and whether all have come."""
    words = tl.load(at, volatile=True)
    complete = tl.min(tl.min((words != 0).to(tl.int32), axis=1), axis=0)
    while (complete == 0) & (looks > 0):
        words |= tl.load(at, mask=words == 0, other=0, volatile=True)
        complete = tl.min(tl.min((words != 0).to(tl.int32), axis=1), axis=0)
        looks -= 1
    return words, complete != 0


@triton.jit
def _place_of_program(SPLIT, NEAR):
    """Group and part of this program. NEAR groups beside each other run at the same time: they share lines of DRAM."""
    begun = tl.program_id(0) // (SPLIT * NEAR)
    return begun * NEAR + tl.program_id(0) % NEAR, tl.program_id(0) % (SPLIT * NEAR) // NEAR


@triton.jit(noinline=True)
def _help_group(
    x_ptr, word_ptr, x_outer, x_inner, x_col, INNER, N, SPLIT, NEAR,
    V: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes the missing pairs of a group, WIDTH for each BLOCK columns (V, as in the kernel). Out of line, as in
    `shared.py`."""
    group, _ = _place_of_program(SPLIT, NEAR)
    for part in tl.range(SPLIT, disable_licm=True):
        place = word_ptr + (group.to(tl.int64) * SPLIT + part) * WIDTH
        # Atomics answer all warps alike. Whoever publishes the last word of a part publishes all of them.
        if tl.atomic_add(place + WIDTH - 1, 0, sem="relaxed") == 0:
            x, m, l = _load_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, V, WIDTH, BLOCK)
            publish_pair(place + tl.arange(0, WIDTH), m, l)


@triton.jit(noinline=True)
def _begin_group_again(
    y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT, NEAR,
    V: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loads the program's own tile again and writes it, now that all pairs are there or, of parts that others publish,
    on their way. Its letters are the kernel's: V, WIDTH, PARTS, BLOCK."""
    group, part = _place_of_program(SPLIT, NEAR)
    x, _, _ = _load_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, V, WIDTH, BLOCK)
    words, _ = _words_of_group(_word_places(word_ptr, group, SPLIT, WIDTH, PARTS), tl.full([], 2147483647, tl.int32))
    _write_tile(
        y_ptr, x, words, group, part, y_outer, y_inner, y_col, INNER, N, SPLIT, V, WIDTH, PARTS, BLOCK
    )  # fmt: skip


@triton.jit(do_not_specialize=["GROUPS", "SPLIT", "NEAR", "looks"])
def shared_columns_kernel(
    y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, GROUPS, SPLIT, NEAR, looks,
    V: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SPLIT programs write a group of WIDTH neighbours, each BLOCK of their N columns.

    `word_ptr` points to (GROUPS, SPLIT, WIDTH) zeros of int64, through which the programs of a group exchange their
    pairs; each loads those of its group in PARTS × WIDTH lanes, up to 1 + `looks` times, and computes those that are
    missing then.
    """
    group, part = _place_of_program(SPLIT, NEAR)
    if group < GROUPS:
        x, m, l = _load_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, V, WIDTH, BLOCK)
        publish_pair(word_ptr + (group.to(tl.int64) * SPLIT + part) * WIDTH + tl.arange(0, WIDTH), m, l)
        words, complete = _words_of_group(_word_places(word_ptr, group, SPLIT, WIDTH, PARTS), looks)
        if complete:
            _write_tile(
                y_ptr, x, words, group, part, y_outer, y_inner, y_col, INNER, N, SPLIT, V, WIDTH, PARTS, BLOCK
            )  # fmt: skip
        else:
            _help_group(x_ptr, word_ptr, x_outer, x_inner, x_col, INNER, N, SPLIT, NEAR, V, WIDTH, BLOCK)
            tl.debug_barrier()
            _begin_group_again(
                y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT, NEAR,
                V, WIDTH, PARTS, BLOCK,
            )  # fmt: skip
