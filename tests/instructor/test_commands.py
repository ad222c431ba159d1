"""What the commands say and return where students hand in, are missing, come late, or are to be forgotten.

Who grades stands in `_here`'s place, and gives everybody all points.
"""

import csv
import errno
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import unicodedata
from contextlib import closing

import pytest

import classes
from handed_in import ROOT, TILE
from helpers.instructor import __main__ as command_line
from helpers.instructor.__main__ import main
from helpers.instructor.collect.course import graded_cells
from helpers.instructor.collect.ledger import Known, read_ledger, write_ledger
from helpers.instructor.collect.names import composed
from helpers.instructor.collect.person import Person
from helpers.instructor.grade import everyone
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import export, feedback, gradebook
from helpers.instructor.report.export import Grades

STUDENT = "Jürgen Müßig_4711"


def with_all_points(original):
    """In place of grading here: everything that is handed in gets all points."""
    released = (original / "release" / TILE / f"{TILE}.ipynb").read_bytes()
    exercises = [
        {
            "grade_id": cell.grade_id, "check": cell.check, "points": cell.points, "max_points": cell.points,
            "attempted": True, "passed": True, "findings": [], "diagnosis": None, "printed": "", "failed": [],
            "note": "", "speed": None,
        }
        for cell in graded_cells(released)
    ]  # fmt: skip
    data = {"exercises": exercises, "answers": {}, "problem": "", "sandbox": "", "seconds": 0.0}
    return lambda tasks, *rest, **more: ((task, data) for task in tasks)


@pytest.fixture
def course(original, tmp_path, monkeypatch):
    """A copy of a course directory, in which everything that is handed in gets all points, without a sandbox."""
    monkeypatch.setattr(everyone, "_here", with_all_points(original))
    monkeypatch.setattr(everyone, "Workshop", lambda kinds: None)
    return shutil.copytree(original, tmp_path / "course")


def moodle(folder, students=classes.STUDENTS, more=()):
    """Their notebooks of lesson 02 as Moodle exports them."""
    files = [(f"{one.name}_{one.number}_assignsubmission_file/{TILE}.ipynb", one.login.encode()) for one in students]
    (folder / "export.zip").write_bytes(classes.zipped([*files, *more]))
    return str(folder / "export.zip")


def exported(course, *options):
    """The rows of an export."""
    out = course.parent / "out.csv"
    assert main(["export", str(course), "--out", str(out), *options]) == 0
    return list(csv.reader(io.StringIO(out.read_text(encoding="utf-8-sig"), newline="")))


def with_roster(course, system="Moodle"):
    (course / "roster.csv").write_text(classes.roster(classes.STUDENTS, system), encoding="utf-8", newline="")


# grade


