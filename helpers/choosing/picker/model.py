"""What the picker can be asked, and what follows from it. Everything here is computed from the record alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch

from helpers.choosing import launches
from helpers.choosing.launches import TRIPS, Record, Shape
from helpers.choosing.rules import TARGET, Choice, pick
from helpers.engine.runtime import ON_GPU
from helpers.gpu import occupancy
from helpers.xray import Report

MAX_COLS = 2**20
"""The longest row: Triton's limit on the elements of a tensor, which a tile of a whole row would be."""

LENGTHS = tuple(sorted({round(2 ** (step / 16)) for step in range(321)}))
"""Where the slider stops: 16 lengths an octave, as far as they are whole and different."""

COMMON = {
    781: "the odd one",
    4096: "an attention row",
    50257: "GPT-2's vocabulary",
    128256: "Llama 3's vocabulary",
    262144: "Gemma 3's vocabulary",
}
"""Lengths that have a name."""

ROWS = (1, 8, 64, 512, 4096, None)
"""Numbers of rows to choose from; None are as many as fill the GPU."""

ARCHITECTURES = {"sm_80": "A100", "sm_89": "RTX 40", "sm_90": "H100, H200", "sm_100": "B200", "sm_120": "RTX 50"}
"""What can be chosen besides the GPUs that are here or recorded: architectures, with GPUs that have them."""


@dataclass(frozen=True)
class Bar:
    """What a softmax was timed at; gbps is None where it was not timed. `marks` say in words what it is."""

    name: str
    gbps: float | None
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class State:
    """A question and everything that the picker answers.

    `seen` is what the compiler makes of the launch, a sentence why that cannot be had, or None while it is not known.
    """

    n_cols: int
    n_rows: int | None
    dtype: str
    target: str
    seen: Report | str | None = None

    @property
    def rows(self) -> int:
        """Rows of the matrix."""
        return self.n_rows or launches.ELEMENTS // self.n_cols

    @cached_property
    def choice(self) -> Choice:
        """The launch for this question."""
        return pick(self.n_cols, self.rows, self.dtype, self.target)

    @cached_property
    def textbook(self) -> Choice:
        """What the textbook's rule would launch."""
        return pick(self.n_cols, self.rows, self.dtype, self.target, rule="textbook")

    @property
    def architecture(self) -> str:
        """What the launch is compiled for."""
        return architecture(self.target)

    @property
    def record(self) -> Record | None:
        """The measurements of this target."""
        return launches.of_gpu(self.target)

    @cached_property
    def shape(self) -> Shape | None:
        """The nearest shape that was measured."""
        return self.record.nearest(self.n_cols, self.rows, self.dtype) if self.record else None

    @property
    def programs(self) -> int:
        """Programs in the grid."""
        return self.choice.launch.programs(self.rows, self.n_cols)

    @property
    def tiles(self) -> int:
        """Tiles that a row is cut into."""
        return -(-self.n_cols // self.choice.BLOCK)

    @property
    def rows_held(self) -> int:
        """Rows of the matrix that a program holds at a time."""
        return min(self.rows, self.choice.rows_per_program)

    @property
    def lanes(self) -> int:
        """Lanes of all tiles of a row, or of the rows that share a tile."""
        return self.tiles * self.choice.BLOCK * self.choice.rows_per_program

    @property
    def idle(self) -> int:
        """Lanes that lie past the end of a row, or have no row."""
        return self.lanes - self.rows_held * self.n_cols

    @property
    def copy_gbps(self) -> float | None:
        """The roof: what a copy of the same bytes reaches."""
        return self.shape and self.shape.gbps(self.shape.functions["copy"])

    @cached_property
    def bars(self) -> tuple[Bar, ...]:
        """Every variant as fast as it was measured, the chosen one as launched here, and torch's functions."""
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
            marks = ["choice"] * (variant == chosen.variant) + ["best"] * (launch == best)
            if variant == best.variant and launch != best:
                marks.append(f"best {self.shape.gbps(times[best]):,.0f} GB/s")
            bars.append(Bar(variant, self.shape.gbps(times[launch]) if launch else None, tuple(marks)))
        for name in ("torch.softmax", "eager"):
            time = self.shape.functions[name]
            bars.append(Bar(name, self.shape.gbps(time), ("faster still",) * (time < times[best])))
        return tuple(bars)

    def lost(self, choice: Choice) -> float | None:
        """How many times as long as the best launch this one takes; None where it was not measured."""
        measured = self.shape and choice.launch in self.shape.launches
        return self.shape.lost(choice.launch) if measured else None


def state(n_cols: int = 4096, n_rows: int | None = None, dtype: object = "fp32", target: str | None = None) -> State:
    """The State of a question. `target` is the GPU here by default, and the recorded one where there is none.

    Raises ValueError or TypeError, in a sentence, for arguments that none can be made of.
    """
    if isinstance(n_cols, bool) or not isinstance(n_cols, int) or not 1 <= n_cols <= MAX_COLS:
        raise ValueError(f"n_cols must be a whole number from 1 to {MAX_COLS:,}; it is {n_cols!r}.")
    target = default_target() if target is None else target
    pick(n_cols, n_rows, dtype, target)
    if target not in targets() and target not in occupancy.ARCHITECTURES:
        known = dict.fromkeys([*targets(), *occupancy.ARCHITECTURES])
        raise ValueError(f"target must be one of {', '.join(known)}; it is {target!r}.")
    return State(n_cols, n_rows, launches.dtype_name(dtype), target)


@cache
def present() -> str | None:
    """The name of the GPU that kernels run on here."""
    return torch.cuda.get_device_name() if ON_GPU else None


def default_target() -> str:
    """The GPU here, else the recorded one."""
    known = launches.of_gpu(TARGET)
    return present() or (known.origin["gpu"] if known else TARGET)


@cache
def targets() -> dict[str, str]:
    """The GPUs to choose from, each with what it is called: the one here, the recorded ones, and architectures."""
    here = {name: f"{name}, here" for name in [present()] if name}
    recorded = {name: f"{here.get(name, name)}, recorded" for name in launches.records()}
    return here | recorded | {name: f"{name} ({gpus})" for name, gpus in ARCHITECTURES.items()}


def architecture(target: str) -> str:
    """The architecture of a target."""
    if known := launches.records().get(target):
        return known.origin["target"]
    return "sm_{}{}".format(*torch.cuda.get_device_capability()) if target == present() else target
