"""The tables of speeds in README and softmax/SPEED.md, from the records: run `python -m helpers.measure.speeds`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers import recorded
from helpers.measure.losses import READING
from helpers.recorded.valid import folder_of_gpu

README = Path(__file__).parents[2] / "README.md"
SPEED = Path(__file__).parents[1] / "softmax" / "SPEED.md"

IN_SHORT = {
    "`softmax`, rows of 256": "`softmax`, rows of 256 columns and more",
    "`softmax`, 1 to 8 rows": "`softmax`, 1 to 8 rows of a million columns",
    "`softmax` over another": "`softmax` over another dimension",
    "gradient, rows": "gradient of `softmax`, rows",
    "`cross_entropy` and gradient, 200": "`cross_entropy` with its gradient",
    "loss alone, 200": "`cross_entropy` alone",
}
"""The beginnings of the lines that README's short table shows, and what it calls them."""

TIMED_AS = {
    "ours": ("helpers.softmax",),
    "torch": ("torch.softmax", "torch"),
    "compile": ("torch.compile",),
    "Liger": ("Liger",),
    "QuACK": ("QuACK",),
    "cluster": ("cluster",),
}
"""The columns of a table, and the names that records have for them."""

READ_TWICE = "dim 0 of 131072 × 512"
"""The layout with a line of its own: its columns are read twice."""

CHANNELS_LAST, AS_MANY_BYTES = "channels of 16 × 64 × 256 × 256, channels_last", "dim 0 of 4096 × 16384"
"""A layout whose copy is slow, because it moves every element elsewhere; and one whose plain copy moves its bytes."""

MANY_LOGITS, FEW_LOSSES = 200_000_000, 256
"""The fewest logits of a loss that are many, and the most rows of one that are few."""

_OURS_AND_TORCHS = ("helpers.softmax", "torch.softmax")
_CALLS = {
    "forward": "forward",
    "forward for a gradient": "forward, where x requires a gradient",
    "forward and gradient": "forward and gradient",
}
"""What a record calls the calls that it times, and what a table calls them."""

_DASH = "–\N{WORD JOINER}"
"""Between the ends of a range, which stay on one line, however narrow the page."""

_BLOCK = re.compile(r"<!-- speeds: ([^\n]+?) -->\n.*?(?=<!-- end -->)", re.DOTALL)

_SHORT = ", in short"

_Row = Mapping[str, Any]


class Speed(NamedTuple):
    """A recorded time, as README counts it: the least time, which is that of the bytes that have to be moved, over it.

    `line` says in words which line of the table it belongs to, `shape` what was timed, and `whose` it is.
    """

    line: str
    shape: tuple
    whose: str
    least_ms: float
    ms: float


def speeds_of(softmax: _Row, gradients: _Row, loss: _Row, plan: _Row | None = None) -> list[Speed]:
    """The speeds that records of one GPU hold, line by line. Short rows are in the last of these records alone."""
    rows, gradient = softmax["softmax"], gradients["gradient"]
    short = list(_planned(plan["plans"])) if plan else []
    return [
        *_in_copies(f"`softmax`, rows of {_range_of(rows, 'n_cols')}", rows),
        *_in_copies(f"`softmax`, rows of {_range_of(short, 'n_cols')}", short),
        *_of_few_rows([*softmax["few_rows"], *gradients["few_rows"]]),
        *_of_dimensions("`softmax`", gradients["dimensions"], "forward", 1),
        *_in_copies(f"gradient, rows of {_range_of(gradient, 'n_cols')}", gradient, 1.5),
        *_of_dimensions("gradient", gradients["dimensions"], "gradient", 1.5),
        *_of_losses(loss["losses"]),
        *_of_images(loss.get("images", ())),
    ]


def _planned(plans: Iterable[Sequence]) -> Iterator[_Row]:
    """Of rows shorter than the others' the launches that are planned, the first ones, in the form of other records."""
    for dtype, n_rows, n_cols, copy_us, launches in plans:
        if n_cols < 256:
            shape = {"dtype": dtype, "n_rows": n_rows, "n_cols": n_cols}
            yield shape | {"variant": "helpers.softmax", "copy_ms": copy_us / 1e3, "median_ms": launches[0][1] / 1e3}


def _of_few_rows(rows: Sequence[_Row]) -> Iterator[Speed]:
    for n_cols in sorted({row["n_cols"] for row in rows}):
        alike = [row for row in rows if row["n_cols"] == n_cols]
        yield from _in_copies(f"`softmax`, {_range_of(alike, 'n_rows')} rows of {n_cols:,}", _by_one_copy(alike))


