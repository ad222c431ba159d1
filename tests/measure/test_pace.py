"""The record of paces: what is timed, and what was."""

import pytest
import torch

from helpers import DEVICE, recorded, timing
from helpers.measure import pace
from helpers.measure.planned import planned_launch

RECORDS = recorded.by_gpu("pace")


def test_fetching_is_timed_on_a_gpu_too_on_which_it_does_not_pay():
    x = torch.empty(3, 9000, device=DEVICE)
    planned, _ = planned_launch("softmax", x, x)
    TURNS, _, AHEAD = pace.pace_if_fetching_pays(planned, 10_000)
    assert TURNS == planned.named["TURNS"] and AHEAD > 0
    assert pace.pace_if_fetching_pays(planned, 3) == (TURNS, 0, 0)


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
