"""The known mistakes of attention kernels: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes.attention_steps import (
    LAST_TILE_ALONE,
    LOW_SCORES,
    UNGUARDED,
    WRONG_LSE,
    after_adding,
    divided_in_tile,
    grown,
    kept_in,
    not_rescaled,
    nothing_rescaled,
    weighed_with_scores,
    with_old_maximum,
)
from helpers.check.mistakes.attention_walk import (
    RIGHT,
    Walk,
    ending,
    gives_walked,
    other,
    right_to_a_hundredth,
    wrong_only,
)
from helpers.check.mistakes.recognise import (
    INF,
    Explains,
    Mistake,
    Seen,
    any_of,
    came_back,
    if_some_wrong,
    is_16_bit,
    is_laid_out,
    only,
    recognised,
    where,
    with_hints,
)
from helpers.check.mistakes.shared import (
    INPUT_OVERWRITTEN,
    MEMORY_USED_AGAIN,
    NO_KERNEL,
    OFFSETS_OVERFLOW,
    WRONG_DEVICE,
    WRONG_DTYPE,
    WRONG_SHAPE,
    result_used_again,
)
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.attention import ATTENTION, CAUSAL

ZERO = torch.zeros(())
_COUNTED = (lambda L, N: N + 1, lambda L, N: N - 1, lambda L, N: L, lambda L, N: 2**30)
"""Numbers other than N that the scores' mask may compare keys with; with the last, it compares them with none."""
LoopEnd = Callable[[torch.Tensor, int, int, int], torch.Tensor]


