"""Lesson 05, the online recurrence: pairs (m, l), their merge, and a kernel that finds both in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from random import Random

import torch

from helpers import kernels
from helpers.check.exercise import AnswersExercise, Given, TensorExercise
from helpers.check.exercises.lesson_04 import STREAMED
from helpers.check.judge import Pair, compare_pairs, judge_answers
from helpers.check.mistakes import names
from helpers.check.mistakes.edited import Answer
from helpers.check.mistakes.recognise import (
    INF,
    Mistake,
    Seen,
    raised,
    recognised,
    where,
    with_hints,
)
from helpers.check.mistakes.row_edits import NEW_TERMS, ONLINE, RESCALED, with_edits
from helpers.check.mistakes.shared import GENERAL, LARGE_NEGATIVE, STREAMING
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import cases
from helpers.check.problems.asking import keeping
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial


def _pair_of(part: Sequence[float]) -> Pair:
    """(m, l) of a part of a row."""
    m = max(part)
    return m, sum(math.exp(x - m) for x in part) if m > -INF else 0.0


# 5.1


def _merge_cases(draw: Random) -> Given:
    parts = {
        "the larger maximum on the right": ([1.0, 2.0], [5.0, 3.0]),
        "the larger maximum on the left": ([5.0, 3.0], [1.0, 2.0]),
        "equal maxima": ([4.0, 1.0], [4.0]),
        "far apart, 800 against −800": ([800.0], [-800.0]),
        "random parts": ([draw.gauss(0, 9) for _ in range(5)], [draw.gauss(0, 9) for _ in range(3)]),
        "only −inf on the left": ([-INF], [1.0, 2.0]),
        "only −inf on the right": ([1.0, 2.0], [-INF]),
        "only −inf on both sides": ([-INF], [-INF]),
        "both far below 0": ([-3000.0, -3001.0], [-2999.5]),
        "equal maxima far below 0": ([-20000.0, -20001.0], [-20000.0] * 3),
        "both around −10³¹": ([-1e31], [-2e31]),
        "only −inf on the left, far below 0": ([-INF], [-20000.0, -20001.0]),
        "maxima that are nearly equal": ([-20000.0, -20001.0], [-20000.00001] * 3),
        "earlier maxima, other terms": ([2.0, 1.5, 0.5], [5.0, 4.5]),
        "many terms 25 below, on the right": ([0.0, -0.5], [-25.0] * 3000),
        "many terms 25 below, on the left": ([-25.0] * 3000, [0.0, -0.5]),
    }
    return {
        case: ((_pair_of(left), _pair_of(right)), _pair_of([*left, *right])) for case, (left, right) in parts.items()
    }


def merge(a: Pair, b: Pair) -> Pair:
    """The pair (m, l) of two parts of a row together (arXiv 1805.02867)."""
    (m_a, l_a), (m_b, l_b) = a, b
    m = max(m_a, m_b)
    if m == -INF:
        return m, 0.0
    return m, l_a * math.exp(m_a - m) + l_b * math.exp(m_b - m)


def _merge_starter(a: Pair, b: Pair) -> None:
    """The answer as it is handed out."""
    (m_a, l_a), (m_b, l_b) = a, b  # noqa: F841


def _both_empty(seen: Seen) -> bool:
    return max(seen.x[0][0], seen.x[1][0]) == -INF


def _one_empty(seen: Seen) -> bool:
    return -INF in (seen.x[0][0], seen.x[1][0]) and not _both_empty(seen)


def _answered(seen: Sequence[Seen]) -> list[Seen]:
    return [case for case in seen if case.trial.pair is not None]


def _keeps_one_maximum(seen: Sequence[Seen]) -> float:
    """m is that of the left part in every case, or that of the right, or always the smaller."""
    wrong = [case for case in _answered(seen) if case.trial.pair[0] != max(case.x[0][0], case.x[1][0])]
    kept = (lambda a, b: a, lambda a, b: b, min)
    return 1.0 * (
        bool(wrong)
        and any(all(case.trial.pair[0] == m(case.x[0][0], case.x[1][0]) for case in _answered(seen)) for m in kept)
    )


def _only_empty_sides(seen: Sequence[Seen]) -> float:
    """Wrong just where one side is empty, and what comes back there is an empty pair."""
    wrong = [case for case in seen if not case.ok]
    return 1.0 * (
        bool(wrong)
        and all(_one_empty(case) and case.trial.pair is not None and case.trial.pair[0] == -INF for case in wrong)
    )


def _empty_parts(is_nan: bool) -> Callable[[Sequence[Seen]], float]:
    """Wrong just where both sides are empty, by a NaN or by a number."""

    def explains(seen: Sequence[Seen]) -> float:
        wrong = [case for case in seen if not case.ok]
        return 1.0 * all(
            _both_empty(case) and case.trial.pair and any(map(math.isnan, case.trial.pair)) == is_nan for case in wrong
        )

    return explains


def _only_overflows(seen: Sequence[Seen]) -> float:
    """Errors of numbers too large, or too small to divide by, are all that is wrong."""
    errors = {case.trial.error for case in seen if not case.ok}
    return 0.95 * ({"OverflowError"} <= errors <= {"OverflowError", "ZeroDivisionError"})


_MERGED = Answer(merge)
_L_A, _L_B = "l_a * math.exp(m_a - m)", "l_b * math.exp(m_b - m)"
_MERGE = (
    *GENERAL,
    _MERGED.named(names.SUMS_AS_THEY_ARE, 1, (_L_A, "l_a", _L_B, "l_b")),
    Mistake(
        "one_maximum_kept",
        "One of the two maxima is kept, larger or not.",
        "Which of the two is the maximum of both parts together?",
        1,
        _keeps_one_maximum,
    ),
    Mistake(
        "other_maximum",
        "m is not the larger of the two maxima.",
        "Which of the two is the maximum of both parts together?",
        0,
        where(
            lambda seen: seen.trial.pair is not None and seen.trial.pair[0] != max(seen.x[0][0], seen.x[1][0]),
            weight=0.92,
        ),
    ),
    Mistake(
        "empty_side_returned",
        "Where one side is empty, an empty pair comes back.",
        "An empty side adds nothing to the other: what is then the pair of both?",
        0,
        _only_empty_sides,
    ),
    _MERGED.named(
        names.PAIR_SWAPPED, 0, ("return m, 0.0", "return 0.0, m", f"m, {_L_A} + {_L_B}", f"{_L_A} + {_L_B}, m")
    ),
    _MERGED.mistake(
        "one_sum_rescaled",
        "Only one of the sums is rescaled.",
        "Which of the two maxima is the larger, and do you know that beforehand?",
        1,
        (_L_B, "l_b"),
        (_L_A, "l_a"),
        (_L_A, "l_a * math.exp(m_a - m_b)", _L_B, "l_b"),
        (_L_A, "l_a", _L_B, "l_b * math.exp(m_b - m_a)"),
    ),
    _MERGED.mistake(
        "sums_rescaled_wrong_way",
        "The sums are rescaled the wrong way.",
        "Against a larger maximum, must a sum grow or shrink?",
        2,
        (_L_A, "l_a * math.exp(m - m_a)", _L_B, "l_b * math.exp(m - m_b)"),
        (_L_A, "l_a * math.exp(min(m - m_a, 700))", _L_B, "l_b * math.exp(min(m - m_b, 700))"),
    ),
    _MERGED.named(names.FACTORS_SWAPPED, 1, (_L_A, "l_b * math.exp(m_a - m)", _L_B, "l_a * math.exp(m_b - m)")),
    Mistake(
        "two_empty_parts",
        "Two empty parts give NaN.",
        "What is −inf − (−inf), and can it be avoided before it is computed?",
        3,
        _empty_parts(is_nan=True),
    ),
    Mistake(
        "two_empty_parts_counted",
        "Two empty parts do not give an empty pair.",
        "What is the maximum of nothing, and what the sum of nothing?",
        0,
        _empty_parts(is_nan=False),
    ),
    recognised(
        names.MAXIMUM_OUT_OF_EXPONENT,
        2,
        _only_overflows,
    ),
    recognised(
        names.EXPONENTIAL_OVERFLOWS,
        2,
        raised("OverflowError", weight=0.9),
    ),
    Mistake(
        "no_pair",
        "Something other than a pair (m, l) comes back.",
        "Which two numbers say all there is to say about both parts together?",
        1,
        where(lambda seen: bool(seen.trial.got)),
    ),
)

# 5.2

SLOWLY = "slowly ascending"
EXACT = tuple(f"numbers whose exponentials are exact, {how}" for how in ("in one block", "ascending", "descending"))


def _judge_recurrence(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """Right in every case, and found block by block, in whatever order.

    All terms of the rows EXACT are exact against the row's maximum, and so are their sums, in any order. Where a sum is
    rescaled from one maximum to another, it is rounded: then l of the row in blocks is another than l of the same
    numbers in one block. From the block of the maximum on there is nothing to rescale, so one of two orders shows it.
    """
    report = judge_answers(exercise, given, trials, compare_pairs, starter=(-INF, 0.0))
    if not report.passed:
        return report
    by_case = dict(zip(given, trials, strict=True))
    in_one, *in_blocks = (by_case[case].pair[1] for case in EXACT)
    if any(l != in_one for l in in_blocks):
        return report
    seen = "l shows no rounding of a sum that is rescaled from block to block"
    at_once = Finding("block by block", False, seen)
    return exercise.judged([*report.findings, at_once], diagnosis=ALL_AT_ONCE)


@cache
def _exact_logs() -> list[float]:
    """Logarithms of multiples of 1/64 below 1, which are their exponentials to the last bit."""
    return [x for x in (math.log(k / 64) for k in range(8, 64)) if 64 * math.exp(x) == round(64 * math.exp(x))]


def _exact_blocks(draw: Random) -> list[list[float]]:
    """Two blocks of `_exact_logs`, drawn until the sum of the first, found with its own maximum and rescaled, leads to
    another sum of both than the exact one. The maximum of each comes first, and that of the second is 0."""
    for _ in range(10_000):
        block = draw.choices(_exact_logs(), k=draw.randint(10, 40))
        block.insert(0, block.pop(block.index(max(block))))
        last = [0.0, *draw.choices(_exact_logs(), k=draw.randint(0, 20))]
        if _rounds_all_sums(block, last):
            return [block, last]
    raise AssertionError("this machine's exp rounds nothing")


def _rounds_all_sums(block: list[float], last: list[float]) -> bool:
    """Whether no usual way to sum the block, to rescale its sum and to add the last block's terms is exact."""
    m, exact = block[0], sum(map(math.exp, [*block, *last]))
    terms, by_torch = [math.exp(x - m) for x in block], torch.tensor([m, *block], dtype=torch.float64)
    sums = sum(terms), math.fsum(terms), torch.exp(by_torch[1:] - m).sum().item()
    rescaled = [l * factor for l in sums for factor in (math.exp(m), torch.exp(by_torch[0]).item())]
    rest = [math.exp(x) for x in last]
    return all(exact not in (l + sum(rest), sum(rest, l)) for l in rescaled)


