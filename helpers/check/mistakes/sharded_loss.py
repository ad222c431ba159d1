"""The known mistakes of the loss of rows that lie over ranks, and of its gradient, exercise 13.3."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

import torch
import torch.distributed as dist

from helpers.check.mistakes import names
from helpers.check.mistakes.edited_ranks import OfRanks, pairs_of, ranked
from helpers.check.mistakes.ranks import OF_BOTH, every_wrong, place_at_fault, wherever
from helpers.check.mistakes.recognise import INF, Explains, Mistake, Seen, any_of, where, with_hints
from helpers.check.trial.ranked import Ranked
from helpers.ranks.meeting import Fault


def loss_of_shard(
    shard: torch.Tensor, target: torch.Tensor, start: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean loss, the same on all ranks, and the gradient of this rank's shard."""
    pairs, counts = pairs_of(shard), target != -100
    local, x_target = target - start, shard.new_zeros(len(shard))
    rows = torch.nonzero((local >= 0) & (local < shard.shape[1]))[:, 0]
    x_target[rows] = shard[rows, local[rows]]
    mine = torch.cat([pairs, x_target[:, None]], dim=1)
    found = [torch.empty_like(mine) for _ in range(group.size())]
    dist.all_gather(found, mine, group=group)
    m_parts, l_parts, x_parts = torch.stack(found).unbind(dim=2)
    m = m_parts.amax(dim=0)
    l = (l_parts * torch.exp(m_parts - m)).sum(dim=0)
    loss = (m + torch.log(l) - x_parts.sum(dim=0))[counts].mean()
    gradient = torch.exp(shard - m[:, None]) / l[:, None]
    gradient[rows, local[rows]] -= 1
    gradient = torch.where(counts[:, None], gradient / counts.sum(), 0.0)
    return loss, gradient.to(shard.dtype)


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


def _skips_without_target(case: Seen, seen: Ranked) -> bool:
    place, ends = place_at_fault(case, seen), list(accumulate(case.x.sizes))
    return not any(ends[place] - case.x.sizes[place] <= target < ends[place] for target in case.x.target)


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


_OF_SHARD = OfRanks(loss_of_shard)
_HERE = "torch.nonzero((local >= 0) & (local < shard.shape[1]))[:, 0]"
_ROWS, _FROM_END = f"rows = {_HERE}", _HERE.replace(">= 0", ">= -shard.shape[1]")
_CLAMPED = "local.clamp(0, max(0, shard.shape[1] - 1)), torch.arange(len(shard) if shard.shape[1] else 0)"
_LOCAL, _X_TARGET = "local, x_target = target - start, ", "x_target[rows] = shard[rows, local[rows]]"
_FACTOR, _MERGED = "torch.exp(m_parts - m)", "l = (l_parts * torch.exp(m_parts - m)).sum(dim=0)"
_LSE, _TARGET, _MEAN = "(m + torch.log(l)", "x_parts.sum(dim=0)", "[counts].mean()"
_LOSSES = f"{_LSE} - {_TARGET})"
_LOSS = f"loss = {_LOSSES}{_MEAN}"
_GRADIENT, _ONE_HOT = "gradient = torch.exp(shard - m[:, None]) / l[:, None]", "gradient[rows, local[rows]] -= 1"
_DIVIDED = "gradient / counts.sum()"
_KEPT = f"gradient = torch.where(counts[:, None], {_DIVIDED}, 0.0)"
_OF_OWN_ROWS = _LOSS.replace("[counts]", "[rows]")
_OF_MEANS = "\n    dist.all_reduce(loss, group=group)\n    loss = loss / group.size()"
_NEGATIVE_INDEX = _OF_SHARD.mistake(
    "negative_index",
    "A target of another rank becomes a negative index, which counts from the end.",
    "For which ranks is target − start below 0, and what does shard[row, −1] mean?",
    1,
    (_ROWS, f"rows, n = {_FROM_END}, max(1, shard.shape[1])\n    local = torch.where(local < 0, local + n, local)"),
)

