"""Notebooks handed in through another system: whose they are, and that none takes another's place."""

import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from handed_in import ONLINE, TILE, hostile_zip
from helpers.instructor.collect import submissions
from helpers.instructor.publish.notebooks import NotebookError

LESSONS = (TILE, ONLINE)


@pytest.mark.parametrize(
    ("name", "student"),
    [
        (f"lovelaceada_12345_67890_{TILE}.ipynb", "lovelaceada_12345"),
        (f"lovelaceada_LATE_12345_67890_{TILE}-1.ipynb", "lovelaceada_12345"),
        (f"Ada Lovelace_4711_assignsubmission_file_/{TILE}.ipynb", "Ada_Lovelace"),
        (f"Ada Lovelace_4711_assignsubmission_file_{TILE}.ipynb", "Ada_Lovelace"),
        (f"ada/{TILE}.ipynb", "ada"),
        (f"submitted/ada/{TILE}/{TILE}.ipynb", "ada"),
        (f"ada_{TILE}.ipynb", "ada"),
        (f"ada/Copy of {TILE}.ipynb", "ada"),
        (f"ada/old/bob_{TILE}.ipynb", "ada"),
        (f"Ada Lovelace_4711_assignsubmission_file_/Eve_1_assignsubmission_file_{TILE}.ipynb", "Ada_Lovelace"),
        (f"Ada Lovelace_4711_assignsubmission_file_/hw_2_3_{TILE}.ipynb", "Ada_Lovelace"),
        (f"{TILE}.ipynb", None),
        ("ada/notes.ipynb", None),
    ],
)
def test_a_student_is_known_by_the_name_of_the_file(name, student):
    assert submissions.named_as(name, LESSONS) == (student and (student, TILE))


def test_of_a_zip_only_honest_notebooks_arrive_and_nothing_leaves_its_folder(tmp_path):
    hostile_zip(tmp_path / "export.zip")
    directory = tmp_path / "course"
    count, passed_over = submissions.collect(tmp_path / "export.zip", directory, LESSONS)
    arrived = sorted(path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.ipynb"))
    students = ["Grace_Hopper", "adalovelace_12345", "alan"]
    assert arrived == [("course", "submitted", student, TILE, f"{TILE}.ipynb") for student in students]
    assert (count, len(passed_over)) == (3, 7)
    assert list(tmp_path.rglob("helpers")) == []


@pytest.mark.parametrize(
    ("names", "arrive"),
    [
        ([f"export/ada_{TILE}.ipynb", f"export/bob_{TILE}.ipynb"], {"ada": 0, "bob": 1}),
        ([f"export/ada/{TILE}.ipynb", f"export/eve/ada_{TILE}.ipynb"], {"ada": 0, "eve": 1}),
        ([f"Kim Lee_1_assignsubmission_file_/{TILE}.ipynb", f"Kim Lee_2_assignsubmission_file_/{TILE}.ipynb"],
         {"Kim_Lee": 0}),
        ([f"ada/{TILE}.ipynb"], {"ada": 0}),
        ([f"{'漢' * 90}_{TILE}.ipynb"], {"漢" * 60: 0}),
    ],
    ids=["a folder for all", "a file named for another", "two of one name", "one alone", "a long name"],
)  # fmt: skip
def test_nobody_s_notebook_takes_the_place_of_another_s(tmp_path, names, arrive):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, str(number))
    count, passed_over = submissions.collect(tmp_path / "export.zip", tmp_path, LESSONS)
    came = {path.parts[-3]: int(path.read_text()) for path in (tmp_path / "submitted").rglob("*.ipynb")}
    assert (came, count + len(passed_over)) == (arrive, len(names))


@pytest.mark.proof
def test_a_name_arrives_that_the_locale_has_no_letters_for(original, tmp_path):
    shutil.copytree(original, tmp_path / "course")
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr(f"漢_{TILE}.ipynb", "not a notebook")
    ascii_alone = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "helpers.instructor", "grade", "course", "--from", "export.zip"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | ascii_alone, capture_output=True)
    assert (tmp_path / "course" / "submitted" / "漢" / TILE / f"{TILE}.ipynb").exists()


def test_what_is_neither_folder_nor_zip_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NotebookError, match="neither a folder nor a zip"):
        submissions.collect(tmp_path / "notes.txt", tmp_path, LESSONS)


def test_a_damaged_zip_member_is_named(tmp_path):
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"ada_{TILE}.ipynb", b"x" * 1000)
    content = bytearray(path.read_bytes())
    content[100] ^= 0xFF
    path.write_bytes(content)
    count, passed_over = submissions.collect(path, tmp_path / "course", LESSONS)
    assert count == 0 and "cannot be read" in passed_over[0]
