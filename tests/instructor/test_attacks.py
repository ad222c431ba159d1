"""Attacks through kernels: what a learner's process sends in place of its own, and what others have tried."""

import json
import subprocess
import sys

import pytest
import torch

import fuzzing
import needs
from exercises import SOLUTIONS
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed
from helpers.instructor.sandbox import language
from kernel_attacks import FROM_OTHERS, LOSSES, TEXTS, sends

WITH_KERNELS = ("single_tile", "masked", "two_pass", "online", "split_row")
CELLS = ["import torch\nimport triton\nimport triton.language as tl\nfrom helpers import DEVICE"]


def scored(workshop, name, cell):
    exercise = SOLUTIONS[name]
    graded = GradedCell(name, name, exercise.answer, exercise.points, ())
    return Grader(workshop, {}).score(Handed([*CELLS, cell], len(CELLS) + 1), graded)


@pytest.mark.thinned
@pytest.mark.parametrize("way", TEXTS)
def test_a_text_that_leads_out_of_the_language_is_refused(way):
    with pytest.raises(language.NotTriton):
        language.load_checked(TEXTS[way], "softmax_kernel")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("way", ["a comprehension binds eval", "a type that is evaluated"])
def test_a_text_sent_past_the_learner_s_own_process_has_no_points(workshop, way):
    report = scored(workshop, "single_tile", sends(TEXTS[way])).report
    assert (report.points, report.attempted) == (0, True)
    assert all("NotTriton" in finding.seen for finding in report.findings)


@pytest.mark.proof
@pytest.mark.parametrize("name", WITH_KERNELS)
@pytest.mark.parametrize(
    "way", ["a comprehension binds eval", "a parameter binds eval", "eval is bound after it is called"]
)
def test_no_exercise_with_a_kernel_gives_points_to_such_a_text(workshop, name, way):
    assert scored(workshop, name, sends(TEXTS[way], SOLUTIONS[name].answer)).report.points == 0


@pytest.mark.proof
@pytest.mark.parametrize("way", FROM_OTHERS)
def test_what_others_tried_has_no_points(workshop, way):
    assert scored(workshop, "single_tile", FROM_OTHERS[way]).report.points == 0


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["row_loss", "loss_and_gradient"])
@pytest.mark.parametrize("way", LOSSES)
def test_losses_without_a_kernel_have_no_points(workshop, name, way):
    report = scored(workshop, name, LOSSES[way]).report
    assert (report.points, report.attempted) == (0, True)


@pytest.mark.parametrize("name", ["row_loss", "loss_and_gradient"])
def test_right_losses_have_all_points(workshop, name):
    report = scored(workshop, name, "\n\n".join(SOLUTIONS[name].cells)).report
    assert report.points == SOLUTIONS[name].points, report


@needs.interpreter
def test_a_graded_kernel_reaches_the_tensors_that_it_is_given_and_nothing_else():
    from helpers.engine import interpreter
    from helpers.engine.memory import OutOfBounds

    text = (
        "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(y_ptr, x_ptr, away):\n"
        "    tl.store(y_ptr, tl.load(x_ptr - away))\n"
    )
    kernel = language.load_checked(text, "kernel")
    x, y, secret = torch.zeros(4), torch.zeros(4), torch.ones(4)
    with interpreter.watching(lambda launch: None):
        memory = 2 * (1 << 48) + (1 << 47) + x.data_ptr() % 256  # the address that stands for x, the second tensor
        away = (memory - secret.data_ptr()) // 4
        kernel[(1,)](y, x, away)
        assert y[0] == 1  # what lies in the process, and is not the kernel's
        with interpreter.within_tensors(), pytest.raises(OutOfBounds):
            kernel[(1,)](y, x, away)


# The fuzzer


def fuzzed(*arguments):
    """What fuzzing.py prints, in a process of its own: an audit hook stays for as long as its process does."""
    words = [sys.executable, "-W", "ignore", fuzzing.__file__, *map(str, arguments)]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=False).stdout)


@pytest.mark.proof
def test_the_fuzzer_notices_what_breaks_out():
    assert fuzzed(0, "--notices") == {"noticed": len(fuzzing.LEADS_OUT), "of": len(fuzzing.LEADS_OUT)}


@pytest.mark.proof
@pytest.mark.parametrize(("count", "number"), [(10, 0), (1000, 1)])
def test_no_text_that_passes_reaches_further_than_the_language(count, number):
    found = fuzzed(count, "--seed", number)
    assert found["out"] == [] and found["tried"] >= count and found["passed"]
