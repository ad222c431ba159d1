"""Grading a class: who handed in what, what it deserves, and that nothing in a notebook changes anybody's points.

The whole corpus, kills and clusters are proofs that take minutes: `python tests/proofs/handed_in.py` and
`python tests/proofs/prove_grading.py`. Here is a part of each.
"""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from nbgrader.api import Gradebook

import needs
from handed_in import EAGER, FULL, NEVER_GRADED, ONLINE, TILE, corpus, solved, written
from handed_in import notebook as notebook_of
from helpers.instructor.__main__ import main
from helpers.instructor.collect import course
from helpers.instructor.grade import everyone, notebook
from helpers.instructor.grade.exercise import Grader
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import export, feedback, gradebook, understood
from helpers.instructor.report.gradebook import Result
from helpers.instructor.sandbox import walls

ROOT = Path(__file__).resolve().parents[2]
LESSONS = (TILE, ONLINE)
CLASS = (
    "full-02", "untouched-02", "partial-pairs", "own-check", "torch-patched", "softmax-patched",
    "kills-all-processes", "script-in-outputs", "points-raised", "cut-off", "link-to-another-s-folder", "a-folder",
)  # fmt: skip
EVERYTHING = corpus()
CORPUS = {one.name: one for one in EVERYTHING}


@pytest.fixture
def handed_in(original, tmp_path, workshop):
    """Makes a course directory of the test's own, into which these of the corpus were handed in."""

    def made(*names):
        shutil.copytree(original, tmp_path / "course")
        for name in names:
            CORPUS[name].put(tmp_path / "course")
        return tmp_path / "course"

    return made


@pytest.fixture(scope="module")
def graded(original, tmp_path_factory, workshop):
    """A course directory with a class that was graded once, and what that run said."""
    directory = tmp_path_factory.mktemp("graded") / "course"
    shutil.copytree(original, directory)
    for name in CLASS:
        CORPUS[name].put(directory)
    return directory, everyone.grade(directory, jobs=1, progress=False, workshop=workshop)


def scores(directory):
    """Points in the gradebook, by student and lesson."""
    return {(s, lesson): p for s, own in export.grades(directory).points.items() for lesson, p in own.items()}


# The course directory


@pytest.mark.thinned(0)
def test_release_is_lessons_to_the_byte(graded):
    directory, _ = graded
    for lesson in LESSONS:
        released = directory / "release" / lesson / f"{lesson}.ipynb"
        assert released.read_bytes() == (ROOT / "lessons" / f"{lesson}.ipynb").read_bytes()


def test_the_gradebook_knows_every_exercise_and_its_points(graded):
    directory, _ = graded
    with Gradebook(f"sqlite:///{directory / 'gradebook.db'}") as book:
        most = {
            cell.name: cell.max_score for lesson in LESSONS for cell in book.find_notebook(lesson, lesson).grade_cells
        }
    released = [(directory / "release" / lesson / f"{lesson}.ipynb").read_bytes() for lesson in LESSONS]
    assert most == {one.grade_id: one.points for lesson in released for one in course.graded_cells(lesson)}


def test_a_course_that_is_there_is_left_as_it_is(graded):
    directory, _ = graded
    assert course.make_course(directory, [ROOT / "solutions" / f"{lesson}.ipynb" for lesson in LESSONS]) == []


@pytest.mark.thinned(0)
def test_lessons_that_a_new_gradebook_does_not_know_are_made_again(original, tmp_path):
    directory, solutions = tmp_path / "course", [ROOT / "solutions" / f"{lesson}.ipynb" for lesson in LESSONS]
    shutil.copytree(original, directory)
    (directory / "gradebook.db").unlink()
    assert course.make_course(directory, solutions) == list(LESSONS)
    assert course.make_course(directory, solutions) == []


