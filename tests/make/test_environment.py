"""The environment: every version is pinned once, torch and triton fit, and each failure is one sentence."""

import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    requirement.name: requirement.specifier
    for requirement in map(Requirement, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["maintain"])
}

# The triton that each torch demands, taken from the Requires-Dist of its CUDA wheel for Linux. The CPU wheel,
# which a test machine may have, declares none.
TRITON_OF_TORCH = {"2.11.0": "triton==3.6.0", "2.13.0": "triton==3.7.1", "2.15.0": "triton~=3.9.0"}


def pinned(name: str) -> str:
    """The version that pyproject.toml pins."""
    (pin,) = PINS[name]
    return pin.version


def triton_demanded_by(torch: str) -> Requirement:
    """The triton that this version of torch requires: torch's own word if it is installed and says so."""
    declared = metadata.requires("torch") or [] if Version(metadata.version("torch")).public == torch else []
    for requirement in map(Requirement, declared):
        if requirement.name == "triton":
            return requirement
    assert torch in TRITON_OF_TORCH, f"add the triton that torch {torch} demands to TRITON_OF_TORCH"
    return Requirement(TRITON_OF_TORCH[torch])


# -- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PINS)
def test_every_dependency_is_pinned_to_one_version_and_that_version_is_installed(name):
    assert [pin.operator for pin in PINS[name]] == ["=="]
    try:
        metadata.version(PROJECT["name"])
    except metadata.PackageNotFoundError:
        pytest.skip(f"{PROJECT['name']} is not installed here: this machine brings its own packages")
    assert Version(metadata.version(name)).public == pinned(name)


def test_the_pinned_triton_is_the_one_that_the_pinned_torch_demands():
    assert triton_demanded_by(pinned("torch")).specifier.contains(pinned("triton"))


def test_the_installed_triton_is_the_one_that_the_installed_torch_demands():
    torch = Version(metadata.version("torch")).public
    assert triton_demanded_by(torch).specifier.contains(metadata.version("triton"))


@pytest.mark.parametrize("name", ["environment.yml", "Makefile", ".ci/run", "README.md"])
def test_no_version_is_pinned_a_second_time_outside_pyproject(name):
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not part of this copy")
    assert re.findall(r"[\w\]]+\s*==\s*\d[\w.]*", path.read_text()) == []


def test_conda_installs_the_same_project_with_a_supported_python():
    lines = [line.strip(" -") for line in (ROOT / "environment.yml").read_text().splitlines()]
    assert f"name: {PROJECT['name']}" in lines
    assert "e .[maintain,grading]" in lines
    (python,) = (line.removeprefix("python=") for line in lines if line.startswith("python="))
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python)


# -- helpers/make/install.py: what `make` runs first ------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing installed, at a path with spaces."""
    copy = tmp_path / "my own copy"
    (copy / "helpers" / "make").mkdir(parents=True)
    for name in ("pyproject.toml", "helpers/make/install.py", "helpers/make/lab.py"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def with_venv(checkout: Path) -> Path:
    """The same checkout with a .venv whose pip fails, saying that it was called."""
    venv = checkout / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    replace_pip(checkout, "pip was called")
    return checkout


def replace_pip(checkout: Path, last_words: str) -> None:
    """Give the checkout's .venv a pip that prints `last_words` and fails."""
    (site_packages,) = checkout.glob(".venv/lib/python*/site-packages")
    (site_packages / "pip").mkdir(exist_ok=True)
    (site_packages / "pip" / "__init__.py").touch()
    (site_packages / "pip" / "__main__.py").write_text(f"raise SystemExit({last_words!r})")


def functions_of(checkout: Path) -> dict:
    """The names that the checkout's installer defines."""
    return runpy.run_path(str(checkout / "helpers" / "make" / "install.py"))


def install(checkout: Path, *python: str, **environment: str) -> subprocess.CompletedProcess:
    """Run the checkout's installer as `make` does, without an input."""
    return subprocess.run(
        [sys.executable, *(python or ["helpers/make/install.py"])],
        cwd=checkout,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def as_python(version: tuple[int, ...]) -> list[str]:
    """Arguments that run the installer in a Python that takes itself for `version`."""
    disguise = f"import runpy, sys; sys.version_info = {version}"
    return ["-c", f"{disguise}; runpy.run_path('helpers/make/install.py', run_name='__main__')"]


def test_a_python_that_is_too_old_gets_one_sentence(checkout):
    result = install(checkout, *as_python((3, 10, 0)), PATH="")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "The course needs Python 3.11 to 3.14, and this is 3.10: install one of those.\n"


def test_a_python_that_is_too_old_hands_over_to_a_newer_one_on_the_path(checkout, tmp_path):
    broken, good = tmp_path / "broken", tmp_path / "good"
    for folder, script in (broken, "exit 127"), (good, 'case "$1" in -c) echo "$0" ;; *) echo "ran $1" ;; esac'):
        folder.mkdir()
        (folder / "python3.12").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "python3.12").chmod(0o755)
    result = install(checkout, *as_python((3, 9, 2)), PATH=f"{broken}:{good}")
    assert (result.returncode, result.stdout) == (0, f"ran {checkout / 'helpers' / 'make' / 'install.py'}\n")


def test_the_oldest_python_the_installer_accepts_is_the_oldest_the_project_accepts(checkout):
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, functions_of(checkout)["OLDEST"]))


