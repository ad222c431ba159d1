"""Puts a State into words: every figure of the card, the table and the picture's description comes from here."""

from __future__ import annotations

from helpers.choosing.launches import TRIPS
from helpers.choosing.picker.model import Bar, State
from helpers.choosing.rules import Choice
from helpers.engine.numbers import counted
from helpers.xray import KernelReport

NOT_YET = "run this cell"
"""Stands for the compiler's figures in a stored notebook, which has no running kernel to compile the launch."""


def percent(fraction: float) -> str:
    """Such as "39 %". A fraction between 0 and 1 is never shown as either."""
    if 0.99 < fraction < 1:
        return "> 99 %"
    return "< 1 %" if 0 < fraction < 0.01 else f"{100 * fraction:.0f} %"


def programs_in_words(state: State) -> str:
    """The number of programs in the grid."""
    return f"{'up to ' if state.choice.variant == 'persistent' else ''}{state.programs:,}"


def share_in_words(state: State) -> str:
    """The work of one program."""
    choice = state.choice
    if choice.variant == "persistent":
        return "each row after row"
    if choice.variant == "split row":
        return f"{choice.programs_per_row:,} a row, launched twice"
    return f"{counted(choice.rows_per_program, 'row')} each"


def trips_in_words(state: State) -> str:
    """Loads and stores per element."""
    return "{} + {}".format(*TRIPS[state.choice.variant])


def tiling_in_words(state: State) -> str:
    """How the row is cut into tiles."""
    choice, block = state.choice, f"{state.choice.BLOCK:,}"
    if choice.rows_per_program > 1:
        return f"One tile of {choice.rows_per_program:,} rows × {counted(choice.BLOCK, 'lane')}"
    if state.tiles == 1:
        return f"One tile of {counted(choice.BLOCK, 'lane')}"
    if choice.variant == "split row":
        return f"{state.tiles:,} tiles of {block} lanes, a program for each"
    return f"{state.tiles:,} tiles of {block} lanes, one after the other in one program"


def idle_in_words(state: State) -> str:
    """The number of idle lanes."""
    if not state.idle:
        return "no lane idle"
    return f"{state.idle:,} of {counted(state.lanes, 'lane')} idle ({percent(state.idle / state.lanes)})"


def registers_in_words(report: KernelReport) -> str:
    """The registers of a thread, and the limit."""
    return f"{report.registers} of at most {report.register_limit}"


def spill_in_words(report: KernelReport) -> str:
    """The bytes that do not fit into the registers."""
    return f"spills {report.spill_bytes:,} bytes a thread" if report.spill_bytes else "no spill"


def occupancy_in_words(report: KernelReport) -> str:
    """The number of programs on an SM, and the limit that allows no more."""
    held = report.occupancy
    if not held.programs:
        return f"fits on no SM: too much for its {held.limited_by}"
    return f"{counted(held.programs, 'program')} an SM, limited by {held.limited_by}"


def why_unseen(state: State) -> str:
    """The reason why registers and occupancy are not known; empty if they are known."""
    if isinstance(state.seen, KernelReport):
        return "" if state.seen.occupancy else state.seen.missing
    return state.seen or ""


def shape_in_words(state: State) -> str:
    """The shape at which the times were recorded."""
    return f"{state.shape.n_rows:,} × {state.shape.n_cols:,} {state.shape.dtype}"


def gbps_in_words(bar: Bar) -> str:
    """The speed of a bar."""
    return "not timed here" if bar.gbps is None else f"{bar.gbps:,.0f} GB/s"


def bars_in_words(state: State) -> str:
    """All bars in one sentence."""
    speeds = "; ".join(
        " ".join([bar.name, gbps_in_words(bar), *(f"({mark})" for mark in bar.marks)]) for bar in state.bars
    )
    return f"Recorded at {shape_in_words(state)}: {speeds}; a copy of the same bytes {state.copy_gbps:,.0f} GB/s."


def lost_in_words(state: State, choice: Choice) -> str:
    """The time of a choice against that of the best launch; empty if the choice was not timed."""
    times = state.lost(choice)
    return "" if times is None else f"{times:.{2 if times < 10 else 0}f} × the time of the best"


def unseen_in_words(state: State) -> str:
    """That `pick` does not know the shape of the speeds, and by which one it chose; empty if it knows the shape."""
    if not state.shape or state.shape not in state.record.held_out:
        return ""
    by = state.choice.origin.partition(", recorded")[0]
    return f"pick was not shown {shape_in_words(state)}, which tests it: it chose what was {by}"


def known_from(state: State) -> str:
    """Says what the choice was made from, and the recorded speeds if there are any."""
    return f"R{str(state.record)[1:]}" if state.record else f"Chosen by {state.choice.origin}"
