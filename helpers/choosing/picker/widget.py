"""The widget: its controls run in the browser (widget.js), and Python renders the card again when one of them moves.

The controls are our own because ipywidgets' did not do the same work. Measured on 2026-11-27 with the same card
in an `ipywidgets.HTML` (ipywidgets 8.1.9, JupyterLab 4.6.6, axe-core 4.12.1, Chromium, two busy cores):

| | ours | ipywidgets |
|---|---|---|
| violations that axe-core finds | none | one, serious: the slider's handle has no name |
| what the slider announces for 4,096 columns | "4,096 columns" | "142", the index of the stop |
| the keys d, d on a menu of the picker | nothing happens | JupyterLab deletes the cell with the picker |
| from moving the slider to the changed card, median, worst | 2 ms, 114 ms | 38 to 50 ms, 208 ms |
| cards shown while 90 events dragged the slider from end to end | 90 | 45 to 55 |

The name and the keys can only be repaired by a script in the browser, and the waiting by fetching cards beforehand.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from helpers.choosing.picker import model
from helpers.choosing.picker.compiler import Newest, look
from helpers.choosing.picker.model import State, state
from helpers.choosing.picker.view import as_card, as_html, as_table
from helpers.kernels import DTYPES

_ASKED = ("n_cols", "n_rows", "dtype", "gpu")


class Picker(anywidget.AnyWidget):
    """The picker. Its question can also be read and set in Python, as in `widget.n_cols = 781`."""

    _esm = Path(__file__).with_name("widget.js")
    _css = Path(__file__).with_name("widget.css")

    n_cols = traitlets.Int().tag(sync=True, echo_update=False)
    n_rows = traitlets.Int(allow_none=True).tag(sync=True, echo_update=False)
    dtype = traitlets.Unicode().tag(sync=True, echo_update=False)
    gpu = traitlets.Unicode().tag(sync=True, echo_update=False)
    card = traitlets.Unicode().tag(sync=True)
    options = traitlets.Dict().tag(sync=True)

    def __init__(self, asked: State) -> None:
        self._loop = _running_loop()
        self._newest = Newest(self._compiled)
        self.state = asked
        super().__init__(**{name: getattr(asked, name) for name in _ASKED}, options=options(asked))
        self._ask()
        self.observe(self._ask, _ASKED)
        self.on_msg(self._send_cards)

    @traitlets.validate(*_ASKED)
    def _valid(self, proposal: Any) -> Any:
        asked = {name: getattr(self.state, name) for name in _ASKED} | {proposal.trait.name: proposal.value}
        try:
            return getattr(state(**asked), proposal.trait.name)
        except (TypeError, ValueError) as error:
            raise traitlets.TraitError(str(error)) from None

    def _ask(self, _: Any = None) -> None:
        self._show(look(State(*(getattr(self, name) for name in _ASKED))))
        self._newest.want(self.state if self.state.seen is None else None)

    def _show(self, shown: State) -> None:
        self.state, self.card = shown, as_card(shown)

    def _send_cards(self, _: Any, wanted: dict[str, Any], __: Any) -> None:
        """Sends the cards of other lengths, so that the browser can show them at once while the thumb moves."""
        states = (look(state(n_cols, **wanted["settings"])) for n_cols in wanted["lengths"])
        self.send({"settings": wanted["settings"], "cards": [[found.n_cols, as_card(found)] for found in states]})

    def _compiled(self, answered: State) -> None:
        if self._loop:
            self._loop.call_soon_threadsafe(self._fill_in, answered)
        else:
            self._fill_in(answered)

    def _fill_in(self, answered: State) -> None:
        if replace(answered, seen=None) == replace(self.state, seen=None):
            self._show(answered)

    def __repr__(self) -> str:
        return repr(as_table(self.state))

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict, dict] | None:
        """The widget, with a table and a picture that a notebook without a running kernel shows in its place."""
        data, metadata = super()._repr_mimebundle_(**kwargs)
        return data | {"text/html": as_html(self.state), "text/plain": repr(self)}, metadata


def options(asked: State) -> dict[str, Any]:
    """The choices in the browser, as [value, label]. An uncommon number of rows or GPU is added to them."""
    rows = sorted({*model.ROW_COUNTS, asked.n_rows} - {None})
    targets = model.targets() | {asked.gpu: model.targets().get(asked.gpu, asked.gpu)}
    return {
        "lengths": model.LENGTHS,
        "common": [[n_cols, f"{n_cols:,} · {name}"] for n_cols, name in model.COMMON.items()],
        "dtypes": [[name, name] for name in DTYPES],
        "rows": [*([rows, f"{rows:,}"] for rows in rows), [None, "enough to fill the GPU"]],
        "targets": list(map(list, targets.items())),
    }


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the notebook's kernel. Only the loop's thread may change the widget."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
