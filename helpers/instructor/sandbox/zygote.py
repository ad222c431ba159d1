"""The process from which sandboxes are forked: it has imported what lessons import, and knows nothing else.

Started by client.Zygote as `python -m helpers.instructor.sandbox.zygote FD`. For each sandbox it is sent two sockets:
one for the messages to the process inside, one on which the guard outside says how the sandbox has ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

from helpers.engine.isolate import End
from helpers.instructor.publish.notebooks import REPOSITORY
from helpers.instructor.sandbox import lent, walls, wire


def main(number: int) -> None:
    """Serves until the grader closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _warm_up()
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=number)
    requests.send(b"ready")
    while True:
        content, sockets, _, _ = socket.recv_fds(requests, 1 << 16, 2)
        if not content:
            return
        if os.fork() == 0:
            _become_guard(content.decode(), [socket.socket(fileno=fd) for fd in sockets], requests)
        for fd in sockets:
            os.close(fd)


def _warm_up() -> None:
    lent.withhold()
    from helpers.instructor.sandbox import serve

    for name in ("matplotlib.pyplot", "helpers.check.asking", "helpers.check.misled"):
        importlib.import_module(name)  # once, here, and not in every sandbox
    serve.warm_up()


def _become_guard(setting: str, sockets: list[socket.socket], requests: socket.socket) -> None:
    requests.close()
    messages, reports = sockets
    asked = json.loads(setting)
    kind, root = asked["kind"], asked["root"]
    what = None if asked["lent"] is None else lent.Lent(**asked["lent"])
    limits = walls.SandboxLimits()
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        walls.die_with_parent()
        walls.adopt_orphans()
        walls.separate(kind)
        failed_to, failed = os.pipe()
        inside = os.fork()
        if inside == 0:
            reports.close()
            os.close(failed_to)
            _become_first(kind, root, what, limits, messages, failed)
        os.close(failed)
        messages.close()
        if why := os.read(failed_to, 1000).decode(errors="replace"):
            _report(reports, {"refused": why})
        else:
            _report(reports, {"began": True})
            end, said = _watch(inside, reports, limits)
            _report(reports, {"ended": end.value, "said": said})
    except BaseException as error:
        _report(reports, {"refused": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _report(reports: socket.socket, what: dict) -> None:
    try:
        wire.send(reports, what, 5)
    except OSError:
        pass


def _watch(inside: int, reports: socket.socket, limits: walls.SandboxLimits) -> tuple[End, str]:
    """Waits for the end of a sandbox, and ends it where the grader has gone or it holds too much memory."""
    ended = os.pidfd_open(inside)
    why: tuple[End, str] | None = None
    while why is None:
        ready = select.select([ended, reports], [], [], 0.1)[0]
        if ended in ready:
            break
        if reports in ready:
            why = End.DIED, "closed"
        elif walls.memory_of(walls.descendants(os.getpid())) > limits.memory:
            why = End.OUT_OF_MEMORY, f"it held more than {limits.memory >> 30} GB of memory"
    code = 0
    while left := walls.descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == inside:
                code = os.waitstatus_to_exitcode(status)
            if pid == inside or not walls.descendants(os.getpid()):
                break
    return why or _in_words(code)


def _in_words(code: int) -> tuple[End, str]:
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        if number == signal.SIGXCPU:
            return End.OUT_OF_TIME, "it did not come to an end within the processor time that it has"
        return End.DIED, f"its process was killed by {signal.Signals(number).name}"
    return End.DIED, f"its process ended by itself (exit status {code})"


def _become_first(
    kind: str,
    root: str,
    what: lent.Lent | None,
    limits: walls.SandboxLimits,
    messages: socket.socket,
    failed: int,
) -> None:
    """The first process of a sandbox: goes behind its walls, forks the one that works, and ends when that one ends."""
    try:
        os.setsid()
        walls.close_in(kind, limits, Path(root), [REPOSITORY / "helpers"] if what is None else what.files())
    except BaseException as error:
        os.write(failed, f"{type(error).__name__}: {error}".encode()[:900])
        os._exit(0)
    worker = os.fork()
    if worker == 0:
        os.close(failed)
        _become_worker(messages, what)
    os.close(failed)
    messages.close()
    _own_nothing([])
    while True:
        pid, status = os.wait()
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)


def _become_worker(messages: socket.socket, what: lent.Lent | None) -> None:
    from helpers.instructor.sandbox import serve

    try:
        walls.die_with_parent()
        _own_nothing([messages.fileno()])
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["HOME"] = "/tmp"
        lent.lend_everything() if what is None else lent.lend(what)
        serve.serve(messages)
    finally:
        os._exit(0)


def _own_nothing(kept: list[int]) -> None:
    """Closes every file that was open before, save for `kept`."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
