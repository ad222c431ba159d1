"""What a wrong kernel loaded and stored is drawn; a right answer is asked why, beside the course's own."""

import re

import pytest

from exercises import SOLUTIONS
from helpers import check
from helpers.check.kept import text_of

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
STORE = "tl.store(y_ptr + row * stride + cols, e / l"


def test_what_a_wrong_kernel_never_stores_is_drawn():
    report = check.single_tile(SOLUTIONS["single_tile"].answered(STORE, f"{STORE}, mask=cols < BLOCK - 1"))
    case, loaded, stored = report.accesses
    assert case in [finding.case for finding in report.findings if not finding.ok]
    assert loaded.keys() == stored.keys() == {0, 1, 2}
    assert all(set(counts) == {1} for counts in loaded.values())
    assert all(counts == [1] * (len(counts) - 1) + [0] for counts in stored.values())
    assert re.search(r"The loads and stores of your kernel: .*<img .*never", report._repr_html_())


def test_nothing_is_drawn_of_a_kernel_whose_accesses_are_right():
    report = check.single_tile(SOLUTIONS["single_tile"].answered("e / l", "e"))
    assert not report.passed and report.accesses is None and "<img" not in report._repr_html_()


def test_a_right_answer_is_asked_why_and_stands_beside_the_course_s_own():
    html = check.merge(SOLUTIONS["merge"].answered())._repr_html_()
    assert "Why does it not matter in which order" in html and "def merge(a: Pair, b: Pair)" in html


def test_a_wrong_answer_does_not_see_the_course_s_own():
    assert "def merge" not in check.merge(lambda a, b: a)._repr_html_()


@pytest.mark.parametrize("name", [name for name, one in check.EXERCISES.items() if one.ours])
def test_each_exercise_with_an_answer_of_the_course_s_asks_why(name):
    exercise = check.EXERCISES[name]
    assert exercise.why.startswith("Why ") and exercise.why.endswith("?")
    assert "def " in text_of(exercise.ours)
