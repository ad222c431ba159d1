"""Each kind of walls: what it keeps in, what it leaves behind, and that nothing weaker is taken for it."""

import errno
import os
import pwd
import shutil
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

import needs
import what_holds
from handed_in import TILE, solved, written
from helpers.engine import processes
from helpers.engine.isolate import End
from helpers.instructor import REPOSITORY
from helpers.instructor.__main__ import main
from helpers.instructor.grade import everyone, speed
from helpers.instructor.report import gradebook
from helpers.instructor.sandbox import calls, landlock, walls
from helpers.instructor.sandbox.client import Budget, Ended, NoSandbox, Sandbox, Zygote, own_folder
from inside import ran


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as found:
        yield found


@pytest.fixture(scope="module", params=walls.ENOUGH)
def kind(request, zygote):
    try:
        return zygote.strongest((request.param,))
    except NoSandbox as refused:
        pytest.skip(f"{refused} `su` to another user, or a Python that everybody may read, has it")


# What holds


def test_walls_hold_what_they_are_to_hold(kind, zygote):
    found = what_holds.tried(zygote, kind)
    assert {name for name, said in found.items() if said != "held"} <= what_holds.open_behind(kind)


def test_what_one_submission_writes_the_next_one_cannot_import(kind, zygote):
    with Sandbox(zygote, kind) as first, Sandbox(zygote, kind) as second:
        ran(first, "open('left_behind.py', 'w').write('found = 1')\nimport left_behind\nanswer = left_behind.found")
        cell = "try:\n    import left_behind\n    answer = 'imported'\nexcept ImportError:\n    answer = 'not there'"
        assert ran(second, cell) == "not there"


def test_temporary_files_go_into_a_sandbox_s_own_folder(kind, zygote):
    cell = """
        import os, tempfile
        with tempfile.NamedTemporaryFile() as file:
            answer = [os.path.dirname(file.name) == os.getcwd() == os.path.expanduser("~")]
    """
    with Sandbox(zygote, kind) as one:
        assert ran(one, cell) == [True]


@pytest.mark.parametrize("leaves", ["open('x', 'w').close()", "os.makedirs('/'.join('d' * 300))", "os.mkdir('m', 0)"])
def test_a_sandbox_leaves_nothing_behind(kind, leaves, zygote):
    before = set(zygote.folder.iterdir())
    with Sandbox(zygote, kind) as one:
        ran(one, f"import os\n{leaves}\nanswer = 1")
    assert set(zygote.folder.iterdir()) == before


def test_what_a_sandbox_writes_has_a_limit(kind, zygote):
    cell = """
        import os, time
        answer = 0
        try:
            for number in range(9):
                with open(f"{number}", "wb") as file:
                    answer += file.write(b"x" * (1 << 25))
                time.sleep(0.2)
        except OSError:
            pass
    """
    with Sandbox(zygote, kind) as one:
        try:
            assert ran(one, cell) <= walls.SandboxLimits().folder
        except Ended as ended:
            assert ended.end is End.OUT_OF_MEMORY and "it wrote more than 96 MB" in str(ended)


def test_a_disk_without_room_is_no_fault_of_a_sandbox(tmp_path, monkeypatch):
    assert walls.fills(tmp_path, walls.SandboxLimits()) == ""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 9000)
    assert walls.fills(tmp_path, walls.SandboxLimits(folder=4096)).startswith("it wrote more than")
    assert walls.fills(tmp_path, walls.SandboxLimits(n_files=1)).startswith("it wrote more than")


def test_a_process_that_starts_afresh_beside_a_device_finds_the_course(kind, zygote):
    with Sandbox(zygote, kind, devices=[Path("/dev/null")], given=None) as one:
        assert ran(one, "from helpers import timing\nanswer = timing.__name__", 120) == "helpers.timing"


CUDA_DOES = """
    import os, socket, threading
    def named():
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
            file.write("cuda")
    def done(work):
        try:
            work()
            return "done"
        except OSError as error:
            return type(error).__name__
    def connected(kind):
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.connect("\\0grader")
    def bound():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.bind(f"\\0cuda-{os.getpid()}")
            one.listen()
    packets, stream, datagrams = socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM
    answer = [done(named), done(bound), *(done(lambda: connected(kind)) for kind in (packets, stream, datagrams))]
"""


