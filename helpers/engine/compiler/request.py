"""What a launch asks of the compiler: the kernel's text, and the types, constants and alignments of its arguments."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import triton

from helpers.engine import compiled, interpreter, kernel_text
from helpers.engine.compiler.store import keep_in_memory
from helpers.engine.runtime import ON_GPU
from helpers.engine.shadowing import carried
from helpers.gpu.architectures import architecture

LAUNCH_OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl")
"""The options that a launch may give the compiler besides num_warps and num_stages."""


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
    options: tuple[tuple[str, Any], ...] = ()
    """Of LAUNCH_OPTIONS, those given."""

    @property
    def key(self) -> str:
        """Names what the compiler makes of it, by a hash of everything that this depends on."""
        constants = [(name, type(value).__name__, repr(value)) for name, value in self.constants]
        asked = replace(self, constants=tuple(constants))
        return hashlib.sha256(repr((_FORMAT, triton.__version__, compiled.assemblers(), asked)).encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """Its fields as values that any process can be sent."""
        constants = tuple((place, _written(value)) for place, value in self.constants)
        return {**asdict(self), "constants": constants}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> CompileRequest:
        """The request that `plain` was made of. Raises TypeError or ValueError for anything else."""
        constants = tuple((place, _read(value)) for place, value in plain["constants"])
        return cls(**{**plain, "constants": constants})


@dataclass(frozen=True)
class Function:
    """A constant that is a function of Triton's language: its name in the request's text."""

    name: str


_FORMAT = 2
_texts: dict[Any, str] = {}


def source_of(kernel: Any) -> str:
    """The kernel's text for another process, made again only if something that the kernel names has changed."""
    try:
        mark = _mark(kernel)
        if mark not in _texts:
            keep_in_memory(_texts, mark, kernel_text.source(kernel))
        return _texts[mark]
    except TypeError:  # a global without a hash; kernel_text.source has a sentence about it
        return kernel_text.source(kernel)


