"""Where learners' code runs: what it cannot reach, and which text counts as a kernel."""

import contextlib
import errno
import os
import platform
import socket
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import torch

import needs
from helpers.check.exercises.lesson_03 import ANY_LENGTH
from helpers.check.problems.problem import inputs_of
from helpers.check.trial import trial
from helpers.engine import processes
from helpers.instructor import REPOSITORY
from helpers.instructor.sandbox import calls, cells, walls, wire
from helpers.instructor.sandbox.client import Ended, NoSandbox, Sandbox, Zygote
from inside import ran

INF = float("inf")


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as found:
        yield found


@pytest.fixture
def sandbox(zygote):
    with Sandbox(zygote) as one:
        yield one


# Walls


def test_what_sandboxes_are_forked_from_has_one_thread(sandbox, zygote):
    assert len(os.listdir(f"/proc/{zygote.process.pid}/task")) == 1


def test_a_sandbox_has_no_network(sandbox):
    server = socket.create_server(("127.0.0.1", 0))
    cell = """
        import socket
        try:
            socket.create_connection(("127.0.0.1", PORT), 2)
            answer = "reached"
        except OSError:
            answer = "refused"
    """
    assert ran(sandbox, cell.replace("PORT", str(server.getsockname()[1]))) == "refused"


def test_a_sandbox_sees_python_and_helpers_and_nothing_else(sandbox, tmp_path):
    (tmp_path / "secret").write_text("x")
    cell = f"""
        import os
        answer = [os.path.exists({str(tmp_path)!r}), sorted(os.listdir({str(REPOSITORY)!r}))]
    """
    there, folders = ran(sandbox, cell)
    assert there is False and set(folders) <= {"helpers", ".venv"}


def test_a_sandbox_cannot_write_to_what_it_sees(sandbox):
    cell = """
        import helpers, os, sys
        answer = []
        for folder in (os.path.dirname(helpers.__file__), sys.prefix, "/usr", "/"):
            try:
                open(folder + "/written", "w")
                answer.append(folder)
            except OSError:
                pass
    """
    own = {"/", str(REPOSITORY / "helpers")}  # the sandbox's own, in memory
    assert set(ran(sandbox, cell)) <= (own if os.geteuid() else set())


def test_a_sandbox_sees_no_process_but_its_own(sandbox):
    seen = ran(sandbox, "import os\nanswer = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())")
    assert seen[0] == 1 and len(seen) <= 3


