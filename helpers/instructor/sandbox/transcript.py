"""Records what a driver asks of the GPU, without carrying it out: which tensors it makes, which kernels it launches.

The driver is given numbers that mean nothing. What it asks for is carried out elsewhere (`replay`), on the numbers that
count, which the driver never sees: the result can only come from the kernels, and their traffic is counted there.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.check.problems.problem import MANY, Problem
from helpers.check.trial import call, withheld
from helpers.check.trial.trial import failed, other_than_tensor, sentence
from helpers.engine import interpreter, kernel_text
from helpers.engine.memory import Enough
from helpers.engine.modes import Mode
from helpers.engine.shadowing import carried
from helpers.instructor.sandbox import language, replay

MOST_STEPS = 10_000
_STEPS_OF_MANY_ROWS = 1_000
"""Enough of them for the trial of a driver that launches a kernel for each row."""
_LARGEST_CONSTANT = 1 << 20


def transcript(fn: Callable[..., Any], problem: Problem) -> dict[str, Any]:
    """What `fn` asks for, given the inputs of a problem, step by step: {"steps": …, "result": …}; or how it failed, as
    the fields of a Trial.

    The driver gets the options that it takes. If x is small, `fn` is called "again", with other numbers.
    """
    recorder, called = _Recorder(*problem.inputs), call.with_options(fn, problem.options)
    try:
        plan = recorder.record(called)
    except Enough:
        return {"steps": recorder.steps, "result": None}
    except BaseException as error:
        return failed(error, fn).plain()
    if problem.x.numel() <= call.TWICE:
        problem.turn()
        try:
            with redirect_stdout(io.StringIO()):  # what it prints is known from the first call
                plan["again"] = recorder.record(called)
        except BaseException as error:
            plan["again"] = {"raised": sentence(error)}
    return plan


class _Recorder(Mode):
    """Receives eager operations by itself, and kernels through `launch`; tensors are known by their numbers, the ones
    that a driver is given by the first."""

    def __init__(self, *given: torch.Tensor) -> None:
        super().__init__()
        self.given = given
        self.steps: list[dict[str, Any]] = []
        self.known = {id(tensor): (number, tensor) for number, tensor in enumerate(given)}
        self.count = len(given)

    def record(self, fn: Callable[..., Any]) -> dict[str, Any]:
        """The recording of one call of fn. Raises whatever fn raises, and WrongDevice (withheld.py)."""
        self.steps, devices = [], withheld.Devices(fn)
        with self, interpreter.instead(partial(self.launch, devices)), devices:
            y = fn(*self.given)
        devices.require(y)
        parts = y if isinstance(y, tuple | list) else (y,)
        is_plain = all(part is None or not other_than_tensor(part) for part in parts)
        return {"steps": self.steps, "result": self.value(y) if is_plain else {"other": type(y).__name__}}

    def add(self, step: dict[str, Any]) -> None:
        self.steps.append(step)
        if len(self.steps) > _STEPS_OF_MANY_ROWS and len(self.given[0]) > MANY:
            raise Enough
        if len(self.steps) > MOST_STEPS:
            raise RuntimeError(f"more than {MOST_STEPS:,} operations")

    def number(self, tensor: torch.Tensor) -> int:
        """Gives a tensor its number and keeps it, so that no other can take its place."""
        if id(tensor) not in self.known:
            self.known[id(tensor)] = self.count, tensor
            self.count += 1
        return self.known[id(tensor)][0]

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Parameter):
            value = self._wrapped_by(value)
        if isinstance(value, torch.Tensor):
            if id(value) not in self.known:
                if value.numel() > _LARGEST_CONSTANT:
                    raise ValueError(f"a tensor of {value.numel():,} elements that comes from elsewhere")
                self.add({"constant": value.detach(), "out": self.number(value)})
            return {"tensor": self.number(value)}
        if isinstance(value, list | tuple):
            return {"list": [self.value(item) for item in value]}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            if value.type not in ("cpu", "cuda"):
                raise withheld.WrongDevice(f"no kernel reaches a tensor on {value}")
            return {"device": "cpu"}
        if isinstance(value, torch.memory_format | torch.layout):
            return {"format": str(value).removeprefix("torch.")}
        if isinstance(value, tl.dtype):
            return {"tl": str(value)}
        if isinstance(value, tl.constexpr):
            return self.value(value.value)
        if isinstance(value, bool | int | float | str | None):
            return value
        if isinstance(value, TensorDescriptor):
            sizes = [list(map(int, part)) for part in (value.shape, value.strides, value.block_shape)]
            return {"descriptor": [self.value(value.base), *sizes, str(value.padding)]}
        if hasattr(value, "fn") and hasattr(value, "arg_names"):
            if str(value.fn.__module__).startswith("triton."):
                raise TypeError(f"an argument is Triton's own {value.fn.__name__}; call it in the kernel")
            return {"kernel": [kernel_text.source(value), value.fn.__name__]}
        raise TypeError(f"an argument is a {type(value).__name__}")

    def _wrapped_by(self, parameter: torch.nn.Parameter) -> torch.Tensor:
        """The tensor that was made a parameter, if it is known: torch makes one without an operation."""

        def place(tensor: torch.Tensor) -> tuple:
            return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype

        return next((one for _, one in self.known.values() if place(one) == place(parameter)), parameter)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        large = call.reserved_for(func, args, kwargs)
        result = func(*args, **kwargs) if large is None else large
        outputs = result if isinstance(result, list | tuple) else [result]
        if any(isinstance(output, torch.Tensor) for output in outputs):
            given = [self.value(arg) for arg in args]
            options = {name: self.value(arg) for name, arg in kwargs.items() if arg is not None}
            out = [self.number(y) if isinstance(y, torch.Tensor) else -1 for y in outputs]
            namespace, name = func._schema.name.split("::")
            step = {"op": [namespace, name, func._overloadname], "args": given, "kwargs": options, "out": out}
            self.add(step)
        return result

    def launch(self, devices: withheld.Devices, kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        devices.look(kernel, args, grid, kwargs)
        interpreter.require_compilable(kernel, args, kwargs)
        arguments = interpreter.bind(kernel, args, kwargs)
        resolved = interpreter.resolve_grid(grid, arguments)
        text = kernel_text.source(kernel)
        language.require(text)
        self.add(
            {
                "kernel": [text, kernel.fn.__name__],
                "grid": list(resolved),
                "args": {carried(name): self.value(value) for name, value in arguments.items()},
                "options": {name: kwargs.get(name) for name in replay.OPTIONS if name not in arguments},
            }
        )
