"""The two forms of the picker: the widget, and a table with a picture if anywidget is missing, as it is on Kaggle."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from helpers.choosing.picker.compiler import answered
from helpers.choosing.picker.model import State, state
from helpers.choosing.picker.view import as_html, as_table

if TYPE_CHECKING:
    from helpers.choosing.picker.widget import Picker

HINT = (
    "Controls need the package anywidget and, once it is installed, a restart of the kernel. Without it, ask again in "
    "a cell: picker.show(n_cols, n_rows, dtype, gpu)."
)


class Plain:
    """A question with its answer as a table and a picture, without controls."""

    def __init__(self, asked: State) -> None:
        self.state = answered(asked)

    def __repr__(self) -> str:
        return f"{as_table(self.state)!r}\n{HINT}"

    def _repr_html_(self) -> str:
        return f"{as_html(self.state)}<p>{HINT}</p>"


def form(has_anywidget: bool) -> type[Picker] | type[Plain]:
    """The class that shows a State."""
    if not has_anywidget:
        return Plain
    from helpers.choosing.picker.widget import Picker

    return Picker


def show(
    n_cols: int = 4096, n_rows: int | None = None, dtype: object = "fp32", gpu: str | None = None
) -> Picker | Plain:
    """The picker, set to this question, as the value of a notebook cell.

    By default `n_rows` is the number that fills the GPU. `gpu` is a GPU's name or its architecture; by default it is
    the GPU here, or the recorded one if there is none. Raises ValueError and TypeError as `state` does.
    """
    return form(find_spec("anywidget") is not None)(state(n_cols, n_rows, dtype, gpu))
