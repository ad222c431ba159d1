"""The score that counts of one exercise: judged, as in a notebook, by a process that never runs the answer's code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from helpers import check, xray
from helpers.check import cases
from helpers.check.exercise import FunctionExercise
from helpers.check.report import Diagnosis, Finding, Report
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.answer import CALLS_S, BehindWalls
from helpers.instructor.grade.borrowed import is_borrowed
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox import lent, wire
from helpers.instructor.sandbox.client import Ended, Sandbox

CELLS_S = 90
"""Seconds that the cells which an answer depends on may take together, of which serve.CELLS_CPU_S of a processor."""

HeldBack = Mapping[str, Mapping[str, cases.Make]]
"""Cases that an instructor has added, by exercise and name."""

_LACKING = {"NameError", "KeyError", "AttributeError", "ModuleNotFoundError", "FileNotFoundError"}
"""Errors that speak of something which another cell may have made."""


@dataclass(frozen=True)
class Scored:
    """The report on one exercise, and what else the instructor should know of it."""

    cell: GradedCell
    report: Report
    failed: tuple[str, ...] = ()
    """Errors of the learner's cells."""
    note: str = ""
    speed: float | str | None = None
    """Of a right kernel on a GPU, as a fraction of a copy's, where that was asked for; or why there is none."""


@dataclass(frozen=True)
class Defined:
    """What a sandbox says after it has run cells: which of their errors there were, and the answer that they define."""

    failed: tuple[str, ...]
    lacking: bool
    """One of the errors speaks of something that another cell may have made."""
    exists: bool
    is_function: bool
    module: str
    value: Any

    @classmethod
    def of(cls, sent: Any) -> Defined:
        """Raises Ended for an answer of another form."""
        if not isinstance(sent, dict) or not isinstance(sent.get("failed"), list):
            raise Ended("its cells did not come to an end")
        errors = [(str(error), str(said)) for error, said in sent["failed"][:5]]
        return cls(
            tuple(said[:300] for _, said in errors),
            any(error in _LACKING for error, _ in errors),
            bool(sent.get("defined")),
            "function" in sent,
            str(sent.get("module")),
            _without_tensors(sent.get("value")),
        )


@dataclass(frozen=True)
class Grader:
    """What grading needs besides the notebook: `gpu` says whether right kernels are timed on this machine's GPU."""

    workshop: Workshop
    held_back: HeldBack
    gpu: bool = False

    def score(self, sources: Sequence[str], cell: GradedCell) -> Scored:
        """The report on an exercise that a notebook with these code cells, up to its check, has answered.

        Whatever the cells do ends in a report with points from 0 to the exercise's.
        """
        try:
            scored = self._score(sources, cell)
        except Ended as error:
            scored = Scored(cell, _wrong(cell, str(error)))
        points = scored.report.points
        if not (isinstance(points, int | float) and math.isfinite(points) and 0 <= points <= cell.points):
            return Scored(cell, _wrong(cell, "no points"), note=f"the check gave {points!r} points")
        return scored

    def _score(self, sources: Sequence[str], cell: GradedCell) -> Scored:
        """From the cells that the answer depends on; where something seems to be missing, from all of them."""
        found, defined = self._attempt(sources, cell, every_cell=False)
        lacks = defined.lacking or any(finding.error in _LACKING for finding in found.report.findings)
        if found.note or (not found.report.passed and lacks):
            again, _ = self._attempt(sources, cell, every_cell=True)
            if found.note or again.report.points > found.report.points:
                return again
        return found

    def _attempt(self, sources: Sequence[str], cell: GradedCell, every_cell: bool) -> tuple[Scored, Defined]:
        with self.workshop.sandbox(lent.lent(check.EXERCISES[cell.check].may_call)) as learner:
            request = {"do": "define", "sources": list(sources), "answer": cell.answer, "every_cell": every_cell}
            defined = Defined.of(learner.ask(request, CELLS_S))
            return self._judge(learner, defined, sources, cell), defined

    def _judge(self, learner: Sandbox, defined: Defined, sources: Sequence[str], cell: GradedCell) -> Scored:
        if not defined.exists:
            report = Report(cell.check, cell.points, attempted=False, findings=())
            return Scored(cell, report, defined.failed, f"{cell.answer} is not defined above the check")
        place = BehindWalls(cell.answer, self.workshop, learner, self.held_back.get(cell.check, {}))
        try:
            with xray.compiled_by(self.workshop.compiled):
                report = self._report(defined, place, cell)
        except Ended:
            raise
        except (TypeError, ValueError) as error:  # what a check says of an answer of the wrong kind
            return Scored(cell, _wrong(cell, str(error)), defined.failed)
        except Exception as error:
            note = f"the check itself failed: {type(error).__name__}: {error}"[:300]
            return Scored(cell, _wrong(cell, "it could not be judged"), defined.failed, note)
        if report.points and defined.is_function and is_borrowed(defined.module, place.kernels, sources):
            borrowed = Finding("your own code", False, "the course's own code gives the answer; write yours")
            report = replace(report, findings=(*report.findings, borrowed), kept=0)
        timed = place.speed() if self.gpu and report.points and place.kernels else None
        return Scored(cell, report, defined.failed, speed=timed)

    def _report(self, defined: Defined, place: BehindWalls, cell: GradedCell) -> Report:
        exercise = check.EXERCISES[cell.check]
        if defined.is_function and isinstance(exercise, FunctionExercise):
            return exercise.report(place)
        if defined.is_function:
            return exercise.report_on(wire.Opaque(f"the function {cell.answer}"))
        if not _holds_kernel(defined.value) or isinstance(defined.value, wire.Kernel):
            return exercise.report_on(defined.value)
        with self.workshop.sandbox(None) as sandbox:
            told = sandbox.ask({"do": "check", "name": cell.check, "answer": defined.value}, CALLS_S)
        findings = tuple(Finding(str(case), bool(ok), str(seen)) for case, ok, seen in told["findings"])
        named = told["diagnosis"] and Diagnosis(**told["diagnosis"])
        return Report(cell.check, told["max_points"], bool(told["attempted"]), findings, told["kept"], named)


def _without_tensors(value: Any) -> Any:
    """`value` with what tensors look like in their place: an answer that is not a function must be made of numbers."""
    if isinstance(value, torch.Tensor):
        return wire.Opaque(f"a tensor of shape {tuple(value.shape)}")
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    return type(value)(map(_without_tensors, value)) if isinstance(value, list | tuple) else value


def _holds_kernel(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_kernel, value.values()))
    return isinstance(value, wire.Kernel) or (isinstance(value, list | tuple) and any(map(_holds_kernel, value)))


def _wrong(cell: GradedCell, why: str) -> Report:
    return Report(cell.check, cell.points, True, (Finding("your answer", False, why[:300]),))
