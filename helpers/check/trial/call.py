"""The calls that a check makes of a function of tensors, in this process, under everything that watches it.

What a call showed is a Trial (trial.py); place.py decides in which process it is made. No right result is known here.
"""

from __future__ import annotations

import functools
import inspect
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from helpers import traffic
from helpers.check.problems.problem import (
    ENDS,
    MANY,
    Problem,
    flat_where_overlapping,
    places_of,
    reserved,
)
from helpers.check.trial import withheld
from helpers.check.trial.starter import instructions_of, returns_a_value
from helpers.check.trial.trial import Trial, describe, failed, keep_results, same, sentence
from helpers.engine import interpreter
from helpers.engine.compiler.verdict import launch_of
from helpers.engine.in_use import InUse
from helpers.engine.isolate import End
from helpers.engine.memory import Enough, Memory, Order, Programs, WaitsForLater, backwards, shuffled
from helpers.engine.modes import Mode
from helpers.engine.numbers import counted
from helpers.engine.runtime import DEVICE


def of_tensors(
    fn: Callable[..., Any],
    problem: Problem,
    withhold: bool = False,
    again: Callable[..., Any] | None = None,
) -> Trial:
    """Calls fn on the inputs of a problem in this process, counts its traffic, and reports the outcome.

    With `withhold`, the inputs have their numbers only where kernels and PyTorch's operations load them. Small problems
    are given to it twice, the second time to `again`, if that is another function.
    """
    x = problem.x
    flats = [flat_where_overlapping(one) for one in problem.inputs]
    before = [one.clone() for one in flats]
    overlaps = x.numel() > flats[0].numel()
    launches: list[interpreter.LaunchTraffic] = []
    given = with_options(fn, problem.options)
    sample, patience = Sample(x), Patience(len(x), launches)
    in_use = InUse(problem.inputs)
    changes, devices = withheld.OwnChanges(*problem.inputs), withheld.Devices(fn)
    hidden = withheld.Withheld(*(one for one in flats if one.is_floating_point())) if withhold else None
    try:
        with ExitStack() as stack:
            stack.enter_context(UnwrittenMemoryIsNaN())
            stack.enter_context(interpreter.watching(launches.append, addresses=True))
            asked = stack.enter_context(launches_to_compile())
            for context in (hidden, sample.context(), changes, devices, patience.context(), in_use):
                stack.enter_context(context or nullcontext())
            counted = traffic.count(given, *problem.inputs)
        devices.require(counted.result)
    except Enough:
        return Trial(kernels=1, stored_by_kernels=1, launches=asked, sampled=sample.taken, skipped=True)
    except BaseException as error:  # a SystemExit too is an answer that is wrong
        trial = failed(error, fn)
        if trial.end is End.OUT_OF_MEMORY and overlaps:
            return Trial(launches=asked, sampled=True, skipped=True)
        return trial
    # An integer for each row, such as a target, may be looked at by PyTorch too, a few times.
    of_integers = sum(max(one.loads, one.stores) for one in counted.operations if one.of_integers)
    free = of_integers <= _LOOKS * (1 + len(x))
    operations = [one for one in counted.operations if not (one.of_integers and free)]
    eager = [one for one in operations if not one.is_kernel]
    tickets = sum(_free_tickets(launch, problem) for launch in launches)
    trial = Trial(
        kernels=counted.kernels,
        stores=sum(one.stores for one in operations) - tickets,
        loads=sum(one.loads for one in operations) - tickets,
        stored_by_kernels=sum(one.stores for one in operations if one.is_kernel),
        eager=[one.name for one in eager if one.name not in MOVES and one.loads],
        copied=sum(one.loads for one in eager),
        joined=sorted(in_use.joined),
        most_bytes=in_use.most_bytes,
        programs=max((math.prod(launch.grid) for launch in launches), default=0),
        tile=max([1, *(launch.tile for launch in launches)]),
        input_changed=not all(map(same, flats, before)) or changes.changed or (hidden is not None and hidden.changed),
        race=next((launch.race for launch in launches if launch.race), ""),
        not_looked_at=next((launch.not_looked_at for launch in launches if launch.not_looked_at), ""),
        race_of_lanes=next((launch.race_of_lanes for launch in launches if launch.race_of_lanes), ""),
        launches=asked,
        sampled=sample.taken,
    )
    if counted.result is None:
        trial.unwritten, trial.code = not operations, instructions_of(fn)
        trial.returns_none = returns_a_value(fn)
    results = describe(trial, counted.result, problem)
    if sample.taken:
        if results:
            sample.look(trial, launches, x, _largest(results))
            keep_results(trial, results, problem, trial.rows)
        return trial
    trial.loaded = _accesses([address for launch in launches for address in launch.loaded], x)
    if trial.loaded is not None and (overlaps or 0 in x.stride()):  # each element is counted with all at its place
        trial.loaded //= x.numel() // places_of(x).unique().numel()
    if not results:
        return trial
    keep_results(trial, results, problem)
    trial.stored = _accesses([address for launch in launches for address in launch.stored], _largest(results))
    trial.moved = max((_moved(launch, (*problem.inputs, *results)) for launch in launches), key=len, default=[])
    trial.most_of_a_program = _most_of_a_program(launches, problem.inputs)
    trial.most_stored = max((_most_stored(launch, _largest(results)) for launch in launches), default=0)
    trial.left_unwritten = sum(map(unwritten, trial.results))
    if trial.programs > 1 and not trial.race and _is_reordered(problem.inputs):
        trial.reordered = _in_other_orders(given, problem, trial.results)
    if x.numel() <= TWICE and not trial.input_changed and not trial.shares_storage:
        _call_again(trial, again or given, problem, results, withhold)
    return trial


