"""cross_entropy: a drop-in for torch's that reads the logits once, and writes their gradient in the same launch."""

from __future__ import annotations

from operator import index
from typing import Any

import torch

from helpers.engine.torch_parts import applied, holds, is_exporting, keeps_graph, top_saved_tensors_hooks
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.losses import (
    are_columns,
    columns_of,
    gradient_again,
    gradient_like,
    loss_of,
    pairs_like,
    scaled,
)
from helpers.softmax.plans.losses import MOST_CLASSES, LossOptions
from helpers.softmax.plans.rows import MOST_WORDS
from helpers.softmax.torch_side import (
    TENSORS,
    depends_on_data,
    has_address,
    is_compilable,
    is_plain,
    records_gradient,
    torch_cross_entropy,
)

REDUCTIONS = ("none", "sum", "mean")

_MOST_ROWS = 2**31 - 1
"""A row's number has 32 bits."""


def cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    inplace: bool = False,
) -> torch.Tensor:
    """The cross-entropy of logits and classes: a drop-in for torch.nn.functional's, with its parameters.

    `input`, the logits, has the shape (M, C), (C,) or (M, C, …), `target` (M,), () or (M, …), and holds classes from 0
    to C − 1, as int64. Arithmetic is in float32. Without a gradient the logits are read once. Where a gradient is
    wanted, it is computed and stored in the launch that computes the loss: one read and one write of the logits; under
    torch.compile backward alone stores it, of logits that must not have changed. The bits are the same from run to run.
    An ignored row has no part in anything, even if it holds NaN; torch then makes its gradient NaN.

    Where what arrives in backward is not 1, as that of a scaled loss, there is one more read and one more write. A
    float32 gradient is multiplied; one of 16 bits, which was rounded, is made again of the logits, which are kept until
    then and must change only where torch sees it. Where they have changed, and where nobody may keep them (`inplace`;
    hooks for saved tensors, as of a checkpoint), the rounded gradient is multiplied: a scaled loss then comes too late
    for what the mean of thousands of rows makes too small for float16.

    With `inplace` the gradient is written over the logits, which are lost: they need no memory besides, and torch
    raises an error where another operation has kept them. It asks for logits that are neither a leaf nor its view, in
    rows of contiguous numbers or, where others lie behind the classes, contiguous. Without a gradient, and under
    torch.compile, which reuses memory by itself, it changes nothing. torch.export finds torch's operator.

    A target that is neither a class nor `ignore_index` makes the loss NaN, and the gradient of its row: to raise an
    error, the host would have to wait for the GPU. No element outside the row is read. What else torch takes (weights,
    `size_average` and `reduce`, probabilities as targets, float64, CPU tensors where there is a GPU, subclasses,
    torch.func, forward gradients, modes that watch operations) is computed by torch, save for `inplace`, which raises
    ValueError there. Raises TypeError for arguments of the wrong type, ValueError for shapes that do not fit, an
    unknown reduction, or a smoothing outside 0 … 1. `create_graph=True`, from which a second derivative would come,
    raises RuntimeError.
    """
    logits, exporting = input, is_exporting()
    if not exporting:
        _require(logits, target, ignore_index, reduction, label_smoothing)
    if weight is not None or size_average is not None or reduce is not None or not _is_ours(logits, target):
        if inplace and not exporting:
            raise ValueError(
                "inplace=True is for float32, bfloat16 and float16 logits that a kernel can take here, without weights."
            )
        given = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
        # What overrides torch's function is given no option that nobody gave.
        rare = {"weight": weight, "size_average": size_average, "reduce": reduce}
        given |= {name: option for name, option in rare.items() if option is not None}
        return torch_cross_entropy(logits, target, **given)
    seen, classes = _rows_or_columns(logits), target.reshape(-1)
    # Under autocast torch's loss is float32; converting the logits first is not needed.
    loss_dtype = torch.float32 if torch.is_autocast_enabled(logits.device.type) else logits.dtype
    options = LossOptions(int(ignore_index), reduction, float(label_smoothing), loss_dtype)
    compiling = torch.compiler.is_compiling()
    wants_gradient = logits.requires_grad and (torch.is_grad_enabled() if compiling else records_gradient(logits))
    if inplace and wants_gradient and not compiling:
        _require_inplace(logits, seen)
    elif wants_gradient and seen.dim() == 2 and seen.stride(0) > 2 * seen.shape[1] and seen.shape[0] > 1:
        seen = seen.contiguous()  # the gradient's rows lie as the logits' rows do, with the same gaps
    if compiling:
        loss, _ = _operator(seen, classes.contiguous(), *options, wants_gradient)
        return loss.view(target.shape) if reduction == "none" and target.dim() != 1 else loss
    if wants_gradient:
        return _differentiable(seen, classes, options, inplace, target.shape)
    return loss_of(seen, classes, options, shape=target.shape)


