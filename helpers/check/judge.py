"""From what was seen in the trials of a function to the report on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from helpers.check import cases
from helpers.check.recognise import Seen, shown_by, tail_never_loaded
from helpers.check.report import Diagnosis, Finding, Report, first_lines
from helpers.check.trial import Trial, is_number, same
from helpers.engine.isolate import End

if TYPE_CHECKING:
    from helpers.check.exercise import AnswersExercise, FunctionExercise, Given, SoftmaxExercise

Pair = tuple[float, float]
"""(m, l): the maximum of a part of a row, and its sum of exp(x − m)."""

TORCH_AT_WORK = Diagnosis(
    "torch_at_work",
    "PyTorch does a part of the kernel's work.",
    "Which of its operations could happen inside the kernel, on the tile?",
    0,
)
OVER_BUDGET = Diagnosis(
    "over_budget",
    "The result is right, and the trips to memory are too many.",
    "Which load, or store, moves something that was on the chip already?",
    0,
)


def judge_softmax(
    exercise: SoftmaxExercise,
    seed: int,
    trials: Mapping[str, tuple[torch.Tensor, Trial]],
    on_gpu: Callable[[], Mapping[str, Trial]],
) -> Report:
    """The report on a softmax: right in every case, then within the budget and its own work, then right on the GPU.

    `trials` has the input of every case and its trial; `on_gpu` makes further trials of some of them.
    """
    if not any(_attempted(exercise, x, trial) for x, trial in trials.values()):
        return exercise.untouched()
    printed = first_lines(next((trial.printed for _, trial in trials.values() if trial.printed), ""))
    findings = [_finding(exercise, case, x, trial, seed) for case, (x, trial) in trials.items()]
    seen = [Seen(f.case, *trials[f.case], f.ok) for f in findings]
    if not all(finding.ok for finding in findings):
        findings += [_reach(case) for case in seen if tail_never_loaded(case)][:1]
        named = exercise.named(seen)
        return exercise.judged(findings, diagnosis=named, printed=printed, shown_by=shown_by(named, seen))
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
    return exercise.judged(findings, kept=kept, diagnosis=diagnosis, printed=printed)


def _attempted(exercise: SoftmaxExercise, x: torch.Tensor, trial: Trial) -> bool:
    if untouched(exercise, trial) or trial.end is End.NOT_RUN:
        return False
    if trial.raised or exercise.loads is None or trial.y is None or not trial.kernels:
        return True
    if trial.loads != exercise.starter_loads * x.numel():
        return True
    if not trial.stored_by_kernels:
        return bool(trial.eager)
    return _is_starter(exercise, x, trial) is False


def untouched(exercise: FunctionExercise, trial: Trial) -> bool:
    """Whether nothing was done, by an answer as it is handed out."""
    return trial.unwritten and handed_out(exercise, trial)


def handed_out(exercise: FunctionExercise, trial: Trial) -> bool:
    """Whether the answer's instructions, where they are known, are those of the exercise as it is handed out."""
    return not trial.code or trial.code in exercise.starters


def _is_starter(exercise: SoftmaxExercise, x: torch.Tensor, trial: Trial) -> bool | None:
    """Whether this is what the starter code loads and stores; None where it stores nothing but NaN, which is also what
    many a wrong answer stores."""
    if exercise.starter is None or trial.loads != exercise.starter_loads * x.numel():
        return False
    stored = exercise.starter(x).to(trial.y.dtype)
    if not same(trial.y, stored):
        return False
    return None if stored.isnan().all() else True


def _finding(exercise: SoftmaxExercise, case: str, x: torch.Tensor, trial: Trial, seed: int) -> Finding:
    if trial.raised:
        return stopped(case, trial)
    if trial.got_none:
        return Finding(case, False, f"got {trial.got}")
    if trial.y is None:
        expected = f"expected a tensor {tuple(x.shape)} {x.dtype}, got {trial.got}"
        return Finding(case, False, expected, kind=trial.got_kind and f"got {trial.got_kind}")
    if exercise.loads is not None and not trial.kernels:
        return Finding(case, False, "no Triton kernel was launched")
    if exercise.loads is not None and not trial.stored_by_kernels:
        return Finding(case, False, "the kernel stored nothing")
    if _is_starter(exercise, x, trial):
        return Finding(case, False, "m and l are still what the starter code makes them")
    if trial.input_changed:
        return Finding(case, False, "the input was overwritten")
    if trial.shares_storage:
        return Finding(case, False, "the result lies in the input's memory")
    return _compare(case, x, trial.y, seed)