ALL_AT_ONCE = Diagnosis(
    "all_at_once",
    "No rescaling shows in the sum: the row is summed all at once, or not rescaled at each block.",
    "What do m and l hold after the first block, while the second has not arrived yet?",
    1,
)


def _recurrence_cases(draw: Random) -> Given:
    exact = _exact_blocks(draw)
    rows = {
        "descending": [[9.0, 7.0], [4.0, 2.0], [1.0]],
        "ascending": [[1.0, 2.0], [4.0, 7.0], [9.0]],
        "steeply ascending": [[-900.0, -400.0], [0.0, 300.0], [650.0]],
        "one block": [[0.5, -0.5, 2.0]],
        "random": [[draw.gauss(0, 20) for _ in range(4)] for _ in range(5)],
        "twelve blocks of other lengths": [[draw.gauss(0, 3) for _ in range(1 + 5 * i % 7)] for i in range(12)],
        "equal maxima": [[4.0, 1.0, 4.0], [4.0, 2.0], [3.0], [4.0, 4.0]],
        "wholly negative": [[-3000.0, -2999.0], [-3002.0], [-2998.5, -2999.0, -3001.0]],
        "around −10³¹": [[-2e31, -1e31], [-1e31]],
        "one number": [[draw.gauss(-2000, 1)]],
        "many terms 25 below": [[0.0, -0.5], [-25.0] * 3000],
        SLOWLY: [[(i - 256) / 512, i / 512] for i in range(600)],
        EXACT[0]: [[x for block in exact for x in block]],
        EXACT[1]: exact,
        EXACT[2]: exact[::-1],
    }
    return {case: ((blocks,), _pair_of([x for block in blocks for x in block])) for case, blocks in rows.items()}


