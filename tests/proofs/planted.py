"""Plants small bugs, one at a time, and says which of them the tests notice.

    python tests/proofs/planted.py [FILTER ...] [--limit SECONDS]

plants every bug of `tests/proofs/planted/*.toml` in whose table, file or words each FILTER occurs, in a temporary copy
of this checkout, and runs the tests that must notice it there. A bug is noticed where a test fails, or does not come to
an end. The exit status is 1 where a bug goes unnoticed.

A table has a `[[module]]` for each file, with the tests that must notice its bugs, and under it a `[[module.bug]]` for
each bug: `what` is wrong, the exact `text` of the file, which occurs once, and what stands there `instead`. A bug may
have its own `tests`, and `gpu = true` where only a GPU can notice it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

CHECKOUT = Path(__file__).resolve().parents[2]
TABLES = Path("tests/proofs/planted")
LIMIT_S = 300
NOT_COPIED = (".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", "*.egg-info")


@dataclass(frozen=True)
class Bug:
    """What is wrong in a file of the checkout once `text` is replaced, and the tests that must notice it."""

    what: str
    file: str
    text: str
    instead: str
    tests: tuple[str, ...]
    table: str
    gpu: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"

    def planted(self, source: str) -> str:
        """The file's source with the bug in it. Raises ValueError unless `text` occurs once."""
        if source.count(self.text) != 1:
            raise ValueError(f"{self}: its text occurs {source.count(self.text)} times in the file, not once.")
        return source.replace(self.text, self.instead)


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended: whether all passed, in which words pytest said what did not, and its seconds."""

    passed: bool
    said: str
    seconds: float


def bugs(checkout: Path, filters: Iterable[str] = ()) -> list[Bug]:
    """The bugs of all tables in which each filter occurs, in the order of the tables."""
    found = []
    for path in sorted((checkout / TABLES).glob("*.toml")):
        for module in tomllib.loads(path.read_text(encoding="utf-8"))["module"]:
            for bug in module["bug"]:
                tests = tuple(bug.pop("tests", module["tests"]))
                found.append(Bug(**bug, file=module["file"], tests=tests, table=path.stem))
    return [bug for bug in found if all(word in f"{bug.table} {bug}" for word in filters)]


def run(tests: Iterable[str], checkout: Path, limit_s: float = LIMIT_S) -> Outcome:
    """Runs tests of a checkout up to the first one that fails. Tests that take longer than the limit have not passed.

    Raises ValueError with pytest's words where it found no tests to run.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-n0", "-q", "-p", "no:cacheprovider", *tests]
    # Python takes a file of the same size and second for unchanged: without its caches it always reads the source.
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    begun = time.monotonic()
    pytest = subprocess.Popen(
        command, cwd=checkout, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        output, _ = pytest.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Outcome(False, f"no end after {limit_s} seconds", time.monotonic() - begun)
    finally:
        if pytest.poll() is None:
            os.killpg(pytest.pid, signal.SIGKILL)
            pytest.communicate()
    if pytest.returncode not in (0, 1, 2):  # all passed, a test failed, a test could not be imported
        raise ValueError(f"pytest did not run {' '.join(tests)}: {output.strip()[-500:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.MULTILINE)
    return Outcome(pytest.returncode == 0, failed[1] if failed else "", time.monotonic() - begun)


def plant(chosen: Iterable[Bug], checkout: Path, run: Callable[[tuple[str, ...], Path], Outcome] = run) -> list[Bug]:
    """Plants bugs one at a time in a copy of the checkout, prints what becomes of each, and returns the unnoticed.

    `run` runs the tests of a bug in the copy. Raises ValueError where the tests that must notice a bug fail without it.
    """
    unnoticed, sound = [], set()
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for bug in chosen:
            if bug.tests not in sound:
                if not (without := run(bug.tests, copy)).passed:
                    raise ValueError(f"{' '.join(bug.tests)} must pass before a bug is planted: {without.said}")
                sound.add(bug.tests)
            file = copy / bug.file
            source = file.read_text(encoding="utf-8")
            file.write_text(bug.planted(source), encoding="utf-8")
            outcome = run(bug.tests, copy)
            file.write_text(source, encoding="utf-8")
            word = "NOT NOTICED" if outcome.passed else "noticed"
            print(f"{word:11} {outcome.seconds:4.0f} s  {bug}  {outcome.said.rpartition('::')[2]}".rstrip(), flush=True)
            if outcome.passed:
                unnoticed.append(bug)
    return unnoticed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", metavar="FILTER", help="plant only bugs in which each of them occurs")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds for the tests of a bug; default: %(default)s"
    )
    options = parser.parse_args()
    found = bugs(CHECKOUT, options.filters)
    chosen = [bug for bug in found if torch.cuda.is_available() or not bug.gpu]
    unnoticed = plant(chosen, CHECKOUT, partial(run, limit_s=options.limit))
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} noticed; {len(found) - len(chosen)} need a GPU.")
    for bug in unnoticed:
        print(f"not noticed: {bug}")
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
