"""Behind the grader's walls too, a kernel has points only if a GPU's compiler takes it."""

from types import SimpleNamespace

import pytest
import torch

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers.check.problems.cases import SOFTMAX
from helpers.check.problems.problem import Problems
from helpers.check.trial.trial import Trial
from helpers.engine.compiler import verdict
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.answer import BehindWalls
from helpers.instructor.grade.exercise import Grader, Handed
from helpers.instructor.sandbox.client import Ended, NoSandbox
from variants import proofs_but_for

X = torch.zeros(2, 3)
ANSWERED = [
    ("two_pass", WRONG, "l begins as an integer", 0),
    ("two_pass", RIGHT, "a while loop", 4),
    ("two_pass", WRONG, "tiles in a list", 0),
    ("two_pass", WRONG, "leaves the loop", 0),
    ("online", WRONG, "empty tiles left out", 0),
    ("masked", WRONG, "a dict", 0),
    ("online", RIGHT, "m and l in a tuple", 5),
]


def sources(name, variant):
    """The cells of a notebook that define this answer."""
    cells = list(SOLUTIONS[name].cells)
    for old, new in zip(variant.replaced[::2], variant.replaced[1::2], strict=True):
        cells = [cell.replace(old, new) for cell in cells]
    return cells


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("name", "variants", "way", "points"), proofs_but_for(ANSWERED, 2), ids=lambda value: value)
def test_a_kernel_has_points_if_a_compiler_takes_it(workshop, name, variants, way, points):
    cell = GradedCell(name, name, SOLUTIONS[name].answer, SOLUTIONS[name].points, ())
    handed = sources(name, variants[name][way])
    scored = Grader(workshop, {}).score(Handed(handed, len(handed)), cell)
    assert (scored.report.points, scored.note) == (points, "") and "compiled" not in scored.report.note
    named = scored.report.diagnosis and scored.report.diagnosis.id
    assert named == (None if points else "does_not_compile")


class Compiler:
    """A workshop whose compiler answers with `told`, or ends."""

    def __init__(self, told):
        self.told = told
        self.tasks = []

    def compiling(self):
        return None

    def judged(self, tasks):
        self.tasks = tasks
        return [self.told] * len(tasks)


def test_what_the_learner_s_own_process_says_of_launches_is_not_asked_about():
    learner = SimpleNamespace(ask=lambda request, seconds: [Trial(launches=[{"unknown": "believe me"}]).plain()])
    place = BehindWalls("mine", Compiler({}), learner)
    found = place.drivers(Problems({"small": lambda generator: X}, SOFTMAX.wants, 7), kernel=False)
    assert found["small"][1].launches == []


def test_a_compiler_that_ends_costs_nothing_and_is_said():
    from helpers.instructor.grade import workshop as workshops

    ended = workshops.Workshop.__new__(workshops.Workshop)
    ended._in_compiler = lambda *_: (_ for _ in ()).throw(Ended("killed"))
    assert ended.judged([{}, {}]) == [{"unknown": "the compiler did not answer: killed"}] * 2


@pytest.mark.parametrize("said", [{"unknown": "it gave up"}, {}], ids=["unknown", "taken"])
def test_a_kernel_that_was_not_compiled_earns_nothing_until_somebody_has_looked(workshop, monkeypatch, said):
    monkeypatch.setattr(verdict, "_told", lambda tasks, judge: [said or {"reason": ""}] * len(tasks))
    scored = score(workshop, [*SOLUTIONS["single_tile"].cells])
    looked = "no points until somebody has looked at the kernel and given them by hand"
    assert scored.report.points == (0 if said else 4)
    assert scored.note.endswith(looked) == ("it gave up" in scored.note) == bool(said)


def test_a_machine_that_is_too_busy_to_compile_grades_nothing(monkeypatch):
    from helpers.instructor.grade import workshop as workshops

    busy = workshops.Workshop.__new__(workshops.Workshop)
    busy.failures = []
    busy._in_compiler = lambda *_: [{"busy": "not now"}, {"reason": ""}]
    with pytest.raises(NoSandbox, match="not now"):
        busy.judged([{}, {}])
    assert busy.failures == ["not now"]


def score(workshop, cells):
    """The score of these cells as an answer to 2.1."""
    one = SOLUTIONS["single_tile"]
    return Grader(workshop, {}).score(
        Handed(cells, len(cells)), GradedCell("single", "single_tile", one.answer, one.points, ())
    )


def with_a_function(body, launch="BLOCK=x.shape[1]", hint=": tl.constexpr"):
    """An answer to 2.1 whose kernel is given a function as an argument."""
    return f"""
import torch, triton, triton.language as tl
@triton.jit
def step(x):
    return {body}
@triton.jit
def kernel(y_ptr, x_ptr, stride, F{hint}, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + cols, F(e / tl.sum(e, axis=0)))
def {SOLUTIONS["single_tile"].answer}(x):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](y, x, x.stride(0), step, {launch})
    return y
"""


@pytest.mark.parametrize("hint", [": tl.constexpr", ""], ids=["constexpr", "no hint"])
def test_a_function_as_an_argument_is_compiled_with_the_kernel(workshop, hint):
    scored = score(workshop, [with_a_function("x * 1.0", hint=hint)])
    assert (scored.report.points, scored.note) == (4, "")
    assert ("compiled", "compiled for sm_75 and sm_90") in [(one.case, one.seen) for one in scored.report.findings]


def test_a_launch_that_no_gpu_has_is_refused_behind_a_function_too(workshop):
    scored = score(workshop, [with_a_function("x * 1.0", launch="BLOCK=x.shape[1], num_ctas=3")])
    assert scored.report.points == 0 and scored.report.diagnosis.id == "does_not_compile"


def test_triton_s_softmax_in_a_function_that_is_an_argument_is_no_work_of_one_s_own(workshop):
    cell = with_a_function("tl.softmax(x)").replace("e = tl.exp(x - tl.max(x, axis=0))", "e = x")
    cell = cell.replace("F(e / tl.sum(e, axis=0))", "F(x)")
    scored = score(workshop, [cell])
    assert scored.report.points == 0 and scored.report.diagnosis.id == "triton_s_softmax"


# What a cell may say


SWITCHES = [
    "import os\nos.environ['TRITON_INTERPRET'] = '0'", "import os\nos.environ.pop('TRITON_INTERPRET', None)",
    "import os\ndel os.environ['TRITON_INTERPRET']", "%env TRITON_INTERPRET=0",
    "import triton\ntriton.knobs.runtime.interpret = False",
]  # fmt: skip


@pytest.mark.thinned
@pytest.mark.parametrize("line", SWITCHES)
def test_a_line_that_switches_the_interpreter_off_costs_nothing(workshop, line):
    *above, last = SOLUTIONS["single_tile"].cells
    assert score(workshop, [*above, f"{line}\n{last}"]).report.points == 4


def test_a_cell_that_jupyter_cannot_read_is_the_student_s_error_with_its_line(workshop):
    (cells, one) = [*SOLUTIONS["single_tile"].cells], SOLUTIONS["single_tile"]
    assert score(workshop, [*cells, "x = %'''"]).report.points == 4
    cells[-1] += "\nx = %'''"
    handed = Handed(cells, len(cells), (len(cells) - 1,))
    scored = Grader(workshop, {}).score(handed, GradedCell("single", "single_tile", one.answer, one.points, ()))
    (finding,) = scored.report.findings
    assert scored.report.points == 0 and "Jupyter cannot read this line (IndexError" in finding.seen
    assert finding.seen.endswith("of the cell: `x = %'''`)")
