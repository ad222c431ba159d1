"""Edits of the course's kernels of rows that make the mistakes of shared.py, by id: an exercise takes those of its own
answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations

from helpers import kernels
from helpers.check.mistakes.all_at_once import OfRows
from helpers.check.mistakes.edited import Edit
from helpers.check.mistakes.recognise import Mistake
from helpers.check.mistakes.shared import LARGE_NEGATIVE, LOW_EXPONENTS
from helpers.check.report import Diagnosis

SINGLE_TILE = OfRows(kernels.single_tile_kernel, kernels.single_tile_softmax)
TWO_PASS = OfRows(kernels.two_pass_kernel, kernels.two_pass_softmax, in_tiles=True)
ONLINE = OfRows(kernels.online_kernel, kernels.online_softmax, in_tiles=True)

RESCALED, NEW_TERMS = "l * tl.exp(m - shift)", "tl.sum(tl.exp(x - shift), axis=0)"
"""The parts of l in a round of the recurrence."""
OTHER = 'other=-float("inf")'
_DIVIDED = " / l"
_FLOAT32 = ".to(tl.float32)"
_ROW, _COLUMN_STRIDE = "row * x_stride", " * x_col_stride"
_16_BITS = "tl.float16", "tl.bfloat16"
_LOAD = f"x = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, {OTHER}){_FLOAT32}\n        "
_MAXIMUM = "tl.maximum(m, tl.max(x, axis=0))"

Edits = dict[str, tuple[Edit, ...]]


def _of_rows(e: str, m: str = "m") -> Edits:
    """Edits of a kernel that subtracts `m`, and whose result is `e / l`."""
    terms, total, result = f"tl.exp(x - {m})", f"tl.sum({e}, axis=0)", f"{e} / l"
    return {
        "no_maximum": ((terms, "tl.exp(x)"),),
        "no_division": ((_DIVIDED, ""),),
        "maximum_after_exp": tuple((terms, f"tl.exp(x) - {shift}") for shift in (m, f"tl.exp({m})")),
        "exponent_reversed": ((terms, f"tl.exp({m} - x)"),),
        "mean_of_terms": ((_DIVIDED, " / (l / N)"), (_DIVIDED, " / m"), (_DIVIDED, " * l")),
        "logarithm_returned": ((result, f"x - {m} - tl.log(l)"), (result, f"x - {m} - l")),
        "scores_added": tuple((total, f"tl.sum({term}, axis=0)") for term in ("x", f"x - {m}")),
        "scores_divided": ((result, "x / l"), (result, f"(x - {m}) / l"), (terms, "x"), (terms, f"x - {m}")),
        "exp_of_the_sum": ((total, f"tl.exp(tl.sum(x, axis=0) - {m})"), (total, f"tl.exp(tl.sum(x - {m}, axis=0))")),
        "powers_of_2": (("tl.exp(", "tl.exp2("), (total, f"tl.sum(tl.exp2(x - {m}), axis=0)")),
        "fewer_digits": (
            *((_FLOAT32, f".to({dtype}){_FLOAT32}") for dtype in _16_BITS),
            *((result, f"({result}).to({dtype})") for dtype in _16_BITS),
            *((terms, f"{terms}.to({dtype}){_FLOAT32}") for dtype in _16_BITS),
        ),
        "exponents_cut_off": tuple((terms, f"tl.exp(tl.maximum(x - {m}, {lowest}))") for lowest in LOW_EXPONENTS),
        "rows_one_apart": ((_ROW, "row"),),
        "loads_row_0": ((_ROW, "0"),),
        "scores_stored": ((result, "x"),),
        "maximum_added": ((terms, f"tl.exp(x + {m})"),),
        "divided_by_count": ((_DIVIDED, " / BLOCK"), (_DIVIDED, " / N")),
        "sum_of_all_lanes": ((_DIVIDED, " / (l * BLOCK)"),),
        "n_as_stride": ((_ROW, "row * N"),),
        "no_column_stride": ((_COLUMN_STRIDE, ""),),
        "as_if_contiguous": ((_ROW, "row * N", _COLUMN_STRIDE, ""),),
        "empty_row_gives_numbers": tuple(
            (result, f'tl.where(m == -float("inf"), {number}, {result})') for number in ("0.0", "1.0 / N")
        ),
        "nan_lost": (
            (f"{_FLOAT32}\n", f'{_FLOAT32}; x = tl.where(x == x, x, -float("inf"))\n'),
            (result, f"tl.where(l == l, {result}, 0.0)"),
        ),
        "idle_lanes_hold_0": ((OTHER, "other=0.0"),),
        "idle_lanes_in_maximum": tuple(
            ("tl.max(x, axis=0)", f"tl.max(tl.where(cols < N, x, {c}), axis=0)") for c in (0.0, *LARGE_NEGATIVE[:-1])
        ),
        "idle_lanes_in_sum": tuple(
            (total, f"tl.sum(tl.where(cols < N, {e}, {one}), axis=0)") for one in (f"tl.exp(-{m})", "1.0")
        ),
    }


def _streamed(
    l: str, before: str, first: str, loops: Sequence[str], m: str = "m", starts: Sequence[float] = LARGE_NEGATIVE[:-1]
) -> Edits:
    """Edits of a kernel that streams a row: the line `l` adds a tile's terms, in a loop that follows `before`; `first`
    is what first has m, and `loops` are what follows the load in each loop. 0 and `starts` are wrong first m."""
    e = f"tl.exp(x - {m})"
    total, result = f"tl.sum({e}, axis=0)", f"{e} / l"
    begins = f"{before}\n    for start in range(0, N, BLOCK):\n        cols = "
    store = f"tl.store(y_row + cols, {result}, mask=cols < N)"
    of_rows = _of_rows(e, m)
    return of_rows | {
        "idle_lanes_in_maximum": of_rows["idle_lanes_in_maximum"][:5],  # lower ones do what such an m_start does
        "columns_counted_again": ((total, f"tl.sum({e} * tl.minimum(cols + 1, BLOCK), axis=0)"),),
        "l_stays_0": ((_DIVIDED, " / 0.0"), (result, "tl.exp(x) / 0.0")),
        "m_start": tuple((f'{first} = -float("inf")', f"{first} = {c}") for c in (0.0, *starts)),
        "l_start": ((_DIVIDED, " / (1.0 + l)"),),
        "m_of_last_tile": ((_MAXIMUM, "tl.max(x, axis=0)"),),
        "m_without_a_tile": tuple(
            (_MAXIMUM, f"tl.where({left_out}, m, {_MAXIMUM})")
            for left_out in ("(start == 0) & (N > BLOCK)", "(start > 0) & (start + BLOCK >= N)")
        ),
        "m_of_first_tile": ((_MAXIMUM, "tl.where(start == 0, tl.max(x, axis=0), m)"),),
        "l_of_one_tile": ((l, f"l = {total}"), (l, f"l = tl.where(start == 0, {total}, l)")),
        "divided_too_early": ((store, "pass", l, f"{l}\n        {store}"),),
        "same_columns": ((f"{begins}start", f"{begins}0 * start"),),
        "row_0_in_a_loop": tuple(
            tuple(chain.from_iterable((_LOAD + then, _LOAD.replace("x_row", "x_ptr") + then) for then in some))
            for count in range(1, len(loops))
            for some in combinations(loops, count)
        ),
    }


_EDITS = {
    SINGLE_TILE: _of_rows("e"),
    TWO_PASS: _streamed("l += tl.sum(tl.exp(x - m), axis=0)", "l = 0.0", "m", ("m =", "l +=", "tl.store")),
    ONLINE: _streamed(
        f"l = {RESCALED} + {NEW_TERMS}",
        'm, shift, l = -float("inf"), 0.0, 0.0',
        "m, shift, l",
        ("m_new", "tl.store"),
        "shift",
        LARGE_NEGATIVE[:3],  # lower ones do what a shift cut off there does
    )
    | {"no_maximum": (("tl.exp(x - shift)", "tl.exp(x)", RESCALED, "l"),)},
}


def with_edits(answer: OfRows, mistakes: Sequence[Diagnosis]) -> tuple[Mistake, ...]:
    """The same mistakes, those of which edits are known here recognised by these."""
    edits = _EDITS[answer]
    return tuple(answer.named(one, one.hint, *edits[one.id]) if one.id in edits else one for one in mistakes)
