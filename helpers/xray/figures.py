"""A report on a compiled kernel: its figures, what follows from them, and the table and words that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helpers.engine.numbers import counted
from helpers.gpu import architectures, occupancy
from helpers.gpu.occupancy import Occupancy
from helpers.table import Table, Tabular

UNKNOWN = "not known here"
"""Stands in a table for a figure that cannot be had."""


@dataclass(frozen=True, repr=False)
class KernelReport(Tabular):
    """What the compiler made of a kernel. A figure that cannot be had is None, and `missing` says why.

    `registers` and `spill_bytes` are a thread's; `spill_bytes` is its stack frame, which holds the registers that were
    spilled. A place in it can serve several of them in turn. `shared_bytes` is a program's. `loads` and `stores` count
    the instructions that move data from and to global memory, by the bits that each moves for a thread; asynchronous
    copies to shared memory are loads, and the traffic of spilled registers is neither. `barriers` are the instructions
    at which the warps of a program wait for each other.

    `instructions_per_element` counts the instructions that all threads of a program execute, divided by the lanes of
    its tile. Without loops, every instruction up to the last EXIT counts. With loops, only the bodies of the innermost
    loops that move a tile count, since the rest runs once per row; a body that the compiler unrolled n times is divided
    by n. The tile is the widest one that a load moves, or everything that such a loop (without loops: the kernel)
    stores, whichever has more lanes; a two-dimensional tile has rows × columns. Code after the last EXIT, for rare
    cases and padding, is left out.
    """

    target: str
    num_warps: int
    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    loads: Mapping[int, int] | None = field(hash=False)
    stores: Mapping[int, int] | None = field(hash=False)
    barriers: int | None
    instructions_per_element: float | None
    missing: str = ""

    @property
    def threads(self) -> int:
        """Threads of a program."""
        return architectures.WARP * self.num_warps

    @property
    def register_limit(self) -> int:
        """Registers that a thread can have at most in a program of this many warps."""
        return occupancy.register_limit(self.num_warps)

    @property
    def occupancy(self) -> Occupancy | None:
        """Programs and warps that one SM holds at a time; None if the registers are not known."""
        if self.registers is None:
            return None
        return occupancy.resident(self.target, self.num_warps, self.registers, self.shared_bytes)

    def table(self) -> Table:
        """The figures, one a line, each with what it means."""
        held = self.occupancy
        room = architectures.architecture(self.target).program_shared_bytes
        rows = [
            (
                "registers a thread",
                or_unknown(self.registers, f"{{}} of {self.register_limit}"),
                "values that do not fit in them are spilled",
            ),
            ("spilled a thread", or_unknown(self.spill_bytes, "{} bytes"), "written to memory and read back"),
            ("shared memory", f"{self.shared_bytes:,} bytes", f"of {room:,} that a program can have"),
            (
                "occupancy",
                UNKNOWN if held is None else f"{held.fraction:.0%}",
                "" if held is None else f"{counted(held.programs, 'program')} an SM, limited by {held.limited_by}",
            ),
            ("loads a thread", by_width(self.loads), "instructions that read global memory"),
            ("stores a thread", by_width(self.stores), "instructions that write global memory"),
            ("barriers", or_unknown(self.barriers, "{}"), "instructions at which the warps wait for each other"),
            (
                "instructions per element",
                or_unknown(self.instructions_per_element, "{:.1f}"),
                "that all threads together execute",
            ),
        ]
        notes = [f"Compiled for {self.target} with {counted(self.num_warps, 'warp')} a program."]
        notes += [f"{UNKNOWN.capitalize()}: {self.missing}"] if self.missing else []
        return Table(["figure", "value", "what it is"], rows, notes, align="lrl")


def or_unknown(number: float | None, form: str) -> str:
    """The number in a form such as "{:.1f}", or UNKNOWN."""
    return UNKNOWN if number is None else form.format(number)


def by_width(counts: Mapping[int, int] | None) -> str:
    """Such as "4 × 128 bits", the widest first."""
    if counts is None:
        return UNKNOWN
    return ", ".join(f"{counts[bits]} × {bits} bits" for bits in sorted(counts, reverse=True)) or "none"
