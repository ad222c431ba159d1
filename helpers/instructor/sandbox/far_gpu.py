"""A learner's end of a simulated GPU that the grader holds: calls of it go there, and times come back.

What happens is gathered, and sent when something is asked: a time, or the result of a kernel for numbers that it has
not had before. No time that a kernel needs is ever in this process, except the benchmark's own measurements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from helpers.gpu.misleading import Held, MisleadingGpu, Watching
from helpers.instructor.sandbox import callee
from helpers.instructor.sandbox.callee import Ask

_MOST_EVENTS = 1_000
"""So many are gathered at most."""


class FarMark:
    """A mark in the queue of a FarGpu."""

    def __init__(self, gpu: FarGpu, number: int) -> None:
        self._gpu, self._number = gpu, number

    def elapsed_time(self, end: FarMark) -> float:
        """Milliseconds from this mark to `end`. Raises RuntimeError while the GPU has not passed both, as CUDA does."""
        return self._gpu.asked("between", self._number, end._number)

    def synchronize(self) -> None:
        """Waits until the GPU has come to this mark."""
        self._gpu.happened("wait", self._number)


class FarGpu:
    """A `helpers.gpu.Gpu` in another process, and two `kernels` to launch on it."""

    device = MisleadingGpu.device
    shape = MisleadingGpu.shape

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._events: list[list[Any]] = []
        self._marks = 0
        self._in_kernel = False
        self._sent: set[str] = set()
        self._results: dict[tuple[int, str], torch.Tensor] = {}
        self.kernels = self._kernel(0), self._kernel(1)

    def now(self) -> float:
        """The host's clock, in milliseconds."""
        return self.asked("now")

    def record(self) -> FarMark:
        """Puts a mark into the queue. start.elapsed_time(end) is the GPU's milliseconds between two marks."""
        self.happened("mark")
        self._marks += 1
        return FarMark(self, self._marks - 1)

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        self.happened("synchronize")

    def flush(self) -> None:
        """Overwrites everything that the L2 cache holds."""
        self.happened("flush")

    def watching(self) -> Watching:
        """A context in which PyTorch's operations take time, and space in the cache, too."""
        return Watching(self)

    def operation(self, name: str, given: Sequence[Held], made: Held | None) -> None:
        """See MisleadingGpu."""
        if not self._in_kernel:
            self.happened("operation", name, [_place(one) for one in given], None if made is None else _place(made))

    def happened(self, *event: Any) -> None:
        """Notes something that has no answer."""
        self._events.append(list(event))
        if len(self._events) >= _MOST_EVENTS:
            self.asked("now")

    def asked(self, *question: Any) -> Any:
        """The answer to a question, for which all that has happened is sent. Raises what its asking raises there."""
        events, self._events = self._events, []
        return callee.asked(self._ask, *question, events=events)

    def _kernel(self, number: int) -> Callable[[torch.Tensor], torch.Tensor]:
        def launch(x: torch.Tensor) -> torch.Tensor:
            self._in_kernel = True
            try:
                return self._launched(number, x)
            finally:
                self._in_kernel = False

        return launch

    def _launched(self, number: int, x: torch.Tensor) -> torch.Tensor:
        content = x.detach().contiguous()
        digest = hashlib.blake2b(content.view(torch.uint8).numpy(), digest_size=16).hexdigest()
        digest += f" {content.dtype} {tuple(content.shape)}"
        y = torch.empty_like(content)
        launch = ["launch", number, _place(x), digest, y.data_ptr()]
        if (number, digest) in self._results:
            self.happened(*launch)
        else:
            if digest not in self._sent:
                self.happened("numbers", digest, content)
                self._sent.add(digest)
            self._results[number, digest] = self.asked(*launch)
        result = self._results[number, digest]
        return y.copy_(result) if result.shape == y.shape and result.dtype == y.dtype else result.clone()


def _place(tensor: Held) -> list[int]:
    return [tensor.data_ptr(), tensor.nbytes, tensor.numel()]
