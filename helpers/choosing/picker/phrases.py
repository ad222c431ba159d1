"""What a State says, in words. Every figure of the card, the table and the picture's description comes from here."""

from __future__ import annotations

from helpers.choosing.launches import TRIPS
from helpers.choosing.picker.model import Bar, State
from helpers.choosing.rules import Choice
from helpers.xray import Report

NOT_YET = "run this cell"
"""Stands where nobody has compiled the launch yet and nobody is going to."""


def counted(number: int, thing: str) -> str:
    """Such as "1 row" and "2,048 rows"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def percent(fraction: float) -> str:
    """Such as "39 %"; no share that is more than nothing is called 0 %."""
    return f"{fraction:.0%}".replace("%", " %") if not 0 < fraction < 0.005 else "< 1 %"


def programs(state: State) -> str:
    """How many programs are in the grid."""
    return f"{'up to ' if state.choice.variant == 'persistent' else ''}{state.programs:,}"


def share(state: State) -> str:
    """What a program of the grid has to do."""
    choice = state.choice
    if choice.variant == "persistent":
        return "each row after row"
    if choice.variant == "split row":
        return f"{choice.programs_per_row:,} a row, launched twice"
    return f"{counted(choice.rows_per_program, 'row')} each"


def trips(state: State) -> str:
    """Loads and stores per element."""
    return "{} + {}".format(*TRIPS[state.choice.variant])


def tiling(state: State) -> str:
    """How the row is cut into tiles."""
    choice, block = state.choice, f"{state.choice.BLOCK:,}"
    if choice.rows_per_program > 1:
        return f"One tile of {choice.rows_per_program:,} rows × {counted(choice.BLOCK, 'lane')}"
    if state.tiles == 1:
        return f"One tile of {counted(choice.BLOCK, 'lane')}"
    if choice.variant == "split row":
        return f"{state.tiles:,} tiles of {block} lanes, a program for each"
    return f"{state.tiles:,} tiles of {block} lanes, one after the other in one program"


def idle(state: State) -> str:
    """How many lanes have nothing to do."""
    if not state.idle:
        return "no lane idle"
    return f"{state.idle:,} of {counted(state.lanes, 'lane')} idle ({percent(state.idle / state.lanes)})"


def registers(report: Report) -> str:
    """Registers of a thread, against the limit."""
    return f"{report.registers} of at most {report.register_limit}"


def spill(report: Report) -> str:
    """What does not fit into them."""
    return f"spills {report.spill_bytes:,} bytes a thread" if report.spill_bytes else "no spill"


def occupancy(report: Report) -> str:
    """What allows no more programs on an SM."""
    held = report.occupancy
    if not held.programs:
        return f"fits on no SM: too much for its {held.limited_by}"
    return f"{counted(held.programs, 'program')} an SM, limited by {held.limited_by}"


def unseen(state: State) -> str:
    """Why there are no registers and no occupancy; empty where there are."""
    if isinstance(state.seen, Report):
        return "" if state.seen.occupancy else state.seen.missing
    return state.seen or ""


def shape(state: State) -> str:
    """The shape that the times were recorded at."""
    return f"{state.shape.n_rows:,} × {state.shape.n_cols:,} {state.shape.dtype}"


def gbps(bar: Bar) -> str:
    """The speed of a bar."""
    return "not timed here" if bar.gbps is None else f"{bar.gbps:,.0f} GB/s"


def bars(state: State) -> str:
    """All bars in one sentence."""
    speeds = "; ".join(" ".join([bar.name, gbps(bar), *(f"({mark})" for mark in bar.marks)]) for bar in state.bars)
    return f"Recorded at {shape(state)}: {speeds}; a copy of the same bytes {state.copy_gbps:,.0f} GB/s."


def lost(state: State, choice: Choice) -> str:
    """What a choice costs against the best that was measured; empty where it was not."""
    times = state.lost(choice)
    return "" if times is None else f"{times:.{2 if times < 10 else 0}f} × the time of the best"


def origin(state: State) -> str:
    """Where the choice is known from, and the speeds where there are any."""
    return f"R{str(state.record)[1:]}" if state.record else f"Chosen by {state.choice.origin}"
