"""A function that a learner has written, in a place behind walls: what it does is seen from outside.

It is asked in one sandbox, in which the learner's cells have run. Where kernels count, a second one carries out what
the first asks of the GPU, on inputs that the first never sees: result and traffic can come from the kernels alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from helpers.check import calling_loss, cases, misled
from helpers.check.judge import shown_rows
from helpers.check.place import Tried
from helpers.check.trial import Trial
from helpers.engine.isolate import End
from helpers.instructor.grade import remote, simulated, speed
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox import language, trials
from helpers.instructor.sandbox.client import Ended, Sandbox
from helpers.xray import verdict

CALLS_S = 180
"""Seconds that all calls of an answer may take; each of them has less (isolate.LIMITS)."""


@dataclass
class BehindWalls:
    """A helpers.check.place.Place: the sandbox `learner` has the function under `name`."""

    name: str
    workshop: Workshop
    learner: Sandbox
    held_back: Mapping[str, cases.Make] = field(default_factory=dict)
    """Cases that the instructor has added."""
    kernels: set[str] = field(default_factory=set)
    """The text of the kernels that were launched."""

    def softmaxes(self, makers: Mapping[str, cases.Make], seed: int, kernel: bool) -> Tried:
        """See Place. The matrices are drawn here."""
        makers = {**makers, **self.held_back}
        given = cases.draw(makers, seed)
        inputs, blocks = list(given.values()), [cases.block(make) for make in makers.values()]
        if kernel:
            asked = self._for_plans([_layout(x) for x in inputs], blocks)
            found = self._carried_out(asked, {"do": "replay", "inputs": inputs})
        else:
            found = self._returned(inputs)
        return {case: (x, _like(x, one)) for (case, x), one in zip(given.items(), found, strict=True)}

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """See Place."""
        if through is misled.attempt:
            return simulated.tried(self.learner, self.name, [case for (case,) in given], CALLS_S)
        if through is calling_loss.loss_called:
            problems = [calling_loss.problem_of(case, seed) for case, seed, _ in given]
            layouts, targets = [_layout(x) for x, _ in problems], [target for _, target in problems]
            asked = {"do": "loss plans", "answer": self.name, "layouts": layouts, "targets": targets}
            return self._carried_out(asked, {"do": "replay losses", "given": list(given)})
        if through:
            return remote.driven(through, given, self.learner, self.name, CALLS_S)
        try:
            found = self.learner.ask({"do": "answers", "answer": self.name, "given": list(given)}, CALLS_S)
        except Ended as error:
            return [Trial(error.end, str(error))] * len(given)
        return [replace(one, launches=[]) for one in _of_length(found, len(given))]  # only a replay's are believed

    def on_gpu(self, run: Callable[..., Trial], given: Mapping[str, tuple]) -> dict[str, Trial]:
        """See Place: nothing of the learner's runs on a GPU but what `speed` times."""
        return {}

    def compiled(self, launches: Sequence[verdict.SeenLaunch]) -> verdict.Verdict:
        """See Place. The launches were seen by the process that carries out the learner's requests."""
        return verdict.verdict_on(launches, self.workshop.judged)

    def speed(self) -> float | str:
        """The speed of its kernels on this machine's GPU, as a fraction of a copy's."""
        (plan,) = self._plans(self._for_plans([speed.LAYOUT], [None]))
        return speed.of_copy(self.workshop, plan, speed.devices()) if "steps" in plan else str(plan.get("raised"))[:300]

    def _for_plans(self, layouts: list[list[Any]], blocks: list[int | None]) -> dict[str, Any]:
        return {"do": "plans", "answer": self.name, "layouts": layouts, "blocks": blocks}

    def _plans(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        plans, count = self.learner.ask(request, CALLS_S), len(request["layouts"])
        if not isinstance(plans, list) or len(plans) != count or not all(isinstance(p, dict) for p in plans):
            raise Ended("it did not say what it asks of the GPU")
        return plans

    def _returned(self, inputs: Sequence[torch.Tensor]) -> list[Trial]:
        """The trials of an answer that computes with PyTorch, from the tensors that it returns."""
        try:
            found = self.learner.ask({"do": "softmaxes", "answer": self.name, "inputs": list(inputs)}, CALLS_S)
        except Ended as error:
            return [Trial(error.end, str(error))] * len(inputs)
        if not isinstance(found, list) or len(found) != len(inputs):
            return [Trial(End.RAISED, "it answered in part only") for _ in inputs]
        return [remote.trial_of_matrix(one, x) for one, x in zip(found, inputs, strict=True)]

    def _carried_out(self, asked: dict[str, Any], replay: dict[str, Any]) -> list[Trial]:
        """The trials of what the learner's driver asks for, carried out in a sandbox of its own."""
        count = len(asked["layouts"])
        try:
            plans = self._plans(asked)
            with self.workshop.sandbox() as device:
                replayed = device.ask({**replay, "plans": plans}, CALLS_S)
        except Ended as error:
            return [Trial(error.end, str(error))] * count
        found = _of_length(replayed, count)
        for one, plan in zip(found, plans, strict=True):
            one.printed = one.printed or str(plan.get("printed", ""))[:5000]
            steps = [step for step in trials.items_of(plan.get("steps")) if isinstance(step, dict)]
            for step in steps:
                self.kernels |= {str(text)[: language.LONGEST_KERNEL] for text in _texts_of(step)}
        return found


def _texts_of(step: Mapping[str, Any]) -> list[Any]:
    """The text of a step's kernel, and of the functions that it is given as arguments."""
    given = step.get("args")
    values = given.values() if isinstance(given, dict) else ()
    kernels = [step.get("kernel"), *(value.get("kernel") for value in values if isinstance(value, dict))]
    return [text for kernel in kernels for text in trials.items_of(kernel)[:1]]


def _layout(x: torch.Tensor) -> list[Any]:
    size = x.untyped_storage().nbytes() // x.element_size()
    return [list(x.shape), list(x.stride()), x.storage_offset(), size, x.dtype]


def _of_length(sent: Any, count: int) -> list[Trial]:
    if not isinstance(sent, list) or len(sent) != count:
        return [Trial(End.RAISED, "it answered in part only") for _ in range(count)]
    return [trials.received(one) for one in sent]


def _like(x: torch.Tensor, one: Trial) -> Trial:
    """The trial, without results that no softmax of x, or of the rows that count, can have."""
    x = shown_rows(x, one)
    if one.y is not None and (one.y.shape != x.shape or one.y.dtype != x.dtype):
        one.got, one.got_shape, one.y = f"{tuple(one.y.shape)} {one.y.dtype}", list(one.y.shape), None
    if one.loaded is not None and one.loaded.shape != x.shape:
        one.loaded = None
    if one.stored is not None and one.stored.shape != x.shape:
        one.stored = None
    return one
