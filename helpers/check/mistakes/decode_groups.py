"""The known mistakes of a tile that holds the queries of a group, exercise 12.2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from helpers.check.mistakes.attention_steps import (
    LAST_TILE_ALONE,
    LOW_SCORES,
    UNGUARDED,
    after_adding,
    divided_in_tile,
    grown,
    kept_in,
    not_rescaled,
    nothing_rescaled,
    weighed_with_scores,
    with_old_maximum,
)
from helpers.check.mistakes.decode_merges import merge_of_base_2
from helpers.check.mistakes.decode_walk import RIGHT_SPLIT, Split, gives_split, stepped, with_bounds
from helpers.check.mistakes.decoding import OF_LESSON_11, OF_PARTS, STARTS, symptoms, walked
from helpers.check.mistakes.recognise import Mistake, Seen, if_some_wrong, is_16_bit, where
from helpers.check.problems.decoding import group_of
from helpers.check.problems.problem import Inputs

_STEPS = walked(
    2,
    {
        "o_not_rescaled": [stepped(step=lambda tile: tile.summed(o_by=not_rescaled(tile)))],
        "l_not_rescaled": [stepped(step=lambda tile: tile.summed(l_by=not_rescaled(tile)))],
        "nothing_rescaled": [stepped(step=nothing_rescaled)],
        "old_sums_grow": [stepped(step=lambda tile: tile.summed(l_by=grown(tile), o_by=grown(tile)))],
        "rescaled_late": [stepped(step=partial(after_adding, of_l=of_l, of_o=True)) for of_l in (False, True)],
        "weights_of_old_maximum": [stepped(step=with_old_maximum)],
        "m_never_kept": [stepped(keep=lambda tile: tile.m)],
        "m_of_last_tile": [stepped(top=lambda m, top: top)],
        "sums_of_last_tile": [stepped(step=step) for step in LAST_TILE_ALONE],
        "divided_in_every_tile": [stepped(step=divided_in_tile)],
        "m_starts_high": [stepped(start=start) for start in (0.0, -1.0, -100.0, -1e4)],
        "maximum_missing": [stepped(start=shift, top=lambda m, top: m) for shift in (0.0, 10.0)],
        "one_tile": [
            stepped(
                bounds=lambda part, S, N, n: (b := RIGHT_SPLIT.bounds(part, S, N, n)) and (b[0], min(b[1], b[0] + n))
            )
        ],
    },
)
_SCORES = walked(
    0,
    {
        "no_scale": [stepped(scale=lambda d: 1.0)],
        "scaled_by_d": [
            *(stepped(scale=scale) for scale in (lambda d: 1 / d, lambda d: d**0.5, lambda d: d**-0.25)),
            stepped(scale=lambda d: 0.125),
        ],
        "scores_of_base_2": [
            stepped(exp=torch.exp2),
            stepped(exp=torch.exp2, merge=merge_of_base_2()),
        ],
        "keys_as_values": [
            stepped(inputs=lambda q, k, v: (q, k, k)),
            stepped(inputs=lambda q, k, v: (q, v, k)),
            stepped(inputs=lambda q, k, v: (q, v, v)),
        ],
        "scores_not_exponentials": [stepped(step=weighed_with_scores)],
        "mean_of_values": [stepped(scale=lambda d: 0.0, score=lambda s: s.nan_to_num(0) * 0)],
    },
)  # fmt: skip
_OF_TAILS = walked(
    3,
    {
        "tail_scores_0": [stepped(beyond=0.0)],
        "tail_scores_low_number": [stepped(beyond=low) for low in LOW_SCORES],
        "empty_tile_of_keys": [stepped(step=step) for step in UNGUARDED],
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


def _whole_tiles(part: int, parts: int, N: int, BLOCK_N: int) -> tuple[int, int]:
    """Lanes are masked with N: a part goes on to the end of its last tile."""
    first, end = RIGHT_SPLIT.bounds(part, parts, N, BLOCK_N)
    return first, min(N, first + -(-(end - first) // BLOCK_N) * BLOCK_N)


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
    OF_LESSON_11["sums_in_16_bits"],
    explains=if_some_wrong(
        is_16_bit,
        gives_split(
            *(stepped(step=kept_in(dtype)) for dtype in (torch.bfloat16, torch.float16)),
            stepped(step=kept_in(torch.float16, l_too=True)),
        ),
    ),
)

GROUPED_MISTAKES = (
    *STARTS,
    *_GROUPS,
    *_STEPS,
    *_SCORES,
    *_OF_TAILS,
    _SUMS_IN_16_BITS,
    *(replace(mistake, hint=0) for mistake in OF_PARTS),
    *symptoms(past_the_end=1, guard=3),
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
