"""Benchmarks that lie, each beside one that does not, and what both say of the same kernels. Lesson 07 reads them.

On a GPU they run; elsewhere their recorded figures are shown. `see` shows a lie as it is told, `expose` what is true.
"""

from __future__ import annotations

import inspect
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from typing import Any

import torch
import triton
import triton.language as tl

from helpers import recorded, timing
from helpers.engine.runtime import DEVICE, ON_GPU
from helpers.kernels import online_softmax, single_tile_softmax, two_pass_softmax
from helpers.table import Table

Figures = dict[str, float]
"""What a benchmark says, each number by its name and unit."""


class Gpu:
    """The GPU, with the few things that a benchmark needs of it. Everything but `now` goes into the GPU's queue."""

    device = DEVICE
    shape = (16384, 4096)
    """Of the matrix to time kernels on; in float32 it is several times as large as an L2 cache."""

    def now(self) -> float:
        """The host's clock, in milliseconds."""
        return 1e3 * time.perf_counter()

    def record(self) -> torch.cuda.Event:
        """A mark in the queue: start.elapsed_time(end) are the milliseconds between two that the GPU has passed."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        torch.cuda.synchronize()

    def flush(self) -> None:
        """Overwrites 512 MB: the L2 cache holds nothing else, and the GPU is busy while the host prepares a launch."""
        _flushed().zero_()


@cache
def _flushed() -> torch.Tensor:
    return torch.empty(512 * 2**20, dtype=torch.int8, device=DEVICE)


def marked(gpu: Any, fn: Callable[[], object]) -> tuple[Any, Any]:
    """Calls fn() and returns the marks in the GPU's queue before it and after it."""
    start = gpu.record()
    fn()
    return start, gpu.record()


def median_ms(events: Sequence[tuple[Any, Any]]) -> float:
    """The median of the milliseconds between pairs of marks."""
    return statistics.median(start.elapsed_time(end) for start, end in events)


# The exhibit, as the lesson shows it


@triton.jit
def vectorized_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, VEC: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK * VEC)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * N + cols, e / tl.sum(e, axis=0), mask=cols < N)


def vectorized_softmax(y, x):
    M, N = x.shape
    vectorized_kernel[(M,)](y, x, N, BLOCK=128, VEC=4)
    return y


def mean_ms(fn, repeats=10):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(repeats):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / repeats


def published(x):
    expected, y = torch.zeros_like(x), torch.zeros_like(x)
    vectorized_softmax(y, x)
    diff = (y - expected).abs().max().item()
    theirs = mean_ms(lambda: expected.copy_(torch.softmax(x, dim=1)))
    ours = mean_ms(lambda: vectorized_softmax(y, x))
    return {"max diff": diff, "torch.softmax, ms": theirs, "vectorized, ms": ours}


def repairs(as_published: Figures) -> dict[str, Figures]:
    """Milliseconds of torch.softmax and of the kernel, as published, and after each lie is taken away in its turn."""
    x = torch.randn(Gpu.shape, device=DEVICE)
    y, expected = torch.empty_like(x), torch.empty_like(x)
    plain, part = partial(torch.softmax, dim=1), partial(vectorized_softmax, y)

    def copied(x: torch.Tensor) -> torch.Tensor:
        return expected.copy_(torch.softmax(x, dim=1))

    steps = {
        "as published": [as_published[side] for side in ("torch.softmax, ms", "vectorized, ms")],
        "a warm-up, and the median": [launched_ms(partial(fn, x)) for fn in (copied, part)],
        "in turns, on a cold L2": in_turns(x, copied, part),
        "no copy in the baseline": in_turns(x, plain, part),
        "all 4096 columns": in_turns(x, plain, single_tile_softmax),
    }
    return {step: {"torch.softmax, ms": theirs, "kernel, ms": ours} for step, (theirs, ours) in steps.items()}


