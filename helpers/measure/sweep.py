"""The sweep behind `helpers.softmax.plans.rows`: times the planned launch, its alternatives and a copy. GPU only."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES, Softmax
from helpers.softmax.launches.launch import on_stream
from helpers.softmax.launches.rows import rows_launcher
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.rows import MOST_WORDS, Flat, Shared, Tile, plan_rows, shared_plan

Plan = Tile | Flat | Shared
PLAN_TYPES = {"tile": Tile, "flat": Flat, "shared": Shared}
"""The plans that are swept, by their names in the record."""

_ELEMENTS = 2**26
"""Elements of a matrix of many rows: some 0.1 ms of work for an H200."""

_REPEATS = 50
"""Launches of each plan: the fastest of ten plans is found, and the noise of a median counts."""

_ALIGNED = (
    16, 64, 256, 320, 512, 768, 1024, 1280, 1536, 2048, 2304, 3072, 4096, 5120, 8192, 10240, 16384, 20480, 32768,
    50176, 65536, 98304, 131072, 262144,
)  # fmt: skip
_UNALIGNED = (9, 17, 33, 63, 99, 325, 781, 1025, 1539, 2051, 5001, 12289, 16391, 32001, 50257, 151937)
_FEW_ROWS = (
    (1, 8192), (1, 16384), (15, 16384), (1, 131072), (7, 131072), (15, 131072), (31, 131072),
    (64, 131072), (31, 32768), (8, 65536), (1, 50257), (4, 128257),
)  # fmt: skip


class Layout(NamedTuple):
    """Contiguous rows that are swept: their number, their length, the name of their dtype."""

    dtype: str
    n_rows: int
    n_cols: int

    @property
    def aligned(self) -> bool:
        """Whether every row begins and ends at a multiple of 16 bytes."""
        return self.n_cols * DTYPES[self.dtype].itemsize % 16 == 0

    def planned(self) -> Plan:
        """The launch that `softmax` would choose."""
        itemsize = DTYPES[self.dtype].itemsize
        return plan_rows(self.n_rows, self.n_cols, itemsize, *vectors(self.n_cols, 16 // itemsize, True), True)


@dataclass(frozen=True)
class Swept:
    """Times at one layout in microseconds: of a copy, and of every plan that could be launched."""

    layout: Layout
    copy_us: float
    plans: Mapping[Plan, float]

    def lost(self, plan: Plan) -> float:
        """How many times as long as the fastest plan this one takes. KeyError where it was not timed."""
        return self.plans[plan] / min(self.plans.values())


def layouts() -> list[Layout]:
    """The layouts of the sweep: rows around every threshold of the plan, aligned and not, many and few."""
    many = [(_ELEMENTS // n_cols, n_cols) for n_cols in (*_ALIGNED, *_UNALIGNED)]
    return [Layout(dtype, *shape) for dtype in ("fp32", "bf16") for shape in (*many, *_FEW_ROWS)]


def alternatives(layout: Layout) -> list[Plan]:
    """The planned launch, then others: tiles and slices of other sizes, with other warps and registers."""
    planned = layout.planned()
    others = _tiles(layout), _slices(layout), _other_runs(planned), _other_rows(planned), _other_registers(planned)
    return list(dict.fromkeys(chain([planned], *others)))


def _tiles(layout: Layout) -> Iterator[Plan]:
    """The row in one program: whole, and with a smaller tile for the rest, 16 to 64 elements a thread."""
    whole = 1 << (layout.n_cols - 1).bit_length()
    planned = layout.planned()
    rows = 16 if isinstance(planned, Flat) else planned.ROWS
    for num_warps in (1, 2, 4, 8):
        if 16 <= rows * whole // (32 * num_warps) <= 64:
            yield Tile(whole, num_warps, 96, rows)
    rest = whole // 4
    if rest * DTYPES[layout.dtype].itemsize >= 512 and whole // 2 < layout.n_cols <= whole // 2 + rest <= 16384:
        yield Tile(whole // 2, max(1, whole // 4096), 168, rows, rest)


def _slices(layout: Layout) -> Iterator[Plan]:
    """The row shared in slices of 2 to 8 kB by one warp or two, and of 8 to 32 kB by four or eight."""
    for nbytes, num_warps, maxnreg in (
        (2048, 1, 64), (4096, 1, 64), (4096, 2, 64), (8192, 2, 64),
        (8192, 1, 80), (8192, 4, 64), (16384, 4, 64), (32768, 4, 80), (32768, 8, 64),
    ):  # fmt: skip
        plan = shared_plan(layout.n_cols, nbytes // DTYPES[layout.dtype].itemsize, num_warps, maxnreg)
        if 2 <= plan.SPLIT <= MOST_WORDS:
            yield plan


def _other_rows(planned: Plan) -> Iterator[Plan]:
    """Half and twice the rows per program, where the planned program has several or may have."""
    if isinstance(planned, Tile) and planned.ROWS > 1:
        yield planned.replaced(ROWS=planned.ROWS // 2)
    if isinstance(planned, Tile) and 2 * planned.ROWS * (planned.BLOCK + planned.REST) <= 4096 * planned.num_warps:
        yield planned.replaced(ROWS=2 * planned.ROWS)


def _other_runs(planned: Plan) -> Iterator[Plan]:
    """Half and twice the rows that are moved together, by the planned warps, or by half and twice their number too."""
    if isinstance(planned, Flat):
        for times, warps in ((0.5, 1), (2, 1), (2, 2), (0.5, 0.5)):
            longer = planned.replaced(RUN=int(planned.RUN * times), USED=int(planned.USED * times) // 8 * 8)
            yield longer.replaced(num_warps=int(planned.num_warps * warps))


def _other_registers(planned: Plan) -> Iterator[Plan]:
    for maxnreg in (64, 80, 88, 96):
        yield planned.replaced(maxnreg=maxnreg)


def planned_softmax(layout: Layout, plan: Plan) -> Softmax:
    """The softmax of tensors of this layout that is launched as `plan` says."""
    launchers: dict[int, Callable] = {}

    def softmax(x: torch.Tensor) -> torch.Tensor:
        if not launchers:
            launchers[0] = rows_launcher(x, layout.n_rows, layout.n_cols, layout.n_cols, plan)
        y = torch.empty_like(x)
        on_stream(x, launchers[0], (y, x))
        return y

    return softmax


def sweep(chosen: list[Layout]) -> list[Swept]:
    """Times every alternative at every layout, in turns with a copy. A wrong result raises ValueError.

    A plan that cannot be compiled or launched is left out, with a line that says so.
    """
    return [_swept(layout) for layout in tqdm(chosen, desc="timing plans", unit="layout")]


def _swept(layout: Layout) -> Swept:
    functions: dict[Plan, Softmax] = {}
    x = torch.randn(layout.n_rows, layout.n_cols, device=DEVICE).to(DTYPES[layout.dtype])
    for plan in alternatives(layout):
        softmax = planned_softmax(layout, plan)
        if why := _refusal(softmax, x):
            tqdm.write(f"{tuple(layout)}: {_row(plan)} left out: {why}")
        else:
            functions[plan] = softmax
    copy, times = timing.time_shape(functions, layout.n_rows, layout.n_cols, layout.dtype, repeats=_REPEATS)
    microseconds = {plan: round(1000 * measured.median_ms, 2) for plan, measured in times.items()}
    return Swept(layout, round(1000 * copy.median_ms, 2), microseconds)


def _refusal(softmax: Softmax, x: torch.Tensor) -> str | None:
    """Why a softmax cannot be launched, None where it can."""
    try:
        softmax(x)
    except Exception as refused:
        return f"{type(refused).__name__}: {refused}".splitlines()[0][:100]
    return None


def compile_ahead(chosen: list[Layout]) -> None:
    """Compiles what these layouts need in several processes. Triton keeps it on disk, where the sweep finds it."""
    with ProcessPoolExecutor(min(16, os.cpu_count() or 1), multiprocessing.get_context("spawn")) as processes:
        for _ in tqdm(processes.map(_launch_all, chosen), total=len(chosen), desc="compiling plans", unit="layout"):
            pass


def _launch_all(layout: Layout) -> None:
    """Launches every alternative once, whether it can be launched or not."""
    x = torch.zeros(layout.n_rows, layout.n_cols, dtype=DTYPES[layout.dtype], device=DEVICE)
    for plan in alternatives(layout):
        _refusal(planned_softmax(layout, plan), x)


def _row(plan: Plan) -> list[str | int]:
    """A plan in the record: its kind, lanes, warps, registers, ROWS, REST and SPLIT."""
    kind = next(kind for kind, made in PLAN_TYPES.items() if isinstance(plan, made))
    if isinstance(plan, Flat):
        return [kind, plan.RUN, plan.num_warps, plan.maxnreg, plan.USED, 0, 1]
    return [kind, plan.BLOCK, plan.num_warps, plan.maxnreg, plan.ROWS, plan.REST, plan.SPLIT]


def _plan(kind: str, lanes: int, num_warps: int, maxnreg: int, rows: int, rest: int, split: int) -> Plan:
    """The plan of a `_row`."""
    own = {"tile": (rows, rest), "flat": (rows,), "shared": (split,)}[kind]
    return PLAN_TYPES[kind](lanes, num_warps, maxnreg, *own)


def text(origin: Mapping[str, str], swept: list[Swept]) -> str:
    """The record as JSON, a line for each layout: [dtype, rows, columns, a copy's time, [[plan, time], …]]."""
    lines = [[*one.layout, one.copy_us, [[_row(plan), us] for plan, us in one.plans.items()]] for one in swept]
    listed = ",\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    return f'{{\n"origin": {json.dumps(origin, indent=1)},\n"plans": [\n{listed}\n]\n}}\n'


def read(record: Mapping[str, Any]) -> list[Swept]:
    """The sweep that `text` wrote, from the plain data of `helpers.recorded.by_gpu("plan")`."""
    return [
        Swept(Layout(dtype, n_rows, n_cols), copy_us, {_plan(*plan): us for plan, us in plans})
        for dtype, n_rows, n_cols, copy_us, plans in record["plans"]
    ]
