"""Losses of several short rows a program, and their gradients, from one read of the logits and one write.

As in `loss_kernel`, but nobody waits for another's pair. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.loss_sum import COUNTERS, all_targets, count_targets, counted_targets, hand_in
from helpers.softmax.rows import LOG2E, NO_POLICY
from helpers.softmax.shared import LOWEST, word_of_pair

_COUNTERS = tl.constexpr(COUNTERS)


@triton.jit(do_not_specialize=["M", "looks"])
def cross_entropy_tile_kernel(
    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, stride, M, N, ignore_index, looks,
    GRAD: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr,
    V: tl.constexpr, ROWS: tl.constexpr, THREADS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """As `cross_entropy_kernel`, each program for ROWS rows, whose losses it stores one by one or hands in as one, in
    groups of at most GROUP programs.

    A tile holds BLOCK columns of a row, vectors of V, loaded by the POLICY. The other letters are the same: GRAD,
    PAIRS, REDUCTION, SMOOTHING, and THREADS.
    """
    tile, tiles = tl.program_id(0), tl.num_programs(0)
    rows, cols = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    exists = rows < M
    at = tl.multiple_of(rows * stride, V)[:, None] + cols[None, :]
    mask = exists[:, None] & (cols // V < N // V)[None, :]
    target = tl.load(target_ptr + rows, mask=exists, other=ignore_index)
    x = tl.load(x_ptr + at, mask=mask, other=-float("inf"), eviction_policy=POLICY).to(tl.float32)
    count_targets(word_ptr, target_ptr, tile, M, ignore_index, REDUCTION, THREADS)
    m = tl.maximum(tl.max(x, axis=1), LOWEST)
    e = tl.exp2((x - m[:, None]) * LOG2E)
    l = tl.sum(e, axis=1)
    counts, is_class = target != ignore_index, (target >= 0) & (target < N)
    at_target = cols[None, :] == target[:, None]
    # Taken from the tile: a load of it could come after the gradient that is written over the logits.
    x_target = tl.where(is_class, tl.sum(tl.where(at_target, x, 0.0), axis=1), float("nan"))
    loss = m - x_target + tl.log(l)
    if SMOOTHING > 0:
        below = tl.sum(tl.where(mask, m[:, None] - x, 0.0), axis=1)
        loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / N + tl.log(l))
    loss = tl.where(counts, loss, 0.0)
    if PAIRS:
        tl.store(pair_ptr + rows, word_of_pair(m, l), mask=counts)
    if GRAD:
        scale = tl.where(is_class, 1.0, float("nan"))
        if REDUCTION == "mean":
            count, counted = counted_targets(word_ptr, M, looks, THREADS)
            if not counted:
                count = all_targets(target_ptr, M, ignore_index, THREADS)
            scale /= count
        grad = e * (scale / l)[:, None] - (scale * (SMOOTHING / N))[:, None]
        grad = tl.where(at_target, grad - (scale * (1 - SMOOTHING))[:, None], grad)
        tl.store(grad_ptr + at, tl.where(counts[:, None], grad, 0.0), mask=mask)
    if REDUCTION == "none":
        tl.store(loss_ptr + rows, loss, mask=exists)
    else:
        loss = tl.sum(loss, axis=0)
        hand_in(
            loss, loss_ptr, target_ptr, pair_ptr + M, word_ptr, word_ptr + _COUNTERS, tile, tiles, M, ignore_index,
            PAIRS, REDUCTION, THREADS, GROUP,
        )  # fmt: skip
