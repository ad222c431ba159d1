"""An exercise of the course, as the table in exercises/ lists them: all that checks, graders and progress ask of it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from tqdm.auto import tqdm

from helpers.check.judge import CERTAIN, is_settled, judge_tensors
from helpers.check.mistakes.edited import Edited, two_at_once
from helpers.check.mistakes.recognise import Mistake, Seen, best_explained
from helpers.check.problems.kind import Kind
from helpers.check.problems.problem import Inputs, Make, Problems
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial.own import borrows
from helpers.check.trial.place import Place, here
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial, shown
from helpers.engine.isolate import LIMITS, Limits
from helpers.engine.numbers import counted
from helpers.engine.runtime import bars_are_off, refuse_where_nothing_runs

EVERY_ONE = ("helpers.DEVICE", "helpers.ON_GPU", "helpers.banner", "helpers.table", "helpers.traffic")
"""What of helpers the answer to any exercise may call."""

OURS = Diagnosis(
    "the_course_s_own",
    "The course's own answer is called.",
    "Which lines of yours would take its place?",
    0,
)


class WrongArgument(TypeError):
    """A check was given something of another kind than its exercise asks for; the message says what to pass."""


Given = Mapping[str, tuple[tuple, Any]]
"""By case: the arguments of a function, and the right result."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """What all exercises have. `report_on` judges an answer, and remembers nothing."""

    name: str
    """Of its check: check.NAME(answer)."""
    number: str
    """As in "5.3"."""
    points: float
    about: str
    """What `help(check.NAME)` says."""
    known: tuple[Mistake, ...] = ()
    """Its mistakes: first the ones recognised with certainty, then the ones known only by a symptom."""
    may_call: tuple[str, ...] = ()
    """What of helpers an answer may call besides what every one may (EVERY_ONE): modules, and names in modules."""
    ours: Callable | None = None
    """The course's answer, for later cells that need one before the learner's has passed."""
    why: str = ""
    """A question about an answer that has passed."""

    def report_on(self, answer: Any, *, seed: int | None = None, limits: Limits = LIMITS) -> Report:
        """The report on an answer of this process. `seed` draws the inputs; by default they are new in every call.

        Raises WrongArgument for an answer of another kind; `misunderstood` is the report on that.
        """
        raise NotImplementedError

    def misunderstood(self, error: WrongArgument) -> Report:
        """The report on an answer of another kind."""
        return Report(self.name, self.points, True, (Finding("what the check was given", False, str(error)),))

    def untouched(self) -> Report:
        """The report on starter code."""
        return Report(self.name, self.points, attempted=False, findings=())

    def judged(
        self,
        findings: Sequence[Finding],
        *,
        kept: float = 0,
        diagnosis: Diagnosis | None = None,
        printed: str = "",
        note: str = "",
        most_ways: int = Report.most_ways,
        shown_by: str = "",
        because: str = "",
    ) -> Report:
        """The report on an answer; `kept` is the part of the points that it has although not all findings are right."""
        return Report(
            self.name,
            self.points,
            attempted=True,
            findings=tuple(findings),
            kept=kept * self.points,
            diagnosis=diagnosis,
            printed=printed,
            note=note,
            most_ways=most_ways,
            shown_by=shown_by,
            because=because,
        )

    def named(self, seen: Sequence[Seen], *others: Mistake) -> Mistake | None:
        """The mistake, a known one of the exercise or one of `others`, that explains most of the trials; or two of them
        that explain more together."""
        one, most = best_explained((*self.known, *others), seen)
        certain = isinstance(one, Edited) and most >= CERTAIN
        if most >= 1 or (certain and not one.answer.is_quick):
            return one
        both, more = two_at_once(self.known, seen, one if certain else None)
        return both if more > most else one


@dataclass(frozen=True, kw_only=True)
class ValuesExercise(Exercise):
    """Asks for plain values."""

    judge: Callable[[ValuesExercise, Any], Report]

    def report_on(self, answer: Any, *, seed: int | None = None, limits: Limits = LIMITS) -> Report:
        """See Exercise. Nothing is drawn, and nothing of the answer runs."""
        return self.judge(self, answer)

    def require_keys(self, answers: Any, keys: Sequence[Any]) -> None:
        """Raises WrongArgument unless `answers` is a dict with just these keys."""
        if not isinstance(answers, Mapping) or set(answers) != set(keys):
            listed = ", ".join(map(repr, keys))
            raise WrongArgument(f"check.{self.name} takes a dict with the keys {listed}; got {shown(answers)}.")


@dataclass(frozen=True, kw_only=True)
class FunctionExercise(Exercise):
    """Asks for a function, which is tried in a place of its own."""

    starters: frozenset[str] = starters()
    """The instructions of the function as it is handed out: see starter.py."""

    def report_on(self, answer: Any, *, seed: int | None = None, limits: Limits = LIMITS) -> Report:
        """See Exercise. Raises ValueError where kernels can be compiled but not run."""
        refuse_where_nothing_runs()
        if hasattr(answer, "fn") and hasattr(answer, "run"):
            name = answer.fn.__name__
            raise WrongArgument(f"check.{self.name} takes the driver, the Python function that launches {name}.")
        if not callable(answer):
            said = f"takes your function itself, as in check.{self.name}(my_function)"
            raise WrongArgument(f"check.{self.name} {said}; got {shown(answer)}.")
        with _as_everywhere():
            with _progress(self.name, self.n_cases) as progress:
                report = self.report(here(answer, limits, progress.update), seed)
        name = borrows(answer, (*EVERY_ONE, *self.may_call))
        if name and report.points:
            said = f"{name} is the course's own: where answers are graded it is not there"
            findings = *report.findings, Finding("your own code", False, said, extra=True)
            report = replace(report, findings=findings, kept=0, because="", diagnosis=report.diagnosis or OURS)
        return report

    @property
    def n_cases(self) -> int | None:
        """How many cases there are, if that is known before they are drawn."""
        return None

    def report(self, place: Place, seed: int | None = None) -> Report:
        """The report on the answer that `place` has."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class TensorExercise(FunctionExercise):
    """Asks for a function of tensors that returns tensors; for a driver of kernels, `loads` and `stores` are the trips
    for each element of x that it may make."""

    kind: Kind
    makers: Mapping[str, Make]
    loads: float | Callable[[Inputs, Trial], float] | None = None
    """Of each element of x; or a function of the inputs and a trial, which says how the work was shared out: of all
    inputs together."""
    stores: float = 1
    starter: Callable[..., tuple[torch.Tensor, ...]] | None = None
    """The results of the starter code for the inputs, if it stores something."""
    starter_loads: float = 0.0
    """The loads per element of the starter code."""
    starter_loads_by: str = ""
    """The option of the driver whose value they are, if a case gives it."""
    starter_shows: str = "m and l are still what the starter code makes them"
    """What a result says that is the starter code's."""
    buffer: float = 0.01
    """Loads, and stores, per element that may go to something other than the input and the result."""
    shared: bool = False
    """Several programs take part in a long row."""
    uncounted: tuple[str, ...] = ()
    """Cases in which trips do not count."""
    overspent: tuple[Mistake, ...] = ()
    """Mistakes of a right answer that makes too many trips: the cases that cost too much count as the wrong ones."""

    @property
    def n_cases(self) -> int:
        """See FunctionExercise."""
        return len(self.makers)

    def report(self, place: Place, seed: int | None = None) -> Report:
        """See FunctionExercise. The cases that tell mistakes apart come first, the others if these are not enough."""
        problems, tried = Problems(self.makers, self.kind.wants, seed_or_new(seed), self.kind.turned), {}
        telling = [case for case in self.makers if case in self.kind.telling]
        parts = [part for part in (telling, [case for case in self.makers if case not in telling]) if part] or [[]]
        for part in parts:
            tried |= place.drivers(problems.only(part), kernel=self.loads is not None)
            if part is not parts[-1] and is_settled(self, tried):
                break
        report = judge_tensors(self, tried, lambda: place.on_gpu(problems.only(self.kind.on_gpu)), place.compiled)
        if not (untried := len(self.makers.keys() - tried.keys())) or not report.attempted:
            return report
        return replace(report, note=f"{counted(untried, 'more case')} left out: these show the mistake.")


