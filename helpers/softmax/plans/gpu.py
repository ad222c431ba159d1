"""What plans ask of a GPU."""

from __future__ import annotations

from typing import NamedTuple

from helpers.gpu.occupancy import resident

EIGHT_WARPS, SEVEN_WARPS, SIX_WARPS, FIVE_WARPS, FOUR_WARPS, THREE_WARPS = 64, 72, 80, 96, 128, 168
"""Registers of a thread with which 8, 7, 6, 5, 4 and 3 warps fit on each quarter of an SM: it has 16384 registers."""

_LEAST_L2, _LEAST_GBPS = 2**25, 4000
"""Bytes of the L2 cache, and of memory in a nanosecond, from which on fetching ahead pays."""


class Chip(NamedTuple):
    """A GPU as plans see it; the defaults are an H200's, for which the plans' thresholds were found.

    `cycle_bytes` are the bytes that memory gives each SM in a cycle of its clock. On a GPU that `fetches_ahead`,
    programs that wait bring into the cache what others will load; one that `starts_early` can begin a launch before the
    one ahead of it has ended.
    """

    sms: int = 132
    target: str = "sm_90"
    cycle_bytes: int = 18
    fetches_ahead: bool = False
    starts_early: bool = False

    def programs_at_once(self, num_warps: int, maxnreg: int) -> int:
        """How many programs the GPU holds, of num_warps warps whose threads have maxnreg registers each."""
        return self.sms * self.programs_of_an_sm(num_warps, maxnreg)

    def programs_of_an_sm(self, num_warps: int, maxnreg: int) -> int:
        """How many such programs one SM holds; at least 1."""
        return max(1, resident(self.target, num_warps, maxnreg, 0).programs)

    def share(self, of_an_h200: int) -> int:
        """A number of programs that was found on 132 SMs, scaled to the SMs of this GPU."""
        return of_an_h200 * self.sms // H200.sms


H200 = Chip()


def gbps_of(memory_khz: int, bus_bits: int) -> float:
    """What a memory of this clock and width gives at most, twice in each cycle."""
    return 2 * memory_khz * bus_bits / 8 / 1e6


def fetching_pays(l2_bytes: int, memory_khz: int, bus_bits: int) -> bool:
    """Whether a GPU with such a cache, and a memory of such a clock and width, fetches ahead."""
    return l2_bytes >= _LEAST_L2 and gbps_of(memory_khz, bus_bits) >= _LEAST_GBPS


def cycle_bytes_of(target: str, memory_khz: int, bus_bits: int, sms: int, clock_khz: int) -> int:
    """`Chip.cycle_bytes`. An H100 gets the number of an H200, with which it was recorded."""
    if target == H200.target and sms == H200.sms:
        return H200.cycle_bytes
    return max(1, round(gbps_of(memory_khz, bus_bits) * 1e6 / (sms * clock_khz)))
