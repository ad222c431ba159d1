"""What `measure.decode` times is right, without a GPU; its table, and what its record may say."""

import copy
import datetime
import json
import subprocess
import sys

import pytest
import torch

import needs
from helpers import DEVICE, recorded
from helpers.measure import decode
from helpers.recorded.valid import problems

RECORD = recorded.by_gpu("decode")[recorded.REFERENCE]
SPLITS = decode.SPLITS


@pytest.fixture(autouse=True)
def few_parts(monkeypatch):
    monkeypatch.setattr(decode, "SPLITS", (1, 5))


def tensors(group):
    """q of two heads of K and V, and these, of 90 keys and 32 columns."""
    torch.manual_seed(0)
    return torch.randn(2 * group, 32, device=DEVICE), *torch.randn(2, 2, 90, 32, device=DEVICE)


@pytest.mark.parametrize("group", [1, 4])
def test_all_contestants_are_right(group):
    assert decode.wrong_decoders(*tensors(group)) == []


def test_a_wrong_contestant_is_named(monkeypatch):
    monkeypatch.setattr(decode, "split_decode", lambda q, k, v, S: (q, None))
    wrong = decode.wrong_decoders(*tensors(group=1))
    assert wrong == ["a program for each query head, 1 parts", "a program for each query head, 5 parts"]


def test_reading_reads_all():
    x = torch.randn(3, 5000, device=DEVICE)
    assert torch.allclose(decode.read_once(x).sum(), x.sum(), atol=1e-2)


def test_the_table_has_shares_of_the_time_of_reading():
    text = repr(decode.table_of_decode(RECORD))
    assert f"{RECORD['reading_ms'] / RECORD['lesson_11_ms']:.3f}" in text and "8 heads of 131,072 keys" in text
    assert "its result is wrong: a" in repr(decode.table_of_decode(RECORD | {"wrong": ["a"]}))


def test_the_record_has_the_splits_of_today():
    for of_tile in (RECORD["parts_ms"], RECORD["grouped"]["query_head_ms"], RECORD["grouped"]["tile_ms"]):
        assert tuple(map(int, of_tile)) == SPLITS


def faults(tmp_path, change):
    """What speaks against the record if it is changed, and nothing but it lies in its folder."""
    folder = tmp_path / "nvidia_h200"
    folder.mkdir()
    softmax = recorded.HOME / "nvidia_h200" / "softmax.json"
    (folder / "softmax.json").write_bytes(softmax.read_bytes())
    record = copy.deepcopy(RECORD)
    change(record)
    (folder / "decode.json").write_text(json.dumps(record), "utf-8")
    return problems(folder, datetime.date(2026, 12, 31))


def test_the_record_can_be_taken(tmp_path):
    assert faults(tmp_path, lambda record: None) == []


def test_nobody_reads_faster_than_a_reader(tmp_path):
    (sentence,) = faults(tmp_path, lambda record: record["grouped"]["tile_ms"].update({"32": 0.1}))
    assert sentence == "decode.json: a group: 1.29 times as fast as a copy of the same bytes."


def test_a_reader_keeps_to_the_data_sheet(tmp_path):
    (sentence,) = faults(tmp_path, lambda record: record.update(reading_ms=0.1))
    assert "where the memory has 4,800 at most" in sentence


@needs.interpreter
def test_it_says_that_it_needs_a_gpu():
    asked = subprocess.run([sys.executable, "-m", "helpers.measure.decode"], capture_output=True, text=True)
    assert asked.returncode == 2 and "times are measured on a GPU; there is none." in asked.stderr
