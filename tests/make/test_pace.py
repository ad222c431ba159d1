"""The record of paces: what is timed, and what was."""

import pytest
import torch

from helpers import DEVICE, recorded, timing
from helpers.make import pace

RECORDS = recorded.by_gpu("pace")


@pytest.mark.parametrize("what", ["softmax", "loss"])
def test_a_launch_at_another_pace_differs_in_it_alone(what):
    x = torch.randn(3, 9000, device=DEVICE)
    planned, tensors = pace.planned_launch(pace.Case(what, "fp32", 3, 9000), x, torch.empty_like(x))
    other = pace.at_pace(planned, TURNS=2, AHEAD=1, unknown=3)
    assert pace.letters(other) == pace.letters(planned) | {"TURNS": 2, "AHEAD": 1}
    assert vars(other) | {"arguments": ()} == vars(planned) | {"arguments": ()}
    results = []
    for launcher in (planned, other):
        launcher(tensors, pace.current_stream(x.get_device()))
        results.append(tensors[0].clone())
    assert torch.equal(*results)


def test_fetching_is_timed_on_a_gpu_too_on_which_it_does_not_pay():
    x = torch.empty(3, 9000, device=DEVICE)
    planned, _ = pace.planned_launch(pace.Case("softmax", "fp32", 3, 9000), x, x)
    TURNS, _, AHEAD = pace.pace_if_fetching_pays(planned, 10_000)
    assert TURNS == pace.letters(planned)["TURNS"] and AHEAD > 0
    assert pace.pace_if_fetching_pays(planned, 3) == (TURNS, 0, 0)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_loss_is_launched_as_a_step_of_training_launches_it(dtype):
    x = torch.empty(3, 9000, device=DEVICE, dtype=pace.DTYPES[dtype])
    planned, _ = pace.planned_launch(pace.Case("loss", dtype, 3, 9000), x, x)
    letters = pace.letters(planned)
    assert letters["GRAD"] and letters["PAIRS"] == (dtype == "bf16")


# What was recorded


@pytest.mark.parametrize("gpu", RECORDS)
def test_cases_are_recorded_in_their_order(gpu):
    cases = [pace.Case(*row[:4]) for row in RECORDS[gpu]["paces"]]
    assert cases and cases == [case for case in pace.CASES if case in cases]


@pytest.mark.parametrize("gpu", ["H200", "H100"])
def test_turns_never_cost(gpu):
    """What lesson 09 says of them on these two."""
    for *_, (neither, _, in_turn, _) in recorded.find("pace", gpu)["paces"]:
        assert in_turn <= neither


def test_fetching_ahead_pays_on_an_h200_and_not_on_an_h100():
    """Why `plan.fetching_pays` asks for the memory's speed."""
    ratios = {}
    for gpu in ("H200", "H100"):
        rows = recorded.find("pace", gpu)["paces"]
        ratios[gpu] = [both / in_turn for *_, (_, _, in_turn, both) in rows if both]
    assert max(ratios["H200"]) < 1 < sum(ratios["H100"]) / len(ratios["H100"])


def test_paces_are_shown_as_shares_of_a_copy():
    shown = timing.paces("NVIDIA H200")
    *_, copy_us, (neither, *_) = RECORDS["NVIDIA H200"]["paces"][0]
    assert shown.rows[0][:2] == ["softmax, fp32, 64 × 131,072", f"{copy_us / neither:.3f}"]
    assert shown.rows[0].count("–") == 2 and "recorded on one NVIDIA H200" in shown.notes[0]


def test_a_gpu_without_a_record_of_paces_is_named():
    with pytest.raises(ValueError, match="no record of paces on 'NVIDIA T4'; recorded are .*NVIDIA H200"):
        timing.paces("NVIDIA T4")
