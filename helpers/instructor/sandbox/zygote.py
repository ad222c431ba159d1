"""The process from which sandboxes are forked: it has imported what lessons import, and knows nothing else.

Started by client.Zygote as `python -m helpers.instructor.sandbox.zygote FD`. For each sandbox it is sent two sockets:
one for the messages to the process inside, one on which the guard outside says how the sandbox has ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from helpers.engine import processes
from helpers.engine.isolate import End, out_of_time
from helpers.instructor import REPOSITORY
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

    for name in ("matplotlib.pyplot", "helpers.check.problems.misled"):
        importlib.import_module(name)  # once, here, and not in every sandbox
    serve.warm_up()


def _become_guard(sent: str, sockets: list[socket.socket], requests: socket.socket) -> None:
    requests.close()
    messages, reports = sockets
    asked = json.loads(sent)
    given = asked.pop("given")
    setting = walls.SandboxRequest(**asked, given=None if given is None else lent.Lent(**given))
    limits = walls.limits_of(setting)
    own = None
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        walls.die_with_parent()
        walls.adopt_orphans()
        own = Path(tempfile.mkdtemp(dir=setting.folder))
        if full := walls.fills(own, limits):
            raise OSError(full)
        walls.separate(setting.kind)
        failed_to, failed = os.pipe()
        inside = os.fork()
        if inside == 0:
            reports.close()
            os.close(failed_to)
            _become_first(setting, own, limits, messages, failed)
        os.close(failed)
        messages.close()
        if why := os.read(failed_to, 1000).decode(errors="replace"):
            _report(reports, {"refused": why})
        else:
            _report(reports, {"began": os.getpid()})
            end, said, machine, killed, spent = _watch(inside, reports, limits, setting, own)
            _remove(own)
            told = {"ended": end.value, "said": said, "machine": machine, "killed": killed, "processor_s": spent}
            _report(reports, told)
    except BaseException as error:
        _report(reports, {"refused": f"{type(error).__name__}: {error}"})
    finally:
        if own is not None:
            _remove(own)
        os._exit(0)


def _remove(folder: Path) -> None:
    """Removes a folder with all that is in it, however deep, and whatever its modes."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", folder], stderr=subprocess.DEVNULL, check=False)


def _report(reports: socket.socket, what: dict) -> None:
    try:
        wire.send(reports, what, 5)
    except OSError:
        pass


def _watch(
    inside: int, reports: socket.socket, limits: walls.SandboxLimits, setting: walls.SandboxRequest, own: Path
) -> tuple[End, str, bool, bool, float]:
    """Waits for the end of a sandbox, and ends it where the grader has gone or it takes too much.

    How it has ended, in a few words too; whether that is this machine's doing; whether somebody else killed it; and the
    seconds of processor time that it has used.
    """
    ended = os.pidfd_open(inside)
    why: tuple[End, str, bool] | None = None
    while why is None:
        ready = select.select([ended, reports], [], [], 0.1)[0]
        if ended in ready:
            break
        if reports in ready:
            limits = _told(reports, limits)
            why = None if limits else (End.DIED, "closed", False)
        else:
            why = _too_much(processes.descendants(os.getpid()), limits, setting, own)
    code = 0
    # Nobody is told what a process has used that is killed together with its parent.
    alive_s = processes.processor_time_of(processes.descendants(os.getpid()))
    while left := processes.descendants(os.getpid()):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == inside:
                code = os.waitstatus_to_exitcode(status)
            if pid == inside or not processes.descendants(os.getpid()):
                break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = max(alive_s, used.ru_utime + used.ru_stime)
    if why:
        return *why, False, spent
    return *_in_words(code), False, code in (-signal.SIGKILL, 128 + signal.SIGKILL), spent


def _told(reports: socket.socket, limits: walls.SandboxLimits) -> walls.SandboxLimits | None:
    """The limits with what the grader has changed; None where it has closed its end."""
    try:
        return replace(limits, **wire.receive(reports, 5, trusted=True))
    except (OSError, EOFError):
        return None