@pytest.mark.thinned(0)
def test_a_class_that_is_graded_as_a_whole_is_a_success(course, tmp_path, capsys):
    with_roster(course)
    assert main(["grade", str(course), "--from", moodle(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "8 notebooks copied" in out and "1 of 9 has handed in nothing: Nobody Nowhere." in out


@pytest.mark.parametrize(
    ("name", "said"),
    [(f"{TILE}.ipynb", "names no student"), ("Eve Li_9_assignsubmission_file/x.py", "Eve Li_9: handed in x.py"),
     ("Eve Li_9_assignsubmission_file/hw.ipynb", "names no lesson")],
)  # fmt: skip
def test_anything_that_is_passed_over_is_named_and_an_error(name, said, course, tmp_path, capsys):
    assert main(["grade", str(course), "--from", moodle(tmp_path, more=[(name, b"x")])]) == 1
    assert said in capsys.readouterr().out


def test_what_is_passed_over_in_submitted_is_an_error(course, capsys):
    for name in (f"ada/{TILE}/{TILE}.ipynb", "eve/02/x.ipynb"):
        path = course / "submitted" / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
    assert main(["grade", str(course)]) == 1
    assert "submitted/eve/02: no lesson of this course." in capsys.readouterr().out


def test_the_lesson_that_is_said_is_that_of_files_without_one(course, tmp_path):
    export = moodle(tmp_path, more=[("Eve Li_9_assignsubmission_file/hw.ipynb", b"x")])
    assert main(["grade", str(course), "--from", export, "--lesson", "02"]) == 0
    assert (course / "submitted" / "Eve Li_9" / TILE / f"{TILE}.ipynb").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--from", "nowhere.zip"], "There is no nowhere.zip."), (["--lessons", "99"], "05_online. `python"),
     (["--from", ".", "--lesson", "99"], "'99' stands for 0"), (["--roster", "no.csv"], "The roster no.csv cannot"),
     (["--lesson", "01"], "To grade some lessons, name them: --lessons.")],
)  # fmt: skip
def test_what_is_not_there_is_an_error_in_one_sentence(options, said, course, capsys):
    assert main(["grade", str(course), *options]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_lesson_is_named_by_its_number(course, tmp_path):
    assert main(["grade", str(course), "--from", moodle(tmp_path), "--lessons", "2"]) == 0


def test_whom_the_roster_does_not_have_is_named(course, tmp_path, capsys):
    (course / "roster.csv").write_text(f"folder\n{STUDENT}\n", encoding="utf-8")
    main(["grade", str(course), "--from", moodle(tmp_path, classes.STUDENTS[:3])])
    others = sorted({f"{one.name}_{one.number}" for one in classes.STUDENTS[:3]} - {STUDENT})
    assert f"The roster does not have {', '.join(others)}.\n" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["grade"], ["forget", "--and-roster"]])
def test_of_two_runs_that_write_at_once_the_second_is_refused(command, graded, capsys):
    hold = "import pathlib, sys; from helpers.instructor.collect.course import alone\n"
    hold += "with alone(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    name, *options = command
    arguments = [name, str(graded), *([STUDENT] if name == "forget" else []), *options]
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(graded)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        assert main(arguments) == 1
        error = capsys.readouterr().err
        other.stdin.close()
    assert f"is being changed by another run, process {other.pid} of " in error and error.count("\n") == 1
    assert (graded / "submitted" / STUDENT).exists()


# export and report


@pytest.mark.parametrize("command", ["export", "feedback", "report"])
def test_notebooks_that_are_not_graded_are_named(command, graded, capsys):
    main([command, str(graded)])
    assert "not graded" not in "".join(capsys.readouterr())
    (graded / "submitted" / STUDENT / TILE / f"{TILE}.ipynb").write_text("another")
    gradebook.kept(graded, "Kim Lee_4714", TILE).unlink()
    assert main([command, str(graded)]) == 0
    said = "".join(capsys.readouterr())
    assert f"2 notebooks are handed in and not graded: {STUDENT}, {TILE}; Kim Lee_4714, {TILE}.\n" in said


def test_every_student_is_exported_with_what_moodle_matches(course, tmp_path):
    with_roster(course)
    main(["grade", str(course), "--from", moodle(tmp_path)])
    sheet = exported(course, "--format", "moodle-worksheet", "--lessons", "02")
    assert {row[0]: row[3] for row in sheet[1:]} == {f"Participant {one.number}": "4" for one in classes.STUDENTS} | {
        "Participant 4799": ""
    }
    emails = {row[1] for row in exported(course, "--format", "moodle")[1:]}
    assert emails == {one.email for one in classes.STUDENTS} | {"nobody@uni.example"}


def test_numbers_of_moodle_are_exported_without_a_roster_too(course, tmp_path):
    main(["grade", str(course), "--from", moodle(tmp_path)])
    sheet = exported(course, "--format", "moodle-worksheet", "--lessons", "02")
    assert {row[0] for row in sheet[1:]} == {f"Participant {one.number}" for one in classes.STUDENTS}


def test_ids_of_canvas_go_round_and_lateness_is_a_column(course, tmp_path):
    files = [(name.replace(classes.LESSON, TILE), book) for name, book in classes.canvas(classes.STUDENTS[:3], b"x")]
    (tmp_path / "export.zip").write_bytes(classes.zipped(files))
    assert main(["grade", str(course), "--from", str(tmp_path / "export.zip")]) == 0
    assert [row[1] for row in exported(course, "--format", "canvas")[2:]] == ["4713", "4711", "4712"]
    assert [row[-1] for row in exported(course)[1:]] == ["", "", TILE]


def test_csv_that_is_redirected_to_a_file_has_the_mark_and_in_a_pipe_it_has_none(course, tmp_path, capsys, monkeypatch):
    main(["grade", str(course), "--from", moodle(tmp_path)])
    capsys.readouterr()
    assert main(["export", str(course)]) == 0
    assert capsys.readouterr().out.startswith("student,")
    with (tmp_path / "out.csv").open("w", encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", file)
        main(["export", str(course)])
    assert (tmp_path / "out.csv").read_bytes().startswith(b"\xef\xbb\xbfstudent,")


def test_a_rule_that_is_made_after_grading_counts_in_the_export_as_on_the_page(graded):
    result = gradebook.kept(graded, STUDENT, TILE)
    data = json.loads(result.read_text())
    data["exercises"][0] |= {"points": 0.0, "passed": False}
    result.write_text(json.dumps(data))
    (graded / "private" / "points.py").write_text("def points(exercise):\n    return 1.5\n")
    assert main(["feedback", str(graded), "--students", STUDENT]) == 0
    assert "<td>1.5 of 4</td>" in (graded / "feedback" / f"{STUDENT}.html").read_text()
    (graded / "private" / "points.py").write_text("def points(exercise):\n    return 2.5\n")
    assert "2.5" in next(row for row in exported(graded) if row[0] == STUDENT)


def test_the_report_names_who_has_handed_in_nothing(course, tmp_path, capsys):
    with_roster(course)
    main(["grade", str(course), "--from", moodle(tmp_path)])
    assert main(["report", str(course)]) == 0
    assert "Nobody Nowhere: has handed in nothing." in capsys.readouterr().out


@pytest.mark.parametrize("form", ["canvas", "moodle", "csv"])
def test_grades_of_two_with_one_id_are_not_exported_without_a_word(form, course, tmp_path, capsys):
    out = course.parent / "out.csv"
    found = Grades({"ada": {}, "bo": {}}, {TILE: 4}, dict.fromkeys(("ada", "bo"), Person(id="4711")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "grades", lambda *rest: found)
        assert main(["export", str(course), "--out", str(out), "--format", form]) == 1
    error = capsys.readouterr().err
    assert "ada, bo have the same" in error and out.exists() == (form == "csv")


def test_who_has_two_folders_is_told_when_the_roster_comes_late(course, tmp_path, capsys):
    for student in ("lovelaceada_4711", "ada_l"):
        path = course / "submitted" / student / TILE / f"{TILE}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text("x")
    assert main(["grade", str(course)]) == 0
    (course / "roster.csv").write_text("name,username\nAda Lovelace,ada_l\n", encoding="utf-8")
    ledger = {"lovelaceada_4711": Known(Person(name="lovelaceada", id="4711"), "canvas")}
    write_ledger(course, ledger)
    capsys.readouterr()
    assert main(["grade", str(course)]) == 1
    assert "Ada Lovelace of the roster has several folders, ada_l, lovelaceada_4711." in capsys.readouterr().out


# Some students alone


@pytest.mark.parametrize("called", [["Jürgen Müßig_4711"], ["j_muessig@uni.example"], ["Kim Lee_4714", "jürgen müßig"]])
def test_the_students_that_are_named_are_graded_and_nobody_else(called, course, tmp_path):
    with_roster(course)
    main(["grade", str(course), "--from", moodle(tmp_path), "--students", *called])
    graded = {result.student for result in gradebook.results_of(course)}
    assert graded == {STUDENT} | {one for one in called if one.startswith("Kim")}


@pytest.mark.parametrize("command", ["grade", "feedback", "report"])
@pytest.mark.parametrize(
    ("called", "said"),
    [("Jurgen Mussig", "Nobody is called Jurgen Mussig here; near are Jürgen Müßig_4711."),
     ("Nobody Nowhere", "Nobody Nowhere: has handed in nothing."), ("Kim Lee", "Several students are called Kim Lee")],
)  # fmt: skip
def test_a_name_that_is_not_one_student_s_is_an_error_with_the_near_ones(command, called, said, graded, capsys):
    assert main([command, str(graded), "--students", called]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_pages_of_the_students_that_are_named_are_written_and_no_others(graded, capsys):
    shutil.rmtree(graded / "feedback")
    assert main(["feedback", str(graded), "--students", STUDENT, "Kim Lee_4714"]) == 0
    assert {path.stem for path in (graded / "feedback").iterdir()} == {STUDENT, "Kim Lee_4714"}


def test_pages_go_back_to_the_system_that_is_named(graded, capsys):
    assert main(["feedback", str(graded), "--for", "moodle", "--students", STUDENT]) == 0
    assert f"To give back: {graded / 'returned' / f'{TILE}-moodle.zip'}" in capsys.readouterr().out
    own = graded / "submitted" / STUDENT / TILE
    for name in ("timestamp.txt", "submission_secret.txt"):  # as nbgrader's `collect` leaves them
        (own / name).write_text("2026-11-20 10:00:00 UTC")
    assert main(["feedback", str(graded), "--for", "nbgrader", "--students", STUDENT]) == 0
    assert f"To give back: nbgrader release_feedback {TILE}\n" in capsys.readouterr().out
    assert main(["feedback", str(graded), "--for", "pigeon"]) == 1
    assert "given back to nbgrader" in capsys.readouterr().err
    assert main(["forget", str(graded), STUDENT]) == 0
    assert not list((graded / "returned").iterdir())


def test_a_report_on_some_students_counts_them_and_leaves_the_page_of_the_class(graded, capsys):
    before = (graded / "report.html").read_bytes()
    assert main(["report", str(graded), "--students", STUDENT]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "single_tile" in line)
    assert line.split()[2:5] == ["1", "1", "1"] and (graded / "report.html").read_bytes() == before


def test_again_grades_what_has_not_changed_of_the_students_that_are_named(graded, original, monkeypatch, capsys):
    monkeypatch.setattr(everyone, "_here", with_all_points(original))
    monkeypatch.setattr(everyone, "Workshop", lambda kinds: None)
    assert main(["grade", str(graded), "--again", "--students", STUDENT]) == 0
    assert "1 graded in" in capsys.readouterr().out
    assert [path.parts[-3] for path in (graded / ".grading" / "results").glob("*/earlier/*")] == [STUDENT]


# The first word


HEAVY = ("torch", "triton", "nbgrader", "nbformat", "IPython", "matplotlib", "sqlalchemy")


@pytest.mark.parametrize(
    ("command", "said"),
    [(["grade", "nowhere"], "is not a course directory"), (["feedback", "."], "is not a course directory"),
     (["course", "x", "--lessons", "99"], "'99' stands for 0"), (["--help"], "COMMAND")],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_that_takes_seconds_is_imported(command, said, tmp_path):
    call = [sys.executable, "-X", "importtime", "-m", "helpers.instructor", *command]
    done = subprocess.run(
        call, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert said in done.stderr + done.stdout and "helpers" in imported
    assert imported & set(HEAVY) == set()


@pytest.mark.parametrize("command", ["grade", "feedback", "report"])
def test_what_is_done_is_said_before_what_takes_seconds_begins(command, graded, capsys, monkeypatch):
    def begin():
        raise NotebookError("begun")

    monkeypatch.setattr(command_line, "begin", begin)
    assert main([command, str(graded)]) == 1
    said = capsys.readouterr()
    assert str(graded) in said.out and said.err == "error: begun\n"


@pytest.mark.parametrize("command", ["feedback", "report", "export"])
def test_a_command_imports_what_it_needs_in_the_order_that_it_needs(command, graded):
    call = [sys.executable, "-m", "helpers.instructor", command, str(graded)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_full_disk_is_one_sentence(graded, capsys, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(feedback, "write", full)
    assert main(["feedback", str(graded)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: The disk is full (") and error.count("\n") == 1


# forget


def naming(course, word):
    """The files and folders of a course in which a word stands, in any form of its letters."""
    forms = {form(word) for form in (str, lambda text: unicodedata.normalize("NFD", text))}
    forms |= {json.dumps(word)[1:-1]}
    found = []
    for path in course.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if composed(word) in composed(path.name) or any(form.encode() in content for form in forms):
            found.append(path.relative_to(course).as_posix())
    return found


@pytest.fixture(scope="module")
def graded_once(original, tmp_path_factory):
    """A course in which everything has been done with a class."""
    folder = tmp_path_factory.mktemp("graded")
    course = shutil.copytree(original, folder / "course")
    with_roster(course)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(everyone, "_here", with_all_points(original))
        patch.setattr(everyone, "Workshop", lambda kinds: None)
        main(["grade", str(course), "--from", moodle(folder)])
    feedback.write(course, gradebook.results_of(course), gradebook.entered_by_hand(course))
    main(["report", str(course)])
    return course


@pytest.fixture
def graded(graded_once, tmp_path):
    """A copy of it."""
    return shutil.copytree(graded_once, tmp_path / "course")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("called", [STUDENT, "j_muessig@uni.example", "jürgen müßig"])
def test_a_student_is_forgotten_everywhere_but_in_the_roster(called, graded, capsys):
    assert len(naming(graded, "Müßig")) > 5
    assert main(["forget", str(graded), called]) == 0
    out = capsys.readouterr().out
    assert naming(graded, "Müßig") == ["roster.csv"] and "left, and still naming" in out and "roster.csv" in out
    places = "submitted", "autograded", ".grading/results", "feedback", "gradebook.db", "report.html", "report.png"
    for place in places:
        assert re.search(rf"^removed: {re.escape(place)}", out, re.MULTILINE)


def test_the_line_of_the_roster_goes_where_it_is_asked_for(graded):
    assert main(["forget", str(graded), STUDENT, "--and-roster"]) == 0
    assert naming(graded, "Müßig") == [] and "Kim Lee" in (graded / "roster.csv").read_text(encoding="utf-8")


def test_others_stay_as_they_are(graded):
    before = {row[0]: row for row in exported(graded)}
    main(["forget", str(graded), STUDENT, "--and-roster"])
    after = {row[0]: row for row in exported(graded)}
    assert after == {student: row for student, row in before.items() if student != STUDENT}


def test_unused_pages_of_the_gradebook_do_not_keep_the_name(graded):
    """Builds of SQLite differ in whether they overwrite what is deleted."""
    with closing(sqlite3.connect(graded / "gradebook.db")) as database:
        database.executescript(
            f"PRAGMA secure_delete = OFF; CREATE TABLE gone AS SELECT '{STUDENT}' AS name; DROP TABLE gone"
        )
    main(["forget", str(graded), STUDENT, "--and-roster"])
    assert naming(graded, "Müßig") == []


def test_what_still_names_a_forgotten_student_is_said(graded, capsys):
    (graded / "notes.txt").write_text(f"talked to {STUDENT}", encoding="utf-8")
    assert main(["forget", str(graded), STUDENT]) == 1
    assert f"left, and still naming {STUDENT}: notes.txt" in capsys.readouterr().out


def test_what_names_a_forgotten_student_in_decomposed_letters_is_said(graded, capsys):
    (graded / "notes.txt").write_text(unicodedata.normalize("NFD", f"talked to {STUDENT}"), encoding="utf-8")
    assert main(["forget", str(graded), STUDENT]) == 1
    assert f"left, and still naming {STUDENT}: notes.txt" in capsys.readouterr().out


def test_whoever_stands_in_the_roster_alone_is_forgotten_with_the_line(course, capsys):
    (course / "roster.csv").write_text("name,email\nAda Lovelace,ada@uni.example\nGrace,grace@uni.example\n")
    assert main(["forget", str(course), "ada@uni.example"]) == 0
    assert "left, and still naming Ada Lovelace: roster.csv" in capsys.readouterr().out
    assert main(["forget", str(course), "Ada Lovelace", "--and-roster"]) == 0
    assert "removed: roster.csv: the line" in capsys.readouterr().out
    assert (course / "roster.csv").read_text() == "name,email\nGrace,grace@uni.example\n"


def test_of_namesakes_with_other_numbers_only_the_one_who_is_meant_is_named(course, tmp_path, capsys):
    files = [(f"Ada Lovelace_{number}_assignsubmission_file/{TILE}.ipynb", b"x") for number in (4711, 12345)]
    (tmp_path / "export.zip").write_bytes(classes.zipped(files))
    main(["grade", str(course), "--from", str(tmp_path / "export.zip")])
    capsys.readouterr()
    assert main(["forget", str(course), "Ada Lovelace_12345"]) == 0
    out = capsys.readouterr().out
    assert "4711" not in out and "left" not in out
    assert list(read_ledger(course)) == ["Ada Lovelace_4711"] and naming(course, "Ada Lovelace_4711")


def test_of_namesakes_in_the_roster_none_is_forgotten_by_the_name(course, capsys):
    lines = ["name,email", "Ada Lovelace,ada@uni.example", "Ada Lovelace,ada.l@uni.example", ""]
    (course / "roster.csv").write_text("\n".join(lines))
    assert main(["forget", str(course), "Ada Lovelace", "--and-roster"]) == 1
    assert "say which folder, email or id." in capsys.readouterr().err
    assert main(["forget", str(course), "ada@uni.example", "--and-roster"]) == 0
    assert (course / "roster.csv").read_text() == "\n".join([lines[0], *lines[2:]])


def test_in_a_course_without_students_there_is_nobody_to_forget(course, capsys):
    assert main(["forget", str(course), "Ada"]) == 1
    assert capsys.readouterr().err == "error: Nobody is called Ada here; there are no students yet.\n"


@pytest.mark.parametrize("out", ["nowhere/x.csv", ""], ids=["no folder", "a folder"])
def test_a_file_that_cannot_be_written_is_an_error_in_one_sentence(out, course, tmp_path, capsys):
    path = tmp_path / out
    assert main(["export", str(course), "--out", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {path}: ") and error.count("\n") == 1


def test_a_course_at_the_place_of_a_file_is_an_error_in_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["course", str(tmp_path / "file"), "--lessons", "01"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1


def test_a_command_to_run_can_be_pasted_though_the_folder_s_name_has_a_space(tmp_path, capsys):
    assert main(["grade", str(tmp_path / "my course")]) == 1
    assert f"`python -m helpers.instructor course '{tmp_path / 'my course'}'`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("called", "said"),
    [("nobody at all", "Nobody is called nobody at all here"), ("Kim Lee", "Several students are called Kim Lee: Kim"),
     ("../release", "Nobody is called ../release here")],
)  # fmt: skip
def test_who_is_not_one_student_is_refused_in_one_sentence(called, said, graded, capsys):
    assert main(["forget", str(graded), called]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
