"""Answers that are alike: which pairs an instructor is told of."""

import pytest

from handed_in import TILE
from helpers.instructor.report import understood
from helpers.instructor.report.gradebook import Result


def _answered(student, text):
    return Result(student, TILE, {"answers": {"single": text}, "exercises": []})


COPIED = """
rows = tl.program_id(0)  # my own idea
shifted = load(rows) - 3
total = shifted / 7 + rows
store(total, mask=None)
"""


def test_answers_that_share_what_nobody_else_has_are_a_pair_also_under_other_names():
    renamed = COPIED.replace("shifted", "s").replace("total", "t")
    others = [_answered(f"other-{number}", f"y_{number} = f(x) * {number}\nz = y_{number}") for number in range(20)]
    pairs = understood.alike([_answered("ada", COPIED), _answered("bob", renamed), *others], {})
    assert [pair.students for pair in pairs] == [("ada", "bob")]


def test_answers_that_the_course_itself_has_are_no_pair():
    given = {TILE: understood.statements(COPIED)}
    assert understood.alike([_answered("ada", COPIED), _answered("bob", COPIED)], given) == []


@pytest.mark.parametrize("text", ["def (", "x = " + "(" * 5000, "\0", "é" * 30_000, "'''"])
def test_answers_that_are_no_python_are_compared_too(text):
    assert isinstance(understood.statements(text), set)
