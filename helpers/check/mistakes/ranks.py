"""The known mistakes of functions of ranks, told by what all ranks return or by the fault that stops them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from helpers.check.mistakes import names
from helpers.check.mistakes.edited_ranks import ranked, returned_parts
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, any_of, recognised, where
from helpers.check.mistakes.shared import WRONG_DTYPE
from helpers.check.mistakes.stops import GENERAL
from helpers.check.trial.ranked import Ranked
from helpers.ranks.meeting import Fault

# How they are recognised


def stopped_with(fault: Fault, shows: Callable[[Seen, Ranked], bool] = lambda case, seen: True) -> Callable:
    """Whether the ranks of a case stopped so."""

    def has(case: Seen) -> bool:
        seen = ranked(case)
        return seen.fault == fault and shows(case, seen)

    return has


def every_wrong(has: Callable[[Seen], bool], weight: float) -> Explains:
    """Explains if all wrong cases have it."""
    return lambda seen: weight * all(has(case) for case in seen if not case.ok)


_LINE = re.compile(r" \(line \d+(?:: `.*?`)?\)(?=[,.])")
_KIND = re.compile(r"calls (\w+).* ranks? [\d, and]+ (\w+)")


def _kinds_differ(case: Seen, seen: Ranked) -> bool:
    found = _KIND.search(_LINE.sub("", seen.said))
    return found is not None and found[1] != found[2] and {found[1], found[2]} != {"send", "recv"}


def wherever(fault: Fault, shows: Callable[[Seen, Ranked], bool], weight: float) -> Explains:
    """Explains if some cases stop with this fault, and all that do have it."""

    def explains(seen: Sequence[Seen]) -> float:
        found = [shows(case, one) for case in seen if (one := ranked(case)).fault == fault]
        return weight * (bool(found) and all(found))

    return explains


def place_at_fault(case: Seen, seen: Ranked) -> int:
    """The number of the rank at fault in its group."""
    return seen.rank // case.x.groups


def _is_empty(case: Seen, seen: Ranked) -> bool:
    """The rank at fault has no columns."""
    return case.x.sizes[place_at_fault(case, seen)] == 0


def _is_of_so_many_ranks(seen: Sequence[Seen]) -> float:
    """Just the cases of four ranks are right, or just cases of more ranks than some number are wrong."""
    right, wrong = ([len(case.x.sizes) for case in seen if case.ok == ok] for ok in (True, False))
    return 0.85 * ((set(right) <= {4} and 4 not in wrong) or 4 <= max(right, default=4) < min(wrong))


def _is_of_equal_shards(seen: Sequence[Seen]) -> float:
    """Just cases with shards of different widths are wrong, and at least half of these."""

    def is_uneven(case: Seen) -> bool:
        return len(set(case.x.sizes)) > 1

    wrong = [case for case in seen if not case.ok]
    return 0.6 * (all(map(is_uneven, wrong)) and 2 * len(wrong) >= sum(map(is_uneven, seen)))


def _without_collectives(seen: Sequence[Seen]) -> float:
    """No case has a collective, and those of several ranks are wrong."""
    told = [ranked(case) for case in seen]
    return 0.94 * (
        all(one.returned and not one.collectives for one in told) and not any(_has_several(c) and c.ok for c in seen)
    )


def _has_several(case: Seen) -> bool:
    return len(case.x.sizes) > 1


def _other_dtype(case: Seen) -> bool:
    """Results came back, and not all parts have the dtype of their shards, or a loss has 16 bits."""
    if returned_parts(case) is None:
        return False
    *losses, parts = zip(*(one.dtypes for one in ranked(case).returned), strict=True)
    return set(parts) != {case.x.dtype} or any("16" in loss for of_ranks in losses for loss in of_ranks)


def _leaves_one(case: Seen) -> bool:
    return ranked(case).left > 0


def _overwrites(case: Seen) -> bool:
    return not ranked(case).kept


def _none(case: Seen) -> bool:
    return any(one.is_none for one in ranked(case).returned)


# Mistakes of both exercises


OF_FAULT = {
    "endless": stopped_with(Fault.OUT_OF_TIME),
    "ends_its_process": stopped_with(Fault.DIED),
    "prints_without_end": stopped_with(Fault.PRINTED),
    "nothing_returned": _none,
}
"""How ranks show mistakes of every exercise, by id."""
_STOPS = (
    *(replace(one, explains=any_of(one.explains, where(OF_FAULT[one.id]))) for one in GENERAL if one.id in OF_FAULT),
    *(
        replace(one, explains=any_of(one.explains, where(stopped_with(Fault.RAISED), weight=0.1)))
        for one in GENERAL
        if one.id == "error"
    ),
)
"""Mistakes of every exercise, as ranks show them."""
OF_BOTH = (
    *_STOPS,
    Mistake(
        "group_is_the_world",
        "The collective is called on all ranks, not on the group's.",
        "Which ranks hold the other columns of this row?",
        4,
        every_wrong(lambda case: case.x.groups > 1, 0.98),
    ),
    recognised(WRONG_DTYPE, 0, every_wrong(_other_dtype, 0.98)),
    recognised(names.ONLY_16_BIT, 0, every_wrong(lambda case: case.x.dtype != "float32", 0.9)),
    Mistake(
        "not_waited_for",
        "A collective is begun, and nobody waits for it.",
        "When does a tensor that an asynchronous collective fills hold its result?",
        4,
        where(_leaves_one),
    ),
    Mistake(
        "shard_overwritten",
        "An input is overwritten.",
        "Which line changes the shard itself, or its target, and who needs them afterwards?",
        4,
        where(_overwrites),
    ),
    Mistake(
        "empty_rank_skips",
        "A rank without columns leaves before the collective.",
        "What do the other ranks wait for?",
        4,
        wherever(Fault.DEADLOCK, _is_empty, 0.95),
    ),
    Mistake(
        "ranks_call_differently",
        "Ranks call different collectives.",
        "On what does a rank decide here which collective it calls, and do all ranks know that?",
        4,
        where(stopped_with(Fault.MISMATCH, _kinds_differ), weight=0.9),
    ),
    Mistake(
        "shapes_of_ranks_differ",
        "Ranks hand tensors of different shapes to one collective.",
        "Which shape is the same on every rank, however wide its shard is?",
        1,
        where(stopped_with(Fault.MISMATCH, lambda case, seen: not _kinds_differ(case, seen)), weight=0.8),
    ),
    Mistake(
        "empty_shard_raises",
        "A rank without columns stops with an error.",
        "What is the maximum of no numbers, and does pairs_of have it?",
        4,
        wherever(Fault.RAISED, _is_empty, 0.9),
    ),
    Mistake(
        "some_ranks_wait",
        "Some ranks wait in a collective that another rank does not call.",
        "Which ranks call it, and on what does that depend?",
        4,
        where(stopped_with(Fault.DEADLOCK), weight=0.5),
    ),
    Mistake(
        "nothing_crosses",
        "No rank calls a collective, so nothing crosses.",
        "Which numbers of the other shards does a rank need, and which call brings them?",
        1,
        _without_collectives,
    ),
    Mistake(
        "equal_shards_only",
        "The result is right only if all shards have the same width.",
        "Where does the code take it that another rank has as many columns as this one?",
        1,
        _is_of_equal_shards,
    ),
    Mistake(
        "number_of_ranks_fixed",
        "The number of ranks is written down.",
        "What does group.size() return if there are two ranks, or one?",
        1,
        _is_of_so_many_ranks,
    ),
)
"""Mistakes of 13.2 and of 13.3."""
