"""Answers that are alike: which groups an instructor is told of."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

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


@pytest.mark.thinned(0)
def test_answers_that_share_what_nobody_else_has_are_a_pair_also_under_other_names():
    renamed = COPIED.replace("shifted", "s").replace("total", "t")
    others = [_answered(f"other-{number}", f"y_{number} = f(x) * {number}\nz = y_{number}") for number in range(20)]
    pairs = understood.alike([_answered("ada", COPIED), _answered("bob", renamed), *others], {})
    assert [pair.students for pair in pairs] == [("ada", "bob")]


def test_three_that_are_the_same_to_the_letter_are_listed_together_and_not_in_pairs():
    others = [_answered(f"other-{number}", f"y_{number} = f(x) * {number}\nz = y_{number}") for number in range(20)]
    copies = [_answered(name, COPIED) for name in ("kim", "ada", "bob")]
    (one,) = understood.alike([*copies, *others], {})
    assert one.students == ("ada", "bob", "kim") and one.common == one.of >= 3
    (note,) = understood.overview([], [one]).notes
    assert note.startswith(f"{TILE}: ada, bob and kim share ")


OTHERS = [_answered(f"other-{number}", f"y_{number} = f(x) * {number}\nz = y_{number}") for number in range(9)]


@pytest.mark.parametrize("others", [0, 1, 9])
def test_three_that_are_nearly_the_same_are_a_group_whatever_the_size_of_the_class(others):
    texts = {"ada": COPIED, "bob": COPIED.replace("shifted", "s"), "kim": COPIED.replace("- 3", "- 4")}
    found = understood.alike([*(_answered(*one) for one in texts.items()), *OTHERS[:others]], {})
    assert [one.students for one in found] == [("ada", "bob", "kim")]


def test_two_who_share_more_than_their_group_does_are_named_besides():
    more = "\n".join(f"a[{number}] = b.c + {number}" for number in range(9))
    texts = {"ada": COPIED + more, "bob": COPIED + more, "kim": COPIED}
    found = understood.alike([*(_answered(*one) for one in texts.items()), *OTHERS], {})
    assert [one.students for one in found] == [("ada", "bob"), ("ada", "bob", "kim")]


def test_in_a_large_class_a_pair_is_found_although_others_have_some_of_its_statements():
    lines = COPIED.strip().splitlines()
    others = [_answered(f"other-{number}", f"{lines[number % 4]}\ny = f(x) * {number}") for number in range(16)]
    many = [_answered(f"more-{number}", f"y = f(x) * {number + 16}") for number in range(500)]
    found = understood.alike([_answered("ada", COPIED), _answered("bob", COPIED + "\n"), *others, *many], {})
    assert [one.students for one in found] == [("ada", "bob")]


def test_statements_that_many_have_make_no_group():
    lines = [f"y = f(x) * {number}" for number in range(6)]
    texts = {str(a): "\n".join(line for b, line in enumerate(lines) if (a >> b) & 1) for a in range(64)}
    assert understood.alike([_answered(*one) for one in texts.items()], {}) == []


def test_cells_without_a_mark_are_compared_too():
    decoys = [Result(name, TILE, {"answers": {"single": f"y = f({number})"}, "own": [[3, COPIED]], "exercises": []})
              for number, name in enumerate(("ada", "bob"))]  # fmt: skip
    assert [pair.students for pair in understood.alike(decoys, {})] == [("ada", "bob")]


def test_the_statements_that_are_given_are_those_of_every_cell(tmp_path):
    path = tmp_path / "release" / TILE / f"{TILE}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=[new_code_cell("y = f(3)"), new_markdown_cell("text = 3")]), path)
    assert understood.given(tmp_path) == {TILE: understood.statements("y = f(3)")}


def test_answers_that_the_course_itself_has_are_no_pair():
    given = {TILE: understood.statements(COPIED)}
    assert understood.alike([_answered("ada", COPIED), _answered("bob", COPIED)], given) == []


@pytest.mark.parametrize("text", ["def (", "x = " + "(" * 5000, "\0", "é" * 30_000, "'''"])
def test_answers_that_are_no_python_are_compared_too(text):
    assert isinstance(understood.statements(text), set)
