"""What Linux says about other processes: which started which, how much processor time they took, and whether they wait.

A limit on a learner's code is a limit on processor time, which does not depend on how busy the machine is. The clock
ends only a process that waits: one that wants a processor and does not get one is not waiting.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_LONGEST_LOOK_S = 1.0
"""Seconds that one look can add: on a busy machine whoever looks gets no processor either, and sees little."""
_WANTS_A_PROCESSOR = "RD"
"""The states of a thread that runs, is ready to run, or is about to be once its memory or its disk has answered."""


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, the processes that these have started, and so on."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        current = waiting.pop()
        try:
            for task in os.listdir(f"/proc/{current}/task"):
                waiting += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
        except OSError:
            continue
        found.append(current)
    return found[1:]


def started_with(variable: str) -> list[int]:
    """The processes that began with this variable of the environment, such as "A=1", or whose parents did: orphans
    too."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def processor_time_of(pids: Iterable[int]) -> float:
    """Seconds of processor time that processes and their ended children have taken."""
    ticks = sum(sum(map(int, fields[11:15])) for pid in pids if (fields := _stat(f"/proc/{pid}/stat")))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait(pids: Iterable[int]) -> bool:
    """True if every thread of these processes sleeps, or waits for another process."""
    return not any(state in _WANTS_A_PROCESSOR for pid in pids for state in _states(pid))


def waiting_clock() -> float:
    """A clock of the calling thread, in seconds, that stands still while the thread runs or is ready to run."""
    try:
        ready_s = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):  # a kernel that does not keep it
        ready_s = 0.0
    return time.monotonic() - time.thread_time() - ready_s


class Watch:
    """Adds up the seconds that processes take from now on; `pids` tells which. It looks several times a second."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self.worked_s = 0.0
        """Seconds of processor time."""
        self.waited_s = 0.0
        """Seconds in which all of them were seen waiting, since `begin_waiting` if that was called."""
        self._pids = pids
        self._began_s = processor_time_of(pids())
        self._turn_s = 0.0
        self.skip()

    def look(self) -> None:
        """Adds up what they have taken since the last look."""
        at_work = list(self._pids())
        now = time.monotonic()
        if wait(at_work):
            self.waited_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        self.worked_s = processor_time_of(at_work) - self._began_s

    def begin_waiting(self) -> None:
        """Forgets the waiting until now: they have got what they waited for."""
        self.waited_s = 0.0
        self.skip()

    def skip(self) -> None:
        """Ignores the time since `pause`, or else since the last look: the processes waited for us."""
        self._looked, self._turn_s = time.monotonic() - self._turn_s, 0.0

    def pause(self) -> None:
        """The processes wait for us. Their time since the last look counts at the next one: however often they ask us
        something, they are looked at as often."""
        self._turn_s = self.since_look_s()

    def since_look_s(self) -> float:
        """Seconds since the last look in which they did not wait for us."""
        return time.monotonic() - self._looked


def _states(pid: int) -> list[str]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [fields[0] for task in tasks if (fields := _stat(f"/proc/{pid}/task/{task}/stat"))]


def _stat(path: str) -> list[str]:
    """The fields of a process or a thread that follow its name, the state first; none if it has ended."""
    try:
        return Path(path).read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
