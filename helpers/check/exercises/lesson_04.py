"""Lesson 04, the two-pass kernel: rows that are streamed in tiles."""

from __future__ import annotations

import torch

from helpers import kernels
from helpers.check.exercise import TensorExercise
from helpers.check.exercises.lesson_03 import ANY_LENGTH, ONE_TILE
from helpers.check.mistakes.recognise import with_hints
from helpers.check.mistakes.row_edits import TWO_PASS, with_edits
from helpers.check.mistakes.shared import STREAMING
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import cases
from helpers.check.problems.problem import Make, With

IN_SMALL_TILES = cases.stacked(
    cases.specials(700, cases.INF),
    cases.few_values(1, 700),
    cases.ramp(700, -300.0, 300.0),
    cases.spikes(700, 0, 63, 64, 350, 699),
    cases.start_of_minus_inf(700, 600),
    cases.nan_among_minus_inf(700, 64),
)
"""Rows of eleven tiles of 64, each difficult in its own way."""

MANY_TILES = "a row of 66,000", "a row of 66,000, all equal but for the last", "140 tiles of 16"
"""Cases with too many tiles for programs that each merge the pairs of all."""

STREAMED: dict[str, Make] = {
    **{case: make for case, make in ANY_LENGTH.items() if case not in ONE_TILE},
    "a row of 66,000": cases.in_levels(1, 66000, -30.0, -300.0, 0.0, -120.0),
    "a row of 66,000, all equal but for the last": cases.lone_spike(66000, above=30.0),
    "gently ascending": cases.ramp(1100, 0.0, 20.0),
    "steeply ascending, range 600": cases.ramp(1300, -300.0, 300.0),
    "descending": cases.ramp(1100, 30.0, -30.0),
    "steeply descending, range 600": cases.ramp(1100, 300.0, -300.0),
    "an ascending row of 8,448": cases.ramp(8448, -20.0, 20.0),
    "a row of 8,448, its start of only −inf": cases.start_of_minus_inf(8448, 8200),
    "511 columns": cases.randn(1, 511),
    "512 columns": cases.randn(1, 512),
    "513 columns, around −80": cases.randn(1, 513, shift=-80.0),
    "a row of 8,448 in bfloat16, whose sums round down": cases.sums_round_down,
    "float16, 1100 columns": cases.randn(1, 1100, scale=3.0, dtype=torch.float16),
    "a long start of only −inf": cases.with_inf(1100, cases.lead, rows=1),
    "a long start of only −inf, then around −1000": cases.with_inf(1100, cases.lead_low, rows=1),
    "a long end of only −inf": cases.with_inf(1100, cases.trail, rows=1),
    "1100 columns, around −93": cases.randn(1, 1100, shift=-93.0),
    "only −inf in the middle": cases.with_inf(1100, cases.middle, rows=1),
    "equal maxima in every tile": cases.few_values(2, 1500),
    "a row of 20,000, one large entry and many that are small": cases.small_terms(20000, 16.0),
    "a row of 8,448, all equal but for the last": cases.lone_spike(8448),
    "tiles of 64": With(IN_SMALL_TILES, BLOCK=64),
    "tiles of 64, around −1000": With(cases.in_levels(1, 700, -1300.0, -1000.0, -1000.0, -1200.0), BLOCK=64),
    "140 tiles of 16": With(cases.ramp(2240, -20.0, 20.0), BLOCK=16),
}

_TWO_PASS = (
    *with_hints(STREAMING, **dict.fromkeys(ERRORS, 4)),
    TWO_PASS.mistake(
        "maximum_in_one_pass",
        "The maximum is subtracted in one pass only.",
        "Which m is subtracted in the numerator, and which in the denominator?",
        3,
        ("tl.exp(x - m) / l", "tl.exp(x) / l"),
        ("l += tl.sum(tl.exp(x - m)", "l += tl.sum(tl.exp(x)"),
    ),
)

EXERCISES = (
    TensorExercise(
        name="two_pass",
        number="4.1",
        points=4,
        about=(
            "Checks a kernel that streams the row in tiles: maximum, then sum, then write. 3 loads and 1 store "
            "per element."
        ),
        kind=cases.SOFTMAX,
        makers=STREAMED,
        loads=3,
        starter_loads=1,
        known=with_edits(TWO_PASS, _TWO_PASS),
        why="Why can the second pass not begin before the first one has ended?",
        ours=kernels.two_pass_softmax,
    ),
)
