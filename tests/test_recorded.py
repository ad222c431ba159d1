"""The one reader of recorded measurements: which record belongs to which GPU, and the words of its origin."""

import json

import pytest

from helpers import recorded

GPUS = {"nvidia_h100": ("NVIDIA H100", "sm_90"), "nvidia_h200": ("NVIDIA H200", "sm_90"), "other": ("Other", "sm_80")}


@pytest.fixture
def home(tmp_path):
    """A folder for each of GPUS, with a record of lies."""
    for folder, (gpu, target) in GPUS.items():
        (tmp_path / folder).mkdir()
        record = {"origin": {"gpu": gpu, "target": target}, "lies": "π"}
        (tmp_path / folder / "lies.json").write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    return tmp_path


def gpu_found(target, home):
    record = recorded.find("lies", target, home)
    return record and record["origin"]["gpu"]


def test_records_of_a_kind_go_by_the_name_of_their_gpu(home):
    assert list(recorded.by_gpu("lies", home)) == ["NVIDIA H100", "NVIDIA H200", "Other"]
    assert recorded.by_gpu("lies", home)["Other"]["lies"] == "π"
    assert recorded.by_gpu("softmax", home) == {}


@pytest.mark.parametrize("target", ["NVIDIA H200", "H200"])
def test_a_gpu_is_found_by_its_name_in_full_and_for_short(home, target):
    assert gpu_found(target, home) == "NVIDIA H200"


def test_a_gpu_is_found_by_the_name_that_it_is_sold_under(home):
    (home / "nvidia_h100" / "lies.json").write_text('{"origin": {"gpu": "NVIDIA H100 80GB HBM3", "target": "sm_90"}}')
    assert gpu_found("H100", home) == "NVIDIA H100 80GB HBM3"


def test_an_architecture_finds_the_reference_before_another_gpu_that_has_it(home):
    assert gpu_found("sm_90", home) == recorded.REFERENCE and gpu_found("sm_80", home) == "Other"


def test_without_the_reference_an_architecture_finds_the_first_gpu_that_has_it(home):
    (home / "nvidia_h200" / "lies.json").unlink()
    assert gpu_found("sm_90", home) == "NVIDIA H100"


def test_a_name_goes_before_an_architecture(home):
    (home / "zz").mkdir()
    (home / "zz" / "lies.json").write_text(json.dumps({"origin": {"gpu": "sm_90", "target": "sm_75"}}))
    assert gpu_found("sm_90", home) == "sm_90"


def test_a_target_without_a_record_finds_none(home):
    assert gpu_found("sm_120", home) is None and gpu_found("H20", home) is None


def test_every_kind_has_a_record_of_the_reference():
    for kind in ("softmax", "launches", "lies", "why", "pace", "policy"):
        assert recorded.by_gpu(kind)[recorded.REFERENCE]["origin"]["gpu"] == recorded.REFERENCE


def test_an_origin_in_words_names_gpu_versions_and_date():
    origin = {"gpu": "NVIDIA H200", "torch": "2.11", "triton": "3.6", "date": "2026-11-21", "driver": "580"}
    assert recorded.origin_in_words(origin) == "recorded on one NVIDIA H200, torch 2.11, triton 3.6, 2026-11-21"


def test_an_origin_in_words_says_from_when_to_when_parts_were_timed():
    origin = {"gpu": "L4", "torch": "2", "triton": "3", "date": "2026-11-21", "command": "2026-11-30"}
    anew = {"QuACK anew": "2026-11-24, torch 3: record", "host anew": "2026-11-22, torch 2: record"}
    assert recorded.origin_in_words(origin | anew).endswith("triton 3, 2026-11-21 to 2026-11-24")
