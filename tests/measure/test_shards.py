"""What `measure.shards` times is right, without a GPU; and its table."""

import subprocess
import sys

import pytest
import torch

import needs
from helpers import ranks
from helpers.measure import shards


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_all_contestants_are_right_on_two_ranks():
    assert ranks.run(lambda group: shards.wrong_steps(group, torch.device("cpu")), world=2) == [[], []]


def test_a_wrong_contestant_is_named(monkeypatch):
    monkeypatch.setattr(shards, "SHARD_STEPS", {("ours", shards.LOSS): lambda *args: torch.tensor(1.0)})
    assert ranks.run(lambda group: shards.wrong_steps(group, torch.device("cpu")), world=2) == [["ours, loss"]] * 2


def test_three_all_reduces_are_three():
    def loss(shard, group):
        return shards.eager_loss(shard, torch.tensor([0, 5]), group, 3 * group.rank())

    assert ranks.count(loss, *torch.randn(2, 2, 3)).collectives == 3


def test_the_table_has_shares_of_a_copy():
    row = {"name": "ours", "what": "loss", "M": 4, "C": 8, "us": 20.0, "copy_us": 10.0}
    found = {"rows": [row], "gpus": 2, "gpu": "X", "torch": "2", "dtype": "bf16", "differing": 0, "wrong": ["a, loss"]}
    text = repr(shards.table_of_shards(found | {"gathers": [{"rows": 1024, "us": 7.0}]}))
    assert text.splitlines()[1].split()[-2:] == ["20.0", "0.50"]
    assert "a gather of the pairs of 1,024 rows: 7.0 µs" in text and "its result is wrong: a, loss" in text


@needs.interpreter
def test_it_says_that_it_needs_two_gpus():
    asked = subprocess.run([sys.executable, "-m", "helpers.measure.shards"], capture_output=True, text=True)
    assert asked.returncode == 2 and "rows lie over at least 2 GPUs; there are 0." in asked.stderr
