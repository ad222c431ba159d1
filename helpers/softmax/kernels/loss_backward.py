"""The gradient of a loss where what arrives in backward is not 1: one more read and write.

Where the logits are kept, it is made of them again, and rounded once. Where it was written over them, or is float32,
the gradient itself is multiplied. Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.add_up import number_of_word
from helpers.softmax.kernels.shared import COMPILED, LOG2E, edge, load_slice, pair_of_word, whole_vectors


@triton.jit
def _columns_of_gradient(
    x, cols, by, scale, target, m, l, N, ignore_index, AGAIN: tl.constexpr, SMOOTHING: tl.constexpr
):
    """`cols` of a row of the gradient: x · by, or AGAIN of the logits x, `scale` times that of the row's loss.

    An ignored row is 0 even where what arrives is infinite or NaN, as torch's.
    """
    x = x.to(tl.float32)
    if AGAIN:
        grad = tl.exp2((x - m) * LOG2E) * (scale / l) - scale * (SMOOTHING / N)
        grad = tl.where(cols == target, grad - scale * (1 - SMOOTHING), grad)
    else:
        grad = x * by
    return tl.where(target == ignore_index, 0.0, grad)


@triton.jit(do_not_specialize=["M"], do_not_specialize_on_alignment=["by_ptr", "target_ptr"])
def backward_kernel(
    y_ptr, x_ptr, by_ptr, target_ptr, pair_ptr, stride, by_stride, M, N, ignore_index,
    AGAIN: tl.constexpr, REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr,
    OF_ROWS: tl.constexpr, OVER: tl.constexpr, EARLY: tl.constexpr, VEC: tl.constexpr, EDGES: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient y of M rows of N logits for what arrives: `by`, one number, or with OF_ROWS one for each row, times
    (exp(x − m) / l less 1 at the target).

    x is the gradient for 1, or AGAIN the logits; then `pair_ptr` points to what `cross_entropy_kernel` left there. A
    program writes slices of BLOCK columns in whole vectors of VEC, and the EDGES with the first.
    With OVER, the gradient for 1 lies in y already, and rows for which 1 arrives are neither read nor written. EARLY
    says that the launch may begin before the one ahead of it has ended.
    """
    if EARLY and COMPILED:
        tl.extra.cuda.gdc_wait()  # its programs are in place when `by` comes
    # What arrives; of one number it may be 1, and then there is nothing to do.
    parts = tl.cdiv(N, BLOCK)
    slices = M.to(tl.int64) * parts
    by = tl.load(by_ptr).to(tl.float32)
    if OVER and not OF_ROWS:
        slices = tl.where(by == 1, 0, slices)
    count = tl.full([], 1.0, tl.float32)
    if AGAIN and REDUCTION == "mean":
        count = number_of_word(tl.load(pair_ptr + M, mask=slices > 0, other=0))
    for index in range(tl.program_id(0), slices, tl.num_programs(0)):
        # A slice of logits, or of the gradient for 1.
        row, part = index // parts, (index % parts).to(tl.int32)
        if OF_ROWS:
            by = tl.load(by_ptr + row * by_stride).to(tl.float32)
        n_cols = tl.where(by == 1, 0, N) if OVER else N
        start = row * stride
        x, x_edge = load_slice(x_ptr, start, part, n_cols, VEC, EDGES, BLOCK)
        # What the row's gradient is made of.
        target, m, l, scale = tl.load(target_ptr + row), 0.0, 1.0, 1.0
        if AGAIN:
            m, l = pair_of_word(tl.load(pair_ptr + row))
            scale = tl.where((target >= 0) & (target < N), by / count, float("nan"))
        # Write the slice, and the edges with the first one.
        first, n = whole_vectors(start, n_cols, VEC)
        cols = part * BLOCK + tl.arange(0, BLOCK)
        y = _columns_of_gradient(x, first - start + cols, by, scale, target, m, l, N, ignore_index, AGAIN, SMOOTHING)
        tl.store(y_ptr + first + cols, y, mask=cols // VEC < n // VEC)
        if EDGES:
            at, exists = edge(start, n_cols, first, n, VEC)
            y_edge = _columns_of_gradient(
                x_edge, at - start, by, scale, target, m, l, N, ignore_index, AGAIN, SMOOTHING
            )
            tl.store(y_ptr + at, y_edge, mask=exists & (part == 0))
