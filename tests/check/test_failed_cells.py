"""A check after a cell that failed, in a real IPython shell: it says so first, and which version is judged."""

import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers.check import failed_cells

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")

RIGHT = "import torch\ndef my_softmax(x):\n    return torch.softmax(x, dim=1)"
WRONG = "import torch\ndef my_softmax(x):\n    return torch.exp(x) / torch.exp(x).sum(dim=1, keepdim=True)"
NO_COLON = "def my_softmax(x)\n    return x"
CHECK = "from helpers import check\nreport = check.eager(my_softmax)"
WHAT_TO_DO = "Judged here is an earlier version. Repair that cell, run it, and then run this check again."


@pytest.fixture
def cells(monkeypatch):
    """Runs cells one after the other; the value of `report` after the last of them, or None."""
    shell = InteractiveShell.instance()
    monkeypatch.setattr(failed_cells, "_said", {})
    monkeypatch.setattr(failed_cells, "_running", "")
    failed_cells.watch()

    def run(*texts):
        for text in texts:
            shell.run_cell(text)
        return shell.user_ns.pop("report", None)

    yield run
    InteractiveShell.clear_instance()


def failed(report):
    """What a report says of a cell that failed, without what is to be done."""
    return report.failed_cell.removesuffix(WHAT_TO_DO).strip()


def test_after_a_syntax_error_the_failed_cell_comes_first_and_the_earlier_version_is_judged(cells):
    report = cells(WRONG, NO_COLON, CHECK)
    assert failed(report) == (
        "The last run of the cell that defines my_softmax failed: SyntaxError: expected ':' (line 1: `def "
        "my_softmax(x)`)."
    )
    assert str(report).splitlines()[0] == report.failed_cell
    assert report._repr_html_().index("The last run") < report._repr_html_().index("The maximum is not subtracted.")
    assert report.diagnosis.id == "no_maximum"


def test_an_earlier_version_that_is_right_keeps_its_points(cells):
    report = cells(RIGHT, NO_COLON, CHECK)
    assert report.failed_cell and report.points == report.max_points


def test_nothing_is_said_where_the_cell_has_run_again(cells):
    assert cells(WRONG, NO_COLON, RIGHT, CHECK).failed_cell == ""


@pytest.mark.thinned
@pytest.mark.parametrize(
    "text",
    [
        "dfe my_softmax(x):\n    return x",
        "x = 1\n  def my_softmax(x):\n    return x",
        "def my_softmax(x):\n    return (x",
        "%%time\ndef my_softmax(x)\n    return x",
        "import torch\n1 / 0\ndef my_softmax(x):\n    return x",
        "@torch.no_such_decorator\ndef my_softmax(x):\n    return x",
        "if 1 / 0:\n    def my_softmax(x):\n        return x",
        "my_softmax = 1 / 0",
        "my_softmax: int = (",
    ],
    ids=[
        "misspelt def",
        "indented",
        "open bracket",
        "magic",
        "stops before",
        "decorator",
        "in a branch",
        "value",
        "open",
    ],
)
def test_a_cell_that_fails_before_or_at_the_definition_has_failed(cells, text):
    assert "my_softmax failed" in cells(RIGHT, text, CHECK).failed_cell


@pytest.mark.thinned
@pytest.mark.parametrize(
    "text",
    [
        "def my_softmax(x):\n    return x\n\n\n1 / 0",
        "print(my_softmax(",
        "def other(x)\n    my_softmax(x)",
        "my_softmax(1 / 0)",
    ],
    ids=["stops after", "a call", "another function", "an argument"],
)
def test_a_cell_that_fails_otherwise_leaves_the_definition_alone(cells, text):
    assert cells(RIGHT, text, CHECK).failed_cell == ""


def test_the_line_is_that_of_the_cell_where_a_statement_stops(cells):
    report = cells(RIGHT, "import torch\nlimit = torch.finfo(torch.int32)\ndef my_softmax(x):\n    return x", CHECK)
    assert failed(report).endswith("(line 2: `limit = torch.finfo(torch.int32)`).")


def test_a_function_or_kernel_that_the_answer_uses_counts_as_the_answer(cells):
    calls = "def my_softmax(x):\n    return step(x)"
    report = cells("import torch\ndef step(x):\n    return torch.exp(x)", calls, "def step(x:\n    return x", CHECK)
    assert "defines step failed" in report.failed_cell


def test_values_are_known_by_the_name_in_the_check(cells):
    values = "import torch\nlimits = {torch.float32: 100.0, torch.bfloat16: 1.0, torch.float16: 1.0}"
    report = cells(values, "limits = {", "from helpers import check\nreport = check.overflow(limits)")
    assert "defines limits failed: SyntaxError" in report.failed_cell


def test_where_there_is_no_earlier_version_it_is_said_what_to_do(cells, capsys):
    assert cells(NO_COLON, CHECK) is None
    assert capsys.readouterr().out.endswith(
        "my_softmax has no value yet: the last run of the cell that defines it failed: SyntaxError: expected ':' (line "
        "1: `def my_softmax(x)`). Repair that cell, run it, and then run this one again.\n"
    )


def test_a_name_that_nothing_defines_is_left_to_python(cells, capsys):
    cells("def other(x)\n    return x", "nowhere")
    assert "has no value yet" not in capsys.readouterr().out


def test_without_a_notebook_nothing_is_said():
    failed_cells.watch()
    assert failed_cells.earlier_version("eager", len) == ""


A_NOTEBOOK_S = """
import sys, types
from IPython.core.interactiveshell import InteractiveShell
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
watched = InteractiveShell.instance().events.callbacks["post_run_cell"]
from helpers import banner, check
from helpers.check import failed_cells
from helpers.engine import child
for ask in (lambda: None, {ask}):
    ask()
    print(failed_cells._has_run in watched, bool(child._children))
"""


@pytest.mark.parametrize("ask", ["banner", "lambda: check.eager(None)"])
def test_an_import_watches_no_cell_and_starts_no_process_before_a_cell_asks(ask, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", A_NOTEBOOK_S.format(ask=ask)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["False False", "True True"], done.stderr
