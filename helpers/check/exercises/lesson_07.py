"""Lesson 07, choosing a variant: spills, and a rule of one's own, judged against the record."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import torch

from helpers import xray
from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import untouched
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, where
from helpers.check.mistakes.shared import GENERAL
from helpers.check.problems.asking import LOOKED_UP, UNSTEADY, own_launch
from helpers.check.report import Finding, Report
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial, is_number, number, shown
from helpers.choosing.launches import Launch, Shape, of_gpu, tile
from helpers.choosing.rules import pick, textbook
from helpers.engine.isolate import End
from helpers.gpu import occupancy
from helpers.kernels import single_tile_kernel

_TARGET = "sm_90"

# 7.1

_SPILL_QUESTIONS = {
    "elements a thread holds": "how many threads are 4 warps?",
    "registers it can have": 'which number stands after "of" in the report?',
    "fewest warps without a spill": "does it spill with that many warps, or do fewer do as well?",
    "longest tile without a spill": "does it spill with 4 warps, or does one twice as long not spill either?",
}


def _spill(exercise: ValuesExercise, answers: Mapping[str, Any]) -> Report:
    exercise.require_keys(answers, list(_SPILL_QUESTIONS))
    if all(answers[question] is None for question in _SPILL_QUESTIONS):
        return exercise.untouched()
    right = _spill_answers()
    return exercise.judged(
        [_spill_finding(question, number(answers[question]), want) for question, want in right.items()]
    )


def _spill_finding(question: str, answer: Any, want: int) -> Finding:
    if answer is None:
        return Finding(question, False, "not filled in yet")
    if not is_number(answer):
        return Finding(question, False, f"needs a number; it is {shown(answer)}")
    if answer != want:
        return Finding(question, False, f"it is not {answer:g}: {_SPILL_QUESTIONS[question]}")
    return Finding(question, True, f"{want}")


def _spill_answers() -> dict[str, int]:
    """The right answers about the single tile of 32,768 float32 elements, and about 4 warps: see check.spill."""
    return {
        "elements a thread holds": 32768 // (32 * 4),
        "registers it can have": occupancy.register_limit(4),
        "fewest warps without a spill": next(w for w in (8, 16, 32) if not _spills(32768, w)),
        "longest tile without a spill": next(BLOCK for BLOCK in (16384, 8192, 4096) if not _spills(BLOCK, 4)),
    }


def _spills(BLOCK: int, num_warps: int) -> bool:
    """Whether the course's single tile of float32 spills."""
    row = torch.empty(16)
    arguments = row, row, BLOCK, BLOCK, 1, BLOCK
    seen = xray.report(single_tile_kernel, *arguments, BLOCK=BLOCK, num_warps=num_warps, target=_TARGET)
    return bool(seen.spill_bytes)


# 7.2

_ENOUGH, _WORST = 1.15, 2.5
"""How much longer than the best launch a rule may take: on average (geometric) over a kind of shape, and once."""

_FEW, _SHORT = 64, 512
"""Rows that are few, and columns of a row that is short."""


def _shapes(draw: Random) -> Given:
    """The recorded shapes that were held out: for each the question, and the shape itself."""
    return {_at(shape): ((shape.n_cols, shape.n_rows, shape.dtype), shape) for shape in of_gpu(_TARGET).held_out}


def _at(shape: Shape) -> str:
    return f"{shape.n_rows:,} × {shape.n_cols:,} {shape.dtype}"


def _is_looked_up(trial: Trial) -> bool:
    return isinstance(trial.answer, list) and trial.answer[:1] == [LOOKED_UP]


def _is_unsteady(trial: Trial) -> bool:
    return isinstance(trial.answer, list) and trial.answer[:1] == [UNSTEADY]


def _launch(trial: Trial) -> Launch | None:
    answer = trial.answer[1] if _is_looked_up(trial) or _is_unsteady(trial) else trial.answer
    return Launch(*answer) if isinstance(answer, list) and len(answer) == len(Launch._fields) else None


def _lost(shape: Shape, trial: Trial) -> float | None:
    """How many times as long as the best launch the answer takes; None where it was not measured."""
    launch = _launch(trial)
    return shape.lost(launch) if launch in shape.launches else None


def _share(shows: Callable[[Launch, Shape], bool]) -> Explains:
    """Explains the share of the time lost that is lost by launches of which `shows(launch, shape)` is true."""

    def explains(seen: Sequence[Seen]) -> float:
        times = [(case, _lost(case.x, case.trial)) for case in seen]
        logs = [(math.log(time), shows(_launch(case.trial), case.x)) for case, time in times if time]
        due = sum(log for log, shown in logs if shown)
        return due / sum(log for log, _ in logs) if due else 0.0

    return explains


