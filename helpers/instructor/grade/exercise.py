"""The score that counts: what an answer does is seen from outside, and judged in a process that never runs its code.

The checks are those of the notebooks. They are given a stand-in for the answer, which asks sandboxes: one in which the
learner's cells have run, and, for kernels, a second one that carries out what the first asks of the GPU, on inputs that
the first never sees. So neither the result nor its traffic can come from anywhere but the kernels.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from helpers import check, kernels, xray
from helpers.check import cases, trial
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial import Trial
from helpers.instructor.collect.course import Exercise
from helpers.instructor.grade import speed
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox import cells, language, wire
from helpers.instructor.sandbox.client import Ended, Sandbox

CELLS_S = 90
"""Seconds that the cells which an answer depends on may take together, of which serve.CELLS_CPU_S of a processor."""
CALLS_S = 180
"""Seconds that all calls of an answer may take; each of them has less (serve.LIMITS)."""

_KERNELS = [Path(kernels.__file__), *Path(kernels.__file__).with_name("softmax").glob("*.py")]
"""Where the course has its kernels."""
HeldBack = Mapping[str, Mapping[str, cases.Make]]


@dataclass
class Answer(trial.Elsewhere):
    """The stand-in for a function that a learner has written."""

    name: str
    module: str
    workshop: Workshop
    learner: Sandbox
    held_back: Mapping[str, cases.Make] = field(default_factory=dict)
    kernels: set[str] = field(default_factory=set)
    """The text of the kernels that were launched."""

    @property
    def __name__(self) -> str:
        return self.name

    def answers(self, given: Sequence[tuple], through: Callable | None = None) -> list[Trial]:
        """The trials of the function on plain arguments, or of what a function of helpers does with it."""
        by = through and f"{through.__module__}:{through.__qualname__}"
        return self._asked({"do": "answers", "answer": self.name, "given": list(given), "through": by}, len(given))

    def softmaxes(
        self, makers: Mapping[str, cases.Make], seed: int, kernel: bool
    ) -> dict[str, tuple[torch.Tensor, Trial]]:
        """The trials on matrices drawn here; where kernels are asked for, only what they do to these counts."""
        given = cases.make({**makers, **self.held_back}, seed)
        inputs = list(given.values())
        if not kernel:
            trials = self._asked({"do": "softmaxes", "answer": self.name, "inputs": inputs}, len(inputs))
        else:
            trials = self._replayed(inputs)
        return {case: (x, _like(x, one)) for (case, x), one in zip(given.items(), trials, strict=True)}

    def speed(self) -> float | str:
        """The speed of its kernels on this machine's GPU, as a fraction of a copy's."""
        (plan,) = self._plans([speed.LAYOUT])
        return str(plan["raised"])[:300] if "raised" in plan else speed.of_copy(plan)

    def _plans(self, layouts: list[list[Any]]) -> list[dict[str, Any]]:
        plans = self.learner.ask({"do": "plans", "answer": self.name, "layouts": layouts}, CALLS_S)
        if not isinstance(plans, list) or len(plans) != len(layouts) or not all(isinstance(p, dict) for p in plans):
            raise Ended("it did not say what it asks of the GPU")
        return plans

    def _asked(self, request: dict[str, Any], count: int) -> list[Trial]:
        try:
            found = [_trial(one) for one in self.learner.ask(request, CALLS_S)]
        except Ended as error:
            found = [Trial(raised=str(error))] * count
        return _of_length(found, count)

    def _replayed(self, inputs: list[torch.Tensor]) -> list[Trial]:
        layouts = [
            [
                list(x.shape),
                list(x.stride()),
                x.storage_offset(),
                x.untyped_storage().nbytes() // x.element_size(),
                x.dtype,
            ]
            for x in inputs
        ]
        try:
            plans = self._plans(layouts)
            with self.workshop.sandbox() as device:
                replayed = device.ask({"do": "replay", "plans": plans, "inputs": inputs}, CALLS_S)
        except Ended as error:
            return [Trial(raised=str(error))] * len(inputs)
        trials = _of_length([_trial(one) for one in replayed], len(inputs))
        for one, plan in zip(trials, plans, strict=True):
            one.printed = one.printed or str(plan.get("printed", ""))[:5000]
            steps = [step for step in _list(plan.get("steps")) if isinstance(step, dict)]
            self.kernels |= {str(text)[: language.LONGEST] for step in steps for text in _list(step.get("kernel"))[:1]}
        return trials


def _of_length(found: list[Trial], count: int) -> list[Trial]:
    return found if len(found) == count else [Trial(raised="it answered in part only")] * count


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _like(x: torch.Tensor, one: Trial) -> Trial:
    """The trial, without results that no softmax of x can have."""
    if one.y is not None and (one.y.shape != x.shape or one.y.dtype != x.dtype):
        one.y, one.got = None, f"{tuple(one.y.shape)} {one.y.dtype}"
    if one.loaded is not None and one.loaded.shape != x.shape:
        one.loaded = None
    if one.stored is not None and one.stored.shape != x.shape:
        one.stored = None
    return one


_LARGEST_TILE = 1 << 20
"""Lanes that Triton's widest access may have."""
_FIELDS = {one.name: one.type for one in fields(Trial)}


