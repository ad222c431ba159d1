"""What `measure.shards` times is right, without a GPU; and its table."""

import subprocess
import sys

import pytest
import torch

import needs
from helpers import ranks
from helpers.measure import shards

ROWS = 5


def wrong_of(steps):
    return ranks.run(lambda group: shards.wrong_steps(steps, group, torch.device("cpu")), world=2)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_all_contestants_are_right_on_two_ranks():
    assert wrong_of(shards.SHARD_STEPS) == [[], []]


def test_a_wrong_contestant_is_named():
    assert wrong_of({("ours", shards.LOSS): lambda *args: torch.tensor(1.0)}) == [["ours, loss"]] * 2


@pytest.mark.thinned
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "what", "collectives", "sent"),
    [
        ("helpers.softmax.parallel", shards.PROBABILITIES, 1, 8 * ROWS + 12),
        ("two all-reduces", shards.PROBABILITIES, 2, 8 * ROWS),
        ("helpers.softmax.parallel", shards.LOSS, 1, 12 * ROWS + 12),
        ("three all-reduces", shards.LOSS, 3, 12 * ROWS),
        ("torch's loss_parallel", shards.LOSS, 3, 12 * ROWS),
        ("helpers.softmax.parallel", shards.TRAINING, 1, 12 * ROWS + 12),
        ("three all-reduces", shards.TRAINING, 3, 12 * ROWS),
        ("torch's loss_parallel", shards.TRAINING, 3, 12 * ROWS),
    ],
)
def test_each_way_has_its_collectives_and_bytes(name, what, collectives, sent):
    def of_shard(shard, group):
        found = shards.SHARD_STEPS[name, what](shard, torch.arange(ROWS), group, 6 * group.rank())
        return None if found is None else 0

    seen = ranks.count(of_shard, *torch.randn(2, ROWS, 6))
    assert (seen.collectives, seen.sent) == (collectives, sent)


def test_the_table_has_shares_of_a_copy():
    row = {"name": "ours", "what": "loss", "M": 4, "C": 8, "us": 20.0, "copy_us": 10.0}
    found = {"rows": [row], "gpus": 2, "dtype": "bf16", "differing": 0, "wrong": ["a, loss"]}
    found["gathers"] = [{"rows": 1024, "us": 7.0}]
    text = repr(shards.table_of_shards(found, {"gpu": "X", "torch": "2"}))
    assert text.splitlines()[1].split()[-2:] == ["20.0", "0.50"]
    assert "a gather of the pairs of 1,024 rows: 7.0 µs" in text and "its result is wrong: a, loss" in text


@needs.interpreter
def test_it_says_that_it_needs_two_gpus():
    asked = subprocess.run([sys.executable, "-m", "helpers.measure.shards"], capture_output=True, text=True)
    assert asked.returncode == 2 and "rows lie over at least 2 GPUs; there are 0." in asked.stderr
