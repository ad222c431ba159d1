"""The interface through which a benchmark uses a GPU, real (real.py) or simulated (misleading.py).

The other modules describe GPUs on paper: their datasheets, their occupancy, and programs that wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@runtime_checkable
class Mark(Protocol):
    """A mark in a GPU's queue, like a `torch.cuda.Event`."""

    def elapsed_time(self, end: Mark, /) -> float:
        """Milliseconds from this mark to `end`. Raises RuntimeError while the GPU has not passed both."""


@runtime_checkable
class Gpu(Protocol):
    """A GPU to time kernels on. `record` and `flush` put work into its queue; `synchronize` waits until it is empty."""

    @property
    def device(self) -> torch.device:
        """The device on which to make tensors for this GPU."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the float32 matrix to time kernels on."""

    def now(self) -> float:
        """The host's clock, in milliseconds."""

    def record(self) -> Mark:
        """Puts a mark into the queue. start.elapsed_time(end) is the GPU's milliseconds between two marks."""

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""

    def flush(self) -> None:
        """Overwrites everything that the L2 cache holds."""
