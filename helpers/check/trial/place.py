"""Where an answer runs while it is checked: always out of reach of the process that judges it.

Without a GPU every call is made in a forked child. With a GPU, whose process cannot fork, the answer is sent to a
process that interprets kernels and forks there; an answer that is right there then runs on the GPU, in a third process.
A grader has a place of its own, behind walls (instructor/grade/answer.py).
"""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from helpers import traffic
from helpers.check.problems.problem import Problem, Problems
from helpers.check.trial import call, trial
from helpers.check.trial.trial import Trial
from helpers.engine import child, isolate, pickled
from helpers.engine.compiler import verdict
from helpers.engine.isolate import LIMITS, End, Limits, Outcome
from helpers.engine.runtime import DEVICE, INTERPRETED, ON_GPU

Tried = dict[str, tuple[Problem, Trial]]
"""By case: its problem and the trial on it."""

GPU_LIMIT_S = 60
"""Seconds of processor time, or of waiting, that one case may take on a GPU, its compilation included."""


class Place(Protocol):
    """A process that has the answer. It is asked for trials; the judge never calls the answer itself."""

    def drivers(self, problems: Problems, kernel: bool) -> Tried:
        """The answer as a function of tensors, on every problem. With `kernel`, only what kernels compute counts."""

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """The answer as a function of plain values, on each of the argument tuples `given`.

        `through` is a function of helpers that is given the answer, and then the arguments. In a notebook it runs in
        the child, as the answer does: nobody else depends on what it says. A grader keeps it out of the sandbox.
        """

    def on_gpu(self, problems: Problems) -> Tried:
        """The answer on a GPU, on each problem up to the first that fails; none without a GPU."""

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """What the compiler for real GPUs says of launches that trials of this place have seen."""


Meanwhile = Callable[[int], object]
"""Is told several times a second how many more cases have been tried."""


def _nothing(more: int) -> None:
    """For who does not watch."""


def here(fn: Callable, limits: Limits = LIMITS, meanwhile: Meanwhile = _nothing) -> Place:
    """The place of a function of this process."""
    return (BesideGpu if ON_GPU else Forked)(fn, limits, meanwhile)


@dataclass(frozen=True)
class Forked:
    """Children of this process, which interprets kernels."""

    fn: Callable
    limits: Limits = LIMITS
    meanwhile: Meanwhile = _nothing

    def drivers(self, problems: Problems, kernel: bool) -> Tried:
        """See Place."""
        drawn = problems.draw()
        return _beside(drawn, _tried(self.fn, drawn, kernel, self.limits, self.meanwhile))

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        return _answered(_asked(self.fn, through), given, self.limits, through is None, self.meanwhile)

    def on_gpu(self, problems: Problems) -> Tried:
        """See Place."""
        return {}

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """See Place."""
        return verdict.verdict_on(launches, ask_the_compiler)


@dataclass(frozen=True)
class BesideGpu:
    """A process that interprets kernels, and another one that runs them on the GPU."""

    fn: Callable
    limits: Limits = LIMITS
    meanwhile: Meanwhile = _nothing
    gpu_limit_s: float = GPU_LIMIT_S

    def drivers(self, problems: Problems, kernel: bool) -> Tried:
        """See Place."""
        sent = self._sent(_run_drivers, len(problems.makers), self.fn, problems, kernel)
        return _beside(problems.draw(), sent)

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        return self._sent(_run_answers, len(given), _asked(self.fn, through), given, through is None)

    def on_gpu(self, problems: Problems) -> Tried:
        """See Place."""
        tried: Tried = {}
        for case, problem in problems.draw().items():
            one = self._once_on_gpu(pickled.dumps((self.fn, problems.only([case]))))
            tried[case] = problem, one
            if one.raised:
                child.end(interpret=False)  # after an illegal access a CUDA context is of no use
                break
        return tried

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """See Place. The compiler needs no GPU: it is asked as it is without one."""
        return verdict.verdict_on(launches, ask_the_compiler)

    def _sent(self, run: Callable[..., bytes], count: int, *task: Any) -> list[Trial]:
        watched = functools.partial(self.meanwhile, 0)
        try:
            sent = child.call(run, pickled.dumps(task), self.limits, interpret=True, meanwhile=watched)
        except pickled.CannotBeSent as error:
            return [Trial(End.RAISED, str(error), "TypeError")] * count
        self.meanwhile(count)
        return [Trial.of(plain) for plain in _loaded(sent)]

    def _once_on_gpu(self, content: bytes) -> Trial:
        try:
            return Trial.of(_loaded(child.call(_run_on_gpu, content, interpret=False, limit_s=self.gpu_limit_s)))
        except TimeoutError:
            return Trial(End.OUT_OF_TIME, isolate.out_of_time(self.gpu_limit_s))
        except RuntimeError as error:
            return Trial(End.DIED, f"its process ended instead of returning ({getattr(error, 'how', error)})")