def _require(logits: Any, target: Any, ignore_index: Any, reduction: Any, label_smoothing: Any) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, torch.Tensor):
            if hasattr(value, "__torch_function__"):
                return  # what stands for a tensor is torch's
            raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}.")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}; it is {reduction!r}.")
    try:
        smooths = 0 <= label_smoothing <= 1
    except TypeError:
        raise TypeError(f"label_smoothing must be a number from 0 to 1; it is {label_smoothing!r}.") from None
    if not smooths:
        raise ValueError(f"label_smoothing must be between 0 and 1; it is {label_smoothing!r}.")
    if not _is_integer(ignore_index):
        raise TypeError(f"ignore_index must be an integer; it is {ignore_index!r}.")
    if not -(2**63) <= index(ignore_index) < 2**63:
        raise ValueError(f"ignore_index must be an int64; it is {ignore_index!r}.")
    if target.is_floating_point() or not logits.dim():
        return  # probabilities, and anything without rows, are torch's
    if target.dtype not in (torch.int64, torch.uint8):
        raise TypeError(f"target must hold classes as int64; it is {target.dtype}. Use target.long().")
    expected = logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else logits.shape[:0]
    if not _are_equal(target.shape, expected) and not (logits.dim() == 1 and target.shape == (1,)):
        raise ValueError(
            f"logits of the shape {tuple(logits.shape)} need a target of the shape {tuple(expected)}; "
            f"it is {tuple(target.shape)}. The classes lie in dimension {min(1, logits.dim() - 1)} of the logits."
        )


def _are_equal(shape: torch.Size, expected: torch.Size) -> bool:
    """Whether two shapes are equal; of sizes that depend on data, the compiled function asks when it runs."""
    if not torch.compiler.is_compiling():
        return shape == expected
    if len(shape) != len(expected):
        return False
    for size, other in zip(shape, expected, strict=True):
        if holds(size != other):
            return False
        torch._check(size == other, lambda: "logits and target have different numbers of rows.")
    return True


def _is_integer(value: Any) -> bool:
    """Whether this is an integer of any kind, a tensor of one element among them; True and False are not."""
    try:
        return not isinstance(value, bool) and index(value) is not None
    except (TypeError, RuntimeError):
        return False


