"""Which softmax for this row length, and why: `pick`, a pure function over recorded measurements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from helpers.choosing.launches import ELEMENTS, TRIPS, Launch, Record, Shape, dtype_name, of_gpu, ratio, tile
from helpers.kernels import DTYPES

T = TypeVar("T")

TARGET = "sm_90"
RULES = ("measured", "thumb", "textbook")
TIE = 1.02
"""Of launches that take no more than 2 % longer than the fastest, the simplest is picked."""

_BUSY = 256
"""Programs that keep every SM of today's GPUs busy; with fewer rows than that the rule of thumb splits long ones."""


@dataclass(frozen=True, repr=False)
class Choice:
    """How to launch a softmax of n_cols columns, in one sentence why, and where that is known from."""

    launch: Launch
    programs_per_row: int
    why: str
    origin: str

    @property
    def variant(self) -> str:
        """Name of the kernel."""
        return self.launch.variant

    @property
    def BLOCK(self) -> int:
        """Columns of a tile."""
        return self.launch.BLOCK

    @property
    def num_warps(self) -> int:
        """Warps of a program."""
        return self.launch.num_warps

    @property
    def rows_per_program(self) -> int:
        """Rows that a program holds at a time."""
        return self.launch.rows

    @property
    def trips(self) -> int:
        """Loads and stores per element together."""
        return sum(TRIPS[self.variant])

    def code(self) -> str:
        """The line that launches it; the function is one of helpers.kernels."""
        return self.launch.code()

    def __repr__(self) -> str:
        loads, stores = TRIPS[self.variant]
        return f"{self.code()}\n{self.why}\n{loads} + {stores} trips to memory per element; {self.origin}."


