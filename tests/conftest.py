"""What all tests share. Importing helpers here, before any test module, lets them import triton in any order."""

import os

import pytest

# Workers and the notebooks' kernels share the cores, which OpenMP's threads would spend waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from helpers.check import kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that tests have recorded, each under its title."""
    for report in terminalreporter.stats.get("passed", []):
        for title, table in getattr(report, "user_properties", []):
            terminalreporter.section(title)
            terminalreporter.write_line(table)


@pytest.fixture
def nothing_passed_yet(monkeypatch, tmp_path):
    """No check has passed in this process, and what is passed now is noted in a folder that goes away."""
    monkeypatch.setattr(kept, "_passed", {})
    monkeypatch.chdir(tmp_path)
