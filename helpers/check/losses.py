"""Losses of rows: the cases, the calls that a check makes of an answer, and the report on what they showed.

An answer is a function of logits (M, V) and targets (M,). It returns the loss of each row as float32, 0 where the
target is IGNORED, and, where a gradient is asked for, the gradient of the sum of these losses beside them. `called`
runs in the process that has the answer, and hands on what it saw as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch

from helpers import traffic
from helpers.check import cases
from helpers.check.calling import MOVES, UnwrittenMemoryIsNaN
from helpers.check.exercise import FunctionExercise, seed_or_new
from helpers.check.judge import (
    NOT_COMPILED,
    OVER_BUDGET,
    RACE,
    TORCH_AT_WORK,
    compiled_findings,
    refused_at_launch,
    refused_by_compiler,
    stopped,
)
from helpers.check.place import Place
from helpers.check.recognise import Explains, Seen, diagnose
from helpers.check.report import Diagnosis, Finding, Report, first_lines
from helpers.check.trial import Trial, same
from helpers.engine import interpreter
from helpers.engine.isolate import End
from helpers.engine.runtime import DEVICE
from helpers.xray.verdict import launch_of

IGNORED = -100
"""The target of a row that has no part in the loss."""

Problem = tuple[torch.Tensor, torch.Tensor]
"""Logits (M, V), whose rows are contiguous, and their targets (M,)."""


def _problem(rows: cases.Make, target: Callable[[torch.Tensor], list[int]]) -> Callable[[torch.Generator], Problem]:
    def make(generator: torch.Generator) -> Problem:
        x = rows(generator)
        return x, torch.tensor(target(x))

    return make


def _spread(x: torch.Tensor) -> list[int]:
    """A column for each row, the first and the last of x among them."""
    M, N = x.shape
    return [row * (N - 1) // max(1, M - 1) for row in range(M)]


def _at_top(x: torch.Tensor) -> list[int]:
    return x.argmax(dim=1).tolist()


def _spikes_of_minus_inf(generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(3, 50, generator=generator)
    x[:, ::2] = -cases.INF
    return x


CASES: dict[str, Callable[[torch.Generator], Problem]] = {
    "small random values": _problem(cases.randn(5, 128), _spread),
    "every column of a short row": _problem(cases.randn(6, 6, scale=2.0), lambda x: list(range(6))),
    "large values, around +1000": _problem(cases.randn(3, 100, shift=1000.0), _spread),
    "around −1000": _problem(cases.randn(3, 100, shift=-1000.0), _spread),
    "a target in the last column, 129 of them": _problem(cases.randn(3, 129), lambda x: [128, 127, 128]),
    "the target at the maximum": _problem(cases.randn(4, 70, scale=10.0), _at_top),
    "a target far below the maximum": _problem(cases.spikes(60, 5, 59), lambda x: [6, 0]),
    "a target of −inf": _problem(_spikes_of_minus_inf, lambda x: [0, 1, 48]),
    "some rows ignored, the first of them": _problem(cases.randn(6, 40), lambda x: [IGNORED, 3, IGNORED, 39, 0, 7]),
    "ignored rows only": _problem(cases.randn(2, 40), lambda x: [IGNORED, IGNORED]),
    "one column": _problem(cases.randn(3, 1, shift=5.0), lambda x: [0, IGNORED, 0]),
    "bfloat16": _problem(cases.randn(3, 200, scale=3.0, dtype=torch.bfloat16), _spread),
    "float16, 1,000 columns": _problem(cases.randn(2, 1000, scale=2.0, dtype=torch.float16), lambda x: [999, 500]),
    "rows with a gap between them": _problem(lambda g: torch.randn(5, 90, generator=g)[1:, 7:71], _spread),
    "1,500 columns": _problem(cases.randn(2, 1500, scale=3.0), lambda x: [1499, 1]),
}
"""By name, makers of the problems on which wrong losses go wrong."""


def problem_of(case: str, seed: int) -> Problem:
    """The logits and targets of a case, the same for the same seed in any process."""
    generator = torch.Generator().manual_seed(seed + list(CASES).index(case))
    return CASES[case](generator)


def expected_losses(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses (M,) and the gradient (M, V) of their sum, in float64."""
    double, kept = x.double(), target != IGNORED
    at = target.where(kept, 0)[:, None]
    losses = torch.where(kept, torch.logsumexp(double, 1) - double.gather(1, at)[:, 0], 0.0)
    onehot = torch.zeros_like(double).scatter(1, at, 1.0)
    return losses, torch.where(kept[:, None], torch.softmax(double, 1) - onehot, 0.0)