def _free_tickets(launch: interpreter.LaunchTraffic, problem: Problem) -> int:
    """Updates of counters, one for each program and row at most; a word of an input is no counter."""
    of_inputs = _within(np.array(launch.tickets, np.uint64), problem.inputs)
    return min(int((~of_inputs).sum()), math.prod(launch.grid) + len(problem.x))


def _moved(launch: interpreter.LaunchTraffic, own: Sequence[torch.Tensor]) -> list[int]:
    """Of each program that loads or stores something, how many elements of these tensors it loads and stores."""
    addresses = np.concatenate([np.array([], np.uint64), *launch.loaded, *launch.stored])
    turns = _turns([*launch.loaders, *launch.storers], [*launch.loaded, *launch.stored])
    return np.bincount(turns, weights=_within(addresses, own))[np.unique(turns)].astype(int).tolist()


def _most_stored(launch: interpreter.LaunchTraffic, y: torch.Tensor) -> int:
    """The most elements of y that one program stores."""
    addresses = np.concatenate([np.array([], np.uint64), *launch.stored])
    return int(np.bincount(_turns(launch.storers, launch.stored), weights=_within(addresses, [y]), minlength=1).max())


def _turns(turns: list[int], accesses: Sequence[np.ndarray]) -> np.ndarray:
    """For each address of these accesses, the turn of the program that has it."""
    return np.repeat(np.array(turns, int), list(map(len, accesses)))


def _within(addresses: np.ndarray, tensors: Sequence[torch.Tensor]) -> np.ndarray:
    """Which of these addresses lie in one of the tensors."""
    within = np.zeros(len(addresses), bool)
    for one in tensors:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(one.shape, one.stride(), strict=True))
        first, last = one.data_ptr(), one.data_ptr() + (reach * one.element_size() if one.numel() else 0)
        within |= (first <= addresses) & (addresses < last)
    return within


def _largest(results: Sequence[torch.Tensor]) -> torch.Tensor:
    """The largest result, the last of several, with a row at least for each number."""
    y = max(reversed(results), key=torch.numel)
    return y[:, None] if y.dim() == 1 else y


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


_LOOKS = 32
"""How often PyTorch may look at an integer for each row."""

TWICE = 1024
"""Elements up to which a tensor is given to an answer twice."""


def with_options(fn: Callable[..., Any], options: Mapping[str, int]) -> Callable[..., Any]:
    """`fn` with the options that it takes by name."""
    try:
        takes = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return fn
    taken = {name: value for name, value in options.items() if name in takes}
    return functools.partial(fn, **taken) if taken else fn