def _trial(sent: Any) -> Trial:
    """A trial of what a sandbox sent, which may be anything: every field has its type, or its default."""
    one = Trial()
    for name, value in sent.items() if isinstance(sent, dict) else ():
        if name in _FIELDS and _fits(value, getattr(one, name), name):
            setattr(one, name, value)
    one.raised, one.got, one.printed = one.raised[:1000], one.got[:300], one.printed[:5000]
    return one


def _fits(value: Any, default: Any, name: str) -> bool:
    if name in ("y", "loaded", "stored"):
        return value is None or isinstance(value, torch.Tensor)
    if name == "pair":
        return value is None or (
            isinstance(value, list) and len(value) == 2 and all(isinstance(item, int | float) for item in value)
        )
    if name == "answer":
        return True
    if name == "eager":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if name == "tile":
        return type(value) is int and 1 <= value <= _LARGEST_TILE
    return type(value) is type(default) and (not isinstance(value, int) or 0 <= value < 1 << 60)


@dataclass(frozen=True)
class Scored:
    """The report on one exercise, and what the instructor should know of it beside."""

    exercise: Exercise
    report: Report
    failed: tuple[str, ...] = ()
    """Errors of the learner's cells."""
    note: str = ""
    speed: float | str | None = None
    """Of a right kernel on a GPU, as a fraction of a copy's, where that was asked for; or why there is none."""


def score(
    workshop: Workshop, sources: Sequence[str], exercise: Exercise, held_back: HeldBack, gpu: bool = False
) -> Scored:
    """The report on an exercise that a notebook with these code cells, up to its check, has answered.

    Whatever the cells do ends in a report with points from 0 to the exercise's. With `gpu`, right kernels are timed.
    """
    try:
        scored = _score(workshop, sources, exercise, held_back, gpu)
    except Ended as error:
        scored = Scored(exercise, _wrong(exercise, str(error)))
    points = scored.report.points
    if not (isinstance(points, int | float) and math.isfinite(points) and 0 <= points <= exercise.points):
        return Scored(exercise, _wrong(exercise, "no points"), note=f"the check gave {points!r} points")
    return scored


def _score(workshop: Workshop, sources: Sequence[str], exercise: Exercise, held_back: HeldBack, gpu: bool) -> Scored:
    found = _attempt(workshop, sources, exercise, held_back, gpu, every_cell=False)
    if found.note or (not found.report.passed and _lacks_something(found)):
        again = _attempt(workshop, sources, exercise, held_back, gpu, every_cell=True)
        if found.note or again.report.points > found.report.points:
            return again
    return found


def _lacks_something(found: Scored) -> bool:
    """Whether errors speak of something that another cell may have made."""
    words = [*found.failed, *(finding.seen for finding in found.report.findings if not finding.ok)]
    return any(re.match(r"(NameError|KeyError|AttributeError|ModuleNotFoundError|FileNotFoundError)", w) for w in words)


def _attempt(
    workshop: Workshop, sources: Sequence[str], exercise: Exercise, held_back: HeldBack, gpu: bool, every_cell: bool
) -> Scored:
    with workshop.sandbox() as learner:
        made = _define(learner, sources, exercise, every_cell)
        return _judge(workshop, learner, made, sources, exercise, held_back, gpu)


