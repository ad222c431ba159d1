"""Lesson 03, masking with −inf: rows of any length, any strides, entries of −inf."""

from __future__ import annotations

from dataclasses import replace

import torch

from helpers import kernels
from helpers.check.exercise import TensorExercise
from helpers.check.exercises.lesson_02 import POWER_OF_TWO
from helpers.check.mistakes import names
from helpers.check.mistakes.recognise import Mistake, has_idle_lanes, masked_by_place, only, with_hints
from helpers.check.mistakes.row_edits import OTHER, SINGLE_TILE, with_edits
from helpers.check.mistakes.shared import END_OF_ROW, IDLE_LANES, KERNEL, LARGE_NEGATIVE
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import cases
from helpers.check.problems.axes import Asked, Dimension, derived
from helpers.check.problems.problem import Make

ONE_TILE = "a row of 40,000", "a row of 70,000"
"""Cases of rows in one tile. Rows that are streamed have longer ones."""

_ASKED = Asked(
    dimensions={
        "M": Dimension("row", usual=3, near=8),
        "N": Dimension("column", usual=300, near=512),
    },
    tensors={"x": "MN"},
    draw=lambda generator, sizes: (torch.randn(sizes["M"], sizes["N"], generator=generator),),
    of_row=lambda generator, row: (row[None],),
    row="entries",
    length=1100,
    left_out=dict.fromkeys(("small random values", "bfloat16", "float16"), "lessons 01 and 02 have cases of that name")
    | {"strides of their own": "a transposed tensor, and every second column, are cases below"},
)

ANY_LENGTH: dict[str, Make] = {
    **POWER_OF_TWO,
    **derived(_ASKED),
    "129 columns": cases.randn(3, 129),
    "300 columns, around −50": cases.randn(1, 300, shift=-50.0),
    "781 columns, around −200": cases.randn(1, 781, shift=-200.0),
    "300 columns, around −2·10⁶": cases.randn(1, 300, scale=5.0, shift=-2e6),
    **{case: cases.few_values(1, n_cols) for case, n_cols in zip(ONE_TILE, (40000, 70000), strict=True)},
    "300 columns, around +200": cases.randn(1, 300, shift=200.0),
    "every second column of a larger tensor": cases.view((4, 400), lambda x: x[:, ::2]),
    "rows with a gap between them": cases.view((5, 300), lambda x: x[1:, 7:208]),
    "a transposed tensor": cases.view((130, 5), lambda x: x.t()),
    "equal maxima, 300 columns": cases.few_values(2, 300),
    "300 columns, a maximum far above the rest in several": cases.spikes(300, 0, 64, 127, 128, 255, 256, 298, 299),
    "2,097,156 rows of 1,024": cases.overlapping(2**21 + 4, 1024),
    "float16, 100 columns": cases.randn(3, 100, dtype=torch.float16),
    "scattered −inf": cases.with_inf(300, cases.scatter),
    "a row of only −inf gives NaN": cases.with_inf(300, cases.last_row),
    "a row of only −inf, 128 columns": cases.with_inf(128, cases.last_row),
    "NaN stays in its row": cases.with_inf(300, cases.nan),
    "+inf gives NaN in its row": cases.with_inf(300, cases.plus_inf),
}

MASK_OF_PLACES = Mistake(
    "mask_of_places",
    "The mask compares a place in memory with N.",
    "Row 1 begins at place x_stride, column 1 at x_col_stride: are these below N, and which number of an entry is?",
    2,
    masked_by_place,
)

_MASKED = (
    MASK_OF_PLACES,
    *with_hints(
        KERNEL,
        end_never_stored=2,
        loads_row_0=0,
        no_division=0,
        fewer_digits=0,
        only_16_bit=0,
        not_float32=0,
        **dict.fromkeys(ERRORS, 4),
    ),
    *END_OF_ROW,
    replace(names.IDLE_LANES_HOLD_0, hint=1),
    SINGLE_TILE.mistake(
        "idle_lanes_hold_low_number",
        "Lanes past the end hold a large negative number, not −inf.",
        "Which row has a maximum below that number?",
        1,
        *((OTHER, f"other={c}") for c in LARGE_NEGATIVE),
    ),
    *IDLE_LANES,
    Mistake(
        "only_not_power_of_2",
        "Only lengths that are not a power of two are wrong.",
        "What do the lanes past the end of the row hold, in the maximum and in the sum?",
        1,
        only(has_idle_lanes),
    ),
)

EXERCISES = (
    TensorExercise(
        name="masked",
        number="3.1",
        points=4,
        about=("Checks a single-tile kernel for rows of any length, strides and −inf. 1 load and 1 store per element."),
        kind=cases.SOFTMAX,
        makers=ANY_LENGTH,
        loads=1,
        known=with_edits(SINGLE_TILE, _MASKED),
        why="Why is one value of `other` right for the maximum and for the sum?",
        ours=kernels.single_tile_softmax,
    ),
)
