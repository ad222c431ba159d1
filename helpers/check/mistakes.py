"""The known mistakes of each exercise, those recognised with certainty before those that are only a symptom.

Every one of them is in the tests too, as code that makes it: the check must reject that code and name the mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from helpers.check import simulate as sim
from helpers.check.recognise import (
    INF,
    Mistake,
    Seen,
    ended,
    gives,
    gives_pair,
    has_idle_lanes,
    has_minus_inf,
    has_nan,
    is_16_bit,
    is_large,
    is_longer_than_tile,
    is_strided,
    later_rows_never_stored,
    one_lane_too_many,
    only,
    only_row_0_is_stored,
    tail_never_stored,
    unmasked,
    where,
    wraps,
)
from helpers.check.report import Diagnosis

GENERAL = (
    Mistake(
        "The code does not come to an end.",
        "Which loop is it, what would end it, and does every round bring that nearer?",
        0,
        ended("did not come to an end"),
    ),
    Mistake(
        "The code ends its own process.",
        "What in it calls exit or kill, or brings Python itself down?",
        0,
        ended("its process", "SystemExit"),
    ),
    Mistake(
        "The code prints without end.",
        "Is a print left in a loop that was there only to look?",
        0,
        ended("it printed more"),
    ),
    Mistake(
        "The code asks for more memory than it may have.",
        "Which tensor is that, and how many elements does it need?",
        0,
        ended("allocate memory", "MemoryError"),
    ),
    Mistake(
        "The code stops with an error.",
        "Which line does the message name, and what are the shapes and types there?",
        0,
        where(lambda seen: bool(seen.trial.raised) and not seen.trial.not_run, weight=0.1),
    ),
    Mistake(
        "Nothing is returned.",
        "Where does the result leave the function?",
        1,
        where(lambda seen: seen.trial.got.startswith("None")),
    ),
)

_TENSOR = (
    *GENERAL,
    Mistake(
        "The result has the wrong shape.",
        "Which shape has x, and from where does the result get its own?",
        1,
        where(lambda seen: bool(seen.trial.got) and str(tuple(seen.x.shape)) not in seen.trial.got),
    ),
    Mistake(
        "The result has the wrong dtype.",
        "Which dtype has x, and from where does the result get its own?",
        1,
        where(lambda seen: str(tuple(seen.x.shape)) in seen.trial.got),
    ),
    Mistake(
        "The input is overwritten.",
        "Where is the result stored, and what if the caller still needs x?",
        1,
        where(lambda seen: seen.trial.input_changed),
    ),
    Mistake(
        "What comes back is the input itself.",
        "Which tensor holds the result, and is it the one that is returned?",
        1,
        where(lambda seen: seen.trial.shares_storage),
    ),
    Mistake(
        "The maximum is not subtracted.",
        "What is exp(1000), and which number keeps every exponent at or below 0?",
        3,
        gives(sim.two_pass(sim.constant(0.0))),
    ),
    Mistake(
        "Nothing is divided by the sum.",
        "What does each row of the result add up to, and what should it?",
        3,
        gives(sim.no_division),
    ),
    Mistake(
        "Powers of 2 are taken instead of powers of e.",
        "2 to which power is e to the power x?",
        3,
        gives(sim.two_pass(term=torch.exp2), sim.two_pass(term_of_l=torch.exp2), sim.online(sim.with_powers_of_2)),
    ),
    Mistake(
        "The result passes through a dtype with fewer digits.",
        "Where does a value become float16 or bfloat16 before it is stored, and what is lost there?",
        3,
        gives(sim.through(torch.float16), sim.through(torch.bfloat16)),
    ),
    Mistake(
        "Only 16-bit inputs are wrong.",
        "In which dtype are the maximum, exp and the sum computed?",
        3,
        only(is_16_bit),
    ),
    Mistake(
        "Only large values are wrong.",
        "Which number is subtracted before exp, and is it the largest of its row?",
        3,
        only(is_large),
    ),
)


def _hints(mistakes: tuple[Mistake, ...], **numbers: int) -> tuple[Mistake, ...]:
    """The same mistakes, those whose name contains a key of `numbers` with that hint."""
    return tuple(
        replace(mistake, hint=next((hint for word, hint in numbers.items() if word in mistake.name), mistake.hint))
        for mistake in mistakes
    )


EAGER = (
    *_hints(_TENSOR, subtracted=2, large=2),
    Mistake(
        "One maximum is taken for all rows.",
        "What becomes of a row whose entries lie far below that maximum?",
        3,
        gives(sim.two_pass(lambda x, B: x.float().max())),
    ),
    Mistake(
        "The maximum is taken down the columns.",
        "Along which dimension do the entries of one row lie?",
        3,
        gives(sim.two_pass(lambda x, B: x.float().amax(dim=0, keepdim=True))),
    ),
    Mistake(
        "The sum is taken down the columns.",
        "Along which dimension do the entries of one row lie?",
        3,
        gives(lambda x, B: sim.no_division(x, B) / sim.no_division(x, B).sum(dim=0, keepdim=True)),
    ),
    Mistake(
        "One sum is taken for all rows.",
        "What does each row of the result add up to, and what should it?",
        3,
        gives(lambda x, B: sim.no_division(x, B) / sim.no_division(x, B).sum()),
    ),
    Mistake(
        "Something other than the maximum is subtracted.",
        "What is then the largest exponent in a row, and what should it be?",
        2,
        gives(
            sim.two_pass(lambda x, B: x.float().mean(dim=1, keepdim=True)),
            sim.two_pass(lambda x, B: x.float().amin(dim=1, keepdim=True)),
            sim.two_pass(lambda x, B: x.float().abs().amax(dim=1, keepdim=True)),
        ),
    ),
    Mistake(
        "The scores are cut off instead of shifted.",
        "Which scores does the cut make equal, and would a shift of the whole row?",
        2,
        gives(*(sim.cut_at(limit) for limit in (50.0, 80.0, 85.0, 88.0, 88.5, 88.7))),
    ),
    Mistake(
        "The logarithm of the softmax is returned.",
        "Can a probability be negative?",
        3,
        gives(lambda x, B: torch.log_softmax(x.float(), dim=1)),
    ),
)

_KERNEL = (
    Mistake(
        "No kernel is launched.",
        "Which line of the driver launches your kernel, with a grid in brackets?",
        1,
        where(lambda seen: seen.trial.y is not None and not seen.trial.kernels),
    ),
    *_TENSOR,
    Mistake(
        "The arithmetic is not done in float32.",
        "Of which dtype is a tile loaded from a bfloat16 tensor, and which one does exp need?",
        3,
        ended("Expected dtype ['fp32'"),
    ),
    Mistake(
        "The grid has fewer programs than x has rows.",
        "A program takes one row: how many must the launch ask for?",
        2,
        where(later_rows_never_stored),
    ),
    Mistake(
        "Every program takes row 0.",
        "Which number tells a program its row, and along which axis of the grid does it differ?",
        2,
        only_row_0_is_stored,
    ),
    Mistake(
        "Every program loads row 0.",
        "Where does this program's row begin?",
        2,
        gives(sim.of_row(0)),
    ),
    Mistake(
        "The end of the row is never stored.",
        "How many columns does the kernel reach in all, and how many has the row?",
        1,
        where(tail_never_stored, weight=0.97),
    ),
)

SINGLE_TILE = (
    *_KERNEL,
    Mistake(
        "A program reaches beyond its tensor.",
        "At which element does a row begin, and which is its last?",
        2,
        where(lambda seen: bool(seen.trial.outside)),
    ),
)

_END_OF_ROW = (
    Mistake(
        "The mask lets one lane too many through.",
        "Which is the last column of a row with N of them?",
        1,
        where(one_lane_too_many),
    ),
    Mistake(
        "A load has no mask.",
        "What do the lanes past the end of the row load?",
        1,
        unmasked("load"),
    ),
    Mistake(
        "The store has no mask.",
        "Where do the lanes past the end of the row write?",
        2,
        unmasked("store"),
    ),
    Mistake(
        "Offsets overflow in 32 bits.",
        "How large is a row's number times its stride, and which integers are large enough for it?",
        3,
        where(wraps, weight=0.96),
    ),
    Mistake(
        "The input's stride is used for the output.",
        "x may have gaps between its rows: has y?",
        3,
        where(lambda seen: seen.trial.outside.get("action") == "store" and is_strided(seen), weight=0.98),
    ),
    Mistake(
        "The result has the strides of x, and the kernel assumes others.",
        "What strides does torch.empty_like give the result of a transposed x?",
        3,
        where(lambda seen: not seen.trial.contiguous),
    ),
    Mistake(
        "N is taken for the row stride of x.",
        "How far apart do the rows of x[:, :5] begin?",
        3,
        gives(sim.with_strides(lambda x: (x.shape[1], x.stride(1)))),
    ),
    Mistake(
        "The column stride of x is ignored.",
        "How far apart are neighbours in a row of a transposed tensor?",
        3,
        gives(sim.with_strides(lambda x: (x.stride(0), 1))),
    ),
    Mistake(
        "x is read as if it were contiguous.",
        "How far apart do the rows of x[:, :5] begin, and how far apart are the columns of a transposed tensor?",
        3,
        gives(sim.with_strides(lambda x: (x.shape[1], 1))),
    ),
    Mistake(
        "Only tensors with gaps, or transposed ones, are wrong.",
        "Which strides has x, which has y, and which of them does each pointer use?",
        3,
        only(is_strided),
    ),
    Mistake(
        "A row of only −inf gives numbers.",
        "What does torch return for such a row, and which line takes it away?",
        1,
        gives(sim.empty_rows_as(lambda N: 0.0), sim.empty_rows_as(lambda N: 1.0 / N)),
    ),
    Mistake(
        "NaN turns into a number.",
        "What does torch return for a row with NaN, and which line takes it away?",
        1,
        gives(sim.nan_as_minus_inf, sim.nan_results_as_zero),
    ),
    Mistake(
        "Only rows with NaN or +inf are wrong.",
        "What does torch return for such a row, and which line takes it away?",
        1,
        only(has_nan),
    ),
)

Pair = tuple[float, float]

_LARGE_NEGATIVE = (-10.0, -50.0, -100.0, -500.0, -1000.0, -1e4, -1e5, -1e6, -1e9, -1e20, -1e30, -3.4e38)

_IDLE_LANES = (
    Mistake(
        "Lanes past the end take part in the maximum.",
        "What do they hold when the maximum is taken, and what if the row is far below it?",
        1,
        gives(*(sim.two_pass(sim.padded_maximum(c)) for c in (0.0, *_LARGE_NEGATIVE))),
    ),
    Mistake(
        "Lanes past the end take part in the sum.",
        "What is exp(x − m) in a lane that holds no entry of the row, and what should it be?",
        1,
        gives(sim.two_pass(other=0.0), sim.idle_lanes_add_one),
    ),
)

MASKED = (
    *_KERNEL,
    *_END_OF_ROW,
    Mistake(
        "Lanes past the end of the row hold 0.",
        "Which number changes neither a maximum nor a sum of exponentials?",
        1,
        gives(sim.two_pass(sim.padded_maximum(0.0), other=0.0)),
    ),
    Mistake(
        "Lanes past the end hold a large negative number, not −inf.",
        "Which row has a maximum below that number?",
        1,
        gives(*(sim.two_pass(sim.padded_maximum(c), other=c) for c in _LARGE_NEGATIVE)),
    ),
    *_IDLE_LANES,
    Mistake(
        "Only lengths that are no power of two are wrong.",
        "What do the lanes past the end of the row hold, in the maximum and in the sum?",
        1,
        only(has_idle_lanes),
    ),
)

_STREAMED = (
    *_hints((*_KERNEL, *_END_OF_ROW), mask=2, reaches=2, gives=3, NaN=3, Offsets=2, stride=2, contiguous=2, gaps=2),
    Mistake(
        "m does not begin at −inf.",
        "What is the maximum of a row that lies wholly below your first m?",
        3,
        gives(
            *(sim.two_pass(sim.maximum_from(c)) for c in (0.0, *_LARGE_NEGATIVE)),
            *(sim.online(first=c) for c in (0.0, *_LARGE_NEGATIVE)),
        ),
    ),
    Mistake(
        "l does not begin at 0.",
        "What is the sum of nothing?",
        1,
        gives(sim.two_pass(l_start=1.0), sim.online(l_start=1.0)),
    ),
    Mistake(
        "m is the maximum of the last tile.",
        "After the second tile, does m still know the first?",
        1,
        gives(
            sim.two_pass(sim.maximum_of_tile(-1)),
            sim.online(new_m=lambda m, tile_m: tile_m),
            sim.online(new_m=lambda m, tile_m: tile_m, guard=False),
        ),
    ),
    Mistake(
        "m is the maximum of the first tile.",
        "Where may the largest entry of a row lie?",
        1,
        gives(sim.two_pass(sim.maximum_of_tile(0)), sim.online_with_m_of_first_tile),
    ),
    Mistake(
        "l is the sum of one tile.",
        "After the second tile, what is left of the first one's sum?",
        1,
        gives(
            sim.two_pass(sums=lambda parts: parts[-1]),
            sim.two_pass(sums=lambda parts: parts[0]),
            sim.online(lambda step: step.sum(step.shift)),
        ),
    ),
    Mistake(
        "Every tile is divided by the sum so far.",
        "When is l complete, and which tiles were written before?",
        1,
        gives(sim.divided_too_early, sim.online(early=True)),
    ),
    Mistake(
        "The same columns are taken again and again.",
        "Which columns belong to the second tile, and which variable says so?",
        1,
        gives(sim.first_tile_again),
    ),
    Mistake(
        "Lanes past the end of the row hold 0.",
        "Which number changes neither a maximum nor a sum of exponentials?",
        2,
        gives(
            sim.two_pass(sim.padded_maximum(0.0), other=0.0), sim.online(other=0.0), sim.online(other=0.0, guard=False)
        ),
    ),
    *_hints(_IDLE_LANES, part=2),
    Mistake(
        "Only lengths that are no multiple of BLOCK are wrong.",
        "What do the lanes past the end of the row hold in each of the loops?",
        2,
        only(has_idle_lanes),
    ),
    Mistake(
        "Only rows longer than BLOCK are wrong.",
        "What does each tile hand on to the next, and does it still hold for all entries so far?",
        1,
        only(is_longer_than_tile),
    ),
    Mistake(
        "Only rows with −inf are wrong.",
        "What is −inf − (−inf), and where is it computed?",
        3,
        only(has_minus_inf),
    ),
)

TWO_PASS = (
    *_STREAMED,
    Mistake(
        "The maximum is subtracted in one pass only.",
        "What stands above the fraction line and what below it, and was the same m taken from both?",
        3,
        gives(
            sim.two_pass(m_of_y=sim.constant(0.0)),
            sim.two_pass(m_of_l=sim.constant(0.0)),
        ),
    ),
)

ONLINE = (
    *_hints(_STREAMED, begin=3, gives=2, NaN=2, inf=2),
    Mistake(
        "The sum is never rescaled.",
        "When a later tile raises m, with which m were the terms in l made?",
        1,
        gives(sim.online(lambda step: step.l + step.sum(step.shift))),
    ),
    Mistake(
        "m is never kept.",
        "At the end of a round, which maximum should the next one find?",
        1,
        gives(sim.online(m=lambda step: step.m)),
    ),
    Mistake(
        "The sum is rescaled the wrong way.",
        "When m grows, must the old l grow or shrink?",
        3,
        gives(
            sim.online(lambda step: step.l * torch.exp(step.shift - step.m) + step.sum(step.shift)),
            sim.online(lambda step: step.l * torch.exp(step.shift - step.m) + step.sum(step.shift), guard=False),
        ),
    ),
    Mistake(
        "The sum is rescaled after the new terms are added.",
        "With which m were the new terms made, and do they need the factor?",
        3,
        gives(sim.online(lambda step: (step.l + step.sum(step.shift)) * torch.exp(step.m - step.shift))),
    ),
    Mistake(
        "The new terms are made with the old maximum.",
        "l is to hold for m_new: which number is subtracted in each of its two parts?",
        3,
        gives(
            sim.online(lambda step: step.l * torch.exp(step.m - step.shift) + step.sum(step.m)),
            sim.online(lambda step: step.l + step.sum(step.m)),
        ),
    ),
    Mistake(
        "The new terms are rescaled instead of the old ones.",
        "Which of the two parts of l was made with an older m?",
        3,
        gives(sim.online(lambda step: step.l + step.sum(step.shift) * torch.exp(step.m - step.shift))),
    ),
    Mistake(
        "A tile of only −inf spoils the row.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
        2,
        gives(sim.online(guard=False)),
    ),
)


def _merged(l: Callable[..., float]) -> Callable[[Pair, Pair], Pair]:
    """A merge with another formula for l, a function of m_a, l_a, m_b, l_b and m."""

    def pair(a: Pair, b: Pair) -> Pair:
        m = max(a[0], b[0])
        return m, 0.0 if m == -INF else l(*a, *b, m)

    return pair


def _exp(x: float) -> float:
    """exp(x), for sums that are wrong anyway: where math.exp would raise, a large number."""
    return math.exp(x if x == INF else min(x, 700.0))


MERGE = (
    *_hints(GENERAL, returned=1, error=2),
    Mistake(
        "The sums are added as they are.",
        "With which maximum was each of them made, and which one does the pair now have?",
        1,
        gives_pair(_merged(lambda m_a, l_a, m_b, l_b, m: l_a + l_b)),
    ),
    Mistake(
        "One of the two maxima is kept, larger or not.",
        "Which of the two is the maximum of both parts together?",
        1,
        where(lambda seen: seen.trial.pair is not None and seen.trial.pair[0] in _lower(seen)),
    ),
    Mistake(
        "Only one of the sums is rescaled.",
        "Which of the two maxima is the larger, and do you know that beforehand?",
        1,
        gives_pair(
            _merged(lambda m_a, l_a, m_b, l_b, m: l_a * _exp(m_a - m) + l_b),
            _merged(lambda m_a, l_a, m_b, l_b, m: l_a + l_b * _exp(m_b - m)),
        ),
    ),
    Mistake(
        "The sums are rescaled the wrong way.",
        "Against a larger maximum, must a sum grow or shrink?",
        2,
        gives_pair(
            _merged(lambda m_a, l_a, m_b, l_b, m: l_a * _exp(m - m_a) + l_b * _exp(m - m_b)),
            _merged(lambda m_a, l_a, m_b, l_b, m: l_a * _exp(min(m - m_a, 700)) + l_b * _exp(min(m - m_b, 700))),
        ),
    ),
    Mistake(
        "Each sum takes the factor of the other.",
        "Which maximum was l_a made with?",
        1,
        gives_pair(_merged(lambda m_a, l_a, m_b, l_b, m: l_a * _exp(m_b - m) + l_b * _exp(m_a - m))),
    ),
    Mistake(
        "Two empty parts give NaN.",
        "What is −inf − (−inf), and can it be avoided before it is computed?",
        3,
        lambda seen: 1.0 * all(_both_empty(case) and case.trial.pair is not None for case in seen if not case.ok),
    ),
    Mistake(
        "An exponential overflows.",
        "Which sign has the exponent when m is the larger maximum?",
        2,
        ended("OverflowError", weight=0.9),
    ),
    Mistake(
        "Something other than a pair (m, l) comes back.",
        "Which two numbers say all there is to say about both parts together?",
        1,
        where(lambda seen: bool(seen.trial.got)),
    ),
)


def _both_empty(seen: Seen) -> bool:
    return max(seen.x[0][0], seen.x[1][0]) == -INF


def _lower(seen: Seen) -> tuple[float, ...]:
    """The smaller of two different maxima."""
    m_a, m_b = seen.x[0][0], seen.x[1][0]
    return (min(m_a, m_b),) if m_a != m_b else ()


def _walked(l: Callable[..., float], new_m: Callable = max, keep: bool = True) -> Callable[[list[list[float]]], Pair]:
    """The recurrence over lists with another formula for l, a function of l, m, m_new and the block; or for m_new."""

    def pair(blocks: list[list[float]]) -> Pair:
        m, total = -INF, 0.0
        for block in blocks:
            m_new = new_m(m, max(block))
            total = l(total, m, m_new, block)
            m = m_new if keep else m
        return m, total

    return pair


def _terms(block: list[float], m: float) -> float:
    return sum(_exp(x - m) for x in block)


RECURRENCE = (
    *_hints(GENERAL, returned=1, error=3),
    Mistake(
        "The maximum is not subtracted.",
        "What is exp(800), and which number keeps every exponent at or below 0?",
        3,
        gives_pair(
            _walked(lambda l, m, m_new, block: l * _exp(m - m_new) + _terms(block, 0.0)),
            _walked(lambda l, m, m_new, block: l + _terms(block, 0.0)),
        ),
    ),
    Mistake(
        "The sum is never rescaled.",
        "When a later block raises m, with which m were the terms in l made?",
        1,
        gives_pair(_walked(lambda l, m, m_new, block: l + _terms(block, m_new))),
    ),
    Mistake(
        "m is the maximum of the last block.",
        "After the second block, does m still know the first?",
        2,
        gives_pair(
            _walked(lambda l, m, m_new, block: l * _exp(m - m_new) + _terms(block, m_new), lambda m, top: top),
            _walked(lambda l, m, m_new, block: l + _terms(block, m_new), lambda m, top: top),
        ),
    ),
    Mistake(
        "l is the sum of the last block.",
        "After the second block, what is left of the first one's sum?",
        1,
        gives_pair(_walked(lambda l, m, m_new, block: _terms(block, m_new))),
    ),
    Mistake(
        "The sum is rescaled the wrong way.",
        "When m grows, must the old l grow or shrink?",
        3,
        gives_pair(_walked(lambda l, m, m_new, block: (l and l * _exp(m_new - m)) + _terms(block, m_new))),
    ),
    Mistake(
        "The sum is rescaled after the new terms are added.",
        "With which m were the new terms made, and do they need the factor?",
        2,
        gives_pair(_walked(lambda l, m, m_new, block: (l + _terms(block, m_new)) * _exp(m - m_new))),
    ),
    Mistake(
        "m is never kept.",
        "At the end of a round, which maximum should the next one find?",
        2,
        gives_pair(_walked(lambda l, m, m_new, block: l * _exp(m - m_new) + _terms(block, m_new), keep=False)),
    ),
    Mistake(
        "An exponential overflows.",
        "Which sign has each exponent, and which number keeps it at or below 0?",
        3,
        ended("OverflowError", weight=0.9),
    ),
)


def _finite(m: torch.Tensor) -> torch.Tensor:
    return torch.where(m == -INF, 0.0, m)


def _own_m(pairs: sim.Pairs) -> torch.Tensor:
    return _finite(pairs.own(pairs.m))


def _sums_of_own(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    """The row's sum, for each slice relative to that slice's maximum."""
    return torch.cat([pairs.sum(own) for own in shift.split(1, 1)], dim=1)


def _without(pairs: sim.Pairs, *left_out: int) -> sim.Pairs:
    m, l = pairs.m.clone(), pairs.l.clone()
    m[:, list(left_out)], l[:, list(left_out)] = -INF, 0.0
    return sim.Pairs(m, l, pairs.parts)


def _changed_places(pairs: sim.Pairs) -> sim.Pairs:
    m, l = pairs.m.clone(), pairs.l.clone()
    m[:, : pairs.parts], l[:, : pairs.parts] = pairs.own(pairs.l), pairs.own(pairs.m)
    return sim.Pairs(m, l, pairs.parts)


def _exp_apart(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    """Σ l·exp(m) · exp(−shift), whose factors overflow each by itself."""
    return (pairs.l * torch.exp(pairs.m)).sum(dim=1, keepdim=True) / torch.exp(shift)


def _is_pair_load(seen: Seen) -> bool:
    """A load went outside the buffer of pairs."""
    access = seen.trial.outside
    return bool(access) and access["action"] == "load" and access["tensor"].startswith("pair")


SPLIT_ROW = (
    Mistake(
        "Pairs are loaded that the buffer does not have.",
        "How many pairs has the buffer, at which of them do this row's begin, and which lanes are beyond its last?",
        2,
        where(_is_pair_load),
    ),
    *_hints((*_KERNEL, *_END_OF_ROW), subtracted=1, divided=1, gives=3, NaN=3, Only=3, mask=2),
    Mistake(
        "The sums are added as they are.",
        "With which maximum was each of them made, and which one is subtracted in the end?",
        1,
        gives(sim.split_row(l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True))),
    ),
    Mistake(
        "The sum is rescaled the wrong way.",
        "Against a larger maximum, must a sum grow or shrink?",
        3,
        gives(
            sim.split_row(l=lambda pairs, shift: (pairs.l * torch.exp(shift - pairs.m)).sum(dim=1, keepdim=True)),
            sim.split_row(
                l=lambda pairs, shift: torch.where(pairs.l == 0, 0.0, pairs.l * torch.exp(shift - pairs.m)).sum(
                    dim=1, keepdim=True
                )
            ),
        ),
    ),
    Mistake(
        "Every program rescales its own sum alone.",
        "A slice whose maximum is far below the row's: how much of its own sum belongs to l?",
        1,
        gives(
            sim.split_row(
                l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True) * torch.exp(pairs.own(pairs.m) - shift)
            ),
        ),
    ),
    Mistake(
        "Every slice is a softmax of its own.",
        "What do all slices of a row together add up to?",
        1,
        gives(
            sim.split_row(_own_m, lambda pairs, shift: pairs.own(pairs.l)),
            sim.split_row(lambda pairs: pairs.own(pairs.m), lambda pairs, shift: pairs.own(pairs.l)),
        ),
    ),
    Mistake(
        "The row's m stands beside the sum of one slice.",
        "Which slices does l have to know?",
        1,
        gives(
            sim.split_row(l=lambda pairs, shift: pairs.own(pairs.l)),
            sim.split_row(l=lambda pairs, shift: pairs.own(pairs.l * torch.exp(pairs.m - shift))),
            sim.split_row(l=lambda pairs, shift: pairs.l[:, :1]),
        ),
    ),
    Mistake(
        "The maximum of the program's own slice is subtracted.",
        "Which m was l made with, and is it the one above the fraction line?",
        1,
        gives(
            sim.split_row(_own_m, lambda pairs, shift: pairs.sum(pairs.shift())),
            sim.split_row(lambda pairs: pairs.own(pairs.m), lambda pairs, shift: pairs.sum(pairs.shift())),
        ),
    ),
    Mistake(
        "A maximum other than the row's is subtracted.",
        "Which of the maxima of the slices is that of the row, and what is exp of a large number?",
        1,
        gives(
            sim.split_row(lambda pairs: _finite(pairs.m[:, :1])),
            sim.split_row(lambda pairs: pairs.m[:, :1]),
            sim.split_row(lambda pairs: pairs.own(pairs.m), _sums_of_own),
            sim.split_row(_own_m, _sums_of_own),
            sim.split_row(lambda pairs: _finite(pairs.own(pairs.m).amin(dim=1, keepdim=True))),
            sim.split_row(lambda pairs: pairs.own(pairs.m).amin(dim=1, keepdim=True)),
        ),
    ),
    Mistake(
        "A slice is left out of the merge.",
        "Of how many slices does the row have the pairs, and which lanes does the mask let through?",
        2,
        gives(
            sim.split_row(seen=lambda pairs: _without(pairs, pairs.parts - 1)),
            sim.split_row(seen=lambda pairs: _without(pairs, 0)),
            sim.split_row(seen=lambda pairs: _without(pairs, *range(1 << (pairs.parts.bit_length() - 1), pairs.parts))),
        ),
    ),
    Mistake(
        "Every row takes the pairs of row 0.",
        "How many pairs lie in the buffer before those of this row?",
        2,
        gives(sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: 0 * row + 2 * i))),
    ),
    Mistake(
        "The pairs of a row are looked for among those of another.",
        "How many pairs has a row, and how many numbers has a pair?",
        2,
        gives(
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row * pairs.m.shape[1] + i))),
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row + i))),
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row + i * pairs.m.shape[0]))),
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: row * pairs.parts + i)),
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: row * pairs.parts + 2 * i)),
            sim.split_row(seen=lambda pairs: pairs.taken(lambda row, i: 2 * row * pairs.parts + i)),
        ),
    ),
    Mistake(
        "m and l change places.",
        "Which of the two does the first kernel store first?",
        2,
        gives(sim.split_row(seen=_changed_places)),
    ),
    Mistake(
        "Slices that the row does not have take part.",
        "Which pair changes nothing when it is merged, and what do the lanes past the last slice hold?",
        2,
        gives(
            sim.split_row(past=(0.0, 0.0)),
            sim.split_row(past=(0.0, 1.0)),
            sim.split_row(past=(-INF, 1.0), l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True)),
        ),
    ),
    Mistake(
        "A maximum is taken out of the exponent.",
        "What is exp(m) for an m of 1000, and which difference never overflows?",
        3,
        gives(sim.split_row(l=_exp_apart)),
    ),
    Mistake(
        "A slice of only −inf spoils the row.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
        3,
        gives(sim.split_row(l=sim.merged_in_turn)),
    ),
    Mistake(
        "Only rows of several slices are wrong.",
        "What has to be done to the pairs of two slices, so that they become the pair of both?",
        1,
        only(is_longer_than_tile),
    ),
    Mistake(
        "Only rows with −inf are wrong.",
        "What is −inf − (−inf), and where is it computed?",
        3,
        only(has_minus_inf),
    ),
)

TORCH_AT_WORK = Diagnosis(
    "PyTorch does a part of the kernel's work.",
    "Which of its operations could happen inside the kernel, on the tile?",
    0,
)
OVER_BUDGET = Diagnosis(
    "The result is right, and the trips to memory are too many.",
    "Which load, or store, moves something that was on the chip already?",
    0,
)
