"""Compiles a kernel for an NVIDIA GPU, present or not, and reports what the compiler made of it.

A launch becomes a CompileRequest (engine/compiler/request.py). Its answer is a KernelReport (figures.py). The report
comes from memory, from disk or from a compiler, usually in a child process (compile.py), which reads the figures from
the compiled code (sass.py). `report`, `submit`, `cached` and `compiled_by` are in ask.py. `python -m helpers.xray`
reports every kernel of helpers/kernels.py (references.py).
"""

from helpers.engine.compiled import binaries
from helpers.engine.compiler.request import CompileRequest
from helpers.gpu.architectures import ARCHITECTURES
from helpers.gpu.occupancy import Occupancy
from helpers.xray.ask import Compiler, answer, cached, compiled_by, report, submit
from helpers.xray.figures import KernelReport

__all__ = [
    "TARGETS", "CompileRequest", "Compiler", "Occupancy", "KernelReport", "answer", "binaries", "cached", "compiled_by",
    "report", "submit",
]  # fmt: skip

TARGETS = tuple(ARCHITECTURES)
"""The architectures whose registers, warps and shared memory the course knows; Triton compiles for some others too."""
