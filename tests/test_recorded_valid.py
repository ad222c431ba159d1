"""A record of somebody else's GPU is taken only with its form, its origin, and times that a memory can reach."""

import copy
import datetime
import json
import shutil
import sys

import pytest

from helpers import recorded
from helpers.recorded.valid import KINDS, OPTIONAL_KINDS, folder_of_gpu, problems

TODAY = datetime.date(2027, 1, 1)
FEW = {
    "softmax": ["softmax", "few_rows"],
    "launches": ["shapes", "held_out"],
    "plan": ["plans"],
    "loss": ["losses"],
    "pace": ["paces"],
    "policy": ["policies"],
    "why": ["compiled"],
    "gradients": ["gradient", "dimensions", "few_rows"],
}
"""The long lists of a record, of which a few entries say enough about its form."""


def of_the_h200(kind):
    """A record of the H200, its long lists shortened."""
    record = json.loads((recorded.HOME / "nvidia_h200" / f"{kind}.json").read_text("utf-8"))
    return record | {name: record[name][:3] for name in FEW.get(kind, [])}


H200 = {kind: of_the_h200(kind) for kind in (*KINDS, *OPTIONAL_KINDS) if kind != "shards"}
ON_FOUR = {
    "gpus": 4,
    "dtype": "bf16",
    "wrong": [],
    "differing": 0,
    "rows": [{"name": "ours", "what": "softmax", "M": 8192, "C": 128256, "us": 527.36, "copy_us": 249.61}],
    "gathers": [{"rows": 1024, "us": 48.9}],
}
H200["shards"] = {
    "origin": H200["lies"]["origin"] | {"command": "python -m helpers.measure.shards --gpus 4"},
    "shards": [ON_FOUR],
}


def shortened():
    """A copy of them, to be changed."""
    return copy.deepcopy(H200)


@pytest.fixture
def folder(tmp_path):
    """A folder with the shortened record."""
    write(tmp_path / "nvidia_h200", shortened())
    return tmp_path / "nvidia_h200"


def write(folder, records):
    folder.mkdir(exist_ok=True)
    for kind, record in records.items():
        (folder / f"{kind}.json").write_text(json.dumps(record), encoding="utf-8")


def with_change(folder, kind, change):
    """The folder after `change` was made to one of its records."""
    records = shortened()
    change(records[kind])
    write(folder, records)
    return problems(folder, TODAY)


def test_a_form_that_cannot_be_checked_here_is_a_sentence_and_no_error(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    without = "its form cannot be checked without jsonschema, which `make install` brings."
    assert problems(folder, TODAY) == [f"{kind}.json: {without}" for kind in (*KINDS, *OPTIONAL_KINDS)]


@pytest.mark.parametrize("name", sorted({path.parent.name for path in recorded.HOME.glob("*/*.json")}))
def test_every_record_of_the_course_can_be_taken(name):
    assert problems(recorded.HOME / name, datetime.date.today()) == []


def test_a_record_without_a_fault_has_no_problems(folder):
    assert problems(folder, TODAY) == []


# Form


@pytest.mark.parametrize("kind", OPTIONAL_KINDS)
def test_a_record_without_what_is_optional_can_be_taken(folder, kind):
    (folder / f"{kind}.json").unlink()
    assert problems(folder, TODAY) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_record_needs_is_missed(folder, kind):
    (folder / f"{kind}.json").unlink()
    (sentence,) = problems(folder, TODAY)
    assert sentence.startswith(f"{kind}.json: ")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000], ids=["empty", "half", "no text", "deep"])
def test_what_is_not_json_is_said(folder, content):
    (folder / "lies.json").write_bytes(content)
    (sentence,) = problems(folder, TODAY)
    assert sentence.startswith("lies.json: ")


def test_a_link_is_not_followed(folder, tmp_path):
    shutil.move(folder / "lies.json", tmp_path / "lies.json")
    (folder / "lies.json").symlink_to(tmp_path / "lies.json")
    assert "link" in problems(folder, TODAY)[0]


def test_a_file_that_is_none_of_a_record_is_named(folder):
    (folder / "setup.py").touch()
    assert problems(folder, TODAY) == ["setup.py does not belong in the folder of a record."]


@pytest.mark.thinned
@pytest.mark.parametrize("kind", H200)
@pytest.mark.parametrize("value", [None, [], {}, 1, "text"], ids=repr)
def test_a_record_of_another_form_is_refused_where_it_differs(folder, kind, value):
    (folder / f"{kind}.json").write_text(json.dumps(value))
    assert problems(folder, TODAY)[0].startswith(f"{kind}.json: at $")


@pytest.mark.parametrize("said", ["yesterday, by hand", "2027-01-02, torch 2", "2025-12-31, torch 2"])
def test_a_part_that_was_timed_anew_has_a_date(folder, said):
    (sentence,) = with_change(folder, "loss", lambda record: record["origin"].update({"cross_entropy anew": said}))
    assert "is not a date" in sentence or "before the course began or after today" in sentence


def test_a_softmax_of_shards_is_compared_with_a_copy_of_a_shard(folder):
    def faster(record):
        record["shards"][0]["rows"][0]["us"] = 200

    (sentence,) = with_change(folder, "shards", faster)
    assert sentence == ("shards.json: ours at 8192 × 32064 bf16: 1.25 times as fast as a copy of the same bytes.")


def test_policies_are_compared_with_a_copy_of_the_same_bytes(folder):
    def faster(record):
        record["policies"] = [["softmax", "fp32", 16384, 8192, 1, [260.0, 255.0, 200.0], [262.0, 258.0, 255.0]]]

    (sentence,) = with_change(folder, "policy", faster)
    assert sentence == "policy.json: softmax at 16384 × 8192 fp32: 1.30 times as fast as a copy of the same bytes."


