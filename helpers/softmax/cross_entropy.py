"""cross_entropy: a drop-in for torch's that reads the logits once, and writes their gradient in the same launch."""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import torch
import triton

from helpers.engine.runtime import INTERPRETED
from helpers.softmax import mailbox
from helpers.softmax.dispatch import TENSORS, is_compilable, is_plain
from helpers.softmax.launcher import PreparedLauncher, Words, keep_launcher, on_stream
from helpers.softmax.loss_kernel import LOSSES_IN_A_GROUP, cross_entropy_kernel, scale_kernel
from helpers.softmax.plan import EIGHT_WARPS, FIVE_WARPS, MOST_WORDS, SEVEN_WARPS, Plan, shared_plan
from helpers.softmax.shared import LOOKS

REDUCTIONS = ("none", "sum", "mean")

_WHOLE_BYTES = 6144
"""The longest row that one program holds."""

_LEAST_LANES = 64
"""Two for each thread of a warp: elements of 16 bits are packed in twos."""

_SLICE_BYTES = 8192
"""The slice that one warp holds."""

_WARP_WORDS, _MOST_SLICES = 80, 256
"""The most words of a row that one warp merges, and the most slices of 16 kB; a longer row has larger ones."""

_FEW_SLICES, _FEW_ROWS_BLOCK = 1024, 2048
"""With fewer slices than this, a program takes one of 2048 columns: too few programs would load at a time."""


_SCALING = 4 * 132
"""Programs that multiply a gradient: as few as keep a GPU busy, since mostly there is nothing to do."""


class How(NamedTuple):
    """The results to compute from the logits."""

    ignore_index: int
    reduction: str
    label_smoothing: float
    loss_dtype: torch.dtype


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    inplace: bool = False,
) -> torch.Tensor:
    """The cross-entropy of logits and classes: torch.nn.functional's, without weights, whose `input` is `logits` here.

    `logits` has the shape (M, V), (V,) or (M, V, …), `target` (M,), () or (M, …), and holds classes from 0 to V − 1, as
    int64. Arithmetic is in float32. Where a gradient is wanted, it is computed and stored in the launch that computes
    the loss: one read and one write of the logits. `backward` multiplies it by what arrives, and reads and writes
    nothing where that is 1. Without a gradient the logits are read once. The bits are the same from run to run.

    A float16 gradient is rounded before it is multiplied: scaling the loss comes too late for what the mean of
    thousands of rows makes too small. Divide the sum of `reduction="none"` by their number: that rounds it undivided.

    With `inplace` the gradient is written over the logits, which are lost: they need no memory besides, and torch
    raises an error where another operation has kept them. It asks for logits that are neither a leaf nor its view, in
    rows of contiguous numbers. Without a gradient `inplace` changes nothing.

    A target that is neither a class nor `ignore_index` makes the loss NaN, and the gradient of its row: to raise an
    error, the host would have to wait for the GPU. No element outside the row is read. What else torch takes
    (probabilities as targets, float64, CPU tensors where there is a GPU, subclasses, torch.func, forward gradients,
    modes that watch operations) is computed by torch, save for `inplace`, which raises ValueError there. Raises
    TypeError for arguments of the wrong type, ValueError for shapes that do not fit, an unknown reduction, or a
    smoothing outside 0 … 1. `create_graph=True`, from which a second derivative would come, raises RuntimeError.
    """
    _require(logits, target, ignore_index, reduction, label_smoothing)
    if not _is_ours(logits, target):
        if inplace:
            raise ValueError("inplace=True is for float32, bfloat16 and float16 logits that a kernel can take here.")
        return torch.nn.functional.cross_entropy(
            logits, target, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    rows, classes = _rows(logits), target.reshape(-1)
    # Under autocast torch's loss is float32; converting the logits first is not needed.
    loss_dtype = torch.float32 if torch.is_autocast_enabled(logits.device.type) else logits.dtype
    how = How(int(ignore_index), reduction, float(label_smoothing), loss_dtype)
    wants_gradient = logits.requires_grad and torch.is_grad_enabled()
    if inplace and wants_gradient:
        _require_inplace(logits, rows)
    if torch.compiler.is_compiling():
        loss, _ = _operator(rows, classes, *how, wants_gradient)
    elif wants_gradient:
        loss = _CrossEntropy.apply(rows, classes, how, inplace)
    else:
        loss = _computed(rows, classes, how, None)
    return loss.view(target.shape) if reduction == "none" and target.dim() != 1 else loss


def _require(logits: Any, target: Any, ignore_index: Any, reduction: Any, label_smoothing: Any) -> None:
    for name, value in (("logits", logits), ("target", target)):
        if not isinstance(value, torch.Tensor):
            if hasattr(value, "__torch_function__"):
                return  # what stands for a tensor is torch's
            raise TypeError(f"{name} must be a torch.Tensor; it is a {type(value).__name__}.")
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}; it is {reduction!r}.")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1; it is {label_smoothing!r}.")
    if isinstance(ignore_index, bool) or not isinstance(ignore_index, Integral):
        raise TypeError(f"ignore_index must be an integer; it is {ignore_index!r}.")
    if target.is_floating_point() or not logits.dim():
        return  # probabilities, and anything without rows, are torch's
    if target.dtype not in (torch.int64, torch.uint8):
        raise TypeError(f"target must hold classes as int64; it is {target.dtype}. Use target.long().")
    expected = logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else logits.shape[:0]
    if target.shape != expected:
        raise ValueError(
            f"logits of the shape {tuple(logits.shape)} need a target of the shape {tuple(expected)}; "
            f"it is {tuple(target.shape)}. The classes lie in dimension {min(1, logits.dim() - 1)} of the logits."
        )


