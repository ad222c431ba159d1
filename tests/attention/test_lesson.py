"""What lesson 11 arrives at: right on the problems of its exercises, and in how many trips."""

import pytest
import torch

from helpers import traffic
from helpers.attention import lesson
from helpers.check.exercises.lesson_11 import causal_trips, trips
from helpers.check.mistakes.attention_walk import RIGHT, other, up_to_the_diagonal
from helpers.check.problems import attention
from helpers.check.problems.problem import Problems
from helpers.check.trial.trial import Trial
from helpers.engine.runtime import DEVICE

KINDS = {False: attention.ATTENTION, True: attention.CAUSAL}


def problem(case, makers=attention.QUERIES, kind=attention.ATTENTION):
    return Problems({case: makers[case]}, kind.wants, seed=3).draw()[case].inputs


@pytest.mark.thinned
@pytest.mark.parametrize("causal", KINDS)
@pytest.mark.parametrize("case", attention.QUERIES)
def test_the_kernel_is_right_on_every_problem(case, causal):
    inputs = problem(case)
    found = lesson.tiled_attention(*(x.to(DEVICE) for x in inputs), is_causal=causal)
    assert KINDS[causal].is_right(inputs, found)


@pytest.mark.thinned
@pytest.mark.parametrize("causal", KINDS)
@pytest.mark.parametrize("case", attention.QUERIES)
def test_torch_is_right_on_every_problem(case, causal):
    q, k, v = problem(case)
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    lse = torch.logsumexp(attention.scores_of(q, k, causal).float(), -1)
    assert KINDS[causal].is_right((q, k, v), (o, lse))


@pytest.mark.thinned
@pytest.mark.parametrize("causal", KINDS)
@pytest.mark.parametrize("case", attention.QUERIES)
def test_a_walk_with_nothing_done_otherwise_is_right(case, causal):
    walk = other(end=up_to_the_diagonal) if causal else RIGHT
    assert KINDS[causal].is_right(problem(case), walk(*problem(case), causal, 64, 32))


@pytest.mark.parametrize(("BLOCK_M", "BLOCK_N", "each"), [(64, 32, 5), (64, 64, 5), (128, 32, 3), (16, 16, 19)])
def test_keys_and_values_are_loaded_once_for_each_tile_of_queries(BLOCK_M, BLOCK_N, each):
    q, k, v = (torch.randn(2, 300, 16, device=DEVICE) for _ in range(3))
    counted = traffic.count(lambda q: lesson.tiled_attention(q, k, v, BLOCK_M, BLOCK_N), q)
    assert counted.loads == q.numel() + each * (k.numel() + v.numel())
    assert counted.loads <= trips((q, k, v), Trial(most_stored=16 * BLOCK_M))
    assert counted.stores == q.numel() + 2 * 300


def test_later_tiles_are_not_loaded_and_the_budget_knows_it():
    q, k, v = (torch.randn(1, 300, 16, device=DEVICE) for _ in range(3))
    counted = traffic.count(lambda q: lesson.causal_attention(q, k, v, 64, 64), q)
    keys = 64 + 128 + 192 + 256 + 300
    assert counted.loads == q.numel() + 2 * 16 * keys <= causal_trips((q, k, v), Trial(most_stored=16 * 64))
    assert causal_trips((q, k, v), Trial(most_stored=16 * 64)) < trips((q, k, v), Trial(most_stored=16 * 64))


@pytest.mark.parametrize("case", attention.GRADIENTS)
def test_the_gradient_is_right_on_every_problem(case):
    inputs = problem(case, attention.GRADIENTS, attention.ATTENTION_GRADIENT)
    assert attention.ATTENTION_GRADIENT.is_right(inputs, lesson.attention_gradient(*inputs))
