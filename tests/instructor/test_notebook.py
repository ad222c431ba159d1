"""From the bytes of one notebook to a result of plain values: which cells are run, what is kept, what it depends on."""

import contextlib
import json
from dataclasses import dataclass, field

import pytest

from helpers.check.report import Diagnosis, Finding, Report
from helpers.instructor.grade import notebook
from helpers.instructor.grade.exercise import LeftOut, Scored
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.sandbox.client import Budget, Ended

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
    budget: Budget = field(default_factory=Budget)
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


def test_an_exercise_at_which_the_grader_fails_is_noted_and_the_others_are_graded(monkeypatch):
    score = Told.score

    def failing(self, handed, graded):
        if graded.check == "first":
            raise IndexError("list index out of range")
        return score(self, handed, graded)

    monkeypatch.setattr(Told, "score", failing)
    first, second = grade(HANDED_IN)[1]["exercises"]
    assert first["note"] == "the grader failed at it: IndexError: list index out of range"
    assert (first["points"], second["note"]) == (0, "look at this")


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


# Which cells answer an exercise


STUBS = [cell("first", "def first(x):\n    pass"), cell("first-check", "check.first(first)")]


def own(*cells):
    """The places of the cells that answer the first exercise."""
    return grade([*STUBS, *cells])[0].ran["first-check"].own


def test_a_cell_as_it_was_handed_out_answers_nothing():
    assert own() == []
    assert own(cell("first", "def first(x):\n    pass   \n\n")) == []


@pytest.mark.parametrize("source", ["def first(x):\n    return x", "", "def frist(", "# done"])
def test_a_cell_to_fill_in_that_was_changed_answers_its_exercise(source):
    assert own({"grade_id": "first", "source": source}) == [2]


def test_an_answer_stands_although_its_cells_were_pasted_below_it_once_more():
    answer, pasted = cell("first", "def first(x):\n    return x"), cell("first", "def first(x):\n    pass")
    grader, _ = grade([answer, cell("first-check"), pasted, cell("first-check"), cell("second-check")])
    assert grader.above()["first-check"] == [answer["source"], "# first-check"]


def test_a_stub_above_an_answer_is_run_because_the_answer_may_need_it():
    stub, answer = cell("first", "def first(x):\n    pass"), cell("first", "def part(x):\n    return x")
    grader, _ = grade([stub, answer, cell("first-check")])
    assert grader.above()["first-check"] == [stub["source"], answer["source"]]


def test_a_stub_between_the_cells_of_an_answer_is_run():
    emptied, stub = cell("first", " "), cell("first", "def first(x):\n    pass")
    answer = cell(source="def first(x):\n    return x")
    grader, _ = grade([emptied, stub, answer, cell("first-check")])
    assert grader.above()["first-check"] == [" ", stub["source"], answer["source"]]


def test_of_answers_that_were_changed_the_last_one_stands():
    answers = [cell("first", f"def first(x):\n    return {i}") for i in range(2)]
    grader, _ = grade([answers[0], cell("first-check"), answers[1], cell("first-check")])
    assert grader.above()["first-check"][-1] == answers[1]["source"]


@pytest.mark.parametrize(
    "source",
    ["def first(x): ...", "async def first(x): ...", "x = 1\nfirst = lambda x: x", "first, y = 1, 2", "def first(:"],
)
def test_a_cell_without_a_mark_answers_an_exercise_where_it_defines_its_answer(source):
    assert own(cell(source=source)) == [2]


@pytest.mark.parametrize("source", ["first(3)", "y = first", "def first_of(x): ...", "first == 3", "second = 1"])
def test_a_cell_without_a_mark_that_defines_something_else_does_not(source):
    assert own(cell(source=source)) == []


def test_the_cell_of_another_exercise_does_not_answer_this_one():
    assert own(cell("second", "def first(x): ...")) == []


def test_the_answer_is_kept_with_its_exercise():
    _, result = grade([*STUBS, cell("first", "def first(x):\n    return x"), cell(source="first = 3")])
    assert result["exercises"][0]["answer"] == "def first(x):\n    return x\n\nfirst = 3"


def test_cells_of_the_learner_s_own_are_kept_with_where_they_stood():
    cells = [
        cell(source="at the top"),
        *STUBS,
        cell(source="in between"),
        cell("second-check", "edited"),
        cell(source=" "),
    ]
    assert grade(cells)[1]["own"] == [[0, "at the top"], [2, "in between"], [2, "edited"]]


def test_of_the_learner_s_own_cells_so_much_is_kept():
    kept = grade([cell(source="x" * 150_000), cell(source="y" * 150_000), cell(source="z")])[1]["own"]
    assert [len(source) for _, source in kept] == [150_000, 50_000]


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
    return notebook.result_key([content], lesson, held_back, gpu)


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
    with pytest.raises(NotebookError, match=f"private/cases.py, line 1: {error}"):
        notebook.load_held_back(text)


def test_a_case_that_fails_within_a_function_of_the_file_is_known_by_the_line_that_failed():
    with pytest.raises(NotebookError, match="line 2: ZeroDivisionError"):
        notebook.load_held_back("def made():\n    return 1 / 0\n\n\nCASES = made()")


@pytest.mark.parametrize("library", ["torch", "triton"])
def test_another_version_of_what_kernels_run_on_is_another_engine(library, monkeypatch):
    before = notebook.engine.__wrapped__()
    monkeypatch.setattr(getattr(notebook, library), "__version__", "99.0")
    assert notebook.engine.__wrapped__() != before
