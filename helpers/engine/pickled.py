"""Sends a function, with the kernels and values that it uses, to another process, which may run kernels in another way.

cloudpickle does this for Python. This module adds Triton's functions, which are decorated again on arrival, and tensors
and devices, which become the receiving process's own.
"""

from __future__ import annotations

import ast
import inspect
import io
import linecache
import pickle
import sys
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import torch
import triton

from helpers.engine.compiled import ConstexprFunction
from helpers.engine.runtime import DEVICE

_ON_THE_WAY = "<on the way>"
"""The file of code that travels. cloudpickle 3.1.3 sends all code without the name of its file, by which its text is
found."""


class CannotBeSent(TypeError):
    """A part of a function exists in one process only."""


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.texts: dict[str, list[str]] = {}
        """By file name: the lines of the functions that travel, which for a notebook's cells are in no file."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.device):
            return (_device, ()) if value.type == "cuda" else NotImplemented
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return _on_device, (value.cpu(),)
        if _is_decorated(value):
            fn = value.fn
            module = sys.modules.get(fn.__module__)
            if module is not None and getattr(module, fn.__name__, None) is value and module.__name__ != "__main__":
                return getattr, (module, fn.__name__)
            decorator = triton.constexpr_function if isinstance(value, ConstexprFunction) else triton.jit
            return _decorated, (decorator, fn, _of_its_signature(fn))
        if isinstance(value, ModuleType) and value.__name__ not in sys.modules:
            parent, _, name = value.__name__.rpartition(".")
            if getattr(sys.modules.get(parent), name, None) is value:  # such as torch._C._functions
                return getattr, (sys.modules[parent], name)
        if isinstance(value, CodeType) and value.co_filename != _ON_THE_WAY:
            return _of_file, (value.replace(co_filename=_ON_THE_WAY), value.co_filename)
        if isinstance(value, FunctionType):
            filename = value.__code__.co_filename
            self.texts[filename] = linecache.getlines(filename)
        return super().reducer_override(value)


def dumps(value: Any) -> bytes:
    """Returns `value` as bytes for `loads`. Raises CannotBeSent if a part of it exists only in this process."""
    content = io.BytesIO()
    pickler = _Pickler(content)
    try:
        pickler.dump(value)
    except Exception as error:
        raise CannotBeSent(f"this function cannot be sent to another process: {error}") from error
    return pickle.dumps((pickler.texts, content.getvalue()))


def loads(content: bytes) -> Any:
    """Returns what `dumps` was given: its kernels are compiled, or interpreted, as this process does.

    Raises CannotBeSent if a part of it cannot be made again here.
    """
    texts, value = pickle.loads(content)
    for filename, lines in texts.items():
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
    try:
        return cloudpickle.loads(value)
    except Exception as error:
        raise CannotBeSent(f"this function cannot be sent to another process: {error}") from error


def _of_file(code: CodeType, filename: str) -> CodeType:
    return code.replace(co_filename=filename)


def _device() -> torch.device:
    return DEVICE


def _on_device(value: torch.Tensor) -> torch.Tensor:
    return value.to(DEVICE)


def _is_decorated(value: Any) -> bool:
    """True if the value is a kernel, but not an autotuner of one, or a function that the compiler computes."""
    if isinstance(value, ConstexprFunction):
        return True
    return (
        isinstance(getattr(value, "fn", None), FunctionType) and hasattr(value, "arg_names") and hasattr(value, "run")
    )


def _of_its_signature(fn: FunctionType) -> dict[str, Any]:
    """The globals that the text of a kernel names in its signature alone, such as a constexpr imported by its name.

    cloudpickle sends the ones that the code uses; but the text is read again where the kernel is interpreted.
    """
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    names = {node.id for node in ast.walk(function.args) if isinstance(node, ast.Name)}
    return {name: fn.__globals__[name] for name in names & set(fn.__globals__)}


def _decorated(decorator: Callable, fn: FunctionType, names: dict[str, Any]) -> Any:
    for name, value in names.items():
        fn.__globals__.setdefault(name, value)
    return decorator(fn)
