"""The known mistakes of kernels that compute losses: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

import torch

from helpers.check.calling_loss import IGNORED
from helpers.check.losses import LossRow, LossSeen, gives_gradient, gives_loss
from helpers.check.mistakes import END_OF_ROW
from helpers.check.recognise import Explains, Mistake, Seen, is_16_bit, only, where, with_hints
from helpers.check.stops import GENERAL


def _loads_one_outside(seen: Seen) -> bool:
    """A single element was loaded from outside."""
    access = seen.trial.outside
    return bool(access) and access["action"] == "load" and access["lanes"] == 1


def _loads_before_row(seen: Seen) -> bool:
    """That element is −100 of a row that begins with x: a target of −100, taken for a column."""
    return _loads_one_outside(seen) and IGNORED <= seen.trial.outside["element"] < 0


def _got(kind: str) -> Explains:
    return where(lambda seen: kind in seen.trial.got, weight=0.95)


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
        where(_loads_before_row),
    ),
    Mistake(
        "target_outside_row",
        "The logit of the target is looked for outside its row.",
        "Where does this program's row begin, and how many elements after that lies column `target`?",
        3,
        where(_loads_one_outside, weight=0.45),
    ),
    *with_hints(
        [mistake for mistake in END_OF_ROW if mistake.id in ("load_unmasked", "store_unmasked")],
        load_unmasked=2,
        store_unmasked=2,
    ),
    Mistake(
        "no_kernel",
        "No kernel is launched.",
        "Which line of the driver launches your kernel, with a grid in brackets?",
        0,
        where(lambda seen: isinstance(seen, LossSeen) and seen.losses is not None and not seen.trial.kernels),
    ),
    Mistake(
        "wrong_shape",
        "The result has the wrong shape.",
        "How many losses does a matrix of M rows have?",
        0,
        _got("in place of"),
    ),
    Mistake(
        "input_overwritten",
        "The input is overwritten.",
        "Where is the result stored, and what if the caller still needs x?",
        0,
        where(lambda seen: seen.trial.input_changed),
    ),
)


def _lse(row: LossRow) -> torch.Tensor:
    return row.m + torch.log(row.l)


def _idle_lanes_add_one(row: LossRow) -> torch.Tensor:
    """Lanes past the end of the row hold 0."""
    idle = row.tile - row.x.shape[1]
    m = row.m.clamp(min=0.0) if idle else row.m
    return m + torch.log(torch.exp(row.x - m[:, None]).sum(dim=1) + idle * torch.exp(-m)) - row.x_target


_OF_LOSS = (
    Mistake(
        "no_maximum",
        "The maximum is not subtracted.",
        "What is exp(1000), and which number keeps every exponent at or below 0?",
        1,
        gives_loss(lambda row: torch.log(torch.exp(row.x).sum(dim=1)) - row.x_target),
    ),
    Mistake(
        "maximum_not_added",
        "The maximum was subtracted, and is not added again.",
        "If l was made with x − m, what is log(Σ exp(x))?",
        1,
        gives_loss(lambda row: torch.log(row.l) - row.x_target),
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
        gives_loss(lambda row: _lse(row) - row.x[:, row.target[0].clamp(min=0)]),
    ),
    Mistake(
        "logit_of_row_0",
        "The logit of the target comes from row 0.",
        "Where does this program's row begin?",
        3,
        gives_loss(lambda row: _lse(row) - row.x[0, row.target.clamp(min=0)]),
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
            lambda row: torch.where(row.kept, _lse(row) - row.x_target, torch.inf),
            ignored=None,
        ),
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
        "idle_lanes_hold_0",
        "Lanes past the end of the row hold 0.",
        "Which number changes neither a maximum nor a sum of exponentials?",
        2,
        gives_loss(_idle_lanes_add_one),
    ),
    Mistake(
        "n_as_stride",
        "N is taken for the row stride of x.",
        "How far apart do the rows of x[:, :5] begin?",
        3,
        only(lambda seen: seen.x.stride(0) != seen.x.shape[1] and len(seen.x) > 1),
    ),
    Mistake(
        "only_16_bit",
        "Only 16-bit inputs are wrong.",
        "In which dtype are the maximum, exp and the sum computed?",
        0,
        only(is_16_bit),
    ),
)


def _numbers_of(row: LossRow) -> torch.Tensor:
    """The number of each row as a column, as far as there are columns."""
    return torch.arange(len(row.x)).clamp(max=row.x.shape[1] - 1)[:, None]


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
        gives_gradient(lambda row: row.p - torch.zeros_like(row.x).scatter(1, _numbers_of(row), 1.0)),
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
        "The slope of the target is −1, whatever its probability.",
        "What is the slope of log(Σ exp(x)) at the target, and is it lost?",
        1,
        gives_gradient(lambda row: torch.where(row.onehot > 0, -1.0, row.p)),
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
