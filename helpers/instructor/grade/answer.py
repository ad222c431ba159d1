"""A function that a learner has written, in a place behind walls: what it does is seen from outside.

It is asked in one sandbox, in which the learner's cells have run. Where kernels count, a second one carries out what
the first asks of the GPU, on inputs that the first never sees: result and traffic can come from the kernels alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from helpers.check.exercise import TensorExercise
from helpers.check.judge import shown_rows
from helpers.check.problems import misled
from helpers.check.problems.problem import Make, Problem, Problems
from helpers.check.report import Report
from helpers.check.trial.place import Tried
from helpers.check.trial.ranked import on_ranks
from helpers.check.trial.trial import Trial
from helpers.engine.compiler import verdict
from helpers.engine.isolate import End
from helpers.instructor.grade import benchmarks, ranked, remote, speed
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox import language, trials
from helpers.instructor.sandbox.client import Ended, Sandbox

CALLS_S = 180
"""Seconds that all calls of an answer may take; each of them has less (isolate.LIMITS)."""


@dataclass
class BehindWalls:
    """A helpers.check.trial.place.Place: the sandbox `learner` has the function under `name`."""

    name: str
    workshop: Workshop
    learner: Sandbox
    others: Callable[[], AbstractContextManager[Sandbox]] | None = None
    """Makes further sandboxes in which the learner's cells have run: a function of ranks needs one for each."""
    kernels: set[str] = field(default_factory=set)
    """The text of the kernels that were launched."""
    tried: Tried = field(default_factory=dict)
    """The cases so far."""

    def drivers(self, problems: Problems, kernel: bool) -> Tried:
        """See Place. The inputs are drawn here."""
        drawn = problems.draw()
        found = (self._carried_out if kernel else self._returned)(list(drawn.values()))
        tried = {case: (one, _like(one, trial)) for (case, one), trial in zip(drawn.items(), found, strict=True)}
        self.tried |= tried
        return tried

    def report_with(self, held_back: Mapping[str, Make], exercise: TensorExercise) -> Report:
        """The report on the cases so far and others, which a sandbox of their own is asked: nothing else has seen them.

        Raises Ended.
        """
        with self.others() as learner:
            beside = _Beside(self.name, self.workshop, learner, kernels=self.kernels, tried=dict(self.tried))
            return replace(exercise, makers=held_back).report(beside)

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        if through:
            return _WAYS.get(through, partial(_driven, through))(self, given)
        try:
            found = self.learner.ask({"do": "answers", "answer": self.name, "given": list(given)}, CALLS_S)
        except Ended as error:
            return [Trial(error.end, str(error))] * len(given)
        return [replace(one, launches=[]) for one in _of_length(found, len(given))]  # only a replay's are believed

    def on_gpu(self, problems: Problems) -> Tried:
        """See Place: nothing of the learner's runs on a GPU but what `speed` times."""
        return {}

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """See Place. The launches were seen by the process that carries out the learner's requests."""
        return verdict.verdict_on(launches, self.workshop.judged)

    def speed(self) -> float | str:
        """The speed of its kernels on this machine's GPU, as a fraction of a copy's."""
        (plan,) = self._plans([{"inputs": [speed.LAYOUT], "wants": []}])
        return speed.of_copy(self.workshop, plan, speed.devices()) if "steps" in plan else str(plan.get("raised"))[:300]

    def _plans(self, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the driver asks for, for each problem; in place of a tensor it may have the tensor's layout."""
        plans = self.learner.ask({"do": "plans", "answer": self.name, "problems": problems}, CALLS_S)
        if not isinstance(plans, list) or len(plans) != len(problems) or not all(isinstance(p, dict) for p in plans):
            raise Ended("it did not say what it asks of the GPU")
        return plans

    def _returned(self, problems: Sequence[Problem]) -> list[Trial]:
        """The trials of an answer that computes with PyTorch, from the tensors that it returns."""
        asked = {"do": "results", "answer": self.name, "problems": [one.plain() for one in problems]}
        try:
            found = self.learner.ask(asked, CALLS_S)
        except Ended as error:
            return [Trial(error.end, str(error))] * len(problems)
        if not isinstance(found, list) or len(found) != len(problems):
            return [Trial(End.RAISED, "it answered in part only") for _ in problems]
        return [remote.trial_of_results(one, problem) for one, problem in zip(found, problems, strict=True)]

    def _carried_out(self, problems: Sequence[Problem]) -> list[Trial]:
        """The trials of what the learner's driver asks for, carried out in a sandbox of its own."""
        try:
            with self.workshop.sandbox() as device:
                return [one for some in _batches(problems) for one in self._replayed(some, device)]
        except Ended as error:
            return [Trial(error.end, str(error))] * len(problems)

    def _replayed(self, problems: Sequence[Problem], device: Sandbox) -> list[Trial]:
        plans = self._plans([_without_numbers(one) for one in problems])
        request = {"do": "replay", "plans": plans, "problems": [one.plain() for one in problems]}
        found = _of_length(device.ask(request, CALLS_S), len(problems))
        for one, plan in zip(found, plans, strict=True):
            one.printed = one.printed or str(plan.get("printed", ""))[:5000]
            steps = [step for step in trials.items_of(plan.get("steps")) if isinstance(step, dict)]
            for step in steps:
                self.kernels |= {str(text)[: language.LONGEST_KERNEL] for text in _texts_of(step)}
        return found


class _Beside(BehindWalls):
    """The same, which tells of the cases before as well."""

    def drivers(self, problems: Problems, kernel: bool) -> Tried:
        """See Place."""
        return self.tried | super().drivers(problems, kernel)


MOST_ADDRESSES = 5 << 30
"""Bytes between the first and the last element of tensors, all together, that a sandbox is given at once: it still has
the ones before when it gets the next."""


def _batches(problems: Sequence[Problem]) -> Iterator[list[Problem]]:
    """The problems in as many parts as it takes for a sandbox to have addresses for each part."""
    some: list[Problem] = []
    for problem in problems:
        if some and sum(map(_addresses, (*some, problem))) > MOST_ADDRESSES:
            yield some
            some = []
        some.append(problem)
    yield some


def _addresses(problem: Problem) -> int:
    reach = (sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) for x in problem.inputs)
    return sum(x.element_size() * elements for x, elements in zip(problem.inputs, reach, strict=True))


