"""Times what `helpers.softmax` does besides rows forward: its gradient, other dimensions, few rows, Python's share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from helpers import peers, timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES, Softmax
from helpers.softmax import softmax
from helpers.softmax.function import softmax_gradient

_K = TypeVar("_K")
Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""dx from dy and y, two tensors of (M, N)."""

GRADIENT_COLUMNS = (
    8, 9, 33, 64, 99, 256, 781, 1024, 3001, 4096, 8192, 12289, 16384, 32768, 50257, 65536, 131072, 151937, 262144,
    524288, 1048576,
)  # fmt: skip
COMPILED_COLUMNS = (1024, 8192, 65536, 524288)
"""Rows for which the gradient is also compiled by torch, which takes seconds for each."""

DIMENSIONS = {
    "dim 0 of 4096 × 16384": ((4096, 16384), 0, False),
    "dim 0 of 131072 × 512": ((131072, 512), 0, False),
    "channels of 32 × 21 × 512 × 512": ((32, 21, 512, 512), 1, False),
    "channels of 256 × 256 × 56 × 56": ((256, 256, 56, 56), 1, False),
    "channels of 2048 × 512 × 7 × 7": ((2048, 512, 7, 7), 1, False),
    "channels of 16 × 64 × 256 × 256, channels_last": ((16, 64, 256, 256), 1, True),
    "dim 1 of 64 × 1024 × 1024": ((64, 1024, 1024), 1, False),
}
"""Shape, dimension, and whether the channels lie behind the others."""

FEW_SHAPES = ((1, 131072), (7, 131072), (64, 131072), (1024, 4096), (1, 1048576), (8, 1048576))