def pick(
    n_cols: int, n_rows: int | None = None, dtype: object = "fp32", target: str = TARGET, rule: str = "measured"
) -> Choice:
    """Returns the launch for rows of `n_cols` columns on `target`, a GPU's name or its architecture such as "sm_90".

    `n_rows` is by default as many as were measured at most, which fill any GPU. `dtype` is fp32, bf16 or fp16, or the
    torch dtype. The rules:

    - "measured": the launch that was best at the recorded shape nearest to this one: the same tile and alignment, then
      the length and the number of rows nearest by ratio. Within 2 % the simplest wins. The table of bf16 serves fp16.
      Where the target has no record, the rule of thumb, and `origin` says so.
    - "thumb": 16 elements a thread; a tile of 2048 elements for short rows; one tile up to 32768 columns; longer rows
      streamed in tiles of 8192; rows of 8192 and more are split when there are fewer than 256 of them.
    - "textbook": 4 warps, 8 from 2048 columns, 16 from 4096, as in Triton's first fused softmax tutorial; one tile up
      to 8192 columns, longer rows streamed in tiles of 8192.

    Raises ValueError or TypeError, with what is taken instead, for arguments that are none of these.
    """
    n_rows = _whole("n_rows", max(1, ELEMENTS // _whole("n_cols", n_cols)) if n_rows is None else n_rows)
    name = dtype_name(dtype)
    if not isinstance(target, str):
        raise TypeError(f'target must be a GPU\'s name or an architecture such as "sm_90"; it is {target!r}.')
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; it is {rule!r}.")
    if rule == "textbook":
        launch, origin = textbook(n_cols), "the textbook's rule"
    elif rule == "thumb":
        launch, origin = thumb(n_cols, n_rows), "the rule of thumb"
    elif known := of_gpu(target):
        launch, origin = _recorded(known, n_cols, n_rows, name)
    else:
        launch = thumb(n_cols, n_rows)
        origin = f"the rule of thumb: {target} has no record; `python -m helpers.make.record` on such a GPU makes one"
    return Choice(launch, launch.programs_per_row(n_cols), _why(launch, n_cols, n_rows), origin)


def _whole(name: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be a whole number from 1 on; it is {number!r}.")
    return number


def textbook(n_cols: int) -> Launch:
    """The published rule for num_warps and its cliff at 8192 columns, whatever the GPU, dtype and number of rows."""
    BLOCK = tile(n_cols)
    num_warps = 4 if BLOCK < 2048 else 8 if BLOCK < 4096 else 16
    return Launch("single tile", BLOCK, num_warps) if BLOCK <= 8192 else Launch("online", 8192, num_warps)


def thumb(n_cols: int, n_rows: int) -> Launch:
    """What to try first on a GPU without a record."""
    BLOCK = tile(n_cols)
    if n_rows < _BUSY and BLOCK >= 8192:
        return Launch("split row", 4096, 8)
    if BLOCK <= 1024 and n_rows >= _BUSY:
        return Launch("several rows", BLOCK, 4, 2048 // BLOCK)
    if BLOCK <= 32768:
        return Launch("single tile", BLOCK, min(32, max(1, BLOCK // 512)))
    return Launch("online", 8192, 16)


def simplest(shape: Shape) -> Launch:
    """The simplest of the launches that take at most TIE times as long as the fastest."""
    order = list(TRIPS)
    good = [launch for launch in shape.launches if shape.lost(launch) <= TIE]
    return min(good, key=lambda launch: (order.index(launch.variant), shape.launches[launch]))


def _recorded(known: Record, n_cols: int, n_rows: int, dtype: str) -> tuple[Launch, str]:
    """The table's launch for this shape, and where it is from."""
    longest, table = _table(known.origin["gpu"])
    itemsize, aligned, BLOCK = DTYPES[dtype].itemsize, n_cols % 16 == 0, min(tile(n_cols), longest)
    lengths = table.get((itemsize, aligned, BLOCK)) or table[itemsize, not aligned, BLOCK]
    return _nearest(_nearest(lengths, n_cols), n_rows)


def _nearest(numbers: dict[int, T], wanted: int) -> T:
    """The value of the key nearest to `wanted` by ratio."""
    return numbers[min(numbers, key=lambda number: ratio(number, wanted))]


@cache
def _table(gpu: str) -> tuple[int, dict[tuple[int, bool, int], dict[int, dict[int, tuple[Launch, str]]]]]:
    """The longest tile, and a table of bytes of an element, aligned rows, tile → row length → rows → launch, origin."""
    known, table = of_gpu(gpu), {}
    for shape in known.shapes:
        key = DTYPES[shape.dtype].itemsize, shape.n_cols % 16 == 0, tile(shape.n_cols)
        origin = f"best at {shape.n_rows:,} × {shape.n_cols:,} {shape.dtype}, {known}"
        table.setdefault(key, {}).setdefault(shape.n_cols, {})[shape.n_rows] = simplest(shape), origin
    return max(BLOCK for _, _, BLOCK in table), table


def _why(launch: Launch, n_cols: int, n_rows: int) -> str:
    row = f"a row of {n_cols:,}"
    held = launch.rows * launch.BLOCK / (32 * launch.num_warps)
    warps = "1 warp gives" if launch.num_warps == 1 else f"{launch.num_warps} warps give"
    share = f"{warps} each thread {held:g} element{'s' if held > 1 else ''}" if held >= 1 else "some threads idle"
    if launch.variant in ("single tile", "persistent"):
        return f"{row.capitalize()} is held in one tile of {launch.BLOCK:,} lanes and read once; {share}."
    if launch.variant == "several rows":
        return f"{row.capitalize()} is too short for a program: up to {launch.rows:,} rows share one, and {share}."
    if launch.variant == "split row":
        parts = launch.programs_per_row(n_cols)
        if n_rows >= _BUSY:
            return f"{row.capitalize()} is shared by {parts} programs and read twice, faster than streamed through one."
        rows = "row" if n_rows == 1 else "rows"
        return f"With {n_rows} {rows} most of the GPU would idle, so {parts} programs share {row} and read it twice."
    passes = {"online": "twice", "two-pass": "three times"}[launch.variant]
    return f"{row.capitalize()} is streamed through one program in tiles of {launch.BLOCK:,} and read {passes}."