@dataclass(frozen=True, kw_only=True)
class CountedExercise(TensorExercise):
    """Asks for a function in PyTorch, a piece of its work at a time: of a right one, further cases show what its
    operations move and keep. (A grader sees operations only if the calls are made as a kernel's are.)"""

    further: Mapping[str, Make]
    spends: Sequence[tuple[Diagnosis, Callable[[Inputs, Trial], str]]]
    """By its name, says in words how much is too much, or "". Without right results there, the first name holds."""
    piece: str
    """Such as "block"."""

    def report(self, place: Place, seed: int | None = None) -> Report:
        """See FunctionExercise."""
        report = super().report(place, seed)
        if not report.passed:
            return report
        tried = place.drivers(Problems(self.further, self.kind.wants, seed_or_new(seed)), kernel=True)
        for case, (problem, trial) in tried.items():
            for named, spends in self.spends:
                if said := self._wrong(problem.inputs, trial) or spends(problem.inputs, trial):
                    finding = Finding(f"{self.piece} by {self.piece}", False, f"{case}: {said}")
                    return self.judged([*report.findings, finding], kept=0.5, diagnosis=named)
        return report

    def _wrong(self, inputs: Inputs, trial: Trial) -> str:
        if trial.results and not trial.kernels and self.kind.is_right(inputs, trial.results):
            return ""
        said = trial.raised or trial.got or ("a kernel runs" if trial.kernels else "they are wrong")
        return f"no right results by PyTorch's operations alone: {said}"


@dataclass(frozen=True, kw_only=True)
class AnswersExercise(FunctionExercise):
    """Asks for a function of plain values: `draw` makes its cases, and `judge` has them and a trial of each."""

    draw: Callable[[random.Random], Given]
    judge: Callable[[AnswersExercise, Given, Sequence[Trial]], Report]
    through: Callable | None = None
    """A function of helpers that calls the answer: it is given the answer, and then the arguments."""

    def report(self, place: Place, seed: int | None = None) -> Report:
        """See FunctionExercise."""
        given = self.draw(random.Random(seed_or_new(seed)))
        return self.judge(self, given, place.answers([args for args, _ in given.values()], self.through))


@contextmanager
def _as_everywhere() -> Iterator[None]:
    """In the block torch makes float32 of Python's floats, in inputs and in the answer, whatever a notebook has set.

    It computes on one thread: what a check computes is small, and threads of a busy machine wait for each other.
    """
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


def _progress(name: str, n_cases: int | None) -> tqdm:
    """A bar that a notebook shows for as long as the check goes on, once it has gone on for two seconds."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    quiet = bars_are_off() or not hasattr(shell, "kernel")
    return tqdm(total=n_cases, desc=f"checking {name}", unit="case", delay=2, leave=False, disable=quiet)


def seed_or_new(seed: int | None) -> int:
    return random.SystemRandom().randrange(2**31) if seed is None else seed
