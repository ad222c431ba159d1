"""Exercise 8.2: the benchmark that learners get, and one that solves the exercise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from helpers.gpu import Gpu
from helpers.gpu.real import RealGpu
from helpers.kernels import single_tile_softmax
from helpers.lies.benchmarks import Figures, marked, median_ms


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


def honest_benchmark(gpu: Gpu, mine: Callable, theirs: Callable) -> tuple[float, float]:
    """Milliseconds of two softmax functions, on a real or a simulated GPU. Raises ValueError where `mine` is wrong."""
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
    """What a repaired benchmark says about lesson 02's kernel and torch.softmax, in milliseconds, on this GPU."""
    mine_ms, theirs_ms = benchmark(RealGpu(), single_tile_softmax, partial(torch.softmax, dim=1))
    return {"torch.softmax, ms": theirs_ms, "kernel, ms": mine_ms}
