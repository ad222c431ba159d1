"""Compiles a kernel for an NVIDIA GPU, present or not, and reads what the compiler made of it."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

import torch

from helpers import child, interpreter, portable

TARGETS = "sm_75 sm_80 sm_86 sm_87 sm_89 sm_90 sm_100 sm_103 sm_120 sm_121".split()
"""The GPUs that Triton and the assembler it brings along can compile for."""


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel occupies.

    `spill_bytes` is the stack frame of each thread, which holds its spilled registers and is 0 where there are none.
    A place in it can serve several of them in turn, so that the spill stores that ptxas counts may be more bytes.
    """

    target: str
    num_warps: int
    registers: int
    spill_bytes: int
    shared_bytes: int


def resources(kernel: Any, *args: Any, target: str = "sm_90", num_warps: int = 4, **kwargs: Any) -> Resources:
    """Compiles `kernel` as a launch with these arguments would, for `target`, and returns what it occupies.

    Tensors give dtype and alignment only; nothing runs and no GPU is needed. Raises TypeError for arguments that the
    kernel does not take or lacks; ValueError for a target not among TARGETS, for a num_warps that no launch can have,
    for a kernel whose source cannot be found, and, with Triton's reason, for one that does not compile.
    """
    if target not in TARGETS:
        raise ValueError(f"target must be one of {', '.join(TARGETS)}; it is {target!r}.")
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueError(f"num_warps must be 1, 2, 4, 8, 16 or 32; it is {num_warps!r}.")
    _refuse_other_arguments(kernel, args, kwargs)
    arguments = interpreter.bind(kernel, args, kwargs)
    signature, constants, attributes = {}, {}, {}
    for index, (name, value) in enumerate(arguments.items()):
        signature[name], divisible = _type_of(kernel, name, value)
        if signature[name] == "constexpr":
            constants[name] = value
        elif divisible:
            attributes[(index,)] = [["tt.divisibility", 16]]
    key = (portable.source(kernel), kernel.fn.__name__, tuple(signature.items()), tuple(constants.items()))
    return _cached(*key, tuple((k, str(v)) for k, v in attributes.items()), target, num_warps)


def _refuse_other_arguments(kernel: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    if not hasattr(kernel, "fn"):
        raise TypeError(f"xray.resources takes a kernel, made with @triton.jit; got a {type(kernel).__name__}.")
    parameters = inspect.signature(kernel.fn)
    try:
        parameters.bind(*args, **kwargs)
    except TypeError as error:
        names = ", ".join(parameters.parameters)
        raise TypeError(f"{kernel.fn.__name__}: {error}; its parameters are {names}.") from None


def _type_of(kernel: Any, name: str, value: Any) -> tuple[str, bool]:
    """Triton's name for an argument's type, and whether it is known to be a multiple of 16."""
    annotation = str(kernel.fn.__annotations__.get(name, ""))
    if "constexpr" in annotation or value is None or isinstance(value, bool):
        return "constexpr", False
    if isinstance(value, torch.Tensor):
        names = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16", torch.float64: "fp64"}
        return "*" + names.get(value.dtype, "i" + str(value.element_size() * 8)), value.data_ptr() % 16 == 0
    if isinstance(value, int) and value == 1:
        return "constexpr", False
    if isinstance(value, int):
        return ("i32" if -(2**31) <= value < 2**31 else "i64"), value % 16 == 0
    return "fp32", False


@functools.lru_cache(maxsize=256)
def _cached(
    text: str, name: str, signature: tuple, constants: tuple, attributes: tuple, target: str, warps: int
) -> Resources:
    try:
        compiled = child.call(_compile, text, name, signature, constants, attributes, target, warps, interpret=False)
    except ValueError as error:
        raise ValueError(str(error)) from None
    return Resources(target, warps, *compiled)


def _compile(
    text: str, name: str, signature: tuple, constants: tuple, attributes: tuple, target: str, num_warps: int
) -> tuple[int, int, int]:
    """Runs in the child: returns registers a thread, bytes a thread on the stack, and bytes of shared memory.

    Raises ValueError with one line of Triton's message where the kernel does not compile.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.errors import TritonError

    kernel = portable.load(text, name)
    divisible = {index: [["tt.divisibility", 16]] for index, _ in attributes}
    source = ASTSource(kernel, dict(signature), constexprs=dict(constants), attrs=divisible)
    gpu = GPUTarget("cuda", int(target[3:]), 32)
    try:
        compiled = triton.compile(source, target=gpu, options={"num_warps": num_warps})
    except (TritonError, RuntimeError) as error:
        raise ValueError(f"{name} does not compile for {target}: {_reason(error)}") from None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        report = subprocess.run([tool, "-res-usage", cubin.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.search(rf"{what}:(\d+)", report).group(1)) for what in ("REG", "STACK"))
    return registers, stack, compiled.metadata.shared


def _reason(error: BaseException) -> str:
    """The line of a compiler error that says why, and the kernel's line that it is about where that is known.

    Triton raises one error for each call it is inside of; the innermost is the cause.
    """
    where = ""
    while True:
        if getattr(error, "src", None) and hasattr(error.node, "lineno"):
            where = f" (in `{error.src.splitlines()[error.node.lineno - 1].strip()}`)"
        if error.__cause__ is None:
            break
        error = error.__cause__
    text = getattr(error, "error_message", None) or str(error) or type(error).__name__
    line = text.strip().splitlines()[0]
    quoted = re.fullmatch(r"\w+\((['\"])(.*)\1\)", line)
    return (quoted.group(2) if quoted else line) + where
