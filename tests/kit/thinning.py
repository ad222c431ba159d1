"""Which cases of a costly test run before a commit, and a part of the proofs, for a run without time for all of them.

Both draw by the hashes of ids: a test more or less does not change which others run, and where parameters are crossed,
the cases that run do not all have the same value of one of them, as every nth might.
"""

from collections.abc import Sequence
from hashlib import sha256

FEW = 3
"""So many cases of a test that is thinned run before a commit, unless its mark has another number."""


def _number(case: str) -> int:
    return int.from_bytes(sha256(case.encode()).digest())


def few(cases: Sequence[str], most: int = FEW) -> set[str]:
    """Of the ids of a test's cases the first, and others that are drawn, at most `most`."""
    return set([*cases[:1], *sorted(cases[1:], key=_number)][:most])


def part(proofs: Sequence[str], n: int, shift: int = 0) -> list[str]:
    """Of ids of proofs about one in n, in their order: n runs with shifts that follow each other run each once."""
    return [proof for proof in proofs if (_number(proof) + shift) % n == 0]