def _of_dimensions(name: str, rows: Iterable[_Row], direction: str, copies: float) -> Iterator[Speed]:
    rows = [row for row in rows if row["direction"] == direction]
    plain = {row["dtype"]: row["copy_ms"] for row in rows if row["layout"] == AS_MANY_BYTES}
    for row in rows:
        over = "131,072 rows of 512" if row["layout"] == READ_TWICE else "another dimension"
        copy_ms = plain[row["dtype"]] if row["layout"] == CHANNELS_LAST else row["copy_ms"]
        yield from _in_copies(f"{name} over {over}", [{**row, "copy_ms": copy_ms}], copies)


def _of_losses(rows: Sequence[_Row]) -> Iterator[Speed]:
    for name, which in (("`cross_entropy` and gradient", "loss and gradient"), ("loss alone", "loss alone")):
        by_size: dict[str, list[_Row]] = {"many": [], "fewer": [], "few rows": []}
        for row in rows:
            if row["pass"] == which:
                by_size[_size(row)].append(row)
        fewer, few = by_size["fewer"], by_size["few rows"]
        in_words = {
            "many": f"{MANY_LOGITS // 10**6} million logits and more",
            "fewer": f"{_range_of(fewer, 'n_rows')} rows of {_range_of(fewer, 'n_cols')}{_in_dtype(fewer)}",
            "few rows": f"{_range_of(few, 'n_rows')} rows{_in_dtype(few)}",
        }
        for size, alike in by_size.items():
            if which == "loss alone":
                alike = _by_reading(alike)
            elif size == "few rows":
                alike = _by_one_copy(alike)
            yield from _in_copies(f"{name}, {in_words[size]}", alike)


def _of_images(rows: Sequence[_Row]) -> Iterator[Speed]:
    training, alone = ([row for row in rows if row["pass"] == which] for which in ("loss and gradient", "loss alone"))
    yield from _in_copies("`cross_entropy` and gradient, images", training)
    yield from _in_copies("loss alone, images", _by_reading(alone))


def _size(row: _Row) -> str:
    if row["n_rows"] <= FEW_LOSSES:
        return "few rows"
    return "many" if row["n_rows"] * row["n_cols"] >= MANY_LOGITS else "fewer"


def _by_one_copy(rows: Sequence[_Row]) -> list[_Row]:
    """The rows with one copy for each shape, the median of the copies that were timed with its contestants.

    Copies of few bytes, some 5 µs, differ from run to run by up to a third.
    """
    copies: dict[tuple, set[float]] = {}
    for row in rows:
        copies.setdefault(_shape(row), set()).add(row["copy_ms"])
    return [{**row, "copy_ms": statistics.median(copies[_shape(row)])} for row in rows]


def _by_reading(rows: Sequence[_Row]) -> list[_Row]:
    """The rows with the time of reading in place of a copy's."""
    reading = {_shape(row): row["median_ms"] for row in rows if row["variant"] == READING}
    return [{**row, "copy_ms": reading[_shape(row)]} for row in rows]


def _in_copies(line: str, rows: Iterable[_Row], copies: float = 1) -> Iterator[Speed]:
    for row in rows:
        yield Speed(line, _shape(row), row["variant"], copies * row["copy_ms"], row["median_ms"])


def _shape(row: _Row) -> tuple:
    return row["dtype"], *((row["layout"],) if "layout" in row else (row["n_rows"], row["n_cols"]))


def _range_of(rows: Iterable[_Row], field: str) -> str:
    return _range([row[field] for row in rows], "{:,}".format)


def _in_dtype(rows: Iterable[_Row]) -> str:
    dtypes = {row["dtype"] for row in rows}
    return f" in {dtypes.pop()}" if len(dtypes) == 1 else ""


def _range(numbers: Iterable[float], in_words: Callable[[float], str], between: str = " to ") -> str:
    """The least and the greatest number, or the one that both are; a dash for none."""
    numbers = sorted(numbers)
    return between.join(dict.fromkeys(map(in_words, (numbers[0], numbers[-1])))) if numbers else "–"


def _as_text(speed: float) -> str:
    return f"{speed:.2f}" if speed >= 0.01 else f"{speed:.1g}"


