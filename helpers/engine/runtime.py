"""Decides where kernels run: on a CUDA GPU, or in Triton's interpreter where there is none.

Triton reads TRITON_INTERPRET when `@triton.jit` decorates a function, its own library included, so the choice has to be
made before triton is imported anywhere in the process.
"""

import os
import platform
import sys
from collections.abc import Iterable

import torch

_WRONG_ORDER = (
    "triton was imported before helpers, too late to choose between the GPU and the interpreter. "
    "Restart the kernel and run `import helpers` (or `from helpers import …`) above `import triton`."
)


def choose(cuda_available: bool, setting: str | None, triton_imported: bool) -> tuple[str, str]:
    """Returns the device and the value of TRITON_INTERPRET to run with.

    `setting` is the value that TRITON_INTERPRET has in the environment: "1" runs interpreted even beside a GPU, "0"
    without a GPU allows kernels to be compiled but not launched, None leaves the choice to us.
    Raises ImportError where triton was imported first and nothing in the environment told it what to do.
    """
    if setting is None:
        if triton_imported:
            raise ImportError(_WRONG_ORDER)
        setting = "0" if cuda_available else "1"
    if setting not in ("0", "1"):
        raise ImportError(f"TRITON_INTERPRET is {setting!r}; unset it, or set it to 1 (interpreter) or 0 (compiler).")
    return ("cuda" if cuda_available and setting == "0" else "cpu"), setting


_device, _interpret = choose(torch.cuda.is_available(), os.environ.get("TRITON_INTERPRET"), "triton" in sys.modules)
os.environ["TRITON_INTERPRET"] = _interpret

DEVICE = torch.device(_device)
"""Where the lessons put their tensors."""

ON_GPU: bool = _device == "cuda"
"""True where kernels are compiled and times can be measured."""

INTERPRETED: bool = _interpret == "1"
"""True where kernels run in Triton's interpreter."""


def moved(parts: Iterable[str], where: str, consequence: str) -> RuntimeError:
    """The error for a Triton that has moved private parts which the course uses: where they were, and what follows."""
    import triton

    return RuntimeError(
        f"Triton {triton.__version__} has moved {', '.join(parts)} in {where}, so {consequence}. "
        "`make install` brings the course's version; Triton 3.6 to 3.9 are known to work."
    )


def banner() -> str:
    """Returns one line that names the device and the versions in use."""
    import triton

    versions = f"torch {torch.__version__}, triton {triton.__version__}, Python {platform.python_version()}"
    if ON_GPU:
        return f"{torch.cuda.get_device_name()} · {versions}"
    if not INTERPRETED:
        return f"CPU, kernels can be compiled but not run · {versions}"
    return f"CPU, Triton's interpreter · {versions} · results are exact, times are not measured"
