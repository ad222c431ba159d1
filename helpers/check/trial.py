"""One call of an answer, in this process, and what was seen of it. In which process that happens, place.py decides."""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import math
import numbers
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import traffic
from helpers.check import cases, withheld
from helpers.engine import interpreter
from helpers.engine.isolate import End
from helpers.engine.runtime import DEVICE
from helpers.xray.compile import reason


@dataclass
class Trial:
    """What one call showed. Tensors are on the CPU."""

    end: End = End.RETURNED
    raised: str = ""
    """Where it did not return: the error in one sentence, or how the process ended."""
    error: str = ""
    """The name of the error's type."""
    unwritten: bool = False
    """Nothing was attempted: NotImplementedError, or no result and no work."""
    outside: dict[str, Any] = field(default_factory=dict)
    """The fields of the interpreter.Access that left its tensor."""
    got: str = ""
    """What came back in place of a tensor of the right shape and dtype, in words."""
    got_none: bool = False
    got_shape: list[int] | None = None
    """The shape of a tensor that came back in its place."""
    y: torch.Tensor | None = None
    pair: list[float] | None = None
    answer: Any = None
    """What came back in place of a tensor: a number, a text, None, or a list of these."""
    input_changed: bool = False
    shares_storage: bool = False
    contiguous: bool = True
    kernels: int = 0
    stores: int = 0
    loads: int = 0
    stored_by_kernels: int = 0
    eager: list[str] = field(default_factory=list)
    """Names of the PyTorch operations that read something, other than to copy or to fill."""
    copied: int = 0
    """Loads by PyTorch's operations."""
    programs: int = 0
    tile: int = 1
    """Lanes of the widest access."""
    loaded: torch.Tensor | None = None
    """How often each element of x was loaded by kernels."""
    stored: torch.Tensor | None = None
    """How often each element of y was stored by kernels."""
    printed: str = ""
    sampled: bool = False
    """Only some programs were run, and only the rows at both ends count."""
    skipped: bool = False
    """None was run: a few programs take very many rows."""
    elsewhere: bool = False
    """The result is that of numbers which no kernel has loaded."""
    device_forgotten: bool = False
    """The result would not lie on the GPU."""
    again: torch.Tensor | None = None
    """What a second call returned, after x had got other numbers, in x's dtype."""
    again_raised: str = ""
    overwritten: bool = False
    """The second call has changed what the first had returned."""

    def plain(self) -> dict[str, Any]:
        """Its fields as plain values and tensors, to be sent to another process."""
        return {**asdict(self), "end": self.end.value}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Trial:
        """The trial that `plain` was made of."""
        return cls(**{**plain, "end": End(plain["end"])})


def of_softmax(
    fn: Callable[[torch.Tensor], Any], x: torch.Tensor, kernel: bool = False, BLOCK: int | None = None
) -> Trial:
    """Calls fn(x) in this process, counts its traffic, and says what was seen; small tensors are given to it twice.

    With `kernel`, x has its numbers only where kernels and PyTorch's operations load it. `BLOCK` is passed on to a
    driver that takes one.
    """
    before = x.clone()
    launches: list[interpreter.LaunchTraffic] = []
    given = _with_block(fn, BLOCK)
    sample = _Sample(x)
    changes, devices = withheld.OwnChanges(x), withheld.Devices()
    hidden = withheld.Withheld(x) if kernel else None
    try:
        with ExitStack() as stack:
            stack.enter_context(_UnwrittenMemoryIsNaN())
            stack.enter_context(interpreter.watching(launches.append, addresses=True))
            for context in (hidden, sample.context(), changes, devices):
                stack.enter_context(context or nullcontext())
            counted = traffic.count(given, x)
    except BaseException as error:  # a SystemExit too is an answer that is wrong
        return failed(error)
    y = counted.result
    trial = Trial(
        kernels=counted.kernels,
        stores=counted.stores,
        loads=counted.loads,
        stored_by_kernels=sum(o.stores for o in counted.operations if o.is_kernel),
        eager=[o.name for o in counted.operations if not o.is_kernel and o.name not in _MOVES and o.loads],
        copied=sum(o.loads for o in counted.operations if not o.is_kernel),
        programs=max((math.prod(launch.grid) for launch in launches), default=0),
        tile=max([1, *(launch.tile for launch in launches)]),
        input_changed=not same(x, before) or changes.changed or (hidden is not None and hidden.changed),
        loaded=_accesses([address for launch in launches for address in launch.loaded], x),
        sampled=sample.taken,
        skipped=sample.skipped,
    )
    if y is None:
        trial.unwritten = not counted.operations
    _describe(trial, y, x)
    if trial.y is not None:
        trial.stored = _accesses([address for launch in launches for address in launch.stored], y)
        trial.device_forgotten = devices.forgotten(y)
        trial.elsewhere = hidden is not None and x.shape[1] > 1 and cases.is_right(hidden.decoy, trial.y)
        if sample.taken:
            trial.y[cases.ENDS : -cases.ENDS] = math.nan
        if x.numel() <= _TWICE and not trial.input_changed and not trial.shares_storage:
            trial.y = trial.y.clone()
            _call_again(trial, given, x, y, kernel)
    return trial


