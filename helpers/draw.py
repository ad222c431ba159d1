"""Every figure of the course. Each function takes plain data and returns a Picture: a PNG with its description.

Colours are Okabe and Ito's, told apart by hatching or line style as well. The background is white; in JupyterLab's dark
themes the picture is shown inverted, with its hues kept.
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

from helpers.engine.numbers import counted, refuse_below_one
from helpers.timing import Comparison
from helpers.traffic import Traffic

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#222222",
)  # fmt: skip
_COLORS, _STYLES, _MARKERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK), ("-", "--", "-.", ":"), "os^DvPX"
_DPI = 192
_DARK = "calc(var(--jp-shadow-base-lightness, 0) / 32)"
"""0 in JupyterLab's light theme and wherever there is no JupyterLab, 1 in its dark themes: a number that themes set."""
_FITS_THE_THEME = f"filter: invert({_DARK}) hue-rotate(calc({_DARK} * 180deg))"
_MOST_ROWS = 32
_MOST_TILES = 64
_MOST_PARTS = 8
_MOST_RUNS = 6
Counts = Mapping[int, Sequence[int]]
"""By the number of a row: how often each of its elements was loaded, or stored."""


class Picture:
    """A figure and its description in words, which screen readers read and text-only viewers show."""

    def __init__(self, figure: Figure, alt: str) -> None:
        self.figure, self.alt = figure, alt

    def __repr__(self) -> str:
        return self.alt

    def png(self, said: Mapping[str, str] | None = None) -> bytes:
        """The figure as PNG, at twice the resolution of the screen; what is `said` of it, by PNG's own keywords."""
        target = io.BytesIO()
        self.figure.savefig(target, format="png", dpi=_DPI, facecolor="white", metadata=said)
        return target.getvalue()

    def _repr_html_(self) -> str:
        # JupyterLab gives a plain PNG output no description; an <img> keeps it, also in a notebook not yet trusted.
        width = int(self.figure.get_figwidth() * _DPI / 2)
        source = f"data:image/png;base64,{base64.b64encode(self.png()).decode()}"
        return f'<img width="{width}" style="{_FITS_THE_THEME}" alt="{escape(self.alt)}" src="{source}">'


def _figure(width: float, height: float) -> tuple[Figure, object]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _last_lanes(number: int) -> str:
    return "the last lane" if number == 1 else f"the last {number} lanes"


def _number(value: float) -> str:
    return "−inf" if value == -math.inf else f"{value:.4g}"


def ladder(counts: Mapping[str, Traffic | tuple[float, float]]) -> Picture:
    """Bars of loads and stores per element, one pair for each name. A count is a Traffic or (loads, stores).

    Raises TypeError for counts without names, and ValueError where there are none.
    """
    if not isinstance(counts, Mapping):
        kind = type(counts).__name__
        raise TypeError(f'ladder takes counts by name, as in ladder({{"eager": traffic}}); got a {kind}.')
    if not counts:
        raise ValueError('there is nothing to draw: give ladder at least one count, as in ladder({"eager": traffic}).')
    pairs = {name: _pair(name, count) for name, count in counts.items()}
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
    axes.set_xlim(0, (max(sum(pair) for pair in pairs.values()) or 1) * 1.18)
    axes.set_xlabel("trips to memory per element")
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    words = "; ".join(f"{name} {loads:.2f} loads and {stores:.2f} stores" for name, (loads, stores) in pairs.items())
    return Picture(figure, f"Trips to memory per element: {words}.")


def _pair(name: str, count: Traffic | tuple[float, float]) -> tuple[float, float]:
    if isinstance(count, Traffic):
        return count.loads_per_element, count.stores_per_element
    if not isinstance(count, Sequence) or [isinstance(n, int | float) for n in count] != [True, True]:
        raise TypeError(
            f"the count of {name!r} must be what traffic.count returns, or (loads, stores); it is {count!r}."
        )
    return count[0], count[1]


def lanes(n_cols: int, BLOCK: int, values: Sequence[float] | None = None, other: str = "−inf") -> Picture:
    """A tile of BLOCK lanes over a row of n_cols: lanes past the end are masked and hold `other` instead of x.

    Raises ValueError for a row that is longer than the tile, and for fewer values than columns.
    """
    refuse_below_one(n_cols=n_cols, BLOCK=BLOCK)
    if BLOCK < n_cols:
        raise ValueError(f"a tile of BLOCK={BLOCK} lanes cannot hold a row of {n_cols} columns; see draw.passes.")
    if values is not None and len(values) < n_cols:
        raise ValueError(f"there must be a value for each of the {n_cols} columns; there are {len(values)}.")
    masked = BLOCK - n_cols
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
    columns = counted(n_cols, "column")
    axes.annotate(columns, (n_cols / 2, 1.18), ha="center", color=BLACK, annotation_clip=False, fontsize=10)
    if masked:
        axes.annotate(
            f"{counted(masked, 'lane')} masked off", ((n_cols + BLOCK) / 2, -0.42), ha="center", color=BLACK,
            fontsize=10, annotation_clip=False,
        )  # fmt: skip
    axes.set(xlim=(-0.1, BLOCK), ylim=(-0.6, 1.5))
    axes.axis("off")
    end = f", {_last_lanes(masked)} masked off and holding {other}" if masked else ""
    return Picture(figure, f"A tile of {counted(BLOCK, 'lane')} over a row of {columns}{end}.")


