"""One notebook graded by itself, as a forge's CI does: what it prints, and its exit status."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from handed_in import TILE, notebook, solved, written
from helpers.instructor import REPOSITORY
from helpers.instructor import __main__ as command
from helpers.instructor.__main__ import main
from helpers.instructor.grade import one


@pytest.fixture
def grade(tmp_path, monkeypatch, capsys, workshop):
    """Runs `grade-one` on a notebook of this content: its exit status, and what it prints."""

    class Kept:
        """The workshop of all tests, which stays open."""

        def __init__(self, kinds):
            self.own = workshop.for_submission()

        def __getattr__(self, name):
            return getattr(self.own, name)

        def close(self):
            pass

    def run(content, *options, name=f"{TILE}.ipynb"):
        monkeypatch.setattr(one, "Workshop", Kept)
        (tmp_path / name).write_bytes(content)
        status = main(["grade-one", str(tmp_path / name), *options])
        return status, capsys.readouterr()

    return run


def test_a_right_notebook_has_all_points_and_status_0(grade):
    status, said = grade(written(solved(TILE)), "--json")
    told = json.loads(said.out)
    assert status == 0 and (told["lesson"], told["points"], told["max_points"]) == (TILE, 4, 4)
    (exercise,) = told["exercises"]
    assert exercise["check"] == "single_tile" and exercise["passed"] and exercise["diagnosis"] is None
    assert {"case", "ok", "seen"} == set(exercise["findings"][0])


def test_a_wrong_notebook_has_status_1_its_diagnosis_and_a_table(grade):
    broken = written(solved(TILE, single="def my_softmax(x):\n    return x.softmax(1)"))
    status, said = grade(broken)
    assert status == 1 and "single_tile  0 of 4" in said.out and said.out.endswith(f"{TILE}: 0 of 4 points.\n")
    status, said = grade(broken, "--json")
    findings = json.loads(said.out)["exercises"][0]["findings"]
    assert status == 1 and any(not finding["ok"] for finding in findings)


def test_gradescope_is_told_the_score_and_a_test_for_each_exercise():
    exercise = {
        "check": "single_tile",
        "points": 2.0,
        "max_points": 4.0,
        "passed": False,
        "note": "",
        "attempted": True,
    }
    exercise |= {"diagnosis": None, "findings": [{"case": "a row", "ok": False, "seen": "NaN"}]}
    told = one.gradescope_of({"points": 2.0, "max_points": 4.0, "exercises": [exercise]})
    test = {"name": "single_tile", "score": 2.0, "max_score": 4.0, "status": "failed", "output": "a row: NaN"}
    assert told == {"score": 2.0, "tests": [test]}


def test_a_notebook_that_was_not_touched_has_status_1(grade):
    status, said = grade(written(notebook(TILE)))
    assert status == 1 and "not attempted" in said.out


def test_the_command_itself_chooses_the_interpreter_first(tmp_path):
    (tmp_path / f"{TILE}.ipynb").write_bytes(written(notebook(TILE)))
    command = [sys.executable, "-m", "helpers.instructor", "grade-one", str(tmp_path / f"{TILE}.ipynb")]
    said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert said.returncode == 1 and "not attempted" in said.stdout and not said.stderr


@pytest.mark.parametrize(
    ("content", "name", "reason"),
    [(b"no notebook", f"{TILE}.ipynb", "cannot be read"), (b"{}", "hw.ipynb", "say which it is, as in --lesson 02")],
)
def test_what_cannot_be_graded_has_status_2_and_says_why(grade, content, name, reason):
    status, said = grade(content, name=name)
    assert status == 2 and reason in said.err and said.out == ""


def test_gradescope_is_told_why_a_file_cannot_be_read_and_nothing_if_the_machine_failed(grade, monkeypatch):
    told = json.loads(grade(b"no notebook", "--gradescope")[1].out)
    assert told["score"] == 0 and "cannot be read" in told["output"]
    monkeypatch.setattr(one.notebook, "graded_result", lambda *_: sys.exit("out of memory"))
    assert grade(b"", "--gradescope")[1].out == ""


def test_a_notebook_behind_a_linked_folder_is_not_graded(grade, tmp_path):
    (tmp_path / "solutions").mkdir()
    (tmp_path / "my-lessons").symlink_to("solutions")
    status, said = grade(written(solved(TILE)), name=f"my-lessons/{TILE}.ipynb")
    assert status == 2 and f"{tmp_path / 'my-lessons'} is a link" in said.err and "without links" in said.err


def test_nothing_is_imported_from_the_working_directory_unless_it_is_the_course_s(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", "elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:elsewhere")
    monkeypatch.chdir(tmp_path)
    assert command.leave_out(REPOSITORY) == [] and sys.path[0] == str(tmp_path)
    assert command.leave_out(Path.cwd()) == []
    assert sys.path == ["elsewhere"] and os.environ["PYTHONPATH"] == "elsewhere"


@pytest.mark.parametrize("options", [[], ["-P"]], ids=["by chance", "safely"])
def test_a_student_s_module_in_the_working_directory_grades_nothing(options, tmp_path):
    """The one that Python has imported before anybody can keep it from that is named."""
    (tmp_path / "torch.py").write_text("raise SystemExit(0)")
    (tmp_path / "shlex.py").write_text("")
    (tmp_path / f"{TILE}.ipynb").write_bytes(b"{")
    words = [sys.executable, *options, "-m", "helpers.instructor", "grade-one", f"{TILE}.ipynb"]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    said = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert said.returncode == 2
    assert ("imported shlex from the working directory: call `python -P" in said.stderr) == (not options)
    assert ("the notebook cannot be read" in said.stderr) == bool(options)


def test_the_guide_s_workflow_imports_nothing_of_the_student_s():
    guide = (REPOSITORY / "helpers" / "instructor" / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    .*(?<=python )(.*) grade-one \S*/", guide, re.MULTILINE)
    assert lines == 2 * ["-P -m helpers.instructor"]


def test_a_file_of_any_name_is_graded_for_the_lesson_that_is_named(grade):
    assert grade(written(solved(TILE)), "--lesson", "02", name="hw.ipynb")[0] == 0


def test_a_machine_that_fails_has_status_2(grade, monkeypatch):
    def starve(grader, content, lesson):
        grader.workshop.failures.append("the compiler took too long")
        return {"problem": "", "exercises": []}

    monkeypatch.setattr(one.notebook, "grade_notebook", starve)
    status, said = grade(b"")
    assert status == 2 and "the compiler took too long); run it again." in said.err