def measure_gradients(elements: int = 2**28, repeats: int = 20) -> dict[str, list[dict]]:
    """Everything in this file, by kind. GPU only. Wrong results raise ValueError."""
    dtypes = tuple(DTYPES)
    gradient = [
        row
        for dtype in tqdm(dtypes, desc="timing gradients", unit="dtype")
        for n_cols in GRADIENT_COLUMNS
        for row in time_gradient(dtype, elements // n_cols, n_cols, repeats)
    ]
    return {"gradient": gradient, **measure_few_rows(), **measure_dimensions(repeats)}


def measure_few_rows() -> dict[str, list[dict]]:
    """A few rows, with peers. GPU only."""
    return {
        "few_rows": [row for dtype in ("fp32", "bf16") for shape in FEW_SHAPES for row in time_few_rows(dtype, *shape)]
    }


def measure_dimensions(repeats: int = 20) -> dict[str, list[dict]]:
    """Other dimensions, forward and backward, and Python's share: half a minute. GPU only."""
    dimensions = [
        row
        for dtype in ("fp32", "bf16")
        for name in tqdm(DIMENSIONS, desc=f"timing dimensions, {dtype}", unit="shape")
        for row in time_dimension(dtype, name, repeats)
    ]
    return {"dimensions": dimensions, "host": call_times()}


def time_few_rows(dtype: str, n_rows: int, n_cols: int) -> list[dict]:
    """Rows of the record: softmax of a few rows, compared with a copy."""
    contestants = {"torch.softmax": lambda x: torch.softmax(x, 1), "helpers.softmax": softmax}
    installed = peers.installed().items()
    contestants |= {name: fn for name, fn in installed if not peers.refusal(fn, n_rows, n_cols, dtype)}
    rows = map(asdict, timing.measure_shape(contestants, n_rows, n_cols, dtype))
    return [{key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()} for row in rows]


def gradients(dtype: str, n_cols: int) -> dict[str, Gradient]:
    """The contestants for the gradient of rows of n_cols, by name.

    The compiled one has a part only at some lengths, and QuACK's, which compiles each length by itself, not in fp16.
    """
    found: dict[str, Gradient] = {
        "torch.softmax": lambda dy, y: torch.ops.aten._softmax_backward_data(dy, y, 1, y.dtype),
        "helpers.softmax": lambda dy, y: softmax_gradient(dy, y, 1),
    }
    if n_cols in COMPILED_COLUMNS:
        torch.compiler.reset()
        found["torch.compile"] = torch.compile(found["torch.softmax"], dynamic=False)
    if find_spec("liger_kernel") and n_cols <= 65536:
        found["Liger"] = _liger_gradient
    if find_spec("quack") and dtype != "fp16":
        found["QuACK"] = import_module("quack.softmax").softmax_bwd
    return found


def _liger_gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    liger = import_module("liger_kernel.ops.softmax")
    BLOCK, num_warps = liger.calculate_settings(y.shape[1])
    return liger._softmax_backward(dy, y, BLOCK, num_warps, BLOCK < y.shape[1])


def time_gradient(
    dtype: str, n_rows: int, n_cols: int, repeats: int, contestants: Mapping[str, Gradient] | None = None
) -> list[dict]:
    """Rows of the record: the time of each of the `contestants`, or of all, at one shape, compared with a copy of y."""
    y = torch.empty(n_rows, n_cols, device=DEVICE, dtype=DTYPES[dtype]).uniform_(0, 2 / n_cols)
    dy = torch.empty_like(y).normal_()
    some = torch.linspace(0, n_rows - 1, min(n_rows, 16), device=DEVICE, dtype=torch.float64).long()
    want = y[some].double() * (dy[some].double() - (y[some].double() * dy[some].double()).sum(1, keepdim=True))
    kept = {}
    for name, fn in (contestants or gradients(dtype, n_cols)).items():
        try:
            dx = fn(dy, y)[some].double()
        except Exception as refused:
            tqdm.write(f"{name} left out at {n_rows} × {n_cols} {dtype}: {str(refused)[:80]}")
            continue
        # In fp16, each probability of a row of a million columns has few bits, whichever kernel computes with it.
        if not (dx - want).norm() <= 1e-2 * want.norm() + 2 * (want.to(y.dtype).double() - want).norm():
            if name in ("torch.softmax", "helpers.softmax"):
                raise ValueError(f"the gradient of {name} is wrong at {n_rows} × {n_cols} {dtype}.")
            tqdm.write(f"{name} left out at {n_rows} × {n_cols} {dtype}: its gradient is wrong")
            continue
        kept[name] = lambda fn=fn: fn(dy, y)
    other = torch.empty_like(y)
    return _rows(kept, lambda: other.copy_(y), repeats, {"dtype": dtype, "n_rows": n_rows, "n_cols": n_cols})


def time_dimension(dtype: str, name: str, repeats: int) -> list[dict]:
    """Rows of the record: softmax and its gradient over a dimension, compared with a copy into the result's layout."""
    shape, dim, last = DIMENSIONS[name]
    x = torch.randn(shape, device=DEVICE).to(DTYPES[dtype])
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    y, what = torch.empty(shape, device=DEVICE, dtype=x.dtype), {"dtype": dtype, "layout": name}
    forward = {"torch.softmax": lambda: torch.softmax(x, dim), "helpers.softmax": lambda: softmax(x, dim)}
    rows = _rows(forward, lambda: y.copy_(x), repeats, what | {"direction": "forward"})
    if last:
        return rows
    y, dy = torch.softmax(x, dim), torch.randn_like(x)
    backward = {
        "torch.softmax": lambda: torch.ops.aten._softmax_backward_data(dy, y, dim, y.dtype),
        "helpers.softmax": lambda: softmax_gradient(dy, y, dim),
    }
    return rows + _rows(backward, lambda: x.copy_(y), repeats, what | {"direction": "gradient"})


def _rows(functions: Mapping[str, Callable], copy: Callable, repeats: int, what: Mapping[str, Any]) -> list[dict]:
    times = timing.measure_in_turns({"a copy": copy, **functions}, repeats)
    copy_ms = round(times.pop("a copy").median_ms, 5)
    return [
        {"variant": name, **what, "copy_ms": copy_ms}
        | {key: round(value, 5) for key, value in asdict(measurement).items() if key != "repeats"}
        for name, measurement in times.items()
    ]


def call_times(shapes: Iterable[tuple[int, int]] = ((64, 1024), (1, 131072))) -> list[dict]:
    """Microseconds that Python takes for a call, while the GPU works off the queue."""
    functions = {"torch.softmax": lambda x: torch.softmax(x, -1), "helpers.softmax": softmax}
    rows = []
    for n_rows, n_cols in shapes:
        x = torch.randn(n_rows, n_cols, device=DEVICE)
        calls = {(name, what): call for name, fn in functions.items() for what, call in _calls(fn, x).items()}
        rows += [
            {"variant": name, "what": what, "n_rows": n_rows, "n_cols": n_cols, "us": us}
            for (name, what), us in host_us(calls).items()
        ]
    return rows


def _calls(fn: Softmax, x: torch.Tensor) -> dict[str, Callable[[], object]]:
    leaf, dy = x.clone().requires_grad_(), torch.randn_like(x)
    return {
        "forward": lambda: fn(x),
        "forward for a gradient": lambda: fn(leaf),
        "forward and gradient": lambda: torch.autograd.grad(fn(leaf), leaf, dy),
    }


def host_us(calls: Mapping[_K, Callable[[], object]]) -> dict[_K, float]:
    """Microseconds of each call: the fastest of 20 times 100 calls in a row, all functions in turn.

    A processor that others use too runs at different speeds: a loop of 100 additions took 2.3 or 4.1 µs in one process.
    So the fastest times are compared, as the documentation of `timeit` advises.
    """
    times: dict[_K, list[float]] = {name: [] for name in calls}
    for _ in range(21):  # the first time compiles
        for name, call in calls.items():
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(100):
                call()
            times[name].append((time.perf_counter() - begun) * 1e4)
    return {name: round(min(of_call[1:]), 2) for name, of_call in times.items()}