def accesses(x: Counts, y: Counts) -> Picture:
    """How often each element of some rows was loaded from x, and stored to y: a strip for each row, cut where that
    changes.

    Raises ValueError where there are no rows.
    """
    lines = [("loads from x", row, counts, BLUE) for row, counts in x.items()]
    lines += [("stores to y", row, counts, ORANGE) for row, counts in y.items()]
    if not lines:
        raise ValueError("there is nothing to draw: give accesses at least one row of counts.")
    figure, axes = _figure(7.5, 0.5 + 0.34 * len(lines))
    said = []
    for line, (what, row, counts, color) in enumerate(lines):
        runs = _runs(counts)
        for first, end, times in runs:
            look = {"facecolor": color, "alpha": 0.85} if times else {"facecolor": "#EEEEEE", "hatch": "///"}
            axes.add_patch(Rectangle((first / len(counts), line), (end - first) / len(counts), 0.74, **look))
            if end - first > 0.12 * len(counts):
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                at = ((first + end) / 2 / len(counts), line + 0.4)
                axes.text(*at, _times(times), ha="center", va="center", fontsize=9, color=BLACK, bbox=box)
            if 0 < first and len(runs) <= _MOST_RUNS:
                axes.text(first / len(counts), line + 0.98, f"{first:,}", ha="center", fontsize=7, color=BLACK)
        axes.text(-0.01, line + 0.4, f"{what}, row {row}", ha="right", va="center", fontsize=9, color=BLACK)
        parts = [f"{_columns(first, end)} {_times(times)}" for first, end, times in runs[:_MOST_RUNS]]
        parts += ["and so on"] * (len(runs) > _MOST_RUNS)
        said.append(f"{what}, row {row}: {', '.join(parts)}")
    axes.text(0, -0.15, "column 0", fontsize=8, color=BLACK)
    axes.text(1, -0.15, f"{max(len(counts) for _, _, counts, _ in lines) - 1:,}", ha="right", fontsize=8, color=BLACK)
    axes.set(xlim=(-0.3, 1.01), ylim=(len(lines), -0.6))
    axes.axis("off")
    words = "; ".join(said)
    return Picture(figure, f"{words[0].upper()}{words[1:]}.")


