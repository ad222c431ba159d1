"""Lesson 15's right results are torch's, its numbers are those that are counted, and a grader counts the same."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from exercises import SOLUTIONS
from helpers import traffic
from helpers.check.exercises import lesson_15
from helpers.check.problems import without_logits as problems
from helpers.check.problems.problem import Problems, inputs_of
from helpers.check.trial.call import of_tensors
from helpers.check.trial.place import here
from helpers.engine.isolate import LIMITS
from helpers.instructor.sandbox.replay import Recording
from helpers.instructor.sandbox.transcript import transcript
from helpers.softmax.without_logits import chunked_loss


def eager(x, W, target):
    x, W = x.detach().requires_grad_(), W.detach().requires_grad_()
    loss = F.cross_entropy(x @ W.T, target)
    return loss.detach(), *torch.autograd.grad(loss, (x, W))


@pytest.mark.parametrize("case", ["small random values", "the first tokens ignored", "all tokens ignored"])
def test_right_results_are_those_of_torch(case):
    inputs = inputs_of(problems.CHUNKS[case], case, 1)
    x, W, target = (one.double() if one.is_floating_point() else one for one in inputs)
    for right, torchs in zip(problems.LOSS_AND_GRADIENTS.expected(*inputs), eager(x, W, target), strict=True):
        torch.testing.assert_close(right, torchs, equal_nan=True)
    losses, _ = problems.LOSSES_WITHOUT_LOGITS.expected(*inputs)
    torch.testing.assert_close(losses, F.cross_entropy(x @ W.T, target, reduction="none"))


def test_an_answer_may_ask_for_the_gradient_of_an_input():
    (problem,) = (
        Problems({"one": problems.CHUNKS["small random values"]}, problems.LOSS_AND_GRADIENTS.wants, 1).draw().values()
    )
    trial = of_tensors(lambda x, W, target: chunked_loss(x.requires_grad_().detach(), W, target), problem)
    assert not trial.raised and not trial.again_raised and trial.again


def test_the_logits_that_are_in_use_are_those_of_three_tensors_or_of_a_chunk():
    x, W, target = torch.randn(64, 8), torch.randn(1000, 8), torch.arange(64)
    logits = 64 * 1000 * 4
    assert traffic.most_bytes(eager, x, W, target) == 3 * logits
    chunks = traffic.most_bytes(chunked_loss, x, W, target, 8) - x.nbytes - W.nbytes
    assert logits / 8 < chunks < 1.1 * logits / 8


def test_the_numbers_of_exercise_15_1_are_those_that_are_counted():
    x, W, target = torch.randn(8, 2048), torch.randn(64, 2048), torch.arange(8)
    seen = traffic.count(lambda x: chunked_loss(x, W, target, 1), x)
    products = [one for one in seen.operations if one.name in ("mm", "addmm_")]
    loads, stores = (sum(getattr(one, what) for one in products) / W.numel() for what in ("loads", "stores"))
    right = lesson_15.IN_CHUNKS
    assert math.floor(loads) == right["loads of W"] + right["loads of dW"] + 1  # the first chunk adds to zeros here
    assert math.floor(stores) == right["stores of dW"]


def test_a_grader_counts_the_same_in_what_is_carried_out_from_a_record():
    answer = SOLUTIONS["chunked_loss"].answered()
    for problem in Problems(problems.MANY_CHUNKS, problems.LOSS_AND_GRADIENTS.wants, 3).draw().values():
        seen, replayed = (of_tensors(fn, problem) for fn in (answer, Recording(transcript(answer, problem))))
        assert (seen.loads, seen.stores, seen.most_bytes) == (replayed.loads, replayed.stores, replayed.most_bytes)
        assert not any(spends(problem.inputs, seen) for _, spends in lesson_15.EXERCISES[1].spends)


def in_memory(logits_in):
    """All logits at once, in memory that no operation of the call makes."""

    def chunks(x, W, target):
        logits = logits_in[: len(x) * len(W)].view(len(x), len(W))
        torch.mm(x, W.T, out=logits)
        return chunked_loss(x, W, target, 2)

    return chunks


@pytest.mark.parametrize("made", ["before", "by NumPy"])
def test_memory_that_comes_from_elsewhere_is_in_use_too(made):
    memory = torch.zeros(128_000) if made == "before" else torch.from_numpy(np.zeros(128_000, "f4"))
    answer, case = in_memory(memory), "32 chunks, 2,000 classes"
    (problem,) = Problems({case: problems.MANY_CHUNKS[case]}, problems.LOSS_AND_GRADIENTS.wants, 3).draw().values()
    trial = of_tensors(Recording(transcript(answer, problem)), problem)
    said = [spends(problem.inputs, trial) for _, spends in lesson_15.EXERCISES[1].spends]
    assert said[1].endswith("bytes are in use at once, besides dx and dW; all logits have 512,000")


def test_a_function_in_torch_launches_no_kernel():
    exercise = lesson_15.EXERCISES[1]
    code = "from helpers.softmax.without_logits import walked_losses\n_chunks = my_chunks\n\n\n"
    code += "def my_chunks(*given, **options):\n    walked_losses(*given)\n    return _chunks(*given, **options)\n"
    small = replace(exercise, makers={"small random values": problems.CHUNKS["small random values"]})
    report = small.report(here(SOLUTIONS["chunked_loss"].answered(code=code), LIMITS), seed=3)
    assert report.points == exercise.points / 2 and "a kernel runs" in report.findings[-1].seen
