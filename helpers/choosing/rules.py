"""`pick` says which softmax to launch for a row length, and why. It is a pure function of recorded times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, TypeVar

import torch

from helpers import ON_GPU
from helpers.choosing.launches import (
    ELEMENTS,
    TRIPS,
    Launch,
    Record,
    Shape,
    dtype_name,
    of_gpu,
    ratio,
    tile,
)
from helpers.engine.numbers import as_int, refuse_below_one
from helpers.gpu.architectures import ARCHITECTURES
from helpers.gpu.datasheets import DATASHEETS, ENOUGH_PROGRAMS, sold_as
from helpers.kernels import DTYPES, MOST_PARTS

_Value = TypeVar("_Value")

DEFAULT_TARGET = "sm_90"
RULES = ("measured", "thumb", "textbook")
_MOST = 2**63 - 1
"""Columns or rows: the largest size that torch has."""

_STREAMED = Launch("online", 8192, 16)
"""The launch that takes rows of any length."""
TIE = 1.02
"""A launch that takes at most 2 % longer than the fastest counts as equally good. `pick` takes the simplest of these.
"""


@dataclass(frozen=True, repr=False)
class Choice:
    """How to launch a softmax of n_cols columns, why in one sentence, and which rule or record says so."""

    launch: Launch
    programs_per_row: int
    why: str
    origin: str

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self.launch.variant

    @property
    def BLOCK(self) -> int:
        """The columns of a tile."""
        return self.launch.BLOCK

    @property
    def num_warps(self) -> int:
        """The warps of a program."""
        return self.launch.num_warps

    @property
    def rows_per_program(self) -> int:
        """The rows that a program holds at a time."""
        return self.launch.rows

    @property
    def trips(self) -> int:
        """Loads and stores per element, added up."""
        return sum(TRIPS[self.variant])

    def code(self) -> str:
        """The line of Python that launches it, with a function of helpers.kernels."""
        return self.launch.code()

    def __repr__(self) -> str:
        loads, stores = TRIPS[self.variant]
        return f"{self.code()}\n{self.why}\n{loads} + {stores} trips to memory per element; {self.origin}."


def pick(
    n_cols: int | tuple[int, ...] | torch.Tensor,
    n_rows: int | None = None,
    dtype: object = None,
    gpu: str = DEFAULT_TARGET,
    rule: str = "measured",
) -> Choice:
    """The launch for rows of `n_cols` columns on a `gpu`, given by its name or its architecture such as "sm_90".

    `n_cols` may also be a shape, whose last dimension is the row and whose others are the rows, or a tensor, which has
    a dtype as well. By default `n_rows` is the largest number of rows that was timed, which fills any GPU. `dtype` is
    fp32 unless it is given as fp32, bf16, fp16 or the torch dtype. The rules:

    - "measured": the best launch at the nearest recorded shape. This shape has the same tile and alignment; among such
      shapes the nearest length by ratio decides, then the nearest number of rows by ratio. Within 2 % the simplest
      launch wins. fp16 uses the table of bf16. A GPU without a record gets the rule of thumb, and `origin` says so; it
      also says by how much this row is longer than every row that was timed. A row with more slices than a grid can
      have programs is streamed.
    - "thumb": one tile up to 32768 columns. With 256 rows or more a thread has 32 elements, and rows of up to 1024
      columns share tiles of 2048; with fewer rows a thread has 16, and rows of more than 8192 columns are split into
      slices of 4096. Other rows are streamed in tiles of 8192.
    - "textbook": 4 warps, 8 for tiles of 2048, 16 from 4096 on, as in Triton's first fused softmax tutorial; one tile
      up to 8192 columns, longer rows streamed in tiles of 8192.

    Raises ValueError for other numbers, dtypes, GPUs and rules; TypeError for a GPU that is not a string, and for a
    number of rows that is given twice, in a shape and by itself.
    """
    n_cols, n_rows, dtype = _numbers(n_cols, n_rows, dtype)
    refuse_below_one(n_cols=n_cols)
    n_rows = max(1, ELEMENTS // n_cols) if n_rows is None else n_rows
    refuse_below_one(n_rows=n_rows)
    for size, number in (("n_cols", n_cols), ("n_rows", n_rows)):
        if number > _MOST:
            raise ValueError(f"{size} must be less than 2⁶³: torch has no larger sizes.")
    name = dtype_name(dtype)
    _require_gpu(gpu)
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; it is {rule!r}.")
    if rule == "textbook":
        launch, origin = textbook(n_cols), "the textbook's rule"
    elif rule == "thumb":
        launch, origin = thumb(n_cols, n_rows), "the rule of thumb"
    elif known := of_gpu(gpu):
        launch, origin = _recorded(known, n_cols, n_rows, name)
    else:
        launch = thumb(n_cols, n_rows)
        origin = f"the rule of thumb: {gpu} has no record; `python -m helpers.measure.record` on such a GPU makes one"
    return Choice(launch, launch.programs_per_row(n_cols), _why(launch, n_cols, n_rows), origin)


def _numbers(n_cols: object, n_rows: object, dtype: object) -> tuple[Any, Any, object]:
    """Columns, rows or None, and dtype, taken from numbers, from a shape or from a tensor."""
    shape = getattr(n_cols, "shape", n_cols)
    if not isinstance(shape, tuple | list) or not (shape or n_cols is shape):
        return as_int(n_cols), as_int(n_rows), "fp32" if dtype is None else dtype
    if n_rows is not None:
        raise TypeError(f"the shape {tuple(shape)} has its rows: leave n_rows={n_rows!r} out.")
    shape = tuple(map(as_int, shape))
    if not shape:
        raise ValueError("the shape () has no row: pick needs one dimension at least.")
    refuse_below_one(**{f"n_rows, of the shape {shape}," if len(shape) > 1 else "n_rows": prod(shape[:-1])})
    return shape[-1], prod(shape[:-1]), dtype or getattr(n_cols, "dtype", "fp32")


def _require_gpu(gpu: object) -> None:
    if not isinstance(gpu, str):
        raise TypeError(f'gpu must be a GPU\'s name or an architecture such as "sm_90"; it is {gpu!r}.')
    here = [torch.cuda.get_device_name()] if ON_GPU else []
    if not (of_gpu(gpu) or sold_as(gpu) or gpu in ARCHITECTURES or gpu in here):
        known = dict.fromkeys([*here, *DATASHEETS, *ARCHITECTURES])
        raise ValueError(f"gpu must be one of {', '.join(known)}, or a name that holds one; it is {gpu!r}.")


def textbook(n_cols: int) -> Launch:
    """The published rule for num_warps and its cliff at 8192 columns, for any GPU, dtype and number of rows."""
    BLOCK = tile(n_cols)
    num_warps = 4 if BLOCK < 2048 else 8 if BLOCK < 4096 else 16
    return Launch("single tile", BLOCK, num_warps) if BLOCK <= 8192 else Launch("online", 8192, num_warps)


def thumb(n_cols: int, n_rows: int) -> Launch:
    """The launch to try first on a GPU without a record."""
    BLOCK, few = tile(n_cols), n_rows < ENOUGH_PROGRAMS
    if few and 8192 < n_cols <= 4096 * MOST_PARTS:
        return Launch("split row", 4096, 8)
    if BLOCK <= 1024 and not few:
        return Launch("several rows", BLOCK, 4, 2048 // BLOCK)
    if BLOCK <= 32768:
        return Launch("single tile", BLOCK, min(32, max(1, BLOCK // (512 if few else 1024))))
    return _STREAMED


def simplest(shape: Shape) -> Launch:
    """The simplest of the launches that take at most TIE times as long as the fastest."""
    order = list(TRIPS)
    good = [launch for launch in shape.launches if shape.lost(launch) <= TIE]
    return min(good, key=lambda launch: (order.index(launch.variant), shape.launches[launch]))


def _recorded(known: Record, n_cols: int, n_rows: int, dtype: str) -> tuple[Launch, str]:
    """The launch of the record's table for this shape, and its origin in words."""
    longest, table = _table(known.origin["gpu"])
    itemsize, aligned, BLOCK = DTYPES[dtype].itemsize, n_cols % 16 == 0, min(tile(n_cols), longest)
    launch, origin = _nearest(_nearest(table[itemsize, aligned, BLOCK], n_cols), n_rows)
    timed = max(shape.n_cols for shape in known.shapes)
    if n_cols >= 1.1 * timed:
        times = n_cols / timed
        origin += f"; this row is {f'{times:,.0f}' if times >= 10 else f'{times:.2g}'} times longer than any row timed"
    if launch.programs_per_row(n_cols) > MOST_PARTS:
        launch = _STREAMED
        origin += f", and no grid has a program for each of its slices ({MOST_PARTS:,} at most): it is streamed"
    return launch, origin


