"""What all tests share. Importing helpers here, before any test module, lets them import triton in any order."""

import pytest

import helpers  # noqa: F401


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the tables that tests have recorded, each under its title."""
    for report in terminalreporter.stats.get("passed", []):
        for title, table in getattr(report, "user_properties", []):
            terminalreporter.section(title)
            terminalreporter.write_line(table)
