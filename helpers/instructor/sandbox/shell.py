"""Runs the cells of a notebook as Jupyter would, except that what fails stops nothing but itself."""

from __future__ import annotations

import ast
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from helpers.check.trial import trial
from helpers.engine import processes
from helpers.instructor.sandbox import parser

STATEMENT_CPU_S, STATEMENT_WAITS_S = 15, 30
"""Seconds of processor time, and of waiting, after which the next statement of a cell is run."""
_LONGEST_LINE = 200
_TIMED = "what a cell defines under %%timeit is gone when the cell ends: leave that line out"


@contextmanager
def within(cpu_s: float, waits_s: float) -> Iterator[None]:
    """Raises TimeoutError in Python code that takes longer. Other code is left to the limits of the sandbox."""
    until = processes.waiting_clock() + waits_s

    def look(number: int, frame: Any) -> None:
        if number == signal.SIGPROF or processes.waiting_clock() > until:
            raise TimeoutError("it takes too long")

    timers = {signal.ITIMER_PROF: (cpu_s, 0), signal.ITIMER_REAL: (min(waits_s, 1.0), min(waits_s, 1.0))}
    before = {number: signal.signal(number, look) for number in (signal.SIGPROF, signal.SIGALRM)}
    for timer, seconds in timers.items():
        signal.setitimer(timer, *seconds)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


class Failure(NamedTuple):
    """What could not be run of a cell: the type of the error, the error in a sentence, its line's number and text."""

    error: str
    said: str
    number: int
    line: str


class CellShell(InteractiveShell):
    """A shell that goes on after a statement at the top level of a cell has failed."""

    system = InteractiveShell.system_raw  # the other way asks for a terminal, which a sandbox does not have
    _failed: list[tuple[int, BaseException]]
    """Of the cell that runs: the line of each statement that has failed, and its error."""

    def run(self, source: str) -> list[Failure]:
        """Runs the statements of a cell, each of them, and returns what failed, in order."""
        self._failed = []
        text = parser.untimed(parser.with_line_ends(source))
        if timed := re.match(r"\s*(%%timeit\b.*)", text):
            return [Failure("UsageError", _TIMED, 1 + text.count("\n", 0, timed.start(1)), timed[1][:_LONGEST_LINE])]
        result = self.run_cell(text, store_history=False, silent=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            self._failed.append((getattr(error, "lineno", None) or 0, error))
        return [_failure(number, error, text) for number, error in self._failed]

    def ask_exit(self) -> None:
        """What `exit()` does. In a notebook it ends the kernel."""
        raise RuntimeError("exit() ends the kernel of a notebook; here it ends nothing")

    async def run_ast_nodes(
        self,
        nodelist: Sequence[ast.stmt],
        cell_name: str,
        interactivity: str = "none",
        compiler: Callable = compile,
        result: ExecutionResult | None = None,
    ) -> bool:
        """See InteractiveShell. Never ends before the last statement."""
        for node in nodelist:
            one = ExecutionResult(None)
            with within(STATEMENT_CPU_S, STATEMENT_WAITS_S):
                await super().run_ast_nodes([node], cell_name, "none", compiler, one)
            error = one.error_before_exec or one.error_in_exec
            if error is not None:
                self._failed.append((node.lineno, error))
        return bool(self._failed)

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        """See InteractiveShell. Nobody reads it here."""

    def showsyntaxerror(self, *args: Any, **kwargs: Any) -> None:
        """See InteractiveShell."""


def _failure(number: int, error: BaseException, text: str) -> Failure:
    """A failure in line `number` of what IPython has made of the cell `text`, with the line as it was written.

    IPython gives no line, 0, if it cannot read the cell.
    """
    said = error.msg if isinstance(error, SyntaxError) else None
    written = _lines_of(text)
    try:
        made = _lines_of(parser.as_python(text))
    except parser.NotPython as unread:
        made = written
        if not number:
            number, said = unread.line, f"Jupyter cannot read this line ({unread})"
            return Failure(type(error).__name__, said, number, _shown(written, number))
    above = next((index for index, line in enumerate(written) if line.strip()), 0)  # empty lines, which it leaves out
    if len(written) - above == len(made):
        number, lines = number + above, written
    else:  # a magic over several lines is one line now
        lines = made
    return Failure(type(error).__name__, trial.sentence(error, said), number, _shown(lines, number))


def _lines_of(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _shown(lines: Sequence[str], number: int) -> str:
    return lines[number - 1].strip()[:_LONGEST_LINE] if 0 < number <= len(lines) else ""
