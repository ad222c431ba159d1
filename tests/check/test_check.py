"""The checks of the exercises: a stub is not attempted, a solution is right, a wrong answer is told what is wrong."""

import ctypes
import functools
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from corpus import WRONG
from exercises import SOLUTIONS, STUBS
from helpers import DEVICE, ON_GPU, check, kernels
from helpers.check import EXERCISES, cases, place, trial
from helpers.check.exercises.lesson_01 import STABLE
from helpers.check.exercises.lesson_03 import ANY_LENGTH
from helpers.check.exercises.lesson_04 import STREAMED
from helpers.check.exercises.lesson_08 import SPLIT
from helpers.check.judge import OVER_BUDGET
from helpers.engine import isolate
from helpers.engine.isolate import Limits

ROOT = Path(__file__).resolve().parents[2]
INF = math.inf
pytestmark = pytest.mark.usefixtures("nothing_passed_yet")
each_exercise = pytest.mark.parametrize("name", SOLUTIONS)


def checked(name, answer, **options):
    return EXERCISES[name].report_on(answer, **options)


def wrong_findings(report):
    return {finding.case: finding.seen for finding in report.findings if not finding.ok}


def is_one_clear_sentence(text):
    """One line of a few words in which no Python object, traceback or memory address is quoted."""
    few_words = 3 <= len(text.split()) and len(text) <= 240
    return few_words and not re.search(r"\n|Traceback|0x[0-9a-f]{6}|<.*(object|function) ", text)


@each_exercise
def test_the_notebooks_give_every_exercise_the_points_of_its_check(name):
    assert STUBS[name].points == SOLUTIONS[name].points == checked(name, STUBS[name].answered()).max_points


def test_every_check_of_the_module_has_an_exercise_in_the_notebooks():
    assert set(SOLUTIONS) == set(STUBS) == set(EXERCISES) < set(check.__all__)


# Not attempted, right, wrong


@each_exercise
def test_the_stub_is_not_attempted(name):
    report = checked(name, STUBS[name].answered())
    assert (report.attempted, report.passed, report.points) == (False, False, 0)


@each_exercise
@pytest.mark.filterwarnings("error")
def test_the_solution_gets_full_points_without_a_warning(name):
    report = checked(name, SOLUTIONS[name].answered())
    assert wrong_findings(report) == {}
    assert (report.passed, report.points) == (True, SOLUTIONS[name].points)


RIGHT_LIMITS = {torch.float32: 88.72, torch.bfloat16: 88.5, torch.float16: 11.08}


@pytest.mark.parametrize(
    ("dtype", "limit", "says"),
    [
        pytest.param(torch.float32, 88.73, r"exp\(88.73\) is already inf", id="float32 a little too large"),
        pytest.param(torch.float32, 88.7, r"exp\(88.71\) is finite too; the limit is higher", id="float32 too small"),
        pytest.param(torch.bfloat16, 89.0, r"exp\(89\) is already inf", id="bfloat16 one value too large"),
        pytest.param(torch.bfloat16, 88.0, r"exp\(88.5\) is finite too", id="bfloat16 too small"),
        pytest.param(torch.float16, 11.1, r"exp\(11.1\) is already inf; 11.1 is stored as", id="float16 too large"),
        pytest.param(torch.float16, -5.0, r"exp\(-4.99\) is finite too", id="float16 negative"),
        pytest.param(torch.float16, math.nan, r"needs a finite number; it is nan", id="float16 NaN"),
    ],
)
def test_a_wrong_limit_is_rejected_with_a_clear_sentence(dtype, limit, says):
    report = check.overflow({**RIGHT_LIMITS, dtype: limit})
    ((case, seen),) = wrong_findings(report).items()
    assert case == str(dtype).removeprefix("torch.")
    assert re.match(says, seen) and is_one_clear_sentence(seen)


@pytest.mark.parametrize("limit", [88.72, 88.722])
def test_a_limit_is_right_to_within_a_hundredth(limit):
    assert check.overflow({**RIGHT_LIMITS, torch.float32: limit}).passed


@pytest.mark.parametrize("missing", RIGHT_LIMITS)
def test_a_missing_limit_is_named(missing):
    report = check.overflow({**RIGHT_LIMITS, missing: None})
    assert wrong_findings(report) == {str(missing).removeprefix("torch."): "needs a finite number; it is None"}


