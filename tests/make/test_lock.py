"""The lock: one version of every package for all supported Pythons, with hashes, and a torch that fits the machine."""

import re
import subprocess
import sysconfig
import tomllib
from datetime import UTC, datetime
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.make import install, lock
from helpers.make.beside import TRITON_OF_TORCH

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
NAMED = [Requirement(line) for line in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())]


def entries(name: str) -> list[str]:
    """The entries of a file of the lock, each with the hashes that follow it."""
    return re.findall(r"^[^#\s].*(?:\n .*)*", (ROOT / name).read_text(), flags=re.MULTILINE)


def locked() -> list[Requirement]:
    """What both files of the lock pin, in their order."""
    lines = entries(install.LOCKED) + entries(install.LOCKED_TORCH)
    return [Requirement(line.partition("\\\n")[0]) for line in lines]


VERSIONS = {requirement.name: str(requirement.specifier).removeprefix("==") for requirement in locked()}


def triton_demanded_by(torch: str) -> Requirement:
    """The triton that this version of torch requires: torch's own word if it is installed and says so."""
    declared = metadata.requires("torch") or [] if Version(metadata.version("torch")).public == torch else []
    for requirement in map(Requirement, declared):
        if requirement.name == "triton":
            return requirement
    minor = torch.rpartition(".")[0]
    assert minor in TRITON_OF_TORCH, f"add the triton that torch {minor} demands to TRITON_OF_TORCH"
    return Requirement(TRITON_OF_TORCH[minor])


# -- what the lock holds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requirement", NAMED, ids=lambda requirement: requirement.name)
def test_every_dependency_is_locked_at_a_version_that_pyproject_allows(requirement):
    assert requirement.specifier.contains(VERSIONS[requirement.name])


@pytest.mark.parametrize("needed", PYPROJECT["build-system"]["requires"])
def test_what_builds_the_project_is_locked_too(needed):
    assert Requirement(needed).specifier.contains(VERSIONS[Requirement(needed).name])


def test_each_package_has_one_version_for_all_supported_pythons():
    names = [requirement.name for requirement in locked()]
    assert sorted(names) == sorted(set(names))
    assert all(re.fullmatch(r"==[\w.]+", str(requirement.specifier)) for requirement in locked())


def test_all_files_are_known_by_their_hashes_but_those_of_torch_which_a_machine_may_have_built_otherwise():
    assert all("--hash=sha256:" in entry for entry in entries(install.LOCKED))
    assert not any("--hash" in entry for entry in entries(install.LOCKED_TORCH))


def test_a_machine_without_a_gpu_need_not_install_cuda():
    assert not any(re.match("torch=|nvidia-|cuda-", entry) for entry in entries(install.LOCKED))
    assert any(entry.startswith("nvidia-") for entry in entries(install.LOCKED_TORCH))


@pytest.mark.parametrize("name", [install.LOCKED, install.LOCKED_TORCH])
def test_the_lock_names_no_address(name):
    assert "/" not in "".join(entries(name))


def test_the_locked_triton_is_the_one_that_the_locked_torch_demands():
    assert triton_demanded_by(VERSIONS["torch"]).specifier.contains(VERSIONS["triton"])


def test_the_locked_pythons_are_those_that_the_project_and_its_installer_accept():
    for name in install.LOCKED, install.LOCKED_TORCH:
        assert "Python {}.{} to {}.{} on Linux".format(*install.OLDEST, *install.NEWEST) in (ROOT / name).read_text()
    major, minor = install.NEWEST
    assert PROJECT["requires-python"] == ">={}.{},<{}.{}".format(*install.OLDEST, major, minor + 1)


@pytest.mark.parametrize(
    "name",
    [
        *("environment.yml", "Makefile", ".ci/run", "README.md", ".devcontainer/Dockerfile"),
        *(".github/workflows/tests.yml", ".github/workflows/weekly.yml"),
    ],
)
def test_no_version_is_pinned_outside_the_lock(name):
    path = ROOT / name
    if not path.exists():
        pytest.skip(f"{name} is not part of this copy")
    assert re.findall(r"[\w\]]+\s*==\s*\d[\w.]*", path.read_text()) == []


def test_conda_brings_a_supported_python_and_make_and_leaves_every_other_version_to_the_lock():
    lines = (ROOT / "environment.yml").read_text().splitlines()
    assert f"name: {PROJECT['name']}" in lines
    python, *others = sorted(line.strip(" -") for line in lines[lines.index("dependencies:") + 1 :])[::-1]
    assert others == ["make"]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.removeprefix("python="))


def test_the_lock_alone_pins_torch_and_the_package_gives_ranges():
    assert not any("==" in str(requirement.specifier) for requirement in NAMED)
    (pinned,) = map(Requirement, PYPROJECT["tool"]["uv"]["constraint-dependencies"])
    assert pinned == Requirement(f"torch=={VERSIONS['torch']}")