_TWICE = 1024
"""Elements up to which a tensor is given to an answer twice."""


def _with_block(fn: Callable[[torch.Tensor], Any], BLOCK: int | None) -> Callable[[torch.Tensor], Any]:
    """`fn` with this BLOCK, where it takes one."""
    try:
        takes_it = BLOCK is not None and "BLOCK" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        takes_it = False
    return functools.partial(fn, BLOCK=BLOCK) if takes_it else fn


def _call_again(
    trial: Trial, fn: Callable[[torch.Tensor], Any], x: torch.Tensor, y: torch.Tensor, kernel: bool
) -> None:
    """Calls fn(x) once more after x has got other numbers, and looks what has become of y."""
    x.copy_(cases.changed(x))
    try:
        hidden = withheld.Withheld(x) if kernel else nullcontext()
        with redirect_stdout(io.StringIO()), _UnwrittenMemoryIsNaN(), hidden:  # what it prints is known from the first
            again = fn(x)
    except BaseException as error:
        trial.again_raised = sentence(error)
        return
    if isinstance(again, torch.Tensor) and again.shape == x.shape:
        trial.again = again.detach().cpu().contiguous().to(x.dtype)
    trial.overwritten = not same(y.detach().cpu(), trial.y)


class _Sample:
    """The programs that are run for a tensor of many rows: those that take the rows at both ends of it."""

    _MOST_ROWS = 4000

    def __init__(self, x: torch.Tensor) -> None:
        self.rows = x.shape[0]
        self.taken = self.rows > cases.MANY
        self.skipped = False

    def context(self) -> Any:
        """The context of the call, or None where all programs run."""
        return interpreter.running_only(self._programs) if self.taken else None

    def _programs(self, grid: tuple[int, ...]) -> interpreter.Programs:
        """Of each axis the ends, and where a program takes every n-th row, those that take the last rows.

        None where each program takes so many rows that even these would last too long.
        """
        axes = [self._chosen(size) for size in (*grid, 1, 1)[:3]]
        programs = list(itertools.product(*axes))
        if len(programs) * self.rows > self._MOST_ROWS * math.prod(grid):
            self.skipped = True
            return []
        return programs

    def _chosen(self, size: int) -> list[int]:
        ends = range(cases.ENDS)
        chosen = {*ends, *(size - 1 - i for i in ends), *((self.rows - 1 - i) % size for i in ends if size)}
        return sorted(i for i in chosen if 0 <= i < size)


