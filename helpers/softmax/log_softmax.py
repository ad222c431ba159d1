"""log_softmax: a drop-in for torch's, with one read and one write where rows are contiguous."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from helpers.kernels import DTYPES
from helpers.softmax.launches.launch import Launch, gpu_of, keep_launcher, on_stream
from helpers.softmax.launches.rows import log_gradient_launcher, log_softmax_launcher
from helpers.softmax.plans.rows import MOST_WORDS
from helpers.softmax.torch_side import (
    LAST,
    are_for_gradient,
    by_torchs_names,
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
        return _differentiable(input, dtype or input.dtype)
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


_launchers: dict[tuple, Launch] = {}


def _launcher_of(x: torch.Tensor, dtype: torch.dtype) -> Launch:
    """The launcher for x and a result of `dtype`. It is made once and remembered."""
    M, N = x.numel() // x.shape[-1], x.shape[-1]
    key = M, N, x.dtype, dtype, x.device, x.data_ptr() % 16
    launcher = _launchers.get(key)
    if launcher is None:
        layout = M, N, x.element_size(), x.data_ptr() % 16 == 0
        launcher = keep_launcher(_launchers, key, log_softmax_launcher(*layout, gpu_of(x.get_device())))
    return launcher


def _log_softmax(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)
    on_stream(x, _launcher_of(x, dtype), (y, x))
    return y


def log_gradient_launcher_of(dx: torch.Tensor, dy: torch.Tensor, y: torch.Tensor) -> Launch:
    """The launcher for contiguous dx, dy and y of these dtypes and alignments. It is made once and remembered."""
    N, addresses = y.shape[-1], tuple(tensor.data_ptr() % 16 for tensor in (dx, dy, y))
    return _gradient_launcher(y.numel() // N, N, y.dtype, dx.dtype, addresses, y.get_device())


@lru_cache(maxsize=1024)
def _gradient_launcher(
    M: int, N: int, dtype: torch.dtype, _dtype_of_dx: torch.dtype, addresses: tuple[int, int, int], _device: int
) -> Launch:
    """The launcher for M rows of N columns, at these addresses modulo 16: a kernel is compiled for all of this."""
    return log_gradient_launcher(M, N, dtype.itemsize, addresses == (0, 0, 0))


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        y = _log_softmax(x, dtype)
        ctx.dtype = x.dtype
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        if dy is None:
            return None, None
        (y,) = ctx.saved_tensors
        if not are_for_gradient(dy, y):  # torch's can be differentiated again, batched and watched
            return torch.ops.aten._log_softmax_backward_data(dy, y, -1, y.dtype).to(ctx.dtype), None
        dy, y = dy.contiguous(), y.contiguous()
        dx = torch.empty_like(y, dtype=ctx.dtype)
        on_stream(y, log_gradient_launcher_of(dx, dy, y), (dx, dy, y))
        return dx, None


_differentiable = super(torch.autograd.Function, _LogSoftmax).apply
"""Without questions about torch.func, as softmax's own."""
