"""The known mistakes of the loss of rows that lie over ranks, and of its gradient, exercise 13.3."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.ranks import (
    OF_BOTH,
    every_wrong,
    gradient_gives,
    loss_gives,
    place_at_fault,
    ranked,
    wherever,
)
from helpers.check.mistakes.recognise import INF, Explains, Mistake, Seen, any_of, recognised, where
from helpers.check.mistakes.sharded_rows import ShardedRows, by_own_sum, grown_sum, own_numerator, own_softmax
from helpers.check.trial.ranked import Ranked
from helpers.ranks.meeting import Fault

_T = torch.Tensor


def _divided_by(parts: ShardedRows, by: float) -> _T:
    return parts.rows_of_loss()[parts.counts].sum() / by


def _clamped(_: int, local: _T, n: int) -> _T:
    return local.clamp(0, n - 1)


def _wrapped(_: int, local: _T, n: int) -> _T:
    """A negative index counts from the end, if it reaches a column at all."""
    return torch.where((local < 0) & (local >= -n), local + n, local)


def _looked_up(lookup: Callable[[int, _T, int], _T]) -> Callable[[ShardedRows], _T]:
    return lambda parts: parts.loss(x_target=parts.logits(lookup).sum(0))


def _with_absent(value: float) -> Callable[[ShardedRows], _T]:
    """The loss if a rank that lacks a target hands in this number, not 0."""

    def loss(parts: ShardedRows) -> _T:
        there = torch.stack(_own_rows(parts))
        return parts.loss(x_target=torch.where(there, parts.x_target, value).sum(0))

    return loss


def _of_products(parts: ShardedRows) -> _T:
    """The loss with Σ onehot · x for the logit of the target."""
    found = []
    for x, start in zip(parts.shards, parts.starts, strict=True):
        one_hot = torch.arange(x.shape[1]) + start == parts.target[:, None]
        found.append((one_hot.float() * x).sum(1))
    return parts.loss(x_target=torch.stack(found).sum(0))


def _looked_up_plus(times: int) -> Callable[[ShardedRows], _T]:
    """The loss if the first class is added so many times to the right column."""

    def loss(parts: ShardedRows) -> _T:
        return parts.loss(x_target=parts.logits(lambda rank, local, n: local + times * parts.starts[rank]).sum(0))

    return loss


def _of_equal_starts(parts: ShardedRows) -> Callable[[int, _T, int], _T]:
    return lambda rank, local, n: local + parts.starts[rank] - rank * n


def _not_shifted(parts: ShardedRows) -> Callable[[int, _T, int], _T]:
    """On the rank that has the target, the column of that number, or the last."""

    def column(rank: int, local: _T, n: int) -> _T:
        here = (local >= 0) & (local < n)
        return torch.where(here, (local + parts.starts[rank]).clamp(max=n - 1), -1)

    return column


def _own_rows(parts: ShardedRows) -> list[_T]:
    """By rank: which rows have a target there, as (M,)."""
    sizes = zip(parts.starts, parts.sizes, strict=True)
    return [(parts.target >= start) & (parts.target < start + n) for start, n in sizes]


def _mean_of_own(parts: ShardedRows) -> list[_T]:
    return [parts.rows_of_loss()[own].mean() for own in _own_rows(parts)]


_INDEX = re.compile(r"index (-?\d+) is out of bounds for dimension \d+ with size (\d+)")


def _index(case: Seen) -> tuple[int, int] | None:
    """The index that lies outside, and the size there, of a case that stopped so."""
    found = _INDEX.search(ranked(case).said)
    return (int(found[1]), int(found[2])) if found else None


def _outside(has: Callable[[int, int], bool], weight: float) -> Explains:
    """Every wrong case stops at an index outside, and all of them are such."""

    def explains(seen: Sequence[Seen]) -> float:
        found = [index for case in seen if not case.ok and (index := _index(case))]
        return weight * (bool(found) and all(has(*index) for index in found))

    return explains


def _log_of_probability(parts: ShardedRows) -> _T:
    p = torch.exp(parts.x_target.sum(0) - parts.m) / parts.total
    return -torch.log(p)[parts.counts].sum() / parts.counts.sum()


def _lse(parts: ShardedRows, l: _T, m: _T | None = None) -> _T:
    return (parts.m if m is None else m) + l.log()


def _skips_without_target(case: Seen, seen: Ranked) -> bool:
    parts = ShardedRows(case.x)
    return not bool(_own_rows(parts)[place_at_fault(case, seen)].any())


def _only_ignored(case: Seen) -> bool:
    return all(target == -100 for target in case.x.target)


def _if_all_are_ignored(seen: Sequence[Seen]) -> float:
    """A case of ignored rows alone is wrong, and besides it at most those with an ignored row of only −inf."""
    wrong = [case for case in seen if not case.ok]
    shows = [_only_ignored(one) or _ignores_minus_inf(one) for one in wrong]
    return 0.9 * (any(map(_only_ignored, wrong)) and all(shows))


def _ignores_minus_inf(case: Seen) -> bool:
    rows = zip(case.x.rows, case.x.target, strict=True)
    return any(t == -100 and all(value == -INF for value in row) for row, t in rows)


def _some_ignored(case: Seen) -> bool:
    return -100 in case.x.target


def _loss_comes_last(case: Seen) -> bool:
    """A loss that is the second of two."""
    rows, sizes, *_ = case.x
    found = ranked(case).returned
    if len(found) != len(sizes):
        return False
    pairs = [(one.tensors, n) for one, n in zip(found, sizes, strict=True) if one.is_several and len(one.tensors) == 2]
    right = [first.shape == (len(rows), n) and second.numel() == 1 for (first, second), n in pairs]
    return bool(found) and len(right) == len(found) and all(right)


def _loss_of_each_row(case: Seen) -> bool:
    found, M = ranked(case).returned, len(case.x.rows)
    return bool(found) and all(one.is_several and one.tensors and one.tensors[0].shape == (M,) for one in found)


def _no_gradient(case: Seen) -> bool:
    found = ranked(case).returned
    return bool(found) and all(not one.is_several and not one.is_none for one in found)


LOSS_OF_SHARDS = (
    *(replace(one, hint=1 if one.hint or one.id == "error" else 0) for one in OF_BOTH),
    Mistake(
        "rank_without_target_skips",
        "A rank that has none of the targets leaves before the collective.",
        "Do the other ranks need its maximum and its sum?",
        1,
        wherever(Fault.DEADLOCK, _skips_without_target, 0.93),
    ),
    Mistake(
        "loss_last",
        "The loss and the gradient come back the wrong way around.",
        "Which of the two comes first?",
        4,
        where(_loss_comes_last),
    ),
    Mistake(
        "loss_of_each_row",
        "A loss of each row comes back, not their mean.",
        "Over which rows is the mean to be taken?",
        3,
        where(_loss_of_each_row),
    ),
    Mistake(
        "one_result",
        "A loss and a gradient are asked for, and one thing comes back.",
        "Which two does the function return?",
        4,
        where(_no_gradient),
    ),
    Mistake(
        "end_of_shard_counted",
        "The first column of the next shard is taken for one of this shard.",
        "A shard of n columns has the numbers 0 to which one?",
        1,
        _outside(lambda index, n: index == n > 0, 0.98),
    ),
    Mistake(
        "negative_index",
        "A target of another rank becomes a negative index, which counts from the end.",
        "For which ranks is target − start below 0, and what does shard[row, −1] mean?",
        1,
        any_of(_outside(lambda index, n: index < 0, 0.97), loss_gives(_looked_up(_wrapped))),
    ),
    Mistake(
        "target_of_another_rank",
        "A rank looks up a target that another rank has.",
        "Which classes does this rank have, and what number has each of them in its shard?",
        1,
        _outside(lambda index, n: index >= n > 0 or index < -n, 0.96),
    ),
    Mistake(
        "target_clamped",
        "A rank that lacks the target adds the logit of another column.",
        "What must the other ranks hand in, so that the sum of all is the logit of the target?",
        1,
        loss_gives(_looked_up(_clamped)),
    ),
    Mistake(
        "edge_of_shard",
        "A target in the first or the last column of a shard is lost.",
        "For which values of target − start is the target in this shard?",
        1,
        loss_gives(
            _looked_up(lambda _, local, n: torch.where(local > 0, local, -1)),
            _looked_up(lambda _, local, n: torch.where(local < n - 1, local, -1)),
        ),
    ),
    Mistake(
        "start_from_rank",
        "The first class of a shard is computed as if all shards had the same width.",
        "What is the argument start for?",
        1,
        loss_gives(lambda parts: parts.loss(x_target=parts.logits(_of_equal_starts(parts)).sum(0))),
    ),
    Mistake(
        "start_left_out",
        "The column of the target is not its class less `start`.",
        "Class `start` is in which column of this shard?",
        1,
        loss_gives(*(_looked_up_plus(times) for times in (1, 2))),
    ),
    Mistake(
        "target_not_shared",
        "Each rank subtracts the logit that it has itself.",
        "Which rank knows the logit of the target, and how do the others learn it?",
        1,
        loss_gives(lambda parts: [parts.loss(x_target=own) for own in parts.x_target]),
    ),
    Mistake(
        "target_by_maximum",
        "The logit of the target is the largest of what the ranks hand in.",
        "What is the largest of 0 and a logit below 0?",
        1,
        loss_gives(lambda parts: parts.loss(x_target=parts.x_target.amax(0))),
    ),
    Mistake(
        "target_by_mean",
        "The logit of the target is the mean of what the ranks hand in.",
        "All ranks but one hand in 0: what is the sum of all, and what their mean?",
        1,
        loss_gives(lambda parts: parts.loss(x_target=parts.x_target.mean(0))),
    ),
    Mistake(
        "absent_target",
        "A rank that lacks the target hands in something other than 0.",
        "What must the other ranks hand in, so that the sum of all is the logit of the target?",
        1,
        loss_gives(*map(_with_absent, (-INF, 1.0, -1.0, -100.0))),
    ),
    Mistake(
        "target_by_products",
        "The logit of the target is a sum of products with 0 and 1, and 0 · −inf is NaN.",
        "Can the logit be looked up, or chosen with torch.where?",
        1,
        loss_gives(_of_products),
    ),
    Mistake(
        "target_left_out",
        "The logit of the target is not subtracted.",
        "What is the loss of a row, besides m + log l?",
        1,
        loss_gives(lambda parts: parts.loss(x_target=torch.zeros_like(parts.m))),
    ),
    Mistake(
        "loss_of_own_shard",
        "Each rank takes the loss of its own shard.",
        "Does the formula mean m and l of the shard, or of the row?",
        4,
        loss_gives(
            lambda parts: [
                parts.loss(m + l.log(), x) for m, l, x in zip(parts.m_parts, parts.l_parts, parts.x_target, strict=True)
            ],
            lambda parts: [parts.loss(m + l.log()) for m, l in zip(parts.m_parts, parts.l_parts, strict=True)],
        ),
    ),
    Mistake(
        "loss_with_own_maximum",
        "The maximum of a rank's own shard is added to the log of the whole row's sum.",
        "With which maximum was that sum made?",
        4,
        loss_gives(lambda parts: [parts.loss(_lse(parts, parts.total, m)) for m in parts.m_parts]),
    ),
    Mistake(
        "loss_with_own_sum",
        "The sum of a rank's own shard is taken for that of the row.",
        "Which l does the formula mean, and with which maximum is it made?",
        4,
        loss_gives(
            lambda parts: [parts.loss(_lse(parts, l)) for l in parts.l_parts],
        ),
    ),
    Mistake(
        "sign_of_a_term",
        "A term of the loss has the wrong sign.",
        "The loss of a row is m + log l − x[target]: which sign has each of the three in your line?",
        4,
        loss_gives(
            lambda parts: parts.loss(parts.total.log() - parts.m),
            lambda parts: parts.loss(x_target=-parts.x_target.sum(0)),
            lambda parts: parts.loss(parts.m - parts.total.log()),
        ),
    ),
    Mistake(
        "log_of_base_2",
        "The logarithm is one of base 2.",
        "log2(l) counts powers of 2: of which number does the loss count powers?",
        4,
        loss_gives(lambda parts: parts.loss(parts.m + parts.total.log2())),
    ),
    recognised(names.SUMS_AS_THEY_ARE, 4, loss_gives(lambda parts: parts.loss(_lse(parts, parts.l_parts.sum(0))))),
    recognised(names.RESCALED_WRONG_WAY, 4, loss_gives(lambda parts: parts.loss(_lse(parts, grown_sum(parts))))),
    recognised(
        names.NO_MAXIMUM, 4, loss_gives(lambda parts: parts.loss(parts.sum_of(torch.zeros_like(parts.m)).log()))
    ),
    Mistake(
        "loss_without_m",
        "The loss lacks m.",
        "l was made with exp(x − m): what is the logarithm of Σ exp(x)?",
        4,
        loss_gives(lambda parts: parts.loss(parts.total.log())),
    ),
    Mistake(
        "log_missing",
        "The loss has l where log l belongs.",
        "What is the logarithm of Σ exp(x), in m and l?",
        4,
        loss_gives(lambda parts: parts.loss(parts.m + parts.total)),
    ),
    Mistake(
        "log_of_probability",
        "The loss is the logarithm of a probability that was computed first.",
        "What is exp(−200) in float32, and what is its logarithm?",
        4,
        loss_gives(_log_of_probability),
    ),
    Mistake(
        "counted_on_each_rank",
        "Every rank adds up the sum of the whole row, and it counts once for each rank.",
        "Which numbers are the same on all ranks already?",
        4,
        loss_gives(lambda parts: parts.loss(_lse(parts, parts.world * parts.total))),
    ),
    Mistake(
        "loss_below_zero",
        "The loss has the wrong sign.",
        "Is a loss above or below 0?",
        4,
        loss_gives(lambda parts: -parts.loss()),
    ),
    Mistake(
        "ignored_rows_divide",
        "The mean is taken over all rows, ignored ones too.",
        "By how many rows does torch divide?",
        3,
        loss_gives(lambda parts: _divided_by(parts, len(parts.x))),
    ),
    Mistake(
        "ignored_rows_added",
        "Ignored rows have a loss.",
        "What does an ignored row add to the sum?",
        2,
        loss_gives(
            lambda parts: parts.rows_of_loss().mean(),
            lambda parts: parts.rows_of_loss().sum() / parts.counts.sum(),
        ),
    ),
    Mistake(
        "not_a_mean",
        "The losses of the rows are added up, and nothing is divided.",
        "By how many rows does a mean divide?",
        3,
        loss_gives(lambda parts: _divided_by(parts, 1.0)),
    ),
    Mistake(
        "divided_by_ranks",
        "Something is divided by the number of ranks.",
        "The loss is the same on all ranks: is it the mean of something else?",
        3,
        any_of(
            loss_gives(lambda parts: parts.loss() / parts.world),
            gradient_gives(lambda parts: parts.mean(parts.gradient(), parts.counts.sum() * parts.world)),
        ),
    ),
    Mistake(
        "mean_of_own_rows",
        "Each rank takes the mean over the rows whose target it has.",
        "Which rows does the loss of the whole batch have, and do all ranks know them?",
        3,
        loss_gives(
            _mean_of_own,
            lambda parts: torch.stack(_mean_of_own(parts)).mean(),
            lambda parts: torch.stack(_mean_of_own(parts)).nan_to_num(0).mean(),
        ),
    ),
    Mistake(
        "only_ignored_rows",
        "If all rows are ignored, something other than the loss NaN and the gradient 0 comes back.",
        "What is 0 / 0, and which of the two results may hold it?",
        2,
        _if_all_are_ignored,
    ),
    Mistake(
        "gradient_of_ignored_rows",
        "Ignored rows have a gradient.",
        "Does a row that adds nothing to the loss change with its logits?",
        2,
        gradient_gives(lambda parts: [one / parts.counts.sum() for one in parts.gradient()]),
    ),
    Mistake(
        "gradient_of_sum",
        "The gradient is not divided by the number of rows that count.",
        "The loss is a mean: what does that do to its gradient?",
        3,
        gradient_gives(lambda parts: parts.mean(parts.gradient(), 1.0)),
    ),
    Mistake(
        "gradient_by_all_rows",
        "The gradient is divided by the number of all rows.",
        "By how many rows is the loss divided?",
        3,
        gradient_gives(lambda parts: parts.mean(parts.gradient(), len(parts.x))),
    ),
    Mistake(
        "gradient_of_own_softmax",
        "The gradient has the softmax of the shard alone.",
        "Which m and l does every rank know after the collective?",
        4,
        gradient_gives(lambda parts: parts.mean(parts.gradient(own_softmax(parts)))),
    ),
    Mistake(
        "gradient_with_own_pair",
        "The gradient is made with the maximum, or the sum, of the shard alone.",
        "Which m and l does every rank know after the collective?",
        4,
        gradient_gives(
            lambda parts: parts.mean(parts.gradient(own_numerator(parts, parts.total))),
            lambda parts: parts.mean(parts.gradient(by_own_sum(parts))),
        ),
    ),
    Mistake(
        "gradient_of_exponentials",
        "The gradient has exponentials, not a softmax.",
        "The gradient of a row's loss is softmax − onehot: by what are the exponentials divided?",
        4,
        gradient_gives(lambda parts: parts.mean(parts.gradient(parts.softmax(l=torch.ones_like(parts.total))))),
    ),
    Mistake(
        "gradient_where_target_is",
        "Only the rank that has a row's target has a gradient of that row.",
        "Does the loss of a row change with a logit that is not the target's?",
        4,
        gradient_gives(
            lambda parts: [
                torch.where(own[:, None], one, 0.0)
                for own, one in zip(_own_rows(parts), parts.mean(parts.gradient()), strict=True)
            ]
        ),
    ),
    Mistake(
        "no_one_hot",
        "Nothing is subtracted at the target.",
        "The gradient of a row's loss is softmax − onehot: where is the 1?",
        4,
        gradient_gives(lambda parts: parts.mean(parts.gradient(columns=lambda _, local, n: local * 0 - 1))),
    ),
    Mistake(
        "one_hot_added",
        "At the target 1 is added, not subtracted.",
        "Does the loss grow, or shrink, with the logit of the target?",
        4,
        gradient_gives(
            lambda parts: parts.mean([2 * y - one for y, one in zip(parts.softmax(), parts.gradient(), strict=True)])
        ),
    ),
    Mistake(
        "one_hot_not_shifted",
        "The 1 is subtracted in the column of the class in the whole row.",
        "Class `start` is in which column of this shard?",
        1,
        gradient_gives(lambda parts: parts.mean(parts.gradient(columns=_not_shifted(parts)))),
    ),
    Mistake(
        "one_hot_not_divided",
        "The 1 at the target is not divided by the number of rows.",
        "Which of the two is subtracted first, and what is divided?",
        3,
        gradient_gives(lambda parts: parts.gradient(parts.mean(parts.softmax()))),
    ),
    Mistake(
        "one_hot_on_each_rank",
        "A rank that lacks the target subtracts a 1 as well.",
        "How many columns of the whole row are the target?",
        4,
        gradient_gives(
            lambda parts: parts.mean(parts.gradient(columns=_clamped)),
            lambda parts: parts.mean(parts.gradient(columns=_wrapped)),
        ),
    ),
    Mistake(
        "one_hot_by_value",
        "A 1 is subtracted wherever the logit is that of the target.",
        "How many columns of a row may hold the same number, and how many are the target?",
        4,
        gradient_gives(
            lambda parts: parts.mean(
                [
                    y - (x == parts.x_target.sum(0)[:, None]).float()
                    for y, x in zip(parts.softmax(), parts.shards, strict=True)
                ]
            )
        ),
    ),
    Mistake(
        "gradient_below_zero",
        "The gradient has the wrong sign.",
        "Is it softmax − onehot, or onehot − softmax?",
        4,
        gradient_gives(lambda parts: [-one for one in parts.mean(parts.gradient())]),
    ),
    Mistake(
        "gradient_reduced",
        "The gradients of the ranks are added up.",
        "Are column 0 of this shard and column 0 of the next one the same class?",
        4,
        gradient_gives(lambda parts: [torch.stack(parts.mean(parts.gradient())).sum(0)] * parts.world),
    ),
    Mistake(
        "ignored_rows_wrong",
        "Wrong only if some rows are ignored.",
        "What does an ignored row add to the loss, to the number of rows, and to the gradient?",
        2,
        every_wrong(_some_ignored, 0.5),
    ),
)
