"""Install the course's packages into .venv; when they are there already, return at once.

The versions come from the lock in this folder, which `make lock` renews. This module runs under any Python 3.6 or
newer and imports the standard library alone, so that a Python that is too old for the course can say so.
"""

import csv
import ctypes
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Callable, List, Optional, Tuple

CHECKOUT = Path(__file__).resolve().parents[2]
LOCKED, VERSIONS = "helpers/make/requirements.txt", "helpers/make/versions.txt"

VENV = CHECKOUT / ".venv"
PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
CREATED = VENV / "created"
INSTALLED = VENV / "installed"

OLDEST, NEWEST = (3, 11), (3, 14)  # torch is published for no Python newer than the second

# pip checks the hashes of all files or of none, and torch's file differs between machines: hence two steps.
STEPS = (
    ("install", "--require-hashes", "--requirement", LOCKED),
    ("install", "--no-build-isolation", "--constraint", VERSIONS, "--editable", ".[lab,maintain,grading]"),
)

KILL_THE_GROUP_AT_END_OF_INPUT = 'read _; kill -KILL -"$0" 2>/dev/null'
PR_SET_PDEATHSIG = 1  # of prctl(2)

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


FOUND = re.compile(r"(?:Collecting|Processing|Obtaining|Requirement already satisfied:) ([^\s=<>!~;\[]+)")
FETCHED = re.compile(r"\s*(?:Downloading|Using cached) (\S+?)-(\d[^-]*)\S*(?<!\.metadata) (\(.+\))")
UNPACKED = re.compile(r"Installing collected packages: (.+)")


class Failed(Exception):
    """Ends the installation with one sentence for the student."""


class Progress:
    """How far the installation is: in a terminal one line that moves; elsewhere a line a minute at most."""

    MINUTE = 60

    def __init__(self, stream: IO, clock: Callable = time.monotonic) -> None:
        self.stream, self.clock = stream, clock
        self.moves = self.stream.isatty()
        self.begun = self.shown = clock()

    def elapsed(self) -> str:
        """The time since the beginning, as minutes and seconds."""
        return "{}:{:02d}".format(*divmod(int(self.clock() - self.begun), 60))

    def show(self, what: str) -> None:
        """Say what is going on; where lines do not move, nothing within a minute of the last one."""
        if self.moves:
            line = "{}  {}".format(self.elapsed(), what)[: shutil.get_terminal_size().columns - 1]
            self.stream.write("\r\033[K" + line)
        elif self.clock() - self.shown >= self.MINUTE:
            self.shown = self.clock()
            self.stream.write("{}  {}\n".format(self.elapsed(), what))
        self.stream.flush()

    def clear(self) -> None:
        """Remove the line that moves."""
        if self.moves:
            self.stream.write("\r\033[K")
            self.stream.flush()


def obstacle_of(platform: str) -> str:
    """What to do instead where the course cannot be installed, in one sentence; "" on Linux. Takes a sys.platform."""
    if platform == "linux":
        return ""
    if platform == "darwin":
        return "Triton is not published for macOS: start Docker, and run `make container` instead of `make lab`."
    return "Triton is published for Linux alone: on Windows, clone and run the course in WSL2."


def supported(version: Tuple[int, ...]) -> bool:
    """Whether the course's packages exist for this version of Python."""
    return OLDEST <= tuple(version[:2]) <= NEWEST


