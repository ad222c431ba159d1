"""Compiles a kernel in the child process, and has the tools that Triton brings along read the compiled code.

Registers and spills are read from the compiled code's own record of them (cuobjdump), the other figures from its
disassembly (nvdisasm).
"""

from __future__ import annotations

import io
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import triton

from helpers.engine import compiled, frontend, kernel_text
from helpers.gpu.architectures import architecture
from helpers.xray import sass
from helpers.xray.request import CompileRequest, Function

Load = Callable[[str, str], Any]
"""Makes the kernel of a name from a text."""


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


class DoesNotFit(ValueError):
    """A kernel needs more shared memory than a program can have."""


def compiled_whole(request: CompileRequest, load: Load = kernel_text.load) -> Any:
    """Triton's CompiledKernel for a request, made by `load`. Raises the compiler's errors, and DoesNotFit."""
    stages = {} if request.num_stages is None else {"num_stages": request.num_stages}
    with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        made = compiled.compile_without_launch(
            load(request.text, request.name),
            dict(request.signature),
            {place: _with_functions(value, request.text, load) for place, value in request.constants},
            request.divisible,
            request.target,
            {"num_warps": request.num_warps, **stages, **dict(request.options)},
        )
    shared = made.metadata.shared
    room = architecture(request.target).program_shared_bytes
    if shared > room:
        raise DoesNotFit(
            f"{request.name} does not fit {request.target}: a program needs {shared:,} bytes of shared memory and can "
            f"have {room:,}. Use a smaller tile or fewer stages."
        )
    return made


def _with_functions(value: Any, text: str, load: Load) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_functions(item, text, load) for item in value)
    return load(text, value.name) if isinstance(value, Function) else value


def reason(error: BaseException) -> str:
    """What a compiler error says, and the kernel's line that it is about if that is known."""
    found = frontend.told(error)
    return f"{found.sentence} (in `{found.line}`)" if found.line else found.sentence


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
