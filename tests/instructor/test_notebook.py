"""From the bytes of one notebook to a result of plain values: which cells are run, what is kept, what it depends on."""

import contextlib
import json
from dataclasses import dataclass, field

import pytest

from helpers.check.report import Diagnosis, Finding, Report
from helpers.instructor.grade import notebook
from helpers.instructor.grade.exercise import LeftOut, Scored
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.sandbox.client import Ended

CHECKS = {"first-check": ("first", 4), "second-check": ("second", 2)}
FOUND = Report(
    "first", 4, True, (Finding("a case", False, "x" * 5000),), kept=1, diagnosis=Diagnosis("id", "Name.", "Why?", 2)
)


def cell(grade_id="", source=""):
    """A cell as a sandbox reads it."""
    return {"grade_id": grade_id, "source": source or f"# {grade_id}"}


def lesson():
    """A lesson with two exercises, as it was handed out."""
    cells = []
    for name, (check, points) in CHECKS.items():
        marks = {"grade_id": check, "solution": True}
        cells.append({"cell_type": "code", "metadata": {"nbgrader": marks}, "source": [f"def {check}(x):\n    pass"]})
        marks = {"grade_id": name, "grade": True, "points": points}
        cells.append({"cell_type": "code", "metadata": {"nbgrader": marks}, "source": [f"check.{check}({check})"]})
    return json.dumps({"cells": cells}).encode()


@dataclass
class Told:
    """A grader whose sandbox reads these cells, and which gives every exercise the same report."""

    cells: object
    ran: dict = field(default_factory=dict)
    kind = "none"

    @property
    def workshop(self):
        return self

    def sandbox(self):
        return contextlib.nullcontext(self)

    def ask(self, request, seconds):
        if isinstance(self.cells, Exception):
            raise self.cells
        return self.cells

    def score(self, handed, graded):
        self.ran[graded.grade_id] = handed
        return Scored(graded, FOUND, (LeftOut(1, "x", "NameError: x", "NameError"),), "look at this")

    def above(self):
        """The cells above the check of each exercise."""
        return {name: handed.sources[: handed.above] for name, handed in self.ran.items()}


HANDED_IN = [cell("first"), cell("first-check"), cell(source="y = 1"), cell("second"), cell("second-check")]


def grade(cells):
    grader = Told(cells)
    return grader, notebook.grade_notebook(grader, b"", lesson())


# Which cells are run


def test_an_exercise_runs_the_cells_above_its_check():
    grader, _ = grade(HANDED_IN)
    assert grader.above() == {
        "first-check": ["# first"],
        "second-check": ["# first", "# first-check", "y = 1", "# second"],
    }


def test_of_a_check_that_was_copied_the_last_one_counts():
    grader, _ = grade([cell("first"), cell("first-check"), cell("first", "better"), cell("first-check")])
    assert grader.above()["first-check"] == ["# first", "# first-check", "better"]


def test_where_the_check_is_gone_the_cells_up_to_the_answer_are_run():
    grader, _ = grade([cell("first"), cell(source="y = 1")])
    assert grader.above()["first-check"] == ["# first"]


def test_where_answer_and_check_are_gone_all_cells_are_run():
    grader, _ = grade([cell(source="y = 1"), cell(source="z = 1")])
    assert grader.above()["first-check"] == ["y = 1", "z = 1"]


# What is kept


def test_a_result_has_what_the_report_says():
    _, result = grade(HANDED_IN)
    first, _ = result["exercises"]
    assert {name: first[name] for name in ("grade_id", "check", "points", "max_points", "attempted", "passed")} == {
        "grade_id": "first-check", "check": "first", "points": 1, "max_points": 4, "attempted": True, "passed": False,
    }  # fmt: skip
    left_out = [{"number": 1, "line": "x", "said": "NameError: x", "error": "NameError"}]
    assert (first["note"], first["left_out"]) == ("look at this", left_out)


def test_the_diagnosis_is_kept_as_plain_values():
    _, result = grade(HANDED_IN)
    assert result["exercises"][0]["diagnosis"] == {"id": "id", "name": "Name.", "question": "Why?", "hint": 2}


def test_what_a_finding_says_is_cut():
    _, result = grade(HANDED_IN)
    ((case, ok, seen),) = result["exercises"][0]["findings"]
    assert (case, ok, len(seen)) == ("a case", False, 1000)


def test_of_the_notebook_the_answers_alone_are_kept():
    _, result = grade(HANDED_IN)
    assert result["answers"] == {"first": "# first", "second": "# second"}


@pytest.mark.parametrize("cells", [Ended("it was killed"), None, [3]], ids=["ended", "nothing", "no cells"])
def test_a_notebook_that_cannot_be_read_is_not_attempted_and_says_so(cells):
    grader, result = grade(cells)
    assert grader.ran == {} and result["problem"].startswith("the notebook cannot be read: ")
    for exercise in result["exercises"]:
        assert (exercise["attempted"], exercise["points"], exercise["note"]) == (False, 0, result["problem"])


# What a result depends on


def key(content=b"notebook", lesson=b"lesson", held_back="cases", gpu=False):
    return notebook.result_key(content, lesson, held_back, gpu)


def test_the_same_notebook_has_the_same_key():
    assert key() == key()


@pytest.mark.parametrize(
    "other",
    [
        {"content": b"n"}, {"lesson": b"l"}, {"held_back": "c"}, {"gpu": True},
        {"content": b"notebookl", "lesson": b"esson"},
    ],
    ids=["notebook", "lesson", "cases", "GPU", "where one ends and the other begins"],
)  # fmt: skip
def test_a_result_depends_on(other):
    assert key(**other) != key()


# Cases that an instructor has added


def test_no_file_holds_no_cases():
    assert notebook.load_held_back("") == {}


@pytest.mark.parametrize(
    "text",
    ["x = 1", "CASES = 3", "CASES = {'first': 3}", "CASES = {'first': {'a case': 3}}"],
    ids=["no CASES", "a number", "no dict of cases", "no function"],
)
def test_a_file_without_cases_is_refused(text):
    with pytest.raises(NotebookError, match="private/cases.py needs CASES"):
        notebook.load_held_back(text)


@pytest.mark.parametrize(
    ("text", "error"), [("1 / 0", "ZeroDivisionError"), ("CASES = (", "SyntaxError"), ("x", "NameError")]
)
def test_a_file_that_does_not_run_is_refused_with_its_error(text, error):
    with pytest.raises(NotebookError, match=f"private/cases.py: {error}"):
        notebook.load_held_back(text)
