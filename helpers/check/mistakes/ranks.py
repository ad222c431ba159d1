"""The known mistakes of functions of ranks: each is told by what all ranks return, or by the fault that stops them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.recognise import INF, Explains, Mistake, Seen, any_of, recognised, where
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.sharded import agree, losses_of, parts_of
from helpers.check.trial.ranked import Ranked, Rows
from helpers.ranks.meeting import Fault

_T = torch.Tensor
_NEAR = 2e-3


class ShardedRows:
    """The numbers of rows that lie over ranks, in float32, as answers compute them."""

    def __init__(self, rows: Rows, sizes: Sequence[int], target: Sequence[int] = ()) -> None:
        self.x = torch.tensor(rows)
        self.sizes, self.world = list(sizes), len(sizes)
        self.shards = self.x.split(self.sizes, dim=1)
        self.starts = [sum(self.sizes[:rank]) for rank in range(self.world)]
        self.target = torch.tensor(list(target), dtype=torch.int64)

    @cached_property
    def m_parts(self) -> _T:
        """(W, M)"""
        none = self.x.new_full((len(self.x),), -INF)
        return torch.stack([shard.amax(1) if shard.shape[1] else none for shard in self.shards])

    @cached_property
    def l_parts(self) -> _T:
        """(W, M)"""
        shift = torch.where(self.m_parts == -INF, 0.0, self.m_parts)
        return torch.stack([torch.exp(x - m[:, None]).sum(1) for x, m in zip(self.shards, shift, strict=True)])

    @property
    def m(self) -> _T:
        return self.m_parts.amax(0)

    @property
    def total(self) -> _T:
        """l of whole rows."""
        return self.sum_of(self.m)

    @property
    def counts(self) -> _T:
        """Which rows are not ignored."""
        return self.target != -100

    def sum_of(self, shift: _T) -> _T:
        """Σ exp(x − shift) of whole rows, from pairs."""
        return (self.l_parts * torch.exp(self.m_parts - shift)).sum(0)

    def softmax(self, shift: _T | None = None, l: _T | None = None) -> list[_T]:
        """exp(x − shift) / l of each shard, with the right ones by default."""
        shift = self.m if shift is None else shift
        l = self.sum_of(shift) if l is None else l
        return [torch.exp(x - shift[:, None]) / l[:, None] for x in self.shards]

    def logits(self, lookup: Callable[[int, _T, int], _T]) -> _T:
        """(W, M): of each rank what `lookup` (rank, target − start, columns) finds: a column, or −1 for none."""
        found = torch.zeros(self.world, len(self.x))
        for rank, (shard, start) in enumerate(zip(self.shards, self.starts, strict=True)):
            at = lookup(rank, self.target - start, shard.shape[1])
            rows = torch.nonzero((at >= 0) & (at < shard.shape[1]))[:, 0]
            found[rank, rows] = shard[rows, at[rows]]
        return found

    @cached_property
    def x_target(self) -> _T:
        """(W, M): x at the target on the rank that has it, and 0 on the others."""
        return self.logits(lambda _, local, n: local)

    def loss(self, lse: _T | None = None, x_target: _T | None = None) -> _T:
        """The mean loss of the rows that are not ignored."""
        lse = self.m + self.total.log() if lse is None else lse
        rows = lse - (self.x_target.sum(0) if x_target is None else x_target)
        return rows[self.counts].sum() / self.counts.sum()

    def rows_of_loss(self) -> _T:
        return self.m + self.total.log() - self.x_target.sum(0)

    def gradient(
        self, softmax: list[_T] | None = None, columns: Callable[[int, _T, int], _T] | None = None
    ) -> list[_T]:
        """softmax − onehot of each shard, ignored rows too, not divided; `columns` as of `logits`."""
        columns = columns or (lambda _, local, n: local)
        found = []
        for rank, y in enumerate(softmax or self.softmax()):
            y, at = y.clone(), columns(rank, self.target - self.starts[rank], y.shape[1])
            rows = torch.nonzero((at >= 0) & (at < y.shape[1]))[:, 0]
            y[rows, at[rows]] -= 1
            found.append(y)
        return found

    def mean(self, gradient: list[_T], by: _T | float | None = None) -> list[_T]:
        """A gradient, 0 in ignored rows, divided by the number of the others, or `by`."""
        by = self.counts.sum() if by is None else by
        return [torch.where(self.counts[:, None], one / by, 0.0) for one in gradient]


# How they are recognised


def _ranked(case: Seen) -> Ranked:
    return Ranked.of(case.trial.answer) or Ranked()


def _gives(
    got: Callable[[Seen], list[_T] | None], *results: Callable[[ShardedRows], Sequence[_T]], weight: float
) -> Explains:
    """Explains what one of `results` reproduces on all ranks: four fifths of the wrong cases, all right ones.

    `got` is what came back in a case, or None; at least a sixth of the wrong cases must have come back.
    """

    def agrees(case: Seen, found: list[_T], result: Callable[[ShardedRows], Sequence[_T]]) -> bool:
        try:
            made = result(ShardedRows(*case.x))
        except (IndexError, RuntimeError):
            return False
        return all(agree(a.float(), b.float(), _NEAR) for a, b in zip(found, made, strict=True))

    def share(cases: Sequence[tuple[Seen, list[_T]]], result: Callable[[ShardedRows], Sequence[_T]]) -> float:
        return sum(agrees(*one, result) for one in cases) / len(cases) if cases else 1.0

    def explains(seen: Sequence[Seen]) -> float:
        returned = [(case, found) for case in seen if (found := got(case)) is not None]
        wrong = [one for one in returned if not one[0].ok]
        if not wrong or 6 * len(wrong) < sum(not case.ok for case in seen):
            return 0.0
        right = [one for one in returned if one[0].ok]
        return weight * any(share(wrong, one) >= 0.8 and share(right, one) == 1 for one in results)

    return explains


def _parts(case: Seen) -> list[_T] | None:
    seen = _ranked(case)
    return parts_of(seen, case.x) if seen.returned else None


def _losses(case: Seen) -> list[_T] | None:
    return [torch.tensor(one) for one in losses_of(_ranked(case))] if _parts(case) is not None else None


def softmax_gives(*results: Callable[[ShardedRows], Sequence[_T]]) -> Explains:
    """Explains parts of the softmax."""
    return _gives(_parts, *results, weight=1.0)


def loss_gives(*results: Callable[[ShardedRows], _T | Sequence[_T]]) -> Explains:
    """Explains losses: one for all ranks, or one of each."""

    def of_all(result: Callable[[ShardedRows], _T | Sequence[_T]]) -> Callable[[ShardedRows], Sequence[_T]]:
        def made(parts: ShardedRows) -> Sequence[_T]:
            found = result(parts)
            return [found] * parts.world if isinstance(found, _T) and found.dim() == 0 else list(found)

        return made

    explains = _gives(_losses, *map(of_all, results), weight=1.0)
    right = loss_is_right
    return lambda seen: 0.0 if right(seen) else explains(seen)


def loss_is_right(seen: Sequence[Seen]) -> bool:
    """Whether all losses that came back are right."""

    def is_right(case: Seen) -> bool:
        want = ShardedRows(*case.x).loss()
        return all(agree(one, want, _NEAR) for one in _losses(case) or ())

    return all(map(is_right, seen))


def gradient_gives(*results: Callable[[ShardedRows], Sequence[_T]]) -> Explains:
    """Explains gradients whose losses are right."""
    explains = _gives(_parts, *results, weight=0.97)
    return lambda seen: explains(seen) if loss_is_right(seen) else 0.0


def stopped_with(fault: Fault, shows: Callable[[Seen, Ranked], bool] = lambda case, seen: True) -> Callable:
    """Whether the ranks of a case stopped so."""

    def has(case: Seen) -> bool:
        seen = _ranked(case)
        return seen.fault == fault and shows(case, seen)

    return has


def every_wrong(has: Callable[[Seen], bool], weight: float) -> Explains:
    """Explains if all wrong cases have it."""
    return lambda seen: weight * all(has(case) for case in seen if not case.ok)


_LINE = re.compile(r" \(line \d+(?:: `.*?`)?\)(?=[,.])")
_KIND = re.compile(r"calls (\w+).* ranks? [\d, and]+ (\w+)")


def _kinds_differ(case: Seen, seen: Ranked) -> bool:
    found = _KIND.search(_LINE.sub("", seen.said))
    return found is not None and found[1] != found[2]


def wherever(fault: Fault, shows: Callable[[Seen, Ranked], bool], weight: float) -> Explains:
    """Explains if some cases stop with this fault, and all that do have it."""

    def explains(seen: Sequence[Seen]) -> float:
        found = [shows(case, one) for case in seen if (one := _ranked(case)).fault == fault]
        return weight * (bool(found) and all(found))

    return explains


def _is_empty(case: Seen, seen: Ranked) -> bool:
    """The rank at fault has no columns."""
    return case.x[1][seen.rank] == 0


def _is_of_four_ranks(seen: Sequence[Seen]) -> float:
    """Just the cases of four ranks are right."""
    return 0.85 * all((len(case.x[1]) == 4) == case.ok for case in seen)


def _is_of_equal_shards(seen: Sequence[Seen]) -> float:
    """Just cases with shards of different widths are wrong, some of them with another result or another shape."""
    uneven = [len(set(case.x[1])) > 1 for case in seen]
    return 0.6 * all(one for case, one in zip(seen, uneven, strict=True) if not case.ok)


def _without_collectives(seen: Sequence[Seen]) -> float:
    """No case has a collective, and those of several ranks are wrong."""
    told = [_ranked(case) for case in seen]
    return 0.94 * (
        all(one.returned and not one.collectives for one in told) and not any(_has_several(c) and c.ok for c in seen)
    )


def _has_several(case: Seen) -> bool:
    return len(case.x[1]) > 1


def _leaves_one(case: Seen) -> bool:
    return _ranked(case).left > 0


def _overwrites(case: Seen) -> bool:
    return not _ranked(case).kept


def _whole_row(case: Seen) -> bool:
    rows, sizes, *_ = case.x
    shapes = [one.tensors[-1].shape for one in _ranked(case).returned if one.tensors]
    return len(sizes) > 1 and bool(shapes) and all(shape == (len(rows), len(rows[0])) for shape in shapes)


def _loss_comes_last(case: Seen) -> bool:
    """A loss that is the second of two."""
    rows, sizes, *_ = case.x
    found = _ranked(case).returned
    if len(found) != len(sizes):
        return False
    pairs = [(one.tensors, n) for one, n in zip(found, sizes, strict=True) if one.is_several and len(one.tensors) == 2]
    right = [first.shape == (len(rows), n) and second.numel() == 1 for (first, second), n in pairs]
    return bool(found) and len(right) == len(found) and all(right)


def _loss_of_each_row(case: Seen) -> bool:
    found, M = _ranked(case).returned, len(case.x[0])
    return bool(found) and all(one.is_several and one.tensors and one.tensors[0].shape == (M,) for one in found)


def _no_gradient(case: Seen) -> bool:
    found = _ranked(case).returned
    return bool(found) and all(not one.is_several and not one.is_none for one in found)


def _none(case: Seen) -> bool:
    return any(one.is_none for one in _ranked(case).returned)


_OF_FAULT = {
    "endless": stopped_with(Fault.OUT_OF_TIME),
    "ends_its_process": stopped_with(Fault.DIED),
    "prints_without_end": stopped_with(Fault.PRINTED),
    "nothing_returned": _none,
}
_STOPS = (
    *(replace(one, explains=any_of(one.explains, where(_OF_FAULT[one.id]))) for one in GENERAL if one.id in _OF_FAULT),
    *(
        replace(one, explains=any_of(one.explains, where(stopped_with(Fault.RAISED), weight=0.1)))
        for one in GENERAL
        if one.id == "error"
    ),
)
"""Mistakes of every exercise, as ranks show them."""

_OF_BOTH = (
    *_STOPS,
    Mistake(
        "not_waited_for",
        "A collective is begun, and nobody waits for it.",
        "When does a tensor that an asynchronous collective fills hold its result?",
        4,
        where(_leaves_one),
    ),
    Mistake(
        "shard_overwritten",
        "An input is overwritten.",
        "Which line changes the shard itself, or its target, and who needs them afterwards?",
        4,
        where(_overwrites),
    ),
    Mistake(
        "empty_rank_skips",
        "A rank without columns leaves before the collective.",
        "What do the other ranks wait for?",
        4,
        wherever(Fault.DEADLOCK, _is_empty, 0.95),
    ),
    Mistake(
        "ranks_call_differently",
        "Ranks call different collectives.",
        "On what does a rank decide here which collective it calls, and do all ranks know that?",
        4,
        where(stopped_with(Fault.MISMATCH, _kinds_differ), weight=0.9),
    ),
    Mistake(
        "shapes_of_ranks_differ",
        "Ranks hand tensors of different shapes to one collective.",
        "Which shape is the same on every rank, however wide its shard is?",
        1,
        where(stopped_with(Fault.MISMATCH, lambda case, seen: not _kinds_differ(case, seen)), weight=0.8),
    ),
    Mistake(
        "empty_shard_raises",
        "A rank without columns stops with an error.",
        "What is the maximum of no numbers, and does pairs_of have it?",
        4,
        wherever(Fault.RAISED, _is_empty, 0.9),
    ),
    Mistake(
        "some_ranks_wait",
        "Some ranks wait in a collective that another rank does not call.",
        "Which ranks call it, and on what does that depend?",
        4,
        where(stopped_with(Fault.DEADLOCK), weight=0.5),
    ),
    Mistake(
        "nothing_crosses",
        "No rank calls a collective, so nothing crosses.",
        "Which numbers of the other shards does a rank need, and which call brings them?",
        1,
        _without_collectives,
    ),
    Mistake(
        "equal_shards_only",
        "The result is right only if all shards have the same width.",
        "Where does the code take it that another rank has as many columns as this one?",
        1,
        _is_of_equal_shards,
    ),
    Mistake(
        "number_of_ranks_fixed",
        "The number of ranks is written down.",
        "What does group.size() return if there are two ranks, or one?",
        1,
        _is_of_four_ranks,
    ),
)


# 13.2


def _swapped(parts: ShardedRows) -> list[_T]:
    m = parts.l_parts.amax(0)
    return parts.softmax(m, (parts.m_parts * torch.exp(parts.l_parts - m)).sum(0))


def _misread(parts: ShardedRows) -> list[_T]:
    """The gathered (W, M, 2) read as (M, W, 2)."""
    m, l = torch.stack([parts.m_parts, parts.l_parts], dim=2).reshape(len(parts.x), parts.world, 2).unbind(2)
    top = m.amax(1)
    return parts.softmax(top, (l * torch.exp(m - top[:, None])).sum(1))


def _grown(parts: ShardedRows) -> _T:
    """The sum with its factors upside down."""
    return (parts.l_parts * torch.exp(parts.m - parts.m_parts)).sum(0)


def _own(parts: ShardedRows) -> list[_T]:
    return [torch.softmax(shard, 1) for shard in parts.shards]


def _own_numerator(parts: ShardedRows, l: _T) -> list[_T]:
    """exp(x − the maximum of the shard) / l"""
    return [torch.exp(x - m[:, None]) / l[:, None] for x, m in zip(parts.shards, parts.m_parts, strict=True)]


def _by_own_sum(parts: ShardedRows) -> list[_T]:
    """exp(x − m) / the sum of the shard"""
    return [torch.exp(x - parts.m[:, None]) / l[:, None] for x, l in zip(parts.shards, parts.l_parts, strict=True)]


def _of_pairs_in(dtype: torch.dtype) -> Callable[[ShardedRows], list[_T]]:
    """The softmax by pairs that were rounded to 16 bits, and merged in them."""

    def made(parts: ShardedRows) -> list[_T]:
        m_parts, l_parts = parts.m_parts.to(dtype), parts.l_parts.to(dtype)
        m = m_parts.amax(0)
        return parts.softmax(m.float(), (l_parts * torch.exp(m_parts - m)).sum(0).float())

    return made


def _only_rank_0(seen: Sequence[Seen]) -> float:
    """In every wrong case the first rank's part is right, and no other one is."""

    def shows(case: Seen) -> bool:
        found = _parts(case)
        if found is None:
            return False
        right = [agree(a.float(), b, _NEAR) for a, b in zip(found, ShardedRows(*case.x).softmax(), strict=True)]
        return right[0] and not any(one for one, part in zip(right[1:], found[1:], strict=True) if part.numel())

    return every_wrong(shows, 0.95)(seen)


