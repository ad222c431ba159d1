"""The known mistakes of the softmax of a row that lies over ranks, exercise 13.2."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.ranks import OF_BOTH, every_wrong, near, ranked, returned_parts, softmax_gives
from helpers.check.mistakes.recognise import INF, Mistake, Seen, if_some_wrong, recognised, where
from helpers.check.mistakes.sharded_rows import ShardedRows, by_own_sum, grown_sum, own_numerator, own_softmax
from helpers.check.problems.sharded import agree

_T = torch.Tensor


def _swapped(parts: ShardedRows) -> list[_T]:
    m = parts.l_parts.amax(0)
    return parts.softmax(m, (parts.m_parts * torch.exp(parts.l_parts - m)).sum(0))


def _misread(low: float) -> Callable[[ShardedRows], list[_T]]:
    """The gathered (W, M, 2) read as (M, W, 2); `low` is subtracted if the largest maximum is −inf."""

    def made(parts: ShardedRows) -> list[_T]:
        m, l = torch.stack([parts.m_parts, parts.l_parts], dim=2).reshape(len(parts.x), parts.world, 2).unbind(2)
        top = m.amax(1)
        top = top.where(top != -INF, low)
        return parts.softmax(top, (l * torch.exp(m - top[:, None])).sum(1))

    return made


def _of_pairs_in(dtype: torch.dtype) -> Callable[[ShardedRows], list[_T]]:
    """The softmax by pairs that were rounded to 16 bits, and merged in them."""

    def made(parts: ShardedRows) -> list[_T]:
        m_parts, l_parts = parts.m_parts.to(dtype), parts.l_parts.to(dtype)
        m = m_parts.amax(0)
        return parts.softmax(m.float(), (l_parts * torch.exp(m_parts - m)).sum(0).float())

    return made


def _in_float32(case: Seen) -> bool:
    return case.x.dtype == "float32"


def _only_rank_0(seen: Sequence[Seen]) -> float:
    """In every wrong case the first rank's part is right, and no other one is; or rank 0 is not in the group."""

    def shows(case: Seen) -> bool:
        found = returned_parts(case)
        if found is None:
            return case.x.groups > 1
        right = [agree(a.float(), b, near(case)) for a, b in zip(found, ShardedRows(case.x).softmax(), strict=True)]
        return right[0] and not any(one for one, part in zip(right[1:], found[1:], strict=True) if part.numel())

    return every_wrong(shows, 0.95)(seen)


def _own_rescaled(parts: ShardedRows) -> list[_T]:
    """Softmaxes of shards, times each shard's share of the sum."""
    shares = parts.l_parts * torch.exp(parts.m_parts - parts.m) / parts.total
    return [y * share[:, None] for y, share in zip(own_softmax(parts), shares, strict=True)]


def _with_own_again(parts: ShardedRows, times: int) -> list[_T]:
    own = parts.l_parts * torch.exp(parts.m_parts - parts.m)
    pairs = zip(parts.softmax(l=torch.ones_like(parts.total)), own, strict=True)
    return [y / (parts.total + times * l)[:, None] for y, l in pairs]


def _shifts(parts: ShardedRows) -> list[_T]:
    """Numbers that are subtracted in place of the maximum."""
    m = parts.m_parts
    found = [m.mean(0), m.amin(0), m[0], m[-1], m.sum(0), m.median(0).values]
    return found + [torch.where(shift == -INF, 0.0, shift) for shift in found]


def _whole_row(case: Seen) -> bool:
    rows, sizes, *_ = case.x
    shapes = [one.tensors[-1].shape for one in ranked(case).returned if one.tensors]
    return len(sizes) > 1 and bool(shapes) and all(shape == (len(rows), len(rows[0])) for shape in shapes)


_SHIFTED = [lambda parts, which=which: parts.softmax(_shifts(parts)[which]) for which in range(12)]

SOFTMAX_OF_SHARDS = (
    *OF_BOTH,
    Mistake(
        "own_sum",
        "Each rank divides by the sum of its own shard.",
        "A row of the whole softmax adds up to 1: what do the parts of all ranks add up to here?",
        2,
        softmax_gives(own_softmax, by_own_sum),
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
        if_some_wrong(_in_float32, softmax_gives(_of_pairs_in(torch.bfloat16), _of_pairs_in(torch.float16))),
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
            *(
                lambda parts, r=r, low=low: parts.softmax(
                    parts.m_parts[r].where(parts.m_parts[r] > -INF, low), parts.world * parts.l_parts[r]
                )
                for r in (0, -1)
                for low in (-INF, 0.0)
            )
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
    recognised(names.RESCALED_WRONG_WAY, 2, softmax_gives(lambda parts: parts.softmax(l=grown_sum(parts)))),
    Mistake(
        "own_maximum",
        "Each rank's terms are made with its own maximum.",
        "The sum of all shards was made with one maximum: which one?",
        2,
        softmax_gives(
            lambda parts: own_numerator(parts, parts.total),
            lambda parts: own_numerator(parts, parts.l_parts.sum(0)),
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
        "maximum_of_all_rows",
        "One maximum is taken for all rows.",
        "How many maxima do four rows have, and which dimension has the ranks?",
        2,
        softmax_gives(lambda parts: parts.softmax(parts.m.amax().expand(len(parts.m)))),
    ),
    Mistake(
        "another_shift",
        "Another number than the largest of the maxima is subtracted.",
        "On paper any number cancels: what is exp(200) in float32, and what is exp(−200)?",
        2,
        softmax_gives(*_SHIFTED, weight=0.88),
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
        softmax_gives(_misread(-INF), _misread(0.0)),
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
        softmax_gives(
            *(
                lambda parts, low=low: parts.softmax(parts.m_parts.where(parts.m_parts > -INF, low).amax(0))
                for low in (0.0, -1e4, -1e5, -1e9)
            )
        ),
    ),
    Mistake(
        "shard_of_minus_inf",
        "A shard of only −inf gives NaN.",
        "What is −inf − (−inf), and which maximum is finite there?",
        3,
        softmax_gives(_own_rescaled, lambda parts: own_numerator(parts, parts.total)),
    ),
    Mistake(
        "row_of_minus_inf",
        "A row of only −inf gives something other than NaN.",
        "What does torch.softmax return for that row?",
        3,
        every_wrong(lambda case: any(all(value == -INF for value in row) for row in case.x.rows), 0.9),
    ),
    Mistake(
        "minus_inf_anywhere",
        "Rows that hold −inf, or have a shard without columns, are wrong.",
        "What are m and l of a shard of only −inf, and what is −inf − (−inf)?",
        3,
        every_wrong(lambda case: 0 in case.x.sizes or any(-INF in row for row in case.x.rows), 0.5),
    ),
    Mistake(
        "whole_row_returned",
        "A rank returns the whole row.",
        "Which columns does this rank have?",
        1,
        where(_whole_row, weight=0.96),
    ),
)