def test_no_limit_at_all_is_not_attempted():
    assert not check.overflow(dict.fromkeys(RIGHT_LIMITS)).attempted


@pytest.mark.parametrize("limits", [None, [1.0, 2.0, 3.0], {"float32": 88.7}], ids=["None", "a list", "names"])
def test_limits_that_are_no_dict_of_the_dtypes_are_refused(limits):
    with pytest.raises(TypeError, match="takes a dict with the keys torch.float32"):
        check.overflow(limits)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param("merge", "return m, 0.0", "return", id="merge, nothing for two empty parts"),
        pytest.param(
            "two_pass", "range(0, N, BLOCK)", "range(0, N // BLOCK * BLOCK, BLOCK)", id="two_pass, full tiles"
        ),
    ],
)
def test_an_answer_that_is_right_in_some_cases_only_is_attempted(name, old, new):
    assert checked(name, SOLUTIONS[name].answered(old, new)).attempted


def test_a_recurrence_that_returns_a_number_is_rejected():
    assert not check.recurrence(lambda blocks: 3.0).passed


def test_a_limit_of_infinity_is_rejected():
    assert not check.overflow({**RIGHT_LIMITS, torch.float32: INF}).passed


def test_a_partial_function_that_passes_can_be_used_from_then_on(capsys):
    mine = functools.partial(torch.softmax, dim=1)
    check.eager(mine)
    assert check.yours_or_ours("eager") is mine


# What an answer does while it is checked


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("sizes do not match\n  in line 3"), "ValueError: sizes do not match in line 3"),
        (RuntimeError(""), "RuntimeError"),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError: maximum recursion depth exceeded"),
    ],
    ids=["of two lines", "without a message", "a RecursionError"],
)
def test_an_answer_that_raises_is_wrong_with_the_words_of_the_error(error, seen):
    def mine(*_):
        raise error

    for name in ("eager", "online", "merge", "recurrence"):
        report = checked(name, mine)
        assert report.attempted and not report.passed
        assert set(wrong_findings(report).values()) == {seen}


def test_an_answer_that_says_that_it_is_not_implemented_is_not_attempted():
    def mine(*_):
        raise NotImplementedError

    assert not check.eager(mine).attempted
    assert not check.online(mine).attempted
    assert not check.merge(mine).attempted


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


def test_an_interrupt_ends_the_check_and_what_it_started(tmp_path):
    """Jupyter's stop button, and nbgrader's timeout, arrive as SIGINT: here in a process apart."""
    program = [sys.executable, "-c", INTERRUPTED.format(called=str(tmp_path / "called"))]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("interrupted, and the answer's process ended\n", "")


@pytest.mark.parametrize("answer", [None, 3, torch.zeros(2, 2)], ids=["None", "a number", "a result"])
@pytest.mark.parametrize("name", ["eager", "single_tile", "masked", "two_pass", "online"])
def test_a_check_asks_for_the_function_itself(name, answer):
    with pytest.raises(TypeError, match=rf"check.{name} takes your function itself, as in check.{name}\(my_function\)"):
        checked(name, answer)


def test_an_answer_may_return_any_kind_of_pair():
    ours = SOLUTIONS["merge"].answered()
    assert check.merge(lambda a, b: list(ours(a, b))).passed
    assert check.merge(lambda a, b: torch.tensor(ours(a, b), dtype=torch.float64)).passed


@each_exercise
@pytest.mark.parametrize("given", ["stub", "solution"])
def test_a_check_prints_nothing_and_writes_nothing_to_stderr(name, given, capfd):
    answer = (STUBS if given == "stub" else SOLUTIONS)[name].answered()
    capfd.readouterr()
    checked(name, answer)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fault", ["no mask on the store", "column stride ignored"])
def test_a_check_is_silent_about_a_wrong_answer_too(fault, capfd):
    answer = SOLUTIONS["masked"].variant(WRONG["masked"][fault])
    capfd.readouterr()
    check.masked(answer)
    assert capfd.readouterr() == ("", "")


# Isolation


