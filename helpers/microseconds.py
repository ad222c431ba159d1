"""What lesson 06 explains times with, all of it recorded: the memories of a GPU, loads under way, counters, launches.

`python -m helpers.measure.record --only why` measures it. Plain data, without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from helpers import recorded
from helpers.choosing.launches import ELEMENTS, Launch, Shape, of_gpu
from helpers.gpu import occupancy
from helpers.kernels import DTYPES
from helpers.table import Table

_GPU = "NVIDIA H200"
"""The GPU that lesson 06 is about."""


class Features(NamedTuple):
    """What a launch of the single tile is predicted from: numbers that the X-ray and the shape give."""

    n_rows: int
    row_bytes: int
    """Of the input alone; the result has the same number."""
    row_instructions: float
    """Of all threads of a program together, idle lanes included."""
    num_warps: int
    programs: int
    """That an SM holds at a time."""


@dataclass(frozen=True)
class Timed:
    """A launch of the single tile whose time was recorded, in microseconds, with a copy's time and its features."""

    dtype: str
    n_cols: int
    us: float
    copy_us: float
    features: Features

    def __str__(self) -> str:
        return f"{self.features.n_rows:,} × {self.n_cols:,} {self.dtype}, {self.features.num_warps} warps"


def measured(gpu: str = _GPU) -> dict[str, Any]:
    """The record of a GPU, as `helpers/recorded/schema.json` describes it. Raises ValueError where there is none."""
    found = recorded.find("why", gpu)
    if found is None:
        raise ValueError(f"no record of {gpu!r}; there are records of {', '.join(recorded.by_gpu('why'))}.")
    return found


def provenance(gpu: str = _GPU) -> str:
    """The words that accompany figures of that record."""
    return recorded.origin_in_words(measured(gpu)["origin"])


@cache
def timed(part: str = "held_out", gpu: str = _GPU) -> tuple[Timed, ...]:
    """The recorded single tiles whose X-ray is recorded too, without spills, of aligned rows, from 64 rows on.

    `part` is "shapes", the ones of pick's table, or "held_out".
    """
    figures = {
        (dtype, BLOCK, warps): (registers, shared, instructions)
        for dtype, BLOCK, warps, registers, shared, instructions in measured(gpu)["compiled"]
    }
    return tuple(
        Timed(shape.dtype, shape.n_cols, us, shape.functions["copy"], features_of(shape, launch, figures[key]))
        for shape in getattr(of_gpu(gpu), part)
        if shape.n_rows >= 64 and shape.n_cols % 16 == 0
        for launch, us in shape.launches.items()
        if launch.variant == "single tile" and (key := (shape.dtype, launch.BLOCK, launch.num_warps)) in figures
    )


def features_of(shape: Shape, launch: Launch, figures: tuple[int, int, float]) -> Features:
    """The features of a launch, from its registers, shared memory and instructions an element."""
    registers, shared_bytes, instructions = figures
    held = occupancy.resident("sm_90", launch.num_warps, registers, shared_bytes)
    row_bytes = shape.n_cols * DTYPES[shape.dtype].itemsize
    return Features(shape.n_rows, row_bytes, instructions * launch.BLOCK, launch.num_warps, held.programs)


def many_rows(dtype: str, n_cols: int, num_warps: int, gpu: str = _GPU) -> Timed:
    """The recorded launch whose rows make 2²⁸ elements. Raises ValueError where there is none."""
    asked = dtype, n_cols, num_warps, ELEMENTS // n_cols
    for one in (*timed("shapes", gpu), *timed("held_out", gpu)):
        if (one.dtype, one.n_cols, one.features.num_warps, one.features.n_rows) == asked:
            return one
    raise ValueError(f"no such launch was timed with its X-ray: {n_cols} columns in {dtype} with {num_warps} warps.")


def compared(predict: Callable[..., float], launches: Iterable[Timed]) -> Table:
    """What predict(*features) says of launches, in microseconds, and which bar decides, next to the recorded times."""
    rows = []
    for one in launches:
        said = predict(*one.features)
        times = f"{said:,.1f}", decided_by(predict, one.features), f"{one.us:,.1f}", f"{said / one.us - 1:+.1%}"
        rows.append([str(one), *times])
    head = ["launch", "predicted", "decided by", "recorded", "off by"]
    return Table(head, rows, [f"Microseconds; {of_gpu(_GPU)}."])


def decided_by(predict: Callable[..., float], launch: Features) -> str:
    """The bar of a prediction that is the longest: the one without which the launch would be predicted shorter."""
    said = predict(*launch)
    if predict(*launch._replace(programs=launch.n_rows)) < said:
        return "turns"
    return (
        "instructions"
        if predict(*launch._replace(row_instructions=0.99 * launch.row_instructions)) < said
        else "memory"
    )


def hardware_counters(gpu: str = _GPU) -> Table:
    """The hardware counters of three single tiles: bytes, instructions and occupancy, as ncu read them."""
    head = ["launch", "GB loaded", "GB stored", "instructions an element", "occupancy", "microseconds"]
    rows = []
    for line in measured(gpu)["counters"]:
        launch = Launch(*line["launch"])
        if launch.variant != "single tile":
            continue
        lanes = ELEMENTS // line["n_cols"] * launch.BLOCK
        name = f"{launch.variant}, {line['n_cols']:,} {line['dtype']}, {launch.num_warps} warps"
        numbers = f"{line['read_bytes'] / 1e9:.3f}", f"{line['write_bytes'] / 1e9:.3f}"
        each = f"{line['instructions'] / lanes:.1f}", f"{line['occupancy_percent']:.0f}%", f"{line['ns'] / 1e3:.0f}"
        rows.append([name, *numbers, *each])
    return Table(head, rows, [f"Counted by ncu; {provenance(gpu)}."])
