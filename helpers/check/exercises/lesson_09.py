"""Lesson 09, one row, many programs: a merge across programs, places of a GPU, which are simulated, rows in a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from helpers import kernels
from helpers.check.exercise import TensorExercise, ValuesExercise
from helpers.check.exercises.lesson_04 import IN_SMALL_TILES, MANY_TILES, STREAMED
from helpers.check.exercises.lesson_05 import exp_by_zero
from helpers.check.mistakes import names
from helpers.check.mistakes import simulate as sim
from helpers.check.mistakes.recognise import (
    INF,
    Mistake,
    Seen,
    gives,
    is_longer_than_tile,
    only,
    recognised,
    where,
    with_hints,
)
from helpers.check.mistakes.shared import END_OF_ROW, KERNEL, ONLY_MINUS_INF
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import cases
from helpers.check.problems.problem import Make, With
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial import trial
from helpers.engine.isolate import End
from helpers.engine.memory import MOST_BEGUN, WaitsForever
from helpers.engine.numbers import counted
from helpers.gpu.datasheets import DATASHEETS
from helpers.gpu.places import least_places
from helpers.gpu.waiting import VARIANTS, run

# 9.1

_SHOWN_BY_OTHERS = "40 rows", "a row of 8,448, its start of only −inf", "tiles of 64"

SPLIT: dict[str, Make] = {
    **{case: make for case, make in STREAMED.items() if case not in (*MANY_TILES, *_SHOWN_BY_OTHERS)},
    "tiles of 128": With(IN_SMALL_TILES, BLOCK=128),
    "70 slices": With(cases.ramp(1120, -20.0, 20.0), BLOCK=16),
    "rows of three slices": cases.randn(4, 1100, scale=3.0),
    "rows of five slices, at different levels": lambda g: (
        torch.randn(3, 2200, generator=g) + torch.tensor([[-500.0], [0], [500]])
    ),
    "rows of three slices, around −1000": cases.randn(2, 1400, shift=-1000.0),
    "rows of four slices": cases.randn(3, 2048),
    "one row of seven slices": cases.randn(1, 3500, scale=5.0),
    "three slices, each at another level": lambda g: (
        torch.randn(2, 1536, generator=g) + torch.tensor([-300.0, 300.0, 0]).repeat_interleave(512)
    ),
    "rows of three slices with a gap between them": lambda g: torch.randn(4, 1500, generator=g)[1:, 7:1207],
    "three slices of a transposed tensor": lambda g: torch.randn(1100, 3, generator=g).t(),
    "a second row whose first slice is only −inf": cases.with_inf(1100, cases.lead),
    "a second row whose last slices are only −inf": cases.with_inf(1300, cases.trail),
    "three slices of only −inf give NaN": cases.with_inf(1300, cases.last_row),
    "NaN in one slice of three": cases.with_inf(1300, cases.nan),
    "+inf in one slice of three": cases.with_inf(1300, cases.plus_inf),
    "bfloat16, three slices": cases.randn(2, 1100, scale=3.0, dtype=torch.bfloat16),
}
"""Rows that several programs share: slices of 512 columns in the starter code, powers of two and others."""


def _finite(m: torch.Tensor) -> torch.Tensor:
    return torch.where(m == -INF, 0.0, m)


def _own_m(pairs: sim.Pairs) -> torch.Tensor:
    return _finite(pairs.own(pairs.m))


def _sums_of_own(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    """The row's sum, for each slice relative to that slice's maximum."""
    return torch.cat([pairs.sum(own) for own in shift.split(1, 1)], dim=1)


def _sum_of_maxima(pairs: sim.Pairs) -> torch.Tensor:
    return pairs.own(pairs.m).sum(dim=1, keepdim=True)


def _without(pairs: sim.Pairs, *left_out: int) -> sim.Pairs:
    m, l = pairs.m.clone(), pairs.l.clone()
    m[:, list(left_out)], l[:, list(left_out)] = -INF, 0.0
    return sim.Pairs(m, l, pairs.parts)


def _m_for_l(pairs: sim.Pairs) -> sim.Pairs:
    l = pairs.l.clone()
    l[:, : pairs.parts] = pairs.own(pairs.m)
    return sim.Pairs(pairs.m, l, pairs.parts)


def _first(count: int, pairs: sim.Pairs) -> sim.Pairs:
    """The pairs of a row whose merge has lanes for no more than `count`."""
    return _without(pairs, *range(min(count, pairs.parts), pairs.parts))


def _changed_places(pairs: sim.Pairs) -> sim.Pairs:
    m, l = pairs.m.clone(), pairs.l.clone()
    m[:, : pairs.parts], l[:, : pairs.parts] = pairs.own(pairs.l), pairs.own(pairs.m)
    return sim.Pairs(m, l, pairs.parts)


def _exp_apart(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    """Σ l·exp(m) · exp(−shift), whose factors overflow each by itself."""
    return (pairs.l * torch.exp(pairs.m)).sum(dim=1, keepdim=True) / torch.exp(shift)


def _nan_where_a_slice_is_empty(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    empty = (pairs.own(pairs.m) == -INF).any(dim=1, keepdim=True)
    return torch.where(empty, torch.nan, pairs.sum(shift))


def _is_pair_load(seen: Seen) -> bool:
    """A load went outside the buffer of pairs."""
    access = seen.trial.outside
    return bool(access) and access["action"] == "load" and access["tensor"].startswith("pair")


_MERGES = (
    recognised(
        names.SUMS_AS_THEY_ARE,
        1,
        gives(sim.in_slices(l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True))),
    ),
    recognised(
        names.RESCALED_WRONG_WAY,
        3,
        gives(
            sim.in_slices(l=lambda pairs, shift: (pairs.l * torch.exp(shift - pairs.m)).sum(dim=1, keepdim=True)),
            sim.in_slices(
                l=lambda pairs, shift: torch.where(pairs.l == 0, 0.0, pairs.l * torch.exp(shift - pairs.m)).sum(
                    dim=1, keepdim=True
                )
            ),
            sim.in_slices(l=lambda pairs, shift: torch.nan * shift),
        ),
    ),
    Mistake(
        "own_sum_rescaled",
        "Every program rescales its own sum alone.",
        "A slice whose maximum is far below the row's: how much of its own sum belongs to l?",
        1,
        gives(
            sim.in_slices(
                l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True) * torch.exp(pairs.own(pairs.m) - shift)
            ),
        ),
    ),
    Mistake(
        "softmax_of_slice",
        "Every slice is a softmax of its own.",
        "What do all slices of a row together add up to?",
        1,
        gives(
            sim.in_slices(_own_m, lambda pairs, shift: pairs.own(pairs.l)),
            sim.in_slices(lambda pairs: pairs.own(pairs.m), lambda pairs, shift: pairs.own(pairs.l)),
        ),
    ),
    Mistake(
        "sum_of_one_slice",
        "The row's m is used with the sum of one slice.",
        "Which slices does l have to know?",
        1,
        gives(
            sim.in_slices(l=lambda pairs, shift: pairs.own(pairs.l)),
            sim.in_slices(l=lambda pairs, shift: pairs.own(pairs.l * torch.exp(pairs.m - shift))),
            sim.in_slices(l=lambda pairs, shift: pairs.l[:, :1]),
        ),
    ),
    Mistake(
        "maximum_of_own_slice",
        "The maximum of the program's own slice is subtracted.",
        "Which m was l made with, and is it the one in the numerator?",
        1,
        gives(
            sim.in_slices(_own_m, lambda pairs, shift: pairs.sum(pairs.shift())),
            sim.in_slices(lambda pairs: pairs.own(pairs.m), lambda pairs, shift: pairs.sum(pairs.shift())),
        ),
    ),
    Mistake(
        "maximum_of_another_slice",
        "Something other than the row's maximum is subtracted.",
        "Which of the maxima of the slices is that of the row, and what is exp of a large number?",
        1,
        gives(
            *(sim.in_slices(lambda pairs, of=of: of(_sum_of_maxima(pairs))) for of in (_finite, torch.clone)),
            sim.in_slices(lambda pairs: _finite(pairs.m.sum(dim=1, keepdim=True))),
            sim.in_slices(lambda pairs: _finite(pairs.m[:, :1])),
            sim.in_slices(lambda pairs: pairs.m[:, :1]),
            sim.in_slices(lambda pairs: pairs.own(pairs.m), _sums_of_own),
            sim.in_slices(_own_m, _sums_of_own),
            sim.in_slices(lambda pairs: _finite(pairs.own(pairs.m).amin(dim=1, keepdim=True))),
            sim.in_slices(lambda pairs: pairs.own(pairs.m).amin(dim=1, keepdim=True)),
        ),
    ),
)
"""Mistakes of whoever merges the right pairs of a row."""

_OF_SEVERAL_SLICES = (
    Mistake(
        "empty_slice",
        "A slice of only −inf spoils the row.",
        "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
        3,
        gives(sim.in_slices(l=sim.merged_in_turn), sim.in_slices(l=_nan_where_a_slice_is_empty)),
    ),
    Mistake(
        "only_several_slices",
        "Only rows of several slices are wrong.",
        "What has to be done to the pairs of two slices, so that they become the pair of both?",
        1,
        only(is_longer_than_tile),
    ),
)

_SPLIT_ROW = (
    Mistake(
        "pairs_out_of_bounds",
        "Pairs are loaded that the buffer does not have.",
        "How many pairs has the buffer, at which of them do this row's begin, and which lanes are beyond its last?",
        2,
        where(_is_pair_load),
    ),
    *with_hints(
        (*KERNEL, *END_OF_ROW),
        no_maximum=3,
        no_division=1,
        maximum_after_exp=0,
        scores_added=0,
        scores_divided=0,
        exp_of_the_sum=0,
        fewer_digits=0,
        only_16_bit=0,
        not_float32=0,
        small_grid=0,
        loads_row_0=0,
        empty_row_gives_numbers=3,
        nan_lost=3,
        only_nan=3,
        one_lane_too_many=2,
        load_unmasked=2,
        **dict.fromkeys(ERRORS, 4),
    ),
    *_MERGES,
    Mistake(
        "slice_left_out",
        "A slice is left out of the merge.",
        "Of how many slices does the row have the pairs, and which lanes does the mask let through?",
        2,
        gives(
            sim.in_slices(seen=lambda pairs: _without(pairs, pairs.parts - 1)),
            sim.in_slices(seen=lambda pairs: _without(pairs, 0)),
            *(sim.in_slices(seen=partial(_first, count)) for count in (2, 4, 8, 16, 32)),
            sim.in_slices(seen=lambda pairs: _without(pairs, *range(1 << (pairs.parts.bit_length() - 1), pairs.parts))),
        ),
    ),
    Mistake(
        "pairs_of_row_0",
        "Every row takes the pairs of row 0.",
        "How many pairs lie in the buffer before the first of this row?",
        2,
        gives(sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 0 * row + 2 * i))),
    ),
    Mistake(
        "pairs_of_another_row",
        "The pairs of a row are looked for among another row's.",
        "How many pairs has a row, and how many numbers has a pair?",
        2,
        gives(
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row * pairs.m.shape[1] + i))),
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row + i))),
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 2 * (row + i * pairs.m.shape[0]))),
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: row * pairs.parts + i)),
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: row * pairs.parts + 2 * i)),
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 2 * row * pairs.parts + i)),
        ),
    ),
    Mistake(
        "pairs_apart",
        "The m of all slices are looked for first, and their l behind them.",
        "In which order does the first kernel store them: how far behind the m of a slice lies its l?",
        2,
        gives(
            sim.in_slices(seen=lambda pairs: pairs.taken(lambda row, i: 2 * row * pairs.parts + i, apart=pairs.parts)),
        ),
    ),
    Mistake(
        "m_and_l_swapped",
        "m and l change places.",
        "Which of the two does the first kernel store first?",
        2,
        gives(sim.in_slices(seen=_changed_places)),
    ),
    Mistake(
        "m_in_place_of_l",
        "m is loaded in place of l.",
        "How far behind the m of a slice lies its l?",
        2,
        gives(sim.in_slices(seen=_m_for_l)),
    ),
    Mistake(
        "shift_left_at_0",
        "The scores are stored with nothing subtracted.",
        "What is subtracted where the result is stored, and which line has given it a value?",
        1,
        gives(sim.in_slices(lambda pairs: 0 * pairs.own(pairs.l), lambda pairs, _: pairs.sum(pairs.shift()))),
    ),
    Mistake(
        "slices_that_do_not_exist",
        "Slices that the row does not have take part.",
        "Which pair changes nothing when it is merged, and what do the lanes past the last slice hold?",
        2,
        gives(
            sim.in_slices(past=(0.0, 0.0)),
            sim.in_slices(past=(0.0, 1.0)),
            sim.in_slices(past=(-INF, -INF)),
            sim.in_slices(past=(-INF, 1.0), l=lambda pairs, shift: pairs.l.sum(dim=1, keepdim=True)),
        ),
    ),
    recognised(
        names.MAXIMUM_OUT_OF_EXPONENT,
        3,
        gives(sim.in_slices(l=_exp_apart)),
    ),
    *_OF_SEVERAL_SLICES,
    ONLY_MINUS_INF,
)

# 9.2


def _deadlock(exercise: ValuesExercise, least: Mapping[str, Any]) -> Report:
    """The fewest places of each launch: says what happens on those answered, or on one less."""
    exercise.require_keys(least, list(VARIANTS))
    if all(least[variant] is None for variant in VARIANTS):
        return exercise.untouched()
    findings = [_places_finding(variant, least[variant]) for variant in VARIANTS]
    wrong = {finding.case for finding in findings if not finding.ok}
    return exercise.judged(findings, diagnosis=_misjudged(least, wrong))


def _places_finding(variant: str, places: object) -> Finding:
    grids, places = VARIANTS[variant], trial.number(places)
    if places is None:
        return Finding(variant, False, "not filled in yet")
    if not trial.is_number(places) or places < 1 or places % 1:
        return Finding(variant, False, f"needs a whole number of places, at least 1; it is {trial.shown(places)}")
    places = int(places)
    outcome = run(*grids, places=places)
    if outcome.hangs:
        waiting = len(outcome.waiting)
        stuck = f"{counted(waiting, 'program')} {'waits' if waiting == 1 else 'wait'}"
        stuck += f", {outcome.never_started} cannot start"
        return Finding(variant, False, f"hangs on {counted(places, 'place')}: {stuck}")
    if places > 1 and not run(*grids, places=places - 1).hangs:
        return Finding(variant, False, f"comes to an end on {counted(places - 1, 'place')} too")
    return Finding(variant, True, f"comes to an end on {places} places, and hangs on one less")


def _misjudged(least: Mapping[str, Any], wrong: set[str]) -> Diagnosis | None:
    """The mistake that explains a wrong answer, the first of several."""
    for diagnosis, explains in _PLACES:
        if any(explains(variant, trial.number(least[variant])) for variant in wrong):
            return diagnosis
    return None


def _right(variant: str) -> int:
    return least_places(*VARIANTS[variant])


def _programs(variant: str) -> int:
    return sum(map(len, VARIANTS[variant]))


def _of_one_row(variant: str) -> int:
    """Slices of a row, the same number in each launch."""
    return 1 + max(part for grid in VARIANTS[variant] for program in grid for _, part in program)


_PLACES = (
    (
        Diagnosis(
            "still_hangs",
            "It is the largest number of places on which it still hangs.",
            "How many places are one more than that?",
            1,
        ),
        lambda variant, places: places == _right(variant) - 1,
    ),
    (
        Diagnosis(
            "one_launch_counted",
            "The places of one launch are counted, and two run at once.",
            "How many programs of the other launch have started when this one's last slice starts?",
            2,
        ),
        lambda variant, places: len(VARIANTS[variant]) > 1 and places == least_places(VARIANTS[variant][0]),
    ),
    (
        Diagnosis(
            "next_slice_reached",
            "A program that waits never comes to its next slice.",
            "Who shares a row with a program that has not started, and who shares one with those?",
            3,
        ),
        lambda variant, places: "persistent" in variant and trial.is_number(places) and places < _right(variant),
    ),
    (
        Diagnosis(
            "slices_in_turn",
            "Places are counted as if the slices of a row started one after the other.",
            "Which programs have started before the last slice of row 0 does?",
            2,
        ),
        lambda variant, places: places == _of_one_row(variant) < _right(variant),
    ),
    (
        Diagnosis(
            "place_for_every_program",
            "A place is counted for every program.",
            "Which programs can start only once others have ended, and is that too late for anybody?",
            1,
        ),
        lambda variant, places: places == _programs(variant),
    ),
)
"""Mistakes of exercise 9.2, and whether a number of places shows each."""

# 9.3

_OF_MANY_PROGRAMS = "70 slices", "tiles of 64, around −1000", "tiles of 128"
_IN_WIDER_SLICES = {
    "2,097,156 rows of 1,024": 1024,
    "one row of 16,384": 2048,
    "a row of 20,000, one large entry and many that are small": 2048,
    "a row of 8,448 in bfloat16, whose sums round down": 1024,
    "a row of 8,448, all equal but for the last": 1024,
}
"""Columns of a slice in cases that would otherwise have more slices than programs find places."""

MANY_SLICES: dict[str, Make] = {
    "18 slices of 128": With(cases.randn(1, 2304, scale=3.0), BLOCK=128),
    "40 slices of 128, the last 30 of only −inf": With(cases.with_inf(5120, cases.trail, rows=1), BLOCK=128),
    "130 slices of 128": With(cases.ramp(16640, -20.0, 20.0), BLOCK=128),
}
"""More slices than there are places: one missing slice is found after the other, and many programs load each."""

ONE_TRIP: dict[str, Make] = {
    **{case: make for case, make in SPLIT.items() if case not in _OF_MANY_PROGRAMS},
    **{case: With(SPLIT[case], BLOCK=BLOCK) for case, BLOCK in _IN_WIDER_SLICES.items()},
    "an ascending row of 8,448": With(SPLIT["an ascending row of 8,448"], BLOCK=512),
    "17 slices of 128, in every second column": With(cases.view((1, 4200), lambda x: x[:, ::2]), BLOCK=128),
    "more rows than columns": cases.randn(9, 8, scale=3.0),
    **MANY_SLICES,
    "slices of 128": With(cases.stacked(cases.ramp(700, -300.0, 300.0), cases.start_of_minus_inf(700, 600)), BLOCK=128),
}
"""Of 9.1's, with at most one slice more than there are places, so that what the help loads again is within the budget;
and some with more."""

_TELLING_OF_WAITS = (
    "small random values", "rows at very different levels", "one row of 1024", "bfloat16", "129 columns",
    "every second column of a larger tensor", "a transposed tensor", "a row of only −inf gives NaN",
    "NaN stays in its row", "steeply ascending, range 600", "an ascending row of 8,448", "rows of three slices",
    "rows of five slices, at different levels", "a second row whose first slice is only −inf",
)  # fmt: skip
"""Few, since a program that waits for ever takes a second or two in each."""


_NARROW = 128
"""Columns of a row that is one slice, whatever BLOCK is; and the lanes of a look, with 4 warps."""


def _hangs(seen: Seen) -> bool:
    return seen.trial.error == WaitsForever.__name__


def _is_loaded_again(seen: Seen) -> bool:
    """A row that nobody shares is loaded twice."""
    loaded = seen.trial.loaded
    return seen.x.shape[1] <= _NARROW and loaded is not None and bool((loaded >= 2).all())


def _has_no_place_for_a_slice(seen: Seen) -> bool:
    return seen.x.shape[1] > MOST_BEGUN * seen.trial.tile


def _from_slices(taken: Callable[[torch.Tensor, int], torch.Tensor]) -> sim.Simulation:
    """A row whose program of slice i merges, of each m and l (M, PARTS), what `taken` of it and i returns."""

    def each(pairs: sim.Pairs, of: Callable[[sim.Pairs], torch.Tensor]) -> torch.Tensor:
        seen = (
            sim.Pairs(taken(pairs.m, i).where(taken(torch.ones_like(pairs.m), i) > 0, -INF), taken(pairs.l, i), 0)
            for i in range(pairs.parts)
        )
        return torch.cat([of(one) for one in seen], dim=1)

    return sim.in_slices(
        lambda pairs: each(pairs, sim.Pairs.shift),
        lambda pairs, _: each(pairs, lambda one: one.sum(one.shift())),
    )


def _up_to(values: torch.Tensor, i: int) -> torch.Tensor:
    """What slices up to this one have published, and 0 for the others."""
    return torch.where(torch.arange(values.shape[1]) <= i, values, 0.0)


def _over_row_above(values: torch.Tensor, i: int) -> torch.Tensor:
    """What the row's slices up to this one have stored over the words of the row above."""
    above = torch.cat([values[:1], values[:-1]])
    return torch.where(torch.arange(values.shape[1]) <= i, values, above)


