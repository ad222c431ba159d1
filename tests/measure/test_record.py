"""The records of kernels beside a copy: complete, with their origin, and with what the hardware counters say."""

import json
from pathlib import Path

import pytest
from PIL import Image

from helpers import draw, peers, recorded, timing
from helpers.measure import gradients
from helpers.measure import record as making

RECORDS = {path.parent.name: json.loads(path.read_text("utf-8")) for path in recorded.HOME.glob("*/softmax.json")}
each_record = pytest.mark.parametrize("name", RECORDS)


def test_recording_without_a_gpu_ends_with_one_sentence(monkeypatch):
    monkeypatch.setattr(making, "ON_GPU", False)
    monkeypatch.setattr("sys.argv", ["measure"])
    with pytest.raises(SystemExit, match="^helpers.measure.record needs a CUDA GPU: .*[.]$"):
        making.main()


@pytest.mark.parametrize(
    ("problems", "says"), [([], "git add helpers/recorded/nvidia_l4,"), (["its date is wrong."], "its date is wrong.")]
)
def test_at_the_end_it_says_whether_the_record_can_be_sent(problems, says):
    assert says in making.sending(Path("nvidia_l4"), problems)


def test_dimensions_measured_again_leave_the_rest_of_the_record_as_it_is():
    text = json.dumps({"origin": {"gpu": "L4"}, "gradient": [{"us": 1}], "dimensions": [{"us": 2}], "host": []})
    measured = {"dimensions": [{"us": 3}], "host": [{"us": 4}]}
    assert json.loads(making.with_measured(text, measured, "dimensions", "today")) == {
        "origin": {"gpu": "L4", "dimensions anew": "today"}, "gradient": [{"us": 1}], **measured
    }  # fmt: skip


def test_few_rows_measured_again_keep_those_of_a_peer_that_is_missing():
    cluster, before, now = row("cluster", 8, 1), row("a", 8, 2), row("a", 8, 3)
    text = json.dumps({"origin": {"gpu": "L4"}, "few_rows": [before, cluster], "host": []})
    assert json.loads(making.with_measured(text, {"few_rows": [now]}, "few_rows", "today")) == {
        "origin": {"gpu": "L4", "few_rows anew": "today"}, "few_rows": [now, cluster], "host": []
    }  # fmt: skip


def test_our_loss_measured_again_takes_the_place_of_ours_alone():
    theirs, before, now = ({"variant": name, "ms": ms} for name, ms in (("torch", 1), ("ours", 2), ("ours", 3)))
    text = json.dumps({"origin": {"gpu": "L4"}, "losses": [before, theirs]})
    assert json.loads(making.with_our_losses(text, [now], "today")) == {
        "origin": {"gpu": "L4", "cross_entropy anew": "today"}, "losses": [now, theirs]
    }  # fmt: skip


def test_losses_of_images_measured_again_take_the_place_of_all_and_leave_those_of_rows():
    text = json.dumps({"origin": {"gpu": "L4"}, "losses": [row("a", 8, 1)], "images": [row("a", 8, 2)]})
    now = [row("a", 8, 3)]
    assert json.loads(making.with_images(text, now, "today")) == {
        "origin": {"gpu": "L4", "images anew": "today"}, "losses": [row("a", 8, 1)], "images": now
    }  # fmt: skip
    kept = json.loads(making.with_our_losses(text, [row("a", 8, 4)], "today"))
    assert kept["images"] == [row("a", 8, 2)]


def test_a_dtype_timed_again_takes_the_place_of_its_rows_alone(monkeypatch, tmp_path):
    path = tmp_path / "softmax.json"
    rows = [row("a", 8, 1), row("a", 8, 2, "fp16"), row("b", 8, 3, "fp16"), row("a", 10, 5, "fp16")]
    before = {"origin": {"gpu": "L4"}, "softmax": rows, "few_rows": [row("a", 9, 3)]}
    path.write_text(json.dumps(before), encoding="utf-8")
    monkeypatch.setattr(making, "_anew", lambda: "today")
    monkeypatch.setattr(making, "_timed", lambda n_rows, n_cols, dtype: [row("a", n_cols, 4, dtype)])
    kept = []
    monkeypatch.setattr(making, "write_whole", lambda path, data: (kept.append(data), path.write_bytes(data)))
    making.renew_rows(["fp16"], [8, 9], path)
    assert json.loads(path.read_text("utf-8")) == before | {
        "origin": {"gpu": "L4", "fp16 anew": "today"},
        "softmax": [row("a", 8, 1), row("a", 8, 4, "fp16"), row("b", 8, 3, "fp16"), rows[3], row("a", 9, 4, "fp16")],
    }
    assert len(kept) == 2 and row("a", 9, 4, "fp16") not in json.loads(kept[0])["softmax"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "loss", "--dtypes", "fp16"], "--dtypes and --columns are for --only variants"),
        (["--columns", "1024"], "--dtypes and --columns are for --only variants"),
        (["--only", "variants", "--dtypes", "fp16,fp8"], "of fp32, bf16, fp16; not fp8."),
    ],
    ids=["another record", "every record", "an unknown dtype"],
)
def test_some_dtypes_or_lengths_are_for_the_record_that_keeps_the_others(options, says, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["record", *options])
    with pytest.raises(SystemExit):
        making.main()
    assert says in capsys.readouterr().err