def test_a_process_beside_a_device_does_what_cuda_does_when_it_starts_and_reaches_nobody(kind, zygote):
    """It names its threads, which takes a /proc that can be written to, and listens on a socket of packets."""
    refused = ["PermissionError"] * 3
    with Sandbox(zygote, kind, devices=[Path("/dev/null")], given=None) as one:
        assert ran(one, CUDA_DOES, 120) == ["done", "done", *refused]
    with Sandbox(zygote, kind) as one:
        named, *others = ran(one, CUDA_DOES)
        assert (named != "done" or kind == walls.OTHER_USER) and others == ["PermissionError", *refused]


@needs.gpu
def test_walls_hold_what_they_are_to_hold_where_the_gpu_can_be_used(kind, workshop):
    found = what_holds.tried(workshop.compiling(), kind, speed.devices())
    assert {name for name, said in found.items() if said != "held"} <= what_holds.open_behind(kind)


def test_debian_s_settings_of_python_to_which_it_has_links_are_seen():
    settings = Path("/etc/python{}.{}".format(*sys.version_info))
    assert (settings in walls.visible([])) == settings.exists()


# The processes that sandboxes are forked from


@pytest.mark.proof
def test_a_zygote_leaves_nothing():
    with Zygote() as one:
        folder = one.folder
        assert folder.exists()
    assert not folder.exists()


def test_what_a_killed_grader_has_left_is_removed_and_what_is_in_use_is_not(tmp_path):
    in_use = own_folder(tmp_path)
    left = in_use.parent / "999999999-left"
    (left / "x").mkdir(parents=True)
    own_folder(tmp_path)
    assert in_use.exists() and not left.exists()


def test_limits_alone_are_not_taken_for_walls():
    assert walls.LIMITS_ONLY not in walls.ENOUGH and set(walls.CHOICES.values()) == set(walls.MEANING)


def test_a_kind_that_there_is_not_is_refused(zygote):
    with pytest.raises(ValueError, match="walls of the kind 'strange' do not exist; there are namespaces, Landlock"):
        Sandbox(zygote, "strange")


def test_folders_of_packages_are_seen_wherever_they_are_and_private_ones_are_not(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    for folder in (tmp_path / "packages", checkout / "solutions"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), str(checkout), str(Path.home()), "/", *sys.path])
    seen = walls.visible([])
    assert tmp_path / "packages" in seen
    assert not {checkout, Path.home(), Path("/"), REPOSITORY} & set(seen)


@pytest.mark.parametrize("named_by", ["the environment", "the system", "both"])
def test_a_home_and_what_holds_it_are_private_whoever_names_it_and_packages_in_it_are_not(
    named_by, tmp_path, monkeypatch
):
    home, other = tmp_path / "homes" / "ada", tmp_path / "other"
    monkeypatch.setenv("HOME", str(other if named_by == "the system" else home))
    of_system = SimpleNamespace(pw_dir=str(other if named_by == "the environment" else home))
    monkeypatch.setattr(pwd, "getpwuid", lambda user: of_system)
    assert walls.is_private(home) and walls.is_private(home.parent)
    assert not walls.is_private(home / "packages")


def test_a_user_without_a_name_and_a_home_has_no_private_folder_of_that_kind(tmp_path, monkeypatch):
    def unknown(user):
        raise KeyError(user)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert not walls.is_private(tmp_path)


def test_a_landlock_that_does_not_know_signals_is_not_enough_for_the_same_user():
    assert landlock.KEEPS_SIGNALS_FROM == 6 and landlock.version() >= 0


@pytest.mark.parametrize(("chosen", "kinds"), [([], walls.ENOUGH), (["--walls", "limits"], (walls.LIMITS_ONLY,))])
def test_the_command_takes_walls_that_are_enough_unless_told_otherwise(chosen, kinds, original, monkeypatch, capsys):
    def refused(*args, **given):
        raise NoSandbox(f"for {given['kinds']}")

    monkeypatch.setattr(everyone, "grade", refused)
    assert main(["grade", str(original), *chosen]) == 1
    assert capsys.readouterr().err == f"error: for {kinds}\n"


@pytest.mark.thinned(0)
def test_where_no_walls_hold_nothing_is_graded(original, tmp_path):
    course = shutil.copytree(original, tmp_path / "course")
    path = course / "submitted" / "ada" / TILE / f"{TILE}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(written(solved(TILE)))
    with pytest.raises(NoSandbox):
        everyone.grade(course, progress=False, kinds=())
    assert gradebook.results_of(course) == []


