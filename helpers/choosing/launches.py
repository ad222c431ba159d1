"""Every launch of a softmax that the course has timed, with its times. Plain data, which needs no GPU.

A launch is a variant with its BLOCK, num_warps and rows per program. `candidates` lists the launches worth timing for a
row length, `python -m helpers.measure.record` times all of them, and `of_gpu` returns the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

from helpers import recorded
from helpers.engine.numbers import refuse_below_one
from helpers.kernels import DTYPES, MAX_TILE

MOST_ELEMENTS_A_THREAD = 256
"""A tile that gives a thread more elements than this is not timed: a thread has at most 255 registers."""

ELEMENTS = 2**28
"""Elements of the largest matrix that was timed for a row length."""

TRIPS = {
    "single tile": (1, 1), "several rows": (1, 1), "persistent": (1, 1),
    "online": (2, 1), "split row": (2, 1), "two-pass": (3, 1),
}  # fmt: skip
"""Loads and stores per element of every variant. If two variants make the same trips, the simpler one comes first."""


class Launch(NamedTuple):
    """A variant and the numbers it is launched with."""

    variant: str
    BLOCK: int
    num_warps: int
    rows: int = 1

    def programs_per_row(self, n_cols: int) -> int:
        """The number of programs that share a row of n_cols."""
        return -(-n_cols // self.BLOCK) if self.variant == "split row" else 1

    def programs(self, n_rows: int, n_cols: int) -> int:
        """The number of programs for an (n_rows, n_cols) matrix; a persistent kernel launches at most that many."""
        return -(-n_rows // self.rows) * self.programs_per_row(n_cols)

    def call(self) -> tuple[str, dict[str, int]]:
        """The name of the function in helpers.kernels that launches it, and the arguments besides x."""
        function = {"two-pass": "two_pass_softmax"}.get(self.variant, f"{self.variant.replace(' ', '_')}_softmax")
        if self.variant == "several rows":
            return function, {"rows": self.rows, "num_warps": self.num_warps}
        if self.variant in ("single tile", "persistent"):
            return function, {"num_warps": self.num_warps}
        return function, {"BLOCK": self.BLOCK, "num_warps": self.num_warps}

    def code(self) -> str:
        """The line of Python that launches it."""
        function, arguments = self.call()
        return f"{function}(x, {', '.join(f'{name}={value}' for name, value in arguments.items())})"


def tile(n_cols: int) -> int:
    """n_cols rounded up to a power of two: the BLOCK of a tile that holds the whole row.

    Raises ValueError for anything but a whole number of at least 1.
    """
    refuse_below_one(n_cols=n_cols)
    return 1 << (n_cols - 1).bit_length()


def dtype_name(dtype: object) -> str:
    """The course's name (fp32, bf16 or fp16) of a dtype, given by that name, by torch's name or as the torch dtype.

    Raises ValueError for any other dtype.
    """
    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    name = str(dtype).removeprefix("torch.")
    name = names.get(name, name)
    if name not in DTYPES:
        raise ValueError(f"dtype must be {', '.join(DTYPES)} or the torch dtype; it is {name!r}.")
    return name


def ratio(a: int, b: int) -> float:
    """The larger of two positive numbers divided by the smaller."""
    return a / b if a > b else b / a


def candidates(n_cols: int) -> Iterator[Launch]:
    """The launches that are timed at rows of n_cols. Raises ValueError as `tile` does."""
    BLOCK = tile(n_cols)
    all_warps = (1, 2, 4, 8, 16, 32)
    if BLOCK <= MAX_TILE:
        for num_warps in all_warps:
            if BLOCK <= 32 * num_warps * MOST_ELEMENTS_A_THREAD:
                yield Launch("single tile", BLOCK, num_warps)
    for elements in (1024, 2048, 4096, 8192):
        for num_warps in (4, 8):
            if BLOCK <= 2048 and 2 * BLOCK <= elements and 4 <= elements // (32 * num_warps) <= 32:
                yield Launch("several rows", BLOCK, num_warps, elements // BLOCK)
    if 256 <= BLOCK <= 65536:
        yield Launch("persistent", BLOCK, min(32, max(1, BLOCK // 512)))
    for streamed, num_warps in ((4096, 8), (4096, 16), (8192, 8), (8192, 16), (8192, 32), (16384, 16), (16384, 32)):
        if BLOCK >= streamed:
            yield Launch("online", streamed, num_warps)
    for part, num_warps in ((1024, 4), (2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16)):
        if BLOCK >= 2 * part:
            yield Launch("split row", part, num_warps)
    if BLOCK >= 8192:
        yield Launch("two-pass", 8192, 16)


@dataclass(frozen=True)
class Shape:
    """The times at one shape, in microseconds: of every launch, and of functions by name, with a copy among them."""

    dtype: str
    n_rows: int
    n_cols: int
    functions: Mapping[str, float]
    launches: Mapping[Launch, float]

    @property
    def best(self) -> Launch:
        """The fastest launch."""
        return min(self.launches, key=self.launches.__getitem__)

    def lost(self, launch: Launch) -> float:
        """The time of a launch divided by that of the fastest: 1.0 is the best. Raises KeyError if it was not timed."""
        return self.launches[launch] / self.launches[self.best]

    def gbps(self, microseconds: float) -> float:
        """The GB/s that the caller sees: the bytes of the input and the output, each once, over a time."""
        return 2 * self.n_rows * self.n_cols * DTYPES[self.dtype].itemsize / microseconds / 1e3


@dataclass(frozen=True)
class Record:
    """All launches timed on one GPU. `pick` is made from `shapes` and tested on `held_out`."""

    origin: Mapping[str, str]
    shapes: tuple[Shape, ...]
    held_out: tuple[Shape, ...]

    def nearest(self, n_cols: int, n_rows: int, dtype: object) -> Shape:
        """The timed shape nearest to this one by ratio; columns count twice as much as rows.

        Only shapes with the same tile are compared, or all shapes if no shape has this tile. A shape with the same
        number of bytes in an element comes first, then one whose rows are aligned alike, then the nearest by ratio,
        then one of the same dtype. Raises ValueError for another dtype.
        """
        name = dtype_name(dtype)

        def distance(shape: Shape) -> tuple:
            other_bytes = DTYPES[shape.dtype].itemsize != DTYPES[name].itemsize
            other_alignment = (shape.n_cols % 16 == 0) != (n_cols % 16 == 0)
            apart = ratio(shape.n_cols, n_cols) ** 2 * ratio(shape.n_rows, n_rows)
            return other_bytes, other_alignment, apart, shape.dtype != name

        return min(self._by_tile.get(tile(n_cols)) or (*self.shapes, *self.held_out), key=distance)

    @cached_property
    def _by_tile(self) -> dict[int, list[Shape]]:
        found: dict[int, list[Shape]] = {}
        for shape in (*self.shapes, *self.held_out):
            found.setdefault(tile(shape.n_cols), []).append(shape)
        return found

    def __str__(self) -> str:
        return recorded.origin_in_words(self.origin)


def of_gpu(target: str) -> Record | None:
    """The record of a GPU, by name ("NVIDIA H200", "H200") or architecture ("sm_90"); None if there is none."""
    data = recorded.find("launches", target)
    return _record(data["origin"]["gpu"]) if data else None


@cache
def _record(gpu: str) -> Record:
    return from_data(recorded.by_gpu("launches")[gpu])


def from_data(data: Mapping[str, Any]) -> Record:
    """The record that a file of launches holds."""
    known = [Launch(*launch) for launch in data["launches"]]

    def shape(line: dict[str, Any]) -> Shape:
        return Shape(**{**line, "launches": {known[index]: time for index, time in line["launches"]}})

    return Record(data["origin"], tuple(map(shape, data["shapes"])), tuple(map(shape, data["held_out"])))


def as_json(origin: Mapping[str, str], shapes: list[Shape], held_out: list[Shape]) -> str:
    """A record as JSON, with one line for each launch and each shape; `from_data` reads it again."""
    known = list(dict.fromkeys(launch for shape in [*shapes, *held_out] for launch in shape.launches))
    numbers = {launch: index for index, launch in enumerate(known)}

    def line(shape: Shape) -> str:
        times = [[numbers[launch], time] for launch, time in shape.launches.items()]
        return json.dumps({**vars(shape), "launches": times}, separators=(",", ":"))

    parts = {"launches": map(json.dumps, known), "shapes": map(line, shapes), "held_out": map(line, held_out)}
    lists = (f'"{name}": [\n' + ",\n".join(lines) + "\n]" for name, lines in parts.items())
    return "{\n" + ",\n".join([f'"origin": {json.dumps(origin, indent=1)}', *lists]) + "\n}\n"