# Called, in the process that has the answer


@dataclass
class Called:
    """What one call showed, as plain values."""

    losses: list[float]
    gradient: list[list[float]]
    got: str = ""
    """What came back in place of what was asked for, in words."""
    kernels: int = 0
    loads: int = 0
    stores: int = 0
    eager: list[str] = ()
    tile: int = 1
    race: str = ""
    input_changed: bool = False
    launches: list[dict[str, Any]] = ()


def called(answer: Callable[..., Any], case: str, seed: int, gradient: bool) -> str:
    """Calls answer(x, target) on the problem of a case, under all that watches it: the fields of a Called, as JSON."""
    x, target = (tensor.to(DEVICE) for tensor in problem_of(case, seed))
    before = x.clone(), target.clone()
    launches: list[interpreter.LaunchTraffic] = []
    asked: list[dict[str, Any]] = []

    def look(kernel: Any, args: tuple, grid: Any, kwargs: dict[str, Any]) -> None:
        launch = launch_of(kernel, args, kwargs)
        if launch not in asked:
            asked.append(launch)

    with ExitStack() as stack:
        stack.enter_context(UnwrittenMemoryIsNaN())
        stack.enter_context(interpreter.watching(launches.append, addresses=True))
        stack.enter_context(interpreter.before_each_interpreted(look))
        counted = traffic.count(lambda x: answer(x, target), x)
    losses, grads, got = _returned(counted.result, x, gradient)
    return json.dumps(
        asdict(
            Called(
                losses,
                grads,
                got,
                kernels=counted.kernels,
                loads=counted.loads,
                stores=counted.stores,
                eager=[o.name for o in counted.operations if not o.is_kernel and o.name not in MOVES and o.loads],
                tile=max([1, *(launch.tile for launch in launches)]),
                race=next((launch.race for launch in launches if launch.race), ""),
                input_changed=not same(x, before[0]) or not torch.equal(target, before[1]),
                launches=asked,
            )
        )
    )


def _returned(result: Any, x: torch.Tensor, gradient: bool) -> tuple[list[float], list[list[float]], str]:
    """The losses and the gradient in what came back, or what came back in their place."""
    asked = "the losses and the gradient" if gradient else "the losses"
    parts = result if gradient else (result,)
    if result is None:
        return [], [], "None; is a return missing?"
    if not isinstance(parts, tuple | list) or len(parts) != 1 + gradient:
        return [], [], f"a {type(result).__name__} in place of {asked}"
    wanted = [(x.shape[:1], torch.float32), (x.shape, x.dtype)][: len(parts)]
    for part, (shape, dtype) in zip(parts, wanted, strict=True):
        if not isinstance(part, torch.Tensor):
            return [], [], f"a {type(part).__name__} in place of {asked}"
        if part.shape != shape or part.dtype != dtype:
            return [], [], f"{tuple(part.shape)} {part.dtype} in place of {tuple(shape)} {dtype}"
    return parts[0].tolist(), parts[1].float().tolist() if gradient else [], ""


# Judged


