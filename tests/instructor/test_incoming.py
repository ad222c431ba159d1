"""Exports of an LMS on their way to submitted/: all arrive, nobody takes another's place, everything else is named."""

import json
import os
import subprocess
import sys
import unicodedata
import zipfile
from datetime import UTC, datetime

import pytest

import classes
from handed_in import ONLINE, TILE, hostile_zip
from helpers.instructor.collect.incoming import collect
from helpers.instructor.collect.ledger import read_ledger
from helpers.instructor.collect.person import Person
from helpers.instructor.collect.submissions import submitted
from helpers.instructor.publish.notebooks import NotebookError

LESSONS = (classes.LESSON, TILE, ONLINE)
NFD = unicodedata.normalize("NFD", "Jürgen")


def put(folder, *names, **contents):
    """A folder with files that hold their names."""
    for name in names:
        path = folder / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(contents.get(name, name), encoding="utf-8")
    return folder / "export"


def pack(folder, *names, content=str):
    """A zip with files that hold their names."""
    with zipfile.ZipFile(folder / "export.zip", "w") as archive:
        for name in names:
            archive.writestr(name, content(name))
    return folder / "export.zip"


def came(course):
    """What lies in submitted/, by student and lesson."""
    found = (course / "submitted").rglob("*.ipynb")
    return {(path.parts[-3], path.parts[-2][:2]): path.read_text(encoding="utf-8") for path in found}


@pytest.fixture(params=[put, pack], ids=["folder", "zip"])
def source(request):
    """Makes a folder or a zip."""
    return request.param


# Whole classes


@pytest.mark.parametrize("system", classes.CLASSES)
def test_of_a_class_every_student_arrives_once_with_the_notebook_that_counts(system, tmp_path):
    (tmp_path / "export.zip").write_bytes(classes.zipped(classes.CLASSES[system](classes.STUDENTS, b"right")))
    root = tmp_path / "export.zip"
    if system == "GitHub Classroom":
        root = root.rename(tmp_path / "softmax-1-submissions.zip")
    done = collect(root, tmp_path, LESSONS)
    assert (done.count, done.passed_over) == (len(classes.STUDENTS), [])
    assert set(came(tmp_path).values()) == {"right"} and len(came(tmp_path)) == len(classes.STUDENTS)


@pytest.mark.parametrize("system", ["Canvas", "ILIAS"])
def test_who_was_late_is_kept(system, tmp_path):
    (tmp_path / "export.zip").write_bytes(classes.zipped(classes.CLASSES[system](classes.STUDENTS, b"right")))
    collect(tmp_path / "export.zip", tmp_path, LESSONS)
    late = [one.who.id for one in read_ledger(tmp_path).values() if one.lessons[classes.LESSON].late]
    assert late == [str(classes.STUDENTS[1].number)]


# What systems leave beside


def test_a_stale_checkpoint_does_not_replace_the_notebook(source, tmp_path):
    names = [f"ada/{TILE}.ipynb", f"ada/.ipynb_checkpoints/{TILE}-checkpoint.ipynb"]
    done = collect(source(tmp_path, *names), tmp_path, LESSONS)
    assert came(tmp_path) == {("ada", "02"): names[0]} and done.passed_over == []