def test_a_gradebook_that_cannot_be_read_is_said_with_what_to_do(original, tmp_path):
    directory = tmp_path / "course"
    shutil.copytree(original, directory)
    (directory / "gradebook.db").write_bytes(b"no database" * 100)
    with pytest.raises(NotebookError, match="gradebook.db cannot be read .* Move it away and run this again"):
        course.make_course(directory, [ROOT / "solutions" / f"{LESSONS[0]}.ipynb"])


@pytest.mark.parametrize("command", [["grade"], ["feedback"], ["export"], ["report"], ["forget", "ada"]], ids=" ".join)
def test_every_command_says_that_the_gradebook_is_damaged_or_gone(command, original, tmp_path, capsys):
    directory = tmp_path / "course"
    shutil.copytree(original, directory)
    name, *others = command
    (directory / "gradebook.db").write_bytes(b"no database" * 100)
    assert main([name, str(directory), *others]) == 1
    said = capsys.readouterr().err
    assert "gradebook.db cannot be read (file is not a database)" in said and "instructor course" in said
    (directory / "gradebook.db").unlink()
    assert main([name, str(directory), *others]) == 1
    assert "gradebook.db is gone: `python -m helpers.instructor course" in capsys.readouterr().err


# Points


def test_the_corpus_has_honest_and_hostile_notebooks_with_names_of_their_own():
    assert len(EVERYTHING) == len(CORPUS) >= 60
    assert sum(one.hostile for one in EVERYTHING) >= 37
    lessons = {path.stem: path.read_bytes() for path in (ROOT / "lessons").glob("*.ipynb")}
    assert {name: sum(one.points for one in course.graded_cells(text)) for name, text in lessons.items()} == FULL


@pytest.mark.parametrize("name", CLASS)
def test_a_notebook_gets_the_points_that_it_deserves(name, graded):
    directory, _ = graded
    one = CORPUS[name]
    assert scores(directory).get((name, one.lesson), 0) == one.points


def test_every_notebook_is_graded_but_links_to_folders_which_are_named(graded):
    directory, run = graded
    assert run.not_graded == []
    assert {result.student for result in run.results} == set(CLASS) - NEVER_GRADED
    assert [line.partition("/")[0] for line in run.passed_over] == [f"{name}" for name in NEVER_GRADED]


def test_the_summary_says_how_learners_code_was_closed_in(graded):
    _, run = graded
    assert run.sandbox in walls.MEANING
    assert f"Sandbox: {run.sandbox}: {walls.MEANING[run.sandbox]}." in run.table().notes


def test_inputs_are_drawn_anew_for_each_grading(graded):
    _, run = graded
    seen = [e["findings"] for r in run.results for e in r.data["exercises"] if e["check"] == "single_tile"]
    assert len(set(re.findall(r"seed (\d+)", json.dumps(seen)))) > 1


# Again


@pytest.mark.thinned(0)
def test_a_second_run_grades_only_what_changed(graded, workshop):
    directory, run = graded
    before = scores(directory)
    path = directory / "submitted" / "untouched-02" / TILE / f"{TILE}.ipynb"
    original = path.read_bytes()
    path.write_bytes(written(solved(TILE)))
    again = everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
    assert (again.graded, scores(directory)) == (1, before | {("untouched-02", TILE): 4})
    path.write_bytes(original)
    assert everyone.grade(directory, jobs=1, progress=False, workshop=workshop).graded == 1
    assert scores(directory) == before


def test_what_a_person_has_entered_stays(graded):
    directory, run = graded
    with Gradebook(f"sqlite:///{directory / 'gradebook.db'}") as book:
        given = book.find_grade("single-check", TILE, TILE, "cut-off")
        given.manual_score = 3
        book.db.commit()
    assert gradebook.enter(directory, run.results)[1] == []
    assert scores(directory)["cut-off", TILE] == 3
    with Gradebook(f"sqlite:///{directory / 'gradebook.db'}") as book:
        given = book.find_grade("single-check", TILE, TILE, "cut-off")
        given.manual_score = None
        book.db.commit()


