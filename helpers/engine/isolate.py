"""Runs code that may crash, loop or print without end: every call in a forked child, under limits.

What the child does stays in the child. Its result comes back as bytes that hold tensors and plain values only.
"""

from __future__ import annotations

import ctypes
import gc
import io
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """What one call may use: processor and wall time in seconds, memory in bytes beyond what is in use, characters
    printed; and the wall time in seconds after which no further call is begun."""

    cpu_s: int = 10
    wall_s: float = 30
    memory: int = 2 << 30
    printed: int = 50_000
    together_s: float = 30


class End(StrEnum):
    """How a call of somebody else's code has ended."""

    RETURNED = "returned"
    RAISED = "raised"
    NOT_IMPLEMENTED = "not implemented"
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    PRINTED_TOO_MUCH = "printed too much"
    DIED = "died"
    """Its process ended instead of returning."""
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """`value` is what the call returned. Where it did not return, `end` says why, and `said` in a few words."""

    value: Any = None
    end: End = End.RETURNED
    said: str = ""
    printed: str = ""


LIMITS = Limits()
NOT_RUN = Outcome(end=End.NOT_RUN, said="not run any more")


def out_of_time(seconds: float) -> str:
    """The words for a call that took more than `seconds`."""
    return f"it did not come to an end within {seconds:g} seconds"


def call_each(call: Callable[[_T], Any], inputs: Sequence[_T], limits: Limits = LIMITS) -> list[Outcome]:
    """Returns the outcome of `call(x)` for every x, made in forked children, one child a processor.

    A child makes one call after the other until one of them ends it; the next call is then made in a new child. Values
    may hold tensors, numbers, text, lists and dicts. After a call that exceeds its time the rest is not run.
    """
    outcomes = [NOT_RUN] * len(inputs)
    waiting = list(range(len(inputs)))[::-1]
    stop_at = time.monotonic() + limits.together_s
    children = [_Child(call, inputs, limits) for _ in range(min(4, len(os.sched_getaffinity(0)), len(inputs)))]
    try:
        while waiting or any(child.index is not None for child in children):
            for number, child in enumerate(children):
                if child.index is None and waiting:
                    if not child.alive:
                        child = children[number] = _Child(call, inputs, limits)
                    child.begin(waiting.pop())
            wait([pipe for child in children if child.index is not None for pipe in child.pipes], timeout=0.2)
            for child in children:
                index = child.index
                outcome = child.outcome() if index is not None else None
                if outcome is not None:
                    outcomes[index] = outcome
                    if outcome.end is End.OUT_OF_TIME or time.monotonic() > stop_at:
                        return outcomes
        return outcomes
    finally:
        for child in children:
            child.end()


class _Child:
    """A forked process that makes the calls it is told, by the index of their input; `index` is the one in progress."""

    def __init__(self, call: Callable[[_T], Any], inputs: Sequence[_T], limits: Limits) -> None:
        context = multiprocessing.get_context("fork")
        self.limits = limits
        self.index: int | None = None
        self.alive = True
        self.calls, calls = context.Pipe()
        self.prints, prints = context.Pipe(duplex=False)
        self.process = context.Process(target=_in_child, args=(call, inputs, calls, prints, limits), daemon=True)
        with warnings.catch_warnings():
            # Python warns of forks beside threads; the child starts none and waits for none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        calls.close()
        prints.close()
        self.pipes = [self.calls, self.prints, self.process.sentinel]

    def begin(self, index: int) -> None:
        """Has the child make the call on input `index`."""
        self.index, self.printed, self.began = index, b"", time.monotonic()
        try:
            self.calls.send(index)
        except OSError:
            pass  # something that an earlier call left behind has ended the child: `outcome` says so

    def outcome(self) -> Outcome | None:
        """What has become of the call in progress; None while it goes on. A call that went wrong ends the child."""
        try:
            value = self.calls.recv_bytes() if self.calls.poll() else None
        except (EOFError, OSError):
            value = None
        if self._printed_too_much():
            return self._ended(End.PRINTED_TOO_MUCH, f"it printed more than {self.limits.printed:,} characters")
        if value is not None:
            self.index = None
            returned = torch.load(io.BytesIO(value), weights_only=True)
            return Outcome(returned, printed=self.printed.decode(errors="replace"))
        if not self.process.is_alive():
            return self._ended(*self._why())
        if time.monotonic() - self.began > self.limits.wall_s:
            return self._ended(End.OUT_OF_TIME, out_of_time(self.limits.wall_s))
        return None

    def _printed_too_much(self) -> bool:
        while self.prints in self.pipes and self.prints.poll():
            data = os.read(self.prints.fileno(), 1 << 16)
            if not data:
                self.pipes.remove(self.prints)
            self.printed += data
            if len(self.printed) > self.limits.printed:
                return True
        return False

    def _why(self) -> tuple[End, str]:
        code = self.process.exitcode
        if code == -signal.SIGXCPU:
            return End.OUT_OF_TIME, out_of_time(self.limits.cpu_s)
        if code < 0:
            return End.DIED, f"its process was killed by {signal.Signals(-code).name}"
        return End.DIED, f"its process ended by itself (exit status {code}) instead of returning"

    def _ended(self, end: End, said: str) -> Outcome:
        self.end()
        return Outcome(None, end, said, self.printed[: self.limits.printed].decode(errors="replace"))

    def end(self) -> None:
        """Ends the child and whatever it has started."""
        if not self.alive:
            return
        for stop in (lambda: os.killpg(self.process.pid, signal.SIGKILL), self.process.kill):
            try:
                stop()
            except ProcessLookupError:
                pass
        self.process.join()
        self.calls.close()
        self.prints.close()
        self.alive, self.index = False, None


_PR_SET_PDEATHSIG = 1  # from Linux's prctl.h: the signal that a process gets when its parent dies


def _in_child(
    call: Callable[[_T], Any], inputs: Sequence[_T], calls: Connection, prints: Connection, limits: Limits
) -> None:
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.disable()  # nothing that the parent left behind is to be finalised here
    _redirect(prints)
    torch.set_num_threads(1)  # the threads of the parent's pool do not exist here
    while True:
        index = calls.recv()
        _restrict(limits)
        content = io.BytesIO()
        torch.save(call(inputs[index]), content)
        sys.stdout.flush()
        calls.send_bytes(content.getvalue())


def _redirect(prints: Connection) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number in (1, 2):
        os.dup2(prints.fileno(), number)
    sys.stdin = open(0, closefd=False)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)


def _restrict(limits: Limits) -> None:
    """Sets the limits of the call that begins now, beyond what this process has used so far."""
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    for what, most in (
        (resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits.cpu_s),
        (resource.RLIMIT_AS, in_use + limits.memory),
        (resource.RLIMIT_FSIZE, limits.memory),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
