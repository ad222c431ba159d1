"""The checks of lesson 08 whose answers are numbers: places of a GPU, which are simulated, and rows in a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.check.report import Diagnosis, Finding, Report
from helpers.gpu.waiting import VARIANTS, least_places, run

L2_BYTES = 60 * 2**20
"""L2 cache of an H200: 5 MiB for each of its 12 memory controllers."""

ROW_BYTES = 131072 * 4
GIVE = 1.25
"""By this factor a prediction may miss the bounds between which the rule lies."""


def deadlock(least: Mapping[str, Any]) -> Report:
    """The report on the fewest places of each launch. It says what happens on those answered, or on one less."""
    if all(least[variant] is None for variant in VARIANTS):
        return Report("deadlock", 2, attempted=False, findings=())
    findings = tuple(_places_finding(variant, least[variant]) for variant in VARIANTS)
    wrong = {finding.case for finding in findings if not finding.ok}
    return Report("deadlock", 2, True, findings, diagnosis=_misjudged(least, wrong))


def _places_finding(variant: str, places: object) -> Finding:
    grids = VARIANTS[variant]
    if places is None:
        return Finding(variant, False, "not filled in yet")
    if isinstance(places, bool) or not isinstance(places, int) or places < 1:
        return Finding(variant, False, f"needs a whole number of places, at least 1; it is {places!r}")
    outcome = run(*grids, places=places)
    if outcome.hangs:
        stuck = f"{len(outcome.waiting)} programs wait, {outcome.never_started} cannot start"
        return Finding(variant, False, f"hangs on {places} places: {stuck}")
    if places > 1 and not run(*grids, places=places - 1).hangs:
        return Finding(variant, False, f"comes to an end on {places - 1} places too")
    return Finding(variant, True, f"comes to an end on {places} places, and hangs on one less")


def _misjudged(least: Mapping[str, Any], wrong: set[str]) -> Diagnosis | None:
    """The mistake that explains a wrong answer, the first of several."""
    for diagnosis, answers in PLACES:
        if any(answers(variant) == least[variant] for variant in wrong):
            return diagnosis
    return None


def _right(variant: str) -> int:
    return least_places(*VARIANTS[variant])


def _programs(variant: str) -> int:
    return sum(map(len, VARIANTS[variant]))


def _of_one_row(variant: str) -> int:
    """Slices of a row, of which each launch has as many."""
    return 1 + max(part for grid in VARIANTS[variant] for program in grid for _, part in program)


PLACES = (
    (
        Diagnosis(
            "It is the largest number of places on which it still hangs.",
            "How many places are one more than that?",
            1,
        ),
        lambda variant: _right(variant) - 1,
    ),
    (
        Diagnosis(
            "Places are counted as if the slices of a row started one after the other.",
            "Which programs have started before the last slice of row 0 does?",
            2,
        ),
        lambda variant: _of_one_row(variant) if _of_one_row(variant) < _right(variant) else None,
    ),
    (
        Diagnosis(
            "A place is counted for every program.",
            "Which programs can start only once others have ended, and is that too late for anybody?",
            1,
        ),
        lambda variant: _programs(variant),
    ),
)
"""Mistakes of exercise 8.2, and the number of places that each leads to."""


def l2(rows: float | None) -> Report:
    """The report on a predicted number of rows, between what fits with the results beside it and what fits alone."""
    if rows is None:
        return Report("l2", 2, attempted=False, findings=())
    alone = L2_BYTES / ROW_BYTES
    ok = alone / 2 / GIVE <= rows <= alone * GIVE
    seen = f"{rows:g} rows are {rows * ROW_BYTES / 1e6:,.1f} MB"
    if not ok:
        seen += ", " + ("far less than the cache holds" if rows < alone else "more than the cache holds")
    diagnosis = None if ok else next((d for d, factor in ROWS if 0.8 <= rows / (alone * factor) <= 1.25), None)
    return Report("l2", 2, True, (Finding("rows whose input stays in L2", ok, seen),), diagnosis=diagnosis)


ROWS = (
    (Diagnosis("Elements are counted, not bytes.", "How many bytes has a float32?", 1), 4.0),
    (Diagnosis("A float32 is taken to have 2 bytes.", "How many bits has a float32, and how many a byte?", 1), 2.0),
    (Diagnosis("Bits are counted, not bytes.", "In which unit is the cache's size?", 1), 1 / 8),
    (Diagnosis("The columns are counted, not the rows.", "How many rows of 131 072 columns are that?", 1), 131072.0),
    (Diagnosis("Bytes are counted, not rows.", "How many bytes has one row?", 1), float(ROW_BYTES)),
)
"""Mistakes of exercise 8.3, and the factor by which the answer comes out too large."""
