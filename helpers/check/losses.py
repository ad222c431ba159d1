"""Losses of rows, judged: the right ones, the report on an answer's calls, and how a mistake is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from helpers.check import cases
from helpers.check.calling_loss import (
    IGNORED,
    PROBLEMS,
    RUN_ON_GPU,
    Called,
    changed_logits,
    loss_called,
    loss_on_gpu,
    problem_of,
)
from helpers.check.exercise import FunctionExercise, seed_or_new
from helpers.check.judge import (
    NOT_COMPILED,
    OVER_BUDGET,
    RACE,
    RACE_OF_LANES,
    STORED_TWICE,
    at_worst,
    compiled_findings,
    not_own_work,
    own_work,
    raced,
    refused_at_launch,
    refused_by_compiler,
    shown_rows,
    stopped,
)
from helpers.check.place import Place
from helpers.check.recognise import Explains, Seen, diagnose, shown_by
from helpers.check.report import Diagnosis, Finding, Report, first_lines
from helpers.check.trial import Trial
from helpers.engine.isolate import End


def expected_losses(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses (M,) and the gradient (M, V) of their sum, in float64."""
    double, kept = x.double(), target != IGNORED
    at = target.where(kept, 0)[:, None]
    losses = torch.where(kept, -torch.log_softmax(double, 1).gather(1, at)[:, 0], 0.0)
    onehot = torch.zeros_like(double).scatter(1, at, 1.0)
    return losses, torch.where(kept[:, None], torch.softmax(double, 1) - onehot, 0.0)


# Judged


@dataclass(frozen=True)
class LossSeen(Seen):
    """A case, its targets, and the losses (M,) and the gradient (M, V) that came back, as far as something did."""

    target: torch.Tensor
    losses: torch.Tensor | None = None
    gradient: torch.Tensor | None = None
    again: tuple[torch.Tensor, torch.Tensor | None] | None = None
    """The losses and the gradient of a second call, whose logits are `changed_logits(x)`."""

    @property
    def second(self) -> LossSeen:
        """The second call, as if it were the first."""
        return replace(self, x=changed_logits(self.x), losses=self.again[0], gradient=self.again[1], again=None)


@dataclass(frozen=True, kw_only=True)
class LossExercise(FunctionExercise):
    """Asks for the losses of rows, and where `gradient` says so for their gradient, from one load of each logit."""

    gradient: bool = False

    @property
    def n_cases(self) -> int:
        """See FunctionExercise."""
        return len(PROBLEMS)

    def report(self, place: Place, seed: int | None = None) -> Report:
        """See FunctionExercise."""
        seed = seed_or_new(seed)
        trials = place.answers([(case, seed, self.gradient) for case in PROBLEMS], through=loss_called)
        seen = [_seen(self, case, seed, one) for case, one in zip(PROBLEMS, trials, strict=True)]
        if not any(map(_is_attempted, seen)):
            return self.untouched()
        findings = [_finding(self, one) for one in seen]
        seen = [replace(one, ok=finding.ok) for one, finding in zip(seen, findings, strict=True)]
        printed = first_lines(next((one.trial.printed for one in seen if one.trial.printed), ""))
        if not all(finding.ok for finding in findings):
            named = diagnose((*self.known, RACE, RACE_OF_LANES, NOT_COMPILED), seen)
            case = shown_by(named, seen)
            named = refused_at_launch(seen) if named is NOT_COMPILED else named
            return self.judged(findings, diagnosis=named, printed=printed, shown_by=case)
        if race := raced(seen):
            return self.judged([race.finding, *findings], diagnosis=race.named, printed=printed)
        return self._right(place, seed, seen, findings, printed)

    def _right(
        self, place: Place, seed: int, seen: Sequence[LossSeen], findings: list[Finding], printed: str
    ) -> Report:
        """The report on an answer that is right interpreted: whose work it is, what it costs, and whether a GPU can run
        it, and does."""
        own, budget = own_work(seen), _budget(seen, self.gradient)
        verdict = place.compiled([launch for one in seen for launch in one.trial.launches])
        findings = [*findings, own, budget, *compiled_findings(verdict)]
        note = "" if verdict.refusals else verdict.missing
        diagnosis: Diagnosis | None = None
        kept = 1.0
        if verdict.refusals:
            diagnosis, kept = refused_by_compiler(verdict.refusals[0]), 0.0
        elif not own.ok:
            diagnosis, kept = not_own_work(seen), 0.0
        elif not budget.ok:
            diagnosis, kept = OVER_BUDGET if _over(seen, self.gradient) else STORED_TWICE, 0.5
        if kept:
            trials = place.on_gpu(loss_on_gpu, {case: (case, seed, self.gradient) for case in RUN_ON_GPU})
            again = [_finding(self, _seen(self, case, seed, one)) for case, one in trials.items()]
            failed = [replace(one, case=f"on the GPU: {one.case}") for one in again if not one.ok]
            findings += failed
            kept = 0.0 if failed else kept
        return self.judged(findings, kept=kept, diagnosis=diagnosis, printed=printed, note=note)


