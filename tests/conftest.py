"""What all tests share. Importing helpers here, before any test module, lets them import triton in any order."""

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Iterator

import pytest

# Workers and the notebooks' kernels share the cores, which OpenMP's threads would spend waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TQDM_DISABLE", "1")  # whether a bar shows depends on how busy the machine is

import leaks
import thinning
from helpers.check import kept
from helpers.engine import notes


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job ignores SIGINT; asyncio gives back Python's own handler, whatever was there before."""
    if not hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """--every N --shift K, for a run that has no time for all proofs."""
    parser.addoption("--every", type=int, default=1, help="run one proof in N")
    parser.addoption("--shift", type=int, default=0, help="which of them")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A notebook's cells stay in their order, however tests are shuffled; of thinned tests most cases are proofs."""
    of_test = defaultdict(list)
    for item in items:
        if item.path.suffix == ".ipynb":
            item.add_marker(pytest.mark.random_order(disabled=True))
        if item.get_closest_marker("thinned") and not item.get_closest_marker("proof"):
            of_test[item.nodeid.partition("[")[0]].append(item)
    for cases in of_test.values():
        run = thinning.few([case.nodeid for case in cases], *cases[0].get_closest_marker("thinned").args)
        for case in cases:
            if case.nodeid not in run:
                case.add_marker(pytest.mark.proof)
    proofs = [item.nodeid for item in items if item.get_closest_marker("proof")]
    left_out = set(proofs) - set(thinning.part(proofs, config.option.every, config.option.shift))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """What is collected stays to the end, so the garbage collector leaves it alone: collecting takes 7 s, not 12."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that tests have recorded, each under its title, and what was not run, a line for each reason."""
    for report in terminalreporter.stats.get("passed", []):
        for title, table in getattr(report, "user_properties", []):
            terminalreporter.section(title)
            terminalreporter.write_line(table)
    skipped = defaultdict(int)
    for report in terminalreporter.stats.get("skipped", []):
        skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1
    proofs_left_out = terminalreporter.config.option.markexpr == "not proof"
    if skipped or proofs_left_out:
        terminalreporter.section("not run")
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"{count:5} {reason}")
    if proofs_left_out:
        terminalreporter.write_line("      proofs: make proofs")


@pytest.fixture(autouse=True, scope="session")
def notes_go_to_a_folder_of_the_tests(tmp_path_factory):
    """What lessons note beside their notebooks does not come to lie in the checkout."""
    notes._folder, before = tmp_path_factory.mktemp("notes"), notes._folder
    yield
    notes._folder = before


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_behind_by_the_module():
    """Fixtures of a module end what they have begun."""
    yield from _watched()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """A test leaves this process as it was."""
    yield from _watched()


def _watched():
    before = leaks.state()
    yield
    if found := leaks.found_after(before):
        leaks.restore(before)
        pytest.fail(f"left behind: {'; '.join(found)}", pytrace=False)


@pytest.fixture
def nothing_passed_yet(monkeypatch, tmp_path):
    """No check has passed in this process, and what is passed now is noted in a folder that goes away."""
    monkeypatch.setattr(kept, "_passed", {})
    monkeypatch.setattr(kept, "_last_checked", [])
    monkeypatch.setattr(notes, "_unwritten", {})
    monkeypatch.setattr(notes, "_folder", tmp_path)
    monkeypatch.chdir(tmp_path)
