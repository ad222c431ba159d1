"""What an instructor's machine fails at, and an instructor's own cases: nobody's zero. And what a GPU's walls show."""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import needs
from handed_in import ONLINE, TILE, solved, written
from helpers.check.report import Finding, Report
from helpers.instructor import REPOSITORY
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.collect.submissions import Submission
from helpers.instructor.grade import everyone, notebook, rehearsal, speed
from helpers.instructor.grade.everyone import GradingRun, Task
from helpers.instructor.grade.exercise import Scored
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import gradebook
from helpers.instructor.report.gradebook import Result
from helpers.instructor.sandbox import wire, zygote
from helpers.instructor.sandbox.client import Budget, NoSandbox, Sandbox

CELL = GradedCell("one", "single_tile", "answer", 4.0, ())

# The compiler


def test_a_compiler_that_takes_too_long_on_the_clock_is_a_failure_of_the_machine(workshop):
    own = workshop.for_submission()
    own.compiling_s = 0.01
    with pytest.raises(NoSandbox, match=r"the compiler took more than 0\.01 seconds on this machine"):
        own._in_compiler({"do": "try out"}, 60)
    assert own.failures == ["the compiler took more than 0.01 seconds on this machine"]


def test_a_failure_of_one_submission_is_none_of_the_next(workshop):
    workshop.for_submission().failures.append("something")
    assert workshop.for_submission().failures == []


# Submissions that the machine has failed at


class Scores:
    """A grader whose scores are given, each with what it does to the workshop."""

    def __init__(self, *scores):
        self.scores, self.workshop = list(scores), self
        self.budget, self.failures = Budget(), []

    def score(self, sources, cell):
        points, killed = self.scores.pop(0)
        self.budget.killed += killed
        return Scored(cell, Report(cell.check, cell.points, True, (Finding("a", points == 4, ""),), kept=points))


@pytest.mark.parametrize(
    ("scores", "points", "left"),
    [
        pytest.param([(0, 1), (4, 0)], 4, 0, id="killed once, then right"),
        pytest.param([(0, 1), (0, 1), (4, 0)], 0, 1, id="killed whenever it runs"),
        pytest.param([(0, 0), (4, 0)], 0, 1, id="wrong and not killed"),
        pytest.param([(4, 1), (0, 0)], 4, 1, id="right and killed"),
    ],
)
def test_an_exercise_whose_process_was_killed_is_judged_once_more(scores, points, left):
    grader = Scores(*scores)
    assert notebook._undisturbed(grader, [], CELL).report.points == points
    assert len(grader.scores) == left


def task_of(tmp_path, content=b"{}"):
    path = tmp_path / "submitted" / "ada" / TILE / f"{TILE}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return Task(Submission("ada", TILE, path), "key", content, "", False)


def test_a_submission_at_which_the_machine_fails_is_not_graded_and_named(tmp_path, workshop, monkeypatch):
    def failing(grader, content, released):
        grader.workshop.failures.append("the compiler took more than 300 seconds on this machine")
        return {"exercises": []}

    monkeypatch.setattr(notebook, "grade_notebook", failing)
    run = GradingRun()
    everyone._grade_all(tmp_path, run, everyone._here([task_of(tmp_path)], 1, workshop), lambda: None)
    assert run.graded == 0 and gradebook.results_of(tmp_path) == []
    assert run.not_graded == [
        f"ada, {TILE}: could not be graded (NotGraded: the compiler took more than 300 seconds on this machine); "
        "run it again."
    ]


def test_a_result_for_which_there_is_no_room_is_not_graded_and_named(tmp_path):
    (tmp_path / ".grading").write_text("in the way of a folder")
    run = GradingRun()
    everyone._grade_all(tmp_path, run, iter([(task_of(tmp_path), {"exercises": []})]), lambda: None)
    assert run.graded == 0 and run.not_graded[0].startswith(f"ada, {TILE}: could not be kept")


def test_a_gradebook_that_cannot_be_written_is_said(tmp_path):
    run = GradingRun()
    everyone._enter(tmp_path / "nowhere", run, [Result("ada", TILE, {"exercises": []})])
    (said,) = run.not_graded
    assert said.startswith("The gradebook could not be written") and said.endswith("run it again.")


def test_the_slowest_submissions_are_listed_with_their_processor_time(tmp_path):
    run, data = GradingRun(), {"exercises": [], "sandbox": "namespaces", "processor_s": 3.4}
    task = task_of(tmp_path)
    everyone._grade_all(tmp_path, run, iter((task, {**data, "seconds": float(s)}) for s in range(9)), lambda: None)
    (line,) = [note for note in run.notes() if note.startswith("The slowest")]
    assert (
        line.startswith(f"The slowest: ada, {TILE}: 8 s, 3 s of a processor; ada, {TILE}: 7 s") and "3 s, 3" not in line
    )


