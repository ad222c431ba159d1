"""Child processes for Triton's other mode: how they start, what they are told, and how they end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.engine import child

ROOT = Path(__file__).resolve().parents[2]


def test_a_child_is_another_process_and_stays_for_the_next_call():
    first, second = (child.call(os.getpid, interpret=False) for _ in range(2))
    assert first == second != os.getpid()


def test_a_child_that_compiles_is_told_so_and_the_parent_keeps_its_own_setting():
    before = dict(os.environ)
    assert child.call(os.getenv, "TRITON_INTERPRET", interpret=False) == "0"
    assert dict(os.environ) == before


def test_what_a_function_raises_in_a_child_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal for int.* 'many'"):
        child.call(int, "many", interpret=False)


def test_a_child_that_dies_is_an_error_and_the_next_call_gets_a_new_one():
    with pytest.raises(RuntimeError, match="the child process that ran this kernel died"):
        child.call(os._exit, 3, interpret=False)
    assert child.call(os.getpid, interpret=False) != os.getpid()


def test_starting_a_child_leaves_the_environment_that_this_process_reads_alone(monkeypatch):
    seen, before = [], dict(os.environ)
    pool = SimpleNamespace(submit=lambda *_: seen.append(dict(os.environ)))
    monkeypatch.setattr(child, "_pool", lambda interpret: pool)
    child.prepare(os.getpid, interpret=False)
    assert seen == [before]


PARENT = """
import json, os, sys
from helpers.engine import child
names = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"
pid, *settings = [child.call(os.getpid, interpret=True), *(child.call(os.getenv, n, interpret=True) for n in names)]
print(json.dumps([pid, settings]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def orphan():
    """A parent that is killed once it has a child that interprets: the child's settings, and whether it ended too."""
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid, settings = json.loads(parent.stdout.readline())
    parent.kill()
    try:
        parent.communicate(timeout=30)  # the child has the pipe too, so this ends when both have
        ended = True
    except subprocess.TimeoutExpired:
        os.kill(pid, signal.SIGKILL)
        parent.communicate()
        ended = False
    return SimpleNamespace(settings=settings, ended=ended)


def test_a_child_that_interprets_is_told_so_and_sees_no_gpu(orphan):
    assert orphan.settings == ["1", ""]


def test_a_child_ends_with_its_parent_even_when_that_is_killed(orphan):
    assert orphan.ended
