"""Lesson 08, benchmarks that lie: the lines of an exhibit, and a benchmark tried on simulated GPUs that mislead.

Each simulated GPU misleads in one way only, so that each lie a benchmark still tells has a finding of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from helpers import lies
from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import handed_out, stopped
from helpers.check.mistakes.recognise import Mistake, Seen, shown_by, where
from helpers.check.mistakes.shared import GENERAL
from helpers.check.problems.misled import (
    COMPILE_MS,
    DRIFT,
    EASY,
    FASTER,
    FIRST_TIMED,
    IN_L2,
    IN_QUEUE,
    MINE_MS,
    REFUSED,
    RUNS,
    SKIPPED,
    SLOWDOWN,
    TOGETHER,
    WRONG,
    attempt,
)
from helpers.check.report import Finding, Report
from helpers.check.trial.trial import Trial, shown
from helpers.engine.isolate import End
from helpers.gpu.misleading import BURST, EVERY, FLUSH_MS, LAUNCH_MS, SLOWER

# 8.1

EXHIBIT = {
    "computes a part of the row": ("B", "how many lanes has this tile, and where is the loop over the rest?"),
    "lets lanes past the end of a row hold anything": ("C", "which lanes are masked, and what do they hold then?"),
    "compares with what is not computed yet": ("L", "what do both sides hold when this line runs?"),
    "starts the clock before a first call was made": ("FG", "what would have to run before it?"),
    "lets one slow run move the result": ("I", "which figure of ten times is this?"),
    "makes the other side pay for more": ("M", "what does the kernel not have to do?"),
}
"""The lines of the exhibit that are right for each charge, and a question for whoever names another."""


def _exhibit(exercise: ValuesExercise, found: Mapping[str, Any]) -> Report:
    """The lines that do what they are charged with. It does not tell the right ones."""
    exercise.require_keys(found, list(EXHIBIT))
    if all(found[charge] is None for charge in EXHIBIT):
        return exercise.untouched()
    findings = []
    for charge, (lines, question) in EXHIBIT.items():
        letter = found[charge].strip() if isinstance(found[charge], str) else found[charge]
        is_letter = isinstance(letter, str) and len(letter) == 1
        ok = is_letter and letter.upper() in lines
        wrong = f"it is not {shown(letter)}: {question}" if is_letter else f"needs one letter; it is {shown(letter)}"
        seen = "not filled in yet" if letter is None else letter if ok else wrong
        findings.append(Finding(charge, ok, seen))
    return exercise.judged(findings)


# 8.2


def _benchmark_cases(draw: Random) -> Given:
    return {case: ((case,), runs) for case, runs in RUNS.items()}


def _times(answer: Any) -> tuple[float, float] | None:
    """The two times of an answer, or None where it is something else."""
    if isinstance(answer, list) and answer[:1] == [FIRST_TIMED]:
        answer = answer[1:]
    numbers = isinstance(answer, list) and len(answer) == 2 and all(isinstance(ms, int | float) for ms in answer)
    return tuple(answer) if numbers and all(math.isfinite(ms) and ms > 0 for ms in answer) else None


def _is_refused(answer: Any) -> bool:
    return isinstance(answer, list) and answer[:1] == [REFUSED]


def _answers_times(trial: Trial) -> bool:
    return isinstance(trial.answer, list) and all(_times(one) or _is_refused(one) for one in trial.answer)


def _benchmark(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """What the benchmark said in each case; half of the points where at most two lies are left."""
    tried = dict(zip(given, trials, strict=True))
    unchanged = [[list(pair) for pair in attempt(lies.lying_benchmark, case)] for case in given]
    silent = all(
        (trial.unwritten or trial.answer == [None] * len(RUNS[case])) and handed_out(exercise, trial)
        for case, trial in tried.items()
    )
    not_run = all(trial.end is End.NOT_RUN for trial in trials)
    if not_run or silent or [trial.answer for trial in trials] == unchanged:
        return exercise.untouched()
    findings = [_finding(case, trial) for case, trial in tried.items()]
    left = [finding.case for finding in findings if not finding.ok]
    if [case for case in left if case != TOGETHER]:  # then all of it together misleads for the same reason
        findings = [finding for finding in findings if finding.case != TOGETHER]
    findings = [replace(finding, extra=finding.case == TOGETHER) for finding in findings]
    if all(finding.ok for finding in findings):
        return exercise.judged(findings, most_ways=len(RUNS))
    seen = [Seen(f.case, RUNS[f.case], tried[f.case], f.ok) for f in findings]
    lies_left = sum(not finding.ok for finding in findings)
    kept = 0.5 if SKIPPED not in left and lies_left <= 2 else 0
    named = exercise.named(seen)
    return exercise.judged(
        findings,
        kept=kept,
        diagnosis=named,
        most_ways=len(RUNS),
        shown_by=shown_by(named, seen),
        because=_because(SKIPPED in left, lies_left, kept),
    )


def _because(skipped: bool, lies_left: int, kept: float) -> str:
    """Why a benchmark that still lies has the points that it has."""
    if kept:
        return "Half of the points, since at most two lies are left."
    if skipped:
        return "No points as long as a kernel that skips work gets a time."
    return "Half of the points as soon as at most two lies are left." if lies_left > 2 else ""


def _finding(case: str, trial: Trial) -> Finding:
    if trial.raised:
        return stopped(case, trial)
    if not isinstance(trial.answer, list) or len(trial.answer) != len(RUNS[case]):
        return Finding(case, False, f"expected two times, got {shown(trial.answer)}")
    said = _skipped if case == SKIPPED else _misled
    words = (said(case, number, answer) for number, answer in enumerate(trial.answer))
    return next((Finding(case, False, wrong) for wrong in words if wrong), Finding(case, True, ""))


def _skipped(case: str, run: int, answer: Any) -> str:
    """The fault, in words, of a run whose kernel is wrong; nothing where the run refuses it."""
    if _is_refused(answer):
        return ""
    times, how = _times(answer), list(WRONG)[run]
    got = f"gets a time, {times[0]:.3g} ms" if times else f"gets {shown(answer)}"
    return f"a kernel that {how} {got}; a ValueError should refuse it"


def _misled(case: str, run: int, answer: Any) -> str:
    """The fault of the times of a run, in words; nothing where they are right."""
    _, *needed, _ = RUNS[case][run]
    if _is_refused(answer):
        return f"a right kernel is refused ({answer[1]})"
    if isinstance(answer, list) and answer[:1] == [FIRST_TIMED]:
        return f"a first call, which takes {COMPILE_MS:g} ms, is timed too; only the median hides it"
    times = _times(answer)
    if times is None:
        return f"expected two times in milliseconds, mine and theirs, got {shown(answer)}"
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
        "a slow run now and then": f"{BURST} runs of {EVERY} take {SLOWER * ms:g} ms",
        "a fast run now and then": f"{BURST} runs of {EVERY} take {FASTER * ms:g} ms",
        "a copy that takes time": f"a copy of its result takes {MINE_MS:g} ms",
        "an L2 cache": f"with its input in L2 it needs {IN_L2 * ms:g} ms",
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


def _flush_timed(seen: Sequence[Seen]) -> float:
    """Explains times that are too long by the time of a flush."""
    runs = [
        (_times(answer), needed)
        for case in seen
        if case.case == "launches that return at once" and isinstance(case.trial.answer, list)
        for (_, *needed, _), answer in zip(case.x, case.trial.answer, strict=False)
    ]
    return float(
        bool(runs)
        and all(
            times and all(FLUSH_MS / 2 < ms - true < 2 * FLUSH_MS for ms, true in zip(times, needed, strict=True))
            for times, needed in runs
        )
    )


_BENCHMARK = (
    Mistake(
        "assertion_raised",
        "A wrong kernel is refused by an AssertionError.",
        "Which error does the exercise ask for, and what does Python leave out when it runs with -O?",
        1,
        where(lambda seen: seen.case == SKIPPED and seen.trial.error == "AssertionError", weight=0.98),
    ),
    *(mistake for mistake in GENERAL if mistake.id != "nothing_returned"),
    Mistake(
        "times_swapped",
        "The two times are swapped.",
        "Which of them comes first, mine or theirs?",
        0,
        _says(lambda times, needed: _near(times[::-1], needed)),
    ),
    Mistake(
        "times_sorted",
        "The smaller time always comes first.",
        "Whose time is the first of the two, whichever is smaller?",
        0,
        _says(lambda times, needed: times[0] <= times[1] and _near(times, sorted(needed))),
    ),
    Mistake(
        "not_milliseconds",
        "The times are not in milliseconds.",
        "What is the unit of elapsed_time, and of gpu.now()?",
        0,
        _says(
            lambda times, needed: _near([1000 * ms for ms in times], needed),
            lambda times, needed: _near([ms / 1000 for ms in times], needed),
        ),
    ),
    Mistake(
        "no_times",
        "Something other than two times comes back.",
        "What does the last line return, and are both numbers in milliseconds?",
        0,
        where(lambda seen: seen.case != SKIPPED and not seen.trial.raised and not _answers_times(seen.trial)),
    ),
    Mistake(
        "right_kernel_refused",
        "A right kernel is refused.",
        "By how much may two right results differ, rounded in another order?",
        1,
        where(lambda seen: seen.case != SKIPPED and any(map(_is_refused, seen.trial.answer or ()))),
    ),
    Mistake(
        "skipped_work_timed",
        "A kernel that skips work gets a time.",
        "Against what is all of its result compared, for which x, and would NaN be noticed?",
        1,
        _left(SKIPPED),
    ),
    Mistake(
        "flush_timed",
        "The flush is timed with the kernel.",
        "What else happens between the two marks, and on whose clock?",
        2,
        _flush_timed,
    ),
    Mistake(
        "host_clock",
        "The host's clock is read, not the GPU's.",
        "When does a launch return, and when is the kernel done?",
        2,
        lambda seen: 0.0 if _flush_timed(seen) else _left(IN_QUEUE)(seen),
    ),
    Mistake(
        "first_call_timed",
        "The first call is timed too.",
        "What does a kernel do only when it is called for the first time with such a matrix?",
        2,
        _left("a first call that compiles"),
    ),
    Mistake(
        "slow_run",
        "One slow run moves the result.",
        "Which figure stays where it is when a few times are thirty times as long, and of how many times?",
        2,
        _left("a slow run now and then"),
    ),
    Mistake(
        "fast_run",
        "One fast run moves the result.",
        "Which figure stays where it is when a few times are shorter than the others?",
        2,
        _left("a fast run now and then"),
    ),
    Mistake(
        "more_than_the_kernel",
        "More than the kernel is timed.",
        "What else happens between the two marks?",
        2,
        lambda seen: max(_flush_timed(seen), _left("a copy that takes time")(seen)),
    ),
    Mistake(
        "warm_cache",
        "The input is still in the L2 cache.",
        "What did the run before leave there, and what would overwrite it?",
        3,
        _left("an L2 cache"),
    ),
    Mistake(
        "easy_data",
        "The data are easier than real ones.",
        "What could a kernel find out about this x that lets it do less?",
        3,
        _left("a kernel that is slower on real data"),
    ),
    Mistake(
        "not_in_turns",
        "One kernel is timed after the other.",
        "How fast is the GPU when the first has its turn, and how fast for the second?",
        3,
        _left(DRIFT),
    ),
    Mistake(
        "all_together",
        "All that misleads, together, still does.",
        "Which two repairs stand in each other's way?",
        0,
        _left(TOGETHER),
    ),
)
"""The lies that a benchmark can still tell, and the mistakes of repairing it."""

EXERCISES = (
    ValuesExercise(
        name="exhibit",
        number="8.1",
        points=2,
        about="Checks which line of lesson 08's exhibit, by its letter, does what it is charged with.",
        judge=_exhibit,
    ),
    AnswersExercise(
        name="benchmark",
        number="8.2",
        points=6,
        about=(
            "Checks a benchmark(gpu, mine, theirs) on simulated GPUs, each of which misleads in one way, and "
            "names its lies.\n\n"
            "It is to return the milliseconds that each of the two functions needs on random data that are not in "
            "the cache, and to raise ValueError where mine(x) is not a softmax. Half of the points where at most two "
            "lies are left."
        ),
        draw=_benchmark_cases,
        judge=_benchmark,
        may_call=("helpers.timing",),
        through=attempt,
        known=_BENCHMARK,
        why="Why do the two kernels take turns, and not run one after the other?",
        ours=lies.benchmark,
    ),
)
