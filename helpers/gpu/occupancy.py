"""How many programs of a kernel one streaming multiprocessor (SM) holds at a time. Arithmetic alone: no GPU, no Triton.

The limits of each architecture are in `helpers.gpu.architectures`. The rules by which programs share them come from
CUDA's occupancy calculator, the header `cuda_occupancy.h` of the CUDA Toolkit (13.x).
"""

from __future__ import annotations

from dataclasses import dataclass

from helpers.gpu.architectures import REGISTERS, WARP, architecture

_MOST_REGISTERS = 255
_REGISTER_UNIT = 256
_PARTITIONS = 4


@dataclass(frozen=True)
class Occupancy:
    """Programs and warps resident on one SM, the most warps that it can hold, and the limit that allows no more.

    If several limits allow equally few programs, `limited_by` is the first of "warps", "programs", "registers" and
    "shared memory". The SM's own limits come first, because a kernel that uses less gains nothing from them.
    """

    programs: int
    warps: int
    max_warps: int
    limited_by: str

    @property
    def fraction(self) -> float:
        """Resident warps as a fraction of the warps that the SM can hold: 1.0 is full."""
        return self.warps / self.max_warps


def resident(target: str, num_warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel with `registers` per thread, and num_warps and `shared_bytes` per program.

    A warp gets registers in units of 256. Each of the SM's four partitions has a quarter of the registers, so the
    number of warps that get enough registers is a multiple of 4. A program's shared memory, together with the bytes
    that CUDA reserves in it, is rounded up to the unit. A program that does not fit at all gives 0 programs. Raises
    ValueError for a target that is not in ARCHITECTURES, and for numbers that no kernel can have.
    """
    sm = architecture(target)
    if not 1 <= num_warps <= 32:
        raise ValueError(f"num_warps must be between 1 and 32; it is {num_warps!r}.")
    if not 1 <= registers <= _MOST_REGISTERS:
        raise ValueError(f"registers must be between 1 and {_MOST_REGISTERS} a thread; they are {registers!r}.")
    if shared_bytes < 0:
        raise ValueError(f"shared_bytes cannot be negative; they are {shared_bytes!r}.")
    warp_registers = _round_up(registers * WARP, _REGISTER_UNIT)
    warps_with_registers = REGISTERS // _PARTITIONS // warp_registers * _PARTITIONS
    program_bytes = _round_up(shared_bytes + sm.reserved_bytes, sm.unit_bytes)
    programs = {
        "warps": sm.max_warps // num_warps,
        "programs": sm.max_programs,
        "registers": warps_with_registers // num_warps,
        "shared memory": sm.shared_bytes // program_bytes if program_bytes else sm.max_programs,
    }
    limited_by = min(programs, key=programs.__getitem__)
    fit = programs[limited_by]
    return Occupancy(fit, fit * num_warps, sm.max_warps, limited_by)


def register_limit(num_warps: int) -> int:
    """The most registers that a thread can have in a program of num_warps: its share of the SM's, and at most 255."""
    return min(_MOST_REGISTERS, REGISTERS // (WARP * num_warps))


def _round_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