_FIELDS = {field.name for field in fields(Called)}
_OBSERVED = _FIELDS - {"losses", "gradient", "launches", "again", "gradient_again"}


def _seen(exercise: LossExercise, case: str, seed: int, one: Trial) -> LossSeen:
    """The case with what the call showed; `ok` is filled in later."""
    x, target = problem_of(case, seed)
    few = shown_rows(x, one)
    if one.raised or not isinstance(one.answer, str):
        return LossSeen(case, few, one, False, target[: len(few)])
    told = _told(one.answer)
    if told is None:
        return LossSeen(case, few, replace(one, got="something that no call shows"), False, target[: len(few)])
    launches = [_tuples(launch) for launch in told.launches]
    if told.sampled:
        x, target = x[list(told.rows)], target[list(told.rows)]
    elif len(x) > len(few):
        x, target = few, target[: len(few)]
    trial = replace(one, got_none=False, launches=launches, **{name: getattr(told, name) for name in _OBSERVED})
    trial.got = trial.got[:300]
    if told.got or told.skipped:
        return LossSeen(case, x, trial, False, target)
    gradient, later = (
        torch.tensor(part) if exercise.gradient else None for part in (told.gradient, told.gradient_again)
    )
    again = (torch.tensor(told.again), later) if len(told.again) else None
    return LossSeen(case, x, trial, False, target, torch.tensor(told.losses), gradient, again)


def _told(text: str) -> Called | None:
    """The Called that a text holds, if it holds one: an answer's process may say anything."""
    try:
        values = json.loads(text)
        told = Called(**values) if set(values) == _FIELDS else None
        numbers = told and (told.losses, told.gradient, told.again, told.gradient_again)
        are_numbers = numbers and all(torch.tensor(part).dtype.is_floating_point for part in numbers)
        rows = (*told.gradient, *told.gradient_again) if are_numbers else (None,)
        return told if all(isinstance(row, list) for row in rows) else None
    except (TypeError, ValueError, AttributeError, OverflowError, RuntimeError):
        return None


def _tuples(value: Any) -> Any:
    """A value with tuples where JSON knows only lists."""
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _is_attempted(seen: LossSeen) -> bool:
    """Whether this is more than starter code does, which says that all losses are 0, and no error."""
    if seen.trial.end is End.NOT_RUN or (seen.trial.unwritten and not seen.trial.printed):
        return False
    if seen.losses is None:
        return True
    return bool(seen.losses.any()) or (seen.gradient is not None and bool(seen.gradient.any()))