def _last_for_first(pairs: sim.Pairs) -> sim.Pairs:
    m, l = pairs.m.clone(), pairs.l.clone()
    m[:, 0], l[:, 0] = m[:, pairs.parts - 1], l[:, pairs.parts - 1]
    return sim.Pairs(m, l, pairs.parts)


def _sum_with_lanes_of_no_slice(pairs: sim.Pairs, shift: torch.Tensor) -> torch.Tensor:
    """Σ l·exp(m − shift), if lanes past the last slice hold m = 0 and for l the lowest number."""
    return pairs.sum(shift) + torch.finfo(torch.float32).min * torch.exp(-shift) * (_NARROW - pairs.parts)


def _takes_long_and_loads_again(seen: Sequence[Seen]) -> float:
    late = any(case.trial.end in (End.OUT_OF_TIME, End.NOT_RUN) for case in seen)
    return 1.0 * (late and any(map(_is_loaded_again, seen)))


_OWN_SLICE_AGAIN = Mistake(
    "own_slice_again",
    "A program loads its own slice again.",
    "Is its word there when it looks for the first time, and which x is it that is stored in the end?",
    1,
    where(_is_loaded_again),
)

_STRIDES = "stride_of_x_for_y", "strides_of_x", "n_as_stride", "no_column_stride", "as_if_contiguous", "only_strided"
"""Mistakes of which no hint of 9.3 speaks."""

