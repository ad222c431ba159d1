"""Tries a function on the cases of a check, each time out of reach of the notebook, and says what was seen.

Without a GPU every case runs in a forked child. Beside a GPU the function is sent to a process of its own that
interprets kernels, which forks in the same way; what is right there then runs on the GPU, in a third process.
"""

from __future__ import annotations

import functools
import io
import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import traffic
from helpers.check import cases
from helpers.engine import child, interpreter, isolate, pickled
from helpers.engine.runtime import DEVICE, INTERPRETED, ON_GPU
from helpers.xray.compile import reason


@dataclass
class Trial:
    """What one call showed. Tensors are on the CPU."""

    raised: str = ""
    """The error in one sentence, or how the process ended."""
    not_run: bool = False
    unwritten: bool = False
    """Nothing was attempted: NotImplementedError, or no result and no work."""
    outside: dict[str, Any] = field(default_factory=dict)
    """The fields of the interpreter.Access that left its tensor."""
    got: str = ""
    """What came back in place of a tensor of the right shape and dtype."""
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
        with _UnwrittenMemoryIsNaN(), interpreter.record(launches.append, addresses=True):
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
        tile=max([1, *(launch.tile for launch in launches)]),
        input_changed=not same(x, before),
        loaded=_accesses([address for launch in launches for address in launch.loaded], x),
    )
    if y is None:
        trial.unwritten = not counted.operations
    _describe(trial, y, x)
    if trial.y is not None:
        trial.stored = _accesses([address for launch in launches for address in launch.stored], y)
    return trial