def _finding(exercise: LossExercise, seen: LossSeen) -> Finding:
    case, trial = seen.case, seen.trial
    if trial.raised:
        return stopped(case, trial)
    if trial.skipped:
        return Finding(case, True, "not run to its end, which takes very long")
    if seen.losses is None:
        return Finding(case, False, f"got {trial.got or trial.answer}")
    if not trial.kernels:
        return Finding(case, False, "no Triton kernel was launched")
    if trial.missing:
        return Finding(case, False, f"rows are missing: {trial.missing}")
    if trial.input_changed:
        return Finding(case, False, "the logits or the targets were overwritten")
    if not _fits(seen):
        return Finding(case, False, "got results of another shape")
    want, slope = expected_losses(seen.x, seen.target)
    wrong = _wrong_losses(seen)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        said = f"the loss of row {row}, target {int(seen.target[row])}"
        return Finding(case, False, f"{said}: expected {want[row]:.6g}, got {seen.losses[row]:.6g}")
    if seen.gradient is not None:
        wrong = _wrong_slopes(seen)
        if wrong.any():
            said = f"{int(wrong.sum())} of {wrong.numel()} slopes are wrong, {at_worst(slope, seen.gradient, wrong)}"
            return Finding(case, False, said)
    return _again(seen) or Finding(case, True, "right")


def _again(seen: LossSeen) -> Finding | None:
    """The fault of the second call, where there was one."""
    if seen.trial.again_raised:
        return Finding(seen.case, False, f"called again with other logits: {seen.trial.again_raised}")
    if seen.trial.overwritten:
        return Finding(seen.case, False, "a second call overwrites what the first has returned")
    if seen.again is None:
        return None
    if not _is_right(seen.second):
        return Finding(seen.case, False, "called again with other logits: the result is wrong")
    return None


def _is_right(seen: LossSeen) -> bool:
    if not _fits(seen) or _wrong_losses(seen).any():
        return False
    return seen.gradient is None or not _wrong_slopes(seen).any()


def returns_the_first_losses(seen: Seen) -> bool:
    """A second call, with other logits, has returned losses or a gradient that were right for the first ones."""
    if not isinstance(seen, LossSeen) or seen.again is None or not _is_right(seen):
        return False
    if not _wrong_losses(replace(seen, losses=torch.zeros_like(seen.losses))).any():
        return False  # losses of 0 are right here, and say nothing about what is kept
    second = seen.second
    if not _fits(second) or _is_right(second):
        return False
    kept = _wrong_losses(second).any() and not _wrong_losses(replace(second, x=seen.x)).any()
    slopes = second.gradient is not None and not _wrong_slopes(replace(second, x=seen.x)).any()
    return bool(kept or slopes)


def _fits(seen: LossSeen) -> bool:
    """Whether what came back has the shapes that were asked for."""
    losses = seen.losses is not None and seen.losses.shape == seen.x.shape[:1]
    return losses and (seen.gradient is None or seen.gradient.shape == seen.x.shape)


def _wrong_losses(seen: LossSeen) -> torch.Tensor:
    """Which losses are wrong."""
    want, _ = expected_losses(seen.x, seen.target)
    return ~_close(seen.losses.double(), want, _loss_tolerance(seen.x, want))


def _wrong_slopes(seen: LossSeen) -> torch.Tensor:
    """Which numbers of the gradient are wrong."""
    _, slope = expected_losses(seen.x, seen.target)
    return ~_close(seen.gradient.double(), slope, _slope_tolerance(seen.x, seen.target, slope))


