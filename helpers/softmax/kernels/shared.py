"""A row in the registers of several programs, whose pairs (m, l) meet in global memory: one load and one store.

Each program publishes the pair of its slice as one 64-bit word, collects the words of its row and merges them as in
Milakov and Gimelshein (arXiv 1805.02867). A program that has waited long enough computes the missing pairs itself, so
the kernel ends whatever else the GPU runs, with the same bits. In the interpreter, where programs run one after
another, the first program of a row computes all the pairs of its row. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.rows import LOG2E, NO_POLICY, edge, whole_vectors
from helpers.softmax.plans.rows import SMS

LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The lowest finite float32, where another kernel would start from −inf: −inf − (−inf) is NaN."""

EMPTY_LANE = tl.constexpr(-float("inf"))
"""What lanes past the end of a row hold: it never is the maximum, and its exponential is 0."""

LOOKS = 0 if INTERPRETED else 4096
"""How often a program looks again for the missing pairs of its row before it computes them itself."""

COMPILED = tl.constexpr(not INTERPRETED)
"""Whether kernels are compiled. The interpreter knows no PTX, and the instructions below only save time."""

_UNPACK_BFLOAT16 = tl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
_UNPACK_FLOAT16 = tl.constexpr(
    "{ .reg .b16 low, high; mov.b32 {low, high}, $2; cvt.f32.f16 $0, low; cvt.f32.f16 $1, high; }"
)


