"""Every figure of the course. Each function takes plain data and returns a Picture: a PNG with its description.

Colours are those of Okabe and Ito, told apart by hatching or line style as well; the ground is white in every theme.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from html import escape

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from helpers.timing import Comparison
from helpers.traffic import Traffic

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#222222",
)  # fmt: skip
_LINES = [(BLUE, "-", "o"), (VERMILION, "--", "s"), (GREEN, "-.", "^"), (PURPLE, ":", "D"), (ORANGE, "-", "v")]
_LINES += [(SKY, "--", "P"), (BLACK, "-.", "X")]
_DPI = 192


class Picture:
    """A figure and its description in words, which screen readers read and text-only viewers show."""

    def __init__(self, figure: Figure, alt: str) -> None:
        self.figure, self.alt = figure, alt

    def __repr__(self) -> str:
        return self.alt

    def png(self) -> bytes:
        """The figure as PNG, at twice the resolution of the screen."""
        target = io.BytesIO()
        self.figure.savefig(target, format="png", dpi=_DPI, facecolor="white")
        return target.getvalue()

    def _repr_html_(self) -> str:
        # JupyterLab gives a plain PNG output no description; an <img> keeps it, also in a notebook not yet trusted.
        width = int(self.figure.get_figwidth() * _DPI / 2)
        source = f"data:image/png;base64,{base64.b64encode(self.png()).decode()}"
        return f'<img width="{width}" alt="{escape(self.alt)}" src="{source}">'


def _figure(width: float, height: float) -> tuple[Figure, object]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def ladder(counts: Mapping[str, Traffic | tuple[float, float]]) -> Picture:
    """Bars of loads and stores per element, one pair for each name. A count is a Traffic or (loads, stores)."""
    pairs = {
        name: (count.loads_per_element, count.stores_per_element) if isinstance(count, Traffic) else count
        for name, count in counts.items()
    }
    figure, axes = _figure(7.5, 0.9 + 0.5 * len(pairs))
    for line, (loads, stores) in enumerate(pairs.values()):
        axes.barh(line, loads, color=BLUE, edgecolor="white", height=0.62, label="loads" if line == 0 else None)
        axes.barh(
            line, stores, left=loads, color=ORANGE, edgecolor="white", hatch="//", height=0.62,
            label="stores" if line == 0 else None,
        )  # fmt: skip
        axes.text(loads + stores + 0.08, line, f"{loads:.2f} + {stores:.2f}", va="center", color=BLACK)
    axes.set_yticks(range(len(pairs)), list(pairs))
    axes.invert_yaxis()
    axes.set_xlim(0, max(sum(pair) for pair in pairs.values()) * 1.18)
    axes.set_xlabel("trips to memory per element")
    axes.legend(frameon=False, loc="lower right")
    words = "; ".join(f"{name} {loads:.2f} loads and {stores:.2f} stores" for name, (loads, stores) in pairs.items())
    return Picture(figure, f"Trips to memory per element: {words}.")


def tile(n_cols: int, BLOCK: int, values: Sequence[float] | None = None, other: str = "−inf") -> Picture:
    """A tile of BLOCK lanes over a row of n_cols: lanes past the end are masked and hold `other` instead of x."""
    figure, axes = _figure(max(4.0, 0.5 * BLOCK), 1.7)
    for lane in range(BLOCK):
        inside = lane < n_cols
        axes.add_patch(
            Rectangle(
                (lane, 0),
                0.94,
                1,
                facecolor=SKY if inside else "#EEEEEE",
                edgecolor=BLACK,
                alpha=0.9,
                hatch=None if inside else "///",
            )  # fmt: skip
        )
        text = other if not inside else f"x{lane}" if values is None else f"{values[lane]:g}"
        box = None if inside else {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text(lane + 0.47, 0.5, text, ha="center", va="center", color=BLACK, fontsize=10, bbox=box)
    axes.annotate(f"{n_cols} columns", (n_cols / 2, 1.18), ha="center", color=BLACK, annotation_clip=False, fontsize=10)
    if BLOCK > n_cols:
        axes.annotate(
            f"{BLOCK - n_cols} lanes masked off", ((n_cols + BLOCK) / 2, -0.42), ha="center", color=BLACK, fontsize=10,
            annotation_clip=False,
        )  # fmt: skip
    axes.set(xlim=(-0.1, BLOCK), ylim=(-0.6, 1.5))
    axes.axis("off")
    masked = f", the last {BLOCK - n_cols} masked off and holding {other}" if BLOCK > n_cols else ""
    return Picture(figure, f"A tile of {BLOCK} lanes over a row of {n_cols} columns{masked}.")


def grid(n_rows: int, n_cols: int) -> Picture:
    """A matrix of n_rows × n_cols, one program over each row."""
    figure, axes = _figure(6.5, 0.5 + 0.42 * n_rows)
    for row in range(n_rows):
        for col in range(n_cols):
            axes.add_patch(Rectangle((col, row), 0.94, 0.8, facecolor=SKY, edgecolor=BLACK, alpha=0.9))
        axes.text(-0.3, row + 0.4, f"program {row}", ha="right", va="center", color=BLACK)
        axes.text(n_cols + 0.2, row + 0.4, f"starts at x_ptr + {row} · stride", va="center", color=BLACK)
    axes.set(xlim=(-2.6, n_cols + 6), ylim=(n_rows, -0.1))
    axes.axis("off")
    alt = (
        f"A matrix of {n_rows} rows and {n_cols} columns; program i works on row i, which starts at x_ptr + i · stride."
    )
    return Picture(figure, alt)


def passes(n_cols: int, BLOCK: int, passes: Sequence[str]) -> Picture:
    """A row cut into tiles of BLOCK, once for each pass over it, numbered in the order of their loads."""
    figure, axes = _figure(max(6.5, 0.55 * n_cols + 2), 0.5 + 0.62 * len(passes))
    n_tiles = -(-n_cols // BLOCK)
    for line, name in enumerate(passes):
        axes.text(-0.3, line + 0.4, name, ha="right", va="center", color=BLACK)
        for lane in range(n_tiles * BLOCK):
            inside, odd = lane < n_cols, lane // BLOCK % 2
            color = (BLUE if odd else SKY) if inside else "#EEEEEE"
            axes.add_patch(
                Rectangle((lane, line), 0.94, 0.8, facecolor=color, edgecolor=BLACK, hatch=None if inside else "///")
            )
        for index in range(n_tiles):
            last = min(n_cols, (index + 1) * BLOCK)
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            label = str(line * n_tiles + index + 1)
            axes.text((index * BLOCK + last) / 2, line + 0.4, label, ha="center", va="center", color=BLACK, bbox=box)
    axes.set(xlim=(-2.2, n_tiles * BLOCK + 0.1), ylim=(len(passes), -0.1))
    axes.axis("off")
    overhang = n_tiles * BLOCK - n_cols
    masked = f", the last {overhang} lanes masked off" if overhang else ""
    alt = f"A row of {n_cols} columns in {n_tiles} tiles of {BLOCK}{masked}, gone through for {', then '.join(passes)}."
    return Picture(figure, alt)


def steps(x: Sequence[float], BLOCK: int) -> list[tuple[float, float, float]]:
    """The online recurrence over x, block by block: after each block (m, l, the factor that rescaled the old l)."""
    row = torch.tensor(x, dtype=torch.float64)
    m, l, states = float("-inf"), 0.0, []
    for block in row.split(BLOCK):
        m_new = max(m, block.max().item())
        shift = 0.0 if m_new == float("-inf") else m_new
        factor = math.exp(m - shift)
        l = l * factor + torch.exp(block - shift).sum().item()
        m = m_new
        states.append((m, l, factor))
    return states


def trace(x: Sequence[float], BLOCK: int) -> Picture:
    """The row as stems, cut into blocks, with m, the rescale factor and l written under each block."""
    states = steps(x, BLOCK)
    figure, axes = _figure(max(6.5, 0.8 * len(x)), 3.4)
    axes.axhline(0, color=BLACK, linewidth=0.6)
    axes.vlines(range(len(x)), 0, x, color=BLUE, linewidth=2)
    axes.plot(range(len(x)), x, "o", color=BLUE)
    for index, value in enumerate(x):
        axes.annotate(f"{value:g}", (index, value), xytext=(6, 3), textcoords="offset points", color=BLACK)
    low = min(0.0, *x)
    span = max(*x, 0.0) - low or 1.0
    for block, (m, l, factor) in enumerate(states):
        first, last = block * BLOCK - 0.5, min(len(x), (block + 1) * BLOCK) - 0.5
        if block:
            axes.axvline(first, color="#888888", linestyle=":")
        axes.plot(
            [first + 0.1, last - 0.1], [m, m], color=VERMILION, linestyle="--", label=None if block else "m so far"
        )
        text = f"m = {m:g}\nold l × {factor:.3g}\nl = {l:.4g}"
        axes.text((first + last) / 2, low - 0.12 * span, text, ha="center", va="top", color=BLACK, fontsize=10)
    axes.set(xlim=(-0.6, len(x) - 0.4), ylim=(low - 0.62 * span, max(*x, 0.0) + 0.15 * span), xticks=[], yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    words = "; ".join(
        f"block {block}: m = {m:g}, old l times {factor:.3g}, l = {l:.4g}"
        for block, (m, l, factor) in enumerate(states)
    )
    return Picture(figure, f"The row in blocks of {BLOCK}: {words}.")


def _apart(n: int, lengths: Sequence[int]) -> bool:
    """True where half an octave around n is free of other row lengths, so that its label has room."""
    return all(abs(math.log2(n / other)) > 0.5 for other in lengths if other != n)


def bandwidth(comparison: Comparison) -> Picture:
    """Useful GB/s against row length, one line per variant, under the roof that a copy of the same bytes sets."""
    figure, axes = _figure(7.5, 4.0)
    roof = {row.n_cols: row.useful_gbps * row.median_ms / row.copy_ms for row in comparison.rows}
    axes.plot(list(roof), list(roof.values()), color=BLACK, linewidth=3, alpha=0.35, label="copy of the same bytes")
    for variant, (color, style, marker) in zip(comparison.variants, _LINES, strict=False):
        rows = [row for row in comparison.rows if row.variant == variant]
        axes.plot(
            [row.n_cols for row in rows], [row.useful_gbps for row in rows], linestyle=style, marker=marker,
            color=color, markersize=5, label=variant,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    lengths = sorted(roof)
    labelled = [n for n in lengths if n & (n - 1) == 0 or _apart(n, lengths)]
    axes.set_xticks(labelled, [f"{n:,}" for n in labelled], rotation=45, ha="right", fontsize=9)
    axes.minorticks_off()
    axes.set(xlabel="columns", ylabel="useful GB/s: (input + output) / time", ylim=(0, None))
    axes.grid(axis="y", color="#DDDDDD")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(comparison.origin, fontsize=8, color=BLACK, loc="left")
    longest = [row for row in comparison.rows if row.n_cols == lengths[-1]]
    words = ", ".join(f"{row.variant} {row.of_copy:.2f}" for row in longest)
    alt = f"Useful bandwidth against row length under the roof of a copy. At {lengths[-1]:,} columns, of copy: {words}."
    return Picture(figure, alt)
