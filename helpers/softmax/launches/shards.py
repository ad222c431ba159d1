"""The local parts of a row that lies over several ranks: kernels on a GPU, torch's operations for all other tensors.

Messages as in `kernels.shards`; those of float64 shards are float64, with three int64 last. The launches for shards of
one layout are made once and remembered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.compiler import is_compiling
from triton import cdiv, next_power_of_2

from helpers.engine.runtime import INTERPRETED
from helpers.kernels import DTYPES
from helpers.softmax.kernels.shards import (
    dots_kernel,
    from_dots_kernel,
    merge_kernel,
    shard_kernel,
    total_kernel,
    write_kernel,
)
from helpers.softmax.launches.launch import Launch, keep_launcher, on_stream

HEAD_NUMBERS = 3
"""Integers at the end of a message, and figures at the end of the numbers of whole rows."""

_STREAMED, _WRITTEN, _MERGED, _ADDED = 8192, 2048, 128, 2048
"""Columns of a tile that is streamed, and of one that is written; rows of a tile whose messages are merged, and of one
whose losses are added up."""

_REGISTERS = 128
"""The most that a thread gets."""


class ShardOptions(NamedTuple):
    """What to compute of a shard: a softmax, or with `loss` a cross-entropy."""

    loss: bool
    ignore_index: int = -100
    label_smoothing: float = 0.0
    reduction: str = "none"
    loss_dtype: torch.dtype = torch.float32

    @property
    def planes(self) -> int:
        """How many numbers of a row are sent."""
        return 2 + self.loss + (self.label_smoothing > 0)


def by_kernel(x: torch.Tensor) -> bool:
    """Whether our kernels take x: GPU tensors of their dtypes. The interpreter would, and takes longer than torch.
    What torch.compile traces has no address to launch for."""
    return x.is_cuda and not INTERPRETED and x.dtype in DTYPES.values() and not is_compiling()


class ShardLaunches:
    """The launches for shards (M, n) of one layout, each of which is one of W, and begins with the class `begin`: the
    caller has `named` it, or it is a guess."""

    def __init__(self, x: torch.Tensor, W: int, begin: int, named: bool, options: ShardOptions) -> None:
        (M, n), stride = x.shape, x.stride(0)
        of_all = {"LOSS": options.loss, "SMOOTHING": options.label_smoothing}
        numbers = {"M": M, "ignore_index": options.ignore_index}
        self.M, self.options, self.size = M, options, options.planes * M + HEAD_NUMBERS
        BLOCK = _tile(n, _STREAMED)
        self.shard = _launch(
            shard_kernel, max(1, M), BLOCK, warps=_warps(BLOCK, 64),
            stride=stride, M=M, N=n, begin=begin, NAMED=named, **of_all,
        )  # fmt: skip
        self.merge = _launch(merge_kernel, max(1, cdiv(M, _MERGED)), _MERGED, size=self.size, W=W, **numbers, **of_all)
        mean, BLOCK = options.reduction == "mean", _tile(n, _WRITTEN)
        self.total = _launch(total_kernel, 1, _ADDED, warps=8, MEAN=mean, **numbers)
        self.write = None
        if x.numel():
            of_all["REDUCTION"] = options.reduction
            self.write = _launch(
                write_kernel, M * cdiv(n, BLOCK), BLOCK, stride=stride, N=n, begin=begin, **numbers, **of_all
            )

    def message(self, x: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
        """What others need to know of the shard."""
        message = torch.empty(self.size, dtype=torch.float32, device=x.device)
        on_stream(x, self.shard, (message, x, message if target is None else target))
        return message

    def merged(self, messages: torch.Tensor, target: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The numbers of whole rows, from the messages of all shards; and the losses, their sum or their mean."""
        options, device = self.options, messages.device
        rows = torch.empty(2 * self.M + HEAD_NUMBERS, dtype=torch.float32, device=device)
        if not options.loss:
            on_stream(messages, self.merge, (rows, rows, messages, rows))
            return rows, rows
        reduces = options.reduction != "none"
        losses = torch.empty(self.M, dtype=torch.float32 if reduces else options.loss_dtype, device=device)
        on_stream(messages, self.merge, (rows, losses, messages, target))
        if not reduces:
            return rows, losses
        total = torch.empty((), dtype=options.loss_dtype, device=device)
        on_stream(messages, self.total, (total, rows, losses, target))
        return rows, total

    def do_follow(self, rows: torch.Tensor) -> bool:
        """Whether each shard begins where those before it end. The host waits for that."""
        return bool(rows.view(torch.int32)[2 * self.M + 1].item())

    def written(
        self, x: torch.Tensor, rows: torch.Tensor, by: torch.Tensor | None = None, target: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The shard's part of the softmax; or of the gradient of the losses times `by`, or of their sum or mean."""
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if self.write is not None:
            on_stream(x, self.write, (y, x, rows, rows if by is None else by, rows if target is None else target))
        return y


_known: dict[tuple, ShardLaunches] = {}


def launches_of(x: torch.Tensor, W: int, begin: int, named: bool, options: ShardOptions) -> ShardLaunches:
    """The launches for x's layout, dtype, alignment and device. They are made once and remembered."""
    key = (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16, W, begin, named, options)
    return _known.get(key) or keep_launcher(_known, key, ShardLaunches(x, W, begin, named, options))


def _launch(kernel: Any, programs: int, BLOCK: int, warps: int = 0, **named: Any) -> Launch:
    return Launch(kernel, (programs, 1, 1), warps=warps or _warps(BLOCK), registers=_REGISTERS, BLOCK=BLOCK, **named)


def message_of(x: torch.Tensor, target: torch.Tensor, begin: int, named: bool, options: ShardOptions) -> torch.Tensor:
    """What others need to know of a shard (M, n) with contiguous rows, whose first class is `begin`: the caller has
    `named` it, or it is a guess."""
    M, n = x.shape
    message = torch.empty(options.planes * M + HEAD_NUMBERS, dtype=_dtype_of(x), device=x.device)
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


def whole_rows(messages: torch.Tensor, target: torch.Tensor, options: ShardOptions) -> WholeRows:
    """Merges the messages (W, size) of all shards. The losses are NaN if the shards do not follow each other."""
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
    return (torch.exp(x.to(rows.m.dtype) - rows.m[:, None]) / rows.l[:, None]).to(x.dtype)


def loss_gradient(
    x: torch.Tensor, rows: WholeRows, by: torch.Tensor, target: torch.Tensor, begin: int, options: ShardOptions
) -> torch.Tensor:
    """The shard's part of the gradient of Σ by · loss, a number of `by` for each row; 0 in ignored rows."""
    local = target - begin
    is_here = (local >= 0) & (local < x.shape[1])
    by = torch.where((target >= 0) & (target < rows.classes), by, torch.nan)
    y = torch.exp(x.to(by.dtype) - rows.m[:, None]) * (by / rows.l)[:, None]
    y -= (by * options.label_smoothing / rows.classes)[:, None]
    y[is_here, local[is_here]] -= by[is_here] * (1 - options.label_smoothing)
    return y.masked_fill((target == options.ignore_index)[:, None], 0).to(x.dtype)


def dots(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Σ dy · y over the shard's columns, for each row."""
    if not by_kernel(y):
        return (dy.to(_dtype_of(y)) * y).sum(1)
    found, dy = torch.empty(len(y), dtype=torch.float32, device=y.device), dy.contiguous()
    if len(y):
        on_stream(y, first_half(y, dy), (found, dy, y))
    return found


def gradient_from_dots(dy: torch.Tensor, y: torch.Tensor, dot: torch.Tensor) -> torch.Tensor:
    """y · (dy − dot), the shard's part of the gradient of a softmax, once `dot` is of all shards."""
    if not by_kernel(y):
        return (y * (dy.to(dot.dtype) - dot[:, None])).to(y.dtype)
    dx, dy = torch.empty_like(y), dy.contiguous()
    if y.numel():
        on_stream(y, second_half(y, dy), (dx, dy, y, dot))
    return dx


def first_half(y: torch.Tensor, dy: torch.Tensor) -> Launch:
    """The launch of `dots_kernel` for y (M, n) and dy, both contiguous."""
    return _half(dots_kernel, y, dy, _STREAMED, 1)


def second_half(y: torch.Tensor, dy: torch.Tensor) -> Launch:
    """The launch of `from_dots_kernel` for y (M, n) and dy, both contiguous."""
    return _half(from_dots_kernel, y, dy, _WRITTEN, cdiv(y.shape[1], _WRITTEN))


_halves: dict[tuple, Launch] = {}


def _half(kernel: Any, y: torch.Tensor, dy: torch.Tensor, most: int, parts: int) -> Launch:
    """A launch for rows in so many parts, by tiles of at most `most` columns. It is made once and remembered."""
    key = (kernel, y.shape, y.dtype, y.get_device(), dy.data_ptr() % 16)
    (M, n), found = y.shape, _halves.get(key)
    return found or keep_launcher(_halves, key, _launch(kernel, M * parts, _tile(n, most), N=n))


def _dtype_of(x: torch.Tensor) -> torch.dtype:
    """What arithmetic is done in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _head_of(messages: torch.Tensor) -> torch.Tensor:
    """The last numbers of one message or several, as the integers that they are."""
    return messages.view(torch.int64 if messages.dtype == torch.float64 else torch.int32)[..., -HEAD_NUMBERS:]


def _tile(n: int, most: int) -> int:
    """At least a warp's lanes: of a tile of one bfloat16, Triton 3.6 makes text that it cannot parse (sm_90)."""
    return min(most, next_power_of_2(max(32, n)))


def _warps(BLOCK: int, each: int = 32) -> int:
    """So that a thread has `each` elements; 8 at most."""
    return min(8, max(1, BLOCK // (32 * each)))