SHORT = Limits(cpu_s=1, wall_s=30)


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
    [
        (_loop, "it did not come to an end within 1 seconds"),
        (_flood, "it printed more than 50,000 characters"),
        (_fault, "its process was killed by SIGSEGV"),
        (_ask, "EOFError: EOF when reading a line"),
        (_leave_a_thread, "ValueError: gone"),
        (_leave_a_process, "ValueError: gone"),
        (lambda x: os._exit(0), "its process ended by itself (exit status 0) instead of returning"),
        (lambda x: sys.exit(3), "SystemExit: 3"),
        (lambda x: os.kill(os.getpid(), signal.SIGKILL), "its process was killed by SIGKILL"),
        (lambda x: os.kill(0, signal.SIGTERM), "its process was killed by SIGTERM"),
        (lambda x: torch.zeros(2**33), "RuntimeError: [enforce fail at alloc_cpu.cpp"),
    ],
)
@pytest.mark.parametrize("name", ["eager", "merge"])
def test_whatever_an_answer_does_the_check_returns_and_says_so(name, mine, seen, capfd):
    report = checked(name, mine if name == "eager" else lambda a, b: mine(a), limits=SHORT)
    assert any(said.startswith(seen) for said in wrong_findings(report).values())
    assert (report.attempted, report.points) == (True, 0)
    assert capfd.readouterr() == ("", "")


def test_a_call_that_waits_without_end_is_ended_by_the_clock():
    report = checked("eager", _sleep, limits=Limits(wall_s=1))
    assert "it did not come to an end within 1 seconds" in wrong_findings(report).values()


def test_nothing_is_run_after_a_case_that_does_not_end():
    report = checked("masked", _loop, limits=SHORT)
    assert set(wrong_findings(report).values()) == {"it did not come to an end within 1 seconds", isolate.NOT_RUN.said}


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
        return time.sleep(0.3) or kernels.single_tile_softmax(x)

    report = checked("masked", mine, limits=Limits(together_s=0.5))
    assert isolate.NOT_RUN.said in wrong_findings(report).values() and not report.passed


def test_an_access_out_of_bounds_names_program_tensor_and_element():
    said = wrong_findings(check.masked(SOLUTIONS["masked"].variant(WRONG["masked"]["no mask on the store"])))
    assert re.match(r"OutOfBounds: program 2 of softmax_kernel stores element 387 of y_ptr", said["129 columns"])


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


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
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
    report = EXERCISES["masked"].report(place.BesideGpu(mine, gpu_timeout_s=20))
    assert seen in wrong_findings(report)["on the GPU: small random values"] and report.points == 0
    assert torch.ones(3, device=DEVICE).sum().item() == 3
    assert check.masked(SOLUTIONS["masked"].answered()).passed


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_a_kernel_that_only_the_interpreter_accepts_is_told_the_line_and_the_reason():
    body = "e = tl.exp(x - m)\n    for step in range(1):\n        late = l_of(e)\n    l = late"
    helper = "@triton.jit\ndef l_of(e):\n    return tl.sum(e, axis=0)\n\n\n@triton.jit\ndef softmax_kernel("
    wrong = SOLUTIONS["masked"].answered(
        "@triton.jit\ndef softmax_kernel(", helper, "e = tl.exp(x - m)\n    l = tl.sum(e, axis=0)", body
    )
    said = wrong_findings(check.masked(wrong))["on the GPU: small random values"]
    assert said == "CompilationError: late is not defined (in `l = late`)"


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_a_right_answer_has_run_on_the_gpu_too():
    trials = place.here(SOLUTIONS["masked"].answered()).on_gpu(ANY_LENGTH, seed=1)
    assert len(trials) >= 8 and all(cases.is_right(cases.draw(ANY_LENGTH, 1)[case], t.y) for case, t in trials.items())


# Traffic


@pytest.mark.skipif(ON_GPU, reason="counts in this process, which interprets nothing beside a GPU")
def test_the_elements_that_kernels_reach_are_counted():
    x = torch.randn(3, 5)
    seen = trial.of_softmax(lambda x: kernels.two_pass_softmax(x, BLOCK=4), x)
    assert seen.loaded.tolist() == [[3] * 5] * 3 and seen.stored.tolist() == [[1] * 5] * 3
    assert (seen.programs, seen.tile) == (3, 4)


