"""Child processes for Triton's other mode: how they start, what they are told, and how they end."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.engine import child, isolate
from variants import proofs_but_for

ROOT = Path(__file__).resolve().parents[2]
UNREADABLE = "class Unreadable(Exception): pass\nraise Unreadable('it fails')"


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


def test_an_error_that_pickle_cannot_take_arrives_in_words():
    with pytest.raises(RuntimeError, match="Unreadable: it fails"):
        child.call(exec, UNREADABLE, interpret=False)


@pytest.mark.thinned(0)
def test_a_call_that_takes_too_long_ends_the_child_and_the_next_call_gets_a_new_one():
    before = child.call(os.getpid, interpret=False)
    with pytest.raises(TimeoutError):
        child.call(time.sleep, 60, interpret=False, limit_s=0.1)
    assert child.call(os.getpid, interpret=False) != before


def test_starting_a_child_leaves_the_environment_of_this_process_alone():
    before = dict(os.environ)
    child.end(interpret=False)
    child.prepare(os.getpid, interpret=False)
    assert dict(os.environ) == before


@pytest.mark.thinned(0)
def test_a_fork_of_this_process_has_a_child_of_its_own():
    ours = child.call(os.getpid, interpret=False)
    (forked,) = isolate.call_each(lambda _: _its_own(), [0], isolate.Limits(cpu_s=60))
    assert forked.value not in (None, ours)
    assert child.call(os.getpid, interpret=False) == ours


def _its_own():
    try:
        return child.call(os.getpid, interpret=False)
    finally:
        child.end(interpret=False)


SCRIPT = """
import os, sys
from helpers.engine import child
print("ran", flush=True)
assert child.call(os.getenv, "TRITON_INTERPRET", interpret=False) == "0"
"""


def _as_a_file(folder):
    path = folder / "script.py"
    path.write_text(SCRIPT)
    return [str(path)], None


STARTED = {
    "a script": _as_a_file,
    "python -c": lambda folder: (["-c", SCRIPT], None),
    "stdin": lambda folder: (["-"], SCRIPT),
}


@pytest.mark.thinned(0)
@pytest.mark.parametrize("started", proofs_but_for(STARTED.values(), 1), ids=STARTED)
def test_the_program_that_starts_a_child_runs_once_and_needs_no_guard(started, tmp_path):
    arguments, given = started(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, input=given, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


INTERRUPTED = """
import os, signal, threading, time
from helpers.engine import child
first = child.call(os.getpid, interpret=False)
threading.Timer(0.5, os.killpg, (0, signal.SIGINT)).start()
try:
    child.call(time.sleep, 60, interpret=False)
except KeyboardInterrupt:
    print("interrupted", child.call(os.getpid, interpret=False) != first, flush=True)
"""


@pytest.mark.thinned(0)
def test_ctrl_c_ends_the_child_without_a_word_of_its_own():
    restored = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", restored + INTERRUPTED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, start_new_session=True)
    assert (done.stdout, done.stderr) == ("interrupted True\n", "")


PARENT = """
import json, os, sys, threading, time
from helpers.engine import child
names = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"
pid, *settings = [child.call(os.getpid, interpret=True), *(child.call(os.getenv, n, interpret=True) for n in names)]
threading.Timer(0.5, print, [json.dumps([pid, settings])], {"flush": True}).start()
child.call(time.sleep, 600, interpret=True)
"""


@pytest.fixture(scope="module")
def orphan():
    """A parent that is killed while its child is at work: the child's settings, and whether it ended too.

    A child that waits for calls would see the end of its pipe.
    """
    command = [sys.executable, "-c", PARENT]
    parent = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid, settings = json.loads(parent.stdout.readline())
    child = os.pidfd_open(pid)
    parent.kill()
    ended = bool(select.select([child], [], [], 30)[0])
    if not ended:
        os.kill(pid, signal.SIGKILL)
    parent.communicate()
    os.close(child)
    return SimpleNamespace(settings=settings, ended=ended)


@pytest.mark.thinned(0)
def test_a_child_that_interprets_is_told_so_and_sees_no_gpu(orphan):
    assert orphan.settings == ["1", ""]


def test_a_child_ends_with_its_parent_even_when_that_is_killed(orphan):
    assert orphan.ended
