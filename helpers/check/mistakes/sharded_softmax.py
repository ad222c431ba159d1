"""The known mistakes of the softmax of a row that lies over ranks, exercise 13.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist

from helpers.check.mistakes import names
from helpers.check.mistakes.edited_ranks import OfRanks, pairs_of, ranked, returned_parts
from helpers.check.mistakes.ranks import OF_BOTH, every_wrong
from helpers.check.mistakes.recognise import INF, Mistake, Seen, if_some_wrong, where


def softmax_of_shard(shard: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    """This rank's part of the softmax of the whole row."""
    pairs = pairs_of(shard)
    found = [torch.empty_like(pairs) for _ in range(group.size())]
    dist.all_gather(found, pairs, group=group)
    m_parts, l_parts = torch.stack(found).unbind(dim=2)
    m = m_parts.amax(dim=0)
    shift = torch.where(m == -float("inf"), 0.0, m)
    l = (l_parts * torch.exp(m_parts - shift)).sum(dim=0)
    y = torch.exp(shard - shift[:, None]) / l[:, None]
    return y.to(shard.dtype)


def _in_float32(case: Seen) -> bool:
    return case.x.dtype == "float32"


def _only_rank_0(seen: Sequence[Seen]) -> float:
    """In every wrong case the first rank's part is right, and no other one is; or rank 0 is not in the group."""

    def shows(case: Seen) -> bool:
        found = returned_parts(case)
        if found is None:
            return case.x.groups > 1
        first, *others = _OF_SHARD.agreeing((), case)
        return first and not any(one for one, part in zip(others, found[1:], strict=True) if part.numel())

    return every_wrong(shows, 0.95)(seen)


def _whole_row(case: Seen) -> bool:
    rows, sizes, *_ = case.x
    shapes = [one.tensors[-1].shape for one in ranked(case).returned if one.tensors]
    return len(sizes) > 1 and bool(shapes) and all(shape == (len(rows), len(rows[0])) for shape in shapes)


_OF_SHARD = OfRanks(softmax_of_shard)
_PAIRS, _FOUND = "    pairs = pairs_of(shard)", "found = [torch.empty_like(pairs) for _ in range(group.size())]"
_GATHER, _M = "dist.all_gather(found, pairs, group=group)", "m = m_parts.amax(dim=0)"
_UNBIND, _STACKED = "m_parts, l_parts = torch.stack(found).unbind(dim=2)", "torch.stack(found)"
_SHIFT, _FACTOR = 'shift = torch.where(m == -float("inf"), 0.0, m)', "torch.exp(m_parts - shift)"
_SUM = f"l = (l_parts * {_FACTOR}).sum(dim=0)"
_Y, _OWN = "y = torch.exp(shard - shift[:, None]) / l[:, None]", "pairs[:, 1] * torch.exp(pairs[:, 0] - shift)"
_OF_OWN_M = "y = torch.exp(shard - pairs[:, :1]) / l[:, None]"


def _reduced(op: str) -> tuple[str, ...]:
    """The pairs of all ranks reduced, without a gather."""
    reduce = f"dist.all_reduce(found, dist.ReduceOp.{op}, group=group)"
    return (
        _FOUND,
        "found = pairs.clone()",
        _GATHER,
        reduce,
        _UNBIND,
        "m, l = found.unbind(dim=1)",
        _M,
        "",
        _SUM,
        "l = l",
    )


_IN_16_BITS = _OF_SHARD.mistake(
    "pairs_in_16_bits",
    "The pairs cross in 16 bits.",
    "How many digits has a bfloat16, and how many does the result need?",
    1,
    (_PAIRS, f"{_PAIRS}.bfloat16()"),
    (_PAIRS, f"{_PAIRS}.half()"),
)

