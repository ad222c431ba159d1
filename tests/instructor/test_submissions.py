"""What lies in submitted/: whose it is, and a sentence for everything that is passed over."""

import os
import unicodedata

import pytest

from handed_in import ONLINE, TILE
from helpers.instructor.collect.names import folder_name, listed, of_system, printable, unusable
from helpers.instructor.collect.submissions import compose, submitted

LESSONS = (TILE, ONLINE)
NFD = unicodedata.normalize("NFD", "Jürgen")


def put(course, *paths):
    for path in paths:
        path = course / "submitted" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def seen(course):
    """Students with the names of their notebooks, and what is passed over."""
    found, passed_over = submitted(course, LESSONS)
    return [(one.student, one.path.name) for one in found], passed_over


@pytest.mark.parametrize("name", ["Ada Lovelace", "O'Brien, Jr.", "ऋषि", "ผู้ใหญ่", "漢字", "a@b.c+d", "=cmd()"])
def test_a_folder_of_any_name_is_a_student(name, tmp_path):
    put(tmp_path, f"{name}/{TILE}/{TILE}.ipynb")
    assert seen(tmp_path) == ([(name, f"{TILE}.ipynb")], [])


def test_decomposed_letters_are_the_same_name(tmp_path):
    put(tmp_path, f"{NFD}/{TILE}/{TILE}.ipynb")
    assert seen(tmp_path) == ([("Jürgen", f"{TILE}.ipynb")], [])


def test_of_two_folders_of_one_name_the_second_is_named(tmp_path):
    put(tmp_path, f"{NFD}/{TILE}/{TILE}.ipynb", f"Jürgen/{TILE}/{TILE}.ipynb", f"Jürgen/{ONLINE}/{ONLINE}.ipynb")
    found, passed_over = seen(tmp_path)
    assert [student for student, _ in found] == ["Jürgen", "Jürgen"]
    assert len(passed_over) == 1 and "has this lesson already" in passed_over[0]


def test_a_folder_with_decomposed_letters_is_renamed_where_the_name_is_free(tmp_path):
    put(tmp_path, f"{NFD}/{TILE}/{TILE}.ipynb", f"ada/{TILE}/{TILE}.ipynb")
    assert len(compose(tmp_path)) == 1 and compose(tmp_path) == []
    assert sorted(os.listdir(tmp_path / "submitted")) == ["Jürgen", "ada"]


def test_a_folder_with_decomposed_letters_stays_where_the_name_is_taken(tmp_path):
    put(tmp_path, f"{NFD}/{TILE}/{TILE}.ipynb", f"Jürgen/{TILE}/{TILE}.ipynb")
    assert compose(tmp_path) == [] and len(os.listdir(tmp_path / "submitted")) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [(b"J\xfcrgen", r"submitted/J\udcfcrgen: its name holds"), (b"a\x1b[2Jb", r"submitted/a\x1b[2Jb: its name holds"),
     ("漢".encode() * 61, "漢: its name has 183 bytes; 180 are the most")],
    ids=["latin-1", "escape", "long"],
)  # fmt: skip
def test_a_folder_that_cannot_be_a_student_s_is_named_as_it_is(name, said, tmp_path):
    folder = os.fsencode(tmp_path / "submitted") + b"/" + name
    os.makedirs(folder + b"/" + TILE.encode())
    found, passed_over = seen(tmp_path)
    assert found == [] and said in passed_over[0]


@pytest.mark.parametrize("junk", [".ipynb_checkpoints", "__MACOSX", ".DS_Store", "Thumbs.db"])
def test_what_systems_make_is_not_named(junk, tmp_path):
    put(tmp_path, f"{junk}/x", f"ada/{junk}/x", f"ada/{TILE}/{junk}/x.ipynb", f"ada/{TILE}/{TILE}.ipynb")
    assert seen(tmp_path) == ([("ada", f"{TILE}.ipynb")], [])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"ada_{TILE}.ipynb", "is a file outside of STUDENT/LESSON/"),
        (f"ada/{TILE}.ipynb", "is not in a folder of a lesson"),
        ("ada/02/x.ipynb", "no lesson of this course."),
        ("ada/02_fused_single_tile/x.ipynb", f"rename the folder and its notebook to {TILE}."),
        (f"ada/{TILE}/{TILE}.html", f"holds no {TILE}.ipynb (but {TILE}.html)"),
        (f"ada/{TILE}/.hidden", f"holds no {TILE}.ipynb."),
    ],
)
def test_what_is_passed_over_is_named(path, said, tmp_path):
    put(tmp_path, path)
    found, passed_over = seen(tmp_path)
    assert found == [] and len(passed_over) == 1 and said in passed_over[0]


@pytest.mark.parametrize("name", [f"{TILE}.IPYNB", "renamed.ipynb", f"Copy of {TILE}.ipynb", f"{TILE}.ipynb.txt"])
def test_the_only_notebook_of_a_lesson_s_folder_is_the_lesson_s(name, tmp_path):
    put(tmp_path, f"ada/{TILE}/{name}", f"ada/{TILE}/data.csv")
    assert seen(tmp_path) == ([("ada", name)], [])


def test_a_copy_beside_the_notebook_is_named(tmp_path):
    put(tmp_path, f"ada/{TILE}/{TILE}-Copy1.ipynb", f"ada/{TILE}/{TILE}.ipynb")
    found, passed_over = seen(tmp_path)
    assert found == [("ada", f"{TILE}.ipynb")]
    assert passed_over == [f"submitted/ada/{TILE}/{TILE}-Copy1.ipynb: {TILE}.ipynb next to it counts."]


def test_of_two_notebooks_with_other_names_none_is_guessed(tmp_path):
    put(tmp_path, f"ada/{TILE}/a.ipynb", f"ada/{TILE}/b.ipynb")
    found, passed_over = seen(tmp_path)
    assert found == [] and "(but a.ipynb, b.ipynb)" in passed_over[0]


def test_a_link_is_named(tmp_path):
    put(tmp_path, f"ada/{TILE}/{TILE}.ipynb")
    (tmp_path / "submitted" / "eve").symlink_to(tmp_path / "submitted" / "ada")
    assert seen(tmp_path) == ([("ada", f"{TILE}.ipynb")], ["submitted/eve: is a link."])


# Names


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("Ada O'Brien, Jr.", "Ada O'Brien, Jr."), (NFD, "Jürgen"), ("ऋषि", "ऋषि"), ("a\tb", "a%09b"),
        ("a%09b", "a%2509b"),
        (".hidden", "%2Ehidden"), ("..", "%2E."), ("a/b", "a%2Fb"), ("J\udcfcrgen", "J%FCrgen"), ("", "%"),
    ],
)  # fmt: skip
def test_the_folder_of_a_name(name, folder):
    assert folder_name(name) == folder and not unusable(folder)


def test_long_names_that_begin_alike_have_folders_of_their_own():
    first, second = (folder_name("漢" * 100 + end) for end in "ab")
    assert first != second and len(first.encode()) <= 180


def test_joiners_stay_which_scripts_need_and_a_terminal_does_not_show():
    assert folder_name("क्\u200dष") == "क्\u200dष"
    assert printable("a\x1b[2J\u202eb") == r"a\x1b[2J\u202eb"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", ".b", "c"), True),
        (("._x.ipynb",), True),
        (("..", "a"), False),
        (("THUMBS.DB",), True),
        (("thumbs",), False),
    ],
)
def test_files_of_systems_are_recognised(path, expected):
    assert of_system(path) is expected


def test_of_many_names_the_first_are_listed():
    assert listed("abcde") == "a, b, c and 2 more" and listed("ab") == "a, b"