def _call_again(
    trial: Trial, fn: Callable[..., Any], problem: Problem, first: Sequence[torch.Tensor], withhold: bool
) -> None:
    """Calls fn once more after an input has got other numbers, and looks at what the first call returned again."""
    problem.turn()
    floating = [one for one in problem.inputs if one.is_floating_point()]
    hidden = withheld.Withheld(*map(flat_where_overlapping, floating)) if withhold else nullcontext()
    try:
        with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN(), hidden:  # what it prints is known from the first
            found = fn(*problem.inputs)
    except BaseException as error:
        trial.again_raised = sentence(error)
        return
    trial.again = [y.detach().cpu().contiguous().clone() for y in describe(Trial(), found, problem)]
    trial.overwritten = not all(map(same, (y.detach().cpu() for y in first), trial.results))


class Patience:
    """Ends a call that takes very long, if it comes nearer to its end: slow is not endless.

    It does if each program ends after about the number of accesses that others have made, in no more launches than
    there are rows, or if every access finds elements that none has found before. A call that does neither goes on until
    its time is over.
    """

    MOST_ACCESSES, MOST_OF_A_PROGRAM = 11_000, 6000
    """Of few rows: tiles of 16 reach the end of a row of 16,384, and 70 slices that each merge all pairs theirs."""
    MOST_OF_MANY_ROWS, MOST_LAUNCHES = 4000, 100

    def __init__(self, rows: int, launches: list[interpreter.LaunchTraffic]) -> None:
        self.rows, self.launches = rows, launches
        self.accesses, self.next = 0, self.MOST_OF_MANY_ROWS

    @contextmanager
    def context(self) -> Iterator[None]:
        """The context of the call."""
        with interpreter.before_each_interpreted(self._launching), interpreter.after_each_access(self._accessed):
            yield

    def _launching(self, *launch: Any) -> None:
        if self.rows > MANY and len(self.launches) >= self.MOST_LAUNCHES:
            raise Enough

    def _accessed(self, memory: Memory) -> None:
        self.accesses += 1
        if self.accesses >= self.next:
            self.next += self.MOST_OF_MANY_ROWS // 4
            long = self.accesses >= self.MOST_ACCESSES or memory.accesses >= self.MOST_OF_A_PROGRAM
            if (long or self.rows > MANY) and self._nears_its_end(memory):
                raise Enough

    def _nears_its_end(self, memory: Memory) -> bool:
        ended = memory.accesses_of
        if len(self.launches) <= self.rows + 4 and len(ended) >= 3 and memory.accesses <= 4 * max(ended):
            return True
        parts = [part for launch in (*self.launches, memory.launch) for part in (*launch.loaded, *launch.stored)]
        found = np.sort(np.concatenate(parts))  # np.unique of millions takes ten times as long
        return 1 + int((found[1:] != found[:-1]).sum()) >= self.accesses


def _most_of_a_program(launches: Sequence[interpreter.LaunchTraffic], inputs: Sequence[torch.Tensor]) -> float:
    """Of the loads of the inputs, the share of the program that loads most: loads of other memory share nothing."""
    loads = [0.0]
    for launch in launches:
        addresses = np.concatenate([np.array([], np.uint64), *launch.loaded])
        loads += np.bincount(_turns(launch.loaders, launch.loaded), weights=_within(addresses, inputs)).tolist()
    return max(loads) / sum(loads) if any(loads) else 1.0


