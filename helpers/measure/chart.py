"""The record's page on the site: its figure, in which a reader chooses dtype and softmaxes, and its numbers.

The figure is SVG, and a style sheet does the choosing, without a script.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from helpers import draw, timing
from helpers.recorded import origin_in_words

SHOWN_FIRST = ("eager", "torch.softmax", "single tile", "two-pass", "online", "helpers.softmax")

_COLOURS = (draw.BLUE, draw.VERMILION, draw.GREEN, draw.PURPLE, draw.ORANGE, draw.SKY, draw.BLACK)
_DASHES = ("", "6 3", "2 2", "8 3 2 3")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 420, 60, 16, 12, 60
_GRID = 500

Scale = Callable[[float], float]


def record_page(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The page in Markdown: a figure and a table for each GPU, by its name, from its record of softmaxes."""
    parts = ["# The record", "The speed of each softmax, as it was measured, compared with a copy of the same bytes."]
    for gpu, record in records.items():
        rows = [timing.Row(**row) for row in record["softmax"]]
        parts += [f"## {gpu}", figure_to_choose_in(rows, gpu, origin_in_words(record["origin"]))]
    return "\n\n".join(parts) + "\n"


def figure_to_choose_in(rows: Sequence[timing.Row], gpu: str, origin: str) -> str:
    """The figure in HTML, without the empty line that would end it in Markdown; its ids begin with the GPU's name."""
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    variants = list(dict.fromkeys(row.variant for row in rows))
    name = f"gpu-{_slug(gpu)}"  # no id of CSS begins with a digit
    keys = {value: f"{name}-{_slug(value)}" for value in (*dtypes, *variants)}
    hidden = ",".join(f"#{name}:has(#{key}:not(:checked)) .{key}" for key in keys.values())
    x, y = _scales(rows)
    drawn = [_axes(rows, x, y)]
    for dtype in dtypes:
        of_dtype = [row for row in rows if row.dtype == dtype]
        lines = (
            f'<g class="{keys[variant]}">{_series([r for r in of_dtype if r.variant == variant], index, x, y)}</g>'
            for index, variant in enumerate(variants)
            if any(row.variant == variant for row in of_dtype)
        )
        drawn.append(f'<g class="{keys[dtype]}">{_roof(of_dtype, x, y)}{"".join(lines)}</g>')
    dtype_fields = (_field("radio", name, keys[dtype], dtype, dtype == dtypes[0]) for dtype in dtypes)
    variant_fields = (
        _field("checkbox", name, keys[variant], variant, variant in SHOWN_FIRST, _line(index, "M0 6H28"))
        for index, variant in enumerate(variants)
    )
    alt = f"Useful bandwidth against row length on one {gpu}. Every number stands in the table below."
    legend = (
        f"Useful GB/s: (input + output) / time; {origin}. Grey: a copy of the same bytes. A mark names its numbers."
    )
    return "\n".join(
        (
            f'<div class="record" id="{name}">',
            f"<style>{hidden}{{display:none}}</style>",
            f"<fieldset><legend>dtype</legend>{''.join(dtype_fields)}</fieldset>",
            f"<fieldset><legend>softmax</legend>{''.join(variant_fields)}</fieldset>",
            f'<div class="record-figure" tabindex="0"><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(alt)}">{"".join(drawn)}</svg></div>',
            f"<p>{escape(legend)}</p>",
            f"<details><summary>Every number</summary>{_table(rows)}</details>",
            "</div>",
        )
    )


def _slug(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-").lower()


def _field(kind: str, group: str, key: str, value: str, checked: bool, line: str = "") -> str:
    swatch = f'<svg width="28" height="12" aria-hidden="true">{line}</svg> ' if line else ""
    field = f'<input type="{kind}" id="{key}" name="{group}-{kind}"{" checked" * checked}>'
    return f'<label for="{key}">{field} {swatch}{escape(value)}</label>'


def _copy_gbps(row: timing.Row) -> float:
    return row.useful_gbps / row.of_copy


def _scales(rows: Sequence[timing.Row]) -> tuple[Scale, Scale]:
    """Where in the figure a row length and a bandwidth stand: the first logarithmic, the second from zero."""
    low, high = (math.log2(end(row.n_cols for row in rows)) for end in (min, max))
    most = max(max(row.useful_gbps, _copy_gbps(row)) for row in rows)
    return (
        lambda n_cols: round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (math.log2(n_cols) - low) / max(high - low, 1), 1),
        lambda gbps: round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * gbps / most, 1),
    )


def _axes(rows: Sequence[timing.Row], x: Scale, y: Scale) -> str:
    levels = range(0, int(max(map(_copy_gbps, rows))) + 1, _GRID)
    grid = (
        f'<path d="M{_LEFT} {y(level)}H{_WIDTH - _RIGHT}" stroke="#DDDDDD"/>'
        f'<text x="{_LEFT - 8}" y="{y(level) + 4}" text-anchor="end">{level:,}</text>'
        for level in levels
    )
    powers = sorted({row.n_cols for row in rows if row.n_cols.bit_count() == 1})
    below = _HEIGHT - _BOTTOM + 16
    lengths = (
        f'<text transform="translate({x(power)} {below}) rotate(-40)" text-anchor="end">{power:,}</text>'
        for power in powers
    )
    return "".join((*grid, *lengths))


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x} {y}" for x, y in points)


def _line(index: int, path: str) -> str:
    colour, dashes = _COLOURS[index % len(_COLOURS)], _DASHES[index // len(_COLOURS) % len(_DASHES)]
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'


def _roof(rows: Sequence[timing.Row], x: Scale, y: Scale) -> str:
    roof = sorted({row.n_cols: _copy_gbps(row) for row in rows}.items())
    path = _path([(x(n_cols), y(gbps)) for n_cols, gbps in roof])
    return f'<path d="{path}" fill="none" stroke="{draw.BLACK}" stroke-opacity="0.3" stroke-width="5"/>'


def _series(rows: Sequence[timing.Row], index: int, x: Scale, y: Scale) -> str:
    rows = sorted(rows, key=lambda row: row.n_cols)
    marks = (
        f'<circle cx="{x(row.n_cols)}" cy="{y(row.useful_gbps)}" r="4" fill="{_COLOURS[index % len(_COLOURS)]}">'
        f"<title>{escape(', '.join(_words(row)))}</title></circle>"
        for row in rows
    )
    return _line(index, _path([(x(row.n_cols), y(row.useful_gbps)) for row in rows])) + "".join(marks)


def _words(row: timing.Row) -> tuple[str, ...]:
    shape = f"{row.n_rows:,} × {row.n_cols:,}"
    return row.variant, row.dtype, shape, f"{row.useful_gbps:,.0f} GB/s", f"{row.of_copy:.2f} of a copy"


def _table(rows: Sequence[timing.Row]) -> str:
    names = ("softmax", "dtype", "rows × columns", "useful bandwidth", "speed")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    lines = ("".join(f"<td>{escape(word)}</td>" for word in _words(row)) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