def _define(learner: Sandbox, sources: Sequence[str], exercise: Exercise, every_cell: bool) -> dict[str, Any]:
    request = {"do": "define", "sources": list(sources), "answer": exercise.answer, "every_cell": every_cell}
    made = learner.ask(request, CELLS_S)
    if not isinstance(made, dict) or not isinstance(made.get("failed"), list):
        raise Ended("its cells did not come to an end")
    made["failed"] = [str(error)[:300] for error in made["failed"][:5]]
    return made


def _judge(
    workshop: Workshop,
    learner: Sandbox,
    made: dict[str, Any],
    sources: Sequence[str],
    exercise: Exercise,
    held_back: HeldBack,
    gpu: bool,
) -> Scored:
    failed = tuple(made["failed"])
    if not made.get("defined"):
        report = Report(exercise.check, exercise.points, attempted=False, findings=())
        return Scored(exercise, report, failed, f"{exercise.answer} is not defined above the check")
    answer: Any = _without_tensors(made.get("value"))
    if "function" in made:
        answer = Answer(exercise.answer, str(made.get("module")), workshop, learner, held_back.get(exercise.check, {}))
    try:
        report = _checked(workshop, exercise.check, answer)
    except Ended:
        raise
    except (TypeError, ValueError) as error:  # what a check says of an answer of the wrong kind
        return Scored(exercise, _wrong(exercise, str(error)), failed)
    except Exception as error:
        note = f"the check itself failed: {type(error).__name__}: {error}"[:300]
        return Scored(exercise, _wrong(exercise, "it could not be judged"), failed, note)
    report = _own(report, answer, sources)
    timed = answer.speed() if gpu and report.points and isinstance(answer, Answer) and answer.kernels else None
    return Scored(exercise, report, failed, speed=timed)


def _without_tensors(value: Any) -> Any:
    """`value` with what tensors look like in their place: an answer that is no function is made of numbers."""
    if isinstance(value, torch.Tensor):
        return wire.Opaque(f"a tensor of shape {tuple(value.shape)}")
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    return type(value)(map(_without_tensors, value)) if isinstance(value, list | tuple) else value


def _checked(workshop: Workshop, name: str, answer: Any) -> Report:
    if isinstance(answer, Answer) or not _holds_kernel(answer) or isinstance(answer, wire.Kernel):
        with xray.compiled_by(workshop.compiled):
            return getattr(check, name)(answer)
    with workshop.sandbox() as sandbox:
        told = sandbox.ask({"do": "check", "name": name, "answer": answer}, CALLS_S)
    findings = tuple(Finding(str(case), bool(ok), str(seen)) for case, ok, seen in told["findings"])
    named = told["diagnosis"] and Diagnosis(**told["diagnosis"])
    return Report(name, told["max_points"], bool(told["attempted"]), findings, told["kept"], named)


def _holds_kernel(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_kernel, value.values()))
    return isinstance(value, wire.Kernel) or (isinstance(value, list | tuple) and any(map(_holds_kernel, value)))


def _own(report: Report, answer: Any, sources: Sequence[str]) -> Report:
    """The report, without points where the answer is the course's own function or launches its kernels.

    A kernel of the course is known by its text, which stands in no cell: what it says of itself can be changed.
    """
    if not isinstance(answer, Answer) or not report.points:
        return report
    kernels_of_ours = _bodies(answer.kernels) & _of_the_course() - _bodies(sources)
    if not answer.module.startswith("helpers") and not kernels_of_ours:
        return report
    seen = "the course's own code gives the answer; write yours"
    return replace(report, findings=(*report.findings, Finding("your own code", False, seen)), kept=0)


@cache
def _of_the_course() -> frozenset[str]:
    return frozenset(_bodies(path.read_text(encoding="utf-8") for path in _KERNELS))


def _bodies(texts: Iterable[str]) -> set[str]:
    """What the functions of these texts do, whatever they are called."""
    found = set()
    for text in texts:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            nodes = ast.walk(ast.parse(cells.as_python(text)))
            found |= {ast.unparse(_without_docstring(node)) for node in nodes if isinstance(node, ast.FunctionDef)}
    return found


def _without_docstring(function: ast.FunctionDef) -> ast.Module:
    first, *rest = function.body
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return ast.Module(rest if is_text and rest else function.body, [])


def _wrong(exercise: Exercise, why: str) -> Report:
    return Report(exercise.check, exercise.points, True, (Finding("your answer", False, why[:300]),))
