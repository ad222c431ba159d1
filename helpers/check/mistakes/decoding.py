"""The known mistakes of one query a head: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.attention import ATTENTION_MISTAKES, LOW_SCORES
from helpers.check.mistakes.attention_walk import ScoreTile, wrong_only
from helpers.check.mistakes.decode_walk import (
    RIGHT_SPLIT,
    PartSums,
    Split,
    gives_split,
    result_of,
    stepped,
    with_bounds,
    with_merges,
)
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, is_16_bit, recognised, where
from helpers.check.mistakes.shared import result_used_again
from helpers.check.problems.cases import INF
from helpers.check.problems.decoding import DECODE, group_of
from helpers.check.problems.problem import Inputs

_LOG2E = 1.4426950408889634
_OF_LESSON_11 = {mistake.id: mistake for mistake in ATTENTION_MISTAKES}


def _of_lesson_11(*ids: str, hint: int = 0) -> tuple[Mistake, ...]:
    """Mistakes of lesson 11's kernel that are recognised here as they are there."""
    return tuple(replace(_OF_LESSON_11[id], hint=hint) for id in ids)


def _walked(hint: int, splits: Mapping[str, Sequence[Split]]) -> tuple[Mistake, ...]:
    """Mistakes of lesson 11's kernel that are recognised by what they make of parts."""
    return tuple(replace(_OF_LESSON_11[id], hint=hint, explains=gives_split(*these)) for id, these in splits.items())


_BEFORE = tuple(
    mistake
    for mistake in ATTENTION_MISTAKES[: [one.id for one in ATTENTION_MISTAKES].index("o_not_rescaled")]
    if mistake.id != "result_used_again"
)
"""What lesson 11 asks first: whether an answer returns, and tensors of the right kind."""
_STARTS = (*_BEFORE, result_used_again(DECODE))


# Merges


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


def _exp2(l_too: bool = True) -> Callable[[PartSums], Inputs]:
    def merge(parts: PartSums) -> Inputs:
        of_2 = parts.weights(exp=torch.exp2)
        return parts.summed(of_2 if l_too else None, of_2)

    return merge


def _swapped(parts: PartSums) -> PartSums:
    return PartSums(parts.l, parts.m, parts.o)


# Which keys a part has


