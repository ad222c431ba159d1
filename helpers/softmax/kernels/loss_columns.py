"""Losses of classes that others lie behind, such as the channels of an image, and their gradients: one read, one write.

A tensor is seen as (OUTER, N, INNER), its classes in the middle, and each of its OUTER · INNER columns has a target. A
tile holds all N classes of WIDTH neighbours. Programs take tile after tile, as in `loss_tiles`. Letters as in
`helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.add_up import COUNTERS, count_for_mean, hand_in, number_of_word
from helpers.softmax.kernels.columns import groups_of, pointers_of_tile
from helpers.softmax.kernels.shared import COMPILED, LOG2E, LOWEST, NO_POLICY, in_float32


@triton.jit
def _as_if_new(number):
    """The number, which the compiler cannot know to be the same for the next tile; 1 stays 1.

    What it knows to be the same, the places within a tile, it computes once and keeps: that spilled up to 460 bytes a
    thread (Triton 3.6).
    """
    if COMPILED and isinstance(number, tl.tensor):
        return tl.inline_asm_elementwise("mov.u32 $0, $1;", "=r,r", [number], tl.int32, is_pure=False, pack=1)
    else:
        return number


@triton.jit
def _neighbours_of_tile(tile, INNER, WIDTH: tl.constexpr):
    """The WIDTH neighbours of a tile: in which group, at which places of the INNER ones, and which of them exist."""
    tiles = groups_of(INNER, WIDTH)
    inner = (tile % tiles).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    return (tile // tiles).to(tl.int64), inner, inner < INNER


@triton.jit
def _pairs_of_tile(x):
    """(m, l) of each column of a tile."""
    m = tl.maximum(tl.max(x.to(tl.float32), axis=0), LOWEST)
    return m, tl.sum(tl.exp2((in_float32(x) - m[None, :]) * LOG2E), axis=0)


@triton.jit
def _write_gradient_tile(
    grad_ptr, x, x_target, target, m, l, scale, counts, tile, outer_stride, inner_stride, class_stride, INNER, N,
    SMOOTHING: tl.constexpr, VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of BLOCK classes and WIDTH neighbours: scale · (softmax − SMOOTHING / N), less scale ·
    (1 − SMOOTHING) at the target; 0 in columns that do not count.

    As in `loss_rows`, the tile is written as if it had no targets, and then the targets' elements again.
    """
    factor, spread = scale / l, scale * (SMOOTHING / N)
    grad = tl.exp2((in_float32(x) - m[None, :]) * LOG2E) * factor[None, :] - spread[None, :]
    strides = outer_stride, inner_stride, _as_if_new(class_stride)
    at, mask = pointers_of_tile(grad_ptr, tile, 0, *strides, INNER, N, VEC, WIDTH, BLOCK)
    tl.debug_barrier()  # the gradient may be written over the logits: all targets' logits have been read
    tl.store(at, tl.where(counts[None, :], grad, 0.0), mask=mask)
    tl.debug_barrier()  # another thread has written there
    outer, inner, _ = _neighbours_of_tile(tile, INNER, WIDTH)
    grad_target = tl.exp2((x_target - m) * LOG2E) * factor - spread - scale * (1 - SMOOTHING)
    at_target = outer * outer_stride + target * class_stride + inner * inner_stride
    tl.store(grad_ptr + at_target, grad_target, mask=counts & (target >= 0) & (target < N))