def sleep_or_answer(grader, content, released):
    if content == b"sleeps":
        time.sleep(100_000)
    return {"exercises": [], "sandbox": "namespaces"}


def test_an_interrupted_run_waits_for_no_submission(tmp_path, workshop, monkeypatch):
    monkeypatch.setattr(notebook, "grade_notebook", sleep_or_answer)
    tasks = [task_of(tmp_path / "quick"), task_of(tmp_path / "slow", b"sleeps")]
    tasks[1] = Task(Submission("ben", TILE, tasks[1].submission.path), "key", b"", "", False)
    outcomes = everyone._here(tasks, 2, workshop)
    assert next(outcomes)[1] == {"exercises": [], "sandbox": "namespaces"}
    outcomes.close()  # as Ctrl-C does, it ends the loop from within


# Cases of the instructor's own


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("CASES = {", r"line 1: SyntaxError", id="no Python"),
        pytest.param("\n\nimport nowhere", r"line 3: ModuleNotFoundError", id="an error"),
        pytest.param("CASES = 3", r"needs CASES = \{exercise", id="something else"),
        pytest.param("CASES = {'maskd': {'x': lambda g: 5}}", "'maskd'; did you mean 'masked'", id="misspelt"),
        pytest.param("CASES = {'zzz': {}}", "no exercise is called 'zzz'; there are ", id="unknown"),
        pytest.param("CASES = {'overflow': {}}", "'overflow' takes no matrix", id="of numbers"),
        pytest.param("CASES = {'online': {\n'five': lambda g: 5}}", "line 2: .*'five' of online makes 5", id="no x"),
        pytest.param(
            "import torch\nCASES = {'online': {'flat': lambda g: torch.ones(3)}}", "line 2: .*1 dim", id="flat"
        ),
        pytest.param(
            "def helper(g):\n    return g.shape\nCASES = {'online': {'a': lambda g: helper(g)}}",
            "line 2: the case 'a' of online fails: AttributeError", id="fails within",
        ),
    ],
)  # fmt: skip
def test_cases_that_cannot_be_used_are_named_with_their_line(text, says, workshop, original):
    with pytest.raises(NotebookError, match=f"private/cases.py.*{says}"):
        rehearsal.require_cases(workshop, notebook.load_held_back(text), original)


def test_a_case_that_the_course_s_own_solution_does_not_pass_is_named(workshop, original):
    text = "import torch\nCASES = {'single_tile': {\n  'wide': lambda g: torch.randn(1, 1 << 21, generator=g)}}"
    with pytest.raises(
        NotebookError, match=r"line 3: the course's own solution is wrong in the case 'wide' of single_"
    ):
        rehearsal.require_cases(workshop, notebook.load_held_back(text), original)


@pytest.mark.thinned(0)
def test_cases_that_the_course_s_solutions_pass_are_taken(workshop, original):
    text = "import torch\nCASES = {'online': {'far below': lambda g: torch.randn(2, 301, generator=g) - 5e4}}"
    rehearsal.require_cases(workshop, notebook.load_held_back(text), original)


def test_with_a_broken_case_nothing_is_graded(original, tmp_path, workshop):
    course = shutil.copytree(original, tmp_path / "course")
    path = course / "submitted" / "ada" / ONLINE / f"{ONLINE}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(written(solved(ONLINE)))
    (course / "private" / "cases.py").write_text("CASES = {'online': {'five': lambda g: 5}}")
    with pytest.raises(NotebookError, match="Nothing is graded"):
        everyone.grade(course, progress=False, workshop=workshop)
    assert gradebook.results_of(course) == []


# Behind a GPU's walls

MEASURE = """
import os, types, torch
def measure(contestants, n_rows, n_cols, dtype):
    x = torch.randn(4, 8)
    right = torch.allclose(contestants["kernel"](x), torch.softmax(x, 1))
    told = {"right": right, "uid": os.getuid(), "device": os.path.exists(DEVICE), "seen": [], "written": []}
    for path in READ:
        try:
            open(path).close()
            told["seen"].append(path)
        except OSError:
            pass
    for path in WRITTEN:
        try:
            open(path, "a").close()
            told["written"].append(path)
        except OSError:
            pass
    with open("told", "w") as file:
        import json
        json.dump(told, file)
    return [types.SimpleNamespace(of_copy=0.75)]
"""


