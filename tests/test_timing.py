"""Times are measured on a GPU and nowhere else; without one, records with a complete origin stand in for them."""

import datetime
import itertools
import json
import re

import pytest
import torch

from helpers import DEVICE, ON_GPU, draw, recorded, timing
from helpers.make import record as making

RECORDS = {path.parent.name: json.loads(path.read_text("utf-8")) for path in recorded.HOME.glob("*/softmax.json")}
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users|mnt|opt|usr)\b|[A-Z]:\\\\|site-packages")

each_record = pytest.mark.parametrize("name", RECORDS)
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="only a GPU is timed")


@pytest.fixture
def without_gpu(monkeypatch):
    """Timing as it is on a machine without a GPU, also beside one."""
    monkeypatch.setattr(timing, "ON_GPU", False)
    monkeypatch.setattr(making, "ON_GPU", False)


def never(*_):
    raise AssertionError("a function was run where nothing can be timed")


def softmax(x):
    return torch.softmax(x, dim=1)


# Never on a CPU


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(lambda: timing.measure(never), id="measure"),
        pytest.param(lambda: timing.measure_in_turns({"a": never, "b": never}), id="measure_in_turns"),
        pytest.param(lambda: timing.measure_shape({"a": never}, 4, 256, "fp32"), id="measure_shape"),
    ],
)
def test_a_cpu_is_never_timed(without_gpu, attempt):
    with pytest.raises(RuntimeError, match="no GPU here.*timing.compare and timing.copy_roof show recorded") as refusal:
        attempt()
    assert len(str(refusal.value).splitlines()) == 1


def test_recording_without_a_gpu_ends_with_one_sentence(without_gpu, monkeypatch):
    monkeypatch.setattr("sys.argv", ["measure"])
    with pytest.raises(SystemExit, match="^helpers.make.record needs a CUDA GPU: .*[.]$"):
        making.main()


# Recorded comparisons


def test_a_comparison_without_a_gpu_runs_nothing(without_gpu):
    assert timing.compare({"online": never, "mine": never}).rows


def test_a_comparison_without_a_gpu_comes_from_the_record(without_gpu):
    (row,) = timing.compare({"online": never}, columns=[4096]).rows
    assert vars(row) in timing.record()["softmax"]
    assert (row.variant, row.dtype, row.n_cols) == ("online", "fp32", 4096)


@pytest.mark.parametrize("shown", [repr, lambda comparison: comparison._repr_html_()], ids=["text", "html"])
def test_a_recorded_comparison_is_labelled_with_gpu_and_date(without_gpu, shown):
    origin = timing.record()["origin"]
    text = shown(timing.compare({"online": never}, columns=[4096]))
    assert f"recorded on one {origin['gpu']}" in text
    assert origin["date"] in text and origin["triton"] in text and origin["torch"] in text


def test_names_that_the_record_does_not_hold_are_listed_as_missing(without_gpu):
    comparison = timing.compare({"mine": never, "online": never, "yours": never}, columns=[4096])
    assert comparison.missing == ("mine", "yours")
    assert "Not in the record, so shown only on a GPU: mine, yours." in repr(comparison)


def test_nothing_is_called_missing_where_all_is_recorded(without_gpu):
    assert "Not in the record" not in repr(timing.compare({"online": never}))


def test_lengths_that_a_variant_cannot_take_are_shown_as_gaps(without_gpu):
    comparison = timing.compare({"online": never, "single tile": never}, columns=[65536, 131072])
    assert [row[2] for row in comparison.table().rows][1] == "–"
    assert comparison.missing == ()


def test_variants_and_lengths_come_in_the_order_of_the_names_and_of_size(without_gpu):
    comparison = timing.compare({"online": never, "eager": never}, columns=[4096, 1024])
    assert comparison.variants == ["online", "eager"]
    order = [(row.n_cols, row.variant) for row in comparison.rows]
    assert order == [(1024, "online"), (1024, "eager"), (4096, "online"), (4096, "eager")]
    assert [row[0] for row in comparison.table().rows] == ["262,144 × 1,024", "65,536 × 4,096"]


def test_every_dtype_has_its_own_rows(without_gpu):
    single, half = (timing.compare({"online": never}, columns=[4096], dtype=name).rows[0] for name in ("fp32", "bf16"))
    assert (single.dtype, half.dtype) == ("fp32", "bf16")
    assert half.median_ms < single.median_ms