def launched_ms(fn: Callable[[], object], repeats: int = 20) -> float:
    """The median of the GPU's times of fn(), called again and again after a first time, whatever is in its cache."""
    gpu = Gpu()
    fn()
    events = [marked(gpu, fn) for _ in range(repeats)]
    gpu.synchronize()
    return median_ms(events)


# What is timed


def host_time_lying(gpu: Gpu) -> Figures:
    gbps = {}
    for megabytes in (64, 128, 256, 512):
        x, y = matrix(megabytes), matrix(megabytes)
        times = []
        for _ in range(20):
            gpu.synchronize()
            start = gpu.now()
            y.copy_(x)
            times.append(gpu.now() - start)
        gbps[f"copy of {megabytes} MB, GB/s"] = 2 * megabytes / statistics.median(times)
    return gbps


def host_time_honest(gpu: Gpu) -> Figures:
    gbps = {}
    for megabytes in (64, 128, 256, 512):
        x, y = matrix(megabytes), matrix(megabytes)
        times = []
        for _ in range(20):
            start = gpu.record()
            y.copy_(x)
            end = gpu.record()
            gpu.synchronize()
            times.append(start.elapsed_time(end))
        gbps[f"copy of {megabytes} MB, GB/s"] = 2 * megabytes / statistics.median(times)
    return gbps


def first_call_lying(gpu: Gpu) -> Figures:
    mean_ms = {}
    for name, fn in never_called_before().items():
        start = gpu.record()
        for _ in range(10):
            fn()
        end = gpu.record()
        gpu.synchronize()
        mean_ms[name] = start.elapsed_time(end) / 10
    return mean_ms


def first_call_honest(gpu: Gpu) -> Figures:
    ms = {}
    for name, fn in never_called_before().items():
        fn()
        events = [marked(gpu, fn) for _ in range(10)]
        gpu.synchronize()
        ms[name] = median_ms(events)
    return ms


def matrix(megabytes: int) -> torch.Tensor:
    """Random float32 numbers: 250 rows of 1000 for each megabyte."""
    return torch.randn(250 * megabytes, 1000, device=DEVICE)


@triton.jit
def _salted_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, SALT: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) + SALT % 2, mask=cols < N)


