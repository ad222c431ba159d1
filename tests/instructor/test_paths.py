"""What paths say that no system has made, and which lesson a name means."""

import unicodedata

import pytest

from helpers.instructor.collect.paths import says, understood_as

LESSONS = ("01_eager_softmax", "02_your_first_kernel", "03_masking")
L = LESSONS[1]


def read(*paths, **more):
    """Student, lesson and lateness by path."""
    found = understood_as(paths, LESSONS, **more)
    return {path: (one.student, one.lesson[:2], one.late) for path, one in zip(paths, found, strict=True)}


def one(path, **more):
    return understood_as([path], LESSONS, **more)[0]


# Folders and names of files

HARD = ["Jürgen", "Ada O'Brien, Jr.", "ऋषि", "ผู้ใหญ่", "漢字", "02", "user_02", "a.b", "Ada", "ada"]


def test_a_folder_is_a_student_whatever_the_script():
    paths = [f"export/{unicodedata.normalize('NFD', name)}/{L}.ipynb" for name in HARD]
    assert [found[0] for found in read(*paths).values()] == HARD


@pytest.mark.parametrize(
    ("path", "student"),
    [
        (f"ada/{L}.ipynb", "ada"),
        (f"submitted/ada/{L}/{L}.ipynb", "ada"),
        (f"export/ada/{L}/{L}.ipynb", "ada"),
        (f"{L}/ada/{L}.ipynb", "ada"),
        (f"ada_{L}.ipynb", "ada"),
        ("ada_02.ipynb", "ada"),
        (f"ada/Copy of {L}.ipynb", "ada"),
        (f"ada.zip/{L}.ipynb", "ada"),
        (f"ada_{L}.ipynb.zip/{L}.ipynb", "ada"),
        (f"{L}.ipynb", ""),
    ],
)
def test_a_student_alone_is_known_by_folder_archive_or_file(path, student):
    assert (one(path).student, one(path).lesson) == (student, L)


def test_a_folder_for_all_is_nobody_s():
    found = read(f"export/ada_{L}.ipynb", f"export/bob_{L}.ipynb", f"export/Copy of {L}.ipynb")
    assert [student for student, _, _ in found.values()] == ["ada", "bob", ""]


def test_names_behind_the_lesson_are_not_guessed_and_their_folder_is_nobody():
    found = read(f"export/{L}_ada.ipynb", f"export/{L}_bob.ipynb")
    assert [student for student, _, _ in found.values()] == ["", ""]


def test_the_outermost_folder_says_whose_a_file_is():
    found = read(f"ada/Eve_1_assignsubmission_file_/{L}.ipynb", f"ada/old/bob_{L}.ipynb", f"eve/{L}.ipynb")
    assert [student for student, _, _ in found.values()] == ["ada", "ada", "eve"]


ADA, EVE = (f"{name} Lovelace_471{at}_assignsubmission_file_/{L}.ipynb" for at, name in enumerate(("Ada", "Eve")))


@pytest.mark.parametrize(
    "paths",
    [(f"Ada Lovelace.zip/{ADA}", f"Eve.zip/{ADA}", f"Eve.zip/{EVE}"), (f"x.zip/{ADA}", f"Eve.zip/{ADA}"),
     (f"Ada Lovelace/{ADA}", f"Eve/{ADA}")],
    ids=["called as within", "one in each archive", "folders"],
)  # fmt: skip
def test_a_folder_of_a_system_s_form_in_a_student_s_archive_is_nobody_else_s(paths):
    outer = [path.partition("/")[0].removesuffix(".zip") for path in paths]
    assert [student for student, _, _ in read(*paths).values()] == outer


def test_archives_that_each_hold_a_class_are_nobody_s():
    found = read(*(f"hw{number}.zip/{path}" for number in (1, 2) for path in (ADA, EVE)))
    assert [student for student, _, _ in found.values()] == ["Ada Lovelace_4710", "Eve Lovelace_4711"] * 2


# Lessons


@pytest.mark.parametrize(
    ("name", "lesson"),
    [
        (f"{L}.ipynb", "02"), ("02.ipynb", "02"), ("02-Copy1.ipynb", "02"), ("02 (1).ipynb", "02"),
        ("02 final.ipynb", "02"),
        ("ada_02.ipynb", "02"), ("02 Your First-Kernel.ipynb", "02"), ("hw2.ipynb", ""), ("2.ipynb", ""),
        ("02.12.2026.ipynb", ""), ("02-12-2026.ipynb", ""), ("2026-11-02.ipynb", ""), ("x_102.ipynb", ""),
        ("01_eager_softmax_02_your_first_kernel.ipynb", ""), ("04.ipynb", ""),
    ],
)  # fmt: skip
def test_the_lesson_that_a_name_speaks_of(name, lesson):
    assert says(name, LESSONS)[:2] == lesson


@pytest.mark.parametrize("name", ["06_choosing_a_variant.ipynb", "Ada_06 choosing a variant-1.ipynb"])
def test_a_lesson_is_known_by_the_name_that_an_earlier_edition_gave_it(name):
    lessons = ("06_why_in_microseconds", "07_choosing_a_variant")
    assert says(name, lessons) == "07_choosing_a_variant"
    assert says(name, ("06_choosing_a_variant", *lessons)) == "06_choosing_a_variant"


def test_a_name_before_an_earlier_name_of_the_lesson_is_the_student_s():
    found = one("Ada_02_fused_single_tile.ipynb")
    assert (found.student, found.lesson) == ("Ada", L)


def test_a_lesson_that_is_given_is_that_of_files_that_name_none():
    found = read("ada/hw2.ipynb", "bob/03.ipynb", "eve.ipynb", lesson=LESSONS[0])
    assert [seen[:2] for seen in found.values()] == [("ada", "01"), ("bob", "03"), ("eve", "01")]


@pytest.mark.parametrize(("name", "sure"), [(L, 4), ("02", 3), (f"{L}-Copy1", 2), ("02 (1)", 2), ("notes", 0)])
def test_a_file_that_is_called_as_the_lesson_is_surer(name, sure):
    assert one(f"ada/{name}.ipynb", lesson=L).sure == sure


def test_a_folder_within_may_name_the_lesson():
    assert (one(f"ada/{L}/solution.ipynb").lesson, one(f"ada/{L}/solution.ipynb").sure) == (L, 1)
