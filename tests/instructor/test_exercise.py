"""The score of one exercise: from what sandboxes say to a report, whatever they say."""

import contextlib
from pathlib import Path

import pytest
import torch

from helpers import kernels
from helpers.check import EXERCISES
from helpers.check.report import Report
from helpers.check.trial import Trial
from helpers.engine.isolate import End
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.borrowed import is_borrowed
from helpers.instructor.grade.exercise import Defined, Grader
from helpers.instructor.sandbox import wire
from helpers.instructor.sandbox.client import Ended

MERGE = GradedCell("merge-check", "merge", "merge", 2, ("merge",))
SPILL = GradedCell("spill-check", "spill", "spill", 2, ("spill",))


def a_function(**said):
    return {"failed": [], "defined": True, "function": "merge", "module": "__main__", **said}


def a_value(value, **said):
    return {"failed": [], "defined": True, "value": value, **said}


class Sandbox(contextlib.AbstractContextManager):
    """A sandbox that answers as it was told: `define` by a dict, `answers` by a function of the arguments."""

    def __init__(self, define, answer):
        self.define, self.answer = define, answer

    def __exit__(self, *exception):
        pass

    def ask(self, request, seconds):
        if request["do"] == "define":
            found = self.define[request["every_cell"]] if isinstance(self.define, tuple) else self.define
            if isinstance(found, Exception):
                raise found
            return found
        return [self.answer(*args).plain() for args in request["given"]]


class Workshop:
    kind = "none"

    def __init__(self, define, answer=None):
        self.define, self.answer = define, answer

    def sandbox(self):
        return Sandbox(self.define, self.answer)

    def compiled(self, request):
        raise ValueError("nothing is compiled here")


def right(a, b):
    return Trial(pair=list(EXERCISES["merge"].ours(a, b)))


def wrong(a, b):
    return Trial(pair=[0.0, 0.0])


def score(define, answer=right, cell=MERGE, sources=("merge = 1",)):
    return Grader(Workshop(define, answer), {}).score(sources, cell)


def test_a_right_function_has_its_points():
    scored = score(a_function())
    assert (scored.report.points, scored.report.passed, scored.note) == (2, True, "")


def test_a_wrong_function_has_none():
    assert score(a_function(), wrong).report.points == 0


@pytest.mark.parametrize("points", [-1, 3, float("nan"), float("inf"), None, "2"])
def test_points_that_the_cell_does_not_have_are_not_given(points, monkeypatch):
    class Generous:
        def report_on(self, answer):
            return Report("merge", points, True, ())

    monkeypatch.setitem(EXERCISES, "merge", Generous())
    scored = score(a_value(3))
    assert scored.report.points == 0 and scored.note == f"the check gave {points!r} points"


def test_an_answer_that_is_not_defined_is_noted_and_not_attempted():
    scored = score({"failed": [], "defined": False})
    assert (scored.report.attempted, scored.note) == (False, "merge is not defined above the check")


def test_a_sandbox_that_ends_is_a_finding():
    scored = score(Ended("its process was killed by SIGKILL", End.DIED))
    assert (scored.report.points, scored.report.findings[0].seen) == (0, "its process was killed by SIGKILL")


@pytest.mark.parametrize("said", [None, [], {"defined": True}, {"failed": "no", "defined": True}], ids=repr)
def test_what_is_no_answer_of_a_sandbox_is_a_finding(said):
    assert score(said).report.findings[0].seen == "its cells did not come to an end"


def test_a_number_in_place_of_a_function_is_told_what_the_check_takes():
    scored = score(a_value(3))
    assert scored.report.findings[0].seen.startswith("check.merge takes your function itself")


def test_a_function_in_place_of_values_is_told_what_the_check_takes():
    scored = score(a_function(), cell=SPILL)
    assert scored.report.findings[0].seen.startswith("check.spill takes a dict with the keys")


def test_a_check_that_fails_itself_is_noted(monkeypatch):
    class Broken:
        def report_on(self, answer):
            raise KeyError("nowhere")

    monkeypatch.setitem(EXERCISES, "merge", Broken())
    assert score(a_value(3)).note == "the check itself failed: KeyError: 'nowhere'"


# Cells that the answer does not seem to depend on


@pytest.mark.parametrize(
    "error", ["NameError", "KeyError", "AttributeError", "ModuleNotFoundError", "FileNotFoundError"]
)
def test_an_answer_that_lacks_something_is_tried_again_with_all_cells(error):
    def lacking(a, b):
        return Trial(End.RAISED, f"{error}: x", error)

    scored = Grader(Workshop((a_function(), a_function()), lacking), {}).score(["merge = 1"], MERGE)
    assert scored.report.points == 0
    first = a_function(failed=[[error, f"{error}: x"]], defined=False)
    assert score((first, a_function())).report.points == 2


def test_an_answer_that_is_wrong_otherwise_is_tried_once():
    worse = Ended("every cell was run")
    assert score((a_function(failed=[["ValueError", "ValueError: x"]]), worse), wrong).report.points == 0


def test_the_better_of_two_attempts_counts():
    first = a_function(failed=[["NameError", "NameError: x"]])
    assert score((first, a_value(3)), wrong).report.findings[0].case != "your answer"


# Whose work it is


def test_a_function_of_the_course_has_no_points():
    scored = score(a_function(module="helpers.kernels"))
    assert scored.report.points == 0 and scored.report.findings[-1].case == "your own code"


KERNEL = "@triton.jit\ndef k(x_ptr, BLOCK: tl.constexpr):\n    tl.store(x_ptr, 1.0)\n"
COURSE = Path(kernels.__file__).read_text(encoding="utf-8")


def course_kernel():
    start = COURSE.index("@triton.jit\ndef single_tile_kernel")
    return COURSE[start : COURSE.index("\n\n\n", start)]


def test_a_kernel_of_one_s_own_is_not_borrowed():
    assert not is_borrowed("__main__", [KERNEL], [KERNEL])


def test_a_kernel_of_the_course_is_borrowed_whatever_it_is_called():
    assert is_borrowed("__main__", [course_kernel().replace("single_tile_kernel", "mine")], ["import torch"])


def test_a_kernel_of_the_course_that_stands_in_a_cell_is_the_learner_s():
    assert not is_borrowed("__main__", [course_kernel()], [course_kernel()])


# What a sandbox says of the answer


def test_only_the_first_errors_are_kept_and_cut():
    defined = Defined.of(a_function(failed=[["E", "x" * 1000]] * 9))
    assert len(defined.failed) == 5 and set(map(len, defined.failed)) == {300}


def test_tensors_among_values_are_words():
    value = Defined.of(a_value({"a": [torch.zeros(2)], "b": (1, torch.ones(()))})).value
    assert isinstance(value["a"][0], wire.Opaque) and isinstance(value["b"][1], wire.Opaque) and value["b"][0] == 1
