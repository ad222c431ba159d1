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
import yaml
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


def pinned(name: str) -> dict[str, str]:
    """The versions that a file of the lock pins, by package, in its order."""
    found = [Requirement(entry.partition("\\\n")[0]) for entry in entries(name)]
    assert all(re.fullmatch(r"==[\w.]+", str(requirement.specifier)) for requirement in found)
    return {requirement.name: str(requirement.specifier).removeprefix("==") for requirement in found}


VERSIONS = pinned(install.VERSIONS)


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
    assert len(VERSIONS) == len(entries(install.VERSIONS)) and list(VERSIONS) == sorted(VERSIONS)


def test_both_files_of_the_lock_have_the_same_packages_but_for_torch_and_cuda():
    others = {name: version for name, version in VERSIONS.items() if not re.match("torch$|nvidia-|cuda-", name)}
    assert pinned(install.LOCKED) == others
    assert {"torch", "nvidia-nccl-cu13"} <= VERSIONS.keys() - others.keys()


def test_files_are_known_by_their_hashes_where_no_other_file_has_to_be_let_in():
    assert all("--hash=sha256:" in entry for entry in entries(install.LOCKED))
    assert not any("--hash" in entry for entry in entries(install.VERSIONS))


@pytest.mark.parametrize("name", [install.LOCKED, install.VERSIONS])
def test_the_lock_names_no_address(name):
    assert "/" not in "".join(entries(name))


def test_the_locked_triton_is_the_one_that_the_locked_torch_demands():
    assert triton_demanded_by(VERSIONS["torch"]).specifier.contains(VERSIONS["triton"])


def test_the_locked_pythons_are_those_that_the_project_and_its_installer_accept():
    for name in install.LOCKED, install.VERSIONS:
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


def test_conda_brings_a_supported_python_and_pip_the_course_with_all_extras_in_the_versions_of_the_lock():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert conda["name"] == PROJECT["name"]
    python, pip, of_pip = conda["dependencies"]
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(python.removeprefix("python="))
    assert pip == "pip" and list(of_pip) == ["pip"]
    constraint, course = of_pip["pip"]
    assert constraint == f"--constraint {install.VERSIONS}"
    assert course in " ".join(install.STEPS[-1]), "conda's environment and make install's have the same packages"


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


def test_torch_and_cuda_leave_the_hashes_and_every_package_has_its_version():
    resolved = (
        "cuda-toolkit==13.0 \\\n    --hash=sha256:1\n"
        "numpy==2.4 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
        "torch==2.13 ; sys_platform == 'linux' \\\n    --hash=sha256:4\n"
        "torchlike==1.0 \\\n    --hash=sha256:5\n"
    )
    others, versions = lock.split(resolved)
    assert others == [
        "numpy==2.4 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3",
        "torchlike==1.0 \\\n    --hash=sha256:5",
    ]
    assert versions == ["cuda-toolkit==13.0", "numpy==2.4", "torch==2.13 ; sys_platform == 'linux'", "torchlike==1.0"]


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
    others, versions = ((tmp_path / name).read_text() for name in (install.LOCKED, install.VERSIONS))
    assert others == f"{lock.HEAD}\nnumpy==2.4 \\\n    --hash=sha256:2\n"
    assert versions == f"{lock.HEAD_OF_VERSIONS}\nnumpy==2.4\ntorch==2.13\n"


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