def _nearest(numbers: dict[int, _Value], wanted: int) -> _Value:
    """The value of the key nearest to `wanted` by ratio."""
    return numbers[min(numbers, key=lambda number: ratio(number, wanted))]


@cache
def _table(gpu: str) -> tuple[int, dict[tuple[int, bool, int], dict[int, dict[int, tuple[Launch, str]]]]]:
    """The record's longest tile, and its table: (itemsize, aligned, tile) → row length → rows → launch and origin."""
    known, table = of_gpu(gpu), {}
    for shape in known.shapes:
        key = DTYPES[shape.dtype].itemsize, shape.n_cols % 16 == 0, tile(shape.n_cols)
        origin = f"best at {shape.n_rows:,} × {shape.n_cols:,} {shape.dtype}, {known}"
        table.setdefault(key, {}).setdefault(shape.n_cols, {})[shape.n_rows] = simplest(shape), origin
    return max(BLOCK for _, _, BLOCK in table), table


def _why(launch: Launch, n_cols: int, n_rows: int) -> str:
    """The reason for a launch, in one sentence."""
    row = f"a row of {n_cols:,}"
    held = launch.rows * launch.BLOCK / (32 * launch.num_warps)
    warps = "1 warp gives" if launch.num_warps == 1 else f"{launch.num_warps} warps give"
    share = f"{warps} each thread {held:g} element{'s' * (held > 1)}" if held >= 1 else "some threads are idle"
    if launch.variant in ("single tile", "persistent"):
        lanes = f"{launch.BLOCK:,} lane{'s' * (launch.BLOCK > 1)}"
        return f"{row.capitalize()} is held in one tile of {lanes} and read once; {share}."
    if launch.variant == "several rows":
        return f"{row.capitalize()} is too short for a program: up to {launch.rows:,} rows share one, and {share}."
    if launch.variant == "split row":
        parts = f"{launch.programs_per_row(n_cols):,} programs"
        if n_rows >= ENOUGH_PROGRAMS:
            return f"{row.capitalize()} is shared by {parts} and read twice; streaming it through one is slower."
        rows = "row" if n_rows == 1 else "rows"
        return f"With {n_rows} {rows} most of the GPU would be idle, so {parts} share {row} and read it twice."
    passes = {"online": "twice", "two-pass": "three times"}[launch.variant]
    return f"{row.capitalize()} is streamed through one program in tiles of {launch.BLOCK:,} and read {passes}."
