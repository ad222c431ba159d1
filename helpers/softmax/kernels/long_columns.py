"""Softmax and its gradient over columns that the programs of the GPU cannot hold together: each element is read twice.

Three launches: a program finds the pair (m, l) of each of WIDTH neighbours in the columns of its part, tile by tile as
in lesson 05; another one merges the pairs of all parts; then each program loads a tile once more and writes it, the
last one first, since what was read last is still in the L2 cache. Where a GPU can, the second and the third launch
begin EARLY, while the one ahead ends, and wait for it where they need its pairs: the first tiles are loaded while pairs
are merged. FOLD columns are taken for one as in `columns`. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.columns import fold_pairs, groups_of, merge, pointers_of_tile
from helpers.softmax.kernels.columns_gradient import load_both_tiles, write_gradient_tile
from helpers.softmax.kernels.shared import COMPILED, LOG2E, LOWEST, in_float32, pair_of_word, word_of_pair


@triton.jit
def _group_and_part(program, INNER, SPLIT, WIDTH: tl.constexpr):
    """Group and part of a program: next to it run the neighbouring groups' programs, WIDTH neighbours further on."""
    groups = groups_of(INNER, WIDTH)
    outer, place = program // (groups * SPLIT), program % (groups * SPLIT)
    return outer * groups + place % groups, place // groups