_ONE_TRIP = (
    replace(_OWN_SLICE_AGAIN, explains=_takes_long_and_loads_again),
    Mistake(
        "not_published",
        "A program waits for its own word.",
        "Which word is missing in a row of one slice, and which line stores it before the first look?",
        1,
        where(lambda seen: _hangs(seen) and seen.x.shape[1] <= _NARROW),
    ),
    Mistake(
        "waits_forever",
        "A program waits for a word that nobody stores any more.",
        "Who frees the place that a missing program needs? After 100 looks, which slice is loaded, is its pair stored "
        "in the word of that slice, and does the loop end once no word is missing?",
        1,
        where(_hangs, weight=0.95),
    ),
    *with_hints(
        (*KERNEL, *END_OF_ROW),
        no_maximum=3,
        no_division=3,
        fewer_digits=0,
        only_16_bit=0,
        not_float32=0,
        small_grid=0,
        empty_row_gives_numbers=3,
        nan_lost=3,
        only_nan=3,
        **dict.fromkeys(_STRIDES, 0),
        one_lane_too_many=0,
        load_unmasked=0,
        **dict.fromkeys(ERRORS, 4),
    ),
    Mistake(
        "merged_too_early",
        "A program merges before all words of its row are there.",
        "Which words are there when the first program of a row looks, and what does it do until the others are?",
        2,
        gives(_from_slices(_up_to)),
    ),
    Mistake(
        "words_of_row_0",
        "Every row has the words of row 0.",
        "How many words lie in the buffer before the first of this row?",
        2,
        gives(_from_slices(_over_row_above)),
    ),
    Mistake(
        "halves_swapped",
        "m and l change places in a word.",
        "Which of the two does publish take first, and which one does collect return first?",
        2,
        gives(sim.in_slices(seen=_changed_places), sim.in_slices(l=_sum_with_lanes_of_no_slice, seen=_changed_places)),
    ),
    Mistake(
        "another_slice",
        "The pair of one slice is stored in the word of another.",
        "Which word of the row belongs to the slice that was loaded?",
        2,
        gives(sim.in_slices(seen=_last_for_first)),
    ),
    *with_hints(
        (*_MERGES, *_OF_SEVERAL_SLICES),
        **dict.fromkeys(
            ("sums_as_they_are", "own_sum_rescaled", "maximum_of_own_slice", "maximum_of_another_slice"), 3
        ),
        softmax_of_slice=2,
        sum_of_one_slice=2,
        only_several_slices=2,
    ),
    Mistake(
        "help_goes_wrong",
        "Only rows with more slices than places are wrong.",
        "After 100 looks, whose slice is loaded, whose pair is published, does a look follow before the merge, and "
        "which x is stored in the end?",
        1,
        only(_has_no_place_for_a_slice),
    ),
    ONLY_MINUS_INF,
)

