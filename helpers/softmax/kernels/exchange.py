"""A row that lies over several GPUs, each of which holds a shard on the chip: one load and one store on each of them.

As in `kernels.shared` programs publish the pair (m, l) of their part and look for the pairs of all others; here the
words lie in *mail*, of which each GPU has some, and a program writes its word into the mail of all GPUs. Mail of
`exchange_kernel` is two integers, how many programs have looked in vain and how many words follow, and then the words:
for each row SLOTS of each rank. A shard has at most SLOTS parts; the slots of the others get empty pairs, so that
all ranks wait for equally many words, whatever the widths of the shards are.

A part that does not fit on the chip, of several CHUNKS, is loaded twice. Letters as in `helpers.softmax`.

No wait is endless, and no rank needs to know how long another waits. A program that looks in vain leaves its part as it
is. `late_kernel` comes next in the stream: if there was such a program, some programs, which leave the GPU to others,
wait for the words much longer and write the shard. If a word has not come by then, its rank will not come: the kernel
ends with an error, as a collective does at its timeout, since words of later calls could be taken for it. A late rank
finds the words of all others, and waits for none.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import (
    COMPILED,
    LOG2E,
    LOWEST,
    fetch,
    lines_ahead,
    load_slice,
    merge_pairs,
    pair_of_columns,
    pairs_of_row,
    part_row_and_split,
    word_of_pair,
    write_slice,
)

HEADER = tl.constexpr(2)
"""Integers before the words."""

_CLEARED = tl.constexpr(1024)
"""Words that a program clears at once."""


@triton.jit
def _publish_to_all(peers_ptr, row, part, SPLIT, rank, m, l, W: tl.constexpr, SLOTS: tl.constexpr):
    """Writes a part's pair into the mail of W ranks, and empty pairs into every slot SPLIT further.

    No other memory is read because of a word, so relaxed order is enough.
    """
    RANKS: tl.constexpr = triton.next_power_of_2(W)
    ranks, slots = tl.arange(0, RANKS)[:, None], tl.arange(0, SLOTS)[None, :]
    nothing = word_of_pair(tl.full([], LOWEST, tl.float32), tl.full([], 0.0, tl.float32))
    words = tl.where(slots == part, word_of_pair(m, l), nothing)
    mail = tl.load(peers_ptr + tl.minimum(ranks, W - 1)).to(tl.pointer_type(tl.int64))
    at = mail + HEADER + (row * W + rank) * SLOTS + slots
    mine = (ranks < W) & (slots % SPLIT == part)
    tl.atomic_xchg(at, tl.broadcast_to(words, [RANKS, SLOTS]), mask=mine, sem="relaxed", scope="sys")


@triton.jit
def _fail():
    """Ends the launch, and the use of this GPU by the process, with an error."""
    if COMPILED:
        tl.inline_asm_elementwise("trap; mov.u32 $0, 0;", "=r,r", [tl.program_id(0)], tl.int32, is_pure=False, pack=1)


@triton.jit(do_not_specialize=["looks", "rank"])
def exchange_kernel(
    y_ptr, x_ptr, mail_ptr, peers_ptr, x_stride, M, N, rank, looks,
    W: tl.constexpr, SLOTS: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr, CHUNKS: tl.constexpr = 1, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """SPLIT programs write this rank's part of y = exp(x − m) / l for each of M rows, of which it has N columns.

    `mail_ptr` is this rank's mail, and `peers_ptr` points to the addresses of the mail of all W ranks. A program looks
    at most 1 + `looks` times. BLOCK, VEC, EDGES and PARTS are as in `shared_kernel`, AHEAD too. With several CHUNKS of
    BLOCK columns a program writes nothing: it only publishes its pair, and is late.
    """
    part, row, SPLIT = part_row_and_split()
    # The slice, its pair, and its word for everybody.
    start = row * x_stride
    x, x_edge = load_slice(x_ptr, start, part * CHUNKS, N, VEC, EDGES, BLOCK)
    m, l = pair_of_columns(x, x_edge, EDGES)
    for chunk in range(1, CHUNKS):
        x, x_edge = load_slice(x_ptr, start, part * CHUNKS + chunk, N, VEC, EDGES, BLOCK)
        m_chunk, l_chunk = pair_of_columns(x, x_edge, EDGES)
        m_new = tl.maximum(m, m_chunk)
        l = l * tl.exp2((m - m_new) * LOG2E) + l_chunk * tl.exp2((m_chunk - m_new) * LOG2E)
        m = m_new
    _publish_to_all(peers_ptr, row, part, SPLIT, rank, m, l, W, SLOTS)
    if CHUNKS > 1:
        tl.atomic_add(mail_ptr, 1, sem="relaxed")
    else:
        if AHEAD > 0:
            fetch(lines_ahead(x_ptr, part, row, x_stride, M, N, BLOCK, AHEAD))
        # Look for all words of the row, merge and write.
        words, complete = pairs_of_row(mail_ptr + HEADER + row * (W * SLOTS), W * SLOTS, looks, PARTS)
        if complete:
            m, l = merge_pairs(words, W * SLOTS, PARTS)
            write_slice(y_ptr, row * N, start, part, N, m, l, x, x_edge, VEC, EDGES, BLOCK, False)
        else:
            tl.atomic_add(mail_ptr, 1, sem="relaxed")
    if (row == 0) & (part == 0):
        tl.store(mail_ptr + 1, tl.cast(M, tl.int64) * W * SLOTS)


@triton.jit(do_not_specialize=["looks"])
def late_kernel(
    y_ptr, x_ptr, mail_ptr, read_ptr, x_stride, M, N, looks,
    W: tl.constexpr, SLOTS: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes the shard if a program of `exchange_kernel` has looked in vain, and clears the mail at `read_ptr`.

    Arguments as there. If words have not come after 1 + `looks` looks, the launch fails; in the interpreter, the row is
    NaN.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    for start in range(program * _CLEARED, tl.load(read_ptr + 1), programs * _CLEARED):
        at = start + tl.arange(0, _CLEARED)
        tl.store(read_ptr + HEADER + at, tl.zeros([_CLEARED], tl.int64), mask=at < tl.load(read_ptr + 1))
    if program == 0:
        tl.store(read_ptr, tl.zeros([], tl.int64))
    if tl.load(mail_ptr) != 0:
        for row in range(program, M, programs):
            row = tl.cast(row, tl.int64)
            words, complete = pairs_of_row(mail_ptr + HEADER + row * (W * SLOTS), W * SLOTS, looks, PARTS)
            m, l = merge_pairs(words, W * SLOTS, PARTS)
            if not complete:
                l = float("nan")
                _fail()
            for part in range(tl.cdiv(N, BLOCK)):
                x, x_edge = load_slice(x_ptr, row * x_stride, part, N, VEC, EDGES, BLOCK)
                write_slice(y_ptr, row * N, row * x_stride, part, N, m, l, x, x_edge, VEC, EDGES, BLOCK, False)
