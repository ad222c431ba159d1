"""Compiles a kernel for an NVIDIA GPU, present or not, and reads what the compiler made of it."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

import torch

from helpers import child, interpreter, portable


@dataclass(frozen=True)
class Resources:
    """What one program of a compiled kernel occupies. `spill_bytes` is the memory each thread spills to."""

    target: str
    num_warps: int
    registers: int
    spill_bytes: int
    shared_bytes: int


def resources(kernel: Any, *args: Any, target: str = "sm_90", num_warps: int = 4, **kwargs: Any) -> Resources:
    """Compiles `kernel` as a launch with these arguments would, for `target`, and returns what it occupies.

    Tensors give dtype and alignment only; nothing runs and no GPU is needed. Raises ValueError for a target that is not
    written like "sm_90" and for a kernel whose source cannot be found.
    """
    if not re.fullmatch(r"sm_\d{2,3}", target):
        raise ValueError(f"target must look like 'sm_90'; it is {target!r}.")
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
) -> Any:
    compiled = child.call(_compile, text, name, signature, constants, attributes, target, warps, interpret=False)
    return Resources(target, warps, *compiled)


def _compile(
    text: str, name: str, signature: tuple, constants: tuple, attributes: tuple, target: str, num_warps: int
) -> tuple[int, int, int]:
    """Runs in the child: returns registers a thread, bytes a thread on the stack, and bytes of shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = portable.load(text, name)
    divisible = {index: [["tt.divisibility", 16]] for index, _ in attributes}
    source = ASTSource(kernel, dict(signature), constexprs=dict(constants), attrs=divisible)
    compiled = triton.compile(source, target=GPUTarget("cuda", int(target[3:]), 32), options={"num_warps": num_warps})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(compiled.asm["cubin"])
        cubin.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        report = subprocess.run([tool, "-res-usage", cubin.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.search(rf"{what}:(\d+)", report).group(1)) for what in ("REG", "STACK"))
    return registers, stack, compiled.metadata.shared