def statistics(blocks: list[list[float]]) -> Pair:
    """The pair (m, l) of a row that comes in blocks."""
    m, l = -INF, 0.0
    for block in blocks:
        m_new = max(m, max(block))
        l = l * math.exp(m - m_new) + sum(math.exp(x - m_new) for x in block)
        m = m_new
    return m, l


def _stays_0(seen: Sequence[Seen]) -> float:
    """In every case m is right, and l is 0."""
    pairs = [(case.trial.pair, max(map(max, case.x[0]))) for case in seen]
    return 1.0 * all(pair == [m, 0.0] for pair, m in pairs)


def _is_list_of_blocks(seen: Seen) -> bool:
    """A line that stops takes the maximum of all blocks, or subtracts a list."""
    one = seen.trial
    return one.error == "TypeError" and ("max(blocks)" in one.line or "for -: 'float' and 'list'" in one.raised)


_WALKED = Answer(statistics, through=keeping)
_FACTOR, _TERMS = "l * math.exp(m - m_new)", "sum(math.exp(x - m_new) for x in block)"
_L = f"{_FACTOR} + {_TERMS}"
_RECURRENCE = (
    Mistake(
        "maximum_of_blocks",
        "The maximum of the list of blocks is taken, which is a block.",
        "Over what does max go in a round: over all blocks, or over the numbers of this one?",
        0,
        where(_is_list_of_blocks, weight=0.95),
    ),
    Mistake(
        "blocks_changed",
        "The blocks that were given are changed.",
        "Who else uses these lists, and how do you get what you need without sorting or emptying them?",
        0,
        raised("GivenChanged", weight=0.95),
    ),
    Mistake(
        "divided_by_factor",
        "The sum is divided by the factor that it is to be multiplied by.",
        "m begins at −inf: what is exp(m − m_new) then, and what is to become of the old l?",
        3,
        raised("ZeroDivisionError", weight=0.95),
    ),
    *GENERAL,
    _WALKED.mistake(
        "returned_in_loop",
        "The result comes back after the first block.",
        "Below which line does the return stand, and how far to the right?",
        1,
        ("    return m, l", "        return m, l"),
    ),
    _WALKED.named(names.PAIR_SWAPPED, 0, ("return m, l", "return l, m")),
    Mistake(
        "l_never_updated",
        "l stays 0.",
        "Which line adds a term for each number of the block?",
        1,
        _stays_0,
    ),
    _WALKED.mistake(
        "l_forgotten",
        "The old sum is forgotten, and only its factor is left.",
        "What is exp(m − m_new) to be multiplied by?",
        2,
        (_FACTOR, "math.exp(m - m_new)"),
    ),
    _WALKED.named(
        names.M_START,
        0,
        *(
            ("m, l = -INF", f"m, l = {first}")
            for first in ("0.0", "-1.0", "-10.0", "-100.0", "-1000.0", "-1e4", "-1e6", "-1e9")
        ),
    ),
    _WALKED.named(
        names.NO_MAXIMUM,
        3,
        (_TERMS, "sum(math.exp(x) for x in block)"),
        (_L, "l + sum(math.exp(x) for x in block)"),
    ),
    _WALKED.named(names.NEVER_RESCALED, 2, (_FACTOR, "l")),
    _WALKED.mistake(
        "m_of_last_block",
        "m is the maximum of the last block.",
        "After the second block, does m still know the first?",
        2,
        ("max(m, max(block))", "max(block)"),
        ("max(m, max(block))", "max(block)", _FACTOR, "l"),
    ),
    _WALKED.named(
        names.TERMS_WITH_OLD_MAXIMUM,
        3,
        (_TERMS, "sum(math.exp(x - m) for x in block)"),
        (_L, "l + sum(math.exp(x - m) for x in block)"),
    ),
    _WALKED.named(
        names.EXP_OF_THE_SUM,
        3,
        (_TERMS, "math.exp(sum(block) - m_new)"),
        (_TERMS, "math.exp(sum(x - m_new for x in block))"),
        (_TERMS, "math.exp(max(block) - m_new)"),
    ),
    _WALKED.named(names.SCORES_ADDED, 3, (_TERMS, "sum(block)"), (_TERMS, "sum(x - m_new for x in block)")),
    _WALKED.mistake(
        "l_of_last_block",
        "l is the sum of the last block.",
        "After the second block, what is left of the first one's sum?",
        1,
        (f"{_FACTOR} + ", ""),
    ),
    _WALKED.named(
        names.RESCALED_WRONG_WAY,
        3,
        (_FACTOR, "l * (math.exp(m_new - m) if m > -INF else 0.0)"),
        (_FACTOR, "l * math.exp(m_new - m)"),
    ),
    _WALKED.named(names.RESCALED_AFTER_ADDING, 2, (_L, f"(l + {_TERMS}) * math.exp(m - m_new)")),
    _WALKED.named(names.M_NEVER_KEPT, 2, ("m = m_new", "pass")),
    recognised(
        names.EXPONENTIAL_OVERFLOWS,
        3,
        raised("OverflowError", weight=0.9),
    ),
)