def _is(rule: Callable[[Shape], Launch]) -> Explains:
    return lambda seen: 1.0 * all(_launch(case.trial) == rule(case.x) for case in seen)


def _picked(shape: Shape) -> Launch:
    return pick(shape.n_cols, shape.n_rows, shape.dtype).launch


_PICK = (
    *GENERAL,
    Mistake(
        "unsteady",
        "Asked twice about one shape, the rule gives two answers.",
        "What decides about the launch besides n_cols, n_rows and dtype?",
        0,
        lambda seen: float(any(_is_unsteady(case.trial) for case in seen)),
    ),
    Mistake(
        "no_launch",
        "Something other than a Launch comes back.",
        "Which variant and numbers make a Launch, and is it perhaps the .launch of what you return?",
        1,
        where(lambda seen: bool(seen.trial.answer) and not _launch(seen.trial)),
    ),
    Mistake(
        "no_candidate",
        "The launch is none of the candidates.",
        "Which variants, BLOCK and num_warps does candidates(n_cols) list for that row length?",
        1,
        where(lambda seen: bool(_launch(seen.trial)) and _launch(seen.trial) not in seen.x.launches),
    ),
    Mistake(
        "textbook",
        "This is the textbook's rule.",
        "On which kinds of rows does it lose most?",
        2,
        _is(lambda shape: textbook(shape.n_cols)),
    ),
    Mistake(
        "looked_up",
        "The launches are looked up in the record.",
        "Which few numbers would you tell a colleague who has no record?",
        4,
        lambda seen: max(
            _is(_picked)(seen), _is(lambda shape: shape.best)(seen), float(any(_is_looked_up(c.trial) for c in seen))
        ),
    ),
    Mistake(
        "few_rows_not_split",
        "Few long rows are left to one program each.",
        "An H200 has 132 SMs: how many of them work on 8 rows, and which variant changes that?",
        2,
        _share(lambda launch, shape: shape.n_rows <= _FEW and shape.n_cols > 8192 and launch.variant != "split row"),
    ),
    Mistake(
        "split_in_vain",
        "Rows are split though there are enough of them, or too short.",
        "What does a split row cost in trips to memory, and when is it worth that?",
        2,
        _share(lambda launch, shape: launch.variant == "split row" and (shape.n_rows > _FEW or shape.n_cols <= 8192)),
    ),
    Mistake(
        "short_rows_alone",
        "Short rows have a program each.",
        "How many warps find something to load in a row of 80, and how few bytes is that for a program?",
        3,
        _share(
            lambda launch, shape: shape.n_cols <= _SHORT and shape.n_rows > _FEW and launch.variant == "single tile"
        ),
    ),
    Mistake(
        "too_many_threads",
        "Threads have too little to do.",
        "How many elements does each thread hold, and how many would one load of 128 bits bring?",
        4,
        _share(lambda launch, _: launch.variant == "single tile" and launch.BLOCK < 128 * launch.num_warps),
    ),
    Mistake(
        "too_few_warps",
        "Tiles are held by too few warps.",
        "How many elements does each thread hold, and how many registers can it have?",
        4,
        _share(lambda launch, _: launch.variant == "single tile" and launch.BLOCK > 64 * 32 * launch.num_warps),
    ),
    Mistake(
        "tile_too_long",
        "Tiles are longer than the registers.",
        "From which length on does every num_warps spill, and what does streaming cost there?",
        4,
        _share(lambda launch, _: launch.variant == "single tile" and launch.BLOCK >= 65536),
    ),
    Mistake(
        "streamed_in_vain",
        "Rows are streamed that fit into a tile.",
        "Up to which length does the X-ray show no spill, and what does a second read cost?",
        4,
        _share(lambda launch, shape: launch.variant in ("online", "two-pass") and shape.n_cols <= 32768),
    ),
)


def _my_pick_starter(n_cols: int, n_rows: int, dtype: str) -> None:
    """The answer as it is handed out."""
    BLOCK = tile(n_cols)  # noqa: F841


def _kind(shape: Shape) -> str:
    if shape.n_rows <= _FEW:
        return f"at most {_FEW} rows, {'up to' if shape.n_cols <= 8192 else 'beyond'} 8,192 columns"
    for longest, words in ((_SHORT, "up to 512"), (8192, "513 to 8,192"), (32768, "8,193 to 32,768")):
        if shape.n_cols <= longest:
            return f"many rows, {words} columns"
    return "many rows, beyond 32,768 columns"


