"""Install the course's packages into .venv; when they are there already, return at once.

It runs under any Python 3 and imports the standard library alone, so that a Python that is too old can say so.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
STAMP = VENV / "installed"
UNFINISHED = VENV / "unfinished"

OLDEST, NEWEST = (3, 11), (3, 14)  # torch is published for no Python newer than the second

DISK_FULL = ("No space left on device", "Disk quota exceeded")
UNREACHABLE = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Name or service not known",
    "Network is unreachable",
    "Connection refused",
    "ProxyError",
    "timed out",
    "(from versions: none)",
)


class Failed(Exception):
    """Ends the installation with one sentence for the student."""


class Unreachable(Failed):
    """The package index does not answer; pip fetches before it installs, so .venv is as it was."""


def supported(version: tuple[int, ...]) -> bool:
    """Whether the course's packages exist for this version of Python."""
    return OLDEST <= tuple(version[:2]) <= NEWEST


def ask(python: Path, code: str) -> str | None:
    """What `code` prints under `python`, or None when that Python does not run it."""
    try:
        answer = subprocess.run(
            [str(python), "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def other_python() -> str | None:
    """The newest supported Python on PATH that starts, which a version manager's placeholder does not."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        for folder in os.get_exec_path():
            found = ask(Path(folder, f"python3.{minor}"), "import sys; print(sys.executable)")
            if found:
                return found
    return None


def usable_version() -> str | None:
    """The Python version of a .venv that starts, has pip, is no half of one and has not been moved, else None."""
    settings = VENV / "pyvenv.cfg"
    if UNFINISHED.exists() or not settings.exists():
        return None
    made_by = [line for line in settings.read_text().splitlines() if line.startswith("command = ")]
    if not all(line.endswith(f" {VENV}") for line in made_by):
        return None
    version = ask(PYTHON, "import pip, sys; print('%d.%d' % sys.version_info[:2])")
    return version if version and supported(tuple(int(part) for part in version.split("."))) else None


def stamp(version: str) -> str:
    """What .venv/installed holds once everything that pyproject.toml asks for is in place."""
    parts = ((CHECKOUT / "pyproject.toml").read_bytes(), os.fsencode(str(CHECKOUT)), version.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def explain(output: str) -> Failed:
    """Why an installation failed, told from the end of what it printed."""
    ending = output.rstrip().splitlines()[-40:]
    if any(sign in line for line in ending for sign in DISK_FULL):
        return Failed("The disk is full: free a few GB for the course's packages, then run the same command again.")
    if any(sign in line for line in ending for sign in UNREACHABLE):
        return Unreachable(
            "The package index cannot be reached: installing needs the network; once installed, the course does not."
        )
    log = f" (the whole log: {LOG})" if LOG.exists() else ""
    return Failed("\n".join([f"The course's packages could not be installed{log}:"] + ending[-8:]))


def run(command: list[str]) -> None:
    """Run one step of the installation in silence; its output goes to the log, and its failure is explained."""
    step = subprocess.run(
        command,
        cwd=str(CHECKOUT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    try:
        LOG.write_text(step.stdout, encoding="utf-8")
    except OSError:
        pass  # a full disk: the sentence matters more than the log
    if step.returncode != 0:
        raise explain(step.stdout)


def maker() -> Path:
    """The Python to make .venv with: this one, unless it is not supported, for then another one takes over."""
    if not supported(sys.version_info):
        other = other_python()
        if other:
            os.execv(other, [other, str(Path(__file__).resolve())])
        oldest, newest, this = ("{}.{}".format(*version) for version in (OLDEST, NEWEST, sys.version_info))
        raise Failed(f"The course needs Python {oldest} to {newest}, and this is {this}: install one of those.")
    python = Path(sys.executable)
    if sys.prefix != sys.base_prefix:  # an environment, perhaps the one about to be removed
        python = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
    if ask(python, "import ensurepip, venv") is None:
        raise Failed("This Python cannot make a virtual environment: apt install python3-venv, then run it again.")
    return python


def create(python: Path) -> None:
    """Make an empty .venv, marked as unfinished."""
    shutil.rmtree(str(VENV), ignore_errors=True)
    VENV.mkdir(exist_ok=True)
    UNFINISHED.touch()
    run([str(python), "-m", "venv", str(VENV)])


def install() -> None:
    """Bring .venv to what pyproject.toml asks for."""
    if sys.platform != "linux":
        raise Failed("The course needs Linux (on Windows: WSL), because Triton is published for Linux alone.")
    version = usable_version()
    if version and STAMP.exists() and STAMP.read_text() == stamp(version):
        return
    python = None if version else maker()
    print("Installing the course's packages into .venv (a few minutes the first time)...", flush=True)
    if python:
        create(python)
    pip = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color"]
    UNFINISHED.touch()
    try:
        run(pip + ["install", "--progress-bar", "off", "--editable", ".[maintain,grading]"])
    except Unreachable:
        UNFINISHED.unlink()
        raise
    UNFINISHED.unlink()
    STAMP.write_text(stamp(usable_version() or ""))


def main() -> int:
    """Install, and turn a failure into one sentence."""
    try:
        install()
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The course's packages could not be installed: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped: the next run installs from the start.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
