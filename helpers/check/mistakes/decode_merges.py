"""The known mistakes of merging parts of the keys, each told by what it makes of what the parts have left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.decode_walk import PartSums, gives_split, with_merges
from helpers.check.mistakes.recognise import Mistake, recognised
from helpers.check.problems.cases import INF
from helpers.check.problems.problem import Inputs


def _ones(parts: PartSums) -> torch.Tensor:
    return torch.ones_like(parts.m)


def _inverted(parts: PartSums) -> torch.Tensor:
    top = parts.top.masked_fill(parts.top == -INF, 0.0)[:, None]
    return torch.exp(top - parts.m)


def _without_maximum(parts: PartSums) -> Inputs:
    weights = torch.exp(parts.m)
    return torch.zeros_like(parts.top), *parts.summed(weights, weights)[1:]


def _out_of_exponent(parts: PartSums) -> Inputs:
    weights = torch.exp(parts.m) / torch.exp(parts.top)[:, None]
    return parts.summed(weights, weights)


def _with_top(top: Callable[[PartSums], torch.Tensor]) -> Callable[[PartSums], Inputs]:
    return lambda parts: parts.summed(top=top(parts))


_OTHER_TOPS: tuple[Callable[[PartSums], torch.Tensor], ...] = (
    lambda parts: parts.m[:, 0],
    lambda parts: parts.m[:, -1],
    lambda parts: parts.m.sum(1),
    lambda parts: parts.m.amin(1),
)
"""What is taken for the largest m of all parts."""


def _with_empty_at_0(parts: PartSums) -> torch.Tensor:
    """The largest m if that of an empty part is 0."""
    return parts.m.masked_fill(parts.m == -INF, 0.0).amax(1)


def _m_of(top: Callable[[PartSums], torch.Tensor]) -> Callable[[PartSums], Inputs]:
    """Another m is only added to the logarithm."""
    return lambda parts: (top(parts), *parts.summed()[1:])


def _divided(parts: PartSums, guarded: bool = True) -> torch.Tensor:
    return parts.o / (parts.l.masked_fill(parts.l == 0, 1.0) if guarded else parts.l)[..., None]


def _of_divided(
    guarded: bool = True, by: Callable[[PartSums], torch.Tensor] | None = None
) -> Callable[[PartSums], Inputs]:
    """Each o is divided by its l before it gets its weight: then the sum is divided by the l of all, or by another."""

    def merge(parts: PartSums) -> Inputs:
        m, l, _ = parts.summed()
        o = (parts.weights()[..., None] * _divided(parts, guarded)).sum(1)
        return (m, l, o) if by is None else (m, l, o / by(parts)[:, None] * l.masked_fill(l == 0, 1.0)[:, None])

    return merge


def _of_weights(parts: PartSums) -> Inputs:
    """o is divided by the sum of the weights; the log-sum-exp has the right l."""
    m, l, o = parts.summed()
    weights = parts.weights().sum(1).clamp(min=1e-30)
    return m, l, o / weights[:, None] * l.masked_fill(l == 0, 1.0)[:, None]


def _mean(of: Callable[[PartSums], torch.Tensor]) -> Callable[[PartSums], Inputs]:
    """o is a sum of the parts' finished results, over this number."""

    def merge(parts: PartSums) -> Inputs:
        m, l, _ = parts.summed()
        o = _divided(parts).sum(1) / of(parts)[:, None]
        return m, l, o * l.masked_fill(l == 0, 1.0)[:, None]

    return merge


def _parts_with_keys(parts: PartSums) -> torch.Tensor:
    return (parts.l > 0).sum(1).clamp(min=1)


def _lse(of: Callable[[PartSums], torch.Tensor]) -> Callable[[PartSums], Inputs]:
    """Another log-sum-exp, with o as it should be."""

    def merge(parts: PartSums) -> Inputs:
        _, l, o = parts.summed()
        return of(parts) - torch.log(l), l, o

    return merge


