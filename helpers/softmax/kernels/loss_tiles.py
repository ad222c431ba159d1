"""Losses of many short rows, and their gradients, from one read of the logits and one write.

Programs take tile after tile of rows, so that each waits for the count of targets and hands a loss in only once.
Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.add_up import COUNTERS, count_for_mean, hand_in
from helpers.softmax.kernels.columns import groups_of
from helpers.softmax.kernels.shared import LOG2E, LOWEST, NO_POLICY, in_float32, word_of_pair


@triton.jit(do_not_specialize=["M", "looks"])
def cross_entropy_tile_kernel(
    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, stride, M, N, ignore_index, looks,
    GRAD: tl.constexpr, OWN: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr,
    VEC: tl.constexpr, ROWS: tl.constexpr, THREADS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """The losses m + log(l) − x[target] of M rows and their gradient, exp(x − m) / l less 1 at the target, as
    `cross_entropy_kernel`; but the programs share tiles of ROWS rows, and a program hands the losses of all its tiles
    in as one, in groups of at most GROUP programs.

    A tile holds BLOCK columns of a row, vectors of VEC, loaded by the POLICY. The other letters are the same: GRAD,
    PAIRS, REDUCTION, SMOOTHING, and THREADS. With OWN each program counts the targets that it reads, for a mean without
    a gradient. As in that kernel, a tile of the gradient is written as if it had no targets, and then the targets'
    elements again.
    """
    # What a mean is divided by.
    program, programs = tl.program_id(0), tl.num_programs(0)
    count = count_for_mean(
        word_ptr, target_ptr, program, programs, M, ignore_index, looks, GRAD, OWN, REDUCTION, THREADS
    )
    total, own = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.int32)
    cols = tl.arange(0, BLOCK)
    for tile in tl.range(program, groups_of(M, ROWS), programs, disable_licm=True):
        # A tile, and the logits of its targets.
        rows = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        exists = rows < M
        start = tl.multiple_of(rows * stride, VEC)
        at = start[:, None] + cols[None, :]
        mask = exists[:, None] & (cols // VEC < N // VEC)[None, :]
        target = tl.load(target_ptr + rows, mask=exists, other=ignore_index)
        x = tl.load(x_ptr + at, mask=mask, other=-float("inf"), eviction_policy=POLICY)
        counts, is_class = target != ignore_index, (target >= 0) & (target < N)
        x_target = tl.load(x_ptr + start + target, mask=exists & is_class, other=float("nan")).to(tl.float32)
        # m, l and the losses.
        m = tl.maximum(tl.max(x.to(tl.float32), axis=1), LOWEST)
        l = tl.sum(tl.exp2((in_float32(x) - m[:, None]) * LOG2E), axis=1)
        loss = m - x_target + tl.log(l)
        if SMOOTHING > 0:
            below = tl.sum(tl.where(mask, m[:, None] - in_float32(x), 0.0), axis=1)
            loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / N + tl.log(l))
        loss = tl.where(counts, loss, 0.0)
        if PAIRS:
            tl.store(pair_ptr + rows, word_of_pair(m, l), mask=counts)
        if REDUCTION == "none":
            tl.store(loss_ptr + rows, loss, mask=exists)
        total += loss
        own += counts.to(tl.int32)
        if GRAD:
            # The gradient of the tile, and then that at the targets.
            scale = tl.where(is_class, 1.0, float("nan")) / count
            factor, spread = scale / l, scale * (SMOOTHING / N)
            grad = tl.exp2((in_float32(x) - m[:, None]) * LOG2E) * factor[:, None] - spread[:, None]
            tl.debug_barrier()  # the gradient may be written over the logits: all targets' logits have been read
            tl.store(grad_ptr + at, tl.where(counts[:, None], grad, 0.0), mask=mask)
            tl.debug_barrier()  # another thread has written there
            grad_target = tl.exp2((x_target - m) * LOG2E) * factor - spread - scale * (1 - SMOOTHING)
            tl.store(grad_ptr + start + target, grad_target, mask=counts & is_class)
    if REDUCTION != "none":
        # The losses of all its tiles, as one.
        hand_in(
            tl.sum(total, axis=0), tl.sum(own, axis=0) if OWN else None, loss_ptr, target_ptr, pair_ptr + M, word_ptr,
            word_ptr + COUNTERS, program, programs, M, ignore_index, PAIRS, REDUCTION, THREADS, GROUP,
        )  # fmt: skip