def test_a_pace_without_times_is_refused(folder):
    found = with_change(folder, "pace", lambda record: record["paces"][0].__setitem__(5, [None] * 4))
    assert found[0].startswith("pace.json: at $.paces[0][5]")


@pytest.mark.parametrize("value", [0, -1, "0.1", None, 1e12, float("nan"), float("inf")], ids=repr)
def test_a_time_is_a_positive_number(folder, value):
    (sentence, *_) = with_change(folder, "gradients", lambda record: record["host"][0].update(us=value))
    assert sentence.startswith("gradients.json: ")


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("softmax", lambda record: record["softmax"][0].update(dtype="int8")),
        ("softmax", lambda record: record["softmax"][0].update(note="fast")),
        ("softmax", lambda record: record["dram"][0].update(read_per_element=0.5)),
        ("softmax", lambda record: record["dram"][0].update(write_per_element=2)),
        ("launches", lambda record: record["launches"][0].__setitem__(0, "my kernel")),
        ("launches", lambda record: record["launches"][0].__setitem__(2, 3)),
        ("launches", lambda record: record["shapes"][0]["functions"].pop("copy")),
        ("plan", lambda record: record["plans"][0].pop()),
        ("lies", lambda record: record["lies"]["host time"].pop("honest")),
    ],
)
def test_a_part_of_another_form_is_refused_where_it_differs(folder, kind, change):
    (sentence,) = with_change(folder, kind, change)
    assert sentence.startswith(f"{kind}.json: at $.")


# Origin


@pytest.mark.thinned
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("gpu", "NVIDIA L4", "belongs into the folder nvidia_l4"),
        ("target", "sm_80", "a NVIDIA H200 is sm_90"),
        ("date", "2027-01-02", "after today"),
        ("date", "2025-12-31", "before the course began"),
        ("date", "2026-02-30", "is not a date"),
        ("command", "make up", "$.origin.command"),
        ("driver", "unknown", "$.origin.driver"),
        ("clocks", "unknown", "$.origin.clocks"),
        ("torch", "", "$.origin.torch"),
        ("python", "/home/ada/python", "$.origin.python"),
        ("liger_kernel", "/home/ada/liger", "a path of a machine"),
    ],
)
def test_an_origin_that_cannot_be_is_named(folder, key, value, says):
    found = with_change(folder, "plan", lambda record: record["origin"].update({key: value}))
    assert any(says in sentence for sentence in found), found


@pytest.mark.thinned
@pytest.mark.parametrize("key", ["gpu", "target", "driver", "clocks", "torch", "triton", "python", "date", "command"])
def test_an_origin_is_complete(folder, key):
    (sentence,) = with_change(folder, "lies", lambda record: record["origin"].pop(key))
    assert key in sentence


def test_all_records_of_a_folder_are_of_one_gpu(folder):
    found = with_change(folder, "plan", lambda record: record["origin"].update(target="sm_91"))
    assert found[-1] == "the records come from several GPUs: NVIDIA H200 sm_90, NVIDIA H200 sm_91."


def test_a_folder_is_named_after_its_gpu():
    assert folder_of_gpu("NVIDIA A100-SXM4-80GB") == "nvidia_a100_sxm4_80gb"


# Plausibility


def test_a_copy_faster_than_the_memory_is_refused(folder):
    found = with_change(folder, "softmax", lambda record: record["copies"][-1].update(gbps=4801))
    assert found == [
        "softmax.json: a copy of 536870912 bytes: a copy at 4,801 GB/s, where the memory has 4,800 at most."
    ]


def test_a_small_copy_may_be_faster_because_it_stays_in_a_cache(folder):
    assert with_change(folder, "softmax", lambda record: record["copies"][0].update(gbps=20000)) == []


def test_of_a_gpu_that_is_not_known_the_fastest_memory_is_the_limit(folder, tmp_path):
    records = shortened()
    for record in records.values():
        record["origin"].update(gpu="Other", target="sm_130")
    records["softmax"]["copies"][-1]["gbps"] = 8001
    write(tmp_path / "other", records)
    (sentence,) = problems(tmp_path / "other", TODAY)
    assert "where the memory has 8,000 at most" in sentence


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("softmax", lambda record: record["softmax"][0].update(median_ms=0.1, low_ms=0.1)),
        ("launches", lambda record: large(record["shapes"][0])["launches"].append([0, 1.0])),
        ("plan", lambda record: record["plans"][0][4].append([["tile"], 1.0])),
    ],
    ids=["a kernel", "a launch", "a plan"],
)
def test_nothing_is_clearly_faster_than_a_copy(folder, kind, change):
    found = with_change(folder, kind, change)
    assert found and all("times as fast as a copy" in sentence for sentence in found)


def large(shape):
    """A shape of more bytes than a cache holds, with times that fit it."""
    shape.update(n_rows=2**16, n_cols=4096, launches=[[0, 600.0]])
    shape["functions"]["copy"] = 600.0
    return shape


def test_a_median_lies_between_its_quartiles(folder):
    (sentence,) = with_change(folder, "softmax", lambda record: record["softmax"][0].update(low_ms=9.0))
    assert sentence.endswith(" at 1048576 × 256 fp32: its median is outside of its quartiles.")


def test_a_launch_is_listed(folder):
    (sentence,) = with_change(folder, "launches", lambda record: record["shapes"][0]["launches"].append([99999, 9.0]))
    assert "a launch that is not listed" in sentence


def test_what_is_held_out_is_not_in_the_table(folder):
    (sentence,) = with_change(folder, "launches", lambda record: record["held_out"].append(record["shapes"][0]))
    assert "held out from it" in sentence
