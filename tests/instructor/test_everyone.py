"""Grading a class: what is graded, what is kept, what a run says of itself. Who grades stands in `_here`'s place."""

import json
import os

import pytest

from helpers.check.report import Finding, Report
from helpers.instructor.collect.submissions import Submission
from helpers.instructor.grade import everyone, notebook
from helpers.instructor.grade.everyone import GradingRun, Task
from helpers.instructor.report import gradebook
from helpers.instructor.report.gradebook import Result
from helpers.instructor.sandbox.client import NoSandbox

LESSON = "02_lesson"
RELEASED = json.dumps(
    {
        "cells": [
            {"metadata": {"nbgrader": {"grade_id": "one", "grade": True, "points": 4}}, "source": ["check.one(answer)"]}
        ]
    }
).encode()


def exercise(points=4.0, attempted=True, note="", check="one", of=4.0):
    report = Report(check, of, attempted, (Finding("a case", points == of, ""),), kept=points)
    return {
        "grade_id": check, "check": check, "points": points, "max_points": of, "attempted": attempted,
        "passed": report.passed, "findings": [], "diagnosis": None, "printed": "", "left_out": [], "note": note,
        "speed": None,
    }  # fmt: skip


def data(*exercises, **more):
    return {"exercises": list(exercises or [exercise()]), "answers": {}, "problem": "", "sandbox": "none", **more}


def handed_in(course, student, content=b"notebook"):
    path = course / "submitted" / student / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Submission(student, LESSON, path)


def task(course, submission, held_back="", gpu=False):
    return everyone._task(course, submission, RELEASED, held_back, gpu)


def keep(course, run, *outcomes):
    """Keeps outcomes as a run of grading does."""
    everyone._grade_all(course, run, iter(outcomes), lambda: None)


# What is graded


def test_a_notebook_is_graded_once(tmp_path):
    submission = handed_in(tmp_path, "ada")
    first = task(tmp_path, submission)
    keep(tmp_path, GradingRun(), (first, data()))
    again = task(tmp_path, submission)
    assert isinstance(first, Task) and isinstance(again, Result) and again.points == 4


def test_a_notebook_that_was_handed_in_again_is_graded_again(tmp_path):
    keep(tmp_path, GradingRun(), (task(tmp_path, handed_in(tmp_path, "ada")), data()))
    assert isinstance(task(tmp_path, handed_in(tmp_path, "ada", b"another")), Task)


def test_the_same_notebook_of_another_student_is_graded_too(tmp_path):
    keep(tmp_path, GradingRun(), (task(tmp_path, handed_in(tmp_path, "ada")), data()))
    assert isinstance(task(tmp_path, handed_in(tmp_path, "alan")), Task)


def test_a_result_that_is_broken_is_made_again(tmp_path):
    path = gradebook.kept(tmp_path, "ada", LESSON)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert isinstance(task(tmp_path, handed_in(tmp_path, "ada")), Task)


def test_what_is_not_a_file_is_not_attempted_and_says_so(tmp_path):
    submission = handed_in(tmp_path, "ada")
    submission.path.unlink()
    submission.path.symlink_to("/etc/hostname")
    (one,) = task(tmp_path, submission).data["exercises"]
    assert (one["points"], one["attempted"]) == (0, False) and "link" in one["note"]


@pytest.mark.thinned(0)
def test_lessons_that_were_not_asked_for_are_not_graded(tmp_path, monkeypatch):
    for lesson in (LESSON, "03_other"):
        for folder, name in (("release", ""), ("submitted", "ada")):
            path = tmp_path / folder / name / lesson / f"{lesson}.ipynb"
            path.parent.mkdir(parents=True)
            path.write_bytes(RELEASED)
    (tmp_path / "gradebook.db").touch()
    monkeypatch.setattr(everyone, "_here", lambda tasks, *rest: ((one, data()) for one in tasks))
    monkeypatch.setattr(gradebook, "enter", lambda course, results: (0, []))
    run = everyone.grade(tmp_path, lessons=["03_other"], progress=False)
    assert [result.lesson for result in run.results] == ["03_other"]


# What is kept


def test_a_result_is_kept_in_a_file_of_its_own_and_counted(tmp_path):
    run = GradingRun()
    graded = task(tmp_path, handed_in(tmp_path, "ada"))
    keep(tmp_path, run, (graded, data()))
    kept = json.loads(gradebook.kept(tmp_path, "ada", LESSON).read_text())
    assert (kept["key"], run.graded, run.sandbox) == (graded.key, 1, "none")
    assert [(one.student, one.lesson) for one in gradebook.results_of(tmp_path)] == [("ada", LESSON)]


