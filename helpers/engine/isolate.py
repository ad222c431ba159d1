"""Runs code that may crash, loop or print endlessly: every call in a forked child, under limits.

What the child does stays in the child. Its result comes back as bytes that hold only tensors and plain values. A keeper
process stands between this process and the child. It ends everything that the child has started, also in sessions of
their own. Time is processor time: a call on a busy machine has as much of it as on an idle one.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import gc
import io
import math
import os
import resource
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import torch

from helpers.engine import processes
from helpers.engine.numbers import counted

_T = TypeVar("_T")


@dataclass(frozen=True)
class Limits:
    """What one call may use: seconds of processor time with whatever it starts, seconds of waiting, bytes of memory on
    top of the present use, characters printed, bytes of the answer; and the seconds of processor time of all calls
    together after which no further one is begun."""

    cpu_s: int = 10
    waits_s: float = 30
    memory: int = 2 << 30
    printed: int = 50_000
    answered: int = 1 << 28
    together_s: float = 60


class End(StrEnum):
    """How a call has ended."""

    RETURNED = "returned"
    RAISED = "raised"
    NOT_IMPLEMENTED = "not implemented"
    OUT_OF_TIME = "out of time"
    OUT_OF_MEMORY = "out of memory"
    PRINTED_TOO_MUCH = "printed too much"
    DIED = "died"
    """Its process ended instead of returning."""
    STRAYED = "strayed"
    """It wrote where the check writes, or closed what the check reads."""
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Outcome:
    """`value` is what the call returned. If it did not return, `end` says why, and `said` says it in a few words."""

    value: Any = None
    end: End = End.RETURNED
    said: str = ""
    printed: str = ""


LIMITS = Limits()
NOT_RUN = Outcome(end=End.NOT_RUN, said="not run any more")


OF_PROCESSOR_TIME = " of processor time"
"""How the words for a call end that has used its processor time, however busy the machine was."""


def out_of_time(seconds: float, of: str = "") -> str:
    """The words for a call that took more than `seconds`, of processor time where `of` says so."""
    return f"it did not come to an end within {_seconds(seconds)}{of}"


def waited(seconds: float) -> str:
    """The words for a call that waited for more than `seconds`."""
    return f"it did not come to an end, and waited or slept for {_seconds(seconds)}"


def _seconds(seconds: float) -> str:
    return counted(int(seconds), "second") if seconds == int(seconds) else f"{seconds:g} seconds"


def call_each(
    call: Callable[[_T], Any],
    inputs: Sequence[_T],
    limits: Limits = LIMITS,
    in_turn: bool = False,
    meanwhile: Callable[[int], object] = lambda more: None,
) -> list[Outcome]:
    """Returns the outcome of `call(x)` for every x, made in forked children, one child for each processor.

    A child makes one call after the other until one of them ends it; the next call is then made in a new child. Which
    child makes a call depends on how fast they are. With `in_turn`, one child makes all calls, so that what calls
    remember shows. Values may hold tensors, numbers, text, lists and dicts. After a call that exceeds its time the rest
    is not run, and no call is begun once all calls together have used up their time.
    """
    outcomes = [NOT_RUN] * len(inputs)
    waiting = list(range(len(inputs)))[::-1]
    ended_s = 0.0
    most = 1 if in_turn else min(4, len(os.sched_getaffinity(0)))
    children = [_Child(call, inputs, limits) for _ in range(min(most, len(inputs)))]
    try:
        while waiting or any(child.index is not None for child in children):
            for number, child in enumerate(children):
                if child.index is None and waiting:
                    if not child.alive:
                        ended_s += child.processor_s()
                        child = children[number] = _Child(call, inputs, limits)
                    child.begin(waiting.pop())
            _wait([pipe for child in children if child.index is not None for pipe in child.pipes], seconds=0.2)
            meanwhile(0)
            for child in children:
                index = child.index
                outcome = child.outcome() if index is not None else None
                if outcome is not None:
                    outcomes[index] = outcome
                    meanwhile(1)
                    if outcome.end is End.OUT_OF_TIME:
                        return outcomes
                    if ended_s + sum(one.processor_s() for one in children) > limits.together_s:
                        return outcomes
        return outcomes
    finally:
        for child in children:
            child.end()


def _wait(pipes: Sequence[int], seconds: float) -> None:
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    poll.poll(1000 * seconds)


class _Child:
    """A forked process that makes the calls it is told, by the index of their input; `index` is the one in progress."""

    def __init__(self, call: Callable[[_T], Any], inputs: Sequence[_T], limits: Limits) -> None:
        self.limits = limits
        self.index: int | None = None
        self.alive = True
        self.spent_s = 0.0
        self.secret = os.urandom(16)
        self.answered, self.printed = bytearray(), bytearray()
        calls, self.calls = os.pipe()
        self.answers, answers = os.pipe()
        self.prints, prints = os.pipe()
        self.ends, ends = os.pipe()
        for pipe in (self.answers, self.prints, self.ends):
            os.set_blocking(pipe, False)
        with warnings.catch_warnings():
            # Python warns of forks in a process with threads; the child starts none and waits for none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.keeper = os.fork()
        if not self.keeper:
            keep_child(ends, lambda: _serve(call, inputs, limits, calls, answers, prints, self.secret))
        for pipe in (calls, answers, prints, ends):
            os.close(pipe)
        self.pipes = [self.answers, self.prints, self.ends]

    def begin(self, index: int) -> None:
        """Has the child make the call on input `index`."""
        self.index, self.began = index, time.monotonic()
        self.watch = processes.Watch(lambda: [self.keeper, *processes.descendants(self.keeper)])
        self.answered.clear()
        self.printed.clear()
        with suppress(OSError):  # something that an earlier call left behind has ended the child: `outcome` says so
            os.write(self.calls, index.to_bytes(4, "big"))

    def outcome(self) -> Outcome | None:
        """The outcome of the call in progress; None while it goes on. A call that went wrong ends the child."""
        ended = self._read(self.ends)
        self.answered += self._read(self.answers, most=self.limits.answered + _HEADER)
        self.printed += self._read(self.prints, most=self.limits.printed)
        if len(self.printed) > self.limits.printed:
            return self._ended(End.PRINTED_TOO_MUCH, f"it printed more than {self.limits.printed:,} characters")
        if not self.answered.startswith(self.secret[: len(self.answered)]):
            return self._ended(End.STRAYED, _STRANGE)
        if len(self.answered) >= _HEADER:
            length = int.from_bytes(self.answered[16:_HEADER], "big")
            if length > self.limits.answered:
                return self._ended(End.DIED, f"what it returned has more than {self.limits.answered:,} bytes")
            if len(self.answered) >= _HEADER + length:
                return self._returned(bytes(self.answered[_HEADER:]))
        if ended or self.ends not in self.pipes:
            return self._ended(*self._why(ended.decode()))
        return self._over_its_time()

    def _over_its_time(self) -> Outcome | None:
        """The end of a call that has used up its time. The system keeps the limit of each process (`restrict_call`)."""
        if time.monotonic() - self.began < min(_SHORT_S, self.limits.waits_s):
            return None
        self.watch.look()
        if self.watch.worked_s > self.limits.cpu_s + _GRACE_S:
            return self._ended(End.OUT_OF_TIME, out_of_time(self.limits.cpu_s, OF_PROCESSOR_TIME))
        if self.watch.waited_s > self.limits.waits_s:
            return self._ended(End.OUT_OF_TIME, waited(self.limits.waits_s))
        return None

    def processor_s(self) -> float:
        """Seconds of processor time that the child has taken, with whatever it has started."""
        if self.alive:
            self.spent_s = processes.processor_time_of([self.keeper, *processes.descendants(self.keeper)])
        return self.spent_s

    def _returned(self, content: bytes) -> Outcome:
        try:
            value = torch.load(io.BytesIO(content), weights_only=True)
        except Exception:  # bytes that are not an answer make torch.load raise anything
            return self._ended(End.STRAYED, _STRANGE)
        self.index = None
        return Outcome(value, printed=self._shown())

    def _read(self, pipe: int, most: int = 1 << 16) -> bytes:
        """What lies in a pipe, up to a little more than `most` bytes; a pipe that has ended is not waited for again."""
        content = bytearray()
        while pipe in self.pipes and len(content) <= most:
            try:
                part = os.read(pipe, 1 << 20)
            except BlockingIOError:
                break
            if not part:
                self.pipes.remove(pipe)
            content += part
        return bytes(content)

    def _shown(self) -> str:
        return self.printed[: self.limits.printed].decode(errors="replace")

    def _why(self, said: str) -> tuple[End, str]:
        how, _, number = said.partition(" ")
        if how == "killed" and int(number) == signal.SIGXCPU:
            return End.OUT_OF_TIME, out_of_time(self.limits.cpu_s, OF_PROCESSOR_TIME)
        if how in ("killed", "stopped"):
            return End.DIED, f"its process was {how} by {signal.Signals(int(number)).name}"
        if how == "exited" and int(number) == _CUT_OFF:
            return End.STRAYED, "it closed a file that it has not opened"
        if how == "exited":
            return End.DIED, f"its process ended by itself (exit status {number}) instead of returning"
        return End.DIED, "its process was ended from outside"

    def _ended(self, end: End, said: str) -> Outcome:
        self.end()
        return Outcome(None, end, said, self._shown())

    def end(self) -> None:
        """Ends the child and whatever it has started."""
        if not self.alive:
            return
        self.processor_s()
        with suppress(ProcessLookupError):
            os.kill(self.keeper, signal.SIGTERM)
        with suppress(ChildProcessError):
            os.waitpid(self.keeper, 0)
        for pipe in (self.calls, self.answers, self.prints, self.ends):
            os.close(pipe)
        self.alive, self.index = False, None


_SHORT_S, _GRACE_S = 1.0, 1.0
"""Seconds on the clock for which a call goes on unseen; seconds of processor time that several processes of a call may
take beyond its limit, which for one process the system keeps exactly."""
_HEADER = 16 + 8
"""Bytes before an answer: the secret that its process was given, and the length of what follows."""
_STRANGE = "it wrote into a pipe that is not its own"
_CUT_OFF = 117
"""The exit status of a child whose pipes have been closed by what it called."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
"""From Linux's prctl.h: the signal that a process gets when its parent dies; whether a crash leaves a core dump; and
whether processes whose parent has died become children of this one."""


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def end_with_parent(parent: int) -> None:
    """Has the system kill this process when its `parent` ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_child(ends: int, serve: Callable[[], NoReturn]) -> NoReturn:
    """Forks the process that serves, and ends it and all that it has started when it ends, or at SIGTERM.

    How it ended goes into the pipe `ends`, which it does not have.
    """
    try:
        gc.disable()  # nothing that the parent left behind is to be finalised here, nor in the child
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        child = os.fork()
        if not child:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(ends)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
            serve()
        os.setsid()
        signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        status = _end_of(child)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(ends, status)
        _end_children()
    finally:
        os._exit(0)


def _end_of(child: int) -> bytes:
    while True:
        pid, status = os.waitpid(-1, os.WUNTRACED)
        if pid != child:
            continue
        if os.WIFSTOPPED(status):
            return b"stopped %d" % os.WSTOPSIG(status)
        return b"killed %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else b"exited %d" % os.WEXITSTATUS(status)


def _end_children() -> None:
    """Kills the children of this process, and the orphans that become its children, until none is left."""
    while True:
        for child in _children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


def _serve(
    call: Callable[[_T], Any],
    inputs: Sequence[_T],
    limits: Limits,
    calls: int,
    answers: int,
    prints: int,
    secret: bytes,
) -> NoReturn:
    """Makes the calls that come through the pipe `calls`, with no other file of the parent's open."""
    try:
        calls, answers = settle(calls, answers, prints)
        with nothing_displayed():
            while index := os.read(calls, 4):
                restrict_call(limits)
                content = io.BytesIO()
                torch.save(call(inputs[int.from_bytes(index, "big")]), content)
                with suppress(OSError, ValueError, AttributeError):  # an answer may have closed what it prints to
                    sys.stdout.flush()
                _write(answers, secret + len(content.getbuffer()).to_bytes(8, "big") + content.getbuffer())
    except OSError:
        os._exit(_CUT_OFF)
    finally:
        os._exit(1)