def ask(python: Path, code: str) -> Optional[str]:
    """What `code` prints under `python`, or None when that Python does not run it."""
    try:
        answer = subprocess.run(
            [str(python), "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
        )
    except OSError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def other_python() -> Optional[str]:
    """The newest supported Python on PATH that starts, which a version manager's placeholder does not."""
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        for folder in os.get_exec_path():
            found = ask(Path(folder, f"python3.{minor}"), "import sys; print(sys.executable)")
            if found:
                return found
    return None


def usable_version() -> Optional[str]:
    """The Python version of a .venv that is whole, starts, has pip and has not been moved, else None."""
    if not CREATED.exists() or CREATED.read_bytes() != os.fsencode(str(VENV)):
        return None
    version = ask(PYTHON, "import pip, sys; print('%d.%d' % sys.version_info[:2])")
    return version if version and supported(tuple(int(part) for part in version.split("."))) else None


def site_packages(version: str) -> Path:
    """Where the packages of a .venv with this version of Python are."""
    return VENV / "lib" / f"python{version}" / "site-packages"


def stamp(version: str) -> str:
    """The first line of .venv/installed once everything that pyproject.toml and the lock ask for is in place."""
    files = [(CHECKOUT / name).read_bytes() for name in ("pyproject.toml", LOCKED, VERSIONS)]
    return hashlib.sha256(b"\0".join(files + [repr(STEPS).encode(), version.encode()])).hexdigest()


def locked() -> int:
    """How many packages the lock has, without torch and what its build for GPUs needs."""
    lines = (CHECKOUT / LOCKED).read_text(encoding="utf-8").splitlines()
    return sum(line[:1].isalpha() for line in lines)


def complete(version: str) -> bool:
    """Whether all that was asked for was installed, and nothing of it has been removed or replaced since."""
    if not INSTALLED.exists():
        return False
    lines = INSTALLED.read_text(encoding="utf-8").splitlines()
    return lines[:1] == [stamp(version)] and set(lines[1:]) <= set(os.listdir(str(site_packages(version))))


def installed_names() -> List[str]:
    """The packages that are in .venv by now, as their folders spell them."""
    return [path.name.partition("-")[0] for path in VENV.glob("lib/python*/site-packages/*.dist-info")]


def forget_damaged_packages(version: str) -> None:
    """Make pip install again packages written in part, or with a file lost: it looks only for a package's metadata."""
    for metadata in site_packages(version).glob("*.dist-info"):
        try:
            with (metadata / "RECORD").open(encoding="utf-8", newline="") as record:
                files = [row[0] for row in csv.reader(record) if not row[0].endswith(".pyc")]
        except FileNotFoundError:  # pip writes it last
            files = ["RECORD is missing"]
        if not all((metadata.parent / file).exists() for file in files):
            shutil.rmtree(str(metadata))


def explain(output: str) -> Failed:
    """Why an installation failed, told from the end of what it printed."""
    ending = output.rstrip().splitlines()[-40:]
    if any(sign in line for line in ending for sign in DISK_FULL):
        return Failed("The disk is full: free a few GB for the course's packages, then run the same command again.")
    if any(sign in line for line in ending for sign in UNREACHABLE):
        return Failed(
            "The package index cannot be reached: installing needs the network; once installed, the course does not."
        )
    log = f" (the whole log: {LOG})" if LOG.exists() else ""
    return Failed("\n".join([f"The course's packages could not be installed{log}:"] + ending[-8:]))


def spelled_alike(name: str) -> str:
    """A package's name as all spellings of it have it in common."""
    return re.sub(r"[-_.]+", "-", name).lower()


def name_of(found: str) -> str:
    """The package of what pip has found: a name, or the place of a file."""
    return spelled_alike(re.sub(r"-\d.*", "", found.rstrip("/").rpartition("/")[2]))


def going_on(lines: List[str], names: List[str], of: int = 0) -> str:
    """What pip is doing, by the lines that it has printed; `names` are the packages that are installed by now.

    pip is expected to find `of` packages; 0 where nobody knows.
    """
    for line in reversed(lines):
        unpacked, fetched, found = UNPACKED.match(line), FETCHED.match(line), FOUND.match(line)
        if unpacked:
            wanted = {spelled_alike(name) for name in unpacked.group(1).split(", ")}
            return "installing: {} of {} packages".format(
                len(wanted & {spelled_alike(name) for name in names}), len(wanted)
            )
        if fetched:
            return "fetching {} {} {}".format(*fetched.groups())
        if found:
            number = len({name_of(match.group(1)) for match in map(FOUND.match, lines) if match})
            counted = "{} of {}".format(number, of) if number <= of else str(number)
            return "finding {}, package {}".format(name_of(found.group(1)), counted)
    return "making the environment"


def run_step(command: List[str], progress: Progress, of: int = 0) -> None:
    """Run one step of the installation; its output goes to the log, and its failure is explained.

    Meanwhile `progress` shows how far it is, of `of` packages.

    However this process ends, the step ends with it, and so does every process that the step has started: a shell
    waits for the end of a pipe that this process alone holds open, then kills the step's group.
    """
    step = subprocess.Popen(
        command,
        cwd=str(CHECKOUT),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    guard = subprocess.Popen(
        ["sh", "-c", KILL_THE_GROUP_AT_END_OF_INPUT, str(step.pid)], stdin=subprocess.PIPE, start_new_session=True
    )
    lines = []  # type: List[str]

    def read() -> None:
        for line in step.stdout:
            lines.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            progress.show(going_on(list(lines), installed_names(), of))
            reader.join(1)
        step.wait()
    finally:
        progress.clear()
        guard.communicate()
    step.stdout.close()
    output = "".join(lines)
    try:
        LOG.write_text(output, encoding="utf-8")
    except OSError:
        pass  # a full disk: the sentence matters more than the log
    if step.returncode != 0:
        raise explain(output)


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


def create(python: Path, progress: Progress) -> None:
    """Make an empty .venv, and note where once it is whole."""
    shutil.rmtree(str(VENV), ignore_errors=True)
    run_step([str(python), "-m", "venv", str(VENV)], progress)
    CREATED.write_bytes(os.fsencode(str(VENV)))


def install() -> None:
    """Bring .venv to what pyproject.toml and the lock ask for."""
    version = usable_version()
    if version and complete(version):
        return
    python = None if version else maker()
    print("Installing the course's packages into .venv (a few minutes the first time)...", flush=True)
    progress = Progress(sys.stdout)
    if python:
        create(python, progress)
        version = usable_version()
    forget_damaged_packages(version)
    for step in STEPS:
        pip = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color"]
        run_step([*pip, *step], progress, locked() if LOCKED in step else 0)
    names = sorted(name for name in os.listdir(str(site_packages(version))) if name != "__pycache__")
    INSTALLED.write_text("\n".join([stamp(version)] + names), encoding="utf-8")
    print("Installed in {} minutes.".format(progress.elapsed()), flush=True)


def end_with_make() -> None:
    """Ask the kernel to kill this process when make, its parent, dies without being able to say so."""
    if "MAKELEVEL" in os.environ:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main(platform: str = sys.platform) -> int:
    """Install, and turn a failure into one sentence."""
    sentence = obstacle_of(platform)
    if sentence:
        print(sentence, file=sys.stderr)
        return 1
    end_with_make()
    try:
        install()
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The course's packages could not be installed: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped: the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
