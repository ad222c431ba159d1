"""What the lessons import: kernels, checks, traffic counts, timing and pictures.

Import this package before triton: it decides whether kernels are compiled for the GPU or interpreted on the CPU.
"""

from helpers.engine.runtime import DEVICE, ON_GPU, banner

if not ON_GPU:
    from helpers.engine import interpreter

    interpreter.guard()

__all__ = ["DEVICE", "ON_GPU", "banner"]
