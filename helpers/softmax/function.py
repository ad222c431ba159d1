"""softmax: a drop-in for torch's, its gradient, and the operator that torch.compile knows.

The launch for tensors of one layout is made once and remembered."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.compiler import is_compiling

from helpers.engine.torch_parts import empty_strided
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.columns import columns_launcher, gradient_columns_launcher
from helpers.softmax.launches.launch import (
    Launcher,
    Zeros,
    current_device,
    current_stream,
    gpu_of,
    keep_launcher,
    on_stream,
)
from helpers.softmax.launches.rows import gradient_rows_launcher, rows_launcher
from helpers.softmax.plans.layout import axes_of
from helpers.softmax.torch_side import (
    LAST,
    by_torchs_names,
    differentiable,
    functional_softmax,
    gradient_by_torch,
    is_compilable,
    is_plain,
    records_gradient,
    softmax_by_torch_into,
    torch_softmax,
)

_MOST_COLUMNS = 65535 * 16384
"""Longer rows are torch's: two launches would need more slices than a grid's second dimension has."""

_MOST_GRADIENT_COLUMNS = 4096 * 4096
"""The gradient of longer rows is torch's: their words would not fit into a program's registers."""


def softmax(
    input: torch.Tensor | None = None,
    dim: int = LAST,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    x: torch.Tensor | None = None,
    axis: int | None = None,
    _stacklevel: int | None = None,
) -> torch.Tensor:
    """Softmax over dimension `dim` of a tensor of any shape and strides: a drop-in for `torch.softmax`.

    Ordinary tensors of float32, bfloat16 and float16 on the GPU (or on the CPU where kernels run interpreted) are for
    our kernels: arithmetic is in float32, entries of −inf give 0, a row of only −inf, or with NaN or +inf, gives NaN,
    and the bits are the same from run to run. A row may have other last bits if there are more or fewer rows, since the
    plan looks at their number. The result is contiguous. It can be differentiated (twice), captured in
    CUDA graphs once it has run, and compiled by torch.compile, which takes it as one operator. torch.export finds
    torch's operator, which any tool knows.

    Everything else is torch.softmax's: another dtype or device, `dtype`, `out`, autocast of 16 bits, subclasses, sparse
    and nested tensors, torch.func, forward-mode gradients, modes that watch operations.

    As in torch, `x` and `axis` are other names for `input` and `dim`. With `_stacklevel`, which torch's modules pass,
    it is torch.nn.functional.softmax, which chooses a dimension where `dim` is None, and warns.

    Raises what torch.softmax raises, in a clearer sentence: TypeError for anything but a tensor, NotImplementedError
    for integers, IndexError for a dimension that the tensor lacks.
    """
    if dim is LAST or axis is not None or x is not None:
        input, dim = by_torchs_names("softmax", input, dim, x, axis)
    if dim is None and _stacklevel is not None:
        return functional_softmax(input, None, _stacklevel + 1, dtype)
    compiling = is_compiling()
    ours = is_compilable(input) if compiling else is_plain(input)
    if not ours or type(dim) is not int or out is not None or (dtype is not None and dtype != input.dtype):
        return _torchs(input, dim, dtype=dtype, out=out)
    if compiling:
        return _softmax(input, dim)
    if input.requires_grad and records_gradient(input):
        return _differentiable_over(dim)(input)
    return _forward(input, dim)


def _require_dimension(x: torch.Tensor, dim: int) -> None:
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        raise IndexError(
            f"dim must be between {-most} and {most - 1} for a tensor of {x.dim()} dimensions; it is {dim}."
        )


def _torchs(input: Any, dim: Any, **options: Any) -> torch.Tensor:
    if not isinstance(input, torch.Tensor) and not hasattr(input, "__torch_function__"):
        raise TypeError(f"softmax takes a torch.Tensor; it is a {type(input).__name__}.")
    # What overrides torch's function is given no option that nobody gave.
    given = {name: option for name, option in options.items() if option is not None}
    try:
        return torch_softmax(input, dim, **given)
    except NotImplementedError:
        integers = type(input) is torch.Tensor and not input.is_floating_point() and not input.is_complex()
        if given or not integers or input.layout != torch.strided:
            raise
    raise NotImplementedError(f"softmax of {input.dtype} is not a number of that dtype. Use dtype=torch.float32.")


class _Known(NamedTuple):
    """What is known of tensors of one layout: how to launch for them, and how the result lies."""

    launch: Launcher
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


_known: dict[tuple, _Known] = {}


def launcher_of(x: torch.Tensor, dim: int) -> Launcher:
    """The launcher for tensors of x's layout, alignment, dtype and device. It is made once and remembered.

    Raises IndexError for a dimension that x lacks.
    """
    return _known_of(x, dim, x.get_device()).launch


def _known_of(x: torch.Tensor, dim: int, device: int) -> _Known:
    key = (x.shape, x.stride(), x.dtype, dim, device, x.data_ptr() % 16)
    found = _known.get(key)
    if found is None:
        _require_dimension(x, dim)
        strides = torch.empty(x.shape, device="meta").stride()
        found = keep_launcher(_known, key, _Known(_launcher(x, dim), tuple(x.shape), strides, x.dtype))
    return found


def _forward(x: torch.Tensor, dim: int, zeros: Zeros = mailbox.zeros) -> torch.Tensor:
    device = x.get_device()
    if device != current_device():
        with torch.cuda.device(device):
            return _forward(x, dim, zeros)
    launch, shape, strides, dtype = _known_of(x, dim, device)
    y = empty_strided(shape, strides, dtype)
    launch((y, x), current_stream(device), zeros)
    return y


def _launcher(x: torch.Tensor, dim: int) -> Launcher:
    if not x.numel():
        return lambda tensors, stream, zeros: None
    if x.dim() and x.shape[dim] > _MOST_COLUMNS:
        return lambda tensors, stream, zeros: softmax_by_torch_into(*tensors, dim)
    if x.is_contiguous() and dim % max(x.dim(), 1) == x.dim() - 1:
        N = x.shape[-1]
        return rows_launcher(x, x.numel() // N, N, N if x.dim() > 1 else 0)
    axes = axes_of(x.shape, x.stride(), dim)
    if axes is None:
        launch = _launcher(torch.empty(x.shape, dtype=x.dtype, device="meta"), dim)
        return lambda tensors, stream, zeros: launch((tensors[0], tensors[1].contiguous()), stream, zeros)
    outer, inner, columns = axes
    if columns.x_stride == 1 and inner.size == 1:
        return rows_launcher(x, outer.size, columns.size, outer.x_stride)
    if inner.size == 1:
        outer, inner = inner, outer
    return columns_launcher(x, dim, outer, inner, columns, gpu=gpu_of(x.get_device()))


_gradient_launchers: dict[tuple, Launcher] = {}


def softmax_gradient(dy: torch.Tensor, y: torch.Tensor, dim: int, zeros: Zeros = mailbox.zeros) -> torch.Tensor:
    """y · (dy − Σ dy · y), summed over dimension `dim`: the gradient of y = softmax(x), contiguous and of y's dtype.

    dy and y are plain tensors of one shape and dtype; each is loaded once, unless the plan reads other dimensions
    twice. Rows of more than 2²⁴ are torch's.
    """
    if y.dim() and y.shape[dim] > _MOST_GRADIENT_COLUMNS:
        return gradient_by_torch(dy, y, dim)
    dy, y = dy.contiguous(), y.contiguous()
    dx = torch.empty_like(y)
    if y.numel():
        on_stream(y, gradient_launcher_of(dy, y, dim), (dx, dy, y), zeros)
    return dx


def gradient_launcher_of(dy: torch.Tensor, y: torch.Tensor, dim: int) -> Launcher:
    """The launcher for contiguous dx, dy and y of this shape, dtype and alignment. It is made once and remembered."""
    addresses = dy.data_ptr() % 16, y.data_ptr() % 16  # a kernel is compiled for both alignments
    key = (y.shape, y.dtype, dim, y.get_device(), *addresses)
    launcher = _gradient_launchers.get(key)
    if launcher is None:
        launcher = keep_launcher(_gradient_launchers, key, _gradient_launcher(y, dim, addresses == (0, 0)))
    return launcher


def _gradient_launcher(y: torch.Tensor, dim: int, aligned: bool) -> Launcher:
    N = y.shape[dim] if y.dim() else 1
    inner = math.prod(y.shape[dim % y.dim() + 1 :]) if y.dim() else 1
    gpu = gpu_of(y.get_device())
    if inner == 1:
        return gradient_rows_launcher(y.numel() // N, N, y.element_size(), aligned, gpu=gpu)
    return gradient_columns_launcher(y.numel() // (N * inner), inner, N, y.element_size(), aligned, gpu=gpu)


@lru_cache(maxsize=256)
def _differentiable_over(dim: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """softmax with its gradient, as autograd sees it outside torch.compile: the operators below cost it more time."""
    return differentiable("_Softmax", _forward, dim, softmax_gradient, gradient_by_torch)


@torch.library.custom_op("softmax_in_triton::softmax", mutates_args=())
def _softmax(x: torch.Tensor, dim: int) -> torch.Tensor:
    return _forward(x, dim, mailbox.fresh)


@torch.library.custom_op("softmax_in_triton::softmax_backward", mutates_args=())
def _softmax_backward(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return softmax_gradient(dy, y, dim, mailbox.fresh)


@_softmax.register_fake
def _(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@_softmax_backward.register_fake
def _(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.empty(y.shape, dtype=y.dtype, device=y.device)


def _keep(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
    ctx.dim = inputs[1]
    ctx.save_for_backward(output)


def _differentiate(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
    (y,) = ctx.saved_tensors
    backward = gradient_by_torch if torch.is_grad_enabled() else _softmax_backward
    return backward(dy, y, ctx.dim), None


_softmax.register_autograd(_differentiate, setup_context=_keep)
