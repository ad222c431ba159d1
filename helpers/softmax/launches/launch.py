"""A kernel with its grid and arguments, launched on a stream with as little of Python's time as can be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

from helpers.engine.compiled import direct_launch, launches_are_seen
from helpers.engine.runtime import INTERPRETED
from helpers.engine.torch_parts import get_current_raw_stream, get_device
from helpers.gpu.architectures import ARCHITECTURES
from helpers.softmax.launches import mailbox
from helpers.softmax.plans.gpu import H200, Chip, cycle_bytes_of, fetching_pays

Zeros = Callable[[int, int, int], tuple[torch.Tensor, int]]
"""Gives zeros for a launch: `mailbox.zeros` or `mailbox.fresh`."""

Launcher = Callable[[tuple[torch.Tensor, ...], int, Zeros], object]
"""Fills the first of some tensors from the others on a CUDA stream: `launcher((y, x), stream, zeros)`."""

LOOKS = 0 if INTERPRETED else 4096
"""How often a program looks again for missing words before it computes them itself."""

_T = TypeVar("_T")
_address_of = torch.Tensor.data_ptr
_MOST_LAUNCHERS = 4096

# What every call asks, without looking it up in torch each time. The interpreter's tensors have the device −1.
current_device: Callable[[], int] = (lambda: -1) if INTERPRETED else get_device
current_stream: Callable[[int], int] = (lambda device: 0) if INTERPRETED else get_current_raw_stream


def keep_launcher(launchers: dict[tuple, _T], key: tuple, made: _T) -> _T:
    """Keeps a value for a key, and returns it. A full memory is emptied first."""
    if len(launchers) >= _MOST_LAUNCHERS:  # two threads may have added one each
        launchers.clear()
    launchers[key] = made
    return made


def gpu_of(device: int) -> Chip:
    """What plans ask of the GPU of this number, the current one for a negative number. Without a GPU, an H200."""
    if INTERPRETED or not torch.cuda.is_available():
        return H200
    return _gpu_of(device if device >= 0 else torch.cuda.current_device())


@cache
def _gpu_of(device: int) -> Chip:
    of, (major, minor) = torch.cuda.get_device_properties(device), torch.cuda.get_device_capability(device)
    target, sms = f"sm_{major}{minor}", of.multi_processor_count
    memory = of.memory_clock_rate, of.memory_bus_width
    return Chip(
        sms,
        target if target in ARCHITECTURES else H200.target,
        cycle_bytes_of(target, *memory, sms, of.clock_rate),
        fetches_ahead=fetching_pays(of.L2_cache_size, *memory),
        starts_early=not torch.version.hip and (major, minor) >= (9, 0),
    )


def on_stream(
    x: torch.Tensor, launcher: Launcher, tensors: tuple[torch.Tensor, ...], zeros: Zeros = mailbox.zeros
) -> None:
    """Launches for `tensors` on x's device, with its current stream."""
    index = x.get_device()
    if index == current_device():
        launcher(tensors, current_stream(index), zeros)
    else:
        with torch.cuda.device(index):
            launcher(tensors, current_stream(index), zeros)


class Launch:
    """A kernel with its grid, and by name all arguments but tensors.

    The first call compiles the kernel; later calls launch it without Triton's search for it, unless a profiler's hook,
    or traffic.count, is to see them.

    Attributes: `named`, the arguments by name, in the kernel's order, defaults among them; `arguments`, their values;
    `words`, how many zeros of int64 the kernel is given as its `word_ptr`; `options`, what the compiler is told.
    """

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        *,
        warps: int,
        registers: int | None = 96,
        words: int = 0,
        early: bool = False,
        **named: Any,
    ) -> None:
        """`registers` is the most that a thread gets, None for the compiler's choice. An `early` kernel may begin
        before the launch ahead of it in the stream has ended, and waits for that by itself.

        Raises ValueError for a name that the kernel lacks, and for an argument that has neither a value nor a default.
        """
        self.kernel, self.grid, self.words = kernel, grid, words
        self.named = _in_order(kernel, named)
        self.arguments = tuple(self.named.values())
        self.options = {"num_warps": warps} | ({"maxnreg": registers} if registers else {})
        if early:
            self.options["launch_pdl"] = True
        self.compiled: tuple[Callable, tuple] | None = None

    def replaced(self, **values: Any) -> Launch:
        """The same launch with other values for some arguments. Raises ValueError for a name that the kernel lacks."""
        options = {"warps": self.options["num_warps"], "registers": self.options.get("maxnreg")}
        early = "launch_pdl" in self.options
        return Launch(self.kernel, self.grid, **options, words=self.words, early=early, **(self.named | values))

    def __call__(self, tensors: tuple[torch.Tensor, ...], stream: int, zeros: Zeros = mailbox.zeros) -> None:
        """Launches the kernel on `tensors`, its first arguments; the words of a shared row come after them."""
        if self.compiled is None or launches_are_seen():
            self._through_triton(tensors, stream, zeros)
            return
        arguments = self.arguments
        if self.words:
            memory, address = zeros(self.words, tensors[0].get_device(), stream)
            arguments = address, *arguments
        run, known = self.compiled
        # Triton's launcher asks the driver where a tensor lies; an address it takes as it is.
        run(*self.grid, stream, *known, *map(_address_of, tensors), *arguments)

    def _through_triton(self, tensors: tuple[torch.Tensor, ...], stream: int, zeros: Zeros) -> None:
        if self.words:
            # A new buffer would be counted with the launch that happens to need one.
            zeros = mailbox.fresh if launches_are_seen() else zeros
            memory, address = zeros(self.words, tensors[0].get_device(), stream)
            start = (address - memory.data_ptr()) // memory.element_size()
            tensors += (memory[start : start + self.words],)
        compiled = self.kernel[self.grid](*tensors, *self.arguments, **self.options)
        if not INTERPRETED:
            self.compiled = direct_launch(compiled)


def _in_order(kernel: Any, named: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a kernel but its tensors, in its own order, with its defaults for what is not `named`."""
    defaults = _defaults(kernel.fn)
    if unknown := sorted(named.keys() - defaults.keys()):
        raise ValueError(f"{kernel.fn.__name__} has no argument {', '.join(unknown)}; it has {', '.join(defaults)}.")
    given = defaults | named
    if missing := [name for name, value in given.items() if value is inspect.Parameter.empty]:
        raise ValueError(f"{kernel.fn.__name__} also needs {', '.join(missing)}.")
    return given


@cache
def _defaults(fn: Callable) -> dict[str, Any]:
    """A kernel's arguments but its tensors, in order, with their defaults; of a tl.constexpr its value."""
    return {
        name: getattr(parameter.default, "value", parameter.default)
        for name, parameter in inspect.signature(fn).parameters.items()
        if not name.endswith("_ptr")
    }
