"""The score of one exercise: from what sandboxes say to a report, whatever they say."""

import contextlib
import re
from pathlib import Path

import pytest
import torch

from helpers import kernels
from helpers.check import EXERCISES
from helpers.check.report import Report
from helpers.check.trial import Trial
from helpers.engine.isolate import End
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade import exercise as grading
from helpers.instructor.grade.answer import BehindWalls
from helpers.instructor.grade.borrowed import is_borrowed
from helpers.instructor.grade.exercise import Defined, Grader
from helpers.instructor.sandbox import wire
from helpers.instructor.sandbox.client import Ended
from helpers.softmax import shared

MERGE = GradedCell("merge-check", "merge", "merge", 2, ("merge",))
SPILL = GradedCell("spill-check", "spill", "spill", 2, ("spill",))


def a_function(**said):
    return {"failed": [], "defined": True, "function": "merge", "module": "__main__", **said}


def a_value(value, **said):
    return {"failed": [], "defined": True, "value": value, **said}


class Sandbox(contextlib.AbstractContextManager):
    """A sandbox that answers as it was told: `define` by a dict, `answers` by a function of the arguments.

    Where it was told two of them, the second is for an attempt that runs every cell.
    """

    def __init__(self, define, answer):
        self.define, self.answer, self.every_cell = define, answer, False

    def __exit__(self, *exception):
        pass

    def ask(self, request, seconds):
        if request["do"] == "define":
            self.every_cell = request["every_cell"]
            found = self._of_this_attempt(self.define)
            if isinstance(found, Exception):
                raise found
            return found
        if request["do"] == "check":
            return self.answer(request["answer"])
        return [self._of_this_attempt(self.answer)(*args).plain() for args in request["given"]]

    def _of_this_attempt(self, told):
        return told[self.every_cell] if isinstance(told, tuple) else told


class Workshop:
    kind = "none"

    def __init__(self, define, answer=None):
        self.define, self.answer = define, answer

    def sandbox(self, given=None):
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
        may_call = ()

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
        may_call = ()

        def report_on(self, answer):
            raise KeyError("nowhere")

    monkeypatch.setitem(EXERCISES, "merge", Broken())
    assert score(a_value(3)).note == "the check itself failed: KeyError: 'nowhere'"


# Cells that the answer does not seem to depend on


each_lacking = pytest.mark.parametrize(
    "error", ["NameError", "KeyError", "AttributeError", "ModuleNotFoundError", "FileNotFoundError"]
)


@each_lacking
def test_an_answer_that_lacks_something_is_tried_again_with_all_cells(error):
    def lacking(a, b):
        return Trial(End.RAISED, f"{error}: x", error)

    assert score(a_function(), (lacking, right)).report.points == 2


@each_lacking
def test_an_answer_is_tried_again_with_all_cells_where_one_of_its_cells_lacks_something(error):
    assert score(a_function(failed=[[error, f"{error}: x"]]), (wrong, right)).report.points == 2


def test_an_answer_that_is_not_defined_is_tried_again_with_all_cells():
    assert score((a_function(defined=False), a_function())).report.points == 2


def test_an_answer_that_is_wrong_otherwise_is_tried_once():
    assert score(a_function(failed=[["ValueError", "ValueError: x"]]), (wrong, right)).report.points == 0


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


def test_a_kernel_of_the_course_without_its_docstring_is_borrowed():
    bare = re.sub(r'    """.*?"""\n', "", course_kernel(), flags=re.DOTALL)
    assert bare != course_kernel() and is_borrowed("__main__", [bare], [])


def renamed(text):
    """The text with other names for its variables, its docstring left out, and hints."""
    bare = re.sub(r'    """.*?"""\n', "", text, flags=re.DOTALL)
    names = ("row", "cols", "mask", "x", "m", "e", "l", "N", "BLOCK", "x_ptr", "y_ptr", "x_stride")
    for name in names:
        bare = re.sub(rf"(?<![.\w]){name}\b(?!=[^=])", f"my_{name}", bare)
    return re.sub(r"    my_(\w+) = ", r"    my_\1: object = ", bare, count=1)