# Budgets


@pytest.mark.thinned(0)
def test_a_submission_that_sleeps_uses_up_its_time(zygote):
    budget = Budget(most_waiting_s=1.5, least_waiting_s=0)
    slept = r"waited or slept for 1\.5 seconds"
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended, match=slept) as ended:
        ran(one, "import time\ntime.sleep(60)\nanswer = 1")
    assert ended.value.end is End.OUT_OF_TIME and budget.waited_s >= 1.5 and budget.waiting_s_left() == 0


@pytest.mark.thinned(0)
def test_a_submission_that_computes_does_not_wait_however_few_processors_there_are(zygote):
    """The one processor that it has is shared with what does nothing else; its own time is not what the clock says."""
    budget = Budget(most_waiting_s=2, least_waiting_s=0)
    cell = "import time\nwhile time.process_time() < 3:\n    pass\nanswer = 1"
    mine = os.sched_getaffinity(0)
    busy = "import os\nos.setsid()\nwhile True:\n    pass"
    with Sandbox(zygote, budget=budget) as one, ExitStack() as others:
        of_one = [one.guard, *processes.descendants(one.guard)]
        for _ in range(4):
            other = others.enter_context(subprocess.Popen([sys.executable, "-c", busy]))
            others.callback(other.kill)
            of_one.append(other.pid)
        for pid in of_one:
            os.sched_setaffinity(pid, {min(mine)})
        ran(one, cell, 120)
        assert budget.wall_s > 3 and budget.waited_s < 2


@pytest.mark.thinned(0)
def test_a_submission_that_mostly_sleeps_uses_up_its_time_though_it_computes_a_little(zygote):
    budget = Budget(most_waiting_s=2, least_waiting_s=0)
    cell = """
        import time
        while True:
            began = time.process_time()
            while time.process_time() < began + 0.02:
                pass
            time.sleep(0.5)
    """
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended, match="waited or slept"):
        ran(one, cell, 120)


@pytest.mark.thinned(0)
def test_a_submission_that_sends_a_message_bit_by_bit_uses_up_its_time(zygote):
    budget = Budget(most_waiting_s=1.5, least_waiting_s=0)
    cell = """
        import gc, socket, time
        for one in gc.get_objects():
            if isinstance(one, socket.socket) and one.fileno() >= 0:
                for byte in (1_000).to_bytes(8, "big"):
                    one.sendall(bytes([byte]))
                    time.sleep(0.3)
    """
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended, match="waited or slept"):
        ran(one, cell, 120)
    assert budget.waiting_s_left() == 0


def test_the_clock_of_a_submission_runs_once_for_all_ranks_that_are_asked_side_by_side():
    budget = Budget()
    for began, ended in ((10, 15), (11, 16), (12, 14), (20, 21)):
        budget.note(began, ended)
    assert budget.wall_s == 7


def test_a_machine_that_is_too_busy_for_a_submission_fails_and_not_the_submission(zygote):
    failures = []
    budget = Budget(most_clock_s=1)
    with Sandbox(zygote, budget=budget, failed=failures.append) as one, pytest.raises(NoSandbox, match="too busy"):
        ran(one, "import time\ntime.sleep(60)\nanswer = 1")
    assert failures == ["this machine was too busy for 1 seconds"]


@pytest.mark.thinned(0)
def test_the_processor_time_of_all_processes_of_a_sandbox_counts(zygote):
    cell = """
        import os
        children = [os.fork() for _ in range(4)]
        while True:
            pass
    """
    budget = Budget(most_processor_s=2, least_processor_s=0)
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended) as ended:
        ran(one, cell, 120)
    assert str(ended.value) == "it did not come to an end within 2 seconds of processor time"


@pytest.mark.thinned(0)
def test_what_was_used_up_is_added_and_the_next_sandbox_has_its_least(zygote):
    budget = Budget(most_processor_s=10, least_processor_s=3)
    for _ in range(2):
        with Sandbox(zygote, budget=budget) as one:
            ran(one, "import time\nwhile time.process_time() < 1.5:\n    pass\nanswer = 1", 120)
    assert budget.processor_s > 2
    assert Budget(most_processor_s=10, least_processor_s=3, processor_s=99).processor_s_left() == 3
    assert Budget(most_waiting_s=10, least_waiting_s=3, waited_s=99).waiting_s_left() == 3


