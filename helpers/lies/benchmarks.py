"""Pairs of benchmarks, one that lies and one that does not. Lesson 08 shows their source.

Both benchmarks of a pair return the same quantities; a `Lie` says why they differ. They run only on a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.gpu import Gpu, Mark
from helpers.gpu.real import RealGpu
from helpers.kernels import online_softmax, single_tile_softmax, two_pass_softmax

Figures = dict[str, float]
"""The numbers that a benchmark reports, by name and unit."""


def marked(gpu: Gpu, fn: Callable[[], object]) -> tuple[Mark, Mark]:
    """Calls fn() and returns the marks in the GPU's queue before it and after it."""
    start = gpu.record()
    fn()
    return start, gpu.record()


def median_ms(marks: Sequence[tuple[Mark, Mark]]) -> float:
    """The median of the milliseconds between pairs of marks."""
    return statistics.median(start.elapsed_time(end) for start, end in marks)


def launched_ms(fn: Callable[[], object], repeats: int = 20) -> float:
    """The median of the GPU's milliseconds for fn(), called `repeats` times after a first call, with a warm cache."""
    gpu = RealGpu()
    fn()
    events = [marked(gpu, fn) for _ in range(repeats)]
    gpu.synchronize()
    return median_ms(events)


def in_turns(x: torch.Tensor, *functions: Callable[[torch.Tensor], object]) -> list[float]:
    """The medians in milliseconds of functions of x, measured as the course measures: in turns, each on a cold L2."""
    calls = {number: partial(fn, x) for number, fn in enumerate(functions)}
    return [found.median_ms for found in timing.measure_in_turns(calls).values()]


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
    ms = {}
    for name, fn in never_called_before().items():
        start = gpu.record()
        for _ in range(10):
            fn()
        end = gpu.record()
        gpu.synchronize()
        ms[name] = start.elapsed_time(end) / 10
    return ms


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
    """An operation of PyTorch whose first call loads it, and a Triton kernel whose first call compiles it."""
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
    """The speed of softmax and of rows chosen by index, on a cold L2; and of a matrix product, repeated 300 times."""
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
    megabytes = x.nbytes / 1e6  # MB a millisecond are GB a second
    return {
        "two-pass, GB/s": 2 * megabytes / ms[0],
        "online, GB/s": 2 * megabytes / ms[1],
        "a copy, GB/s": 2 * megabytes / ms[2],
    }


def effective_honest(gpu: Gpu) -> Figures:
    x = torch.randn(2048, 131072, device=gpu.device)
    ms = in_turns(x, two_pass_softmax, online_softmax, torch.clone)
    megabytes = x.nbytes / 1e6
    return {
        "two-pass, GB/s": (3 + 1) * megabytes / ms[0],
        "online, GB/s": (2 + 1) * megabytes / ms[1],
        "a copy, GB/s": (1 + 1) * megabytes / ms[2],
    }


# The pairs


@dataclass(frozen=True)
class Lie:
    """Two benchmarks that report the same quantities, one misleading and one not, and why their figures differ."""

    lying: Callable[[Gpu], Figures]
    honest: Callable[[Gpu], Figures]
    question: str
    """To be answered before the honest figures are seen."""
    guessed: str
    """The figure that the question asks for: a key of both."""
    why: str
    heads: tuple[str, str] = ("lying", "honest")
    """What stands above the figures of each in a table."""


LIES = {
    "the first call": Lie(
        first_call_lying,
        first_call_honest,
        "What does a mean of ten include? How many milliseconds does a launch of the Triton kernel really take?",
        "a Triton kernel, ms",
        "The first call loads a kernel, and compiles it if it is Triton's; a mean of ten includes a tenth of that "
        "time. Call once before the measurement, and take the median of the other calls.",
    ),
    "host time": Lie(
        host_time_lying,
        host_time_honest,
        "What would it mean if twice the bytes took the same time? How many GB/s does the copy of 512 MB really reach?",
        "copy of 512 MB, GB/s",
        "y.copy_(x) returns as soon as the copy is in the queue. That takes about as long whatever the size, so "
        "the GB/s grow with the bytes. Marks in the queue read the GPU's clock.",
    ),
    "warm L2": Lie(
        warm_cache_lying,
        warm_cache_honest,
        "A hundred runs in a CUDA graph, so Python plays no part. An H200 has 60 MB of L2: which size gains? How many "
        "GB/s does the softmax of 16 MB reach if its input has to come from memory?",
        "softmax of 16 MB, GB/s",
        "The smaller matrix is still in L2 from the launch before, so the cache is timed; the larger matrix does not "
        "stay there. After a flush every launch starts cold, as it would between other kernels.",
    ),
    "a rested GPU": Lie(
        drift_lying,
        drift_honest,
        "A and B are the same matrix product, on a GPU that has rested for two seconds. Why is A faster? How many "
        "times as fast is it when A and B take turns?",
        "A times as fast",
        "A is timed on a rested GPU, B on one that has worked. When A and B take turns, both get the same GPU.",
    ),
    "easy data": Lie(
        easy_data_lying,
        easy_data_honest,
        "All data are zeros. Which of the three speeds gain? Think of what each one reads. How many TFLOP/s does the "
        "matrix product reach on random data?",
        "matrix product, TFLOP/s",
        "Softmax moves the same bytes, whatever they hold. Where every index is the same, only one row is read, and it "
        "stays in L2. The matrix product does the same operations, and on zeros it is faster all the same: measure on "
        "data like those to come.",
    ),
    "wrong peak": Lie(
        wrong_peak_lying,
        wrong_peak_honest,
        "100 % is what the memory's clock and width allow. Is the kernel bad where the number is small? What percent "
        "of a copy's speed does the softmax of 1 MB reach?",
        "softmax of 1 MB, %",
        "Clock × width blames the kernel for the cost of every launch, and a copy of 1 MB does hardly better. Above "
        "100 % the copy is not a roof either: bytes that fit into L2 need not reach the memory before the second mark. "
        "Trust the copy where the bytes are several times the L2.",
    ),
    "effective bandwidth": Lie(
        effective_lying,
        effective_honest,
        "2 × size over time, for kernels that read the row three times and twice. How many GB/s does the memory "
        "deliver and take if every trip of the online kernel is counted?",
        "online, GB/s",
        "Both columns are true. The first answers how fast the caller's work is done, which a speed-up compares, as do "
        "the figures of this course. The second answers how busy the memory is: nearly as busy as in a copy, with "
        "either kernel. It is a lie to give one number as the answer to the other question: the second would make the "
        "wasteful kernel look as good as the other, and the first would say that the memory could go twice as fast.",
        heads=("2 × size", "all trips"),
    ),
}
