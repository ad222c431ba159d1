"""Lesson 06, why, in microseconds: programs of an SM, loads under way, and a time that is predicted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from helpers import microseconds
from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import compare_number, judge_answers, stopped, untouched
from helpers.check.mistakes.edited import Answer
from helpers.check.mistakes.recognise import Mistake, Seen, any_of, where, with_hints
from helpers.check.mistakes.shared import GENERAL
from helpers.check.mistakes.stops import ERRORS
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


def programs(registers: int, num_warps: int) -> int:
    """Programs that one SM of an H200 holds; `registers` are a single thread's."""
    warp_registers = -(-32 * registers // 256) * 256
    warps = 4 * min(16, 16384 // warp_registers)
    return min(32, warps // num_warps)


_RESIDENT_OF = Answer(programs)
_PORTIONS, _WARPS, _RETURN = (
    "-(-32 * registers // 256) * 256",
    "4 * min(16, 16384 // warp_registers)",
    "min(32, warps // num_warps)",
)

_OCCUPANCY = (
    *GENERAL,
    _RESIDENT_OF.mistake(
        "no_portions",
        "A warp's registers are not rounded up to whole portions.",
        "33 registers a thread are 1,056 a warp: how many portions of 256 is that?",
        1,
        (_PORTIONS, "32 * registers"),
    ),
    _RESIDENT_OF.mistake(
        "one_piece",
        "The SM is taken as one piece.",
        "A warp lives in one of four parts: how many whole warps fit into 16,384 registers?",
        2,
        (_WARPS, "min(64, 65536 // warp_registers)"),
    ),
    _RESIDENT_OF.mistake(
        "too_few_registers",
        "A warp's registers come out far too few.",
        "Do they count all 32 threads, in registers rather than in portions of 256?",
        1,
        (_PORTIONS, "-(-registers // 256) * 256"),
        (_PORTIONS, "registers"),
        (_PORTIONS, "-(-32 * registers // 256)"),
    ),
    _RESIDENT_OF.mistake(
        "too_many_warps",
        "More warps than an SM has places for.",
        "However few registers a warp has: how many warps can a part hold?",
        2,
        ("min(16, 16384 // warp_registers)", "(16384 // warp_registers)"),
        (_WARPS, "65536 // warp_registers"),
    ),
    _RESIDENT_OF.mistake(
        "too_many_programs",
        "More programs than an SM takes.",
        "With one warp a program, how many programs would that be, and how many can there be?",
        3,
        (_RETURN, "warps // num_warps"),
    ),
    _RESIDENT_OF.mistake(
        "one_part",
        "One part of the SM is counted.",
        "How many parts has an SM, and does each of them hold warps?",
        2,
        ("4 * min(16", "min(16"),
    ),
    _RESIDENT_OF.mistake(
        "portions_rounded_down",
        "A warp's registers are rounded down to whole portions.",
        "33 registers a thread are 1,056 a warp: do four portions of 256 hold them?",
        1,
        (_PORTIONS, "max(256, 32 * registers // 256 * 256)"),
    ),
    _RESIDENT_OF.mistake(
        "programs_in_a_part",
        "Whole programs are counted within each part.",
        "A program's warps are spread over all four parts: how many warps fit into the SM together?",
        3,
        (_RETURN, "min(32, 4 * (warps // 4 // num_warps))"),
        (_RETURN, "min(32, warps // 4 // -(-num_warps // 4))"),
    ),
    _RESIDENT_OF.mistake(
        "programs_rounded",
        "The programs are rounded up, or to the nearest number.",
        "If only some warps of the last program find a place, does it run?",
        3,
        (_RETURN, "min(32, -(-warps // num_warps))"),
        (_RETURN, "min(32, round(warps / num_warps))"),
    ),
    Mistake(
        "part_of_a_program",
        "A part of a program is counted.",
        "Can an SM hold half a program?",
        3,
        where(lambda seen: is_number(seen.trial.answer) and seen.trial.answer % 1 != 0, weight=0.9),
    ),
    _RESIDENT_OF.mistake(
        "occupancy_returned",
        "The occupancy is returned instead of the programs.",
        "How many programs are these warps?",
        3,
        (_RETURN, f"{_RETURN} * num_warps / 64"),
        (_RETURN, "warps / 64"),
    ),
    _RESIDENT_OF.mistake(
        "warps_returned",
        "Warps are returned instead of programs.",
        "How many warps has one program?",
        3,
        (_RETURN, "warps"),
        (_RETURN, f"{_RETURN} * num_warps"),
    ),
)


def _occupancy_cases(draw: Random) -> Given:
    return {
        f"{registers} registers, {num_warps} warp{'s' if num_warps > 1 else ''}": (
            (registers, num_warps),
            programs(registers, num_warps),
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

SMS, LAUNCH, ALONE, BYTES, RATE = 132, 3.5, 1.5, 4.2e6, 4 * 32 * 1980.0
"""SMs; microseconds of a launch, and of a row besides loading and computing; bytes and instructions a microsecond."""

_MEAN, _WORST = 0.15, 0.35
"""How far a prediction may be off: on average over a kind of launch, and at any."""


def predicted(n_rows: int, row_bytes: int, row_instructions: float, num_warps: int, programs: int) -> float:
    """Microseconds of a single tile on one H200, as exercise 6.3 asks for them."""
    load = row_bytes / (BYTES / SMS)
    compute = row_instructions / RATE / min(1, num_warps / 16)
    turns = math.ceil(n_rows / (SMS * programs))
    memory = 2 * n_rows * row_bytes / BYTES
    instructions = n_rows * row_instructions / (SMS * RATE)
    return LAUNCH + max(memory, instructions, turns * (ALONE + load + compute))


_PREDICTED = Answer(predicted, arguments=lambda case: tuple(case.x.features), rtol=0.03)
_TURNS, _OF_TURNS = "math.ceil(n_rows / (SMS * programs))", "turns * (ALONE + load + compute)"
_LONGEST = f"max(memory, instructions, {_OF_TURNS})"


def _off_by_a_unit(seen: Sequence[Seen]) -> float:
    """The middle one of all answers is some thousand times too long, or too short."""
    factors = [one.trial.answer / one.x.us for one in seen if is_number(one.trial.answer)]
    middle = statistics.median(map(abs, factors)) if factors else 0
    return 0.6 * (300 < middle < 3000 or 300 < 1 / max(middle, 1e-30) < 3000)


_TIMES = (
    *GENERAL,
    _PREDICTED.mistake(
        "always_maximum",
        "Only memory and instructions count.",
        "Where one program fills an SM, what does the SM do while that program waits for its row?",
        1,
        (_LONGEST, "max(memory, instructions)"),
    ),
    _PREDICTED.mistake(
        "always_sum",
        "Times are added that pass at once.",
        "While one program of an SM computes, what do the others do?",
        1,
        (_LONGEST, "(memory + instructions)"),
        (_LONGEST, f"(memory + instructions + {_OF_TURNS})"),
    ),
    _PREDICTED.mistake(
        "no_tail",
        "A part of a turn takes a part of its time.",
        "64 rows on 132 SMs: when is the program of a row done, and does it help that other SMs are idle?",
        2,
        (_TURNS, "n_rows / (SMS * programs)"),
        (_TURNS, "n_rows / (SMS * programs)", _LONGEST, _OF_TURNS),
    ),
    _PREDICTED.mistake(
        "turns_rounded_down",
        "Turns are rounded down, or to the nearest number.",
        "64 rows on 132 SMs, or 170: how many turns until the last row is done?",
        2,
        (_TURNS, "n_rows // (SMS * programs)"),
        (_TURNS, "round(n_rows / (SMS * programs))"),
    ),
    _PREDICTED.mistake(
        "a_turn_too_many",
        "A turn is counted that has no rows left.",
        "132 rows on 132 SMs, a program each: how many turns are that?",
        2,
        (_TURNS, "n_rows // (SMS * programs) + 1"),
    ),
    _PREDICTED.mistake(
        "computes_while_it_loads",
        "A program alone is taken to compute while it loads.",
        "What can a program compute before its row is there?",
        3,
        ("load + compute", "max(load, compute)"),
    ),
    _PREDICTED.mistake(
        "more_warps_than_needed",
        "More warps than an SM can start instructions for make it faster.",
        "16 warps keep the four parts busy: what can 32 do in addition?",
        3,
        ("min(1, num_warps / 16)", "(num_warps / 16)"),
    ),
    _PREDICTED.mistake(
        "occupancy_as_speed",
        "The time is divided by the occupancy.",
        "At 5,000 columns, which occupancy was the fastest?",
        1,
        *(
            (_LONGEST, f"{time} / (num_warps * programs / 64)")
            for time in ("memory", "instructions", "max(memory, instructions)", _LONGEST)
        ),
    ),
    _PREDICTED.mistake(
        "only_memory",
        "Only the bytes count.",
        "Which launches of the table have moved the same bytes in twice the time?",
        1,
        (_LONGEST, "memory"),
    ),
    _PREDICTED.mistake(
        "only_turns",
        "Only the turns count.",
        "What if all programs together ask for more bytes than memory can deliver?",
        1,
        (_LONGEST, _OF_TURNS),
    ),
    _PREDICTED.mistake(
        "bytes_left_out",
        "The bytes do not count.",
        "However many programs there are: how long does memory need for all bytes?",
        1,
        ("max(memory, ", "max("),
    ),
    _PREDICTED.mistake(
        "instructions_left_out",
        "The instructions of all rows do not count.",
        "However many programs there are: how long do all SMs need to start the instructions of all rows?",
        1,
        ("max(memory, instructions", "max(memory"),
    ),
    _PREDICTED.mistake(
        "programs_left_out",
        "Every SM has one program at a time.",
        "How many programs does a turn have, on all SMs?",
        2,
        ("(SMS * programs)", "SMS"),
    ),
    _PREDICTED.mistake(
        "few_warps_as_fast",
        "A program of few warps computes as fast as one of many.",
        "An SM's four parts start an instruction in each cycle: how many warps must a program have for that?",
        3,
        (" / min(1, num_warps / 16)", ""),
    ),
    _PREDICTED.mistake(
        "stores_left_out",
        "The result's bytes are missing.",
        "Which bytes does a softmax move besides its input?",
        1,
        ("2 * n_rows", "n_rows"),
    ),
    _PREDICTED.mistake(
        "stores_waited_for",
        "A program waits for its stores.",
        "Does a program need what it has stored?",
        3,
        ("load = row_bytes", "load = 2 * row_bytes"),
    ),
    _PREDICTED.mistake(
        "no_launch_time",
        "The launch takes no time.",
        "How long does a kernel take that does nothing?",
        3,
        ("LAUNCH + ", ""),
    ),
    _PREDICTED.mistake(
        "no_latency",
        "A row takes no longer than loading and computing.",
        "How long does a program of a single number take?",
        3,
        ("ALONE + ", ""),
    ),
    _PREDICTED.mistake(
        "whole_bandwidth",
        "A program alone loads at the speed of the whole GPU.",
        "132 SMs share the bandwidth: how much of it is one SM's?",
        3,
        ("(BYTES / SMS)", "BYTES"),
    ),
    _PREDICTED.mistake(
        "one_sm_computes",
        "One SM starts the instructions of all rows.",
        "RATE is what one SM starts: how many SMs compute?",
        1,
        ("(SMS * RATE)", "RATE"),
    ),
    Mistake(
        "other_unit",
        "The unit is another one.",
        "Is it microseconds that you return?",
        0,
        any_of(
            _PREDICTED.gives(
                *(
                    ("LAUNCH + max(", f"{factor} * (LAUNCH + max(", "compute))", "compute)))")
                    for factor in (1e-6, 1e-3, 1e3)
                )
            ),
            _off_by_a_unit,
        ),
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
        known=with_hints(_TIMES, **dict.fromkeys(ERRORS, 4)),
        why="Why is a launch the maximum of three times, and a program alone a sum?",
        ours=predicted,
    ),
)
