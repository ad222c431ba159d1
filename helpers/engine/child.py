"""Child processes for Triton's other mode: interpreted where there is a GPU, compiling where there is none.

A child is a Python of its own, which imports what it is asked to call and nothing of the program that started it: a
script needs no `if __name__ == "__main__":` for it, and the code of a notebook or of stdin does not run again in it.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any

from helpers.engine import processes

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from helpers.engine import child; child.answer_calls(*map(int, sys.argv[1:]))"
)


class ChildDied(RuntimeError):
    """The child ended without an answer; `how` says in which way."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the child process that ran this kernel died ({how}); run the cell again")
        self.how = how


_INTERPRETING = {
    "TRITON_INTERPRET": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "ignore:CUDA initialization:UserWarning",  # backward asks for GPUs, and warns that there is none
}


class _Child:
    """A process that answers calls, one after the other, and the thread of this process that waits for the answers."""

    def __init__(self, interpret: bool) -> None:
        setting = _INTERPRETING if interpret else {"TRITON_INTERPRET": "0"}
        self.owner = os.getpid()
        self.waiting: SimpleQueue[tuple[Future, bytes] | None] = SimpleQueue()
        self.pipe, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), str(self.owner), json.dumps(sys.path)],
                env=os.environ | setting,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the parent's
            )
        threading.Thread(target=self._ask, daemon=True).start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future:
        """The call's Future. Raises what pickle raises for a function or arguments that cannot be sent."""
        future: Future = Future()
        self.waiting.put((future, pickle.dumps((function, args))))
        return future

    def _ask(self) -> None:
        while (asked := self.waiting.get()) is not None:
            future, content = asked
            if future.set_running_or_notify_cancel():
                try:
                    self.pipe.send_bytes(content)
                    returned, value = pickle.loads(self.pipe.recv_bytes())
                except (EOFError, OSError):
                    returned, value = False, ChildDied(self._how())
                except Exception as error:
                    returned, value = False, error
                future.set_result(value) if returned else future.set_exception(value)

    def _how(self) -> str:
        code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def end(self) -> None:
        """Kills the process, whatever it is doing, and waits for its end."""
        self.process.kill()
        self.process.wait()
        self.waiting.put(None)


_children: dict[bool, _Child] = {}
_starting = threading.Lock()


def _child(interpret: bool) -> _Child:
    with _starting:
        found = _children.get(interpret)
        if found is None or found.owner != os.getpid():  # a fork of the process that started it starts its own
            _children[interpret] = found = _Child(interpret)
        return found


def call(
    function: Callable[..., Any],
    *args: Any,
    interpret: bool,
    limit_s: float = math.inf,
    meanwhile: Callable[[], object] = lambda: None,
) -> Any:
    """Returns `function(*args)` as computed in a child process, which stays alive for the next call.

    `function` is a top-level function of a module. With `interpret` the child sees no GPU and runs kernels in Triton's
    interpreter; without, it can compile kernels for any target, and run them on a GPU. What `function` raises is raised
    here; RuntimeError if the child died; TimeoutError if it took `limit_s` seconds of processor time, or waited for so
    long. A timeout and Ctrl-C end the child. `meanwhile` is called several times a second.
    """
    asked = _child(interpret)
    try:
        return _within(limit_s, asked, asked.submit(function, *args), meanwhile)
    except ChildDied:
        if _children.get(interpret) is asked:
            end(interpret)
        raise
    except (TimeoutError, KeyboardInterrupt):
        end(interpret)
        raise


def _within(limit_s: float, asked: _Child, future: Future, meanwhile: Callable[[], object]) -> Any:
    """The future's result. Raises TimeoutError if the child takes more than `limit_s` seconds, or waits for more."""
    pid = asked.process.pid
    watch = processes.Watch(lambda: [pid, *processes.descendants(pid)])
    while not wait([future], timeout=min(_LOOK_S, limit_s)).done:
        meanwhile()
        watch.look()
        if max(watch.worked_s, watch.waited_s) >= limit_s:
            raise TimeoutError
    return future.result()


_LOOK_S = 0.25


def prepare(function: Callable[..., Any], *args: Any, interpret: bool) -> None:
    """Starts the child and has it make a first call, without waiting for either."""
    _child(interpret).submit(function, *args)


def end(interpret: bool) -> None:
    """Ends the child of this mode, whatever it is doing, and waits for its end; the next call starts a new one."""
    found = _children.pop(interpret, None)
    if found is not None and found.owner == os.getpid():
        found.end()


@atexit.register
def _end_all() -> None:
    for interpret in list(_children):
        end(interpret)


# In the child


def answer_calls(pipe: int, parent: int) -> None:
    """Makes the calls that come through `pipe`, a file descriptor, while the process `parent` lives."""
    _end_with(parent)
    calls = Connection(pipe)
    while True:
        try:
            content = calls.recv_bytes()
        except EOFError:
            return
        try:
            function, args = pickle.loads(content)
            answer = True, function(*args)
        except BaseException as error:
            answer = False, error
        calls.send_bytes(_sendable(answer))


def _end_with(parent: int) -> None:
    with suppress(OSError):
        alive = os.pidfd_open(parent)
        threading.Thread(target=lambda: (select.select([alive], [], []), os._exit(0)), daemon=True).start()
    if os.getppid() != parent:
        os._exit(0)


def _sendable(answer: tuple[bool, Any]) -> bytes:
    """The answer as bytes that the parent can read; an error that pickle cannot take is named in a RuntimeError."""
    try:
        content = pickle.dumps(answer)
        if not answer[0]:
            pickle.loads(content)
        return content
    except Exception as error:
        said = answer[1] if not answer[0] else error
        return pickle.dumps((False, RuntimeError(f"{type(said).__name__}: {said}")))
