"""The score of one exercise: from what sandboxes say to a report, whatever they say."""

import contextlib
import re
from pathlib import Path

import pytest
import torch

from helpers import kernels
from helpers.check import EXERCISES
from helpers.check.report import Finding, Report
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade import exercise as grading
from helpers.instructor.grade.answer import BehindWalls
from helpers.instructor.grade.exercise import Defined, Grader, Handed, as_text
from helpers.instructor.grade.origin import is_borrowed
from helpers.instructor.sandbox import wire
from helpers.instructor.sandbox.client import Ended
from helpers.softmax.kernels import shared

MERGE = GradedCell("merge-check", "merge", "merge", 2, ("merge",))
SPILL = GradedCell("spill-check", "spill", "spill", 2, ("spill",))


def a_function(**said):
    return {"failed": [], "defined": True, "function": "merge", "module": "__main__", **said}


def a_failure(error, said="", cell=0, number=1, line="x"):
    """A statement that could not be run, as a sandbox tells of it."""
    return [cell, error, said or f"{error}: x", number, line]


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

    def ask(self, request, seconds, processor_s=None):
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

    def sandbox(self, given=None, of_rank=False):
        return Sandbox(self.define, self.answer)

    def compiled(self, request):
        raise ValueError("nothing is compiled here")


def right(a, b):
    return Trial(pair=list(EXERCISES["merge"].ours(a, b)))


def wrong(a, b):
    return Trial(pair=[0.0, 0.0])


ONE_CELL = Handed(["merge = 1"], 1)


def score(define, answer=right, cell=MERGE, handed=ONE_CELL):
    return Grader(Workshop(define, answer), {}).score(handed, cell)


def test_a_right_function_has_its_points():
    scored = score(a_function())
    assert (scored.report.points, scored.report.passed, scored.note) == (2, True, "")


def test_a_right_case_of_which_nothing_is_said_is_no_case_that_nobody_knows(monkeypatch):
    silent = Report("merge", 2, attempted=True, findings=(Finding("a case", True, ""),))
    monkeypatch.setattr(type(EXERCISES["merge"]), "report", lambda *_: silent)
    scored = score(a_function())
    assert (scored.report.points, scored.note) == (2, "")


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
    assert (scored.report.attempted, scored.note) == (False, "merge is not defined")


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
    assert score(a_function(failed=[a_failure(error)]), (wrong, right)).report.points == 2


def test_an_answer_that_is_not_defined_is_tried_again_with_all_cells():
    assert score((a_function(defined=False), a_function())).report.points == 2


def test_an_answer_that_is_wrong_otherwise_is_tried_once():
    assert score(a_function(failed=[a_failure("ValueError")]), (wrong, right)).report.points == 0


def test_the_better_of_two_attempts_counts():
    first = a_function(failed=[a_failure("NameError")])
    assert score((first, a_value(3)), wrong).report.findings[0].case != "your answer"


# In which ways cells are run


class Ways(contextlib.AbstractContextManager):
    """A workshop, and its sandbox, that notes in which ways it was asked to run the cells, and finds that nothing is
    defined, except in the way that is told."""

    kind = "none"

    def __init__(self, **found_in):
        self.asked, self.found_in, self.now = [], found_in, {}

    def sandbox(self, given=None, of_rank=False):
        return self

    def __exit__(self, *exception):
        pass

    def compiled(self, request):
        raise ValueError("nothing is compiled here")

    def ask(self, request, seconds, processor_s=None):
        if request["do"] == "define":
            self.now = {name: request[name] for name in ("above", "every_cell", "gpu")}
            self.asked.append((request["above"], request["every_cell"], request["gpu"]))
            return a_function(defined=bool(self.found_in) and self.found_in.items() <= self.now.items())
        return [right(*args).plain() for args in request["given"]]


THREE = ["one", "two", "three"]


def ways(handed, **found_in):
    """Points, and the ways: the number of cells, whether each is run, whether a GPU is pretended."""
    workshop = Ways(**found_in)
    return Grader(workshop, {}).score(handed, MERGE).report.points, workshop.asked


