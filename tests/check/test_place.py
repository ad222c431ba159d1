"""Where an answer runs, and what was seen of it: whatever it does there, the check returns and says so."""

import ctypes
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import triton
import triton.language as tl

import needs
from corpus import WRONG
from exercises import ROOT, SOLUTIONS, wrong_findings
from helpers import DEVICE, check, kernels
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_01 import STABLE
from helpers.check.exercises.lesson_03 import ANY_LENGTH
from helpers.check.problems import cases
from helpers.check.problems.problem import Problems
from helpers.check.trial import call, place
from helpers.engine import isolate
from helpers.engine.isolate import Limits
from posed import posed
from variants import proofs_but_for

pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
SHORT = Limits(cpu_s=1)


# What an answer does


def _loop(x):
    while True:
        pass


def _sleep(x):
    time.sleep(60)


def _flood(x):
    while True:
        print("here I am")


def _fault(x):
    ctypes.string_at(0)


def _ask(x):
    input("your name? ")


def _leave_a_thread(x):
    threading.Thread(target=_loop, args=(x,)).start()
    raise ValueError("gone")


def _leave_a_process(x):
    subprocess.Popen(["sleep", "60"])
    raise ValueError("gone")


@pytest.mark.parametrize(
    ("mine", "seen"),
    proofs_but_for(
        [
            (_loop, "it did not come to an end within 1 second of processor time"),
            (_fault, "its process was killed by SIGSEGV"),
            (lambda x: os._exit(0), "its process ended by itself (exit status 0) instead of returning"),
            (lambda x: sys.exit(3), "SystemExit: 3"),
            (_flood, "it printed more than 50,000 characters"),
            (_ask, "EOFError: the code asks for input, and nobody can answer here"),
            (_leave_a_thread, "ValueError: gone"),
            (_leave_a_process, "ValueError: gone"),
            (lambda x: os.kill(os.getpid(), signal.SIGKILL), "its process was killed by SIGKILL"),
            (lambda x: os.kill(0, signal.SIGTERM), "its process was killed by SIGTERM"),
            (lambda x: torch.ones(2**33), "RuntimeError: [enforce fail at alloc_cpu.cpp"),
        ],
        1,
    ),
)
@pytest.mark.parametrize("name", ["eager", pytest.param("merge", marks=pytest.mark.proof)])
def test_whatever_an_answer_does_the_check_returns_and_says_so(name, mine, seen, capfd):
    report = EXERCISES[name].report_on(mine if name == "eager" else lambda a, b: mine(a), limits=SHORT)
    assert any(said.startswith(seen) for said in wrong_findings(report).values())
    assert (report.attempted, report.points) == (True, 0)
    assert capfd.readouterr() == ("", "")


def test_a_call_that_waits_without_end_is_ended_by_the_clock():
    report = EXERCISES["eager"].report_on(_sleep, limits=Limits(waits_s=1))
    assert "it did not come to an end, and waited or slept for 1 second" in wrong_findings(report).values()


@pytest.mark.thinned(0)
def test_nothing_is_run_after_a_case_that_does_not_end():
    report = EXERCISES["masked"].report_on(_loop, limits=SHORT)
    ended = "it did not come to an end within 1 second of processor time"
    assert set(wrong_findings(report).values()) == {ended, isolate.NOT_RUN.said}


def test_what_an_answer_changes_stays_in_its_child():
    changed = []
    check.eager(lambda x: changed.append(x) or torch.softmax(x, dim=1))
    assert changed == []


def test_what_an_answer_prints_is_shown_once():
    report = check.eager(lambda x: print("shape", tuple(x.shape)) or torch.softmax(x, dim=1))
    assert report.passed and report.printed == "shape (4, 128)"
    assert "shape (4, 128)" in report._repr_html_() and str(report).endswith("Printed in one case:\nshape (4, 128)")


def test_what_a_call_leaves_behind_may_end_the_child_of_the_next():
    def mine(x):
        threading.Timer(0.05, os._exit, (0,)).start()
        return torch.softmax(x, dim=1)

    report = check.eager(mine)
    assert report.attempted and {finding.case for finding in report.findings} >= set(STABLE)


def test_no_child_is_left_behind():
    check.eager(kernels.eager_softmax)
    check.merge(lambda a, b: os._exit(1))
    assert [child for child in multiprocessing.active_children() if "Fork" in type(child).__name__] == []


def test_an_answer_that_takes_too_much_of_everything_together_is_stopped():
    def mine(x):
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        return kernels.single_tile_softmax(x)

    report = EXERCISES["masked"].report_on(mine, limits=Limits(together_s=0.5))
    assert isolate.NOT_RUN.said in wrong_findings(report).values() and not report.passed


def test_an_access_out_of_bounds_names_program_tensor_and_element():
    said = wrong_findings(check.masked(SOLUTIONS["masked"].variant(WRONG["masked"]["no mask on the store"])))
    assert re.match(r"OutOfBounds: program 2 of softmax_kernel stores element 387 of y_ptr", said["129 columns"])


