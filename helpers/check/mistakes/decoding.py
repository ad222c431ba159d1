"""The known mistakes of one query a head: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from helpers.check.mistakes.attention import ATTENTION_MISTAKES
from helpers.check.mistakes.attention_steps import WRONG_LSE
from helpers.check.mistakes.attention_walk import right_to_a_hundredth, wrong_only
from helpers.check.mistakes.decode_merges import MERGES
from helpers.check.mistakes.decode_walk import RIGHT_SPLIT, Split, gives_split, result_of, with_bounds, with_merges
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, if_some_wrong, is_laid_out
from helpers.check.mistakes.shared import result_used_again
from helpers.check.problems.cases import INF
from helpers.check.problems.decoding import DECODE

OF_LESSON_11 = {mistake.id: mistake for mistake in ATTENTION_MISTAKES}
"""The mistakes of lesson 11's kernel, by id."""


def _of_lesson_11(*ids: str, hint: int = 0) -> tuple[Mistake, ...]:
    """Mistakes of lesson 11's kernel that are recognised here as they are there."""
    return tuple(replace(OF_LESSON_11[id], hint=hint) for id in ids)


def walked(hint: int, splits: Mapping[str, Sequence[Split]]) -> tuple[Mistake, ...]:
    """Mistakes of lesson 11's kernel that are recognised by what they make of parts."""
    return tuple(replace(OF_LESSON_11[id], hint=hint, explains=gives_split(*these)) for id, these in splits.items())


_BEFORE = tuple(
    mistake
    for mistake in ATTENTION_MISTAKES[: [one.id for one in ATTENTION_MISTAKES].index("o_not_rescaled")]
    if mistake.id != "result_used_again"
)
"""What lesson 11 asks first: whether an answer returns, and tensors of the right kind."""
STARTS = (*_BEFORE, result_used_again(DECODE))
"""What both exercises ask first."""


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


def _length(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    first, _ = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, -(-N // parts))


def _tile_a_part(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    return min(N, part * BLOCK_N), min(N, (part + 1) * BLOCK_N)


# How they are told


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
    return if_some_wrong(lambda case: _shown(case) and not _keys_are_loaded(case), explains)


def _only_laid_out(seen: Sequence[Seen]) -> float:
    """Every wrong case lies apart."""
    wrong = [case for case in seen if not case.ok]
    return 0.9 * (bool(wrong) and all(map(is_laid_out, wrong)))


_ENDS = walked(
    1,
    {
        "not_divided_by_l": [result_of(o=lambda m, l, o: o)],
        "divided_twice": [result_of(o=lambda m, l, o: o / l.masked_fill(l == 0, 1.0)[..., None] ** 2)],
        **{id: [result_of(lse=lse) for lse in these] for id, these in WRONG_LSE.items()},
    },
)
_EMPTY = walked(
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
OF_PARTS = (*_NOTHING, *_BOUNDS, *MERGES, *_ENDS, *_EMPTY)
"""Mistakes of both exercises: in what the parts are, in their merge, and in what becomes of it."""


def symptoms(past_the_end: int, guard: int) -> tuple[Mistake, ...]:
    """Mistakes that are known only by where they show."""
    return (
        replace(OF_LESSON_11["strides_of_another"], explains=_only_laid_out),
        *_of_lesson_11("past_the_end", hint=past_the_end),
        *_of_lesson_11("results_not_stored"),
        *_of_lesson_11("wrong_with_minus_inf", hint=guard),
        *_of_lesson_11("wrong_in_16_bits"),
        replace(OF_LESSON_11["not_exact"], explains=right_to_a_hundredth(DECODE)),
        replace(OF_LESSON_11["lse_wrong"], explains=wrong_only(DECODE, 1)),
    )


DECODE_MISTAKES = (*STARTS, *OF_PARTS, *symptoms(past_the_end=2, guard=3))
