"""How fast a right kernel is on this machine's GPU, against a copy of the same bytes.

What runs is what the driver was recorded to ask for, in a process that no learner's code has run in; one at a time,
because two kernels on one GPU would time each other.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch

from helpers import timing
from helpers.engine import child
from helpers.instructor.sandbox import replay, wire

N_ROWS, N_COLS = 16384, 4096
LAYOUT = [[N_ROWS, N_COLS], [N_COLS, 1], 0, N_ROWS * N_COLS, torch.float32]
"""The matrix that is timed, as decoys are described: 256 MB."""
_TIMEOUT_S = 120


def of_copy(plan: dict[str, Any]) -> float | str:
    """The kernel's speed as a fraction of a copy's, or why there is none."""
    _end_with_this_process()
    try:
        with _alone():
            return child.call(_of_copy, wire.encode(plan), interpret=False, timeout=_TIMEOUT_S)
    except (RuntimeError, ValueError, TypeError, TimeoutError) as error:
        return f"not timed: {error}"[:300]


@cache
def _end_with_this_process() -> None:
    """A process of a pool waits for its own children when it ends, and the one at the GPU would wait for more to do."""
    Finalize(None, child.end, args=(False,), exitpriority=10)


def _of_copy(plan: Any) -> float:
    """In a child that uses the GPU. Raises ValueError where the result is wrong there."""
    fn = partial(replay.carry_out, wire.decode(plan))
    (row,) = timing.measure_shape({"kernel": fn}, N_ROWS, N_COLS, "fp32")
    return row.of_copy


@contextmanager
def _alone() -> Iterator[None]:
    with (Path(tempfile.gettempdir()) / "softmax-grading-gpu.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
