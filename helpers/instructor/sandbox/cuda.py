"""A GPU that is not there, for a notebook that was written with one: tensors say that they lie there.

Only what a learner's own process sees is pretended. Kernels run where they always do, in the interpreter.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

NAME = "_cuda_that_is_pretended"
"""The name under which the cells of a notebook find what stands in for torch.cuda."""
_GPU, _CPU = torch.device("cuda", 0), torch.device("cpu")
_TAKES_DEVICE = (torch.Tensor.to,)
"""Functions that take a device by its place among their arguments."""


class PretendedGpu(TorchFunctionMode):
    """Within it tensors say that they lie on a GPU, and a tensor made on a GPU, or moved to it, is made here."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == torch.Tensor.is_cuda.__get__:
            return True
        if func == torch.Tensor.device.__get__:
            return _GPU
        if func == torch.Tensor.get_device:
            return _GPU.index
        if func == torch.Tensor.cuda:
            func, args, kwargs = torch.Tensor.to, (args[0], _CPU), {}
        if "device" in kwargs:
            kwargs["device"] = _here(kwargs["device"])
        if func in _TAKES_DEVICE:
            args = tuple(map(_here, args))
        return func(*args, **kwargs)


def _here(value: Any) -> Any:
    """The processor in place of a GPU, given as a device or by its name or number; anything else as it is."""
    is_named = isinstance(value, str) and value.partition(":")[0] == "cuda"
    is_device = isinstance(value, torch.device) and value.type == "cuda"
    return _CPU if is_named or is_device or type(value) is int else value


class _Event:
    """A mark in the work of a GPU, between any two of which a millisecond has passed."""

    def __init__(self, **options: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: _Event) -> float:
        return 1.0


class _Cuda:
    """What notebooks ask of torch.cuda; the rest is torch.cuda's own."""

    Event = _Event

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cuda, name)

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return _GPU.index

    def synchronize(self, device: Any = None) -> None: ...

    def set_default_device(self, device: Any) -> None:
        """Set, and the processor's."""
        torch.set_default_device(None if device is None else _CPU)

    def empty_cache(self) -> None: ...

    def device(self, device: Any) -> Any:
        return nullcontext()

    def get_device_name(self, device: Any = None) -> str:
        return "NVIDIA H100 80GB HBM3"

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return 9, 0

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        major, minor = self.get_device_capability()
        return SimpleNamespace(
            name=self.get_device_name(),
            major=major,
            minor=minor,
            multi_processor_count=132,
            warp_size=32,
        )


CUDA = _Cuda()


class CudaRenamed(ast.NodeTransformer):
    """Has a cell ask CUDA, under NAME, where it says torch.cuda, and where it sets the device of all that it makes."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """See NodeTransformer."""
        renamed = ast.copy_location(ast.Name(NAME, ast.Load()), node)
        if ast.unparse(node) == "torch.cuda":
            return renamed
        if ast.unparse(node) == "torch.set_default_device":
            return ast.copy_location(ast.Attribute(renamed, node.attr, ast.Load()), node)
        return self.generic_visit(node)


def beside_gpu(fn: Callable) -> Callable:
    """`fn`, called within a PretendedGpu."""
    called = partial(_beside_gpu, fn)
    try:
        called.__signature__ = inspect.signature(fn)
    except (TypeError, ValueError):  # of a callable that does not tell its parameters
        pass
    return called


def _beside_gpu(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    with PretendedGpu():
        return fn(*args, **kwargs)
