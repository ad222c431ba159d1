"""softmax and cross_entropy of rows that lie over several ranks, each of which holds a shard: one collective at most.

Of its shard a rank knows the maximum m and l = Σ exp(x − m). Pairs merge, whoever holds them (lesson 05), so a gather
of two numbers a row is enough for the softmax. A loss needs a third, x at the target, which one rank has; with label
smoothing a fourth. Its gradient needs no further collective: every rank knows m and l of the whole row, and its shard.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from helpers.softmax.cross_entropy import REDUCTIONS
from helpers.softmax.launches.exchange import exchange_of
from helpers.softmax.launches.shards import (
    ShardLaunches,
    ShardOptions,
    WholeRows,
    are_named,
    by_kernel,
    do_follow,
    dots,
    gradient_from_dots,
    launches_of,
    logits_at,
    loss_gradient,
    message_of,
    probabilities,
    put_targets,
    sizes_of,
    whole_rows,
)

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def softmax(shard: torch.Tensor, dim: int = -1, *, group: dist.ProcessGroup | dist.DeviceMesh | None) -> torch.Tensor:
    """This rank's part of the softmax over `dim` of the tensor whose shards lie on the ranks of `group`, in any sizes.

    Programs of GPUs that reach each other's memory exchange the pairs themselves: one read of the shard and one write,
    and no collective but at the group's first call. All others make one all-gather of 8 bytes a row, and read the shard
    twice; so do calls in a CUDA graph. Backward makes one all-reduce of 4 bytes a row.

    Shards have the same shape but for `dim`; a rank without columns takes part with an empty one. All ranks of the
    group must call this. `group` may be a DeviceMesh of one dimension; `None` is the default group. Arithmetic is in
    float32, and in float64 for float64. Under autocast the dtype is torch's: float32 on a GPU. A row of only −inf, or
    with NaN, is NaN on all ranks. Raises TypeError for anything but a tensor of floating point, and ValueError for a
    `dim` that it lacks, if there is no default group, and on a rank outside the group. Programs wait for
    other GPUs for about 10 minutes; then CUDA reports that the launch has failed.
    """
    _require_floats(shard, "shard")
    if not -shard.dim() <= dim < shard.dim():
        raise ValueError(f"dim must be a dimension of the shard, which has {shard.dim()}; it is {dim}.")
    group, shard = _group_of(group), shard.float() if _is_widened(shard, "cuda") else shard
    if shard.dim() == 2 and dim in (1, -1):
        return _softmax(shard, group)
    moved = shard.movedim(dim, -1)
    rows = moved.reshape(moved.shape[:-1].numel(), moved.shape[-1])
    return _softmax(rows, group).view(moved.shape).movedim(-1, dim)


def _softmax(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """Of the last dimension of (M, n)."""
    return _Softmax.apply(x, group) if _wants_gradient(x) else _probabilities(x, group)


_OF_SOFTMAX = ShardOptions(loss=False)


def _probabilities(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    x = _with_plain_rows(x)
    exchange = exchange_of(x, group) if by_kernel(x) else None
    return exchange.softmax(x) if exchange and exchange.holds(len(x)) else softmax_by_gather(x, group)


def softmax_by_gather(x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's part of the softmax of rows, of a shard (M, n) with contiguous rows: always by one all-gather."""
    if by_kernel(x):
        launches = launches_of(x, group.size(), 0, False, _OF_SOFTMAX)
        messages = _gathered(launches.message(x, None), group)
        return launches.written(x, launches.merged(messages, None)[0])
    target = torch.empty(0, dtype=torch.int64)
    messages = _gathered(message_of(x, target, 0, False, _OF_SOFTMAX), group).view(group.size(), -1)
    return probabilities(x, whole_rows(messages, target, _OF_SOFTMAX))


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        y = _probabilities(x, group)
        ctx.group = group
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        _require_first_derivative()
        (y,) = ctx.saved_tensors
        dot = dots(dy, y)
        dist.all_reduce(dot, group=ctx.group)
        return gradient_from_dots(dy, y, dot), None


