"""The known mistakes of one query a head: how each is told, its question, and the hint that it points to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helpers.attention import decode
from helpers.check.mistakes.attention import ATTENTION_MISTAKES
from helpers.check.mistakes.attention_walk import right_to_a_hundredth, wrong_only
from helpers.check.mistakes.decode_merges import of_parts
from helpers.check.mistakes.edited import OfTensors
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, is_laid_out, with_hints
from helpers.check.mistakes.shared import result_used_again
from helpers.check.problems.cases import INF
from helpers.check.problems.decoding import DECODE

OF_LESSON_11 = {mistake.id: mistake for mistake in ATTENTION_MISTAKES}
"""The mistakes of lesson 11's kernel, by id."""


def _of_lesson_11(*ids: str, hint: int = 0) -> tuple[Mistake, ...]:
    """Mistakes of lesson 11's kernel that are recognised here as they are there."""
    return with_hints([OF_LESSON_11[id] for id in ids], hint)


_BEFORE = tuple(
    mistake
    for mistake in ATTENTION_MISTAKES[: [one.id for one in ATTENTION_MISTAKES].index("o_not_rescaled")]
    if mistake.id != "result_used_again"
)
"""What lesson 11 asks first: whether an answer returns, and tensors of the right kind."""
STARTS = (*_BEFORE, result_used_again(DECODE))
"""What both exercises ask first."""


# How they are told


def _shown(seen: Seen) -> bool:
    return bool(seen.trial.results)


def _is_untouched(seen: Seen) -> bool:
    """o is 0 and the log-sum-exp −inf, as the starter code stores them."""
    o, lse = seen.trial.results
    return bool((o == 0).all() and (lse == -INF).all())


def _nothing_merged(keys: bool) -> Explains:
    """All results are the starter's, and keys were loaded, or were not."""

    def explains(seen: Sequence[Seen]) -> float:
        shown = [case for case in seen if _shown(case) and case.others[0].numel()]
        wrong = [case for case in shown if not case.ok]
        of_keys = sum(one.numel() for case in wrong for one in case.others)
        loaded = sum(case.trial.loads for case in wrong) >= of_keys
        return 1.0 * (bool(wrong) and all(map(_is_untouched, shown)) and loaded == keys)

    return explains


def _only_laid_out(seen: Sequence[Seen]) -> float:
    """Every wrong case lies apart."""
    wrong = [case for case in seen if not case.ok]
    return 0.9 * (bool(wrong) and all(map(is_laid_out, wrong)))


UNMERGED = (
    Mistake(
        "no_part_has_keys",
        "The parts have no keys.",
        "With which key does part 0 begin, and which key comes after its last?",
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
_DECODED = OfTensors(
    decode.keys_of, decode.part_kernel, decode.merge_kernel, decode.decoded, decode.split_decode, kind=DECODE
)


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


DECODE_MISTAKES = (*STARTS, *UNMERGED, *of_parts(_DECODED, OF_LESSON_11), *symptoms(past_the_end=2, guard=3))
