"""What a class has understood: mistakes counted by what they teach, and words of a learner's that are only words."""

import re

import pytest

from handed_in import TILE
from helpers.instructor.report import understood
from helpers.instructor.report.gradebook import Result
from helpers.instructor.report.understood import Understood


def wrong(student, error="", named="", identity="error", seen="a case", passed=False):
    """A result with one exercise, which stops with an error or has a diagnosis of this name."""
    diagnosis = {"id": identity, "name": named, "question": "?", "hint": 1} if named else None
    exercise = {"check": "single_tile", "attempted": True, "passed": passed, "diagnosis": diagnosis, "error": error,
                "findings": [["right", True, ""], ["wrong", False, seen]]}  # fmt: skip
    return Result(student, TILE, {"exercises": [exercise], "answers": {}})


def mistakes(*results):
    (one,) = understood.by_exercise(results)
    return one.mistakes


STOPS = {"named": "The code stops with an error.", "identity": "error"}


def test_answers_that_stop_are_counted_by_their_error():
    found = mistakes(
        wrong("ada", "NameError", seen="NameError: name 'l' is not defined (line 7)", **STOPS),
        wrong("bob", "NameError", seen="NameError: name 'm' is not defined (line 9)", **STOPS),
        wrong("eve", "TypeError", seen="TypeError: no (line 1)", **STOPS),
    )
    assert found == (
        ("NameError, as in: name 'l' is not defined (line 7)", 2), ("TypeError, as in: no (line 1)", 1),
    )  # fmt: skip


def test_a_cell_that_stops_is_counted_by_its_error_too():
    assert mistakes(wrong("ada", "SyntaxError", seen="line 3 of the cell"))[0] == (
        "SyntaxError, as in: line 3 of the cell",
        1,
    )


def test_a_mistake_that_is_known_is_counted_by_its_name():
    assert mistakes(wrong("ada", "NameError", "A name is missing.", "undefined_name")) == (("A name is missing", 1),)


def test_a_mistake_of_which_more_is_said_in_one_answer_is_counted_with_the_others():
    said = [
        wrong(student, named=name, identity="no_division") for student, name in (("ada", "A."), ("bob", "A. And B."))
    ]
    assert mistakes(*said) == (("A", 2),)


def test_a_right_answer_makes_no_mistake():
    assert mistakes(wrong("ada", "NameError", passed=True, **STOPS)) == ()


def test_every_failure_is_counted_also_one_without_a_name():
    found = mistakes(
        wrong("ada", named="A name is missing.", identity="undefined_name"),
        wrong("bob", seen="is not defined; the cell defines softmax_of_me"),
        wrong("eve", seen="3 instead of 4"),
        wrong("zoe", "TypeError", seen="no"),
        wrong("sue", passed=True),
    )
    assert sum(count for _, count in found) == 4
    assert found[0] == ("no known mistake, as in: wrong: is not defined; the cell defines softmax_of_me", 2)


def test_who_has_not_tried_has_not_failed():
    untouched = wrong("ada", named="A name is missing.", identity="undefined_name")
    untouched.data["exercises"][0]["attempted"] = False
    assert mistakes(untouched) == ()


def test_mistakes_that_are_not_among_the_commonest_are_counted_together():
    one = Understood("single_tile", 9, 9, 0, (("a", 3), ("b", 2), ("c", 2), ("d", 1), ("e", 1)))
    assert understood.overview([one]).rows[0][-1] == "3 × a; 2 × b; 2 × c; 2 × other mistakes"


def test_what_is_said_of_a_mistake_is_cut():
    ((said, _),) = mistakes(wrong("ada", "E", seen="x" * 1000))
    assert len(said) < 120


@pytest.mark.parametrize("words", [r"$\frac{$", "$", "a_{b", "{0} %s {", "\\", "<b>"])
def test_words_of_a_learner_s_are_drawn_as_they_are(words):
    found = [Understood("single_tile", 3, 2, 1, ((words, 1),))]
    assert understood.chart(found).png().startswith(b"\x89PNG")


def test_a_bar_has_who_passed_who_did_not_and_who_did_not_try():
    (axes,) = understood.chart([Understood("single_tile", 9, 7, 4, ()), Understood("masked", 5, 5, 0, ())]).figure.axes
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers}
    assert widths == {"passed": [4, 0], "attempted, not right": [3, 5], "not attempted": [2, 0]}


def test_the_page_has_a_table_with_a_head_and_a_figure_in_words(tmp_path):
    found = [Understood("single_tile", 3, 2, 1, (("<script>", 1),)), Understood("masked", 5, 5, 4, ())]
    path = understood.write_page(tmp_path, found, [])
    page = path.read_text(encoding="utf-8")
    assert len(re.findall("<th ", page)) == 5 and "<script>" not in page
    assert 'alt="Exercises of a class. 2.1 single_tile: 1 of 3 passed; 3.1 masked: 4 of 5 passed."' in page
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