def ask_the_compiler(tasks: list[dict[str, Any]]) -> Sequence[verdict.Told]:
    """The compiler's answers to the tasks of a verdict, from the child process that compiles."""
    try:
        return child.call(verdict.judge_each, tasks, interpret=False, limit_s=4 * verdict.COMPILER_LIMITS.together_s)
    except TimeoutError:
        return [{"busy": "the compiler did not answer"}] * len(tasks)
    except (RuntimeError, ImportError) as error:
        said = getattr(error, "how", str(error) or type(error).__name__)
        return [{"unknown": f"the compiler did not answer: {said}"}] * len(tasks)


def try_each(
    try_one: Callable[[Any], Trial],
    inputs: Sequence[Any],
    limits: Limits = LIMITS,
    in_turn: bool = False,
    meanwhile: Meanwhile = _nothing,
) -> list[Trial]:
    """try_one(x) for every input, as `isolate.call_each` makes calls; nothing is run after one out of time."""
    if INTERPRETED:
        traffic.self_test()  # once, here, and not in every child
    outcomes = isolate.call_each(lambda x: try_one(x).plain(), inputs, limits, in_turn, meanwhile)
    return [_trial(outcome) for outcome in outcomes]


def _answered(
    fn: Callable, given: Sequence[tuple], limits: Limits, in_turn: bool, meanwhile: Meanwhile = _nothing
) -> list[Trial]:
    """The trials of a function of plain values."""
    return try_each(functools.partial(trial.of_numbers, fn), given, limits, in_turn, meanwhile)


def _tried(
    fn: Callable,
    problems: Mapping[str, Problem],
    kernel: bool,
    limits: Limits,
    meanwhile: Meanwhile = _nothing,
) -> list[Trial]:
    """The trials of a function of tensors on each problem."""

    def try_one(problem: Problem) -> Trial:
        return call.of_tensors(fn, problem, withhold=kernel)

    return try_each(try_one, list(problems.values()), limits, meanwhile=meanwhile)


def _trial(outcome: Outcome) -> Trial:
    if outcome.end is End.RETURNED:
        return Trial.of({**outcome.value, "printed": outcome.printed})
    return Trial(outcome.end, outcome.said, printed=outcome.printed)


def _beside(problems: Mapping[str, Problem], trials: Sequence[Trial]) -> Tried:
    return {case: (problem, one) for (case, problem), one in zip(problems.items(), trials, strict=True)}


def _asked(fn: Callable, through: Callable | None) -> Callable:
    return fn if through is None else functools.partial(through, fn)


# What the other processes run


def _run_drivers(content: bytes, limits: Limits) -> bytes:
    fn, problems, kernel = pickled.loads(content)
    return _saved([one.plain() for one in _tried(fn, problems.draw(), kernel, limits)])


def _run_answers(content: bytes, limits: Limits) -> bytes:
    fn, given, in_turn = pickled.loads(content)
    return _saved([one.plain() for one in _answered(fn, given, limits, in_turn)])


def _run_on_gpu(content: bytes) -> bytes:
    fn, problems = pickled.loads(content)
    (problem,) = problems.draw().values()
    return _saved(call.on_gpu(fn, problem).plain())


def _saved(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def _loaded(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


def _warm_up() -> None:
    """Does once what the first check in this process would begin with."""
    if INTERPRETED:
        traffic.self_test()
        return
    verdict.compile_first()
    if ON_GPU:
        verdict.launch_first(DEVICE)


def start_early() -> None:
    """In a notebook: starts the processes that the first check would otherwise wait for, the compiler's among them."""
    if "ipykernel" in sys.modules:
        for interpret in (True, False) if ON_GPU else (False,):
            child.prepare(_warm_up, interpret=interpret)
