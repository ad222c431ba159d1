"""On a simulated GPU, whose times are known, every honest benchmark says what is true and its lying twin does not."""

import contextlib
import statistics
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import timing
from helpers.gpu.datasheets import DATASHEETS
from helpers.gpu.misleading import EVERY, LAUNCH_MS, Behaviour, MisleadingGpu
from helpers.gpu.real import RealGpu
from helpers.lies import benchmarks
from helpers.lies.benchmarks import LIES

KERNEL_MS = 0.2


@pytest.fixture
def small_matrices(monkeypatch):
    """A megabyte is a row of 1000 numbers here, so that the CPU can hold it."""
    monkeypatch.setattr(benchmarks, "matrix", lambda megabytes: torch.randn(megabytes, 1000))


def both(name, gpu):
    """What the lying and the honest benchmark of a name say on this GPU."""
    with gpu.watching():
        return LIES[name].lying(gpu), LIES[name].honest(gpu)


# What is timed


def test_the_first_call_is_left_out_by_the_honest_benchmark_alone(monkeypatch):
    def gpu_and_its_kernel():
        gpu = MisleadingGpu(Behaviour(compile_ms=100))
        kernel = partial(gpu.kernel(KERNEL_MS, torch.clone), torch.randn(gpu.shape))
        monkeypatch.setattr(benchmarks, "never_called_before", lambda: {"a kernel, ms": kernel})
        return gpu

    lie = LIES["the first call"]
    assert lie.lying(gpu_and_its_kernel()) == pytest.approx({"a kernel, ms": 10 + KERNEL_MS})
    assert lie.honest(gpu_and_its_kernel()) == pytest.approx({"a kernel, ms": KERNEL_MS})


def test_one_slow_call_of_ten_does_not_move_the_honest_figure(monkeypatch):
    gpu = MisleadingGpu(Behaviour(slow_run=3))
    kernel = partial(gpu.kernel(KERNEL_MS, torch.clone), torch.randn(gpu.shape))
    monkeypatch.setattr(benchmarks, "never_called_before", lambda: {"a kernel, ms": kernel})
    assert LIES["the first call"].honest(gpu) == pytest.approx({"a kernel, ms": KERNEL_MS})
    assert gpu.kernel_launches == 1 + 10


def test_host_time_gives_twice_the_speed_for_twice_the_bytes(small_matrices):
    # A copy of a megabyte takes a microsecond on the GPU: 2 GB/s for the bytes read and written.
    gpu = MisleadingGpu(Behaviour(in_queue=True, operation_ms=MisleadingGpu.shape[0] * MisleadingGpu.shape[1] / 1e6))
    lying, honest = both("host time", gpu)
    sizes = (64, 128, 256, 512)
    assert list(lying) == list(honest) == [f"copy of {megabytes} MB, GB/s" for megabytes in sizes]
    assert list(lying.values()) == pytest.approx([2 * megabytes / LAUNCH_MS for megabytes in sizes])
    assert list(honest.values()) == pytest.approx([2 * mb / (1e-3 * mb + LAUNCH_MS) for mb in sizes])


# In which state the GPU is


class Graph:
    """A CUDA graph of the 100 launches of a kernel, which it replays one after the other."""

    def replay(self):
        for _ in range(100):
            benchmarks.single_tile_softmax(self.x)


def test_a_warm_cache_is_timed_by_the_lying_benchmark_alone(small_matrices, monkeypatch):
    # A kernel takes a microsecond for a megabyte, and half of that if its input is in the cache.
    gpu = MisleadingGpu(Behaviour(warm=0.5))
    kernel = gpu.kernel(gpu.shape[0] * gpu.shape[1] / 1e6, torch.clone)

    def softmax(x):
        Graph.x = x
        return kernel(x)

    monkeypatch.setattr(benchmarks, "single_tile_softmax", softmax)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: contextlib.nullcontext())
    labels = ["softmax of 16 MB, GB/s", "softmax of 256 MB, GB/s"]
    assert LIES["warm L2"].lying(gpu) == pytest.approx(dict.fromkeys(labels, 4000))
    before = gpu.kernel_launches
    assert LIES["warm L2"].honest(gpu) == pytest.approx(dict.fromkeys(labels, 2000))
    assert gpu.kernel_launches - before == 2 * (1 + 100)