def _to_end(first: bool = False, less: int = 0) -> LoopEnd:
    """The loop ends with the first row of the program's tile, or `less` keys before its last."""

    def end(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
        tile = rows // BLOCK_M
        return (tile * BLOCK_M if first else (tile + 1) * BLOCK_M - less).clamp(max=N)

    return end


def _past_the_end(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    return (rows // BLOCK_M + 1) * BLOCK_M


def _by_keys(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    """Tiles of queries are counted, and tiles of keys are taken for them."""
    return ((rows // BLOCK_M + 1) * BLOCK_N).clamp(max=N)


def _full_tiles(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    return torch.full_like(rows, N // BLOCK_N * BLOCK_N)


def _one_tile(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    return torch.full_like(rows, min(N, BLOCK_N))


def _finish(o: Callable[..., torch.Tensor] | None = None, lse: Callable[..., torch.Tensor] | None = None) -> Walk:
    """The end otherwise: functions of m, l and o."""
    return other(finish=ending(o, lse))


def _only_head_0(seen: Sequence[Seen]) -> float:
    """Every case of one head is right, and of several heads at most the first."""
    several = [case for case in seen if case.trial.results and len(case.x) > 1]
    one = [case for case in seen if case.trial.results and len(case.x) == 1]
    right = all(case.ok for case in one)
    return 0.9 * (bool(several) and right and not any(case.ok for case in several))


def _only_if_strides_differ(seen: Sequence[Seen]) -> float:
    """Whatever is wrong has q, k and v whose strides differ."""
    wrong = [case for case in seen if not case.ok]
    told = bool(wrong) and not all(map(is_16_bit, wrong))
    return 0.65 * (told and all(is_laid_out(case) or _strides_differ(case) for case in wrong))


def _strides_differ(seen: Seen) -> bool:
    first, *others = seen.inputs
    pairs = [(one.stride(i), first.stride(i)) for one in others for i in range(first.shape[0] == 1, 3)]
    return all(one.numel() for one in others) and any(a != b for a, b in pairs)


def _has_minus_inf(seen: Seen) -> bool:
    return bool((seen.inputs[1] == -INF).any())


def _mistakes(causal: bool) -> tuple[Mistake, ...]:
    """Those of both kernels; hints are of the exercise that comes first."""

    def of(*walks: Walk, near: float = 1.0) -> Explains:
        return gives_walked(*walks, causal=causal, kind=CAUSAL if causal else ATTENTION, near=near)

    def of_lse(id: str) -> Explains:
        return of(*(_finish(lse=lse) for lse in WRONG_LSE[id]))

    rescale, tail, guard, stop = (0, 0, 0, 0) if causal else (1, 2, 3, 4)
    return (
        *GENERAL,
        NO_KERNEL,
        Mistake(
            "no_two_results",
            "Something other than o and the log-sum-exps comes back.",
            "Which two tensors does the driver return, and in which order?",
            0,
            any_of(came_back("pair"), came_back("order"), came_back("type")),
        ),
        WRONG_SHAPE,
        WRONG_DTYPE,
        WRONG_DEVICE,
        INPUT_OVERWRITTEN,
        MEMORY_USED_AGAIN,
        result_used_again(CAUSAL if causal else ATTENTION),
        *with_hints([OFFSETS_OVERFLOW], 0),
        Mistake(
            "o_not_rescaled",
            "The sum of values is never rescaled.",
            "When a later tile raises m, with which m were the terms in o made?",
            rescale,
            of(other(step=lambda tile: tile.summed(o_by=not_rescaled(tile)))),
        ),
        Mistake(
            "l_not_rescaled",
            "The sum of exponentials is never rescaled.",
            "When a later tile raises m, with which m were the terms in l made?",
            rescale,
            of(other(step=lambda tile: tile.summed(l_by=not_rescaled(tile)))),
        ),
        Mistake(
            "nothing_rescaled",
            "Neither l nor o is rescaled.",
            "When a later tile raises m, with which m were the terms made that are in l and o?",
            rescale,
            of(other(step=nothing_rescaled)),
        ),
        Mistake(
            "old_sums_grow",
            "The old sums are rescaled the wrong way.",
            "When m grows, must the old sums grow or shrink?",
            rescale,
            of(
                other(step=lambda tile: tile.summed(l_by=1 / tile.factor, o_by=1 / tile.factor)),
                other(step=lambda tile: tile.summed(o_by=1 / tile.factor)),
                other(step=lambda tile: tile.summed(l_by=1 / tile.factor)),
                other(step=lambda tile: tile.summed(None, grown(tile), grown(tile))),
                other(step=lambda tile: tile.summed(o_by=grown(tile))),
                other(step=lambda tile: tile.summed(l_by=grown(tile))),
            ),
        ),
        Mistake(
            "rescaled_late",
            "The sums are rescaled after the new terms are added.",
            "With which m were the new terms made, and do they need the factor?",
            rescale,
            of(
                *(
                    other(step=partial(after_adding, of_l=l, of_o=o))
                    for l, o in ((True, True), (False, True), (True, False))
                )
            ),
        ),
        Mistake(
            "weights_of_old_maximum",
            "The new terms are made with the old maximum.",
            "l and o are to hold for m_new: which number is subtracted from the scores of this tile?",
            rescale,
            of(
                other(step=with_old_maximum),
                other(step=lambda tile: tile.summed(tile.p(tile.m))),
                other(step=lambda tile: tile.summed(tile.p(tile.m)), whole_tiles=True),
            ),
        ),
        recognised(
            names.M_NEVER_KEPT,
            rescale,
            of(other(keep=lambda tile: tile.m)),
        ),
        recognised(
            names.M_OF_LAST_TILE,
            rescale,
            of(
                other(top=lambda m, top: top),
                other(top=lambda m, top: top, step=nothing_rescaled),
            ),
        ),
        Mistake(
            "sums_of_last_tile",
            "Only the last tile is left in the sums.",
            "After the second tile, what is left of the first one's sums?",
            rescale,
            of(*(other(step=step) for step in LAST_TILE_ALONE)),
        ),
        Mistake(
            "divided_in_every_tile",
            "The sum o is divided by l in every tile.",
            "The next tile multiplies the old o by a factor, and adds: is it a sum then, or a mean?",
            rescale,
            of(
                other(step=divided_in_tile, finish=lambda m, l, o: (o, m + torch.log(l))),
                other(step=divided_in_tile),
            ),
        ),
        Mistake(
            "not_divided_by_l",
            "Nothing is divided by l.",
            "What do the weights of a query add up to before the division, and what should they?",
            rescale,
            of(_finish(o=lambda m, l, o: o)),
        ),
        Mistake(
            "divided_twice",
            "The sum o is divided by l twice.",
            "Which line divides, and does another one do so too?",
            rescale,
            of(_finish(o=lambda m, l, o: o / l[..., None] ** 2)),
        ),
        Mistake(
            "tail_in_maximum",
            "Lanes past the last key take part in the maximum, with a score of 0.",
            "What becomes of a query whose scores all lie below −200, if its maximum is 0?",
            tail,
            of(other(top_beyond=0.0)),
        ),
        Mistake(
            "m_starts_high",
            "m does not begin at −inf.",
            "What is the maximum of a query whose scores lie wholly below your first m?",
            rescale,
            of(*(other(start=start) for start in (0.0, -1.0, -10.0, -100.0, -1e3, -1e4, -5e4, -1e5, -1e6))),
        ),
        Mistake(
            "maximum_missing",
            "No maximum is subtracted, or a fixed number.",
            "What is exp(1000), and which number keeps every exponent at or below 0?",
            rescale,
            of(*(other(start=shift, top=lambda m, top: m) for shift in (0.0, 1.0, 10.0, 100.0))),
        ),
        Mistake(
            "tail_scores_0",
            "Lanes past the last key count with a score of 0.",
            "What is the exponential of a score of 0, and which score has an exponential of 0?",
            tail,
            of(other(beyond=0.0)),
        ),
        Mistake(
            "other_lanes_count",
            "The scores that are set to −inf are not those past the last key.",
            "Which number do the keys end before, and is it that of the keys, or that of the queries?",
            tail,
            of(*(other(counted=counted) for counted in _COUNTED), other(counted=_COUNTED[-1], end=_past_the_end)),
        ),
        Mistake(
            "tail_scores_low_number",
            "Lanes past the last key hold a low number, not −inf.",
            "What becomes of a query whose scores are all lower than your number?",
            tail,
            of(
                *(other(beyond=low, hidden=low) for low in LOW_SCORES),
                *(other(beyond=low) for low in LOW_SCORES),
            ),  # fmt: skip
        ),
        Mistake(
            "tail_never_loaded",
            "The keys of the last tile are left out, if they do not fill it.",
            "How many tiles does it take to hold N keys, if the last one may be part full?",
            tail,
            of(other(end=_full_tiles)),
        ),
        Mistake(
            "one_tile",
            "Only the first tile of keys counts.",
            "How far does the loop go, and what does each round add?",
            tail,
            of(other(end=_one_tile)),
        ),
        Mistake(
            "no_scale",
            "The scores are not scaled by 1/√d.",
            "What does scale hold, and where does it belong?",
            0,
            of(other(scale=lambda d: 1.0)),
        ),
        Mistake(
            "scaled_by_d",
            "The scores are scaled by other than 1/√d.",
            "What does scale hold, and is it applied once?",
            0,
            of(
                *(other(scale=scale) for scale in (lambda d: 1 / d, lambda d: d**0.5, lambda d: d**-0.25)),
                other(scale=lambda d: 0.125),
            ),
        ),
        Mistake(
            "scores_of_base_2",
            "2 is raised to the power of the scores, not e.",
            "exp2(x) is 2 to the power of x: by which number must x be multiplied, so that it is e to the power of x?",
            0,
            of(
                other(exp=torch.exp2),
                other(step=lambda tile: tile.summed(torch.exp2(tile.s - tile.shift[..., None]))),
                other(exp=torch.exp2, finish=lambda m, l, o: (RIGHT.finish(m, l, o)[0], m + torch.log2(l))),
            ),
        ),
        Mistake(
            "lse_base_2",
            "The log-sum-exp is one of base 2.",
            "log2(x) counts powers of 2: what does it have to be multiplied by for those of e?",
            0,
            of_lse("lse_base_2"),
        ),
        Mistake(
            "lse_without_m",
            "m is missing in the log-sum-exp.",
            "l is a sum of exp(s − m): what has to be added to its logarithm?",
            0,
            of_lse("lse_without_m"),
        ),
        Mistake(
            "lse_without_log",
            "l is added to m without its logarithm, or is missing.",
            "Which number x has exp(x) = exp(m) · l?",
            0,
            of_lse("lse_without_log"),
        ),
        Mistake(
            "lse_negative",
            "The log-sum-exp has a wrong sign.",
            "Which number x has exp(x) = exp(m) · l?",
            0,
            of_lse("lse_negative"),
        ),
        Mistake(
            "empty_query",
            "A query that sees no key does not get 0 and −inf.",
            "What is −inf − (−inf), what are l and o of such a query, and by what may 0 be divided, so that 0 is left?",
            guard,
            of(
                _finish(o=lambda m, l, o: o / l[..., None]),
                _finish(lse=lambda m, l, o: m + torch.log(l.masked_fill(l == 0, 1.0)).where(m > -INF, 0.0)),
                _finish(lse=lambda m, l, o: (m + torch.log(l)).masked_fill(l == 0, 0.0)),
                _finish(
                    lse=lambda m, l, o: (m + torch.log(l + 1e-6)).masked_fill(l == 0, torch.log(ZERO + 1e-6).item())
                ),
            ),
        ),
        Mistake(
            "empty_tile_of_keys",
            "A tile of only −inf spoils a query.",
            "As long as m is −inf, what is m − m, and which number could be subtracted instead?",
            guard,
            of(*(other(step=step) for step in UNGUARDED)),
        ),
        Mistake(
            "keys_as_values",
            "K is taken for V, or V for K.",
            "Which tensor are the scores made of, and which one do they weigh?",
            0,
            of(
                other(inputs=lambda q, k, v: (q, k, k)),
                other(inputs=lambda q, k, v: (q, v, k)),
                other(inputs=lambda q, k, v: (q, v, v)),
            ),  # fmt: skip
        ),
        Mistake(
            "scores_not_exponentials",
            "The values are weighed with scores, not with their exponentials.",
            "Which of s and p does the second product take?",
            0,
            of(other(step=weighed_with_scores)),
        ),
        Mistake(
            "mean_of_values",
            "The result is the mean of the values, whatever the scores are.",
            "Where do q and k enter the weights?",
            0,
            of(other(scale=lambda d: 0.0, score=lambda s: s.nan_to_num(0) * 0)),
        ),
        Mistake(
            "sums_in_16_bits",
            "The sums are kept in 16 bits.",
            "How many digits does a sum of thousands of terms need, and which dtype has them?",
            0,
            if_some_wrong(  # else a product that loses digits looks the same
                is_16_bit,
                of(
                    *(
                        other(step=kept_in(dtype, l_too))
                        for dtype in (torch.bfloat16, torch.float16)
                        for l_too in (True, False)
                    ),
                    near=0.98,
                ),
            ),
        ),
        Mistake(
            "head_0",
            "All heads get the first one's keys, values or queries.",
            "Which program_id is the head's, and which pointers does it move?",
            0,
            any_of(
                of(
                    *(
                        other(inputs=heads)
                        for heads in (
                            lambda q, k, v: (q[:1].expand_as(q), k, v),
                            lambda q, k, v: (q, k[:1].expand_as(k), v),
                            lambda q, k, v: (q, k, v[:1].expand_as(v)),
                            lambda q, k, v: (q, k[:1].expand_as(k), v[:1].expand_as(v)),
                            lambda q, k, v: (q[:1].expand_as(q), k[:1].expand_as(k), v[:1].expand_as(v)),
                        )
                    )
                ),
                _only_head_0,
            ),
        ),  # fmt: skip
    )


def _symptoms(causal: bool) -> tuple[Mistake, ...]:
    """What is known only by where it shows."""
    kind = CAUSAL if causal else ATTENTION
    rescale, tail, guard, stop = (0, 0, 0, 0) if causal else (1, 2, 3, 4)
    return (
        Mistake(
            "strides_of_another",
            "Something of q, k or v is found only if it lies without gaps.",
            "Which strides belong to k, which to v, and has each head, each row and each column its own?",
            0,
            _only_if_strides_differ,
        ),
        Mistake(
            "past_the_end",
            "A load or a store reaches past the end.",
            "Where do the keys of the last tile, or part, end, and which programs and lanes have a key, a query or a "
            "column?",
            tail,
            where(lambda seen: bool(seen.trial.outside), weight=0.6),
        ),
        Mistake(
            "results_not_stored",
            "Some results are never stored.",
            "Which queries does each program store, and are there enough programs?",
            0,
            where(lambda seen: bool(seen.trial.results) and bool(seen.trial.left_unwritten), weight=0.95),
        ),
        Mistake(
            "wrong_with_minus_inf",
            "Wrong only with −inf among the scores.",
            "What is m − m as long as m is −inf?",
            guard,
            only(_has_minus_inf),
        ),
        Mistake(
            "wrong_in_16_bits",
            "Wrong only in 16 bits.",
            "Which of the numbers are kept in float32, and which product takes p in v's dtype?",
            0,
            only(is_16_bit),
        ),
        Mistake(
            "not_exact",
            "The results are nearly right: some digits are lost.",
            "Which precision does tl.dot take for float32, unless it is told?",
            0,
            right_to_a_hundredth(ATTENTION, CAUSAL),
        ),
        Mistake(
            "lse_wrong",
            "The log-sum-exp is wrong, and o is right.",
            "Which number x has exp(x) = exp(m) · l, and is it stored for the right query?",
            0,
            wrong_only(kind, 1),
        ),
    )


_HIDDEN = Mistake(
    "later_keys_hidden",
    "A query sees no later keys.",
    "Is anything to be hidden in this exercise?",
    0,
    gives_walked(RIGHT, causal=True, kind=ATTENTION),
)
ATTENTION_MISTAKES = (*_mistakes(causal=False), _HIDDEN, *_symptoms(causal=False))


def _of(*walks: Walk) -> Explains:
    return gives_walked(*walks, causal=True, kind=CAUSAL)


def _seen_if(*rules: Callable[..., torch.Tensor]) -> Explains:
    """Which keys a query sees is another rule, of keys, rows, L, N and BLOCK_M."""
    return _of(*(other(sees=rule) for rule in rules))


def _all(keys: torch.Tensor, rows: torch.Tensor, L: int, N: int, BLOCK_M: int) -> torch.Tensor:
    return (keys >= 0) & (rows >= 0)


def _whole(rows: torch.Tensor, N: int, BLOCK_M: int, BLOCK_N: int) -> torch.Tensor:
    return torch.full_like(rows, N)


_SEEN = (
    Mistake(
        "not_causal",
        "Later keys are not hidden.",
        "Which keys does query t see, and which scores become −inf?",
        1,
        _of(other(sees=_all, end=_whole)),
    ),
    Mistake(
        "loaded_is_seen",
        "Later keys of the last tiles are not hidden.",
        "The loop ends with the tile of the diagonal: does every query of the tile see all its keys?",
        1,
        _of(other(sees=_all, end=_to_end())),
    ),
    Mistake(
        "own_key_hidden",
        "A query does not see the key of its own number.",
        "Does token t see itself?",
        1,
        _seen_if(lambda keys, rows, L, N, M: keys < rows),
    ),
    Mistake(
        "one_key_too_many",
        "A query sees one key too many.",
        "Which is the last key that token 0 sees?",
        1,
        _seen_if(lambda keys, rows, L, N, M: keys <= rows + 1),
    ),
    Mistake(
        "earlier_hidden",
        "The earlier keys are hidden, not the later ones.",
        "Which way does the inequality go between a key and its query?",
        1,
        _seen_if(lambda keys, rows, L, N, M: keys >= rows),
    ),
    Mistake(
        "rows_of_tile",
        "Queries are counted in the tile, keys in the whole text.",
        "Which number has the first query of the second program?",
        1,
        _seen_if(lambda keys, rows, L, N, M: keys <= rows % M),
    ),
    Mistake(
        "keys_of_tile",
        "Keys are counted in the tile, queries in the whole text.",
        "Which number has the first key of the second tile?",
        1,
        _seen_if(*(lambda keys, rows, L, N, M, n=n: keys % n <= rows for n in (32, 64))),
    ),
    Mistake(
        "both_of_tile",
        "Queries and keys are counted in the tile, not in the text.",
        "Which number has the first query of the second program, and which the first key of the second tile?",
        1,
        _seen_if(*(lambda keys, rows, L, N, M, n=n: keys % n <= rows % M for n in (32, 64))),
    ),
    Mistake(
        "and_before_comparison",
        "The sign & comes before <=, and joins numbers.",
        "What does each & join in your line, and which brackets change that?",
        1,
        _of(other(sees=lambda keys, rows, L, N, M: (keys < N) * (keys & 1) <= rows, counted=_COUNTED[-1])),
    ),
    Mistake(
        "bottom_right",
        "The last query sees all keys, whatever the lengths are.",
        "Is query t to see the keys up to t, or is the last query to see the last key?",
        1,
        _seen_if(lambda keys, rows, L, N, M: keys <= rows + N - L),
    ),
    Mistake(
        "hidden_scores_low_number",
        "Hidden scores are a low number, not −inf.",
        "What becomes of a query whose scores are all lower than your number?",
        1,
        _of(*(other(hidden=low, beyond=beyond) for low in LOW_SCORES for beyond in (low, -INF))),
    ),
    Mistake(
        "hidden_scores_0",
        "Hidden scores are 0, not −inf.",
        "What is the exponential of a score of 0, and which score has an exponential of 0?",
        1,
        _of(other(hidden=None), other(hidden=0.0)),
    ),
    Mistake(
        "end_of_first_row",
        "The loop ends before the keys of the tile's last query.",
        "Up to which key does the last query of a program see?",
        2,
        _of(
            other(end=_to_end(first=True)), other(end=_to_end(less=32)), other(end=_to_end(less=1)), other(end=_by_keys)
        ),
    ),
)

CAUSAL_MISTAKES = (*_SEEN, *_mistakes(causal=True), *_symptoms(causal=True))
