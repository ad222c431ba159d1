"""The known mistakes of kernels that compute losses: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.loss_rows import (
    LossRow,
    gives_gradient,
    gives_loss,
    gradient_nearly_right,
    losses_nearly_right,
    target_of,
)
from helpers.check.mistakes.recognise import (
    Mistake,
    Seen,
    any_of,
    came_back,
    is_16_bit,
    is_strided,
    only,
    recognised,
    where,
    with_hints,
    wraps,
)
from helpers.check.mistakes.shared import (
    END_OF_ROW,
    INPUT_OVERWRITTEN,
    MEMORY_USED_AGAIN,
    NO_KERNEL,
    WRONG_DEVICE,
    WRONG_DTYPE,
    WRONG_SHAPE,
    result_used_again,
)
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.losses import IGNORED, LOSSES_AND_GRADIENT


def _loads_one_outside(seen: Seen) -> bool:
    """A single element was loaded from outside of x, whose rows have more than one."""
    access = seen.trial.outside
    one = bool(access) and access["action"] == "load" and access["lanes"] == 1
    return one and access["tensor"] == "x_ptr" and seen.x.shape[1] > 1


def _loads_ignored_target(seen: Seen) -> bool:
    """That element is −100 of a row of x: a target of −100, taken for a column."""
    if not _loads_one_outside(seen) or IGNORED not in target_of(seen):
        return False
    element = seen.trial.outside["element"]
    return element < 0 and (element - IGNORED) % seen.x.stride(0) == 0


def _loads_past_row(seen: Seen) -> bool:
    """That element lies as far from the beginning of a row as a target says that is N or more."""
    target = target_of(seen)
    past = target[target >= seen.x.shape[1]]
    return _loads_one_outside(seen) and bool(((seen.trial.outside["element"] - past) % seen.x.stride(0) == 0).any())


def _loads_past_rows(seen: Sequence[Seen]) -> float:
    """Nothing else is wrong; where more is, the other mistake comes first."""
    wrong = [_loads_past_row(one) for one in seen if not one.ok]
    return (1.0 if all(wrong) else 0.46) * any(wrong)


def _counts_nan(seen: Seen) -> bool:
    """A row holds NaN, or −inf alone, and counts, in the second call if not in the first: there rows have changed
    places."""
    return bool(seen.x.isnan().any() or seen.x.isneginf().all(dim=1).any())


def _is_not_all_stored(seen: Seen) -> bool:
    """Kernels store fewer numbers than the results have, and what they leave is NaN; or there are too few programs."""
    if seen.trial.missing:
        return True
    results = seen.trial.results
    if not results or not seen.trial.kernels:
        return False
    return seen.trial.stores < sum(map(torch.numel, results)) and any(bool(r.isnan().any()) for r in results)


def _is_not_all_loaded(seen: Seen) -> bool:
    """Each row, of which none is ignored, is loaded as one tile, which is shorter than it."""
    if not seen.trial.results or not seen.trial.kernels or IGNORED in target_of(seen):
        return False
    (M, N), tile = seen.x.shape, seen.trial.tile
    return tile < N and seen.trial.loads <= M * (tile + 2)


def _without_last_column(row: LossRow) -> torch.Tensor:
    x = row.x.clone()
    x[:, -1] = -torch.inf
    return torch.logsumexp(x, dim=1) - row.x_target


_AT_THE_END = "rows_for_columns", "one_lane_too_many", "load_unmasked", "store_unmasked", "offsets_overflow"

_OF_KERNEL = (
    Mistake(
        "tile_as_loss",
        "A tile is stored where one number belongs.",
        "How many losses has a row, and which name in the formula still has a number for each column?",
        1,
        where(lambda seen: "Value argument cannot be block type" in seen.trial.raised, weight=0.95),
    ),
    *GENERAL,
    Mistake(
        "ignored_target_loaded",
        "The logit of a target that is ignored is loaded.",
        "Which element lies −100 columns from the beginning of row 0?",
        2,
        where(_loads_ignored_target),
    ),
    Mistake(
        "target_past_row_loaded",
        "The logit of a target beyond the last column is loaded.",
        "Whose number lies N columns from the beginning of a row, and which targets does the mask let through?",
        2,
        _loads_past_rows,
    ),
    Mistake(
        "target_outside_row",
        "The logit of the target is looked for outside its row.",
        "Where does this program's row begin, and how many elements after that lies column `target`?",
        3,
        where(_loads_one_outside, weight=0.45),
    ),
    *with_hints(
        [mistake for mistake in END_OF_ROW if mistake.id in _AT_THE_END],
        one_lane_too_many=0,
        load_unmasked=2,
        store_unmasked=2,
    ),
    Mistake(
        "outside",
        "A program reaches outside a tensor.",
        "Which element does the message name, and which row and column of which tensor was meant?",
        3,
        where(lambda seen: bool(seen.trial.outside), weight=0.4),
    ),
    NO_KERNEL,
    WRONG_SHAPE,
    Mistake(
        "results_swapped",
        "The gradient comes back first, and the losses after it.",
        "Which of the two results does the exercise ask for first?",
        0,
        came_back("order"),
    ),
    MEMORY_USED_AGAIN,
    WRONG_DTYPE,
    WRONG_DEVICE,
    result_used_again(LOSSES_AND_GRADIENT),
    Mistake(
        "other_result",
        "The driver does not return what was asked for.",
        "How many tensors does the last line of the driver return, and how many are asked for?",
        0,
        any_of(came_back("pair"), came_back("type")),
    ),
    Mistake(
        "not_all_stored",
        "A part of the result is never stored.",
        "Where the table shows nan: which program is to store that number, and does it come to its store?",
        0,
        where(_is_not_all_stored, weight=0.9),
    ),
    Mistake(
        "not_all_loaded",
        "Some logits are never loaded.",
        "How many lanes has the tile, and which of them does the mask switch on?",
        0,
        any_of(where(_is_not_all_loaded, weight=0.55), gives_loss(_without_last_column)),
    ),
    INPUT_OVERWRITTEN,
)


def _lse(row: LossRow) -> torch.Tensor:
    return row.m + torch.log(row.l)


def _of_first_target(row: LossRow) -> torch.Tensor:
    """Row 0's target decides for every row, ignored or not."""
    target = row.target[0]
    return _lse(row) - row.x[:, target] if target >= 0 else torch.zeros_like(row.m)