def _is_ours(logits: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether kernels take these tensors; all others are for torch."""
    compiling = torch.compiler.is_compiling()
    return (
        (is_compilable(logits, casts=True) if compiling else is_plain(logits, casts=True))
        and (compiling or (type(target) in TENSORS and target.layout == torch.strided and has_address(target)))
        and target.dtype == torch.int64
        and target.device == logits.device
        and logits.dim() > 0
        and target.dim() == logits.dim() - 1
        and (_are_sizes_known_to_fit(logits, target) if compiling else _do_sizes_fit(logits, target))
    )


def _do_sizes_fit(logits: torch.Tensor, target: torch.Tensor) -> bool:
    classes = logits.shape[min(1, logits.dim() - 1)]
    return logits.numel() > 0 and classes <= MOST_WORDS * 4096 and target.numel() <= _MOST_ROWS


def _are_sizes_known_to_fit(logits: torch.Tensor, target: torch.Tensor) -> bool:
    """As `_do_sizes_fit`, of what torch.compile traces: rows whose number depends on data are ours, even if there turn
    out to be none; classes whose number does are torch's."""
    classes = logits.shape[min(1, logits.dim() - 1)]
    if depends_on_data(classes) or not holds(classes <= MOST_WORDS * 4096):
        return False
    if not depends_on_data(target.numel()):
        return _do_sizes_fit(logits, target)
    torch._check(target.numel() <= _MOST_ROWS, lambda: "the logits have more rows than an int32 can count.")
    return logits.dim() == 2 and classes > 0


def _rows_or_columns(logits: torch.Tensor) -> torch.Tensor:
    """The logits as (M, C) with contiguous rows that do not overlap, or as (OUTER, C, INNER), whose classes lie apart:
    a view where there is one."""
    if torch.compiler.is_compiling() and depends_on_data(logits.shape[0]):
        are_rows = holds(logits.stride(1) == 1) and holds(logits.stride(0) >= logits.shape[1])
        return logits if are_rows else logits.contiguous()
    if (columns := columns_of(logits)) is not None:
        return columns
    if logits.dim() != 2:
        logits = logits.movedim(1, -1).reshape(-1, logits.shape[1]) if logits.dim() > 2 else logits[None]
    return logits if _are_rows(logits) else logits.contiguous()


def _as_taken(x: torch.Tensor) -> torch.Tensor:
    """Rows or columns with strides that the kernels take: torch.compile may hand them over with others."""
    return x if (_are_rows(x) if x.dim() == 2 else are_columns(x)) else x.contiguous()


def _are_rows(x: torch.Tensor) -> bool:
    """Whether an (M, C) tensor has contiguous rows that do not overlap."""
    M, C = x.shape
    return (x.stride(1) == 1 or C == 1) and (x.stride(0) >= C or M == 1)  # M may depend on data: it is asked last


def _require_inplace(logits: torch.Tensor, seen: torch.Tensor) -> None:
    if logits.is_leaf or (logits._is_view() and logits._base.is_leaf):
        raise ValueError("inplace=True would overwrite a leaf that needs a gradient. Pass the result of an operation.")
    if seen.data_ptr() != logits.data_ptr() or seen.untyped_storage().data_ptr() != logits.untyped_storage().data_ptr():
        raise ValueError(
            "inplace=True needs logits that no kernel has to copy: rows of contiguous numbers, or contiguous logits of "
            f"the shape (M, C, …) with at most {MOST_CLASSES:,} classes. These have the shape {tuple(logits.shape)} "
            f"and the strides {logits.stride()}."
        )


# Differentiation


class _CrossEntropy(torch.autograd.Function):
    """The loss with its gradient, which waits for what arrives in backward."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, target: torch.Tensor, options: LossOptions, inplace: bool, shape: tuple[int, ...]
    ) -> torch.Tensor:
        gradient = x.detach() if inplace else gradient_like(x)
        ctx.options, ctx.version, ctx.kept = options, x._version, (None, None)
        ctx.is_hooked = top_saved_tensors_hooks(False) is not None
        # Who hooks what is saved wants to save memory: nothing is kept besides.
        if x.element_size() == 2 and not inplace and not ctx.is_hooked:
            ctx.kept = x.detach(), pairs_like(x)
        loss = loss_of(x, target, options, gradient, ctx.kept[1], shape=shape)
        if inplace:
            torch.autograd.graph.increment_version(x)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gradient, target)
        return loss

    @staticmethod
    def backward(ctx: Any, arrived: torch.Tensor | None) -> tuple[torch.Tensor | None, None, None, None, None]:
        gradient = None if arrived is None else _gradient_for(ctx, arrived)
        if not _graph_stays():
            ctx.kept = None, None
        return gradient, None, None, None, None


def _graph_stays() -> bool:
    """Whether backward may be asked again. Where it is compiled, nobody knows."""
    return torch.compiler.is_compiling() or keeps_graph()


def _gradient_for(ctx: Any, arrived: torch.Tensor) -> torch.Tensor:
    """The gradient times what arrives in backward: one number, or one for each loss."""
    _require_first_derivative()
    (gradient, target), (x, pairs), options = ctx.saved_tensors, ctx.kept, ctx.options
    if arrived.dim():
        arrived = arrived.reshape(-1)
    if not _are_for_scaling(arrived, gradient, target):
        of_logits = (gradient.shape[0], 1, -1) if gradient.dim() == 3 else (-1, 1)
        by, ignored = arrived.reshape(of_logits) if arrived.dim() else arrived, target == options.ignore_index
        return (gradient * by).to(gradient.dtype).masked_fill(ignored.view(of_logits), 0)
    # Whoever asks again, or has hooked what was saved, is to find the gradient as it was.
    over = not _graph_stays() and not ctx.is_hooked
    y = gradient if over else gradient_like(gradient)
    if x is not None and x._version == ctx.version and is_plain(x, casts=True):
        gradient_again(y, x, target, pairs, arrived, options, over)
    else:
        scaled(y, gradient, target, arrived, options)
    return y


def _are_for_scaling(arrived: torch.Tensor, gradient: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether a kernel may take these: no negative bit, none of a batch, nothing that a hook has laid out anew."""
    if torch.compiler.is_compiling() or not is_plain(arrived, casts=True) or not is_plain(gradient, casts=True):
        return False
    if gradient.dim() == 3:
        return target.numel() * gradient.shape[1] == gradient.numel() and are_columns(gradient)
    return gradient.dim() == 2 and target.shape == gradient.shape[:1] and _are_rows(gradient)


_differentiable = applied(_CrossEntropy)


def _require_first_derivative() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("cross_entropy has no second derivative. Use torch.nn.functional.cross_entropy for one.")


# Operators for torch.compile. Their backward takes a launch whatever arrives, so it alone writes the gradient


@torch.library.custom_op("softmax_in_triton::cross_entropy", mutates_args=())
def _operator(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    loss_dtype: torch.dtype,
    keeps_pairs: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    pairs = pairs_like(x) if keeps_pairs else None
    options = LossOptions(ignore_index, reduction, label_smoothing, loss_dtype)
    if not target.numel():  # rows whose number depended on data
        loss = _loss_of_no_rows(options, x.device)
        return loss, target.new_empty(0) if pairs is None else pairs
    loss = loss_of(
        _as_taken(x), target, options, None, pairs, mailbox.fresh
    )  # a compiled graph may keep what it is given
    return loss, target.new_empty(0) if pairs is None else pairs


def _loss_of_no_rows(options: LossOptions, device: torch.device) -> torch.Tensor:
    if options.reduction == "none":
        return torch.empty(0, dtype=options.loss_dtype, device=device)
    return torch.full((), torch.nan if options.reduction == "mean" else 0.0, dtype=options.loss_dtype, device=device)


@_operator.register_fake
def _(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    loss_dtype: torch.dtype,
    keeps_pairs: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = torch.empty(target.shape if reduction == "none" else (), dtype=loss_dtype, device=x.device)
    return loss, pairs_like(x) if keeps_pairs else target.new_empty(0)


@torch.library.custom_op("softmax_in_triton::cross_entropy_backward", mutates_args=())
def _backward_operator(
    arrived: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    pairs: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> torch.Tensor:
    x, options = _as_taken(x), LossOptions(ignore_index, reduction, label_smoothing, arrived.dtype)
    y = gradient_like(x)
    if y.numel():
        gradient_again(y, x, target, pairs.contiguous(), arrived, options)
    return y


@_backward_operator.register_fake
def _(arrived: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    return gradient_like(_as_taken(x))


def _keep_logits(ctx: Any, inputs: tuple, output: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, target, *options, _, ctx.keeps_pairs = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, target, output[1])
    ctx.options = options


def _hand_on(ctx: Any, arrived: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    _require_first_derivative()
    if not ctx.keeps_pairs:
        raise RuntimeError("the operator was told that nobody wants a gradient (keeps_pairs=False).")
    return _backward_operator(arrived, *ctx.saved_tensors, *ctx.options), *[None] * 6


_operator.register_autograd(_hand_on, setup_context=_keep_logits)