def test_a_python_without_venv_is_told_what_to_install(checkout):
    (checkout / "ensurepip.py").write_text("raise ImportError")
    result = install(checkout, PYTHONPATH=str(checkout))
    assert (result.returncode, result.stdout) == (1, "")
    assert "apt install python3-venv" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_when_everything_is_installed_nothing_happens_and_nothing_is_printed(with_venv):
    version = "{}.{}".format(*sys.version_info)
    (with_venv / ".venv" / "installed").write_text(functions_of(with_venv)["stamp"](version))
    result = install(with_venv)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_changed_pyproject_is_installed_again(with_venv):
    version = "{}.{}".format(*sys.version_info)
    (with_venv / ".venv" / "installed").write_text(functions_of(with_venv)["stamp"](version))
    with (with_venv / "pyproject.toml").open("a") as pyproject:
        pyproject.write("# one line more\n")
    assert "pip was called" in install(with_venv).stderr


@pytest.mark.parametrize("damage", ["interrupted", "moved", "without pip", "without python"])
def test_a_damaged_environment_is_not_used(with_venv, damage):
    assert functions_of(with_venv)["usable_version"]() is not None
    match damage:
        case "interrupted":
            (with_venv / ".venv" / "unfinished").touch()
        case "moved":
            with_venv = with_venv.rename(with_venv.with_name("elsewhere"))
        case "without pip":
            (site_packages,) = with_venv.glob(".venv/lib/python*/site-packages")
            shutil.rmtree(site_packages / "pip")
        case "without python":
            (with_venv / ".venv" / "bin" / "python").unlink()
    assert functions_of(with_venv)["usable_version"]() is None


@pytest.mark.parametrize(
    ("last_words", "sentence"),
    [
        ("Failed to establish a new connection: [Errno 111] Connection refused", "The package index cannot be reached"),
        ("Temporary failure in name resolution", "The package index cannot be reached"),
        ("Could not find a version that satisfies torch (from versions: none)", "The package index cannot be reached"),
        ("OSError: [Errno 28] No space left on device", "The disk is full"),
    ],
)
def test_a_failed_installation_gives_its_reason_in_one_sentence(with_venv, last_words, sentence):
    replace_pip(with_venv, last_words)
    result = install(with_venv)
    assert result.returncode == 1
    assert result.stderr.startswith(sentence)
    assert len(result.stderr.splitlines()) == 1


def test_any_other_failure_shows_the_end_of_the_log_and_where_the_log_is(with_venv):
    result = install(with_venv)
    assert result.returncode == 1
    assert str(with_venv / ".venv" / "install.log") in result.stderr
    assert result.stderr.endswith("pip was called\n")


# -- helpers/make/lab.py: what `make lab` runs then -------------------------------------------------------------------


def lab(checkout: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Start the checkout's JupyterLab, in whose place stands a module that prints its arguments."""
    (checkout / "jupyterlab.py").write_text("import sys; print(*sys.argv[1:], sep='\\n')")
    return subprocess.run(
        [sys.executable, "helpers/make/lab.py", *arguments],
        cwd=checkout,
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
    } <= set(result.stdout.splitlines())
    assert "--no-browser" not in result.stdout


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
