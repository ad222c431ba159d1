"""Draws a State: as a card in HTML for the browser; as a table and a picture if no kernel of the notebook runs."""

from __future__ import annotations

from html import escape

from helpers import draw
from helpers.choosing.launches import TRIPS
from helpers.choosing.picker import phrases
from helpers.choosing.picker.model import Bar, State
from helpers.engine.numbers import counted
from helpers.table import Table
from helpers.xray import KernelReport

_MOST_TILES, _MOST_ROWS = 64, 8
"""With more tiles than this, or more rows in a tile, the card draws no lines between them: they would run together."""

_SYMBOLS = {"choice": "◆", "best": "★", "faster": "▲"}


def as_card(state: State) -> str:
    """The card: HTML that also has its figures in data-* attributes."""
    choice, report = state.choice, state.seen if isinstance(state.seen, KernelReport) else None
    data = {
        "n-cols": state.n_cols, "n-rows": state.rows, "dtype": state.dtype, "gpu": state.gpu,
        "variant": choice.variant, "block": choice.BLOCK, "num-warps": choice.num_warps, "programs": state.programs,
        "registers": report and report.registers, "spill": report and report.spill_bytes,
        "xray": "compiling" if state.seen is None else "missing" if phrases.why_unseen(state) else "ready",
    }  # fmt: skip
    attributes = "".join(f' data-{name}="{escape(str(value))}"' for name, value in data.items() if value is not None)
    parts = (_head(state), _numbers(state), _row(state), _compiled(state), _measured(state), _known_from(state))
    return f'<div class="picker-card"{attributes}>{"".join(parts)}</div>'


def _head(state: State) -> str:
    code = escape(state.choice.code())
    copied = f"from helpers.kernels import {state.choice.launch.call()[0]}\n\n{code}"
    return (
        f'<div class="picker-head"><div class="picker-variant">{escape(state.choice.variant)}</div>'
        f'<div class="picker-code"><code>{code}</code>'
        f'<button type="button" aria-label="Copy the code" data-copy="{copied}">Copy</button></div>'
        f'<p class="picker-why">{escape(state.choice.why)}</p></div>'
    )


def _numbers(state: State) -> str:
    choice = state.choice
    numbers = [
        ("BLOCK", f"{choice.BLOCK:,}", "lanes of a tile"),
        ("num_warps", f"{choice.num_warps}", f"{counted(32 * choice.num_warps, 'thread')} a program"),
        ("programs", phrases.programs_in_words(state), phrases.share_in_words(state)),
        ("trips to memory", phrases.trips_in_words(state), "loads + stores an element"),
    ]
    cells = "".join(
        f'<div><div class="picker-label">{label}</div><div class="picker-number">{number}</div>'
        f'<div class="picker-note">{note}</div></div>'
        for label, number, note in numbers
    )
    return f'<div class="picker-numbers">{cells}</div>'


def _row(state: State) -> str:
    text = f"{phrases.tiling_in_words(state)}: {phrases.idle_in_words(state)}"
    return (
        f'<div class="picker-row">{_tiles(state, text)}<div class="picker-note" aria-hidden="true">{text}</div></div>'
    )


def _tiles(state: State, text: str) -> str:
    choice = state.choice
    width = 100 * state.n_cols / (state.tiles * choice.BLOCK)
    height = 100 * state.rows_held / choice.rows_per_program
    cut = "picker-gap" if choice.variant == "split row" else "picker-cut"
    tiles = state.tiles if state.tiles <= _MOST_TILES else 1
    rows = choice.rows_per_program if choice.rows_per_program <= _MOST_ROWS else 1
    down = (100 * tile / tiles for tile in range(1, tiles))
    across = (100 * row / rows for row in range(1, rows))
    lines = [f'<line class="{cut}" x1="{x:.3f}%" x2="{x:.3f}%" y1="0" y2="100%"/>' for x in down]
    lines += [f'<line class="{cut}" x1="0" x2="100%" y1="{y:.3f}%" y2="{y:.3f}%"/>' for y in across]
    return (
        f'<svg class="picker-tiles" role="img" aria-label="{escape(text)}">'
        '<line class="picker-hatch" x1="-50" x2="110%" y1="50%" y2="50%"/>'
        f'<rect class="picker-lanes" width="{width:.3f}%" height="{height:.3f}%"/>{"".join(lines)}'
        '<rect class="picker-frame" width="100%" height="100%"/></svg>'
    )