def _once_on_gpu(fn: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Trial:
    """Calls fn on a copy of x on the GPU, in this process, and says what came back."""
    given = _to_device(x)
    try:
        with _UnwrittenMemoryIsNaN():
            y = fn(given)
            torch.cuda.synchronize()
    except BaseException as error:
        return Trial(raised=sentence(error))
    trial = Trial(kernels=1, stored_by_kernels=1, input_changed=not same(given.cpu(), x))
    _describe(trial, y, given)
    return trial


def call(fn: Callable[..., Any], args: tuple) -> Trial:
    """Calls fn(*args), which is to return numbers, and says what came back."""
    try:
        got = fn(*args)
    except NotImplementedError:
        return Trial(raised="not implemented", unwritten=True)
    except BaseException as error:
        return Trial(raised=sentence(error))
    trial = Trial(answer=_plain(got), unwritten=got is None)
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


GPU_TIMEOUT_S = 60
"""Seconds that one case may take on a GPU, its compilation included."""


def _warm_up() -> None:
    """In a child: what the first check would wait for."""
    torch.zeros(1, device=DEVICE)


if ON_GPU and "ipykernel" in sys.modules:
    for interpret in (True, False):
        child.prepare(_warm_up, interpret=interpret)


class Elsewhere:
    """An answer that lives in a process out of reach, where a grader has put it: it is asked, and never called here."""

    def softmaxes(
        self, makers: Mapping[str, cases.Make], seed: int, kernel: bool
    ) -> dict[str, tuple[torch.Tensor, Trial]]:
        """See `softmaxes` below."""
        raise NotImplementedError

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See `answers` below. `through` is a function of helpers that is given the answer and then the arguments."""
        raise NotImplementedError

    def __call__(self, *args: Any) -> Any:
        """What the answer returns for plain arguments. Raises RuntimeError with what it raised."""
        (one,) = self.answers([args])
        if one.raised:
            raise RuntimeError(one.raised)
        return one.answer


def softmaxes(
    fn: Callable, makers: Mapping[str, cases.Make], seed: int, kernel: bool = True
) -> dict[str, tuple[torch.Tensor, Trial]]:
    """The input and the trial of every case. With `kernel`, only what kernels compute counts."""
    if isinstance(fn, Elsewhere):
        return fn.softmaxes(makers, seed, kernel)
    given = cases.make(makers, seed)
    trials = _each_shipped((fn, makers, seed)) if ON_GPU else each(softmax, fn, list(given.values()))
    return {case: (x, trial) for (case, x), trial in zip(given.items(), trials, strict=True)}


def on_gpu(fn: Callable, makers: Mapping[str, cases.Make], seed: int) -> dict[str, Trial]:
    """Trials of some cases on the GPU, where there is one, in a process of their own, up to the first that fails."""
    trials: dict[str, Trial] = {}
    for case in cases.GPU if ON_GPU and not isinstance(fn, Elsewhere) else ():
        if case in makers:
            trials[case] = _on_gpu(pickled.dumps((fn, makers, seed)), case)
            if trials[case].raised:
                child.end(interpret=False)  # after an illegal access a CUDA context is of no use
                break
    return trials


def _on_gpu(shipped: bytes, case: str) -> Trial:
    try:
        return Trial(**_loaded(child.call(_run_on_gpu, shipped, case, interpret=False, timeout=GPU_TIMEOUT_S)))
    except TimeoutError:
        return Trial(raised=isolate.TIME.format(GPU_TIMEOUT_S))
    except RuntimeError as error:
        return Trial(raised=f"its process ended instead of returning ({error.__cause__ or error})")


def _run_on_gpu(shipped: bytes, case: str) -> bytes:
    fn, makers, seed = pickled.loads(shipped)
    return _saved(asdict(_once_on_gpu(fn, cases.make(makers, seed)[case])))


def answers(fn: Callable, given: Sequence[tuple]) -> list[Trial]:
    """The trial of fn(*args) for every args; fn may be an answer, or functools.partial(function of helpers, answer)."""
    if isinstance(fn, Elsewhere):
        return fn.answers(given)
    if isinstance(fn, functools.partial) and len(fn.args) == 1 and isinstance(fn.args[0], Elsewhere):
        return fn.args[0].answers(given, through=fn.func)
    return _each_shipped((fn, given, None)) if ON_GPU else each(call, fn, given)


def each(
    try_one: Callable[[Any, Any], Trial], fn: Any, inputs: Sequence[Any], limits: isolate.Limits | None = None
) -> list[Trial]:
    """The trials of fn on every input, in forked children; nothing is run after one that runs out of time."""
    if INTERPRETED:
        traffic.self_test()  # once, here, and not in every child
    found = isolate.each(lambda given: asdict(try_one(fn, given)), inputs, limits or isolate.LIMITS)
    return [_trial(outcome) for outcome in found]


def _each_shipped(task: tuple[Callable, Any, int | None]) -> list[Trial]:
    """`each` in a process that interprets kernels, since a process that uses a GPU cannot fork."""
    try:
        shipped = pickled.dumps(task)
    except TypeError as error:
        return [Trial(raised=str(error))] * len(task[1])
    return [Trial(**fields) for fields in _loaded(child.call(_run_each, shipped, isolate.LIMITS, interpret=True))]


def _run_each(shipped: bytes, limits: isolate.Limits) -> bytes:
    fn, given, seed = pickled.loads(shipped)
    try_one, inputs = (call, given) if seed is None else (softmax, list(cases.make(given, seed).values()))
    trials = each(try_one, fn, inputs, limits)
    return _saved([asdict(trial) for trial in trials])


def _saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def _loaded(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def _trial(outcome: isolate.Outcome) -> Trial:
    if outcome.value is not None:
        return Trial(**outcome.value | {"printed": outcome.printed})
    return Trial(
        raised=outcome.ended,
        not_run=outcome.ended == isolate.NOT_RUN,
        printed=outcome.printed,
    )


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


def sentence(error: BaseException) -> str:
    """The type of an error and its message, in one line; of Triton's compiler the line of the kernel and the reason."""
    if hasattr(error, "node") and hasattr(error, "src"):
        return f"{type(error).__name__}: {reason(error)}"
    text = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
