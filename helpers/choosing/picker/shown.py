"""`show`: the picker as a widget, or in its plain form where anywidget is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from helpers.choosing.picker.model import state
from helpers.choosing.picker.plain import Plain

if TYPE_CHECKING:
    from helpers.choosing.picker.widget import Picker


def form(has_anywidget: bool) -> type[Picker] | type[Plain]:
    """What shows a State."""
    if not has_anywidget:
        return Plain
    from helpers.choosing.picker.widget import Picker

    return Picker


def show(
    n_cols: int = 4096, n_rows: int | None = None, dtype: object = "fp32", gpu: str | None = None
) -> Picker | Plain:
    """The picker, set to this question, as the value of a notebook cell.

    `n_rows` is by default the number that fills the GPU. `gpu` is a GPU's name or its architecture, by default the
    GPU here, or the recorded one. Raises ValueError and TypeError as `state` does.
    """
    return form(find_spec("anywidget") is not None)(state(n_cols, n_rows, dtype, gpu))
