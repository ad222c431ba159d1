"""Warm-ups: solved as the solutions have them they are right; each mistake is named, and nothing is noted."""

import json
import re

import pytest

from exercises import ROOT, Exercise
from helpers import check
from helpers.check import kept
from helpers.check.exercises.warm_ups import WARM_UPS
from helpers.engine import notes

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")


def answers():
    """Of each warm-up, by its name, the cells of its solution that define the answer."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts = {cell["id"]: "".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"}
        for text in texts.values():
            if "### BEGIN SOLUTION" in text and (call := re.search(r"^check\.(\w+)\((\w+)\)$", text, re.MULTILINE)):
                found[call[1]] = Exercise(call[1], call[2], 0, (texts["setup"], text.replace(call[0], "")))
    return found


ANSWERS = answers()


def test_every_warm_up_stands_in_a_lesson_and_counts_for_nothing():
    assert list(ANSWERS) == [one.name for one in WARM_UPS]
    assert not ANSWERS.keys() & check.EXERCISES.keys() and not any(one.points for one in WARM_UPS)


@pytest.mark.parametrize("name", ANSWERS)
def test_the_solution_is_right_and_is_not_noted(name):
    report = getattr(check, name)(ANSWERS[name].answered())
    assert report.passed, str(report)
    assert report.summary().startswith(f"{name}: right in all ") and "point" not in report.summary()
    assert notes.entries() == {} and kept.last_checked() is None


WRONG = [
    ("exponentials", "y = tl.exp(x)", "pass", "y_still_x"),
    ("exponentials", "y = tl.exp(x)", "y = torch.exp(x)", "host_function"),
    ("exponentials", "tl.store(y_ptr + places, y)", "return y", "nothing_stored"),
    ("below", "y = x - tl.max(x, axis=0)", "x - tl.max(x, axis=0)", "y_still_x"),
    ("below", "y = x - tl.max(x, axis=0)", "y = tl.max(x, axis=0) - x", "maximum_minus_x"),
    ("below", "y = x - tl.max(x, axis=0)", "y = tl.zeros_like(x) + tl.max(x, axis=0)", "maximum_alone"),
    ("below", "y = x - tl.max(x, axis=0)", "return x - tl.max(x, axis=0)", "nothing_stored"),
    ("below", "y = x - tl.max(x, axis=0)", "y = x - max(x)", "host_function"),
    ("largest", "x = tl.load(x_ptr", "z = tl.load(x_ptr", "x_still_0"),
    ("largest", 'other=-float("inf")', "other=0.0", "tail_of_0"),
    ("largest", ', mask=cols < N, other=-float("inf")', "", "out_of_bounds"),
    ("row_sum", "total += tl.sum(x, axis=0)", "pass", "total_still_0"),
    ("row_sum", "total += tl.sum(x, axis=0)", "total = tl.sum(x, axis=0)", "last_tile_alone"),
    ("largest_score", 's = tl.where((keys < N)[None, :], s, -float("inf"))', "pass", "tail_scores_0"),
]


@pytest.mark.parametrize(("name", "old", "new", "named"), WRONG, ids=[f"{w[0]}-{w[2]}" for w in WRONG])
def test_a_mistake_is_named(name, old, new, named):
    report = getattr(check, name)(ANSWERS[name].answered(old, new))
    assert report.diagnosis and report.diagnosis.id == named, str(report)
    assert "not finished yet" in report.summary() and report.diagnosis.hint == 0
