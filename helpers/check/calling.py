"""The calls that a check makes of a softmax, in this process, under everything that watches it.

What a call showed is a Trial (trial.py); in which process it is made, place.py decides.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from typing import Any

import torch

from helpers import traffic
from helpers.check import cases, withheld
from helpers.check.starter import instructions_of, returns_a_value
from helpers.check.trial import Trial, describe, failed, same, sentence
from helpers.engine import interpreter
from helpers.engine.memory import Order, Programs, WaitsForLater, backwards, shuffled
from helpers.engine.modes import Mode
from helpers.engine.runtime import DEVICE
from helpers.xray.verdict import launch_of


def of_softmax(
    fn: Callable[[torch.Tensor], Any],
    x: torch.Tensor,
    kernel: bool = False,
    BLOCK: int | None = None,
    again: Callable[[torch.Tensor], Any] | None = None,
) -> Trial:
    """Calls fn(x) in this process, counts its traffic, and reports the outcome; small tensors are given to it twice.

    With `kernel`, x has its numbers only where kernels and PyTorch's operations load it. `BLOCK` is passed on to a
    driver that takes one. The second call is one of `again`, where that is another function.
    """
    before = x.clone()
    launches: list[interpreter.LaunchTraffic] = []
    given = with_block(fn, BLOCK)
    sample = _Sample(x)
    changes, devices = withheld.OwnChanges(x), withheld.Devices(fn)
    hidden = withheld.Withheld(x) if kernel else None
    try:
        with ExitStack() as stack:
            stack.enter_context(UnwrittenMemoryIsNaN())
            stack.enter_context(interpreter.watching(launches.append, addresses=True))
            asked = stack.enter_context(launches_to_compile())
            for context in (hidden, sample.context(), changes, devices):
                stack.enter_context(context or nullcontext())
            counted = traffic.count(given, x)
        devices.require(counted.result)
    except BaseException as error:  # a SystemExit too is an answer that is wrong
        return failed(error, fn)
    y = counted.result
    tickets = sum(min(launch.tickets, math.prod(launch.grid) + x.shape[0]) for launch in launches)
    trial = Trial(
        kernels=counted.kernels,
        stores=counted.stores - tickets,
        loads=counted.loads - tickets,
        stored_by_kernels=sum(o.stores for o in counted.operations if o.is_kernel),
        eager=[o.name for o in counted.operations if not o.is_kernel and o.name not in MOVES and o.loads],
        copied=sum(o.loads for o in counted.operations if not o.is_kernel),
        programs=max((math.prod(launch.grid) for launch in launches), default=0),
        tile=max([1, *(launch.tile for launch in launches)]),
        input_changed=not same(x, before) or changes.changed or (hidden is not None and hidden.changed),
        loaded=_accesses([address for launch in launches for address in launch.loaded], x),
        race=next((launch.race for launch in launches if launch.race), ""),
        launches=asked,
        sampled=sample.taken,
        skipped=sample.skipped,
    )
    if y is None:
        trial.unwritten, trial.code = not counted.operations, instructions_of(fn)
        trial.returns_none = returns_a_value(fn)
    describe(trial, y, x)
    if trial.y is not None:
        trial.stored = _accesses([address for launch in launches for address in launch.stored], y)
        trial.left_unwritten = _unwritten(trial.y)
        trial.elsewhere = hidden is not None and x.shape[1] > 1 and cases.is_right(hidden.decoy, trial.y)
        if sample.taken:
            trial.left_unwritten = 0
            trial.y[cases.ENDS : -cases.ENDS] = math.nan
        if (
            trial.programs > 1
            and not sample.taken
            and not trial.race
            and _is_reordered(x)
            and cases.is_right(x, trial.y)
        ):
            trial.race = _in_other_orders(given, x)
        if x.numel() <= TWICE and not trial.input_changed and not trial.shares_storage:
            trial.y = trial.y.clone()
            _call_again(trial, again or given, x, y, kernel)
    return trial


@contextmanager
def launches_to_compile() -> Iterator[list[dict[str, Any]]]:
    """What a compiler is to be asked about the launches in the block that are interpreted, each once (`launch_of`)."""
    asked: list[dict[str, Any]] = []

    def look(kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        launch = launch_of(kernel, args, kwargs)
        if launch not in asked:
            asked.append(launch)

    with interpreter.before_each_interpreted(look):
        yield asked


TWICE = 1024
"""Elements up to which a tensor is given to an answer twice."""


def with_block(fn: Callable[[torch.Tensor], Any], BLOCK: int | None) -> Callable[[torch.Tensor], Any]:
    """`fn` with this BLOCK, where it takes one."""
    try:
        takes_it = BLOCK is not None and "BLOCK" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        takes_it = False
    return functools.partial(fn, BLOCK=BLOCK) if takes_it else fn


def _call_again(
    trial: Trial, fn: Callable[[torch.Tensor], Any], x: torch.Tensor, y: torch.Tensor, kernel: bool
) -> None:
    """Calls fn(x) once more after x has got other numbers, and looks at y again."""
    x.copy_(cases.changed(x))
    try:
        hidden = withheld.Withheld(x) if kernel else nullcontext()
        with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN(), hidden:  # what it prints is known from the first
            again = fn(x)
    except BaseException as error:
        trial.again_raised = sentence(error)
        return
    if isinstance(again, torch.Tensor) and again.shape == x.shape:
        trial.again = again.detach().cpu().contiguous().to(x.dtype)
    trial.overwritten = not same(y.detach().cpu(), trial.y)


class _Sample:
    """The programs that are run for a tensor of many rows: they take the rows at both ends of it."""

    _MOST_ROWS = 4000

    def __init__(self, x: torch.Tensor) -> None:
        self.rows = x.shape[0]
        self.taken = self.rows > cases.MANY
        self.skipped = False

    def context(self) -> Any:
        """The context of the call, or None where all programs run."""
        return interpreter.running_only(self._programs) if self.taken else None

    def _programs(self, grid: tuple[int, ...]) -> Programs:
        """Of each axis the ends, and where a program takes every n-th row, the programs of the last rows.

        None where each program takes too many rows for even these.
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


