"""The local parts of a row that lies over several GPUs, each of which holds a shard of N columns.

`shard_kernel` reads a shard once and leaves what the others need to know of it; `merge_kernel` merges the numbers of
all W shards; `total_kernel` adds up losses; `write_kernel` reads the shard again and writes probabilities, or the
gradient of a loss. `dots_kernel` and `from_dots_kernel` are the two halves of the gradient of a softmax.

A shard's message has a plane of M float32 each for m, l and, of a loss, x at the target (0 if it lies elsewhere) and
with SMOOTHING Σ (m − x), and last three int32: the shard's columns, its first class, and whether the caller named it.
m starts from the lowest finite number and not from −inf, so that no difference of two infinities occurs: a shard of
only −inf, or of nothing, has l = 0.

The numbers of whole rows have a plane of M float32 each for m and l, and last of a loss the number of classes and
whether the shards follow each other, as int32, and how many rows count, as float32.
Letters as in `helpers.softmax`.
"""

import triton
import triton.language as tl

from helpers.softmax.kernels.shared import LOG2E, LOWEST, in_float32


@triton.jit(do_not_specialize=["M", "begin"], do_not_specialize_on_alignment=["target_ptr"])
def shard_kernel(
    message_ptr, x_ptr, target_ptr, stride, M, N, begin, NAMED: tl.constexpr, LOSS: tl.constexpr,
    SMOOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program streams a row of the shard in tiles of BLOCK columns, and writes its numbers into the message.

    `begin` is the first class of the shard. There is at least one program, also of no rows.
    """
    row = tl.program_id(0)
    planes = 2 + LOSS + (SMOOTHING > 0)
    if row < M:
        x_row = x_ptr + row.to(tl.int64) * stride
        m, l, below = LOWEST, 0.0, 0.0
        for start in range(0, N, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < N, other=-float("inf"))
            m_new = tl.maximum(m, tl.max(x, axis=0).to(tl.float32))
            l = l * tl.exp2((m - m_new) * LOG2E) + tl.sum(tl.exp2((in_float32(x) - m_new) * LOG2E), axis=0)
            if SMOOTHING > 0:
                below += start * (m_new - m) + tl.sum(tl.where(cols < N, m_new - in_float32(x), 0.0), axis=0)
            m = m_new
        tl.store(message_ptr + row, m)
        tl.store(message_ptr + M + row, l)
        if LOSS:
            target = tl.load(target_ptr + row) - begin
            x_target = tl.load(x_row + target, mask=(target >= 0) & (target < N), other=0.0)
            tl.store(message_ptr + 2 * M + row, x_target.to(tl.float32))
        if SMOOTHING > 0:
            tl.store(message_ptr + 3 * M + row, below)
    if row == 0:
        head_ptr = (message_ptr + planes * M).to(tl.pointer_type(tl.int32))
        tl.store(head_ptr, N)
        tl.store(head_ptr + 1, begin)
        tl.store(head_ptr + 2, tl.cast(NAMED, tl.int32))


@triton.jit(do_not_specialize=["M"], do_not_specialize_on_alignment=["target_ptr"])
def merge_kernel(
    rows_ptr, loss_ptr, messages_ptr, target_ptr, M, size, ignore_index, W: tl.constexpr, LOSS: tl.constexpr,
    SMOOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The numbers of BLOCK whole rows, from the messages of W shards, `size` float32 apart; with LOSS their losses too.

    The loss is 0 for an ignored row, and NaN for a target of no class, and wherever the shards do not begin where the
    shards before them end. SMOOTHING spreads a part of the target's probability over all classes.
    """
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = row < M
    m = tl.full([BLOCK], LOWEST, tl.float32)
    for shard in range(W):
        m = tl.maximum(m, tl.load(messages_ptr + shard * size + row, mask=exists, other=0.0))
    l = tl.zeros([BLOCK], tl.float32)
    x_target = tl.zeros([BLOCK], tl.float32)
    below = tl.zeros([BLOCK], tl.float32)
    C, follow = 0, True
    for shard in range(W):
        message_ptr = messages_ptr + shard * size
        m_shard = tl.load(message_ptr + row, mask=exists, other=0.0)
        l += tl.load(message_ptr + M + row, mask=exists, other=0.0) * tl.exp2((m_shard - m) * LOG2E)
        if LOSS:
            x_target += tl.load(message_ptr + 2 * M + row, mask=exists, other=0.0)
            head_ptr = (message_ptr + size - 3).to(tl.pointer_type(tl.int32))
            n = tl.load(head_ptr)
            follow &= (tl.load(head_ptr + 1) == C) | (n == 0)
            C += n
            if SMOOTHING > 0:
                below += tl.load(message_ptr + 3 * M + row, mask=exists, other=0.0)
                below += tl.where(n > 0, n * (m - m_shard), 0.0)
    tl.store(rows_ptr + row, m, mask=exists)
    tl.store(rows_ptr + M + row, l, mask=exists)
    if LOSS:
        is_first = tl.program_id(0) == 0
        found_ptr = (rows_ptr + 2 * M).to(tl.pointer_type(tl.int32))
        tl.store(found_ptr, C, mask=is_first)
        tl.store(found_ptr + 1, tl.cast(follow, tl.int32), mask=is_first)
        target = tl.load(target_ptr + row, mask=exists, other=0)
        loss = m - x_target + tl.log(l)
        if SMOOTHING > 0:
            loss = (1 - SMOOTHING) * loss + SMOOTHING * (below / C + tl.log(l))
        loss = tl.where((target >= 0) & (target < C) & follow, loss, float("nan"))
        tl.store(loss_ptr + row, tl.where(target == ignore_index, 0.0, loss), mask=exists)


@triton.jit(do_not_specialize=["M"], do_not_specialize_on_alignment=["target_ptr"])
def total_kernel(total_ptr, rows_ptr, loss_ptr, target_ptr, M, ignore_index, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    """One program adds up the losses of all rows, or takes the mean of those that count; the mean of none is NaN."""
    total, counted = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.int32)
    for start in range(0, M, BLOCK):
        row = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + row, mask=row < M, other=0.0)
        target = tl.load(target_ptr + row, mask=row < M, other=0)
        counted += ((row < M) & (target != ignore_index)).to(tl.int32)
    loss, count = tl.sum(total, axis=0), tl.sum(counted, axis=0)
    if MEAN:
        tl.store(rows_ptr + 2 * M + 2, count.to(tl.float32))
        loss = tl.where(count > 0, loss / tl.maximum(count, 1), float("nan"))
    tl.store(total_ptr, loss)