@pytest.mark.parametrize("dtype", ["float32", "fp64", torch.float32, None])
def test_a_bad_dtype_is_refused_with_the_good_ones(dtype):
    with pytest.raises(ValueError, match="dtype must be one of fp32, bf16, fp16"):
        timing.compare({"online": never}, dtype=dtype)


def test_lengths_that_the_record_does_not_hold_are_named(without_gpu):
    comparison = timing.compare({"online": never}, columns=[1000, 1024, 3])
    assert comparison.notes == ("Not in the record: 1,000, 3 columns.",)
    assert comparison.missing == ()
    assert comparison.notes[0] in repr(comparison)


def test_lengths_that_the_record_holds_are_not_missing_where_the_name_is(without_gpu):
    assert timing.compare({"mine": never}, columns=[4096]).notes == ()


def test_another_number_of_elements_than_the_records_is_noted(without_gpu):
    (note,) = timing.compare({"online": never}, columns=[1024], elements=2**20).notes
    assert note == "The record has its own numbers of rows; elements=1,048,576 is used only on a GPU."


def test_one_row_length_needs_no_list(without_gpu):
    assert timing.compare({"online": never}, columns=4096) == timing.compare({"online": never}, columns=[4096])


@pytest.mark.parametrize(
    ("functions", "columns", "error", "fault"),
    [
        (softmax, 256, TypeError, "functions must be a dict of names and functions.*; it is a function[.]"),
        ([softmax], 256, TypeError, "functions must be a dict of names and functions.*; it is a list[.]"),
        (
            {"mine": 3.0},
            256,
            TypeError,
            "'mine' must be the function itself, as in .'mine': softmax.; it is a float[.]",
        ),
        ({"online": torch.ones(1)}, 256, TypeError, "'online' must be the function itself.*; it is a Tensor[.]"),
        ({"online": softmax}, 1e3, TypeError, "columns must be row lengths, such as .1024, 4096.; it is 1000.0[.]"),
        ({"online": softmax}, ["1024"], TypeError, "columns must be row lengths"),
        ({"online": softmax}, [1024, 0], ValueError, "columns must be at least 1; they are 1024, 0[.]"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_or_without_a_gpu(functions, columns, error, fault):
    with pytest.raises(error, match=fault):
        timing.compare(functions, columns)


def test_speed_is_a_fraction_of_the_copy_and_useful_bandwidth_counts_input_and_output_once():
    row = timing.Row("online", "bf16", 1000, 500, median_ms=0.5, low_ms=0.4, high_ms=0.6, copy_ms=0.4)
    assert row.of_copy == pytest.approx(0.8)
    assert row.useful_gbps == pytest.approx(2 * 1000 * 500 * 2 / 0.5e-3 / 1e9)


def test_a_measurement_reads_as_its_median_with_the_spread():
    assert str(timing.Measurement(0.5, 0.4, 0.75, 20)) == "0.5000 ms (half of 20 runs within 0.4000 – 0.7500)"


# The records of few rows


def test_few_rows_that_were_recorded_apart_are_found_by_their_number_of_elements(without_gpu, monkeypatch):
    row = {"variant": "online", "dtype": "fp32", "n_cols": 4096, "low_ms": 1.0, "high_ms": 1.0, "copy_ms": 1.0}
    many, few = {**row, "n_rows": 65536, "median_ms": 2.0}, {**row, "n_rows": 8, "median_ms": 4.0}
    monkeypatch.setitem(timing.record(), "softmax", [many])
    monkeypatch.setitem(timing.record(), "few_rows", [few])
    assert [row.n_rows for row in timing.compare({"online": never}, columns=4096).rows] == [65536]
    asked = timing.compare({"online": never}, columns=4096, elements=8 * 4096)
    assert [row.of_copy for row in asked.rows] == [0.25] and asked.notes == ()
    neither = timing.compare({"online": never}, columns=4096, elements=64 * 4096)
    assert [row.n_rows for row in neither.rows] == [65536]


def test_as_many_rows_as_in_the_record_join_the_few_that_were_recorded_apart(without_gpu, monkeypatch):
    row = {
        "dtype": "fp32",
        "n_rows": 65536,
        "n_cols": 4096,
        "median_ms": 2.0,
        "low_ms": 1.0,
        "high_ms": 1.0,
        "copy_ms": 1.0,
    }
    monkeypatch.setitem(timing.record(), "softmax", [{**row, "variant": name} for name in ("online", "eager")])
    monkeypatch.setitem(timing.record(), "few_rows", [{**row, "variant": "online"}])
    compared = timing.compare({"online": never, "eager": never}, columns=4096)
    assert [row.variant for row in compared.rows] == ["online", "eager"]


# The copy


def test_the_roof_without_a_gpu_is_the_recorded_copy_nearest_in_size(without_gpu):
    for copy in timing.record()["copies"]:
        roof = timing.copy_roof(copy["nbytes"] + 1)
        assert (roof.nbytes, roof.gbps) == (copy["nbytes"], copy["gbps"])


def test_the_roof_without_a_gpu_is_labelled_with_gpu_and_date(without_gpu):
    origin = timing.record()["origin"]
    assert f"recorded on one {origin['gpu']}" in str(timing.copy_roof(2**20))
    assert origin["date"] in str(timing.copy_roof(2**20))


@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_copy_of_less_than_one_byte_is_refused(nbytes):
    with pytest.raises(ValueError, match=f"nbytes must be at least 1; it is {nbytes}"):
        timing.copy_roof(nbytes)


# How a GPU is timed


class Queue:
    """A GPU whose clock goes on by what it is asked to do, in milliseconds that add up without rounding."""

    def __init__(self):
        self.asked, self.clock, self.reached = [], 0.0, 0.0

    def record(self):
        self.asked.append("mark")
        return Mark(self, self.clock)

    def flush(self):
        self.asked.append("flush")
        self.clock += 0.25

    def synchronize(self):
        self.reached = self.clock

    def launch(self, name, *milliseconds):
        """A function that takes these milliseconds, call by call, and the last of them from then on."""
        *first, last = milliseconds
        times = itertools.chain(first, itertools.repeat(last))

        def fn():
            self.asked.append(name)
            self.clock += next(times)

        return fn


class Mark:
    def __init__(self, queue, at):
        self.queue, self.at = queue, at

    def elapsed_time(self, end):
        assert end.at <= self.queue.reached, "the GPU has not come to these marks yet"
        return end.at - self.at


def test_a_launch_is_timed_between_two_marks_on_a_cold_cache():
    queue = Queue()
    timing.measure_in_turns({"mine": queue.launch("mine", 1.0)}, queue=queue)
    assert queue.asked == ["mine", *["flush", "mark", "mine", "mark"] * (3 + 200)]


def test_functions_take_turns():
    queue = Queue()
    timing.measure_in_turns({name: queue.launch(name, 1.0) for name in "ab"}, queue=queue)
    one_turn = ["flush", "mark", "a", "mark", "flush", "mark", "b", "mark"]
    assert queue.asked[-2 * len(one_turn) :] == 2 * one_turn


def test_a_time_is_the_launch_s_without_the_flush_and_the_first_call():
    queue = Queue()
    found = timing.measure_in_turns({"mine": queue.launch("mine", 1000.0, 0.5)}, queue=queue)["mine"]
    assert found == timing.Measurement(0.5, 0.5, 0.5, 200)


@pytest.mark.parametrize(
    ("milliseconds", "repeats"), [(0.0, 200), (1.0, 200), (4.0, 50), (9.0, 22), (11.0, 20), (1000.0, 20)]
)
def test_a_launch_is_repeated_for_200_ms_but_from_20_to_200_times(milliseconds, repeats):
    queue = Queue()
    found = timing.measure_in_turns({"mine": queue.launch("mine", milliseconds)}, queue=queue)
    assert found["mine"].repeats == repeats


def test_the_slowest_function_sets_the_repeats_of_all():
    queue = Queue()
    found = timing.measure_in_turns({"a": queue.launch("a", 0.125), "b": queue.launch("b", 8.0)}, queue=queue)
    assert [measured.repeats for measured in found.values()] == [25, 25]


def test_repeats_that_were_asked_for_are_made():
    queue = Queue()
    assert timing.measure_in_turns({"mine": queue.launch("mine", 1.0)}, 3, queue)["mine"].repeats == 3


def test_a_time_is_the_median_of_all_with_its_quartiles():
    queue = Queue()
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 700.0]
    found = timing.measure_in_turns({"mine": queue.launch("mine", *[1.0] * 4, *times)}, 7, queue)["mine"]
    assert found == timing.Measurement(median_ms=4.0, low_ms=2.0, high_ms=6.0, repeats=7)


@pytest.fixture
def queue(monkeypatch):
    """Timing on a GPU whose clock stands still but for what the test launches."""
    queue = Queue()
    monkeypatch.setattr(timing, "ON_GPU", True)
    monkeypatch.setattr(timing, "CudaQueue", lambda: queue)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Example")
    return queue


def taking(queue, milliseconds):
    """torch.softmax, which takes so long."""
    launch = queue.launch("softmax", milliseconds)

    def fn(x):
        launch()
        return torch.softmax(x, dim=1)

    return fn


@pytest.fixture
def copies_take(monkeypatch, queue):
    """Sets what a copy takes."""

    def set_to(milliseconds):
        copy_ = torch.Tensor.copy_

        def copy(self, x):
            queue.clock += milliseconds
            return copy_(self, x)

        monkeypatch.setattr(torch.Tensor, "copy_", copy)

    return set_to


def test_a_comparison_is_measured_beside_a_copy_of_the_same_bytes(queue, copies_take):
    copies_take(1.0)
    comparison = timing.compare({"mine": taking(queue, 2.0)}, columns=[64, 1000], elements=6400, dtype="bf16")
    assert [(row.variant, row.dtype, row.n_rows, row.n_cols) for row in comparison.rows] == [
        ("mine", "bf16", 100, 64),
        ("mine", "bf16", 6, 1000),
    ]
    assert [row.of_copy for row in comparison.rows] == [pytest.approx(0.5)] * 2
    assert comparison.origin == "measured here on one Example"


def test_a_row_longer_than_the_elements_asked_for_is_one_row(queue, copies_take):
    copies_take(1.0)
    (row,) = timing.compare({"mine": taking(queue, 2.0)}, columns=100, elements=64).rows
    assert (row.n_rows, row.n_cols) == (1, 100)


@pytest.mark.parametrize(
    ("fn", "fault"),
    [
        pytest.param(lambda x: torch.softmax(x, 1) * 1.02, "is wrong .relative error 2.0e-02", id="two percent"),
        pytest.param(lambda x: torch.softmax(x, 0), "is wrong .relative error", id="another dimension"),
        pytest.param(lambda x: torch.softmax(x, 1) * float("nan"), "is wrong .relative error nan", id="NaN"),
        pytest.param(lambda x: torch.softmax(x, 1)[:1], "does not return a tensor of x's shape", id="shape"),
        pytest.param(lambda x: None, "does not return a tensor of x's shape", id="nothing"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_timed(queue, fn, fault):
    with pytest.raises(ValueError, match=f"'mine' {fault}.*it is not timed"):
        timing.compare({"mine": fn}, columns=[256], elements=2**16)
    assert queue.asked == []


@pytest.mark.parametrize(("n_rows", "row"), [(64, 0), (64, 37), (1000, 0), (1000, 999)])
def test_one_wrong_row_of_the_64_that_are_looked_at_is_noticed(queue, n_rows, row):
    def fn(x):
        y = torch.softmax(x, dim=1)
        y[row] = 1.0
        return y

    with pytest.raises(ValueError, match="'mine' is wrong"):
        timing.time_shape({"mine": fn}, n_rows, 50, "fp32")


@pytest.mark.parametrize("dtype", timing.DTYPES)
def test_functions_are_given_matrices_of_the_dtype_asked_for(queue, copies_take, dtype):
    copies_take(1.0)
    seen = set()

    def fn(x):
        seen.add((x.shape, x.dtype))
        return torch.softmax(x, dim=1)

    timing.time_shape({"mine": fn}, 4, 50, dtype, repeats=2)
    assert seen == {((4, 50), timing.DTYPES[dtype])}


def test_a_function_that_rounds_as_its_dtype_does_is_right(queue, copies_take):
    copies_take(1.0)
    assert timing.time_shape({"mine": lambda x: torch.softmax(x, dim=1)}, 1, 2**20, "fp16", repeats=2)


def test_the_roof_is_twice_the_bytes_over_the_time(queue, copies_take):
    copies_take(2.0)
    roof = timing.copy_roof(10**6)
    assert (roof.gbps, roof.nbytes) == (pytest.approx(1.0), 10**6)
    assert roof.origin == "measured here on one Example"


# The records


def test_there_is_a_record_for_machines_without_a_gpu(without_gpu):
    assert timing.record() == timing.record("NVIDIA H200")


def test_a_gpu_without_a_record_is_refused_with_those_that_have_one():
    with pytest.raises(ValueError, match="no record of 'Voodoo2'; there are records of .*NVIDIA H200"):
        timing.record("Voodoo2")


@each_record
def test_a_record_is_named_after_its_gpu(name):
    assert name == re.sub(r"\W+", "_", RECORDS[name]["origin"]["gpu"]).lower()


@each_record
def test_a_record_has_a_complete_origin(name):
    origin = RECORDS[name]["origin"]
    assert set(origin) >= {"gpu", "driver", "clocks", "torch", "triton", "python", "date", "command"}
    assert all(origin.values()) and "unknown" not in origin.values()
    assert datetime.date.fromisoformat(origin["date"])
    assert origin["command"].startswith("python -m helpers.make.record")


@each_record
def test_a_record_names_no_path_of_a_machine(name):
    assert MACHINE_PATH.findall(json.dumps(RECORDS[name])) == []


@each_record
@pytest.mark.parametrize("variant", [*making.SOFTMAXES, "torch.compile"])
def test_a_record_holds_the_variant_at_every_length_it_can_take(name, variant):
    rows = [row for row in RECORDS[name]["softmax"] if row["variant"] == variant]
    for dtype in ("fp32", "bf16"):
        recorded = [row["n_cols"] for row in rows if row["dtype"] == dtype]
        longest = making.LONGEST.get(variant, max(making.COLUMNS))
        assert recorded == [n_cols for n_cols in making.COLUMNS if n_cols <= longest]


@each_record
def test_recorded_quartiles_stand_around_their_median(name):
    for row in RECORDS[name]["softmax"]:
        assert 0 < row["low_ms"] <= row["median_ms"] <= row["high_ms"], row


@each_record
def test_nothing_recorded_is_clearly_faster_than_a_copy_of_the_same_bytes(name):
    assert max(timing.Row(**row).of_copy for row in RECORDS[name]["softmax"]) < 1.05


@each_record
def test_a_record_holds_every_copy(name):
    assert {copy["nbytes"] for copy in RECORDS[name]["copies"]} == set(making.COPIES)
    assert all(copy["gbps"] > 0 for copy in RECORDS[name]["copies"])


@each_record
def test_recorded_kernels_store_about_every_element_to_dram(name):
    for row in RECORDS[name]["dram"]:
        assert 0.9 < row["write_per_element"] < 1.1, row


@each_record
def test_recorded_kernels_load_every_element_from_dram_at_least_once(name):
    for row in RECORDS[name]["dram"]:
        assert row["read_per_element"] > 0.9, row


@each_record
def test_the_picture_of_a_record_says_its_origin(name):
    picture = making.figure(RECORDS[name])
    assert isinstance(picture, draw.Picture)
    assert picture.figure.axes[0].get_title(loc="left") == timing.recorded_origin(RECORDS[name])


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


# On a GPU


@needs_gpu
def test_a_gpu_is_timed_at_least_twenty_times_and_summed_up_in_quartiles():
    x = torch.zeros(2**16, device=DEVICE)
    measured = timing.measure(lambda: x.add_(1))
    assert 0 < measured.low_ms <= measured.median_ms <= measured.high_ms
    assert measured.repeats >= 20


@needs_gpu
def test_a_comparison_on_a_gpu_is_labelled_as_measured_here():
    comparison = timing.compare({"mine": softmax}, columns=[256, 512], elements=2**16)
    assert [(row.variant, row.n_rows, row.n_cols) for row in comparison.rows] == [
        ("mine", 256, 256),
        ("mine", 128, 512),
    ]
    assert comparison.origin == f"measured here on one {torch.cuda.get_device_name()}"
    assert comparison.missing == ()


@needs_gpu
@pytest.mark.parametrize(
    ("fn", "fault"),
    [
        pytest.param(lambda x: x.exp() / 300, "is wrong .relative error", id="values"),
        pytest.param(lambda x: softmax(x) * float("nan"), "is wrong .relative error nan", id="NaN"),
        pytest.param(lambda x: softmax(x)[:1], "does not return a tensor of x's shape", id="shape"),
        pytest.param(lambda x: None, "does not return a tensor of x's shape", id="nothing"),
    ],
)
def test_a_wrong_function_is_not_timed(fn, fault):
    with pytest.raises(ValueError, match=f"'mine' {fault}.*it is not timed"):
        timing.compare({"mine": fn}, columns=[256], elements=2**16)


@needs_gpu
def test_the_roof_on_a_gpu_is_measured():
    roof = timing.copy_roof(2**20)
    assert roof.gbps > 0 and roof.nbytes == 2**20
    assert "measured here" in roof.origin
