"""The table of known mistakes, and of the cases that reject them.

    python tests/proofs/mistakes_table.py

prints it, for the inputs of one seed. That takes some minutes, because every mistake is judged.
"""

import functools
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kit"))

from corpus import WRONG
from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.engine.isolate import LIMITS, Limits

SEED = 20261121


ENDED_SOON = {"endless": Limits(cpu_s=1), "too_slow": Limits(together_s=2)}
"""Limits for what would take a learner's whole time."""


@functools.cache
def report(name, fault):
    """The report on a known mistake, on one seed's inputs, within a learner's limits or `ENDED_SOON`."""
    wrong = WRONG[name][fault]
    limits = ENDED_SOON.get(wrong.named, LIMITS)
    return EXERCISES[name].report_on(SOLUTIONS[name].variant(wrong), seed=SEED, limits=limits)


def table():
    """For each exercise its cases, numbered, and for each mistake the cases that reject it."""
    return "\n".join(_table_of(name) for name in WRONG)


def _table_of(name):
    reports = {fault: report(name, fault) for fault in WRONG[name]}
    cases = list(dict.fromkeys(finding.case for wrong in reports.values() for finding in wrong.findings))
    numbers = [f"{number + 1:2} {case}" for number, case in enumerate(cases)]
    named = sum(wrong.diagnosis.id == WRONG[name][fault].named for fault, wrong in reports.items())
    rejected = sum(not wrong.passed for wrong in reports.values())
    width = max(map(len, reports))
    head = [
        f"### {name}: {rejected} of {len(reports)} mistakes rejected, {named} named first\n",
        "```text",
        *numbers,
        "",
        *(
            "".join([" " * (width + 2), *(f"{number + 1:02}"[digit] for number in range(len(cases)))])
            for digit in (0, 1)
        ),
    ]
    lines = []
    for fault, wrong in reports.items():
        failed = {finding.case for finding in wrong.findings if not finding.ok}
        marks = "".join("x" if case in failed else "." for case in cases)
        lines.append(f"{fault:{width}}  {marks}  {wrong.diagnosis.name}")
    return "\n".join([*head, *lines, "```\n"])


if __name__ == "__main__":
    print(table())
