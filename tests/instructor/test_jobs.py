"""Whatever happens in a submission, its grading ends, it is named meanwhile, and the next one is graded."""

import os
import threading
import time

import pytest

from forged import FORGED
from handed_in import TILE, HandedIn, hostile, notebook, solution_of, solved, written
from helpers.instructor import REPOSITORY
from helpers.instructor.collect.submissions import Submission
from helpers.instructor.grade import everyone, jobs
from helpers.instructor.grade import notebook as grading
from kernel_attacks import LOSSES


def forged(way, exercise, cell):
    lesson, mark = solution_of(exercise)
    return HandedIn(way.replace(" ", "-"), lesson, 0, written(solved(lesson, "none", **{mark.replace("-", "_"): cell})))


ATTACKS = {
    one.name: one
    for one in (
        *hostile(),
        *(forged(way, *attack) for way, attack in FORGED.items()),
        *(forged(f"losses {way}", "row_loss", cell) for way, cell in LOSSES.items()),
    )
}
HONEST = HandedIn("the-next-one", TILE, 4, written(solved(TILE)))


def task_of(course, one):
    one.put(course)
    submission = Submission(one.name, one.lesson, course / "submitted" / one.name / one.lesson / f"{one.lesson}.ipynb")
    released = (REPOSITORY / "lessons" / f"{one.lesson}.ipynb").read_bytes()
    return everyone._task(course, submission, released, "", False)


def outcomes_of(tasks, workshop, *at_work):
    return {task.submission.student: found for task, found in everyone._here(tasks, 1, workshop, *at_work)}


@pytest.mark.thinned
@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_ends_and_leaves_the_next_one_graded(name, tmp_path, workshop, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_CLOCK_S", 1_200)
    tasks = [task_of(tmp_path, ATTACKS[name]), task_of(tmp_path, HONEST)]
    outcomes = outcomes_of([task for task in tasks if isinstance(task, everyone.Task)], workshop)
    assert not isinstance(outcomes.get(name), everyone.OfItsOwn), outcomes[name]
    assert sum(one["points"] for one in outcomes[HONEST.name]["exercises"]) == HONEST.points


# Graders that hang or die, whatever may be the reason


def doing(monkeypatch, work):
    """Grades `HONEST` as it is graded, and has `work` done in place of grading every other submission."""
    usual, right = grading.grade_notebook, HONEST.content

    def grade(grader, content, lesson):
        return usual(grader, content, lesson) if content == right else work()

    monkeypatch.setattr(grading, "grade_notebook", grade)


def untouched(student):
    return HandedIn(student, TILE, 0, written(notebook(TILE)))


def wait_for_ever():
    """As ranks do that wait for each other: the threads of the grader, and not its sandboxes."""
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    thread.join()


def test_a_grader_that_hangs_is_ended_and_named_and_the_next_one_is_graded(tmp_path, workshop, monkeypatch):
    monkeypatch.setattr(jobs, "MOST_CLOCK_S", 60)
    doing(monkeypatch, lambda: (jobs.signal.alarm(1), wait_for_ever()))
    outcomes = outcomes_of([task_of(tmp_path, untouched("eve")), task_of(tmp_path, HONEST)], workshop)
    assert outcomes["eve"] == "its grader did not come to an end within 60 seconds"
    assert outcomes[HONEST.name]["exercises"][0]["passed"]


def test_a_job_has_a_limit_from_its_beginning(tmp_path, workshop, monkeypatch):
    doing(monkeypatch, lambda: {"exercises": [], "left_s": jobs.signal.alarm(0)})
    (outcome,) = outcomes_of([task_of(tmp_path, untouched("eve"))], workshop).values()
    assert 0 < outcome["left_s"] <= jobs.MOST_CLOCK_S == 3_600


def test_graders_that_die_take_no_other_submission_with_them(tmp_path, workshop, monkeypatch):
    began = tmp_path / "began"
    monkeypatch.setattr(everyone, "Workshop", lambda kinds: workshop)
    monkeypatch.setattr(type(workshop), "close", lambda self: None)

    def die():
        began.open("a").write("began\n")
        os._exit(1)

    doing(monkeypatch, die)
    killers = [untouched(f"eve-{number}") for number in range(everyone.TRIES)]
    outcomes = outcomes_of([task_of(tmp_path, one) for one in (*killers, HONEST)], workshop)
    assert outcomes.pop(HONEST.name)["exercises"][0]["passed"]
    assert set(outcomes.values()) == {"its grader ended without a result"}
    assert began.read_text().count("began") == everyone.TRIES * len(killers)


def test_the_bar_is_told_who_is_being_graded(tmp_path, workshop, monkeypatch):
    doing(monkeypatch, dict)
    told = []
    tasks = [task_of(tmp_path, untouched(student)) for student in ("ada", "ben")]
    outcomes_of(tasks, workshop, lambda names: told.append(list(names)))
    assert told == [["the compiler starts"], [f"ada, {TILE}"], [f"ben, {TILE}"]]


def test_an_interrupted_run_leaves_no_grader_behind(tmp_path, workshop, monkeypatch):
    doing(monkeypatch, lambda: time.sleep(100_000) or {})
    started = []
    usual = jobs.Job.__init__

    def noted(job, work):
        usual(job, work)
        started.append(job._process)

    monkeypatch.setattr(jobs.Job, "__init__", noted)

    def interrupt(names):
        if started:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcomes_of([task_of(tmp_path, untouched("ada"))], workshop, interrupt)
    assert not any(process.is_alive() for process in started) and len(started) == 1
