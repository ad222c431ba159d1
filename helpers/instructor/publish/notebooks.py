"""Reading and writing notebooks so that the same content is always the same bytes.

nbformat, which takes a second to import, is loaded where a notebook is read or written.
"""

from __future__ import annotations

import json
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

KEPT_CELL_METADATA = {"nbgrader", "tags", "deletable", "editable"}
KEPT_NOTEBOOK_METADATA = {"language_info"}
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class NotebookError(ValueError):
    """A notebook that an author has to repair; the message names the notebook and the cell."""


def label(path: Path) -> str:
    """Names a notebook by its folder and file, as `solutions/01_x.ipynb`."""
    return f"{path.absolute().parent.name}/{path.name}"


def place(name: str, index: int, cell: dict) -> str:
    """Says where a cell stands: notebook, number counted from 1, and id."""
    return f"{name}, cell {index + 1} (id {cell.get('id', 'missing')})"


def require_ids(nb: dict, name: str) -> None:
    """Refuses a notebook whose cells nbformat would give new, random ids each time it is read.

    Raises NotebookError for a notebook older than nbformat 4.5, and for a cell id that is missing or used twice.
    """
    version = nb.get("nbformat", 0), nb.get("nbformat_minor", 0)
    if version < (4, 5):
        found = ".".join(map(str, version))
        raise NotebookError(f"{name} is nbformat {found}, which has no cell ids: save it as 4.5 (JupyterLab does).")
    uses = Counter(cell.get("id") for cell in nb["cells"])
    for index, cell in enumerate(nb["cells"]):
        if not cell.get("id"):
            raise NotebookError(f"{place(name, index, cell)} has no id: open and save the notebook in JupyterLab.")
        if uses[cell["id"]] > 1:
            raise NotebookError(f"{place(name, index, cell)} shares its id with another cell: give it its own.")


def read_notebook(path: Path) -> NotebookNode:
    """Reads a notebook with cell ids.

    Raises NotebookError for a file that is not a notebook, and as `require_ids` does.
    """
    import nbformat

    text = path.read_text(encoding="utf-8")
    try:
        require_ids(json.loads(text), label(path))
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise NotebookError(f"{label(path)} is not a notebook: {error!r}.") from error
    return nbformat.reads(text, as_version=4)


def normalised(nb: NotebookNode) -> NotebookNode:
    """A copy without what changes from one run, editor or machine to the next.

    Removed: all metadata but nbgrader's, tags and locks (so execution timestamps and widget state go),
    `language_info.version`, and widget views, which point into the removed state; their text stays.
    Neighbouring pieces of one stream, cut where the kernel happened to flush, are joined.
    The kernelspec becomes the plain `python3` that every Jupyter resolves to its own Python.
    """
    import nbformat

    nb = deepcopy(nb)
    nb.metadata = nbformat.from_dict(
        {key: nb.metadata[key] for key in KEPT_NOTEBOOK_METADATA if key in nb.metadata} | {"kernelspec": KERNELSPEC}
    )
    nb.metadata.get("language_info", {}).pop("version", None)
    for cell in nb.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA})
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET_VIEW, None)
                output.get("metadata", {}).pop(WIDGET_VIEW, None)
    return nb


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    joined = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and output.name == last.get("name"):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def to_bytes(nb: NotebookNode) -> bytes:
    """The file's content: keys sorted, one newline at the end, the same on every system."""
    import nbformat

    return (nbformat.writes(nb).rstrip("\n") + "\n").encode()