@dataclass(frozen=True)
class LossSeen(Seen):
    """A case, its targets, and the losses (M,) and the gradient (M, V) that came back, as far as something did."""

    target: torch.Tensor
    losses: torch.Tensor | None = None
    gradient: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class LossExercise(FunctionExercise):
    """Asks for the losses of rows, and where `gradient` says so for their gradient, from one load of each logit."""

    gradient: bool = False

    def report(self, place: Place, seed: int | None = None) -> Report:
        """See FunctionExercise."""
        seed = seed_or_new(seed)
        trials = place.answers([(case, seed, self.gradient) for case in CASES], through=called)
        seen = [_seen(self, case, seed, one) for case, one in zip(CASES, trials, strict=True)]
        if not any(map(_is_attempted, seen)):
            return self.untouched()
        findings = [_finding(self, one) for one in seen]
        seen = [replace(one, ok=finding.ok) for one, finding in zip(seen, findings, strict=True)]
        printed = first_lines(next((one.trial.printed for one in seen if one.trial.printed), ""))
        raced = [one for one in seen if one.trial.race]
        if not all(finding.ok for finding in findings):
            named = diagnose((*self.known, RACE, NOT_COMPILED), seen)
            named = refused_at_launch(seen) if named is NOT_COMPILED else named
            return self.judged(findings, diagnosis=named, printed=printed)
        if raced:
            race = Finding("programs side by side", False, f"{raced[0].case}: {raced[0].trial.race}")
            return self.judged([race, *findings], diagnosis=RACE, printed=printed)
        return self._right(place, seen, findings, printed)

    def _right(self, place: Place, seen: Sequence[LossSeen], findings: list[Finding], printed: str) -> Report:
        """The report on an answer that is right: whose work it is, what it costs, and whether a GPU can run it."""
        eager = sorted({name for one in seen for name in one.trial.eager})
        budget = _budget(seen, self.gradient)
        verdict = place.compiled([launch for one in seen for launch in one.trial.launches])
        own = (
            f"PyTorch computed {', '.join(eager)}; the kernel is to do it"
            if eager
            else "no PyTorch operation took part"
        )
        findings = [*findings, Finding("your own kernel", not eager, own, extra=True), budget]
        findings += compiled_findings(verdict)
        note = "" if verdict.refusals or not verdict.unknown else f"Not compiled here: {verdict.unknown}"
        diagnosis: Diagnosis | None = None
        kept = 1.0
        if verdict.refusals:
            diagnosis, kept = refused_by_compiler(verdict.refusals[0]), 0.0
        elif eager:
            diagnosis, kept = TORCH_AT_WORK, 0.0
        elif not budget.ok:
            diagnosis, kept = OVER_BUDGET, 0.5
        return self.judged(findings, kept=kept, diagnosis=diagnosis, printed=printed, note=note)


_FIELDS = {field.name for field in fields(Called)}


def _seen(exercise: LossExercise, case: str, seed: int, one: Trial) -> LossSeen:
    """The case with what the call showed; `ok` is filled in later."""
    x, target = problem_of(case, seed)
    if one.raised or not isinstance(one.answer, str):
        return LossSeen(case, x, one, False, target)
    told = _told(one.answer)
    if told is None:
        return LossSeen(case, x, replace(one, got="something that no call shows"), False, target)
    counts = ("kernels", "loads", "stores", "eager", "tile", "race", "input_changed", "got")
    launches = [_tuples(launch) for launch in told.launches]
    trial = replace(one, got_none=False, launches=launches, **{name: getattr(told, name) for name in counts})
    if told.got:
        return LossSeen(case, x, trial, False, target)
    gradient = torch.tensor(told.gradient) if exercise.gradient else None
    return LossSeen(case, x, trial, False, target, torch.tensor(told.losses), gradient)