_OVERSPENT = (
    _OWN_SLICE_AGAIN,
    Mistake(
        "helps_at_once",
        "A program helps before the others have had time.",
        "A program that looks again lets the next one begin: after how many looks does yours help?",
        1,
        where(is_longer_than_tile),
    ),
)

# 9.4

_ROW_BYTES = 131072 * 4

_LEAST, _MOST = 0.25, 1.1
"""A prediction's bounds, as fractions of what fits alone. With the results half of it does; measured, a quarter."""


def _l2(exercise: ValuesExercise, rows: float | None) -> Report:
    """A predicted number of rows: from the measured number to the number that fits alone."""
    rows = trial.number(rows)
    if rows is None:
        return exercise.untouched()
    if not trial.is_number(rows) or not math.isfinite(rows):
        wrong = Finding("rows whose input stays in L2", False, f"needs a number of rows; it is {trial.shown(rows)}")
        return exercise.judged([wrong])
    alone = DATASHEETS["H200"].l2_bytes / _ROW_BYTES
    ok = _LEAST * alone <= rows <= _MOST * alone
    seen = f"{rows:g} rows are {rows * _ROW_BYTES / 2**20:,.1f} MB of 2²⁰ bytes"
    if not ok:
        seen += ", " + ("far less than the cache holds" if rows < alone else "more than the cache holds")
    diagnosis = None if ok else next((d for d, factor in _ROWS if 0.8 <= rows / (alone * factor) <= 1.25), None)
    return exercise.judged([Finding("rows whose input stays in L2", ok, seen)], diagnosis=diagnosis)


