"""Warm-ups: one line of a kernel, tried as an exercise is, for no points. Nothing of them is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from helpers.check.exercise import TensorExercise
from helpers.check.exercises.lesson_03 import MASK_OF_PLACES
from helpers.check.mistakes.recognise import Mistake, Seen, with_hints
from helpers.check.mistakes.shared import END_OF_ROW, KERNEL, LARGE_NEGATIVE
from helpers.check.mistakes.stops import GENERAL, STOPS
from helpers.check.problems.cases import randn, view
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs

Right = Callable[..., torch.Tensor]

_OF_ROWS = *KERNEL, *END_OF_ROW
_OF_ANY_KERNEL = {
    *(mistake.id for mistake in (*GENERAL, *STOPS)),
    *("error", "no_kernel", "nothing_stored", "launch_returned", "nothing_returned", "no_tensor", "empty_grid"),
    *("wrong_shape", "wrong_dtype", "wrong_device", "input_overwritten", "input_returned", "small_grid", "shapes"),
    *("load_unmasked", "one_lane_too_many", "out_of_bounds"),
}
"""The ids of the symptoms that do not take the result for a softmax."""
_IN_ROWS = {one.id: one for one in _OF_ROWS}
_SYMPTOMS = with_hints([one for one in _OF_ROWS if one.id in _OF_ANY_KERNEL], 0)


def _mistake(id: str, name: str, question: str, *results: Right) -> Mistake:
    """The mistake of an answer that returns one of `results`, functions of the inputs, in every wrong case."""

    def agrees(case: Seen, result: Right) -> bool:
        return torch.allclose(case.trial.y, result(*case.inputs), equal_nan=True)

    def explains(seen: Sequence[Seen]) -> float:
        wrong = [case for case in seen if not case.ok and case.trial.y is not None]
        return bool(wrong) * 1.0 * any(all(agrees(case, result) for case in wrong) for result in results)

    return Mistake(id, name, question, 0, explains)


def _named(mistake: Mistake, *results: Right) -> Mistake:
    """A mistake of a later exercise, which shows here in these results."""
    return _mistake(mistake.id, mistake.name, mistake.question, *results)


_STILL_X = _mistake(
    "y_still_x", "y is still x.", "Which line above the store gives the name y to something else?", lambda x: x
)


def _like_x(right: Right) -> Kind:
    output = Output("y", lambda x: (tuple(x.shape), x.dtype), lambda want, x: 1e-5 * want.abs())
    return Kind((output,), lambda x: (right(x.double()),))


def _one_a_row(name: str, right: Right) -> Kind:
    def allowed(want: torch.Tensor, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        return 1e-5 * (want.abs() + x.double().abs().sum(dim=1))

    output = Output(name, lambda x, *others: ((len(x),), torch.float32), allowed, one_a_row=name)
    return Kind((output,), lambda *inputs: (right(*(one.double() for one in inputs)),))


def _maximum(x: torch.Tensor) -> torch.Tensor:
    return x.amax(dim=1, keepdim=True)


def _scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q @ k.T).amax(dim=1)


def _with_tail(number: float, x: torch.Tensor) -> torch.Tensor:
    """The largest number of each row and, unless its length is a power of 2, of what the lanes past its end hold."""
    largest = x.amax(dim=1)
    return largest.clamp(min=number) if x.shape[1] & (x.shape[1] - 1) else largest


def _tiles(x: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.nn.functional.pad(x, (0, -x.shape[1] % 64)).split(64, dim=1)


def _with_total_in_each_lane(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(len(x))
    for tile in _tiles(x):
        total = (tile + total[:, None]).sum(dim=1)
    return total


def _below_0(keys: int, sign: int = 1) -> Callable[[torch.Generator], Inputs]:
    """16 queries of numbers of this sign, and keys all of whose scores lie far below 0."""
    return lambda g: (
        sign * (1e5 * torch.rand(16, 16, generator=g) + 1e4),
        -sign * (torch.rand(keys, 16, generator=g) + 0.1),
    )


_WHOLE = {"4 rows of 8": randn(4, 8), "1 row of 16": randn(1, 16), "8 rows of 32, around −20": randn(8, 32, shift=-20)}
_TAILS = {
    "3 rows of 5, all below −1,000": lambda g: 50 * torch.arange(3)[:, None] - torch.rand(3, 5, generator=g) - 2000,
    "3 rows of 300": randn(3, 300),
    "2 rows of 64": randn(2, 64),
    "3 rows of 5, with a gap between them": view((3, 9), lambda x: x[:, :5]),
}

WARM_UPS = (
    TensorExercise(
        name="exponentials",
        number="1",
        points=0,
        about="Tries the warm-up of lesson 01: y = exp(x), one load and one store.",
        kind=_like_x(torch.exp),
        makers=_WHOLE,
        loads=1,
        known=(
            *_SYMPTOMS,
            _STILL_X,
            _named(_IN_ROWS["powers_of_2"], torch.exp2),
            _mistake("sign", "y is e to the power of −x.", "Which sign has the exponent?", lambda x: torch.exp(-x)),
        ),
        ours=torch.exp,
    ),
    TensorExercise(
        name="below",
        number="2",
        points=0,
        about="Tries the warm-up of lesson 02: from each number, the largest of its row is subtracted.",
        kind=_like_x(lambda x: x - _maximum(x)),
        makers=_WHOLE,
        loads=1,
        known=(
            *_SYMPTOMS,
            _STILL_X,
            _mistake(
                "maximum_minus_x",
                "The difference is the wrong way around.",
                "Which of the two is subtracted: the number, or the largest of its row?",
                lambda x: _maximum(x) - x,
            ),
            _mistake(
                "maximum_alone",
                "y holds the largest number of the row alone.",
                "From what is the largest number to be subtracted?",
                lambda x: _maximum(x).expand_as(x),
            ),
            _mistake(
                "not_the_largest",
                "The number subtracted is not the largest of the row.",
                "Which function of tl gives one number of a tile, the largest?",
                lambda x: x - x.amin(dim=1, keepdim=True),
                lambda x: x - x.sum(dim=1, keepdim=True),
                lambda x: x - x.clamp(min=0),
                lambda x: x - x.clamp(max=0),
            ),
            _mistake(
                "not_subtracted",
                "The largest number of the row is not subtracted.",
                "Which sign stands between x and the largest number?",
                lambda x: x + _maximum(x),
                lambda x: x / _maximum(x),
                lambda x: x * _maximum(x),
            ),
        ),
    ),
    TensorExercise(
        name="largest",
        number="3",
        points=0,
        about="Tries the warm-up of lesson 03: the largest number of each row, of any length.",
        kind=_one_a_row("largest number", lambda x: x.amax(dim=1)),
        makers=_TAILS,
        loads=1,
        known=(
            *_SYMPTOMS,
            _mistake(
                "tail_of_0",
                "The lanes past the end of the row hold 0.",
                "If all numbers of a row are below 0, what is the largest of them and a 0?",
                partial(_with_tail, 0.0),
            ),
            _mistake(
                "tail_of_low_number",
                "The lanes past the end of the row hold a low number, not −inf.",
                "Which row has no number as large as yours?",
                *(partial(_with_tail, low) for low in LARGE_NEGATIVE),
            ),
            _mistake(
                "tail_of_inf",
                "The lanes past the end of the row hold +inf.",
                "Which number can never be the largest?",
                partial(_with_tail, torch.inf),
            ),
            _named(_IN_ROWS["loads_row_0"], lambda x: x[:1].amax(dim=1).expand(len(x))),
            _named(_IN_ROWS["rows_one_apart"], lambda x: x.as_strided(x.shape, (1, 1)).amax(dim=1)),
            *with_hints([MASK_OF_PLACES], 0),
            _mistake("x_still_0", "x is still a tile of zeros.", "Which line loads the row?", lambda x: 0 * x[:, 0]),
        ),
    ),
    TensorExercise(
        name="row_sum",
        number="4",
        points=0,
        about="Tries the warm-up of lesson 04: the sum of each row, tile by tile.",
        kind=_one_a_row("sum", lambda x: x.sum(dim=1)),
        makers=_TAILS,
        loads=1,
        known=(
            *_SYMPTOMS,
            _mistake(
                "total_still_0",
                "The sum is still 0.",
                "Which line of the loop gives `total` another value?",
                lambda x: 0 * x[:, 0],
            ),
            _mistake(
                "last_tile_alone",
                "Only the last tile is in the sum.",
                "What did `total` hold before this tile, and does your line keep it?",
                lambda x: x.split(64, dim=1)[-1].sum(dim=1),
            ),
            _mistake(
                "another_sum",
                "Something other than the numbers of a tile is added to the sum.",
                "Which function of tl adds up the numbers of a tile, and of which tile?",
                lambda x: sum(tile.amax(dim=1) for tile in _tiles(x)),
            ),
            _mistake(
                "total_in_each_lane",
                "The sum so far is added once for each lane.",
                "If a number is added to a tile, how many lanes hold it, and what does tl.sum make of them?",
                _with_total_in_each_lane,
            ),
        ),
    ),
    TensorExercise(
        name="largest_score",
        number="11",
        points=0,
        about="Tries the warm-up of lesson 11: of each query the largest score, of keys that do not fill their tile.",
        kind=_one_a_row("largest score", _scores),
        makers={
            "20 keys, all scores below −10,000": _below_0(20),
            "32 keys": _below_0(32),
            "1 key": _below_0(1, sign=-1),
        },
        loads=lambda inputs, trial: sum(map(torch.numel, inputs)),
        known=(
            *_SYMPTOMS,
            _mistake(
                "tail_scores_0",
                "The keys that do not exist have a score of 0.",
                "Which lanes of s belong to them, and which score can never be the largest?",
                lambda q, k: _scores(q, k).clamp(min=0),
            ),
            _mistake(
                "real_scores_hidden",
                "The keys that exist are hidden, and the others are not.",
                "Which of its two values does tl.where take if the condition is true?",
                lambda q, k: torch.full((len(q),), 0.0 if len(k) < 32 else -torch.inf),
            ),
            _mistake(
                "tail_scores_inf",
                "The keys that do not exist have a score of +inf.",
                "Which score can never be the largest?",
                lambda q, k: _scores(q, k) + (torch.inf if len(k) < 32 else 0.0),
            ),
        ),
    ),
)
"""In the order of their lessons, whose number each of them has."""