def row(variant, n_cols, ms, dtype="fp32"):
    return {"variant": variant, "dtype": dtype, "n_rows": 1, "n_cols": n_cols, "median_ms": ms}


def test_a_variant_timed_again_stands_behind_the_others_of_its_shape():
    rows = [row("ours", 8, 1), row("torch", 8, 2), row("torch", 9, 3), row("torch", 8, 4, "bf16")]
    asked = []

    def time(dtype, n_rows, n_cols):
        asked.append((dtype, n_rows, n_cols))
        return [] if n_cols == 9 else [row("ours", n_cols, 5, dtype)]

    assert making.renewed(rows, "ours", time) == [
        row("torch", 8, 2), row("ours", 8, 5), row("torch", 9, 3), row("torch", 8, 4, "bf16"), row("ours", 8, 5, "bf16")
    ]  # fmt: skip
    assert asked == [("fp32", 1, 8), ("fp32", 1, 9), ("bf16", 1, 8)]


def test_a_peer_that_cannot_be_had_here_is_named(monkeypatch):
    monkeypatch.setattr(peers, "installed", dict)
    with pytest.raises(SystemExit, match="QuACK cannot be had here"):
        making.time_variant("QuACK")


@pytest.fixture
def offered(monkeypatch):
    """A peer, A, that takes rows of up to 8 columns; every time is one row."""
    times = timing.Row("A", "fp32", 1, 8, 0.123456, 0.1, 0.2, 0.1)
    monkeypatch.setattr(peers, "installed", lambda: {"A": abs, "QuACK": abs})
    monkeypatch.setattr(peers, "refusal", lambda fn, n_rows, n_cols, dtype: "too long" if n_cols > 8 else None)
    monkeypatch.setattr(timing, "measure_shape", lambda *asked: [times])


def test_what_a_variant_does_not_take_is_not_timed(offered, capsys):
    time = making.time_variant("A")
    assert time("fp32", 1, 8)[0]["median_ms"] == 0.12346 and time("fp32", 1, 9) == []
    assert "A left out at 1 × 9 fp32: too long" in capsys.readouterr().err
    assert making.time_variant("QuACK")("fp16", 1, 8) == making.time_variant("single tile")("fp32", 1, 65537) == []


def test_a_variant_without_a_gradient_has_no_time_for_it(monkeypatch):
    monkeypatch.setattr(gradients, "time_gradient", lambda *asked: [asked])
    assert making.time_gradient_of("cluster")("fp32", 1, 8) == []
    ((*shape, repeats, contestants),) = making.time_gradient_of("helpers.softmax")("bf16", 1, 8)
    assert (shape, repeats, list(contestants)) == (["bf16", 1, 8], 20, ["helpers.softmax"])


def test_a_variant_is_renewed_in_both_records(monkeypatch, tmp_path):
    records = {"softmax": {"few_rows": [], "softmax": []}, "gradients": {"few_rows": [], "gradient": []}}
    for name, parts in records.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"origin": {}, "host": []} | parts), encoding="utf-8")
    monkeypatch.setattr(making, "_anew", lambda: "today")
    monkeypatch.setattr(making, "picture", lambda record: b"picture")
    monkeypatch.setattr(making, "renewed", lambda rows, variant, time: [variant])
    making.renew_variant("helpers.softmax", tmp_path)
    for name, parts in records.items():
        found = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
        assert (tmp_path / "bandwidth.png").read_bytes() == b"picture"
        assert found == {"origin": {"helpers.softmax anew": "today"}, "host": []} | dict.fromkeys(
            parts, ["helpers.softmax"]
        )