@pytest.fixture
def drifting(monkeypatch):
    """A GPU that is half as fast again after 60 launches, with the same kernel for A and B."""
    gpu = MisleadingGpu(Behaviour(slowdown=0.5, launches=60))
    kernel = partial(gpu.kernel(KERNEL_MS, torch.clone), torch.randn(gpu.shape))
    monkeypatch.setattr(benchmarks, "rested", lambda gpu: kernel)
    return gpu


def test_a_drifting_clock_favours_whoever_comes_first(drifting):
    lying = LIES["a rested GPU"].lying(drifting)
    assert lying["A times as fast"] > 1.2
    assert lying["A times as fast"] == pytest.approx(lying["product B, ms"] / lying["product A, ms"])
    assert drifting.kernel_launches == 2 * 30


def test_who_takes_turns_gets_the_same_clock(drifting):
    honest = LIES["a rested GPU"].honest(drifting)
    assert honest["A times as fast"] == pytest.approx(1, abs=0.01)
    assert honest["A times as fast"] == pytest.approx(honest["product B, ms"] / honest["product A, ms"])
    assert drifting.kernel_launches == 2 * 30


# On which data


class Named(TorchDispatchMode):
    """Notes the names of PyTorch's operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


class MetaGpu(MisleadingGpu):
    """A simulated GPU whose tensors have shapes but no elements."""

    device = torch.device("meta")


@pytest.mark.parametrize(
    ("way", "made"), [("lying", ["zeros"] * 3), ("honest", ["randn", "randperm", "randn"])], ids=["lying", "honest"]
)
def test_easy_data_are_zeros_and_honest_data_random(way, made, monkeypatch):
    given = []
    monkeypatch.setattr(benchmarks, "speeds", lambda *tensors: given.extend(tensors) or {})
    with Named() as named:
        getattr(LIES["easy data"], way)(MetaGpu(Behaviour()))
    assert [name for name in named.names if name in ("zeros", "randn", "randperm", "ones")] == made
    assert [(*x.shape, x.dtype) for x in given] == [
        (16384, 4096, torch.float32), (16384, torch.int64), (8192, 8192, torch.bfloat16),
    ]  # fmt: skip


def turns(monkeypatch, *milliseconds):
    """Has the functions that are timed in turns take these times, and returns the calls they were timed with."""
    calls = []

    def measure_in_turns(functions, repeats=None):
        calls.extend(functions.values())
        times = (timing.Measurement(ms, ms, ms, 20) for ms in milliseconds)
        return dict(zip(functions, times, strict=True))

    monkeypatch.setattr(timing, "measure_in_turns", measure_in_turns)
    return calls


def test_speeds_count_input_and_output_once_and_two_operations_a_product(monkeypatch):
    turns(monkeypatch, 0.5, 0.25)
    monkeypatch.setattr(benchmarks, "launched_ms", lambda fn, repeats: 4.0)
    meta = {"device": "meta"}
    found = benchmarks.speeds(torch.empty(1000, 1000, **meta), torch.empty(10, **meta), torch.empty(2000, 2000, **meta))
    assert found == pytest.approx({"softmax, GB/s": 16, "rows x[index], GB/s": 32, "matrix product, TFLOP/s": 4})


# Against what


def test_the_wrong_peak_is_the_datasheet_s_and_the_honest_one_a_copy(monkeypatch):
    monkeypatch.setattr(benchmarks, "matrix", lambda megabytes: torch.empty(megabytes, 1))
    monkeypatch.setattr(benchmarks.triton.testing, "get_dram_gbps", lambda: 4000.0)
    turns(monkeypatch, 0.5)
    labels = [f"softmax of {megabytes} MB, %" for megabytes in (1, 16, 256, 1024)]
    lying = LIES["wrong peak"].lying(MisleadingGpu(Behaviour()))
    assert lying == pytest.approx(dict(zip(labels, (0.1, 1.6, 25.6, 102.4), strict=True)))
    turns(monkeypatch, 0.5, 0.2)
    assert LIES["wrong peak"].honest(MisleadingGpu(Behaviour())) == pytest.approx(dict.fromkeys(labels, 40))


def test_effective_bandwidth_counts_two_trips_and_the_honest_one_all(monkeypatch):
    # The matrix has 1,073.741824 MB.
    turns(monkeypatch, 1.073741824, 0.536870912, 0.268435456)
    names = ["two-pass, GB/s", "online, GB/s", "a copy, GB/s"]
    lying, honest = (getattr(LIES["effective bandwidth"], way)(MetaGpu(Behaviour())) for way in ("lying", "honest"))
    assert lying == pytest.approx(dict(zip(names, (2000, 4000, 8000), strict=True)))
    assert honest == pytest.approx(dict(zip(names, (4000, 6000, 8000), strict=True)))


# How is timed


def test_times_in_turns_are_medians_in_the_order_of_the_functions(monkeypatch):
    calls = turns(monkeypatch, 3.0, 1.0, 2.0)
    x = torch.zeros(1)
    assert benchmarks.in_turns(x, torch.add, torch.sub, torch.clone) == [3.0, 1.0, 2.0]
    assert [call.func for call in calls] == [torch.add, torch.sub, torch.clone] and calls[0].args == (x,)


def test_marks_stand_before_and_after_the_call():
    gpu = MisleadingGpu(Behaviour())
    x = torch.randn(gpu.shape)
    start, end = benchmarks.marked(gpu, partial(gpu.kernel(KERNEL_MS, torch.clone), x))
    assert start.elapsed_time(end) == pytest.approx(KERNEL_MS)


def test_the_median_is_not_moved_by_a_burst_of_slow_runs():
    gpu = MisleadingGpu(Behaviour(slow_run=0))
    fn = partial(gpu.kernel(KERNEL_MS, torch.clone), torch.randn(gpu.shape))
    marks = [benchmarks.marked(gpu, fn) for _ in range(EVERY)]
    assert benchmarks.median_ms(marks) == pytest.approx(KERNEL_MS)
    assert statistics.mean(start.elapsed_time(end) for start, end in marks) > 2 * KERNEL_MS


def test_launches_are_timed_after_a_first_one_and_read_after_the_last(monkeypatch):
    gpu = MisleadingGpu(Behaviour(in_queue=True, compile_ms=100))
    monkeypatch.setattr(benchmarks, "RealGpu", lambda: gpu)
    fn = partial(gpu.kernel(KERNEL_MS, torch.clone), torch.randn(gpu.shape))
    assert benchmarks.launched_ms(fn, repeats=5) == pytest.approx(KERNEL_MS, rel=0.05)
    assert gpu.kernel_launches == 1 + 5
    benchmarks.launched_ms(fn)
    assert gpu.kernel_launches == 1 + 5 + 1 + 20


def test_an_operation_and_a_kernel_were_never_called_before(monkeypatch):
    salts = []

    class Salted:
        def __getitem__(self, grid):
            return lambda y, x, n, BLOCK, salt: salts.append((grid, salt))

    clock = iter((10, 11))
    monkeypatch.setattr(benchmarks, "DEVICE", torch.device("meta"))
    monkeypatch.setattr(benchmarks, "_salted_kernel", Salted())
    monkeypatch.setattr(benchmarks.time, "time_ns", lambda: next(clock))
    for _ in range(2):
        for call in benchmarks.never_called_before().values():
            call()
    assert salts == [((15626,), 10), ((15626,), 11)]


@pytest.mark.parametrize(("salt", "added"), [(10, 0), (11, 1)])
def test_the_salted_kernel_copies_and_adds_whether_its_salt_is_odd(salt, added):
    x, y = torch.randn(1500, device=benchmarks.DEVICE), torch.full((2048,), 7.0, device=benchmarks.DEVICE)
    benchmarks._salted_kernel[(2,)](y, x, 1500, 1024, salt)
    assert torch.equal(y[:1500], x + added) and (y[1500:] == 7).all()


def test_a_product_is_called_once_and_the_gpu_then_rests(monkeypatch):
    slept = []
    monkeypatch.setattr(benchmarks, "DEVICE", torch.device("meta"))
    monkeypatch.setattr(benchmarks.time, "sleep", slept.append)
    with Named() as named:
        call = benchmarks.rested(MetaGpu(Behaviour()))
        assert slept == [2] and named.names.count("mm") == 1
        assert call().shape == (8192, 8192)


def test_a_megabyte_is_250_rows_of_1000_numbers(monkeypatch):
    monkeypatch.setattr(benchmarks, "DEVICE", torch.device("meta"))
    assert benchmarks.matrix(3).shape == (750, 1000) and benchmarks.matrix(3).nbytes == 3_000_000


def test_the_matrix_to_time_kernels_on_is_four_times_the_largest_l2_and_more():
    assert RealGpu.shape == (16384, 4096)
    assert 4 * 16384 * 4096 > 2 * max(sheet.l2_bytes for sheet in DATASHEETS.values())
