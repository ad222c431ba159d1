"""Benchmarks on simulated GPUs that the grader holds: a learner's process knows only the times that it measures.

The times of the kernels are drawn for each run, and the runs come in any order, so that nothing published helps.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from helpers.check.problems import misled
from helpers.check.problems.misled import SimulatedRun
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import NOT_RUN, End
from helpers.gpu.misleading import Held
from helpers.instructor.sandbox import trials
from helpers.instructor.sandbox.client import Ended, Sandbox

RUN_S = 30
"""Seconds of processor time, or of waiting, that a benchmark may take on one GPU."""
UNITS, APART = (0.6, 1.6), 0.1
"""Both kernels of a run need this multiple of its times, from the first to the second; each of them by a part of up to
APART more or less, where they do not need the same. More would hide lies that add a time, or swap two.
"""
_DRAW = random.SystemRandom()
_MOST_EVENTS, _MOST_BYTES = 1 << 18, 256 << 20
"""Of one run: the calls of its GPU, and the numbers that kernels are given."""
_PASSED_ON = (RuntimeError, IndexError, TypeError, ValueError)
"""Errors that a learner's own call has caused."""


@dataclass(frozen=True)
class _There:
    """A tensor that lies in the learner's process; of a kernel's input and result the numbers are here."""

    pointer: int
    nbytes: int
    elements: int
    numbers: torch.Tensor | None = None
    result_pointer: int = 0
    _version: int = 0
    """Another one for other numbers."""

    def data_ptr(self) -> int:
        return self.pointer

    def numel(self) -> int:
        return self.elements

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    def __getitem__(self, place: Any) -> torch.Tensor:
        return self.numbers[place]

    def float(self) -> torch.Tensor:
        return self.numbers.float()


class SimulatedDevice:
    """The grader's end of a far_gpu.FarGpu, on the GPU of a run; `answer` is given what that sends."""

    def __init__(self, run: SimulatedRun, launches: int, units: tuple[float, float]) -> None:
        self.gpu, *self._kernels = misled.simulated(run, launches, units, _of_what_is_there)
        self._marks: list[Any] = []
        self._numbers: dict[str, torch.Tensor] = {}
        self._events = self._bytes = 0

    def answer(self, sent: Any) -> dict[str, Any]:
        """Does to the GPU what happened, and answers the question. Raises Ended for anything else, or too much."""
        try:
            self._events += len(sent["events"])
            if self._events > _MOST_EVENTS:
                raise Ended(f"its benchmark does more than {_MOST_EVENTS:,} things to one GPU")
            for event in sent["events"]:
                self._do(*event)
            return {"answer": self._do(*sent["question"])}
        except Ended:
            raise
        except _PASSED_ON as error:
            return {"raised": [type(error).__name__, str(error)[:300]]}
        except Exception as error:
            raise Ended(f"it does to the GPU what cannot be done: {type(error).__name__}") from None

    def _do(self, what: str, *given: Any) -> Any:
        gpu = self.gpu
        if what == "mark":
            self._marks.append(gpu.record())
        elif what == "wait":
            self._marks[given[0]].synchronize()
        elif what == "between":
            start, end = given
            return self._marks[start].elapsed_time(self._marks[end])
        elif what in ("flush", "synchronize", "now"):
            return getattr(gpu, what)()
        elif what == "operation":
            name, read, made = given
            gpu.operation(str(name), [_there(*one) for one in read], None if made is None else _there(*made))
        elif what == "numbers":
            name, numbers = given
            self._bytes += numbers.nbytes
            if self._bytes > _MOST_BYTES:
                raise Ended(f"its benchmark gives kernels more than {_MOST_BYTES >> 20} MB of numbers")
            self._numbers[name] = numbers
        elif what == "launch":
            kernel, place, name, result_pointer = given
            version = list(self._numbers).index(name)
            x = _there(*place, self._numbers[name], int(result_pointer), version)
            return self._kernels[bool(kernel)](x).numbers
        else:
            raise Ended("it does to the GPU what cannot be done")
        return None


def _there(pointer: int, nbytes: int, elements: int, *others: Any) -> _There:
    return _There(int(pointer), int(nbytes), int(elements), *others)


def _of_what_is_there(result: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[_There], Held]:
    """A function of numbers as one of a tensor in the learner's process."""

    def launched(x: _There) -> Held:
        y = result(x.numbers)
        return _There(x.result_pointer, y.nbytes, y.numel(), y)

    return launched


def tried(learner: Sandbox, name: str, cases: Sequence[str], draw: random.Random = _DRAW) -> list[Trial]:
    """The trials of the benchmark `name` of a sandbox, one for each case, as misled.attempt makes them.

    After a run that ends the sandbox no other is begun. `draw` says what kernels need, and the order of the runs.
    """
    runs = [(case, number) for case in cases for number in range(len(misled.RUNS[case]))]
    found: dict[tuple[str, int], Trial] = {}
    for case, number in draw.sample(runs, len(runs)):
        try:
            found[case, number] = _run(learner, name, misled.RUNS[case][number], draw)
        except Ended as error:
            found[case, number] = Trial(error.end, str(error))
            break
    not_run = Trial(NOT_RUN.end, NOT_RUN.said)
    return [_together([found.get((case, n), not_run) for n in range(len(misled.RUNS[case]))]) for case in cases]


def _run(learner: Sandbox, name: str, run: SimulatedRun, draw: random.Random) -> Trial:
    request = {"do": "benchmark", "answer": name}
    units = _drawn(draw, same=run[1] == run[2])
    launches = 1
    if run[0].slowdown:
        steady = SimulatedDevice(misled.steadied(run), 1, units)
        learner.ask(request, RUN_S, steady.answer)
        launches = steady.gpu.kernel_launches
    device = SimulatedDevice(run, launches, units)
    one = trials.received(learner.ask(request, RUN_S, device.answer))
    one.answer = _in_units(misled.with_first_call(device.gpu, run, one.answer), units)
    return one


def _drawn(draw: random.Random, same: bool) -> tuple[float, float]:
    both = math.exp(draw.uniform(*map(math.log, UNITS)))
    mine, theirs = (both * draw.uniform(1 - APART, 1 + APART) for _ in range(2))
    return mine, mine if same else theirs


def _in_units(answer: Any, units: tuple[float, float]) -> Any:
    """The times of an answer as they would be if the kernels needed what their run says."""
    if not isinstance(answer, list) or len(answer) < 2:
        return answer
    *before, mine, theirs = answer
    if before not in ([], [misled.FIRST_TIMED]):
        return answer
    times = (ms / unit if _is_time(ms) else ms for ms, unit in zip((mine, theirs), units, strict=True))
    return [*before, *times]


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _together(runs: list[Trial]) -> Trial:
    """The trial of a case: the first run that did not return, or was not begun, or the answers of all."""
    stopped = sorted((one for one in runs if one.end is not End.RETURNED), key=lambda one: one.end is End.NOT_RUN)
    one = stopped[0] if stopped else Trial(answer=[one.answer for one in runs], code=runs[0].code)
    return replace(one, printed="".join(run.printed for run in runs))
