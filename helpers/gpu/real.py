"""The CUDA GPU of this machine, with the interface that benchmarks use."""

from __future__ import annotations

import time
from functools import cache

import torch

from helpers.engine.runtime import DEVICE


class RealGpu:
    """The CUDA GPU that kernels run on. It has the interface of `helpers.gpu.Gpu`."""

    device = DEVICE
    shape = (16384, 4096)
    """Of the matrix to time kernels on; in float32 it is several times as large as an L2 cache."""

    def __init__(self, shape: tuple[int, int] | None = None) -> None:
        """`shape` takes the place of the class's."""
        self.shape = shape or self.shape

    def now(self) -> float:
        """The host's clock, in milliseconds."""
        return 1e3 * time.perf_counter()

    def record(self) -> torch.cuda.Event:
        """Puts a mark into the queue. start.elapsed_time(end) is the GPU's milliseconds between two marks."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        torch.cuda.synchronize()

    def flush(self) -> None:
        """Overwrites 512 MB: this fills the L2 cache, and keeps the GPU busy while the host prepares a launch."""
        _flushed().zero_()


@cache
def _flushed() -> torch.Tensor:
    return torch.empty(512 * 2**20, dtype=torch.int8, device=DEVICE)