def _is_ours(logits: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether kernels take these tensors; all others are for torch."""
    compiling = torch.compiler.is_compiling()
    return (
        (is_compilable(logits, casts=True) if compiling else is_plain(logits, casts=True))
        and (compiling or type(target) in TENSORS)
        and target.dtype == torch.int64
        and target.device == logits.device
        and logits.numel() > 0
        and logits.dim() > 0
        and logits.shape[min(1, logits.dim() - 1)] <= MOST_WORDS * 4096
    )


def _rows(logits: torch.Tensor) -> torch.Tensor:
    """The logits as (M, V) with contiguous rows that do not overlap: a view where there is one."""
    if logits.dim() != 2:
        logits = logits.movedim(1, -1).reshape(-1, logits.shape[1]) if logits.dim() > 2 else logits[None]
    M, V = logits.shape
    lies_well = (V == 1 or logits.stride(1) == 1) and (M == 1 or logits.stride(0) >= V)
    return logits if lies_well else logits.contiguous()


def _require_inplace(logits: torch.Tensor, rows: torch.Tensor) -> None:
    if torch.compiler.is_compiling():
        raise ValueError("inplace=True is not for torch.compile, which reuses memory by itself.")
    if logits.is_leaf or (logits._is_view() and logits._base.is_leaf):
        raise ValueError("inplace=True would overwrite a leaf that needs a gradient. Pass the result of an operation.")
    if rows.data_ptr() != logits.data_ptr() or rows.untyped_storage().data_ptr() != logits.untyped_storage().data_ptr():
        raise ValueError("inplace=True needs logits whose rows are contiguous. Use logits.contiguous().")


# The launches


def loss_plan(n_rows: int, n_cols: int, itemsize: int, smoothing: bool = False) -> Plan:
    """The launch for rows of contiguous logits of `itemsize` bytes.

    A short row has one program. A longer one is shared in slices of 8 kB, each held by one warp, and the longest in
    slices of 16 or 32 kB held by four; where there are few rows, in slices of 2048 columns held by four. With
    `smoothing`, elements of 16 bits need more registers, and so more warps. Found by sweeps of slices, warps and
    registers on one H200 and, of the longest rows, one H100.
    """
    if n_cols * itemsize <= _WHOLE_BYTES:
        lanes = max(_LEAST_LANES, triton.next_power_of_2(n_cols))
        return Plan("tile", lanes, max(1, lanes // 2048), FIVE_WARPS)
    BLOCK = _SLICE_BYTES // itemsize
    if n_cols <= 2 * BLOCK:
        return shared_plan(n_cols, BLOCK // 2, 2 if smoothing and itemsize == 2 else 1, EIGHT_WARPS)
    slices = -(-n_cols // _FEW_ROWS_BLOCK)
    if n_rows * -(-n_cols // BLOCK) < _FEW_SLICES and slices <= 256:
        return shared_plan(n_cols, _FEW_ROWS_BLOCK, 4, EIGHT_WARPS)
    if n_cols > 2 * _MOST_SLICES * BLOCK:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    if smoothing and itemsize == 2:  # one warp or two would spill hundreds of bytes
        return shared_plan(n_cols, 2 * BLOCK, 4, SEVEN_WARPS)
    launch = shared_plan(n_cols, BLOCK, 1, FIVE_WARPS)
    if launch.SPLIT * (2 if smoothing else 1) <= _WARP_WORDS:
        return launch
    if itemsize == 4:
        return shared_plan(n_cols, 4 * BLOCK, 4, FIVE_WARPS)
    return shared_plan(n_cols, 2 * BLOCK, 4, EIGHT_WARPS)


_launchers: dict[tuple, PreparedLauncher] = {}


def _launcher_of(x: torch.Tensor, how: How, gradient: torch.Tensor | None) -> PreparedLauncher:
    """The launcher for logits of x's layout and a gradient as aligned as this one. It is made once and remembered."""
    aligned = None if gradient is None else gradient.data_ptr() % 16
    key = (x.shape, x.stride(), x.dtype, x.get_device(), x.data_ptr() % 16, how, aligned)
    launcher = _launchers.get(key)
    if launcher is None:
        launcher = keep_launcher(_launchers, key, loss_launcher(x, how, gradient is not None))
    return launcher


def loss_launcher(
    x: torch.Tensor, how: How, grad: bool, chosen: Plan | None = None, looks: int = LOOKS
) -> PreparedLauncher:
    """The launcher of `cross_entropy_kernel` for (M, V) logits as `_rows` returns them.

    It launches as `loss_plan` says, or as `chosen` where another plan is to be tried.

    The tensors it takes are the gradient, the losses or their sum or mean, the logits, and the targets.
    """
    (M, N), stride = x.shape, x.stride(0) if x.shape[0] > 1 else x.shape[1]
    V = 16 // x.element_size()
    EDGES = N % V != 0
    if x.data_ptr() % 16 or (stride - N) % V or (EDGES and N < 4 * V):
        V, EDGES = 1, False
    chosen = chosen or loss_plan(M, N, x.element_size(), how.label_smoothing > 0)
    whole = chosen.SPLIT == 1
    row_words = 0 if whole else chosen.SPLIT * (2 if how.label_smoothing else 1)
    layers = triton.cdiv(M, 65535)  # CUDA allows 65535 programs in the second dimension of a grid
    PARTS = max(triton.next_power_of_2(max(1, row_words)), 32 * chosen.num_warps)
    THREADS = 1 if INTERPRETED else 32 * chosen.num_warps  # threads that load one word together load it once
    to_add_up = 0 if how.reduction == "none" else 2 + 2 * triton.cdiv(M, LOSSES_IN_A_GROUP) + M
    arguments = (stride, M, N, how.ignore_index, looks, grad, how.reduction, how.label_smoothing, whole)
    return PreparedLauncher(
        cross_entropy_kernel,
        (chosen.SPLIT, triton.cdiv(M, layers), layers),
        (*arguments, V, EDGES, PARTS, THREADS, chosen.BLOCK),
        chosen.num_warps,
        chosen.maxnreg,
        words=max(1, to_add_up + M * row_words),
    )


def _computed(
    x: torch.Tensor, target: torch.Tensor, how: How, gradient: torch.Tensor | None, words: Words = mailbox.zeros
) -> torch.Tensor:
    """The loss of (M, V) logits. Where `gradient` is given, which may be x, it is filled."""
    loss = torch.empty(len(x) if how.reduction == "none" else (), dtype=how.loss_dtype, device=x.device)
    tensors = (x if gradient is None else gradient, loss, x, target.contiguous())
    on_stream(x, _launcher_of(x, how, gradient), tensors, words)
    return loss


def _gradient_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for the gradient, whose rows lie as x's do: then whole vectors start at the same columns."""
    return torch.empty_strided(x.shape, (x.stride(0) if len(x) > 1 else x.shape[1], 1), dtype=x.dtype, device=x.device)


# Differentiation


class _CrossEntropy(torch.autograd.Function):
    """The loss with its gradient, which waits for what arrives in backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, target: torch.Tensor, how: How, inplace: bool) -> torch.Tensor:
        gradient = x.detach() if inplace else _gradient_like(x)
        loss = _computed(x, target, how, gradient)
        if inplace:
            torch.autograd.graph.increment_version(x)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    def backward(ctx: Any, arrived: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        _require_first_derivative()
        (gradient,) = ctx.saved_tensors
        if not is_plain(arrived, casts=True):  # a negative bit, or one of a batch
            by = arrived.unsqueeze(-1) if arrived.dim() else arrived
            return (gradient * by).to(gradient.dtype), None, None, None
        # A graph that is kept may be asked again, for which its gradient has to stay what it is.
        kept = torch._C._autograd._get_current_graph_task_keep_graph()
        return _scaled(gradient, arrived, over=not kept), None, None, None


def _require_first_derivative() -> None:
    if torch.is_grad_enabled():
        raise RuntimeError("cross_entropy has no second derivative. Use torch.nn.functional.cross_entropy for one.")


def _scaled(gradient: torch.Tensor, arrived: torch.Tensor, over: bool) -> torch.Tensor:
    """`gradient`, (M, V), times `arrived`, which is one number or one for each row: over itself, or as a new tensor."""
    y = gradient if over else _gradient_like(gradient)
    by_stride = arrived.stride(0) if arrived.dim() else 0
    kinds = gradient.get_device(), gradient.dtype, arrived.dtype, gradient.data_ptr() % 16
    launcher = _scale_launcher(*gradient.shape, gradient.stride(0), by_stride, over, kinds)
    on_stream(gradient, launcher, (y, gradient, arrived))
    return y


@lru_cache(maxsize=1024)
def _scale_launcher(M: int, N: int, stride: int, by_stride: int, over: bool, kinds: tuple) -> PreparedLauncher:
    """The launcher of `scale_kernel`, compiled for tensors of `kinds`: a device, two dtypes, an address modulo 16."""
    BLOCK = min(4096, triton.next_power_of_2(N))
    programs = min(M * triton.cdiv(N, BLOCK), _SCALING)
    return PreparedLauncher(
        scale_kernel, (programs, 1, 1), (stride, by_stride, M, N, by_stride != 0, over, BLOCK), num_warps=4
    )


@torch.library.custom_op("softmax_in_triton::cross_entropy", mutates_args=())
def _operator(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    loss_dtype: torch.dtype,
    grad: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    gradient = _gradient_like(x) if grad else None
    how = How(ignore_index, reduction, label_smoothing, loss_dtype)
    loss = _computed(x, target, how, gradient, mailbox.fresh)  # a compiled graph may keep what it is given
    return loss, x.new_empty(0) if gradient is None else gradient


@_operator.register_fake
def _(
    x: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
    loss_dtype: torch.dtype,
    grad: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    loss = torch.empty(target.shape if reduction == "none" else (), dtype=loss_dtype, device=x.device)
    return loss, _gradient_like(x) if grad else x.new_empty(0)


@torch.library.custom_op("softmax_in_triton::scaled", mutates_args=())
def _scaled_operator(gradient: torch.Tensor, arrived: torch.Tensor) -> torch.Tensor:
    return _scaled(gradient, arrived, over=False)


@_scaled_operator.register_fake
def _(gradient: torch.Tensor, arrived: torch.Tensor) -> torch.Tensor:
    return _gradient_like(gradient)


def _keep_gradient(ctx: Any, inputs: tuple, output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


def _hand_on(ctx: Any, arrived: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    _require_first_derivative()
    (gradient,) = ctx.saved_tensors
    return _scaled_operator(gradient, arrived), *[None] * 6


_operator.register_autograd(_hand_on, setup_context=_keep_gradient)
