"""What students get of the course, and that it works without the rest."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from handed_in import ONLINE, TILE
from helpers import kernels
from helpers.check import EXERCISES
from helpers.check.mistakes.edited import Edited
from helpers.instructor.publish import handout
from helpers.instructor.publish.notebooks import NotebookError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(original):
    """The hand-out of a course of two lessons."""
    return handout.write_handout(original)


def tracked():
    """The names at the top of the repository."""
    told = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if told.returncode or not told.stdout:
        pytest.skip("this is no clone")
    return {line.partition("/")[0] for line in told.stdout.splitlines()}


def texts(folder):
    return {path: path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.suffix not in (".png", ".pyc")
            and path.is_file()}  # fmt: skip


def test_everything_at_the_top_is_handed_out_or_kept_back():
    assert tracked() <= {*handout.HANDED_OUT, *handout.KEPT_BACK}


def test_no_solution_no_test_and_nothing_of_the_instructor_s_is_handed_out(folder):
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert {"helpers/check/exercises/lesson_05.py", "helpers/make/install.py", "README.md"} <= names
    assert not [name for name in names if re.search(r"solutions|tests|instructor|__pycache__", name)]


def test_no_answer_of_a_solution_stands_in_the_hand_out(folder):
    """But where the course's own answers stand, which later cells call and mistakes are edits of."""
    edited = (one.answer.parts for exercise in EXERCISES.values() for one in exercise.known if isinstance(one, Edited))
    modules = {kernels.__name__, *(part.__module__ for parts in edited for part in parts)}
    own = {folder / f"{name.replace('.', '/')}.py" for name in modules}
    found = "\n".join(text for path, text in texts(folder).items() if path not in own)
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for answer in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", "".join(cell["source"]), re.DOTALL):
                assert answer not in found and json.dumps(answer)[1:-1] not in found


def test_its_lessons_are_those_that_the_course_has_released(folder, original):
    lessons = {path.stem: path.read_bytes() for path in (folder / "lessons").iterdir()}
    assert lessons == {name: (original / "release" / name / f"{name}.ipynb").read_bytes() for name in (TILE, ONLINE)}


def test_the_zip_holds_the_folder(folder):
    with zipfile.ZipFile(f"{folder}.zip") as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    assert names == {f"{folder.name}/{path.relative_to(folder).as_posix()}" for path in texts(folder)} | {
        name for name in names if name.endswith(".png")
    }


def test_a_second_run_leaves_nothing_of_the_first(folder, original):
    (folder / "left.txt").write_text("x")
    (folder / "lessons" / "old.ipynb").write_text("{}")
    again = handout.write_handout(original)
    assert again == folder and not (folder / "left.txt").exists() and not (folder / "lessons" / "old.ipynb").exists()


def test_a_folder_that_is_no_course_gets_none(tmp_path):
    with pytest.raises(NotebookError, match="is not a course directory"):
        handout.write_handout(tmp_path)


@pytest.mark.thinned(0)
def test_every_module_can_be_imported_and_its_checks_work(folder, tmp_path):
    folder = shutil.copytree(folder, tmp_path / "handed_out")  # a check keeps its points where it runs
    program = """
import importlib, pathlib, helpers
from helpers import check
for path in pathlib.Path("helpers").rglob("*.py"):
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    without = ("helpers.make", "helpers.measure", "helpers.choosing.picker")
    if not name.startswith(without) and "__main__" not in name:
        importlib.import_module(name)
print(pathlib.Path(helpers.__file__).resolve())
print(check.recurrence(lambda blocks: (max(map(max, blocks)), 1.0)).points)
"""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    told = subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True)
    assert told.stdout.split() == [str(folder.resolve() / "helpers" / "__init__.py"), "0"], told.stderr


MAKEFILE = """PYTHON ?= python3

.PHONY: help lab test lessons

help: ## list
\t@echo

lab: install ## open
\t@jupyter

test: install ## run
\t@pytest

lessons: install ## make
\t@python -m helpers.instructor lessons
"""


def test_the_makefile_keeps_what_students_run():
    text = handout.makefile_of_students(MAKEFILE)
    assert text == MAKEFILE[: MAKEFILE.index("test: ")].replace("help lab test lessons", "help lab").rstrip() + "\n"


def test_no_target_of_the_makefile_needs_what_is_kept_back(folder):
    text = (folder / "Makefile").read_text(encoding="utf-8")
    assert "\nlab:" in text and not re.search(r"tests/|solutions|instructor|pytest", text)


def test_readme_loses_the_sections_for_others():
    readme = "# Course\n\n## Start\n\nmake lab\n\n## For instructors\n\ngrade\n\n## For maintainers\n\ntests\n"
    assert handout.readme_of_students(readme) == "# Course\n\n## Start\n\nmake lab\n"


def test_a_link_of_readme_leads_to_what_students_have(folder):
    text = (folder / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert links and not [link for link in links if not (folder / link).exists() and not link.startswith("lessons/")]
    assert "(other ways in)" in text


def test_git_takes_nothing_of_a_course_directory(original, tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "course" / "submitted" / "Ada").mkdir(parents=True)
    (tmp_path / "course" / "submitted" / "Ada" / "02.ipynb").write_text("{}", encoding="utf-8")
    shutil.copy(original / ".gitignore", tmp_path / "course")
    status = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(status, capture_output=True, text=True, check=True).stdout == ""