SOFTMAX_OF_SHARDS = (
    *OF_BOTH,
    _OF_SHARD.mistake(
        "own_sum",
        "Each rank divides by the sum of its own shard.",
        "A row of the whole softmax adds up to 1: what do the parts of all ranks add up to here?",
        2,
        (_Y, "y = torch.softmax(shard, dim=1)"),
        (_Y, "y = torch.exp(shard - shift[:, None]) / pairs[:, 1:]"),
    ),
    _OF_SHARD.mistake(
        "mean_of_sums",
        "The mean of the ranks' sums is taken, not their sum.",
        "What do the parts of a row add up to here, and with twice as many ranks?",
        2,
        (".sum(dim=0)", ".mean(dim=0)"),
    ),
    replace(_IN_16_BITS, explains=if_some_wrong(_in_float32, _IN_16_BITS.explains)),
    _OF_SHARD.mistake(
        "pairs_reduced",
        "The pairs themselves are reduced.",
        "With which maximum was each l made, and can two of them be added, or compared, before they are made with one?",
        2,
        _reduced("SUM"),
        _reduced("MAX"),
    ),
    _OF_SHARD.mistake(
        "one_tensor_for_all",
        "All places of the list are one and the same tensor.",
        "How many tensors does [t] * 4 make, and what does it hold after four ranks have filled it?",
        1,
        (_FOUND, "found = [torch.empty_like(pairs)] * group.size()"),
        (_STACKED, "torch.stack([found[0]] * group.size())"),
    ),
    Mistake(
        "only_rank_0_knows",
        "Only the first rank has what all ranks need.",
        "Which ranks does dist.gather, or a reduce, give the result to?",
        1,
        _only_rank_0,
    ),
    _OF_SHARD.named(
        names.LOGARITHM_RETURNED,
        2,
        (_Y, "y = shard - shift[:, None] - torch.log(l)[:, None]"),
        (_Y, f"{_Y}\n    y = torch.log(y)"),
    ),
    _OF_SHARD.mistake(
        "parts_of_base_2",
        "2 is raised to a power, not e.",
        "Of which base are the exponentials that pairs_of adds up?",
        2,
        (_Y, _Y.replace("exp", "exp2")),
        (_FACTOR, _FACTOR.replace("exp", "exp2")),
    ),
    _OF_SHARD.named(names.SUMS_AS_THEY_ARE, 2, (_SUM, "l = l_parts.sum(dim=0)")),
    _OF_SHARD.mistake(
        "largest_sum",
        "The largest of the ranks' sums is taken.",
        "What do the sums of all shards make together?",
        2,
        (_SUM, _SUM.replace(".sum(dim=0)", ".amax(dim=0)")),
    ),
    _OF_SHARD.named(names.RESCALED_WRONG_WAY, 2, (_FACTOR, "torch.exp(shift - m_parts)")),
    _OF_SHARD.mistake(
        "own_maximum",
        "Each rank's terms are made with its own maximum.",
        "The sum of all shards was made with one maximum: which one?",
        2,
        (_Y, _OF_OWN_M),
        (_SUM, "l = l_parts.sum(dim=0)", _Y, _OF_OWN_M),
    ),
    _OF_SHARD.named(
        names.NO_MAXIMUM, 2, (_SHIFT, "shift = torch.zeros_like(m)"), (_Y, "y = torch.exp(shard) / l[:, None]")
    ),
    _OF_SHARD.mistake(
        "maximum_of_all_rows",
        "One maximum is taken for all rows.",
        "How many maxima do four rows have, and which dimension has the ranks?",
        2,
        (_M, "m = m_parts.amax().expand(len(shard))"),
    ),
    _OF_SHARD.mistake(
        "sum_left_out",
        "Nothing is divided by the sum.",
        "What do the parts of a row add up to, and what should they?",
        2,
        (" / l[:, None]", ""),
    ),
    _OF_SHARD.named(names.PAIR_SWAPPED, 1, ("m_parts, l_parts = torch", "l_parts, m_parts = torch")),
    _OF_SHARD.mistake(
        "layout_of_gather",
        "The gathered tensor is read in another order than it has.",
        "Which two pairs lie next to each other in the gathered tensor: of one rank, or of one row?",
        1,
        (_STACKED, f"{_STACKED}.view(len(pairs), -1, 2).transpose(0, 1)"),
    ),
    _OF_SHARD.mistake(
        "pair_of_one_rank",
        "The pair of one rank stands for the whole row.",
        "How many ranks have a part of the row?",
        1,
        (_STACKED, "found[0][None]"),
        (_STACKED, "found[-1][None]"),
    ),
    _OF_SHARD.mistake(
        "own_part_twice",
        "A rank counts its own part twice.",
        "Is a rank's own pair among the gathered ones?",
        2,
        (_SUM, f"{_SUM} + {_OWN}"),
    ),
    _OF_SHARD.mistake(
        "own_part_left_out",
        "A rank leaves its own part out.",
        "The sum is that of the whole row: does it hold this rank's shard?",
        2,
        (_SUM, f"{_SUM} - {_OWN}"),
    ),
    _OF_SHARD.mistake(
        "m_of_empty_shard",
        "A shard without numbers counts with a maximum that is not −inf.",
        "What is the largest of all maxima if the scores are low, and may a shard without numbers change it?",
        3,
        *((_M, f'm = m_parts.where(m_parts > -float("inf"), {low}).amax(dim=0)') for low in ("0.0", -1e4, -1e5, -1e9)),
    ),
    _OF_SHARD.mistake(
        "shard_of_minus_inf",
        "A shard of only −inf gives NaN.",
        "What is −inf − (−inf), and which maximum is finite there?",
        3,
        (_Y, f"y = torch.softmax(shard, dim=1) * ({_OWN} / l)[:, None]"),
    ),
    _OF_SHARD.mistake(
        "another_shift",
        "Another number than the largest of the maxima is subtracted.",
        "On paper any number cancels: what is exp(200) in float32, and what is exp(−200)?",
        2,
        *(
            (_M, f"m = m_parts{other}")
            for other in (".mean(dim=0)", ".amin(dim=0)", "[0]", "[-1]", ".sum(dim=0)", ".median(dim=0).values")
        ),
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
