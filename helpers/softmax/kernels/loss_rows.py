"""A row's loss and its gradient from one read of the logits and one write.

Cross-entropy is m + log(l) − x[target], and its gradient softmax(x) less 1 at the target: the pair (m, l) and one logit
say all that is needed. A row lies in the registers of one program, or of several, whose words meet as in `shared`: one
for the pair of each slice and, with SMOOTHING, another one for how far its logits lie below its m.

Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.add_up import (
    COUNTERS,
    all_targets,
    count_targets,
    counted_targets,
    hand_in,
    word_of_number,
)
from helpers.softmax.kernels.shared import (
    LOG2E,
    NO_POLICY,
    edge,
    fetch,
    in_float32,
    lines_ahead,
    load_slice,
    merge_pairs,
    pair_of_columns,
    pair_of_word,
    pairs_of_row,
    part_row_and_split,
    places_of_words,
    publish_pair,
    take_turns,
    whole_vectors,
    word_of_pair,
)


@triton.jit
def _statistics(
    x, x_edge, start, part, N, SMOOTHING: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The pair (m, l) of a slice, and with SMOOTHING Σ (m − x), else 0, in float32.

    A sum of the logits themselves would lose the digits that they share.
    """
    m, l = pair_of_columns(x, x_edge, EDGES)
    below = 0.0
    if SMOOTHING > 0:
        first, n = whole_vectors(start, N, VEC)
        cols = part * BLOCK + tl.arange(0, BLOCK)
        below = tl.sum(tl.where(cols // VEC < n // VEC, m - in_float32(x), 0.0), axis=0)
        if EDGES:
            _, exists = edge(start, N, first, n, VEC)
            below += tl.sum(tl.where(exists & (part == 0), m - x_edge, 0.0), axis=0)
    return m, l, below


@triton.jit
def _owner_of(target, start, N, VEC: tl.constexpr, BLOCK: tl.constexpr):
    """The slice that answers for the target: the one that holds it; the first for an edge, or for no class at all."""
    first, n = whole_vectors(start, N, VEC)
    at = start + target - first
    return tl.where((target >= 0) & (target < N) & (at >= 0) & (at < n), at, 0).to(tl.int32) // BLOCK


@triton.jit
def _write_zeros(grad_ptr, start, part, N, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of a slice whose row is ignored."""
    first, n = whole_vectors(start, N, VEC)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    tl.store(grad_ptr + first + cols, tl.zeros([BLOCK], tl.float32), mask=cols // VEC < n // VEC)
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        tl.store(grad_ptr + at, tl.zeros([2 * VEC], tl.float32), mask=exists & (part == 0))


@triton.jit
def _write_gradient(
    grad_ptr, target, x_target, start, part, N, m, l, scale, x, x_edge,
    SMOOTHING: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a slice: scale · (softmax − SMOOTHING / N), less scale · (1 − SMOOTHING) at the target.

    The slice is written as if it had no target, and then the target's element again: to ask of every element whether
    it is the target would need registers, and time, for all of them.
    """
    first, n = whole_vectors(start, N, VEC)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    factor, spread = scale / l, scale * (SMOOTHING / N)
    grad = tl.exp2((in_float32(x) - m) * LOG2E) * factor - spread
    tl.store(grad_ptr + first + cols, grad, mask=cols // VEC < n // VEC)
    if EDGES:
        at, exists = edge(start, N, first, n, VEC)
        grad_edge = tl.exp2((x_edge - m) * LOG2E) * factor - spread
        tl.store(grad_ptr + at, grad_edge, mask=exists & (part == 0))
    if part == _owner_of(target, start, N, VEC, BLOCK):
        tl.debug_barrier()  # another thread has written there
        grad_target = tl.exp2((x_target - m) * LOG2E) * factor - spread - scale * (1 - SMOOTHING)
        tl.store(grad_ptr + start + target, grad_target, mask=(target >= 0) & (target < N))


@triton.jit
def _words_of_row(word_ptr, row, SPLIT, SMOOTHING: tl.constexpr):
    """Where the words of a row begin, and how many they are: a pair for each slice, and with SMOOTHING a sum too."""
    n_words = 2 * SPLIT if SMOOTHING > 0 else SPLIT
    return word_ptr + COUNTERS + row * n_words, n_words


@triton.jit
def _hand_in_row(
    loss, loss_ptr, target_ptr, pair_ptr, word_ptr, row, M, ignore_index,
    PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, WHOLE: tl.constexpr,
    THREADS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Hands a row's loss in. The words of losses come after the words of rows; a row that is WHOLE has none."""
    of_losses = word_ptr + COUNTERS
    if not WHOLE:
        _, _, SPLIT = part_row_and_split()
        of_losses, _ = _words_of_row(word_ptr, M.to(tl.int64), SPLIT, SMOOTHING)
    hand_in(
        loss, None, loss_ptr, target_ptr, pair_ptr + M, word_ptr, of_losses, row, M, M, ignore_index,
        PAIRS, REDUCTION, THREADS, GROUP,
    )  # fmt: skip


@triton.jit
def _finish(
    grad_ptr, loss_ptr, target_ptr, pair_ptr, word_ptr, target, x_target, start, part, row, M, N, ignore_index,
    m, l, below, count, x, x_edge,
    GRAD: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, WHOLE: tl.constexpr,
    VEC: tl.constexpr, EDGES: tl.constexpr, THREADS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """The rest of the work once m and l of the row are known. A target of no class makes loss and gradient NaN."""
    if GRAD:
        scale = tl.where((target >= 0) & (target < N), 1.0, float("nan"))
        if REDUCTION == "mean":
            scale /= count
        _write_gradient(
            grad_ptr, target, x_target, start, part, N, m, l, scale, x, x_edge, SMOOTHING, VEC, EDGES, BLOCK
        )
    owner = _owner_of(target, start, N, VEC, BLOCK)
    if part == owner:
        loss = m - x_target + tl.log(l)
        if SMOOTHING > 0:
            loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / N + tl.log(l))
        if PAIRS:
            tl.store(pair_ptr + row, word_of_pair(m, l))
        _hand_in_row(
            loss, loss_ptr, target_ptr, pair_ptr, word_ptr, row, M, ignore_index,
            PAIRS, REDUCTION, SMOOTHING, WHOLE, THREADS, GROUP,
        )  # fmt: skip


@triton.jit
def _logit(x_ptr, target, start, part, N, VEC: tl.constexpr, BLOCK: tl.constexpr):
    """The target's logit for the slice that answers for it, NaN for the others and for a target outside the classes.

    It is asked for before the gradient, which may be written over the logits. Every warp loads it for itself: they have
    to meet before one of them stores.
    """
    owner = _owner_of(target, start, N, VEC, BLOCK)
    exists = (part == owner) & (target >= 0) & (target < N)
    return tl.load(x_ptr + start + target, mask=exists, other=float("nan")).to(tl.float32)


@triton.jit(noinline=True)
def _help_row_of_logits(
    x_ptr, word_ptr, stride, N,
    SMOOTHING: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr, BLOCK: tl.constexpr,
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
            x, x_edge = load_slice(x_ptr, row * stride, part, N, VEC, EDGES, BLOCK)
            m, l, below = _statistics(x, x_edge, row * stride, part, N, SMOOTHING, VEC, EDGES, BLOCK)
            if SMOOTHING > 0:
                tl.atomic_cas(word_row + SPLIT + part, tl.cast(0, tl.int64), word_of_number(below))
            tl.atomic_cas(word_row + part, tl.cast(0, tl.int64), word_of_pair(m, l))


@triton.jit
def _merge_words(
    words, start, N, SPLIT, SMOOTHING: tl.constexpr, VEC: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """m and l of the row from all its words, and with SMOOTHING Σ (m − x) over all its logits."""
    m, l = merge_pairs(words, SPLIT, PARTS)
    below = 0.0
    if SMOOTHING > 0:
        lanes = tl.arange(0, PARTS)
        _, n = whole_vectors(start, N, VEC)
        n_parts = tl.minimum(tl.maximum(n - lanes * BLOCK, 0), BLOCK) + tl.where(lanes == 0, N - n, 0)
        m_parts, below_parts = pair_of_word(words)
        below = tl.sum(tl.where(n_parts > 0, n_parts * (m - m_parts), 0.0), axis=0)
        below += tl.sum(tl.where((lanes >= SPLIT) & (lanes < 2 * SPLIT), below_parts, 0.0), axis=0)
    return m, l, below


@triton.jit(noinline=True)
def _finish_again(
    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, stride, M, N, ignore_index,
    GRAD: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, WHOLE: tl.constexpr,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, THREADS: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Loads the program's own slice again and ends its work, now that all words of the row are there."""
    part, row, SPLIT = part_row_and_split()
    start = row * stride
    target = tl.load(target_ptr + row)
    count = 1.0
    if GRAD and REDUCTION == "mean":
        count = all_targets(target_ptr, M, ignore_index, THREADS)
    x, x_edge = load_slice(x_ptr, start, part, N, VEC, EDGES, BLOCK)
    x_target = _logit(x_ptr, target, start, part, N, VEC, BLOCK)
    if WHOLE:
        m, l, below = _statistics(x, x_edge, start, part, N, SMOOTHING, VEC, EDGES, BLOCK)
    else:
        word_row, n_words = _words_of_row(word_ptr, row, SPLIT, SMOOTHING)
        words = tl.load(places_of_words(word_row, n_words, PARTS), volatile=True)
        m, l, below = _merge_words(words, start, N, SPLIT, SMOOTHING, VEC, PARTS, BLOCK)
    _finish(
        grad_ptr, loss_ptr, target_ptr, pair_ptr, word_ptr, target, x_target, start, part, row, M, N, ignore_index,
        m, l, below, count, x, x_edge, GRAD, PAIRS, REDUCTION, SMOOTHING, WHOLE, VEC, EDGES, THREADS, BLOCK, GROUP,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M", "looks"])
def cross_entropy_kernel(
    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, stride, M, N, ignore_index, looks,
    GRAD: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, WHOLE: tl.constexpr,
    VEC: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, THREADS: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, POLICY: tl.constexpr = NO_POLICY, TURNS: tl.constexpr = 0,
    SMS: tl.constexpr = 0, CYCLES: tl.constexpr = 0, AHEAD: tl.constexpr = 0,
):  # fmt: skip
    """The losses m + log(l) − x[target] of M rows of N logits, a row every `stride` elements, or their sum or mean; and
    the gradient of that, exp(x − m) / l less 1 at the target, for a mean divided by the number of targets.

    A program for each slice of BLOCK columns, POLICY, TURNS and AHEAD as in `shared_kernel`. `grad_ptr` may be `x_ptr`:
    then the gradient is written over the logits. With PAIRS, `pair_ptr` gets a word for each row that counts, its (m,
    l), and behind them, for a mean, their number. `word_ptr` points to zeros: the COUNTERS of `add_up`, the words by
    which the programs of a row exchange what they know, and the words of the losses, in groups of at most GROUP. A row
    whose target is `ignore_index` is read like any other: loading the target first would delay the slice.
    """
    part, row, SPLIT = part_row_and_split()
    take_turns(TURNS, SMS, CYCLES)
    if row < M:
        # The slice, and its pair.
        start = row * stride
        word_row, n_words = _words_of_row(word_ptr, row, SPLIT, SMOOTHING)
        if not WHOLE:
            fetch(word_row + part)
        target = tl.load(target_ptr + row)
        x, x_edge = load_slice(x_ptr, start, part, N, VEC, EDGES, BLOCK, POLICY=POLICY)
        count_targets(word_ptr, target_ptr, row * SPLIT + part, M, M, ignore_index, REDUCTION, THREADS, 1)
        m, l, below = _statistics(x, x_edge, start, part, N, SMOOTHING, VEC, EDGES, BLOCK)
        # Publish the pair.
        complete = True
        if not WHOLE:
            if SMOOTHING > 0:
                tl.atomic_xchg(word_row + SPLIT + part, word_of_number(below), sem="relaxed")
            publish_pair(word_row + part, m, l)
        if AHEAD > 0:
            fetch(lines_ahead(x_ptr, part, row, stride, M, N, BLOCK, AHEAD), POLICY)
        # From here on the row's other slices wait no longer for this one: now the target is asked for, and the count.
        x_target = _logit(x_ptr, target, start, part, N, VEC, BLOCK)
        if GRAD and WHOLE and REDUCTION != "mean":  # else the warps meet before they write
            tl.debug_barrier()  # the gradient may be written over the logits: no warp is to read it for the target's
        # An ignored row has a loss of 0, and a gradient of 0.
        if target == ignore_index:
            if GRAD:
                _write_zeros(grad_ptr, start, part, N, VEC, EDGES, BLOCK)
            if part == 0:
                loss = tl.cast(0.0, tl.float32)
                _hand_in_row(
                    loss, loss_ptr, target_ptr, pair_ptr, word_ptr, row, M, ignore_index,
                    PAIRS, REDUCTION, SMOOTHING, WHOLE, THREADS, GROUP,
                )  # fmt: skip
        elif WHOLE or GRAD or part == _owner_of(target, start, N, VEC, BLOCK):
            # Look for the count and for the pairs of the others, and merge.
            count, counted = 1.0, True
            if GRAD and REDUCTION == "mean":
                count, counted = counted_targets(word_ptr, M, M, looks, THREADS)
            if not WHOLE:
                words, complete = pairs_of_row(word_row, n_words, looks, PARTS)
                m, l, below = _merge_words(words, start, N, SPLIT, SMOOTHING, VEC, PARTS, BLOCK)
            if complete & counted:
                _finish(
                    grad_ptr, loss_ptr, target_ptr, pair_ptr, word_ptr, target, x_target, start, part, row, M, N,
                    ignore_index, m, l, below, count, x, x_edge,
                    GRAD, PAIRS, REDUCTION, SMOOTHING, WHOLE, VEC, EDGES, THREADS, BLOCK, GROUP,
                )  # fmt: skip
            else:
                # Help: compute what is missing, then begin again.
                if not WHOLE:
                    _help_row_of_logits(x_ptr, word_ptr, stride, N, SMOOTHING, VEC, EDGES, BLOCK)
                    tl.debug_barrier()  # what one thread has published, all threads read
                _finish_again(
                    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, stride, M, N, ignore_index,
                    GRAD, PAIRS, REDUCTION, SMOOTHING, WHOLE, VEC, EDGES, PARTS, THREADS, BLOCK, GROUP,
                )  # fmt: skip