def _runs(counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """Where each stretch of equal counts begins and ends, and the count."""
    starts = [n for n in range(len(counts)) if n == 0 or counts[n] != counts[n - 1]]
    return [(first, end, counts[first]) for first, end in zip(starts, [*starts[1:], len(counts)], strict=True)]


def _columns(first: int, end: int) -> str:
    return f"column {first:,}" if end == first + 1 else f"columns {first:,} to {end - 1:,}"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def grid(n_rows: int, n_cols: int) -> Picture:
    """A matrix of n_rows × n_cols, its elements numbered as they lie in memory, and one program over each row.

    Raises ValueError for more than 32 rows or columns.
    """
    refuse_below_one(n_rows=n_rows, n_cols=n_cols)
    if max(n_rows, n_cols) > _MOST_ROWS:
        raise ValueError(
            f"draw.grid draws at most {_MOST_ROWS} rows and {_MOST_ROWS} columns; these are {n_rows} and {n_cols}."
        )
    cell, words = min(0.5, 8 / n_cols), 1.6
    figure, axes = _figure(words + cell * n_cols, 0.3 + 0.5 * n_rows)
    for row in range(n_rows):
        for col in range(n_cols):
            axes.add_patch(Rectangle((col, row), 0.94, 0.8, facecolor=SKY, edgecolor=BLACK, alpha=0.9))
            at, number = (col + 0.47, row + 0.4), str(row * n_cols + col)
            axes.text(*at, number, ha="center", va="center", color=BLACK, fontsize=18 * cell)
        left = -0.12 / cell
        axes.text(left, row + 0.24, f"program {row}", ha="right", va="center", color=BLACK, fontsize=10)
        axes.text(left, row + 0.6, f"x_ptr + {row} · stride →", ha="right", va="center", color=BLACK, fontsize=9)
    axes.set(xlim=(-words / cell, n_cols), ylim=(n_rows, -0.1))
    axes.axis("off")
    size = f"{counted(n_rows, 'row')} and {counted(n_cols, 'column')}"
    begins = "program i works on row i, which starts at x_ptr + i · stride"
    return Picture(figure, f"A matrix of {size}; {begins}. Its elements are numbered from 0 to {n_rows * n_cols - 1}.")


def passes(n_cols: int, BLOCK: int, passes: Sequence[str]) -> Picture:
    """A row cut into tiles of BLOCK, once for each pass over it, numbered in the order of their loads.

    Raises ValueError for a row without columns, a tile without lanes, and no passes.
    """
    refuse_below_one(n_cols=n_cols, BLOCK=BLOCK)
    if not passes:
        raise ValueError('there is nothing to draw: give at least one pass, as in passes=("maximum",).')
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
    masked = f", {_last_lanes(overhang)} masked off" if overhang else ""
    tiles = f"A row of {counted(n_cols, 'column')} in {counted(n_tiles, 'tile')} of {BLOCK:,}{masked}"
    return Picture(figure, f"{tiles}, gone through for {', then '.join(passes)}.")


def memory(gbps: Mapping[str, float], *, inside: bool = True) -> Picture:
    """Where the numbers of an H200 live: registers, shared memory and L1, L2, DRAM, with their sizes and speeds.

    `gbps` has what each of "registers", "L1", "L2" and "DRAM" moves, in GB/s of the whole GPU. With `inside` also one
    multiprocessor (SM) with its four parts, a program in it, and its warps. Sizes: CUDA's device properties, and for
    DRAM the data sheet of the H200.
    """
    figure, axes = _figure(7.5, 4.6 if inside else 3.0)
    levels = {
        "registers": ("a program computes here", "132 × 256 kB", SKY, 5.2),
        "L1": ("shared memory and L1, one in each SM", "132 × 256 kB", GREEN, 6.0),
        "L2": ("L2 cache, one for all SMs", "60 MB", ORANGE, 7.6),
        "DRAM": ("DRAM: your tensors", "141 GB", VERMILION, 10.0),
    }
    for level, (name, (words, size, color, width)) in enumerate(reversed(levels.items())):
        axes.add_patch(Rectangle((5 - width / 2, level), width, 0.72, facecolor=color, edgecolor=BLACK, alpha=0.45))
        speed = f", {gbps[name] / 1000:,.1f} TB/s"
        axes.text(5, level + 0.5, f"{words}", ha="center", va="center", color=BLACK, fontsize=10)
        label = "registers: " if name == "registers" else ""
        axes.text(5, level + 0.2, f"{label}{size}{speed}", ha="center", va="center", color=BLACK, fontsize=9)
        if level:
            _arrow(axes, (5, level - 0.28), (5, level), both=True)
    if inside:
        _draw_multiprocessor(axes, bottom=4.1)
    axes.set(xlim=(-0.1, 10.1), ylim=(-0.1, 6.4 if inside else 3.9))
    axes.axis("off")
    listed = [f"{words}, {size}, {gbps[name] / 1000:,.1f} TB/s" for name, (words, size, _, _) in levels.items()]
    above = "One of 132 SMs, in four parts, each with registers of its own; from" if inside else "From"
    return Picture(figure, f"{above} top to bottom: {'; '.join(listed)}.")


def _draw_multiprocessor(axes: object, bottom: float) -> None:
    """One SM in four parts, with a program of eight warps that lies in all of them."""
    axes.text(5, bottom + 2.05, "one of 132 multiprocessors (SMs)", ha="center", color=BLACK, fontsize=10)
    axes.add_patch(Rectangle((0.3, bottom), 9.4, 1.95, facecolor="white", edgecolor=BLACK))
    for part in range(4):
        left = 0.5 + 2.3 * part
        axes.add_patch(Rectangle((left, bottom + 0.12), 2.1, 1.7, facecolor=SKY, edgecolor=BLACK, alpha=0.3))
        words = f"part {part + 1}: 16,384 registers,\nan instruction a cycle"
        axes.text(left + 1.05, bottom + 0.4, words, ha="center", va="center", color=BLACK, fontsize=8)
        for warp in range(2):
            at = left + 0.1 + warp
            axes.add_patch(Rectangle((at, bottom + 0.85), 0.9, 0.6, facecolor=ORANGE, edgecolor=BLACK, alpha=0.6))
            axes.text(at + 0.45, bottom + 1.15, f"warp {part + 4 * warp}", ha="center", va="center", fontsize=8)
    box = {"facecolor": "none", "edgecolor": VERMILION, "linewidth": 1.5, "linestyle": "--"}
    axes.add_patch(Rectangle((0.55, bottom + 0.75), 9.0, 0.95, **box))
    axes.text(5, bottom + 1.56, "one program of 8 warps", ha="center", va="center", color=BLACK, fontsize=8)


def two_launches(parts: int) -> Picture:
    """A row shared by `parts` programs in two launches: pairs go through a buffer, and every slice is loaded twice.

    Raises ValueError for less than one part and more than 8.
    """
    _refuse_parts(parts)
    figure, axes = _figure(2.4 + 1.5 * parts, 4.2)
    levels = {"x, in memory": 4, "launch 1": 3, "buffer, in memory": 2, "launch 2": 1, "y, in memory": 0}
    for part in range(parts):
        for name, level, text, color in (
            ("x", 4, f"slice {part}", SKY), ("p", 3, f"program {part}", "white"), ("b", 2, f"m{part}, l{part}", ORANGE),
            ("q", 1, f"program {part}", "white"), ("y", 0, f"slice {part}", SKY),
        ):  # fmt: skip
            _box(axes, part, level, text, color, narrow=name in "pb")
        _arrow(axes, (part + 0.35, 4), (part + 0.35, 3.5))
        _arrow(axes, (part + 0.35, 3), (part + 0.35, 2.5), VERMILION)
        for other in range(parts):
            _arrow(axes, (other + 0.35, 2), (part + 0.35, 1.5), VERMILION)
        _arrow(axes, (part + 0.82, 4), (part + 0.82, 1.5), BLUE)
        _arrow(axes, (part + 0.35, 1), (part + 0.35, 0.5))
    _levels(axes, levels, parts)
    return Picture(
        figure,
        f"Two launches over a row in {counted(parts, 'slice')}. In the first each program loads its slice and stores "
        "its pair (m, l) in a buffer; in the second each loads all pairs and its slice again, and stores the result.",
    )


def one_launch(parts: int) -> Picture:
    """A row shared by `parts` programs in one launch: each keeps its slice and waits for the words of the others.

    Raises ValueError for less than one part and more than 8.
    """
    _refuse_parts(parts)
    figure, axes = _figure(2.4 + 1.5 * parts, 3.6)
    levels = {"x, in memory": 3, "one launch": 2, "words, in memory": 1, "y, in memory": 0}
    for part in range(parts):
        _box(axes, part, 3, f"slice {part}", SKY)
        _box(axes, part, 2, f"program {part}\nholds slice {part}", "white")
        _box(axes, part, 1, f"m{part} l{part}", ORANGE, narrow=True)
        _box(axes, part, 0, f"slice {part}", SKY)
        _arrow(axes, (part + 0.35, 3), (part + 0.35, 2.5))
        _arrow(axes, (part + 0.25, 2), (part + 0.25, 1.5), VERMILION)
        _arrow(axes, (part + 0.45, 1.5), (min(2, parts - 1) + 0.45, 2), BLUE)
        _arrow(axes, (part + 0.82, 2), (part + 0.82, 0.5))
    _levels(axes, levels, parts)
    return Picture(
        figure,
        f"One launch over a row in {counted(parts, 'slice')}. Each program loads its slice once, keeps it in "
        "registers, publishes its pair (m, l) as one word, waits until all words of the row are there, and stores the "
        f"result. The looks are drawn for program {min(2, parts - 1)} alone.",
    )


def score_tiles(queries: int, keys: int, BLOCK_M: int, BLOCK_N: int, *, causal: bool = False) -> Picture:
    """The scores of attention as a matrix that is never stored: a band of BLOCK_M queries for each program, cut into
    tiles of BLOCK_N keys. With `causal`, a query sees the keys up to its own number, and some tiles are never loaded.

    Raises ValueError for a number below 1, and for more than 64 tiles in a row or a column.
    """
    refuse_below_one(queries=queries, keys=keys, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    rows, columns = math.ceil(queries / BLOCK_M), math.ceil(keys / BLOCK_N)
    if max(rows, columns) > _MOST_TILES:
        raise ValueError(
            f"{rows} × {columns} tiles are too many to draw: use at most {_MOST_TILES} in a row or column."
        )
    figure, axes = _figure(6.4, 1.2 + min(3.6, 0.7 * rows))
    kinds = {"every key is seen": (SKY, ""), "masked in part": (ORANGE, "//"), "never loaded": ("white", "")}
    drawn = dict.fromkeys(kinds, 0)
    for row in range(rows):
        for column in range(columns):
            first, last = row * BLOCK_M, min(queries, (row + 1) * BLOCK_M) - 1
            start, end = column * BLOCK_N, min(keys, (column + 1) * BLOCK_N)
            kind = "every key is seen"
            if causal and end - 1 > first:
                kind = "masked in part" if start <= last else "never loaded"
            color, hatch = kinds[kind]
            axes.add_patch(
                Rectangle((start, first), end - start, last + 1 - first, facecolor=color, edgecolor=BLACK, hatch=hatch,
                          alpha=0.6, label=None if drawn[kind] else kind)
            )  # fmt: skip
            drawn[kind] += 1
        axes.text(-keys / 60, (first + last + 1) / 2, f"program {row}", ha="right", va="center", color=BLACK)
    axes.set(xlim=(0, keys), ylim=(queries, 0), yticks=[])
    middles = [min(keys, start + BLOCK_N / 2) for start in range(0, keys, BLOCK_N)]
    axes.set_xticks(middles, map(str, range(columns)))
    axes.tick_params(length=0)
    axes.set_xlabel(f"tiles of {BLOCK_N:,} keys")
    axes.spines[:].set_visible(False)
    if causal:
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    bands = f"The scores of {queries:,} queries and {keys:,} keys: {counted(rows, 'program')} of {BLOCK_M:,} queries, "
    bands += f"each with {counted(columns, 'tile')} of {BLOCK_N:,} keys"
    seen = ", ".join(f"{number} {kind}" for kind, number in drawn.items())
    return Picture(figure, f"{bands}{f'; causal, of all tiles: {seen}' if causal else ''}.")


def tensor_core() -> Picture:
    """What `tl.dot` becomes: tiles in registers or shared memory, cut into the small products of a tensor core."""
    figure, axes = _figure(7.5, 2.9)
    for left, bottom, width, height, color, name in (
        (0.0, 0.0, 1.6, 2.4, SKY, "q: 64 × 64"), (3.0, 0.8, 3.2, 1.6, GREEN, "kᵀ: 64 × 128"),
        (7.6, 0.0, 3.2, 2.4, ORANGE, "scores: 64 × 128"),
    ):  # fmt: skip
        axes.add_patch(Rectangle((left, bottom), width, height, facecolor=color, edgecolor=BLACK, alpha=0.4))
        axes.text(left + width / 2, bottom + height + 0.1, name, ha="center", color=BLACK, fontsize=9)
    for left, bottom, width, height in ((0.0, 1.2, 0.4, 0.6), (3.8, 2.0, 0.4, 0.4), (8.4, 1.2, 0.4, 0.6)):
        axes.add_patch(Rectangle((left, bottom), width, height, facecolor=VERMILION, edgecolor=BLACK, alpha=0.9))
    for at, sign in ((2.3, "×"), (6.9, "="), (11.3, "")):
        axes.text(at, 1.2, sign, ha="center", va="center", color=BLACK, fontsize=16)
    words = "one step of a tensor core: small tiles, multiplied and added to the scores in float32"
    axes.text(5.4, -0.45, words, ha="center", va="center", color=BLACK, fontsize=9)
    axes.set(xlim=(-0.1, 11.2), ylim=(-0.7, 2.9))
    axes.axis("off")
    return Picture(
        figure,
        "A tile of 64 queries times a tile of 128 keys, turned over, gives a tile of 64 × 128 scores. A tensor core "
        "multiplies small tiles of both in one step, and adds the product to a small tile of the scores in float32.",
    )


def limits(memory: float, instructions: float, turns: int, alone: Mapping[str, float]) -> Picture:
    """The limits of a launch as three bars, in microseconds: the launch takes as long as the longest.

    The third bar has one stretch for each of the `turns`, and in it what a program that is `alone` does, one after
    the other. Raises ValueError for less than one turn, and for a time that is not above 0.
    """
    refuse_below_one(turns=turns)
    if not alone or not all(us > 0 for us in (memory, instructions, *alone.values())):
        raise ValueError(f"limits draws times above 0; these are {memory}, {instructions} and {dict(alone)}.")
    one_turn = sum(alone.values())
    ends = {"memory": memory, "instructions": instructions, "turns": turns * one_turn}
    longest = max(ends, key=ends.__getitem__)
    figure, axes = _figure(7.5, 2.3)
    axes.barh(0, memory, color=VERMILION, alpha=0.6, edgecolor=BLACK, height=0.62)
    axes.barh(1, instructions, color=GREEN, alpha=0.6, edgecolor=BLACK, height=0.62)
    for turn in range(turns):
        left = turn * one_turn
        for (name, us), color in zip(alone.items(), (SKY, GREEN, "#EEEEEE"), strict=False):
            axes.barh(2, us, left=left, color=color, alpha=0.6, height=0.62)
            axes.text(left + us / 2, 2, name, ha="center", va="center", color=BLACK, fontsize=8)
            left += us
        axes.barh(2, one_turn, left=turn * one_turn, color="none", edgecolor=BLACK, height=0.62)
        axes.text((turn + 0.5) * one_turn, 2.5, f"turn {turn + 1}", ha="center", va="center", color=BLACK, fontsize=8)
    for line, (name, us) in enumerate(ends.items()):
        words = f"{us:g} µs{': the longest' if name == longest else ''}"
        axes.text(us + 0.01 * ends[longest], line, words, va="center", color=BLACK)
    axes.set_yticks(range(3), list(ends))
    axes.set(xlim=(0, 1.25 * ends[longest]), ylim=(2.7, -0.5), xticks=[])
    axes.spines["bottom"].set_visible(False)
    parts = ", ".join(f"{name} {us:g}" for name, us in alone.items())
    said = (
        f"memory {memory:g} µs, instructions {instructions:g} µs, {counted(turns, 'turn')} of {one_turn:g} µs ({parts})"
    )
    return Picture(figure, f"Three limits of a launch: {said}. It takes as long as the longest: {longest}.")


def variants() -> Picture:
    """Which program works on which rows, in four small matrices: one for each variant that holds a tile at a time."""
    panels = {
        "single tile": ([[0], [1], [2], [3]], "one row a program"),
        "several rows": ([[0], [0], [1], [1]], "several rows a program, at once"),
        "split row": ([[0, 1, 2, 3], [4, 5, 6, 7]], "several programs a row"),
        "persistent": ([[0], [1], [0], [1]], "a program takes row after row"),
    }
    figure = Figure(figsize=(7.5, 1.9), layout="constrained")
    for axes, (name, (rows, words)) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        height = 1 / len(rows)
        for row, programs in enumerate(rows):
            width = 1 / len(programs)
            for part, program in enumerate(programs):
                left, top, color = part * width, row * height, (SKY, ORANGE, GREEN, PURPLE)[program % 4]
                box = {"facecolor": color, "edgecolor": BLACK, "alpha": 0.6}
                axes.add_patch(Rectangle((left, top), width, 0.92 * height, **box))
                middle = left + width / 2, top + 0.46 * height
                label = f"program {program}" if width == 1 else str(program)
                axes.text(*middle, label, ha="center", va="center", color=BLACK, fontsize=10)
        axes.set_title(name, fontsize=10, color=BLACK)
        axes.text(0.5, 1.08, words, ha="center", va="center", color=BLACK, fontsize=8)
        axes.set(xlim=(-0.02, 1.02), ylim=(1.15, -0.02))
        axes.axis("off")
    said = "; ".join(f"{name}, {words}" for name, (_, words) in panels.items())
    return Picture(figure, f"Which program works on which rows of a matrix: {said}.")


def _refuse_parts(parts: int) -> None:
    if not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"parts must be between 1 and {_MOST_PARTS}, or the picture is too wide; it is {parts}.")


def _box(axes: object, part: int, level: int, text: str, color: str, narrow: bool = False) -> None:
    width = 0.7 if narrow else 0.92
    axes.add_patch(Rectangle((part, level), width, 0.5, facecolor=color, edgecolor=BLACK))
    axes.text(part + width / 2, level + 0.25, text, ha="center", va="center", color=BLACK, fontsize=9)


def _arrow(
    axes: object, start: tuple[float, float], end: tuple[float, float], color: str = BLACK, both: bool = False
) -> None:
    style = {"arrowstyle": "<|-|>" if both else "-|>", "color": color, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, xytext=start, arrowprops=style)


def _levels(axes: object, levels: Mapping[str, int], parts: int) -> None:
    """Writes the name of each level of a picture on its left."""
    for name, level in levels.items():
        axes.text(-0.15, level + 0.25, name, ha="right", va="center", color=BLACK, fontsize=10)
    axes.set(xlim=(-1.4, parts + 0.1), ylim=(-0.15, max(levels.values()) + 0.65))
    axes.axis("off")


def steps(x: Sequence[float], BLOCK: int) -> list[tuple[float, float, float]]:
    """The online recurrence over x, block by block: after each block (m, l, the factor that rescaled the old l).

    Raises ValueError for an x without elements and for a BLOCK below 1.
    """
    refuse_below_one(BLOCK=BLOCK)
    row = torch.as_tensor(x, dtype=torch.float64)
    if not len(row):
        raise ValueError("x must hold at least one number; it is empty.")
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
    """The row as stems, cut into blocks, with m, the rescale factor and l written under each block.

    An element of −inf is an arrow that leaves the picture. Raises ValueError for +inf, NaN and an x without elements.
    """
    states = steps(x, BLOCK)
    row = [float(value) for value in x]
    if any(math.isnan(value) or value == math.inf for value in row):
        raise ValueError("draw.trace draws finite numbers and −inf; x holds +inf or NaN.")
    finite = {index: value for index, value in enumerate(row) if value != -math.inf}
    low, high = min([0.0, *finite.values()]), max([0.0, *finite.values()])
    span = high - low or 1.0
    figure, axes = _figure(max(6.5, 0.8 * len(row)), 3.7)
    axes.axhline(0, color=BLACK, linewidth=0.6)
    axes.vlines(list(finite), 0, list(finite.values()), color=BLUE, linewidth=2)
    axes.plot(list(finite), list(finite.values()), "o", color=BLUE)
    bottom = low - 0.1 * span
    for index, value in enumerate(row):
        if index not in finite:
            arrow = {"arrowstyle": "-|>", "color": BLUE, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (index, bottom), xytext=(index, 0), arrowprops=arrow)
        words = {"xytext": (6, 3), "textcoords": "offset points", "color": BLACK}
        axes.annotate(f"{value:g}" if index in finite else "−inf", (index, finite.get(index, 0)), **words)
    described, label = [], "m so far"
    for block, (m, l, factor) in enumerate(states):
        first, last = block * BLOCK - 0.5, min(len(row), (block + 1) * BLOCK) - 0.5
        if block:
            axes.axvline(first, color="#888888", linestyle=":")
        if m != -math.inf:
            axes.plot([first + 0.1, last - 0.1], [m, m], color=VERMILION, linestyle="--", label=label)
            label = None
        lines = [f"m = {_number(m)}", f"old l × {factor:.3g}" if block else "no old l", f"l = {l:.4g}"]
        described.append(f"block {block + 1}: {', '.join(lines)}")
        text = "\n".join([f"block {block + 1}", *lines])
        axes.text((first + last) / 2, bottom - 0.05 * span, text, ha="center", va="top", color=BLACK, fontsize=10)
    axes.set(xlim=(-0.6, len(row) - 0.4), ylim=(bottom - 0.55 * span, high + 0.15 * span), xticks=[], yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    if finite:
        axes.legend(frameon=False, loc="upper left")
    return Picture(figure, f"The row in blocks of {BLOCK}: {'; '.join(described)}.")


def _apart(n: int, lengths: Sequence[int]) -> bool:
    """True where half an octave around n is free of other row lengths, so that its label has room."""
    return all(abs(math.log2(n / other)) > 0.5 for other in lengths if other != n)


def _line(index: int) -> dict[str, str]:
    """Colour, style and marker of the line number `index`; 49 lines pass before a combination comes again."""
    turn = index + 2 * (index // len(_COLORS))
    return {
        "color": _COLORS[index % len(_COLORS)],
        "linestyle": _STYLES[turn % len(_STYLES)],
        "marker": _MARKERS[turn % len(_MARKERS)],
    }


def _places(variants: Sequence[str]) -> list[tuple[int, str]]:
    """Numbers the variants so that one that the course knows has the same line in every figure.

    torch.compile shares its colour with two-pass: no lesson draws both.
    """
    known = (
        "torch.softmax", "single tile", "two-pass", "online", "eager", "yours", "helpers.softmax", "persistent",
        "several rows", "torch.compile",
    )  # fmt: skip
    others = [variant for variant in variants if variant not in known]
    order = [*known, *others]
    return [(order.index(variant), variant) for variant in variants]


def bandwidth(comparison: Comparison) -> Picture:
    """Useful GB/s against row length, one line per variant, under the roof that a copy of the same bytes sets.

    Raises TypeError for anything but a comparison, and ValueError for one without rows.
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(f"draw.bandwidth draws what timing.compare returns; it is {comparison!r}.")
    if not comparison.rows:
        names = f" for {', '.join(comparison.missing)}" if comparison.missing else ""
        raise ValueError(f"there is nothing to draw: the comparison has no rows{names}. On a GPU they are measured.")
    figure, axes = _figure(7.5, 4.0)
    roof = {row.n_cols: row.useful_gbps * row.median_ms / row.copy_ms for row in comparison.rows}
    axes.plot(list(roof), list(roof.values()), color=BLACK, linewidth=3, alpha=0.35, label="copy of the same bytes")
    for index, variant in _places(comparison.variants):
        rows = [row for row in comparison.rows if row.variant == variant]
        axes.plot(
            [row.n_cols for row in rows], [row.useful_gbps for row in rows], **_line(index), markersize=5, label=variant
        )
    axes.set_xscale("log", base=2)
    lengths = sorted(roof)
    labelled = [n for n in lengths if n & (n - 1) == 0 or _apart(n, lengths)]
    axes.set_xticks(labelled, [f"{n:,}" for n in labelled], rotation=45, ha="right", fontsize=9)
    axes.minorticks_off()
    axes.set(xlabel="columns", ylabel="useful GB/s: (input + output) / time", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="#DDDDDD")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_title(f"{comparison.rows[0].dtype}, {comparison.origin}", fontsize=8, color=BLACK, loc="left")
    longest = [row for row in comparison.rows if row.n_cols == lengths[-1]]
    words = ", ".join(f"{row.variant} {row.of_copy:.2f}" for row in longest)
    drawn = f"Useful bandwidth{comparison.in_dtype} against row length under the roof of a copy."
    return Picture(figure, f"{drawn} At {lengths[-1]:,} columns, of copy: {words}.")


def speedups(steps: Mapping[str, float], origin: str = "") -> Picture:
    """A bar for each step of a repair, as long as the kernel is said to be times as fast, on a logarithmic axis from 1.

    Raises ValueError for a speed-up that is not above 0, and where there are none.
    """
    if not steps or not all(times > 0 for times in steps.values()):
        raise ValueError(f"speedups draws numbers above 0 by name; these are {dict(steps)!r}.")
    figure, axes = _figure(7.5, 0.9 + 0.42 * len(steps))
    last = len(steps) - 1
    for line, times in enumerate(steps.values()):
        honest = line == last
        axes.barh(
            line, times - 1, left=1, color=BLUE if honest else ORANGE, edgecolor="white", height=0.62,
            hatch=None if honest else "//",
        )  # fmt: skip
        axes.text(max(times, 1) * 1.03, line, f"{times:.2f} ×", va="center", color=BLACK)
    axes.axvline(1, color=BLACK, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yticks(range(len(steps)), list(steps))
    axes.invert_yaxis()
    axes.set_xlim(min(0.8, *steps.values()), max(steps.values()) * 1.5)
    ticks = [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500) if n <= max(steps.values()) * 1.5]
    axes.set_xticks(ticks, [f"{n} ×" for n in ticks])
    axes.minorticks_off()
    axes.set_xlabel("said to be times as fast as torch.softmax")
    axes.set_title(origin, fontsize=8, color=BLACK, loc="left")
    words = "; ".join(f"{name} {times:.2f}" for name, times in steps.items())
    return Picture(figure, f"How many times as fast the kernel is said to be, step by step: {words}.")


def choice(
    n_cols: int,
    BLOCK: int,
    *,
    rows: int = 1,
    rows_held: int = 1,
    tiling: str = "",
    gbps: Mapping[str, float | None] | None = None,
    copy_gbps: float | None = None,
    marks: Mapping[str, Sequence[str]] | None = None,
    origin: str = "",
) -> Picture:
    """A row of n_cols cut into tiles of BLOCK lanes and, where speeds were measured, these under that of a copy.

    A tile has `rows` rows, of which `rows_held` hold one of the matrix; `tiling` describes the drawing in words. A
    speed is None where nothing was measured, and its `marks` stand after it. Raises ValueError for a row without
    columns and for a tile without lanes.
    """
    refuse_below_one(n_cols=n_cols, BLOCK=BLOCK, rows=rows, rows_held=rows_held)
    n_tiles = -(-n_cols // BLOCK)
    tiling = tiling or f"A row of {counted(n_cols, 'column')} in {counted(n_tiles, 'tile')} of {BLOCK:,}"
    gbps, marks = gbps or {}, marks or {}
    speeds_height = 0.26 * len(gbps)
    figure = Figure(figsize=(7.5, height := 1.1 + speeds_height + 0.35 * bool(gbps)))
    row = figure.add_axes((0.02, 1 - 0.78 / height, 0.96, 0.45 / height))
    _draw_row(row, n_cols, BLOCK, rows, rows_held)
    row.set_title(tiling, fontsize=10, color=BLACK, loc="left")
    said = [tiling]
    if gbps:
        _draw_speeds(figure.add_axes((0.17, 0.3 / height, 0.81, speeds_height / height)), gbps, copy_gbps, marks)
        roof = [] if copy_gbps is None else [f"a copy of the same bytes {copy_gbps:,.0f} GB/s"]
        said.append("; ".join([f"{name} {_speed(name, gbps, marks)}" for name in gbps] + roof))
    figure.text(0.02, 0.08 / height, origin, fontsize=8, color=BLACK)
    return Picture(figure, f"{'. '.join(said)}.")


def _draw_row(axes: object, n_cols: int, BLOCK: int, rows: int, rows_held: int) -> None:
    n_tiles = -(-n_cols // BLOCK)
    axes.add_patch(Rectangle((0, 0), n_tiles, 1, facecolor="white", edgecolor="#888888", hatch="///", linewidth=0))
    axes.add_patch(Rectangle((0, 0), n_cols / BLOCK, rows_held / rows, facecolor=SKY))
    if n_tiles <= _MOST_TILES:
        axes.vlines(range(1, n_tiles), 0, 1, color=BLACK, linewidth=0.8)
    axes.add_patch(Rectangle((0, 0), n_tiles, 1, facecolor="none", edgecolor=BLACK, clip_on=False))
    axes.set(xlim=(0, n_tiles), ylim=(1, 0))
    axes.axis("off")


def _draw_speeds(
    axes: object, gbps: Mapping[str, float | None], copy_gbps: float | None, marks: Mapping[str, Sequence[str]]
) -> None:
    top = max(copy_gbps or 0, *(speed or 0 for speed in gbps.values())) or 1
    for line, (name, speed) in enumerate(gbps.items()):
        chosen, course = "choice" in marks.get(name, ()), name not in ("torch.softmax", "eager")
        color = BLUE if chosen else SKY if course else ORANGE
        axes.barh(line, speed or 0, color=color, edgecolor="white", hatch=None if course else "//", height=0.66)
        axes.text(1.02 * top, line, _speed(name, gbps, marks), va="center", color=BLACK, fontsize=10)
    if copy_gbps is not None:
        axes.axvline(copy_gbps, color=BLACK, linewidth=1.5)
        words = f"a copy: {copy_gbps:,.0f} GB/s"
        axes.text(copy_gbps, -0.65, words, ha="right", va="bottom", color=BLACK, fontsize=9)
    axes.set_yticks(range(len(gbps)), list(gbps))
    axes.set(xlim=(0, 1.65 * top), ylim=(len(gbps) - 0.5, -0.6), xticks=[])
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _speed(name: str, gbps: Mapping[str, float | None], marks: Mapping[str, Sequence[str]]) -> str:
    speed = "not timed here" if gbps[name] is None else f"{gbps[name]:,.0f} GB/s"
    return ", ".join([speed, *marks.get(name, ())])