def _driven(through: Callable, place: BehindWalls, given: Sequence[tuple]) -> list[Trial]:
    return remote.driven(through, given, place.learner, place.name, CALLS_S)


def _benchmarked(place: BehindWalls, given: Sequence[tuple]) -> list[Trial]:
    return benchmarks.tried(place.learner, place.name, [case for (case,) in given])


def _on_ranks(place: BehindWalls, given: Sequence[tuple]) -> list[Trial]:
    return ranked.tried_on_ranks(place.learner, place.others, place.name, given)


_WAYS: dict[Callable, Callable[[BehindWalls, Sequence[tuple]], list[Trial]]] = {
    misled.attempt: _benchmarked,
    on_ranks: _on_ranks,
}
"""By the function through which an answer is called: how a sandbox is asked, if one call of it does not do."""


def _texts_of(step: Mapping[str, Any]) -> list[Any]:
    """The text of a step's kernel, and of the functions that it is given as arguments."""
    given = step.get("args")
    values = given.values() if isinstance(given, dict) else ()
    kernels = [step.get("kernel"), *(value.get("kernel") for value in values if isinstance(value, dict))]
    return [text for kernel in kernels for text in trials.items_of(kernel)[:1]]


def _without_numbers(problem: Problem) -> dict[str, Any]:
    """The problem as a driver may know it: whole numbers, such as targets, and of all other tensors the layout."""
    inputs = [_layout(x) if x.is_floating_point() else x for x in problem.inputs]
    return {**problem.plain(), "inputs": inputs}


def _layout(x: torch.Tensor) -> list[Any]:
    size = x.untyped_storage().nbytes() // x.element_size()
    return [list(x.shape), list(x.stride()), x.storage_offset(), size, x.dtype]


def _of_length(sent: Any, count: int) -> list[Trial]:
    if not isinstance(sent, list) or len(sent) != count:
        return [Trial(End.RAISED, "it answered in part only") for _ in range(count)]
    return [trials.received(one) for one in sent]


def _like(problem: Problem, one: Trial) -> Trial:
    """The trial, without results that no call on these rows can have."""
    problem = shown_rows(problem, one)
    if one.results and not _fit(one.results, problem):
        y = one.results[0]
        one.got, one.got_shape, one.results = f"{tuple(y.shape)} {y.dtype}", list(y.shape), []
    if one.again and not _fit(one.again, problem):
        one.again = []
    if one.loaded is not None and one.loaded.shape != problem.x.shape:
        one.loaded = None
    if one.stored is not None and one.stored.numel() not in {math.prod(shape) for shape, _ in problem.wants}:
        one.stored = None
    return one


def _fit(results: Sequence[torch.Tensor], problem: Problem) -> bool:
    return [(tuple(y.shape), y.dtype) for y in results] == list(problem.wants)