@triton.jit
def part_of_row(N, BLOCK: tl.constexpr):
    """This program's row, and its BLOCK columns. Neighbouring programs have neighbouring parts of a row. The last row
    comes first: the launch that read all rows before has left it in the cache.
    """
    at, parts = tl.num_programs(0) - 1 - tl.program_id(0), tl.cdiv(N, BLOCK)
    return (at // parts).to(tl.int64), at % parts * BLOCK + tl.arange(0, BLOCK)


@triton.jit(do_not_specialize=["M", "begin"], do_not_specialize_on_alignment=["target_ptr", "by_ptr"])
def write_kernel(
    y_ptr, x_ptr, rows_ptr, by_ptr, target_ptr, stride, M, N, begin, ignore_index, LOSS: tl.constexpr,
    REDUCTION: tl.constexpr, SMOOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each program writes BLOCK columns of a row of the shard: its probabilities, or with LOSS the gradient of a loss.

    The gradient is times the number at `by_ptr`, of which there is one for each row if the REDUCTION is "none". The
    rows of y lie one behind another. SMOOTHING is as in `merge_kernel`.
    """
    row, cols = part_of_row(N, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=0.0)
    m, l = tl.load(rows_ptr + row), tl.load(rows_ptr + M + row)
    if LOSS:
        by = tl.load(by_ptr + (row if REDUCTION == "none" else 0)).to(tl.float32)
        if REDUCTION == "mean":
            by /= tl.load(rows_ptr + 2 * M + 2)
        target, C = tl.load(target_ptr + row), tl.load((rows_ptr + 2 * M).to(tl.pointer_type(tl.int32)))
        by = tl.where((target >= 0) & (target < C), by, float("nan"))
        y = tl.exp2((in_float32(x) - m) * LOG2E) * (by / l) - by * (SMOOTHING / C)
        y = tl.where(cols == (target - begin).to(tl.int32), y - by * (1 - SMOOTHING), y)
        y = tl.where(target == ignore_index, 0.0, y)
    else:
        y = tl.exp2((in_float32(x) - m) * LOG2E) * (1 / l)
    tl.store(y_ptr + row * N + cols, y, mask=cols < N)


@triton.jit
def dots_kernel(dot_ptr, dy_ptr, y_ptr, N, BLOCK: tl.constexpr):
    """Each program stores Σ dy · y of a contiguous row of N columns, streamed in tiles of BLOCK."""
    row = tl.program_id(0).to(tl.int64)
    dot = tl.zeros([BLOCK], tl.float32)
    for start in range(0, N, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
        dot += y * tl.load(dy_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(dot_ptr + row, tl.sum(dot, axis=0))


@triton.jit
def from_dots_kernel(dx_ptr, dy_ptr, y_ptr, dot_ptr, N, BLOCK: tl.constexpr):
    """Each program writes y · (dy − dot) for BLOCK columns of a contiguous row."""
    row, cols = part_of_row(N, BLOCK)
    y = tl.load(y_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * N + cols, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * N + cols, y * (dy - tl.load(dot_ptr + row)), mask=cols < N)
