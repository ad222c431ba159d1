"""The score that counts of one exercise: judged, as in a notebook, by a process that never runs the answer's code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from helpers import check, xray
from helpers.check.exercise import FunctionExercise
from helpers.check.problems.problem import Make
from helpers.check.report import Finding, Report
from helpers.check.trial.ranked import on_ranks
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.answer import BehindWalls
from helpers.instructor.grade.origin import is_borrowed
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.sandbox import lent, trials, wire
from helpers.instructor.sandbox.client import Ended, Sandbox

CELLS_S, CELLS_PROCESSOR_S = 90, 35
"""Seconds that the cells which an answer depends on may wait, and have of a processor with all that they start. Of one
process that has serve.CELLS_CPU_S, a little less, but what can be said within a sandbox can be unsaid there."""

Another = Callable[[], AbstractContextManager[Sandbox]]
HeldBack = Mapping[str, Mapping[str, Make]]
"""Cases that an instructor has added, by exercise and name."""

_LACKING = {"NameError", "KeyError", "AttributeError", "ModuleNotFoundError", "FileNotFoundError"}
"""Errors that speak of something which another cell may have made."""
_CUDA = "cuda"
"""Cells with this word may be meant for a machine with a GPU."""
_MOST_LEFT = 5
"""Statements of which a page says that they could not be run."""
_LONGEST_WORDS = 300


def as_text(words: Any, most: int = _LONGEST_WORDS) -> str:
    """What a learner's process says, as text that is safe to show anywhere: cut, and without control characters."""
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in str(words)[:most])


@dataclass(frozen=True)
class Handed:
    """The code cells of a notebook, as one exercise sees them."""

    sources: Sequence[str]
    above: int
    """So many of them stand above the exercise's check."""
    own: Sequence[int] = ()
    """Those, by their places, that the learner has written or changed to answer it."""
    names: frozenset[str] = frozenset()
    """What the cells to fill in define as they are handed out."""


@dataclass(frozen=True)
class LeftOut:
    """A statement that could not be run where the notebook was graded: its line's number and text, and the error."""

    number: int
    line: str
    said: str
    error: str
    """The name of the error's type."""


@dataclass(frozen=True)
class Scored:
    """The report on one exercise, and what else the instructor should know of it."""

    cell: GradedCell
    report: Report
    left_out: tuple[LeftOut, ...] = ()
    note: str = ""
    speed: float | str | None = None
    """Of a right kernel on a GPU, as a fraction of a copy's, where that was asked for; or why there is none."""
    with_held_back: Report | None = None
    """The report on the instructor's own cases too, if these were tried: for nobody else to see."""


@dataclass(frozen=True)
class _Way:
    """Which cells are run: of the first `above` the needed ones, or each; and whether a GPU is pretended."""

    above: int
    every_cell: bool = False
    gpu: bool = False