def test_several_sandboxes_may_have_the_memory_of_one(zygote):
    with Sandbox(zygote) as one:
        one.share_memory(12)
        assert ran(one, "answer = len(bytearray(1 << 26))") == 1 << 26
        with pytest.raises(Ended, match=r"it held more than 0\.25 GB of memory") as ended:
            ran(one, "import time\nheld = bytearray(1 << 29)\ntime.sleep(20)\nanswer = 1")
    assert ended.value.end is End.OUT_OF_MEMORY


@pytest.mark.thinned(0)
def test_a_sandbox_that_asks_all_the_time_and_sleeps_uses_up_its_time(zygote):
    budget = Budget(most_waiting_s=2, least_waiting_s=0)
    cell = """
        import time
        def asks(group):
            while True:
                time.sleep(0.1)
                group.wire.send({"do": "ask"})
        answer = 1
    """
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended, match="waited or slept"):
        ran(one, cell)
        request = {"do": "rank", "answer": "asks", "given": [], "rank": 0, "world": 1, "groups": 1}
        one.ask(request, 60, lambda sent: {"answer": [{}, b""]})


# What the machine fails at


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_sandbox_whose_guard_is_killed_is_a_failure_of_the_machine(zygote):
    failures = []
    with Sandbox(zygote, failed=failures.append) as one:
        forked = Path(f"/proc/{zygote.process.pid}/task/{zygote.process.pid}/children").read_text().split()
        inside = processes.descendants(zygote.process.pid)
        for guard in map(int, forked):
            os.kill(guard, 9)
        while any(map(_runs, inside)):  # they end with their guard, which is no longer theirs when it has ended
            time.sleep(0.05)
        with pytest.raises(NoSandbox, match="ended from outside"):
            ran(one, "answer = 1")
    assert failures == ["a sandbox was ended from outside"]


def test_a_sandbox_that_was_killed_is_counted(zygote):
    budget = Budget()
    with Sandbox(zygote, budget=budget) as one, pytest.raises(Ended):
        ran(one, "import os\nos.kill(os.getpid(), 9)")
    assert budget.killed == 1


# The filter of system calls, carried out here: for every machine, whatever this one is

ALLOW, PRETEND, KILL = 0x7FFF0000, 0x00050000, 0x80000000
REFUSED = PRETEND | errno.EPERM
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
(SOCKET, SOCKETPAIR, CHMOD, PRLIMIT, SETRLIMIT, SEMGET, MSGGET, CLONE, READ, SETPRIORITY, SETSCHEDULER, SETATTRIBUTES,
 FCNTL, FUTEX, PREADV2, FADVISE, EVENTFD, GETSOCKOPT) = range(18)  # fmt: skip
NUMBERS = {
    "x86_64": (41, 53, 91, 302, 160, 64, 68, 56, 0, 141, 144, 314, 72, 202, 327, 221, 290, 55),
    "aarch64": (198, 199, 52, 261, 164, 190, 186, 220, 63, 140, 119, 274, 25, 98, 286, 223, 19, 209),
}