def _told(text: str) -> Called | None:
    """The Called that a text holds, if it holds one: an answer's process may say anything."""
    try:
        values = json.loads(text)
        told = Called(**values) if set(values) == _FIELDS else None
        ok = told and all(isinstance(value, float | int) for value in told.losses)
        return told if ok and all(isinstance(row, list) for row in told.gradient) else None
    except (TypeError, ValueError, AttributeError):
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
    if seen.losses is None:
        return Finding(case, False, f"got {trial.got or trial.answer}")
    if not trial.kernels:
        return Finding(case, False, "no Triton kernel was launched")
    if trial.input_changed:
        return Finding(case, False, "the logits or the targets were overwritten")
    shapes = seen.losses.shape == seen.x.shape[:1]
    if not shapes or (seen.gradient is not None and seen.gradient.shape != seen.x.shape):
        return Finding(case, False, "got results of another shape")
    want, slope = expected_losses(seen.x, seen.target)
    wrong = ~_close(seen.losses.double(), want, _loss_tolerance(seen.x, want))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        said = f"the loss of row {row}, target {int(seen.target[row])}"
        return Finding(case, False, f"{said}: expected {want[row]:.6g}, got {seen.losses[row]:.6g}")
    if seen.gradient is not None:
        wrong = ~_close(seen.gradient.double(), slope, _slope_tolerance(seen.x, seen.target, slope))
        if wrong.any():
            row, col = (int(i) for i in wrong.nonzero()[0])
            said = f"{int(wrong.sum())} of {wrong.numel()} slopes are wrong, first at row {row}, column {col}, target "
            said += f"{int(seen.target[row])}: expected {slope[row, col]:.6g}, got {seen.gradient[row, col]:.6g}"
            return Finding(case, False, said)
    return Finding(case, True, "right")


def _close(got: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return ((got - want).abs() <= allowed) | (got == want) | (got.isnan() & want.isnan())


def _loss_tolerance(x: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """m, log(l) and the target's logit are exact to a few units of the largest of them, and the sum as a softmax's."""
    size = x.double().where(x.isfinite(), 0.0).abs().amax(dim=1) + want.where(want.isfinite(), 0.0).abs() + 1
    return torch.finfo(torch.float32).eps * (8 + x.shape[1] ** 0.5 / 4) * size


def _slope_tolerance(x: torch.Tensor, target: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """That of a softmax, where 1 has been taken from one of its elements, and all are rounded once to x's dtype."""
    rtol, atol = cases.tolerance(x.float())
    onehot = torch.zeros(x.shape, dtype=torch.float64).scatter(1, target.clamp(min=0)[:, None], 1.0)
    least = torch.finfo(x.dtype)
    rounding = 0.75 * least.eps * slope.abs() if x.dtype != torch.float32 else 0.0
    return atol + least.smallest_normal * least.eps + rtol * (torch.softmax(x.double(), 1) + onehot) + rounding


def _budget(seen: Sequence[LossSeen], gradient: bool) -> Finding:
    """Whether each logit is loaded once, and stored once where a gradient is asked for; rows may add a few numbers."""
    elements, rows = sum(one.x.numel() for one in seen), sum(len(one.x) for one in seen)
    loads = (sum(one.trial.loads for one in seen) - 4 * rows) / elements
    stores = (sum(one.trial.stores for one in seen) - 2 * rows) / elements
    said = f"{max(0.0, loads):.1f} loads and {max(0.0, stores):.1f} stores per logit"
    ok = loads <= 1 and stores <= gradient
    said = said if ok else f"{said}; 1.0 and {float(gradient):.1f} are enough, and the rest costs half of the points"
    return Finding("trips to memory", ok, said, extra=True)


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


def _explains(part: str, results: Sequence[Of]) -> Explains:
    """As `recognise.gives`: all wrong cases that have this part, but for a fifth, and nine tenths of all."""

    def agrees(seen: LossSeen, result: Of) -> bool:
        got, want = getattr(seen, part), result(_row(seen))
        rtol = 2e-3 if part == "losses" or seen.x.dtype == torch.float32 else 1e-2
        atol = 1e-4 if part == "losses" else 1e-6
        return torch.isclose(got, want.to(seen.x.dtype).float() if part == "gradient" else want, rtol, atol, True).all()

    def explains(seen: Sequence[LossSeen]) -> float:
        answered = [one for one in seen if getattr(one, part) is not None]
        wrong = [one for one in answered if not one.ok]
        best = 0.0
        for result in results if wrong else ():
            share = sum(bool(agrees(one, result)) for one in wrong) / len(wrong)
            every = sum(bool(agrees(one, result)) for one in answered) / len(answered)
            best = max(best, 0.5 * (share + every) if share >= 0.8 and every >= 0.9 else 0.0)
        return best

    return explains
