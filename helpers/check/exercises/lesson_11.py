"""Lesson 11, attention: triples (m, l, o) and their merge, a kernel, a causal kernel, and the gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from random import Random

import torch

from helpers.attention import lesson
from helpers.check.exercise import AnswersExercise, CountedExercise, Given, TensorExercise
from helpers.check.judge import judge_answers, stopped
from helpers.check.mistakes import names
from helpers.check.mistakes.attention import ATTENTION_MISTAKES, CAUSAL_MISTAKES
from helpers.check.mistakes.attention_gradient import ATTENTION_GRADIENT_MISTAKES
from helpers.check.mistakes.edited import Answer
from helpers.check.mistakes.recognise import INF, Mistake, Seen, raised, recognised, where, with_hints
from helpers.check.mistakes.stops import ERRORS, GENERAL
from helpers.check.problems import attention
from helpers.check.problems.asking import keeping
from helpers.check.problems.problem import Inputs
from helpers.check.report import Diagnosis, Finding
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial, is_number, shown

Triple = tuple[float, float, list[float]]
"""(m, l, o) of a part of a row: its maximum, its sum of exp(s − m), and its sums of exp(s − m) v."""

# 11.1


def _triple_of(scores: Sequence[float], values: Sequence[Sequence[float]]) -> Triple:
    m = max(scores)
    p = [math.exp(s - m) if m > -INF else 0.0 for s in scores]
    return m, sum(p), [sum(x * row[i] for x, row in zip(p, values, strict=True)) for i in range(len(values[0]))]


def _triples_cases(draw: Random) -> Given:
    parts = {
        "the larger maximum on the right": ([1.0, 2.0], [5.0, 3.0]),
        "the larger maximum on the left": ([5.0, 3.0], [1.0, 2.0]),
        "equal maxima": ([4.0, 1.0], [4.0]),
        "far apart, 800 against −800": ([800.0], [-800.0]),
        "random parts": ([draw.gauss(0, 3) for _ in range(5)], [draw.gauss(0, 3) for _ in range(3)]),
        "only −inf on the left": ([-INF], [1.0, 2.0]),
        "only −inf on the right": ([1.0, 2.0], [-INF, -INF]),
        "only −inf on both sides": ([-INF], [-INF]),
        "both far below 0": ([-30000.0, -30001.0], [-29999.5]),
        "12 apart": ([draw.gauss(0, 1)], [12.0, 12.5]),
        "300 apart": ([300.0], [draw.gauss(0, 1)]),
        "far apart, −800 against 800": ([-800.0], [800.0]),
        "only −inf on both sides, again": ([-INF, -INF], [-INF]),
        "a maximum of 0": ([0.0, -1.0], [draw.gauss(0, 1)]),
        "many terms 25 below": ([0.0, -0.5], [-25.0] * 3000),
        "maxima that are nearly equal": ([2.0, 1.0], [2.1, 0.5, 1.5]),
    }
    given = {}
    for number, (case, (left, right)) in enumerate(parts.items()):
        d = 1 + number % 3
        values = [[draw.gauss(2, 1) for _ in range(d)] for _ in (*left, *right)]
        a, b = _triple_of(left, values[: len(left)]), _triple_of(right, values[len(left) :])
        given[case] = (a, b), _triple_of([*left, *right], values)
    return given


def merge(a: Triple, b: Triple) -> Triple:
    """The triple (m, l, o) of two parts of a row of scores together."""
    (m_a, l_a, o_a), (m_b, l_b, o_b) = a, b
    m = max(m_a, m_b)
    if m == -INF:
        return m, 0.0, [0.0] * len(o_a)
    f_a, f_b = math.exp(m_a - m), math.exp(m_b - m)
    o = [f_a * x + f_b * y for x, y in zip(o_a, o_b, strict=True)]
    return m, f_a * l_a + f_b * l_b, o


def _merge_starter(a: Triple, b: Triple) -> None:
    """The answer as it is handed out."""
    (m_a, l_a, o_a), (m_b, l_b, o_b) = a, b  # noqa: F841


def _triple(trial: Trial, d: int) -> Triple | None:
    """What came back, if it is a triple with d numbers in o."""
    match trial.answer:
        case [m, l, [*o]] if is_number(m) and is_number(l) and len(o) == d and all(map(is_number, o)):
            return float(m), float(l), [float(x) for x in o]
    return None


def _near(a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _compare_triples(case: str, one: Trial, want: Triple) -> Finding:
    if one.raised:
        return stopped(case, one)
    got = _triple(one, len(want[2]))
    if got is None:
        said = "None; is a return missing?" if one.answer is None else shown(one.answer)
        return Finding(case, False, f"expected (m, l, o), o a list of {len(want[2])}, got {said}")
    pairs = ("m", got[0], want[0]), ("l", got[1], want[1]), *(("o", *two) for two in zip(got[2], want[2], strict=True))
    for name, a, b in pairs:
        if not _near(a, b):
            return Finding(case, False, f"{name}: expected {b:.6g}, got {a:.6g}")
    return Finding(case, True, "right")


def _both_empty(seen: Seen) -> bool:
    return max(seen.x[0][0], seen.x[1][0]) == -INF


def _concatenated(seen: Seen) -> bool:
    """o holds the numbers of both lists."""
    answer = seen.trial.answer
    o = answer[2] if isinstance(answer, list) and len(answer) == 3 else None
    return isinstance(o, list) and len(o) == 2 * len(seen.x[0][2])


_MERGED = Answer(merge, through=keeping)
_EXP_A, _EXP_B, _O, _L = "math.exp(m_a - m)", "math.exp(m_b - m)", "f_a * x + f_b * y", "f_a * l_a + f_b * l_b"
_OF_TRIPLES = (
    Mistake(
        "lists_changed",
        "A list that was given is changed.",
        "Who else uses o_a and o_b, and which line makes a list of its own?",
        3,
        raised("GivenChanged", weight=0.95),
    ),
    *GENERAL,
    Mistake(
        "lists_joined",
        "The two lists are joined, not added number by number.",
        "What is [1, 2] + [3, 4] in Python, and how many numbers has o?",
        3,
        where(_concatenated, weight=0.95),
    ),
    _MERGED.mistake(
        "o_as_it_is",
        "The sums of values are added as they are.",
        "o is a sum of the same exponentials as l: with which maximum was each o made?",
        1,
        (_O, "x + y"),
    ),
    _MERGED.mistake(
        "parts_as_they_are",
        "All sums are added as they are.",
        "With which maximum was each of them made, and which one does the triple now have?",
        1,
        (_O, "x + y", _L, "l_a + l_b"),
    ),
    _MERGED.mistake(
        "l_as_it_is",
        "l is added as it is.",
        "With which maximum was each l made, and which one does the triple now have?",
        1,
        (_L, "l_a + l_b"),
    ),
    _MERGED.named(
        names.FACTORS_SWAPPED,
        1,
        (f"f_a, f_b = {_EXP_A}", f"f_b, f_a = {_EXP_A}"),
        (_O, "f_b * x + f_a * y"),
    ),
    _MERGED.mistake(
        "sums_of_parts_grow",
        "The sums are rescaled the wrong way.",
        "Against a larger maximum, must a sum grow or shrink?",
        3,
        (_EXP_A, "math.exp(m - m_a)", _EXP_B, "math.exp(m - m_b)"),
        (_EXP_A, "math.exp(min(700, m - m_a))", _EXP_B, "math.exp(min(700, m - m_b))"),
    ),
    _MERGED.mistake(
        "merged_with_powers_of_2",
        "The sums are rescaled with powers of 2, not of e.",
        "Of which base are the exponentials that l and o are sums of?",
        1,
        (_EXP_A, "2.0 ** (m_a - m)", _EXP_B, "2.0 ** (m_b - m)"),
    ),
    _MERGED.mistake(
        "one_side_rescaled",
        "Only one side is rescaled.",
        "Which of the two maxima is the larger, and do you know that beforehand?",
        1,
        (_EXP_A, "1.0"),
        (_EXP_B, "1.0"),
        (_O, "x + f_b * y"),
        (_O, "f_a * x + y"),
        (_L, "l_a + f_b * l_b"),
        (_L, "f_a * l_a + l_b"),
    ),
    _MERGED.mistake(
        "o_divided",
        "The sum o is divided by l.",
        "The next merge adds sums: when alone is o / l asked for?",
        1,
        (f"return m, {_L}, o", f"l = {_L}\n    return m, l, [x / l for x in o]"),
        (_O, "f_a * x / (l_a or 1.0) + f_b * y / (l_b or 1.0)"),
    ),
    _MERGED.mistake(
        "o_weighed_with_l",
        "The sum o is multiplied by l.",
        "Is o a mean, or a sum that holds the weights already?",
        1,
        (_O, "f_a * l_a * x + f_b * l_b * y"),
        (_O, f"(f_a * l_a * x + f_b * l_b * y) / ({_L})"),
    ),
    Mistake(
        "smaller_maximum",
        "The first number is not the larger of the two maxima.",
        "Which of the two is the maximum of both parts together, and which place has it in the triple?",
        1,
        where(
            lambda seen: (
                (got := _triple(seen.trial, len(seen.x[0][2]))) is not None
                and got[0] != max(seen.x[0][0], seen.x[1][0])
            ),
            weight=0.92,
        ),
    ),
    Mistake(
        "two_empty_triples",
        "Two empty parts do not give an empty triple.",
        "What is −inf − (−inf), and what are l and o of nothing?",
        2,
        lambda seen: 1.0 * all(_both_empty(case) and not case.trial.raised for case in seen if not case.ok),
    ),
    Mistake(
        "empty_side",
        "Merging with an empty part changes the other one.",
        "An empty part adds nothing: what is then the triple of both?",
        2,
        lambda seen: 0.9 * all(-INF in (case.x[0][0], case.x[1][0]) for case in seen if not case.ok),
    ),
    recognised(
        names.EXPONENTIAL_OVERFLOWS,
        3,
        raised("OverflowError", weight=0.9),
    ),
    Mistake(
        "no_triple",
        "Something other than a triple (m, l, o) comes back.",
        "Which three come back, and is the third a list with a number for each column?",
        3,
        where(lambda seen: not seen.trial.raised and _triple(seen.trial, len(seen.x[0][2])) is None, weight=0.8),
    ),
)


# 11.2, 11.3

LEAST_ROWS = 16
"""Queries of a tile that tl.dot takes at least."""
GIVEN_ROWS = 64
"""Queries of a tile in the driver that is given."""


def _tiles(q: torch.Tensor, trial: Trial) -> int:
    """Tiles of queries of a head: as many as the given driver has; or more, of at least 16 queries, where no program
    stores more rows of o than such a tile has."""
    _, L, D = q.shape
    rows = max(LEAST_ROWS, -(-trial.most_stored // D))
    return -(-L // min(rows, GIVEN_ROWS))


def trips(inputs: Inputs, trial: Trial) -> int:
    """Loads that are enough: Q once, and K and V for each tile of queries."""
    q, k, v = inputs
    return q.numel() + _tiles(q, trial) * (k.numel() + v.numel())


def causal_trips(inputs: Inputs, trial: Trial) -> int:
    """As `trips`, without the tiles of keys that no query of a tile sees. A tile that is wider than the tile of queries
    ends beyond the last of them."""
    q, k, v = inputs
    (H, L, D), N = q.shape, k.shape[1]
    tiles = _tiles(q, trial)
    rows = 2 * GIVEN_ROWS if tiles <= 1 else 1 << (-(-L // tiles) - 1).bit_length()
    beyond = max(0, min(trial.tile // max(LEAST_ROWS, 1 << (D - 1).bit_length()), 2 * GIVEN_ROWS) - rows)
    keys = sum(min(N, (tile + 1) * rows + beyond) for tile in range(tiles))
    return q.numel() + H * keys * (k.shape[2] + v.shape[2])


def _starter(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the kernels store as they are handed out."""
    return torch.zeros_like(q), torch.full(q.shape[:2], -INF)