class Sample:
    """The programs that are run for a tensor of many rows: of each axis of the grid the ends, and a few between.

    Which rows they take is seen, and not assumed. It tells also how many rows all programs can take at most.
    """

    def __init__(self, x: torch.Tensor) -> None:
        self.rows = x.shape[0]
        self.taken = self.rows > MANY

    def context(self) -> Any:
        """The context of the call, or None where all programs run."""
        return interpreter.running_only(self._programs, _holds_unwritten) if self.taken else None

    def _programs(self, grid: tuple[int, ...]) -> Programs:
        """Where a program takes every n-th row, the programs of the last rows are among them."""
        return list(itertools.product(*map(self._chosen, (*grid, 1, 1)[:3])))

    def _chosen(self, size: int) -> list[int]:
        ends = range(ENDS)
        last = ((self.rows - 1 - i) % size for i in ends if size)
        chosen = {*ends, *(size - 1 - i for i in ends), *last, size // 2, size // 3}
        return sorted(i for i in chosen if 0 <= i < size)

    def look(self, trial: Trial, launches: list[interpreter.LaunchTraffic], x: torch.Tensor, y: torch.Tensor) -> None:
        """Puts into `trial` which rows of y count, and whether all programs of the grids can have stored every row."""
        stored, unfounded, others, most = [_places([], y)], [_places([], y)], 0, 0
        for launch in launches:
            places = [_places(addresses, y) for addresses in launch.stored]
            stored += places
            unfounded += [part for part, turn in zip(places, launch.storers, strict=True) if turn in launch.unfounded]
            by_turn = np.bincount(np.array(launch.storers, int), weights=list(map(len, places)), minlength=1)
            most = max(most, int(by_turn.max()))
            others += int(by_turn.max()) * (math.prod(launch.grid) - len(launch.loads_of))
        trial.of_rows = self.rows
        known = np.unique(np.concatenate(stored))
        rows = np.setdiff1d(_rows_of(known, y), _rows_of(np.concatenate(unfounded), y))
        trial.rows = rows[rows < len(y)].tolist()  # the rows of a result that is the input may overlap
        trial.skipped = bool(trial.stored_by_kernels) and not trial.rows
        trial.loaded, trial.stored = (
            _accesses([one for launch in launches for one in getattr(launch, of)], tensor, trial.rows)
            for of, tensor in (("loaded", x), ("stored", y))
        )
        if 0 < len(known) + others < y.numel():
            programs = f"{counted(sum(math.prod(launch.grid) for launch in launches), 'program')}"
            rows = counted(math.ceil(most / y.shape[1]), "row")
            trial.missing = f"{programs}, of which none that was run stores more than {rows}, for {self.rows:,} rows"


def _places(addresses: np.ndarray, y: torch.Tensor) -> np.ndarray:
    """The numbers of the elements of y that are among these addresses, counted in memory from its first one on."""
    places = (np.asarray(addresses, np.uint64).view(np.int64) - y.data_ptr()) // y.element_size()
    return places[(places >= 0) & (places < y.numel())]


def _rows_of(places: np.ndarray, y: torch.Tensor) -> np.ndarray:
    """The rows of a dense y in which these elements lie, each once."""
    row, col = y.stride()
    return np.unique(places // row if row >= col else places % col // row)


def _holds_unwritten(values: np.ndarray) -> bool:
    """Whether one of these values is what UnwrittenMemoryIsNaN has put there."""
    bits = {2: (_UNWRITTEN[torch.bfloat16][1], _UNWRITTEN[torch.float16][1]), 4: (_UNWRITTEN[torch.float32][1],)}
    expected = bits.get(values.itemsize, ())
    return bool(expected) and bool(np.isin(np.ascontiguousarray(values).view(f"u{values.itemsize}"), expected).any())


def _is_reordered(inputs: Sequence[torch.Tensor]) -> bool:
    """Small inputs with several rows, or rows of several slices: repeated in two more orders, they cost little.

    Inputs in 16 bits, or with strides of their own, test just that; they are not repeated.
    """
    x = inputs[0]
    if x.dtype.itemsize == 2 or not all(one.is_contiguous() for one in inputs):
        return False
    columns = x.shape[-1]
    rows = x.numel() // max(1, columns)
    return x.numel() <= 2400 and (5 <= rows <= 20 or (rows >= 2 and columns > 1024))


def _in_other_orders(fn: Callable[..., Any], problem: Problem, first: Sequence[torch.Tensor]) -> str:
    """What becomes another, or which programs race, if the programs of a call run in another order; "" if nothing does.

    Nothing is said of an order in which one program would wait for a later one, nor of a function that returns
    something else when it is called again, in whatever order.
    """
    for order, words in ((backwards, "from the last to the first"), (shuffled, "in an order without a rule")):
        changes, race = _again(fn, problem, first, order)
        if race:
            return race
        if changes and not _again(fn, problem, first, None)[0]:
            return f"if programs run {words}, {changes}"
    return ""


def _again(
    fn: Callable[..., Any], problem: Problem, first: Sequence[torch.Tensor], order: Order | None
) -> tuple[str, str]:
    """How a call whose programs run in this order differs from the first, and which of them race."""
    launches: list[interpreter.LaunchTraffic] = []
    watched = interpreter.watching(launches.append, addresses=True, order=order)
    try:
        with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN(), watched:
            found = fn(*problem.inputs)
    except BaseException as error:
        return "" if getattr(error, "cause", None) is WaitsForLater else sentence(error), ""
    results = [y.cpu() for y in describe(Trial(), found, problem)]
    agrees = bool(results) and all(map(_is_near, results, first))
    return "" if agrees else "the result is another", next((launch.race for launch in launches if launch.race), "")


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two results are the same but for rounding: sums may be taken in another order."""
    rtol = 1e-2 if one.dtype.itemsize == 2 else 1e-4
    return torch.allclose(one, other, rtol=rtol, atol=1e-6, equal_nan=True)


def on_gpu(fn: Callable[..., Any], problem: Problem) -> Trial:
    """Calls fn on the inputs of a problem on the GPU, in this process, and says what came back."""
    there = replace(problem, inputs=tuple(map(to_device, problem.inputs)))
    given = with_options(fn, problem.options)
    try:
        with UnwrittenMemoryIsNaN():
            returned = given(*there.inputs)
            torch.cuda.synchronize()
    except BaseException as error:
        return failed(error, fn)
    changes = not all(same(one.cpu(), own) for one, own in zip(there.inputs, problem.inputs, strict=True))
    trial = Trial(kernels=1, stored_by_kernels=1, input_changed=changes)
    if results := describe(trial, returned, there):
        keep_results(trial, results, there)
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
    not even where NaN is right.

    For a tensor too large for that, memory is only reserved, and holds zeros; no operation of PyTorch may write to it.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        large = reserved_for(func, args, kwargs)
        if large is not None:
            return large
        if func._schema.is_mutable and not interpreter.in_launch() and any(map(_is_large, args)):
            raise MemoryError(f"{func._schema.name} would write to more than {_FILLED:,} bytes")
        result = func(*args, **kwargs)
        if "empty" in func._schema.name and isinstance(result, torch.Tensor) and result.dtype in _UNWRITTEN:
            integers, bits = _UNWRITTEN[result.dtype]
            result.view(integers).fill_(bits)
        return result


def reserved_for(func: Any, args: tuple, kwargs: dict[str, Any]) -> torch.Tensor | None:
    """For a call of torch.empty, torch.zeros or their like, a tensor of zeros in reserved memory, if it is very large.

    None for any other call.
    """
    if not _allocates(func) or not _is_on_cpu(*args, kwargs.get("device")):
        return None
    planned = func(*args, **{**kwargs, "device": "meta"})
    if not _is_large(planned):
        return None
    return reserved(planned.numel(), planned.dtype).as_strided(planned.shape, planned.stride())


@functools.cache
def _allocates(func: Any) -> bool:
    """Whether this is torch.empty, torch.zeros, or one of their like."""
    named = any(name in func._schema.name for name in ("empty", "zeros"))
    return named and any(argument.name == "device" for argument in func._schema.arguments)


def _is_on_cpu(*devices: Any) -> bool:
    """Whether none of these, tensors and devices among them, is on or names another device."""
    named = [one.device if isinstance(one, torch.Tensor) else one for one in devices]
    return all(one.type == "cpu" for one in named if isinstance(one, torch.device))


def _is_large(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.nbytes > _FILLED


_FILLED = 1 << 28
"""Bytes of the largest tensor that is filled."""


def unwritten(y: torch.Tensor) -> int:
    """How many elements of y hold what memory held that nobody has written."""
    integers, bits = _UNWRITTEN.get(y.dtype, (None, 0))
    return int((y.view(integers) == bits).sum()) if integers else 0


def _accesses(accesses: list[Any], tensor: torch.Tensor, only: Sequence[int] | None = None) -> torch.Tensor | None:
    """How often each element of a tensor, or of its rows `only`, is among the addresses; None without addresses."""
    own = places_of(tensor, only)
    if not sum(map(len, accesses)) or not own.numel():
        return None if not accesses else torch.zeros_like(own)
    addresses = torch.cat([torch.from_numpy(one.view("int64")) for one in accesses])
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
    """x on the device, with its strides, a gap between rows included."""
    if x.device.type == DEVICE.type:
        return x
    base = torch.as_strided(x, (x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).to(DEVICE, copy=True)
    return torch.as_strided(base, x.shape, x.stride(), x.storage_offset())