def _is_reordered(x: torch.Tensor) -> bool:
    """Small inputs with several rows, or rows of several slices: repeated in two more orders, they cost little."""
    rows, columns = x.shape
    return x.numel() <= 2400 and (rows >= 5 or (rows >= 2 and columns > 1024))


def _in_other_orders(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> str:
    """What goes wrong, or which programs race, where the programs of fn(x) run in another order; "" if nothing does.

    Nothing is said of an order in which one program would wait for a later one, nor of a function that goes wrong when
    it is called again, in whatever order.
    """
    for order, words in ((backwards, "from the last to the first"), (shuffled, "in an order without a rule")):
        wrong, race = _again(fn, x, order)
        if race:
            return race
        if wrong and not _again(fn, x, None)[0]:
            return f"where programs run {words}, {wrong}"
    return ""


def _again(fn: Callable[[torch.Tensor], Any], x: torch.Tensor, order: Order | None) -> tuple[str, str]:
    """The fault of fn(x) where programs run in this order, and which of them race."""
    launches: list[interpreter.LaunchTraffic] = []
    watched = interpreter.watching(launches.append, addresses=True, order=order)
    try:
        with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN(), watched:
            y = fn(x)
    except BaseException as error:
        return "" if getattr(error, "cause", None) is WaitsForLater else sentence(error), ""
    right = isinstance(y, torch.Tensor) and y.shape == x.shape and cases.is_right(x, y)
    return "" if right else "the result is wrong", next((launch.race for launch in launches if launch.race), "")


def softmax_on_gpu(fn: Callable[[torch.Tensor], Any], makers: Mapping[str, cases.Make], seed: int, case: str) -> Trial:
    """Calls fn on the input of a case on the GPU, in this process, and says what came back."""
    x = cases.draw(makers, seed)[case]
    given = to_device(x)
    try:
        with UnwrittenMemoryIsNaN():
            y = fn(given)
            torch.cuda.synchronize()
    except BaseException as error:
        return failed(error, fn)
    trial = Trial(kernels=1, stored_by_kernels=1, input_changed=not same(given.cpu(), x))
    describe(trial, y, given)
    return trial


MOVES = {"clone", "copy_", "_to_copy", "fill_", "contiguous"}
"""Operations of PyTorch that read a tensor and compute nothing."""


_UNWRITTEN = {
    torch.float64: (torch.int64, 0x7FF8_0000_5EED_5EED),
    torch.float32: (torch.int32, 0x7FC0_5EED),
    torch.bfloat16: (torch.int16, 0x7FCE),
    torch.float16: (torch.int16, 0x7E5E),
}
"""The bits of a NaN that no arithmetic makes, by dtype, and the integer dtype of the same width."""


class UnwrittenMemoryIsNaN(Mode):
    """Makes torch.empty and its like return a NaN of their own: unwritten elements cannot look right by accident,
    not even where NaN is right."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "empty" in func._schema.name and isinstance(result, torch.Tensor) and result.dtype in _UNWRITTEN:
            integers, bits = _UNWRITTEN[result.dtype]
            result.view(integers).fill_(bits)
        return result


def _unwritten(y: torch.Tensor) -> int:
    """How many elements of y hold what memory held that nobody has written."""
    integers, bits = _UNWRITTEN.get(y.dtype, (None, 0))
    return int((y.view(integers) == bits).sum()) if integers else 0


def _accesses(accesses: list[Any], tensor: torch.Tensor) -> torch.Tensor | None:
    """How often each element of a 2-D tensor is among the addresses; None where there are none."""
    if not sum(map(len, accesses)):
        return None if not accesses else torch.zeros(tensor.shape, dtype=torch.int64)
    addresses = torch.cat([torch.from_numpy(one.view("int64")) for one in accesses])
    rows, cols = (torch.arange(size) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    own = rows[:, None] + cols
    at = (addresses - tensor.data_ptr()).div(tensor.element_size(), rounding_mode="floor")
    reach = int(own.max()) + 1
    if reach <= _COUNTED:
        return torch.bincount(at[(at >= 0) & (at < reach)], minlength=reach)[own]
    seen, counts = at.unique(return_counts=True)
    found = torch.searchsorted(seen, own).clamp(max=len(seen) - 1)
    return torch.where(seen[found] == own, counts[found], 0)


_COUNTED = 1 << 22
"""Elements, gaps included, up to which there is a counter for each; of larger tensors only those touched have one."""


def to_device(x: torch.Tensor) -> torch.Tensor:
    """Copies x to the device with its strides, a gap between rows included."""
    base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE, copy=True)
    return torch.as_strided(base, x.shape, x.stride(), x.storage_offset())