def never_called_before() -> dict[str, Callable[[], object]]:
    """An operation of PyTorch that its first call loads, and a Triton kernel that its first call compiles."""
    x = matrix(64)
    y, salt = torch.empty_like(x), time.time_ns() % 2**31
    return {
        "torch.log_softmax, ms": lambda: torch.log_softmax(x, dim=1),
        "a Triton kernel, ms": lambda: _salted_kernel[(x.numel() // 1024 + 1,)](y, x, x.numel(), 1024, salt),
    }


# In which state the GPU is


def warm_cache_lying(gpu: Gpu) -> Figures:
    gbps = {}
    for megabytes in (16, 256):
        x = matrix(megabytes)
        single_tile_softmax(x)
        with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
            for _ in range(100):
                single_tile_softmax(x)
        graph.replay()
        start, end = marked(gpu, graph.replay)
        gpu.synchronize()
        ms = start.elapsed_time(end) / 100
        gbps[f"softmax of {megabytes} MB, GB/s"] = 2 * megabytes / ms
    return gbps


def warm_cache_honest(gpu: Gpu) -> Figures:
    gbps = {}
    for megabytes in (16, 256):
        x = matrix(megabytes)
        single_tile_softmax(x)
        events = []
        for _ in range(100):
            gpu.flush()
            events.append(marked(gpu, partial(single_tile_softmax, x)))
        gpu.synchronize()
        gbps[f"softmax of {megabytes} MB, GB/s"] = 2 * megabytes / median_ms(events)
    return gbps


def drift_lying(gpu: Gpu) -> Figures:
    A, B = rested(gpu), rested(gpu)
    ms = {}
    for name, fn in (("A", A), ("B", B)):
        events = [marked(gpu, fn) for _ in range(30)]
        gpu.synchronize()
        ms[f"product {name}, ms"] = median_ms(events)
    ms["A times as fast"] = ms["product B, ms"] / ms["product A, ms"]
    return ms


def drift_honest(gpu: Gpu) -> Figures:
    A, B = rested(gpu), rested(gpu)
    events = {"A": [], "B": []}
    for _ in range(30):
        for name, fn in (("A", A), ("B", B)):
            events[name].append(marked(gpu, fn))
    gpu.synchronize()
    ms = {f"product {name}, ms": median_ms(events[name]) for name in events}
    ms["A times as fast"] = ms["product B, ms"] / ms["product A, ms"]
    return ms


def rested(gpu: Gpu) -> Callable[[], torch.Tensor]:
    """A matrix product of 1.1 teraflop in bfloat16, called once; the GPU then rests for two seconds."""
    x, y = (torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) for _ in "xy")
    out = x @ y
    gpu.synchronize()
    time.sleep(2)
    return lambda: torch.mm(x, y, out=out)


# On which data


def easy_data_lying(gpu: Gpu) -> Figures:
    x = torch.zeros(16384, 4096, device=gpu.device)
    rows = torch.zeros(16384, dtype=torch.int64, device=gpu.device)
    square = torch.zeros(8192, 8192, dtype=torch.bfloat16, device=gpu.device)
    return speeds(x, rows, square)


def easy_data_honest(gpu: Gpu) -> Figures:
    x = torch.randn(16384, 4096, device=gpu.device)
    rows = torch.randperm(16384, device=gpu.device)
    square = torch.randn(8192, 8192, dtype=torch.bfloat16, device=gpu.device)
    return speeds(x, rows, square)


def speeds(x: torch.Tensor, rows: torch.Tensor, square: torch.Tensor) -> Figures:
    """Of softmax and of rows chosen by index, on a cold L2; of a matrix product, repeated for half a second."""
    times = timing.measure_in_turns({"softmax": lambda: single_tile_softmax(x), "rows": lambda: x[rows]})
    gbps = {name: 2 * x.nbytes / found.median_ms / 1e6 for name, found in times.items()}
    product_ms = launched_ms(lambda: square @ square, repeats=300)
    return {
        "softmax, GB/s": gbps["softmax"],
        "rows x[index], GB/s": gbps["rows"],
        "matrix product, TFLOP/s": 2 * len(square) ** 3 / product_ms / 1e9,
    }


# Against what


def wrong_peak_lying(gpu: Gpu) -> Figures:
    peak = triton.testing.get_dram_gbps()  # memory clock × bus width
    percent = {}
    for megabytes in (1, 16, 256, 1024):
        x = matrix(megabytes)
        [softmax_ms] = in_turns(x, single_tile_softmax)
        gbps = 2 * megabytes / softmax_ms
        percent[f"softmax of {megabytes} MB, %"] = 100 * gbps / peak
    return percent


def wrong_peak_honest(gpu: Gpu) -> Figures:
    percent = {}
    for megabytes in (1, 16, 256, 1024):
        x, y = matrix(megabytes), matrix(megabytes)
        softmax_ms, copy_ms = in_turns(x, single_tile_softmax, y.copy_)
        percent[f"softmax of {megabytes} MB, %"] = 100 * copy_ms / softmax_ms
    return percent


def effective_lying(gpu: Gpu) -> Figures:
    x = torch.randn(2048, 131072, device=gpu.device)
    ms = in_turns(x, two_pass_softmax, online_softmax, torch.clone)
    gigabytes = x.nbytes / 1e6  # over milliseconds: GB/s
    return {
        "two-pass, GB/s": 2 * gigabytes / ms[0],
        "online, GB/s": 2 * gigabytes / ms[1],
        "a copy, GB/s": 2 * gigabytes / ms[2],
    }


def effective_honest(gpu: Gpu) -> Figures:
    x = torch.randn(2048, 131072, device=gpu.device)
    ms = in_turns(x, two_pass_softmax, online_softmax, torch.clone)
    gigabytes = x.nbytes / 1e6
    return {
        "two-pass, GB/s": (3 + 1) * gigabytes / ms[0],
        "online, GB/s": (2 + 1) * gigabytes / ms[1],
        "a copy, GB/s": (1 + 1) * gigabytes / ms[2],
    }


def in_turns(x: torch.Tensor, *functions: Callable[[torch.Tensor], object]) -> list[float]:
    """The medians in milliseconds of functions of x, as the course measures: in turns, each launch on a cold L2."""
    calls = {number: partial(fn, x) for number, fn in enumerate(functions)}
    return [found.median_ms for found in timing.measure_in_turns(calls).values()]


# The exercise, as it is handed out and as it may be solved


def lying_benchmark(gpu, mine, theirs):
    x = torch.zeros(gpu.shape, device=gpu.device)
    y, expected = torch.zeros_like(x), torch.zeros_like(x)
    if (y - expected).abs().max() > 0.02:
        raise ValueError("mine is wrong")

    def ms(fn):
        start = gpu.now()
        for _ in range(10):
            y.copy_(fn(x))
        return (gpu.now() - start) / 10

    return ms(mine), ms(theirs)


def benchmark(gpu: Any, mine: Callable, theirs: Callable) -> tuple[float, float]:
    """Milliseconds that two softmax functions need on a GPU, real or simulated. ValueError where `mine` is wrong."""
    x = torch.randn(gpu.shape, device=gpu.device)
    expected = torch.softmax(x.double(), dim=1)
    if not torch.allclose(mine(x).double(), expected, rtol=1e-4, atol=1e-9):
        raise ValueError("mine is wrong")
    theirs(x)
    events: list[list[tuple]] = [[], []]
    for _ in range(30):
        for turns, fn in zip(events, (mine, theirs), strict=True):
            gpu.flush()
            turns.append(marked(gpu, partial(fn, x)))
    gpu.synchronize()
    return median_ms(events[0]), median_ms(events[1])


def believed(benchmark: Callable) -> Figures:
    """What a repaired benchmark says of the exhibit's comparison, with lesson 02's kernel, on this GPU."""
    mine_ms, theirs_ms = benchmark(Gpu(), single_tile_softmax, partial(torch.softmax, dim=1))
    return {"torch.softmax, ms": theirs_ms, "kernel, ms": mine_ms}


# The figures


@dataclass(frozen=True)
class Lie:
    """The same quantities as a lying benchmark says they are and as an honest one does, and why they differ."""

    lying: Callable[[Gpu], Figures]
    honest: Callable[[Gpu], Figures]
    why: str


LIES = {
    "the first call": Lie(
        first_call_lying,
        first_call_honest,
        "A first call loads a kernel, and compiles it if it is Triton's; a mean of ten carries a tenth of that. "
        "Call once before, and take the median of the rest.",
    ),
    "host time": Lie(
        host_time_lying,
        host_time_honest,
        "y.copy_(x) returns once the copy is in the queue, after as many microseconds for any size: twice the bytes, "
        "twice the GB/s. Marks in the queue read the GPU's clock.",
    ),
    "warm L2": Lie(
        warm_cache_lying,
        warm_cache_honest,
        "The smaller matrix is still in L2 from the launch before, so the cache is timed; the larger does not stay. "
        "After a flush every launch starts cold, as it would between other kernels.",
    ),
    "drifting clock": Lie(
        drift_lying,
        drift_honest,
        "A gets a rested GPU with its clock at the highest; under load the clock is lowered, and B gets that. "
        "In turns both get the same.",
    ),
    "easy data": Lie(
        easy_data_lying,
        easy_data_honest,
        "Softmax moves the same bytes, whatever they hold. Where every index is the same, one row is read and "
        "stays in L2. And bits that never switch take less power, so that a matrix product keeps a higher clock.",
    ),
    "wrong peak": Lie(
        wrong_peak_lying,
        wrong_peak_honest,
        "The datasheet blames the kernel for what every launch costs; a copy of 1 MB does hardly better. Above 100 % "
        "the copy is no roof either: it too has to start, and what fits into L2 need not reach the memory before the "
        "second mark. Trust it where the bytes are several times the L2.",
    ),
    "effective bandwidth": Lie(
        effective_lying,
        effective_honest,
        "2 × size is what the caller gets, not what the kernel moves: these read the row three times and twice. "
        "With all trips counted both are nearly as fast as the memory. Faster loads would not help; fewer would.",
    ),
}


# Showing


class Shown:
    """Benchmarks and what they said: for each a name, the source to read and a table."""

    def __init__(self, parts: Sequence[tuple[str, str, Table]]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}\n\n{source}\n{table}" for name, source, table in self.parts)

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{escape(name)}</h4><pre>{escape(source)}</pre>{table._repr_html_()}"
            for name, source, table in self.parts
        )


