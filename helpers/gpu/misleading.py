"""A simulated GPU to try benchmarks on. The true time of each of its kernels is known.

Its queue, its L2 cache, its compiler and its clock each mislead a benchmark in the way that a `Behaviour` says. Times
are in milliseconds, and nobody really waits for them. Results are computed on the CPU, on a small matrix that stands
for a large one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from helpers.engine.modes import Mode

SoftmaxFunction = Callable[[torch.Tensor], torch.Tensor]

EVERY, BURST, SLOWER = 20, 4, 30


@dataclass(frozen=True)
class Behaviour:
    """What may mislead a benchmark. By default nothing does: each call takes its time, and Python waits for its end."""

    in_queue: bool = False
    """A launch returns after LAUNCH_MS, and the kernel waits for its turn in the queue."""
    compile_ms: float = 0
    """Added to the first call of a kernel for each shape of its input."""
    warm: float = 1
    """The fraction of its time that a kernel takes if its input is still in the L2 cache."""
    easy: float = 1
    """The fraction of its time that a kernel takes on numbers that are nearly the same."""
    slow_run: int | None = None
    """Of every EVERY launches, BURST from the one with this number on, counted from 0, take `slower` times as long."""
    slower: float = SLOWER
    slowdown: float = 0
    """The fraction of its time by which a kernel is slower at the last of `launches` than at the first."""
    throttled_at: float = 0
    """The part of `launches` from which on it is slower by `slowdown` at once; 0: it grows slower bit by bit."""
    jitter: float = 0
    """The fraction of its time by which a kernel's runs differ."""
    launches: int = 1
    operation_ms: float = 0
    """The time of an operation of PyTorch, such as a copy, on the whole matrix."""


LAUNCH_MS, SYNCHRONIZE_MS, FLUSH_MS = 0.004, 0.01, 0.1
"""Host time of a launch, host time to notice that the GPU is done, and GPU time of a flush; all with a queue."""