# The records


@each_record
@pytest.mark.parametrize("variant", [*making.SOFTMAXES, "torch.compile"])
def test_a_record_holds_the_variant_at_every_length_it_can_take(name, variant):
    rows = [row for row in RECORDS[name]["softmax"] if row["variant"] == variant]
    for dtype in ("fp32", "bf16"):
        recorded = [row["n_cols"] for row in rows if row["dtype"] == dtype]
        longest = making.LONGEST.get(variant, max(making.COLUMNS))
        assert recorded == [n_cols for n_cols in making.COLUMNS if n_cols <= longest]


@each_record
def test_a_record_holds_every_copy(name):
    assert {copy["nbytes"] for copy in RECORDS[name]["copies"]} == set(making.COPIES)
    assert all(copy["gbps"] > 0 for copy in RECORDS[name]["copies"])


@each_record
def test_the_picture_of_a_record_says_its_origin(name):
    picture = making.figure(RECORDS[name])
    assert isinstance(picture, draw.Picture)
    assert picture.figure.axes[0].get_title(loc="left").endswith(timing.recorded_origin(RECORDS[name]))


@each_record
def test_the_picture_beside_a_record_shows_it(name):
    """README shows it, and it is not made anew with the record by itself."""
    with Image.open(recorded.HOME / name / "bandwidth.png") as stored:
        assert stored.text["Title"] == timing.recorded_origin(RECORDS[name])
        assert stored.text["Description"] == making.figure(RECORDS[name]).alt


# The hardware counters


NCU_REPORT = """\
==PROF== Connected to process 4711 (/usr/bin/python3)
==PROF== Profiling "online_kernel": 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","4711","online_kernel","dram__bytes_read.sum","byte","{read}"
"0","4711","online_kernel","dram__bytes_write.sum","byte","{write}"
"""


@pytest.fixture
def one_launch(monkeypatch):
    monkeypatch.setattr(making, "COUNTED", making.COUNTED[:1])


def test_counters_are_read_per_element_of_four_bytes(one_launch):
    report = NCU_REPORT.format(read="2,147,483,648", write="1,073,741,824")
    assert making._parse_ncu(report, "") == [{"read_per_element": 2.0, "write_per_element": 1.0}]


def test_launches_that_ncu_did_not_see_are_an_error():
    report = NCU_REPORT.format(read="2,147,483,648", write="1,073,741,824")
    with pytest.raises(RuntimeError, match=f"ncu counted 1 launches of {len(making.COUNTED)}"):
        making._parse_ncu(report, "")


def test_counters_may_come_without_separators_and_without_a_preamble(one_launch):
    report = NCU_REPORT.format(read="1610612736", write="536870912").split("\n", 2)[2]
    assert making._parse_ncu(report, "") == [{"read_per_element": 1.5, "write_per_element": 0.5}]


@pytest.mark.parametrize(
    ("report", "errors"),
    [
        pytest.param("==ERROR== ERR_NVGPUCTRPERM: no permission", "", id="refused"),
        pytest.param("", "ncu: ERR_NVGPUCTRPERM", id="refused on stderr"),
        pytest.param("==WARNING== No kernels were profiled. ERR_NVGPUCTRPERM\n", "", id="nothing profiled"),
    ],
)
def test_counters_that_ncu_did_not_give_are_an_error_with_its_words(report, errors):
    with pytest.raises(RuntimeError, match="ncu counted 0 launches of .*ERR_NVGPUCTRPERM"):
        making._parse_ncu(report, errors)


@pytest.mark.parametrize(
    "report",
    [
        pytest.param("\n".join(NCU_REPORT.format(read="4", write="4").split("\n")[:4]), id="no bytes written"),
        pytest.param(NCU_REPORT.format(read="n/a", write="n/a"), id="not available"),
    ],
)
def test_counters_that_are_incomplete_are_an_error_with_its_words(report, one_launch):
    with pytest.raises(RuntimeError, match="ncu counted 0 launches"):
        making._parse_ncu(report, "")


def test_counters_of_another_kernel_are_an_error(one_launch):
    with pytest.raises(RuntimeError, match="ncu counted 0.0 elements read .* the counters caught another kernel"):
        making._parse_ncu(NCU_REPORT.format(read="4096", write="1,073,741,824"), "")