def _own_rescaled(parts: ShardedRows) -> list[_T]:
    """Softmaxes of shards, times each shard's share of the sum."""
    shares = parts.l_parts * torch.exp(parts.m_parts - parts.m) / parts.total
    return [y * share[:, None] for y, share in zip(_own(parts), shares, strict=True)]


def _with_own_again(parts: ShardedRows, times: int) -> list[_T]:
    own = parts.l_parts * torch.exp(parts.m_parts - parts.m)
    pairs = zip(parts.softmax(l=torch.ones_like(parts.total)), own, strict=True)
    return [y / (parts.total + times * l)[:, None] for y, l in pairs]


def _shifts(parts: ShardedRows) -> list[_T]:
    """Numbers that are subtracted in place of the maximum."""
    m = parts.m_parts
    found = [m.mean(0), m.amin(0), m[0], m[-1], m.sum(0), m.median(0).values]
    return found + [torch.where(shift == -INF, 0.0, shift) for shift in found]


_SHIFTED = [lambda parts, which=which: parts.softmax(_shifts(parts)[which]) for which in range(12)]

SOFTMAX_OF_SHARDS = (
    *_OF_BOTH,
    Mistake(
        "own_sum",
        "Each rank divides by the sum of its own shard.",
        "A row of the whole softmax adds up to 1: what do the parts of all ranks add up to here?",
        2,
        softmax_gives(_own, _by_own_sum),
    ),
    Mistake(
        "mean_of_sums",
        "The mean of the ranks' sums is taken, not their sum.",
        "What do the parts of a row add up to here, and with twice as many ranks?",
        2,
        softmax_gives(lambda parts: parts.softmax(l=parts.total / parts.world)),
    ),
    Mistake(
        "pairs_in_16_bits",
        "The pairs cross in 16 bits.",
        "How many digits has a bfloat16, and how many does the result need?",
        1,
        softmax_gives(_of_pairs_in(torch.bfloat16), _of_pairs_in(torch.float16)),
    ),
    Mistake(
        "pairs_reduced",
        "The pairs themselves are reduced.",
        "With which maximum was each l made, and can two of them be added, or compared, before they are made with one?",
        2,
        softmax_gives(
            lambda parts: parts.softmax(parts.m_parts.sum(0), parts.l_parts.sum(0)),
            lambda parts: parts.softmax(parts.m_parts.sum(0).nan_to_num(neginf=0.0), parts.l_parts.sum(0)),
            lambda parts: parts.softmax(l=parts.l_parts.amax(0)),
        ),
    ),
    Mistake(
        "one_tensor_for_all",
        "All places of the list are one and the same tensor.",
        "How many tensors does [t] * 4 make, and what does it hold after four ranks have filled it?",
        1,
        softmax_gives(
            *(lambda parts, r=r: parts.softmax(parts.m_parts[r], parts.world * parts.l_parts[r]) for r in (0, -1))
        ),
    ),
    Mistake(
        "only_rank_0_knows",
        "Only the first rank has what all ranks need.",
        "Which ranks does dist.gather, or a reduce, give the result to?",
        1,
        _only_rank_0,
    ),
    Mistake(
        "logarithm_returned",
        "The logarithm of the softmax comes back.",
        "What do the parts of a row add up to, and what should they?",
        2,
        softmax_gives(lambda parts: [torch.log(y) for y in parts.softmax()]),
    ),
    Mistake(
        "parts_of_base_2",
        "2 is raised to a power, not e.",
        "Of which base are the exponentials that pairs_of adds up?",
        2,
        softmax_gives(
            lambda parts: [torch.exp2(x - parts.m[:, None]) / parts.total[:, None] for x in parts.shards],
            lambda parts: parts.softmax(l=(parts.l_parts * torch.exp2(parts.m_parts - parts.m)).sum(0)),
        ),
    ),
    recognised(names.SUMS_AS_THEY_ARE, 2, softmax_gives(lambda parts: parts.softmax(l=parts.l_parts.sum(0)))),
    recognised(names.RESCALED_WRONG_WAY, 2, softmax_gives(lambda parts: parts.softmax(l=_grown(parts)))),
    Mistake(
        "own_maximum",
        "Each rank's terms are made with its own maximum.",
        "The sum of all shards was made with one maximum: which one?",
        2,
        softmax_gives(
            lambda parts: _own_numerator(parts, parts.total),
            lambda parts: _own_numerator(parts, parts.l_parts.sum(0)),
        ),
    ),
    recognised(
        names.NO_MAXIMUM,
        2,
        softmax_gives(
            lambda parts: parts.softmax(torch.zeros_like(parts.m)),
            lambda parts: parts.softmax(torch.zeros_like(parts.m), parts.total),
        ),
    ),
    Mistake(
        "another_shift",
        "Another number than the largest of the maxima is subtracted.",
        "On paper any number cancels: what is exp(200) in float32, and what is exp(−200)?",
        2,
        softmax_gives(*_SHIFTED),
    ),
    Mistake(
        "sum_left_out",
        "Nothing is divided by the sum.",
        "What do the parts of a row add up to, and what should they?",
        2,
        softmax_gives(lambda parts: parts.softmax(l=torch.ones_like(parts.total))),
    ),
    recognised(names.PAIR_SWAPPED, 1, softmax_gives(_swapped)),
    Mistake(
        "layout_of_gather",
        "The gathered tensor is read in another order than it has.",
        "Which two pairs lie next to each other in the gathered tensor: of one rank, or of one row?",
        1,
        softmax_gives(_misread),
    ),
    Mistake(
        "pair_of_one_rank",
        "The pair of one rank stands for the whole row.",
        "How many ranks have a part of the row?",
        1,
        softmax_gives(
            lambda parts: parts.softmax(parts.m_parts[0], parts.l_parts[0]),
            lambda parts: parts.softmax(parts.m_parts[-1], parts.l_parts[-1]),
        ),
    ),
    Mistake(
        "own_part_twice",
        "A rank counts its own part twice.",
        "Is a rank's own pair among the gathered ones?",
        2,
        softmax_gives(lambda parts: _with_own_again(parts, 1)),
    ),
    Mistake(
        "own_part_left_out",
        "A rank leaves its own part out.",
        "The sum is that of the whole row: does it hold this rank's shard?",
        2,
        softmax_gives(lambda parts: _with_own_again(parts, -1)),
    ),
    Mistake(
        "m_of_empty_shard",
        "A shard without numbers counts with a maximum that is not −inf.",
        "What is the largest of all maxima if the scores are low, and may a shard without numbers change it?",
        3,
        softmax_gives(lambda parts: parts.softmax(parts.m_parts.where(parts.m_parts > -INF, 0.0).amax(0))),
    ),
    Mistake(
        "shard_of_minus_inf",
        "A shard of only −inf gives NaN.",
        "What is −inf − (−inf), and which maximum is finite there?",
        3,
        softmax_gives(_own_rescaled, lambda parts: _own_numerator(parts, parts.total)),
    ),
    Mistake(
        "row_of_minus_inf",
        "A row of only −inf gives something other than NaN.",
        "What does torch.softmax return for that row?",
        3,
        every_wrong(lambda case: all(value == -INF for value in case.x[0][1]), 0.9),
    ),
    Mistake(
        "minus_inf_anywhere",
        "Rows that hold −inf are wrong.",
        "What are m and l of a shard of only −inf, and what is −inf − (−inf)?",
        3,
        every_wrong(lambda case: any(-INF in row for row in case.x[0]), 0.5),
    ),
    Mistake(
        "whole_row_returned",
        "A rank returns the whole row.",
        "Which columns does this rank have?",
        1,
        where(_whole_row, weight=0.96),
    ),
)


