"""Reports every reference kernel, and how long a report takes: `python -m helpers.xray`."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from typing import Any

from tqdm.auto import tqdm

from helpers.engine import child
from helpers.engine.numbers import counted
from helpers.kernels import DTYPES
from helpers.table import Table
from helpers.xray import KernelReport, ask, report
from helpers.xray.figures import UNKNOWN, by_width, or_unknown
from helpers.xray.references import references


def survey(targets: tuple[str, ...] = ("sm_80", "sm_90", "sm_100", "sm_120")) -> Table:
    """Reports every reference kernel for every dtype and target, first with empty caches and then again."""
    asked = [(dtype, *found) for dtype in DTYPES for found in references(DTYPES[dtype])]
    rows, cold, warm = [], [], []
    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        child.call(os.getpid, interpret=False)
        for dtype, name, kernel, args, options in tqdm(asked, desc="kernels", leave=False):
            for target in targets:
                seen = _timed(cold, kernel, args, options, target)
                ask.reports.clear()
                _timed(warm, kernel, args, options, target)
                rows.append([f"{name} {_sizes(options)}", dtype, target, *_cells(seen)])
        child.end(interpret=False)
    os.environ.pop("TRITON_CACHE_DIR") if before is None else os.environ.update(TRITON_CACHE_DIR=before)
    head = "kernel dtype target registers spilled shared occupancy loads barriers instructions/element".split()
    notes = [
        f"{what}: median {1000 * statistics.median(times):.1f} ms, worst {1000 * max(times):.1f} ms."
        for what, times in (("Compiled, with empty caches", cold), ("Asked again, read from disk", warm))
    ]
    return Table(head, rows, notes)


def _timed(times: list[float], kernel: Any, args: tuple, options: dict[str, int], target: str) -> KernelReport:
    start = time.perf_counter()
    seen = report(kernel, *args, target=target, **options)
    times.append(time.perf_counter() - start)
    return seen


def _sizes(options: dict[str, int]) -> str:
    tile = " × ".join(str(options[name]) for name in ("ROWS", "BLOCK") if name in options)
    return f"{tile}, {counted(options['num_warps'], 'warp')}"


def _cells(seen: KernelReport) -> list[str]:
    held = seen.occupancy
    return [
        or_unknown(seen.registers, "{}"),
        or_unknown(seen.spill_bytes, "{}"),
        str(seen.shared_bytes),
        UNKNOWN if held is None else f"{held.fraction:.0%}, {held.limited_by}",
        by_width(seen.loads),
        or_unknown(seen.barriers, "{}"),
        or_unknown(seen.instructions_per_element, "{:.1f}"),
    ]


if __name__ == "__main__":
    print(survey())
