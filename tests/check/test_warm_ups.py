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
    ("exponentials", "y = tl.exp(x)", "y = exp(x)", "host_function"),
    ("exponentials", "y = tl.exp(x)", "y = math.e ** x", "host_function"),
    ("exponentials", "y = tl.exp(x)", "y = tl.exp2(x)", "powers_of_2"),
    ("exponentials", "y = tl.exp(x)", "y = tl.exp(-x)", "sign"),
    ("exponentials", "tl.store(y_ptr + places, y)", "return y", "nothing_stored"),
    ("below", "y = x - tl.max(x, axis=0)", "x - tl.max(x, axis=0)", "y_still_x"),
    ("below", "y = x - tl.max(x, axis=0)", "y = tl.max(x, axis=0) - x", "maximum_minus_x"),
    ("below", "y = x - tl.max(x, axis=0)", "y = tl.zeros_like(x) + tl.max(x, axis=0)", "maximum_alone"),
    ("below", "y = x - tl.max(x, axis=0)", "y = x - tl.min(x, axis=0)", "not_the_largest"),
    ("below", "y = x - tl.max(x, axis=0)", "y = x - tl.maximum(x, 0)", "not_the_largest"),
    ("below", "y = x - tl.max(x, axis=0)", "y = x + tl.max(x, axis=0)", "not_subtracted"),
    ("below", "y = x - tl.max(x, axis=0)", "return x - tl.max(x, axis=0)", "nothing_stored"),
    ("below", "y = x - tl.max(x, axis=0)", "y = x - max(x)", "host_function"),
    ("largest", "x = tl.load(x_ptr", "z = tl.load(x_ptr", "x_still_0"),
    ("largest", 'other=-float("inf")', "other=0.0", "tail_of_0"),
    ("largest", ', mask=cols < N, other=-float("inf")', "", "load_unmasked"),
    ("largest", "mask=cols < N", "mask=cols < BLOCK", "load_unmasked"),
    ("largest", "mask=cols < N", "mask=cols < stride", "load_unmasked"),
    ("largest", "mask=cols < N", "mask=row * stride + cols < N", "mask_of_places"),
    ("largest", "row * stride + cols,", "cols,", "loads_row_0"),
    ("largest", "row * stride + cols,", "row + cols,", "rows_one_apart"),
    ("largest", "row * stride + cols,", "row * N + cols,", "out_of_bounds"),
    ("largest", 'other=-float("inf")', "other=-1000.0", "tail_of_low_number"),
    ("largest", 'other=-float("inf")', 'other=float("inf")', "tail_of_inf"),
    ("row_sum", "total += tl.sum(x, axis=0)", "pass", "total_still_0"),
    ("row_sum", "total += tl.sum(x, axis=0)", "total = tl.sum(x, axis=0)", "last_tile_alone"),
    ("row_sum", "tl.sum(x, axis=0)", "tl.max(x, axis=0)", "another_sum"),
    ("row_sum", "total += tl.sum(x, axis=0)", "total = tl.sum(x + total, axis=0)", "total_in_each_lane"),
    ("largest_score", 's, -float("inf")', '-float("inf"), s', "real_scores_hidden"),
    ("largest_score", "keys < N)[None, :]", "keys >= N)[None, :]", "real_scores_hidden"),
    ("largest_score", '-float("inf")', 'float("inf")', "tail_scores_inf"),
    ("largest_score", 's = tl.where((keys < N)[None, :], s, -float("inf"))', "pass", "tail_scores_0"),
]


def test_scores_of_minus_inf_keys_are_wrong_if_queries_are_below_0():
    every = ANSWERS["largest_score"].answered("other=0.0", 'other=-float("inf")', 's, -float("inf"))', "s, s)")
    assert not check.largest_score(every).passed


def test_the_compiler_s_refusal_is_explained_by_the_line_of_the_answer():
    said = str(check.largest(ANSWERS["largest"].answered("row * stride + cols,", "row * stride,")))
    assert 'other=-float("inf"))`: the mask is a tile, and the address is a single one' in said
    said = str(check.below(ANSWERS["below"].answered("tl.max(x,", "tl.max(x_ptr,")))
    assert "`y = x - tl.max(x_ptr, axis=0)`: an address stands where numbers belong" in said


@pytest.mark.parametrize(("name", "old", "new", "named"), WRONG, ids=[f"{w[0]}-{w[2]}" for w in WRONG])
def test_a_mistake_is_named(name, old, new, named):
    report = getattr(check, name)(ANSWERS[name].answered(old, new))
    assert report.diagnosis and report.diagnosis.id == named, str(report)
    assert "not finished yet" in report.summary() and report.diagnosis.hint == 0
