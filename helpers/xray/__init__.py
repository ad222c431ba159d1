"""Compiles a kernel for an NVIDIA GPU, present or not, and reports what the compiler made of it.

A launch becomes a question (question.py). Its answer is in memory, on disk (kept.py), or made by a child process
(compile.py), which reads it from the compiled code (sass.py). The answer is a Report (figures.py). `report`, `submit`
and `cached` are in ask.py. `python -m helpers.xray` reports every kernel of helpers/kernels.py (references.py).
"""

from helpers.gpu import occupancy
from helpers.gpu.occupancy import Occupancy
from helpers.xray.ask import cached, report, submit
from helpers.xray.figures import Report

__all__ = ["TARGETS", "Occupancy", "Report", "cached", "report", "submit"]

TARGETS = tuple(occupancy.ARCHITECTURES)
"""The GPUs that Triton and the assembler it brings along can compile for."""
