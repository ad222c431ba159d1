"""Plants small bugs, one at a time, and says which of them the tests notice.

    python tests/proofs/planted.py [FILTER ...] [--workers N] [--limit SECONDS] [--sample N [--seed K]]

plants every bug of `tests/proofs/planted/*.toml` in whose table, file or words each FILTER occurs, in temporary copies
of this checkout, as many side by side as there are workers, and runs the tests that must notice it there. A bug is
noticed if a test fails, or does not come to an end. A bug whose text has moved is named and left out. The exit status
is 1 if a bug goes unnoticed, or if more than a quarter of the bugs of a file have moved.

A table has a `[[module]]` for each file, with the tests that must notice its bugs, and under it a `[[module.bug]]` for
each bug: `what` is wrong, the exact `text` of the file, which occurs once, and what stands there `instead`. A bug may
have its own `tests`, and `gpu = true` where only a GPU can notice it.

This process imports what the course imports, but nothing of the course, and forks a process for each run of tests: a
run begins after a moment, and sees the course as it is in its copy.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import gc
import hashlib
import importlib
import multiprocessing
import os
import re
import select
import shutil
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, TextIO

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TABLES = Path("tests/proofs/planted")
LIMIT_S = 300
PR_SET_PDEATHSIG = 1  # of prctl(2)
OPTIONS = (
    "-x", "-n0", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", "not proof or thinned",
)  # fmt: skip
"""Of pytest: all cases of a test run, the proofs of the long corpora do not."""

NOT_COPIED = (".git", ".venv", "__pycache__", ".pytest_cache", ".hypothesis", ".ruff_cache", "*.egg-info")

IMPORTED = (
    "torch", "triton", "triton.runtime.interpreter", "numpy", "matplotlib.pyplot", "ipywidgets", "anywidget", "tqdm",
    "cloudpickle", "hypothesis", "nbformat", "nbclient", "nbconvert", "nbgrader", "IPython",
    "xdist.plugin", "nbval.plugin", "random_order.plugin", "_hypothesis_pytestplugin", "anyio.pytest_plugin",
)  # fmt: skip
"""Imported once, before the runs of tests are forked."""


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

    def misfit(self, checkout: Path) -> str:
        """Why the bug cannot be planted in a checkout; empty if it can. A file that is no program fails every test."""
        if not (file := checkout / self.file).exists():
            return "its file is gone"
        source = file.read_text(encoding="utf-8")
        try:
            planted = ast.dump(ast.parse(self.planted(source)))
        except SyntaxError:
            return "the file is no program with it"
        except ValueError:
            return f"its text occurs {source.count(self.text)} times"
        return "it changes nothing" if planted == ast.dump(ast.parse(source)) else ""


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended: whether all passed, the first that did not, its seconds, and pytest's last words."""

    passed: bool
    failed: str
    seconds: float
    said: str = ""


Run = Callable[[tuple[str, ...], Path], Outcome]
"""Runs tests of a checkout."""


def bugs(checkout: Path, filters: Iterable[str] = ()) -> list[Bug]:
    """The bugs of all tables in which each filter occurs, in the order of the tables."""
    found = []
    for path in sorted((checkout / TABLES).glob("*.toml")):
        for module in tomllib.loads(path.read_text(encoding="utf-8"))["module"]:
            for bug in module["bug"]:
                tests = tuple(bug.pop("tests", module["tests"]))
                found.append(Bug(**bug, file=module["file"], tests=tests, table=path.stem))
    return [bug for bug in found if all(word in f"{bug.table} {bug}" for word in filters)]


def sample(found: list[Bug], size: int, seed: int) -> list[Bug]:
    """At most `size` bugs, drawn by the seed. A bug more in the tables changes at most one of them."""
    drawn = set(sorted(found, key=lambda bug: hashlib.sha256(f"{seed} {bug}".encode()).digest())[:size])
    return [bug for bug in found if bug in drawn]


def moved(found: Iterable[Bug], checkout: Path) -> tuple[list[Bug], list[str]]:
    """The bugs that cannot be planted as they are, and the files of which more than a quarter of the bugs cannot."""
    found = list(found)
    unfit = [bug for bug in found if bug.misfit(checkout)]
    of_file = Counter(bug.file for bug in found)
    return unfit, [file for file, count in Counter(bug.file for bug in unfit).items() if 4 * count > of_file[file]]


def run(tests: Iterable[str], checkout: Path, limit_s: float = LIMIT_S) -> Outcome:
    """Runs tests of a checkout up to the first one that fails. Tests that take longer than the limit have not passed.

    The tests run in a process forked from this one, which must not have imported what they are to see of the checkout.
    Raises ValueError with pytest's words where all tests are left out, as proofs are.
    """
    tests = tuple(tests)
    begun = time.monotonic()
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        child = os.fork()
        if not child:
            _become_pytest(tests, checkout, output)
        status = _status(child, limit_s)
        seconds = time.monotonic() - begun
        output.seek(0)
        said = output.read().strip()
    if status is None:
        return Outcome(False, f"no end after {limit_s} seconds", seconds, said[-2000:])
    if status == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise ValueError(f"pytest found no tests in {' '.join(tests)}: {said[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", said, re.MULTILINE)
    return Outcome(status == 0, failed[1] if failed else "", seconds, said[-2000:])