def _compiled(state: State) -> str:
    report, reason = state.seen, phrases.why_unseen(state)
    if reason:
        return f'<p class="picker-missing" data-missing>No registers and no occupancy: {_with_code(reason)}</p>'
    of = " (of the kernel that writes)" if state.choice.variant == "split row" else ""
    first, second = f"registers a thread{of}", "occupancy"
    if report is None:
        meters = _meter(first, None, "compiling …"), _meter(second, None, "compiling …")
    else:
        held, spilled = report.occupancy, bool(report.spill_bytes)
        used, limit = report.registers, report.register_limit
        filled = phrases.percent(held.fraction)
        meters = (
            _meter(
                first, used / limit, phrases.registers_in_words(report), phrases.spill_in_words(report), warn=spilled
            ),
            _meter(second, held.fraction, filled, phrases.occupancy_in_words(report), warn=not held.programs),
        )
    return f'<div class="picker-meters">{"".join(meters)}</div>'


def _meter(label: str, fraction: float | None, value: str, note: str = "", warn: bool = False) -> str:
    percent = f"{100 * min(1.0, fraction or 0):.1f}"
    role = f'role="meter" aria-valuenow="{percent}" aria-valuetext="{escape(f"{value}, {note}")}"'
    bar = f'<div class="picker-fill" style="width:{percent}%"></div>'
    return (
        f'<div class="picker-meter{" picker-warn" if warn else ""}"><div class="picker-label">{escape(label)}</div>'
        f'<div class="picker-track" {role if fraction is not None else ""} aria-label="{escape(label)}">{bar}</div>'
        f'<div class="picker-value"><span>{escape(value)}</span>'
        f'<span class="picker-note">{escape(note)}</span></div></div>'
    )


def _measured(state: State) -> str:
    if not state.shape:
        return f'<p class="picker-missing" data-unrecorded>{_with_code(phrases.known_from(state))}.</p>'
    top = max(state.copy_gbps, *(bar.gbps or 0 for bar in state.bars))
    bars = "".join(_bar(bar, top) for bar in state.bars)
    heading = (
        f'<span class="picker-label">GB/s at the nearest recorded shape, {phrases.shape_in_words(state)}</span>'
        f'<span class="picker-roof">a copy: {state.copy_gbps:,.0f} GB/s</span>'
    )
    unseen = phrases.unseen_in_words(state)
    return (
        f'<div><div class="picker-heading">{heading}</div>'
        f'<div role="img" aria-label="{escape(phrases.bars_in_words(state))}" '
        f'style="--roof:{100 * state.copy_gbps / top:.2f}%">{bars}</div>'
        + (f'<p class="picker-note">{escape(unseen)}.</p></div>' if unseen else "</div>")
    )


def _bar(bar: Bar, top: float) -> str:
    kind = "choice" if "choice" in bar.marks else "torch" if bar.name == "torch.softmax" else "other"
    marks = " ".join(f"{_SYMBOLS[mark.split()[0]]} {mark.removesuffix(' GB/s')}" for mark in bar.marks)
    speed, said = (
        (phrases.gbps_in_words(bar).removesuffix(" GB/s"), marks) if bar.gbps else ("–", phrases.gbps_in_words(bar))
    )
    width = 100 * (bar.gbps or 0) / top
    return (
        f'<div class="picker-bar picker-{kind if bar.gbps else "absent"}" data-bar="{escape(bar.name)}">'
        f'<span>{escape(bar.name)}</span><span class="picker-lane"><span style="width:{width:.2f}%"></span></span>'
        f"<span>{speed}</span><span>{said}</span></div>"
    )


