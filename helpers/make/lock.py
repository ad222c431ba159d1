"""Renew the lock: the newest version of every package that pyproject.toml's dependencies lead to, where they agree."""

import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime

from helpers.make.install import CHECKOUT, LOCKED, NEWEST, OLDEST, VERSIONS

SUPPORTED = "Python {}.{} to {}.{} on Linux".format(*OLDEST, *NEWEST)

HEAD = f"# Every package of the course but torch, for {SUPPORTED}, with the hashes of its files; from `make lock`."
HEAD_OF_VERSIONS = f"""\
# The version of every package of the course, for {SUPPORTED}; from `make lock`.
# They are constraints (pip --constraint) without hashes, because a machine may offer torch in a build for CPUs: another
# file, which needs none of the CUDA packages."""


def resolved() -> str:
    """Every package with its version and hashes, as uv writes them; one version serves all supported Pythons."""
    build = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal", "--all-extras"]
    command += ["--python-version", "{}.{}".format(*OLDEST)]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "pyproject.toml", "-"]
    done = subprocess.run(command, cwd=CHECKOUT, input="\n".join(build), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def dated(project: str, now: datetime) -> str:
    """The text of a pyproject.toml in which uv takes releases until `now`, a time in UTC.

    `uv sync` then finds versions as old as this lock's at any later time. Raises ValueError where no such line stands.
    """
    line = f'exclude-newer = "{now:%Y-%m-%dT%H:%M:%SZ}"'
    text, found = re.subn(r"^exclude-newer = .*$", line, project, flags=re.MULTILINE)
    if found != 1:
        raise ValueError("pyproject.toml needs one line `exclude-newer = …`, under [tool.uv].")
    return text


def split(lock: str) -> tuple[list[str], list[str]]:
    """The entries of a lock, each with its hashes, without torch and CUDA; and all entries, each without."""
    entries = re.findall(r"^\S.*(?:\n .*)*", lock, flags=re.MULTILINE)
    others = [entry for entry in entries if not re.match(r"torch==|cuda-|nvidia-", entry)]
    return others, [entry.partition(" \\\n")[0] for entry in entries]


def main() -> int:
    """Write both files of the lock; 1 when uv finds no versions that agree, which it has said."""
    path = CHECKOUT / "pyproject.toml"
    before = path.read_text(encoding="utf-8")
    path.write_text(dated(before, datetime.now(UTC)), encoding="utf-8")
    try:
        others, versions = split(resolved())
    except subprocess.CalledProcessError as failure:
        path.write_text(before, encoding="utf-8")
        return failure.returncode
    for name, lines in (LOCKED, [HEAD, *others]), (VERSIONS, [HEAD_OF_VERSIONS, *versions]):
        (CHECKOUT / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