@dataclass(frozen=True)
class Defined:
    """What a sandbox says after it has run cells: what of them it could not run, and the answer that they define."""

    left_out: tuple[LeftOut, ...]
    """The first, from the learner's own cells before others."""
    own_failed: bool
    """A statement of the learner's own cells could not be run."""
    lacking: bool
    """One of the errors speaks of something that another cell may have made."""
    below: bool
    """The answer depends on a cell below its check."""
    binds: frozenset[str]
    """The names that the learner's own cells bind."""
    exists: bool
    is_function: bool
    module: str
    value: Any

    @classmethod
    def of(cls, sent: Any, own: Sequence[int] = ()) -> Defined:
        """Raises Ended for an answer of another form."""
        if not isinstance(sent, dict) or not isinstance(sent.get("failed"), list):
            raise Ended("its cells did not come to an end")
        failed = [one for one in sent["failed"] if isinstance(one, list | tuple) and len(one) == 5]
        failed.sort(key=lambda one: one[0] not in own)
        left_out = [
            LeftOut(_number(number), as_text(line), as_text(said), as_text(error, 100))
            for _, error, said, number, line in failed
        ]
        return cls(
            tuple(left_out[:_MOST_LEFT]),
            any(index in own for index, *_ in failed),
            any(error in _LACKING for _, error, *_ in failed),
            bool(sent.get("below")),
            frozenset(as_text(name, 100) for name in trials.items_of(sent.get("binds"))[:100]),
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

    def score(self, handed: Handed, cell: GradedCell) -> Scored:
        """The report on an exercise that a notebook has answered.

        Whatever the cells do ends in a report with points from 0 to the exercise's.
        """
        try:
            scored = self._score(handed, cell)
        except Ended as error:
            scored = Scored(cell, _wrong(cell, str(error)))
        points = scored.report.points
        if not (isinstance(points, int | float) and math.isfinite(points) and 0 <= points <= cell.points):
            return Scored(cell, _wrong(cell, "no points"), note=f"the check gave {points!r} points")
        return scored

    def _score(self, handed: Handed, cell: GradedCell) -> Scored:
        """From the cells above the check that the answer depends on, and in other ways where that does not settle it.

        Where something seems to be missing from all of these cells; where a cell below the check has a part in the
        answer, or nothing defines it, from those below too; and where the cells speak of CUDA, as if it were there.
        """
        everything = len(handed.sources)
        way = _Way(handed.above)
        best, defined = self._attempt(handed, cell, way)
        ways = []
        if not defined.exists or defined.lacking or any(f.error in _LACKING for f in best.report.findings):
            ways.append(_Way(handed.above, every_cell=True))
        if handed.above < everything and (not defined.exists or defined.below):
            ways.append(_Way(everything))
        if handed.above < everything and not defined.exists:
            ways.append(_Way(everything, every_cell=True))
        for another in ways:
            if not best.report.passed and (again := self._again(handed, cell, another)):
                more = again.report.points > best.report.points or (best.note and not again.note)
                best, way = (again, another) if more else (best, way)
        if not best.report.passed and any(_CUDA in source for source in handed.sources):
            again = self._again(handed, cell, replace(way, gpu=True))
            if again and again.report.points >= best.report.points and not again.note:
                return again
        return best

    def _again(self, handed: Handed, cell: GradedCell, way: _Way) -> Scored | None:
        """What another way of running the cells comes to; nothing where it does not come to an end."""
        try:
            return self._attempt(handed, cell, way)[0]
        except Ended:
            return None

    def _attempt(self, handed: Handed, cell: GradedCell, way: _Way) -> tuple[Scored, Defined]:
        sources = list(handed.sources)
        request = {"do": "define", "sources": sources, "answer": cell.answer, "own": list(handed.own), **asdict(way)}
        exercise = check.EXERCISES[cell.check]
        of_rank = getattr(exercise, "through", None) is on_ranks
        sandbox_of_it = partial(self.workshop.sandbox, lent.lent(exercise.may_call), of_rank=of_rank)

        @contextmanager
        def another() -> Iterator[Sandbox]:
            """One more sandbox in which the same cells have run."""
            with sandbox_of_it() as sandbox:
                Defined.of(sandbox.ask(request, CELLS_S, processor_s=CELLS_PROCESSOR_S))
                yield sandbox

        with sandbox_of_it() as learner:
            defined = Defined.of(learner.ask(request, CELLS_S, processor_s=CELLS_PROCESSOR_S), handed.own)
            scored = self._judge(learner, defined, sources[: way.above], cell, another)
        added = defined.binds - handed.names
        if not scored.report.attempted and handed.own and (not defined.exists or defined.own_failed or added):
            error = defined.left_out[0].error if defined.own_failed else ""
            note = "" if error else scored.note
            scored = replace(scored, report=_wrong(cell, _unfinished(defined, cell, added), error), note=note)
        return scored, defined

    def _judge(
        self, learner: Sandbox, defined: Defined, sources: Sequence[str], cell: GradedCell, another: Another
    ) -> Scored:
        if not defined.exists:
            report = Report(cell.check, cell.points, attempted=False, findings=())
            return Scored(cell, report, defined.left_out, f"{cell.answer} is not defined")
        place, held_back = BehindWalls(cell.answer, self.workshop, learner, another), self.held_back.get(cell.check)
        own: Report | None = None
        try:
            with xray.compiled_by(self.workshop.compiled):
                report = self._report(defined, place, cell)
                if report.points and held_back and defined.is_function:
                    own = place.report_with(held_back, check.EXERCISES[cell.check])
                    report = _with_verdicts(report, own, list(held_back))
        except Ended:
            raise
        except (TypeError, ValueError) as error:  # what a check says of an answer of the wrong kind
            return Scored(cell, _wrong(cell, str(error)), defined.left_out)
        except Exception as error:
            note = f"the check itself failed: {type(error).__name__}: {error}"[:300]
            return Scored(cell, _wrong(cell, "it could not be judged"), defined.left_out, note)
        if report.points and defined.is_function and is_borrowed(defined.module, place.kernels, sources):
            borrowed = Finding("your own code", False, "the course's own code gives the answer; write yours")
            report = replace(report, findings=(*report.findings, borrowed), kept=0)
        if report.points and any(_is_open(report, one) for one in report.findings):
            return Scored(cell, _withheld(report), defined.left_out, f"{report.note.rstrip('.')}; {_BY_HAND}")
        timed = place.speed() if self.gpu and report.points and place.kernels else None
        return Scored(cell, report, defined.left_out, speed=timed, with_held_back=own)

    def _report(self, defined: Defined, place: BehindWalls, cell: GradedCell) -> Report:
        exercise = check.EXERCISES[cell.check]
        if defined.is_function and isinstance(exercise, FunctionExercise):
            return exercise.report(place)
        if defined.is_function:
            return exercise.report_on(wire.Opaque(f"the function {cell.answer}"))
        return exercise.report_on(defined.value)


def _with_verdicts(report: Report, own: Report, held_back: Sequence[str]) -> Report:
    """The report, with the points that the one on the instructor's own cases leaves: of these it says no more than
    which were right. If only their trips are too many, none was."""
    wrong = {one.case for one in own.findings if not one.ok} & {*held_back}
    if own.points < report.points and not wrong:
        wrong = {*held_back}
    verdicts = (
        Finding(case, case not in wrong, "wrong; this case is your instructor's" * (case in wrong))
        for case in held_back
    )
    return replace(report, findings=(*report.findings, *verdicts), kept=min(report.points, own.points))


def _without_tensors(value: Any) -> Any:
    """`value` with what tensors look like in their place: an answer that is not a function must be made of numbers."""
    if isinstance(value, torch.Tensor):
        return wire.Opaque(f"a tensor of shape {tuple(value.shape)}")
    if isinstance(value, dict):
        return {key: _without_tensors(item) for key, item in value.items()}
    return type(value)(map(_without_tensors, value)) if isinstance(value, list | tuple) else value


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0


def _unfinished(defined: Defined, cell: GradedCell, added: frozenset[str]) -> str:
    """Why an answer on which the learner has worked is not there to be called."""
    if defined.own_failed:
        first = defined.left_out[0]
        return f"{first.said} (line {first.number} of the cell: `{first.line}`)"
    instead = f"; the cell defines {', '.join(sorted(added)[:5])}" if added else ""
    return f"{cell.answer} is {'as it was handed out' if defined.exists else 'not defined'}{instead}"


_BY_HAND = "no points until somebody has looked at the kernel and given them by hand"


def _is_open(report: Report, finding: Finding) -> bool:
    """Whether a finding is right only because nobody knows: it says what the report's note says."""
    return finding.ok and bool(report.note) and finding.seen == report.note


def _withheld(report: Report) -> Report:
    """The report on a right answer of which something could not be found out: it has no points yet."""
    findings = tuple(replace(one, ok=False) if _is_open(report, one) else one for one in report.findings)
    return replace(report, findings=findings, kept=0, because="")


def _wrong(cell: GradedCell, why: str, error: str = "") -> Report:
    return Report(cell.check, cell.points, True, (Finding("your answer", False, why[:_LONGEST_WORDS], error),))
