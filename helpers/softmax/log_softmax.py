"""log_softmax: a drop-in for torch's, with one read and one write where rows are contiguous."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch

from helpers.kernels import DTYPES
from helpers.softmax.launches.launch import Launch, gpu_of, on_stream
from helpers.softmax.launches.rows import log_gradient_launcher, log_softmax_launcher
from helpers.softmax.plans.rows import MOST_WORDS
from helpers.softmax.torch_side import (
    LAST,
    by_torchs_names,
    differentiable,
    functional_log_softmax,
    is_plain,
    records_gradient,
    torch_log_softmax,
)


def log_softmax(
    input: torch.Tensor | None = None,
    dim: int = LAST,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
    x: torch.Tensor | None = None,
    axis: int | None = None,
    _stacklevel: int = 3,
) -> torch.Tensor:
    """The logarithm of the softmax over `dim`: a drop-in for `torch.nn.functional.log_softmax`, gradients included;
    its third argument is `dtype`, as that of `torch.log_softmax`. Without `dim` it is the last one, where torch warns
    and chooses by the number of dimensions.

    It is x − m − log(l), from one read, in float32; `log(softmax(x))` would lose the digits of all small probabilities.
    The result has the dtype `dtype` where that is given, without a conversion of the input. Contiguous float32,
    bfloat16 and float16, over a last `dim` of at most 2²³ columns, are for our kernel; everything else, and all of it
    under autocast, and `out`, is for torch. As in torch, `x` and `axis` are other names for `input` and `dim`, and
    torch's modules pass `_stacklevel`. Raises what torch raises, and TypeError for anything but a tensor.
    """
    if dim is LAST or axis is not None or x is not None:
        input, dim = by_torchs_names("log_softmax", input, dim, x, axis)
    if not isinstance(input, torch.Tensor) and not hasattr(input, "__torch_function__"):
        raise TypeError(f"log_softmax takes a torch.Tensor; it is a {type(input).__name__}.")
    if out is not None:
        return torch_log_softmax(input, dim, dtype, out=out)
    if torch.compiler.is_compiling() or not _is_ours(input, dim, dtype):
        return functional_log_softmax(input, dim, _stacklevel + 1, dtype)
    if input.requires_grad and records_gradient(input):
        return _differentiable(input.dtype, dtype or input.dtype)(input)
    return _log_softmax(input, dtype or input.dtype)


def _is_ours(x: torch.Tensor, dim: Any, dtype: Any) -> bool:
    """Whether our kernel takes x; everything else is for torch."""
    return (
        is_plain(x)
        and type(dim) is int
        and x.dim() > 0
        and dim in (-1, x.dim() - 1)
        and x.is_contiguous()
        and 0 < x.numel()
        and x.shape[-1] <= MOST_WORDS * 4096
        and (dtype is None or dtype in DTYPES.values())
        and not torch.is_autocast_enabled(x.device.type)
    )


@lru_cache(maxsize=4096)
def _launcher(M: int, N: int, dtype: torch.dtype, _dtype_of_y: torch.dtype, address: int, device: int) -> Launch:
    """The launcher for M rows of N columns at this address modulo 16: a kernel is compiled for all of this."""
    return log_softmax_launcher(M, N, dtype.itemsize, address == 0, gpu_of(device))


def _log_softmax(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y, N = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format), x.shape[-1]
    on_stream(x, _launcher(x.numel() // N, N, x.dtype, dtype, x.data_ptr() % 16, x.get_device()), (y, x))
    return y


def log_gradient_launcher_of(dx: torch.Tensor, dy: torch.Tensor, y: torch.Tensor) -> Launch:
    """The launcher for contiguous dx, dy and y of these dtypes and alignments. It is made once and remembered."""
    N, addresses = y.shape[-1], tuple(tensor.data_ptr() % 16 for tensor in (dx, dy, y))
    return log_gradient_launcher(y.numel() // N, N, y.dtype, dx.dtype, addresses, y.get_device())


def _gradient(dtype: torch.dtype, dy: torch.Tensor, y: torch.Tensor, _: Any) -> torch.Tensor:
    """dy − exp(y) · Σ dy, in the `dtype` of x."""
    dy, y = dy.contiguous(), y.contiguous()
    dx = torch.empty_like(y, dtype=dtype)
    on_stream(y, log_gradient_launcher_of(dx, dy, y), (dx, dy, y))
    return dx


def _gradient_by_torch(dtype: torch.dtype, dy: torch.Tensor, y: torch.Tensor, _: Any) -> torch.Tensor:
    return torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype).to(dtype)


@lru_cache(maxsize=16)
def _differentiable(dtype_of_x: torch.dtype, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """log_softmax with its gradient, from one dtype to another."""
    gradients = partial(_gradient, dtype_of_x), partial(_gradient_by_torch, dtype_of_x)
    return differentiable("_LogSoftmax", _log_softmax, dtype, *gradients)
