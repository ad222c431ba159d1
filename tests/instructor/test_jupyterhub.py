"""The configuration of a hub: a notebook goes through its exchange, and is graded."""

import shutil
from pathlib import Path

import pytest
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeFactory
from traitlets.config import PyFileConfigLoader

from handed_in import TILE, solved, written
from helpers.instructor.grade import everyone
from helpers.instructor.report import feedback

ROOT = Path(__file__).resolve().parents[2]
HUB = ROOT / "helpers" / "instructor" / "jupyterhub"


@pytest.mark.thinned(0)
def test_a_notebook_goes_through_the_exchange_of_the_hub_s_configuration_and_is_graded(
    original, tmp_path, monkeypatch, workshop
):
    directory = shutil.copytree(original, tmp_path / "course")
    for name in ("exchange", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "exchange").chmod(0o777)
    monkeypatch.setenv("SOFTMAX_EXCHANGE", str(tmp_path / "exchange"))
    settings = PyFileConfigLoader("nbgrader_config.py", str(HUB)).load_config()

    def exchanged(step, place, user):
        monkeypatch.chdir(place)
        monkeypatch.setenv("JUPYTERHUB_USER", user)
        given = settings.copy()
        given.CourseDirectory.root, given.CourseDirectory.assignment_id = str(place), TILE
        given.Exchange.cache = str(tmp_path / "cache")
        factory = ExchangeFactory(config=given)
        authenticator = Authenticator(config=given)
        kind = getattr(factory, step)
        kind(coursedir=CourseDirectory(config=given), authenticator=authenticator, config=given).start()

    exchanged("ReleaseAssignment", directory, "teacher")
    exchanged("FetchAssignment", tmp_path / "home", "ada")
    fetched = tmp_path / "home" / TILE / f"{TILE}.ipynb"
    assert fetched.read_bytes() == (ROOT / "lessons" / f"{TILE}.ipynb").read_bytes()
    fetched.write_bytes(written(solved(TILE)))
    exchanged("Submit", tmp_path / "home", "ada")
    exchanged("Collect", directory, "teacher")
    run = everyone.grade(directory, jobs=1, progress=False, workshop=workshop)
    (result,) = run.results
    assert (result.lesson, result.points) == (TILE, 4)
    assert feedback.give_back(directory, run.results, {}, feedback.EXCHANGE)[1] == []
    exchanged("ReleaseFeedback", directory, "teacher")
    exchanged("FetchFeedback", tmp_path / "home", "ada")
    (page,) = (tmp_path / "home" / TILE / "feedback").rglob("*.html")
    assert "<td>4 of 4</td>" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("spawner", ["", "kubespawner.KubeSpawner"])
def test_the_hub_s_configuration_can_be_read_and_starts_the_course_s_python(spawner, monkeypatch):
    monkeypatch.setenv("SOFTMAX_CHECKOUT", str(ROOT))
    if spawner:
        monkeypatch.setenv("SOFTMAX_SPAWNER", spawner)
    settings = PyFileConfigLoader("jupyterhub_config.py", str(HUB)).load_config()
    assert settings.JupyterHub.spawner_class == (spawner or "jupyterhub.spawner.LocalProcessSpawner")
    assert settings.Spawner.cmd[0].startswith(str(ROOT))
    assert (Path(settings.Spawner.environment["JUPYTER_CONFIG_PATH"]) / "nbgrader_config.py").exists()
