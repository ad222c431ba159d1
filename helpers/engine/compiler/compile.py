"""Compiles what a launch asks for, for a GPU that need not be there."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from helpers.engine import compiled, frontend, kernel_text
from helpers.engine.compiler.request import CompileRequest, Function
from helpers.gpu.architectures import architecture

Load = Callable[[str, str], Any]
"""Makes the kernel of a name from a text."""


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
