"""What `measure.sample` times is right, without a GPU; its table, and what its record may say."""

import copy
import datetime
import json
import subprocess
import sys

import pytest
import torch

import needs
from helpers import recorded
from helpers.measure import sample
from helpers.recorded.valid import problems

RECORD = recorded.by_gpu("sample")[recorded.REFERENCE]
CELLS = {(cell["dtype"], cell["n_rows"], cell["n_cols"]): cell for cell in RECORD["cells"]}


@pytest.mark.parametrize("n_cols", [7, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_all_contestants_are_right(n_cols, dtype):
    assert sample.wrong_samplers(3, n_cols, dtype) == []


def test_a_wrong_contestant_is_named(monkeypatch):
    monkeypatch.setattr(sample, "gumbel_sample", lambda x: torch.zeros(len(x)).long())
    torch.manual_seed(0)
    assert sample.wrong_samplers(3, 50, torch.float32) == ["a kernel with Gumbel noise"]


def test_the_kernel_with_gumbel_noise_draws_by_probability():
    torch.manual_seed(0)
    p = torch.tensor([0.5, 0.3, 0.2])
    count = torch.bincount(sample.gumbel_sample(p.log().expand(100, 3).contiguous().to(sample.DEVICE)), minlength=3)
    assert ((count.cpu() - 100 * p) ** 2 / (100 * p)).sum() < 13.8  # but for one seed in a thousand


def test_frequencies_are_held_against_probabilities(monkeypatch):
    right = sample.frequencies(5, torch.float32, draws=60)
    assert right["columns"] == 5 and right["chi2"] < 18.5
    monkeypatch.setattr(sample, "sample", lambda x: torch.zeros(len(x)).long())
    assert sample.frequencies(5, torch.float32, draws=60)["chi2"] > 18.5


def test_the_table_has_shares_of_the_time_of_reading():
    cell, text = RECORD["cells"][0], repr(sample.table_of_samples(RECORD))
    assert f"{cell['reading_ms'] / cell['ms'][sample.SAMPLE]:.2f}" in text and "10,000,000 draws" in text
    changed = copy.deepcopy(RECORD)
    changed["cells"][0]["wrong"] = ["a"]
    assert "wrong at 1 × 32,000 fp32: a" in repr(sample.table_of_samples(changed))


def test_the_record_has_the_shapes_of_today():
    assert [*CELLS] == [(d, m, n) for d in sample.SAMPLED for m in sample.SAMPLED_ROWS for n in sample.VOCABULARY_SIZES]


def test_the_record_says_that_all_are_right_and_ours_is_ahead():
    """Of torch's argmax in every cell, and at least eight times as fast as softmax and multinomial of many rows."""
    for cell in CELLS.values():
        assert not cell["wrong"] and cell["ms"][sample.SAMPLE] < cell["ms"][sample.ARGMAX]
    for dtype, share in (("fp32", 0.9), ("bf16", 0.75)):
        cell = CELLS[dtype, 2048, 128256]
        assert cell["reading_ms"] >= share * cell["ms"][sample.SAMPLE]
        assert cell["ms"][sample.MULTINOMIAL] >= 8 * cell["ms"][sample.SAMPLE]
    for one in RECORD["frequencies"]:
        assert one["draws"] == sample.DRAWS and one["chi2"] < one["columns"] + 4 * (2 * one["columns"]) ** 0.5


def faults(tmp_path, change):
    """What speaks against the record if it is changed, and nothing but it lies in its folder."""
    folder = tmp_path / "nvidia_h200"
    folder.mkdir()
    softmax = recorded.HOME / "nvidia_h200" / "softmax.json"
    (folder / "softmax.json").write_bytes(softmax.read_bytes())
    record = copy.deepcopy(RECORD)
    change(record["cells"])
    (folder / "sample.json").write_text(json.dumps(record), "utf-8")
    return problems(folder, datetime.date(2026, 12, 31))


def test_the_record_can_be_taken(tmp_path):
    assert faults(tmp_path, lambda cells: None) == []


def test_nobody_draws_faster_than_a_reader(tmp_path):
    (sentence,) = faults(tmp_path, lambda cells: cells[-1]["ms"].update({sample.SAMPLE: 0.1}))
    assert sentence.startswith("sample.json: 4096 × 262144 bf16: ") and "times as fast as a copy" in sentence


@needs.interpreter
def test_it_says_that_it_needs_a_gpu():
    asked = subprocess.run([sys.executable, "-m", "helpers.measure.sample"], capture_output=True, text=True)
    assert asked.returncode == 2 and "times are measured on a GPU; there is none." in asked.stderr