def test_a_kernel_of_the_course_with_other_names_is_borrowed():
    taken = renamed(course_kernel())
    assert "my_row" in taken and "my_x_ptr" in taken and is_borrowed("__main__", [taken], ["import torch"])


def test_a_kernel_that_a_cell_writes_to_a_file_is_the_learner_s():
    cell = f"%%writefile mine.py\nimport triton\n{course_kernel()}"
    assert not is_borrowed("__main__", [course_kernel()], [cell])


def test_a_kernel_of_the_shipped_softmax_is_borrowed():
    assert is_borrowed("__main__", [Path(shared.__file__).read_text(encoding="utf-8")], [])


def test_a_module_of_one_s_own_may_have_helpers_in_its_name():
    assert not is_borrowed("my_helpers", [], [])


class Always:
    """A check that any answer passes."""

    may_call = ()

    def report_on(self, answer):
        return Report("merge", 2, True, ())


def test_a_value_is_nobody_s_work(monkeypatch):
    monkeypatch.setitem(EXERCISES, "merge", Always())
    assert score(a_value(3, module="helpers.gpu")).report.points == 2


# Speed, cases held back, and kernels as answers


class Noted(BehindWalls):
    """A place that has seen a kernel, and says how fast it is and which cases it was given."""

    places = []

    def __init__(self, *args):
        super().__init__(*args)
        self.kernels = {KERNEL}
        self.places.append(self)

    def speed(self):
        return 0.5


@pytest.fixture
def noted(monkeypatch):
    """The places that answers are tried in."""
    monkeypatch.setattr(Noted, "places", [])
    monkeypatch.setattr(grading, "BehindWalls", Noted)
    return Noted.places


@pytest.mark.parametrize(
    ("gpu", "answer", "speed"),
    [(True, right, 0.5), (True, wrong, None), (False, right, None)],
    ids=["right", "wrong", "nobody asked"],
)
def test_the_speed_of_right_kernels_is_taken_where_it_was_asked_for(gpu, answer, speed, noted):
    assert Grader(Workshop(a_function(), answer), {}, gpu).score(["merge = 1"], MERGE).speed == speed


def test_the_speed_of_an_answer_without_kernels_is_not_taken():
    assert Grader(Workshop(a_function(), right), {}, gpu=True).score(["merge = 1"], MERGE).speed is None


def test_cases_are_held_back_by_the_name_of_the_check(noted):
    cell = GradedCell("merge-check", "merge", "mine", 2, ("merge",))
    Grader(Workshop(a_function(), right), {"merge": {"a case": None}, "mine": {}}).score(["merge = 1"], cell)
    assert noted[0].held_back == {"a case": None}


def test_a_kernel_in_place_of_its_driver_is_told_what_the_check_takes():
    (finding,) = score(a_value(wire.Kernel(KERNEL, "k"))).report.findings
    assert finding.seen == "check.merge takes the driver, the Python function that launches k."


def test_values_with_a_kernel_among_them_are_judged_in_a_sandbox():
    told = {"findings": [["a case", True, "seen"]], "diagnosis": None, "max_points": 2, "attempted": True, "kept": 0}
    scored = score(a_value({"kernel": wire.Kernel(KERNEL, "k")}), lambda answer: told, cell=SPILL)
    assert (scored.report.points, scored.report.findings[0].seen) == (2, "seen")


# What a sandbox says of the answer


def test_only_the_first_errors_are_kept_and_cut():
    defined = Defined.of(a_function(failed=[["E", "x" * 1000]] * 9))
    assert len(defined.failed) == 5 and set(map(len, defined.failed)) == {300}


def test_tensors_among_values_are_words():
    value = Defined.of(a_value({"a": [torch.zeros(2)], "b": (1, torch.ones(()))})).value
    assert isinstance(value["a"][0], wire.Opaque) and isinstance(value["b"][1], wire.Opaque) and value["b"][0] == 1
