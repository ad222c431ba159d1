"""linear_cross_entropy: a drop-in for torch's that never holds all logits at once; without a gradient it holds none."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from helpers.engine.torch_parts import applied, keeps_graph, top_saved_tensors_hooks
from helpers.softmax.cross_entropy import REDUCTIONS, cross_entropy
from helpers.softmax.launches.linear_loss import in_chunks, scale, without_logits
from helpers.softmax.plans.losses import LossOptions
from helpers.softmax.plans.rows import MOST_WORDS
from helpers.softmax.torch_side import TENSORS, has_address, is_plain, torch_cross_entropy, torch_linear_cross_entropy


def linear_cross_entropy(
    input: torch.Tensor,
    linear_weight: torch.Tensor,
    target: torch.Tensor,
    *,
    linear_bias: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> torch.Tensor:
    """The cross-entropy of the logits input @ linear_weight.T + linear_bias: a drop-in for torch.nn.functional's, with
    its parameters, on every torch that the course runs on.

    `input` is (M, H), `linear_weight` (V, H), `linear_bias` (V,), all of one dtype, float32, bfloat16 or float16;
    `target` (M,) holds classes from 0 to V − 1, or `ignore_index` (None: −100), as int64. Where a gradient is wanted,
    logits are made for a chunk of rows at a time, in at most 504 MiB, and forward makes the gradients, as one number
    arrives in backward; with reduction "none" backward makes the logits again. The gradient of 16-bit weights is
    rounded once a chunk. Without a gradient 16-bit logits are never stored; in float32, or with label_smoothing, they
    are made in chunks. The bits are the same from run to run.

    A target below 0 or above V − 1 makes the loss NaN. A scaled loss comes too late for what a mean makes too small for
    float16. Under autocast the inputs are cast, as in torch's linear. torch.compile sees `cross_entropy` of a linear.
    What else torch takes (class weights, `options`, probabilities, more dimensions, float64, subclasses, torch.func)
    torch computes. Raises ValueError for shapes that do not fit, and RuntimeError for a second derivative.
    """
    ignored = -100 if ignore_index is None else ignore_index
    given = {"reduction": reduction, "ignore_index": ignore_index, "label_smoothing": label_smoothing}
    if options is not None or weight is not None or not _are_options_ours(reduction, ignored, label_smoothing):
        return _by_torch(input, linear_weight, target, linear_bias, {**given, "weight": weight, "options": options})
    if torch.compiler.is_compiling():
        if all(one.dim() == 2 for one in (input, linear_weight)) and not target.is_floating_point():
            return cross_entropy(linear(input, linear_weight, linear_bias), target, **given | {"ignore_index": ignored})
        return _by_torch(input, linear_weight, target, linear_bias, given)
    x, w, b = _cast((input, linear_weight, linear_bias))
    if not _is_ours(x, w, b, target):
        return _by_torch(input, linear_weight, target, linear_bias, given)
    loss_dtype = torch.float32 if torch.is_autocast_enabled(x.device.type) else x.dtype
    asked = LossOptions(int(ignored), reduction, float(label_smoothing), loss_dtype)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, w, b)):
        return _differentiable(x, w, b, target, asked)
    return _reduced(_losses(x, w, b, target, asked), target, asked)


def _are_options_ours(reduction: Any, ignore_index: Any, label_smoothing: Any) -> bool:
    """Whether cross_entropy takes these; torch has the errors for others."""
    numbers = isinstance(ignore_index, int) and isinstance(label_smoothing, int | float)
    return numbers and reduction in REDUCTIONS and 0 <= label_smoothing <= 1


def _cast(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors as torch's linear takes them under autocast."""
    first = tensors[0]
    if type(first) not in TENSORS or not torch.is_autocast_enabled(first.device.type):
        return tensors
    dtype = torch.get_autocast_dtype(first.device.type)
    floating = (torch.float32, torch.bfloat16, torch.float16)
    return tuple(one.to(dtype) if type(one) in TENSORS and one.dtype in floating else one for one in tensors)