def _mark(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Something hashable that is equal for equal kernels: code, signature, and the values of the names used."""
    if type(value).__name__ == "constexpr":
        value = value.value
    function = getattr(value, "fn", None)
    if function in inside:
        return None
    if isinstance(function, types.FunctionType) and not (function.__module__ or "").startswith("triton."):
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        names = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        used = [name for name in (*code.co_names, *code.co_freevars) if name in names]
        marks = tuple((name, _mark(names[name], (*inside, function))) for name in used)
        return code, str(inspect.signature(function)), kernel_text.decorator(value), marks
    return (type(value), repr(value)) if isinstance(value, int | float) else value


class CannotAsk(TypeError):
    """A launch has something that Triton takes but that no request can hold."""


def request_of(
    kernel: Any, args: tuple, kwargs: dict[str, Any], target: str | None, num_warps: int, num_stages: int | None
) -> CompileRequest:
    """What a launch with these arguments asks of the compiler; LAUNCH_OPTIONS may be among the arguments.

    Raises TypeError or ValueError for a launch that cannot be, and CannotAsk if a request cannot hold the launch.
    """
    target = _present() if target is None else target
    architecture(target)
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}.")
    if num_stages is not None and (not isinstance(num_stages, int) or num_stages < 1):
        raise ValueError(f"num_stages must be a number from 1 on; it is {num_stages!r}.")
    options = {name: kwargs[name] for name in LAUNCH_OPTIONS if kwargs.get(name) is not None}
    kwargs = {name: value for name, value in kwargs.items() if name not in LAUNCH_OPTIONS}
    _refuse_other_arguments(kernel, args, kwargs)
    _refuse_options(options)
    parameters = inspect.signature(kernel.fn).parameters.values()
    values = interpreter.bind(kernel, args, kwargs)
    signature, constants, divisible = [], [], []
    functions = [function for value in values.values() for function in _functions_in(value)]
    for index, parameter in enumerate(parameters):
        value = values[parameter.name]
        try:
            kind, is_divisible = (
                ("constexpr", False) if _is_function(value) else compiled.argument_type(kernel, index, parameter, value)
            )
        except TypeError:
            if list(_functions_in(value)):
                raise CannotAsk(f"{kernel.fn.__name__}: {parameter.name} holds a function.") from None
            raise TypeError(
                f"{kernel.fn.__name__}: {parameter.name} is a {type(value).__name__}; a launch passes tensors, numbers "
                "and None, and anything else only to a parameter annotated tl.constexpr."
            ) from None
        signature.append((carried(parameter.name), kind))
        for path, leaf, is_multiple, own in _leaves((index,), kind, is_divisible, value):
            inner = len(path) > 1
            if leaf == "constexpr":
                constants.append((path if inner else carried(parameter.name), _constant(kernel, parameter.name, own)))
            elif is_multiple:
                divisible.append(path if inner else index)
    return CompileRequest(
        kernel_text.source(kernel, functions) if functions else source_of(kernel),
        kernel.fn.__name__,
        tuple(signature),
        tuple(constants),
        tuple(divisible),
        target,
        num_warps,
        num_stages,
        tuple(options.items()),
    )


def request_of_launch(kernel: Any, args: tuple, kwargs: dict[str, Any], target: str) -> CompileRequest:
    """What the launch `kernel[grid](*args, **kwargs)` asks. Raises as `request_of` does."""
    known = {name: value for name, value in kwargs.items() if name in (*kernel.arg_names, *LAUNCH_OPTIONS)}
    num_warps, num_stages = kwargs.get("num_warps"), kwargs.get("num_stages")
    return request_of(kernel, args, known, target, 4 if num_warps is None else num_warps, num_stages)


_Leaf = tuple[tuple[int, ...], str, bool, Any]


def _leaves(path: tuple[int, ...], kind: Any, divisible: Any, value: Any) -> Iterator[_Leaf]:
    """Path, type, divisibility and value of an argument, or of each part of one that is a tuple."""
    if not isinstance(kind, tuple):
        yield path, kind, divisible, value
        return
    for index, (part, is_multiple, own) in enumerate(zip(kind, divisible, value, strict=True)):
        yield from _leaves((*path, index), part, is_multiple, own)


def _refuse_options(options: Mapping[str, Any]) -> None:
    for name, least in (("num_ctas", 1), ("maxnreg", 1)):
        value = options.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a number from {least} on; it is {value!r}.")


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
        given = parameters.bind(*args, **kwargs).arguments
    except TypeError as error:
        names = ", ".join(parameters.parameters)
        raise TypeError(f"{kernel.fn.__name__}: {error}; its parameters are {names}.") from None
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and value.dtype.is_complex:
            raise TypeError(f"{kernel.fn.__name__}: {name} is a tensor of {value.dtype}, which Triton does not have.")


def _constant(kernel: Any, name: str, value: Any) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, tuple):
        return tuple(_constant(kernel, name, item) for item in value)
    if _is_function(value):
        return Function(value.fn.__name__)
    if not isinstance(value, int | float | str | None | triton.language.dtype):
        raise CannotAsk(
            f"{kernel.fn.__name__}: {name} is a {type(value).__name__}; xray takes numbers, strings, None, functions "
            "with @triton.jit and dtypes of triton.language for a parameter annotated tl.constexpr."
        )
    return value


def _is_function(value: Any) -> bool:
    """True for a function of Triton's language."""
    return isinstance(getattr(value, "fn", None), types.FunctionType)


def _functions_in(value: Any) -> Iterator[Any]:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if isinstance(value, tuple | list):
        for item in value:
            yield from _functions_in(item)
    elif _is_function(value):
        yield value


def _written(value: Any) -> Any:
    """A constant as a plain value: a dtype and a function by their names."""
    if isinstance(value, tuple):
        return tuple(map(_written, value))
    if isinstance(value, Function):
        return {"function": value.name}
    return {"dtype": value.name} if isinstance(value, triton.language.dtype) else value


def _read(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(map(_read, value))
    if isinstance(value, dict) and "function" in value:
        return Function(str(value["function"]))
    return _dtype(value["dtype"]) if isinstance(value, dict) else value


def _dtype(name: Any) -> triton.language.dtype:
    known = {value.name: value for value in vars(triton.language).values() if isinstance(value, triton.language.dtype)}
    if name not in known:
        raise ValueError(f"{name!r} is not a dtype of triton.language")
    return known[name]
