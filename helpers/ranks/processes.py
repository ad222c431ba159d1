"""How ranks start, as forks of this process or as programs of their own, and how each of them ends."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
import uuid
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

from helpers.engine import isolate, pickled, processes
from helpers.engine.isolate import Limits
from helpers.ranks.group import Wire, is_learners, joined, line_in, on_cpu

_FRAME = re.compile(r'File "(.*)", line (\d+) in ')
MOST_PRINTED = 50_000
"""Characters that a rank may print."""

_MARK = "RANK_OF_THE_COURSE"
"""The variable of the environment by which all that a program has started is found."""

_ENDS_S = 5
"""Seconds that a process may take to end once its connection is closed."""

_STACK = signal.SIGXCPU
"""Sent by the system to a process that has used up its processor time, and by us to one that waits for too long: it
writes its stack, and ends."""


class ForkedRank:
    """A rank that is a fork of this process, kept by a process that ends all that the rank has started."""

    def __init__(self, rank: int, serve: Callable[[Wire], NoReturn], limits: Limits, others: list[ForkedRank]) -> None:
        self.rank, self.alive = rank, True
        self.connection, theirs = socket.socketpair()
        self.stacks, stacks = os.pipe()
        self.prints, prints = os.pipe()
        self.ends, ends = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
            self.keeper = os.fork()
        if not self.keeper:
            for other in (*others, self):  # the keeper stays, and would hold them open
                other.connection.close()
            isolate.keep_child(ends, lambda: _serve(serve, limits, theirs.detach(), stacks, prints))
        theirs.close()
        for pipe in (stacks, prints, ends):
            os.close(pipe)
        self.printed, self.stack = _Reader(self.prints), _Reader(self.stacks)

    def pids(self) -> list[int]:
        """The processes of this rank, its keeper among them."""
        return [self.keeper, *processes.descendants(self.keeper)]

    def interrupt(self) -> None:
        """Has the rank write its stack, and end."""
        for pid in processes.descendants(self.keeper)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, _STACK)

    def ending(self) -> str:
        """How the process has ended, in words: waits for it."""
        how, _, number = os.read(self.ends, 100).decode().partition(" ")
        if how in ("killed", "stopped"):
            return f"was {how} by {signal.Signals(int(number)).name}"
        return f"ended its process (exit status {number})" if how == "exited" else "was ended from outside"

    def line(self) -> str:
        """The learner's line in which the rank was when it wrote its stack: for one that has ended."""
        return line_of_stack(self.stack.read().text())

    def end(self) -> None:
        """Ends the rank and whatever it has started."""
        if not self.alive:
            return
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.keeper, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.keeper, 0)
        self.printed.read()
        self.connection.close()
        for pipe in (self.stacks, self.prints, self.ends):
            os.close(pipe)


class StartedRank:
    """A rank that is a program of its own, for a GPU: a process that has used one cannot be forked."""

    def __init__(self, rank: int, world: int, sent: bytes, inner: str, folder: str, limits: Limits) -> None:
        self.rank, self.alive = rank, True
        self.connection, theirs = socket.socketpair()
        self.stacks, stacks = os.pipe()
        self.prints, prints = os.pipe()
        given = {"rank": rank, "world": world, "inner": inner, "folder": folder, "cpu_s": limits.cpu_s}
        numbers = {"connection": theirs.fileno(), "stacks": stacks, "parent": os.getpid(), "path": sys.path}
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(given | numbers)],
            env=os.environ | {_MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=prints,
            stderr=prints,
            pass_fds=[theirs.fileno(), stacks],
            start_new_session=True,
        )
        theirs.close()
        for pipe in (stacks, prints):
            os.close(pipe)
        self.printed, self.stack = _Reader(self.prints), _Reader(self.stacks)
        Wire(self.connection).send({"do": "begin"}, sent)

    def pids(self) -> list[int]:
        """The processes of this rank."""
        return [self.process.pid, *processes.descendants(self.process.pid)]

    def interrupt(self) -> None:
        """Has the rank write its stack, and end."""
        self.process.send_signal(_STACK)

    def ending(self) -> str:
        """How the process has ended, in words: waits for it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=_ENDS_S)
        if self.process.poll() is None:
            return "closed a file that it has not opened"
        code = self.process.returncode
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended its process (exit status {code})"

    def line(self) -> str:
        """The learner's line in which the rank was when it wrote its stack: for one that has ended."""
        return line_of_stack(self.stack.read().text())

    def end(self) -> None:
        """Ends the rank and whatever it has started."""
        if not self.alive:
            return
        self.alive = False
        self.process.kill()
        self.process.wait()
        while orphans := processes.started_with(f"{_MARK}={self.mark}"):
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.printed.read()
        self.connection.close()
        for pipe in (self.stacks, self.prints):
            os.close(pipe)