def _idle_lanes_add_one(row: LossRow) -> torch.Tensor:
    """Lanes past the end of the row hold 0."""
    idle = row.tile - row.x.shape[1]
    m = row.m.clamp(min=0.0) if idle else row.m
    return m + torch.log(torch.exp(row.x - m[:, None]).sum(dim=1) + idle * torch.exp(-m)) - row.x_target


_IGNORED_IS_NO_NUMBER = [
    gives_loss(lambda row: row.loss, ignored=value) for value in (torch.nan, torch.inf, -torch.inf)
]

_OF_LOSS = (
    recognised(
        names.NO_MAXIMUM,
        1,
        gives_loss(
            lambda row: torch.log(torch.exp(row.x).sum(dim=1)) - row.x_target,
            lambda row: row.m + torch.log(torch.exp(row.x).sum(dim=1)) - row.x_target,
        ),
    ),
    Mistake(
        "maximum_not_added",
        "The maximum was subtracted, and is not added again.",
        "If l was made with x − m, what is log(Σ exp(x))?",
        1,
        gives_loss(
            lambda row: torch.log(row.l) - row.x_target,
            lambda row: torch.log(row.l) - row.m - row.x_target,
        ),
    ),
    Mistake(
        "target_forgotten",
        "The loss does not depend on the target.",
        "What is left of log(Σ exp(x)) when the probability of the target is 1?",
        1,
        gives_loss(_lse),
    ),
    Mistake(
        "loss_negative",
        "The loss has the wrong sign.",
        "Is the logarithm of a probability above 0 or below it, and what should a loss be?",
        1,
        gives_loss(lambda row: row.x_target - _lse(row)),
    ),
    Mistake(
        "target_added",
        "The logit of the target is added.",
        "Must the loss grow or shrink when the logit of the target grows?",
        1,
        gives_loss(lambda row: _lse(row) + row.x_target),
    ),
    Mistake(
        "logarithm_of_2",
        "The logarithm has the base 2.",
        "Which logarithm undoes exp?",
        1,
        gives_loss(lambda row: row.m + torch.log2(row.l) - row.x_target),
    ),
    Mistake(
        "exponential_of_2",
        "The exponential has the base 2.",
        "Which power of 2 is e, and what has to stand in exp2 for exp(x − m)?",
        1,
        gives_loss(
            lambda row: row.m + torch.log(_powers_of_2(row)) - row.x_target,
            lambda row: row.m + torch.log2(_powers_of_2(row)) - row.x_target,
        ),
    ),
    Mistake(
        "logarithm_subtracted",
        "The logarithm of l is subtracted.",
        "Is m + log(l) above the maximum or below it, and what does log(Σ exp(x)) have to be?",
        1,
        gives_loss(lambda row: row.m - torch.log(row.l) - row.x_target),
    ),
    Mistake(
        "target_as_logit",
        "The number of the target stands where its logit should.",
        "target is a column: which element of x lies there?",
        1,
        gives_loss(lambda row: _lse(row) - row.target),
    ),
    Mistake(
        "ignored_loss_not_zero",
        "The loss of a row that is ignored is NaN or inf.",
        "Which number does a row without a part in the loss add to a sum?",
        2,
        lambda seen: 0.85 * max(explains(seen) for explains in _IGNORED_IS_NO_NUMBER),
    ),
    Mistake(
        "no_logarithm",
        "The sum stands where its logarithm should.",
        "Which function turns l back into something to which m may be added?",
        1,
        gives_loss(lambda row: row.m + row.l - row.x_target),
    ),
    Mistake(
        "probability_returned",
        "What comes back is the probability of the target.",
        "Which function of that probability is the loss?",
        1,
        gives_loss(lambda row: torch.exp(row.x_target - row.m) / row.l, ignored=0.0),
    ),
    Mistake(
        "logarithm_of_rounded",
        "The logarithm is taken of a probability that has become 0.",
        "What is exp(−150) in float32, and what is its logarithm? Which subtraction does without both?",
        1,
        gives_loss(lambda row: -torch.log(torch.exp(row.x_target - row.m) / row.l)),
    ),
    Mistake(
        "target_of_row_0",
        "Every row takes the target of row 0.",
        "Which element of target_ptr belongs to this program?",
        3,
        any_of(
            gives_loss(lambda row: _lse(row) - row.x[:, row.column[0]]),
            gives_loss(_of_first_target, ignored=None),
        ),
    ),
    Mistake(
        "logit_of_row_0",
        "The logit of the target comes from row 0.",
        "Where does this program's row begin?",
        3,
        gives_loss(lambda row: _lse(row) - row.x[0, row.column]),
    ),
    Mistake(
        "row_0_loaded",
        "Every program loads row 0.",
        "Where does this program's row begin?",
        3,
        gives_loss(
            lambda row: _lse(row)[:1] - row.x_target,
            lambda row: _lse(row)[:1] - row.x[0, row.column],
        ),
    ),
    Mistake(
        "row_number_as_target",
        "The number of the row is taken for the target.",
        "Which number does target_ptr + row point to?",
        3,
        gives_loss(lambda row: _lse(row) - row.x.gather(1, _numbers_of(row))[:, 0]),
    ),
    Mistake(
        "ignored_row_counts",
        "A row that is ignored has a loss.",
        "What does a target of −100 say about its row?",
        2,
        gives_loss(
            lambda row: _lse(row) - row.x_target,
            lambda row: _lse(row) - torch.where(row.kept, row.x_target, -torch.inf),
            lambda row: _lse(row) - torch.where(row.kept, row.x_target, row.x[:, 0]),
            ignored=None,
        ),
    ),
    Mistake(
        "zero_times_nan",
        "An ignored row that holds NaN or inf gives NaN.",
        "What is 0 times NaN? Which function of tl chooses one of two numbers instead?",
        2,
        gives_loss(lambda row: (_lse(row) - row.x_target) * row.kept, ignored=None),
    ),
    Mistake(
        "idle_lanes_give_nan",
        "Lanes past the end of the row make NaN.",
        "What do these lanes hold, and which of your steps makes NaN of it: a product with 0, or a difference?",
        2,
        gives_loss(lambda row: _lse(row) - (row.x * row.onehot).sum(dim=1) + (0.0 if _is_full(row) else torch.nan)),
    ),
    Mistake(
        "kept_and_ignored_swapped",
        "Rows that count have the loss 0, and rows that are ignored have one.",
        "Which of the two numbers does tl.where take where its condition is true?",
        2,
        gives_loss(lambda row: torch.where(row.kept, 0.0, _lse(row) - row.x_target), ignored=None),
    ),
    Mistake(
        "column_0_ignored",
        "A target of 0 is taken for one that is ignored.",
        "Which columns can a target name, and which number is none of them?",
        2,
        gives_loss(lambda row: torch.where(row.target > 0, _lse(row) - row.x_target, 0.0)),
    ),
    Mistake(
        "divided_by_columns",
        "The loss is divided by the number of columns.",
        "Over what would a mean be taken, if one were asked for?",
        1,
        gives_loss(lambda row: (_lse(row) - row.x_target) / row.x.shape[1]),
    ),
    Mistake(
        "divided_by_rows",
        "The loss is divided by the number of rows.",
        "Is a loss for each row asked for, or their mean?",
        1,
        gives_loss(lambda row: (_lse(row) - row.x_target) / len(row.x)),
    ),
    recognised(
        names.IDLE_LANES_HOLD_0,
        2,
        gives_loss(_idle_lanes_add_one),
    ),
    recognised(
        names.N_AS_STRIDE,
        3,
        only(lambda seen: seen.x.stride(0) != seen.x.shape[1] and len(seen.x) > 1),
    ),
    Mistake(
        "nan_hidden",
        "NaN in a row that counts has vanished.",
        "If one logit of a row is NaN, what is its loss, and who has to hear of it?",
        0,
        only(_counts_nan),
    ),
    recognised(
        names.ONLY_16_BIT,
        0,
        only(is_16_bit),
    ),
    Mistake(
        "losses_nearly_right",
        "The losses are nearly right.",
        "Which number is rounded on the way, and in which dtype is each step?",
        0,
        losses_nearly_right,
    ),
)