_ROWS = (
    (Diagnosis("elements_counted", "Elements are counted, not bytes.", "How many bytes has a float32?", 1), 4.0),
    (
        Diagnosis(
            "two_bytes",
            "A float32 is taken to have 2 bytes.",
            "How many bits has a float32, and how many a byte?",
            1,
        ),
        2.0,
    ),
    (Diagnosis("bits_counted", "Bits are counted, not bytes.", "In which unit is the cache's size?", 2), 1 / 8),
    (
        Diagnosis(
            "columns_counted",
            "The columns are counted, not the rows.",
            "How many rows of 131,072 columns are that?",
            1,
        ),
        131072.0,
    ),
    (Diagnosis("bytes_counted", "Bytes are counted, not rows.", "How many bytes has one row?", 1), float(_ROW_BYTES)),
)
"""Mistakes of exercise 9.4, and the factor by which the answer comes out too large."""

EXERCISES = (
    TensorExercise(
        name="split_row",
        number="9.1",
        points=4,
        about=(
            "Checks two kernels whose programs share each row and meet in a buffer of pairs. 2 loads and 1 store "
            "per element.\n\n"
            "The buffer may cost a tenth of a trip more."
        ),
        kind=cases.SOFTMAX,
        makers=SPLIT,
        loads=2,
        buffer=0.1,
        shared=True,
        starter=exp_by_zero,
        starter_loads=2,
        known=_SPLIT_ROW,
        why="Why does the merge need every m before it can use a single l?",
        ours=kernels.split_row_softmax,
    ),
    ValuesExercise(
        name="deadlock",
        number="9.2",
        points=2,
        about=(
            "Checks, for each launch of waiting.VARIANTS, the fewest places on which it comes to an end, by running it."
        ),
        judge=_deadlock,
        may_call=("helpers.gpu.waiting",),
    ),
    TensorExercise(
        name="one_trip",
        number="9.3",
        points=4,
        about=(
            "Checks a kernel whose programs share each row in one launch: they publish words, look for the others', "
            "and help where a program finds no place. 1 load and 1 store per element.\n\n"
            "The help may cost a tenth of a trip more."
        ),
        kind=replace(cases.SOFTMAX, telling=_TELLING_OF_WAITS),
        makers=ONE_TRIP,
        uncounted=tuple(MANY_SLICES),
        loads=1,
        buffer=0.1,
        shared=True,
        known=_ONE_TRIP,
        overspent=_OVERSPENT,
    ),
    ValuesExercise(
        name="l2",
        number="9.4",
        points=2,
        about="Checks up to how many rows of 131,072 numbers the second launch finds its input in the L2 of an H200.",
        judge=_l2,
    ),
)
