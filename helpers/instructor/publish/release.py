"""Solutions → lessons: the same notebooks with the answers, outputs and marks of execution taken out.

The work is done by nbgrader's own preprocessors, in the order of `nbgrader generate_assignment`, but without its
database and its one-folder-per-assignment layout. nbgrader is loaded by name, when the first lesson is generated:
a machine without it can import this module.

A region becomes `CODE_STUB`. Where the starter code needs something else to run, the author writes it outside
the region, as in `y = x` before a region that assigns `y` again.
"""

import ast
import logging
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode
from traitlets.config import Config

from helpers.instructor.publish.notebooks import NotebookError, label, normalised, place, read_notebook, require_ids

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"
CODE_STUB = "# your code here\npass"
TEXT_STUB = "*Your answer here.*"
PREPROCESSORS = [
    f"nbgrader.preprocessors.{name}"
    for name in (
        "LockCells",
        "ClearSolutions",
        "ClearOutput",
        "CheckCellMetadata",
        "ClearHiddenTests",
        "ClearMarkScheme",
        "ComputeChecksums",
        "CheckCellMetadata",
    )
]
_LOG = logging.getLogger(__name__)
_LOG.addFilter(lambda record: record.levelno == logging.WARNING)  # nbgrader raises whatever it logs above


def config() -> Config:
    """The nbgrader settings of this course; an instructor's `nbgrader_config.py` needs the same."""
    return Config(ClearSolutions={"code_stub": {"python": CODE_STUB}, "text_stub": TEXT_STUB})


def require_regions(nb: NotebookNode, name: str) -> None:
    """Refuses a notebook of which nbgrader would clear too much or too little.

    nbgrader empties a solution cell without a region altogether, and ignores an END without a BEGIN.

    Raises NotebookError for markers that do not alternate, a solution cell without a region, and the reverse.
    """
    for index, cell in enumerate(nb.cells):
        where = place(name, index, cell)
        markers = [mark for line in cell.source.splitlines() for mark in (BEGIN, END) if mark in line]
        if markers != [BEGIN, END] * (len(markers) // 2):
            raise NotebookError(f"{where}: every '### {BEGIN}' needs one '### {END}' after it, and none inside it.")
        is_solution = cell.metadata.get("nbgrader", {}).get("solution", False)
        if is_solution and not markers:
            raise NotebookError(
                f"{where} is a solution cell without '### {BEGIN}' and '### {END}': nbgrader would clear all of it."
            )
        if markers and not is_solution:
            raise NotebookError(f"{where} has a solution region, but is not marked as a solution cell (nbgrader).")


def require_python(nb: NotebookNode, name: str) -> None:
    """Refuses starter code that is not Python once the answer is out.

    Raises NotebookError for a code cell that does not parse.
    """
    for index, cell in enumerate(nb.cells):
        if cell.cell_type == "code":
            try:
                ast.parse(TransformerManager().transform_cell(cell.source))
            except SyntaxError as error:
                where = f"{place(name, index, cell)}, line {error.lineno}"
                raise NotebookError(f"{where} is not valid Python in the lesson: {error.msg}.") from error


def _export(solution: NotebookNode, name: str) -> str:
    from nbconvert.exporters import NotebookExporter

    require_ids(solution, name)
    solution = normalised(solution)
    require_regions(solution, name)
    try:
        exporter = NotebookExporter(config=config(), log=_LOG, default_preprocessors=[], preprocessors=PREPROCESSORS)
    except ModuleNotFoundError as error:
        raise NotebookError(f"Lessons are generated with nbgrader, which is not installed here ({error}).") from error
    try:
        text, _ = exporter.from_notebook_node(solution)
    except Exception as error:  # nbgrader raises RuntimeError, jsonschema's and its own errors, naming no notebook
        cause = error.__context__ or error
        reason = (getattr(cause, "message", "") or str(cause) or repr(cause)).splitlines()[0]
        raise NotebookError(f"{name}: nbgrader refuses it: {reason}") from error
    require_python(nbformat.reads(text, as_version=4), name)
    return text


def release(solution: NotebookNode, name: str = "the notebook") -> NotebookNode:
    """The lesson that a solution generates; the solution is left as it is.

    `solution` is a notebook of nbformat 4.5 or later, which error messages call `name`. Raises NotebookError where it
    has to be repaired, and where nbgrader is not installed.
    """
    return nbformat.reads(_export(solution, name), as_version=4)


def release_bytes(path: Path) -> bytes:
    """The content of the lesson file that the solution at `path` generates: always the same bytes.

    Raises NotebookError as `release` does.
    """
    return _export(read_notebook(path), label(path)).encode()


def _lessons(solutions_dir: Path, lessons_dir: Path) -> dict[Path, bytes]:
    sources = sorted(solutions_dir.glob("*.ipynb"))
    if not sources:
        raise NotebookError(f"{solutions_dir.name}/ has no notebook, so no lessons can be generated.")
    return {lessons_dir / source.name: release_bytes(source) for source in sources}


def write_lessons(solutions_dir: Path, lessons_dir: Path) -> list[Path]:
    """Generates every lesson, deletes lessons that have no solution, and returns the paths written.

    Nothing is written or deleted unless every solution can be released. Raises NotebookError where a solution has to be
    repaired, and where there is none.
    """
    lessons = _lessons(solutions_dir, lessons_dir)
    lessons_dir.mkdir(parents=True, exist_ok=True)
    for surplus in set(lessons_dir.glob("*.ipynb")) - set(lessons):
        surplus.unlink()
    for path, content in lessons.items():
        path.write_bytes(content)
    return list(lessons)


def check_lessons(solutions_dir: Path, lessons_dir: Path) -> list[str]:
    """Compares every lesson with what its solution generates; one sentence for each that is not the same bytes.

    Raises NotebookError where a solution has to be repaired, and where there is none.
    """
    lessons = _lessons(solutions_dir, lessons_dir)
    complaints = []
    for path in sorted(set(lessons) | set(lessons_dir.glob("*.ipynb"))):
        lesson, source = label(path), f"{solutions_dir.name}/{path.name}"
        if path not in lessons:
            complaints.append(f"{lesson} has no {source}: run `make lessons` to delete it.")
        elif not path.exists():
            complaints.append(f"{lesson} is missing: run `make lessons` to generate it from {source}.")
        elif path.read_bytes() != lessons[path]:
            complaints.append(
                f"{lesson} is not what {source} generates: edit only the solution and run `make lessons`."
            )
    return complaints