def test_a_sandbox_has_no_privileges_and_gets_none(sandbox):
    status = ran(sandbox, "answer = open('/proc/self/status').read()")
    seen = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert {seen[name] for name in ("CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
    assert seen["NoNewPrivs"] == "1" and seen["Uid"].split()[0] != "0"


def test_a_sandbox_s_environment_tells_nothing(sandbox, monkeypatch):
    names = ran(sandbox, "import os\nanswer = sorted(os.environ)")
    own = {"HOME", "PATH", "LANG", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "LC_CTYPE", "TMPDIR"}
    own |= {"PIP_RETRIES", "LD_LIBRARY_PATH"}  # which names the folder of a GPU's driver
    libraries = ("TRITON_", "CUDA_", "MPL", "TQDM_", "TORCH", "PYTORCH_", "KMP_", "PYDEVD_")
    assert [name for name in names if name not in own and not name.startswith(libraries)] == []


def test_a_sandbox_inherits_no_file_but_its_messages(sandbox):
    cell = """
        import os
        paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
        answer = sorted(os.readlink(path).split(":")[0] for path in paths if os.path.lexists(path))
    """
    assert ran(sandbox, cell) == ["/dev/null"] * 3 + ["socket"]


def test_files_of_a_sandbox_have_a_limit(sandbox):
    cell = """
        answer = 0
        try:
            for number in range(10):
                with open(f"/tmp/{number}", "wb") as file:
                    answer += file.write(b"x" * (1 << 25))
        except OSError:
            pass
    """
    assert 0 < ran(sandbox, cell) <= 96 << 20


def test_processes_of_a_sandbox_have_a_limit(sandbox):
    cell = """
        import os, time
        answer = 0
        try:
            while True:
                if os.fork() == 0:
                    time.sleep(100)
                answer += 1
        except BlockingIOError:
            pass
    """
    assert 0 < ran(sandbox, cell) <= walls.SandboxLimits().processes


def test_what_a_sandbox_started_ends_with_it(zygote):
    def waited_for_nobody():
        deadline = time.monotonic() + 30
        while processes.descendants(zygote.process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        return not processes.descendants(zygote.process.pid)

    cell = """
        import os, time
        answer = 1
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)
    """
    assert waited_for_nobody()
    with Sandbox(zygote) as one:
        ran(one, cell)
        assert len(processes.descendants(zygote.process.pid)) >= 4
    assert waited_for_nobody()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import os\nos._exit(3)", "its process ended by itself (exit status 3)"),
        ("import os\nos.kill(os.getpid(), 9)", "its process was killed by SIGKILL"),
        ("import ctypes\nctypes.string_at(0)", "its process was killed by SIGSEGV"),
        ("while True:\n    pass", "it did not come to an end within 1 second of processor time"),
    ],
)
def test_a_sandbox_that_ends_says_how(source, says, sandbox):
    with pytest.raises(Ended) as ended:
        sandbox.ask(
            {"do": "define", "sources": [source], "answer": "answer", "every_cell": True},
            1 if "while" in source else 20,
        )
    assert str(ended.value) == says


def test_a_cell_that_lifts_the_limits_of_its_own_process_ends_all_the_same(sandbox):
    cell = """
        import os, resource, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
        resource.setrlimit(resource.RLIMIT_CPU, (resource.getrlimit(resource.RLIMIT_CPU)[1],) * 2)
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        except PermissionError:
            while True:
                pass
    """
    request = {"do": "define", "sources": [textwrap.dedent(cell)], "answer": "answer", "every_cell": True}
    with pytest.raises(Ended, match="it did not come to an end within 2 seconds of processor time"):
        sandbox.ask(request, 60, processor_s=2)


def test_where_no_walls_hold_nothing_is_run(zygote):
    with pytest.raises(NoSandbox, match="Learners' code cannot be closed in here"):
        zygote.strongest(())


@pytest.mark.parametrize("kind", [walls.NAMESPACES, walls.LIMITS_ONLY])
def test_every_kind_of_walls_has_limits_and_no_privileges(kind, zygote):
    cell = """
        import resource
        answer = [resource.getrlimit(resource.RLIMIT_FSIZE)[1], resource.getrlimit(resource.RLIMIT_NPROC)[1]]
        answer += [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "NoNewPrivs"))]
    """
    with Sandbox(zygote, kind) as one:
        file, processes, *privileges = ran(one, cell)
    assert (file, *privileges) == (walls.SandboxLimits().file, "0" * 16, "1")
    same_user = kind == walls.LIMITS_ONLY and os.geteuid() != 0  # whose other processes count too
    assert processes > walls.SandboxLimits().processes if same_user else processes == walls.SandboxLimits().processes


@needs.root
def test_root_is_another_user_where_there_are_no_namespaces(zygote):
    try:
        zygote.strongest((walls.OTHER_USER,))
    except NoSandbox as refused:  # Python lies where nobody else may read it: nothing is graded, rather than wrongly
        assert "can be read by its owner alone" in str(refused)
        return
    with Sandbox(zygote, walls.OTHER_USER) as one:
        assert ran(one, "import os\nanswer = [os.getuid(), os.getgid(), os.getgroups()]")[0] >= 1_000_000


@needs.root
def test_root_runs_nothing_behind_limits_alone(zygote):
    with pytest.raises(NoSandbox, match="limits only: not as root"):
        zygote.strongest((walls.LIMITS_ONLY,))


@pytest.mark.skipif(not calls.program(platform.machine()), reason="about machines that have a filter")
@pytest.mark.parametrize(
    "call",
    ["unshare(0x10000000)", "memfd_create(b'x', 0)", "shmget(0, 4096, 0o1600)", "ptrace(0, 0, 0, 0)",
     "syscall(CLONE, 0x10000011, 0, 0, 0, 0)"],
)  # fmt: skip
def test_a_sandbox_has_no_namespaces_and_no_memory_of_its_own_making(sandbox, call):
    cell = f"""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        answer = libc.{call.replace("CLONE", "56" if platform.machine() == "x86_64" else "220")}
        if answer == 0 and "syscall" in {call!r}:
            os._exit(0)
        answer = [answer, ctypes.get_errno()]
    """
    assert ran(sandbox, cell) == [-1, errno.EPERM]


def test_a_sandbox_can_have_processes_and_threads(sandbox):
    cell = """
        import subprocess, threading, multiprocessing, sys
        threads = [threading.Thread(target=print) for _ in range(3)]
        [t.start() for t in threads], [t.join() for t in threads]
        with multiprocessing.get_context("fork").Pool(1) as pool:
            answer = pool.map(abs, [-1])
        answer += [subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout]
    """
    assert ran(sandbox, cell, 60) == [1, "1\n"]


def test_what_an_environment_s_links_lead_to_is_seen_as_well(tmp_path, monkeypatch):
    (tmp_path / "environment").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(sys.prefix)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "prefix", str(tmp_path / "environment"))
        seen = walls.visible([])
    for path in (tmp_path / "environment", Path(sys.prefix).resolve()):
        assert any(path.is_relative_to(one) for one in seen)


# Messages


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, INF, "ä", [1, [2]], (1, (2.0, "x")), {"a": 1, 2: None}, b"\0\xff", torch.float16,
     wire.Kernel("text", "name")],
)  # fmt: skip
def test_a_message_arrives_as_it_was_sent(value):
    assert wire.decode(wire.encode(value)) == value


