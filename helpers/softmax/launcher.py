"""A kernel with its grid and arguments, launched on a stream with as little of Python's time as can be."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

from helpers.engine.compiled import direct_launch, launches_are_seen
from helpers.engine.runtime import INTERPRETED
from helpers.softmax import mailbox
from helpers.softmax.plan import fetching_pays

Words = Callable[[int, int, int], tuple[torch.Tensor, int]]
"""Gives zeros for a launch: `mailbox.zeros` or `mailbox.fresh`."""

Launcher = Callable[[tuple[torch.Tensor, ...], int, Words], object]
"""Fills the first of some tensors from the others on a CUDA stream: `launcher((y, x), stream, words)`."""

_T = TypeVar("_T")
_address_of = torch.Tensor.data_ptr
_MOST_LAUNCHERS = 4096

# What every call asks, without looking it up in torch each time. The interpreter's tensors have the device −1.
current_device: Callable[[], int] = (lambda: -1) if INTERPRETED else getattr(torch._C, "_cuda_getDevice", None)
current_stream: Callable[[int], int] = (
    (lambda device: 0) if INTERPRETED else getattr(torch._C, "_cuda_getCurrentRawStream", None)
)


def keep_launcher(launchers: dict[tuple, _T], key: tuple, made: _T) -> _T:
    """Keeps a value for a key, and returns it. A full memory is emptied first."""
    if len(launchers) >= _MOST_LAUNCHERS:  # two threads may have added one each
        launchers.clear()
    launchers[key] = made
    return made


def can_start_early(device: int) -> bool:
    """Whether a GPU knows programmatic dependent launches, from compute capability 9.0 on; the current one for a
    negative number."""
    if INTERPRETED or torch.version.hip or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_capability(device if device >= 0 else None) >= (9, 0)


def fetches_ahead(device: int) -> bool:
    """Whether a GPU's cache and memory are such that fetching ahead pays; the current one's for a negative number."""
    if INTERPRETED or not torch.cuda.is_available():
        return False
    return _fetches_ahead(device if device >= 0 else torch.cuda.current_device())


@cache
def _fetches_ahead(device: int) -> bool:
    of = torch.cuda.get_device_properties(device)
    return fetching_pays(of.L2_cache_size, of.memory_clock_rate, of.memory_bus_width)


def on_stream(
    x: torch.Tensor, launcher: Launcher, tensors: tuple[torch.Tensor, ...], words: Words = mailbox.zeros
) -> None:
    """Launches for `tensors` on x's device, with its current stream."""
    index = x.get_device()
    if index == current_device():
        launcher(tensors, current_stream(index), words)
    else:
        with torch.cuda.device(index):
            launcher(tensors, current_stream(index), words)


class PreparedLauncher:
    """A kernel with its grid and arguments. The first call compiles the kernel; later calls launch it without Triton's
    search for it, unless a profiler's hook, or traffic.count, is to see them.

    An `early` kernel may begin before the launch ahead of it in the stream has ended, and waits for that by itself.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        arguments: tuple,
        num_warps: int,
        maxnreg: int = 96,
        words: int = 0,
        early: bool = False,
    ) -> None:
        self.kernel, self.grid, self.arguments, self.words = kernel, grid, arguments, words
        self.options = {"num_warps": num_warps, "maxnreg": maxnreg}
        if early:
            self.options["launch_pdl"] = True
        self.compiled: tuple[Callable, tuple] | None = None

    def __call__(self, tensors: tuple[torch.Tensor, ...], stream: int, words: Words = mailbox.zeros) -> None:
        """Launches the kernel on `tensors`, its first arguments; the words of a shared row come after them."""
        if self.compiled is None or launches_are_seen():
            self._through_triton(tensors, stream, words)
            return
        arguments = self.arguments
        if self.words:
            memory, address = words(self.words, tensors[0].get_device(), stream)
            arguments = address, *arguments
        run, known = self.compiled
        # Triton's launcher asks the driver where a tensor lies; an address it takes as it is.
        run(*self.grid, stream, *known, *map(_address_of, tensors), *arguments)

    def _through_triton(self, tensors: tuple[torch.Tensor, ...], stream: int, words: Words) -> None:
        if self.words:
            # A new buffer would be counted with the launch that happens to need one.
            words = mailbox.fresh if launches_are_seen() else words
            memory, address = words(self.words, tensors[0].get_device(), stream)
            start = (address - memory.data_ptr()) // memory.element_size()
            tensors += (memory[start : start + self.words],)
        compiled = self.kernel[self.grid](*tensors, *self.arguments, **self.options)
        if not INTERPRETED:
            self.compiled = direct_launch(compiled)
