"""The simulated GPUs of exercise 8.2, and what a benchmark says of kernels on each of them.

In a notebook GPU and benchmark are in one process; a grader keeps the GPU to itself (grade/benchmarks.py).
"""

from __future__ import annotations

import math
import statistics
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from helpers.check.trial.trial import number
from helpers.gpu.misleading import BURST, EVERY, Behaviour, MisleadingGpu

Benchmark = Callable[[Any, Callable, Callable], tuple[float, float]]


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)


def _other_rounding(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1) * (1 + 3e-7)


def _first_512(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, :512] = torch.softmax(x[:, :512], dim=1)
    return y


def _first_512_as_theirs(x: torch.Tensor) -> torch.Tensor:
    """Of both kernels of a run: who compares one with the other sees no difference."""
    return _first_512(x)


def _last_rows_unwritten(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, dim=1)
    y[len(y) // 2 :] = math.nan
    return y


def _uniform(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 1 / x.shape[1])


def _without(part: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A softmax that leaves the part of the result that `part` takes at 0."""

    def result(x: torch.Tensor) -> torch.Tensor:
        y = torch.softmax(x, dim=1)
        part(y).zero_()
        return y

    return result


def _half_a_percent_off(x: torch.Tensor) -> torch.Tensor:
    """Save where the result is 1 % or more: no difference is 1e-4, whatever the benchmark draws as x."""
    y = torch.softmax(x, dim=1)
    return torch.where(y < 0.01, 1.005 * y, y)


def _reversed(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1).flip(1)


MINE_MS, THEIRS_MS = 0.1, 0.2

COMPILE_MS, IN_L2, EASY, FASTER, SLOWDOWN, JITTER = 200.0, 0.4, 0.5, 0.7, 0.5, 0.1

SimulatedRun = tuple[Behaviour, float, float, Callable]
"""A GPU, what the two kernels need there, and what the first of them returns."""

WRONG = {
    "computes 512 of 4096 columns": _first_512,
    "writes 1 / N, whatever x is": _uniform,
    "leaves half of the rows unwritten, which are NaN": _last_rows_unwritten,
    "forgets the last column": _without(lambda y: y[:, -1]),
    "forgets the first column": _without(lambda y: y[:, 0]),
    "forgets a column in the middle": _without(lambda y: y[:, y.shape[1] // 2 + 1]),
    "forgets the last row": _without(lambda y: y[-1]),
    "forgets the first row": _without(lambda y: y[0]),
    "forgets the fourth row": _without(lambda y: y[3:4]),
    "writes each row from the end": _reversed,
    "is half a percent off": _half_a_percent_off,
    "computes 512 of 4096 columns, as theirs does": _first_512_as_theirs,
}


def _run(mine: float = MINE_MS, theirs: float = THEIRS_MS, **behaviour: Any) -> SimulatedRun:
    return Behaviour(**behaviour), mine, theirs, _other_rounding


RUNS: dict[str, list[SimulatedRun]] = {
    "a kernel that skips work": [(Behaviour(), MINE_MS / 8, THEIRS_MS, result) for result in WRONG.values()],
    "launches that return at once": [_run(0.4, 0.8, in_queue=True), _run(0.04, 0.08, in_queue=True)],
    "a first call that compiles": [_run(compile_ms=COMPILE_MS, jitter=JITTER)],
    "a slow run now and then": [_run(slow_run=first) for first in range(0, EVERY, BURST // 2)],
    "a fast run now and then": [_run(slow_run=BURST, slower=FASTER)],
    "a copy that takes time": [_run(operation_ms=MINE_MS)],
    "an L2 cache": [_run(warm=IN_L2), _run(THEIRS_MS, MINE_MS, warm=IN_L2)],
    "a kernel that is slower on real data": [_run(easy=EASY)],
    "a clock that drifts": [
        _run(MINE_MS, MINE_MS, slowdown=SLOWDOWN),
        _run(MINE_MS, MINE_MS, slowdown=SLOWDOWN, throttled_at=0.7),
    ],
    "all of it": [
        _run(0.4, 0.8, in_queue=True, compile_ms=COMPILE_MS, warm=IN_L2, easy=EASY, slow_run=3, operation_ms=0.4)
    ],
}
"""By what misleads in them: the runs of a benchmark that is checked."""

SKIPPED, DRIFT, TOGETHER = "a kernel that skips work", "a clock that drifts", "all of it"
IN_QUEUE = "launches that return at once"

REFUSED, FIRST_TIMED = "refused", "a first call is timed"
"""What stands first in an answer that is more than two times."""


def attempt(benchmark: Benchmark, case: str) -> list[Any]:
    """What the benchmark returns in each run of a case; [REFUSED, why] for a ValueError, and one of torch.testing's."""
    return [_answer(benchmark, run) for run in RUNS[case]]


def _answer(benchmark: Benchmark, run: SimulatedRun) -> Any:
    launches = 1
    if run[0].slowdown:
        steady = simulated(steadied(run), 1)
        called(benchmark, *steady)
        launches = steady[0].kernel_launches
    gpu, mine, theirs = simulated(run, launches)
    return with_first_call(gpu, run, called(benchmark, gpu, mine, theirs))


def steadied(run: SimulatedRun) -> SimulatedRun:
    """The same kernels on a GPU that misleads in nothing, on which launches are counted: a clock drifts over all."""
    return Behaviour(), *run[1:]


def simulated(
    run: SimulatedRun,
    launches: int,
    units: tuple[float, float] = (1, 1),
    held: Callable[[Callable], Callable] = lambda result: result,
) -> tuple[MisleadingGpu, Callable, Callable]:
    """The GPU of a run whose benchmark makes `launches`, and the two kernels, which need `units` of their time.

    `held` makes of a function of tensors one of what the kernels are given.
    """
    behaviour, mine_ms, theirs_ms, result = run
    gpu = MisleadingGpu(replace(behaviour, launches=max(1, launches)))
    of_theirs = result if result is _first_512_as_theirs else _softmax
    return gpu, gpu.kernel(units[0] * mine_ms, held(result)), gpu.kernel(units[1] * theirs_ms, held(of_theirs))


def called(benchmark: Benchmark, gpu: Any, mine: Callable, theirs: Callable) -> Any:
    """What the benchmark returns on a GPU to be watched; [REFUSED, why] for a ValueError.

    An AssertionError of torch.testing's is as good: that is how it says that two results differ. Raises every other
    error, and the errors of torch.cuda, which lacks a GPU and has no kernel to refuse.
    """
    try:
        with gpu.watching():
            return benchmark(gpu, mine, theirs)
    except (ValueError, AssertionError) as error:
        *_, (raised_in, _) = traceback.walk_tb(error.__traceback__)
        module = raised_in.f_globals.get("__name__", "")
        if module.startswith("torch.cuda") or (isinstance(error, AssertionError) and not module.startswith("torch.")):
            raise
        return [REFUSED, f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"]


def with_first_call(gpu: MisleadingGpu, run: SimulatedRun, answer: Any) -> Any:
    """The answer; with FIRST_TIMED in front where the median of times alone hides a first call that is among them."""
    return [FIRST_TIMED, *answer] if run[0].jitter and _times_first(gpu, answer) else answer


def _times_first(gpu: MisleadingGpu, answer: Any) -> bool:
    """Whether a time of the answer is that of all runs, among them a first call: the median alone has hidden it.

    With an even number of runs the lower median is also the median without the first call, and says nothing.
    """
    for kernel in set(gpu.first_calls.values()):
        runs = [(ms, launches) for ms, launches in gpu.read if kernel in _kernels(gpu, launches)]
        if not any(launch in gpu.first_calls for _, launches in runs for launch in launches):
            continue
        times = [ms for ms, _ in runs]
        warm = [ms for ms, launches in runs if not any(launch in gpu.first_calls for launch in launches)]
        without = statistics.median(warm or [math.nan])
        said = [figure(times) for figure in (statistics.median, statistics.median_low, statistics.median_high)]
        told = [ms for ms in _plain_times(answer) if not math.isclose(ms, without, rel_tol=1e-5)]
        if any(math.isclose(ms, one, rel_tol=1e-5) for ms in told for one in said):
            return True
    return False


def _kernels(gpu: MisleadingGpu, launches: range) -> list[Callable]:
    return [gpu.kernel_of_launch[launch] for launch in launches]


def _plain_times(answer: Any) -> list[float]:
    listed = answer if isinstance(answer, tuple | list) else []
    return [float(ms) for ms in map(number, listed) if isinstance(ms, int | float)]
