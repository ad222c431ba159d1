"""The call that a check makes of a loss, in the process that has the answer: its problem, the observations, as text.

An answer is a function of logits (M, V) and targets (M,). It returns the loss of each row as float32, 0 where the
target is IGNORED, and, where a gradient is asked for, the gradient of the sum of these losses as well. What is
right is not known here: losses.py judges.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from typing import Any

import torch

from helpers import traffic
from helpers.check import cases, withheld
from helpers.check.calling import (
    MOVES,
    TWICE,
    Patience,
    Sample,
    UnwrittenMemoryIsNaN,
    launches_to_compile,
    to_device,
)
from helpers.check.trial import Trial, failed, kind_of, other_than_tensor, same, sentence
from helpers.engine import interpreter
from helpers.engine.isolate import End
from helpers.engine.memory import Enough

IGNORED = -100
"""The target of a row that has no part in the loss."""

Problem = tuple[torch.Tensor, torch.Tensor]
"""Logits (M, V), whose rows are contiguous, and their targets (M,)."""


def _problem(
    rows: cases.Make, target: Callable[[torch.Tensor], list[int] | torch.Tensor]
) -> Callable[[torch.Generator], Problem]:
    def make(generator: torch.Generator) -> Problem:
        x = rows(generator)
        return x, torch.as_tensor(target(x))

    return make


def _spread(x: torch.Tensor) -> list[int]:
    """A column for each row, the first and the last of x among them."""
    M, N = x.shape
    return [row * (N - 1) // max(1, M - 1) for row in range(M)]


def _columns_in_turn(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(len(x)) % x.shape[1]


def _at_top(x: torch.Tensor) -> list[int]:
    return x.argmax(dim=1).tolist()


def _spikes_of_minus_inf(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(3, 50, generator=generator)
    x[:, ::2] = -cases.INF
    return x


def _nearly_certain(generator: torch.Generator) -> torch.Tensor:
    x = 0.1 * torch.randn(3, 20, generator=generator)
    x[:, 4] = 7.0
    return x.bfloat16()


def _one_row_with_nan(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(3, 64, generator=generator)
    x[1, 7] = math.nan
    return x


def _rows_that_are_no_numbers(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(6, 30, generator=generator)
    x[1, 2], x[2, 0], x[4] = math.nan, cases.INF, -cases.INF
    return x


PROBLEMS: dict[str, Callable[[torch.Generator], Problem]] = {
    "small random values": _problem(cases.randn(5, 128), _spread),
    "every column of a short row": _problem(cases.randn(6, 6, scale=2.0), lambda x: list(range(6))),
    "large values, around +1000": _problem(cases.randn(3, 100, shift=1000.0), _spread),
    "around −1000": _problem(cases.randn(3, 100, shift=-1000.0), _spread),
    "a target in the last column, 129 of them": _problem(cases.randn(3, 129), lambda x: [128, 127, 128]),
    "the target at the maximum": _problem(cases.randn(4, 70, scale=10.0), _at_top),
    "a target far below the maximum": _problem(cases.spikes(60, 5, 59), lambda x: [6, 0]),
    "a target of −inf": _problem(_spikes_of_minus_inf, lambda x: [0, 1, 48]),
    "some rows ignored, the first of them": _problem(cases.randn(6, 40), lambda x: [IGNORED, 3, IGNORED, 39, 0, 7]),
    "ignored rows that hold NaN, inf, or only −inf": _problem(
        _rows_that_are_no_numbers, lambda x: [0, IGNORED, IGNORED, 29, IGNORED, 4]
    ),
    "a loss of 3·10⁻⁷": _problem(lambda g: torch.tensor([[0.0, -15.0]]), lambda x: [0]),
    "a row that counts holds NaN": _problem(_one_row_with_nan, _spread),
    "ignored rows only": _problem(cases.randn(2, 40), lambda x: [IGNORED, IGNORED]),
    "one column": _problem(cases.randn(3, 1, shift=5.0), lambda x: [0, IGNORED, 0]),
    "bfloat16": _problem(cases.randn(3, 200, scale=3.0, dtype=torch.bfloat16), _spread),
    "a target that is nearly certain, bfloat16": _problem(_nearly_certain, lambda x: [4, 4, 0]),
    "float16, 1,000 columns": _problem(cases.randn(2, 1000, scale=2.0, dtype=torch.float16), lambda x: [999, 500]),
    "rows with a gap between them": _problem(lambda g: torch.randn(5, 90, generator=g)[1:, 7:71], _spread),
    "1,500 columns": _problem(cases.randn(2, 1500, scale=3.0), lambda x: [1499, 1]),
    "a class beyond 32,767": _problem(cases.randn(1, 40000), lambda x: [35000]),
    "around −10³⁸": _problem(cases.equal(300, -1e38), lambda x: [7]),
    "rows 2³⁰ elements apart": _problem(cases.far_apart((3, 64), (2**30, 1)), _spread),
    "2,097,156 rows of 1,024": _problem(cases.overlapping(2**21 + 4, 1024), _columns_in_turn),
}
"""By name, makers of the problems on which wrong losses go wrong."""

RUN_ON_GPU = (
    "small random values", "a target in the last column, 129 of them", "a target of −inf",
    "some rows ignored, the first of them", "one column", "bfloat16", "float16, 1,000 columns",
    "rows with a gap between them", "1,500 columns",
)  # fmt: skip
"""Problems that are solved on the GPU too, if there is one, after all were solved interpreted."""


def problem_of(case: str, seed: int) -> Problem:
    """The logits and targets of a case, the same for the same seed in any process."""
    generator = torch.Generator().manual_seed(seed + list(PROBLEMS).index(case))
    return PROBLEMS[case](generator)


@dataclass
class Called:
    """What one call showed, as plain values."""

    losses: list[float]
    gradient: list[list[float]]
    got: str = ""
    """The result, in words, where it is not what the check asked for."""
    got_kind: str = ""
    """What of it is wrong: it is no "pair", or its "order", "type", "shape", "dtype" or "device"."""
    kernels: int = 0
    loads: int = 0
    stores: int = 0
    stored_by_kernels: int = 0
    eager: list[str] = ()
    tile: int = 1
    race: str = ""
    race_of_lanes: str = ""
    input_changed: bool = False
    again: list[float] = ()
    """The losses of a second call, after the logits have got other numbers (`changed_logits`)."""
    gradient_again: list[list[float]] = ()
    again_raised: str = ""
    overwritten: bool = False
    """The second call has changed what the first had returned."""
    launches: list[dict[str, Any]] = ()
    sampled: bool = False
    """As in a Trial, and so are the next three. Only these rows are among the losses and in the gradient."""
    rows: list[int] = ()
    missing: str = ""
    skipped: bool = False


def changed_logits(x: torch.Tensor) -> torch.Tensor:
    """Other numbers for a second call: each row from its end to its beginning."""
    return x.flip(1)


def loss_called(
    answer: Callable[..., Any],
    case: str,
    seed: int,
    gradient: bool,
    hide: bool = True,
    again: Callable[..., Any] | None = None,
) -> str:
    """Calls answer(x, target) on the problem of a case, under all that watches it: the fields of a Called, as JSON.

    What PyTorch does with the targets alone, an integer for each row, is none of the kernel's work and not counted.
    With `hide`, without a GPU, the logits have their numbers only where kernels and PyTorch's operations load them.
    Small problems are given to it twice, the second time to `again`, where that is another function.
    """
    x, target = map(to_device, problem_of(case, seed))
    flat = cases.flat_where_overlapping(x)
    before = flat.clone(), target.clone()
    launches: list[interpreter.LaunchTraffic] = []
    sample, patience = Sample(x), Patience(len(x), launches)
    devices, changes = withheld.Devices(answer), withheld.OwnChanges(x)
    hide = hide and x.device.type == "cpu"
    hidden = withheld.Withheld(flat) if hide else None

    try:
        with ExitStack() as stack:
            stack.enter_context(UnwrittenMemoryIsNaN())
            stack.enter_context(interpreter.watching(launches.append, addresses=True))
            asked = stack.enter_context(launches_to_compile())
            for context in (hidden, sample.context(), changes, devices, patience.context()):
                stack.enter_context(context or nullcontext())
            counted = traffic.count(lambda x: answer(x, target), x)
        devices.require(counted.result)
    except Enough:
        return json.dumps(asdict(Called([], [], kernels=1, launches=asked, sampled=sample.taken, skipped=True)))
    except BaseException as error:
        if x.numel() == flat.numel() or failed(error).end is not End.OUT_OF_MEMORY:
            raise
        return json.dumps(asdict(Called([], [], launches=asked, sampled=True, skipped=True)))
    stored = sum(o.stores for o in counted.operations if o.is_kernel)
    shown = Trial(sampled=sample.taken, stored_by_kernels=stored)
    if sample.taken and not _returned(counted.result, x, gradient, rows=[])[2]:
        sample.look(shown, launches, x, counted.result[1] if gradient else counted.result[:, None])
    losses, grads, got, got_kind = _returned(counted.result, x, gradient, shown.rows if sample.taken else None)
    operations = [one for one in counted.operations if not one.of_integers or max(one.loads, one.stores) > len(x)]
    called = Called(
        losses,
        grads,
        got,
        got_kind,
        kernels=counted.kernels,
        loads=sum(o.loads for o in operations),
        stores=sum(o.stores for o in operations),
        stored_by_kernels=stored,
        eager=[o.name for o in operations if not o.is_kernel and o.name not in MOVES and o.loads],
        tile=max([1, *(launch.tile for launch in launches)]),
        race=next((launch.race for launch in launches if launch.race), ""),
        race_of_lanes=next((launch.race_of_lanes for launch in launches if launch.race_of_lanes), ""),
        input_changed=not same(flat, before[0])
        or not torch.equal(target, before[1])
        or changes.changed
        or (hidden is not None and hidden.changed),
        launches=asked,
        sampled=shown.sampled,
        rows=shown.rows,
        missing=shown.missing,
        skipped=shown.skipped,
    )
    if x.numel() <= TWICE and not called.got and not called.input_changed:
        _call_again(called, again or answer, x, target, counted.result, gradient, hide)
    return json.dumps(asdict(called))


def _call_again(
    called: Called,
    fn: Callable[..., Any],
    x: torch.Tensor,
    target: torch.Tensor,
    first: Any,
    gradient: bool,
    hide: bool,
) -> None:
    """Calls fn(x, target) once more after x has got other numbers, and looks at what the first call returned."""
    x.copy_(changed_logits(x))
    hidden = withheld.Withheld(x) if hide else nullcontext()
    try:  # what it prints is known from the first call
        with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN(), hidden:
            called.again, called.gradient_again = _returned(fn(x, target), x, gradient)[:2]
    except BaseException as error:
        called.again_raised = sentence(error)
        return
    kept = _returned(first, x, gradient)[:2]
    called.overwritten = not all(map(_same_numbers, kept, (called.losses, called.gradient)))


def _same_numbers(one: list, other: list) -> bool:
    return same(torch.tensor(one), torch.tensor(other))


def loss_on_gpu(fn: Callable[..., Any], case: str, seed: int, gradient: bool) -> Trial:
    """Calls fn on the problem of a case on the GPU, in this process: the answer of the trial is what `loss_called`
    returns, without counts."""
    x, target = problem = tuple(map(to_device, problem_of(case, seed)))
    before = x.clone(), target.clone()
    try:
        with UnwrittenMemoryIsNaN():
            result = fn(*problem)
            torch.cuda.synchronize()
    except BaseException as error:
        return failed(error, fn)
    called = Called(*_returned(result, x, gradient), kernels=1)
    called.input_changed = not same(x, before[0]) or not torch.equal(target, before[1])
    return Trial(answer=json.dumps(asdict(called)))


def _returned(
    result: Any, x: torch.Tensor, gradient: bool, rows: list[int] | None = None
) -> tuple[list[float], list[list[float]], str, str]:
    """The losses and the gradient in what came back; or, in words, what came back in their place, and its kind.

    Of all rows, or of these alone.
    """
    asked = "the losses and the gradient" if gradient else "the losses"
    parts = result if gradient else (result,)
    if result is None:
        return [], [], "None; is a return missing?", "type"
    if not isinstance(parts, tuple | list) or len(parts) != 1 + gradient:
        return [], [], f"{kind_of(result)} in place of {asked}", "pair"
    wanted = [(x.shape[:1], torch.float32), (x.shape, x.dtype)][: len(parts)]
    if [getattr(part, "shape", None) for part in parts] == [shape for shape, _ in wanted[::-1]] and gradient:
        return [], [], "the gradient, and then the losses", "order"
    for part, (shape, dtype) in zip(parts, wanted, strict=True):
        if other := other_than_tensor(part):
            return [], [], f"{other} in place of {asked}", "type"
        if part.shape != shape or part.dtype != dtype:
            kind = "shape" if part.shape != shape else "dtype"
            return [], [], f"{tuple(part.shape)} {part.dtype} in place of {tuple(shape)} {dtype}", kind
        if part.device != x.device:
            return [], [], f"a tensor on {part.device} in place of one on {x.device}", "device"
    kept = parts if rows is None else [part[rows] for part in parts]
    return kept[0].tolist(), kept[1].float().tolist() if gradient else [], "", ""
