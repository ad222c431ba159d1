"""The record of policies: what is timed, and what was."""

import pytest

from helpers import recorded
from helpers.kernels import DTYPES
from helpers.measure import policy
from helpers.softmax.launches.launch import Launch
from helpers.softmax.plans.pace import policy_of
from helpers.timing import Measurement

RECORDS = recorded.by_gpu("policy")


def test_launches_one_behind_another_are_on_other_tensors(monkeypatch):
    """Each of them would find its input in the cache otherwise, and the one that stays there above all."""
    launched = []

    def once_each(functions):
        for name, fn in functions.items():
            launched.append((name, []))
            fn()
        return {name: Measurement(1.0, 1.0, 1.0, 1) for name in functions}

    def seen(launcher, POLICY):
        return lambda tensors, stream: launched[-1][1].append((POLICY, tensors[1].data_ptr()))

    monkeypatch.setattr(policy.timing, "measure_in_turns", once_each)
    monkeypatch.setattr(Launch, "replaced", seen)
    behind, alone = policy._times(policy.Input("softmax", "fp32", 3, 9000))
    assert behind == [round(1e3 / policy.BEHIND, 2)] * 3 and alone == [1000.0] * 3
    for name, launches in launched:
        assert {said for said, _ in launches} <= {name}
        assert all(one != other for one, other in zip(launches, launches[1:], strict=False))
    assert [len(launches) for _, launches in launched] == [0, policy.BEHIND, policy.BEHIND, 0, 1, 1]


# What was recorded


@pytest.mark.parametrize("gpu", RECORDS)
def test_inputs_are_recorded_in_their_order(gpu):
    inputs = [policy.Input(*row[:5]) for row in RECORDS[gpu]["policies"]]
    assert inputs and inputs == [one for one in policy.INPUTS if one in inputs]


def test_what_lesson_09_says_of_rows_of_8192_stands_in_the_record():
    rows = {policy.Input(*row[:5]): row[5] for row in RECORDS["NVIDIA H200"]["policies"]}
    copy, as_long, longer = rows[policy.Input("softmax", "fp32", 16384, 8192)]
    assert (round(copy / as_long, 2), round(copy / longer, 2)) == (1.01, 1.02)


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_lines_that_stay_pay_wherever_they_are_asked_to(gpu):
    """Why `plan.policy_of` asks for them, and a loss alone does not."""
    for what, dtype, outer, n_cols, inner, *times in RECORDS[gpu]["policies"]:
        for _, as_long, longer in times:
            if what == "loss alone":
                assert abs(longer / as_long - 1) < 0.005
            elif policy_of(outer * n_cols * inner * DTYPES[dtype].itemsize):
                assert longer < as_long
