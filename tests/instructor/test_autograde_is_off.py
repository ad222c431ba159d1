"""nbgrader's own Autograde is switched off by the configurations of a course and of a hub, with a sentence why."""

import os
import shutil
from pathlib import Path

import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import PyFileConfigLoader

from handed_in import TILE, code, solved, written
from helpers.instructor.publish.autograde import AUTOGRADE_IS_OFF

HUB = Path(__file__).resolve().parents[2] / "helpers" / "instructor" / "jupyterhub"


@pytest.fixture
def course(original, tmp_path):
    """A course directory with a notebook that would leave a file, and a page of ours."""
    directory = shutil.copytree(original, tmp_path / "course")
    book = solved(TILE)
    book["cells"].insert(0, code(f"open({str(tmp_path / 'ran')!r}, 'w').close()"))
    for folder, content in (("submitted", written(book)), ("autograded", b"{}")):
        path = directory / folder / "ada" / TILE / f"{TILE}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    return directory


def settings(course, folder):
    found = PyFileConfigLoader("nbgrader_config.py", str(folder or course)).load_config()
    found.CourseDirectory.root, found.CourseDirectory.assignment_id = str(course), TILE
    return found


@pytest.mark.thinned(0)
@pytest.mark.parametrize("folder", [None, HUB], ids=["a course", "a hub"])
def test_autograde_does_not_begin(course, folder, tmp_path):
    given = settings(course, folder)
    autograde = Autograde(coursedir=CourseDirectory(config=given), config=given)
    autograde.force = True
    with pytest.raises(NbGraderException) as refused:
        autograde.start()
    assert str(refused.value) == AUTOGRADE_IS_OFF
    assert not (tmp_path / "ran").exists()
    assert (course / "autograded" / "ada" / TILE / f"{TILE}.ipynb").read_bytes() == b"{}"


@pytest.mark.thinned(0)
def test_the_button_of_the_formgrader_says_so(course, tmp_path, monkeypatch):
    monkeypatch.chdir(course)
    given = settings(course, None)
    said = NbGraderAPI(CourseDirectory(config=given), config=given).autograde(TILE, "ada")
    assert said["success"] is False and AUTOGRADE_IS_OFF in said["log"] + str(said.get("error"))
    assert not os.path.exists(tmp_path / "ran")
