"""A course with one tiny notebook, for tests of the rules that notebooks keep and of the tools that make them."""

from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.instructor.publish.notebooks import normalised, read_notebook, to_bytes

ANSWER = """def double(x):
    doubled = x
    ### BEGIN SOLUTION
    doubled = x + 1.0 * x
    ### END SOLUTION
    return doubled"""
HINTS = "\n".join(
    f"<details><summary>Hint {number} · {symptom}</summary>…</details>"
    for number, symptom in enumerate(("zero", "NaN", "too large"), start=1)
)

SHUFFLED = "<details><summary>Hint 4 · The lines, out of order</summary>Sort them.<pre>{}</pre></details>"


def nbgrader(grade_id: str, **metadata: object) -> dict:
    """nbgrader's metadata of one cell."""
    return {
        "nbgrader": {"schema_version": 3, "grade_id": grade_id, "grade": False, "solution": False, "locked": False}
        | metadata
    }


def tiny() -> NotebookNode:
    """One exercise that keeps to every rule, as if it had been executed."""
    result = new_output("execute_result", {"text/plain": "2"}, execution_count=3)
    return normalised(
        new_notebook(
            cells=[
                new_markdown_cell("# How long is a row?", id="title"),
                new_code_cell("print('a')", id="run", execution_count=1, outputs=[new_output("stream", text="a\n")]),
                new_code_cell(ANSWER, id="answer", execution_count=2, metadata=nbgrader("double", solution=True)),
                new_code_cell(
                    "from helpers import check\n\ncheck.double(double)",
                    id="check",
                    execution_count=3,
                    outputs=[result],
                    metadata=nbgrader("double-check", grade=True, locked=True, points=2),
                ),
                new_markdown_cell(HINTS, id="hints"),
            ]
        )
    )


def edit(path: Path, change: Callable[[NotebookNode], object]) -> None:
    """Store a notebook after a change."""
    nb = read_notebook(path)
    change(nb)
    path.write_bytes(to_bytes(nb))


def set_source(index: int, source: str) -> Callable[[NotebookNode], None]:
    """A change of one cell's source."""
    return lambda nb: nb.cells[index].update(source=source)


def add_cells(number: int) -> Callable[[NotebookNode], None]:
    """A change that appends text cells."""
    return lambda nb: nb.cells.extend(new_markdown_cell("…") for _ in range(number))
