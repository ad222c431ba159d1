"""What Landlock takes from a process, and what it leaves it: tried in forked processes, whoever runs the tests."""

import errno
import fcntl
import os
import socket
import termios
from functools import partial
from pathlib import Path

import pytest

from helpers.instructor.sandbox import landlock, walls

NO_NEW_PRIVS = 38
KNOWN = landlock.version()
pytestmark = pytest.mark.skipif(not KNOWN, reason="this kernel has no Landlock, or it is switched off")


def since(version):
    return pytest.mark.skipif(version > KNOWN, reason=f"Landlock {KNOWN} does not know it, {version} does")


@pytest.fixture
def places(tmp_path):
    """A folder with a file for each way in which folders are shown, and one that is not."""
    for name in ("readable", "writable", "overwritable", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("content")
    return tmp_path


def closed_in(places, readable=()):
    landlock.restrict(
        [places / "readable", *readable], [places / "writable"], [Path("/dev/null")], [places / "overwritable"]
    )


def became(places, attempt, times=1, readable=()):
    """The error's number of what `attempt` does in a process that is closed in, 0 for none."""
    told, said = os.pipe()
    child = os.fork()
    if child == 0:
        number = 255
        try:
            walls.prctl(NO_NEW_PRIVS, 1)
            for _ in range(times):
                closed_in(places, readable)
            attempt()
            number = 0
        except OSError as error:
            number = error.errno
        finally:
            os.write(said, bytes([number]))
            os._exit(0)
    os.close(said)
    with os.fdopen(told, "rb") as end:
        number = end.read()[0]
    os.waitpid(child, 0)
    return number


def reads(path):
    with open(path, encoding="utf-8") as file:
        assert file.read()


def writes(path):
    with open(path, "r+", encoding="utf-8") as file:
        file.write("x")


def reads_and_writes(path):
    os.close(os.open(path, os.O_RDWR))


def commands(path):
    with open(path, "rb") as terminal:
        fcntl.ioctl(terminal, termios.TIOCNXCL)


ATTEMPTS = {
    "reads": lambda folder: reads(folder / "file"),
    "lists": os.listdir,
    "writes": lambda folder: writes(folder / "file"),
    "makes a file": lambda folder: open(folder / "new", "x").close(),
    "makes a folder": lambda folder: os.mkdir(folder / "new folder"),
    "makes a link": lambda folder: os.symlink("file", folder / "new link"),
    "makes a pipe": lambda folder: os.mkfifo(folder / "new pipe"),
    "removes": lambda folder: os.unlink(folder / "file"),
}
LEFT = {
    "readable": {"reads", "lists"},
    "writable": set(ATTEMPTS),
    "overwritable": {"reads", "writes"},
    "elsewhere": set(),
}


@pytest.mark.parametrize("folder", LEFT)
def test_a_folder_can_be_used_as_it_is_shown(folder, places):
    ended = {name: became(places, partial(attempt, places / folder)) for name, attempt in ATTEMPTS.items()}
    assert {name for name, number in ended.items() if not number} == LEFT[folder]
    assert set(ended.values()) <= {0, errno.EACCES}


def test_a_file_is_shown_by_itself_too(places):
    shown = places / "elsewhere" / "file"
    assert became(places, partial(reads, shown), readable=[shown]) == 0
    assert became(places, partial(writes, shown), readable=[shown]) == errno.EACCES


def test_a_device_can_be_read_and_written(places):
    assert became(places, partial(reads_and_writes, "/dev/null")) == 0
    assert became(places, partial(reads_and_writes, "/dev/zero")) == errno.EACCES


@since(2)
def test_a_file_is_moved_within_the_folder_that_can_be_written(places):
    (places / "writable" / "below").mkdir()
    move = partial(os.rename, places / "writable" / "file")
    assert became(places, partial(move, places / "readable" / "new")) == errno.EACCES
    assert became(places, partial(move, places / "writable" / "below" / "file")) == 0


@since(3)
@pytest.mark.parametrize(("folder", "says"), [("readable", errno.EACCES), ("overwritable", 0), ("writable", 0)])
def test_a_file_that_can_be_written_can_be_cut(folder, says, places):
    assert became(places, partial(os.truncate, places / folder / "file", 0)) == says


@since(4)
@pytest.mark.parametrize("way", ["connects", "binds"])
def test_tcp_is_gone(way, places):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as one:
        act = partial(one.connect, server.getsockname()) if way == "connects" else partial(one.bind, ("127.0.0.1", 0))
        assert became(places, act) == errno.EACCES


@since(5)
def test_a_terminal_that_is_not_listed_takes_no_commands(places):
    main, end = os.openpty()
    with open(main, "rb"), open(end, "rb"):
        name = Path(os.ttyname(end))
        assert became(places, partial(commands, name), readable=[name]) == errno.EACCES


@since(landlock.KEEPS_SIGNALS_FROM)
def test_no_signal_leaves_the_process(places):
    assert became(places, partial(os.kill, os.getpid(), 0)) == errno.EPERM


@since(landlock.KEEPS_SIGNALS_FROM)
def test_a_socket_without_a_file_that_listens_outside_is_not_reached(places):
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as one:
        listening.bind(f"\0landlock-{os.getpid()}")
        listening.listen()
        assert became(places, partial(one.connect, listening.getsockname())) == errno.EPERM


def test_a_rule_that_the_kernel_does_not_take_is_an_error(places):
    assert became(places, lambda: None, times=17, readable=[Path("/")]) == errno.E2BIG  # it takes sixteen


def test_what_closes_a_process_in_leaves_no_file_open(places):
    def counted():
        before = os.listdir("/proc/self/fd")
        closed_in(places, [Path("/proc")])
        if os.listdir("/proc/self/fd") != before:
            raise OSError(errno.EMFILE, "there are more")

    assert became(places, counted, times=0) == 0