# 5.3


def exp_by_zero(x: torch.Tensor) -> tuple[torch.Tensor]:
    """What a kernel stores if 0 is subtracted and the sum is 0."""
    return (torch.exp(x.float()) / 0,)


_GUARD = 'tl.where(m_new == -float("inf"), 0.0, m_new)'
_SHIFT, _ADDED = f"shift = {_GUARD}", f"{RESCALED} + {NEW_TERMS}"
_WITH_BEFORE = _SHIFT, f"before, shift = shift, {_GUARD}"
_TERMS_BEFORE = NEW_TERMS.replace("shift", "before")
_FACTOR_OF_NEW_M = "tl.exp(m - shift)", "tl.exp(m - m_new)"
_ONLINE = (
    ONLINE.mistake(
        "old_shift",
        "The old sum is rescaled from the old shift, which begins at 0.",
        "The first shift is 0, and the first m is −inf: which of the two makes an l of 0 stay 0 in a row around −1000?",
        3,
        (*_WITH_BEFORE, "tl.exp(m - shift)", "tl.exp(before - shift)"),
    ),
    ONLINE.mistake(
        "old_m_guarded",
        "The guard asks for the old m, not for the new one.",
        "In the first tile the old m is −inf, whatever the tile holds: which m is subtracted there, and is it −inf?",
        2,
        ("m_new == ", "m == "),
        ("m_new == ", "m == ", *_FACTOR_OF_NEW_M),
    ),
    ONLINE.mistake(
        "shift_of_0",
        "0 is subtracted from every entry.",
        "For which m alone is 0 meant, and what is subtracted for every other m?",
        2,
        (_SHIFT, "shift = 0.0"),
    ),
    ONLINE.mistake(
        "shift_never_set",
        "The second loop subtracts a shift that the first loop has never set.",
        "With which number does shift begin, and which line of the first loop gives it another?",
        2,
        (_SHIFT, "shift = 0.0", _ADDED, _ADDED.replace("shift", "m_new")),
    ),
    ONLINE.mistake(
        "guard_swapped",
        "The guard subtracts 0 where m is a number, and m where it is −inf.",
        "tl.where(condition, a, b) takes a where the condition is true: which of the two is 0 meant for?",
        2,
        ("0.0, m_new)", "m_new, 0.0)"),
        ("0.0, m_new)", "m_new, 0.0)", *_FACTOR_OF_NEW_M),
    ),
    ONLINE.mistake(
        "shift_kept_as_m",
        "The shift is kept as m.",
        "After a tile of only −inf the shift is 0: is 0 the maximum of a row that goes on around −1000?",
        2,
        ("m = m_new", "m = shift"),
    ),
    ONLINE.mistake(
        "shift_cut_off",
        "The number that is subtracted is cut off below.",
        "What are the exponentials of a row that lies wholly below that bound, and for which m alone is 0 subtracted?",
        2,
        *((_SHIFT, f"shift = tl.maximum(m_new, {lowest})") for lowest in LARGE_NEGATIVE[:-1]),
    ),
    *with_hints(
        STREAMING,
        loads_row_0=0,
        row_0_in_a_loop=0,
        l_start=3,
        empty_row_gives_numbers=2,
        nan_lost=2,
        only_nan=2,
        only_minus_inf=2,
        only_16_bit=0,
        not_float32=0,
        **dict.fromkeys(ERRORS, 4),
    ),
    ONLINE.named(names.NEVER_RESCALED, 1, (RESCALED, "l"), (RESCALED, "l", _SHIFT, "shift = m_new")),
    ONLINE.named(names.M_NEVER_KEPT, 1, ("m = m_new", "pass")),
    ONLINE.named(names.RESCALED_WRONG_WAY, 3, ("tl.exp(m - shift)", "tl.exp(shift - m)")),
    ONLINE.named(names.RESCALED_AFTER_ADDING, 3, (_ADDED, f"(l + {NEW_TERMS}) * tl.exp(m - shift)")),
    ONLINE.named(
        names.TERMS_WITH_OLD_MAXIMUM,
        3,
        (NEW_TERMS, NEW_TERMS.replace("shift", "m")),
        (_ADDED, "l + " + NEW_TERMS.replace("shift", "m")),
        (*_WITH_BEFORE, NEW_TERMS, _TERMS_BEFORE),
        (*_WITH_BEFORE, _ADDED, _ADDED.replace("shift", "before")),
        (*_WITH_BEFORE, _ADDED, f"(l + {_TERMS_BEFORE}) * tl.exp(m - shift)"),
    ),
    ONLINE.mistake(
        "new_terms_rescaled",
        "The new terms are rescaled instead of the old ones.",
        "Which of the two parts of l was made with an older m?",
        3,
        (_ADDED, f"l + {NEW_TERMS} * tl.exp(m - shift)"),
    ),
    ONLINE.mistake(
        "empty_tile",
        "A tile of only −inf spoils the row.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
        2,
        (_SHIFT, "shift = m_new"),
    ),
)