def test_reading_a_part_of_the_row_is_a_finding():
    said = wrong_findings(
        check.single_tile(SOLUTIONS["single_tile"].variant(WRONG["single_tile"]["a tile of part of the row"]))
    )
    assert said["reach"] == "small random values: kernels loaded 16 of the row's 128 columns"


# The report

RIGHT = check.Report("online", 5, True, (check.Finding("a case", True, "within 1e-05 of float64"),))
WRONG_IN_ONE = check.Report("online", 5, True, (*RIGHT.findings, check.Finding("a <case>", False, "1 < 2 & got nan")))
NOT_ATTEMPTED = check.Report("online", 5, False, ())
each_report = pytest.mark.parametrize(
    ("report", "text"), [(RIGHT, "5"), (WRONG_IN_ONE, "0"), (NOT_ATTEMPTED, "0")], ids=["right", "wrong", "untouched"]
)


@each_report
def test_a_report_as_text_is_its_points_as_a_bare_number(report, text):
    assert repr(report) == text
    assert float(repr(report)) == report.points


def test_points_that_are_no_whole_number_are_a_bare_number_too():
    assert repr(check.Report("online", 2.5, True, RIGHT.findings)) == "2.5"


@each_report
def test_a_report_never_gives_more_than_its_points(report, text):
    assert 0 <= report.points <= report.max_points


def test_right_wrong_and_not_attempted_look_different():
    pages = [report._repr_html_() for report in (RIGHT, WRONG_IN_ONE, NOT_ATTEMPTED)]
    borders = [re.search(r"border-left:4px solid ([^;]+);", page)[1] for page in pages]
    assert len(set(pages)) == len(set(borders)) == 3


def test_right_wrong_and_not_attempted_are_said_in_a_sentence():
    assert RIGHT.summary() == "online: right in all 1 cases, 5 of 5 points."
    assert WRONG_IN_ONE.summary() == "online: right in 1 of 2 cases, not finished yet."
    assert NOT_ATTEMPTED.summary() == "online: not attempted yet. Fill in the cell above and run both again."


def test_the_named_mistake_and_its_question_stand_above_the_cases():
    report = check.eager(lambda x: torch.exp(x) / torch.exp(x).sum(dim=1, keepdim=True))
    question = (
        "What is exp(1000), and which number keeps every exponent at or below 0? Hint 2 below goes on from there."
    )
    assert str(report).splitlines()[:3] == [report.summary(), "The maximum is not subtracted.", question]
    page = report._repr_html_()
    assert page.index("The maximum is not subtracted.") < page.index("Hint 2") < page.index("<table>")


def test_a_report_as_text_says_what_was_right_and_what_was_wrong():
    assert str(WRONG_IN_ONE).splitlines()[1:] == ["✗ a <case>: 1 < 2 & got nan", "✓ a case"]
    assert str(RIGHT) == RIGHT.summary() and str(NOT_ATTEMPTED) == NOT_ATTEMPTED.summary()


def test_a_wrong_answer_is_shown_case_by_case_with_markup_as_text():
    page = WRONG_IN_ONE._repr_html_()
    assert "✓ a case" in page and "✗ a &lt;case&gt;" in page
    assert "1 &lt; 2 &amp; got nan" in page


def test_a_report_in_jupyter_needs_no_more_than_its_text_and_its_html():
    assert {name for name in dir(RIGHT) if name.startswith("_repr_")} == {"_repr_html_"}


# The inputs