def _found(change: Callable[[PartSums], PartSums]) -> Callable[[PartSums], Inputs]:
    """A right merge of other parts."""
    return lambda parts: change(parts).summed()


def _in(dtype: torch.dtype) -> Callable[[PartSums], Inputs]:
    def merge(parts: PartSums) -> Inputs:
        return replace(parts, o=parts.o.to(dtype).float()).summed()

    return merge


def merge_of_base_2(l_too: bool = True) -> Callable[[PartSums], Inputs]:
    """The weights of o, and of l too, are powers of 2."""

    def merge(parts: PartSums) -> Inputs:
        of_2 = parts.weights(exp=torch.exp2)
        return parts.summed(of_2 if l_too else None, of_2)

    return merge


def _swapped(parts: PartSums) -> PartSums:
    return PartSums(parts.l, parts.m, parts.o)


MERGES = (
    recognised(
        names.SUMS_AS_THEY_ARE, 1, gives_split(with_merges(lambda parts: parts.summed(_ones(parts), _ones(parts))))
    ),
    Mistake(
        "o_of_parts_as_they_are",
        "The o of the parts are added as they are.",
        "With which m was each o made, and which weight does its l get?",
        1,
        gives_split(with_merges(lambda parts: parts.summed(o_by=_ones(parts)))),
    ),
    Mistake(
        "l_of_parts_as_they_are",
        "The l of the parts are added as they are.",
        "With which m was each l made, and which weight does its o get?",
        1,
        gives_split(with_merges(lambda parts: parts.summed(l_by=_ones(parts)))),
    ),
    Mistake(
        "weights_inverted",
        "The parts are weighed the wrong way.",
        "Against the largest m, must the sums of a part grow or shrink?",
        1,
        gives_split(
            with_merges(
                lambda parts: parts.summed(_inverted(parts), _inverted(parts)),
                lambda parts: parts.summed(*2 * (torch.where(parts.m == -INF, 0.0, _inverted(parts)),)),
            )
        ),
    ),
    Mistake(
        "weights_without_maximum",
        "The weights are exp(m), and no maximum is subtracted.",
        "What is exp(1000), and what is exp(−1000)?",
        1,
        gives_split(
            with_merges(_without_maximum, lambda parts: (parts.top, *_without_maximum(parts)[1:])),
        ),
    ),
    recognised(names.MAXIMUM_OUT_OF_EXPONENT, 1, gives_split(with_merges(_out_of_exponent))),
    Mistake(
        "maximum_of_one_part",
        "Something other than the largest m is subtracted.",
        "Which part can be trusted to have the largest m, and what is exp of a large number?",
        1,
        gives_split(with_merges(*map(_with_top, _OTHER_TOPS), _with_top(lambda parts: parts.m.mean(1)))),
    ),
    Mistake(
        "another_m_in_lse",
        "The m of the log-sum-exp is another one than the weights have.",
        "l is a sum relative to one m: which one belongs to its logarithm?",
        1,
        gives_split(with_merges(*map(_m_of, _OTHER_TOPS))),
    ),
    Mistake(
        "o_of_parts_divided",
        "Each o is divided by its own l before it gets its weight.",
        "A part of a hundred keys and a part of one: where are the hundred left, once o is divided?",
        1,
        gives_split(
            with_merges(
                _of_divided(),
                _of_divided(guarded=False),
                _of_divided(by=lambda parts: parts.weights().sum(1).clamp(min=1e-30)),
                _of_divided(guarded=False, by=lambda parts: parts.weights().sum(1)),
            )
        ),
    ),
    Mistake(
        "mean_of_parts",
        "The results of the parts are added or averaged, whatever they weigh.",
        "Does a part whose scores are all low say as much as one whose scores are high?",
        1,
        gives_split(
            with_merges(
                _mean(lambda parts: torch.full_like(parts.top, parts.m.shape[1])),
                _mean(_parts_with_keys),
                _mean(lambda parts: torch.ones_like(parts.top)),
            )
        ),
    ),
    Mistake(
        "divided_by_weights",
        "o is divided by the sum of the weights, not by l.",
        "A part of a hundred keys has one weight: how many exponentials does its l have?",
        1,
        gives_split(with_merges(_of_weights)),
    ),
    Mistake(
        "lse_of_parts_added",
        "The log-sum-exps of the parts are added, or one of them is taken.",
        "Sums of exponentials are added: are their logarithms?",
        1,
        gives_split(
            with_merges(
                _lse(lambda parts: parts.lse.sum(1)),
                _lse(lambda parts: parts.lse.masked_fill(parts.l == 0, 0.0).sum(1)),
                _lse(lambda parts: parts.lse.amax(1)),
                _lse(lambda parts: parts.lse[:, 0]),
            )
        ),
    ),
    Mistake(
        "weights_of_base_2_in_merge",
        "The weights are powers of 2, not of e.",
        "exp2(x) is 2 to the power of x: by which number must x be multiplied, so that it is e to the power of x?",
        1,
        gives_split(with_merges(merge_of_base_2(), merge_of_base_2(l_too=False))),
    ),
    Mistake(
        "part_left_out",
        "A part is left out of the merge.",
        "How many parts are there, and which lanes does the mask let through?",
        3,
        gives_split(
            with_merges(
                *(
                    _found(lambda parts, some=some: parts.only(some))
                    for some in (slice(-1), slice(1, None), slice(1), slice(4), slice(-1, None))
                )
            )
        ),
    ),
    Mistake(
        "lanes_without_part",
        "Lanes without a part take part in the merge.",
        "Which m, l and o has a part that changes nothing, and what do the lanes from S on hold?",
        3,
        gives_split(
            with_merges(
                lambda parts: parts.summed(top=parts.top.clamp(min=0.0)),
                lambda parts: parts.summed(top=parts.top.clamp(min=1.0)),
                lambda parts: (lambda m, l, o: (m, l + 2 * torch.exp(-m), o))(
                    *parts.summed(top=parts.top.clamp(min=0.0))
                ),
            )
        ),
    ),
    Mistake(
        "m_of_empty_part",
        "An empty part counts with an m that is not −inf.",
        "What is the largest m if all scores are low, and may a part without keys change it?",
        3,
        gives_split(with_merges(_with_top(_with_empty_at_0))),
    ),
    Mistake(
        "nan_of_idle_lanes",
        "Every result is NaN.",
        "A lane from S on has no part: are its weight and its l finite numbers?",
        3,
        gives_split(with_merges(lambda parts: (parts.top, torch.nan * parts.top, torch.nan * parts.o[:, 0]))),
    ),
    Mistake(
        "parts_of_another_head",
        "A head gets the parts of another one.",
        "How many parts lie in the buffer before the first one of this head?",
        0,
        gives_split(
            with_merges(
                _found(lambda parts: parts.taken(lambda head, i: 0 * head + i)),
                _found(lambda parts: parts.taken(lambda head, i: head + i)),
                _found(lambda parts: parts.taken(lambda head, i: i * len(parts.m) + head)),
                _found(lambda parts: replace(parts, o=parts.taken(lambda head, i: 0 * head + i).o)),
            )
        ),
    ),
    Mistake(
        "m_for_l_of_parts",
        "m and l change places, or one of them is loaded twice.",
        "In which order does part_kernel store the two numbers of a part?",
        0,
        gives_split(
            with_merges(
                _found(_swapped),
                _found(lambda parts: replace(parts, l=parts.m)),
                _found(lambda parts: replace(parts, m=parts.l)),
            )
        ),
    ),
    Mistake(
        "merge_in_16_bits",
        "The parts are summed in 16 bits.",
        "In which dtype do the parts lie, and when is o rounded to that of q?",
        0,
        gives_split(with_merges(_in(torch.bfloat16), _in(torch.float16))),
    ),
)
"""Mistakes of both exercises."""
