"""Mistakes that several exercises share: first the ones recognised with certainty, then the mere symptoms.

Every mistake is in the tests too, as code that makes it: the check must reject that code and name the mistake.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes import simulate as sim
from helpers.check.mistakes.recognise import (
    Mistake,
    came_back,
    gives,
    has_idle_lanes,
    has_minus_inf,
    has_nan,
    has_no_programs,
    is_16_bit,
    is_large,
    is_longer_than_tile,
    is_nearly_right,
    is_strided,
    later_rows_never_stored,
    leaves_out_minus_inf,
    leaves_out_the_end,
    number_at_a_time,
    on_the_wrong_device,
    one_lane_too_many,
    only,
    raised,
    recognised,
    returns_the_first_result,
    some_rows_never_stored,
    stores_at_strides_of_x,
    stores_nothing,
    stores_rows_one_apart,
    stores_to_row_0,
    takes_row_0,
    takes_rows_for_columns,
    takes_the_same_rows,
    triton_said,
    unmasked,
    where,
    with_hints,
    wraps,
)
from helpers.check.mistakes.stops import GENERAL
from helpers.check.mistakes.terms import TERMS
from helpers.check.problems.cases import SOFTMAX
from helpers.check.problems.kind import Kind
from helpers.check.report import Diagnosis

LOW_EXPONENTS = (-5.0, -10.0, -15.0, -16.0, -20.0, -30.0, -50.0, -80.0)

NO_KERNEL = Mistake(
    "no_kernel",
    "No kernel is launched.",
    "Which line of the driver launches your kernel, with a grid in brackets?",
    0,
    where(lambda seen: bool(seen.trial.results) and not seen.trial.kernels),
)
WRONG_SHAPE = Mistake(
    "wrong_shape",
    "The result has the wrong shape.",
    "Which shape was asked for, and where does the result get its own from?",
    0,
    came_back("shape"),
)
WRONG_DTYPE = Mistake(
    "wrong_dtype",
    "The result has the wrong dtype.",
    "Which dtype was asked for, and where does the result get its own from?",
    0,
    came_back("dtype"),
)
WRONG_DEVICE = Mistake(
    "wrong_device",
    "A tensor is on the wrong device.",
    "Where does x lie, and where is each tensor that you make allocated?",
    0,
    on_the_wrong_device,
)
INPUT_OVERWRITTEN = Mistake(
    "input_overwritten",
    "The input is overwritten.",
    "Where is the result stored, and what if the caller still needs x?",
    0,
    where(lambda seen: seen.trial.input_changed),
)
MEMORY_USED_AGAIN = Mistake(
    "memory_used_again",
    "A second call overwrites the first one's result.",
    "Whose is the memory of a result once it has been returned, and where does the next call store its own?",
    0,
    where(lambda seen: seen.trial.overwritten),
)


def result_used_again(kind: Kind) -> Mistake:
    """Of answers that are right if they return the results of this kind."""
    return Mistake(
        "result_used_again",
        "A second call returns the first one's result.",
        "Which value is kept from one call to the next, and can x hold other numbers by then?",
        0,
        returns_the_first_result(kind),
    )


TENSOR = (
    *GENERAL,
    Mistake(
        "no_tensor",
        "Something other than a tensor like x comes back.",
        "What does the last line return, and which of it is the result?",
        0,
        came_back("type"),
    ),
    WRONG_SHAPE,
    WRONG_DTYPE,
    WRONG_DEVICE,
    INPUT_OVERWRITTEN,
    Mistake(
        "input_returned",
        "What comes back is the input itself.",
        "Which tensor holds the result, and is it the one that is returned?",
        0,
        where(lambda seen: seen.trial.shares_storage),
    ),
    MEMORY_USED_AGAIN,
    result_used_again(SOFTMAX),
    recognised(
        names.NO_MAXIMUM,
        3,
        gives(sim.in_two_passes(sim.constant(0.0))),
    ),
    Mistake(
        "no_division",
        "Nothing is divided by the sum.",
        "What does each row of the result add up to, and what should it?",
        3,
        gives(sim.no_division, sim.no_division_guarded, lambda x, B: torch.exp(x.float())),
    ),
    *TERMS,
    Mistake(
        "powers_of_2",
        "Powers of 2 are taken instead of powers of e.",
        "To which power must 2 be raised to give e to the power x?",
        0,
        gives(sim.in_two_passes(term=torch.exp2), sim.in_two_passes(term_of_l=torch.exp2)),
    ),
    Mistake(
        "fewer_digits",
        "The result passes through a dtype with fewer digits.",
        "Where does a value become float16 or bfloat16 before it is stored, and what is lost there?",
        3,
        gives(
            sim.through(torch.float16),
            sim.through(torch.bfloat16),
            sim.of_rounded(torch.float16),
            sim.of_rounded(torch.bfloat16),
            *(sim.in_two_passes(term=sim.exp_in(dtype)) for dtype in (torch.float16, torch.bfloat16)),
            rtol=2e-5,
        ),
    ),
    Mistake(
        "exponents_cut_off",
        "Low exponents are cut off.",
        "What is exp(−100) in float32, and does it need any help?",
        0,
        gives(*(sim.in_two_passes(term=sim.exp_of_at_least(lowest)) for lowest in LOW_EXPONENTS)),
    ),
    Mistake(
        "inexact",
        "Every number is nearly right.",
        "Which step is less exact than float32: an exponential of your own, a sum, a division, a dtype?",
        0,
        is_nearly_right,
    ),
    recognised(
        names.ONLY_16_BIT,
        3,
        only(is_16_bit),
    ),
    Mistake(
        "only_large",
        "Only large values are wrong.",
        "Which number is subtracted before exp, and is it the largest of its row?",
        3,
        only(is_large),
    ),
)

NUMBER_AT_A_TIME = Mistake(
    "number_at_a_time",
    "The kernel loads and stores a number at a time, which takes too long.",
    "A program works on a whole tile at once: how many numbers does one tl.load bring, if it is given a tile of "
    "addresses?",
    0,
    number_at_a_time,
)

KERNEL = (
    NO_KERNEL,
    Mistake(
        "nothing_stored",
        "The kernel stores nothing.",
        "A kernel returns nothing: which function writes its result into y, and for which lanes?",
        0,
        stores_nothing,
    ),
    NUMBER_AT_A_TIME,
    Mistake(
        "launch_returned",
        "There is a return, and what it returns is None.",
        "Which line gave that name its value? A launch returns nothing: where does a kernel leave its result?",
        0,
        where(lambda seen: seen.trial.got_none and seen.trial.returns_none),
    ),
    *TENSOR,
    Mistake(
        "not_float32",
        "The arithmetic is not done in float32.",
        "Of which dtype is a tile loaded from a bfloat16 tensor, and which one does exp need?",
        3,
        triton_said("Expected dtype ['fp32'"),
    ),
    Mistake(
        "small_grid",
        "The grid has fewer programs than x has rows.",
        "A program takes one row: how many must the launch ask for?",
        2,
        where(later_rows_never_stored),
    ),
    Mistake(
        "empty_grid",
        "A grid has 0 programs.",
        "How many programs does the grid hold if x has a single row?",
        0,
        where(has_no_programs),
    ),
    Mistake(
        "grid_axis",
        "An axis of the grid is too short for these programs.",
        "Along which axis can a grid have more than 65,535 programs?",
        0,
        raised("GridTooLarge"),
    ),
    Mistake(
        "stores_row_0",
        "Every program takes row 0.",
        "Which number tells a program its row, and along which axis of the grid does it differ?",
        2,
        takes_row_0,
    ),
    Mistake(
        "stores_to_row_0",
        "Every program stores to row 0.",
        "Where in y does this program's row begin?",
        2,
        stores_to_row_0,
    ),
    Mistake(
        "same_rows",
        "Every program takes the same rows.",
        "A program takes one row: which number, different in every program, tells it which?",
        0,
        where(takes_the_same_rows),
    ),
    Mistake(
        "rows_one_apart",
        "Row i begins at element i.",
        "How many elements lie between the beginnings of two rows, and what makes a row's number an offset?",
        2,
        lambda seen: max(where(stores_rows_one_apart)(seen), gives(sim.with_strides(lambda x: (1, x.stride(1))))(seen)),
    ),
    Mistake(
        "entries_never_stored",
        "Entries of −inf are never stored.",
        "Which number belongs in the result where an entry is −inf, and which lanes does the store's mask let through?",
        0,
        leaves_out_minus_inf,
    ),
    Mistake(
        "rows_missing",
        "Some rows are never stored.",
        "Which rows does each program take, and do all programs together take every row?",
        2,
        where(some_rows_never_stored, weight=0.65),
    ),
    Mistake(
        "loads_row_0",
        "Every program loads row 0.",
        "Where does this program's row begin?",
        2,
        gives(sim.of_row(0)),
    ),
    recognised(
        names.SCORES_STORED,
        0,
        gives(sim.scores),
    ),
    Mistake(
        "maximum_added",
        "The maximum is added, or subtracted twice.",
        "What is then the largest exponent in a row, and what should it be?",
        0,
        gives(sim.in_two_passes(lambda x, B: -sim.maximum(x, B))),
    ),
    Mistake(
        "divided_by_count",
        "The exponentials are divided by how many there are, not by their sum.",
        "What does each row of the result add up to, and what should it?",
        0,
        gives(lambda x, B: sim.no_division(x, B) / B, lambda x, B: sim.no_division(x, B) / x.shape[1]),
    ),
    Mistake(
        "sum_of_all_lanes",
        "Every row of the result is too small, by a factor of BLOCK.",
        "Is l a number or a tile? If a number is added to a tile, what does each lane hold, and what do all lanes add "
        "up to?",
        0,
        gives(lambda x, B: sim.right(x) / B),
    ),
    Mistake(
        "one_sum_for_a_tile",
        "All rows of a tile are divided by one sum.",
        "A tile of several rows has two axes: along which of them do the entries of one row lie, and which axis was "
        "given to tl.sum?",
        0,
        gives(sim.one_sum_for_a_tile(float("nan")), sim.one_sum_for_a_tile(0.0)),
    ),
    Mistake(
        "end_never_stored",
        "The end of the row is never stored.",
        "How many columns does the kernel reach in all, and how many does the row have?",
        0,
        leaves_out_the_end,
    ),
)

OFFSETS_OVERFLOW = Mistake(
    "offsets_overflow",
    "Offsets overflow in 32 bits.",
    "How large is a row's number times its stride, and which integers are large enough for it?",
    3,
    where(wraps, weight=0.96),
)
OUT_OF_BOUNDS = Mistake(
    "out_of_bounds",
    "A program reaches beyond its tensor.",
    "At which element does a row begin, and which is its last?",
    2,
    where(lambda seen: bool(seen.trial.outside), weight=0.2),
)

END_OF_ROW = (
    Mistake(
        "rows_for_columns",
        "Rows and columns are exchanged.",
        "Which of the two numbers of x.shape says how many programs there are, and which one how many lanes?",
        2,
        where(takes_rows_for_columns),
    ),
    Mistake(
        "one_lane_too_many",
        "The mask lets one lane too many through.",
        "Which is the last column of a row with N of them?",
        1,
        where(one_lane_too_many),
    ),
    Mistake(
        "load_unmasked",
        "A load has no mask, or one that lets every lane through.",
        "What do the lanes past the end of the row load?",
        1,
        unmasked("load"),
    ),
    Mistake(
        "store_unmasked",
        "The store has no mask, or one that lets every lane through.",
        "Where do the lanes past the end of the row write?",
        2,
        unmasked("store"),
    ),
    OFFSETS_OVERFLOW,
    Mistake(
        "stride_of_x_for_y",
        "The input's stride is used for the output.",
        "x may have gaps between its rows: has y?",
        3,
        stores_at_strides_of_x,
    ),
    Mistake(
        "strides_of_x",
        "The result has the strides of x, and the kernel assumes others.",
        "What strides does torch.empty_like give the result of a transposed x?",
        3,
        where(lambda seen: not seen.trial.contiguous),
    ),
    recognised(
        names.N_AS_STRIDE,
        3,
        gives(sim.with_strides(lambda x: (x.shape[1], x.stride(1)))),
    ),
    Mistake(
        "no_column_stride",
        "The column stride of x is ignored.",
        "How far apart are neighbours in a row of a transposed tensor?",
        3,
        gives(sim.with_strides(lambda x: (x.stride(0), 1))),
    ),
    Mistake(
        "as_if_contiguous",
        "x is read as if it were contiguous.",
        "How far apart do the rows of x[:, :5] begin, and how far apart are the columns of a transposed tensor?",
        3,
        gives(sim.with_strides(lambda x: (x.shape[1], 1))),
    ),
    Mistake(
        "only_strided",
        "Only tensors with gaps, or transposed ones, are wrong.",
        "Which strides has x, which has y, and which of them does each pointer use?",
        3,
        only(is_strided),
    ),
    Mistake(
        "empty_row_gives_numbers",
        "A row of only −inf gives numbers.",
        "What does torch return for such a row, and which line takes it away?",
        1,
        gives(sim.empty_rows_as(lambda N: 0.0), sim.empty_rows_as(lambda N: 1.0 / N)),
    ),
    Mistake(
        "nan_lost",
        "NaN turns into a number.",
        "What does torch return for a row with NaN, and which line takes it away?",
        1,
        gives(sim.nan_as_minus_inf, sim.nan_results_as_zero),
    ),
    Mistake(
        "only_nan",
        "Only rows with NaN or +inf are wrong.",
        "What does torch return for such a row, and which line takes it away?",
        1,
        only(has_nan),
    ),
    OUT_OF_BOUNDS,
)

LARGE_NEGATIVE = (-10.0, -50.0, -100.0, -500.0, -1000.0, -1e4, -1e5, -1e6, -1e9, -1e20, -1e30, -3.4e38)

IDLE_LANES = (
    Diagnosis(
        "idle_lanes_in_maximum",
        "Lanes past the end take part in the maximum.",
        "What do they hold when the maximum is taken, and what if the row is far below it?",
        1,
    ),
    Diagnosis(
        "idle_lanes_in_sum",
        "Lanes past the end take part in the sum.",
        "What is exp(x − m) in a lane that holds no entry of the row, and what should it be?",
        1,
    ),
)

ONLY_MINUS_INF = Mistake(
    "only_minus_inf",
    "Only rows with −inf are wrong.",
    "What is −inf − (−inf), and where is it computed?",
    3,
    only(has_minus_inf),
)

STREAMING = (
    Diagnosis(
        "columns_counted_again",
        "A tile begins at every column, and most columns are counted many times.",
        "How far must start move from one round to the next, so that no column belongs to two tiles?",
        1,
    ),
    *with_hints(
        (*KERNEL, *END_OF_ROW),
        no_division=0,
        fewer_digits=0,
        small_grid=0,
        stores_row_0=0,
        stores_to_row_0=0,
        rows_one_apart=0,
        rows_missing=0,
        loads_row_0=2,
        one_lane_too_many=2,
        load_unmasked=2,
        offsets_overflow=2,
        stride_of_x_for_y=2,
        strides_of_x=2,
        n_as_stride=2,
        no_column_stride=2,
        as_if_contiguous=2,
        only_strided=2,
        empty_row_gives_numbers=3,
        nan_lost=3,
        only_nan=3,
    ),
    Diagnosis(
        "l_stays_0",
        "l is still 0 after the last tile.",
        "Which line of the loop adds the exponentials of a tile to l?",
        0,
    ),
    replace(names.M_START, hint=3),
    Diagnosis(
        "l_start",
        "l does not begin at 0.",
        "What is the sum of nothing?",
        1,
    ),
    replace(names.M_OF_LAST_TILE, hint=1),
    Diagnosis(
        "m_without_a_tile",
        "m leaves a tile out.",
        "Which tile does the loop for m begin with, and which is its last?",
        1,
    ),
    Diagnosis(
        "m_of_first_tile",
        "m is the maximum of the first tile.",
        "Where may the largest entry of a row lie?",
        1,
    ),
    Diagnosis(
        "l_of_one_tile",
        "l is the sum of one tile.",
        "After the second tile, what is left of the first one's sum?",
        1,
    ),
    Diagnosis(
        "divided_too_early",
        "Every tile is divided by the sum so far.",
        "When is l complete, and which tiles were written before?",
        1,
    ),
    Diagnosis(
        "same_columns",
        "The same columns are taken again and again.",
        "Which columns belong to the second tile, and which variable says so?",
        1,
    ),
    Diagnosis(
        "row_0_in_a_loop",
        "A loop loads row 0 in every program.",
        "Which pointer holds the beginning of this program's row, and does every load begin there?",
        2,
    ),
    replace(names.IDLE_LANES_HOLD_0, hint=2),
    *with_hints(IDLE_LANES, idle_lanes_in_maximum=2, idle_lanes_in_sum=2),
    Mistake(
        "only_not_multiple_of_block",
        "Only lengths that are not a multiple of BLOCK are wrong.",
        "What do the lanes past the end of the row hold in each of the loops?",
        2,
        only(has_idle_lanes),
    ),
    Mistake(
        "only_longer_than_block",
        "Only rows longer than BLOCK are wrong.",
        "What does each tile hand on to the next, and does it still hold for all entries so far?",
        1,
        only(is_longer_than_tile),
    ),
    ONLY_MINUS_INF,
)
"""Those without `explains` are recognised by the edits of row_edits.py, as are IDLE_LANES."""
