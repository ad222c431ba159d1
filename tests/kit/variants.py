"""An answer made of a solution, as corpus.py lists them."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Variant:
    """An answer: text replaced in the solution (old, new, old, new, …), or `code` run after it; its mistake's id."""

    named: str
    replaced: tuple[str, ...] = ()
    code: str = ""


def swapped(named: str, *replaced: str) -> Variant:
    """The solution with text replaced."""
    return Variant(named, replaced)


def coded(named: str, code: str) -> Variant:
    """Code in place of the solution."""
    return Variant(named, (), code)


def proofs_but_for(cases, count):
    """For a test: the first `count` of its cases, and the others as proofs."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    rest = [pytest.param(*of_case, marks=pytest.mark.proof) for of_case in values[count:]]
    return [pytest.param(*of_case) for of_case in values[:count]] + rest


def each(variants, count=None):
    """For a test: the first variant of every exercise, or of `count` exercises, and the others as proofs."""
    named = [(name, variant) for name, of_name in variants.items() for variant in of_name]
    first = [(name, next(iter(of_name))) for name, of_name in variants.items() if of_name][:count]
    return proofs_but_for(first + [one for one in named if one not in first], len(first))