def _with_code(text: str) -> str:
    """The text as HTML; what stands between backticks is code."""
    return "".join(
        f"<code>{escape(part)}</code>" if index % 2 else escape(part) for index, part in enumerate(text.split("`"))
    )


def _known_from(state: State) -> str:
    lines = {"This choice": (state.choice, "data-choice"), "Textbook’s rule": (state.textbook, "data-textbook")}
    said = "".join(
        f"<div {name}><span>{title}</span><code>{escape(choice.code())}</code>"
        f"<span>{escape(phrases.lost_in_words(state, choice))}</span></div>"
        for title, (choice, name) in lines.items()
    )
    origin = f'<p class="picker-note">{escape(phrases.known_from(state))}.</p>' if state.shape else ""
    return f'<div class="picker-rules">{said}</div>{origin}'


def as_table(state: State) -> Table:
    """The same figures as the card, one per line."""
    choice, report = state.choice, state.seen
    loads, stores = TRIPS[choice.variant]
    rows = [
        ("variant", choice.variant),
        ("BLOCK", f"{choice.BLOCK:,}"),
        ("num_warps", f"{choice.num_warps}"),
        ("programs", f"{phrases.programs_in_words(state)}, {phrases.share_in_words(state)}"),
        ("tiles", phrases.tiling_in_words(state)),
        ("idle lanes", phrases.idle_in_words(state)),
        ("trips to memory", f"{counted(loads, 'load')} + {counted(stores, 'store')} an element"),
    ]
    if isinstance(report, KernelReport) and not phrases.why_unseen(state):
        rows += [
            ("registers a thread", f"{phrases.registers_in_words(report)}, {phrases.spill_in_words(report)}"),
            ("occupancy", f"{phrases.percent(report.occupancy.fraction)}, {phrases.occupancy_in_words(report)}"),
        ]
    for bar in state.bars:
        rows.append((bar.name, ", ".join([phrases.gbps_in_words(bar), *bar.marks])))
    if state.shape:
        rows.append(("a copy of the same bytes", f"{state.copy_gbps:,.0f} GB/s"))
    for name, rule in {"this choice": choice, "the textbook’s rule": state.textbook}.items():
        rows.append((name, ", ".join(filter(None, [rule.code(), phrases.lost_in_words(state, rule)]))))
    notes = [choice.why]
    if unseen := phrases.unseen_in_words(state):
        notes.append(f"{unseen}.")
    if state.shape:
        notes.append(f"{phrases.known_from(state)}, at {phrases.shape_in_words(state)}.")
    else:
        notes.append(f"{phrases.known_from(state)}.")
    if reason := phrases.why_unseen(state) or (state.seen is None and phrases.NOT_YET):
        notes.append(f"No registers and no occupancy{'' if state.seen else ' yet'}: {reason.rstrip('.')}.")
    asked = f"{counted(state.rows, 'row')} of {state.n_cols:,} in {state.dtype} on {state.gpu}"
    return Table([asked, ""], rows, notes)


def as_picture(state: State) -> draw.Picture:
    """The row in its tiles, and the recorded speeds."""
    choice = state.choice
    return draw.choice(
        state.n_cols,
        choice.BLOCK,
        rows=choice.rows_per_program,
        rows_held=state.rows_held,
        tiling=f"{phrases.tiling_in_words(state)}: {phrases.idle_in_words(state)}",
        gbps={bar.name: bar.gbps for bar in state.bars},
        copy_gbps=state.copy_gbps,
        marks={bar.name: bar.marks for bar in state.bars},
        origin=f"{phrases.known_from(state)}, at {phrases.shape_in_words(state)}"
        if state.shape
        else phrases.known_from(state),
    )


def as_html(state: State) -> str:
    """The table and the picture, without scripts."""
    return as_table(state)._repr_html_() + as_picture(state)._repr_html_()