def _too_much(
    pids: list[int], limits: walls.SandboxLimits, setting: walls.SandboxRequest, own: Path
) -> tuple[End, str, bool] | None:
    if walls.memory_of(pids) > limits.memory:
        return End.OUT_OF_MEMORY, f"it held more than {limits.memory / 2**30:.3g} GB of memory", False
    if len(pids) > limits.processes + 2:
        return End.DIED, f"it had more than {limits.processes} processes", False
    if processes.processor_time_of(pids) > setting.processor_s:
        return End.OUT_OF_TIME, out_of_time(round(setting.processor_s), " of processor time"), False
    if setting.kind != walls.NAMESPACES and (full := walls.fills(own, limits)):
        return End.OUT_OF_MEMORY, full, full.startswith("less")
    return None


def _in_words(code: int) -> tuple[End, str]:
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        if number == signal.SIGXCPU:
            return End.OUT_OF_TIME, "it did not come to an end within the processor time that it has"
        return End.DIED, f"its process was killed by {signal.Signals(number).name}"
    return End.DIED, f"its process ended by itself (exit status {code})"


def _become_first(
    setting: walls.SandboxRequest, own: Path, limits: walls.SandboxLimits, messages: socket.socket, failed: int
) -> None:
    """The first process of a sandbox: goes behind its walls, forks the one that works, and ends when that one ends."""
    try:
        os.setsid()
        shown = [REPOSITORY / "helpers"] if setting.given is None else setting.given.files()
        walls.close_in(setting, limits, own, shown)
    except BaseException as error:
        os.write(failed, f"{type(error).__name__}: {error}".encode()[:900])
        os._exit(0)
    worker = os.fork()
    if worker == 0:
        os.close(failed)
        _become_worker(setting, messages)
    os.close(failed)
    messages.close()
    _own_nothing([])
    while True:
        pid, status = os.wait()
        if pid == worker:
            code = os.waitstatus_to_exitcode(status)
            os._exit(128 - code if code < 0 else code)


def _become_worker(setting: walls.SandboxRequest, messages: socket.socket) -> None:
    from helpers.instructor.sandbox import serve

    try:
        walls.die_with_parent()
        _own_nothing([messages.fileno()])
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ["HOME"] = os.environ["TMPDIR"] = tempfile.tempdir = os.getcwd()
        if setting.devices:
            walls.write_own_processes_only(setting.kind, Path.cwd(), [Path(device) for device in setting.devices])
            _start_afresh(messages)
        lent.lend_everything() if setting.given is None else lent.lend(setting.given)
        serve.serve(messages)
    finally:
        os._exit(0)


INSIDE = """
import json, socket, struct, sys
from importlib.util import module_from_spec, spec_from_file_location
folder, number = sys.argv[1:]
messages = socket.socket(fileno=int(number))
try:
    spec = spec_from_file_location("helpers", folder + "/__init__.py", submodule_search_locations=[folder])
    sys.modules["helpers"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["helpers"])
    from helpers.instructor.sandbox import serve
except Exception as error:
    said = json.dumps({"dict": [["failed", f"{type(error).__name__}: {error}"[:300]]]}).encode()
    messages.sendall(struct.pack("!Q", len(said)) + said)
    raise
serve.serve(messages)
"""
"""What a process does that works in a sandbox and was not forked. It may read `helpers`, and not look for it.

Where it cannot begin, as with a GPU that CUDA cannot use, it says why, in the form of `wire`.
"""


def _start_afresh(messages: socket.socket) -> None:
    """Becomes a new Python behind the same walls, which may use the GPU."""
    messages.set_inheritable(True)
    del os.environ["CUDA_VISIBLE_DEVICES"]
    # Where this is missing, IPython copies a file into it, mode and all, which Landlock's filter refuses the same user.
    Path(".ipython/profile_default/startup").mkdir(parents=True, exist_ok=True)
    os.execv(sys.executable, [sys.executable, "-P", "-c", INSIDE, str(REPOSITORY / "helpers"), str(messages.fileno())])


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
