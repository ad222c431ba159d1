"""Sends a function, with the kernels and values that it uses, to another process that may run kernels another way.

cloudpickle does it for Python; here it learns of Triton's kernels, which are decorated anew where they arrive, and of
tensors and devices, which become those of the receiving process.
"""

from __future__ import annotations

import io
import linecache
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch

from helpers.engine.runtime import DEVICE


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return (_device, ()) if value.type == "cuda" else NotImplemented
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return _on_device, (value.cpu(),)
        if hasattr(value, "fn") and hasattr(value, "arg_names") and hasattr(value, "run"):
            module = sys.modules.get(value.fn.__module__)
            if (
                module is not None
                and getattr(module, value.fn.__name__, None) is value
                and module.__name__ != "__main__"
            ):
                return getattr, (module, value.fn.__name__)
            filename = value.fn.__code__.co_filename
            return _kernel, (value.fn, filename, linecache.getlines(filename))
        return super().reducer_override(value)


def dumps(value: Any) -> bytes:
    """Returns `value` as bytes for `loads`. Raises TypeError where a part of it exists in this process only."""
    content = io.BytesIO()
    try:
        _Pickler(content).dump(value)
    except Exception as error:
        raise TypeError(f"this function cannot be sent to another process: {error}") from error
    return content.getvalue()


def loads(content: bytes) -> Any:
    """Returns what `dumps` was given: its kernels are compiled, or interpreted, as this process does."""
    return cloudpickle.loads(content)


def _device() -> torch.device:
    return DEVICE


def _on_device(value: torch.Tensor) -> torch.Tensor:
    return value.to(DEVICE)


def _kernel(fn: Callable, filename: str, lines: list[str]) -> Any:
    import triton

    linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    return triton.jit(fn)
