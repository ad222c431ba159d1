"""A row in the registers of several programs, whose pairs (m, l) meet in global memory: one load and one store.

Publish, look, help: all kernels whose programs share a row, or a group of columns, do the same three things.

1. A program *publishes* the pair of its part as one 64-bit word, which is value and flag at once (`publish_pair`).
2. It *looks* for the words of the others, up to a number of times (`pairs_of_row`), and merges all pairs as in Milakov
   and Gimelshein (arXiv 1805.02867), always in the same order (`merge_pairs`).
3. The GPU may be full of programs that wait for programs that cannot start, so no wait is endless: a program that has
   looked often enough *helps*. It computes the missing pairs itself (`help_row`), and then begins again with its own
   part (`_begin_again`): the result has the same bits. Both functions are out of line (noinline) and take only the
   kernel's own arguments, so the rare path costs the usual one no register.

In the interpreter, where programs run one after another, the first program of a row helps with all the pairs of its
row. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.engine.runtime import INTERPRETED

LOG2E = tl.constexpr(1.4426950408889634)

NO_POLICY = tl.constexpr("")
"""Loaded lines stay in the cache as long as others. (As a called function's default, Triton 3.6 refuses a string.)"""

NO_LOG = tl.constexpr(False)
"""What is written is neither a logarithm nor the gradient of one."""

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The lowest finite float32, where another kernel would start from −inf: −inf − (−inf) is NaN."""

EMPTY_LANE = tl.constexpr(-float("inf"))
"""What lanes past the end of a row hold: it never is the maximum, and its exponential is 0."""

COMPILED = tl.constexpr(not INTERPRETED)
"""Whether kernels are compiled. The interpreter knows no PTX, and the instructions below only save time."""

_UNPACK_BFLOAT16 = tl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
_UNPACK_FLOAT16 = tl.constexpr(
    "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }"
)


@triton.jit
def whole_vectors(start, N, VEC: tl.constexpr):
    """`first` and `n` of a row of N elements: where its whole vectors of VEC begin, and how many elements they hold."""
    first = (start + VEC - 1) // VEC * VEC
    return tl.multiple_of(first, VEC), ((start + N) // VEC * VEC - first).to(tl.int32)


@triton.jit
def edge(start, N, first, n, VEC: tl.constexpr):
    """The elements before and after the whole vectors, in 2 VEC lanes, fewer than VEC of each, and which exist."""
    lanes = tl.arange(0, 2 * VEC)
    at = first + tl.where(lanes < VEC, lanes - VEC, n + lanes - VEC)
    return at, (at >= start) & (at < start + N) & ((lanes < VEC) | (at >= first))


@triton.jit
def load_slice(
    x_ptr, start, part, N,
    VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, OTHER: tl.constexpr = EMPTY_LANE,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """BLOCK columns of a row in whole vectors of VEC, and the row's edge, which belongs to the first slice (EDGES).

    Lanes past the end of the row hold OTHER. The vectors are loaded by the POLICY.
    """
    first, n = whole_vectors(start, N, VEC)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + first + cols, mask=cols // VEC < n // VEC, other=OTHER, eviction_policy=POLICY)
    x_edge = tl.full([2 * VEC], OTHER, tl.float32)
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        x_edge = tl.load(x_ptr + at, mask=exists & (part == 0), other=OTHER).to(tl.float32)
    return x, x_edge


@triton.jit
def pair_of_columns(x, x_edge, EDGES: tl.constexpr):
    """(m, l) of a slice and, with EDGES, its edge. For a slice of only −inf, m is LOWEST and l is 0."""
    m = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
    if EDGES:
        m = tl.maximum(m, tl.max(x_edge, axis=0))
    l = tl.sum(tl.exp2((in_float32(x) - m) * LOG2E), axis=0)
    if EDGES:
        l += tl.sum(tl.exp2((x_edge - m) * LOG2E), axis=0)
    return m, l


@triton.jit
def in_float32(x):
    """x in float32, computed again at each use, so that 16-bit elements stay two to a register meanwhile.

    Two instructions unpack two elements. Otherwise the compiler takes three for bfloat16, or keeps each element as a
    float32 in a register of its own, and half as much of the row fits on the chip.
    """
    if COMPILED and x.dtype == tl.bfloat16:
        return tl.inline_asm_elementwise(_UNPACK_BFLOAT16, "=&r,=&r,r", [x], tl.float32, is_pure=False, pack=2)
    elif COMPILED and x.dtype == tl.float16:
        return tl.inline_asm_elementwise(_UNPACK_FLOAT16, "=&r,=&r,r", [x], tl.float32, is_pure=False, pack=2)
    else:
        return x.to(tl.float32)


_PAUSE = tl.constexpr(
    "{ .reg .u32 begin, now; .reg .pred early; mov.u32 begin, %clock;"
    " AGAIN: mov.u32 now, %clock; sub.u32 now, now, begin; setp.lt.u32 early, now, $1; @early bra AGAIN;"
    " mov.u32 $0, 0; }"
)
"""A loop that counts cycles: a sleep (nanosleep) is shorter or longer than asked."""


@triton.jit
def pause(cycles):
    """Does nothing for some cycles of the SM's clock."""
    if COMPILED:
        tl.inline_asm_elementwise(_PAUSE, "=r,r", [cycles], tl.int32, is_pure=False, pack=1)


@triton.jit
def take_turns(TURNS: tl.constexpr, SMS: tl.constexpr, CYCLES: tl.constexpr):
    """Lets the first TURNS programs of each of the SMS begin one after another, CYCLES apart: each when the one before
    has its tile, so that some may store while others load, and not all load, wait and store together."""
    if TURNS > 1:
        program = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
        turn = program // SMS
        if turn < TURNS:
            pause(turn * CYCLES)


_FETCH = tl.constexpr("prefetch.global.L2 [$1]; mov.u32 $0, 0;")
_FETCH_TO_STAY = tl.constexpr("prefetch.global.L2::evict_last [$1]; mov.u32 $0, 0;")


@triton.jit
def fetch(ptr, POLICY: tl.constexpr = NO_POLICY):
    """Brings the line of each pointer into the L2 cache, and waits for none. The POLICY is that of the load to come."""
    if COMPILED:
        if POLICY == "evict_last":
            tl.inline_asm_elementwise(_FETCH_TO_STAY, "=r,l", [ptr], tl.int32, False, 1)
        else:
            tl.inline_asm_elementwise(_FETCH, "=r,l", [ptr], tl.int32, False, 1)


@triton.jit
def lines_ahead(x_ptr, part, row, stride, M, N, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """A pointer into each line of half the slice that a program yet to start will load, AHEAD rows further.

    Programs fetch them that are about to wait for words. Behind the last row, its own lines are fetched again: a branch
    would cost registers that spill.
    """
    LINE: tl.constexpr = 1024 // x_ptr.dtype.element_ty.primitive_bitwidth
    LINES: tl.constexpr = BLOCK // LINE // 2 if BLOCK // LINE > 1 else 1
    cols = tl.minimum(part * BLOCK + tl.arange(0, LINES) * LINE, N - 1)
    return x_ptr + tl.minimum(row + AHEAD, M - 1) * stride + cols


@triton.jit
def word_of_pair(m, l):
    """A pair as one 64-bit word. No pair is 0, since l ≥ 1 wherever m = 0."""
    m_bits = m.to(tl.uint32, bitcast=True).to(tl.uint64)
    l_bits = l.to(tl.uint32, bitcast=True).to(tl.uint64)
    return ((m_bits << 32) | l_bits).to(tl.int64)


@triton.jit
def pair_of_word(word):
    """(m, l) of a word."""
    m = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return m, (word & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def publish_pair(word_ptr, m, l):
    """Writes a pair as one word, which is value and flag at once: no program can see half of it.

    No other memory is read because of the word, so relaxed order is enough.
    """
    tl.atomic_xchg(word_ptr, word_of_pair(m, l), sem="relaxed")


@triton.jit
def places_of_words(word_ptr, SPLIT, PARTS: tl.constexpr):
    """Pointers to the words of a row in PARTS lanes. Lanes past the last word point to that one again."""
    return word_ptr + tl.minimum(tl.arange(0, PARTS), SPLIT - 1)


@triton.jit
def pairs_of_row(word_ptr, SPLIT, looks, PARTS: tl.constexpr, PAUSE: tl.constexpr = 0):
    """The words of the row after at most `looks` polls of the missing ones, and whether all have come.

    PARTS is at least the number of threads: then one thread reads each word, and all warps agree on the answer. The
    first look comes after PAUSE cycles.
    """
    if PAUSE > 0:
        pause(PAUSE)
    at = places_of_words(word_ptr, SPLIT, PARTS)
    words = tl.load(at, volatile=True)
    complete = tl.min((words != 0).to(tl.int32), axis=0)
    while (complete == 0) & (looks > 0):
        words |= tl.load(at, mask=words == 0, other=0, volatile=True)
        complete = tl.min((words != 0).to(tl.int32), axis=0)
        looks -= 1
    return words, complete != 0


@triton.jit
def rounded(a, b):
    """a · b, rounded before anything is added to it, so that threads which add the same numbers find the same bits.

    Fused with the addition of what another thread has rounded, each thread's own product would be exact, and threads
    would write different last bits to one place of shared memory, or into the results of equal elements.
    """
    return tl.fma(a, b, tl.zeros_like(a))


@triton.jit
def merge_pairs(words, SPLIT, PARTS: tl.constexpr):
    """(m, l) of a row from the words of its SPLIT slices, in PARTS lanes and always in the same order."""
    exists = tl.arange(0, PARTS) < SPLIT
    m_parts, l_parts = pair_of_word(words)
    m_parts, l_parts = tl.where(exists, m_parts, LOWEST), tl.where(exists, l_parts, 0.0)
    m = tl.max(m_parts, axis=0)
    l = tl.sum(rounded(l_parts, tl.exp2((m_parts - m) * LOG2E)), axis=0)
    return m, l


@triton.jit
def _softmax_or_log_of_slice(x, m, l, LOG: tl.constexpr):
    """exp(x − m) / l, or its LOG, x − m − log(l)."""
    return x - m - tl.log(l) if LOG else tl.exp2((x - m) * LOG2E) * (1 / l)


@triton.jit
def write_slice(
    y_ptr, y_start, start, part, N, m, l, x, x_edge,
    VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """Writes a slice of BLOCK columns in whole vectors of VEC; with EDGES, the first slice also has the row's edge."""
    first, n = whole_vectors(start, N, VEC)
    to_y = tl.multiple_of(y_start - start, VEC)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        y_ptr + to_y + first + cols, _softmax_or_log_of_slice(in_float32(x), m, l, LOG), mask=cols // VEC < n // VEC
    )
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        tl.store(y_ptr + to_y + at, _softmax_or_log_of_slice(x_edge, m, l, LOG), mask=exists & (part == 0))


@triton.jit
def part_row_and_split():
    """CUDA takes 65535 programs at most in a grid's second and third dimension: the rows are spread over both."""
    row = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    return tl.program_id(0), row, tl.num_programs(0)


@triton.jit(noinline=True)
def help_row(x_ptr, word_ptr, x_stride, N, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """Computes the missing pairs of the row, a slice of BLOCK columns each (VEC and EDGES as in the kernel).

    This rare path is out of line, and takes only the kernel's own arguments: it costs the usual one no register.
    """
    _, row, SPLIT = part_row_and_split()
    word_ptr += row * SPLIT
    for part in tl.range(SPLIT, disable_licm=True):  # code moved out of the loop would need more registers
        # An atomic's result is the same for all warps; a load of each might differ, and the warps would part here.
        if tl.atomic_add(word_ptr + part, 0, sem="relaxed") == 0:
            x, x_edge = load_slice(x_ptr, row * x_stride, part, N, VEC, EDGES, BLOCK)
            m, l = pair_of_columns(x, x_edge, EDGES)
            publish_pair(word_ptr + part, m, l)


@triton.jit(noinline=True)
def _begin_again(
    y_ptr, x_ptr, word_ptr, y_stride, x_stride, N,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, LOG: tl.constexpr,
):  # fmt: skip
    """Loads the program's own slice again and writes it, now that all pairs are there."""
    part, row, SPLIT = part_row_and_split()
    start = row * x_stride
    x, x_edge = load_slice(x_ptr, start, part, N, VEC, EDGES, BLOCK)
    words = tl.load(places_of_words(word_ptr + row * SPLIT, SPLIT, PARTS), volatile=True)
    y_start = row * y_stride
    m, l = merge_pairs(words, SPLIT, PARTS)
    write_slice(y_ptr, y_start, start, part, N, m, l, x, x_edge, VEC, EDGES, BLOCK, LOG)


@triton.jit(do_not_specialize=["looks"])  # as a constant, which 1 would be, it could not count down
def shared_kernel(
    y_ptr, x_ptr, word_ptr, y_stride, x_stride, M, N, looks,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    TURNS: tl.constexpr = 0, SMS: tl.constexpr = 0, CYCLES: tl.constexpr = 0, PAUSE: tl.constexpr = 0,
    AHEAD: tl.constexpr = 0, LOG: tl.constexpr = NO_LOG, WHOLE: tl.constexpr = False,
):  # fmt: skip
    """SPLIT programs write y = exp(x − m) / l for each of M rows of N contiguous columns, or its LOG, x − m − log(l).

    Each has a slice of BLOCK columns, and finds m = max x and l = Σ exp(x − m) of it; the slices' pairs are merged to
    the pair of the row, m = max mᵢ and l = Σ lᵢ · exp(mᵢ − m). `word_ptr` points to (M, SPLIT) zeros of int64,
    through which they exchange the pairs, with up to 1 + `looks` looks. If the slice is the WHOLE row, there is nothing
    to exchange.
    """
    part, row, SPLIT = part_row_and_split()
    take_turns(TURNS, SMS, CYCLES)
    if row < M:
        # The slice, and its pair.
        start = row * x_stride
        word_row = word_ptr + row * SPLIT
        if not WHOLE:
            fetch(word_row + part)
        x, x_edge = load_slice(x_ptr, start, part, N, VEC, EDGES, BLOCK, POLICY=POLICY)
        m, l = pair_of_columns(x, x_edge, EDGES)
        if WHOLE:
            write_slice(y_ptr, row * y_stride, start, part, N, m, l, x, x_edge, VEC, EDGES, BLOCK, LOG)
        else:
            # Publish the pair, and look for the pairs of the others.
            publish_pair(word_row + part, m, l)
            if AHEAD > 0:
                fetch(lines_ahead(x_ptr, part, row, x_stride, M, N, BLOCK, AHEAD), POLICY)
            words, complete = pairs_of_row(word_row, SPLIT, looks, PARTS, PAUSE)
            if complete:
                # Merge and write.
                y_start = row * y_stride
                m, l = merge_pairs(words, SPLIT, PARTS)
                write_slice(y_ptr, y_start, start, part, N, m, l, x, x_edge, VEC, EDGES, BLOCK, LOG)
            else:
                # Help: compute what is missing, then begin again.
                help_row(x_ptr, word_ptr, x_stride, N, VEC, EDGES, BLOCK)
                tl.debug_barrier()  # what one thread has published in help_row, all threads read in _begin_again
                _begin_again(y_ptr, x_ptr, word_ptr, y_stride, x_stride, N, VEC, EDGES, PARTS, BLOCK, LOG)
