"""Trials and reports that a sandbox has sent, which may hold anything: the parts that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End
from helpers.engine.memory import Access

_LARGEST_TILE = 1 << 20
"""Lanes that Triton's widest access may have."""
_OF_A_FAILURE = ("raised", "error", "unwritten", "line", "cause", "refused", "code")
"""The record of a call that has not returned: how it ended, where and why, and of what answer."""
_MOST_FINDINGS = 200
_HINTS, _OF_ACCESS = get_type_hints(Trial), get_type_hints(Access)


def received(sent: Any) -> Trial:
    """The trial in what a sandbox sent, which may be anything: every field has its type, or its default."""
    one = Trial()
    for name, value in sent.items() if isinstance(sent, dict) else ():
        if name in _HINTS and _fits(value, _HINTS[name]):
            setattr(one, name, End(value) if name == "end" else value)
    one.raised, one.got, one.printed = one.raised[:1000], one.got[:300], one.printed[:5000]
    one.race_of_lanes, one.missing = one.race_of_lanes[:300], one.missing[:300]
    one.not_looked_at = one.not_looked_at[:300]
    one.race, one.reordered, one.line = one.race[:300], one.reordered[:300], one.line[:300]
    one.cause, one.code = one.cause[:100], one.code[:2000]
    one.refused = {str(name)[:50]: str(said)[:1000] for name, said in list(one.refused.items())[:10]}
    one.tile = min(max(1, one.tile), _LARGEST_TILE)
    if one.pair is not None and len(one.pair) != 2:
        one.pair = None
    if not _is_access(one.outside):
        one.outside = {}
    return one


def items_of(sent: Any) -> Sequence[Any]:
    """A list or tuple in what a sandbox sent; nothing where it is neither."""
    return sent if isinstance(sent, list | tuple) else ()


def _is_access(outside: dict[Any, Any]) -> bool:
    """Whether these are the fields of an Access, whose element may lie before its tensor."""
    return set(outside) == set(_OF_ACCESS) and all(
        _fits(abs(value) if name == "element" and type(value) is int else value, _OF_ACCESS[name])
        for name, value in outside.items()
    )


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value, made of plain ones and tensors, is of the type that a field is annotated with; numbers count."""
    if hint is Any:
        return True
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return isinstance(value, list) and all(_fits(item, *get_args(hint)) for item in value)
    if get_origin(hint) is dict:
        return isinstance(value, dict)
    if hint is End:
        return isinstance(value, str) and value in set(End)
    if hint is int:
        return type(value) is int and 0 <= value < 1 << 60
    if hint is float:
        return type(value) in (int, float)
    return isinstance(value, NoneType if hint is None else hint)


def failure(sent: Any) -> Trial:
    """The trial of a call that has not returned, whatever else was sent of it."""
    one = received(sent)
    end = End.DIED if one.end is End.RETURNED else one.end
    return Trial(end, **{name: getattr(one, name) for name in _OF_A_FAILURE})
