"""Jobs: each submission is graded in a process of its own, which has an end, so that none holds up the next one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from helpers.instructor.sandbox import walls

MOST_CLOCK_S = 3_600
"""Seconds on the clock after which the system ends a job, whatever happens in it. Its sandboxes end long before."""
_FORK = get_context("fork")


class Died(RuntimeError):
    """The process of a job has ended without a result."""


class Endless(RuntimeError):
    """The process of a job was ended, because it did not end by itself."""


class Job:
    """`work`, called in a process that is forked from this one and ends with it; Ctrl-C is for this one alone."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.told, tell = _FORK.Pipe(duplex=False)
        """Can be read from when there is an outcome."""
        self._process = _FORK.Process(target=_do, args=(work, tell), daemon=True)
        self._process.start()
        tell.close()

    def outcome(self) -> Any:
        """What `work` returns, waited for. Raises what it raises, Died, and Endless."""
        try:
            returned, found = self.told.recv()
        except EOFError:
            self._process.join()
            if self._process.exitcode == -signal.SIGALRM:
                raise Endless(f"its grader did not come to an end within {MOST_CLOCK_S:,} seconds") from None
            raise Died("its grader ended without a result") from None
        finally:
            self.end()
        if returned:
            return found
        raise found

    def end(self) -> None:
        """Ends the process, if it has not ended by itself."""
        self._process.kill()
        self._process.join()
        self.told.close()


def _do(work: Callable[[], Any], tell: Any) -> None:
    walls.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with limited():
        try:
            found = True, work()
        except Exception as error:
            found = False, error
        tell.send(found)


@contextmanager
def limited() -> Iterator[None]:
    """The block may take MOST_CLOCK_S seconds, or the system ends this process."""
    signal.alarm(MOST_CLOCK_S)
    try:
        yield
    finally:
        signal.alarm(0)