class Prepared:
    """A workshop whose next sandbox is the one given."""

    def __init__(self, sandbox):
        self.one = sandbox

    def for_submission(self):
        return self

    def sandbox(self, given, nodes):
        self.asked = given, nodes
        return self.one


@pytest.mark.thinned(0)
def test_a_kernel_is_timed_behind_walls_that_show_the_devices(workshop, tmp_path):
    device = next(path for path in map(Path, ("/dev/fuse", "/dev/kvm", "/dev/tty", "/dev/ptmx")) if path.exists())
    outside = tmp_path / "outside"
    outside.touch()
    outside.chmod(0o666)
    read = ["/etc/passwd", str(outside), str(next((REPOSITORY / "solutions").glob("*.ipynb")))]
    names = {"DEVICE": str(device), "READ": read, "WRITTEN": [str(outside), str(REPOSITORY / "helpers" / "written")]}
    stub = "\n".join(f"{name} = {value!r}" for name, value in names.items()) + MEASURE
    cell = f"with open('stub.py', 'w') as file:\n    file.write({stub!r})\nanswer = 1"
    sources = ["".join(cell["source"]) for cell in solved(TILE)["cells"] if cell["cell_type"] == "code"]
    with workshop.sandbox() as learner:
        answer = "my_softmax"
        learner.ask({"do": "define", "sources": sources, "answer": answer, "every_cell": False}, 90)
        problem = {"inputs": [[[4, 8], [8, 1], 0, 32, torch.float32]], "wants": [], "options": {}}
        (plan,) = learner.ask({"do": "plans", "answer": answer, "problems": [problem]}, 90)
    with Sandbox(workshop.interpreting, devices=[device], given=None) as timing:
        timing.ask({"do": "define", "sources": [cell], "answer": "answer", "every_cell": True}, 120)
        request = {"do": "define", "sources": ["import json\nanswer = json.dumps(json.load(open('told')))"]}
        prepared_one = Prepared(_StaysOpen(timing))
        assert speed.of_copy(prepared_one, plan, [device], "stub:measure") == 0.75
        assert prepared_one.asked == (None, [device])
        told = json.loads(timing.ask({**request, "answer": "answer", "every_cell": True}, 90)["value"])
    assert told["right"] and told["device"] and told["seen"] == told["written"] == []
    assert told["uid"] != 0 and (os.geteuid() != 0 or told["uid"] >= 1_000_000)


class _StaysOpen:
    def __init__(self, sandbox):
        self.sandbox = sandbox

    def __enter__(self):
        return self.sandbox

    def __exit__(self, *error):
        pass


@pytest.mark.parametrize("found", [float("nan"), float("inf"), "fast", None, True], ids=str)
def test_only_a_number_is_a_speed(found):
    told = SimpleNamespace(ask=lambda *request: found)
    assert speed.of_copy(Prepared(_StaysOpen(told)), {}, [Path("/dev/null")]) == "not timed: it gave no number"


def test_without_a_gpu_nothing_is_timed(workshop):
    assert speed.of_copy(workshop, {}, []) == "not timed: this machine has no GPU"


@pytest.mark.thinned(1)
@pytest.mark.parametrize("measure", ["helpers.timing:measure_shape", "os:nothing"])
def test_what_cannot_be_timed_behind_the_walls_says_why(workshop, measure):
    text = textwrap.dedent("import os\nprint(os.getcwd())")
    plan = {"steps": [{"kernel": [text, "k"], "args": {}, "grid": [1], "options": {}}], "result": {"tensor": 0}}
    said = speed.of_copy(workshop, plan, [Path("/dev/null")], measure)
    assert isinstance(said, str) and said.startswith("not timed: ")


def test_a_process_that_cannot_begin_says_why(tmp_path):
    (tmp_path / "__init__.py").write_text("raise RuntimeError('no CUDA')")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, "-P", "-c", zygote.INSIDE, str(tmp_path), str(theirs.fileno())]
        subprocess.run(words, pass_fds=[theirs.fileno()], stderr=subprocess.DEVNULL, check=False)
        assert wire.receive(ours, 5) == {"failed": "RuntimeError: no CUDA"}


@needs.gpu
def test_right_kernels_are_timed_on_this_machine_s_gpu(original, tmp_path, workshop):
    course = shutil.copytree(original, tmp_path / "course")
    path = course / "submitted" / "ada" / TILE / f"{TILE}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(written(solved(TILE)))
    (graded,) = everyone.grade(course, gpu=True, progress=False, workshop=workshop).results
    timed = [one for exercise in graded.data["exercises"] if (one := exercise["speed"]) is not None]
    assert graded.points == graded.max_points
    assert timed and all(isinstance(one, float) and 0 < one < 2 for one in timed), timed
