"""Lesson 14, one token: a merge of picks, a kernel that draws a column of each row, and parts of a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import torch

from helpers.check.exercise import AnswersExercise, Given, TensorExercise
from helpers.check.judge import judge_answers, stopped
from helpers.check.mistakes import names
from helpers.check.mistakes.edited import Answer
from helpers.check.mistakes.picks import OF_PARTS, OF_TILES
from helpers.check.mistakes.recognise import INF, Mistake, Seen, where, with_hints
from helpers.check.mistakes.stops import ERRORS, GENERAL
from helpers.check.problems import picking
from helpers.check.problems.asking import NOT_BY_U, shares_of_picks
from helpers.check.problems.problem import Inputs
from helpers.check.report import Finding
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial, shown
from helpers.softmax import picks

Picked = tuple[float, float, int]
"""(m, l, pick) of a part of a row: its maximum, its sum of exp(x − m), and one of its columns, −1 if it has none."""

# 14.1


def _triple_of(part: Sequence[float], pick: int) -> Picked:
    m = max(part)
    return (m, sum(math.exp(x - m) for x in part), pick) if m > -INF else (m, 0.0, -1)


def _pick_cases(draw: Random) -> Given:
    rows = {
        "equal shares": ([1.0, 2.0], [1.0, 2.0]),
        "three quarters on the right": ([0.0], [0.0, 0.0, 0.0]),
        "the larger maximum on the right": ([1.0, 2.0], [3.5, 3.0]),
        "the larger maximum on the left": ([3.5, 3.0], [1.0, 2.0]),
        "many small ones on the right": ([2.0], [0.0] * 20),
        "random parts": ([draw.gauss(0, 1) for _ in range(5)], [draw.gauss(0, 1) for _ in range(3)]),
        "both around −1,000": ([-1000.0], [-1001.0, -1001.0]),
        "far apart, 800 against −800": ([800.0], [-800.0]),
        "far apart, −800 against 800": ([-800.0], [800.0]),
        "only −inf on the left": ([-INF], [1.0, 2.0]),
        "only −inf on the right": ([1.0, 2.0], [-INF]),
        "only −inf on both sides": ([-INF], [-INF]),
        "three parts, the first two first": (([1.0, 2.0], [0.0]), [2.5, 1.0]),
        "three parts, the last two first": ([1.0, 2.0], ([0.0], [2.5, 1.0])),
    }
    made = {case: _given(*two, picks=draw.sample(range(100, 1000), 3)) for case, two in rows.items()}
    return {case: ((*two, draw.random()), want) for case, (two, want) in made.items()}


def _given(*two: Any, picks: list[int]) -> tuple[tuple, Any]:
    """The triples of two parts, of which one may be two parts; and (m, l) of all with the share of each pick."""
    left = iter(picks)
    nested = tuple(
        tuple(_triple_of(one, next(left)) for one in part) if isinstance(part, tuple) else _triple_of(part, next(left))
        for part in two
    )
    flat = [one for part in nested for one in (part if isinstance(part, tuple) and len(part) == 2 else (part,))]
    m = max(one[0] for one in flat)
    sizes = {pick: l * math.exp(own - m) if m > -INF else 1.0 for own, l, pick in flat}
    total = sum(sizes.values())
    return nested, (m, total if m > -INF else 0.0, {pick: size / total for pick, size in sizes.items() if size})


def merge(a: Picked, b: Picked, u: float) -> Picked:
    """The triple (m, l, pick) of two parts of a row together, with a number u in [0, 1)."""
    (m_a, l_a, pick_a), (m_b, l_b, pick_b) = a, b
    m = max(m_a, m_b)
    if m == -INF:
        return m, 0.0, -1
    s_a, s_b = l_a * math.exp(m_a - m), l_b * math.exp(m_b - m)
    l = s_a + s_b
    pick = pick_b if u * l < s_b else pick_a
    return m, l, pick


def _starter(a: Picked, b: Picked, u: float) -> None:
    """The answer as it is handed out."""
    (m_a, l_a, pick_a), (m_b, l_b, pick_b) = a, b  # noqa: F841


def _compare(case: str, one: Trial, want: tuple[float, float, dict[int, float]]) -> Finding:
    """Right m and l, whatever u is, and the right shares: to a step of the grid, and exactly if they are 0 or 1."""
    if one.raised:
        return stopped(case, one)
    m, l, right = want
    match one.answer:
        case [[*pairs], [*found], float(step)]:
            shares = {pick: share for pick, share in found}
        case str(said) if said == NOT_BY_U:
            return Finding(case, False, said)
        case other:
            said = "None; is a return missing?" if other is None else shown(other)
            return Finding(case, False, f"expected (m, l, pick), got {said}")
    for got_m, got_l in pairs:
        if got_m != m or not math.isclose(got_l, l, rel_tol=1e-9):
            return Finding(case, False, f"expected m = {m:.6g} and l = {l:.6g}, got {got_m:.6g} and {got_l:.6g}")
    for pick in shares:
        if pick not in right:
            return Finding(case, False, f"pick is {shown(pick)} for some u, which no part with any share has picked")
    for pick, share in right.items():
        if abs(shares.get(pick, 0.0) - share) > 1.01 * step:
            seen = f"the pick {pick} comes at {shares.get(pick, 0.0):.3f} of the numbers u, its share is {share:.3f}"
            return Finding(case, False, seen)
    return Finding(case, True, f"right to {step:.1g} of all u")


def _is_triple(seen: Seen) -> bool:
    found = seen.trial.answer
    return found == NOT_BY_U or (isinstance(found, list) and len(found) == 3 and bool(found[1]))


_NOTHING = -INF, 0.0, -1
_MERGED = Answer(merge, through=shares_of_picks)
_S_A, _S_B, _WINS = "l_a * math.exp(m_a - m)", "l_b * math.exp(m_b - m)", "u * l < s_b"
_OF_PICKS = (
    *GENERAL,
    _MERGED.mistake(
        "one_part_wins",
        "One of the two picks is always taken.",
        "With which probability is the pick of the whole row one of b's columns?",
        1,
        (_WINS, "True"),
        (_WINS, "False"),
        (_WINS, "s_b > 0"),
    ),
    _MERGED.mistake(
        "larger_part_wins",
        "The larger part always wins.",
        "Is the more probable part to win, or each with its share?",
        1,
        (_WINS, "s_b > s_a"),
        (_WINS, "m_b > m_a"),
        (_WINS, "l_b > l_a"),
        (_WINS, "m_b >= m_a"),
    ),
    _MERGED.mistake(
        "share_not_rescaled",
        "The sums are compared as they are, each with a maximum of its own.",
        "With which maximum was each l made, and can they be compared before both have the same?",
        2,
        (_WINS, "u * (l_a + l_b) < l_b"),
        (_WINS, "u * l < l_b"),
    ),
    _MERGED.named(names.SUMS_AS_THEY_ARE, 2, (_S_A, "l_a", _S_B, "l_b")),
    _MERGED.mistake(
        "share_of_the_other",
        "Each part is taken with the share of the other one.",
        "If b has nine tenths of l, how often is b's pick to be taken?",
        1,
        (_WINS, "u * l < s_a"),
        (_WINS, "u * l >= s_b"),
    ),
    _MERGED.mistake(
        "not_a_share",
        "The number u is compared with a sum, not with a share of l.",
        "Which part of l has b, as a number from 0 to 1?",
        1,
        (_WINS, "u < s_b"),
        (_WINS, "u * s_a < s_b"),
        (_WINS, "u < 0.5"),
    ),
    _MERGED.mistake(
        "pair_of_the_winner",
        "m and l come from the part that wins alone.",
        "The next part is merged with this one: of how many columns does l have to be the sum?",
        2,
        ("return m, l, pick", "return (m_b, l_b, pick) if u * l < s_b else (m_a, l_a, pick)"),
        ("return m, l, pick", "return m, s_b if u * l < s_b else s_a, pick"),
    ),
    _MERGED.mistake(
        "empty_part_wins",
        "An empty part wins if u is 0.",
        "If s_b is 0 and u is 0, which of < and ≤ is true?",
        3,
        (_WINS, "u * l <= s_b"),
        (_WINS, "u * l > s_a"),
    ),
    _MERGED.named(
        names.RESCALED_WRONG_WAY,
        2,
        (_S_A, "l_a * math.exp(min(700, m - m_a))", _S_B, "l_b * math.exp(min(700, m - m_b))"),
    ),
    Mistake(
        "two_empty_parts_pick",
        "Two empty parts do not give an empty part.",
        "What are m, l and pick of nothing, and what is −inf − (−inf)?",
        3,
        lambda seen: 0.95 * all(case.x[:2] == (_NOTHING, _NOTHING) for case in seen if not case.ok),
    ),
    Mistake(
        "not_by_u",
        "The pick does not depend on u alone.",
        "Which number decides, and does the same one ever give another pick?",
        1,
        where(lambda seen: seen.trial.answer == NOT_BY_U, weight=0.8),
    ),
    Mistake(
        "no_triple_with_pick",
        "Something other than (m, l, pick) comes back.",
        "Which three come back, and is the third one of the two picks?",
        3,
        where(lambda seen: not seen.trial.raised and not _is_triple(seen), weight=0.8),
    ),
)

# 14.2, 14.3


def loads_of_picks(inputs: Inputs, trial: Trial) -> int:
    """Loads that are enough: each logit and each number once; in parts, the triple of each."""
    x, u = inputs
    return x.numel() + 4 * u.numel()


def _nothing_picked(x: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor]:
    return (torch.full((len(x),), -1),)


_STORES = 0.2
"""For each logit, room for a row's pick and for the triples of its parts."""
_STILL = "the picks are still the −1 of the starter code"

