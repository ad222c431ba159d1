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
    return [
        pytest.param(*case, marks=[pytest.mark.proof] if number >= count else []) for number, case in enumerate(cases)
    ]


def each(variants):
    """For a test: the first of every exercise's variants, and the others as proofs."""
    return [
        pytest.param(name, variant, marks=[pytest.mark.proof] if number else [])
        for name, of_name in variants.items()
        for number, variant in enumerate(of_name)
    ]
