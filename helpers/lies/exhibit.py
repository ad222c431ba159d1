"""The exhibit of lesson 08: a benchmark as it was published, and its repairs, one lie at a time."""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from helpers.engine.runtime import DEVICE
from helpers.gpu.real import RealGpu
from helpers.kernels import single_tile_softmax
from helpers.lies.benchmarks import Figures, in_turns, launched_ms


@triton.jit
def vectorized_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr, VEC: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK * VEC)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * N + cols, y, mask=cols < N)


def vectorized_softmax(y, x):
    M, N = x.shape
    vectorized_kernel[(M,)](y, x, N, BLOCK=128, VEC=4)
    return y


def mean_ms(fn, repeats=10):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
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

    def baseline():
        expected.copy_(torch.softmax(x, dim=1))

    theirs = mean_ms(baseline)
    ours = mean_ms(lambda: vectorized_softmax(y, x))
    return {"max diff": diff, "torch.softmax, ms": theirs, "vectorized, ms": ours}


def repairs(as_published: Figures) -> dict[str, Figures]:
    """Milliseconds of torch.softmax and of the kernel, as published, and after each lie is taken away in turn."""
    x = torch.randn(RealGpu.shape, device=DEVICE)
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