def test_a_submission_without_a_result_is_named_and_the_others_are_kept(tmp_path):
    run = GradingRun()
    keep(
        tmp_path, run,
        (task(tmp_path, handed_in(tmp_path, "ada")), "it was killed"),
        (task(tmp_path, handed_in(tmp_path, "alan")), data()),
    )  # fmt: skip
    assert run.not_graded == [f"ada, {LESSON}: could not be graded (it was killed); run it again."]
    assert [result.student for result in run.results] == ["alan"]


def raising(error):
    def grade(*args):
        raise error

    return grade


@pytest.mark.parametrize(
    ("error", "advice"),
    [(IndexError("list index out of range"), "look at it by hand"), (OSError(28, "No space left"), "run it again")],
)
def test_another_run_is_advised_only_where_it_can_help(tmp_path, monkeypatch, error, advice):
    monkeypatch.setattr(notebook, "grade_notebook", raising(error))
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    run = GradingRun()
    keep(tmp_path, run, *everyone._here([task(tmp_path, handed_in(tmp_path, "ada"))], 1, None))
    (line,) = run.not_graded
    assert str(error) in line and line.endswith(f"; {advice}.")


def test_a_result_that_cannot_be_written_is_named_and_the_others_are_kept(tmp_path):
    run = GradingRun()
    keep(
        tmp_path, run,
        (task(tmp_path, handed_in(tmp_path, "ada")), data(printed={1, 2})),
        (task(tmp_path, handed_in(tmp_path, "alan")), data()),
    )  # fmt: skip
    assert run.not_graded[0].startswith(f"ada, {LESSON}: could not be kept")
    assert [result.student for result in run.results] == ["alan"]


def test_a_result_that_is_asked_for_again_is_new_and_the_one_before_stays_beside_it(tmp_path):
    submission, run = handed_in(tmp_path, "ada"), GradingRun()
    for points in (4.0, 2.0, 2.0):
        graded = everyone._task(tmp_path, submission, RELEASED, "", False, again=True)
        keep(tmp_path, run, (graded, data(exercise(points), sandbox="")))
    assert run.otherwise == [f"ada, {LESSON}: 2 points now, 4 before."] and run.otherwise[0] in run.notes()
    assert [one.points for one in gradebook.results_of(tmp_path)] == [2]
    earlier = sorted(gradebook.kept(tmp_path, "ada", LESSON).parent.glob("earlier/*.json"))
    assert [json.loads(path.read_text())["exercises"][0]["points"] for path in earlier] == [4, 2]


def test_the_result_before_stays_if_the_instructor_s_cases_are_others_too(tmp_path):
    submission, run = handed_in(tmp_path, "ada"), GradingRun()
    for points, cases in ((4.0, ""), (2.0, "CASES = {}")):
        keep(tmp_path, run, (everyone._task(tmp_path, submission, RELEASED, cases, False), data(exercise(points))))
    assert run.otherwise == [f"ada, {LESSON}: 2 points now, 4 before."]


def test_of_another_notebook_no_result_is_one_before(tmp_path):
    keep(tmp_path, GradingRun(), (task(tmp_path, handed_in(tmp_path, "ada")), data()))
    submission = handed_in(tmp_path, "ada", b"another")
    assert everyone._task(tmp_path, submission, RELEASED, "", False, again=True).before == ""


@pytest.mark.thinned(0)
def test_of_several_attempts_the_best_counts_and_another_one_is_graded(tmp_path, monkeypatch):
    points = {b"notebook": 1.0, b"good": 4.0, b"later": 2.0}
    monkeypatch.setattr(notebook, "grade_notebook", lambda grader, content, released: data(exercise(points[content])))
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    submission, run = handed_in(tmp_path, "ada"), GradingRun()
    folder = submission.path.parent / "attempts"
    folder.mkdir()
    for name in (b"good", b"later"):
        (folder / f"{name.decode()}.ipynb").write_bytes(name)
        keep(tmp_path, run, *everyone._here([task(tmp_path, submission)], 1, None))
    assert [one.points for one in run.results] == [4, 4] and isinstance(task(tmp_path, submission), Result)


# What a run says of itself


def rows(*results):
    table = GradingRun(results=[Result(f"student {n}", LESSON, one) for n, one in enumerate(results)]).table()
    (row,) = table.rows
    return dict(zip(table.head, row, strict=True))


def test_the_summary_counts_submissions_full_points_untouched_ones_and_notes():
    untouched = data(exercise(0, attempted=False))
    row = rows(data(), data(exercise(2.0, note="look at this")), untouched, untouched)
    assert list(row.values()) == [LESSON, "4", "0", "1", "2", "1.5 of 4", "1"]


def test_what_is_to_look_at_in_this_run_stands_before_what_earlier_runs_have_found():
    results = [Result(name, LESSON, data(exercise(note="look"))) for name in ("ada", "ben")]
    run = GradingRun(results=results, new={("ben", LESSON)})
    assert run.notes()[-3:] == ["ben, one: look", "Of earlier runs:", "ada, one: look"]
    (row,) = run.table().rows
    assert row[run.table().head.index("new")] == "1"


