"""Counts the elements that a computation loads from memory and stores to it, with or without a GPU.

Kernels are seen by the interpreter (engine/interpreter.py), lane by lane, and counted exactly; with a GPU each launch
is first run again, interpreted, in a child process, where programs run in turn: if one waits for others, these begin
meanwhile, as far as there are places (engine/memory.py). Eager PyTorch operations are seen by a dispatch mode, from
outside: each reads its tensor arguments and writes its results at least once, and only once where it is elementwise or
a sum; what it picks by an index is not counted.
"""

from __future__ import annotations

import functools
import io
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from helpers.engine import child, compiled, interpreter, kernel_text
from helpers.engine.in_use import OF_SHAPE, OVERWRITES, InUse, touches_once
from helpers.engine.memory import OutOfBounds
from helpers.engine.modes import Mode
from helpers.engine.runtime import DEVICE, INTERPRETED
from helpers.engine.shadowing import carried
from helpers.table import Table, Tabular

__all__ = ["Operation", "OutOfBounds", "Traffic", "count", "most_bytes"]


@dataclass(frozen=True)
class Operation:
    """One eager operation or one kernel launch: what it loads and stores, in elements and in bytes."""

    name: str
    loads: int
    stores: int
    bytes: int
    is_kernel: bool = False
    of_integers: bool = False
    """Whatever it loads and stores is an integer or a truth value."""
    at_least: bool = False
    """PyTorch's own kernels may load and store more inside, as where torch.softmax reads a long row several times."""


@dataclass(frozen=True, repr=False)
class Traffic(Tabular):
    """The traffic that `count` saw. `elements` is the size of the first tensor argument, `result` is fn's own."""

    operations: tuple[Operation, ...]
    elements: int
    result: Any = None

    @property
    def loads(self) -> int:
        """Elements loaded, over all operations."""
        return sum(operation.loads for operation in self.operations)

    @property
    def stores(self) -> int:
        """Elements stored, over all operations."""
        return sum(operation.stores for operation in self.operations)

    @property
    def bytes(self) -> int:
        """Bytes loaded and stored, over all operations."""
        return sum(operation.bytes for operation in self.operations)

    @property
    def launches(self) -> int:
        """Operations that launch at least one kernel on a GPU."""
        return len(self.operations)

    @property
    def kernels(self) -> int:
        """Launches of Triton kernels among them."""
        return sum(operation.is_kernel for operation in self.operations)

    @property
    def at_least(self) -> bool:
        """Whether one of the operations may have loaded or stored more than is counted."""
        return any(operation.at_least for operation in self.operations)

    @property
    def loads_per_element(self) -> float:
        """Loads divided by the elements of the input."""
        return self.loads / self.elements if self.elements else 0.0

    @property
    def stores_per_element(self) -> float:
        """Stores divided by the elements of the input."""
        return self.stores / self.elements if self.elements else 0.0

    def table(self) -> Table:
        """One line per operation, and their sum; "at least" stands where an operation may have done more."""

        def row(name: str, of: Operation | Traffic) -> list[str]:
            per = self.elements or 1
            name += ", at least" if of.at_least else ""
            return [name, f"{of.loads:,}", f"{of.stores:,}", f"{of.loads / per:.2f}", f"{of.stores / per:.2f}"]

        rows = [row(operation.name, operation) for operation in self.operations]
        head = ["operation", "loads", "stores", "loads per element", "stores per element"]
        return Table(head, [*rows, row("together", self)])


def count(fn: Callable[..., Any], *args: Any) -> Traffic:
    """Runs `fn(*args)` once and returns its memory traffic, operation by operation.

    Kernels are counted exactly; what PyTorch's operations do inside is not seen (see Operation.at_least).
    The first tensor among `args` gives the number of elements that "per element" refers to. A view (transpose, slice,
    expand) moves nothing. Raises OutOfBounds where a kernel leaves its tensor, before the access; TypeError where `fn`
    is not a function, such as the result of one; ValueError where no argument is a tensor.
    """
    if not callable(fn):
        raise TypeError(
            "traffic.count takes the function itself and its arguments, as in traffic.count(softmax, x); "
            f"got a {type(fn).__name__}."
        )
    first = next((arg for arg in args if isinstance(arg, torch.Tensor)), None)
    if first is None:
        raise ValueError("traffic.count(fn, *args) needs a tensor among args: counts are given per element of it.")
    if INTERPRETED:
        self_test()
    return _count(fn, args, first.numel())


def most_bytes(fn: Callable[..., Any], *args: Any) -> int:
    """The most bytes in use at once of what PyTorch's operations make while `fn(*args)` runs, with or without a GPU.

    A tensor is in use from the operation that makes it to the last one that takes it; `args` are not counted.
    """
    with InUse() as in_use:
        fn(*args)
    return in_use.most_bytes


def _count(fn: Callable[..., Any], args: tuple, elements: int) -> Traffic:
    counter = _Counter()
    with interpreter.watching(counter.add_launch) if INTERPRETED else _kernels_replayed(counter), counter:
        result = fn(*args)
    return Traffic(tuple(counter.operations), elements, result)


@triton.jit
def _self_test_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    """Copies a row of N columns, in a tile of BLOCK lanes."""
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + cols, mask=cols < N)
    tl.store(y_ptr + tl.program_id(0) * N + cols, x, mask=cols < N)


@triton.jit
def _self_test_of_sums(y_ptr, x_ptr, BLOCK: tl.constexpr):
    """Sums a tile of BLOCK lanes."""
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), axis=0))