def _of_floor(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return part * (N // parts), (part + 1) * (N // parts)


def _one_less(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, end = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, end - 1


def _one_less_but_for_the_end(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, _ = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, first - (-N // parts) - 1)


def _one_more(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, end = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, end + 1)


def _without_first(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, end = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return min(N, first + 1), end


def _from_0(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return 0, RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)[1]


def _to_N(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)[0], N


def _all_keys(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return 0, N


def _by_number(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return min(N, part), min(N, part + -(-N // parts))


def _whole_tiles(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    """Lanes are masked with N: a part goes on to the end of its last tile."""
    first, end = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, first + -(-(end - first) // BLOCK_N) * BLOCK_N)


def _length(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, _ = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, -(-N // parts))


def _tile_a_part(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return min(N, part * BLOCK_N), min(N, (part + 1) * BLOCK_N)


# Both exercises


def _shown(seen: Seen) -> bool:
    return bool(seen.trial.results)


def _is_untouched(seen: Seen) -> bool:
    """o is 0 and the log-sum-exp −inf, as the starter code stores them."""
    o, lse = seen.trial.results
    return bool((o == 0).all() and (lse == -INF).all())


def _keys_are_loaded(seen: Seen) -> bool:
    return seen.trial.loads >= seen.others[0].numel()


def _nothing_merged(keys: bool) -> Explains:
    """All results are the starter's, and keys were loaded, or were not."""

    def explains(seen: Sequence[Seen]) -> float:
        shown = [case for case in seen if _shown(case) and case.others[0].numel()]
        wrong = [case for case in shown if not case.ok]
        of_keys = sum(one.numel() for case in wrong for one in case.others)
        loaded = sum(case.trial.loads for case in wrong) >= of_keys
        return 1.0 * (bool(wrong) and all(map(_is_untouched, shown)) and loaded == keys)

    return explains


def _if_keys_are_not_loaded(explains: Explains) -> Explains:
    """As `explains`, if some wrong case loads fewer numbers than K has."""
    return _if_some_wrong(lambda case: _shown(case) and not _keys_are_loaded(case), explains)


def _if_some_wrong(has: Callable[[Seen], bool], explains: Explains) -> Explains:
    """As `explains`, if some wrong case has this."""
    return lambda seen: explains(seen) if any(has(case) and not case.ok for case in seen) else 0.0


def _is_laid_out(seen: Seen) -> bool:
    """Something of the case lies apart, or in another order."""
    return not all(one.is_contiguous() for one in seen.inputs)


def _only_laid_out(seen: Sequence[Seen]) -> float:
    """Every wrong case lies apart."""
    wrong = [case for case in seen if not case.ok]
    return 0.9 * (bool(wrong) and all(map(_is_laid_out, wrong)))


def _is_near(seen: Seen) -> bool:
    want = DECODE.expected(*seen.inputs)
    pairs = zip(seen.trial.results, want, strict=True)
    return all(torch.isclose(got.double(), one, 1e-2, 1e-2, equal_nan=True).all() for got, one in pairs)


def _is_nearly_right(seen: Sequence[Seen]) -> float:
    """Most wrong results of float32 are right to a hundredth: scores in the thousands show lost digits more."""
    wrong = [case for case in seen if _shown(case) and case.x.dtype == torch.float32 and not case.ok]
    return 0.6 * (len(wrong) > 3 and sum(map(_is_near, wrong)) > 0.7 * len(wrong))


_ENDS = _walked(
    1,
    {
        "not_divided_by_l": [result_of(o=lambda m, l, o: o)],
        "divided_twice": [result_of(o=lambda m, l, o: o / l.masked_fill(l == 0, 1.0)[..., None] ** 2)],
        "lse_base_2": [
            result_of(lse=lambda m, l, o: m + torch.log2(l)),
            result_of(lse=lambda m, l, o: m * _LOG2E + torch.log2(l)),
            result_of(lse=lambda m, l, o: m * _LOG2E + torch.log(l)),
        ],
        "lse_without_m": [result_of(lse=lambda m, l, o: torch.log(l)), result_of(lse=lambda m, l, o: l)],
        "lse_without_log": [result_of(lse=lambda m, l, o: m + l), result_of(lse=lambda m, l, o: m)],
        "lse_negative": [
            result_of(lse=lambda m, l, o: -m - torch.log(l)),
            result_of(lse=lambda m, l, o: m - torch.log(l)),
        ],
    },
)
_EMPTY = _walked(
    3,
    {
        "empty_query": [
            result_of(o=lambda m, l, o: o / l[..., None]),
            result_of(lse=lambda m, l, o: m + torch.log(l.masked_fill(l == 0, 1.0)).where(m > -INF, 0.0)),
            result_of(lse=lambda m, l, o: (m + torch.log(l)).masked_fill(l == 0, 0.0)),
            *with_merges(
                lambda parts: parts.summed(*2 * (torch.exp(parts.m - parts.top[:, None]),)),
                lambda parts: parts.summed(o_by=torch.exp(parts.m - parts.top[:, None])),
            ),
        ],
    },
)

_MERGES = (
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
        gives_split(with_merges(_exp2(), _exp2(l_too=False))),
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
_BOUNDS = (
    Mistake(
        "keys_left_out",
        "Some keys belong to no part.",
        "If the parts do not divide N, or N is smaller than their number: who has the last keys?",
        2,
        gives_split(with_bounds(_of_floor, _one_less, _one_less_but_for_the_end, _without_first, _tile_a_part)),
    ),
    Mistake(
        "end_is_a_length",
        "The end of a part is taken for its length.",
        "What is the number of the key after the last one of part 1?",
        2,
        _if_keys_are_not_loaded(gives_split(with_bounds(_length))),
    ),
    Mistake(
        "keys_of_two_parts",
        "Some keys belong to several parts.",
        "Which key is the last one of part 0, and which the first of part 1?",
        2,
        gives_split(with_bounds(_one_more, _from_0, _to_N, _all_keys, _by_number)),
    ),
)
_NOTHING = (
    Mistake(
        "no_part_has_keys",
        "The parts have no keys.",
        "What are first and end of a part, as long as they are what the starter code makes them?",
        2,
        _nothing_merged(keys=False),
    ),
    Mistake(
        "parts_never_merged",
        "The parts are made, and nothing is merged.",
        "Which lines load what the parts have left?",
        1,
        _nothing_merged(keys=True),
    ),
)


def _symptoms(past_the_end: int, guard: int) -> tuple[Mistake, ...]:
    """Mistakes that are known only by where they show."""
    return (
        replace(_OF_LESSON_11["strides_of_another"], explains=_only_laid_out),
        *_of_lesson_11("past_the_end", hint=past_the_end),
        *_of_lesson_11("results_not_stored"),
        *_of_lesson_11("wrong_with_minus_inf", hint=guard),
        *_of_lesson_11("wrong_in_16_bits"),
        replace(_OF_LESSON_11["not_exact"], explains=_is_nearly_right),
        replace(_OF_LESSON_11["lse_wrong"], explains=wrong_only(DECODE, 1)),
    )


DECODE_MISTAKES = (*_STARTS, *_NOTHING, *_BOUNDS, *_MERGES, *_ENDS, *_EMPTY, *_symptoms(past_the_end=2, guard=3))


# The tile of a group


def _unguarded(tile: ScoreTile) -> torch.Tensor:
    return tile.exp(tile.m - tile.m_new)


def _grown(tile: ScoreTile) -> torch.Tensor:
    return tile.exp(tile.shift - tile.m).masked_fill(tile.m == -INF, 0.0)


def _late(tile: ScoreTile) -> Inputs:
    of_l, of_o = tile.terms()
    return tile.l * tile.factor + of_l, (tile.o + of_o) * tile.factor[..., None]


def _both_late(tile: ScoreTile) -> Inputs:
    of_l, of_o = tile.terms()
    return (tile.l + of_l) * tile.factor, (tile.o + of_o) * tile.factor[..., None]


def _divided_in_tile(tile: ScoreTile) -> Inputs:
    l, o = tile.summed()
    return l, o / l.masked_fill(l == 0, 1.0)[..., None]


def _old_maximum(tile: ScoreTile) -> Inputs:
    return tile.summed(tile.p(tile.m.masked_fill(tile.m == -INF, 0.0)))


def _rounded(dtype: torch.dtype) -> Callable[[ScoreTile], Inputs]:
    def step(tile: ScoreTile) -> Inputs:
        l, o = tile.summed()
        return l, o.to(dtype).float()

    return step


def _at_most_float16(tile: ScoreTile) -> Inputs:
    l, o = tile.summed()
    return l.half().float(), o.half().float()


_STEPS = _walked(
    2,
    {
        "o_not_rescaled": [stepped(step=lambda tile: tile.summed(o_by=torch.ones_like(tile.m)))],
        "l_not_rescaled": [stepped(step=lambda tile: tile.summed(l_by=torch.ones_like(tile.m)))],
        "nothing_rescaled": [
            stepped(step=lambda tile: tile.summed(l_by=torch.ones_like(tile.m), o_by=torch.ones_like(tile.m)))
        ],
        "old_sums_grow": [stepped(step=lambda tile: tile.summed(l_by=_grown(tile), o_by=_grown(tile)))],
        "rescaled_late": [stepped(step=_late), stepped(step=_both_late)],
        "weights_of_old_maximum": [stepped(step=_old_maximum)],
        "m_never_kept": [stepped(keep=lambda tile: tile.m)],
        "m_of_last_tile": [stepped(top=lambda m, top: top)],
        "sums_of_last_tile": [
            stepped(step=ScoreTile.terms),
            stepped(step=lambda tile: (tile.summed()[0], tile.terms()[1])),
            stepped(step=lambda tile: (tile.terms()[0], tile.summed()[1])),
        ],
        "divided_in_every_tile": [stepped(step=_divided_in_tile)],
        "m_starts_high": [stepped(start=start) for start in (0.0, -1.0, -100.0, -1e4)],
        "maximum_missing": [stepped(start=shift, top=lambda m, top: m) for shift in (0.0, 10.0)],
        "one_tile": [
            stepped(
                bounds=lambda part, S, N, n: (b := RIGHT_SPLIT.bounds(part, S, N, n)) and (b[0], min(b[1], b[0] + n))
            )
        ],
    },
)
_SCORES = _walked(
    0,
    {
        "no_scale": [stepped(scale=lambda d: 1.0)],
        "scaled_by_d": [
            *(stepped(scale=scale) for scale in (lambda d: 1 / d, lambda d: d**0.5, lambda d: d**-0.25)),
            stepped(scale=lambda d: 0.125),
        ],
        "scores_of_base_2": [
            stepped(exp=torch.exp2),
            stepped(exp=torch.exp2, merge=_exp2()),
        ],
        "keys_as_values": [
            stepped(inputs=lambda q, k, v: (q, k, k)),
            stepped(inputs=lambda q, k, v: (q, v, k)),
            stepped(inputs=lambda q, k, v: (q, v, v)),
        ],
        "scores_not_exponentials": [
            stepped(
                step=lambda tile: (
                    tile.summed()[0],
                    tile.o * tile.factor[..., None] + tile.s.masked_fill(tile.s == -INF, 0.0) @ tile.v.float(),
                )
            )
        ],
        "mean_of_values": [stepped(scale=lambda d: 0.0, score=lambda s: s.nan_to_num(0) * 0)],
    },
)  # fmt: skip
_OF_TAILS = _walked(
    3,
    {
        "tail_scores_0": [stepped(beyond=0.0)],
        "tail_scores_low_number": [stepped(beyond=low) for low in LOW_SCORES],
        "empty_tile_of_keys": [
            stepped(step=lambda tile: tile.summed(tile.p(tile.m_new), _unguarded(tile), _unguarded(tile))),
            stepped(step=lambda tile: tile.summed(None, _unguarded(tile), _unguarded(tile))),
            stepped(step=lambda tile: tile.summed(tile.p(tile.m_new))),
        ],
    },
)


def _regrouped(rows: Callable[[torch.Tensor, int, int], torch.Tensor]) -> Split:
    """Query head h finds the head rows(h, G, heads) of keys."""

    def inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
        at = rows(torch.arange(len(q)), group_of(q, k), len(k)) % len(k)
        return q, k[at], v[at]

    return stepped(inputs=inputs)


def _queried(rows: Callable[[torch.Tensor, int], torch.Tensor]) -> Split:
    """Query head h takes the query of the head rows(h, G)."""

    def inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
        return q[rows(torch.arange(len(q)), group_of(q, k)) % len(q)], k, v

    return stepped(inputs=inputs)


def _of_all_rows(idle: bool) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """One m for the whole tile, in which idle rows have scores of 0."""

    def top(m: torch.Tensor, top: torch.Tensor) -> torch.Tensor:
        of_tile = torch.maximum(m, top).amax(-1, keepdim=True).expand_as(m)
        return of_tile.clamp(min=0.0) if idle else of_tile

    return top


def _is_of_groups(seen: Seen) -> bool:
    return group_of(seen.x, seen.others[0]) > 1


def _only_groups(seen: Sequence[Seen]) -> float:
    """Every wrong case has several query heads a head of keys, and most of such cases are wrong."""
    wrong = [case for case in seen if not case.ok]
    right = [case for case in seen if case.ok and case.others[0].numel() and _is_of_groups(case)]
    return 0.55 * (len(wrong) > len(right) and all(map(_is_of_groups, wrong)))


_GROUPS = (
    Mistake(
        "heads_of_keys_in_turn",
        "Query head h takes the head of keys h modulo their number.",
        "With 8 query heads and 2 heads of keys: which of them are the first one's?",
        1,
        gives_split(_regrouped(lambda heads, G, n: heads % n)),
    ),
    Mistake(
        "another_head_of_keys",
        "Query heads take the keys of another group.",
        "Which head of keys is h // G of query head h, and which pointers does kv move?",
        1,
        gives_split(
            _regrouped(lambda heads, G, n: 0 * heads),
            *(
                stepped(inputs=inputs)
                for inputs in (
                    lambda q, k, v: (q, k[:1].expand_as(k), v),
                    lambda q, k, v: (q, k, v[:1].expand_as(v)),
                )
            ),
        ),
    ),
    Mistake(
        "queries_of_another_group",
        "The tile holds the queries of another group, or one of them only.",
        "Which query heads are the rows of program kv: which is the first one?",
        1,
        gives_split(
            _queried(lambda heads, G: heads % G),
            _queried(lambda heads, G: heads // G * G),
            _queried(lambda heads, G: heads // G + heads % G),
        ),
    ),
    Mistake(
        "one_m_for_the_tile",
        "All rows of the tile share one m.",
        "A query whose scores all lie 1,000 below another one's: what is left of its exponentials?",
        2,
        gives_split(stepped(top=_of_all_rows(idle=True)), stepped(top=_of_all_rows(idle=False))),
    ),
    Mistake(
        "keys_of_the_next_part",
        "A part goes on to the end of its last tile, into the keys of the next part.",
        "Which is the last key of this part, and does the mask know it?",
        3,
        gives_split(with_bounds(_whole_tiles)),
    ),
    Mistake(
        "only_groups",
        "Only groups of several query heads are wrong.",
        "Which query head is row r of program kv, and where do its m, l and o belong?",
        1,
        _only_groups,
    ),
)
_SUMS_IN_16_BITS = replace(
    _OF_LESSON_11["sums_in_16_bits"],
    explains=_if_some_wrong(
        is_16_bit,
        gives_split(
            *(stepped(step=_rounded(dtype)) for dtype in (torch.bfloat16, torch.float16)),
            stepped(step=_at_most_float16),
        ),
    ),
)

GROUPED_MISTAKES = (
    *_STARTS,
    *_GROUPS,
    *_STEPS,
    *_SCORES,
    *_OF_TAILS,
    _SUMS_IN_16_BITS,
    *(replace(mistake, hint=0) for mistake in (*_NOTHING, *_BOUNDS, *_MERGES, *_ENDS, *_EMPTY)),
    *_symptoms(past_the_end=1, guard=3),
)


def _loads_of_keys(seen: Seen) -> float:
    """Loads for each element of K and V, without room for q and for parts."""
    k, v = seen.others
    return seen.trial.loads / max(1, k.numel() + v.numel())


def _once_for_each_query(seen: Seen) -> bool:
    G = group_of(*seen.inputs[:2])
    return G > 1 and _loads_of_keys(seen) > G - 0.5 and seen.others[0].shape[1] > 500


OVERSPENT = (
    Mistake(
        "keys_for_each_query",
        "K and V are loaded once for each query of a group.",
        "Which queries need the same key, and could one program have all of them?",
        1,
        where(_once_for_each_query, weight=0.9),
    ),
)
"""Mistakes of a right answer to 12.2 that makes too many trips."""
