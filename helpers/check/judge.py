"""From what was seen in the trials of a function to the report on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from helpers.check import cases
from helpers.check.mistakes import OVER_BUDGET, TORCH_AT_WORK, Mistake
from helpers.check.recognise import Seen, diagnose, tail_never_loaded
from helpers.check.report import Finding, Report
from helpers.check.trial import Trial, same

Pair = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Exercise:
    """A softmax to write: its cases, points and known mistakes; for a kernel the loads per element that it may make."""

    name: str
    makers: Mapping[str, cases.Make]
    points: int
    known: tuple[Mistake, ...]
    loads: float | None = None
    untouched: Callable[[torch.Tensor], torch.Tensor] | None = None
    """What the starter code computes, where it stores something."""
    buffer: float = 0.01
    """Loads, and stores, per element that may go to something other than the input and the result."""


def judge_softmax(
    exercise: Exercise,
    seed: int,
    trials: Mapping[str, tuple[torch.Tensor, Trial]],
    on_gpu: Callable[[], Mapping[str, Trial]],
) -> Report:
    """The report on a softmax: right in every case, then within the budget and its own work, then right on the GPU.

    `trials` has the input of every case and its trial; `on_gpu` makes further trials of some of them.
    """
    name, points = exercise.name, exercise.points
    if not any(_attempted(exercise, x, trial) for x, trial in trials.values()):
        return Report(name, points, attempted=False, findings=())
    printed = "\n".join(next((t.printed for _, t in trials.values() if t.printed), "").splitlines()[:20])
    findings = [_finding(exercise, case, x, trial, seed) for case, (x, trial) in trials.items()]
    seen = [Seen(f.case, *trials[f.case], f.ok) for f in findings]
    if not all(finding.ok for finding in findings):
        findings += [_reach(case) for case in seen if tail_never_loaded(case)][:1]
        return Report(name, points, True, tuple(findings), diagnosis=diagnose(exercise.known, seen), printed=printed)
    diagnosis, kept = None, 1.0
    if exercise.loads is not None:
        own, budget = _own_work(seen), _budget(exercise, seen)
        findings += [own, budget]
        if not own.ok:
            diagnosis, kept = TORCH_AT_WORK, 0.0
        elif not budget.ok:
            diagnosis, kept = OVER_BUDGET, 0.5
    if kept:
        again = [_finding(exercise, case, trials[case][0], trial, seed) for case, trial in on_gpu().items()]
        failed = [Finding(f"on the GPU: {finding.case}", False, finding.seen) for finding in again if not finding.ok]
        findings += failed
        kept = 0.0 if failed else kept
    return Report(name, points, True, tuple(findings), kept * points, diagnosis, printed)


def _attempted(exercise: Exercise, x: torch.Tensor, trial: Trial) -> bool:
    if trial.unwritten or trial.not_run:
        return False
    if trial.raised or exercise.loads is None or trial.y is None or not trial.kernels:
        return True
    if not trial.stored_by_kernels:
        return bool(trial.eager)
    return exercise.untouched is None or not same(trial.y, exercise.untouched(x).to(trial.y.dtype))


def _finding(exercise: Exercise, case: str, x: torch.Tensor, trial: Trial, seed: int) -> Finding:
    if trial.raised:
        return Finding(case, False, trial.raised)
    if trial.got.startswith("None"):
        return Finding(case, False, f"got {trial.got}")
    if trial.y is None:
        return Finding(case, False, f"expected a tensor {tuple(x.shape)} {x.dtype}, got {trial.got}")
    if exercise.loads is not None and not trial.kernels:
        return Finding(case, False, "no Triton kernel was launched")
    if exercise.loads is not None and not trial.stored_by_kernels:
        return Finding(case, False, "the kernel stored nothing")
    if exercise.untouched is not None and same(trial.y, exercise.untouched(x).to(trial.y.dtype)):
        return Finding(case, False, "m and l are still what the starter code makes them")
    if trial.input_changed:
        return Finding(case, False, "the input was overwritten")
    if trial.shares_storage:
        return Finding(case, False, "the result lies in the input's memory")
    return _compare(case, x, trial.y, seed)


def _compare(case: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> Finding:
    want, wrong = cases.expected(x), cases.wrong(x, y)
    if not wrong.any():
        return Finding(case, True, f"within {cases.tolerance(x.dtype)[0]:.0e} of float64")
    row, col = (int(i) for i in wrong.nonzero()[0])
    where = f"first at row {row}, column {col}: expected {want[row, col]:.6g}, got {y[row, col].item():.6g}"
    return Finding(case, False, f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, {where} (seed {seed})")


def _reach(case: Seen) -> Finding:
    reached = int((case.trial.loaded > 0).any(dim=0).sum())
    return Finding("reach", False, f"{case.case}: kernels loaded {reached} of the row's {case.x.shape[1]} columns")


def _budget(exercise: Exercise, seen: Sequence[Seen]) -> Finding:
    elements = sum(case.x.numel() for case in seen)
    loads = sum(case.trial.loads for case in seen) / elements
    stores = sum(case.trial.stores for case in seen) / elements
    ok = loads <= exercise.loads + exercise.buffer and stores <= 1 + exercise.buffer
    if ok:
        return Finding("trips to memory", True, f"{loads:.1f} loads and {stores:.1f} stores per element")
    return Finding(
        "trips to memory",
        False,
        f"each element was loaded {loads:.1f} times and stored {stores:.1f} times; "
        f"{exercise.loads:.1f} and 1.0 are enough, and the rest costs half of the points",
    )


def _own_work(seen: Sequence[Seen]) -> Finding:
    names = sorted({name for case in seen for name in case.trial.eager})
    if names:
        return Finding("your own kernel", False, f"PyTorch computed {', '.join(names)}; the kernel is to do it")
    return Finding("your own kernel", True, "no PyTorch operation took part")


def judge_answers(
    name: str,
    points: int,
    known: tuple[Mistake, ...],
    wanted: Mapping[str, tuple[tuple, T]],
    trials: Sequence[Trial],
    compare: Callable[[str, Trial, T], Finding],
    untouched: Pair | None = None,
) -> Report:
    """The report on a function that returns numbers; `wanted` has each case's arguments and what is right there."""
    tried = [trial for trial in trials if not trial.not_run]
    if all(
        (trial.unwritten and not trial.printed) or (trial.pair is not None and tuple(trial.pair) == untouched)
        for trial in tried
    ):
        return Report(name, points, attempted=False, findings=())
    findings = [compare(case, trial, want) for (case, (_, want)), trial in zip(wanted.items(), trials, strict=True)]
    seen = [
        Seen(case, args, trial, finding.ok)
        for (case, (args, _)), trial, finding in zip(wanted.items(), trials, findings, strict=True)
    ]
    right = all(finding.ok for finding in findings)
    return Report(name, points, True, tuple(findings), diagnosis=None if right else diagnose(known, seen))


def compare_pairs(case: str, trial: Trial, want: Pair) -> Finding:
    """The finding on one answer that is to be a pair (m, l)."""
    if trial.raised:
        return Finding(case, False, trial.raised)
    if trial.pair is None:
        return Finding(case, False, f"expected a pair (m, l), got {trial.got}")
    m, l = trial.pair
    ok = m == want[0] and math.isclose(l, want[1], rel_tol=1e-6, abs_tol=1e-300)
    return Finding(case, ok, f"expected ({want[0]:.9g}, {want[1]:.9g}), got ({m:.9g}, {l:.9g})")
