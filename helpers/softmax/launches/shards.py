"""The local parts of a row that lies over several ranks: kernels on a GPU, torch's operations for all other tensors.

Messages as in `kernels.shards`; those of float64 shards are float64, with three int64 last.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from triton import cdiv, next_power_of_2

from helpers.engine.runtime import INTERPRETED
from helpers.kernels import DTYPES
from helpers.softmax.kernels.shards import dots_kernel, from_dots_kernel, merge_kernel, shard_kernel, write_kernel

HEAD_NUMBERS = 3
"""Integers at the end of a message."""

_STREAMED, _WRITTEN, _MERGED = 8192, 4096, 128
"""Columns of a tile that is streamed, and of one that is written; rows of a tile whose messages are merged."""


class ShardOptions(NamedTuple):
    """What to compute of a shard: a softmax, or with `loss` a cross-entropy."""

    loss: bool
    ignore_index: int = -100
    label_smoothing: float = 0.0

    @property
    def planes(self) -> int:
        """How many numbers of a row are sent."""
        return 2 + self.loss + (self.label_smoothing > 0)


def by_kernel(x: torch.Tensor) -> bool:
    """Whether our kernels take x: GPU tensors of their dtypes. The interpreter would, and takes longer than torch."""
    return x.is_cuda and not INTERPRETED and x.dtype in DTYPES.values()


def message_of(x: torch.Tensor, target: torch.Tensor, begin: int, named: bool, options: ShardOptions) -> torch.Tensor:
    """What others need to know of a shard (M, n) with contiguous rows, whose first class is `begin`: the caller has
    `named` it, or it is a guess."""
    M, n = x.shape
    message = torch.empty(options.planes * M + HEAD_NUMBERS, dtype=_dtype_of(x), device=x.device)
    if by_kernel(x):
        launch_shard(message, x, target, begin, named, options)
        return message
    planes, wide = planes_of(message[None], options)[0], x.to(message.dtype)
    _head_of(message)[:] = torch.tensor([n, begin, named], device=x.device)
    lowest = torch.finfo(message.dtype).min
    planes[0] = m = torch.cat((wide, wide.new_full((M, 1), lowest)), 1).amax(1)
    planes[1] = torch.exp(wide - m[:, None]).sum(1)
    if options.loss:
        planes[2] = logits_at(x, target, begin)
    if options.label_smoothing > 0:
        planes[3] = (m[:, None] - wide).sum(1)
    return message


def launch_shard(
    message: torch.Tensor, x: torch.Tensor, target: torch.Tensor, begin: int, named: bool, options: ShardOptions
) -> None:
    """Fills the message by `shard_kernel`."""
    (M, n), BLOCK = x.shape, _tile(x.shape[1], _STREAMED)
    numbers = {"NAMED": named, "LOSS": options.loss, "SMOOTHING": options.label_smoothing, "BLOCK": BLOCK}
    shard_kernel[(max(1, M),)](message, x, target, x.stride(0), M, n, begin, **numbers, num_warps=_warps(BLOCK))


def planes_of(messages: torch.Tensor, options: ShardOptions) -> torch.Tensor:
    """The numbers of all rows in messages (W, size), as (W, planes, M): a view."""
    return messages[:, :-HEAD_NUMBERS].unflatten(
        1, (options.planes, (messages.shape[1] - HEAD_NUMBERS) // options.planes)
    )


class WholeRows(NamedTuple):
    """m and l of whole rows; of a loss also the loss of each row, 0 if it is ignored, and the number of classes."""

    m: torch.Tensor
    l: torch.Tensor
    losses: torch.Tensor
    classes: torch.Tensor


def whole_rows(messages: torch.Tensor, target: torch.Tensor, options: ShardOptions, kernel: bool) -> WholeRows:
    """Merges the messages (W, size) of all shards. The losses are NaN if the shards do not follow each other."""
    if kernel:
        return launch_merge(messages, target, options)
    planes, head = planes_of(messages, options), _head_of(messages)
    m_shards = planes[:, 0]
    m = m_shards.amax(0)
    l = (planes[:, 1] * torch.exp(m_shards - m)).sum(0)
    n, C = head[:, :1], head[:, 0].sum()
    if not options.loss:
        return WholeRows(m, l, m, C)
    losses = m - planes[:, 2].sum(0) + l.log()
    if options.label_smoothing > 0:
        below = (planes[:, 3] + torch.where(n > 0, n * (m - m_shards), 0)).sum(0)
        losses = (1 - options.label_smoothing) * losses + options.label_smoothing * (below / C + l.log())
    right = (target >= 0) & (target < C) & do_follow(messages)
    return WholeRows(m, l, torch.where(right, losses, torch.nan).masked_fill(target == options.ignore_index, 0), C)


def launch_merge(messages: torch.Tensor, target: torch.Tensor, options: ShardOptions) -> WholeRows:
    """`whole_rows`, by `merge_kernel`."""
    W, size = messages.shape
    M = (size - HEAD_NUMBERS) // options.planes
    found = messages.new_empty(3, M).unbind()
    classes = torch.empty((), dtype=torch.int32, device=messages.device)
    if M:
        numbers = {"W": W, "LOSS": options.loss, "SMOOTHING": options.label_smoothing, "BLOCK": _MERGED}
        given = *found, classes, messages, target, M, size, options.ignore_index
        merge_kernel[(cdiv(M, _MERGED),)](*given, **numbers, num_warps=4)
    return WholeRows(*found, classes)


def sizes_of(messages: torch.Tensor) -> list[int]:
    """The columns of each shard. The host waits for them."""
    return _head_of(messages)[:, 0].tolist()


def are_named(messages: torch.Tensor) -> bool:
    """Whether a caller has named the first class of a shard."""
    return bool(_head_of(messages)[:, 2].any())


def do_follow(messages: torch.Tensor) -> bool:
    """Whether each shard begins where those before it end. An empty one may begin anywhere."""
    n, begin, _ = _head_of(messages).unbind(1)
    return bool(((begin == n.cumsum(0) - n) | (n == 0)).all())


def put_targets(messages: torch.Tensor, x_target: torch.Tensor, options: ShardOptions) -> None:
    """Corrects messages whose senders did not know their first classes: that of each shard, and x at the targets."""
    n, begin, _ = _head_of(messages).unbind(1)
    begin.copy_(n.cumsum(0) - n)
    x_targets = planes_of(messages, options)[:, 2]
    x_targets.zero_()
    x_targets[0] = x_target


def logits_at(x: torch.Tensor, target: torch.Tensor, begin: int) -> torch.Tensor:
    """x at each target that lies in a shard whose first class is `begin`, and 0 for all others."""
    local = target - begin
    is_here = (local >= 0) & (local < x.shape[1])
    if not x.shape[1]:
        return torch.zeros(len(target), dtype=_dtype_of(x), device=x.device)
    found = x.gather(1, local.where(is_here, 0)[:, None])[:, 0].to(_dtype_of(x))
    return found.masked_fill(~is_here, 0)


def probabilities(x: torch.Tensor, rows: WholeRows) -> torch.Tensor:
    """The shard's part of the softmax."""
    if not by_kernel(x):
        return (torch.exp(x.to(rows.m.dtype) - rows.m[:, None]) / rows.l[:, None]).to(x.dtype)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_write(y, x, rows, rows.m, rows.m, 0, ShardOptions(loss=False))
    return y