LOSS_OF_SHARDS = (
    *with_hints(OF_BOTH, **{one.id: 1 for one in OF_BOTH if one.hint}, error=1),
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
    replace(_NEGATIVE_INDEX, explains=any_of(_outside(lambda index, n: index < 0, 0.97), _NEGATIVE_INDEX.explains)),
    Mistake(
        "target_of_another_rank",
        "A rank looks up a target that another rank has.",
        "Which classes does this rank have, and what number has each of them in its shard?",
        1,
        _outside(lambda index, n: index >= n > 0 or index < -n, 0.96),
    ),
    _OF_SHARD.mistake(
        "target_clamped",
        "A rank that lacks the target adds the logit of another column.",
        "What must the other ranks hand in, so that the sum of all is the logit of the target?",
        1,
        (_X_TARGET, f"at, every = {_CLAMPED}\n    x_target[every] = shard[every, at[every]]"),
    ),
    _OF_SHARD.mistake(
        "place_ignored",
        "A target 100 columns before a shard is taken for an ignored one.",
        "Is −100 a mark among the classes, or among the columns of a shard?",
        3,
        ("target != -100", "(target != -100) & (target - start != -100)"),
    ),
    _OF_SHARD.mistake(
        "edge_of_shard",
        "A target in the first or the last column of a shard is lost.",
        "For which values of target − start is the target in this shard?",
        1,
        ("local >= 0", "local > 0"),
        ("local < shard.shape[1]", "local < shard.shape[1] - 1"),
    ),
    _OF_SHARD.mistake(
        "start_from_rank",
        "The first class of a shard is computed as if all shards had the same width.",
        "What is the argument start for?",
        1,
        ("target - start", "target - group.rank() * shard.shape[1]"),
    ),
    _OF_SHARD.mistake(
        "start_left_out",
        "The column of the target is not its class less `start`.",
        "Class `start` is in which column of this shard?",
        1,
        (_LOCAL, "local, x_target = target, "),
        (_LOCAL, "local, x_target = target + start, "),
    ),
    _OF_SHARD.mistake(
        "target_not_shared",
        "Each rank subtracts the logit that it has itself.",
        "Which rank knows the logit of the target, and how do the others learn it?",
        1,
        (_TARGET, "x_target"),
    ),
    _OF_SHARD.mistake(
        "target_by_maximum",
        "The logit of the target is the largest of what the ranks hand in.",
        "What is the largest of 0 and a logit below 0?",
        1,
        (_TARGET, "x_parts.amax(dim=0)"),
    ),
    _OF_SHARD.mistake(
        "target_by_mean",
        "The logit of the target is the mean of what the ranks hand in.",
        "All ranks but one hand in 0: what is the sum of all, and what their mean?",
        1,
        (_TARGET, "x_parts.mean(dim=0)"),
    ),
    _OF_SHARD.mistake(
        "absent_target",
        "A rank that lacks the target hands in something other than 0.",
        "What must the other ranks hand in, so that the sum of all is the logit of the target?",
        1,
        *(
            ("shard.new_zeros(len(shard))", f"shard.new_full((len(shard),), {absent})")
            for absent in ("-float('inf')", "1.0", "-1.0", "-100.0")
        ),
    ),
    _OF_SHARD.mistake(
        "target_by_products",
        "The logit of the target is a sum of products with 0 and 1, and 0 · −inf is NaN.",
        "Can the logit be looked up, or chosen with torch.where?",
        1,
        (_X_TARGET, "x_target = ((torch.arange(shard.shape[1]) == local[:, None]).float() * shard).sum(dim=1)"),
    ),
    _OF_SHARD.mistake(
        "target_left_out",
        "The logit of the target is not subtracted.",
        "What is the loss of a row, besides m + log l?",
        1,
        (f" - {_TARGET}", ""),
    ),
    _OF_SHARD.mistake(
        "loss_of_own_shard",
        "Each rank takes the loss of its own shard.",
        "Does the formula mean m and l of the shard, or of the row?",
        4,
        (_LOSSES, "(pairs[:, 0] + torch.log(pairs[:, 1]) - x_target)"),
        (_LSE, "(pairs[:, 0] + torch.log(pairs[:, 1])"),
    ),
    _OF_SHARD.mistake(
        "loss_with_own_maximum",
        "The maximum of a rank's own shard is added to the log of the whole row's sum.",
        "With which maximum was that sum made?",
        4,
        (_LSE, "(pairs[:, 0] + torch.log(l)"),
    ),
    _OF_SHARD.mistake(
        "loss_with_own_sum",
        "The sum of a rank's own shard is taken for that of the row.",
        "Which l does the formula mean, and with which maximum is it made?",
        4,
        (_LSE, "(m + torch.log(pairs[:, 1])"),
    ),
    _OF_SHARD.mistake(
        "sign_of_a_term",
        "A term of the loss has the wrong sign.",
        "The loss of a row is m + log l − x[target]: which sign has each of the three in your line?",
        4,
        (_LSE, "(torch.log(l) - m"),
        (f"- {_TARGET}", f"+ {_TARGET}"),
        (_LSE, "(m - torch.log(l)"),
    ),
    _OF_SHARD.mistake(
        "log_of_base_2",
        "The logarithm is one of base 2.",
        "log2(l) counts powers of 2: of which number does the loss count powers?",
        4,
        ("torch.log(l)", "torch.log2(l)"),
    ),
    _OF_SHARD.named(names.SUMS_AS_THEY_ARE, 4, (_MERGED, "l = l_parts.sum(dim=0)")),
    _OF_SHARD.named(names.RESCALED_WRONG_WAY, 4, (_FACTOR, "torch.exp(m - m_parts)")),
    _OF_SHARD.named(names.NO_MAXIMUM, 4, (_LSE, "(torch.log((l_parts * torch.exp(m_parts)).sum(dim=0))")),
    _OF_SHARD.mistake(
        "loss_without_m",
        "The loss lacks m.",
        "l was made with exp(x − m): what is the logarithm of Σ exp(x)?",
        4,
        (_LSE, "(torch.log(l)"),
    ),
    _OF_SHARD.mistake(
        "log_missing",
        "The loss has l where log l belongs.",
        "What is the logarithm of Σ exp(x), in m and l?",
        4,
        ("torch.log(l)", "l"),
    ),
    _OF_SHARD.mistake(
        "log_of_probability",
        "The loss is the logarithm of a probability that was computed first.",
        "What is exp(−200) in float32, and what is its logarithm?",
        4,
        (_LOSSES, f"(-torch.log(torch.exp({_TARGET} - m) / l))"),
    ),
    _OF_SHARD.mistake(
        "counted_on_each_rank",
        "Every rank adds up the sum of the whole row, and it counts once for each rank.",
        "Which numbers are the same on all ranks already?",
        4,
        (_MERGED, f"{_MERGED}\n    dist.all_reduce(l, group=group)"),
    ),
    _OF_SHARD.mistake(
        "loss_below_zero",
        "The loss has the wrong sign.",
        "Is a loss above or below 0?",
        4,
        (_LOSS, _LOSS.replace("= (", "= -(")),
    ),
    _OF_SHARD.mistake(
        "ignored_rows_divide",
        "The mean is taken over all rows, ignored ones too.",
        "By how many rows does torch divide?",
        3,
        (_MEAN, "[counts].sum() / len(target)"),
    ),
    _OF_SHARD.mistake(
        "ignored_rows_added",
        "Ignored rows have a loss.",
        "What does an ignored row add to the sum?",
        2,
        (_MEAN, ".mean()"),
        (_MEAN, ".sum() / counts.sum()"),
    ),
    _OF_SHARD.mistake(
        "not_a_mean",
        "The losses of the rows are added up, and nothing is divided.",
        "By how many rows does a mean divide?",
        3,
        (_MEAN, "[counts].sum()"),
    ),
    _OF_SHARD.mistake(
        "divided_by_ranks",
        "Something is divided by the number of ranks.",
        "The loss is the same on all ranks: is it the mean of something else?",
        3,
        (_MEAN, f"{_MEAN} / group.size()"),
        (_DIVIDED, f"{_DIVIDED} / group.size()"),
    ),
    _OF_SHARD.mistake(
        "mean_of_own_rows",
        "Each rank takes the mean over the rows whose target it has.",
        "Which rows does the loss of the whole batch have, and do all ranks know them?",
        3,
        (_LOSS, _OF_OWN_ROWS),
        (_LOSS, f"{_OF_OWN_ROWS}\n    loss = loss.clone().nan_to_num(0){_OF_MEANS}"),
        (_LOSS, f"{_OF_OWN_ROWS}{_OF_MEANS}"),
    ),
    Mistake(
        "only_ignored_rows",
        "If all rows are ignored, something other than the loss NaN and the gradient 0 comes back.",
        "What is 0 / 0, and which of the two results may hold it?",
        2,
        _if_all_are_ignored,
    ),
    _OF_SHARD.mistake(
        "gradient_of_ignored_rows",
        "Ignored rows have a gradient.",
        "Does a row that adds nothing to the loss change with its logits?",
        2,
        (_KEPT, f"gradient = {_DIVIDED}"),
    ),
    _OF_SHARD.named(
        names.ZERO_TIMES_NAN_IN_GRADIENT,
        2,
        (_KEPT, f"gradient = {_DIVIDED} * counts[:, None]"),
        (_KEPT, f"gradient = {_DIVIDED.replace('sum()', 'sum().clamp(min=1)')} * counts[:, None]"),
    ),
    _OF_SHARD.mistake(
        "gradient_of_sum",
        "The gradient is not divided by the number of rows that count.",
        "The loss is a mean: what does that do to its gradient?",
        3,
        (_DIVIDED, "gradient"),
    ),
    _OF_SHARD.mistake(
        "gradient_by_all_rows",
        "The gradient is divided by the number of all rows.",
        "By how many rows is the loss divided?",
        3,
        (_DIVIDED, "gradient / len(target)"),
    ),
    _OF_SHARD.mistake(
        "gradient_of_own_softmax",
        "The gradient has the softmax of the shard alone.",
        "Which m and l does every rank know after the collective?",
        4,
        (_GRADIENT, "gradient = torch.softmax(shard, dim=1)"),
    ),
    _OF_SHARD.mistake(
        "gradient_with_own_pair",
        "The gradient is made with the maximum, or the sum, of the shard alone.",
        "Which m and l does every rank know after the collective?",
        4,
        (_GRADIENT, "gradient = torch.exp(shard - pairs[:, :1]) / l[:, None]"),
        (_GRADIENT, "gradient = torch.exp(shard - m[:, None]) / pairs[:, 1:]"),
    ),
    _OF_SHARD.mistake(
        "gradient_of_exponentials",
        "The gradient has exponentials, not a softmax.",
        "The gradient of a row's loss is softmax − onehot: by what are the exponentials divided?",
        4,
        (_GRADIENT, "gradient = torch.exp(shard - m[:, None])"),
    ),
    _OF_SHARD.mistake(
        "gradient_where_target_is",
        "Only the rank that has a row's target has a gradient of that row.",
        "Does the loss of a row change with a logit that is not the target's?",
        4,
        (_KEPT, f"{_KEPT}\n    gradient[~torch.isin(torch.arange(len(shard)), rows)] = 0"),
    ),
    _OF_SHARD.mistake(
        "no_one_hot",
        "Nothing is subtracted at the target.",
        "The gradient of a row's loss is softmax − onehot: where is the 1?",
        4,
        (_ONE_HOT, "pass"),
    ),
    _OF_SHARD.mistake(
        "one_hot_added",
        "At the target 1 is added, not subtracted.",
        "Does the loss grow, or shrink, with the logit of the target?",
        4,
        (_ONE_HOT, _ONE_HOT.replace("-=", "+=")),
    ),
    _OF_SHARD.mistake(
        "one_hot_not_shifted",
        "The 1 is subtracted in the column of the class in the whole row.",
        "Class `start` is in which column of this shard?",
        1,
        (_ONE_HOT, "gradient[rows, target[rows].clamp(max=max(0, shard.shape[1] - 1))] -= 1"),
    ),
    _OF_SHARD.mistake(
        "one_hot_not_divided",
        "The 1 at the target is not divided by the number of rows.",
        "Which of the two is subtracted first, and what is divided?",
        3,
        (_ONE_HOT, "pass", _KEPT, f"{_KEPT}\n    {_ONE_HOT}"),
    ),
    _OF_SHARD.mistake(
        "one_hot_on_each_rank",
        "A rank that lacks the target subtracts a 1 as well.",
        "How many columns of the whole row are the target?",
        4,
        (_ONE_HOT, f"at, every = {_CLAMPED}\n    gradient[every, at[every]] -= 1"),
        (_ONE_HOT, f"at = {_FROM_END}\n    gradient[at, local[at]] -= 1"),
    ),
    _OF_SHARD.mistake(
        "one_hot_of_columns",
        "The 1 is subtracted from whole columns.",
        "A row has one target: which two numbers say where it lies?",
        4,
        (_ONE_HOT, "gradient[:, local[rows]] -= 1"),
    ),
    _OF_SHARD.mistake(
        "one_hot_by_value",
        "A 1 is subtracted wherever the logit is that of the target.",
        "How many columns of a row may hold the same number, and how many are the target?",
        4,
        (_ONE_HOT, f"gradient -= (shard == {_TARGET}[:, None]).float()"),
    ),
    _OF_SHARD.mistake(
        "gradient_below_zero",
        "The gradient has the wrong sign.",
        "Is it softmax − onehot, or onehot − softmax?",
        4,
        (_KEPT, f"{_KEPT}\n    gradient = -gradient"),
    ),
    _OF_SHARD.mistake(
        "gradient_reduced",
        "The gradients of the ranks are added up.",
        "Are column 0 of this shard and column 0 of the next one the same class?",
        4,
        (_KEPT, f"{_KEPT}\n    dist.all_reduce(gradient, group=group)"),
    ),
    Mistake(
        "ignored_rows_wrong",
        "Wrong only if some rows are ignored.",
        "What does an ignored row add to the loss, to the number of rows, and to the gradient?",
        2,
        every_wrong(_some_ignored, 0.5),
    ),
)