def test_a_zip_made_on_a_mac_holds_a_class(tmp_path):
    names = [f"submissions/{name}/{TILE}.ipynb" for name in ("ada", "ben")]
    names += [f"__MACOSX/submissions/{name}/._{TILE}.ipynb" for name in ("ada", "ben")]
    done = collect(pack(tmp_path, *names), tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == [("ada", "02"), ("ben", "02")] and done.passed_over == []
    assert "2 files that systems have made" in done.notes[0]


@pytest.mark.parametrize("junk", [".DS_Store", "Thumbs.db", "desktop.ini", "._x.ipynb", ".git/x.ipynb", "~$02.ipynb"])
def test_files_of_systems_are_nobody_s(junk, source, tmp_path):
    done = collect(source(tmp_path, f"ada/{TILE}.ipynb", f"ada/{junk}", junk), tmp_path, LESSONS)
    assert list(came(tmp_path)) == [("ada", "02")] and done.passed_over == []


def test_utf_8_that_a_zip_does_not_declare_is_read(tmp_path):
    name = f"{NFD}/{TILE}.ipynb"
    letters = b"x" * len(name.encode())
    archive = pack(tmp_path, letters.decode(), content=lambda _: "right")
    archive.write_bytes(archive.read_bytes().replace(letters, name.encode()))
    collect(archive, tmp_path, LESSONS)
    assert came(tmp_path) == {("Jürgen", "02"): "right"}


# Names of people


def test_composed_and_decomposed_letters_are_one_name(source, tmp_path):
    paths = source(tmp_path, f"Jürgen/{TILE}.ipynb", f"{NFD}/{ONLINE}.ipynb", f"ada/{TILE}.ipynb")
    collect(paths, tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == [("Jürgen", "02"), ("Jürgen", "05"), ("ada", "02")]


@pytest.mark.parametrize("name", ["Ada O'Brien, Jr.", "ऋषि", "ผู้ใหญ่", "漢字", "100%", "a  b", "Ada_Lovelace", "-x"])
def test_a_name_is_that_of_the_folder(name, source, tmp_path):
    names = [f"{name}/{TILE}.ipynb", f"Ada Lovelace/{TILE}.ipynb"]
    collect(source(tmp_path, *names), tmp_path, LESSONS)
    assert sorted(came(tmp_path).values()) == sorted(names)
    assert (name.replace("%", "%25"), "02") in came(tmp_path)


def test_names_that_a_file_system_shortens_stay_two(tmp_path):
    names = [f"{'漢' * 90}{end}_{TILE}.ipynb" for end in "ab"]
    collect(pack(tmp_path, *names), tmp_path, LESSONS)
    assert sorted(came(tmp_path).values()) == names
    assert max(len(student.encode()) for student, _ in came(tmp_path)) <= 180


@pytest.mark.proof
def test_a_name_arrives_that_the_locale_has_no_letters_for(original, tmp_path):
    import shutil

    shutil.copytree(original, tmp_path / "course")
    pack(tmp_path, f"漢_{TILE}.ipynb")
    ascii_alone = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "helpers.instructor", "grade", "course", "--from", "export.zip"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | ascii_alone, capture_output=True)
    assert (tmp_path / "course" / "submitted" / "漢" / TILE / f"{TILE}.ipynb").exists()


# What is handed in


@pytest.mark.parametrize("name", [f"{TILE}.IPYNB", f"{TILE}.ipynb.txt", f"{TILE}.ipynb.json", f"{TILE}.Ipynb"])
def test_a_notebook_is_known_however_its_name_ends(name, source, tmp_path):
    done = collect(source(tmp_path, f"ada/{name}"), tmp_path, LESSONS)
    assert list(came(tmp_path)) == [("ada", "02")] and done.passed_over == []


@pytest.mark.parametrize("outer", [f"{TILE}.ipynb.zip", "homework.zip"])
def test_archives_within_are_opened(outer, source, tmp_path):
    inner = classes.zipped([(f"{TILE}.ipynb", b"right"), (f"__MACOSX/._{TILE}.ipynb", b"x")])
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr(f"ada/{outer}", inner)
        archive.writestr(f"bob/{TILE}.ipynb", b"right")
    root = tmp_path / "export.zip"
    if source is put:
        zipfile.ZipFile(root).extractall(tmp_path / "export")
        root = tmp_path / "export"
    done = collect(root, tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == [("ada", "02"), ("bob", "02")] and done.passed_over == []


@pytest.mark.parametrize("name", [f"{TILE}.html", "answer.py", "02.pdf", "notes.txt", "work.tar.gz"])
def test_who_hands_in_no_notebook_is_named(name, source, tmp_path):
    done = collect(source(tmp_path, f"ada/{name}", f"bob/{TILE}.ipynb"), tmp_path, LESSONS)
    assert done.passed_over == [f"ada: handed in {name} and no notebook; only notebooks count."]


def test_a_file_of_a_lesson_beside_the_notebook_of_another_is_passed_over(tmp_path):
    done = collect(put(tmp_path, f"ada/{TILE}.ipynb", f"ada/{ONLINE}.py"), tmp_path, LESSONS)
    assert f"{ONLINE}.py" in done.passed_over[0]


def test_files_beside_the_notebook_are_named_and_no_error(tmp_path):
    done = collect(put(tmp_path, f"ada/{TILE}.ipynb", "ada/data.csv", f"ada/{TILE}.html"), tmp_path, LESSONS)
    assert done.passed_over == [] and "data.csv" in done.notes[0] and f"{TILE}.html" in done.notes[0]


def test_a_copy_beside_the_notebook_is_named(source, tmp_path):
    names = ["ada/02-Copy1.ipynb", "ada/02.ipynb"]
    done = collect(source(tmp_path, *names), tmp_path, LESSONS)
    assert came(tmp_path) == {("ada", "02"): names[1]}
    assert done.passed_over == ["ada/02-Copy1.ipynb: ada/02.ipynb counts."]


def test_a_later_copy_beside_the_notebook_does_not_count(tmp_path):
    names = [f"ada_1_{upload}_{name}.ipynb" for upload, name in ((5, TILE), (9, f"{TILE}-Copy1"))]
    done = collect(put(tmp_path, *names, f"bob_2_3_{TILE}.ipynb"), tmp_path, LESSONS)
    assert came(tmp_path)["ada_1", "02"] == names[0] and done.passed_over == [f"{names[1]}: {names[0]} counts."]


def test_canvas_s_later_upload_of_the_same_name_counts(tmp_path):
    names = [f"ada_1_{upload}_{name}.ipynb" for upload, name in ((5, TILE), (9, f"{TILE}-1"))]
    done = collect(put(tmp_path, *names, f"bob_2_3_{TILE}.ipynb"), tmp_path, LESSONS)
    assert came(tmp_path)["ada_1", "02"] == names[1] and done.passed_over == [f"{names[0]}: {names[1]} counts."]


def test_a_file_that_names_no_lesson_is_named_unless_the_lesson_is_given(source, tmp_path):
    export = source(tmp_path, "ada/hw2.ipynb", f"bob/{ONLINE}.ipynb")
    assert "ada/hw2.ipynb: names no lesson" in collect(export, tmp_path, LESSONS).passed_over[0]
    assert collect(export, tmp_path, LESSONS, lesson=TILE).passed_over == []
    assert sorted(came(tmp_path)) == [("ada", "02"), ("bob", "05")]


def test_a_file_that_says_its_lesson_counts_before_one_that_does_not(tmp_path):
    done = collect(put(tmp_path, f"ada/{TILE}.ipynb", "ada/zzz.ipynb"), tmp_path, LESSONS, lesson=TILE)
    assert came(tmp_path) == {("ada", "02"): f"ada/{TILE}.ipynb"} and "ada/zzz.ipynb" in done.passed_over[0]


def test_a_class_in_a_folder_beside_a_stray_file_is_no_student(tmp_path):
    names = [f"submissions/{name}/{TILE}.ipynb" for name in ("ada", "ben")]
    done = collect(put(tmp_path, *names, f"eve_{TILE}.ipynb"), tmp_path, LESSONS)
    assert list(came(tmp_path)) == [("eve", "02")]
    assert f"submissions: holds {TILE} within ada, ben;" in done.passed_over[0]


def test_groups_of_students_in_folders_are_no_students_even_where_a_group_has_one(tmp_path):
    names = [f"{name}/{TILE}.ipynb" for name in ("A/ada", "A/ben", "B/cem")]
    done = collect(put(tmp_path, *names), tmp_path, LESSONS)
    assert came(tmp_path) == {} and [line[:8] for line in done.passed_over] == ["A: holds", "B: holds"]


def test_exports_of_a_system_of_which_one_has_one_student_are_no_students(tmp_path):
    source = tmp_path / "inbox"
    source.mkdir()
    for number, students in (("02", ["ada_1", "ben_2"]), ("05", ["ada_1"])):
        files = [(f"{student}_9_{number}_x.ipynb", b"x") for student in students]
        (source / f"canvas {number}.zip").write_bytes(classes.zipped(files))
    done = collect(source, tmp_path, ["02_x", "05_x"])
    assert came(tmp_path) == {}
    assert [line[:26] for line in done.passed_over] == ["canvas 02: holds 02_x with", "canvas 05: holds 05_x with"]


def test_what_lies_in_submitted_is_there_already(tmp_path):
    (tmp_path / "submitted" / "ada").mkdir(parents=True)
    with pytest.raises(NotebookError, match="leave `--from` away"):
        collect(tmp_path / "submitted", tmp_path, LESSONS)


# Attempts


def attempt(day, login="ada"):
    return f"Homework_{login}_attempt_2026-11-2{day}-13-45-02_{TILE}.ipynb"


def test_the_newest_attempt_counts_and_the_others_are_named(source, tmp_path):
    done = collect(source(tmp_path, attempt(1), attempt(2), attempt(0), attempt(0, "bob")), tmp_path, LESSONS)
    assert came(tmp_path) == {("ada", "02"): attempt(2), ("bob", "02"): attempt(0, "bob")}
    assert done.passed_over == [] and sum("the newest attempt" in note for note in done.notes) == 2


def test_an_older_export_does_not_replace_a_newer_attempt(tmp_path):
    collect(put(tmp_path, attempt(1), attempt(0, "bob")), tmp_path, LESSONS)
    (tmp_path / "export" / attempt(1)).rename(tmp_path / "export" / attempt(0))
    done = collect(tmp_path / "export", tmp_path, LESSONS)
    assert came(tmp_path)["ada", "02"] == attempt(1) and "is there already" in " ".join(done.notes)


def test_the_time_of_an_attempt_is_written_as_nbgrader_does(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    collect(put(tmp_path, attempt(1), attempt(0, "bob")), tmp_path, LESSONS)
    assert (tmp_path / "submitted" / "ada" / TILE / "timestamp.txt").read_text() == "2026-11-21 13:45:02 UTC"


DUE = {TILE: datetime(2026, 11, 21, 12, tzinfo=UTC)}


@pytest.mark.parametrize(("extension", "day"), [("", 0), ("1", 1), ("02:2", 2), ("05:9", 0)])
def test_the_last_in_time_counts_if_that_is_asked_for_with_the_days_that_the_roster_gives(extension, day, tmp_path):
    people = [Person(username="ada", extension=extension)]
    export = put(tmp_path, *map(attempt, range(4)), attempt(0, "bob"))
    done = collect(export, tmp_path, LESSONS, "", people, "in-time", DUE)
    assert came(tmp_path)["ada", "02"] == attempt(day) and done.passed_over == []


def test_a_late_file_of_canvas_does_not_take_the_place_of_one_in_time_nor_does_a_later_export(tmp_path):
    names = [f"ada_1_5_{TILE}.ipynb", f"ada_LATE_1_9_{TILE}-1.ipynb"]
    done = collect(put(tmp_path, *names, f"bob_2_3_{TILE}.ipynb"), tmp_path, LESSONS, counts="in-time")
    assert came(tmp_path)["ada_1", "02"] == names[0] and done.passed_over == []
    (tmp_path / "export" / names[0]).unlink()
    done = collect(tmp_path / "export", tmp_path, LESSONS, counts="in-time")
    assert came(tmp_path)["ada_1", "02"] == names[0] and "in time is there already" in " ".join(done.notes)


def test_only_late_ones_count_as_well(tmp_path):
    export = put(tmp_path, attempt(2), attempt(3), attempt(0, "bob"))
    collect(export, tmp_path, LESSONS, "", (), "in-time", DUE)
    assert came(tmp_path)["ada", "02"] == attempt(3)


def test_where_the_best_counts_all_attempts_are_there_to_be_graded(tmp_path):
    done = collect(put(tmp_path, attempt(1), attempt(2), attempt(0, "bob")), tmp_path, LESSONS, counts="best")
    (one, _), _ = submitted(tmp_path, LESSONS)
    assert [content.decode() for content in one.contents()] == [attempt(2), attempt(1)]
    assert done.passed_over == [] and f"ada: of 2 files for {TILE} the best counts." in done.notes


# Moodle numbers students anew in each assignment


def moodle(name, number, lesson):
    return f"{name}_{number}_assignsubmission_file/{lesson}.ipynb"


def test_a_student_of_moodle_is_the_same_in_the_next_assignment(tmp_path):
    collect(pack(tmp_path, moodle("Ada Lovelace", 1, TILE), moodle("Bo Li", 2, TILE)), tmp_path, LESSONS)
    done = collect(pack(tmp_path, moodle("Ada Lovelace", 7, ONLINE), moodle("Bo Li", 8, ONLINE)), tmp_path, LESSONS)
    assert {student for student, _ in came(tmp_path)} == {"Ada Lovelace_1", "Bo Li_2"}
    assert "known by their names: Ada Lovelace, Bo Li" in done.notes[-1]
    numbers = {lesson: one.participant for lesson, one in read_ledger(tmp_path)["Ada Lovelace_1"].lessons.items()}
    assert numbers == {TILE: "1", ONLINE: "7"}


@pytest.mark.parametrize("name", ["Kim Lee", "Participant"])
def test_two_of_one_name_stay_two_in_every_assignment(name, tmp_path):
    collect(pack(tmp_path, moodle(name, 1, TILE), moodle(name, 2, TILE)), tmp_path, LESSONS)
    collect(pack(tmp_path, moodle(name, 3, ONLINE), moodle(name, 4, ONLINE)), tmp_path, LESSONS)
    assert len(came(tmp_path)) == 4


def test_anonymous_students_are_never_known_by_the_name_that_all_have(tmp_path):
    collect(pack(tmp_path, moodle("Participant", 1, TILE)), tmp_path, LESSONS)
    collect(pack(tmp_path, moodle("Participant", 3, ONLINE)), tmp_path, LESSONS)
    assert sorted(came(tmp_path)) == [("Participant_1", "02"), ("Participant_3", "05")]


def test_one_of_two_namesakes_is_not_guessed(tmp_path):
    collect(pack(tmp_path, moodle("Kim Lee", 1, TILE)), tmp_path, LESSONS)
    collect(pack(tmp_path, moodle("Kim Lee", 1, TILE), moodle("Kim Lee", 2, TILE)), tmp_path, LESSONS)
    collect(pack(tmp_path, moodle("Kim Lee", 5, ONLINE)), tmp_path, LESSONS)
    assert sorted({student for student, _ in came(tmp_path)}) == ["Kim Lee_1", "Kim Lee_2", "Kim Lee_5"]


def test_the_roster_says_which_of_two_namesakes_it_is(tmp_path):
    people = [Person("kim1", "Kim Lee", participant="1 5"), Person("kim2", "Kim Lee", participant="2")]
    collect(pack(tmp_path, moodle("Kim Lee", 1, TILE), moodle("Kim Lee", 2, TILE)), tmp_path, LESSONS, "", people)
    collect(pack(tmp_path, moodle("Kim Lee", 5, ONLINE)), tmp_path, LESSONS, "", people)
    assert sorted(came(tmp_path)) == [("kim1", "02"), ("kim1", "05"), ("kim2", "02")]


# What is not taken


def test_of_a_zip_only_honest_notebooks_arrive_and_nothing_leaves_its_folder(tmp_path):
    hostile_zip(tmp_path / "export.zip")
    done = collect(tmp_path / "export.zip", tmp_path / "course", LESSONS)
    arrived = sorted(path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.ipynb"))
    students = ["Grace Hopper_4711", "adalovelace_12345", "alan"]
    assert arrived == [("course", "submitted", student, TILE, f"{TILE}.ipynb") for student in students]
    assert (done.count, len(done.passed_over)) == (3, 6)
    assert list(tmp_path.rglob("helpers")) == []


@pytest.mark.parametrize("name", ["link.ipynb", "folder"])
def test_links_in_a_folder_are_named(name, tmp_path):
    export = put(tmp_path, f"ada/{TILE}.ipynb")
    (export / "ada" / name).symlink_to("/etc")
    assert collect(export, tmp_path, LESSONS).passed_over == [f"ada/{name}: is a link or a device."]


@pytest.mark.parametrize(("name", "said"), [("notes.txt", "neither a folder nor a zip"), ("nothing", "There is no")])
def test_what_is_neither_folder_nor_zip_is_refused(name, said, tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NotebookError, match=said):
        collect(tmp_path / name, tmp_path, LESSONS)


def test_a_damaged_zip_member_is_named(tmp_path):
    path = pack(tmp_path, f"ada_{TILE}.ipynb", content=lambda name: "x" * 1000)
    content = bytearray(path.read_bytes())
    content[100] ^= 0xFF
    path.write_bytes(content)
    done = collect(path, tmp_path / "course", LESSONS)
    assert done.count == 0 and "cannot be read" in done.passed_over[0]


def test_a_zip_whose_names_are_not_what_they_declare_is_refused(tmp_path):
    archive = pack(tmp_path, f"ü_{TILE}.ipynb")
    archive.write_bytes(archive.read_bytes().replace("ü".encode(), b"\xff\xff"))
    with pytest.raises(NotebookError, match=r"export\.zip cannot be read"):
        collect(archive, tmp_path, LESSONS)


def test_a_name_that_is_not_utf_8_is_that_of_a_student_nevertheless(tmp_path):
    folder = os.fsencode(put(tmp_path, f"ada/{TILE}.ipynb")) + b"/J\xfcrgen"
    os.makedirs(folder)
    with open(folder + f"/{TILE}.ipynb".encode(), "w") as file:
        file.write("right")
    collect(tmp_path / "export", tmp_path, LESSONS)
    assert came(tmp_path)[r"J\udcfcrgen", "02"] == "right"


def test_a_damaged_archive_within_is_named(tmp_path):
    export = put(tmp_path, f"bob/{TILE}.ipynb")
    with zipfile.ZipFile(export / "x.zip", "w") as archive:
        archive.writestr("ada.zip", b"PK broken")
    assert "ada.zip: cannot be read" in collect(export, tmp_path, LESSONS).passed_over[0]


def test_a_damaged_table_of_what_was_collected_is_named(tmp_path):
    (tmp_path / ".grading").mkdir()
    (tmp_path / ".grading" / "collected.json").write_text(json.dumps({"ada": {}}))
    with pytest.raises(NotebookError, match="is damaged"):
        collect(put(tmp_path, f"ada/{TILE}.ipynb"), tmp_path, LESSONS)
