"""Decides where kernels run: on a CUDA GPU that Triton can use, or else in Triton's interpreter.

Triton reads TRITON_INTERPRET when `@triton.jit` decorates a function, also in its own library. So the choice has to be
made before any part of the process imports triton, unless triton was imported in the mode that would be chosen.
"""

import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib import import_module

import torch

OLDEST_CAPABILITY = 7, 5
"""Compute capability of the oldest GPUs that Triton compiles for."""
CHOSEN_HERE = "SOFTMAX_IN_TRITON_INTERPRET"
"""The value of TRITON_INTERPRET, in the environment too, where it was set here: a child process chooses for itself."""

_WRONG_ORDER = (
    "triton was imported before helpers, too late to choose between the GPU and the interpreter. "
    "Restart the kernel and run `import helpers` (or `from helpers import …`) above `import triton`."
)


def choose(gpu: bool, setting: str | None, imported: str | None) -> tuple[str, str]:
    """Returns the device and the value of TRITON_INTERPRET to run with.

    `gpu` says whether there is a GPU that Triton can use; `imported` is the value with which triton was imported
    already. `setting` is the user's value: "1" runs interpreted even with a GPU, "0" without a GPU allows kernels to be
    compiled but not launched, None leaves the choice to us. Raises ImportError for any other value, and if triton was
    imported with the wrong one.
    """
    if setting not in (None, "0", "1"):
        raise ImportError(f"TRITON_INTERPRET is {setting!r}; unset it, or set it to 1 (interpreter) or 0 (compiler).")
    chosen = setting or ("0" if gpu and imported != "1" else "1")
    if imported not in (None, chosen):
        raise ImportError(_WRONG_ORDER)
    return ("cuda" if gpu and chosen == "0" else "cpu"), chosen


def too_old(name: str, capability: tuple[int, int]) -> str:
    """Why Triton cannot use a GPU; "" if it can."""
    if capability >= OLDEST_CAPABILITY:
        return ""
    has, needs = (".".join(map(str, version)) for version in (capability, OLDEST_CAPABILITY))
    return f"{name} has compute capability {has}, and Triton needs {needs} or more"


def users_setting(environment: dict[str, str]) -> str | None:
    """The value of TRITON_INTERPRET that the user has chosen: None if a process before this one has set it."""
    setting = environment.get("TRITON_INTERPRET")
    return None if setting is not None and setting == environment.get(CHOSEN_HERE) else setting


def _imported() -> str | None:
    triton = sys.modules.get("triton")
    if triton is None:
        return None
    return "0" if isinstance(triton.language.sum, triton.JITFunction) else "1"


_setting = users_setting(os.environ)
_has_gpu = _setting != "1" and torch.cuda.is_available()
_too_old = too_old(torch.cuda.get_device_name(), torch.cuda.get_device_capability()) if _has_gpu else ""
_device, _interpret = choose(_has_gpu and not _too_old, _setting, _imported())
if _setting is None:
    if _too_old and CHOSEN_HERE not in os.environ:
        warnings.warn(f"{_too_old}: kernels run in its interpreter.", stacklevel=2)
    for _name in ("TRITON_INTERPRET", CHOSEN_HERE):
        os.environ.pop(_name, None)
        if _interpret == "1":
            os.environ[_name] = "1"

# Where this is unset, Triton 3.9 warns below the first cell that compiles: the next version is to have another default.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

DEVICE = torch.device(_device)
"""Where the lessons put their tensors."""

ON_GPU: bool = _device == "cuda"
"""True where kernels are compiled and times can be measured."""

INTERPRETED: bool = _interpret == "1"
"""True where kernels run in Triton's interpreter."""


_KNOWN = {"Triton": "3.6 to 3.9", "torch": "2.11 to 2.15"}


def moved(parts: Iterable[str], where: str, consequence: str, whose: str = "Triton") -> RuntimeError:
    """The error for a Triton or torch that has moved private parts of its own: names them, and says what follows."""
    version = import_module(whose.lower()).__version__
    return RuntimeError(
        f"{whose} {version} has moved {', '.join(parts)} in {where}, so {consequence}. "
        f"`make install` brings the course's version; {whose} {_KNOWN[whose]} are known to work."
    )


def refuse_where_nothing_runs() -> None:
    """Raises ValueError if kernels can be compiled but not run."""
    if not (ON_GPU or INTERPRETED):
        raise ValueError(
            "no GPU was found and TRITON_INTERPRET=0 rules out the interpreter: kernels can only be compiled here. "
            "Unset TRITON_INTERPRET and restart to run them."
        )


at_first: list[Callable[[], object]] = []
"""What a notebook begins once, when its first cell asks for the banner: no import begins it."""


def begin_once() -> None:
    """Begins what is left in `at_first`."""
    while at_first:
        at_first.pop()()


def banner() -> str:
    """Returns one line that names the device and the versions in use. A notebook's first cell prints it."""
    import triton

    begin_once()
    versions = f"torch {torch.__version__}, triton {triton.__version__}, Python {platform.python_version()}"
    if _too_old:
        versions += f" · {_too_old}"
    if ON_GPU:
        return f"{torch.cuda.get_device_name()} · {versions}"
    if not INTERPRETED:
        return f"CPU, kernels can be compiled but not run · {versions}"
    return f"CPU, Triton's interpreter · {versions} · results are right, times are not measured"


def bars_are_off() -> bool:
    """Whether no progress bar is to be shown: tqdm's own variable says so, or pytest compares what a notebook shows.

    Whether a bar shows, and what it says, depends on how busy the machine is.
    """
    return not os.environ.keys().isdisjoint(("TQDM_DISABLE", "PYTEST_VERSION"))
