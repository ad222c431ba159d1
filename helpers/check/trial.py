"""Tries a function on the cases of a check, each time out of reach of the notebook, and says what was seen.

Without a GPU every case runs in a forked child. Beside a GPU the function is sent to a process of its own that
interprets kernels, which forks in the same way; what is right there then runs on the GPU, in a third process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from helpers import interpreter, traffic
from helpers.check import cases, isolate
from helpers.runtime import DEVICE


@dataclass
class Trial:
    """What one call showed. Tensors are on the CPU."""

    raised: str = ""
    """The error in one sentence, or how the process ended."""
    out_of_time: bool = False
    not_run: bool = False
    unwritten: bool = False
    """Nothing was attempted: NotImplementedError, or no result and no work."""
    outside: dict[str, Any] = field(default_factory=dict)
    """The fields of the interpreter.Access that left its tensor."""
    got: str = ""
    """What came back in place of a tensor of the right shape and dtype."""
    y: torch.Tensor | None = None
    pair: list[float] | None = None
    input_changed: bool = False
    shares_storage: bool = False
    contiguous: bool = True
    kernels: int = 0
    stores: int = 0
    loads: int = 0
    stored_by_kernels: int = 0
    eager: list[str] = field(default_factory=list)
    """Names of the PyTorch operations that read something, other than to copy or to fill."""
    programs: int = 0
    tile: int = 1
    """Lanes of the widest access."""
    loaded: torch.Tensor | None = None
    """How often each element of x was loaded by kernels."""
    stored: torch.Tensor | None = None
    """How often each element of y was stored by kernels."""
    printed: str = ""


def softmax(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Trial:
    """Calls fn(x) in this process, counts its traffic, and says what was seen."""
    before = x.clone()
    launches: list[interpreter.Launch] = []
    try:
        with interpreter.record(launches.append, addresses=True):
            counted = traffic.count(fn, x)
    except NotImplementedError:
        return Trial(raised="not implemented", unwritten=True)
    except BaseException as error:  # a SystemExit too is an answer that is wrong
        access = getattr(error, "access", None)
        return Trial(raised=sentence(error), outside=asdict(access) if isinstance(access, interpreter.Access) else {})
    y = counted.result
    trial = Trial(
        kernels=counted.kernels,
        stores=counted.stores,
        loads=counted.loads,
        stored_by_kernels=sum(o.stores for o in counted.operations if o.is_kernel),
        eager=[o.name for o in counted.operations if not o.is_kernel and o.name not in _MOVES and o.loads],
        programs=max((math.prod(launch.grid) for launch in launches), default=0),
        tile=max((launch.tile for launch in launches), default=1),
        input_changed=not same(x, before),
        loaded=_accesses([address for launch in launches for address in launch.loaded], x),
    )
    if y is None:
        trial.unwritten = not counted.operations
    _describe(trial, y, x)
    if trial.y is not None:
        trial.stored = _accesses([address for launch in launches for address in launch.stored], y)
    return trial


def on_gpu(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Trial:
    """Calls fn on a copy of x on the GPU, in this process, and says what came back."""
    given = _to_device(x)
    try:
        with _unwritten_memory_is_nan():
            y = fn(given)
            torch.cuda.synchronize()
    except BaseException as error:
        return Trial(raised=sentence(error))
    trial = Trial(kernels=1, stored_by_kernels=1, input_changed=not same(given.cpu(), x))
    _describe(trial, y, given)
    return trial


def call(fn: Callable[..., Any], args: tuple) -> Trial:
    """Calls fn(*args), which is to return a pair of numbers, and says what came back."""
    try:
        got = fn(*args)
    except NotImplementedError:
        return Trial(raised="not implemented", unwritten=True)
    except BaseException as error:
        return Trial(raised=sentence(error))
    try:
        m, l = (float(value) for value in got)
    except (TypeError, ValueError):
        return Trial(got="None; is a return missing?" if got is None else repr(got)[:100], unwritten=got is None)
    return Trial(pair=[m, l])


def _describe(trial: Trial, y: object, x: torch.Tensor) -> None:
    if y is None:
        trial.got = "None; is a return missing?"
    elif not isinstance(y, torch.Tensor):
        trial.got = type(y).__name__
    elif y.shape != x.shape or y.dtype != x.dtype or y.device != x.device:
        where = "" if y.device == x.device else f" on {y.device}"
        trial.got = f"{tuple(y.shape)} {y.dtype}{where}"
    else:
        trial.y = y.detach().cpu().contiguous()
        trial.shares_storage = y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        trial.contiguous = y.is_contiguous()


def softmaxes(
    fn: Callable, makers: Mapping[str, cases.Make], seed: int
) -> tuple[dict[str, tuple[torch.Tensor, Trial]], dict[str, Trial]]:
    """Every case's input and trial, and the trials on a GPU, where there is one, of those in cases.GPU."""
    given = cases.make(makers, seed)
    trials = dict(zip(given, zip(given.values(), each(softmax, fn, list(given.values())), strict=True), strict=True))
    return trials, {}


def pairs(fn: Callable, given: Sequence[tuple]) -> list[Trial]:
    """The trial of fn(*args) for every args."""
    return each(call, fn, given)


def each(try_one: Callable[[Callable, Any], Trial], fn: Callable, inputs: Sequence[Any]) -> list[Trial]:
    """The trials of fn on every input, each in a forked child; nothing is run after one that runs out of time."""
    traffic.self_test()
    with _unwritten_memory_is_nan():
        outcomes = isolate.each(lambda given: asdict(try_one(fn, given)), inputs)
    return [_trial(outcome) for outcome in outcomes]


def _trial(outcome: isolate.Outcome) -> Trial:
    if outcome.value is not None:
        return Trial(**outcome.value | {"printed": outcome.printed})
    return Trial(
        raised=outcome.ended,
        out_of_time=outcome.out_of_time,
        not_run=outcome.ended == isolate.NOT_RUN,
        printed=outcome.printed,
    )


_MOVES = {"clone", "copy_", "_to_copy", "fill_", "zero_", "full", "full_like", "zeros", "zeros_like", "contiguous"}


@contextmanager
def _unwritten_memory_is_nan() -> Iterator[None]:
    """Makes torch.empty return NaN, so that a result never written cannot look right by accident."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


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


def sentence(error: BaseException) -> str:
    """The type of an error and its message, in one line."""
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