def test_an_access_between_the_rows_of_a_view_is_named_by_the_mask_that_is_missing():
    report = check.masked(SOLUTIONS["masked"].variant(WRONG["masked"]["no mask on the load"]))
    said = wrong_findings(report)["rows with a gap between them"]
    assert "program 0 of softmax_kernel loads element 201 of x_ptr, which lies between the rows of this view" in said
    assert report.diagnosis.id == "load_unmasked"


# Interrupted


INTERRUPTED = """
import os, signal, time
from helpers import check

signal.signal(signal.SIGINT, signal.default_int_handler)
parent = os.getpid()

def mine(x):
    try:
        with open({called!r}, "x") as file:
            file.write(str(os.getpid()))
        os.kill(parent, signal.SIGINT)
    except FileExistsError:
        pass
    while True:
        pass

try:
    check.eager(mine)
except KeyboardInterrupt:
    goes_on = os.path.exists("/proc/" + open({called!r}).read())
    print("interrupted, and the answer's process", "goes on" if goes_on else "ended")
"""


@pytest.mark.thinned(0)
def test_an_interrupt_ends_the_check_and_what_it_started(tmp_path):
    """Jupyter's stop button, and nbgrader's timeout, arrive as SIGINT: here in a process apart."""
    program = [sys.executable, "-c", INTERRUPTED.format(called=str(tmp_path / "called"))]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("interrupted, and the answer's process ended\n", "")


# Traffic


@needs.interpreter
def test_the_elements_that_kernels_reach_are_counted():
    x = torch.randn(3, 5)
    seen = call.of_tensors(lambda x: kernels.two_pass_softmax(x, BLOCK=4), posed(x))
    assert seen.loaded.tolist() == [[3] * 5] * 3 and seen.stored.tolist() == [[1] * 5] * 3
    assert (seen.programs, seen.tile) == (3, 4)


# In another process


@pytest.mark.parametrize(("name", "fault"), [("eager", "torch.expp"), ("single_tile", "no triton.jit")])
def test_the_line_that_stopped_is_known_where_the_answer_was_sent_to_another_process(name, fault):
    report = EXERCISES[name].report(place.BesideGpu(SOLUTIONS[name].variant(WRONG[name][fault])))
    assert report.diagnosis.id == WRONG[name][fault].named


# On a GPU


@triton.jit
def _far_store(y_ptr, far):
    tl.store(y_ptr + far, 1.0)


def _illegal_on_the_gpu(x):
    if x.is_cuda:
        _far_store[(1,)](x, 2**45)
    return kernels.single_tile_softmax(x)


def _endless_on_the_gpu(x):
    while x.is_cuda:
        pass
    return kernels.single_tile_softmax(x)


def _gone_on_the_gpu(x):
    return os._exit(1) if x.is_cuda else kernels.single_tile_softmax(x)


def _wrong_on_the_gpu(x):
    y = kernels.single_tile_softmax(x)
    return y + 1 if x.is_cuda else y


@needs.gpu
@pytest.mark.parametrize(
    ("mine", "seen"),
    [
        (_illegal_on_the_gpu, "illegal memory access"),
        (_endless_on_the_gpu, "it did not come to an end within 20 seconds"),
        (_gone_on_the_gpu, "its process ended instead of returning"),
        (_wrong_on_the_gpu, "512 of 512 elements are wrong"),
    ],
)
def test_what_goes_wrong_on_the_gpu_alone_is_found_and_leaves_the_next_check_alone(mine, seen):
    report = EXERCISES["masked"].report(place.BesideGpu(mine, gpu_limit_s=20))
    assert seen in wrong_findings(report)["on the GPU: small random values"] and report.points == 0
    assert torch.ones(3, device=DEVICE).sum().item() == 3
    assert check.masked(SOLUTIONS["masked"].answered()).passed


@needs.gpu
@pytest.mark.parametrize("name", ["row_loss", "loss_and_gradient"])
def test_a_loss_that_is_wrong_on_the_gpu_alone_is_found(name):
    right = SOLUTIONS[name].answered()

    def mine(x, target):
        found = right(x, target)
        losses = found[0] if name == "loss_and_gradient" else found
        if x.is_cuda:
            losses += 1
        return found

    report = check.report_on(name, mine)
    seen = wrong_findings(report)["on the GPU: small random values"]
    assert "the loss of 5 of 5 rows is wrong" in seen and report.points == 0


@needs.gpu
def test_a_right_answer_has_run_on_the_gpu_too():
    problems = Problems(ANY_LENGTH, cases.SOFTMAX.wants, 1).only(cases.GPU)
    tried = place.here(SOLUTIONS["masked"].answered()).on_gpu(problems)
    assert len(tried) >= 8 and all(cases.is_right(problem.x, trial.y) for problem, trial in tried.values())
