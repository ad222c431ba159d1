"""A part of the proofs, for a run that has no time for all of them."""

from collections import Counter
from collections.abc import Sequence

LONG = 20
"""A test with more cases than this is thinned."""


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
