"""Carries out on tensors what `transcript` has recorded: in a process that no learner's code has ever run in."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.check.problems.problem import overwrite, reserved
from helpers.instructor.sandbox import language

_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
_FORMATS = {str(f).removeprefix("torch."): f for f in (
    torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.strided,
)}  # fmt: skip
_TL = {str(value): value for value in vars(tl).values() if isinstance(value, tl.dtype)}
_REFUSED = ("from_file", "item", "resize", "set_", "record_stream")
_OF_THE_INSIDE = ("_softmax", "_log_softmax", "_to_copy", "_unsafe_view", "_reshape_alias", "_conj")
"""Operations with a leading underscore that ordinary ones are made of; others of that kind may check nothing."""


OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What a launch may ask for besides the kernel's own arguments."""


class AgainFailed(RuntimeError):
    """The driver returned when it was called first, and failed when it was called again."""


class BadPlan(ValueError):
    """A recording asks for something that no driver can ask for."""


def carry_out(plan: dict[str, Any], *given: torch.Tensor) -> Any:
    """What the recorded driver would return for the tensors that it takes."""
    return _carried_out(plan, dict(enumerate(given)))


class Recording:
    """What a recorded driver would return for the tensors that it takes; and, after its first call, once more."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self._first: dict[int, torch.Tensor] = {}

    def __call__(self, *given: torch.Tensor) -> Any:
        tensors = dict(enumerate(given))
        self._first = self._first or tensors
        return _carried_out(self.plan, tensors)

    def again(self, *given: torch.Tensor) -> Any:
        """What the second call would return. Raises AgainFailed where that call has failed."""
        second = self.plan.get("again")
        if not isinstance(second, dict) or "steps" not in second:
            raise AgainFailed(str((second or {}).get("raised", "it was not recorded")))
        return _carried_out(second, {**self._first, **dict(enumerate(given))})


def _carried_out(plan: dict[str, Any], tensors: dict[int, torch.Tensor]) -> Any:
    x = tensors[0]
    for step in plan["steps"]:
        if "constant" in step:
            tensors[int(step["out"])] = step["constant"].to(x.device)
        elif "kernel" in step:
            _launch(step, tensors)
        else:
            _operate(step, tensors)
    result = plan["result"]
    if isinstance(result, dict) and "other" in result:
        return type(str(result["other"])[:100], (), {"__module__": "builtins"})()
    return _argument(result, tensors)


def _operate(step: dict[str, Any], tensors: dict[int, torch.Tensor]) -> None:
    namespace, name, overload = step["op"]
    hidden = str(name).startswith("_") and name not in _OF_THE_INSIDE
    if namespace != "aten" or not str(name).isidentifier() or hidden or any(word in name for word in _REFUSED):
        raise BadPlan(f"the operation {namespace}::{name}, which no driver of a kernel needs")
    packet = getattr(torch.ops.aten, name)
    if (overload or "default") not in packet.overloads():
        raise BadPlan(f"the operation {namespace}::{name}.{overload}")
    result = getattr(packet, overload or "default")(
        *(_value(arg, tensors) for arg in step["args"]),
        **{str(key): _value(arg, tensors) for key, arg in step["kwargs"].items()},
    )
    outputs = result if isinstance(result, list | tuple) else [result]
    for number, output in zip(step["out"], outputs, strict=True):
        if isinstance(output, torch.Tensor):
            tensors[int(number)] = output


_kernels: dict[tuple[str, str], Any] = {}


def kernel_of(text: str, name: str) -> Any:
    """The kernel, read once in a process."""
    if (text, name) not in _kernels:
        _kernels[text, name] = language.load_checked(text, name)
    return _kernels[text, name]


def _launch(step: dict[str, Any], tensors: dict[int, torch.Tensor]) -> None:
    kernel = kernel_of(*step["kernel"])
    arguments = {str(name): _argument(value, tensors) for name, value in step["args"].items()}
    if not set(arguments) <= set(kernel.arg_names):
        raise BadPlan(f"{kernel.fn.__name__} is launched with an argument that it does not take")
    for parameter, value in arguments.items():
        whole = isinstance(value, torch.Tensor | TensorDescriptor)
        if _holds_tensor(value) and (_is_constexpr(kernel, parameter) or not whole):
            raise BadPlan(f"{kernel.fn.__name__} takes a tensor as the constant {parameter}, which no compiler takes")
    options = {name: int(step["options"][name]) for name in OPTIONS if step["options"].get(name) is not None}
    kernel[tuple(int(size) for size in step["grid"])](**arguments, **options)


def _argument(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    found = _value(value, tensors)
    return tuple(found) if isinstance(found, list) else found


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, TensorDescriptor):
        return True
    return isinstance(value, torch.Tensor) or (isinstance(value, list | tuple) and any(map(_holds_tensor, value)))


def _is_constexpr(kernel: Any, parameter: str) -> bool:
    annotation = kernel.fn.__annotations__.get(parameter)
    return annotation is tl.constexpr or "constexpr" in str(annotation)


def _value(value: Any, tensors: dict[int, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, data),) = value.items()
    if kind == "tensor":
        return tensors[int(data)]
    if kind == "list":
        return [_value(item, tensors) for item in data]
    if kind == "dtype":
        return _DTYPES[data]
    if kind == "device":
        return tensors[0].device
    if kind == "format":
        return _FORMATS[data]
    if kind == "tl":
        return _TL[data]
    if kind == "kernel":
        return kernel_of(*data)
    if kind == "descriptor":
        base, shape, strides, block_shape, padding = data
        sizes = ([int(size) for size in part] for part in (shape, strides, block_shape))
        return TensorDescriptor(_value(base, tensors), *sizes, str(padding))
    raise BadPlan(f"a value of kind {kind!r}")


def decoy_of(shape: list[int], strides: list[int], offset: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of this layout whose numbers mean nothing."""
    large = size > 1 << 20
    flat = reserved(size, dtype) if large else torch.empty(size, dtype=dtype)
    x = flat.as_strided(shape, strides, offset)
    return x if x.numel() > 1 << 20 else overwrite(x, torch.rand(shape))
