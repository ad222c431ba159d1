"""The picker where anywidget is missing, as on Kaggle: one question and its answer, without controls."""

from __future__ import annotations

from helpers.choosing.picker.compiling import answered
from helpers.choosing.picker.model import State
from helpers.choosing.picker.view import as_html, as_table

HINT = (
    "Controls need the package anywidget and, once it is installed, a restart of the kernel. Without it, ask again in "
    "a cell: picker.show(n_cols, n_rows, dtype, gpu)."
)


class Plain:
    """A question with its answer as a table and a picture."""

    def __init__(self, asked: State) -> None:
        self.state = answered(asked)

    def __repr__(self) -> str:
        return f"{as_table(self.state)!r}\n{HINT}"

    def _repr_html_(self) -> str:
        return f"{as_html(self.state)}<p>{HINT}</p>"