_HIDDEN_TILES = Mistake(
    "hidden_tiles_loaded",
    "The result is right, and tiles of keys are loaded that no query of the tile sees.",
    "Up to which key does the last query of a program see?",
    2,
    where(lambda seen: seen.trial.loads <= trips(seen.inputs, seen.trial)),
)


# 11.4


def _no_gradients(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What the function returns as it is handed out."""
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)


SCORES_AT_ONCE = Diagnosis(
    "scores_at_once",
    "The scores of all keys exist at once.",
    "How many columns may a tensor of scores have, and how many keys has a block?",
    3,
)


def _at_once(inputs: Inputs, trial: Trial) -> str:
    """What an answer does with all keys at once: no operation takes all of them, and less is in use at once than all
    scores take."""
    q, k, *_ = inputs
    if any(size % k.numel() == 0 for size in trial.joined if size):
        return "a product takes all of them at once, and not one block"
    scores = q.shape[1] * k.shape[1] * 4
    if trial.most_bytes >= scores:
        return f"{trial.most_bytes:,} bytes are in use at once; all scores have {scores:,}, some outlive a block"
    return ""


EXERCISES = (
    AnswersExercise(
        name="triples",
        number="11.1",
        points=2,
        about=(
            "Checks a merge of two triples (m, l, o): of a part of a row of scores its maximum, its sum of exp(s − m), "
            "and the list of its sums of exp(s − m) times the values."
        ),
        draw=_triples_cases,
        starters=starters(_merge_starter),
        judge=partial(judge_answers, compare=_compare_triples),
        through=keeping,
        known=with_hints(_OF_TRIPLES, **dict.fromkeys(ERRORS, 3)),
        why="Why does o shrink by the same factor as l?",
        ours=merge,
    ),
    TensorExercise(
        name="attend",
        number="11.2",
        points=5,
        about=(
            "Checks an attention kernel: a function of q (H, L, d), k and v (H, N, d) that returns o (H, L, d) and the "
            "log-sum-exps (H, L). Q is loaded once, K and V once for each tile of queries."
        ),
        kind=attention.ATTENTION,
        makers=attention.QUERIES,
        loads=trips,
        stores=1 + 1 / 16,
        starter=_starter,
        starter_loads=1,
        starter_shows="m, l and o are still what the starter code makes them",
        known=with_hints(ATTENTION_MISTAKES, **dict.fromkeys(ERRORS, 4)),
        why="Why is o divided by l only once, after the loop?",
        ours=lesson.tiled_attention,
    ),
    TensorExercise(
        name="causal",
        number="11.3",
        points=3,
        about=(
            "Checks a causal attention kernel: as check.attend, query t sees the keys 0 to t. Tiles of keys that no "
            "query of a tile sees are not loaded."
        ),
        kind=attention.CAUSAL,
        makers=attention.QUERIES,
        loads=causal_trips,
        overspent=(_HIDDEN_TILES,),
        stores=1 + 1 / 16,
        starter=_starter,
        starter_loads=1,
        starter_shows="m, l and o are still what the starter code makes them",
        known=with_hints(CAUSAL_MISTAKES, **dict.fromkeys(ERRORS, 4)),
        why="Why may whole tiles be left out, while the tile that the diagonal cuts still needs its mask?",
        ours=lesson.causal_attention,
    ),
    CountedExercise(
        name="attention_gradient",
        number="11.4",
        points=2,
        about=(
            "Checks a function in PyTorch of q, k, v, o, the log-sum-exps and the gradient of o that returns the "
            "gradients of q, k and v, block by block of keys."
        ),
        kind=attention.ATTENTION_GRADIENT,
        makers=attention.GRADIENTS,
        further=attention.MANY_KEYS,
        spends=((SCORES_AT_ONCE, _at_once),),
        piece="block",
        starter=_no_gradients,
        starter_shows="the gradients are still 0, as the starter code makes them",
        known=with_hints(ATTENTION_GRADIENT_MISTAKES, **dict.fromkeys(ERRORS, 3)),
        why="Why is dq added up over the blocks, and dk not?",
        ours=lesson.attention_gradient,
    ),
)
