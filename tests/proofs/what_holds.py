"""What each kind of walls keeps a learner's code from, tried from inside: a table with one column for each kind.

python tests/proofs/what_holds.py                        # the kinds that this user can have here
python tests/proofs/what_holds.py --without-namespaces   # as in a container whose filter refuses them
python tests/proofs/what_holds.py --without-landlock     # and as on a kernel without Landlock
python tests/proofs/what_holds.py --gpu                  # where kernels are timed: with the GPU's device nodes shown

Run it as root and as another user. The exit status is 1 where one does not hold what it is to hold.
"""

import argparse
import ctypes
import os
import socket
import struct
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from helpers.engine import processes
from helpers.instructor.grade import speed
from helpers.instructor.sandbox import lent, walls
from helpers.instructor.sandbox.client import NoSandbox, Sandbox, Zygote
from helpers.table import Table

BEGIN = """
import ctypes, errno, fcntl, mmap, os, platform, resource, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result
def taken(work, *given):
    try:
        work(*given)
        return False
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EADDRINUSE, errno.EEXIST):
            return True
        raise
def asked(file, command, *fields):
    return struct.unpack("hhqqi4x", fcntl.fcntl(file, command, struct.pack("hhqqi4x", *fields)))[0]
def futex(at, command, value):
    number = {"x86_64": 202, "aarch64": 98}[platform.machine()]
    until = (ctypes.c_long * 2)(20, 0)
    return called(libc.syscall(number, ctypes.c_void_p(at), command, value, until, None, 0))
def named(name):
    processes = [one for one in os.listdir("/proc") if one.isdigit()]
    return any(open(f"/proc/{one}/comm").read().strip() == name for one in processes)
"""
ATTEMPTS = {
    "reads /etc/passwd": "open('/etc/passwd').read()",
    "reads solutions/": "open(SOLUTION).read()",
    "lists other submissions": "os.listdir(SUBMISSIONS)",
    "reads another submission": "open(SUBMISSION).read()",
    "reads the grader's environment": "open(f'/proc/{GRADER}/environ').read() or missing",
    "writes into helpers": "open(HELPERS + '/written.py', 'x').close()",
    "writes into another submission": "open(SUBMISSION, 'a').close()",
    "writes into the shared temporary folder": "open(SHARED + '/written', 'w').close()",
    "writes into the next sandbox's folder": "open(NEIGHBOUR + '/written', 'w').close()",
    "changes the mode of a submission": "os.chmod(SUBMISSION, 0o666)",
    "changes the times of a submission": "os.utime(SUBMISSION)",
    "connects by TCP": "socket.create_connection(('127.0.0.1', PORT), 2)",
    "sends by UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "connects to a socket in a folder": "socket.socket(socket.AF_UNIX).connect(SOCKET)",
    "connects by packets": "socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(PACKETS)",
    "sends to a socket in a folder": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', SOCKET)",
    "opens AF_VSOCK": "socket.socket(40, socket.SOCK_STREAM)",
    "opens AF_NETLINK": "socket.socket(16, socket.SOCK_RAW)",
    "opens AF_ALG": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "takes semaphores (semget)": "called(libc.semget(0, 100, 0o1600))",
    "takes a message queue (msgget)": "called(libc.msgget(0, 0o1600))",
    "takes shared memory (shmget)": "called(libc.shmget(0, 4096, 0o1600))",
    "takes a queue (mq_open)": "called(libc.mq_open(b'/held', 0o102, 0o600, None))",
    "takes memory without a file (memfd)": "called(libc.memfd_create(b'x', 0))",
    "signals the grader": "os.kill(GRADER, 0)",
    "changes the grader's limits": "resource.prlimit(GRADER, resource.RLIMIT_NOFILE, (64, 64))",
    "slows the grader": "os.setpriority(os.PRIO_PROCESS, GRADER, 19)",
    "attaches to the grader (ptrace)": "called(libc.ptrace(16, GRADER, 0, 0))",
    "raises the grader's place among the first to be ended": "open(f'/proc/{GRADER}/oom_score_adj', 'w').write('1000')",
    "makes a namespace": "called(libc.unshare(0x10000000))",
    "lets a crash dump its core": "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    "called(-1 if resource.getrlimit(resource.RLIMIT_CORE) == (1, 1) else 0)",
}
"""Lines that raise OSError where the walls hold."""

