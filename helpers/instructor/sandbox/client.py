"""The grader's side of sandboxes: starts them, asks them, ends them. Whatever they do ends in an answer or an Ended."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers.engine import processes
from helpers.engine.isolate import End, out_of_time, waited
from helpers.instructor import REPOSITORY
from helpers.instructor.sandbox import lent, walls, wire

_LOOK_EVERY_S = 0.25
"""Seconds between two looks at what a sandbox takes that does not answer."""
STARTING_S = 120
"""Seconds that Python may take to import what lessons import."""


Device = Callable[[dict[str, Any]], dict[str, Any]]
"""Answers what a sandbox does to a GPU that the grader simulates. Raises Ended."""


class Ended(Exception):
    """A sandbox has ended, or was ended, instead of answering; the message says how, in a few words."""

    def __init__(self, said: str, end: End = End.RAISED) -> None:
        super().__init__(said)
        self.end = end


class NoSandbox(RuntimeError):
    """No sandbox could be made: a failure of this machine, which says nothing about any answer."""


class Zygote:
    """A warm process that forks sandboxes, in which kernels are interpreted, or compiled for GPUs that are not there.

    `kind` is the first of `kinds` that this system allows. Processes forked from the one that made it can use it too.
    Raises NoSandbox where there is none.
    """

    def __init__(self, interpret: bool = True, kinds: Sequence[str] = walls.ENOUGH) -> None:
        self.folder = own_folder(Path(tempfile.gettempdir()))
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "helpers.instructor.sandbox.zygote", str(theirs.fileno())],
                env=_environment(interpret, self.folder / "home"),
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
                reasons.append(f"{kind}: only root can")
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
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def own_folder(temporary: Path) -> Path:
    """A new folder in `temporary` for the sandboxes of a zygote; what a killed grader has left there is removed.

    Raises NoSandbox where somebody else has made a folder of that name.
    """
    base = temporary / f"softmax-sandboxes-{os.geteuid()}"
    try:
        base.mkdir(mode=0o711, exist_ok=True)
        if base.is_symlink() or base.stat().st_uid != os.geteuid():
            raise NoSandbox(f"{base} belongs to somebody else; remove it, or set TMPDIR to a folder of your own.")
        for left in base.iterdir():
            if not Path("/proc", left.name.partition("-")[0]).exists():
                shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=base))
        folder.chmod(0o711)
        (folder / "home").mkdir(mode=0o700)
    except OSError as error:
        raise NoSandbox(f"no folder for sandboxes can be made: {error}") from None
    return folder


def _environment(interpret: bool, home: Path) -> dict[str, str]:
    """All that a sandbox can read of this process's environment."""
    packages = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    shown = [entry for entry in packages if not walls.is_private(Path(entry))]
    own = {"PYTHONUSERBASE": site.getuserbase()} if site.ENABLE_USER_SITE else {}
    libraries = "LD_LIBRARY_PATH"  # containers name the folder of a GPU's driver there
    own |= {libraries: os.environ[libraries]} if libraries in os.environ else {}
    return {
        **own,
        "PATH": "/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *shown]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_INTERPRET": "1" if interpret else "0",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # without the thread that CUDA's driver starts; we fork
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "TQDM_DISABLE": "1",
        "PIP_RETRIES": "0",  # without a network, waiting is in vain
    }


@dataclass
class Budget:
    """What the sandboxes of one submission may take and have taken together, in seconds.

    What an answer takes is processor time; waiting is the time in which none of its processes has anything to do, as
    when it sleeps, however busy the machine is. The compiler's time is our machine's, and counted by itself. Every
    sandbox gets the least of both, so that what one answer has used up is not taken from the next: a right one takes 2
    to 10 seconds. After `most_clock_s` on the clock this machine is too busy to grade the submission.
    """

    most_waiting_s: float = 120.0
    most_processor_s: float = 600.0
    most_compiling_s: float = 300.0
    most_clock_s: float = 1800.0
    least_waiting_s: float = 10.0
    least_processor_s: float = 45.0
    wall_s: float = 0.0
    waited_s: float = 0.0
    processor_s: float = 0.0
    compiling_s: float = 0.0
    killed: int = 0
    """Sandboxes that SIGKILL has ended, by their own doing or not."""

    counted_until: float = -math.inf
    """Up to this moment `wall_s` has what was taken."""

    def note(self, began: float, ended: float) -> None:
        """Counts the time between two moments on the clock once, however many sandboxes are asked side by side."""
        self.wall_s += max(0.0, ended - max(began, self.counted_until))
        self.counted_until = max(ended, self.counted_until)

    def waiting_s_left(self) -> float:
        """Seconds that a sandbox may wait from now on."""
        return max(self.least_waiting_s, self.most_waiting_s - self.waited_s)

    def processor_s_left(self) -> float:
        """Seconds of processor time that a sandbox which begins now may take."""
        return max(self.least_processor_s, self.most_processor_s - self.processor_s)

    def may_compile(self) -> bool:
        """Whether there is time for another kernel."""
        return self.compiling_s < self.most_compiling_s