_DISTINCT = 0.2
"""The least part of random numbers that differ from all others, also in float16."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_FILLS = ("zero_", "fill_", "random_")
_FILLS_CACHE = 32 * 2**20
"""Bytes of a tensor from which on overwriting it leaves nothing else in the L2 cache."""


class Held(Protocol):
    """A tensor, or what stands for one that another process holds."""

    @property
    def nbytes(self) -> int:
        """Its bytes."""

    def numel(self) -> int:
        """Its elements."""

    def data_ptr(self) -> int:
        """Where it lies."""


class SimulatedMark:
    """A mark in the queue of a MisleadingGpu, like a torch.cuda.Event in the queue of a real GPU."""

    def __init__(self, gpu: MisleadingGpu) -> None:
        self._gpu, self._at, self._launch = gpu, max(gpu.host, gpu.free), gpu.kernel_launches

    def elapsed_time(self, end: SimulatedMark) -> float:
        """Milliseconds from this mark to `end`. Raises RuntimeError while the GPU has not passed both, as CUDA does."""
        if max(self._at, end._at) > self._gpu.host:
            raise RuntimeError("the GPU has not come to these events yet: synchronize first")
        self._gpu.read.append((end._at - self._at, range(self._launch, end._launch)))
        return end._at - self._at

    def synchronize(self) -> None:
        """Waits until the GPU has come to this mark."""
        self._gpu.host = max(self._gpu.host, self._at)


class MisleadingGpu:
    """A simulated `helpers.gpu.Gpu` that behaves as a Behaviour says.

    `host` is Python's time and `free` the time at which the queue is empty, both in milliseconds. `first_calls` has the
    kernel of each launch that compiled, `kernel_of_launch` that of every launch, and `read` the milliseconds that
    somebody has asked for between two marks, with the launches between them.
    """

    device = torch.device("cpu")
    shape = (8, 4096)

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.host = self.free = 0.0
        self.kernel_launches = 0
        self.first_calls: dict[int, Callable] = {}
        self.kernel_of_launch: list[Callable] = []
        self.read: list[tuple[float, range]] = []
        self._in_kernel = False
        self._compiled: set[tuple] = set()
        self._touched: list[tuple[int, int]] = []
        self._random: dict[tuple, bool] = {}

    def now(self) -> float:
        """The host's clock, in milliseconds."""
        return self.host

    def record(self) -> SimulatedMark:
        """Puts a mark into the queue. start.elapsed_time(end) is the GPU's milliseconds between two marks."""
        return SimulatedMark(self)

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        self.host = max(self.host, self.free) + (SYNCHRONIZE_MS if self.behaviour.in_queue else 0)

    def flush(self) -> None:
        """Overwrites everything that the L2 cache holds."""
        self._touched.clear()
        self._busy(FLUSH_MS if self.behaviour.in_queue else 0)

    def kernel(self, ms: float, result: SoftmaxFunction) -> SoftmaxFunction:
        """A softmax that needs `ms` on real data that are not in the cache; `result` computes what it returns."""

        def launch(x: torch.Tensor) -> torch.Tensor:
            self._in_kernel = True
            try:
                self._compile((launch, x.shape))
                self._busy(ms * self._share(x) * self._fraction(x) * self._pace())
                self.kernel_launches += 1
                self.kernel_of_launch.append(launch)
                y = result(x)
            finally:
                self._in_kernel = False
            self._touch(x)
            self._touch(y)
            return y

        return launch

    def watching(self) -> Watching:
        """A context in which PyTorch's operations take time, and space in the cache, too."""
        return Watching(self)

    def _compile(self, what: tuple) -> None:
        if what not in self._compiled:
            self._compiled.add(what)
            self.first_calls[self.kernel_launches] = what[0]
            self.host += self.behaviour.compile_ms

    def _busy(self, ms: float) -> None:
        """Launches something that takes `ms`, and waits for it unless there is a queue."""
        self.host += LAUNCH_MS if self.behaviour.in_queue else 0
        self.free = max(self.host, self.free) + ms
        if not self.behaviour.in_queue:
            self.host = self.free

    def _share(self, x: Held) -> float:
        """The elements of x as a fraction of the whole matrix."""
        return x.numel() / math.prod(self.shape)

    def _fraction(self, x: torch.Tensor) -> float:
        """The fraction of its time that a kernel takes on x, which may be easy and may be in the cache."""
        easy = self.behaviour.easy if self.behaviour.easy != 1 and not self._is_random(x) else 1
        return easy * (self.behaviour.warm if self._is_warm(x) else 1)

    def _is_random(self, x: torch.Tensor) -> bool:
        """True if the numbers of x are spread out, hardly ever the same, and in no order."""
        known = x.data_ptr(), x.shape, x._version, x[0, 0].item(), x[-1, -1].item()
        if known not in self._random:
            values = x.float()
            spread = values.std()
            distinct = len(values.unique()) / values.numel()
            self._random[known] = bool(
                spread >= 0.5 and distinct >= _DISTINCT and values.diff(dim=1).std() >= 0.5 * spread
            )
        return self._random[known]

    def _pace(self) -> float:
        """How many times longer the present launch takes than the first."""
        behaviour, launch = self.behaviour, self.kernel_launches
        slow = behaviour.slow_run is not None and (launch - behaviour.slow_run) % EVERY < BURST
        gone = launch / behaviour.launches
        slower = behaviour.slowdown * (gone >= behaviour.throttled_at if behaviour.throttled_at else gone)
        unsteady = behaviour.jitter * (launch * _GOLDEN % 1 - 0.5)
        return (1 + slower) * (1 + unsteady) * (behaviour.slower if slow else 1)

    def _touch(self, tensor: Held) -> None:
        self._touched.append((tensor.data_ptr(), tensor.nbytes))

    def _is_warm(self, x: torch.Tensor) -> bool:
        """True if at most three matrices of x's size were touched since x was touched."""
        since = 0
        for pointer, nbytes in reversed(self._touched):
            if pointer == x.data_ptr():
                return True
            since += nbytes
            if since > 3 * x.nbytes:
                return False
        return False

    def operation(self, name: str, given: Sequence[Held], made: Held | None) -> None:
        """PyTorch's operation of this name has been given these tensors, and has made one, or none."""
        if self._in_kernel:
            return
        if not _reads_nothing(name):
            for tensor in given:
                if tensor.data_ptr() not in dict(self._touched[-3:]):
                    self._touch(tensor)
        if made is not None and "empty" not in name:
            self._busy(self.behaviour.operation_ms * self._share(made))
            self._touch(made)


def _reads_nothing(name: str) -> bool:
    """True if an operation of PyTorch needs only the shape of its tensor, or overwrites the tensor."""
    return name.endswith("_like") or name.startswith(("new_", "empty")) or name in _FILLS


class Watching(Mode):
    """Reports every operation of PyTorch to a GPU, through the GPU's methods `flush` and `operation`."""

    def __init__(self, gpu: Any) -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        fills_cache = args and isinstance(args[0], torch.Tensor) and args[0].nbytes >= _FILLS_CACHE
        if fills_cache and name in _FILLS:
            self.gpu.flush()
            return args[0]
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = [tensor for tensor in args if isinstance(tensor, torch.Tensor)]
            self.gpu.operation(name, tensors, result if isinstance(result, torch.Tensor) else None)
        return result
