"""The compiler's report on a State's launch: looked up at once, or compiled in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

from helpers import xray
from helpers.choosing import functions
from helpers.choosing.picker.model import State
from helpers.kernels import DTYPES
from helpers.xray import KernelReport


def look(state: State) -> State:
    """The state with the compiler's report if that is known already, or with the reason why there can be none."""
    try:
        return replace(state, seen=_ask(xray.cached, state))
    except (TypeError, ValueError) as error:
        return replace(state, seen=str(error))


def answered(state: State) -> State:
    """The state with the compiler's report, or with the reason why there is none; waits for the compiler."""
    looked = look(state)
    return looked if looked.seen is not None else _answer(state, _ask(xray.submit, state))


def _answer(state: State, future: Future[KernelReport]) -> State:
    error = future.exception()
    return replace(state, seen=str(error) if error else future.result())


def _ask(function: Callable[..., Any], state: State) -> Any:
    kernel, args, options = functions.compiled_as(state.choice.launch, state.n_cols, DTYPES[state.dtype])
    return function(kernel, *args, target=state.architecture, **options)


class Newest:
    """Compiles for one state at a time. Of the states that wait, the newest is next.

    `done` gets the answered state from another thread, and only if that state is still wanted.
    """

    def __init__(self, done: Callable[[State], None]) -> None:
        self._done = done
        self._turn = threading.Lock()
        self._wanted: State | None = None
        self._busy = False

    def want(self, state: State | None) -> None:
        """Asks for this state in place of the one before; None cancels the request."""
        with self._turn:
            self._wanted = state
            if self._busy or state is None:
                return
            self._busy = True
        self._start(state)

    def _start(self, state: State) -> None:
        _ask(xray.submit, state).add_done_callback(partial(self._finished, state))

    def _finished(self, state: State, future: Future[KernelReport]) -> None:
        known = _answer(state, future)
        with self._turn:
            wanted = self._wanted
            if wanted is not None and wanted != state:
                known = look(wanted)
            self._busy = wanted is not None and known.seen is None
            if not self._busy:
                self._wanted = None
        if self._busy:
            self._start(wanted)
        elif wanted is not None:
            self._done(known)