def softmax_on_gpu(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Trial:
    """Calls fn on a copy of x on the GPU, in this process, and says what came back."""
    given = _to_device(x)
    try:
        with _UnwrittenMemoryIsNaN():
            y = fn(given)
            torch.cuda.synchronize()
    except BaseException as error:
        return failed(error)
    trial = Trial(kernels=1, stored_by_kernels=1, input_changed=not same(given.cpu(), x))
    _describe(trial, y, given)
    return trial


def of_numbers(fn: Callable[..., Any], args: tuple) -> Trial:
    """Calls fn(*args), which is to return numbers, and says what came back."""
    try:
        got = fn(*args)
    except BaseException as error:
        return failed(error)
    trial = Trial(answer=_plain(got), unwritten=got is None, got_none=got is None)
    try:
        m, l = (float(value) for value in got)
        trial.pair = [m, l]
    except (TypeError, ValueError):
        trial.got = "None; is a return missing?" if got is None else repr(got)[:100]
    return trial


def number(value: Any) -> Any:
    """A number of torch or numpy as one of Python's own; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "dtype") else value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    value = number(value)
    return value if isinstance(value, bool | int | float | str | None) else repr(value)[:100]


def _describe(trial: Trial, y: object, x: torch.Tensor) -> None:
    if y is None:
        trial.got, trial.got_none = "None; is a return missing?", True
    elif not isinstance(y, torch.Tensor):
        trial.got = type(y).__name__
    elif y.shape != x.shape or y.dtype != x.dtype or y.device != x.device:
        where = "" if y.device == x.device else f" on {y.device}"
        trial.got, trial.got_shape = f"{tuple(y.shape)} {y.dtype}{where}", list(y.shape)
    else:
        trial.y = y.detach().cpu().contiguous()
        trial.shares_storage = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        trial.contiguous = y.is_contiguous()


_MOVES = {"clone", "copy_", "_to_copy", "fill_", "zero_", "full", "full_like", "zeros", "zeros_like", "contiguous"}


class _UnwrittenMemoryIsNaN(TorchDispatchMode):
    """Makes torch.empty and its like return NaN, so that a result never written cannot look right by accident."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_new = "empty" in func._schema.name and isinstance(result, torch.Tensor)
        return result.fill_(math.nan) if is_new and result.is_floating_point() else result


def _accesses(accesses: list[Any], tensor: torch.Tensor) -> torch.Tensor | None:
    """How often each element of a 2-D tensor is among the addresses; None where there are none."""
    if not sum(map(len, accesses)):
        return None if not accesses else torch.zeros(tensor.shape, dtype=torch.int64)
    seen, counts = torch.cat([torch.from_numpy(a.view("int64")) for a in accesses]).unique(return_counts=True)
    rows, cols = (torch.arange(size) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    own = tensor.data_ptr() + (rows[:, None] + cols) * tensor.element_size()
    found = torch.searchsorted(seen, own).clamp(max=len(seen) - 1)
    return torch.where(seen[found] == own, counts[found], 0)


def _to_device(x: torch.Tensor) -> torch.Tensor:
    """Copies x to the device with its strides, a gap between rows included."""
    base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE, copy=True)
    return torch.as_strided(base, x.shape, x.stride(), x.storage_offset())


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where two tensors are equal, NaN in the same places included."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0), b.nan_to_num(0))


def failed(error: BaseException) -> Trial:
    """The trial of a call that raised `error`."""
    if isinstance(error, NotImplementedError):
        return Trial(End.NOT_IMPLEMENTED, "not implemented", type(error).__name__, unwritten=True)
    cause = getattr(error, "cause", type(error))
    # torch's allocator on the CPU raises a plain RuntimeError.
    no_memory = issubclass(cause, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    access = getattr(error, "access", None)
    return Trial(
        End.OUT_OF_MEMORY if no_memory else End.RAISED,
        sentence(error),
        cause.__name__,
        outside=asdict(access) if isinstance(access, interpreter.Access) else {},
    )


def sentence(error: BaseException) -> str:
    """The type of an error and its message, in one line; of Triton's compiler the line of the kernel and the reason."""
    if hasattr(error, "node") and hasattr(error, "src"):
        return f"{type(error).__name__}: {reason(error)}"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