@pytest.mark.parametrize("make", [pytest.param(make, id=case) for case, make in STREAMED.items()])
def test_a_case_is_the_same_for_the_same_seed(make):
    first, second = (make(torch.Generator().manual_seed(7)) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    assert first.dim() == 2 and first.stride() == second.stride()


def test_the_cases_for_a_gpu_are_cases():
    assert set(cases.GPU) <= {*STREAMED, *SPLIT}


def test_inputs_are_drawn_anew_in_every_check():
    def mine(x):
        raise ValueError(float(x[0, 0]))

    said = [wrong_findings(check.eager(mine))["small random values"] for _ in range(2)]
    assert said[0] != said[1]


def test_a_wrong_value_is_reported_with_the_seed_that_shows_it_again():
    assert "(seed 123)" in wrong_findings(checked("eager", torch.exp, seed=123))["small random values"]


def test_the_same_seed_draws_the_same_inputs():
    def mine(x):
        raise ValueError(float(x[0, 0]))

    first, second = (wrong_findings(checked("eager", mine, seed=123)) for _ in range(2))
    assert first == second


def test_a_tensor_reaches_the_answer_with_its_strides():
    def mine(x):
        raise ValueError(f"{x.stride()} {x.storage_offset()}")

    said = wrong_findings(check.masked(mine))
    assert said["every second column of a larger tensor"] == "ValueError: (400, 2) 0"
    assert said["rows with a gap between them"] == "ValueError: (300, 1) 307"
    assert said["a transposed tensor"] == "ValueError: (1, 5) 0"
    assert said["rows 2³⁰ elements apart"] == f"ValueError: ({2**30}, 1) 0"


# Yours or ours


def test_before_it_passes_yours_is_ours(capsys):
    assert check.yours_or_ours("merge") is EXERCISES["merge"].ours
    assert capsys.readouterr().out == "From here on: the course's merge, until yours passes its check.\n"
    assert check.yours("merge") == {}


def test_from_the_pass_on_yours_is_yours(capsys):
    mine = SOLUTIONS["merge"].answered()
    check.merge(mine)
    assert check.yours_or_ours("merge") is mine
    assert capsys.readouterr().out == "From here on: your merge.\n"


def test_after_it_fails_again_yours_is_ours(capsys):
    check.merge(SOLUTIONS["merge"].answered())
    check.merge(lambda a, b: a)
    assert check.yours_or_ours("merge") is EXERCISES["merge"].ours
    assert check.yours("merge") == {}


def test_exercises_are_passed_one_by_one():
    check.merge(SOLUTIONS["merge"].answered())
    assert check.yours("eager") == {} != check.yours("merge")


def test_yours_joins_a_comparison_with_its_options():
    def mine(x, dim=1):
        return torch.softmax(x, dim=dim)

    x = torch.randn(2, 3, device=DEVICE)
    check.eager(mine)
    assert torch.equal(check.yours("eager")["yours"](x), mine(x))
    assert torch.equal(check.yours("eager", dim=0)["yours"](x), mine(x, dim=0))


@pytest.mark.parametrize("name", [name for name, exercise in EXERCISES.items() if exercise.ours])
def test_ours_is_right_itself(name):
    assert checked(name, EXERCISES[name].ours).passed


def test_an_unknown_exercise_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="no exercise is called 'onlin'; there are eager, .*online"):
        check.yours_or_ours("onlin")


def test_a_kernel_in_place_of_its_driver_is_explained():
    with pytest.raises(TypeError, match="takes the driver, the Python function that launches online_kernel"):
        check.online(kernels.online_kernel)


def test_torch_inside_a_kernel_exercise_is_found():
    report = check.masked(lambda x: torch.softmax(kernels.copy(x), dim=1))
    assert wrong_findings(report)["your own kernel"] == "PyTorch computed _softmax; the kernel is to do it"


def test_a_copy_made_before_the_kernel_costs_trips():
    report = check.masked(lambda x: kernels.single_tile_softmax(x.clone()))
    assert wrong_findings(report) == {
        "trips to memory": "each element was loaded 2.0 times and stored 2.0 times; 1.0 and 1.0 are enough, "
        "and the rest costs half of the points"
    }
    assert (report.points, report.passed, report.diagnosis) == (2, False, OVER_BUDGET)


def test_a_report_stays_short_however_many_ways_there_are_to_be_wrong():
    report = check.Report("online", 5, True, tuple(check.Finding(f"case {n}", False, f"got {n}") for n in range(30)))
    lines = str(report).splitlines()
    assert lines[1:4] == ["✗ case 0: got 0", "✗ case 1: got 1", "✗ case 2: got 2"]
    assert len(lines) == 6 and lines[-1].endswith("case 28; case 29: wrong as well")


def test_wrong_cases_that_say_the_same_share_a_line():
    html = check.eager(lambda x: 1 / 0)._repr_html_()
    assert html.count("✗") == 1 and "and 3 more cases" in html
