"""The fixture that all tests stand under notices what a test leaves behind, and names it."""

import os
import signal
import subprocess

import pytest

import leaks
from helpers import traffic
from helpers.check import kept
from helpers.engine import child


def patched(monkeypatch):
    monkeypatch.setattr(child, "call", lambda *args: None)


def patched_method(monkeypatch):
    monkeypatch.setattr(traffic.Traffic, "table", lambda self: None)


def moved(monkeypatch):
    monkeypatch.chdir("/")


def set_variable(monkeypatch):
    monkeypatch.setenv("LEFT", "1")


def stored(monkeypatch):
    monkeypatch.setitem(kept._passed, "merge", None)


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (patched, "helpers.engine.child.call is another object"),
        (patched_method, "helpers.traffic:Traffic.table is another object"),
        (moved, "the working directory is /"),
        (set_variable, "the environment variable LEFT was None and is '1'"),
        (stored, "the store helpers.check.kept._passed has changed"),
    ],
)
def test_it_is_named(leave, said, monkeypatch):
    before = leaks.state()
    leave(monkeypatch)
    assert leaks.left_behind(before, leaks.state()) == [said]


def test_what_torch_compile_takes_away_again_is_not_named(monkeypatch):
    monkeypatch.setattr(child, "__compiled_fn_61_1acb67f0", print, raising=False)
    before = leaks.state()
    monkeypatch.undo()
    assert leaks.left_behind(before, leaks.state()) == []


def test_a_signal_handler_is_named():
    before, usual = leaks.state(), signal.getsignal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    found = leaks.left_behind(before, leaks.state())
    signal.signal(signal.SIGALRM, usual)
    assert found == ["SIGALRM is handled by <Handlers.SIG_IGN: 1>"]


def test_a_child_process_is_named():
    before = leaks.state()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"started\n")
        process.stdin.flush()
        process.stdout.readline()
        found = leaks.left_behind(before, leaks.state())
        process.kill()
    assert found == [f"the process {process.pid} (cat)"]


def test_what_is_left_behind_is_put_right(monkeypatch):
    before = leaks.state()
    for leave in (patched, patched_method, moved, set_variable):
        leave(monkeypatch)
    leaks.restore(before)
    assert leaks.left_behind(before, leaks.state()) == []
    assert "LEFT" not in os.environ