# 13.3


def _rest(parts: ShardedRows, weights: _T, by: _T | float) -> _T:
    return (parts.rows_of_loss() * weights).sum() / by


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
    found = _INDEX.search(_ranked(case).said)
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
    parts = ShardedRows(*case.x)
    return not bool(_own_rows(parts)[seen.rank].any())


def _only_ignored(case: Seen) -> bool:
    return all(target == -100 for target in case.x[2])


def _if_all_are_ignored(seen: Sequence[Seen]) -> float:
    """A case of ignored rows alone is wrong, and besides it at most those with an ignored row of only −inf."""
    wrong = [case for case in seen if not case.ok]
    shows = [_only_ignored(one) or _ignores_minus_inf(one) for one in wrong]
    return 0.9 * (any(map(_only_ignored, wrong)) and all(shows))


def _ignores_minus_inf(case: Seen) -> bool:
    rows, _, target = case.x
    return any(t == -100 and all(value == -INF for value in row) for row, t in zip(rows, target, strict=True))


def _some_ignored(case: Seen) -> bool:
    return -100 in case.x[2]


LOSS_OF_SHARDS = (
    *(
        replace(one, hint={"empty_rank_skips": 1, "empty_shard_raises": 1}.get(one.id, 0 if one.id in _OF_FAULT else 1))
        for one in _OF_BOTH
    ),
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
        _outside(lambda index, n: index >= n > 0, 0.96),
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
    recognised(names.RESCALED_WRONG_WAY, 4, loss_gives(lambda parts: parts.loss(_lse(parts, _grown(parts))))),
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
        loss_gives(lambda parts: _rest(parts, parts.counts * 1.0, len(parts.x))),
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
        loss_gives(lambda parts: _rest(parts, parts.counts * 1.0, 1.0)),
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
        gradient_gives(lambda parts: parts.mean(parts.gradient(_own(parts)))),
    ),
    Mistake(
        "gradient_with_own_pair",
        "The gradient is made with the maximum, or the sum, of the shard alone.",
        "Which m and l does every rank know after the collective?",
        4,
        gradient_gives(
            lambda parts: parts.mean(parts.gradient(_own_numerator(parts, parts.total))),
            lambda parts: parts.mean(parts.gradient(_by_own_sum(parts))),
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
