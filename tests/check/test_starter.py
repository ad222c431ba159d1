"""Functions as they are handed out are told from those in which something was written."""

# ruff: noqa: F841
from functools import partial

import pytest

from exercises import STUBS
from helpers.check import EXERCISES
from helpers.check.trial.starter import instructions_of, returns_a_value, starters


def given(a, b):
    """As it is handed out."""
    pass
    (m_a, l_a), (m_b, l_b) = a, b
    pass


def with_a_comment(a, b):
    """Another docstring."""
    # my notes
    (m_a, l_a), (m_b, l_b) = a, b


def written(a, b):
    (m_a, l_a), (m_b, l_b) = a, b
    m = max(m_a, m_b)


def empty():
    """Nothing yet."""


def refused():
    raise NotImplementedError


def returns_a_name(a, b):
    c = a
    return c


def returns_early(a, b):
    if a:
        return
    b.append(None)


def test_a_return_with_a_value_is_told_from_one_without():
    assert returns_a_value(returns_a_name) and returns_a_value(partial(returns_a_name, 1))
    assert not any(map(returns_a_value, (given, written, empty, returns_early, refused, len)))


def test_comments_docstrings_and_pass_do_not_count():
    assert instructions_of(with_a_comment) == instructions_of(given)


def test_a_line_more_counts():
    assert instructions_of(written) not in starters(given)


@pytest.mark.parametrize("fn", [empty, refused, given, partial(given)])
def test_what_is_handed_out_and_what_says_that_it_is_not_written_are_starters(fn):
    assert instructions_of(partial(map, fn)) in starters(given)


def test_another_number_counts():
    assert instructions_of(lambda: 3) != instructions_of(lambda: 4)


def test_what_is_no_function_of_python_has_no_instructions():
    assert instructions_of(len) == instructions_of(3) == ""


@pytest.mark.parametrize("name", ["merge", "my_pick", "occupancy", "eager"])
def test_the_starters_of_an_exercise_are_those_of_the_notebook(name):
    assert instructions_of(STUBS[name].answered()) in EXERCISES[name].starters