def decided(machine, call, *arguments, same_user=False, architecture=None, of_rank=False):
    """What the filter says of a call: the kernel's rules for it, in Python."""
    number = call if call > 100 else NUMBERS[machine][call]
    words = [number, architecture or ARCHITECTURES[machine], 0, 0]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        words += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    steps = list(struct.iter_unpack("=HBBI", calls.program(machine, same_user, of_rank=of_rank)))
    at, value = 0, 0
    while True:
        code, yes, no, operand = steps[at]
        at += 1
        if code == 0x06:
            return operand
        if code == 0x20:
            value = words[operand // 4]
        elif code == 0x54:
            value &= operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code]
            at += yes if holds else no


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("call", "arguments", "same_user", "says"),
    [
        *[pytest.param(SOCKET, (one, 1), False, REFUSED, id=f"family {one}") for one in (1, 2, 10, 16, 38, 40)],
        pytest.param(SOCKETPAIR, (1, 1), False, ALLOW, id="a pair of streams"),
        pytest.param(SOCKETPAIR, (1, 5 | 0o2000000), False, ALLOW, id="a pair of packets, closed on exec"),
        pytest.param(SOCKETPAIR, (1, 2), False, REFUSED, id="a pair that can send elsewhere"),
        pytest.param(SOCKETPAIR, (30, 1), False, REFUSED, id="a pair of another family"),
        pytest.param(SEMGET, (0, 32000), False, REFUSED, id="semaphores"),
        pytest.param(MSGGET, (0,), False, REFUSED, id="messages"),
        *[pytest.param(FCNTL, (3, one), False, ALLOW, id=f"fcntl {one}") for one in (0, 1, 2, 3, 4, 1030, 1032)],
        *[
            pytest.param(FCNTL, (3, one), False, REFUSED, id=f"fcntl {one}")
            for one in (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1025, 1026, 1031, 1033, 1036)
        ],
        pytest.param(PREADV2, (3, 0, 1, 0, 0, 8), False, REFUSED, id="reading what is in memory alone"),
        pytest.param(PREADV2, (3, 0, 1, 0, 0, 2), False, ALLOW, id="reading with other flags"),
        pytest.param(451, (), False, REFUSED, id="asking what is in memory"),
        pytest.param(FADVISE, (3, 0, 0, 4), False, REFUSED, id="throwing out of memory what all read"),
        pytest.param(EVENTFD, (0, 0), False, REFUSED, id="an event with a number"),
        pytest.param(434, (1, 0), False, REFUSED, id="a file of a process, which counts all"),
        pytest.param(GETSOCKOPT, (3, 1, 57), False, REFUSED, id="the cookie of a socket"),
        pytest.param(GETSOCKOPT, (3, 1, 16), False, ALLOW, id="another property of a socket"),
        pytest.param(PRLIMIT, (0, 4, 0, 1 << 32), False, ALLOW, id="reading the limit of cores"),
        pytest.param(PRLIMIT, (0, 4, 4096), False, PRETEND, id="setting it"),
        pytest.param(PRLIMIT, (0, 4, 1 << 32), False, PRETEND, id="setting it from a high address"),
        pytest.param(PRLIMIT, (0, 7, 4096), False, ALLOW, id="setting another limit"),
        pytest.param(PRLIMIT, (77, 7, 4096), False, ALLOW, id="another process's, as another user"),
        pytest.param(PRLIMIT, (77, 7, 4096), True, REFUSED, id="another process's, as the same user"),
        pytest.param(SETRLIMIT, (4, 4096), False, PRETEND, id="the old call"),
        pytest.param(SETRLIMIT, (5, 4096), True, ALLOW, id="the old call for another limit"),
        pytest.param(SETPRIORITY, (0, 0, 19), False, REFUSED, id="one's own priority"),
        pytest.param(SETSCHEDULER, (0, 5), False, REFUSED, id="one's own scheduler"),
        pytest.param(SETATTRIBUTES, (0,), False, REFUSED, id="one's own scheduler, by its attributes"),
        pytest.param(CHMOD, (3, 0o777), False, ALLOW, id="modes of one's own files"),
        pytest.param(CHMOD, (3, 0o777), True, REFUSED, id="modes of the instructor's"),
        pytest.param(CLONE, (0x10000011,), False, REFUSED, id="a new user namespace"),
        pytest.param(CLONE, (0x00001011,), False, REFUSED, id="a new process with a file"),
        pytest.param(CLONE, (0x00000011,), False, ALLOW, id="a new process"),
        pytest.param(435, (), False, PRETEND | errno.ENOSYS, id="clone3"),
        pytest.param(READ, (), True, ALLOW, id="what is not listed"),
    ],
)  # fmt: skip
def test_the_filter_refuses(machine, call, arguments, same_user, says):
    assert decided(machine, call, *arguments, same_user=same_user) == says


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_only_the_kernel_wakes_a_rank_that_waits_for_more_than_its_own_threads(machine):
    wakes, waits_or_private = (1, 3, 4, 5, 10, 12), (0, 9, 9 | 256, 129, 128 | 10)
    assert {decided(machine, FUTEX, 0, one, of_rank=True) for one in wakes} == {PRETEND | errno.EINVAL}
    assert {decided(machine, FUTEX, 0, one, of_rank=True) for one in waits_or_private} == {ALLOW}
    assert decided(machine, FUTEX, 0, 1) == ALLOW


def test_calls_of_another_architecture_end_the_process():
    assert decided("x86_64", READ, architecture=0x40000003) == KILL
    assert decided("x86_64", 0x40000000 + 41) == PRETEND | errno.ENOSYS
