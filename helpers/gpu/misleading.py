"""A GPU that is not there, for benchmarks to be tried on: what its kernels really take is known.

It has a queue, an L2 cache, a compiler and a clock, and each of them misleads in the way that a `Behaviour` says. Times
are in milliseconds and nobody waits for them; results are computed on the CPU, on a small matrix that stands for a
large one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Softmax = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Behaviour:
    """What may mislead a benchmark. As it is by default nothing does: every call takes its time while Python waits."""

    in_queue: bool = False
    """Launches return after LAUNCH_MS, and what was launched waits for its turn."""
    compile_ms: float = 0
    """What the first call of a kernel takes on top, for each shape of its input."""
    warm: float = 1
    """The part of its time that a kernel takes whose input is still in the L2 cache."""
    easy: float = 1
    """The part of its time that a kernel takes on numbers that are nearly the same."""
    slow_run: int | None = None
    """From this launch on, every seventh takes SLOWER times as long."""
    slowdown: float = 0
    """By how much of its time a kernel is slower at the last of `launches` than at the first."""
    launches: int = 1
    operation_ms: float = 0
    """What an operation of PyTorch takes on the whole matrix, such as a copy."""


LAUNCH_MS, SYNCHRONIZE_MS, FLUSH_MS = 0.004, 0.01, 0.1
"""What the host needs for a launch and to notice that the GPU is done; what the GPU needs for a flush in the queue."""

EVERY, SLOWER = 7, 30
_LARGE = 32 * 2**20
"""Bytes that fill an L2 cache, so that an operation on them leaves nothing else in it."""


class Event:
    """A mark in the queue, as torch.cuda.Event is one."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu, self._at = gpu, max(gpu.host, gpu.free)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to `end`. Raises RuntimeError while the GPU has not passed both, as CUDA does."""
        if max(self._at, end._at) > self._gpu.host:
            raise RuntimeError("the GPU has not come to these events yet: synchronize first")
        return end._at - self._at

    def synchronize(self) -> None:
        """Waits until the GPU has come to this mark."""
        self._gpu.host = max(self._gpu.host, self._at)


class Gpu:
    """The GPU, with what helpers.lies.Gpu has. `host` and `free` are when Python is, and when the queue is empty."""

    device = torch.device("cpu")
    shape = (8, 4096)

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.host = self.free = 0.0
        self.kernel_launches = 0
        self._in_kernel = False
        self._compiled: set[tuple] = set()
        self._touched: list[tuple[int, int]] = []

    def now(self) -> float:
        """The host's clock, in milliseconds."""
        return self.host

    def record(self) -> Event:
        """A mark in the queue: start.elapsed_time(end) are the milliseconds between two that the GPU has passed."""
        return Event(self)

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        self.host = max(self.host, self.free) + (SYNCHRONIZE_MS if self.behaviour.in_queue else 0)

    def flush(self) -> None:
        """Overwrites everything in the L2 cache."""
        self._touched.clear()
        self._busy(FLUSH_MS if self.behaviour.in_queue else 0)

    def kernel(self, ms: float, result: Softmax) -> Softmax:
        """A softmax that needs `ms` on real data that are not in the cache; `result` computes what it returns."""

        def launch(x: torch.Tensor) -> torch.Tensor:
            self._in_kernel = True
            try:
                self._compile((launch, x.shape))
                self._busy(ms * x.numel() / math.prod(self.shape) * self._part(x) * self._pace())
                self.kernel_launches += 1
                y = result(x)
            finally:
                self._in_kernel = False
            self._touch(x)
            self._touch(y)
            return y

        return launch

    def _compile(self, what: tuple) -> None:
        if what not in self._compiled:
            self._compiled.add(what)
            self.host += self.behaviour.compile_ms

    def _busy(self, ms: float) -> None:
        self.host += LAUNCH_MS if self.behaviour.in_queue else 0
        self.free = max(self.host, self.free) + ms
        if not self.behaviour.in_queue:
            self.host = self.free

    def _part(self, x: torch.Tensor) -> float:
        """The part of its time that a kernel takes on this x, as it is and where it is."""
        easy = self.behaviour.easy if x.float().std() < 0.5 else 1
        return easy * (self.behaviour.warm if self._is_warm(x) else 1)

    def _pace(self) -> float:
        """How many times as long the present launch takes as the first."""
        behaviour, launch = self.behaviour, self.kernel_launches
        first = behaviour.slow_run
        slow = first is not None and launch % EVERY == first % EVERY
        return (1 + behaviour.slowdown * launch / behaviour.launches) * (SLOWER if slow else 1)

    def _touch(self, tensor: torch.Tensor) -> None:
        self._touched.append((tensor.data_ptr(), tensor.nbytes))

    def _is_warm(self, x: torch.Tensor) -> bool:
        """Whether less than three such matrices were touched since x was."""
        since = 0
        for pointer, nbytes in reversed(self._touched):
            if pointer == x.data_ptr():
                return True
            since += nbytes
            if since > 3 * x.nbytes:
                return False
        return False

    def watching(self) -> TorchDispatchMode:
        """Within this, PyTorch's operations too take time and space in the cache."""
        return _Operations(self)


class _Operations(TorchDispatchMode):
    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        large = args and isinstance(args[0], torch.Tensor) and args[0].nbytes >= _LARGE
        if large and name in ("zero_", "fill_", "random_"):
            self.gpu.flush()
            return args[0]
        result = func(*args, **(kwargs or {}))
        moves = isinstance(result, torch.Tensor) and not func.is_view and "empty" not in name
        if moves and not self.gpu._in_kernel:
            self.gpu._busy(self.gpu.behaviour.operation_ms * result.numel() / math.prod(self.gpu.shape))
            self.gpu._touch(result)
        return result
