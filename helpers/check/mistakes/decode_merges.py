"""Mistakes in what the parts of the keys are, and in their merge, as edits of an answer of lesson 12."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from helpers.check.mistakes import names
from helpers.check.mistakes.edited import Answer
from helpers.check.mistakes.recognise import Mistake, Seen, if_some_wrong

_EACH = "each = (N + parts - 1) // parts"
_FIRST = "first = tl.minimum(N, part * each)"
_END = "end = tl.minimum(N, first + each)"
_EXISTS = "exists = head * S + parts, parts < S"
_AT = "at, exists = head * S + parts"
_M_PARTS = 'm_parts = tl.load(pair_ptr + 2 * at, mask=exists, other=-float("inf"))'
_L_PARTS = "l_parts = tl.load(pair_ptr + 2 * at + 1, mask=exists, other=0.0)"
_O_PARTS = "o_parts = tl.load(part_ptr + at[:, None] * D + cols[None, :], mask=there, other=0.0)"
_TOP = "m = tl.max(m_parts, axis=0)"
_SHIFT = 'shift = tl.where(m == -float("inf"), 0.0, m)'
_WEIGHTS = "weights = tl.exp(m_parts - shift)"
_L = "l = tl.sum(weights * l_parts, axis=0)"
_O = "o = tl.sum(weights[:, None] * o_parts, axis=0)"
_DIVIDE = "o = o / tl.where(l == 0.0, 1.0, l)"
_LSE = "lse = m + tl.log(l)"

_GUARDED = "tl.where(l_parts == 0.0, 1.0, l_parts)"
_LSE_PARTS = 'tl.where(l_parts == 0.0, -float("inf"), m_parts + tl.log(l_parts))'
_FIRST_M = "tl.sum(tl.where(parts == 0, m_parts, 0.0), axis=0)"
_OTHER_M = (
    _FIRST_M,
    "tl.sum(tl.where(parts == S - 1, m_parts, 0.0), axis=0)",
    'tl.min(tl.where(exists, m_parts, float("inf")), axis=0)',
    "tl.sum(tl.where(exists, m_parts, 0.0), axis=0)",
)
"""What is taken for the largest m of all parts."""
_MEAN = f"o = tl.sum(o_parts / {_GUARDED}[:, None], axis=0)"
_OF_WEIGHTS = "o = o / tl.maximum(tl.sum(weights, axis=0), 1e-30)"


def _leaves_out_keys(seen: Seen) -> bool:
    """Fewer numbers are loaded than K has."""
    return bool(seen.trial.results) and seen.trial.loads < seen.others[0].numel()


def of_parts(answer: Answer, of_lesson_11: Mapping[str, Mistake]) -> tuple[Mistake, ...]:
    """The mistakes of both exercises, of which `answer` answers one."""
    length = answer.mistake(
        "end_is_a_length",
        "The end of a part is taken for its length.",
        "What is the number of the key after the last one of part 1?",
        2,
        (_END, "end = tl.minimum(N, each)"),
    )
    return (
        answer.mistake(
            "keys_left_out",
            "Some keys belong to no part.",
            "Which key comes after a part's last, and who has the last keys of N if the parts do not divide it?",
            2,
            (_EACH, "each = N // parts"),
            (_END, f"{_END} - 1"),
            (_END, "end = tl.minimum(N, first + each - 1)"),
            (_FIRST, "first = tl.minimum(N, part * each + 1)", _END, "end = tl.minimum(N, part * each + each)"),
            (_EACH, "each = 64"),
        ),
        replace(length, explains=if_some_wrong(_leaves_out_keys, length.explains)),
        answer.mistake(
            "keys_of_two_parts",
            "Some keys belong to several parts.",
            "Which key is the last one of part 0, and which the first of part 1?",
            2,
            (_END, "end = tl.minimum(N, first + each + 1)"),
            (_END, f"{_END}\n    first = 0"),
            (_END, "end = N"),
            (_END, "first, end = 0, N"),
            (_FIRST, "first = tl.minimum(N, part)"),
        ),
        answer.named(names.SUMS_AS_THEY_ARE, 1, (_L, "l = tl.sum(l_parts, axis=0)", _O, "o = tl.sum(o_parts, axis=0)")),
        answer.mistake(
            "o_of_parts_as_they_are",
            "The o of the parts are added as they are.",
            "With which m was each o made, and which weight does its l get?",
            1,
            (_O, "o = tl.sum(o_parts, axis=0)"),
        ),
        answer.mistake(
            "l_of_parts_as_they_are",
            "The l of the parts are added as they are.",
            "With which m was each l made, and which weight does its o get?",
            1,
            (_L, "l = tl.sum(l_parts, axis=0)"),
        ),
        answer.mistake(
            "weights_inverted",
            "The parts are weighed the wrong way.",
            "Against the largest m, must the sums of a part grow or shrink?",
            1,
            (_WEIGHTS, 'weights = tl.where(m_parts == -float("inf"), 0.0, tl.exp(shift - m_parts))'),
        ),
        answer.mistake(
            "weights_without_maximum",
            "The weights are exp(m), and no maximum is subtracted.",
            "What is exp(1000), and what is exp(−1000)?",
            1,
            (_WEIGHTS, "weights = tl.exp(m_parts)", _LSE, "lse = tl.log(l)"),
            (_WEIGHTS, "weights = tl.exp(m_parts)"),
        ),
        answer.named(names.MAXIMUM_OUT_OF_EXPONENT, 1, (_WEIGHTS, "weights = tl.exp(m_parts) / tl.exp(m)")),
        answer.mistake(
            "maximum_of_one_part",
            "Something other than the largest m is subtracted.",
            "Which part can be trusted to have the largest m, and what is exp of a large number?",
            1,
            *((_TOP, f"m = {top}") for top in _OTHER_M),
            (_TOP, f"m = {_OTHER_M[-1]} / S"),
        ),
        answer.mistake(
            "another_m_in_lse",
            "The m of the log-sum-exp is another one than the weights have.",
            "l is a sum relative to one m: which one belongs to its logarithm?",
            1,
            *((_LSE, f"lse = {top} + tl.log(l)") for top in _OTHER_M),
        ),
        answer.mistake(
            "o_of_parts_divided",
            "Each o is divided by its own l before it gets its weight.",
            "A part of a hundred keys and a part of one: where are the hundred left, once o is divided?",
            1,
            *(
                (_O, f"o = tl.sum((weights / {by})[:, None] * o_parts, axis=0)", _DIVIDE, end)
                for by in (_GUARDED, "l_parts")
                for end in (_DIVIDE, _OF_WEIGHTS)
            ),
        ),
        answer.mistake(
            "mean_of_parts",
            "The results of the parts are added or averaged, whatever they weigh.",
            "Does a part whose scores are all low say as much as one whose scores are high?",
            1,
            *(
                (_O, _MEAN, _DIVIDE, f"o = o / {by}")
                for by in ("S", "1", "tl.maximum(1, tl.sum((l_parts > 0).to(tl.int32), axis=0))")
            ),
        ),
        answer.mistake(
            "divided_by_weights",
            "o is divided by the sum of the weights, not by l.",
            "A part of a hundred keys has one weight: how many exponentials does its l have?",
            1,
            (_DIVIDE, _OF_WEIGHTS),
        ),
        answer.mistake(
            "lse_of_parts_added",
            "The log-sum-exps of the parts are added, or one of them is taken.",
            "Sums of exponentials are added: are their logarithms?",
            1,
            (_LSE, f"lse = tl.sum(tl.where(l_parts == 0.0, 0.0, m_parts + tl.log({_GUARDED})), axis=0)"),
            (_LSE, f"lse = tl.sum({_LSE_PARTS}, axis=0)"),
            (_LSE, f"lse = tl.max({_LSE_PARTS}, axis=0)"),
            (_LSE, f"lse = tl.sum(tl.where(parts == 0, {_LSE_PARTS}, 0.0), axis=0)"),
        ),
        answer.mistake(
            "weights_of_base_2_in_merge",
            "The weights are powers of 2, not of e.",
            "exp2(x) is 2 to the power of x: by which number must x be multiplied, so that it is e to the power of x?",
            1,
            (_WEIGHTS, "weights = tl.exp2(m_parts - shift)"),
            (_O, "o = tl.sum(tl.exp2(m_parts - shift)[:, None] * o_parts, axis=0)"),
        ),
        answer.mistake(
            "part_left_out",
            "A part is left out of the merge.",
            "How many parts are there, and which lanes does the mask let through?",
            3,
            *(
                (_EXISTS, _EXISTS.replace("parts < S", some))
                for some in ("parts < S - 1", "parts < 4", "parts < 1", "parts == S - 1", "(parts > 0) & (parts < S)")
            ),
        ),
        answer.mistake(
            "lanes_without_part",
            "Parts without keys, or lanes without a part, take part in the merge.",
            "Which m, l and o has a part that changes nothing, and what do the lanes from S on hold?",
            3,
            *((_M_PARTS, _M_PARTS.replace('-float("inf")', high)) for high in ("0.0", "1.0")),
            (_M_PARTS, _M_PARTS.replace('-float("inf")', "0.0"), _L_PARTS, _L_PARTS.replace("other=0.0", "other=1.0")),
            (_L_PARTS, f'{_L_PARTS}\n    m_parts = tl.where(exists & (m_parts == -float("inf")), 0.0, m_parts)'),
        ),
        answer.mistake(
            "nan_of_idle_lanes",
            "Every result is NaN.",
            "A lane from S on has no part: are its weight and its l finite numbers?",
            3,
            (_WEIGHTS, "weights = tl.exp(shift - m_parts)"),
            (_L_PARTS, _L_PARTS.replace("other=0.0", 'other=-float("inf")')),
        ),
        answer.mistake(
            "parts_of_another_head",
            "A head gets the parts of another one.",
            "How many parts lie in the buffer before the first one of this head?",
            0,
            (_AT, "at, exists = parts"),
            (_AT, "at, exists = head + parts"),
            (_AT, "at, exists = parts * tl.num_programs(0) + head"),
            (_O_PARTS, _O_PARTS.replace("at[:, None]", "parts[:, None]")),
        ),
        answer.mistake(
            "m_for_l_of_parts",
            "m and l change places, or one of them is loaded twice.",
            "In which order does part_kernel store the two numbers of a part?",
            0,
            (_M_PARTS, _M_PARTS.replace("2 * at", "2 * at + 1"), _L_PARTS, _L_PARTS.replace("2 * at + 1", "2 * at")),
            (_M_PARTS, _M_PARTS.replace("2 * at", "2 * at + 1")),
            (_L_PARTS, _L_PARTS.replace("2 * at + 1", "2 * at")),
        ),
        answer.mistake(
            "pairs_one_apart",
            "The pair of a part is looked for one number after that of the part before it.",
            "A part has two numbers in the buffer of pairs: where does the pair of part `at` begin?",
            0,
            (_M_PARTS, _M_PARTS.replace("2 * at", "at"), _L_PARTS, _L_PARTS.replace("2 * at + 1", "at + 1")),
        ),
        answer.mistake(
            "merge_in_16_bits",
            "The parts are summed in 16 bits.",
            "In which dtype do the parts lie, and when is o rounded to that of q?",
            0,
            *(
                (_O_PARTS, f"{_O_PARTS}\n    o_parts = o_parts.to({dtype}).to(tl.float32)")
                for dtype in ("tl.bfloat16", "tl.float16")
            ),
        ),
        answer.named(of_lesson_11["not_divided_by_l"], 1, (_DIVIDE, "o = o"), (_DIVIDE, "o = o / S")),
        answer.named(of_lesson_11["divided_twice"], 1, (_DIVIDE, f"{_DIVIDE}\n    {_DIVIDE}")),
        answer.named(
            of_lesson_11["lse_base_2"],
            1,
            (_LSE, "lse = m + tl.log2(l)"),
            (_LSE, "lse = m * 1.4426950408889634 + tl.log2(l)"),
            (_LSE, "lse = m * 1.4426950408889634 + tl.log(l)"),
        ),
        answer.named(of_lesson_11["lse_without_m"], 1, (_LSE, "lse = tl.log(l)"), (_LSE, "lse = l")),
        answer.named(of_lesson_11["lse_without_log"], 1, (_LSE, "lse = m + l"), (_LSE, "lse = m")),
        answer.named(of_lesson_11["lse_negative"], 1, (_LSE, "lse = -m - tl.log(l)"), (_LSE, "lse = m - tl.log(l)")),
        answer.named(
            of_lesson_11["empty_query"],
            3,
            (_DIVIDE, "o = o / l"),
            (_LSE, "lse = tl.where(l == 0.0, 0.0, m + tl.log(l))"),
            (_SHIFT, "shift = m"),
            (_O, "o = tl.sum(tl.exp(m_parts - m)[:, None] * o_parts, axis=0)"),
        ),
    )
