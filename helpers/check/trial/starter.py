"""Whether a function is still what the notebook hands out: compared by instructions, so that comments do not count."""

from __future__ import annotations

import dis
import itertools
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

_NO_WORK = {"RESUME", "NOP", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN"}


def plain_function(fn: Any) -> Any:
    """The answer in what calls it: a `partial` calls its first argument, where that is a function."""
    while isinstance(fn, partial):
        fn = fn.args[0] if fn.args and callable(fn.args[0]) else fn.func
    return fn


def instructions_of(fn: Any) -> str:
    """The instructions of a function of Python as text, without its docstring; nothing for anything else.

    A method of an imported module is called in two ways, by whether the import stands in the same file; jumps are then
    of other lengths.
    """
    code = getattr(plain_function(fn), "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_WORK]
    named = (step.opname.replace("LOAD_METHOD", "LOAD_ATTR") for step in steps)
    argued = ("" if step.arg is None or "JUMP" in step.opname else f" {step.argval}" for step in steps)
    return "; ".join(map("".join, zip(named, argued, strict=True)))[:2000]


def returns_a_value(fn: Any) -> bool:
    """Whether a function of Python has a return with something other than the word None behind it."""
    code = getattr(plain_function(fn), "__code__", None)
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_WORK] if code else []
    return any(
        step.opname == "RETURN_VALUE" and not (before.opname.startswith("LOAD_CONST") and before.argval is None)
        for before, step in itertools.pairwise(steps)
    )


def starters(*given: Callable) -> frozenset[str]:
    """The instructions of functions as handed out, and of functions that say at once that they are not written."""
    return frozenset(map(instructions_of, (*given, _empty, _none, _refused, _refused_by_call)))


def _empty(): ...


def _none():
    return None


def _refused():
    raise NotImplementedError


def _refused_by_call():
    raise NotImplementedError()