OF_THE_MACHINE = {
    "asks which pages of a file are in memory (mincore)": "file = open(os.__file__, 'rb')\n"
    "at = libc.mmap(None, 4096, 1, 2, file.fileno(), 0)\n"
    "called(libc.mincore(ctypes.c_void_p(at), 4096, ctypes.create_string_buffer(1)))",
    "asks which pages of a file are in memory (cachestat)": "file = open(os.__file__, 'rb')\n"
    "called(libc.syscall(451, file.fileno(), (ctypes.c_long * 2)(0, 4096), (ctypes.c_long * 5)(), 0))",
    "reads a file only if it is in memory": "file = open(os.__file__, 'rb')\n"
    "os.preadv(file.fileno(), [bytearray(9)], 0, os.RWF_NOWAIT)",
    "reads the kernel's log": "called(libc.klogctl(3, ctypes.create_string_buffer(4096), 4096))",
    "reads how many processes there are (sysinfo)": "called(libc.sysinfo(ctypes.create_string_buffer(256)))",
    "reads how many files are open": "open('/proc/sys/fs/file-nr').read()",
    "reads how much memory is free": "open('/proc/meminfo').read()",
    "reads how busy the machine is": "open('/proc/loadavg').read()",
    "holds memory where it is (mlock)": "called(libc.mlock(ctypes.create_string_buffer(4096), 4096))",
}
"""Lines that tell what other processes do to what all of them share."""