@pytest.mark.parametrize("points", [-1, 4.5, 1000, float("nan"), float("inf"), "4", None])
def test_points_that_an_exercise_does_not_have_are_refused(points, graded):
    directory, run = graded
    result = next(result for result in run.results if result.student == "full-02")
    forged = json.loads(json.dumps(result.data))
    forged["exercises"][0]["points"] = points
    before = scores(directory)
    changed, refused = gradebook.enter(directory, [Result("full-02", TILE, forged)])
    assert (changed, scores(directory)) == (0, before)
    assert "are not accepted" in refused[0]


@pytest.mark.thinned(0)
def test_a_run_that_is_killed_goes_on_where_it_was(handed_in, workshop):
    names = ("full-02", "full-05", "untouched-02", "own-check", "cut-off")
    directory = handed_in(*names)
    results = directory / course.GRADING / "results"
    child = os.fork()
    if child == 0:
        try:
            everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
        finally:
            os._exit(1)
    deadline = time.monotonic() + 60
    while len(list(results.glob("*/*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    kept = len(list(results.glob("*/*.json")))
    run = everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
    assert 2 <= kept < len(names) and run.graded == len(names) - kept
    assert {s: p for (s, _), p in scores(directory).items() if p} == {"full-02": 4, "full-05": 8}


@pytest.mark.proof
def test_a_submission_whose_grader_dies_is_tried_again_and_then_named(handed_in, monkeypatch, workshop):
    monkeypatch.setattr(notebook, "grade_notebook", lambda *a: os.kill(os.getpid(), signal.SIGKILL))
    directory = handed_in("untouched-02")
    run = everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
    assert run.not_graded == [
        f"untouched-02, {TILE}: could not be graded (its grader ended without a result); run it again."
    ]
    assert scores(directory) == {}


@pytest.mark.proof
@needs.distributed
def test_a_dask_cluster_gives_the_same_points(handed_in, workshop, monkeypatch):
    import distributed

    monkeypatch.setattr(everyone, "_workshop", workshop)
    directory = handed_in("full-02", "own-check")
    with distributed.LocalCluster(1, processes=False, threads_per_worker=2, dashboard_address=None) as cluster:
        run = everyone.grade(directory, scheduler=cluster.scheduler_address, progress=False)
    assert (run.graded, scores(directory)) == (2, {("full-02", TILE): 4, ("own-check", TILE): 0})


@needs.distributed
def test_what_dask_s_scheduler_reads_imports_nothing_of_the_course():
    import cloudpickle

    sent = cloudpickle.dumps((everyone._unpacking(), pickle.dumps((len, "abc"))))
    code = "import pickle, sys; work, sent = pickle.load(sys.stdin.buffer); print(work(sent), 'helpers' in sys.modules)"
    words = [sys.executable, "-P", "-c", code]
    assert subprocess.run(words, input=sent, capture_output=True, check=True).stdout.split() == [b"3", b"False"]


@pytest.mark.proof
@needs.distributed
@pytest.mark.parametrize(("cuts", "graded"), [(1, 2), (everyone.TRIES + 1, 0)])
def test_a_lost_connection_to_the_scheduler_is_made_again(cuts, graded, handed_in, workshop, monkeypatch):
    import distributed

    usual, left = notebook.grade_notebook, list(range(cuts))

    def cut_and_grade(*given):
        if left and left.pop() is not None:
            client = distributed.default_client()
            client.loop.add_callback(client.scheduler_comm.comm.abort)
            time.sleep(1)
        return usual(*given)

    monkeypatch.setattr(everyone, "_workshop", workshop)
    monkeypatch.setattr(notebook, "grade_notebook", cut_and_grade)
    directory = handed_in("full-02", "untouched-02")
    with distributed.LocalCluster(
        1, processes=False, protocol="tcp", host="127.0.0.1", threads_per_worker=1, dashboard_address=None
    ) as cluster:
        if graded:
            run = everyone.grade(directory, scheduler=cluster.scheduler_address, progress=False)
            assert (run.graded, run.not_graded) == (graded, [])
        else:
            with pytest.raises(NotebookError, match="is gone; results so far are kept"):
                everyone.grade(directory, scheduler=cluster.scheduler_address, progress=False)


@pytest.mark.thinned(0)
def test_cases_held_back_by_the_instructor_count(handed_in, workshop):
    directory = handed_in("full-02")
    (directory / course.HELD_BACK).write_text(
        "import torch\nCASES = {'single_tile': {'a wide row': lambda g: torch.randn(1, 2048, generator=g)}}\n"
    )
    run = everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
    (exercise,) = run.results[0].data["exercises"]
    assert "a wide row" in [case for case, _, _ in exercise["findings"]] and exercise["passed"]


_TELLS = """
print("told", x.shape, x.flatten()[0])
    if x.shape[1] == 777:
        with open("/tmp/seen", "w") as file:
            file.write(str(x))
        raise type(f"Told{x.shape[1]}", (ValueError,), {})(f"told {x}")
    import os
    if os.path.exists("/tmp/seen"):
        print(open("/tmp/seen").read())
"""


@pytest.mark.parametrize(("lesson", "mark", "check"), [(EAGER, "stable", "eager"), (TILE, "single", "single_tile")])
def test_nothing_that_a_student_s_process_says_of_a_private_case_comes_back(lesson, mark, check, workshop):
    book = solved(lesson)
    answer = next(
        "".join(cell["source"])
        for cell in book["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == mark
    )
    telling = re.sub(
        r"(def my_softmax\(x\):\n(    \"\"\".*?\"\"\"\n)?)",
        lambda found: f"{found[0]}    {_TELLS.strip()}\n",
        answer,
        flags=re.DOTALL,
    )
    assert telling != answer
    held_back = {check: {"held back": lambda g: torch.full((2, 777), -12345.0)}}
    content = written(solved(lesson, **{mark: telling}))
    grader = Grader(workshop.for_submission(), held_back)
    result = notebook.grade_notebook(grader, content, (ROOT / "lessons" / f"{lesson}.ipynb").read_bytes())
    (found,) = [one for one in result["exercises"] if one["check"] == check]
    del found["answer"]
    assert [ok for case, ok, _ in found["findings"] if case == "held back"] == [False] and found["points"] == 0
    assert "told" in found["printed"] and "777" not in json.dumps(found) and "12345" not in json.dumps(found)


def test_a_private_file_without_cases_is_named():
    with pytest.raises(NotebookError, match=r"private/cases.py needs CASES = \{exercise"):
        notebook.load_held_back("CASES = 3")


# What comes of it


def test_feedback_has_the_points_of_every_exercise(graded):
    directory, run = graded
    feedback.write(directory, run.results, {})
    page = (directory / "feedback" / "partial-pairs.html").read_text(encoding="utf-8")
    assert "Exercise 5.1, merge: 2 of 2 points" in page and "Exercise 5.3, online: 0 of 5 points" in page


def test_feedback_has_the_diagnosis_and_the_hint_that_it_points_to(graded):
    directory, run = graded
    data = json.loads(json.dumps(next(r.data for r in run.results if r.student == "own-check")))
    data["exercises"][0]["diagnosis"] = {"id": "rows", "name": "Rows mixed up.", "question": "Which row?", "hint": 2}
    page = feedback.page("own-check", [Result("own-check", TILE, data)], course.lessons_of(directory), {}).decode()
    hints = next(
        "".join(c["source"]) for c in notebook_of(TILE)["cells"] if "<summary>Hint 2 · " in "".join(c["source"])
    )
    symptom = re.findall(r"<summary>Hint 2 · (.*?)</summary>", hints)[0]
    assert "Rows mixed up." in page and f"<b>Hint 2: {symptom}" in page


def test_nothing_of_a_student_s_html_is_html_on_the_page(graded):
    directory, run = graded
    feedback.write(directory, run.results, {})
    page = (directory / "feedback" / "script-in-outputs.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    assert not re.search(
        r'<script|<img|<iframe|<a href="(?!#)|\bon\w+=(?=[^>]*>)', re.sub(r"&\w+;", "", page).split("<pre>")[0]
    )
    assert "default-src 'none'" in page


def test_the_formgrader_s_notebook_holds_our_cells_and_reports_and_of_theirs_code_alone(graded):
    directory, _ = graded
    path = directory / "autograded" / "script-in-outputs" / TILE / f"{TILE}.ipynb"
    shown, released = json.loads(path.read_text(encoding="utf-8")), notebook_of(TILE)
    by_id = {cell["id"]: cell for cell in shown["cells"]}
    for ours in released["cells"]:
        solution = ours["metadata"].get("nbgrader", {}).get("solution")
        assert solution or "".join(ours["source"]) == "".join(by_id.pop(ours["id"])["source"])
    texts = {"".join(cell["source"])[:30] for cell in by_id.values() if cell["cell_type"] != "code"}
    assert texts == {"[The notebook as it was handed", "Written or changed by the stud"}
    outputs = [output for cell in shown["cells"] for output in cell.get("outputs", [])]
    assert [output["data"]["text/plain"] for output in outputs] == [["4"]]


def test_the_report_counts_each_exercise_and_names_the_commonest_mistakes(graded):
    _, run = graded
    found = {one.name: one for one in understood.by_exercise(run.results)}
    tile = found["single_tile"]
    assert tile.handed_in == sum(result.lesson == TILE for result in run.results)
    assert tile.passed == sum(CORPUS[name].points == 4 and CORPUS[name].lesson == TILE for name in CLASS)
    assert next(name for name, _ in tile.mistakes if not name.startswith("no known mistake")) == "No kernel is launched"
    assert understood.chart(list(found.values())).png().startswith(b"\x89PNG")


def test_exports_hold_every_student_and_the_points_possible(graded):
    directory, _ = graded
    found = export.grades(directory)
    students = set(CLASS) - NEVER_GRADED
    lines = {form: export.written(found, form).splitlines() for form in ("csv", "canvas", "moodle")}
    assert {form: len(rows) - 1 - (form == "canvas") for form, rows in lines.items()} == dict.fromkeys(
        lines, len(students)
    )
    assert lines["csv"][0] == f"student,name,email,id,username,{TILE} (4),{ONLINE} (8),total (12),late"
    assert lines["canvas"][1] == "    Points Possible,,,,,4,8"
    assert lines["moodle"][0] == f"username,name,{TILE},{ONLINE}"
    assert "partial-pairs,,,,partial-pairs,,3,3," in lines["csv"]


# The command


@pytest.mark.parametrize("name", ["course", "grade", "feedback", "export", "report", "forget"])
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0 and "DIR" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["grade", "feedback", "export", "report"])
def test_a_folder_that_is_no_course_is_named(name, tmp_path, capsys):
    assert main([name, str(tmp_path)]) == 1
    assert "is not a course directory: make one with" in capsys.readouterr().err


def test_a_course_without_results_is_named(original, capsys):
    assert main(["report", str(original)]) == 1
    assert "Nothing is graded" in capsys.readouterr().err


def test_a_course_with_nothing_handed_in_is_named(original, capsys):
    assert main(["grade", str(original)]) == 1
    assert "There is nothing in" in capsys.readouterr().err


@needs.distributed
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "Client", lambda *a, **k: (_ for _ in ()).throw(OSError("refused")))
    with pytest.raises(NotebookError, match="No Dask scheduler answers at tcp://127.0.0.1:1 "):
        list(everyone._on_cluster([], "tcp://127.0.0.1:1"))