@triton.jit(do_not_specialize=["M", "tiles", "looks"])
def cross_entropy_columns_kernel(
    grad_ptr, loss_ptr, x_ptr, target_ptr, count_ptr, word_ptr,
    grad_outer, grad_class, x_outer, x_class, INNER, M, N, tiles, ignore_index, looks,
    GRAD: tl.constexpr, OWN: tl.constexpr, PAIRS: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr,
    VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, THREADS: tl.constexpr, GROUP: tl.constexpr,
    POLICY: tl.constexpr = NO_POLICY,
):  # fmt: skip
    """The losses m + log(l) − x[target] of M columns of N logits, or their sum or mean, and the gradient of that,
    exp(x − m) / l less 1 at the target.

    The programs share `tiles`, each of all classes, BLOCK at most, of WIDTH neighbours, VEC at a time, loaded by the
    POLICY. `grad_ptr` may be `x_ptr`: then the gradient is written over the logits. GRAD, REDUCTION, SMOOTHING,
    THREADS, GROUP and `word_ptr` are as in `cross_entropy_kernel`, OWN as in `cross_entropy_tile_kernel`. With PAIRS,
    and for a mean, `count_ptr` gets a word, the number of targets that count; pairs are none, since a tile of logits
    has them.
    """
    # What a mean is divided by.
    program, programs = tl.program_id(0), tl.num_programs(0)
    count = count_for_mean(
        word_ptr, target_ptr, program, programs, M, ignore_index, looks, GRAD, OWN, REDUCTION, THREADS
    )
    total, own = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.int32)
    for tile in tl.range(program, tiles, programs, disable_licm=True):
        # A tile, and the logits of its targets.
        outer, inner, exists = _neighbours_of_tile(tile, INNER, WIDTH)
        target = tl.load(target_ptr + outer * INNER + inner, mask=exists, other=ignore_index)
        at, mask = pointers_of_tile(x_ptr, tile, 0, x_outer, 1, _as_if_new(x_class), INNER, N, VEC, WIDTH, BLOCK)
        x = tl.load(at, mask=mask, other=-float("inf"), eviction_policy=POLICY)
        counts, is_class = target != ignore_index, (target >= 0) & (target < N)
        at_target = x_ptr + outer * x_outer + target * x_class + inner
        x_target = tl.load(at_target, mask=exists & is_class, other=float("nan")).to(tl.float32)
        # m, l and the losses.
        m, l = _pairs_of_tile(x)
        loss = m - x_target + tl.log(l)
        if SMOOTHING > 0:
            below = tl.sum(tl.where(mask, m[None, :] - in_float32(x), 0.0), axis=0)
            loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / N + tl.log(l))
        loss = tl.where(counts, loss, 0.0)
        if REDUCTION == "none":
            tl.store(loss_ptr + outer * INNER + inner, loss, mask=exists)
        total += loss
        own += counts.to(tl.int32)
        if GRAD:
            scale = tl.where(is_class, 1.0, float("nan")) / count
            _write_gradient_tile(
                grad_ptr, x, x_target, target, m, l, scale, counts, tile, grad_outer, 1, grad_class, INNER, N,
                SMOOTHING, VEC, WIDTH, BLOCK,
            )  # fmt: skip
    if REDUCTION != "none":
        # The losses of all its tiles, as one.
        hand_in(
            tl.sum(total, axis=0), tl.sum(own, axis=0) if OWN else None, loss_ptr, target_ptr, count_ptr, word_ptr,
            word_ptr + COUNTERS, program, programs, M, ignore_index, PAIRS, REDUCTION, THREADS, GROUP,
        )  # fmt: skip


@triton.jit(do_not_specialize=["tiles"], do_not_specialize_on_alignment=["by_ptr", "target_ptr"])
def columns_backward_kernel(
    y_ptr, x_ptr, by_ptr, target_ptr, count_ptr,
    y_outer, y_inner, y_class, x_outer, x_inner, x_class, by_stride, INNER, N, tiles, ignore_index,
    AGAIN: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, OF_ROWS: tl.constexpr, OVER: tl.constexpr,
    EARLY: tl.constexpr, VEC: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient y of columns of N logits for what arrives: `by`, one number, or with OF_ROWS one for each column,
    times (exp(x − m) / l less 1 at the target).

    Many short rows are columns too, whose classes lie one behind another.

    x is the gradient for 1, or AGAIN the logits; then `count_ptr` points to what `cross_entropy_columns_kernel` left
    there. With OVER, the gradient for 1 lies in y already: if this one number is 1, nothing is read or written.
    REDUCTION, SMOOTHING, VEC, WIDTH and BLOCK are as in that kernel, EARLY as in `loss_backward`.
    """
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_wait()
    # What arrives; of one number it may be 1, and then there is nothing to do.
    by = tl.zeros([WIDTH], tl.float32) + tl.load(by_ptr).to(tl.float32)
    if OVER and not OF_ROWS:
        tiles = tl.where(tl.load(by_ptr) == 1, 0, tiles)
    count = tl.full([], 1.0, tl.float32)
    if AGAIN and REDUCTION == "mean":
        count = number_of_word(tl.load(count_ptr, mask=tiles > 0, other=0))
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), disable_licm=True):
        # A tile of logits, or of the gradient for 1.
        outer, inner, exists = _neighbours_of_tile(tile, INNER, WIDTH)
        target = tl.load(target_ptr + outer * INNER + inner, mask=exists, other=ignore_index)
        if OF_ROWS:
            by = tl.load(by_ptr + (outer * INNER + inner) * by_stride, mask=exists, other=1.0).to(tl.float32)
        counts, is_class = target != ignore_index, (target >= 0) & (target < N)
        strides = x_outer, x_inner, _as_if_new(x_class)
        at, mask = pointers_of_tile(x_ptr, tile, 0, *strides, INNER, N, VEC, WIDTH, BLOCK)
        x = tl.load(at, mask=mask, other=-float("inf"))
        if AGAIN:
            # The gradient is made again.
            at_target = x_ptr + outer * x_outer + target * x_class + inner * x_inner
            x_target = tl.load(at_target, mask=exists & is_class, other=float("nan")).to(tl.float32)
            m, l = _pairs_of_tile(x)
            scale = tl.where(is_class, by / count, float("nan"))
            _write_gradient_tile(
                y_ptr, x, x_target, target, m, l, scale, counts, tile, y_outer, y_inner, y_class, INNER, N,
                SMOOTHING, VEC, WIDTH, BLOCK,
            )  # fmt: skip
        else:
            # The gradient for 1 is multiplied.
            strides = y_outer, y_inner, _as_if_new(y_class)
            at, _ = pointers_of_tile(y_ptr, tile, 0, *strides, INNER, N, VEC, WIDTH, BLOCK)
            tl.store(at, tl.where(counts[None, :], x.to(tl.float32) * by[None, :], 0.0), mask=mask)
