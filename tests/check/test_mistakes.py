"""Every known mistake is rejected and named, and right answers that are written differently pass.

    python tests/check/test_mistakes.py

writes the table of mistakes and cases into helpers/check/README.md anew.
"""

import functools
import os
import random
import re
import sys
import tempfile
from pathlib import Path

import pytest

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers import check
from helpers.check import benchmarking, choosing, mistakes
from helpers.engine import isolate

README = Path(check.__file__).with_name("README.md")
SEED = 20261121
OF_CHOICE = {"occupancy": choosing.OCCUPANCY, "my_pick": choosing.PICK, "benchmark": benchmarking.BENCHMARK}
KNOWN = {name: OF_CHOICE.get(name) or getattr(mistakes, name.upper()) for name in WRONG}
each_wrong = pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in WRONG for fault in WRONG[name]])
each_right = pytest.mark.parametrize(("name", "way"), [(name, way) for name in RIGHT for way in RIGHT[name]])


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path, monkeypatch):
    """Nothing of these checks is kept: no progress, and no function that passed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "_passed", {})


@functools.cache
def report(name, fault):
    """The report on a known mistake, on the inputs of one seed, the endless ones ended after a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "SystemRandom", lambda: random.Random(SEED))
        patch.setattr(isolate, "LIMITS", isolate.Limits(cpu_s=1))
        random.seed(SEED)
        return getattr(check, name)(SOLUTIONS[name].variant(WRONG[name][fault]))


@each_wrong
def test_a_known_mistake_is_rejected_and_named(name, fault):
    wrong = report(name, fault)
    assert (wrong.attempted, wrong.passed) == (True, False)
    assert wrong.points in (0, wrong.max_points / 2)
    assert wrong.diagnosis.name == WRONG[name][fault].named


def test_the_corpus_holds_every_mistake_that_can_be_named():
    made = {wrong.named for faults in WRONG.values() for wrong in faults.values()}
    named = {mistake.name for known in KNOWN.values() for mistake in known}
    assert named <= made
    assert sum(map(len, WRONG.values())) >= 45


@pytest.mark.parametrize("name", KNOWN)
def test_a_diagnosis_is_a_sentence_and_a_question_and_points_to_one_of_the_hints(name):
    for mistake in KNOWN[name]:
        assert re.fullmatch(r"[A-Z\d].*\.|[ml] .*\.|x .*\.", mistake.name) and mistake.question.endswith("?")
        assert mistake.hint in (0, 1, 2, 3)


@each_right
def test_a_right_answer_written_differently_gets_full_points(name, way):
    right = getattr(check, name)(SOLUTIONS[name].variant(RIGHT[name][way]))
    assert [finding for finding in right.findings if not finding.ok] == []
    assert right.points == SOLUTIONS[name].points


def test_there_are_many_ways_to_be_right():
    assert sum(map(len, RIGHT.values())) >= 15


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", range(20))
def test_the_solution_gets_full_points_whatever_the_seed(name, seed, monkeypatch):
    monkeypatch.setattr(random, "SystemRandom", lambda: random.Random(seed))
    random.seed(seed)
    right = getattr(check, name)(SOLUTIONS[name].answered())
    assert [finding for finding in right.findings if not finding.ok] == []
    assert right.points == SOLUTIONS[name].points


def test_the_readme_of_the_checks_shows_the_table(record_property):
    shown = table()
    record_property("known mistakes, and the cases that reject them", shown)
    assert shown in README.read_text(encoding="utf-8"), "run `python tests/check/test_mistakes.py`"


def table():
    """For each exercise its cases, numbered, and for each mistake the cases that reject it."""
    return "\n".join(_table_of(name) for name in WRONG)


def _table_of(name):
    reports = {fault: report(name, fault) for fault in WRONG[name]}
    cases = list(dict.fromkeys(finding.case for wrong in reports.values() for finding in wrong.findings))
    numbers = [f"{number + 1:2} {case}" for number, case in enumerate(cases)]
    named = sum(wrong.diagnosis.name == WRONG[name][fault].named for fault, wrong in reports.items())
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
    start, end = "<!-- table -->\n", "<!-- end of table -->\n"
    os.chdir(tempfile.mkdtemp())  # where the checks keep their progress
    before, rest = README.read_text(encoding="utf-8").split(start)
    README.write_text(f"{before}{start}{table()}{end}{rest.split(end)[1]}", encoding="utf-8")
    sys.exit()