def test_uv_sync_resolves_as_the_lock_was_resolved():
    assert PYPROJECT["tool"]["uv"]["fork-strategy"] == "fewest"
    (everything,) = map(Requirement, PYPROJECT["dependency-groups"]["dev"])
    assert (everything.name, everything.extras) == (PROJECT["name"], set(PROJECT["optional-dependencies"]))


# -- what is installed here -------------------------------------------------------------------------------------------


@pytest.fixture
def installed() -> dict[str, metadata.Distribution]:
    """The locked packages that are in this environment, by name, where `make install` made it.

    Other copies are passed over: setuptools, once imported, adds a folder of its own to Python's path.
    """
    found = {}
    for name in (PROJECT["name"], *VERSIONS):
        for distribution in metadata.distributions(name=name, path=[sysconfig.get_path("purelib")]):
            found[name] = distribution
    if not found.pop(PROJECT["name"], None):
        pytest.skip(f"{PROJECT['name']} is not installed here: this machine brings its own packages")
    return found


def test_what_is_installed_is_what_the_lock_says(installed):
    theirs = {name: Version(distribution.version).public for name, distribution in installed.items()}
    assert theirs == {name: VERSIONS[name] for name in theirs}
    assert {requirement.name for requirement in NAMED} <= set(theirs)


def test_everything_that_a_locked_package_needs_is_locked(installed):
    needed = {
        canonicalize_name(requirement.name)
        for distribution in installed.values()
        for requirement in map(Requirement, distribution.requires or [])
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert needed <= set(VERSIONS)


def test_the_installed_triton_is_the_one_that_the_installed_torch_demands():
    torch = Version(metadata.version("torch")).public
    assert triton_demanded_by(torch).specifier.contains(metadata.version("triton"))


# -- helpers/make/lock.py: what `make lock` runs ----------------------------------------------------------------------


def test_torch_and_cuda_leave_the_lock_without_their_hashes():
    resolved = (
        "cuda-toolkit==13.0 \\\n    --hash=sha256:1\n"
        "numpy==2.4 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
        "torch==2.13 ; sys_platform == 'linux' \\\n    --hash=sha256:4\n"
        "torchlike==1.0 \\\n    --hash=sha256:5\n"
    )
    others, torch = lock.split(resolved)
    assert others == [
        "numpy==2.4 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3",
        "torchlike==1.0 \\\n    --hash=sha256:5",
    ]
    assert torch == ["cuda-toolkit==13.0", "torch==2.13 ; sys_platform == 'linux'"]


RESOLVED = "numpy==2.4 \\\n    --hash=sha256:2\ntorch==2.13 \\\n    --hash=sha256:4\n"


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """A checkout with no lock yet, and a uv that finds the versions of RESOLVED and notes how it was called."""
    calls = []

    def run(command, **options):
        calls.append((command[command.index("uv") :], options))
        return subprocess.CompletedProcess(command, 0, RESOLVED)

    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "helpers" / "make").mkdir(parents=True)
    monkeypatch.setattr(lock, "CHECKOUT", tmp_path)
    monkeypatch.setattr(lock.subprocess, "run", run)
    return calls


def test_each_file_of_the_lock_has_its_head_and_its_packages(uv, tmp_path):
    assert lock.main() == 0
    others, torch = ((tmp_path / name).read_text() for name in (install.LOCKED, install.LOCKED_TORCH))
    assert others == f"{lock.HEAD}\nnumpy==2.4 \\\n    --hash=sha256:2\n"
    assert torch == f"{lock.HEAD_OF_TORCH}\ntorch==2.13\n"


def test_one_version_with_hashes_is_sought_for_all_extras_pythons_and_machines(uv):
    lock.resolved()
    ((command, _),) = uv
    assert {"--universal", "--all-extras", "--generate-hashes"} <= set(command)
    assert command[command.index("--python-version") + 1] == "{}.{}".format(*install.OLDEST)


def test_what_builds_the_project_is_sought_too(uv):
    lock.resolved()
    ((command, options),) = uv
    assert command[-2:] == ["pyproject.toml", "-"]
    assert options["input"].splitlines() == PYPROJECT["build-system"]["requires"]


def test_what_is_published_later_is_no_part_of_the_lock(uv, tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    lock.main()
    text = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["uv"]["exclude-newer"]
    assert before <= datetime.fromisoformat(text) <= datetime.now(UTC)


def test_a_project_without_a_time_is_refused():
    with pytest.raises(ValueError, match="exclude-newer"):
        lock.dated("[tool.uv]\n", datetime.now(UTC))


def test_where_no_versions_agree_the_lock_stays_and_uv_has_said_why(uv, tmp_path, monkeypatch):
    project = (tmp_path / "pyproject.toml").read_text()

    def run(command, **options):
        raise subprocess.CalledProcessError(2, command)

    monkeypatch.setattr(lock.subprocess, "run", run)
    assert lock.main() == 2
    assert not (tmp_path / install.LOCKED).exists()
    assert (tmp_path / "pyproject.toml").read_text() == project