def cross_entropy(
    logits_shard: torch.Tensor,
    target: torch.Tensor,
    *,
    group: dist.ProcessGroup | dist.DeviceMesh | None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    start: int | None = None,
) -> torch.Tensor:
    """The cross-entropy of logits whose classes lie over the ranks of `group`, the same on all of them.

    `logits_shard` is (M, n), the n classes of this rank, in the order of the ranks; `target` is (M,), int64, the same
    on every rank: classes of the whole row, or `ignore_index`. `reduction` and `label_smoothing` mean what they mean in
    torch.nn.functional.cross_entropy, over all classes. All ranks of the group must call this; `group` may be a
    DeviceMesh of one dimension, and `None` is the default group. Under autocast the loss is float32, as torch's.

    One all-gather of 12 bytes a row, 16 with smoothing, and one read of the shard. Backward gives the gradient of this
    rank's shard, times what arrives on this rank: one read and one write, and no collective. It happens once: there is
    no second derivative.

    `start` is the first class of this shard. Without it, shards are first taken to be of equal size; each rank's size
    travels with its numbers, and if they are not equal, a second collective brings the logits of the targets. For that
    a host with a GPU waits for the sizes, at every call. With `start` on all ranks there is one collective, and no
    wait. If the shards then do not follow one another, ValueError says so on CPUs, and the loss is NaN on GPUs.

    A target that is neither a class nor `ignore_index` makes the loss and the row's gradient NaN. Ignored rows have no
    part in anything; the mean of none is NaN. Raises TypeError or ValueError for what cannot be computed, on the rank
    that was given it; the others then wait for it.
    """
    _require_loss(logits_shard, target, ignore_index, reduction, label_smoothing, start)
    loss_dtype = torch.float32 if _is_widened(logits_shard, "cpu", "cuda") else logits_shard.dtype
    options = ShardOptions(True, ignore_index, float(label_smoothing), reduction, loss_dtype)
    group = _group_of(group)
    if _wants_gradient(logits_shard):
        return _Loss.apply(logits_shard, target, group, options, start)
    return _loss(_with_plain_rows(logits_shard), target.contiguous(), group, options, start)[0]


class _Known(NamedTuple):
    """What a gradient needs of the whole rows: by kernels, the launches too."""

    begin: int
    launches: ShardLaunches | None
    rows: tuple[torch.Tensor, ...]


def _loss(
    x: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup, options: ShardOptions, start: int | None
) -> tuple[torch.Tensor, _Known]:
    """The loss of each row, their sum or their mean; and what its gradient needs."""
    W, rank, named = group.size(), group.rank(), start is not None
    begin = rank * x.shape[1] if start is None else start
    if by_kernel(x):
        launches = launches_of(x, W, begin, named, options)
        messages = _gathered(launches.message(x, target), group)
        rows, loss = launches.merged(messages, target)
        if not named and not launches.do_follow(rows):
            begin = _repaired(messages.view(W, -1), x, target, group, options)
            launches = launches_of(x, W, begin, named, options)
            rows, loss = launches.merged(messages, target)
        return loss, _Known(begin, launches, (rows,))
    messages = _gathered(message_of(x, target, begin, named, options), group).view(W, -1)
    if not do_follow(messages):
        begin = _repaired(messages, x, target, group, options)
    m, l, losses, classes = whole_rows(messages, target, options)
    count = (target != options.ignore_index).sum()
    loss = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / count}[options.reduction]
    return loss.to(options.loss_dtype), _Known(begin, None, (m, l, classes, count))


