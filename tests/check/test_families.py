"""Families of wrong answers that are right on most inputs are rejected; right answers that look like them are not.

A few in every run; all of them among the proofs.
"""

import pytest

from exercises import SOLUTIONS, judged, wrong_findings
from families import POINTS, RIGHT, WRONG
from variants import each


@pytest.mark.parametrize(("name", "fault"), each(WRONG, 3))
def test_a_wrong_answer_that_is_right_on_most_inputs_is_rejected(name, fault):
    wrong = judged(name, SOLUTIONS[name].variant(WRONG[name][fault]), seed=3)
    assert (wrong.attempted, wrong.passed) == (True, False)
    assert wrong.points == POINTS.get((name, fault), 0)


@pytest.mark.parametrize(("name", "way"), each(RIGHT, 3))
def test_a_right_answer_that_looks_like_a_wrong_one_keeps_its_points(name, way):
    right = judged(name, SOLUTIONS[name].variant(RIGHT[name][way]), seed=3)
    assert wrong_findings(right) == {}
    assert right.points == SOLUTIONS[name].points
