"""The questions that the picker can be asked, and the answers that the record alone gives to them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch

from helpers import recorded
from helpers.choosing import launches
from helpers.choosing.launches import TRIPS, Record, Shape
from helpers.choosing.rules import DEFAULT_TARGET, Choice, pick
from helpers.engine.numbers import as_int
from helpers.engine.runtime import ON_GPU
from helpers.gpu.architectures import ARCHITECTURES
from helpers.gpu.datasheets import DATASHEETS, gpus_of
from helpers.timing import Row
from helpers.xray import KernelReport

MAX_COLS = 2**20
"""The longest row: Triton allows a tensor this many elements, and a tile may hold the whole row."""

LENGTHS = tuple(sorted({round(2 ** (step / 16)) for step in range(321)}))
"""The lengths at which the slider stops: 16 in an octave, rounded to whole numbers, each once."""

COMMON = {
    781: "the odd one",
    4096: "an attention row",
    50257: "GPT-2's vocabulary",
    128256: "Llama 3's vocabulary",
    262144: "Gemma 3's vocabulary",
}
"""Lengths that have a name, with that name."""

ROW_COUNTS = (1, 8, 64, 512, 4096, None)
"""Numbers of rows to choose from; None is the number that fills the GPU."""


@dataclass(frozen=True)
class Bar:
    """The recorded speed of a softmax; gbps is None if it was not timed. `marks` are words such as "choice"."""

    name: str
    gbps: float | None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """A question and all answers to it.

    `seen` is the compiler's report on the launch, a sentence that says why there is none, or None while it is awaited.
    """

    n_cols: int
    n_rows: int | None
    dtype: str
    gpu: str
    seen: KernelReport | str | None = None

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return self.n_rows or launches.ELEMENTS // self.n_cols

    @cached_property
    def choice(self) -> Choice:
        """The launch for this question."""
        return pick(self.n_cols, self.rows, self.dtype, self.gpu)

    @cached_property
    def textbook(self) -> Choice:
        """The launch by the textbook's rule."""
        return pick(self.n_cols, self.rows, self.dtype, self.gpu, rule="textbook")

    @property
    def architecture(self) -> str:
        """The architecture that the launch is compiled for."""
        return compiled_for(self.gpu)

    @property
    def record(self) -> Record | None:
        """The recorded launches of this target."""
        return launches.of_gpu(self.gpu)

    @cached_property
    def shape(self) -> Shape | None:
        """The nearest shape that was timed."""
        return self.record.nearest(self.n_cols, self.rows, self.dtype) if self.record else None

    @property
    def programs(self) -> int:
        """The number of programs in the grid."""
        return self.choice.launch.programs(self.rows, self.n_cols)

    @property
    def tiles(self) -> int:
        """The number of tiles that a row is cut into."""
        return -(-self.n_cols // self.choice.BLOCK)

    @property
    def rows_held(self) -> int:
        """The number of the matrix's rows that a program holds at a time."""
        return min(self.rows, self.choice.rows_per_program)

    @property
    def lanes(self) -> int:
        """The number of lanes in all tiles of a row, or of the rows that share a tile."""
        return self.tiles * self.choice.BLOCK * self.choice.rows_per_program

    @property
    def idle(self) -> int:
        """The number of lanes that are past the end of a row, or have no row to work on."""
        return self.lanes - self.rows_held * self.n_cols

    @property
    def copy_gbps(self) -> float | None:
        """The roof: the GB/s that a copy of the same bytes reaches."""
        return self.shape and self.shape.gbps(self.shape.functions["copy"])

    @cached_property
    def bars(self) -> tuple[Bar, ...]:
        """Every variant at its fastest launch, the chosen one at the chosen launch; then functions to compare."""
        if not self.shape:
            return ()
        chosen, best, times = self.choice.launch, self.shape.best, self.shape.launches
        fastest = {}
        for launch in sorted(times, key=times.__getitem__):
            fastest.setdefault(launch.variant, launch)
        if chosen in times:
            fastest[chosen.variant] = chosen
        bars = []
        for variant in TRIPS:
            launch = fastest.get(variant)
            marks = ["choice"] * (variant == chosen.variant) + ["best of these"] * (launch == best)
            if variant == best.variant and launch != best:
                marks.append(f"best {self.shape.gbps(times[best]):,.0f} GB/s")
            bars.append(Bar(variant, self.shape.gbps(times[launch]) if launch else None, tuple(marks)))
        for name in ("torch.softmax", "eager"):
            time = self.shape.functions[name]
            bars.append(Bar(name, self.shape.gbps(time), ("faster still",) * (time < times[best])))
        faster = (self.shipped_gbps or 0) > self.shape.gbps(times[best])
        bars.append(Bar("helpers.softmax", self.shipped_gbps, ("faster still",) * faster))
        return tuple(bars)

    @cached_property
    def shipped_gbps(self) -> float | None:
        """The recorded speed of helpers.softmax, the result of lesson 09, at the same shape; None if there is none."""
        known = recorded.by_gpu("softmax").get(self.record.origin["gpu"], {}) if self.record else {}
        rows = [Row(**row) for part in ("softmax", "few_rows") for row in known.get(part, ())]
        asked = ("helpers.softmax", self.shape.dtype, self.shape.n_rows, self.shape.n_cols)
        found = (row for row in rows if (row.variant, row.dtype, row.n_rows, row.n_cols) == asked)
        return next((row.useful_gbps for row in found), None)

    def lost(self, choice: Choice) -> float | None:
        """The time of a choice divided by that of the best launch; None if the choice was not timed."""
        measured = self.shape and choice.launch in self.shape.launches
        return self.shape.lost(choice.launch) if measured else None


def state(n_cols: int = 4096, n_rows: int | None = None, dtype: object = "fp32", gpu: str | None = None) -> State:
    """The State of a question. By default `gpu` is the GPU here, or the recorded one if there is no GPU.

    Raises ValueError for arguments that do not make a question, and TypeError for a GPU that is not a string.
    """
    n_cols, n_rows = as_int(n_cols), as_int(n_rows)
    if isinstance(n_cols, bool) or not isinstance(n_cols, int) or not 1 <= n_cols <= MAX_COLS:
        raise ValueError(f"n_cols must be a whole number from 1 to {MAX_COLS:,}; it is {n_cols!r}.")
    gpu = default_target() if gpu is None else gpu
    pick(n_cols, n_rows, dtype, gpu)
    if gpu not in targets() and gpu not in ARCHITECTURES:
        known = dict.fromkeys([*targets(), *ARCHITECTURES])
        raise ValueError(f"gpu must be one of {', '.join(known)}; it is {gpu!r}.")
    return State(n_cols, n_rows, launches.dtype_name(dtype), gpu)


@cache
def present() -> str | None:
    """The name of the GPU that kernels run on here; None if they run in the interpreter."""
    return torch.cuda.get_device_name() if ON_GPU else None


def default_target() -> str:
    """The GPU here, or the recorded one if there is no GPU."""
    known = recorded.find("launches", DEFAULT_TARGET)
    return present() or (known["origin"]["gpu"] if known else DEFAULT_TARGET)


@cache
def targets() -> dict[str, str]:
    """The targets to choose from, each with its label: the GPU here, the recorded GPUs, and architectures."""
    here = {name: f"{name}, here" for name in [present()] if name}
    known = {name: f"{here.get(name, name)}, recorded" for name in recorded.by_gpu("launches")}
    architectures = dict.fromkeys(sheet.architecture for sheet in DATASHEETS.values())
    return here | known | {name: f"{name} ({', '.join(gpus_of(name))})" for name in architectures}


def compiled_for(target: str) -> str:
    """The architecture of a target, which is a GPU's name or an architecture."""
    if known := recorded.by_gpu("launches").get(target):
        return known["origin"]["target"]
    return "sm_{}{}".format(*torch.cuda.get_device_capability()) if target == present() else target
