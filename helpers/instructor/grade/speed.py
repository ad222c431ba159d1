"""How fast a right kernel is on this machine's GPU, against a copy of the same bytes.

What runs is what the driver was recorded to ask for, behind walls that show the GPU's device nodes, in a process in
which no learner's code has run; one at a time, because two kernels on one GPU would time each other.
"""

from __future__ import annotations

import fcntl
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox.client import Ended, NoSandbox

N_ROWS, N_COLS = 16384, 4096
LAYOUT = [[N_ROWS, N_COLS], [N_COLS, 1], 0, N_ROWS * N_COLS, torch.float32]
"""The matrix that is timed, as decoys are described: 256 MB."""
MEASURE = "helpers.timing:measure_shape"
"""The function that times."""
_TIMEOUT_S = 120


def devices() -> list[Path]:
    """The device nodes through which a process uses this machine's GPUs."""
    return sorted(Path("/dev").glob("nvidia*"))


def of_copy(workshop: Workshop, plan: dict[str, Any], nodes: list[Path], measure: str = MEASURE) -> float | str:
    """The kernel's speed as a fraction of a copy's, or why there is none."""
    if not nodes:
        return "not timed: this machine has no GPU"
    request = {"do": "speed", "plan": plan, "n_rows": N_ROWS, "n_cols": N_COLS, "measure": measure}
    try:
        with _alone(), workshop.for_submission().sandbox(None, nodes) as sandbox:
            found = sandbox.ask(request, _TIMEOUT_S)
    except (Ended, NoSandbox, OSError) as error:
        return f"not timed: {error}"[:300]
    return found if isinstance(found, float) and math.isfinite(found) else "not timed: it gave no number"


@contextmanager
def _alone() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "softmax-grading-gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
