"""What all tests share. Importing helpers here, before any test module, lets them import triton in any order."""

import pytest

import helpers  # noqa: F401


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of known mistakes and the cases that reject them, where the suite has made it."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", []):
            if name == "table":
                terminalreporter.section("known mistakes, and the cases that reject them")
                terminalreporter.write_line(value)
