"""The checks of lesson 07: which line of the exhibit lies, and a benchmark tried on simulated GPUs that mislead.

Each simulated GPU misleads in one way only, so that each lie a benchmark still tells has a finding of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from helpers import lies
from helpers.check.mistakes import GENERAL, Mistake
from helpers.check.recognise import Seen, diagnose, where
from helpers.check.report import Finding, Report
from helpers.check.trial import Trial
from helpers.gpu.misleading import EVERY, LAUNCH_MS, SLOWER, Behaviour
from helpers.gpu.misleading import MisleadingGpu as Gpu

Benchmark = Callable[[Any, Callable, Callable], tuple[float, float]]

# 7.1

EXHIBIT = {
    "computes a part of the row": ("B", "how many lanes has this tile, and where is the loop over the rest?"),
    "lets lanes past the end of a row hold anything": ("C", "which lanes are masked, and what do they hold then?"),
    "compares with what is not computed yet": ("L", "what do both sides hold when this line runs?"),
    "starts the clock before a first call was made": ("FG", "what would have to run before it?"),
    "lets one slow run move the result": ("I", "which figure of ten times is this?"),
    "makes the other side pay for more": ("M", "what does the kernel not have to do?"),
}
"""The lines of the exhibit that are right for each charge, and a question for those who name another."""


def exhibit(found: Mapping[str, Any]) -> Report:
    """The report on the lines of the exhibit that do what they are charged with. It does not tell the right ones."""
    if all(found[charge] is None for charge in EXHIBIT):
        return Report("exhibit", 2, attempted=False, findings=())
    findings = []
    for charge, (lines, question) in EXHIBIT.items():
        letter = found[charge]
        ok = isinstance(letter, str) and len(letter) == 1 and letter.upper() in lines
        seen = "not filled in yet" if letter is None else letter if ok else f"it is not {letter!r}: {question}"
        findings.append(Finding(charge, ok, seen))
    return Report("exhibit", 2, attempted=True, findings=tuple(findings))


# 7.2


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)


def _other_rounding(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1) * (1 + 3e-7)


def _first_512(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[:, :512] = torch.softmax(x[:, :512], dim=1)
    return y


def _last_rows_unwritten(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, dim=1)
    y[len(y) // 2 :] = math.nan
    return y


def _last_column(x: torch.Tensor) -> torch.Tensor:
    y = torch.softmax(x, dim=1)
    y[:, -1] = 0
    return y


def _uniform(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 1 / x.shape[1])


MINE_MS, THEIRS_MS = 0.1, 0.2
COMPILE_MS, WARM, EASY, SLOWDOWN = 200.0, 0.4, 0.5, 0.5

Run = tuple[Behaviour, float, float, Callable]
"""A GPU, what the two kernels need there, and what the first of them returns."""

WRONG = {
    "computes 512 of 4096 columns": _first_512,
    "writes 1 / N, whatever x is": _uniform,
    "leaves half of the rows unwritten, which are NaN": _last_rows_unwritten,
    "forgets the last column": _last_column,
}


def _run(mine: float = MINE_MS, theirs: float = THEIRS_MS, **behaviour: Any) -> Run:
    return Behaviour(**behaviour), mine, theirs, _other_rounding


RUNS: dict[str, list[Run]] = {
    "a kernel that skips work": [(Behaviour(), MINE_MS / 8, THEIRS_MS, result) for result in WRONG.values()],
    "launches that return at once": [_run(0.4, 0.8, in_queue=True), _run(0.04, 0.08, in_queue=True)],
    "a first call that compiles": [_run(compile_ms=COMPILE_MS)],
    "a slow run now and then": [_run(slow_run=first) for first in range(EVERY)],
    "a copy that takes time": [_run(operation_ms=MINE_MS)],
    "an L2 cache": [_run(warm=WARM)],
    "a kernel that is slower on real data": [_run(easy=EASY)],
    "a clock that drifts": [_run(MINE_MS, MINE_MS, slowdown=SLOWDOWN)],
    "all of it": [
        _run(0.4, 0.8, in_queue=True, compile_ms=COMPILE_MS, warm=WARM, easy=EASY, slow_run=3, operation_ms=0.4)
    ],
}
"""By what misleads in them: the runs of a benchmark that is checked."""

SKIPPED, DRIFT, TOGETHER = "a kernel that skips work", "a clock that drifts", "all of it"

REFUSED = "refused"


def attempt(benchmark: Benchmark, case: str) -> list[Any]:
    """What the benchmark returns in each run of a case; [REFUSED, why] for a ValueError and an AssertionError."""
    return [_answer(benchmark, run) for run in RUNS[case]]


def _answer(benchmark: Benchmark, run: Run) -> Any:
    behaviour = run[0]
    if behaviour.slowdown:  # by so much over the whole benchmark, however long that is
        steady = Gpu(Behaviour())
        _call(benchmark, steady, run)
        behaviour = replace(behaviour, launches=max(1, steady.kernel_launches))
    return _call(benchmark, Gpu(behaviour), run)


def _call(benchmark: Benchmark, gpu: Gpu, run: Run) -> Any:
    _, mine_ms, theirs_ms, result = run
    mine, theirs = gpu.kernel(mine_ms, result), gpu.kernel(theirs_ms, _softmax)
    try:
        with gpu.watching():
            return benchmark(gpu, mine, theirs)
    except NotImplementedError:
        raise
    except (ValueError, AssertionError) as error:
        return [REFUSED, f"{type(error).__name__}: {' '.join(str(error).split())[:100]}"]


def _times(answer: Any) -> tuple[float, float] | None:
    """The two times of an answer, or None where it is something else."""
    numbers = isinstance(answer, list) and len(answer) == 2 and all(isinstance(ms, int | float) for ms in answer)
    return tuple(answer) if numbers and all(math.isfinite(ms) and ms > 0 for ms in answer) else None


def _is_refused(answer: Any) -> bool:
    return isinstance(answer, list) and answer[:1] == [REFUSED]


def _answers_times(trial: Trial) -> bool:
    return isinstance(trial.answer, list) and all(_times(one) or _is_refused(one) for one in trial.answer)


def benchmark(trials: Mapping[str, Trial]) -> Report:
    """The report on a benchmark, from what it said in each case; half of the points where at most two lies are left."""
    written = [trial for trial in trials.values() if not trial.not_run]
    untouched = [[list(pair) for pair in attempt(lies.lying_benchmark, case)] for case in trials]
    silent = all(trial.unwritten or trial.answer == [None] * len(RUNS[case]) for case, trial in trials.items())
    if not written or silent or [trial.answer for trial in trials.values()] == untouched:
        return Report("benchmark", 6, attempted=False, findings=())
    findings = [_finding(case, trial) for case, trial in trials.items()]
    left = [finding.case for finding in findings if not finding.ok]
    if [case for case in left if case != TOGETHER]:  # then it is no news that all of it together misleads
        findings = [finding for finding in findings if finding.case != TOGETHER]
    report = Report("benchmark", 6, attempted=True, findings=tuple(findings), most_ways=len(RUNS))
    if report.passed:
        return report
    seen = [Seen(f.case, RUNS[f.case], trials[f.case], f.ok) for f in findings]
    lies_left = sum(not finding.ok for finding in findings)
    kept = 3 if SKIPPED not in left and lies_left <= 2 else 0
    return replace(report, kept=kept, diagnosis=diagnose(BENCHMARK, seen))


def _finding(case: str, trial: Trial) -> Finding:
    if trial.raised:
        return Finding(case, False, trial.raised)
    if not isinstance(trial.answer, list) or len(trial.answer) != len(RUNS[case]):
        return Finding(case, False, f"expected two times, got {trial.answer!r}")
    said = _skipped if case == SKIPPED else _misled
    words = (said(case, number, answer) for number, answer in enumerate(trial.answer))
    return next((Finding(case, False, wrong) for wrong in words if wrong), Finding(case, True, ""))


def _skipped(case: str, number: int, answer: Any) -> str:
    """What is wrong where the kernel of a run is, in words; nothing where it is refused."""
    if _is_refused(answer):
        return ""
    times, how = _times(answer), list(WRONG)[number]
    got = f"gets a time, {times[0]:.3g} ms" if times else f"gets {answer!r}"
    return f"a kernel that {how} {got}; a ValueError should refuse it"


def _misled(case: str, number: int, answer: Any) -> str:
    """What is wrong with the times of a run, in words; nothing where they are right."""
    _, *needed, _ = RUNS[case][number]
    if _is_refused(answer):
        return f"a right kernel is refused ({answer[1]})"
    times = _times(answer)
    if times is None:
        return f"expected two times in milliseconds, mine and theirs, got {answer!r}"
    if case == DRIFT:
        if abs(times[0] / times[1] - 1) < 0.05:
            return ""
        return (
            f"two kernels that need the same, on a GPU that needs {1 + SLOWDOWN:g} times as long at the end as at the "
            f"beginning: you report {times[0]:.3g} ms and {times[1]:.3g} ms"
        )
    for ms, true in zip(times, needed, strict=True):
        if abs(ms / true - 1) > 0.15:
            return f"you report {ms:.3g} ms for a kernel that needs {true:g} ms; {_circumstance(case, true)}"
    return ""


def _circumstance(case: str, ms: float) -> str:
    """What misleads about a kernel that needs `ms`, in words."""
    return {
        "launches that return at once": f"the host launches it in {LAUNCH_MS:g} ms",
        "a first call that compiles": f"its first call takes {COMPILE_MS:g} ms",
        "a slow run now and then": f"one run of {EVERY} takes {SLOWER * ms:g} ms",
        "a copy that takes time": f"a copy of its result takes {MINE_MS:g} ms",
        "an L2 cache": f"with its input in L2 it needs {WARM * ms:g} ms",
        "a kernel that is slower on real data": f"on numbers that are nearly the same it needs {EASY * ms:g} ms",
        TOGETHER: "everything misleads there at once",
    }[case]


def _left(case: str) -> Callable[[Sequence[Seen]], float]:
    return where(lambda seen: seen.case == case and not seen.trial.raised)


def _says(*shows: Callable[[tuple[float, float], Sequence[float]], bool]) -> Callable[[Sequence[Seen]], float]:
    """Explains what holds of the times said, and needed, in every run of the cases that measure right kernels."""

    def explains(seen: Sequence[Seen]) -> float:
        runs = [
            (_times(answer), needed)
            for case in seen
            if case.case not in (SKIPPED, DRIFT) and isinstance(case.trial.answer, list)
            for (_, *needed, _), answer in zip(case.x, case.trial.answer, strict=False)
        ]
        return float(any(runs and all(times and show(times, needed) for times, needed in runs) for show in shows))

    return explains


def _near(times: Sequence[float], needed: Sequence[float]) -> bool:
    return all(abs(ms / true - 1) < 0.5 for ms, true in zip(times, needed, strict=True))


BENCHMARK = (
    *GENERAL[:-1],
    Mistake(
        "The two times are swapped.",
        "Which of them comes first, mine or theirs?",
        0,
        _says(lambda times, needed: _near(times[::-1], needed)),
    ),
    Mistake(
        "The times are not in milliseconds.",
        "What is the unit of elapsed_time, and of gpu.now()?",
        0,
        _says(
            lambda times, needed: _near([1000 * ms for ms in times], needed),
            lambda times, needed: _near([ms / 1000 for ms in times], needed),
        ),
    ),
    Mistake(
        "Something other than two times comes back.",
        "What does the last line return, and are both numbers in milliseconds?",
        0,
        where(lambda seen: seen.case != SKIPPED and not seen.trial.raised and not _answers_times(seen.trial)),
    ),
    Mistake(
        "A right kernel is refused.",
        "By how much may two right results differ, rounded in another order?",
        1,
        where(lambda seen: seen.case != SKIPPED and any(map(_is_refused, seen.trial.answer or ()))),
    ),
    Mistake(
        "A kernel that skips work gets a time.",
        "Against what is all of its result compared, for which x, and would NaN be noticed?",
        1,
        _left(SKIPPED),
    ),
    Mistake(
        "The host's clock is read, not the GPU's.",
        "When does a launch return, and when is the kernel done?",
        2,
        _left("launches that return at once"),
    ),
    Mistake(
        "The first call is among those that are timed.",
        "What does a kernel do only when it is called for the first time with such a matrix?",
        2,
        _left("a first call that compiles"),
    ),
    Mistake(
        "One slow run moves the result.",
        "Which figure of many times stays where it is when one of them is thirty times as long?",
        2,
        _left("a slow run now and then"),
    ),
    Mistake(
        "More than the kernel is timed.",
        "What else happens between the two marks?",
        2,
        _left("a copy that takes time"),
    ),
    Mistake(
        "The input is still in the L2 cache.",
        "What did the run before leave there, and what would overwrite it?",
        3,
        _left("an L2 cache"),
    ),
    Mistake(
        "The data are easier than real ones.",
        "What could a kernel find out about this x that lets it do less?",
        3,
        _left("a kernel that is slower on real data"),
    ),
    Mistake(
        "One kernel is timed after the other.",
        "How fast is the GPU when the first has its turn, and how fast for the second?",
        3,
        _left(DRIFT),
    ),
    Mistake(
        "All that misleads, together, still does.",
        "Which two repairs stand in each other's way?",
        0,
        _left(TOGETHER),
    ),
)
"""The lies that a benchmark can still tell, and the mistakes of repairing it."""