def test_nothing_is_run_again_where_the_first_way_is_right():
    assert ways(Handed(THREE, 2), above=2) == (2, [(2, False, False)])


def test_an_answer_that_nothing_above_the_check_defines_is_looked_for_in_all_cells():
    points, asked = ways(Handed(THREE, 2), above=3)
    assert points == 2 and asked == [(2, False, False), (2, True, False), (3, False, False)]


def test_where_nothing_defines_the_answer_every_cell_is_run():
    assert ways(Handed(THREE, 2))[1][-1] == (3, True, False)


def test_where_the_check_is_the_last_cell_no_cell_is_below():
    assert ways(Handed(THREE, 3))[1] == [(3, False, False), (3, True, False)]


def test_a_wrong_answer_with_a_part_below_the_check_is_tried_with_that_part():
    below = a_function(below=True)
    assert score((below, below), (wrong, right), handed=Handed(THREE, 2)).report.points == 0  # not with every cell
    asked = []

    def noted(a, b):
        asked.append(1)
        return wrong(a, b)

    score(below, noted, handed=Handed(THREE, 2))
    both = len(asked)
    score(a_function(), noted, handed=Handed(THREE, 2))
    assert both == 2 * (len(asked) - both)


@pytest.mark.parametrize(("source", "pretended"), [("x.cuda()", True), ("x.cpu()", False)])
def test_a_gpu_is_pretended_for_cells_that_speak_of_one(source, pretended):
    assert ways(Handed([source], 1))[1][-1] == (1, not pretended, pretended)
    assert ways(Handed([source], 1), gpu=True)[0] == (2 if pretended else 0)


def test_a_way_that_does_not_come_to_an_end_takes_nothing_from_another():
    scored = score((a_function(failed=[a_failure("NameError")]), Ended("killed", End.DIED)), wrong)
    assert scored.report.findings[0].case != "your answer"


# What was attempted


OWN = Handed(["def merg(a, b): ..."], 1, own=[0], names=frozenset({"merge"}))


def test_a_cell_that_stops_is_an_attempt_with_its_line():
    stops = {"failed": [a_failure("SyntaxError", "SyntaxError: no", line="def merge(", number=3)], "defined": False}
    scored = score(stops, handed=OWN)
    (finding,) = scored.report.findings
    assert finding.seen == "SyntaxError: no (line 3 of the cell: `def merge(`)"
    assert finding.error == "SyntaxError" and not scored.note


def test_a_function_of_another_name_is_an_attempt_that_names_it():
    scored = score({"failed": [], "defined": False, "binds": ["merg", "merge"]}, handed=OWN)
    assert scored.report.attempted
    assert scored.report.findings[0].seen == "merge is not defined; the cell defines merg"


@pytest.mark.parametrize(
    ("said", "attempted"),
    [({}, False), ({"binds": ["merge"]}, False), ({"binds": ["merge", "other"]}, True),
     ({"failed": [a_failure("ValueError")]}, True), ({"failed": [a_failure("ValueError", cell=5)]}, False)],
    ids=["nothing else", "the same names", "another name", "an error in it", "an error elsewhere"],
)  # fmt: skip
def test_a_function_as_it_was_handed_out_is_an_attempt_where_its_cell_has_more(said, attempted, monkeypatch):
    class Untouched:
        may_call = ()

        def report_on(self, answer):
            return Report("merge", 2, False, ())

    monkeypatch.setitem(EXERCISES, "merge", Untouched())
    assert score(a_value(3, **said), handed=OWN).report.attempted is attempted


def test_where_the_learner_has_written_nothing_nothing_was_attempted():
    assert not score({"failed": [a_failure("ValueError")], "defined": False}).report.attempted


