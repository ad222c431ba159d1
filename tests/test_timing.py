"""How a GPU is timed, what is refused, and that nothing else is ever timed."""

import itertools

import pytest
import torch

import needs
from helpers import DEVICE, timing


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
def test_a_cpu_is_never_timed(monkeypatch, attempt):
    monkeypatch.setattr(timing, "ON_GPU", False)
    with pytest.raises(RuntimeError, match="no GPU here.*timing.compare and timing.copy_roof show recorded") as refusal:
        attempt()
    assert len(str(refusal.value).splitlines()) == 1


# What is refused


@pytest.mark.parametrize("dtype", ["float32", "fp64", torch.float32, None])
def test_a_bad_dtype_is_refused_with_the_good_ones(dtype):
    with pytest.raises(ValueError, match="dtype must be one of fp32, bf16, fp16"):
        timing.compare({"online": never}, dtype=dtype)


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


@pytest.mark.parametrize("nbytes", [0, -1])
def test_a_copy_of_less_than_one_byte_is_refused(nbytes):
    with pytest.raises(ValueError, match=f"nbytes must be a whole number of at least 1; it is {nbytes}"):
        timing.copy_roof(nbytes)


# What is measured


def test_speed_is_a_fraction_of_the_copy_and_useful_bandwidth_counts_input_and_output_once():
    row = timing.Row("online", "bf16", 1000, 500, median_ms=0.5, low_ms=0.4, high_ms=0.6, copy_ms=0.4)
    assert row.of_copy == pytest.approx(0.8)
    assert row.useful_gbps == pytest.approx(2 * 1000 * 500 * 2 / 0.5e-3 / 1e9)


def test_a_measurement_reads_as_its_median_with_the_spread():
    assert str(timing.Measurement(0.5, 0.4, 0.75, 20)) == "0.5000 ms (half of 20 runs within 0.4000 – 0.7500)"


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


@pytest.mark.parametrize(("flush_ms", "turns"), [(0.07, 3), (0.1, 2), (0.11, 2), (0.2, 1), (5.0, 1)])
def test_a_flush_is_repeated_until_it_has_kept_the_gpu_busy_for_200_microseconds(flush_ms, turns):
    assert timing.turns_of_flush(flush_ms) == turns


def test_the_gpu_can_be_kept_busy_for_longer():
    assert timing.turns_of_flush(0.25, busy_ms=1.0) == 4


def test_a_result_of_more_rows_than_float32_counts_is_compared_within_its_rows():
    x = torch.zeros(1, 1).expand(2**24 + 4, 1)
    timing._refuse_wrong("softmax", torch.ones(1, 1).expand(x.shape), x)


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


# On a GPU


@needs.gpu
def test_a_gpu_is_timed_at_least_twenty_times_and_summed_up_in_quartiles():
    x = torch.zeros(2**16, device=DEVICE)
    measured = timing.measure(lambda: x.add_(1))
    assert 0 < measured.low_ms <= measured.median_ms <= measured.high_ms
    assert measured.repeats >= 20


@needs.gpu
def test_a_comparison_on_a_gpu_is_labelled_as_measured_here():
    comparison = timing.compare({"mine": softmax}, columns=[256, 512], elements=2**16)
    assert [(row.variant, row.n_rows, row.n_cols) for row in comparison.rows] == [
        ("mine", 256, 256),
        ("mine", 128, 512),
    ]
    assert comparison.origin == f"measured here on one {torch.cuda.get_device_name()}"
    assert comparison.missing == ()


@needs.gpu
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


@needs.gpu
def test_the_roof_on_a_gpu_is_measured():
    roof = timing.copy_roof(2**20)
    assert roof.gbps > 0 and roof.nbytes == 2**20
    assert "measured here" in roof.origin