FILE = "file = open(os.__file__, 'rb')"
BETWEEN = {
    "locks (fcntl)": (
        "",
        f"{FILE}; fcntl.lockf(file, fcntl.LOCK_SH)",
        "asked(file, fcntl.F_GETLK, 1, 0, 0, 1, 0) != 2",
    ),
    "locks of open files (fcntl)": (
        "",
        f"{FILE}; fcntl.fcntl(file, 37, struct.pack('hhqqi4x', 0, 0, 0, 1, 0))",
        "asked(file, 36, 1, 0, 0, 1, 0) != 2",
    ),
    "locks (flock)": (
        "",
        f"{FILE}; fcntl.flock(file, fcntl.LOCK_SH)",
        "taken(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    ),
    "hints about files": (
        "",
        f"{FILE}; fcntl.fcntl(file, 1036, struct.pack('Q', 3))",
        "struct.unpack('Q', fcntl.fcntl(file, 1035, bytes(8)))[0] == 3",
    ),
    "numbers of events (eventfd)": (
        "about = lambda event: open(f'/proc/self/fdinfo/{event}').read(); "
        "number = lambda: int(about(called(libc.eventfd(0, 0))).split('-id:')[1].split()[0]); first = number()",
        "called(libc.eventfd(0, 0))",
        "number() != first + 1",
    ),
    "events of files (inotify)": (
        "events = called(libc.inotify_init1(0o4000)); "
        "called(libc.inotify_add_watch(events, os.__file__.encode(), 0xFFF))",
        "open(os.__file__).read()",
        "os.read(events, 4096)",
    ),
    "events of folders (F_NOTIFY)": (
        "heard = []; signal.signal(signal.SIGIO, lambda *_: heard.append(1)); "
        "folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY); fcntl.fcntl(folder, fcntl.F_NOTIFY, 1 << 31 | 1)",
        "open(os.__file__).read()",
        "heard",
    ),
    "waiting in a page of a file (futex)": (
        "",
        f"{FILE}; at = libc.mmap(None, 4096, 1, 1, file.fileno(), 0); value = ctypes.c_uint.from_address(at).value; "
        "threading.Thread(target=futex, args=(at, 0, value), daemon=True).start(); time.sleep(0.3)",
        "futex(libc.mmap(None, 4096, 1, 1, file.fileno(), 0), 1, 1) > 0",
    ),
    "times of files that are read": (
        "before = os.stat(READ).st_atime_ns",
        "open(READ).read()",
        "os.stat(READ).st_atime_ns != before",
    ),
    "times of nodes": (
        "before = os.stat('/dev/null').st_mtime_ns",
        "os.utime('/dev/null')",
        "os.stat('/dev/null').st_mtime_ns != before",
    ),
    "names of sockets": (
        "",
        "one = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0]; one.bind('\\0talks')",
        "taken(socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)[0].bind, '\\0talks')",
    ),
    "shared memory (shmget)": ("", "called(libc.shmget(77, 4096, 0o1600))", "called(libc.shmget(77, 4096, 0)) >= 0"),
    "semaphores (semget)": ("", "called(libc.semget(77, 1, 0o1600))", "called(libc.semget(77, 1, 0)) >= 0"),
    "files of shared memory": ("", "open('/dev/shm/talks', 'w').close()", "os.path.exists('/dev/shm/talks')"),
    "temporary files": ("", "open('/tmp/talks', 'w').close()", "os.path.exists('/tmp/talks')"),
    "names of processes": ("", "libc.prctl(15, b'talks')", "named('talks')"),
}
"""How two sandboxes may talk: what the one that listens does first, what the other one does, and what then is heard.

These and OF_THE_MACHINE are not tried beside a GPU, where only kernels run."""

COMPUTES = "(computes on the GPU)"
"""Not an attempt: what the devices are shown for."""

OPEN_TO_ANOTHER_USER = {
    "reads /etc/passwd", "reads solutions/", "lists other submissions", "reads another submission",
    "writes into the shared temporary folder",
}  # fmt: skip
"""What any user of the machine can do, and another user can."""


OPEN_WITHOUT_NAMESPACES = {
    "reads how many files are open", "reads how much memory is free", "reads how busy the machine is",
    "talks by times of files that are read", "talks by times of nodes", "talks by names of processes",
}  # fmt: skip
"""What everybody sees where /proc is the machine's, and files are not mounted for reading alone."""


def open_behind(kind: str) -> set[str]:
    """The attempts that a kind of walls is not there to stop; limits stop none of them for sure."""
    if kind == walls.LIMITS_ONLY:
        return {*ATTEMPTS, *OF_THE_MACHINE, *map(talk, BETWEEN)}
    talks = {talk("files of shared memory"), talk("temporary files")}
    if kind == walls.OTHER_USER:
        return OPEN_TO_ANOTHER_USER | OPEN_WITHOUT_NAMESPACES | talks
    return OPEN_WITHOUT_NAMESPACES if kind == walls.LANDLOCK else set()


def talk(way: str) -> str:
    """The name of an attempt of two sandboxes."""
    return f"talks by {way}"


def tried(zygote: Zygote, kind: str, devices: Sequence[Path] = ()) -> dict[str, str]:
    """What became of each attempt behind these walls, which show `devices`: "held", or what it did."""
    with ExitStack() as stack:
        outside = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        outside.chmod(0o755)
        submission, shared = outside / "submission.ipynb", outside / "shared"
        submission.write_text("answers")
        shared.mkdir()
        shared.chmod(0o1777)
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(outside / "socket"))
        listening.listen()
        packets = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        packets.bind(str(outside / "packets"))
        packets.listen()
        for name in ("socket", "packets"):
            (outside / name).chmod(0o777)
        neighbour = stack.enter_context(Sandbox(zygote, kind, of_rank=True))
        read = ROOT / "helpers" / "table.py"
        os.utime(read, ns=(0, read.stat().st_mtime_ns))  # so that to read it changes its time
        names = {
            "SOLUTION": str(next((ROOT / "solutions").glob("*.ipynb"))),
            "SUBMISSIONS": str(outside),
            "SUBMISSION": str(submission),
            "HELPERS": str(ROOT / "helpers"),
            "SHARED": str(shared),
            "SOCKET": str(outside / "socket"),
            "PACKETS": str(outside / "packets"),
            "PORT": server.getsockname()[1],
            "GRADER": os.getpid(),
            "READ": str(read),
            "NEIGHBOUR": _answer(neighbour, "import os\nopen('own', 'w').write('x')\nanswer = os.getcwd()"),
        }
        if kind == walls.NAMESPACES:
            names["NEIGHBOUR"] = f"/proc/{_first_of(zygote)}/root/tmp"
        given = "\n".join(f"{name} = {value!r}" for name, value in names.items())
        results = {}
        if devices:
            with Sandbox(zygote, kind, devices=devices, given=None) as sandbox:
                computed = _answer(sandbox, "import torch\nanswer = torch.ones(8, device='cuda').sum().item()")
            results[COMPUTES] = "held" if computed == 8 else f"CUDA cannot be used: {computed}"
        with Sandbox(zygote, kind, devices=devices, given=None if devices else lent.NOTHING, of_rank=True) as sandbox:
            for name, line in (ATTEMPTS if devices else ATTEMPTS | OF_THE_MACHINE).items():
                results[name] = _tried(sandbox, given, line, "True")
            for way, (listens, says, hears) in () if devices else BETWEEN.items():
                _tried(sandbox, given, listens, "True")
                _tried(neighbour, given, says, "True")
                results[talk(way)] = _tried(sandbox, given, f"{FILE}", hears)
        written = ROOT / "helpers" / "written.py"
        if not written.exists():  # a user who is not root may write into the folder that its namespace has of that name
            results["writes into helpers"] = "held"
        written.unlink(missing_ok=True)
        return results