EXERCISES = (
    AnswersExercise(
        name="merge",
        number="5.1",
        points=2,
        about=("Checks a merge of two (m, l) pairs, each the maximum and the sum of exp(x − m) of one part of a row."),
        draw=_merge_cases,
        starters=starters(_merge_starter),
        judge=partial(judge_answers, compare=compare_pairs),
        known=_MERGE,
        why="Why does it not matter in which order pairs are merged?",
        ours=merge,
    ),
    AnswersExercise(
        name="recurrence",
        number="5.2",
        points=1,
        about=("Checks the textbook recurrence: blocks of a row in, the row's maximum and its sum of exp(x − m) out."),
        draw=_recurrence_cases,
        judge=_judge_recurrence,
        through=keeping,
        known=_RECURRENCE,
    ),
    TensorExercise(
        name="online",
        number="5.3",
        points=5,
        about=("Checks a kernel that finds maximum and sum in one pass over the row. 2 loads and 1 store per element."),
        kind=cases.SOFTMAX,
        makers=STREAMED,
        loads=2,
        starter=exp_by_zero,
        starter_loads=1,
        known=with_edits(ONLINE, _ONLINE),
        why="Why may the shift be 0 as long as m is −inf, and why is l right then?",
        ours=kernels.online_softmax,
    ),
)
