"""Which tensors torch's dispatcher would hand straight to the kernel of their device: our functions launch for these.

Of all others torch knows more than an address tells: a negative bit, a tangent, a batch, a mode that watches, or that
an address is missing. Asked at every call, so each question is one that torch answers in 0.1 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import is_grad_enabled, is_inference_mode_enabled
from torch.compiler import is_compiling

from helpers.engine.runtime import DEVICE, INTERPRETED
from helpers.engine.torch_parts import (
    DeviceContext,
    FakeTensor,
    applied,
    are_functorch_transforms_active,
    carries_tangents,
    get_dispatch_modes,
    get_function_stack_at,
    holds,
    is_exporting,
    is_tracing,
    len_torch_dispatch_stack,
    len_torch_function_stack,
)

_DTYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))
_DEVICE_TYPE = DEVICE.type
_STRIDED, _FLOAT32 = torch.strided, torch.float32

torch_softmax, torch_log_softmax = torch.softmax, torch.log_softmax
torch_cross_entropy = torch.nn.functional.cross_entropy
torch_linear_cross_entropy = getattr(torch.nn.functional, "linear_cross_entropy", None)  # from torch 2.13 on
functional_softmax, functional_log_softmax = torch.nn.functional.softmax, torch.nn.functional.log_softmax
"""torch's own functions: whoever puts ours in their place would otherwise send us in a circle."""


class _Last:
    """The last dimension, where nobody has given one."""

    def __repr__(self) -> str:
        return "-1"


LAST: Any = _Last()


def by_torchs_names(name: str, input: Any, dim: Any, x: Any, axis: Any) -> tuple[Any, Any]:
    """The tensor and the dimension, which torch takes as NumPy's `x` and `axis`, too.

    Raises TypeError, as torch does, if the function `name` is given one of them twice.
    """
    if x is not None and input is not None:
        raise TypeError(f"{name}() takes one tensor: it is given as input and as x.")
    if axis is not None and dim is not LAST:
        raise TypeError(f"{name}() takes one dimension: it is given as dim and as axis.")
    return (x if input is None else input), axis if axis is not None else -1 if dim is LAST else dim


def is_plain(x: Any, casts: bool = False) -> bool:
    """Whether x is an ordinary tensor of a dtype and on a device that our kernels take, and nobody watches operations.

    False where tangents are carried forward, and under autocast for 16 bits, of which torch makes 32, unless the caller
    `casts` what it returns; and for tensors that stand for others, such as zeros that are never stored. Modes that see
    a launch by other means than torch's dispatcher say so: their `sees_launches` is true.
    """
    if not (
        type(x) in TENSORS
        # Asked first: a mode that watches functions would see the questions about x.
        and not (
            (
                len_torch_function_stack()
                or len_torch_dispatch_stack()
                or is_tracing()
                or are_functorch_transforms_active()
            )
            and _is_watched()
        )
        and (dtype := x.dtype) in _DTYPES
        and (x.is_cpu if INTERPRETED else x.is_cuda)
        and x.layout is _STRIDED
        and not x.is_nested
        and not x.is_neg()
        and not carries_tangents()
        and (dtype is _FLOAT32 or not torch.is_autocast_enabled(_DEVICE_TYPE) or casts)
    ):
        return False
    return has_address(x)


def has_address(x: torch.Tensor) -> bool:
    """Whether x, unless it is empty, has memory of its own."""
    try:
        return x.data_ptr() != 0 or not x.numel()
    except RuntimeError:
        return False


def records_gradient(x: torch.Tensor) -> bool:
    """Whether torch would record an operation on x, which requires a gradient. Not asked where torch.compile traces."""
    return is_grad_enabled() and not is_inference_mode_enabled() and not x.is_inference()


def are_for_gradient(dy: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether a kernel of ours may take what arrives in backward, and what was saved, which a hook may have changed.

    Not where backward is compiled or recorded itself.
    """
    if is_compiling() or is_grad_enabled():
        return False
    return dy.shape == y.shape and dy.dtype == y.dtype and is_plain(dy, casts=True) and is_plain(y, casts=True)


def differentiable(
    name: str,
    forward: Callable[[torch.Tensor, Any], torch.Tensor],
    option: Any,
    gradient: Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor],
    by_torch: Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """y = forward(x, option) as a function of x that autograd can differentiate: gradient(dy, y, option) is for plain
    tensors, and by_torch(dy, y, option), which can be differentiated again, batched and watched, for all others.

    Its node in the graph has the `name`. The option is not told at every call. What torch.autograd.Function asks about
    torch.func, `is_plain` has answered.
    """

    def save(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = forward(x, option)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y)
        return y

    def backward(ctx: Any, dy: torch.Tensor | None) -> torch.Tensor | None:
        if dy is None:
            return None
        (y,) = ctx.saved_tensors
        return (gradient if are_for_gradient(dy, y) else by_torch)(dy, y, option)

    ways = {"forward": staticmethod(save), "backward": staticmethod(backward)}
    return applied(type(name, (torch.autograd.Function,), ways))


def _is_watched() -> bool:
    return (
        is_tracing()
        or are_functorch_transforms_active()
        or not all(getattr(mode, "sees_launches", False) for mode in get_dispatch_modes())
        or _are_functions_watched()
    )


def _are_functions_watched() -> bool:
    for place in range(len_torch_function_stack()):
        mode = get_function_stack_at(place)
        if not (isinstance(mode, DeviceContext) or getattr(mode, "sees_launches", False)):
            return True
    return False


def is_compilable(x: Any, casts: bool = False) -> bool:
    """As `is_plain`, for what torch.compile traces: there the operator is known to all that watches, functions aside.

    Only attributes that torch's tracer knows are asked. Transforms of torch.func and tangents are torch's here too, and
    so are exported functions: other tools, and transforms of them, know torch's operators alone.
    """
    return (
        not is_exporting()
        and not _are_functions_watched()
        and type(x) in (torch.Tensor, torch.nn.Parameter, FakeTensor)
        and x.dtype in _DTYPES
        and x.device.type == DEVICE.type
        and x.layout == torch.strided
        and not are_functorch_transforms_active()
        and not carries_tangents()
        and (x.dtype == torch.float32 or not torch.is_autocast_enabled(DEVICE.type) or casts)
    )


def depends_on_data(size: Any) -> bool:
    """Whether nobody knows, while torch.compile traces, if this size is 0, 1 or more."""
    return not (holds(size > 1) or holds(size <= 1))


def softmax_by_torch_into(y: torch.Tensor, x: torch.Tensor, dim: int) -> None:
    """Fills y with what torch makes of an x that is too large for our kernels."""
    y.copy_(torch_softmax(x, dim))


def gradient_by_torch(dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient as torch computes it: it can be differentiated again, batched and watched."""
    return torch.ops.aten._softmax_backward_data(dy, y, dim, y.dtype)


def gradient_by_torch_into(dx: torch.Tensor, dy: torch.Tensor, y: torch.Tensor, shape: tuple[int, int, int]) -> None:
    """Fills dx, as `softmax_by_torch_into` does, over the second of three dimensions."""
    dx.view(shape).copy_(gradient_by_torch(dy.view(shape), y.view(shape), 1))
