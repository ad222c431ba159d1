"""Compiles a kernel in the child process, and has the tools that Triton brings along read the compiled code.

Registers and spills are read from the compiled code's own record of them (cuobjdump), the other figures from its
disassembly (nvdisasm).
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton

from helpers.engine import isolate, kernel_text
from helpers.engine.compiler.compile import DoesNotFit, Load, compiled_whole, reason
from helpers.engine.compiler.refusal import compilers_fault
from helpers.engine.compiler.request import CompileRequest
from helpers.engine.compiler.verdict import COMPILER_LIMITS, OF_A_PROCESSOR, told_by, without_answer
from helpers.engine.isolate import OF_PROCESSOR_TIME, End
from helpers.xray import sass


def figures_of(request: CompileRequest, limits: isolate.Limits = COMPILER_LIMITS) -> dict[str, Any]:
    """As compile_kernel, in a forked child and within limits.

    Raises ValueError, with the reason, also for a kernel that takes longer than that, or with which the compiler fails;
    RuntimeError if this machine has failed.
    """
    (outcome,) = isolate.call_each(_tried, [request], limits)
    told = outcome.value if outcome.end is End.RETURNED else told_by(request.plain(), outcome)
    fault = "refused" in told and compilers_fault(request.text, outcome.printed)
    if outcome.said.endswith(OF_PROCESSOR_TIME) or told.get("unknown", "").endswith(OF_A_PROCESSOR):
        sizes = ", ".join(f"{name}={value:,}" for name, value in request.constants if type(value) is int and value > 1)
        raise ValueError(
            f"the compiler did not finish {request.name} with {sizes} in {limits.cpu_s} s of a processor: report a "
            "smaller tile."
        )
    if "refused" in told:
        raise ValueError(f"{request.name} for {request.target}: {fault}." if fault else told["refused"])
    if "figures" not in told:
        raise RuntimeError(told.get("busy") or told.get("unknown"))
    return told["figures"]


def _tried(request: CompileRequest) -> dict[str, Any]:
    try:
        return {"figures": compile_kernel(request)}
    except ValueError as error:
        return without_answer(error.__context__) or {"refused": str(error)}


def compile_kernel(request: CompileRequest, load: Load = kernel_text.load) -> dict[str, Any]:
    """The figures of a report. `load` makes the kernel from the request's text.

    Raises ValueError, with a line of the compiler's message, for a kernel that the compiler refuses.
    """
    try:
        made = compiled_whole(request, load)
    except DoesNotFit:
        raise
    except Exception as error:
        raise ValueError(f"{request.name} does not compile for {request.target}: {reason(error)}") from None
    figures = _figures(made.asm["cubin"], made.metadata.name, made.asm["ttir"], request.num_warps)
    return {"shared_bytes": made.metadata.shared, **figures}


def _figures(cubin: bytes, name: str, ttir: str, num_warps: int) -> dict[str, Any]:
    """The fields of a KernelReport that are read from the compiled code and, for the tiles, from Triton's IR."""
    figures: dict[str, Any] = dict.fromkeys(
        ("registers", "spill_bytes", "loads", "stores", "barriers", "instructions_per_element")
    )
    missing = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        try:
            figures.update(sass.used(_output("cuobjdump", "-res-usage", str(file))))
        except sass.Unknown as reason:
            missing.append(str(reason))
        try:
            opcodes, loops = sass.instructions(_output("nvdisasm", "-c", "-ndf", str(file)), name)
            figures.update(sass.counts(opcodes))
            figures["instructions_per_element"] = sass.per_element(opcodes, loops, *sass.tiles(ttir), num_warps)
        except sass.Unknown as reason:
            missing.append(str(reason))
    return {**figures, "missing": " ".join(missing)}


def _output(tool: str, *arguments: str) -> str:
    try:
        path = getattr(triton.knobs.nvidia, tool).path
        done = subprocess.run([path, *arguments], capture_output=True, text=True)
    except (RuntimeError, OSError):
        raise sass.Unknown(f"{tool}, which Triton should bring along, is missing or does not start.") from None
    if done.returncode:
        said = done.stderr.strip().partition(":")[2].strip() or f"it ended with {done.returncode}"
        raise sass.Unknown(f"{tool} cannot read the compiled code: {said.splitlines()[0]}.")
    return done.stdout