def _is_ours(x: Any, w: Any, b: Any, target: Any) -> bool:
    """Whether kernels take these tensors; all others are for torch. Raises ValueError for shapes that do not fit."""
    floating = [one for one in (x, w, b) if one is not None]
    if not all(is_plain(one, casts=True) and one.dtype == x.dtype and one.device == x.device for one in floating):
        return False
    if type(target) not in TENSORS or target.layout != torch.strided or not has_address(target):
        return False
    if x.dim() != 2 or w.dim() != 2 or target.dtype != torch.int64 or target.device != x.device:
        return False
    (M, H), V = x.shape, len(w)
    wanted = {"linear_weight": (w, (V, H)), "target": (target, (M,)), "linear_bias": (b, (V,))}
    for name, (one, shape) in wanted.items():
        if one is not None and one.shape != shape:
            raise ValueError(
                f"an input of the shape {(M, H)} and a linear_weight of {tuple(w.shape)} need a {name} of {shape}; its "
                f"shape is {tuple(one.shape)}."
            )
    return min(M, H, V) > 0 and V <= MOST_WORDS * 4096


def _by_torch(x: Any, w: Any, target: Any, b: Any, options: dict[str, Any]) -> torch.Tensor:
    """torch's function, or before torch 2.13 its definition. Neither is given an option that nobody gave."""
    options = {name: value for name, value in options.items() if value is not None}
    if torch_linear_cross_entropy is not None:
        return torch_linear_cross_entropy(x, w, target, **options, **({} if b is None else {"linear_bias": b}))
    if "options" in options:
        raise ValueError("options of a chunked loss are torch's, from 2.13 on. Leave them out.")
    V, *more, H = w.shape
    logits = linear(x, w.reshape(-1, H), None if b is None else b.reshape(-1))
    return torch_cross_entropy(logits.reshape(*x.shape[:-1], V, *more), target, **options)


def _losses(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, target: torch.Tensor, options: LossOptions
) -> torch.Tensor:
    if x.element_size() == 2 and not options.label_smoothing:
        return without_logits(x, w, b, target, options.ignore_index)
    return in_chunks(x, w, b, target, options)[0]


def _reduced(losses: torch.Tensor, target: torch.Tensor, options: LossOptions) -> torch.Tensor:
    if options.reduction != "none":
        losses = losses.sum()
    if options.reduction == "mean":
        losses = losses / _counted(target, options)
    return losses.to(options.loss_dtype)


def _counted(target: torch.Tensor, options: LossOptions) -> torch.Tensor:
    """How many targets count, on their device."""
    return (target != options.ignore_index).sum()


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss, with its gradients if one number will arrive in backward; they are made for 1, and for a mean of all
    rows, since only the device knows how many count."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        w: torch.Tensor,
        b: torch.Tensor | None,
        target: torch.Tensor,
        options: LossOptions,
    ) -> torch.Tensor:
        ctx.options, ctx.wanted = options, ctx.needs_input_grad[:3]
        ctx.is_hooked = top_saved_tensors_hooks(False) is not None
        ctx.set_materialize_grads(False)
        if options.reduction == "none":
            ctx.save_for_backward(x, w, b, target)
            return _reduced(_losses(x, w, b, target, options), target, options)
        means = options.reduction == "mean"
        losses, gradients = in_chunks(x, w, b, target, options, ctx.wanted, 1 / len(x) if means else 1.0)
        ctx.factor = len(x) / _counted(target, options).clamp(min=1) if means else None
        ctx.save_for_backward(*gradients)
        return _reduced(losses, target, options)

    @staticmethod
    def backward(ctx: Any, arrived: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("linear_cross_entropy has no second derivative. Use torch's cross_entropy of a linear.")
        if arrived is None:
            return (None,) * 5
        if arrived.dim():
            x, w, b, target = ctx.saved_tensors
            arrived = arrived.float().contiguous()
            return *in_chunks(x, w, b, target, ctx.options, ctx.wanted, arrived=arrived)[1], None, None
        factor = arrived.float() if ctx.factor is None else arrived.float() * ctx.factor
        # Whoever asks again, or has hooked saved tensors, is to find the gradients as they were.
        over = not keeps_graph() and not ctx.is_hooked and is_plain(factor)
        return *(one if one is None else _times(one, factor, over) for one in ctx.saved_tensors), None, None


def _times(gradient: torch.Tensor, factor: torch.Tensor, over: bool) -> torch.Tensor:
    if not over:
        return (gradient * factor).to(gradient.dtype)
    scale(gradient, factor)
    return gradient


_differentiable = applied(_LinearCrossEntropy)