@pytest.mark.thinned
@pytest.mark.parametrize("case", ANY_LENGTH)
def test_a_tensor_arrives_with_its_layout(case):
    (x,) = inputs_of(ANY_LENGTH[case], case, 0)
    y = wire.decode(wire.encode(x), trusted=True)
    assert (y.dtype, y.shape, y.stride(), y.storage_offset()) == (x.dtype, x.shape, x.stride(), x.storage_offset())
    some = slice(None, None, max(1, len(x) // 100))
    assert trial.same(x[some], y[some])


def test_one_number_of_a_view_arrives():
    assert wire.decode(wire.encode(torch.ones(1, 2)[:, 0].clone())).tolist() == [1.0]


@pytest.mark.parametrize(
    "content",
    [
        {"code": 1},
        {"tensor": 3},
        {"tensor": ["float32", [2], ""]},
        {"a": 1, "b": 2},
        {"dtype": "os"},
        {"dict": [[[], 1]]},
    ],
)
def test_what_is_no_message_is_refused(content):
    with pytest.raises(wire.Garbled):
        wire.decode(content)


def test_a_small_tensor_of_a_sandbox_keeps_its_strides():
    x = torch.randn(5, 9)[:, ::2]
    y = wire.decode(wire.encode(x))
    assert trial.same(x, y) and y.stride() == x.stride()
    x = torch.arange(9.0).as_strided((3, 2), (1, 1))  # in enough memory, and overlapping all the same
    y = wire.decode(wire.encode(x))
    assert trial.same(x, y) and y.is_contiguous()


def test_a_sandbox_cannot_spread_a_tensor_over_the_grader_s_memory():
    (x,) = inputs_of(ANY_LENGTH["columns of x far apart in memory"], "", 0)
    y = wire.decode(wire.encode(x))
    assert trial.same(x, y) and y.is_contiguous()
    with pytest.raises(wire.Garbled, match="elements that overlap"):
        wire.decode(wire.encode(torch.zeros(1).expand(2**40)))


@pytest.mark.parametrize("value", [[[]] * 2**20, "x" * 2**26], ids=["many values", "a long text"])
def test_a_sandbox_cannot_send_more_than_the_grader_has_room_for(value):
    sender, receiver = socket.socketpair()

    def send():
        with sender, contextlib.suppress(OSError):
            wire.send(sender, value, 60)

    sending = threading.Thread(target=send)
    sending.start()
    with receiver, pytest.raises(wire.Garbled, match="a message of"):
        wire.receive(receiver, 60)
    sending.join()


def test_half_a_character_becomes_a_whole_one():
    assert wire.decode("\ud800x") == "?x"


# Cells


def needed(*sources, answer="answer"):
    return cells.needed(sources, answer)


@pytest.mark.parametrize(
    ("sources", "chosen"),
    [
        pytest.param(["import torch", "x = 1", "def answer():\n    return torch"], [0, 2], id="what a function reads"),
        pytest.param(["x = 1", "def answer():\n    x = 2\n    return x"], [1], id="not its own names"),
        pytest.param(["def f():\n    return g()", "def g(): pass", "answer = f"], [0, 1, 2], id="through others"),
        pytest.param(["answer = {}", "answer['a'] = 1"], [0, 1], id="assigned into"),
        pytest.param(["answer = {}", "answer.update(a=1)"], [0, 1], id="changed by a method"),
        pytest.param(
            ["import torch", "torch.manual_seed(0)", "def answer(): return torch"], [0, 2], id="not a module's"
        ),
        pytest.param(["from os import *", "answer = 1"], [0, 1], id="a star may bind anything"),
        pytest.param(["def f():\n    global answer\n    answer = 1", "f()"], [0], id="bound as a global"),
        pytest.param(["def broken(:", "answer = 1"], [1], id="not what is no Python"),
        pytest.param(["%matplotlib inline\nanswer = 1"], [0], id="with magics"),
        pytest.param(["answer = 1", "answer = 2", "y = answer"], [0, 1], id="every time that it is bound"),
    ],
)
def test_only_cells_that_an_answer_depends_on_are_run(sources, chosen):
    assert needed(*sources) == chosen


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b" \n", "the file is empty"),
        (b"import torch", "it is not JSON, as a notebook is"),
        ("é".encode("utf-16"), "it is not JSON, as a notebook is"),
        (b"[]", "it is JSON, but not that of a notebook"),
        (b"null", "it is JSON, but not that of a notebook"),
        (b"{}", "it is JSON, but not that of a notebook"),
        (b'{"cells": 3}', "it is JSON, but not that of a notebook"),
        (b'{"cells": [{"cell_type": "code", "metadata": 3}]}', "it is JSON, but not that of a notebook"),
    ],
)
def test_what_is_no_notebook_is_refused(content, said):
    with pytest.raises(cells.Unreadable, match=said):
        cells.read_cells(content)
