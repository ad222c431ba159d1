"""What lesson 12 arrives at: right on the problems of its exercises, and in how many trips."""

import pytest
import torch

from helpers import traffic
from helpers.attention import decode
from helpers.check.exercises.lesson_12 import decode_trips
from helpers.check.problems import decoding
from helpers.check.problems.problem import Problems
from helpers.check.trial.trial import Trial
from helpers.engine.runtime import DEVICE
from variants import proofs_but_for

ALL = decoding.ONE_A_HEAD | decoding.GROUPS
WAYS = {"query by query": decode.split_decode, "in a tile": decode.grouped_decode}


def problem(case):
    return Problems({case: ALL[case]}, decoding.DECODE.wants, seed=3).draw()[case].inputs


@pytest.mark.thinned
@pytest.mark.parametrize(("case", "way"), proofs_but_for([(case, way) for case in ALL for way in WAYS], 12))
def test_the_kernels_are_right_on_every_problem(case, way):
    inputs = problem(case)
    assert decoding.DECODE.is_right(inputs, WAYS[way](*(x.to(DEVICE) for x in inputs), S=5))


@pytest.mark.parametrize("case", ALL)
def test_torch_is_right_on_every_problem(case):
    q, k, v = problem(case)
    rows, many, values = decoding.as_attention(q, k, v)
    o = torch.nn.functional.scaled_dot_product_attention(rows, many, values)[:, 0]
    lse = torch.logsumexp((rows.double() @ many.double().mT)[:, 0] * q.shape[1] ** -0.5, -1).float()
    assert decoding.DECODE.is_right((q, k, v), (o.nan_to_num(0), lse))


@pytest.mark.parametrize(("G", "way", "each"), [(1, 0, 1), (4, 0, 4), (1, 1, 1), (4, 1, 1), (20, 1, 1)])
def test_keys_and_values_are_loaded_once_for_each_query_or_once_for_the_group(G, way, each):
    q, (k, v) = torch.randn(2 * G, 16, device=DEVICE), torch.randn(2, 2, 300, 16, device=DEVICE)
    counted = traffic.count(lambda q: list(WAYS.values())[way](q, k, v, S=3), q)
    of_parts = 3 * len(q) * (16 + 2)
    assert counted.loads == each * (k.numel() + v.numel()) + 3 * q.numel() + of_parts
    assert counted.stores == of_parts + q.numel() + len(q)
    assert (counted.loads <= decode_trips((q, k, v), Trial(moved=[1] * 6))) == (each == 1)