def settle(calls: int, answers: int, prints: int) -> tuple[int, int]:
    """Makes a forked process one of its own: a session, no file of the parent's but the first two, which get other
    numbers and are returned; what it prints goes to `prints`."""
    os.setsid()
    _prctl(_PR_SET_DUMPABLE, 0)
    calls, answers = _alone(calls, answers, prints)
    torch.set_num_threads(1)  # the threads of the parent's pool do not exist here
    builtins.input = _no_input
    return calls, answers


def _no_input(prompt: object = "") -> NoReturn:
    """Takes the place of a notebook's input(), which would wait for an answer that cannot come."""
    raise EOFError("the code asks for input, and nobody can answer here")


def nothing_displayed() -> AbstractContextManager:
    """Has IPython keep display() and figures to itself: from a child they cannot reach the notebook."""
    if "IPython" not in sys.modules:
        return nullcontext()
    from IPython.utils.capture import capture_output

    return capture_output(stdout=False, stderr=False)


def _write(pipe: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(pipe, left) :]


def _alone(calls: int, answers: int, prints: int) -> tuple[int, int]:
    """Closes all files of the parent's; prints go to `prints`, and the other two get high numbers."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    highest = min(most, 1 << 16) - 2 if most > 0 else 1022
    calls, answers = (_high(pipe, highest) for pipe in (calls, answers))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (1, 2):
        os.dup2(prints, number)
    low, high = sorted((calls, answers))
    for start, end in ((3, low), (low + 1, high), (high + 1, 1 << 20)):
        os.closerange(start, end)
    sys.stdin = open(0, closefd=False)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    return calls, answers


def _high(pipe: int, number: int) -> int:
    """The same pipe under this number or the next lower one that is free: in a child of a child some are taken."""
    while True:
        try:
            return fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, number)
        except OSError:
            if number <= 3:
                raise
            number -= 1


def restrict_call(limits: Limits) -> None:
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
