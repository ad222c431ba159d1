"""Which cases of a test run before a commit, and a part of the proofs, for a run that has no time for all of them."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

FEW = 3
"""So many cases of a test run before a commit."""
LONG = 4
"""A test with more proofs than this is thinned."""


def few(cases: Sequence[str], most: int = FEW) -> set[str]:
    """Of the ids of a test's cases the first, and others that their hashes draw: a case more changes one of them.

    Not every nth: where parameters are crossed, these would have the same value of one of them.
    """
    drawn = sorted(cases[1:], key=lambda case: sha256(case.encode()).digest())
    return {*cases[:1], *drawn[: most - 1]}


def every_nth(proofs: Sequence[str], n: int, shift: int = 0) -> list[str]:
    """Of ids of tests every nth case of a long test, in their order, and all of the others.

    Another `shift` leaves out others: n runs with shifts that follow each other run all cases.
    """
    tests = [proof.partition("[")[0] for proof in proofs]
    count, seen, kept = Counter(tests), Counter(), []
    for proof, test in zip(proofs, tests, strict=True):
        if count[test] <= LONG or (seen[test] + shift) % n == 0:
            kept.append(proof)
        seen[test] += 1
    return kept