def stopped(case: str, trial: Trial) -> Finding:
    """The finding on a call that did not return. Errors of one type in one line are of one kind."""
    return Finding(case, False, trial.raised, trial.error, kind=trial.line and f"{trial.error} {trial.line}")


def _compare(case: str, x: torch.Tensor, y: torch.Tensor, seed: int) -> Finding:
    want, wrong = cases.expected(x), cases.wrong(x, y)
    if not wrong.any():
        return Finding(case, True, f"within {cases.tolerance(x.dtype)[0]:.0e} of float64")
    row, col = (int(i) for i in wrong.nonzero()[0])
    where = f"first at row {row}, column {col}: expected {want[row, col]:.6g}, got {y[row, col].item():.6g}"
    return Finding(case, False, f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, {where} (seed {seed})")


def _reach(case: Seen) -> Finding:
    reached = int((case.trial.loaded > 0).any(dim=0).sum())
    said = f"{case.case}: kernels loaded {reached} of the row's {case.x.shape[1]} columns"
    return Finding("reach", False, said, extra=True)


def _budget(exercise: SoftmaxExercise, seen: Sequence[Seen]) -> Finding:
    elements = sum(case.x.numel() for case in seen)
    loads = sum(case.trial.loads for case in seen) / elements
    stores = sum(case.trial.stores for case in seen) / elements
    ok = loads <= exercise.loads + exercise.buffer and stores <= 1 + exercise.buffer
    if ok:
        return Finding("trips to memory", True, f"{loads:.1f} loads and {stores:.1f} stores per element", extra=True)
    return Finding(
        "trips to memory",
        False,
        f"each element was loaded {loads:.1f} times and stored {stores:.1f} times; "
        f"{exercise.loads:.1f} and 1.0 are enough, and the rest costs half of the points",
        extra=True,
    )


def _own_work(seen: Sequence[Seen]) -> Finding:
    names = sorted({name for case in seen for name in case.trial.eager})
    if names:
        said = f"PyTorch computed {', '.join(names)}; the kernel is to do it"
        return Finding("your own kernel", False, said, extra=True)
    return Finding("your own kernel", True, "no PyTorch operation took part", extra=True)


def judge_answers(
    exercise: AnswersExercise,
    given: Given,
    trials: Sequence[Trial],
    compare: Callable[[str, Trial, Any], Finding],
    starter: Pair | None = None,
) -> Report:
    """The report on a function that returns numbers, each of which `compare` holds against what is right.

    `starter` is what the starter code returns, where it returns something.
    """
    tried = [trial for trial in trials if trial.end is not End.NOT_RUN]
    if all(
        (untouched(exercise, trial) and not trial.printed) or (trial.pair is not None and tuple(trial.pair) == starter)
        for trial in tried
    ):
        return exercise.untouched()
    findings = [compare(case, trial, want) for (case, (_, want)), trial in zip(given.items(), trials, strict=True)]
    seen = [
        Seen(case, args, trial, finding.ok)
        for (case, (args, _)), trial, finding in zip(given.items(), trials, findings, strict=True)
    ]
    named = None if all(finding.ok for finding in findings) else exercise.named(seen)
    printed = first_lines(next((trial.printed for trial in trials if trial.printed), ""))
    return exercise.judged(findings, diagnosis=named, printed=printed, shown_by=shown_by(named, seen))


def compare_number(case: str, trial: Trial, want: float) -> Finding:
    """The finding on one answer that is to be a number."""
    if trial.raised:
        return stopped(case, trial)
    if not is_number(trial.answer):
        return Finding(case, False, f"expected a number, got {trial.got or repr(trial.answer)}")
    return Finding(case, trial.answer == want, f"expected {want:g}, got {trial.answer:g}")


def compare_pairs(case: str, trial: Trial, want: Pair) -> Finding:
    """The finding on one answer that is to be a pair (m, l)."""
    if trial.raised:
        return stopped(case, trial)
    if trial.pair is None:
        return Finding(case, False, f"expected a pair (m, l), got {trial.got}")
    m, l = trial.pair
    ok = m == want[0] and math.isclose(l, want[1], rel_tol=1e-6, abs_tol=1e-300)
    return Finding(case, ok, f"expected ({want[0]:.9g}, {want[1]:.9g}), got ({m:.9g}, {l:.9g})")