def test_where_nothing_is_new_what_is_to_look_at_has_no_heading():
    assert GradingRun(results=[Result("ada", LESSON, data(exercise(note="look")))]).notes()[-1:] == ["ada, one: look"]
    assert GradingRun().notes() == ["0 graded in 0 s, 0 unchanged."]


def test_a_notebook_is_not_attempted_where_none_of_its_exercises_is():
    assert rows(data(exercise(), exercise(0, attempted=False, check="two")))["not attempted"] == "0"


def test_a_notebook_that_cannot_be_read_is_not_one_without_answers():
    unreadable = data(exercise(0, attempted=False)) | {"problem": "the file is empty"}
    assert rows(unreadable)["not attempted"] == "0"


def test_words_of_a_student_are_printed_without_what_moves_a_cursor():
    run = GradingRun(results=[Result("ada", LESSON, data(exercise(note="\x1b[2Jgone")))])
    assert run.notes()[-1] == "ada, one: ?[2Jgone"


def test_there_is_a_job_for_each_processor_that_may_be_used():
    assert everyone.default_jobs() == len(os.sched_getaffinity(0))


# Graders that end


class Doomed:
    """A workshop of which nothing is needed."""

    def __init__(self, kinds):
        self.failures = []

    def for_submission(self):
        return self

    def compiling(self):
        raise NoSandbox("nothing compiles here")

    def close(self):
        pass


def die(*args):
    with open(os.environ["BEGUN"], "a") as file:
        file.write("begun\n")
    os._exit(1)


def test_the_bar_names_what_is_started_and_then_whose_notebook_is_graded(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(notebook, "grade_notebook", lambda *rest: data())
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    list(everyone._here([task(tmp_path, handed_in(tmp_path, "ada"))], 1, None, lambda names: told.extend(names)))
    assert told == ["the compiler starts", f"ada, {LESSON}"]


def test_a_submission_whose_grader_ends_is_begun_three_times(tmp_path, monkeypatch):
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    monkeypatch.setattr(notebook, "grade_notebook", die)
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    tasks = [task(tmp_path, handed_in(tmp_path, "ada"))]
    assert [said for _, said in everyone._here(tasks, 1, None)] == ["its grader ended without a result"]
    assert (tmp_path / "begun").read_text().count("begun") == everyone.TRIES == 3


@pytest.mark.parametrize(
    ("took", "said"),
    [({"processor_s": 1000}, "have taken more than 1,800 s of a processor"),
     ({"waited_s": 200}, "have waited for more"), (None, "2 others of this student could not")],
)  # fmt: skip
def test_what_the_lessons_of_one_student_take_together_has_a_limit_and_others_are_graded(
    took, said, tmp_path, monkeypatch
):
    def grade(grader, content, released):
        if content != b"notebook" and took is None:
            raise RuntimeError("this machine")
        return data(**(took or {}) if content != b"notebook" else {})

    monkeypatch.setattr(notebook, "grade_notebook", grade)
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    tasks = []
    for number in range(8):
        own = handed_in(tmp_path, "eve", b"slow")
        tasks.append(task(tmp_path, Submission("eve", f"{number}", own.path)))
    tasks.append(task(tmp_path, handed_in(tmp_path, "zoe")))
    outcomes = {(one.submission.student, one.submission.lesson): said for one, said in everyone._here(tasks, 1, None)}
    assert outcomes["zoe", LESSON] == data()
    assert said in outcomes["eve", "7"] and len(outcomes) == len(tasks)
    assert sum(said in str(outcome) for outcome in outcomes.values()) >= 4


@pytest.mark.parametrize("content", [b"CASES = 3"])
def test_an_error_of_grading_is_the_outcome_of_its_task(tmp_path, monkeypatch, content):
    monkeypatch.setattr(everyone, "Workshop", Doomed)
    tasks = [task(tmp_path, handed_in(tmp_path, "ada"), held_back=content.decode())]
    ((_, said),) = everyone._here(tasks, 1, None)
    assert said.startswith("NotebookError: private/cases.py needs CASES")


def test_speeds_and_why_there_are_none_stand_below_the_table():
    speeds = [0.9512, "not timed: no CUDA", None, "not timed: no CUDA"]
    results = [Result(f"s{n}", LESSON, data({**exercise(), "speed": one})) for n, one in enumerate(speeds)]
    notes = GradingRun(results=results).notes()
    check_name = exercise()["check"]
    assert f"Speed on a GPU, as a fraction of a copy's: s0, {check_name} 0.95." in notes
    assert "2 kernels not timed: no CUDA." in notes
