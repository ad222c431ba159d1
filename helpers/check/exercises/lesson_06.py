"""Lesson 06, why, in microseconds: programs of an SM, loads under way, and a time that is predicted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from typing import Any

from helpers import microseconds
from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import compare_number, judge_answers, stopped, untouched
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, any_of, where
from helpers.check.mistakes.shared import GENERAL
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial.trial import Trial, is_number, number, shown
from helpers.engine.isolate import End
from helpers.microseconds import Timed

# 6.1

_RESIDENT = (
    (40, 16), (26, 8), (104, 4), (33, 4), (72, 16), (255, 4),
    (64, 32), (16, 1), (41, 1), (104, 1), (16, 4), (255, 2),
    (32, 32), (255, 16), (168, 32),
)  # fmt: skip
"""Registers a thread and warps a program: cases of every limit, of rounding in every step, and too large to fit."""


def _programs(
    registers: int, num_warps: int, *, portions: bool = True, parts: bool = True, places: bool = True, most: bool = True
) -> int:
    """Programs that one SM of an H200 holds: what check.occupancy expects, or without one of the steps to it."""
    warp_registers = -(-32 * registers // 256) * 256 if portions else 32 * registers
    if parts:
        warps = 4 * min(16 if places else 10**6, 16384 // warp_registers)
    else:
        warps = min(64 if places else 10**6, 65536 // warp_registers)
    return min(32 if most else 10**6, warps // num_warps)


def _without(step: str) -> list[Callable[[int, int], int]]:
    """`programs` without this step, and perhaps without others."""
    steps = ("portions", "parts", "places", "most")
    others = [name for name in steps if name != step]
    left_out = [{step: False, **dict(zip(others, taken, strict=True))} for taken in product((True, False), repeat=3)]
    return [partial(_programs, **taken) for taken in left_out]


def _gives_answer(*results: Callable[..., float]) -> Explains:
    """Explains what one of `results`, functions of the case's arguments, answers wherever the learner's does."""

    def explains(seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if case.trial.answer is not None]
        wrong = any(not case.ok for case in answered)
        return 1.0 * (wrong and any(all(c.trial.answer == result(*c.x) for c in answered) for result in results))

    return explains


def _portions(registers: int) -> int:
    return -(-registers * 32 // 256) * 256


def _warps(registers: int) -> int:
    """The warps that one SM has room for."""
    return 4 * min(16, 16384 // _portions(registers))


_OCCUPANCY = (
    *GENERAL,
    Mistake(
        "no_portions",
        "A warp's registers are not rounded up to whole portions.",
        "33 registers a thread are 1,056 a warp: how many portions of 256 is that?",
        1,
        _gives_answer(*_without("portions")),
    ),
    Mistake(
        "one_piece",
        "The SM is taken as one piece.",
        "A warp lives in one of four parts: how many whole warps fit into 16,384 registers?",
        2,
        _gives_answer(*_without("parts")),
    ),
    Mistake(
        "too_few_registers",
        "A warp's registers come out far too few.",
        "Do they count all 32 threads, in registers rather than in portions of 256?",
        1,
        _gives_answer(
            lambda r, w: min(32, min(16, 16384 // (-(-r // 256) * 256)) * 4 // w),
            lambda r, w: min(32, min(16, 16384 // r) * 4 // w),
            lambda r, w: min(32, min(16, 16384 // -(-32 * r // 256)) * 4 // w),
        ),
    ),
    Mistake(
        "too_many_warps",
        "More warps than an SM has places for.",
        "However few registers a warp has: how many warps can a part hold?",
        2,
        _gives_answer(*_without("places")),
    ),
    Mistake(
        "too_many_programs",
        "More programs than an SM takes.",
        "With one warp a program, how many programs would that be, and how many can there be?",
        3,
        _gives_answer(*_without("most")),
    ),
    Mistake(
        "one_part",
        "One part of the SM is counted.",
        "How many parts has an SM, and does each of them hold warps?",
        2,
        _gives_answer(lambda r, w: min(32, _warps(r) // 4 // w)),
    ),
    Mistake(
        "portions_rounded_down",
        "A warp's registers are rounded down to whole portions.",
        "33 registers a thread are 1,056 a warp: do four portions of 256 hold them?",
        1,
        _gives_answer(lambda r, w: min(32, 4 * min(16, 16384 // max(256, 32 * r // 256 * 256)) // w)),
    ),
    Mistake(
        "programs_in_a_part",
        "Whole programs are counted within each part.",
        "A program's warps are spread over all four parts: how many warps fit into the SM together?",
        3,
        _gives_answer(
            lambda r, w: min(32, 4 * (_warps(r) // 4 // w)),
            lambda r, w: min(32, _warps(r) // 4 // -(-w // 4)),
        ),
    ),
    Mistake(
        "programs_rounded",
        "The programs are rounded up, or to the nearest number.",
        "If only some warps of the last program find a place, does it run?",
        3,
        _gives_answer(lambda r, w: min(32, -(-_warps(r) // w)), lambda r, w: min(32, round(_warps(r) / w))),
    ),
    Mistake(
        "part_of_a_program",
        "A part of a program is counted.",
        "Can an SM hold half a program?",
        3,
        where(lambda seen: is_number(seen.trial.answer) and seen.trial.answer % 1 != 0, weight=0.9),
    ),
    Mistake(
        "occupancy_returned",
        "The occupancy is returned instead of the programs.",
        "How many programs are these warps?",
        3,
        _gives_answer(lambda r, w: _programs(r, w) * w / 64, lambda r, w: min(16, 16384 // _portions(r)) / 16),
    ),
    Mistake(
        "warps_returned",
        "Warps are returned instead of programs.",
        "How many warps has one program?",
        3,
        _gives_answer(
            lambda r, w: _warps(r),
            lambda r, w: _programs(r, w) * w,
        ),
    ),
)


def _occupancy_cases(draw: Random) -> Given:
    return {
        f"{registers} registers, {num_warps} warp{'s' if num_warps > 1 else ''}": (
            (registers, num_warps),
            _programs(registers, num_warps),
        )
        for registers, num_warps in _RESIDENT
    }


# 6.2

_WAITING = (1, 512)
"""Programs an SM, and bytes that each waits for, from which the time of a load is to be computed."""

_FULL_GBPS = 4200.0

_FLIGHT_QUESTIONS = ("nanoseconds a load takes", "kB under way an SM", "programs an SM of 512 bytes each")

_NEAR = 0.1
"""By this fraction an answer may be off: the numbers are read off a table and rounded."""


def flight_answers() -> dict[str, float]:
    """The right answers about loads under way on one H200, from its record: see check.in_flight."""
    record = microseconds.measured()
    gbps = next(gbps for *waiting, gbps in record["flight"] if tuple(waiting) == _WAITING)
    ns = record["multiprocessors"] * _WAITING[0] * _WAITING[1] / gbps
    each = _FULL_GBPS * ns / record["multiprocessors"]
    return dict(zip(_FLIGHT_QUESTIONS, (ns, each / 1e3, each / _WAITING[1]), strict=True))


_FLIGHT_HINTS = {
    "nanoseconds a load takes": "a GB/s is a byte a nanosecond: how many bytes are under way on all SMs together?",
    "kB under way an SM": "how many bytes come in such a time at 4,200 bytes a nanosecond, and what is one SM's part?",
    "programs an SM of 512 bytes each": "how many times 512 bytes is what one SM has under way?",
}


def _in_flight(exercise: ValuesExercise, answers: Mapping[str, Any]) -> Report:
    exercise.require_keys(answers, _FLIGHT_QUESTIONS)
    if all(answers[question] is None for question in _FLIGHT_QUESTIONS):
        return exercise.untouched()
    right = flight_answers()
    numbers = {question: number(answers[question]) for question in _FLIGHT_QUESTIONS}
    findings = [_flight_finding(question, numbers[question], right[question]) for question in _FLIGHT_QUESTIONS]
    factors = [numbers[q] / right[q] for q in _FLIGHT_QUESTIONS if is_number(numbers[q]) and math.isfinite(numbers[q])]
    wrong = [factor for factor in factors if abs(factor - 1) > _NEAR]
    known = (one for one, factor in _FLIGHT if wrong and all(abs(found / factor - 1) <= _NEAR for found in wrong))
    return exercise.judged(findings, diagnosis=next(known, None))


def _flight_finding(question: str, answer: Any, want: float) -> Finding:
    if answer is None:
        return Finding(question, False, "not filled in yet")
    if not is_number(answer):
        return Finding(question, False, f"needs a number; it is {shown(answer)}")
    if not abs(answer / want - 1) <= _NEAR:
        return Finding(question, False, f"it is not {answer:g}: {_FLIGHT_HINTS[question]}")
    return Finding(question, True, f"{answer:g}")


_FLIGHT = (
    (
        Diagnosis("one_sm", "The bytes of one SM are divided by the speed of all.", "On how many SMs do loads run?", 1),
        1 / 132,
    ),
    (
        Diagnosis("all_sms", "It is the number of all SMs together.", "How much of it is one SM's?", 2),
        132.0,
    ),
    (
        Diagnosis("both_directions", "Bytes are counted twice.", "Does this kernel store what it loads?", 2),
        2.0,
    ),
    (
        Diagnosis("microseconds_given", "The unit is another one.", "How many nanoseconds are a microsecond?", 1),
        1e-3,
    ),
    (
        Diagnosis("bytes_given", "The unit is another one.", "How many bytes are a kB?", 2),
        1e3,
    ),
)
"""Mistakes of exercise 6.2, and the factor by which every wrong answer comes out too large."""

# 6.3

_SMS, _LAUNCH, _LATENCY, _BYTES, _RATE = 132, 3.5, 1.5, 4.2e6, 4 * 32 * 1980.0
"""SMs; microseconds of a launch, and of a row besides loading and computing; bytes and instructions a microsecond."""

_MEAN, _WORST = 0.15, 0.35
"""How far a prediction may be off: on average over a kind of launch, and at any."""


def predicted(
    n_rows: int,
    row_bytes: int,
    row_instructions: float,
    num_warps: int,
    programs: int,
    *,
    launch: float = _LAUNCH,
    latency: float = _LATENCY,
    trips: int = 2,
    trips_alone: int = 1,
    enough_warps: int = 16,
    turned: Callable[[float], float] = math.ceil,
    alone: Callable[[Sequence[float]], float] = sum,
    held: bool = True,
    share: bool = True,
    every_sm: bool = True,
    bounds: str = "mit",
    join: Callable[[Sequence[float]], float] = max,
) -> float:
    """Microseconds of a single tile on one H200, as exercise 6.3 asks for them; or with one of its mistakes.

    `bounds` are the letters of the bounds that count: memory, instructions, turns; `join` makes a time of them,
    `turned` whole turns of rows over places, and `alone` the time of a program from its loading and its computing.
    """
    load = trips_alone * row_bytes / (_BYTES / (_SMS if share else 1))
    compute = row_instructions / _RATE / min(1, num_warps / enough_warps)
    turns = n_rows / (_SMS * (programs if held else 1))
    every = {
        "m": trips * n_rows * row_bytes / _BYTES,
        "i": n_rows * row_instructions / ((_SMS if every_sm else 1) * _RATE),
        "t": turned(turns) * (latency + alone((load, compute))),
    }
    return launch + join([every[letter] for letter in bounds])


def _gives_times(*models: Callable[..., float]) -> Explains:
    """Explains what one of `models` predicts, to 3 %, wherever the answer is a number."""

    def explains(seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if is_number(case.trial.answer)]
        wrong = any(not case.ok for case in answered)
        return 1.0 * (
            wrong
            and any(
                all(math.isclose(case.trial.answer, model(*case.x.features), rel_tol=0.03) for case in answered)
                for model in models
            )
        )

    return explains


def _as_occupancy(*features: Any, bounds: str) -> float:
    *_, num_warps, programs = features
    return _LAUNCH + (predicted(*features, launch=0, bounds=bounds)) / (num_warps * programs / 64)


def _scaled(factor: float) -> Callable[..., float]:
    return lambda *features: factor * predicted(*features)


def _uncapped(*features: Any) -> float:
    """As predicted, with a program of 32 warps twice as fast as one of 16."""
    *before, num_warps, programs = features
    n_rows, row_bytes, row_instructions = before
    faster = max(1, num_warps / 16)
    model = partial(predicted, n_rows, row_bytes, num_warps=num_warps, programs=programs)
    return max(model(row_instructions, bounds="mi"), model(row_instructions / faster, bounds="t"))


def _off_by_a_unit(seen: Sequence[Seen]) -> float:
    """The middle one of all answers is some thousand times too long, or too short."""
    factors = [one.trial.answer / one.x.us for one in seen if is_number(one.trial.answer)]
    middle = statistics.median(map(abs, factors)) if factors else 0
    return 0.6 * (300 < middle < 3000 or 300 < 1 / max(middle, 1e-30) < 3000)


_TIMES = (
    *GENERAL,
    Mistake(
        "always_maximum",
        "Only memory and instructions count.",
        "Where one program fills an SM, what does the SM do while that program waits for its row?",
        1,
        _gives_times(partial(predicted, bounds="mi"), partial(predicted, bounds="mi", launch=0)),
    ),
    Mistake(
        "always_sum",
        "Times are added that pass at once.",
        "While one program of an SM computes, what do the others do?",
        1,
        _gives_times(
            partial(predicted, bounds="mi", join=sum),
            partial(predicted, join=sum),
            partial(predicted, bounds="mi", join=sum, launch=0),
            partial(predicted, join=sum, launch=0),
        ),
    ),
    Mistake(
        "no_tail",
        "A part of a turn takes a part of its time.",
        "64 rows on 132 SMs: when is the program of a row done, and does it help that other SMs are idle?",
        2,
        _gives_times(partial(predicted, turned=float), partial(predicted, turned=float, bounds="t")),
    ),
    Mistake(
        "turns_rounded_down",
        "Turns are rounded down, or to the nearest number.",
        "64 rows on 132 SMs, or 170: how many turns until the last row is done?",
        2,
        _gives_times(partial(predicted, turned=math.floor), partial(predicted, turned=round)),
    ),
    Mistake(
        "a_turn_too_many",
        "A turn is counted that has no rows left.",
        "132 rows on 132 SMs, a program each: how many turns are that?",
        2,
        _gives_times(partial(predicted, turned=lambda turns: math.floor(turns) + 1)),
    ),
    Mistake(
        "computes_while_it_loads",
        "A program alone is taken to compute while it loads.",
        "What can a program compute before its row is there?",
        3,
        _gives_times(partial(predicted, alone=max)),
    ),
    Mistake(
        "more_warps_than_needed",
        "More warps than an SM can start instructions for make it faster.",
        "16 warps keep the four parts busy: what can 32 do in addition?",
        3,
        _gives_times(_uncapped),
    ),
    Mistake(
        "occupancy_as_speed",
        "The time is divided by the occupancy.",
        "At 5,000 columns, which occupancy was the fastest?",
        1,
        _gives_times(
            *(partial(_as_occupancy, bounds=bounds) for bounds in ("m", "i", "mi", "mit")),
        ),
    ),
    Mistake(
        "only_memory",
        "Only the bytes count.",
        "Which launches of the table have moved the same bytes in twice the time?",
        1,
        _gives_times(partial(predicted, bounds="m"), partial(predicted, bounds="m", launch=0)),
    ),
    Mistake(
        "only_turns",
        "Only the turns count.",
        "What if all programs together ask for more bytes than memory can deliver?",
        1,
        _gives_times(partial(predicted, bounds="t"), partial(predicted, bounds="t", launch=0)),
    ),
    Mistake(
        "bytes_left_out",
        "The bytes do not count.",
        "However many programs there are: how long does memory need for all bytes?",
        1,
        _gives_times(partial(predicted, bounds="it"), partial(predicted, bounds="it", launch=0)),
    ),
    Mistake(
        "instructions_left_out",
        "The instructions of all rows do not count.",
        "However many programs there are: how long do all SMs need to start the instructions of all rows?",
        1,
        _gives_times(partial(predicted, bounds="mt"), partial(predicted, bounds="mt", launch=0)),
    ),
    Mistake(
        "programs_left_out",
        "Every SM has one program at a time.",
        "How many programs does a turn have, on all SMs?",
        2,
        _gives_times(partial(predicted, held=False)),
    ),
    Mistake(
        "few_warps_as_fast",
        "A program of few warps computes as fast as one of many.",
        "An SM's four parts start an instruction in each cycle: how many warps must a program have for that?",
        3,
        _gives_times(partial(predicted, enough_warps=1)),
    ),
    Mistake(
        "stores_left_out",
        "The result's bytes are missing.",
        "Which bytes does a softmax move besides its input?",
        1,
        _gives_times(partial(predicted, trips=1)),
    ),
    Mistake(
        "stores_waited_for",
        "A program waits for its stores.",
        "Does a program need what it has stored?",
        3,
        _gives_times(partial(predicted, trips_alone=2)),
    ),
    Mistake(
        "no_launch_time",
        "The launch takes no time.",
        "How long does a kernel take that does nothing?",
        3,
        _gives_times(partial(predicted, launch=0)),
    ),
    Mistake(
        "no_latency",
        "A row takes no longer than loading and computing.",
        "How long does a program of a single number take?",
        3,
        _gives_times(partial(predicted, latency=0)),
    ),
    Mistake(
        "whole_bandwidth",
        "A program alone loads at the speed of the whole GPU.",
        "132 SMs share the bandwidth: how much of it is one SM's?",
        3,
        _gives_times(partial(predicted, share=False)),
    ),
    Mistake(
        "one_sm_computes",
        "One SM starts the instructions of all rows.",
        "RATE is what one SM starts: how many SMs compute?",
        1,
        _gives_times(partial(predicted, every_sm=False)),
    ),
    Mistake(
        "other_unit",
        "The unit is another one.",
        "Is it microseconds that you return?",
        0,
        any_of(_gives_times(*(_scaled(factor) for factor in (1e-6, 1e-3, 1e3))), _off_by_a_unit),
    ),
    Mistake(
        "too_long",
        "Most times come out too long.",
        "Is something counted twice, or added that passes at the same time?",
        1,
        where(lambda seen: is_number(seen.trial.answer) and seen.trial.answer > 1.02 * seen.x.us, weight=0.5),
    ),
    Mistake(
        "too_short",
        "Times come out too short.",
        "Which of the three limits is missing or too small: memory, instructions, turns?",
        1,
        where(lambda seen: is_number(seen.trial.answer) and seen.trial.answer < 0.98 * seen.x.us, weight=0.4),
    ),
)


def _kind(one: Timed) -> str:
    """The kind of launch that it is, by what may decide its time."""
    if one.dtype == _ON_PAPER:
        return "launches on paper, timed by the rules above"
    if one.features.n_rows == 64:
        return "64 rows, less than one turn"
    if one.features.n_rows == 4096:
        return "4,096 rows"
    if one.features.programs == 1:
        return "many rows, one program an SM"
    return f"many rows in {one.dtype}, several programs an SM"


def _times(draw: Random) -> Given:
    """The recorded launches that were held out, and _PAPER: for each its features, and the launch with its time."""
    return {str(one): (tuple(one.features), one) for one in [*microseconds.timed("held_out"), *_PAPER]}


_ON_PAPER, _PAPER_OFF = "on paper", 0.07


def _on_paper(*features: Any) -> Timed:
    us = predicted(*features)
    return Timed(_ON_PAPER, features[1] // 4, us, us, microseconds.Features(*features))


_PAPER = [
    _on_paper(132, 131072, 1e6, 16, 1),  # one turn, exactly full
    _on_paper(264, 131072, 1e6, 16, 1),
    _on_paper(140, 131072, 1e6, 16, 1),  # a little over one turn
    _on_paper(170, 131072, 1e6, 16, 1),
    _on_paper(132, 131072, 3e6, 32, 1),  # more warps than can start instructions
    _on_paper(13200, 1024, 2e5, 4, 16),  # instructions take longest
    _on_paper(13200, 32768, 1e4, 4, 8),  # memory does
]
"""Launches that the record has none like, and the time that the rules of lesson 06 give them."""


def _off(one: Timed, trial: Trial) -> float:
    return trial.answer / one.us - 1


def _predict_time(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """For each kind of launch, how far predictions are off, on average and at worst."""
    if all(untouched(exercise, trial) for trial in trials if trial.end is not End.NOT_RUN):
        return exercise.untouched()
    launches = [one for _, one in given.values()]
    kinds: dict[str, list[tuple[Timed, Trial]]] = {}
    for one, trial in zip(launches, trials, strict=True):
        kinds.setdefault(_kind(one), []).append((one, trial))
    findings = [_kind_finding(kind, answers) for kind, answers in kinds.items()]
    if all(finding.ok for finding in findings):
        return exercise.judged(findings)
    ok = {finding.case: finding.ok for finding in findings}
    seen = [Seen(str(one), one, trial, ok[_kind(one)]) for one, trial in zip(launches, trials, strict=True)]
    return exercise.judged(findings, diagnosis=exercise.named(seen))


def _kind_finding(kind: str, answers: Sequence[tuple[Timed, Trial]]) -> Finding:
    for one, trial in answers:
        if trial.raised:
            return stopped(kind, trial)
        if not is_number(trial.answer):
            return Finding(kind, False, f"at {one}: expected a number, got {trial.got or repr(trial.answer)}")
    off = [abs(_off(one, trial)) for one, trial in answers]
    worst, (one, trial) = max(zip(off, answers, strict=True), key=lambda pair: pair[0])
    mean = statistics.fmean(off)
    on_paper = one.dtype == _ON_PAPER
    told = "by the rules" if on_paper else "recorded"
    said = f"off by {mean:.0%} on average, at worst {worst:.0%}: {trial.answer:,.1f} µs for {one}, {told} {one.us:,.1f}"
    return Finding(kind, worst <= _PAPER_OFF if on_paper else mean <= _MEAN and worst <= _WORST, said)


EXERCISES = (
    AnswersExercise(
        name="occupancy",
        number="6.1",
        points=2,
        about=(
            "Checks the number of programs that an SM of an H200 holds, a function of registers a thread and num_warps."
        ),
        draw=_occupancy_cases,
        judge=partial(judge_answers, compare=compare_number),
        known=_OCCUPANCY,
    ),
    ValuesExercise(
        name="in_flight",
        number="6.2",
        points=2,
        about=(
            "Checks how long a load from DRAM takes, and how many bytes an SM must have under way to keep DRAM busy, "
            "for one H200, to within 10 %."
        ),
        judge=_in_flight,
    ),
    AnswersExercise(
        name="predict_time",
        number="6.3",
        points=4,
        about=(
            "Checks a function that predicts the microseconds of a single tile on one H200 from its rows, a row's "
            "bytes and instructions, num_warps, and the programs of an SM.\n\n"
            "It is held against recorded launches: for each kind it may be off by 15 % on average, and by 35 % at any."
        ),
        draw=_times,
        judge=_predict_time,
        known=_TIMES,
        ours=predicted,
    ),
)
