"""helpers/make/lab.py: JupyterLab at the first lesson, or one sentence about its port."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from jupyter_core.paths import jupyter_path
from jupyterlab.commands import get_app_dir
from jupyterlab_server.config import get_federated_extensions, get_page_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout that holds the starter of JupyterLab alone, at a path with spaces."""
    copy = tmp_path / "my own copy"
    (copy / "helpers" / "make").mkdir(parents=True)
    shutil.copy(ROOT / "helpers/make/lab.py", copy / "helpers/make/lab.py")
    return copy


def lab(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Start the checkout's JupyterLab, in whose place stands a module that prints its arguments and its token."""
    prints = "import os, sys; print(*sys.argv[1:], os.environ['JUPYTER_TOKEN'], sep='\\n')"
    (checkout / "jupyterlab.py").write_text(prints)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    return subprocess.run(
        [sys.executable, "helpers/make/lab.py", *arguments],
        cwd=checkout,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def port() -> int:
    """A port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_jupyterlab_opens_the_first_lesson_at_the_given_port_and_no_other(checkout, port):
    result = lab(checkout, "--port", str(port))
    assert {
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={checkout}",
        "--LabApp.default_url=/lab/tree/lessons/01_eager_softmax.ipynb",
        f"--LabApp.app_settings_dir={checkout / 'helpers/make/lab_settings'}",
    } <= set(result.stdout.splitlines())
    assert "--no-browser" not in result.stdout


def test_nobody_is_asked_about_news_by_a_setting_that_jupyterlab_knows():
    path = ROOT / "helpers/make/lab_settings/overrides.json"
    ((setting, values),) = json.loads(path.read_text(encoding="utf-8")).items()
    package, name = setting.split(":")
    schema = Path(get_app_dir(), "schemas", package, f"{name}.json")
    choices = json.loads(schema.read_text(encoding="utf-8"))["properties"]["fetchNews"]["oneOf"]
    assert values["fetchNews"] in [choice["const"] for choice in choices if choice["title"] == "Never"]


def test_the_tools_of_instructors_that_learners_do_not_see_are_those_that_are_installed():
    extensions = jupyter_path("labextensions")
    found = get_page_config(extensions, str(ROOT / "helpers/make/lab_settings"))
    installed = [name for name in get_federated_extensions(extensions) if "nbgrader" in name]
    assert installed and set(installed) <= set(found["disabledExtensions"])
    assert not set(installed) & set(get_page_config(extensions)["disabledExtensions"])


def test_the_working_copy_is_opened_where_there_is_one(checkout, port):
    (checkout / "my-lessons").mkdir()
    (checkout / "my-lessons" / "01_eager_softmax.ipynb").touch()
    result = lab(checkout, "--port", str(port))
    assert "--LabApp.default_url=/lab/tree/my-lessons/01_eager_softmax.ipynb" in result.stdout.splitlines()


def test_it_listens_on_this_machine_alone_and_in_a_container_on_every_address(checkout, port):
    assert "--ServerApp.ip=127.0.0.1" in lab(checkout, "--port", str(port)).stdout.splitlines()
    inside = lab(checkout, "--port", str(port), "--container").stdout.splitlines()
    assert {"--ServerApp.ip=0.0.0.0", "--no-browser"} <= set(inside)


def address_of(result: subprocess.CompletedProcess) -> str:
    """The one address that was printed, before JupyterLab said anything."""
    said, _, _ = result.stdout.partition("--ServerApp")
    (address,) = re.findall(r"^    (http\S+)$", said, flags=re.MULTILINE)
    return address


@pytest.mark.parametrize("way", [(), ("--remote",), ("--container",)], ids=["browser", "remote", "container"])
def test_the_address_comes_first_with_the_token_that_jupyterlab_gets(checkout, port, way):
    result = lab(checkout, "--port", str(port), *way)
    where, _, token = address_of(result).partition("?token=")
    assert where == f"http://127.0.0.1:{port}/lab/tree/lessons/01_eager_softmax.ipynb"
    assert len(token) == 48 and token == result.stdout.splitlines()[-1]
    assert "--log-level=WARN" in result.stdout.splitlines()


def test_the_address_of_a_container_has_the_port_that_is_published(checkout, port):
    result = lab(checkout, "--port", str(port), "--container", PUBLISHED_PORT="9000")
    assert address_of(result).startswith("http://127.0.0.1:9000/lab/")
    assert f"--ServerApp.port={port}" in result.stdout.splitlines()


def test_each_start_has_a_token_of_its_own_unless_one_is_given(checkout, port):
    one, other = (address_of(lab(checkout, "--port", str(port))) for _ in range(2))
    assert one != other
    given = lab(checkout, "--port", str(port), JUPYTER_TOKEN="mine")
    assert address_of(given).endswith("?token=mine") and given.stdout.splitlines()[-1] == "mine"


def test_from_a_remote_machine_no_browser_opens_and_the_tunnel_is_named(checkout, port):
    result = lab(checkout, "--port", str(port), "--remote")
    assert f"ssh -N -L {port}:localhost:{port} you@this-machine" in result.stdout
    assert "--no-browser" in result.stdout.splitlines()


def test_a_busy_port_gets_one_sentence_that_names_a_free_one(checkout):
    with socket.create_server(("127.0.0.1", 0)) as server:
        busy = server.getsockname()[1]
        result = lab(checkout, "--port", str(busy))
    assert (result.returncode, result.stdout) == (1, "")
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith(f"Port {busy} cannot be used (address already in use)")
    (free,) = re.findall(r"make lab PORT=(\d+)$", sentence)
    assert free != str(busy)


@pytest.mark.parametrize("wrong", ["eight", "0", "65536", ""])
def test_a_port_that_is_none_gets_one_sentence(checkout, wrong):
    result = lab(checkout, f"--port={wrong}")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"PORT must be a number from 1 to 65535, not {wrong!r}.\n"
