"""What a launch asks of the compiler: the kernel's text, and the types, constants and alignments of its arguments."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import Any

import torch
import triton

from helpers.engine import compiled, interpreter
from helpers.engine.runtime import ON_GPU
from helpers.gpu import occupancy
from helpers.xray.kept import source_of


@dataclass(frozen=True)
class CompileRequest:
    """A kernel, with everything it names, as text, and all that a launch would tell the compiler about its arguments.

    Plain data that can be sent to another process; whatever is kept of the answer is kept under it.
    """

    text: str
    name: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    divisible: tuple[int, ...]
    target: str
    num_warps: int
    num_stages: int | None


def request_of(
    kernel: Any, args: tuple, kwargs: dict[str, Any], target: str | None, num_warps: int, num_stages: int | None
) -> CompileRequest:
    """What a launch with these arguments asks. Raises TypeError or ValueError for one that cannot be."""
    target = _present() if target is None else target
    occupancy.architecture(target)
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}.")
    if num_stages is not None and (not isinstance(num_stages, int) or num_stages < 1):
        raise ValueError(f"num_stages must be a number from 1 on; it is {num_stages!r}.")
    _refuse_other_arguments(kernel, args, kwargs)
    parameters = inspect.signature(kernel.fn).parameters.values()
    values = interpreter.bind(kernel, args, kwargs)
    signature, constants, divisible = [], [], []
    for index, parameter in enumerate(parameters):
        value = values[parameter.name]
        try:
            kind, is_divisible = compiled.argument_type(kernel, index, parameter, value)
        except TypeError:
            raise TypeError(
                f"{kernel.fn.__name__}: {parameter.name} is a {type(value).__name__}; a launch passes tensors, numbers "
                "and None, and anything else only to a parameter annotated tl.constexpr."
            ) from None
        signature.append((parameter.name, kind))
        if kind == "constexpr":
            constants.append((parameter.name, _constant(kernel, parameter.name, value)))
        elif is_divisible:
            divisible.append(index)
    return CompileRequest(
        source_of(kernel),
        kernel.fn.__name__,
        tuple(signature),
        tuple(constants),
        tuple(divisible),
        target,
        num_warps,
        num_stages,
    )


def _present() -> str:
    return "sm_{}{}".format(*torch.cuda.get_device_capability()) if ON_GPU else "sm_90"


def _refuse_other_arguments(kernel: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    if not isinstance(getattr(kernel, "fn", None), types.FunctionType):
        raise TypeError(
            f"xray takes the kernel itself, made with @triton.jit, and not the function that launches it or "
            f"kernel[grid]; got a {type(kernel).__name__}. Of an autotuned kernel it takes the .fn."
        )
    parameters = inspect.signature(kernel.fn)
    try:
        parameters.bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(parameters.parameters)
        raise TypeError(f"{kernel.fn.__name__}: {error}; its parameters are {names}.") from None


def _constant(kernel: Any, name: str, value: Any) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if not isinstance(value, int | float | str | None | triton.language.dtype):
        raise TypeError(
            f"{kernel.fn.__name__}: {name} is a {type(value).__name__}; xray takes numbers, strings, None and dtypes "
            "of triton.language for a parameter annotated tl.constexpr."
        )
    return value