@functools.cache
def self_test() -> None:
    """Raises RuntimeError unless a copy kernel counts exactly one load and one store per element, and a tile of
    bfloat16 is summed as numbers.

    Run once, before the first count, in the process that interprets.
    """
    x = torch.zeros(3, 5, device=DEVICE)
    traffic = _count(_self_test_kernel[(3,)], (torch.empty_like(x), x, 5, 8), 15)
    if (traffic.loads, traffic.stores) != (15, 15):
        raise RuntimeError(
            f"a copy of 15 elements was counted as {traffic.loads} loads and {traffic.stores} stores: "
            "this version of Triton has moved what helpers/engine/interpreter.py watches."
        )
    x = torch.tensor([-3.0, 2.5, -1.0, 4.0], dtype=torch.bfloat16, device=DEVICE)
    found = torch.empty_like(x[0])
    _self_test_of_sums[(1,)](found, x, 4)
    if found != 2.5:
        raise RuntimeError(
            f"a tile of bfloat16 whose sum is 2.5 was summed as {found:g}: "
            "this version of Triton has moved what helpers/engine/arithmetic.py replaces."
        )


_MOVES_NOTHING = {
    "_unsafe_view",  # what `reshape` makes of its copy
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "set_",
    "resize_",
    "record_stream",
}


_PICKS = {"nll_loss_forward": 0, "nll_loss_backward": 1, "gather": 0}
"""Operations that take one number for each index from a tensor, or none, and its place among their tensors."""
_ADD_PRODUCTS = {"addmm", "baddbmm"}
"""Operations that add a product to their result, which is first a copy of the other term, if that lies elsewhere."""


def _stored_elements(tensor: torch.Tensor) -> int:
    """Elements that `tensor` really has in memory: an expanded dimension (stride 0) repeats one of them."""
    return math.prod(
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0 or size == 0
    )


def _is_elsewhere(term: torch.Tensor, result: torch.Tensor) -> bool:
    return term.shape == result.shape and term.data_ptr() != result.data_ptr()


class _Counter(Mode):
    """Receives eager operations by itself, and kernels from the interpreter, in this process or in a child."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.paused = False

    def add_launch(self, launch: interpreter.LaunchTraffic) -> None:
        moved = launch.bytes_loaded + launch.bytes_stored
        self.operations.append(Operation(launch.kernel, launch.loads, launch.stores, moved, is_kernel=True))

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if self.paused or interpreter.in_launch() or is_view or name in _MOVES_NOTHING:
            return result
        outs = {a.name for a in func._schema.arguments if a.is_out}
        inputs = _tensors((args, {key: value for key, value in (kwargs or {}).items() if key not in outs}))
        if name in OVERWRITES:
            inputs = inputs[1:]
        if name in OF_SHAPE:
            inputs = []
        outputs = _tensors(result)
        if name in _PICKS:
            inputs = [t for number, t in enumerate(inputs) if number != _PICKS[name]]
        if name in _ADD_PRODUCTS and _is_elsewhere(inputs[0], outputs[0]):
            inputs, outputs = [*inputs, outputs[0]], [*outputs, outputs[0]]
        reads = sum(_stored_elements(t) for t in inputs)
        writes = sum(_stored_elements(t) for t in outputs)
        size = sum(_stored_elements(t) * t.element_size() for t in (*inputs, *outputs))
        if reads or writes:
            of_integers = not any(t.is_floating_point() or t.is_complex() for t in (*inputs, *outputs))
            self.operations.append(
                Operation(name, reads, writes, size, of_integers=of_integers, at_least=not touches_once(func))
            )
        return result


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []


@contextmanager
def _kernels_replayed(counter: _Counter) -> Iterator[None]:
    """Before each launch on the GPU, runs the same launch interpreted in a child process and counts that one."""

    def replay(kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        counter.paused = True
        try:
            counter.add_launch(_replay_in_child(kernel, args, grid, kwargs))
        finally:
            counter.paused = False

    with compiled.before_each_launch(replay):
        yield


def _replay_in_child(kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> interpreter.LaunchTraffic:
    arguments = interpreter.bind(kernel, args, kwargs)
    grid = interpreter.resolve_grid(grid, arguments)
    module, name = kernel.fn.__module__, kernel.fn.__name__
    if getattr(sys.modules.get(module), name, None) is kernel and module.startswith("helpers."):
        # Imported there, it knows that it is interpreted. Programs run in turn, so that looking again finds nothing.
        text = f"from {module} import {name}"
        arguments |= {"looks": 0} if "looks" in arguments else {}
    else:
        text = kernel_text.source(kernel)
    payload = io.BytesIO()
    torch.save({carried(name): _to_cpu(value) for name, value in arguments.items()}, payload)
    return child.call(_replay, text, name, grid, payload.getvalue(), interpret=True)


def _to_cpu(value: Any) -> Any:
    """A copy of a tensor's elements on the CPU, with its strides and its gaps."""
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage().cpu()
    return torch.empty(0, dtype=value.dtype).set_(storage, value.storage_offset(), value.shape, value.stride())


def _replay(text: str, name: str, grid: tuple[int, ...], payload: bytes) -> interpreter.LaunchTraffic:
    """Runs in the child: one interpreted launch."""
    self_test()
    kernel = kernel_text.load(text, name)
    arguments = torch.load(io.BytesIO(payload), weights_only=False)
    launches: list[interpreter.LaunchTraffic] = []
    with interpreter.watching(launches.append):
        kernel[grid](**arguments)
    return launches[-1]