def _my_pick(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """For each kind of shape, how much longer the rule's launches take than the best ones recorded."""
    if all(untouched(exercise, trial) for trial in trials if trial.end is not End.NOT_RUN):
        return exercise.untouched()
    shapes = [shape for _, shape in given.values()]
    kinds: dict[str, list[tuple[Shape, Trial]]] = {}
    for shape, trial in zip(shapes, trials, strict=True):
        kinds.setdefault(_kind(shape), []).append((shape, trial))
    findings = [_kind_finding(kind, answers) for kind, answers in kinds.items()]
    chosen = [_launch(trial) for trial in trials]
    same = chosen in ([_picked(shape) for shape in shapes], [shape.best for shape in shapes])
    asked = any(map(_is_looked_up, trials))
    looked_up = same or asked
    if looked_up:
        seen = "`pick`, or the record, is asked" if asked else "every launch is the one that the record gives"
        findings.append(Finding("a rule of your own", False, seen))
    unsteady = [(shape, trial.answer[1:]) for shape, trial in zip(shapes, trials, strict=True) if _is_unsteady(trial)]
    if unsteady:
        shape, answers = unsteady[0]
        seen = f"at {_at(shape)}: {' and then '.join(map(shown, answers))}"
        findings.append(Finding("the same answer again", False, seen))
    if all(finding.ok for finding in findings):
        return exercise.judged(findings)
    ok = {finding.case: finding.ok and not looked_up and not unsteady for finding in findings}
    seen = [Seen(at, s, t, ok[_kind(s)]) for at, s, t in zip(given, shapes, trials, strict=True)]
    kept = 0.5 if _better(shapes, trials) and not looked_up and not unsteady else 0
    return exercise.judged(findings, kept=kept, diagnosis=exercise.named(seen))


def _kind_finding(kind: str, answers: Sequence[tuple[Shape, Trial]]) -> Finding:
    for shape, trial in answers:
        at = _at(shape)
        if trial.raised:
            return Finding(kind, False, f"at {at}: {trial.raised}", trial.error)
        if trial.answer is None:
            return Finding(kind, False, f"at {at}: got None; is a return missing?")
        if _launch(trial) is None:
            return Finding(kind, False, f"at {at}: expected a Launch, got {trial.answer!r}")
        if _launch(trial) not in shape.launches:
            return Finding(kind, False, f"at {at}: {_no_candidate(_launch(trial), shape)}")
    times = [shape.lost(_launch(trial)) for shape, trial in answers]
    mean = statistics.geometric_mean(times)
    worst, (shape, trial) = max(zip(times, answers, strict=True), key=lambda pair: pair[0])
    where_worst = (
        f"at worst {worst:.2f} at {_at(shape)}, "
        f"where {_launch(trial).code()} was launched and {shape.best.code()} is best"
    )
    return Finding(kind, mean <= _ENOUGH and worst <= _WORST, f"{mean:.2f} times as long as the best, {where_worst}")


def _no_candidate(launch: Launch, shape: Shape) -> str:
    """That the launch was not timed, and the candidate of its variant that is nearest to it."""
    same = [known for known in shape.launches if known.variant == launch.variant]
    said = f"{launch} is none of candidates({shape.n_cols})"
    if not same:
        return f"{said}; no {launch.variant} is"
    near = min(same, key=lambda known: sum(a != b for a, b in zip(known, launch, strict=True)))
    return f"{said}; {near} is"


def _better(shapes: Sequence[Shape], trials: Sequence[Trial]) -> bool:
    """True where every launch was measured and they lose less than the textbook's in the geometric mean."""
    times = [_lost(shape, trial) for shape, trial in zip(shapes, trials, strict=True)]
    theirs = [shape.lost(textbook(shape.n_cols)) for shape in shapes]
    return all(times) and statistics.geometric_mean(times) < 0.99 * statistics.geometric_mean(theirs)


EXERCISES = (
    ValuesExercise(
        name="spill",
        number="7.1",
        points=2,
        about=(
            "Checks the statements about a tile of 32,768 float32 elements and about 4 warps on sm_90, against the "
            "compiler's report."
        ),
        judge=_spill,
        may_call=("helpers.xray", "helpers.gpu.occupancy", "helpers.kernels.single_tile_kernel"),
    ),
    AnswersExercise(
        name="my_pick",
        number="7.2",
        points=4,
        about=(
            "Checks a rule that picks a Launch for (n_cols, n_rows, dtype), on recorded shapes that were held "
            "out.\n\n"
            "It has to take no more than 1.15 times as long as the best launch, in the geometric mean over each "
            "kind of shape, and 2.5 times at any. Half of the points for a rule that is not as good, but loses less "
            "than the textbook's."
        ),
        draw=_shapes,
        judge=_my_pick,
        may_call=(
            "helpers.choosing.Launch",
            "helpers.choosing.candidates",
            "helpers.choosing.tile",
            "helpers.choosing.launches.Launch",
            "helpers.choosing.launches.candidates",
            "helpers.choosing.launches.tile",
        ),
        through=own_launch,
        starters=starters(_my_pick_starter),
        known=_PICK,
    ),
)