def _powers_of_2(row: LossRow) -> torch.Tensor:
    return torch.exp2(row.x - row.m[:, None]).sum(dim=1)


def _is_full(row: LossRow) -> bool:
    """No lane lies past the end of the row."""
    return row.tile == row.x.shape[1]


def _numbers_of(row: LossRow) -> torch.Tensor:
    """The number of each row as a column, as far as there are columns."""
    return torch.arange(len(row.x)).clamp(max=row.x.shape[1] - 1)[:, None]


def _columns(row: LossRow) -> torch.Tensor:
    return torch.arange(row.x.shape[1])


def _is_stored_with_gaps(seen: Seen) -> bool:
    """A store leaves the result where the rows of x have gaps."""
    return seen.trial.outside.get("action") == "store" and is_strided(seen) and not wraps(seen)


_OF_GRADIENT = (
    Mistake(
        "losses_zero",
        "The losses are all 0.",
        "What is stored at loss_ptr + row, and which line has given it a value?",
        1,
        gives_loss(lambda row: torch.zeros_like(row.m)),
    ),
    Mistake(
        "gradient_zero",
        "The gradient is all zeros.",
        "What does the last line store, and which line has given it a value?",
        1,
        gives_gradient(lambda row: torch.zeros_like(row.x)),
    ),
    Mistake(
        "onehot_added",
        "1 is added at the target.",
        "Must the loss grow or shrink when the logit of the target grows?",
        1,
        gives_gradient(lambda row: row.p + row.onehot),
    ),
    Mistake(
        "softmax_returned",
        "The gradient is the softmax, with nothing taken from it.",
        "What is the slope of −x[target], seen from the logit of the target?",
        1,
        gives_gradient(lambda row: row.p),
    ),
    Mistake(
        "gradient_negative",
        "The gradient has the wrong sign.",
        "Must the loss grow or shrink when the logit of the target grows?",
        1,
        gives_gradient(lambda row: row.onehot - row.p),
    ),
    Mistake(
        "one_everywhere",
        "1 is taken from every probability.",
        "Which of the logits stands in the loss a second time?",
        1,
        gives_gradient(lambda row: row.p - 1),
    ),
    Mistake(
        "not_divided",
        "The exponentials are not divided by their sum.",
        "What do the slopes of a row add up to, and what should they?",
        1,
        gives_gradient(lambda row: torch.exp(row.x - row.m[:, None]) - row.onehot),
    ),
    Mistake(
        "onehot_inside",
        "1 is taken from the exponential, before the division.",
        "What is taken from the probability of the target, 1 or 1 / l?",
        1,
        gives_gradient(lambda row: row.p - row.onehot / row.l[:, None]),
    ),
    Mistake(
        "onehot_of_row",
        "1 is taken from the column with the number of the row.",
        "Which column does this row's target name?",
        3,
        gives_gradient(
            lambda row: row.p - torch.eye(*row.x.shape),
            lambda row: row.p - torch.eye(row.x.shape[1])[torch.arange(len(row.x)).clamp(max=row.x.shape[1] - 1)],
        ),
    ),
    Mistake(
        "column_beside",
        "1 is taken from the target's neighbour.",
        "Do columns and targets begin to count at the same number?",
        3,
        gives_gradient(
            lambda row: row.p - row.onehot.roll(1, 1) * (row.target + 1 < row.x.shape[1])[:, None],
            lambda row: row.p - row.onehot.roll(-1, 1) * (row.target > 0)[:, None],
        ),
    ),
    Mistake(
        "only_target",
        "Only the target has a slope.",
        "Does the loss change when the logit of another class does?",
        1,
        gives_gradient(lambda row: (row.p - 1) * row.onehot),
    ),
    Mistake(
        "target_replaced",
        "The slope of the target does not depend on its probability.",
        "What is the slope of log(Σ exp(x)) at the target, and is it lost?",
        1,
        gives_gradient(
            lambda row: torch.where(row.onehot > 0, -1.0, row.p), lambda row: torch.where(row.onehot > 0, 1.0, row.p)
        ),
    ),
    Mistake(
        "no_probability",
        "1 is taken from something other than a probability.",
        "What do the slopes of a row add up to, and which of x, log p and p adds up to 1?",
        1,
        gives_gradient(lambda row: row.x - row.onehot, lambda row: torch.log(row.p) - row.onehot),
    ),
    Mistake(
        "one_from_several",
        "1 is taken from several columns.",
        "For which of the columns is the comparison true?",
        3,
        gives_gradient(
            lambda row: row.p - (_columns(row) <= row.target[:, None]).float(),
            lambda row: row.p - (_columns(row) >= row.target[:, None]).float(),
        ),
    ),
    Mistake(
        "gradient_swapped",
        "Rows that count have the gradient 0, and rows that are ignored have one.",
        "Which of the two does tl.where take where its condition is true?",
        2,
        gives_gradient(lambda row: torch.where(row.kept[:, None], 0.0, row.p), ignored=False),
    ),
    Mistake(
        "gradient_column_0_ignored",
        "A row whose target is column 0 has the gradient 0.",
        "Which columns can a target name, and which number is none of them?",
        2,
        gives_gradient(lambda row: torch.where((row.target > 0)[:, None], row.p - row.onehot, 0.0)),
    ),
    recognised(
        names.ZERO_TIMES_NAN_IN_GRADIENT,
        2,
        gives_gradient(lambda row: (row.p - row.onehot) * row.kept[:, None], ignored=False),
    ),
    Mistake(
        "stride_of_x_for_gradient",
        "The gradient's rows are taken to lie as far apart as those of x.",
        "x may have gaps between its rows: has the gradient?",
        3,
        where(_is_stored_with_gaps, weight=0.98),
    ),
    Mistake(
        "gradient_nearly_right",
        "The gradient is nearly right.",
        "Which number is rounded on the way, and in which dtype is each step?",
        0,
        gradient_nearly_right,
    ),
    Mistake(
        "ignored_gradient_counts",
        "A row that is ignored has a gradient.",
        "If a row adds 0 to the loss whatever its logits are, what is the slope?",
        2,
        gives_gradient(lambda row: row.p - row.onehot, lambda row: row.p, ignored=False),
    ),
    Mistake(
        "mean_of_rows",
        "The gradient is divided by the number of rows.",
        "Is the sum of the losses asked for, or their mean?",
        1,
        gives_gradient(lambda row: (row.p - row.onehot) / len(row.x)),
    ),
    Mistake(
        "gradient_by_columns",
        "The gradient is divided by the number of columns.",
        "Is the sum of the losses asked for, or their mean?",
        1,
        gives_gradient(lambda row: (row.p - row.onehot) / row.x.shape[1]),
    ),
    Mistake(
        "times_loss",
        "The gradient is multiplied by the loss.",
        "What arrives in backward where the loss itself is the end of the chain?",
        1,
        gives_gradient(lambda row: (row.p - row.onehot) * (_lse(row) - row.x_target)[:, None]),
    ),
)

LOSS_MISTAKES = (*_OF_KERNEL, *_OF_LOSS)

GRADIENT_MISTAKES = (*LOSS_MISTAKES, *_OF_GRADIENT)