def _repaired(
    messages: torch.Tensor, x: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup, options: ShardOptions
) -> int:
    """The first class of this rank's shard; the messages of shards that were wrongly taken to be of equal size become
    right, by a second collective. Raises ValueError, on all ranks that look, if a caller has named the first class."""
    _refuse_named(messages)
    begin = sum(sizes_of(messages)[: group.rank()])
    x_target = logits_at(x, target, begin)
    dist.all_reduce(x_target, group=group)
    put_targets(messages, x_target, options)
    return begin


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        target: torch.Tensor,
        group: dist.ProcessGroup,
        options: ShardOptions,
        start: int | None,
    ) -> torch.Tensor:
        x, target = _with_plain_rows(x), target.contiguous()
        loss, known = _loss(x, target, group, options, start)
        ctx.options, ctx.begin, ctx.launches = options, known.begin, known.launches
        ctx.save_for_backward(x, target, *known.rows)
        return loss

    @staticmethod
    def backward(ctx: Any, by: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        _require_first_derivative()
        x, target, *rows = ctx.saved_tensors
        if ctx.launches is not None:
            return ctx.launches.written(x, rows[0], by.contiguous(), target), *[None] * 4
        m, l, classes, count = rows
        by = by.to(m.dtype)
        by = by / count if ctx.options.reduction == "mean" else by
        gradient = loss_gradient(x, WholeRows(m, l, m, classes), by.expand(len(m)), target, ctx.begin, ctx.options)
        return gradient, *[None] * 4


def _wants_gradient(x: torch.Tensor) -> bool:
    return x.requires_grad and torch.is_grad_enabled()


def _require_first_derivative() -> None:
    """Raises RuntimeError on all ranks alike, before a collective, if a second derivative is to come."""
    if torch.is_grad_enabled():
        raise RuntimeError("functions of helpers.softmax.parallel have no second derivative.")


def _is_widened(x: torch.Tensor, *devices: str) -> bool:
    """Whether torch makes float32 of x under autocast, which it does on these devices."""
    kind = x.device.type
    return kind in devices and x.dtype.itemsize == 2 and torch.is_autocast_enabled(kind)


def _group_of(group: dist.ProcessGroup | dist.DeviceMesh | None) -> dist.ProcessGroup:
    if group is None and dist.group.WORLD is None:
        raise ValueError(
            "there is no default group of ranks: pass group=, or call torch.distributed.init_process_group."
        )
    if isinstance(group, dist.DeviceMesh):
        if group.ndim != 1:
            raise ValueError(f"group is a mesh of {group.ndim} dimensions: pass that of the shards, mesh[NAME].")
        group = dist.GroupMember.NON_GROUP_MEMBER if group.get_coordinate() is None else group.get_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("this rank does not belong to group. Only ranks of the group have shards, and call this.")
    return dist.group.WORLD if group is None else group


def _gathered(message: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """The messages of all ranks, one behind another: gloo takes no other shape."""
    found = torch.empty(group.size() * len(message), dtype=message.dtype, device=message.device)
    _all_gather(found, message, group=group)
    return found


_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
"""Its name since torch 2.13, and its earlier one."""


def _with_plain_rows(x: torch.Tensor) -> torch.Tensor:
    """x itself if its rows are contiguous and do not overlap, else a copy."""
    M, n = x.shape
    return x if (n < 2 or x.stride(1) == 1) and (M < 2 or x.stride(0) >= n) else x.contiguous()


def _refuse_named(messages: torch.Tensor) -> None:
    """Raises ValueError, on all ranks that look, if shards whose first classes were named do not follow each other."""
    if are_named(messages):
        sizes = ", ".join(map(str, sizes_of(messages)))
        raise ValueError(
            f"the shards have {sizes} classes, and do not begin where those before them end. Pass start=, this rank's "
            "first class, on all ranks, or on none."
        )


def _require_floats(x: Any, name: str) -> None:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; it is a {type(x).__name__}.")
    if hasattr(x, "to_local"):
        raise TypeError(f"{name} must be this rank's part alone. Pass {name}.to_local() of a DTensor.")
    if x.dtype not in _DTYPES:
        raise TypeError(f"{name} must be float32, bfloat16, float16 or float64; it is {x.dtype}.")
    if not x.dim():
        raise ValueError(f"{name} must have at least one dimension.")


def _require_loss(
    x: Any, target: Any, ignore_index: Any, reduction: Any, label_smoothing: Any, start: int | None
) -> None:
    _require_floats(x, "logits_shard")
    if not isinstance(target, torch.Tensor):
        raise TypeError(f"target must be a torch.Tensor; it is a {type(target).__name__}.")
    if target.dtype != torch.int64:
        raise TypeError(f"target must hold classes as int64; it is {target.dtype}. Use target.long().")
    if x.dim() != 2 or target.shape != x.shape[:1]:
        raise ValueError(
            "logits_shard must have the shape (M, n), and target the shape (M,); they have "
            f"{tuple(x.shape)} and {tuple(target.shape)}. Use logits_shard.flatten(0, -2) and target.flatten()."
        )
    if target.device != x.device:
        raise ValueError(f"target is on {target.device}, and logits_shard on {x.device}.")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}; it is {reduction!r}.")
    if isinstance(label_smoothing, bool) or not isinstance(label_smoothing, int | float):
        raise TypeError(f"label_smoothing must be a number from 0 to 1; it is {label_smoothing!r}.")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1; it is {label_smoothing!r}.")
    for name, value in (("ignore_index", ignore_index), ("start", 0 if start is None else start)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer; it is {value!r}.")
    if start is not None and start < 0:
        raise ValueError(f"start must not be negative; it is {start}.")
