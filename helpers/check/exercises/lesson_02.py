"""Lesson 02, your first kernel: rows of a power of two, one program a row."""

from __future__ import annotations

from dataclasses import replace

import torch

from helpers import kernels
from helpers.check.exercise import TensorExercise
from helpers.check.exercises.lesson_01 import STABLE
from helpers.check.mistakes.recognise import where, with_hints
from helpers.check.mistakes.shared import KERNEL, NUMBER_AT_A_TIME, OUT_OF_BOUNDS
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import cases
from helpers.check.problems.axes import ONE_FAR_ABOVE, VALUES
from helpers.check.problems.problem import Make

POWER_OF_TWO: dict[str, Make] = {
    **STABLE,
    f"entries {ONE_FAR_ABOVE}": lambda g: VALUES[ONE_FAR_ABOVE](g, 128)[None],
    "one row of 1024": cases.randn(1, 1024),
    "more rows than columns": cases.randn(17, 8),
    "bfloat16": cases.randn(3, 256, dtype=torch.bfloat16),
    "float16": cases.randn(2, 512, scale=2.0, dtype=torch.float16),
    "sums that bfloat16 would round": cases.sums_between(torch.bfloat16, 1024),
    "sums that float16 would round": cases.sums_between(torch.float16, 2048),
    "40 rows": cases.randn(40, 2),
    "1,100 rows": cases.randn(1100, 2),
    "65,540 rows": cases.randn(65540, 2),
    "one row of 16,384": cases.few_values(1, 16384),
}

_SINGLE_TILE = (
    *with_hints(
        KERNEL,
        no_kernel=4,
        nothing_returned=1,
        input_returned=1,
        nothing_stored=1,
        number_at_a_time=1,
        launch_returned=1,
        scores_stored=1,
        empty_grid=2,
        grid_axis=2,
        same_rows=2,
        end_never_stored=1,
        **dict.fromkeys(ERRORS, 4),
    ),
    replace(OUT_OF_BOUNDS, explains=where(lambda seen: bool(seen.trial.outside))),
)

EXERCISES = (
    TensorExercise(
        name="single_tile",
        number="2.1",
        points=4,
        about=(
            "Checks a kernel with one program per row, for contiguous rows whose length is a power of two. 1 "
            "load, 1 store."
        ),
        kind=cases.SOFTMAX,
        makers=POWER_OF_TWO,
        loads=1,
        known=_SINGLE_TILE,
        overspent=(replace(NUMBER_AT_A_TIME, explains=where(lambda seen: seen.trial.tile == 1)),),
        why="Why does a second pass over the tile cost no trip to memory?",
        ours=kernels.single_tile_softmax,
    ),
)
