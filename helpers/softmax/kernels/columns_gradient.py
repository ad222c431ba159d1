"""The gradient of softmax over a dimension that others lie behind: y · (dy − Σ dy · y), of contiguous tensors.

Tiles, groups, teams and words are as in `columns`. A part publishes one sum for each neighbour, as a pair whose m is
1: then the pairs merge into the sum.

Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.columns import (
    fetch_words,
    fold_lanes,
    group_and_part,
    lines_of_group_ahead,
    merged_parts,
    pointers_of_tile,
    publish_part,
    publish_team,
    unfold_lanes,
    words_of_group,
    words_of_parts,
)
from helpers.softmax.kernels.shared import NO_POLICY, fetch, in_float32, publish_pair, take_turns


@triton.jit
def columns_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, outer_stride, inner_stride, col_stride, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes dx = y · (dy − Σ dy · y) of WIDTH neighbours in a tile that holds their N ≤ BLOCK columns.

    Both inputs are loaded by the POLICY. All three tensors have the same strides, multiples of VEC.
    """
    # The same places of all three tensors.
    group = tl.program_id(0)
    at, mask = pointers_of_tile(y_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK)
    y = tl.load(at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    at, _ = pointers_of_tile(dy_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK)
    dy = tl.load(at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
    at, _ = pointers_of_tile(dx_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK)
    tl.store(at, y * (dy - tl.sum(y * dy, axis=0)[None, :]), mask=mask)


@triton.jit
def load_both_tiles(
    dy_ptr, y_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """A tile of WIDTH neighbours, VEC at a time, and BLOCK columns of dy and of y, loaded by the POLICY."""
    at, mask = pointers_of_tile(y_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK)
    y = tl.load(at, mask=mask, other=0.0, eviction_policy=POLICY)
    at, _ = pointers_of_tile(dy_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK)
    return tl.load(at, mask=mask, other=0.0, eviction_policy=POLICY), y


@triton.jit
def _sums(dy, y, INNER, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr):
    """Σ dy · y of each of WIDTH neighbours, or in DISTINCT lanes if FOLD are one, as a pair (1, sum)."""
    dot = tl.sum(in_float32(y) * in_float32(dy), axis=0)
    if FOLD > 1:
        dot = tl.sum(fold_lanes(dot, INNER, WIDTH, FOLD, DISTINCT), axis=1)
    return tl.full(dot.shape, 1.0, tl.float32), dot


@triton.jit
def write_gradient_tile(
    dx_ptr, dy, y, dot, group, part, outer_stride, inner_stride, col_stride, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes BLOCK columns of WIDTH neighbours, whose sums are `dot`, FOLD of them the same (VEC as in the kernel)."""
    if FOLD > 1:
        dot = unfold_lanes(dot, INNER, WIDTH, FOLD)
    at, mask = pointers_of_tile(
        dx_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK
    )
    tl.store(at, in_float32(y) * (in_float32(dy) - dot[None, :]), mask=mask)


@triton.jit
def folded_columns_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, outer_stride, inner_stride, col_stride, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes dx = y · (dy − Σ dy · y) over N columns of INNER neighbours, in a tile of WIDTH × BLOCK.

    VEC, FOLD, DISTINCT and POLICY as in `columns.folded_columns_kernel`.
    """
    group = tl.program_id(0)
    dy, y = load_both_tiles(
        dy_ptr, y_ptr, group, 0, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK, POLICY
    )
    _, dot = _sums(dy, y, INNER, WIDTH, FOLD, DISTINCT)
    write_gradient_tile(
        dx_ptr, dy, y, dot, group, 0, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, FOLD, BLOCK
    )


@triton.jit(noinline=True)
def _help_gradient_group(
    dy_ptr, y_ptr, word_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    MATES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes the missing sums of a group, as `columns._help_group` does the pairs.

    Its letters are the kernel's: VEC, WIDTH, FOLD, DISTINCT, TEAM, MATES, BLOCK.
    """
    group, _ = group_and_part(SPLIT)
    of_parts, of_teams, _ = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    for part in tl.range(SPLIT, disable_licm=True):
        place = of_parts + tl.cast(part, tl.int64) * DISTINCT
        if tl.atomic_add(place + DISTINCT - 1, 0, sem="relaxed") == 0:
            dy, y = load_both_tiles(
                dy_ptr, y_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK
            )
            one, dot = _sums(dy, y, INNER, WIDTH, FOLD, DISTINCT)
            publish_pair(place + tl.arange(0, DISTINCT), one, dot)
        if TEAM > 1:
            if (part % TEAM == TEAM - 1) | (part == SPLIT - 1):
                last = tl.cast(part, tl.int64)
                publish_team(of_parts, of_teams, last, tl.full([], 2147483647, tl.int32), DISTINCT, TEAM, MATES)


@triton.jit(noinline=True)
def _begin_gradient_group_again(
    dx_ptr, dy_ptr, y_ptr, word_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loads the program's own tiles again and writes the gradient, now that all sums are there or on their way. Its
    letters are the kernel's: VEC, WIDTH, FOLD, DISTINCT, TEAM, PARTS, BLOCK."""
    group, part = group_and_part(SPLIT)
    dy, y = load_both_tiles(
        dy_ptr, y_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK
    )
    _, of_teams, teams = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    words, _ = words_of_parts(of_teams, teams, tl.full([], 2147483647, tl.int32), DISTINCT, PARTS)
    _, dot = merged_parts(words, teams, PARTS)
    write_gradient_tile(
        dx_ptr, dy, y, dot, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, FOLD, BLOCK
    )


@triton.jit(do_not_specialize=["SPLIT", "looks"])
def shared_columns_gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, word_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT, looks,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    MATES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    TURNS: tl.constexpr = 0, SMS: tl.constexpr = 0, CYCLES: tl.constexpr = 0, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """SPLIT programs write dx = y · (dy − Σ dy · y) over the N columns of WIDTH neighbours, each BLOCK of the columns.

    `word_ptr`, FOLD, DISTINCT, TEAM, MATES, PARTS, `looks`, VEC, POLICY, TURNS and AHEAD are as in
    `columns.shared_columns_kernel`.
    """
    # Both tiles, and the sum of each neighbour.
    take_turns(TURNS, SMS, CYCLES)
    group, part = group_and_part(SPLIT)
    of_parts, of_teams, teams = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    fetch_words(of_parts, of_teams, part, DISTINCT, TEAM)
    dy, y = load_both_tiles(
        dy_ptr, y_ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N, VEC, WIDTH, BLOCK, POLICY
    )
    one, dot = _sums(dy, y, INNER, WIDTH, FOLD, DISTINCT)
    # Publish the sums, and look for those of the teams.
    publish_part(of_parts, of_teams, part, SPLIT, one, dot, looks, DISTINCT, TEAM, MATES)
    if AHEAD > 0:
        strides = outer_stride, inner_stride, col_stride
        fetch(lines_of_group_ahead(dy_ptr, group, part, SPLIT, *strides, INNER, N, WIDTH, BLOCK, AHEAD), POLICY)
        fetch(lines_of_group_ahead(y_ptr, group, part, SPLIT, *strides, INNER, N, WIDTH, BLOCK, AHEAD), POLICY)
    words, complete = words_of_parts(of_teams, teams, looks, DISTINCT, PARTS)
    if complete:
        # Add up and write.
        _, dot = merged_parts(words, teams, PARTS)
        write_gradient_tile(
            dx_ptr, dy, y, dot, group, part, outer_stride, inner_stride, col_stride, INNER, N,
            VEC, WIDTH, FOLD, BLOCK,
        )  # fmt: skip
    else:
        # Help: compute what is missing, then begin again.
        _help_gradient_group(
            dy_ptr, y_ptr, word_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT,
            VEC, WIDTH, FOLD, DISTINCT, TEAM, MATES, BLOCK,
        )  # fmt: skip
        tl.debug_barrier()
        _begin_gradient_group_again(
            dx_ptr, dy_ptr, y_ptr, word_ptr, outer_stride, inner_stride, col_stride, INNER, N, SPLIT,
            VEC, WIDTH, FOLD, DISTINCT, TEAM, PARTS, BLOCK,
        )  # fmt: skip
