"""Whatever a call does to its process, or to the pipes of the check, its outcome is told and nothing outlives it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from helpers.engine import isolate
from helpers.engine.isolate import End, Limits

A_LENGTH = (1 << 40).to_bytes(8, "big")
SHORT = Limits(cpu_s=1, waits_s=20, answered=1 << 20)


def outcome(call, limits=SHORT):
    (found,) = isolate.call_each(call, [0], limits)
    return found


def _write_everywhere(content):
    for number in range(3, 1 << 16):
        try:
            os.write(number, content)
        except OSError:
            pass


def _end_the_parent(_):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(20)


def _stop(_):
    os.kill(os.getpid(), signal.SIGSTOP)


def _overflow_the_stack(_):
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    libc = ctypes.CDLL(None)

    def call_again(a, b):
        libc.qsort((ctypes.c_int * 2)(2, 1), 2, 4, kept[0])
        return 0

    kept = [compare(call_again)]
    sys.setrecursionlimit(10**9)
    call_again(0, 0)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("call", "end", "said"),
    [
        (_stop, End.DIED, "its process was stopped by SIGSTOP"),
        (_overflow_the_stack, End.DIED, "its process was killed by SIGSEGV"),
        (_end_the_parent, End.DIED, "its process was ended from outside"),
        (lambda _: _write_everywhere(b"garbage"), End.STRAYED, "it wrote into a pipe that is not its own"),
        (lambda _: _write_everywhere(A_LENGTH), End.STRAYED, "it wrote into a pipe that is not its own"),
        (lambda _: os.closerange(3, 1 << 20), End.STRAYED, "it closed a file that it has not opened"),
        (lambda _: torch.zeros(1 << 19), End.DIED, "what it returned has more than 1,048,576 bytes"),
        (lambda _: all(True for _ in iter(int, 1)), End.OUT_OF_TIME,
         "it did not come to an end within 1 second of processor time"),
    ],
    ids=["stopped", "stack", "its keeper killed", "garbage", "a false length", "files closed", "too large", "endless"],
)  # fmt: skip
def test_a_call_that_ends_its_process_is_told_how(call, end, said):
    found = outcome(call)
    assert (found.end, found.said) == (end, said)


def _ask(_):
    try:
        return input("which? ")
    except EOFError as error:
        return str(error)


def test_a_call_that_asks_for_input_is_told_that_nobody_answers():
    found = outcome(_ask)
    assert (found.end, found.value) == (End.RETURNED, "the code asks for input, and nobody can answer here")


def test_what_a_call_displays_reaches_no_notebook_and_costs_nothing():
    InteractiveShell.instance()
    try:
        found = outcome(lambda _: display(torch.zeros(2)))
    finally:
        InteractiveShell.clear_instance()
    assert (found.end, found.printed) == (End.RETURNED, "")


def test_calls_in_turn_meet_what_those_before_them_have_left():
    made = []

    def count(wait):
        time.sleep(wait)
        made.append(wait)
        return len(made)

    found = isolate.call_each(count, [0.2, 0.0, 0.0], SHORT, in_turn=True)
    assert [one.value for one in found] == [1, 2, 3]


def test_a_call_that_waits_is_told_so():
    found = outcome(lambda _: time.sleep(60), Limits(waits_s=0.5))
    said = "it did not come to an end, and waited or slept for 0.5 seconds"
    assert (found.end, found.said) == (End.OUT_OF_TIME, said)


def _compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_call_that_computes_is_not_ended_by_the_clock():
    assert outcome(lambda _: _compute(2.5) or 7, Limits(waits_s=0.2)).value == 7


def test_a_child_that_is_still_to_be_forked_does_not_wait(monkeypatch):
    keep = isolate.keep_child
    monkeypatch.setattr(isolate, "keep_child", lambda *what: (_compute(1), keep(*what)))
    assert outcome(lambda _: 7, Limits(waits_s=0.2)).value == 7


def test_the_processes_that_a_call_starts_share_its_processor_time():
    def in_many(_):
        for _ in range(4):
            if not os.fork():
                _compute(60)
        os.wait()

    found = outcome(in_many, SHORT)
    assert (found.end, found.said) == (End.OUT_OF_TIME, "it did not come to an end within 1 second of processor time")


def test_no_call_is_begun_once_all_together_have_used_up_their_processor_time():
    found = isolate.call_each(lambda _: _compute(0.4), [0] * 9, Limits(together_s=0.5), in_turn=True)
    assert [one.end for one in found[:2] + found[-1:]] == [End.RETURNED, End.RETURNED, End.NOT_RUN]


def test_what_calls_wait_for_is_not_taken_from_their_time_together():
    found = isolate.call_each(lambda _: time.sleep(0.2), [0] * 5, Limits(together_s=0.5), in_turn=True)
    assert {one.end for one in found} == {End.RETURNED}


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "1 second"), (1.0, "1 second"), (10, "10 seconds"), (0.5, "0.5 seconds")]
)
def test_a_time_is_said_in_seconds(seconds, words):
    assert isolate.out_of_time(seconds) == f"it did not come to an end within {words}"


def test_bytes_that_are_no_answer_are_told_though_they_come_with_the_secret():
    child = isolate._Child(lambda _: time.sleep(60), [0], SHORT)
    child.begin(0)
    child.answered += child.secret + (7).to_bytes(8, "big") + b"no zip!"
    assert child.outcome().end is End.STRAYED and not child.alive


def test_the_beginning_of_an_answer_is_waited_for():
    child = isolate._Child(lambda _: time.sleep(60), [0], SHORT)
    child.begin(0)
    child.answered += child.secret + (7).to_bytes(8, "big") + b"no"
    assert child.outcome() is None
    child.end()


def test_what_a_call_closes_of_what_it_prints_to_does_not_cost_its_answer():
    found = outcome(lambda _: print("seen", flush=True) or sys.stdout.close() or 7)
    assert (found.end, found.value, found.printed) == (End.RETURNED, 7, "seen\n")


def test_a_call_finds_no_file_of_the_process_that_checks_it():
    with open(__file__) as file:
        found = outcome(lambda _: os.path.exists(f"/proc/self/fd/{file.fileno()}"))
    assert found.value is False


def _leave_a_session(_):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    return process.pid


def test_a_process_in_a_session_of_its_own_does_not_outlive_the_calls():
    pid = outcome(_leave_a_session).value
    assert not Path(f"/proc/{pid}").exists()


def test_a_grandchild_whose_parent_has_ended_does_not_outlive_the_calls():
    program = (
        "import os, sys; pid = os.fork(); pid and (print(pid, flush=True), os._exit(0)); import time; time.sleep(60)"
    )
    found = outcome(lambda _: _pid_of(program))
    assert not Path(f"/proc/{found.value}").exists()


def _pid_of(program):
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    return int(process.stdout.readline())


def test_no_process_is_left_by_calls_that_end_in_every_way():
    before = set(isolate._children())
    isolate.call_each(lambda x: os._exit(x) if x else x, [0, 1, 0, 2], SHORT)
    assert set(isolate._children()) == before
