"""Which tensors torch's dispatcher would hand straight to the kernel of their device: `softmax` launches for these.

Of all others torch knows more than an address tells: a negative bit, a tangent, a batch, a mode that watches, or that
there is no address. This file asks torch's dispatcher in its own words, which are private (torch 2.11 to 2.13).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from helpers.engine.runtime import DEVICE

_DTYPES = frozenset((torch.float32, torch.bfloat16, torch.float16))
_TENSORS = frozenset((torch.Tensor, torch.nn.Parameter))


def _all_but(names: tuple[str, ...]) -> int:
    """The bits of a set of dispatch keys that hold everything but the keys of these names."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    for name in names:
        keys = keys | torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name))
    return ~keys.raw_repr()


_NOT_PLAIN = _all_but(
    ("CPU", "CUDA", "ADInplaceOrView", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA"),
)
_WATCHED = _all_but(("BackendSelect", "ADInplaceOrView"))
_WATCHED_FROM_PYTHON = _all_but(("BackendSelect", "ADInplaceOrView", "Python", "PythonTLSSnapshot"))


def is_plain(x: Any) -> bool:
    """Whether x is an ordinary tensor of a dtype and on a device that our kernels take, and nobody watches operations.

    False under autocast for 16 bits, of which torch makes 32, and where tangents are carried forward. Modes that see a
    launch by other means than torch's dispatcher say so: their `sees_launches` is true.
    """
    return (
        type(x) in _TENSORS
        and x.dtype in _DTYPES
        and x.device.type == DEVICE.type
        and not torch._C._dispatch_keys(x).raw_repr() & _NOT_PLAIN
        and not _is_watched()
        and forward_ad._current_level < 0
        and (x.dtype is torch.float32 or not torch.is_autocast_enabled(DEVICE.type))
    )


def _is_watched() -> bool:
    included = torch._C._dispatch_tls_local_include_set().raw_repr()
    if not included & _WATCHED and not torch._C._len_torch_function_stack():
        return False
    functions = map(torch._C._get_function_stack_at, range(torch._C._len_torch_function_stack()))
    return (
        bool(included & _WATCHED_FROM_PYTHON)
        or not all(getattr(mode, "sees_launches", False) for mode in _get_current_dispatch_mode_stack())
        or not all(isinstance(mode, DeviceContext) or getattr(mode, "sees_launches", False) for mode in functions)
    )


def is_compilable(x: Any) -> bool:
    """As `is_plain`, for what torch.compile and torch.export trace: there the operator is known to all that watches.

    Only attributes that torch's tracer knows are asked. Transforms of torch.func and tangents are torch's here too.
    """
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter, FakeTensor)
        and x.dtype in _DTYPES
        and x.device.type == DEVICE.type
        and x.layout == torch.strided
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and (x.dtype == torch.float32 or not torch.is_autocast_enabled(DEVICE.type))
    )
