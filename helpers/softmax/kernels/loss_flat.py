"""Losses of the shortest rows that do not fill whole vectors, and their gradients: one read, one write.

Rows are moved as in `flat`; programs take tile after tile, as in `loss_tiles`. A program has all logits of its rows,
and the target's logit is among them. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.add_up import COUNTERS, count_for_mean, hand_in
from helpers.softmax.kernels.columns import groups_of
from helpers.softmax.kernels.flat import columns_as_run, last_rows, run_as_columns, run_of_rows
from helpers.softmax.kernels.shared import LOG2E, LOWEST, NO_POLICY


@triton.jit
def _losses_and_gradient(
    x, rows, exists, loss_ptr, target_ptr, count, ignore_index,
    N: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The losses m + log(l) − x[target] of rows of N logits, each a column of x with BLOCK places; whether a row
    counts; and the gradients, exp(x − m) / l less 1 at the target, divided by the `count`.

    With REDUCTION "none" the losses are stored.
    """
    # The targets, and where in the tile they are.
    classes = tl.arange(0, BLOCK)[:, None]
    target = tl.load(target_ptr + rows, mask=exists, other=ignore_index)
    counts, is_class = target != ignore_index, (target >= 0) & (target < N)
    at_target = classes == tl.where(is_class, target, -1).to(tl.int32)[None, :]
    # m, l and the losses.
    x = tl.where(classes < N, x, -float("inf"))
    m = tl.maximum(tl.max(x, axis=0), LOWEST)
    e = tl.exp2((x - m[None, :]) * LOG2E)
    l = tl.sum(e, axis=0)
    x_target = tl.where(is_class, tl.sum(tl.where(at_target, x, 0.0), axis=0), float("nan"))
    loss = m - x_target + tl.log(l)
    if SMOOTHING > 0:
        below = tl.sum(tl.where(classes < N, m[None, :] - x, 0.0), axis=0)
        loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / N + tl.log(l))
    loss = tl.where(counts, loss, 0.0)
    if REDUCTION == "none":
        tl.store(loss_ptr + rows, loss, mask=exists)
    # What each logit's probability is multiplied by, and what is taken from it.
    scale = tl.where(is_class, 1.0, float("nan")) / count
    taken = tl.where(at_target, (scale * (1 - SMOOTHING))[None, :], 0.0) + (scale * (SMOOTHING / N))[None, :]
    return loss, counts.to(tl.int32), tl.where(counts[None, :], e * (scale / l)[None, :] - taken, 0.0)


@triton.jit(do_not_specialize=["M", "looks"])
def cross_entropy_flat_kernel(
    grad_ptr, loss_ptr, x_ptr, target_ptr, pair_ptr, word_ptr, M, ignore_index, looks,
    N: tl.constexpr, GRAD: tl.constexpr, OWN: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr,
    SMOOTHING: tl.constexpr, VEC: tl.constexpr, USED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    RUN: tl.constexpr, THREADS: tl.constexpr, GROUP: tl.constexpr, POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """As `cross_entropy_tile_kernel` for M rows of N logits, but that a tile is USED rows, moved as RUN lanes and
    computed as (BLOCK, ROWS), as in `flat_kernel`, also VEC and the POLICY.

    GRAD, OWN, REDUCTION, SMOOTHING, THREADS and GROUP are the same; with PAIRS a mean leaves only the last word, the
    number of targets that count: backward makes the pairs itself.
    """
    # What a mean is divided by.
    program, programs = tl.program_id(0), tl.num_programs(0)
    count = count_for_mean(
        word_ptr, target_ptr, program, programs, M, ignore_index, looks, GRAD, OWN, REDUCTION, THREADS
    )
    losses, counts = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS], tl.int32)
    for tile in tl.range(program, groups_of(M, USED), programs, disable_licm=True):
        # A run of whole vectors: as columns it is computed, and as a run stored.
        at, mask = run_of_rows(tile, M, N, VEC, USED, RUN)
        run = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy=POLICY).to(tl.float32)
        x = run_as_columns(run, N, ROWS, BLOCK, RUN)
        row = tl.arange(0, ROWS)
        rows = tile.to(tl.int64) * USED + row
        exists = (row < USED) & (rows < M // VEC * VEC)
        loss, is_counted, grad = _losses_and_gradient(
            x, rows, exists, loss_ptr, target_ptr, count, ignore_index, N, REDUCTION, SMOOTHING, BLOCK
        )
        losses += loss
        counts += is_counted
        if GRAD:
            tl.store(grad_ptr + at, columns_as_run(grad, N, ROWS, BLOCK, RUN), mask=mask)
    total, own = tl.sum(losses, axis=0), tl.sum(counts, axis=0)
    # The last rows, one element at a time.
    if (program == 0) & (M % VEC > 0):
        at, mask = last_rows(M, N, VEC, BLOCK)
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        rows = M // VEC * VEC + tl.arange(0, VEC).to(tl.int64)
        loss, is_counted, grad = _losses_and_gradient(
            x, rows, rows < M, loss_ptr, target_ptr, count, ignore_index, N, REDUCTION, SMOOTHING, BLOCK
        )
        total += tl.sum(loss, axis=0)
        own += tl.sum(is_counted, axis=0)
        if GRAD:
            tl.debug_barrier()  # the gradient may be written over the logits: all threads have read them
            tl.store(grad_ptr + at, grad, mask=mask)
    if REDUCTION != "none":
        # The losses of all its tiles, as one.
        hand_in(
            total, own if OWN else None, loss_ptr, target_ptr, pair_ptr + M, word_ptr, word_ptr + COUNTERS, program,
            programs, M, ignore_index, PAIRS, REDUCTION, THREADS, GROUP,
        )  # fmt: skip