def loss_gradient(
    x: torch.Tensor, rows: WholeRows, by: torch.Tensor, target: torch.Tensor, begin: int, options: ShardOptions
) -> torch.Tensor:
    """The shard's part of the gradient of Σ by · loss, a number of `by` for each row; 0 in ignored rows."""
    if by_kernel(x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch_write(y, x, rows, by, target, begin, options)
        return y
    local = target - begin
    is_here = (local >= 0) & (local < x.shape[1])
    by = torch.where((target >= 0) & (target < rows.classes), by, torch.nan)
    y = torch.exp(x.to(by.dtype) - rows.m[:, None]) * (by / rows.l)[:, None]
    y -= (by * options.label_smoothing / rows.classes)[:, None]
    y[is_here, local[is_here]] -= by[is_here] * (1 - options.label_smoothing)
    return y.masked_fill((target == options.ignore_index)[:, None], 0).to(x.dtype)


def launch_write(
    y: torch.Tensor,
    x: torch.Tensor,
    rows: WholeRows,
    by: torch.Tensor,
    target: torch.Tensor,
    begin: int,
    options: ShardOptions,
) -> None:
    """Fills y by `write_kernel`."""
    (M, n), BLOCK = x.shape, _tile(x.shape[1], _WRITTEN)
    if x.numel():
        numbers = {"LOSS": options.loss, "SMOOTHING": options.label_smoothing, "BLOCK": BLOCK}
        tensors = y, x, rows.m, rows.l, by, target, rows.classes
        given = *tensors, y.stride(0), x.stride(0), n, begin, options.ignore_index
        write_kernel[(M, cdiv(n, BLOCK))](*given, **numbers, num_warps=_warps(BLOCK))


def dots(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Σ dy · y over the shard's columns, for each row."""
    if not by_kernel(y):
        return (dy.to(_dtype_of(y)) * y).sum(1)
    (M, n), BLOCK = y.shape, _tile(y.shape[1], _WRITTEN)
    found = torch.empty(M, device=y.device)
    if M:
        dots_kernel[(M,)](found, dy.contiguous(), y, n, BLOCK=BLOCK, num_warps=_warps(BLOCK))
    return found


def gradient_from_dots(dy: torch.Tensor, y: torch.Tensor, dot: torch.Tensor) -> torch.Tensor:
    """y · (dy − dot), the shard's part of the gradient of a softmax, once `dot` is of all shards."""
    if not by_kernel(y):
        return (y * (dy.to(dot.dtype) - dot[:, None])).to(y.dtype)
    (M, n), BLOCK = y.shape, _tile(y.shape[1], _WRITTEN)
    dx = torch.empty_like(y)
    if y.numel():
        from_dots_kernel[(M, cdiv(n, BLOCK))](dx, dy.contiguous(), y, dot, n, BLOCK=BLOCK, num_warps=_warps(BLOCK))
    return dx


def _dtype_of(x: torch.Tensor) -> torch.dtype:
    """What arithmetic is done in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _head_of(messages: torch.Tensor) -> torch.Tensor:
    """The last numbers of one message or several, as the integers that they are."""
    return messages.view(torch.int64 if messages.dtype == torch.float64 else torch.int32)[..., -HEAD_NUMBERS:]


def _tile(n: int, most: int) -> int:
    return min(most, next_power_of_2(max(1, n)))


def _warps(BLOCK: int) -> int:
    """32 elements a thread."""
    return min(8, max(1, BLOCK // 1024))