def _tried(sandbox: Sandbox, given: str, line: str, found: str) -> str:
    """What became of a line: whether it ran and `found` then holds."""
    cell = (
        f"{BEGIN}{given}\ntry:\n{textwrap.indent(line or 'pass', '    ')}\n    answer = 'OPEN' if {found} else 'held'\n"
    )
    return _answer(sandbox, f"{cell}except (OSError, ValueError, NameError) as error:\n    answer = 'held'\n")


def _first_of(zygote: Zygote) -> int:
    return processes.descendants(zygote.process.pid)[1]


def _answer(sandbox: Sandbox, cell: str) -> str:
    made = sandbox.ask({"do": "define", "sources": [cell], "answer": "answer", "every_cell": True}, 60)
    return made["value"] if not made["failed"] else f"failed: {made['failed']}"


def refuse(*numbers: int) -> None:
    """Has system calls refused to this process and all that it starts, as a container's filter does."""
    steps = [(0x20, 0, 0, 0)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    content = b"".join(struct.pack("=HBBI", *step) for step in [*steps, (0x06, 0, 0, 0x7FFF0000)])
    held = ctypes.create_string_buffer(content, len(content))
    program = struct.pack("@HxxxxxxP", len(content) // 8, ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0:
        libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, ctypes.create_string_buffer(program, len(program)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel takes no filter")


UNSHARE, LANDLOCK_CREATE_RULESET = 272, 444
"""Their numbers on x86-64."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-namespaces", action="store_true")
    parser.add_argument("--without-landlock", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    chosen = parser.parse_args()
    devices = speed.devices() if chosen.gpu else []
    if chosen.gpu and not devices:
        parser.error("this machine has no NVIDIA GPU")
    refuse(*[UNSHARE] * chosen.without_namespaces, *[LANDLOCK_CREATE_RULESET] * chosen.without_landlock)
    columns, reasons = {}, []
    with Zygote(interpret=not devices, kinds=tuple(walls.MEANING)) as zygote:
        for kind in walls.MEANING:
            try:
                columns[zygote.strongest((kind,))] = tried(zygote, kind, devices)
            except NoSandbox as error:
                reasons.append(f"{kind}: {error}")
        shown = f"; shown: {', '.join(map(str, devices))}" if devices else ""
        notes = [f"uid {os.geteuid()}; strongest: {zygote.kind}{shown}", *reasons]
    tried_here = [COMPUTES, *ATTEMPTS] if devices else [*ATTEMPTS, *OF_THE_MACHINE, *map(talk, BETWEEN)]
    rows = [[name, *(column[name] for column in columns.values())] for name in tried_here]
    print(Table(["", *columns], rows, notes))
    wrong = [
        f"{kind}: {name}: {said}"
        for kind, column in columns.items()
        for name, said in column.items()
        if said != "held" and name not in open_behind(kind)
    ]
    print("\n".join(wrong) or "Every kind holds what it is to hold.")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
