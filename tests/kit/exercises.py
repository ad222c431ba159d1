"""The exercises of the notebooks: their starter code, their solutions, and answers made of these.

For each cell that calls `check.NAME(answer)`, the cells before it are run from the one that a learner fills in, in
lessons/ as handed out and in solutions/ as solved.
"""

import contextlib
import io
import itertools
import json
import linecache
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GIVEN = (
    "setup", "driver", "xray", "one-trip-words", "parts", "decode", "picking", "pick-tiles", "parting",
    "in-place", "operator-given",
)  # fmt: skip
"""The ids of cells that are given to the exercises after them, and of the one answer that another answer takes up."""


@dataclass(frozen=True)
class Exercise:
    """Cells of a notebook that define `answer`, which the notebook gives to check.`name` for `points`."""

    name: str
    answer: str
    points: float
    cells: tuple[str, ...]

    def answered(self, *replaced, code=""):
        """Runs the cells and `code` after them, and returns what they define as the answer.

        `replaced` are pieces of text and what is to stand in their place: old, new, old, new, …
        """
        cells = list(self.cells)
        for old, new in zip(replaced[::2], replaced[1::2], strict=True):
            assert any(old in cell for cell in cells), f"the cells of {self.name} do not contain {old!r}"
            cells = [cell.replace(old, new) for cell in cells]
        namespace = {"__name__": "notebook"}
        for cell in filter(None, [*cells, code]):
            _run_cell(cell, namespace)
        return namespace[self.answer]

    def variant(self, variant):
        """The answer as one of corpus.py has it, wrong or right."""
        return self.answered(*variant.replaced, code=variant.code)


_numbers = itertools.count()


def _run_cell(text, namespace):
    """Runs a cell as Jupyter does: its source can be found again by name, and what it prints is not ours."""
    name = f"<cell {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, name, "exec"), namespace)


def exercises(folder):
    """Every exercise of the notebooks in `folder`, by the name of its check."""
    found = {}
    for path in sorted((ROOT / folder).glob("*.ipynb")):
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
        marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
        for index, text in enumerate(texts):
            if marks[index].get("grade"):
                name, answer = re.search(r"check\.(\w+)\((\w+)\)", text).groups()
                start = max(number for number in range(index) if marks[number].get("solution"))
                given = [texts[number] for number in range(start) if cells[number]["id"] in GIVEN]
                found[name] = Exercise(name, answer, marks[index]["points"], (*given, *texts[start:index]))
    return found


def wrong_findings(report):
    """What a report says of each case that is wrong."""
    return {finding.case: finding.seen for finding in report.findings if not finding.ok}


STUBS, SOLUTIONS = exercises("lessons"), exercises("solutions")


def judged(name, answer, seed=None):
    """The report on an answer that may call what is the course's own, such as the kernel of another lesson."""
    from helpers.check import EXERCISES
    from helpers.check.trial.place import here
    from helpers.engine.isolate import LIMITS

    return EXERCISES[name].report(here(answer, LIMITS), seed)