EXERCISES = (
    AnswersExercise(
        name="merge_picks",
        number="14.1",
        points=2,
        about=(
            "Checks a merge of two triples (m, l, pick) with a number u in [0, 1): the share of all u at which each "
            "pick is taken is its share of l."
        ),
        draw=_pick_cases,
        starters=starters(_starter),
        judge=partial(judge_answers, compare=_compare),
        through=shares_of_picks,
        known=with_hints(_OF_PICKS, **dict.fromkeys(ERRORS, 4)),
        why="Why does the share of b not depend on the larger maximum?",
        ours=merge,
    ),
    TensorExercise(
        name="pick_of_tiles",
        number="14.2",
        points=5,
        about=(
            "Checks a kernel that draws a column of each row: a function of logits (M, N) and numbers u (M, T), one "
            "for each tile, that returns M columns in int64. Each logit is loaded once."
        ),
        kind=picking.PICKS,
        makers=picking.ROWS,
        loads=loads_of_picks,
        stores=_STORES,
        starter=_nothing_picked,
        starter_shows=_STILL,
        known=with_hints(OF_TILES, out_of_bounds=0, offsets_overflow=0, **dict.fromkeys(ERRORS, 5)),
        why="Why is one random number enough for a tile, and for the column in it?",
        ours=picks.tile_sample,
    ),
    TensorExercise(
        name="pick_of_parts",
        number="14.3",
        points=4,
        about=(
            "Checks two kernels that draw a column of each row in parts: a function of logits (M, N) and numbers u "
            "(M, T + 1), the last of which is the merge's. Each logit is loaded once."
        ),
        kind=picking.PICKS_OF_PARTS,
        makers=picking.ROWS_IN_PARTS,
        loads=loads_of_picks,
        stores=_STORES,
        shared=True,
        starter=_nothing_picked,
        starter_shows=_STILL,
        known=with_hints(OF_PARTS, out_of_bounds=0, offsets_overflow=0, **dict.fromkeys(ERRORS, 4)),
        why="Why may the parts depend on the columns, and not on the number of rows?",
        ours=picks.split_sample,
    ),
)