class _Reader:
    """What comes out of a pipe: at most `most` bytes are kept."""

    def __init__(self, pipe: int, most: int = MOST_PRINTED) -> None:
        os.set_blocking(pipe, False)
        self.pipe, self.most, self.content = pipe, most, b""

    @property
    def is_full(self) -> bool:
        """Whether there was more than is kept."""
        return len(self.content) > self.most

    def read(self) -> _Reader:
        """Takes what there is by now, unless that is too much."""
        with contextlib.suppress(BlockingIOError):
            while not self.is_full and (part := os.read(self.pipe, 1 << 16)):
                self.content += part
        return self

    def text(self) -> str:
        """The text, as far as it is kept."""
        return self.content[: self.most].decode(errors="replace")


def line_of_stack(stack: str) -> str:
    """The learner's line in a stack of faulthandler's, the innermost call first; "" if there is none."""
    for filename, number in _FRAME.findall(stack):
        if is_learners(filename):
            return line_in(filename, int(number))
    return ""


# In the rank


def _serve(serve: Callable[[Wire], NoReturn], limits: Limits, connection: int, stacks: int, prints: int) -> NoReturn:
    try:
        connection, stacks = isolate.settle(connection, stacks, prints)
        isolate.restrict_call(limits)
        faulthandler.register(_STACK, file=stacks, chain=True)
        with isolate.nothing_displayed():
            serve(Wire(socket.socket(fileno=connection)))
    finally:
        os._exit(1)


def answer_as_rank(
    wire: Wire, function: Callable, arguments: tuple, rank: int, world: int, inner: str = "", folder: str = ""
) -> NoReturn:
    """Calls the function as a rank, and sends what it returns, or which line raised what."""
    try:
        group = joined(wire, rank, world, inner, folder)
        content = _sendable(function(*arguments, group))
        header = {"do": "returned"}
    except BaseException as error:
        content, header = b"", {"do": "raised", **_said_of(error)}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    wire.send(header, content)
    os._exit(0)


def _sendable(value: Any) -> memoryview:
    content = io.BytesIO()
    try:
        torch.save(_on_cpu(value), content)
        torch.load(io.BytesIO(content.getbuffer()), weights_only=True)
    except Exception:
        raise TypeError(
            f"what the function returned, of type {type(value).__name__}, cannot be sent; return tensors, numbers, "
            "text, or lists, tuples and dicts of them"
        ) from None
    return content.getbuffer()


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return on_cpu(value)
    if type(value) in (list, tuple):
        return type(value)(map(_on_cpu, value))
    if type(value) is dict:
        return {key: _on_cpu(one) for key, one in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _said_of(error: BaseException) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_learners(frame.filename)]
    first = next((text for text in str(error).splitlines() if text.strip()), "")
    return {
        "error": type(error).__name__,
        "message": first.strip()[:300],
        "line": line_in(own[-1].filename, own[-1].lineno or 0) if own else "",
    }


_START = (
    "import json, sys; given = json.loads(sys.argv.pop()); sys.path[:] = given.pop('path'); "
    "from helpers.ranks import processes; processes.serve_as_program(**given)"
)


def serve_as_program(
    rank: int, world: int, inner: str, folder: str, cpu_s: int, connection: int, stacks: int, parent: int
) -> NoReturn:
    """A rank that was started as a program: it gets the function through its connection."""
    isolate.end_with_parent(parent)
    if inner == "nccl":
        torch.cuda.set_device(rank)
    wire = Wire(socket.socket(fileno=connection))
    _, sent = wire.receive()
    faulthandler.register(_STACK, file=stacks, chain=True)
    function, arguments = pickled.loads(sent)
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + cpu_s, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    answer_as_rank(wire, function, arguments, rank, world, inner, folder)
