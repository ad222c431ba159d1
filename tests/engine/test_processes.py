"""What is said of other processes: processor time is counted, and who wants a processor does not wait."""

import os
import subprocess
import sys
import time

import pytest

from helpers.engine import processes

SPIN = "while True:\n    pass"
SLEEP = "import time\ntime.sleep(60)"
A_THREAD_SPINS = """
import threading, time
threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()
time.sleep(60)
"""


@pytest.fixture
def started():
    made = []

    def start(program):
        begun = [sys.executable, "-c", f"print(flush=True)\n{program}"]
        made.append(subprocess.Popen(begun, stdout=subprocess.PIPE))
        made[-1].stdout.readline()
        return made[-1].pid

    yield start
    for process in made:
        process.kill()
        process.communicate()


def _until(true):
    """Waits for what has to become true, as long as it takes: the test's own time is out otherwise."""
    while not true():
        time.sleep(0.02)


@pytest.mark.parametrize(("program", "waits"), [(SPIN, False), (A_THREAD_SPINS, False), (SLEEP, True)],
                         ids=["computes", "a thread computes", "sleeps"])  # fmt: skip
def test_who_computes_does_not_wait(started, program, waits):
    pid = started(program)
    _until(lambda: processes.wait([pid]) is waits)


def test_who_does_not_get_the_processor_does_not_wait(started):
    """Two that compute on one processor: one of them is ready to run and does not."""
    pids = [started(SPIN), started(SPIN)]
    one = next(iter(os.sched_getaffinity(0)))
    for pid in pids:
        os.sched_setaffinity(pid, [one])
    assert not any(processes.wait([pid]) for pid in pids for _ in range(20))


def test_processor_time_grows_with_work_and_not_with_sleep(started):
    works, sleeps = started(SPIN), started(SLEEP)
    _until(lambda: processes.processor_time_of([works]) > 0.3)
    assert processes.processor_time_of([sleeps]) < processes.processor_time_of([works])
    assert processes.processor_time_of([works, sleeps]) >= processes.processor_time_of([works])


def test_descendants_are_found_at_any_remove(started):
    child = started("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])")
    _until(lambda: processes.descendants(child))
    grandchild = processes.descendants(child)[0]
    assert {child, grandchild} <= set(processes.descendants(os.getpid()))
    os.kill(grandchild, 9)


def test_a_process_that_is_not_there_takes_nothing_and_waits():
    assert processes.processor_time_of([2**22 + 1]) == 0 and processes.wait([2**22 + 1])


@pytest.fixture
def seen(monkeypatch):
    """What a Watch sees: the clock, whether processes wait, and their processor time."""
    seen = {"clock": 100.0, "waits": True, "worked": 7.0}
    monkeypatch.setattr(processes.time, "monotonic", lambda: seen["clock"])
    monkeypatch.setattr(processes, "wait", lambda pids: seen["waits"])
    monkeypatch.setattr(processes, "processor_time_of", lambda pids: seen["worked"])
    return seen


def test_a_watch_adds_up_the_looks_that_saw_waiting_and_no_look_counts_for_long(seen):
    watch = processes.Watch(lambda: [1])
    for seconds, waits, in_all in [(0.25, True, 0.25), (0.5, False, 0.25), (0.5, True, 0.75), (60, True, 1.75)]:
        seen["clock"], seen["waits"] = seen["clock"] + seconds, waits
        watch.look()
        assert watch.waited_s == in_all


def test_a_watch_counts_the_processor_time_since_it_began(seen):
    watch = processes.Watch(lambda: [1])
    seen["worked"] = 9.5
    watch.look()
    assert watch.worked_s == 2.5


def test_what_a_watch_skips_is_no_waiting(seen):
    watch = processes.Watch(lambda: [1])
    seen["clock"] += 0.5
    watch.skip()
    watch.look()
    assert watch.waited_s == 0