def _become_pytest(tests: tuple[str, ...], checkout: Path, output: TextIO) -> None:
    """Turns this process, just forked, into a run of pytest in the checkout, and ends with it."""
    status = 70  # of a program that is at fault itself
    try:
        _end_with_parent()
        os.setpgid(0, 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # a test may read whatever is open, such as the workers' queue
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", errors="replace", closefd=False)
        os.chdir(checkout)
        # Python takes a file of the same size and second for unchanged: without its caches it always reads the source.
        os.environ |= {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(checkout), *sys.path]
        status = pytest.main([*OPTIONS, *tests])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def _end_with_parent() -> None:
    """Asks the kernel to kill this process when the one that forked it ends, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _status(child: int, limit_s: float) -> int | None:
    """The exit status of a child, None if it has not ended in time. Afterwards it is gone, with all of its group."""
    with suppress(PermissionError):  # it has done so itself
        os.setpgid(child, child)
    ended = []
    try:
        with open(os.pidfd_open(child)) as descriptor:
            ended, _, _ = select.select([descriptor], [], [], limit_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def tried(bug: Bug, checkout: Path, copies: Path, run: Run) -> Outcome:
    """Plants a bug in this process's copy of the checkout, runs its tests there, and removes the bug."""
    copy = _copy(checkout, copies)
    file = copy / bug.file
    source = file.read_text(encoding="utf-8")
    file.write_text(bug.planted(source), encoding="utf-8")
    try:
        return run(bug.tests, copy)
    finally:
        file.write_text(source, encoding="utf-8")


def sound(tests: tuple[str, ...], checkout: Path, copies: Path, run: Run) -> None:
    """Raises ValueError where tests that have noticed a bug fail without one."""
    if not (without := run(tests, _copy(checkout, copies))).passed:
        raise ValueError(f"{without.failed or ' '.join(tests)} fails without a bug too:\n{without.said}")


def _copy(checkout: Path, copies: Path) -> Path:
    copy = copies / str(os.getpid())
    if not copy.exists():
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    return copy


def _by_file(tests: Iterable[str]) -> list[tuple[str, ...]]:
    """Tests in as few runs as they have files: the whole file where it is among them."""
    files: dict[str, set[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], set()).add(test)
    return [(file,) if file in own else tuple(sorted(own)) for file, own in files.items()]


def plant(
    chosen: list[Bug],
    checkout: Path,
    run: Run = run,
    each: Callable[[Callable, Iterable[Any]], Iterable[Any]] = map,
) -> list[Bug]:
    """Plants bugs one at a time in copies of the checkout, prints what becomes of each, and returns the unnoticed.

    `run` runs the tests of a bug in a copy; `each` applies a function to many values, as `map` does, perhaps in several
    processes. Raises ValueError where tests that have noticed a bug fail without it.
    """
    unnoticed, noticing = [], []
    with TemporaryDirectory() as folder:
        where = {"checkout": checkout, "copies": Path(folder), "run": run}
        for bug, outcome in zip(chosen, each(partial(tried, **where), chosen), strict=True):
            word, by = ("NOT NOTICED", "") if outcome.passed else ("noticed", outcome.failed.rpartition("::")[2])
            print(f"{word:11} {outcome.seconds:4.1f} s  {bug}  {by}".rstrip(), flush=True)
            if outcome.passed:
                unnoticed.append(bug)
            else:
                noticing += [outcome.failed.partition("[")[0]] if "::" in outcome.failed else bug.tests
        for _ in each(partial(sound, **where), _by_file(noticing)):
            pass
    return unnoticed


def _warm() -> bool:
    """Imports what tests import, in a way that forks can use, and returns whether there is a GPU."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # nor does a GPU that has been asked for anything
    import torch

    gpu = torch.cuda.is_available()
    os.environ.setdefault("TRITON_INTERPRET", "0" if gpu else "1")
    for name in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what was imported is not looked through again in every fork
    return gpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("filters", nargs="*", metavar="FILTER", help="plant only bugs in which each of them occurs")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="bugs side by side; default: %(default)s")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds for the tests of a bug; default: %(default)s"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="plant at most N bugs, drawn from all")
    parser.add_argument("--seed", type=int, default=0, help="which sample; default: %(default)s")
    options = parser.parse_args()
    begun = time.monotonic()
    gpu = _warm()
    found = bugs(CHECKOUT, options.filters)
    unfit, adrift = moved(found, CHECKOUT)
    for bug in unfit:
        print(f"moved: {bug} ({bug.misfit(CHECKOUT)})")
    for file in adrift:
        print(f"MOVED: more than a quarter of the bugs of {file}; adjust their texts in {TABLES}")
    fit = [bug for bug in found if bug not in unfit]
    chosen = [bug for bug in fit if gpu or not bug.gpu]
    for_gpu = len(fit) - len(chosen)
    if options.sample:
        every, chosen = len(chosen), sample(chosen, options.sample, options.seed)
        print(f"A sample: {len(chosen)} of {every} bugs, with --seed {options.seed}.")
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("fork"), _end_with_parent) as workers:
        unnoticed = plant(chosen, CHECKOUT, partial(run, limit_s=options.limit), workers.map)
    for bug in unnoticed:
        print(f"not noticed: {bug}")
    print(
        f"{len(chosen) - len(unnoticed)} of {len(chosen)} noticed, {time.monotonic() - begun:.0f} s; "
        f"{for_gpu} need a GPU, {len(unfit)} have moved."
    )
    sys.exit(bool(unnoticed or adrift))


if __name__ == "__main__":
    main()