def see(*names: str) -> Shown:
    """The lying benchmarks of these names and what they say. Raises ValueError for a name that no lie has."""
    return Shown([_part(name, ("lying",)) for name in names])


def expose(*names: str) -> Shown:
    """The honest benchmarks of these names, what they say beside the lying ones, and why. ValueError as for `see`."""
    return Shown([_part(name, ("lying", "honest")) for name in names])


def _part(name: str, ways: tuple[str, ...]) -> tuple[str, str, Table]:
    if name not in LIES:
        raise ValueError(f"no lie is called {name!r}; there are {', '.join(LIES)}.")
    lie = LIES[name]
    source = inspect.getsource(getattr(lie, ways[-1]))
    figures = {way: _figures(name, way) for way in ways}
    rows = [[label, *(_number(figures[way][label]) for way in ways)] for label in figures["lying"]]
    notes = [lie.why] if "honest" in ways else []
    return name, source, Table(["it says", *ways], rows, [*notes, f"{origin()[0].upper()}{origin()[1:]}."])


@cache
def _figures(name: str, way: str) -> Figures:
    """What a benchmark says: measured once where there is a GPU, recorded elsewhere."""
    if ON_GPU:
        return getattr(LIES[name], way)(Gpu())
    return record()["lies"][name][way]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def measured_or_recorded(measure: Callable[[], Any], name: str) -> Any:
    """What `measure()` returns where there is a GPU, and elsewhere the record's entry of this name."""
    return measure() if ON_GPU else record()[name]


def origin() -> str:
    """Where the figures come from, in words: measured here, or recorded on which GPU, with versions and date."""
    if ON_GPU:
        return f"measured here on one {torch.cuda.get_device_name()}"
    return recorded.origin_in_words(record()["origin"])


def record() -> dict[str, Any]:
    """The record of the NVIDIA H200: `origin`, what the exhibit said as `published`, its `repairs`, what the
    course's benchmark says (`believed`), and the `lies` with the figures of both ways.
    """
    return recorded.by_gpu("lies")[recorded.REFERENCE]


def run_all() -> dict[str, Any]:
    """Runs the exhibit and all benchmarks on this GPU, within a minute, and returns what they said.

    Nothing of this process may have called torch.softmax before: the exhibit's baseline is timed without a warm-up.
    """
    as_published = published(torch.randn(Gpu.shape, device=DEVICE))
    found = {"published": as_published, "repairs": repairs(as_published), "lies": {}}
    found["believed"] = believed(benchmark)
    for name, lie in LIES.items():
        found["lies"][name] = {way: getattr(lie, way)(Gpu()) for way in ("lying", "honest")}
        torch.cuda.empty_cache()
    return _rounded(found)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
