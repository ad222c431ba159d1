"""A row's loss and its gradient from one read of the logits and one write.

Cross-entropy is m + log(l) − x[target], and its gradient softmax(x) less 1 at the target: the pair (m, l) and one logit
say all that is needed. A row lies in the registers of one program, or of several, whose words meet as in `shared`: one
for the pair of each slice and, with SMOOTHING, another one for the sum of its logits.

The letters are those of `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.rows import LOG2E, edge, whole_vectors
from helpers.softmax.shared import (
    fetch_word,
    load_slice,
    merge_pairs,
    packed,
    pair_of_columns,
    pairs_of_row,
    part_row_and_split,
    places_of_words,
    publish_pair,
)

_LOSSES = tl.constexpr(1024)
"""Losses that are added up at a time."""


@triton.jit
def _sum_of_slice(x, x_edge, start, part, N, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """x itself, and the sum of the logits of a slice in float32."""
    first, n = whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = packed(x)
    total = tl.sum(tl.where(cols // V < n // V, x.to(tl.float32), 0.0), axis=0)
    if EDGES:
        _, exists = edge(start, N, first, n, V)
        total += tl.sum(tl.where(exists & (part == 0), x_edge, 0.0), axis=0)
    return x, total


@triton.jit
def _word_of_pair(m, l):
    """A pair as a word, see `shared.publish_pair`."""
    m_bits = m.to(tl.uint32, bitcast=True).to(tl.uint64)
    l_bits = l.to(tl.uint32, bitcast=True).to(tl.uint64)
    return ((m_bits << 32) | l_bits).to(tl.int64)


@triton.jit
def _word_of_sum(total):
    """A sum as a word that is never 0."""
    return (total.to(tl.uint32, bitcast=True).to(tl.uint64) | (1 << 32)).to(tl.int64)


@triton.jit
def _owner_of(target, start, N, V: tl.constexpr, BLOCK: tl.constexpr):
    """The slice that answers for the target: the one that holds it; the first for an edge, or what is no class."""
    first, n = whole_vectors(start, N, V)
    at = start + target - first
    return tl.where((target >= 0) & (target < N) & (at >= 0) & (at < n), at, 0).to(tl.int32) // BLOCK


@triton.jit
def _valid_targets(target_ptr, count_ptr, M, ignore_index, REDUCTION: tl.constexpr, COUNTED: tl.constexpr):
    """How many targets are not ignored, which only the mean asks for."""
    if REDUCTION != "mean":
        return 1.0
    elif COUNTED:
        rows = tl.arange(0, COUNTED)
        targets = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        return tl.sum((targets != ignore_index).to(tl.float32), axis=0)
    else:
        return tl.load(count_ptr).to(tl.float32)


@triton.jit(noinline=True)
def _add_up(total_ptr, loss_ptr, M, count, REDUCTION: tl.constexpr):
    """Stores the sum of M losses, or their mean, added in an order that is always the same. Once in a launch: out of
    line, it costs the other programs no register."""
    sums = tl.zeros([_LOSSES], tl.float32)
    for begin in range(0, M, _LOSSES):
        rows = begin + tl.arange(0, _LOSSES)
        sums += tl.load(loss_ptr + rows, mask=rows < M, other=0.0, volatile=True)
    total = tl.sum(sums, axis=0)
    if REDUCTION == "mean":
        total /= count
    tl.store(total_ptr, total)


@triton.jit
def _hand_in(loss, total_ptr, loss_ptr, done_ptr, row, M, count, REDUCTION: tl.constexpr):
    """Stores the loss of a row. Whoever stores the last one adds all of them up."""
    tl.store(loss_ptr + row, loss)
    if REDUCTION != "none":
        if tl.atomic_add(done_ptr, 1, sem="acq_rel") == M - 1:
            _add_up(total_ptr, loss_ptr, M, count, REDUCTION)


@triton.jit
def _write_zeros(grad_ptr, start, part, N, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of a slice whose row is ignored."""
    first, n = whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    tl.store(grad_ptr + first + cols, tl.zeros([BLOCK], tl.float32), mask=cols // V < n // V)
    if EDGES:
        at, exists = edge(start, N, first, n, V)
        tl.store(grad_ptr + at, tl.zeros([2 * V], tl.float32), mask=exists & (part == 0))


@triton.jit
def _write_gradient(
    grad_ptr, target, x_target, start, part, N, m, l, scale, x, x_edge,
    SMOOTHING: tl.constexpr, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a slice: scale · (softmax − SMOOTHING / N), less scale · (1 − SMOOTHING) at the target.

    The slice is written as if it had no target, and then the target's element again: to ask of every element whether
    it is the target would need registers, and time, for all of them.
    """
    first, n = whole_vectors(start, N, V)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    factor, spread = scale / l, scale * (SMOOTHING / N)
    grad = tl.exp2((packed(x).to(tl.float32) - m) * LOG2E) * factor - spread
    tl.store(grad_ptr + first + cols, grad, mask=cols // V < n // V)
    if EDGES:
        at, exists = edge(start, N, first, n, V)
        grad_edge = tl.exp2((x_edge - m) * LOG2E) * factor - spread
        tl.store(grad_ptr + at, grad_edge, mask=exists & (part == 0))
    if part == _owner_of(target, start, N, V, BLOCK):
        tl.debug_barrier()  # another thread has written there
        grad_target = tl.exp2((x_target - m) * LOG2E) * factor - spread - scale * (1 - SMOOTHING)
        tl.store(grad_ptr + start + target, grad_target, mask=(target >= 0) & (target < N))


@triton.jit
def _finish(
    grad_ptr, loss_ptr, total_ptr, done_ptr, target, x_target, start, part, row, M, N, m, l, x_sum, count, x, x_edge,
    GRAD: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr,
    V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What is left to do once m and l of the row are known. A target that is no class makes loss and gradient NaN."""
    if GRAD:
        scale = tl.where((target >= 0) & (target < N), 1.0, float("nan"))
        if REDUCTION == "mean":
            scale /= count
        _write_gradient(grad_ptr, target, x_target, start, part, N, m, l, scale, x, x_edge, SMOOTHING, V, EDGES, BLOCK)
    owner = _owner_of(target, start, N, V, BLOCK)
    if part == owner:
        loss = m - x_target + tl.log(l)
        if SMOOTHING > 0:
            loss = (1 - SMOOTHING) * loss + SMOOTHING * (m - x_sum / N + tl.log(l))
        _hand_in(loss, total_ptr, loss_ptr, done_ptr, row, M, count, REDUCTION)


@triton.jit
def _logit(x_ptr, target, start, part, N, V: tl.constexpr, BLOCK: tl.constexpr):
    """The target's logit for the slice that answers for it, NaN for the others and for a target that is no class.

    It is loaded before anything is stored, because the gradient may be written over the logits.
    """
    owner = _owner_of(target, start, N, V, BLOCK)
    exists = (part == owner) & (target >= 0) & (target < N)
    return tl.load(x_ptr + start + target, mask=exists, other=float("nan")).to(tl.float32)


@triton.jit
def _sum_of_row(words, SPLIT, PARTS: tl.constexpr):
    """The sum of a row's logits from the words after those of its pairs."""
    lanes = tl.arange(0, PARTS)
    sums = (words & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    return tl.sum(tl.where((lanes >= SPLIT) & (lanes < 2 * SPLIT), sums, 0.0), axis=0)


@triton.jit
def _words_of_row(word_ptr, row, SPLIT, SMOOTHING: tl.constexpr):
    """Where the words of a row begin, and how many they are: a pair for each slice, and with SMOOTHING a sum too."""
    if SMOOTHING > 0:
        return word_ptr + row * (2 * SPLIT), 2 * SPLIT
    else:
        return word_ptr + row * SPLIT, SPLIT


@triton.jit(noinline=True)
def _help_row_of_logits(
    x_ptr, word_ptr, stride, N,
    SMOOTHING: tl.constexpr, V: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Computes the words of the row that are missing, as `shared.help_row` does.

    A word that has come meanwhile stays as it is, for the slice that it is of may hold its gradient by now.
    """
    _, row, SPLIT = part_row_and_split()
    word_row, _ = _words_of_row(word_ptr, row, SPLIT, SMOOTHING)
    for part in tl.range(SPLIT, disable_licm=True):
        missing = tl.atomic_add(word_row + part, 0, sem="relaxed") == 0
        if SMOOTHING > 0:
            missing |= tl.atomic_add(word_row + SPLIT + part, 0, sem="relaxed") == 0
        if missing:
            x, x_edge = load_slice(x_ptr, row * stride, part, N, V, EDGES, BLOCK)
            x, m, l = pair_of_columns(x, x_edge, EDGES)
            if SMOOTHING > 0:
                x, x_sum = _sum_of_slice(x, x_edge, row * stride, part, N, V, EDGES, BLOCK)
                tl.atomic_cas(word_row + SPLIT + part, tl.cast(0, tl.int64), _word_of_sum(x_sum))
            tl.atomic_cas(word_row + part, tl.cast(0, tl.int64), _word_of_pair(m, l))


@triton.jit
def _merge_words(words, SPLIT, SMOOTHING: tl.constexpr, PARTS: tl.constexpr):
    """m and l of the row from all its words, and with SMOOTHING the sum of its logits."""
    m, l = merge_pairs(words, SPLIT, PARTS)
    x_sum = 0.0
    if SMOOTHING > 0:
        x_sum = _sum_of_row(words, SPLIT, PARTS)
    return m, l, x_sum


@triton.jit(noinline=True)
def _finish_again(
    grad_ptr, loss_ptr, total_ptr, x_ptr, target_ptr, count_ptr, word_ptr, done_ptr, stride, M, N, ignore_index,
    GRAD: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, COUNTED: tl.constexpr,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Loads the program's own slice again and ends its work, now that all words of the row are there."""
    part, row, SPLIT = part_row_and_split()
    start = row * stride
    target = tl.load(target_ptr + row)
    count = _valid_targets(target_ptr, count_ptr, M, ignore_index, REDUCTION, COUNTED)
    x, x_edge = load_slice(x_ptr, start, part, N, V, EDGES, BLOCK)
    x_target = _logit(x_ptr, target, start, part, N, V, BLOCK)
    word_row, n_words = _words_of_row(word_ptr, row, SPLIT, SMOOTHING)
    words = tl.load(places_of_words(word_row, n_words, PARTS), volatile=True)
    m, l, x_sum = _merge_words(words, SPLIT, SMOOTHING, PARTS)
    _finish(
        grad_ptr, loss_ptr, total_ptr, done_ptr, target, x_target, start, part, row, M, N, m, l, x_sum, count,
        x, x_edge, GRAD, REDUCTION, SMOOTHING, V, EDGES, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M", "looks"])
def cross_entropy_kernel(
    grad_ptr, loss_ptr, total_ptr, x_ptr, target_ptr, count_ptr, word_ptr, stride, M, N, ignore_index, looks,
    GRAD: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, COUNTED: tl.constexpr, WHOLE: tl.constexpr,
    V: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The losses of M rows of N logits, a row every `stride` elements, their sum or mean, and the gradient of that.

    A program for each slice of BLOCK columns, as in `shared_kernel`. `grad_ptr` may be `x_ptr`: then the gradient is
    written over the logits. `word_ptr` points to a zero, with which the losses are counted, and after it to the words
    of the rows, zeros too. A row whose target is `ignore_index` is not read.
    """
    part, row, SPLIT = part_row_and_split()
    if row < M:
        start = row * stride
        done_ptr, word_ptr = word_ptr, word_ptr + 1
        target = tl.load(target_ptr + row)
        count = _valid_targets(target_ptr, count_ptr, M, ignore_index, REDUCTION, COUNTED)
        if target == ignore_index:
            if GRAD:
                _write_zeros(grad_ptr, start, part, N, V, EDGES, BLOCK)
            if part == 0:
                _hand_in(0.0, total_ptr, loss_ptr, done_ptr, row, M, count, REDUCTION)
        else:
            word_row, n_words = _words_of_row(word_ptr, row, SPLIT, SMOOTHING)
            if not WHOLE:
                fetch_word(word_row + part)
            x, x_edge = load_slice(x_ptr, start, part, N, V, EDGES, BLOCK)
            x_target = _logit(x_ptr, target, start, part, N, V, BLOCK)
            x, m, l = pair_of_columns(x, x_edge, EDGES)
            x_sum = 0.0
            if SMOOTHING > 0:
                x, x_sum = _sum_of_slice(x, x_edge, start, part, N, V, EDGES, BLOCK)
            if WHOLE:
                _finish(
                    grad_ptr, loss_ptr, total_ptr, done_ptr, target, x_target, start, part, row, M, N, m, l, x_sum,
                    count, x, x_edge, GRAD, REDUCTION, SMOOTHING, V, EDGES, BLOCK,
                )  # fmt: skip
            else:
                if SMOOTHING > 0:
                    tl.atomic_xchg(word_row + SPLIT + part, _word_of_sum(x_sum), sem="relaxed")
                publish_pair(word_row + part, m, l)
                owner = _owner_of(target, start, N, V, BLOCK)
                if GRAD or part == owner:
                    words, complete = pairs_of_row(word_row, n_words, looks, PARTS)
                    # As in `shared_kernel`, no wait is endless.
                    if complete:
                        m, l, x_sum = _merge_words(words, SPLIT, SMOOTHING, PARTS)
                        _finish(
                            grad_ptr, loss_ptr, total_ptr, done_ptr, target, x_target, start, part, row, M, N, m, l,
                            x_sum, count, x, x_edge, GRAD, REDUCTION, SMOOTHING, V, EDGES, BLOCK,
                        )  # fmt: skip
                    else:
                        _help_row_of_logits(x_ptr, word_ptr, stride, N, SMOOTHING, V, EDGES, BLOCK)
                        tl.debug_barrier()  # what one thread has published, all threads read
                        _finish_again(
                            grad_ptr, loss_ptr, total_ptr, x_ptr, target_ptr, count_ptr, word_ptr, done_ptr, stride,
                            M, N, ignore_index, GRAD, REDUCTION, SMOOTHING, COUNTED, V, EDGES, PARTS, BLOCK,
                        )  # fmt: skip


@triton.jit
def count_kernel(count_ptr, target_ptr, M, ignore_index, BLOCK: tl.constexpr):
    """One program stores how many of M targets are not ignored, counted in tiles of BLOCK."""
    counts = tl.zeros([BLOCK], tl.int64)
    for begin in range(0, M, BLOCK):
        rows = begin + tl.arange(0, BLOCK)
        targets = tl.load(target_ptr + rows, mask=rows < M, other=ignore_index)
        counts += (targets != ignore_index).to(tl.int64)
    tl.store(count_ptr, tl.sum(counts, axis=0))


@triton.jit(do_not_specialize=["M"])
def scale_kernel(
    y_ptr, x_ptr, by_ptr, stride, by_stride, M, N, OF_ROWS: tl.constexpr, OVER: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x · by for M rows of N columns, `by` one number, or with OF_ROWS one for each row.

    Where y lies OVER x, nothing is read or written that would be multiplied by 1.
    """
    parts = tl.cdiv(N, BLOCK)
    tiles = M.to(tl.int64) * parts
    factor = tl.load(by_ptr).to(tl.float32)
    if OVER and not OF_ROWS:
        tiles = tl.where(factor == 1, 0, tiles)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile // parts
        cols = (tile % parts) * BLOCK + tl.arange(0, BLOCK)
        if OF_ROWS:
            factor = tl.load(by_ptr + row * by_stride).to(tl.float32)
        mask = cols < (tl.where(factor == 1, 0, N) if OVER else N)
        x = tl.load(x_ptr + row * stride + cols, mask=mask).to(tl.float32)
        tl.store(y_ptr + row * stride + cols, x * factor, mask=mask)