@triton.jit
def _words(word_ptr, group, part, INNER, SPLIT, WIDTH: tl.constexpr):
    """Pointers to a part's words for WIDTH neighbours, and which of these exist: INNER for each of SPLIT parts."""
    groups = groups_of(INNER, WIDTH)
    neighbours = (group % groups).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    return word_ptr + ((group // groups).to(tl.int64) * SPLIT + part) * INNER + neighbours, neighbours < INNER


@triton.jit
def _write_words(
    word_ptr, m, l, group, part, INNER, SPLIT, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr
):
    """Writes the pairs of WIDTH neighbours in a part, put together in DISTINCT lanes where FOLD of them are one."""
    if FOLD > 1:
        m, l = fold_pairs(m, l, INNER, WIDTH, FOLD, DISTINCT)
    at, exists = _words(word_ptr, group, part, INNER // FOLD, SPLIT, DISTINCT)
    tl.store(at, word_of_pair(m, l), mask=exists)


@triton.jit
def _merged_words(word_ptr, group, INNER, SPLIT, WIDTH: tl.constexpr, FOLD: tl.constexpr):
    """The word of each of WIDTH neighbours after the merge; of the INNER ones, FOLD have the same."""
    at, exists = _words(word_ptr, group, 0, INNER, SPLIT, WIDTH)
    if FOLD > 1:
        groups, apart = groups_of(INNER, WIDTH), INNER // FOLD
        neighbours = (group % groups).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
        at = word_ptr + (group // groups).to(tl.int64) * SPLIT * apart + neighbours % apart
    return tl.load(at, mask=exists, other=0)


@triton.jit
def pairs_of_parts_kernel(
    word_ptr, x_ptr, x_outer, x_inner, x_col, INNER, N, SPLIT, TILES,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes m = max x and l = Σ exp(x − m) of WIDTH neighbours in one part: TILES tiles of BLOCK columns.

    If FOLD neighbours are one softmax, they all are in a tile, and DISTINCT lanes hold all that differ.
    """
    # Merge the pairs of one tile after another, as in lesson 05.
    group, part = _group_and_part(tl.program_id(0), INNER, SPLIT, WIDTH)
    m = tl.full([WIDTH], LOWEST, tl.float32)
    l = tl.zeros([WIDTH], tl.float32)
    for i in range(TILES):
        tile = tl.cast(part, tl.int64) * TILES + i
        at, mask = pointers_of_tile(x_ptr, group, tile, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, BLOCK)
        x = tl.load(at, mask=mask, other=-float("inf"))
        m_tile = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
        m, l = merge(m, l, m_tile, tl.sum(tl.exp2((in_float32(x) - m_tile[None, :]) * LOG2E), axis=0))
    _write_words(word_ptr, m, l, group, part, INNER, SPLIT, WIDTH, FOLD, DISTINCT)


@triton.jit
def sums_of_parts_kernel(
    word_ptr, dy_ptr, y_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT, TILES,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """As `pairs_of_parts_kernel`, with VEC, WIDTH, FOLD, DISTINCT and BLOCK, for Σ dy · y, as a pair whose m is 1."""
    # Add up one tile after another.
    group, part = _group_and_part(tl.program_id(0), INNER, SPLIT, WIDTH)
    dot = tl.zeros([WIDTH], tl.float32)
    for i in range(TILES):
        tile = tl.cast(part, tl.int64) * TILES + i
        dy, y = load_both_tiles(
            dy_ptr, y_ptr, group, tile, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK
        )
        dot += tl.sum(in_float32(y) * in_float32(dy), axis=0)
    one = tl.full([WIDTH], 1.0, tl.float32)
    _write_words(word_ptr, one, dot, group, part, INNER, SPLIT, WIDTH, FOLD, DISTINCT)


@triton.jit
def merge_parts_kernel(word_ptr, INNER, SPLIT, WIDTH: tl.constexpr, PARTS: tl.constexpr, EARLY: tl.constexpr = False):
    """Each program merges the SPLIT pairs of WIDTH neighbours, m = max mᵢ and l = Σ lᵢ · exp(mᵢ − m), PARTS at a time,
    and writes the result over the first part's, which it alone has read. EARLY, it lets the launch behind it begin and
    waits for the one ahead."""
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    # Each lane merges every PARTS-th pair.
    first, exists = _words(word_ptr, tl.program_id(0), 0, INNER, SPLIT, WIDTH)
    parts = tl.arange(0, PARTS)[:, None]
    m = tl.full([PARTS, WIDTH], LOWEST, tl.float32)
    l = tl.zeros([PARTS, WIDTH], tl.float32)
    for begin in range(0, SPLIT, PARTS):
        mask = (begin + parts < SPLIT) & exists[None, :]
        at = first[None, :] + (begin + parts).to(tl.int64) * INNER
        m_part, l_part = pair_of_word(tl.load(at, mask=mask, other=0))
        m, l = merge(m, l, tl.where(mask, m_part, LOWEST), l_part)
    # Then the lanes of a neighbour are merged.
    m_all = tl.max(m, axis=0)
    l_all = tl.sum(l * tl.exp2((m - m_all[None, :]) * LOG2E), axis=0)
    tl.debug_barrier()  # all threads have read
    tl.store(first, word_of_pair(m_all, l_all), mask=exists)


@triton.jit
def write_tiles_kernel(
    y_ptr, word_ptr, x_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT, TILES,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr = False,
):  # fmt: skip
    """Each program writes y = exp(x − m) / l of one of a group's TILES, the last one first: WIDTH neighbours, VEC at a
    time, and BLOCK columns.

    FOLD neighbours are one softmax. EARLY, it waits for the launch ahead when its tile is on the way.
    """
    # The tile is on its way before the pairs are asked for.
    group, tile = _group_and_part(tl.num_programs(0) - 1 - tl.program_id(0), INNER, TILES, WIDTH)
    at, mask = pointers_of_tile(x_ptr, group, tile, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, BLOCK)
    x = tl.load(at, mask=mask, other=-float("inf"))
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_wait()
    m, l = pair_of_word(_merged_words(word_ptr, group, INNER, SPLIT, WIDTH, FOLD))
    at, mask = pointers_of_tile(y_ptr, group, tile, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, BLOCK)
    tl.store(at, tl.exp2((in_float32(x) - m[None, :]) * LOG2E) * (1 / l)[None, :], mask=mask)


@triton.jit
def write_gradient_tiles_kernel(
    dx_ptr, word_ptr, dy_ptr, y_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT, TILES,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr = False,
):  # fmt: skip
    """As `write_tiles_kernel`, with VEC, WIDTH, FOLD, BLOCK and EARLY, for y · (dy − Σ dy · y)."""
    # The tiles are on their way before the sums are asked for.
    group, tile = _group_and_part(tl.num_programs(0) - 1 - tl.program_id(0), INNER, TILES, WIDTH)
    dy, y = load_both_tiles(
        dy_ptr, y_ptr, group, tile, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK
    )
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_wait()
    _, dot = pair_of_word(_merged_words(word_ptr, group, INNER, SPLIT, WIDTH, FOLD))
    write_gradient_tile(
        dx_ptr, dy, y, dot, group, tile, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, 1, BLOCK
    )