def table_of_speeds(speeds: Iterable[Speed], title: str = "", columns: Sequence[str] = tuple(TIMED_AS)) -> str:
    """The speeds in Markdown: a line for each `line`, and a column for each of these names of TIMED_AS."""
    by_line: dict[str, list[Speed]] = {}
    for speed in speeds:
        by_line.setdefault(speed.line, []).append(speed)
    rows = []
    for line, found in by_line.items():
        cells = ([speed.least_ms / speed.ms for speed in found if speed.whose in TIMED_AS[name]] for name in columns)
        rows.append([line, *(_range(cell, _as_text, _DASH) for cell in cells)])
    return _in_markdown([title, *columns], rows)


def _in_markdown(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *rows))


def others_ahead(speeds: Iterable[Speed]) -> str:
    """A sentence on how often another one of the table took less time than ours, and how much less."""
    shown = {name for names in TIMED_AS.values() for name in names}
    times: dict[tuple, dict[str, float]] = {}
    for speed in speeds:
        if speed.whose in shown:
            of_shape = times.setdefault((speed.line, speed.shape), {})
            of_shape[speed.whose] = min(speed.ms, of_shape.get(speed.whose, speed.ms))
    both = [(of.pop("helpers.softmax"), min(of.values())) for of in times.values() if {"helpers.softmax"} < of.keys()]
    saved = [1 - other / ours for ours, other in both if other < ours]
    less = f"in {len(saved)}, by {100 * max(saved):.1f} % at most" if saved else "in any"
    one = "one" if saved else "none"
    return f"Of {len(both)} cases in which another was timed, {one} took less time than ours {less}."


def table_of_calls(host: Sequence[_Row]) -> str:
    """Microseconds that a call takes Python, in Markdown, from the part of a record that has these times."""
    us: dict[tuple[str, str], list[float]] = {}
    for row in host:
        us.setdefault((row["variant"], row["what"]), []).append(row["us"])
    shapes = " and ".join(dict.fromkeys(f"{row['n_rows']:,} × {row['n_cols']:,}" for row in host))
    rows = (
        [in_words, *(_range(us[whose, what], "{:.1f}".format, _DASH) for whose in _OURS_AND_TORCHS)]
        for what, in_words in _CALLS.items()
    )
    return _in_markdown([f"µs of the CPU for a call, {shapes}", "ours", "torch"], rows)


def speeds_of_gpu(gpu: str) -> str:
    """All speeds of a GPU of this name: where its records are, its tables, and who is ahead in how many cases."""
    softmax, gradients, loss = (recorded.by_gpu(kind)[gpu] for kind in ("softmax", "gradients", "loss"))
    speeds = speeds_of(softmax, gradients, loss, recorded.by_gpu("plan").get(gpu))
    folder = f"../recorded/{folder_of_gpu(gpu)}"
    return (
        f"**One {gpu}** ([rows]({folder}/softmax.json), [gradients, dimensions, calls]({folder}/gradients.json), "
        f"[losses]({folder}/loss.json))\n\n{table_of_speeds(speeds)}\n\n"
        f"{others_ahead(speeds)}\n\n{table_of_calls(gradients['host'])}\n"
    )


def speeds_in_short(gpu: str) -> str:
    """The six lines of README about a GPU of this name."""
    softmax, gradients, loss = (recorded.by_gpu(kind)[gpu] for kind in ("softmax", "gradients", "loss"))
    speeds = [
        speed._replace(line=name)
        for speed in speeds_of(softmax, gradients, loss)
        for beginning, name in IN_SHORT.items()
        if speed.line.startswith(beginning)
    ]
    return f"{table_of_speeds(speeds, f'One {gpu}', list(TIMED_AS)[:-1])}\n"


def with_speeds(text: str) -> str:
    """The text with what the records say now, between each comment that names a GPU and the one that ends its part.

    The comment `<!-- speeds: GPU, in short -->` asks for README's table.

    Raises ValueError where a part has no end.
    """

    def part(found: re.Match[str]) -> str:
        gpu = found[1].removesuffix(_SHORT)
        said = speeds_in_short(gpu) if found[1].endswith(_SHORT) else speeds_of_gpu(gpu)
        return f"<!-- speeds: {found[1]} -->\n{said}"

    written, parts = _BLOCK.subn(part, text)
    if parts != text.count("<!-- speeds"):
        raise ValueError("each '<!-- speeds: GPU -->' needs a line of its own, and '<!-- end -->' after it.")
    return written


if __name__ == "__main__":
    for page in (README, SPEED):
        page.write_text(with_speeds(page.read_text(encoding="utf-8")), encoding="utf-8")
