"""The grader's side of sandboxes: starts them, asks them, ends them. Whatever they do ends in an answer or an Ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helpers.engine.isolate import End, out_of_time
from helpers.instructor.publish.notebooks import REPOSITORY
from helpers.instructor.sandbox import lent, walls, wire

STARTING_S = 120
"""Seconds that Python may take to import what lessons import."""


class Ended(Exception):
    """A sandbox has ended, or was ended, instead of answering; the message says how, in a few words."""

    def __init__(self, said: str, end: End = End.RAISED) -> None:
        super().__init__(said)
        self.end = end


class NoSandbox(RuntimeError):
    """No sandbox could be made: a failure of this machine, which says nothing about any answer."""


class Zygote:
    """A warm process that forks sandboxes, in which kernels are interpreted, or compiled for GPUs that are not there.

    `kind` is the strongest of walls.MEANING that this system allows. Processes forked from the one that made it can use
    it too.
    """

    def __init__(self, interpret: bool = True, kinds: Sequence[str] = tuple(walls.MEANING)) -> None:
        self.folder = Path(tempfile.gettempdir()) / f"sandbox-{os.geteuid()}"
        home = self.folder / "home"
        for folder in (self.folder, home):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                raise NoSandbox(f"{folder} belongs to somebody else; remove it, or set TMPDIR to a folder of your own.")
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "helpers.instructor.sandbox.zygote", str(theirs.fileno())],
                env=_environment(interpret, home),
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.requests = ours
        ours.settimeout(STARTING_S)
        try:
            started = ours.recv(100)
        except TimeoutError:
            started = b""
        ours.settimeout(None)
        if not started:
            self.close()
            raise NoSandbox("the process that sandboxes are forked from did not start")
        try:
            self.kind = self.strongest(kinds)
        except NoSandbox:
            self.close()
            raise

    def strongest(self, kinds: Sequence[str]) -> str:
        """The first kind of walls behind which the cells of a lesson run. Raises NoSandbox."""
        reasons = []
        for kind in kinds:
            if kind == walls.OTHER_USER and os.geteuid() != 0:
                continue
            if kind == walls.LIMITS_ONLY and os.geteuid() == 0:
                reasons.append(f"{kind}: not as root")
                continue
            try:
                with Sandbox(self, kind) as sandbox:
                    sandbox.ask({"do": "try out"}, 60)
                return kind
            except (Ended, NoSandbox) as error:
                reasons.append(f"{kind}: {error}")
        raise NoSandbox(f"Learners' code cannot be closed in here ({'; '.join(reasons)}).")

    def close(self) -> None:
        """Ends the process and every sandbox that came from it."""
        self.requests.close()
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _environment(interpret: bool, home: Path) -> dict[str, str]:
    """All that a sandbox can read of this process's environment."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_INTERPRET": "1" if interpret else "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # without the thread that CUDA's driver starts; we fork
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
    }


class Sandbox:
    """One process behind walls. `ask` sends a request of serve.py and returns the answer.

    While it works on one it may ask back to have a kernel compiled, which `compile` then does elsewhere. It has what of
    the course is `given` to it; the whole course, for None, is only for a sandbox in which no learner's code runs.
    """

    def __init__(
        self,
        zygote: Zygote,
        kind: str = "",
        compile: Callable[[dict[str, Any]], Any] | None = None,
        given: lent.Lent | None = lent.NOTHING,
    ) -> None:
        self.compile = compile
        self.compiling_s = 300.0
        self.messages, inside = socket.socketpair()
        self.reports, guard = socket.socketpair()
        with inside, guard:
            what = None if given is None else {"names": dict(given.names), "modules": list(given.modules)}
            setting = json.dumps({"kind": kind or zygote.kind, "root": str(zygote.folder), "lent": what})
            try:
                socket.send_fds(zygote.requests, [setting.encode()], [inside.fileno(), guard.fileno()])
            except OSError as error:
                raise NoSandbox(f"the process that sandboxes are forked from has ended ({error})") from None
        try:
            began = wire.receive(self.reports, 60)
        except (EOFError, TimeoutError, wire.Garbled):
            began = {"refused": "the sandbox did not start"}
        if "began" not in began:
            self.close()
            raise NoSandbox(str(began.get("refused")))

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        """The answer to one request. Raises Ended where there is none within `seconds`; the sandbox is then closed."""
        stop_at = time.monotonic() + seconds
        try:
            wire.send(self.messages, request, seconds)
            answer = wire.receive(self.messages, seconds)
            while isinstance(answer, dict) and "compile" in answer and self.compile and self.compiling_s > 0:
                began = time.monotonic()
                wire.send(self.messages, self.compile(answer["compile"]), seconds)
                self.compiling_s -= time.monotonic() - began
                stop_at += time.monotonic() - began
                answer = wire.receive(self.messages, stop_at - time.monotonic())
        except TimeoutError:
            self.close()
            raise Ended(out_of_time(seconds), End.OUT_OF_TIME) from None
        except (EOFError, ConnectionError):
            why = self._why()
            self.close()
            raise why from None
        except wire.Garbled as error:
            self.close()
            raise Ended(f"its process sent {error}", End.DIED) from None
        if not isinstance(answer, dict) or "failed" in answer:
            raise Ended(str(answer.get("failed") if isinstance(answer, dict) else "it sent no answer")[:300])
        return answer.get("answer")

    def _why(self) -> Ended:
        try:
            report = wire.receive(self.reports, 5)
            return Ended(str(report["said"]), End(report["ended"]))
        except (EOFError, TimeoutError, wire.Garbled, KeyError, TypeError, ValueError):
            return Ended("its process ended", End.DIED)

    def close(self) -> None:
        """Ends whatever runs in the sandbox."""
        self.messages.close()
        self.reports.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
