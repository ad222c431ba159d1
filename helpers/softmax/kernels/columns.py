"""Softmax over a dimension that others lie behind or between, such as the channels of an image.

A tensor is seen as (OUTER, N, INNER), softmax taken over N, where dimensions that one stride runs through are one. A
group is WIDTH neighbours along INNER; a program holds a tile of BLOCK columns of a group, in which the columns of a
neighbour are one softmax. Where one tile does not hold all N columns, the SPLIT programs of a group meet as a row's
programs do in `shared.py`, with a word for each neighbour; its last program merges the words of a TEAM. Longer columns
than all programs together can hold are in `long_columns.py`. Letters as in `helpers.softmax`.

Few neighbours that do not fill vectors of 16 bytes, such as the 7 × 7 places of an image, would be moved one by one.
FOLD columns of them together do: they are taken for one column, in whose lanes each neighbour occurs FOLD times. What
these lanes know is put together afterwards.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import (
    COMPILED,
    LOG2E,
    LOWEST,
    NO_POLICY,
    fetch,
    in_float32,
    pair_of_word,
    publish_pair,
    rounded,
    take_turns,
)


@triton.jit
def groups_of(INNER, WIDTH: tl.constexpr):
    """How many groups of WIDTH the INNER neighbours are: as tl.cdiv, whose sum can exceed 32 bits where they do not."""
    return (INNER - 1) // WIDTH + 1


@triton.jit
def pointers_of_tile(
    ptr, group, part, outer_stride, inner_stride, col_stride, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pointers to a tile of BLOCK columns and WIDTH neighbours, and which of its elements exist.

    INNER and the strides are multiples of VEC, so that VEC neighbours exist together. Within a tile, places are 32-bit
    numbers, which take half the registers. Where it begins is a 64-bit number from the first multiplication on: Triton
    3.6 puts a 32-bit one next to the thread's number in a vector, and shifts bits of that into it.
    """
    if VEC > 1:  # said of a kernel's own argument, tl.multiple_of would not reach the compiler
        outer_stride, col_stride = outer_stride // VEC * VEC, col_stride // VEC * VEC
    tiles = groups_of(INNER, WIDTH)
    outer, first_inner = (group // tiles).to(tl.int64), (group % tiles).to(tl.int64) * WIDTH
    first_col = tl.cast(part, tl.int64) * BLOCK
    neighbours, cols = tl.arange(0, WIDTH)[None, :], tl.arange(0, BLOCK)[:, None]
    n_inner = tl.minimum(INNER - first_inner, WIDTH).to(tl.int32)
    mask = (neighbours // VEC < n_inner // VEC) & (cols < (N - first_col).to(tl.int32))
    first = outer * outer_stride + first_inner * inner_stride + first_col * col_stride
    return ptr + first + (neighbours * inner_stride + cols * col_stride), mask


@triton.jit
def _load_columns(
    x_ptr, group, part, x_outer, x_inner, x_col, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr,
):  # fmt: skip
    """A tile of WIDTH neighbours and BLOCK columns, loaded by the POLICY.

    What is loaded one by one is float32 at once: nothing is gained by two to a register if each came by itself.
    """
    at, mask = pointers_of_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, BLOCK)
    x = tl.load(at, mask=mask, other=-float("inf"), eviction_policy=POLICY)
    return x.to(tl.float32) if VEC == 1 else x


@triton.jit
def columns_kernel(
    y_ptr, x_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, REST: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes y = exp(x − m) / l of a group: WIDTH neighbours, whose N columns lie in tiles of BLOCK and
    REST columns, loaded by the POLICY."""
    # Load both tiles, and find m = max x of each neighbour.
    group = tl.program_id(0)
    x = _load_columns(x_ptr, group, 0, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, BLOCK, POLICY)
    m = tl.max(x.to(tl.float32), axis=0)
    if REST:
        part = BLOCK // REST
        x_rest = _load_columns(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, REST, POLICY)
        m = tl.maximum(m, tl.max(x_rest.to(tl.float32), axis=0))
    # l = Σ exp(x − m); then both tiles are written.
    l = tl.sum(tl.exp2((in_float32(x) - m[None, :]) * LOG2E), axis=0)
    if REST:
        l += tl.sum(tl.exp2((in_float32(x_rest) - m[None, :]) * LOG2E), axis=0)
        at, mask = pointers_of_tile(y_ptr, group, BLOCK // REST, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, REST)
        tl.store(at, tl.exp2((in_float32(x_rest) - m[None, :]) * LOG2E) * (1 / l)[None, :], mask=mask)
    at, mask = pointers_of_tile(y_ptr, group, 0, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, BLOCK)
    tl.store(at, tl.exp2((in_float32(x) - m[None, :]) * LOG2E) * (1 / l)[None, :], mask=mask)


@triton.jit
def fold_lanes(values, INNER, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr):
    """WIDTH values of INNER lanes as (DISTINCT, FOLD): all that belong to one softmax side by side."""
    lanes = tl.arange(0, DISTINCT)[:, None] + tl.arange(0, FOLD)[None, :] * (INNER // FOLD)
    lanes = tl.minimum(tl.reshape(lanes, (DISTINCT * FOLD,)), WIDTH - 1)
    return tl.reshape(tl.gather(values, lanes, 0), (DISTINCT, FOLD))


@triton.jit
def fold_pairs(m, l, INNER, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr):
    """The pairs of WIDTH values of INNER lanes put together to one for each of DISTINCT softmaxes, in FOLD lanes."""
    m_parts, l_parts = fold_lanes(m, INNER, WIDTH, FOLD, DISTINCT), fold_lanes(l, INNER, WIDTH, FOLD, DISTINCT)
    m = tl.max(m_parts, axis=1)
    return m, tl.sum(rounded(l_parts, tl.exp2((m_parts - m[:, None]) * LOG2E)), axis=1)


@triton.jit
def unfold_lanes(values, INNER, WIDTH: tl.constexpr, FOLD: tl.constexpr):
    """For each of WIDTH lanes the value of its softmax, to which FOLD of the INNER lanes belong."""
    return tl.gather(values, tl.arange(0, WIDTH) % (INNER // FOLD), 0)


@triton.jit
def _load_tile(
    x_ptr, group, part, x_outer, x_inner, x_col, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """A tile of WIDTH neighbours and BLOCK columns, and (m, l) of each neighbour, in DISTINCT lanes if FOLD are one;
    LOWEST and 0 where nothing exists."""
    at, mask = pointers_of_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, BLOCK)
    x = tl.load(at, mask=mask, other=-float("inf"), eviction_policy=POLICY)
    m = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
    l = tl.sum(tl.exp2((in_float32(x) - m[None, :]) * LOG2E), axis=0)
    if FOLD > 1:
        m, l = fold_pairs(m, l, INNER, WIDTH, FOLD, DISTINCT)
    return x, m, l


@triton.jit
def _write_tile(
    y_ptr, x, m, l, group, part, y_outer, y_inner, y_col, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes BLOCK columns of WIDTH neighbours, whose pairs are m and l, FOLD of them the same."""
    one_over_l = 1 / l
    if FOLD > 1:
        m, one_over_l = unfold_lanes(m, INNER, WIDTH, FOLD), unfold_lanes(one_over_l, INNER, WIDTH, FOLD)
    e = tl.exp2((in_float32(x) - m[None, :]) * LOG2E)
    at, mask = pointers_of_tile(y_ptr, group, part, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, BLOCK)
    tl.store(at, e * one_over_l[None, :], mask=mask)


@triton.jit
def folded_columns_kernel(
    y_ptr, x_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """Each program writes y = exp(x − m) / l over N columns of INNER neighbours, in a tile of WIDTH × BLOCK.

    FOLD neighbours are one softmax: DISTINCT lanes hold all that differ.
    """
    group = tl.program_id(0)
    x, m, l = _load_tile(x_ptr, group, 0, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, FOLD, DISTINCT, BLOCK, POLICY)
    _write_tile(y_ptr, x, m, l, group, 0, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, FOLD, BLOCK)


@triton.jit
def _word_places(word_ptr, count, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Pointers to WIDTH words of `count` parts, in WIDTH × PARTS lanes. Those past the last part point to it again.

    A tile has its neighbours in the other dimension, so that no layout fits both. Where one does, Triton 3.6 and 3.7
    move the whole tile into the words' layout, and back for the store.
    """
    parts = tl.minimum(tl.arange(0, PARTS), count - 1).to(tl.int64)
    return word_ptr + parts[None, :] * WIDTH + tl.arange(0, WIDTH)[:, None]


@triton.jit
def words_of_parts(word_ptr, count, looks, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The words of `count` parts after at most `looks` polls of the missing ones, and whether all have come."""
    at = _word_places(word_ptr, count, WIDTH, PARTS)
    words = tl.load(at, volatile=True)
    complete = tl.min((words != 0).to(tl.int32))
    while (complete == 0) & (looks > 0):
        words |= tl.load(at, mask=words == 0, other=0, volatile=True)
        complete = tl.min((words != 0).to(tl.int32))
        looks -= 1
    return words, complete != 0


@triton.jit
def merge(m, l, m_other, l_other):
    """Two pairs as one."""
    m_new = tl.maximum(m, m_other)
    l, l_other = rounded(l, tl.exp2((m - m_new) * LOG2E)), rounded(l_other, tl.exp2((m_other - m_new) * LOG2E))
    return m_new, l + l_other


@triton.jit
def merged_parts(words, count, PARTS: tl.constexpr):
    """(m, l) of each neighbour from the words of `count` parts in PARTS lanes, always in the same order."""
    exists = (tl.arange(0, PARTS) < count)[None, :]
    m_parts, l_parts = pair_of_word(words)
    m_parts, l_parts = tl.where(exists, m_parts, LOWEST), tl.where(exists, l_parts, 0.0)
    if COMPILED:
        m, l = tl.reduce((m_parts, l_parts), 1, merge)
    else:  # element by element in Python, the interpreter would take too long
        m = tl.max(m_parts, axis=1)
        l = tl.sum(l_parts * tl.exp2((m_parts - m[:, None]) * LOG2E), axis=1)
    return m, l


@triton.jit
def words_of_group(word_ptr, group, SPLIT, WIDTH: tl.constexpr, TEAM: tl.constexpr):
    """Where the words of a group's parts begin, where its teams' do, and the number of teams.

    A TEAM of one has no words of its own.
    """
    teams = tl.cdiv(SPLIT, TEAM)
    if TEAM == 1:
        of_parts = word_ptr + group.to(tl.int64) * SPLIT * WIDTH
        of_teams = of_parts
    else:
        of_parts = word_ptr + group.to(tl.int64) * (SPLIT + teams) * WIDTH
        of_teams = of_parts + tl.cast(SPLIT, tl.int64) * WIDTH
    return of_parts, of_teams, teams


@triton.jit
def fetch_words(of_parts, of_teams, part, WIDTH: tl.constexpr, TEAM: tl.constexpr):
    """Brings the lines of WIDTH words that a part will write into the L2 cache, and those of its TEAM."""
    lanes = tl.arange(0, WIDTH)
    fetch(of_parts + part.to(tl.int64) * WIDTH + lanes)
    if TEAM > 1:
        fetch(of_teams + (part // TEAM).to(tl.int64) * WIDTH + lanes)


@triton.jit
def publish_part(
    of_parts, of_teams, part, SPLIT, m, l, looks, WIDTH: tl.constexpr, TEAM: tl.constexpr, MATES: tl.constexpr
):
    """Writes WIDTH pairs of a part and, if it is the last of its TEAM, waits for the others and writes what they make.

    The words of the TEAM are loaded in MATES lanes for each neighbour; if they do not all come, nothing is written.
    """
    part = tl.cast(part, tl.int64)
    publish_pair(of_parts + part * WIDTH + tl.arange(0, WIDTH), m, l)
    if TEAM > 1:
        if (part % TEAM == TEAM - 1) | (part == SPLIT - 1):
            publish_team(of_parts, of_teams, part, looks, WIDTH, TEAM, MATES)


@triton.jit
def publish_team(of_parts, of_teams, part, looks, WIDTH: tl.constexpr, TEAM: tl.constexpr, MATES: tl.constexpr):
    """Merges the pairs of the TEAM whose last part is `part`, WIDTH of each, loaded in MATES lanes, if all come."""
    team = part // TEAM
    count = (part + 1 - team * TEAM).to(tl.int32)
    words, complete = words_of_parts(of_parts + team * (TEAM * WIDTH), count, looks, WIDTH, MATES)
    if complete:
        m, l = merged_parts(words, count, MATES)
        publish_pair(of_teams + team * WIDTH + tl.arange(0, WIDTH), m, l)


@triton.jit
def group_and_part(SPLIT):
    """The group that the program shares, and the part of it that is its own."""
    return tl.program_id(0) // SPLIT, tl.program_id(0) % SPLIT


@triton.jit
def lines_of_group_ahead(
    x_ptr, group, part, SPLIT, outer_stride, inner_stride, col_stride, INNER, N,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """A pointer into each line of half the tile of the same part, AHEAD groups further, as `shared.lines_ahead`: where
    neighbours lie apart, into some of its lines."""
    LINE: tl.constexpr = 1024 // x_ptr.dtype.element_ty.primitive_bitwidth
    LINES: tl.constexpr = (WIDTH + LINE - 1) // LINE
    HALF: tl.constexpr = BLOCK // 2 if BLOCK > 1 else 1
    tiles, group = groups_of(INNER, WIDTH), tl.minimum(group + AHEAD, tl.num_programs(0) // SPLIT - 1)
    outer, first_inner = (group // tiles).to(tl.int64), (group % tiles).to(tl.int64) * WIDTH
    inner = tl.minimum(first_inner + tl.arange(0, LINES)[None, :] * LINE, INNER - 1)
    cols = tl.minimum(part * BLOCK + tl.arange(0, HALF)[:, None], N - 1).to(tl.int64)
    return x_ptr + outer * outer_stride + inner * inner_stride + cols * col_stride


@triton.jit(noinline=True)
def _help_group(
    x_ptr, word_ptr, x_outer, x_inner, x_col, INNER, N, SPLIT,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    MATES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes the missing pairs of a group, DISTINCT for each BLOCK columns, and merges each TEAM's.

    VEC, WIDTH, FOLD and MATES as in the kernel. Out of line, as in `shared.py`.
    """
    group, _ = group_and_part(SPLIT)
    of_parts, of_teams, _ = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    for part in tl.range(SPLIT, disable_licm=True):
        place = of_parts + tl.cast(part, tl.int64) * DISTINCT
        # Atomics answer all warps alike. Whoever publishes the last word of a part publishes all of them.
        if tl.atomic_add(place + DISTINCT - 1, 0, sem="relaxed") == 0:
            x, m, l = _load_tile(
                x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, FOLD, DISTINCT, BLOCK
            )
            publish_pair(place + tl.arange(0, DISTINCT), m, l)
        # The last part of a team also merges what the team has published.
        if TEAM > 1:
            if (part % TEAM == TEAM - 1) | (part == SPLIT - 1):
                last = tl.cast(part, tl.int64)
                publish_team(of_parts, of_teams, last, tl.full([], 2147483647, tl.int32), DISTINCT, TEAM, MATES)


@triton.jit(noinline=True)
def _begin_group_again(
    y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loads the program's own tile again and writes it, now that all pairs are there or, of parts that others publish,
    on their way. Its letters are the kernel's: VEC, WIDTH, FOLD, DISTINCT, TEAM, PARTS, BLOCK."""
    group, part = group_and_part(SPLIT)
    x, _, _ = _load_tile(x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, FOLD, DISTINCT, BLOCK)
    _, of_teams, teams = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    words, _ = words_of_parts(of_teams, teams, tl.full([], 2147483647, tl.int32), DISTINCT, PARTS)
    m, l = merged_parts(words, teams, PARTS)
    _write_tile(y_ptr, x, m, l, group, part, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, FOLD, BLOCK)


@triton.jit(do_not_specialize=["SPLIT", "looks"])
def shared_columns_kernel(
    y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT, looks,
    VEC: tl.constexpr, WIDTH: tl.constexpr, FOLD: tl.constexpr, DISTINCT: tl.constexpr, TEAM: tl.constexpr,
    MATES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    TURNS: tl.constexpr = 0, SMS: tl.constexpr = 0, CYCLES: tl.constexpr = 0, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """SPLIT programs write y = exp(x − m) / l over the N columns of WIDTH neighbours, each BLOCK of the columns.

    They exchange their pairs, as `shared` explains, through `word_ptr`, zeros of int64: in a group DISTINCT words for
    each part and, if a TEAM is more than one, for each team. The last part of a team merges what the others
    publish, in MATES × DISTINCT lanes; each program merges the teams' words, in PARTS × DISTINCT lanes.
    """
    # The tile, and the pair of each neighbour.
    take_turns(TURNS, SMS, CYCLES)
    group, part = group_and_part(SPLIT)
    of_parts, of_teams, teams = words_of_group(word_ptr, group, SPLIT, DISTINCT, TEAM)
    if VEC < 8 or FOLD > 1:  # whole vectors of 16 bits, 8 elements, are slower with it
        fetch_words(of_parts, of_teams, part, DISTINCT, TEAM)
    x, m, l = _load_tile(
        x_ptr, group, part, x_outer, x_inner, x_col, INNER, N, VEC, WIDTH, FOLD, DISTINCT, BLOCK, POLICY
    )
    # Publish the pairs, and look for those of the teams.
    publish_part(of_parts, of_teams, part, SPLIT, m, l, looks, DISTINCT, TEAM, MATES)
    if AHEAD > 0:
        at = lines_of_group_ahead(x_ptr, group, part, SPLIT, x_outer, x_inner, x_col, INNER, N, WIDTH, BLOCK, AHEAD)
        fetch(at, POLICY)
    words, complete = words_of_parts(of_teams, teams, looks, DISTINCT, PARTS)
    if complete:
        # Merge and write.
        m, l = merged_parts(words, teams, PARTS)
        _write_tile(y_ptr, x, m, l, group, part, y_outer, y_inner, y_col, INNER, N, VEC, WIDTH, FOLD, BLOCK)
    else:
        # Help: compute what is missing, then begin again.
        _help_group(
            x_ptr, word_ptr, x_outer, x_inner, x_col, INNER, N, SPLIT, VEC, WIDTH, FOLD, DISTINCT, TEAM, MATES, BLOCK
        )  # fmt: skip
        tl.debug_barrier()
        _begin_group_again(
            y_ptr, x_ptr, word_ptr, x_outer, x_inner, x_col, y_outer, y_inner, y_col, INNER, N, SPLIT,
            VEC, WIDTH, FOLD, DISTINCT, TEAM, PARTS, BLOCK,
        )  # fmt: skip
