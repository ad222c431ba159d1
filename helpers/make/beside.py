"""Install the course into an environment in use: the packages it lacks, and none that it has.

For Colab, Kaggle, a cluster's module, an environment of one's own. In a terminal, with the environment's Python:

    python helpers/make/beside.py

In a notebook, whose kernel then finds `helpers` without a restart:

    %run softmax-in-triton/helpers/make/beside.py
"""

import importlib
import json
import os
import shlex
import shutil
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

try:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name
    from packaging.version import Version
except ImportError:  # pip has them too
    from pip._vendor.packaging.requirements import Requirement
    from pip._vendor.packaging.utils import canonicalize_name
    from pip._vendor.packaging.version import Version

CHECKOUT = Path(__file__).resolve().parents[2]

KEPT = {"torch", "numpy", "ipython", "ipywidgets", "anywidget"}
"""Never installed: another torch or numpy would break the loaded one, and the others have a half in the browser."""
NEEDED = {"torch", "numpy"}
"""The kept packages without which the course does not start."""

TRITON_OF_TORCH = {
    "2.11": "triton==3.6.0",
    "2.12": "triton==3.7.1",
    "2.13": "triton==3.7.1",
    "2.14": "triton~=3.8.0",
    "2.15": "triton~=3.9.0",
}
"""The triton that each torch's build for CUDA demands. Its build for CPUs, which demands none, gets the same."""


class Installed(NamedTuple):
    """A package that is there: its version, and what it says that it needs."""

    version: str
    requires: tuple[str, ...] = ()


Find = Callable[[str], Installed | None]


def found_here(name: str) -> Installed | None:
    """The package of this name in this environment; None where there is none."""
    try:
        there = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    return Installed(there.version, tuple(there.requires or ()))


def dependencies(project: str, find: Find) -> list[Requirement]:
    """What the text of a pyproject.toml demands, with the triton that goes with the torch that is there."""
    wanted = [Requirement(line) for line in tomllib.loads(project)["project"]["dependencies"]]
    torch = find("torch")
    return [_triton_of(torch) or one if torch and one.name == "triton" else one for one in wanted]


def _triton_of(torch: Installed) -> Requirement | None:
    for declared in map(Requirement, torch.requires):
        if declared.name == "triton" and (declared.marker is None or declared.marker.evaluate({"extra": ""})):
            return Requirement(f"triton{declared.specifier}")
    known = TRITON_OF_TORCH.get(".".join(map(str, Version(torch.version).release[:2])))
    return Requirement(known) if known else None


def lacking(wanted: Iterable[Requirement], find: Find) -> list[Requirement]:
    """The absent packages: wanted ones, and dependencies of the ones that are there. KEPT are none."""
    queue, seen, absent = list(wanted), set(KEPT), []
    for requirement in queue:
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        there = find(name)
        if there is None:
            absent.append(requirement)
        else:
            queue += map(Requirement, there.requires)
    return absent


def missing(find: Find) -> str:
    """Why the course cannot be installed into this environment: a sentence, "" where it can."""
    names = [name for name in sorted(NEEDED) if find(name) is None]
    if not names:
        return ""
    return (
        f"This environment has no {' and no '.join(names)}: install PyTorch for your machine first, or let "
        "`make install` make an environment of its own."
    )


def outside(wanted: Iterable[Requirement], find: Find) -> list[str]:
    """A sentence for each package that is there in a version with which the course was not run. It stays."""
    sentences = []
    for requirement in wanted:
        there = find(requirement.name)
        if there and not requirement.specifier.contains(Version(there.version).public, prereleases=True):
            sentences.append(f"{requirement.name} {there.version} stays; the course was run with {requirement}.")
    return sentences


def points_here(name: str) -> bool:
    """Whether the course is installed as this checkout, which itself may hold metadata that building has left there."""
    found = (one.read_text("direct_url.json") for one in metadata.distributions(name=name))
    return any(address and json.loads(address)["url"] == CHECKOUT.as_uri() for address in found)


def installer(has_pip: bool, uv: str | None) -> list[str]:
    """The command that installs into this environment and brings nothing else along."""
    if has_pip or not uv:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    return [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps"]


def _install(*what: str) -> int:
    command = [*installer(find_spec("pip") is not None, shutil.which("uv")), *what]
    print(shlex.join(command), flush=True)
    # Of the build backend, which warns at length of every editable installation.
    quiet = os.environ | {"PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, env=quiet)
    if site.ENABLE_USER_SITE and os.path.isdir(site.getusersitepackages()):
        site.addsitedir(site.getusersitepackages())
    importlib.invalidate_caches()
    return done.returncode


def main() -> int:
    """Install what lacks, round after round, because what comes says only then what it needs; then this checkout."""
    project = (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8")
    if sys.platform != "linux":
        print("Triton is published for Linux alone: README.md says what to do elsewhere.", file=sys.stderr)
        return 1
    if sentence := missing(found_here):
        print(sentence, file=sys.stderr)
        return 1
    wanted = dependencies(project, found_here)
    before: list[Requirement] = []
    while absent := lacking(wanted, found_here):
        if absent == before:
            names = ", ".join(one.name for one in absent)
            print(f"pip installed {names} where this Python does not look: {sys.executable}.", file=sys.stderr)
            return 1
        if failed := _install(*map(str, absent)):
            return failed
        before = absent
    name = tomllib.loads(project)["project"]["name"]
    if not points_here(name) and (failed := _install("--editable", str(CHECKOUT))):
        return failed
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))  # of the kernel that runs this file: it reads .pth files at its start alone
    for sentence in outside(wanted, found_here):
        print(sentence)
    versions = ", ".join(f"{one.name} {found_here(one.name).version}" for one in wanted if found_here(one.name))
    print(f"The course is installed; {versions} stay as they were.")
    return 0


if __name__ == "__main__":
    if status := main():
        sys.exit(status)
