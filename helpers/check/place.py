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
from helpers.check import calling, cases, trial
from helpers.check.trial import Trial
from helpers.engine import child, isolate, pickled
from helpers.engine.isolate import LIMITS, End, Limits, Outcome
from helpers.engine.runtime import DEVICE, INTERPRETED, ON_GPU
from helpers.xray import verdict

Tried = dict[str, tuple[torch.Tensor, Trial]]
"""By case: its input and the trial on it."""

GPU_LIMIT_S = 60
"""Seconds of processor time, or of waiting, that one case may take on a GPU, its compilation included."""


class Place(Protocol):
    """A process that has the answer. It is asked for trials; the judge never calls the answer itself."""

    def softmaxes(self, makers: Mapping[str, cases.Make], seed: int, kernel: bool) -> Tried:
        """The answer as a softmax, on every case. With `kernel`, only what kernels compute counts."""

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """The answer as a function of plain values, on each of the argument tuples `given`.

        `through` is a function of helpers that is given the answer, and then the arguments.
        """

    def on_gpu(self, run: Callable[..., Trial], given: Mapping[str, tuple]) -> dict[str, Trial]:
        """run(answer, *args) on a GPU for the args of each case, up to the first that fails; none without a GPU.

        `run` is a function of helpers.
        """

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

    def softmaxes(self, makers: Mapping[str, cases.Make], seed: int, kernel: bool) -> Tried:
        """See Place."""
        given = cases.draw(makers, seed)
        return _beside(given, _tried(self.fn, makers, given, kernel, self.limits, self.meanwhile))

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        return _answered(_asked(self.fn, through), given, self.limits, through is None, self.meanwhile)

    def on_gpu(self, run: Callable[..., Trial], given: Mapping[str, tuple]) -> dict[str, Trial]:
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

    def softmaxes(self, makers: Mapping[str, cases.Make], seed: int, kernel: bool) -> Tried:
        """See Place."""
        sent = self._sent(_run_softmaxes, len(makers), self.fn, makers, seed, kernel)
        return _beside(cases.draw(makers, seed), sent)

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        return self._sent(_run_answers, len(given), _asked(self.fn, through), given, through is None)

    def on_gpu(self, run: Callable[..., Trial], given: Mapping[str, tuple]) -> dict[str, Trial]:
        """See Place."""
        trials: dict[str, Trial] = {}
        for case, args in given.items():
            trials[case] = self._once_on_gpu(pickled.dumps((run, self.fn, args)))
            if trials[case].raised:
                child.end(interpret=False)  # after an illegal access a CUDA context is of no use
                break
        return trials

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """See Place. The compiler needs no GPU: it is asked as it is without one."""
        return verdict.verdict_on(launches, ask_the_compiler)

    def _sent(self, run: Callable[..., bytes], count: int, *task: Any) -> list[Trial]:
        try:
            content = pickled.dumps(task)
        except TypeError as error:
            return [Trial(End.RAISED, str(error), "TypeError")] * count
        sent = child.call(run, content, self.limits, interpret=True, meanwhile=functools.partial(self.meanwhile, 0))
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
    makers: Mapping[str, cases.Make],
    given: Mapping[str, torch.Tensor],
    kernel: bool,
    limits: Limits,
    meanwhile: Meanwhile = _nothing,
) -> list[Trial]:
    """The trials of a softmax on each input, with the BLOCK that its maker asks for."""

    def try_one(task: tuple[torch.Tensor, int | None]) -> Trial:
        x, BLOCK = task
        return calling.of_softmax(fn, x, kernel, BLOCK)

    inputs = [(x, cases.block(makers[case])) for case, x in given.items()]
    return try_each(try_one, inputs, limits, meanwhile=meanwhile)


def _trial(outcome: Outcome) -> Trial:
    if outcome.end is End.RETURNED:
        return Trial.of({**outcome.value, "printed": outcome.printed})
    return Trial(outcome.end, outcome.said, printed=outcome.printed)


def _beside(given: Mapping[str, torch.Tensor], trials: Sequence[Trial]) -> Tried:
    return {case: (x, one) for (case, x), one in zip(given.items(), trials, strict=True)}


def _asked(fn: Callable, through: Callable | None) -> Callable:
    return fn if through is None else functools.partial(through, fn)


# What the other processes run


def _run_softmaxes(content: bytes, limits: Limits) -> bytes:
    fn, makers, seed, kernel = pickled.loads(content)
    trials = _tried(fn, makers, cases.draw(makers, seed), kernel, limits)
    return _saved([one.plain() for one in trials])


def _run_answers(content: bytes, limits: Limits) -> bytes:
    fn, given, in_turn = pickled.loads(content)
    return _saved([one.plain() for one in _answered(fn, given, limits, in_turn)])


def _run_on_gpu(content: bytes) -> bytes:
    run, fn, args = pickled.loads(content)
    return _saved(run(fn, *args).plain())


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
