"""How programs that wait for each other keep memory busy, and how long loaded lines stay in the cache."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from helpers.softmax.plans.gpu import H200, Chip

_LEAST_WAVES, _AHEAD = 1.5, 0.6
"""Of the programs that the GPU holds at once, how many must be launched for them to pause or fetch ahead, and how far
ahead."""

_LEAST_KEPT = 2**26
"""Bytes of an input from which on its lines outlive written ones in the L2 cache: more than an H200's holds."""


class SharedPlan(Protocol):
    """A plan in which SPLIT programs share a row, or a group of columns."""

    SPLIT: int
    num_warps: int
    maxnreg: int


class Pause(NamedTuple):
    """Cycles that programs let pass before they look for words, if they share a row in `least_slices` or more."""

    least_slices: int
    cycles: int


NO_PAUSE, PAUSE_OF_ROWS = Pause(0, 0), Pause(33, 6000)
PAUSE_OF_GRADIENTS = {4: Pause(33, 7000), 2: Pause(33, 5000)}
"""By bytes of an element. Losses do not pause."""


class Pace(NamedTuple):
    """How programs that wait for each other keep memory busy: the first TURNS programs of an SM begin one after the
    other, a program lets PAUSE cycles pass before it looks for others' words, and while it waits, half the tile AHEAD
    rows or groups further comes to the L2 cache."""

    TURNS: int = 0
    PAUSE: int = 0
    AHEAD: int = 0


def pace_of(shared: int, chosen: SharedPlan, gpu: Chip = H200, pause: Pause = NO_PAUSE) -> Pace:
    """The pace of programs that share `shared` rows, or groups of columns; none where each has one program.

    Unless the GPU holds nearly all programs at once, they fetch ahead, if the GPU does, and `pause`.
    """
    if chosen.SPLIT == 1:
        return Pace()
    of_an_sm = gpu.programs_of_an_sm(chosen.num_warps, chosen.maxnreg)
    held = of_an_sm * gpu.sms
    if shared * chosen.SPLIT <= _LEAST_WAVES * held:
        return Pace(of_an_sm)
    return Pace(
        of_an_sm,
        pause.cycles if chosen.SPLIT >= pause.least_slices else 0,
        round(_AHEAD * held / chosen.SPLIT) if gpu.fetches_ahead else 0,
    )


def turns_of(pace: Pace, tile_bytes: int, gpu: Chip) -> dict[str, int]:
    """TURNS, SMS and CYCLES of a kernel whose programs load tiles of `tile_bytes`: a turn lasts as long as the memory
    needs for the tile of one program of each SM."""
    if pace.TURNS <= 1:
        return {"TURNS": pace.TURNS}
    return {"TURNS": pace.TURNS, "SMS": gpu.sms, "CYCLES": tile_bytes // gpu.cycle_bytes}


def policy_of(nbytes: int) -> str:
    """POLICY for an input whose shape has `nbytes`, where each element is loaded once: "evict_last" or ""."""
    return "evict_last" if nbytes >= _LEAST_KEPT else ""
