"""The one file that uses private parts of torch (tested with 2.11 to 2.15).

If a part has moved, a public one takes its place where there is one that does as well, if more slowly. If there is
none, the first call raises RuntimeError with the name of the part; what does not need it works. The names are torch's.
"""

from __future__ import annotations

from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

import torch
from torch.autograd import forward_ad

from helpers.engine.runtime import DEVICE, moved


def _part(whole: str, consequence: str = "", without: Any = None) -> Any:
    """A part of torch by its whole name. If it has moved, `without`, or a class that cannot be called: it says why."""
    try:
        return resolve_name(whole)
    except (ImportError, AttributeError):
        return type("Moved", (), {"__new__": _raises(whole, consequence)}) if without is None else without


def _raises(whole: str, consequence: str) -> Any:
    where, _, name = whole.rpartition(".")

    def raises(*_: Any, **__: Any) -> Any:
        raise moved([name], where, consequence, "torch")

    return raises


# Who watches operations

_WATCHED = "softmax, cross_entropy and attention cannot know who watches operations"
len_torch_function_stack = _part("torch._C._len_torch_function_stack", _WATCHED)
get_function_stack_at = _part("torch._C._get_function_stack_at", _WATCHED)
len_torch_dispatch_stack = _part("torch._C._len_torch_dispatch_stack", _WATCHED)
get_dispatch_modes = _part("torch.utils._python_dispatch._get_current_dispatch_mode_stack", _WATCHED)
are_functorch_transforms_active = _part("torch._C._are_functorch_transforms_active", _WATCHED)
is_tracing = _part("torch._C._is_tracing", without=torch.jit.is_tracing)
DeviceContext = _part("torch.utils._device.DeviceContext", without=())
FakeTensor = _part("torch._subclasses.fake_tensor.FakeTensor", without=torch.Tensor)


def carries_tangents() -> bool:
    """Whether gradients are carried forward."""
    try:
        return forward_ad._current_level >= 0
    except AttributeError:
        raise moved(["_current_level"], "torch.autograd.forward_ad", _WATCHED, "torch") from None


def is_exporting() -> bool:
    """Whether torch.export traces. To what torch.compile traces, torch 2.11's own function of this name says yes."""
    flag = getattr(torch.compiler, "_is_exporting_flag", None)
    return torch.compiler.is_exporting() if flag is None else flag


def holds(condition: Any) -> bool:
    """Whether a condition on traced sizes holds; False if it depends on data, as the number of rows of x[mask] does.

    Only for what torch.compile traces. (To import this at the top would take as long as all of helpers.)
    """
    try:
        from torch.fx.experimental.symbolic_shapes import guard_or_false
    except ImportError:
        compiles = "torch.compile cannot take this function"
        raise moved(["guard_or_false"], "torch.fx.experimental.symbolic_shapes", compiles, "torch") from None
    return guard_or_false(condition)


def has_default_device() -> bool:
    """Whether a default device has been set, be it the CPU; True if torch does not say."""
    return _part("torch.utils._device.CURRENT_DEVICE", without=...) is not None


# Modes of our own

_COUNTED = "operations cannot be counted"
TorchDispatchMode = _part("torch.utils._python_dispatch.TorchDispatchMode", _COUNTED)
DisableTorchDispatch = _part("torch._C._DisableTorchDispatch", _COUNTED)
disable_dynamo = _part("torch._disable_dynamo", without=torch.compiler.disable)
tree_leaves = _part("torch.utils._pytree.tree_leaves", "the tensors of an operation cannot be found")
COMPILER = "torch._dynamo"
FUNCTIONAL_COLLECTIVES = "torch.distributed._functional_collectives"


# Launches and gradients


def _empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=DEVICE.type)


# What torch's own compiled code makes its results with. It goes round the dispatcher, and saves 0.3 µs a call.
empty_strided = _part(f"torch._C._dynamo.guards._empty_strided_{DEVICE.type}", without=_empty_strided)
get_device = _part("torch._C._cuda_getDevice", without=torch.cuda.current_device)
get_current_raw_stream = _part(
    "torch._C._cuda_getCurrentRawStream", without=lambda device: torch.cuda.current_stream(device).cuda_stream
)
is_current_stream_capturing = _part(
    "torch._C._cuda_isCurrentStreamCapturing", without=torch.cuda.is_current_stream_capturing
)
# Without these, saved tensors are taken to be hooked, the graph to stay, and torch's attention to be the plain one.
top_saved_tensors_hooks = _part("torch._C._autograd._top_saved_tensors_default_hooks", without=lambda tracing: ())
keeps_graph = _part("torch._C._autograd._get_current_graph_task_keep_graph", without=lambda: True)
fused_sdp_choice = _part("torch._fused_sdp_choice", without=lambda *_, **__: torch.nn.attention.SDPBackend.MATH.value)


def applied(function: type[torch.autograd.Function]) -> Any:
    """function.apply without torch's questions about torch.func, which take 3 µs."""
    return getattr(super(torch.autograd.Function, function), "apply", function.apply)


# Ranks. Each is looked for when it is used: torch.distributed is imported by who needs it


def symmetric_memory() -> Any:
    """torch's memory that the GPUs of a group have in common, a prototype."""
    return _part("torch.distributed._symmetric_memory", without=())


def name_of_group(group: Any) -> str:
    """The name that torch.distributed has given a group."""
    named = "the ranks of a group cannot find each other"
    return _part("torch.distributed.distributed_c10d._get_process_group_name", named)(group)


def give_backend(group: Any, device: torch.device, kind: Any, backend: Any) -> None:
    """Has a backend of this kind move the numbers of a group that lie on the device."""
    moves = "no backend can move the numbers of ranks"
    _part("torch.distributed.ProcessGroup._register_backend", moves)(group, device, kind, backend)
    _part("torch.distributed.ProcessGroup._set_default_backend", moves)(group, kind)


def forget_backend(name: str) -> None:
    """Lets a process register a backend of this name again: older versions of torch take a name once."""
    with suppress(AttributeError):
        delattr(torch.distributed.Backend, name.upper())
    _part("torch.distributed.Backend._plugins", without={}).pop(name.upper(), None)