def _close(got: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return ((got - want).abs() <= allowed) | (got == want) | (got.isnan() & want.isnan())


def _loss_tolerance(x: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """m, log(l) and the target's logit are exact to a few units of the largest of them, and the sum as a softmax's.

    The target's logit is m + log(l) less the loss, and log(l) is no larger than log N.
    """
    m, want = (part.where(part.isfinite(), 0.0).abs() for part in (x.double().amax(dim=1), want))
    size = 2 * m + 2 * want + 1
    return torch.finfo(torch.float32).eps * (4 + x.shape[1] ** 0.5 / 4) * size


def _slope_tolerance(x: torch.Tensor, target: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """That of a softmax, where 1 has been taken from one of its elements, and all are rounded once to x's dtype."""
    rtol, atol = cases.tolerance(x.float())
    onehot = torch.zeros(x.shape, dtype=torch.float64).scatter(1, target.clamp(min=0)[:, None], 1.0)
    least = torch.finfo(x.dtype)
    rounding = 0.75 * least.eps * slope.abs() if x.dtype != torch.float32 else 0.0
    return atol + least.smallest_normal * least.eps + rtol * (torch.softmax(x.double(), 1) + onehot) + rounding


def _budget(seen: Sequence[LossSeen], gradient: bool) -> Finding:
    """Whether every case loads each logit once, and stores it once where a gradient is asked for.

    Rows may load and store a few numbers more. Kernels store each number of a gradient once: the lanes of a program
    that store to one element do so in any order on a GPU.
    """
    rest = "and the rest costs half of the points"
    seen = [one for one in seen if not one.trial.sampled and not one.trial.skipped]
    if over := _over(seen, gradient):
        one, numel = over[0], over[0].x.numel()
        said = f"{one.trial.loads / numel:.2f} loads and {one.trial.stores / numel:.2f} stores per logit, in the case "
        said += f"{one.case}; 1 and {gradient:d}, and a few for each row, are enough, {rest}"
        return Finding("trips to memory", False, said, extra=True)
    again = [one for one in seen if gradient and _stored_again(one) > 0]
    if again:
        said = f"kernels store {_stored_again(again[0])} numbers more than there are, in the case {again[0].case}; "
        return Finding("trips to memory", False, f"{said}once is enough, {rest}", extra=True)
    elements = sum(one.x.numel() for one in seen)
    loaded, stored = (sum(getattr(one.trial, of) for one in seen) / elements for of in ("loads", "stores"))
    return Finding("trips to memory", True, f"{loaded:.1f} loads and {stored:.1f} stores per logit", extra=True)


def _over(seen: Sequence[LossSeen], gradient: bool) -> list[LossSeen]:
    """The cases, of those whose programs have all run, with more loads, or stores, than are enough."""
    whole = [one for one in seen if not one.trial.sampled and not one.trial.skipped]
    return [one for one in whole if _is_over(one, "loads", 1) or _is_over(one, "stores", gradient)]


def _is_over(seen: LossSeen, of: str, enough: int) -> bool:
    """Whether there are more `of` loads and stores than `enough` for each logit, and four for each row."""
    return getattr(seen.trial, of) > enough * seen.x.numel() + 4 * len(seen.x)


def _stored_again(seen: LossSeen) -> int:
    """How many numbers more than the losses and the gradient have the kernels store."""
    return seen.trial.stored_by_kernels - seen.x.numel() - len(seen.x)


# Recognised


@dataclass(frozen=True)
class LossRow:
    """What a kernel may have of each row: float32 logits, the pair (m, l), the target's logit, 0 where ignored."""

    x: torch.Tensor
    target: torch.Tensor
    m: torch.Tensor
    l: torch.Tensor
    x_target: torch.Tensor
    kept: torch.Tensor
    tile: int

    @property
    def p(self) -> torch.Tensor:
        """The softmax."""
        return torch.exp(self.x - self.m[:, None]) / self.l[:, None]

    @property
    def onehot(self) -> torch.Tensor:
        """1 at the target, 0 elsewhere and in rows that are ignored."""
        return torch.zeros_like(self.x).scatter(1, self.target.clamp(min=0)[:, None], 1.0) * self.kept[:, None]

    @property
    def loss(self) -> torch.Tensor:
        """The right loss, also of rows that are ignored."""
        return self.m + torch.log(self.l) - self.x_target


def _row(seen: LossSeen) -> LossRow:
    x, target = seen.x.float(), seen.target
    m = x.amax(dim=1)
    x_target = x.gather(1, target.clamp(min=0)[:, None])[:, 0].where(target >= 0, 0.0)
    tile = max(seen.trial.tile, 1 << (x.shape[1] - 1).bit_length())
    return LossRow(x, target, m, torch.exp(x - m[:, None]).sum(dim=1), x_target, target != IGNORED, tile)


Of = Callable[[LossRow], torch.Tensor]


def gives_loss(*results: Of, ignored: float | None = 0.0) -> Explains:
    """Explains losses that one of `results` reproduces; ignored rows have the loss `ignored`, or None: a result's."""

    def of(row: LossRow, result: Of) -> torch.Tensor:
        return result(row) if ignored is None else torch.where(row.kept, result(row), ignored)

    return _explains("losses", [lambda row, result=result: of(row, result) for result in results])


def gives_gradient(*results: Of, ignored: bool = True) -> Explains:
    """Explains a gradient that one of `results` reproduces; with `ignored`, it is 0 in rows that are."""

    def of(row: LossRow, result: Of) -> torch.Tensor:
        return torch.where(row.kept[:, None], result(row), 0.0) if ignored else result(row)

    return _explains("gradient", [lambda row, result=result: of(row, result) for result in results])


def is_nearly(part: str) -> Explains:
    """Explains a little where every number of this part is right to two hundredths, though some are wrong."""

    def is_near(seen: LossSeen) -> bool:
        want = expected_losses(seen.x, seen.target)[part == "gradient"]
        inexact = _loss_tolerance(seen.x, want) if part == "losses" else 0.0
        return _close(getattr(seen, part).double(), want, 2e-2 * want.abs() + 1e-3 + inexact).all().item()

    def explains(seen: Sequence[Seen]) -> float:
        answered = [one for one in seen if getattr(one, part, None) is not None and _fits(one)]
        wrong = any(_WRONG_NUMBERS[part](one).any() for one in answered if not one.ok)
        return 0.45 * (wrong and all(map(is_near, answered)))

    return explains


_WRONG_NUMBERS = {"losses": _wrong_losses, "gradient": _wrong_slopes}


def _explains(part: str, results: Sequence[Of]) -> Explains:
    """As `recognise.gives`: all cases in which this part is wrong, but for a fifth, and nine tenths of all.

    Where the losses are right, no mistake in a loss explains a wrong gradient, though it may agree in most cases.
    """
    wrong_numbers = _WRONG_NUMBERS[part]

    def agrees(seen: LossSeen, result: Of) -> bool:
        got, want = getattr(seen, part), result(_row(seen))
        want = want.to(seen.x.dtype).float() if part == "gradient" else want
        rtol = 2e-3 if part == "losses" or seen.x.dtype == torch.float32 else 1e-2
        atol = 1e-4 if part == "losses" else 1e-6
        near = torch.isclose(got, want, rtol, atol, equal_nan=True).all()
        # An answer that is nearly right does not show a mistake that leaves this case right.
        return bool(near) and wrong_numbers(replace(seen, **{part: want})).any() == wrong_numbers(seen).any()

    def explains(seen: Sequence[LossSeen]) -> float:
        answered = [one for one in seen if getattr(one, part) is not None and len(one.x)]
        wrong = [one for one in answered if not one.ok and _fits(one) and wrong_numbers(one).any()]
        best = 0.0
        # What a few cases show is too little to go by where the others have ended with an error.
        for result in results if wrong and 2 * len(answered) >= len(seen) else ():
            share = sum(bool(agrees(one, result)) for one in wrong) / len(wrong)
            every = sum(bool(agrees(one, result)) for one in answered) / len(answered)
            best = max(best, 0.5 * (share + every) if share >= 0.8 and every >= 0.9 else 0.0)
        return best

    return explains
