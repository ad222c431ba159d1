"""What lesson 06 explains times with, measured on this GPU: its memories, loads under way, lone programs, counters."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from helpers import kernels, timing, xray
from helpers.choosing.functions import compiled_as, softmax_of
from helpers.choosing.launches import ELEMENTS, Launch
from helpers.engine.runtime import DEVICE

FLIGHT = tuple((programs, BLOCK) for BLOCK in (128, 512, 2048) for programs in (1, 2, 4, 8, 16, 32))
"""Programs an SM, and float32 numbers that each has under way: 512 bytes to 256 kB an SM."""

LONE_PROGRAMS = tuple((n_cols, num_warps) for n_cols in (256, 1024, 4096, 16384, 32768) for num_warps in (4, 8, 16, 32))
"""Columns and warps of a single row in float32, whose program has the GPU to itself."""

LOOKED_AT = (
    ("fp32", 4096, Launch("single tile", 4096, 8)),
    ("bf16", 4096, Launch("single tile", 4096, 32)),
    ("bf16", 18432, Launch("single tile", 32768, 32)),
    ("fp32", 8192, Launch("persistent", 8192, 16)),
)
"""The dtypes, row lengths and launches whose counters are read: memory, instructions, one program an SM, waves."""

XRAYED = tuple(
    (dtype, Launch("single tile", BLOCK, num_warps))
    for dtype in ("fp32", "bf16")
    for BLOCK in (2048, 4096, 8192, 16384, 32768)
    for num_warps in (4, 8, 16, 32)
    if 4 <= BLOCK // (32 * num_warps) <= 128
)
"""Launches whose X-ray is kept with the times: from 4 warps on, 4 to 128 elements a thread."""

METRICS = {
    "gpu__time_duration.sum": "ns",
    "dram__bytes_read.sum": "read_bytes",
    "dram__bytes_write.sum": "write_bytes",
    "smsp__thread_inst_executed.sum": "instructions",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
}
"""By the name that ncu has for a counter: the name in the record."""

COUNTER_COMMAND = (
    "ncu", "--csv", "--print-units", "base", "--clock-control", "none",
    "--kernel-name", "regex:^(single_tile|persistent)_kernel$", "--metrics", ",".join(METRICS),
)  # fmt: skip
"""The command that reads the counters of these launches; what it is to launch comes after it."""


@triton.jit
def empty_kernel(x_ptr):
    """Does nothing."""


@triton.jit
def read_kernel(sum_ptr, x_ptr, own, step, SPAN, TILES, BLOCK: tl.constexpr, CACHE: tl.constexpr, WAITS: tl.constexpr):
    """Each program loads TILES tiles of BLOCK float32, from own · program on in steps of `step`, around within SPAN.

    SPAN is a power of two, `own` and `step` are multiples of 16; CACHE is the cache modifier of the loads. With WAITS
    the address of a tile depends on the sum of the one before it, so that one is under way at a time.
    """
    x_own = x_ptr + tl.program_id(0).to(tl.int64) * own + tl.arange(0, BLOCK)
    at = 0
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(TILES):
        x = tl.load(x_own + tl.multiple_of(at & (SPAN - 1), 16), cache_modifier=CACHE)
        total += x
        at += step
        if WAITS:
            at += tl.where(tl.sum(x, axis=0) == 12345.0, 16, 0)
    tl.store(sum_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def multiply_kernel(y_ptr, a, b, STEPS, BLOCK: tl.constexpr):
    """Each program computes y = a·y + b, 16 · STEPS times, on BLOCK float32 numbers in registers."""
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = lanes.to(tl.float32)
    for _ in range(STEPS):
        for _ in tl.static_range(16):
            y = y * a + b
    tl.store(y_ptr + lanes, y)


def measure_why() -> dict[str, Any]:
    """All that why.json holds besides its origin."""
    sms = torch.cuda.get_device_properties(DEVICE).multi_processor_count
    nothing = torch.zeros(16, device=DEVICE)
    return {
        "multiprocessors": sms,
        "empty_us": _us(lambda: empty_kernel[(1,)](nothing)),
        "gbps": {"DRAM": dram_gbps(sms), "L2": l2_gbps(sms), "L1": l1_gbps(sms), "registers": register_gbps(sms)},
        "flight": [[programs, 4 * BLOCK, in_flight_gbps(sms, programs, BLOCK)] for programs, BLOCK in FLIGHT],
        "alone": [[n_cols, num_warps, alone_us(n_cols, num_warps)] for n_cols, num_warps in LONE_PROGRAMS],
        "counters": counters_or_none(),
        "compiled": compiled_figures(),
    }


def _us(fn: Callable[[], object]) -> float:
    return round(1e3 * timing.measure(fn).median_ms, 2)


def _read(
    sms: int, programs: int, BLOCK: int, tiles: int, span: int, own: int, step: int, cache: str, waits: bool, warps: int
) -> float:
    """GB/s at which `programs` programs an SM load `tiles` tiles each."""
    x = torch.ones(span + sms * programs * max(own, BLOCK), device=DEVICE)
    grid = sms * programs
    sums = torch.empty(grid * BLOCK, device=DEVICE)
    time = timing.measure(
        lambda: read_kernel[(grid,)](
            sums, x, own, step, span, tiles, BLOCK=BLOCK, CACHE=cache, WAITS=waits, num_warps=warps
        )
    )
    return round(4 * BLOCK * tiles * grid / time.median_ms / 1e6, 1)


def dram_gbps(sms: int) -> float:
    """GB/s of reading 2 GB once."""
    grid, BLOCK = sms * 16, 2048
    tiles = 2**29 // (grid * BLOCK)
    return _read(sms, 16, BLOCK, tiles, 2**29, BLOCK, grid * BLOCK, ".cg", False, 4)


def l2_gbps(sms: int) -> float:
    """GB/s of reading 16 MB again and again, past the L1 caches."""
    return _read(sms, 8, 2048, 256, 2**22, 2048, 8 * sms * 2048, ".cg", False, 4)


def l1_gbps(sms: int) -> float:
    """GB/s of programs that read 16 kB each again and again, 4 programs an SM."""
    return _read(sms, 4, 2048, 2048, 4096, 4096, 2048, ".ca", False, 8)


def register_gbps(sms: int) -> float:
    """GB/s at which multiply-adds read their three operands."""
    BLOCK, STEPS, grid = 2048, 2000, sms * 8
    y = torch.empty(grid * BLOCK, device=DEVICE)
    time = timing.measure(lambda: multiply_kernel[(grid,)](y, 0.5, 1.5, STEPS, BLOCK=BLOCK, num_warps=8))
    return round(12 * 16 * STEPS * grid * BLOCK / time.median_ms / 1e6, 1)


def in_flight_gbps(sms: int, programs: int, BLOCK: int) -> float:
    """GB/s from DRAM where each program of one warp has one tile under way and waits for it."""
    grid = sms * programs
    tiles = min(1024, max(32, 2**28 // (grid * BLOCK)))
    return _read(sms, programs, BLOCK, tiles, 2**29, BLOCK, grid * BLOCK, ".cg", True, 1)


def alone_us(n_cols: int, num_warps: int) -> float:
    """Microseconds of a softmax of one row, its launch included."""
    x = torch.randn(1, n_cols, device=DEVICE)
    return _us(partial(kernels.single_tile_softmax, x, num_warps=num_warps))


def compiled_figures(target: str = "sm_90") -> list[list[Any]]:
    """What the X-ray says of XRAYED, in rows whose columns are a multiple of 16.

    Dtype, BLOCK, warps; then registers a thread, bytes of shared memory, and instructions an element.
    """
    found = []
    for dtype, launch in XRAYED:
        kernel, args, options = compiled_as(launch, launch.BLOCK, kernels.DTYPES[dtype])
        seen = xray.report(kernel, *args, **options, target=target)
        numbers = seen.registers, seen.shared_bytes, round(seen.instructions_per_element, 2)
        found.append([dtype, launch.BLOCK, launch.num_warps, *numbers])
    return found


def counters_or_none() -> list[dict[str, Any]]:
    """As `counters`; none, and the reason on stderr, where ncu is missing or may not count."""
    try:
        return counters() if shutil.which("ncu") else []
    except RuntimeError as error:
        print(f"counters left out: {error}", file=sys.stderr)
        return []


def counters() -> list[dict[str, Any]]:
    """What ncu counts in each of LOOKED_AT. Raises RuntimeError with its words where a counter is missing."""
    launched = [sys.executable, "-m", "helpers.measure.record", "--once", "why"]
    report = subprocess.run([*COUNTER_COMMAND, *launched], capture_output=True, text=True)
    return parse_counters(report.stdout, report.stderr)


def _plain(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def record_text(record: dict[str, Any]) -> str:
    """A record as JSON, with a line for each entry of its lists."""
    lines = {
        name: "[\n" + ",\n".join(map(json.dumps, part)) + "\n]"
        if isinstance(part, list)
        else json.dumps(part, indent=1)
        for name, part in record.items()
    }
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {text}" for name, text in lines.items()) + "\n}\n"


def launch_counted_whys() -> None:
    """Launches each of LOOKED_AT once, for ncu to look on."""
    for dtype, n_cols, launch in LOOKED_AT:
        x = torch.randn(ELEMENTS // n_cols, n_cols, device=DEVICE).to(kernels.DTYPES[dtype])
        softmax_of(launch)(x)
    torch.cuda.synchronize()


def parse_counters(report: str, errors: str) -> list[dict[str, Any]]:
    """ncu's counters by launch, in the order of LOOKED_AT: dtype, columns, launch, and a number for each of METRICS.

    Raises RuntimeError with ncu's words where a counter or a launch is missing.
    """
    by_launch: dict[str, dict[str, str]] = {}
    for line in csv.DictReader(io.StringIO(report[report.find('"ID"') :])):
        by_launch.setdefault(line["ID"], {})[line["Metric Name"]] = line["Metric Value"]
    try:
        counted = [
            {name: _plain(float(values[metric].replace(",", ""))) for metric, name in METRICS.items()}
            for values in by_launch.values()
        ]
    except (KeyError, ValueError):
        counted = []
    if len(counted) != len(LOOKED_AT):
        raise RuntimeError(
            f"ncu counted {len(counted)} launches of {len(LOOKED_AT)}: {(report + errors).strip()[-400:]}"
        )
    return [
        {"dtype": dtype, "n_cols": n_cols, "launch": list(launch), **values}
        for (dtype, n_cols, launch), values in zip(LOOKED_AT, counted, strict=True)
    ]