@triton.jit
def load_slice(
    x_ptr, start, part, N,
    V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr, OTHER: tl.constexpr = EMPTY_LANE,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """BLOCK columns of a row in whole vectors of V, and the row's edge, which belongs to the first slice (EDGES).

    Lanes past the end of the row hold OTHER. The vectors are loaded by the POLICY.
    """
    first, n = whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + first + cols, mask=cols // V < n // V, other=OTHER, eviction_policy=POLICY)
    x_edge = tl.full([2 * V], OTHER, tl.float32)
    if EDGES:
        at, exists = edge(start, N, first, n, V)
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
"""A sleep (nanosleep) is shorter or longer than asked: with it, turns gained few rows a fifth to a half of this."""


@triton.jit
def pause(cycles):
    """Does nothing for some cycles of the SM's clock."""
    if COMPILED:
        tl.inline_asm_elementwise(_PAUSE, "=r,r", [cycles], tl.int32, is_pure=False, pack=1)


_SMS, _BYTES_IN_A_CYCLE = tl.constexpr(SMS), tl.constexpr(18)
"""What memory gives each SM of an H200 in a cycle of its clock."""


@triton.jit
def take_turns(tile_ptr, elements: tl.constexpr, TURNS: tl.constexpr):
    """Lets the first TURNS programs of an SM begin one after another, each when the one before has its tile.

    So that some may store while others load, where all would load, wait for words and store together: on an H200, 64
    rows of 131,072 took 4 to 5 % less time. `elements` is how many of `tile_ptr` a tile has.
    """
    if TURNS > 1:
        program = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
        turn = program // _SMS
        if turn < TURNS:
            cycles: tl.constexpr = elements * (tile_ptr.dtype.element_ty.primitive_bitwidth // 8) // _BYTES_IN_A_CYCLE
            pause(turn * cycles)


_FETCH = tl.constexpr("prefetch.global.L2 [$1]; mov.u32 $0, 0;")
_FETCH_TO_STAY = tl.constexpr("prefetch.global.L2::evict_last [$1]; mov.u32 $0, 0;")


@triton.jit
def fetch(ptr, POLICY: tl.constexpr = NO_POLICY):
    """Brings the line of each pointer into the L2 cache, and waits for none. The POLICY is that of the load to come.

    On an H200 losses and rows took 0.2 to 2 % less time than where fetched lines stayed as long as written ones (a
    measurement in no record).
    """
    if COMPILED:
        if POLICY == "evict_last":
            tl.inline_asm_elementwise(_FETCH_TO_STAY, "=r,l", [ptr], tl.int32, False, 1)
        else:
            tl.inline_asm_elementwise(_FETCH, "=r,l", [ptr], tl.int32, False, 1)


@triton.jit
def lines_ahead(x_ptr, part, row, stride, M, N, BLOCK: tl.constexpr, AHEAD: tl.constexpr):
    """A pointer into each line of half the slice that a program yet to start will load, AHEAD rows further.

    Programs fetch them that are about to wait for words: on an H200 a loss with its gradient took 0.2 to 1.3 % less
    time so. Behind the last row, its own lines are fetched again: a branch cost registers that spilled.
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
    first look comes after PAUSE cycles. On an H200, gradients of 1,048,576 columns took 9 to 10 % less time so, about
    as little as without any wait; pauses between looks alone made it 2 % less to 2 % more.
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
def _write_slice(
    y_ptr, words, y_start, start, part, N, SPLIT, x, x_edge,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Merges the SPLIT pairs of the row and writes a slice.

    The slice has BLOCK columns in whole vectors of V; with EDGES, the first slice also has the row's edge.
    """
    m, l = merge_pairs(words, SPLIT, PARTS)
    first, n = whole_vectors(start, N, V)
    to_y = tl.multiple_of(y_start - start, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    y = tl.exp2((in_float32(x) - m) * LOG2E) * (1 / l)
    tl.store(y_ptr + to_y + first + cols, y, mask=cols // V < n // V)
    if EDGES:
        at, exists = edge(start, N, first, n, V)
        y_edge = tl.exp2((x_edge - m) * LOG2E) * (1 / l)
        tl.store(y_ptr + to_y + at, y_edge, mask=exists & (part == 0))


@triton.jit
def part_row_and_split():
    """CUDA takes 65535 programs at most in a grid's second and third dimension: the rows are spread over both."""
    row = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    return tl.program_id(0), row, tl.num_programs(0)


@triton.jit(noinline=True)
def help_row(x_ptr, word_ptr, x_stride, N, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """Computes the missing pairs of the row, a slice of BLOCK columns each (V and EDGES as in the kernel).

    This rare path is out of line, and takes only the kernel's own arguments: it costs the usual one no register.
    """
    _, row, SPLIT = part_row_and_split()
    word_ptr += row * SPLIT
    for part in tl.range(SPLIT, disable_licm=True):  # code moved out of the loop would need more registers
        # An atomic's result is the same for all warps; a load of each might differ, and the warps would part here.
        if tl.atomic_add(word_ptr + part, 0, sem="relaxed") == 0:
            x, x_edge = load_slice(x_ptr, row * x_stride, part, N, V, EDGES, BLOCK)
            m, l = pair_of_columns(x, x_edge, EDGES)
            publish_pair(word_ptr + part, m, l)


@triton.jit(noinline=True)
def _begin_again(
    y_ptr, x_ptr, word_ptr, y_stride, x_stride, N,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loads the program's own slice again and writes it, now that all pairs are there. Its letters are the kernel's."""
    part, row, SPLIT = part_row_and_split()
    start = row * x_stride
    x, x_edge = load_slice(x_ptr, start, part, N, V, EDGES, BLOCK)
    words = tl.load(places_of_words(word_ptr + row * SPLIT, SPLIT, PARTS), volatile=True)
    _write_slice(y_ptr, words, row * y_stride, start, part, N, SPLIT, x, x_edge, V, EDGES, PARTS, BLOCK)


@triton.jit(do_not_specialize=["looks"])  # as a constant, which 1 would be, it could not count down
def shared_kernel(
    y_ptr, x_ptr, word_ptr, y_stride, x_stride, M, N, looks,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
    TURNS: tl.constexpr = 0, PAUSE: tl.constexpr = 0, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """SPLIT programs write the softmax of one row of N contiguous columns, each a slice of BLOCK columns.

    A slice holds whole vectors of V, loaded by the POLICY, and the first slice also the row's EDGES. `word_ptr` points
    to (M, SPLIT) zeros of int64, through which the programs of a row exchange their pairs; each loads its row's in
    PARTS lanes, up to 1 + `looks` times. TURNS as in `take_turns`, PAUSE as in `pairs_of_row`, AHEAD as in
    `lines_ahead`.
    """
    part, row, SPLIT = part_row_and_split()
    take_turns(x_ptr, BLOCK, TURNS)
    if row < M:
        start = row * x_stride
        word_row = word_ptr + row * SPLIT
        fetch(word_row + part)
        x, x_edge = load_slice(x_ptr, start, part, N, V, EDGES, BLOCK, POLICY=POLICY)
        m, l = pair_of_columns(x, x_edge, EDGES)
        publish_pair(word_row + part, m, l)
        if AHEAD > 0:
            fetch(lines_ahead(x_ptr, part, row, x_stride, M, N, BLOCK, AHEAD), POLICY)
        words, complete = pairs_of_row(word_row, SPLIT, looks, PARTS, PAUSE)
        # The GPU may be full of programs that wait for programs that cannot start. No wait is endless here: a program
        # that has looked often enough computes the missing pairs itself.
        if complete:
            _write_slice(y_ptr, words, row * y_stride, start, part, N, SPLIT, x, x_edge, V, EDGES, PARTS, BLOCK)
        else:
            help_row(x_ptr, word_ptr, x_stride, N, V, EDGES, BLOCK)
            tl.debug_barrier()  # what one thread has published in help_row, all threads read in _begin_again
            _begin_again(y_ptr, x_ptr, word_ptr, y_stride, x_stride, N, V, EDGES, PARTS, BLOCK)