class Sandbox:
    """One process behind walls. `ask` sends a request of serve.py and returns the answer.

    While it works on one it may ask back to have a kernel compiled, which `compile` then does elsewhere. `failed` is
    told what this machine fails at. It has what of the course is `given` to it; the whole course, for None, is only for
    a sandbox in which no learner's code runs. Raises NoSandbox where none can be made, and ValueError for an unknown
    kind.
    """

    def __init__(
        self,
        zygote: Zygote,
        kind: str = "",
        compile: Callable[[dict[str, Any]], Any] | None = None,
        budget: Budget | None = None,
        devices: Sequence[Path] = (),
        failed: Callable[[str], None] = lambda why: None,
        given: lent.Lent | None = lent.NOTHING,
        of_rank: bool = False,
    ) -> None:
        self.compile = compile
        self.failed = failed
        self.budget = budget or Budget()
        folder, left_s = str(zygote.folder), self.budget.processor_s_left()
        wanted = walls.SandboxRequest(kind or zygote.kind, folder, left_s, tuple(map(str, devices)), given, of_rank)
        self.open, self.asking = True, False
        self.messages, inside = socket.socketpair()
        self.reports, guard = socket.socketpair()
        with inside, guard:
            setting = json.dumps(asdict(wanted))
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
        self.guard = int(began["began"])

    def share_memory(self, count: int) -> None:
        """From now on this one and others, `count` in all, together may hold as much memory as one: each an equal
        part."""
        with suppress(OSError):  # it has ended, which the next request says
            wire.send(self.reports, {"memory": walls.SandboxLimits().memory // count}, 5)

    def ask(
        self,
        request: dict[str, Any],
        seconds: float,
        device: Device | None = None,
        processor_s: float | None = None,
    ) -> Any:
        """The answer to one request. What it does meanwhile to a simulated GPU, `device` is told, and answers.

        `device` may ask for something itself before it answers. Raises Ended where it takes more than `processor_s` of
        processor time (by default `seconds`), or waits for more than `seconds`, or for the rest of the budget; the
        sandbox is then closed. Raises NoSandbox where this machine has failed.
        """
        processor_s = seconds if processor_s is None else processor_s
        if self.asking:
            return self._ask(request, seconds, device, processor_s)
        self.asking = True
        asked_at, compiling_s = time.monotonic(), self.budget.compiling_s
        try:
            return self._ask(request, seconds, device, processor_s)
        except NoSandbox as error:
            self.failed(str(error))
            raise
        finally:
            self.asking = False
            compiled_s = self.budget.compiling_s - compiling_s
            self.budget.note(asked_at + compiled_s, time.monotonic())

    def _ask(self, request: dict[str, Any], seconds: float, device: Device | None, processor_s: float) -> Any:
        watch = processes.Watch(lambda: [self.guard, *processes.descendants(self.guard)])
        stop_at = time.monotonic() + self.budget.most_clock_s - self.budget.wall_s
        try:
            wire.send(self.messages, request, seconds)
            answer = self._received(watch, seconds, stop_at, processor_s)
            while isinstance(answer, dict):
                if "compile" in answer and self.compile and self.budget.may_compile():
                    began = time.monotonic()
                    wire.send(self.messages, self.compile(answer["compile"]), seconds)
                    self.budget.compiling_s += time.monotonic() - began
                    stop_at += time.monotonic() - began
                elif "events" in answer and device:
                    wire.send(self.messages, device(answer), seconds)
                else:
                    break
                answer = self._received(watch, seconds, stop_at, processor_s)
        except (Ended, NoSandbox):
            self.close()
            raise
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

    def _received(self, watch: processes.Watch, seconds: float, stop_at: float, processor_s: float) -> Any:
        """The next message. Raises Ended if it waits or computes for too long, also within a message, and NoSandbox at
        `stop_at`."""
        may_wait_s = min(seconds, self.budget.waiting_s_left())
        least_s, waited_s = min(_LOOK_EVERY_S, may_wait_s), watch.waited_s

        def look() -> None:
            watch.look()
            if watch.waited_s > may_wait_s:
                raise Ended(waited(round(may_wait_s, 1)), End.OUT_OF_TIME)
            if watch.worked_s > processor_s:
                raise Ended(out_of_time(processor_s, " of processor time"), End.OUT_OF_TIME)
            if time.monotonic() > stop_at:
                raise NoSandbox(f"this machine was too busy for {self.budget.most_clock_s:g} seconds")

        def wait() -> None:
            watch.skip()
            ready = False
            while not ready:
                ready = bool(select.select([self.messages], [], [], max(0, least_s - watch.since_look_s()))[0])
                if watch.since_look_s() >= least_s:
                    look()
            watch.pause()

        try:
            return wire.receive(self.messages, wait=wait)
        finally:
            self.budget.waited_s += watch.waited_s - waited_s

    def _why(self) -> Exception:
        """How it has ended by itself, as its guard reports it, which no learner's code can reach."""
        report = self._last_report()
        if report is None:
            return NoSandbox("a sandbox was ended from outside")
        if report.get("machine"):
            return NoSandbox(str(report["said"]))
        return Ended(str(report["said"]), End(report["ended"]))

    def _last_report(self) -> dict[str, Any] | None:
        try:
            report = wire.receive(self.reports, 30)
        except (OSError, EOFError, wire.Garbled):
            return None
        self.budget.processor_s += float(report.get("processor_s", 0))
        self.budget.killed += report.get("killed") is True
        return report if "ended" in report else None

    def close(self) -> None:
        """Ends whatever runs in the sandbox, and waits until it has ended."""
        if self.open:
            self.open = False
            self.messages.close()
            with suppress(OSError):
                self.reports.shutdown(socket.SHUT_WR)
                self._last_report()
            self.reports.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
