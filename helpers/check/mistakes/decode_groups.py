"""The known mistakes of a tile that holds the queries of a group, exercise 12.2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helpers.attention import decode
from helpers.check.mistakes.attention_steps import LOW_SCORES
from helpers.check.mistakes.decode_merges import of_parts
from helpers.check.mistakes.decoding import OF_LESSON_11, STARTS, UNMERGED, symptoms
from helpers.check.mistakes.edited import Edit, Edited, OfTensors
from helpers.check.mistakes.recognise import Mistake, Seen, if_some_wrong, is_16_bit, where, with_hints
from helpers.check.problems.decoding import DECODE, group_of

_GROUPED = OfTensors(
    decode.keys_of, decode.group_kernel, decode.merge_kernel, decode.decoded, decode.grouped_decode, kind=DECODE
)
_Q = "q_ptr + heads[:, None] * q_head"
_K = "k_ptr + kv * k_head + keys[:, None] * k_row + cols[None, :] * k_col"
_V = "v_ptr + kv * v_head + keys[:, None] * v_row + cols[None, :] * v_col"
_HEADS = "heads, there = kv * G + rows"
_S = 's = tl.dot(q, k.T, input_precision="ieee") * scale'
_TAIL = 's = tl.where((keys < end)[None, :], s, -float("inf"))'
_MASK = "mask = (keys < end)"
_M_NEW = "m_new = tl.maximum(m, tl.max(s, axis=1))"
_SHIFT = 'shift = tl.where(m_new == -float("inf"), 0.0, m_new)'
_P = "p = tl.exp(s - shift[:, None])"
_FACTOR = "factor = tl.exp(m - shift)"
_L_SUM = "l = l * factor + tl.sum(p, axis=1)"
_PV = 'tl.dot(p.to(v.dtype), v, input_precision="ieee")'
_O_SUM = f"o = o * factor[:, None] + {_PV}"
_KEEP = "m = m_new"
_LOOP = "for start in range(first, end, BLOCK_N)"
_START = 'm = tl.full((BLOCK_G,), -float("inf"), tl.float32)'


def _of_lesson_11(id: str, hint: int, *edits: Edit) -> Edited:
    return _GROUPED.named(OF_LESSON_11[id], hint, *edits)


_STEPS = (
    _of_lesson_11("o_not_rescaled", 2, (_O_SUM, f"o = o + {_PV}")),
    _of_lesson_11("l_not_rescaled", 2, (_L_SUM, "l = l + tl.sum(p, axis=1)")),
    _of_lesson_11("nothing_rescaled", 2, (_L_SUM, "l = l + tl.sum(p, axis=1)", _O_SUM, f"o = o + {_PV}")),
    _of_lesson_11("old_sums_grow", 2, (_FACTOR, 'factor = tl.where(m == -float("inf"), 0.0, tl.exp(shift - m))')),
    _of_lesson_11(
        "rescaled_late",
        2,
        (_O_SUM, f"o = (o + {_PV}) * factor[:, None]"),
        (_O_SUM, f"o = (o + {_PV}) * factor[:, None]", _L_SUM, "l = (l + tl.sum(p, axis=1)) * factor"),
    ),
    _of_lesson_11("weights_of_old_maximum", 2, (_P, 'p = tl.exp(s - tl.where(m == -float("inf"), 0.0, m)[:, None])')),
    _of_lesson_11("m_never_kept", 2, (_KEEP, "m = m")),
    _of_lesson_11("m_of_last_tile", 2, (_M_NEW, "m_new = tl.max(s, axis=1)")),
    _of_lesson_11(
        "sums_of_last_tile",
        2,
        (_L_SUM, "l = tl.sum(p, axis=1)", _O_SUM, f"o = {_PV}"),
        (_O_SUM, f"o = {_PV}"),
        (_L_SUM, "l = tl.sum(p, axis=1)"),
    ),
    _of_lesson_11(
        "divided_in_every_tile", 2, (_KEEP, "o = o / tl.where(l == 0.0, 1.0, l)[:, None]\n        m = m_new")
    ),
    _of_lesson_11(
        "m_starts_high",
        2,
        *((_START, _START.replace('-float("inf")', high)) for high in ("0.0", "-1.0", "-100.0", "-1e4")),
    ),
    _of_lesson_11(
        "maximum_missing",
        2,
        *((_START, f"m = tl.full((BLOCK_G,), {m}, tl.float32)", _M_NEW, "m_new = m") for m in ("0.0", "10.0")),
    ),
    _of_lesson_11("one_tile", 2, (_LOOP, "for start in range(first, tl.minimum(end, first + 1), BLOCK_N)")),
)
_SCORES = (
    _of_lesson_11("no_scale", 0, (" * scale", "")),
    _of_lesson_11(
        "scaled_by_d",
        0,
        (" * scale", " / D"),
        (" * scale", " / scale"),
        (" * scale", " * tl.sqrt(scale)"),
        (" * scale", " * 0.125"),
    ),
    _of_lesson_11(
        "scores_of_base_2",
        0,
        (_P, "p = tl.exp2(s - shift[:, None])", _FACTOR, "factor = tl.exp2(m - shift)"),
        ("tl.exp(", "tl.exp2("),
    ),
    _of_lesson_11("keys_as_values", 0, (_V, _K), (_K, "keys_at", _V, _K, "keys_at", _V), (_K, _V)),
    _of_lesson_11(
        "scores_not_exponentials",
        0,
        (_PV, 'tl.dot(tl.where(s == -float("inf"), 0.0, s).to(v.dtype), v, input_precision="ieee")'),
    ),
    _of_lesson_11("mean_of_values", 0, (_S, "s = tl.zeros((BLOCK_G, BLOCK_N), tl.float32)")),
)
_OF_TAILS = (
    _of_lesson_11("tail_scores_0", 3, (_TAIL, "s = s")),
    _of_lesson_11(
        "tail_scores_low_number", 3, *((_TAIL, _TAIL.replace('-float("inf")', str(low))) for low in LOW_SCORES)
    ),
    _of_lesson_11(
        "empty_tile_of_keys",
        3,
        (_SHIFT, "shift = m_new"),
        (_FACTOR, "factor = tl.exp(m - m_new)"),
        (_P, "p = tl.exp(s - m_new[:, None])"),
    ),
)


def _is_of_groups(seen: Seen) -> bool:
    return group_of(seen.x, seen.others[0]) > 1


def _only_groups(seen: Sequence[Seen]) -> float:
    """Every wrong case has several query heads a head of keys, and most of such cases are wrong."""
    wrong = [case for case in seen if not case.ok]
    right = [case for case in seen if case.ok and case.others[0].numel() and _is_of_groups(case)]
    return 0.55 * (len(wrong) > len(right) and all(map(_is_of_groups, wrong)))


_GROUPS = (
    _GROUPED.mistake(
        "heads_of_keys_in_turn",
        "Query head h takes the head of keys h modulo their number.",
        "With 8 query heads and 2 heads of keys: which of them are the first one's?",
        1,
        (_HEADS, "heads, there = kv + rows * tl.num_programs(1)"),
    ),
    _GROUPED.mistake(
        "another_head_of_keys",
        "Query heads take the keys of another group.",
        "Which head of keys is h // G of query head h, and which pointers does kv move?",
        1,
        (_K, _K.replace("kv * k_head + ", "")),
        (_V, _V.replace("kv * v_head + ", "")),
        (_K, _K.replace("kv * k_head + ", ""), _V, _V.replace("kv * v_head + ", "")),
    ),
    _GROUPED.mistake(
        "queries_of_another_group",
        "The tile holds the queries of another group, or one of them only.",
        "Which query heads are the rows of program kv: which is the first one?",
        1,
        (_Q, "q_ptr + rows[:, None] * q_head"),
        (_Q, "q_ptr + (heads - rows)[:, None] * q_head"),
        (_Q, "q_ptr + (kv + rows)[:, None] * q_head"),
    ),
    _GROUPED.mistake(
        "one_m_for_the_tile",
        "All rows of the tile share one m.",
        "A query whose scores all lie 1,000 below another one's: what is left of its exponentials?",
        2,
        (_M_NEW, "m_new = tl.maximum(m, tl.max(tl.max(s, axis=1), axis=0))"),
        (_M_NEW, "m_new = tl.maximum(m, tl.max(tl.where(rows < G, tl.max(s, axis=1), -1e30), axis=0))"),
    ),
    _GROUPED.mistake(
        "keys_of_the_next_part",
        "A part goes on to the end of its last tile, into the keys of the next part.",
        "Which is the last key of this part, and does the mask know it?",
        3,
        (_MASK, "mask = (keys < N)", _TAIL, _TAIL.replace("end", "N")),
    ),
    Mistake(
        "only_groups",
        "Only groups of several query heads are wrong.",
        "Which query head is row r of program kv, and where do its m, l and o belong?",
        1,
        _only_groups,
    ),
)
_SUMS_IN_16_BITS = _of_lesson_11(
    "sums_in_16_bits",
    0,
    (_O_SUM, f"{_O_SUM}\n        o = o.to(tl.bfloat16).to(tl.float32)"),
    (_O_SUM, f"{_O_SUM}\n        o, l = o.to(tl.bfloat16).to(tl.float32), l.to(tl.bfloat16).to(tl.float32)"),
    (_O_SUM, f"o = (o * factor[:, None]).to(tl.bfloat16).to(tl.float32) + {_PV}"),
)
_SUMS_IN_16_BITS = replace(_SUMS_IN_16_BITS, explains=if_some_wrong(is_16_bit, _SUMS_IN_16_BITS.explains))

GROUPED_MISTAKES = (
    *STARTS,
    *_GROUPS,
    *_STEPS,
    *_SCORES,
    *_OF_TAILS,
    _SUMS_IN_16_BITS,
    *with_hints((*UNMERGED, *of_parts(_GROUPED, OF_LESSON_11)), 0),
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