# Words of a learner's process


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a\x1b]0;b\x07c", "a ]0;b c"),
        ("a\nb", "a\nb"),
        ("a\u202eb\ud800", "a b "),
        ("é中", "é中"),
        ("x" * 999, "x" * 300),
    ],
    ids=["escapes", "lines", "directions and surrogates", "letters", "long"],
)
def test_words_are_cut_and_have_no_control_characters(words, shown):
    assert as_text(words) == shown


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

    places, own = [], None

    def __init__(self, *args):
        super().__init__(*args)
        self.kernels, self.held_back = {KERNEL}, None
        self.places.append(self)

    def report_with(self, held_back, exercise):
        self.held_back = held_back
        return self.own

    def speed(self):
        return 0.5


@pytest.fixture
def noted(monkeypatch):
    """The places that answers are tried in."""
    monkeypatch.setattr(Noted, "places", [])
    monkeypatch.setattr(grading, "BehindWalls", Noted)
    return Noted


@pytest.mark.parametrize(
    ("gpu", "answer", "speed"),
    [(True, right, 0.5), (True, wrong, None), (False, right, None)],
    ids=["right", "wrong", "nobody asked"],
)
def test_the_speed_of_right_kernels_is_taken_where_it_was_asked_for(gpu, answer, speed, noted):
    assert Grader(Workshop(a_function(), answer), {}, gpu).score(ONE_CELL, MERGE).speed == speed


def test_the_speed_of_an_answer_without_kernels_is_not_taken():
    assert Grader(Workshop(a_function(), right), {}, gpu=True).score(ONE_CELL, MERGE).speed is None


def judged_with(noted, *of_own, points):
    """What is scored if the report on the instructor's cases as well has these findings and so many points."""
    noted.own = Report("merge", 2, True, of_own, kept=points)
    cell = GradedCell("merge-check", "merge", "mine", 2, ("merge",))
    return Grader(Workshop(a_function(), right), {"merge": {"a case": None}, "mine": {"b": None}}).score(ONE_CELL, cell)


def test_cases_are_held_back_by_the_name_of_the_check(noted):
    judged_with(noted, Finding("a case", True, "0.25"), points=2)
    assert noted.places[0].held_back == {"a case": None}


@pytest.mark.parametrize("ok", [True, False])
def test_of_a_case_held_back_a_report_has_the_name_and_whether_it_was_right(ok, noted):
    seen = Finding("a case", ok, "12345 was seen", "Error12345")
    scored = judged_with(noted, seen, Finding("race", ok, "a case: 12345"), points=2 * ok)
    assert scored.report.points == 2 * ok and scored.with_held_back is noted.own
    assert [one.ok for one in scored.report.findings if one.case == "a case"] == [ok]
    assert "12345" not in repr(scored.report.__dict__) + str(scored.report)


def test_cases_held_back_that_only_cost_too_much_are_not_right(noted):
    scored = judged_with(noted, Finding("a case", True, ""), Finding("trips to memory", False, "3.0"), points=1)
    assert scored.report.points == 1 and not scored.report.passed
    assert [one.ok for one in scored.report.findings if one.case == "a case"] == [False]


def test_a_wrong_answer_is_not_tried_on_the_cases_held_back(noted):
    held_back = {"merge": {"a case": None}}
    assert Grader(Workshop(a_function(), wrong), held_back).score(ONE_CELL, MERGE).with_held_back is None
    assert noted.places[0].held_back is None


def test_a_kernel_in_place_of_its_driver_is_told_what_the_check_takes():
    (finding,) = score(a_value(wire.Kernel(KERNEL, "k"))).report.findings
    assert finding.seen == "check.merge takes the driver, the Python function that launches k."


# What a sandbox says of the answer


def test_only_the_first_errors_are_kept_and_cut():
    defined = Defined.of(a_function(failed=[a_failure("E", "x" * 1000, line="y" * 1000)] * 9))
    assert [(len(one.said), len(one.line)) for one in defined.left_out] == [(300, 300)] * 5


def test_tensors_among_values_are_words():
    value = Defined.of(a_value({"a": [torch.zeros(2)], "b": (1, torch.ones(()))})).value
    assert isinstance(value["a"][0], wire.Opaque) and isinstance(value["b"][1], wire.Opaque) and value["b"][0] == 1
