"""README's tables of speeds, from the records: `python -m helpers.make.speeds` writes them again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from helpers import recorded
from helpers.make.losses import READING
from helpers.recorded.valid import folder_of_gpu

README = Path(__file__).parents[2] / "README.md"

TIMED_AS = {
    "ours": ("helpers.softmax",),
    "torch": ("torch.softmax", "torch"),
    "torch.compile": ("torch.compile",),
    "Liger": ("Liger",),
    "QuACK": ("QuACK",),
    "cluster": ("cluster",),
}
"""The columns of a table, and the names that records have for them."""

LAYOUTS_APART = {
    "dim 0 of 131072 × 512": "131,072 rows of 512",
    "channels of 16 × 64 × 256 × 256, channels_last": "channels_last",
}
"""Layouts that have a line of their own: columns that are read twice, and where a copy is slow itself."""

MANY_LOGITS, FEW_LOSSES = 200_000_000, 256
"""The fewest logits of a loss that are many, and the most rows of one that are few."""

_BLOCK = re.compile(r"<!-- speeds: (.+?) -->\n.*?(?=<!-- end -->)", re.DOTALL)

_Row = Mapping[str, Any]


class Line(NamedTuple):
    """A line of a table: in words what was timed and, for each recorded time, whose it is and its speed.

    A speed is the least time over the time. The least is that of the bytes that have to be moved.
    """

    what: str
    speeds: Sequence[tuple[str, float]]


def lines_of_speeds(softmax: _Row, gradients: _Row, loss: _Row) -> list[Line]:
    """The lines of the table of a GPU that has these records."""
    rows, gradient, few = softmax["softmax"], gradients["gradient"], gradients["few_rows"]
    few_in_words = f"`softmax` of {_range_of(few, 'n_rows')} rows of {_range_of(few, 'n_cols')}"
    return [
        Line(f"`softmax`, rows of {_range_of(rows, 'n_cols')}", _in_copies(rows)),
        Line(f"its gradient, rows of {_range_of(gradient, 'n_cols')}", _in_copies(gradient, 1.5)),
        Line(few_in_words, _in_copies(few)),
        *_lines_of_dimensions("`softmax`", gradients["dimensions"], "forward", 1),
        *_lines_of_dimensions("gradient", gradients["dimensions"], "gradient", 1.5),
        *_lines_of_losses(loss["losses"]),
    ]


def _lines_of_dimensions(name: str, rows: Iterable[_Row], direction: str, copies: float) -> Iterator[Line]:
    by_line: dict[str, list[_Row]] = {}
    for row in rows:
        if row["direction"] == direction:
            by_line.setdefault(LAYOUTS_APART.get(row["layout"], "another dimension"), []).append(row)
    for over, found in by_line.items():
        yield Line(f"{name} over {over}", _in_copies(found, copies))


def _lines_of_losses(rows: Iterable[_Row]) -> Iterator[Line]:
    rows = list(rows)
    reading = {_layout(row): row["median_ms"] for row in rows if row["variant"] == READING}
    for name, which, least in (
        ("`cross_entropy` with its gradient", "loss and gradient", lambda row: row["copy_ms"]),
        ("the loss alone", "loss alone", lambda row: reading[_layout(row)]),
    ):
        for size, part in _by_size([row for row in rows if row["pass"] == which]):
            yield Line(f"{name}, {size}", _speeds(part, least))


def _layout(row: _Row) -> tuple[str, int, int]:
    return row["dtype"], row["n_rows"], row["n_cols"]


def _by_size(rows: Sequence[_Row]) -> Iterator[tuple[str, list[_Row]]]:
    """Losses of many logits, of fewer, and of few rows, each after what they are in words."""
    few = [row for row in rows if row["n_rows"] <= FEW_LOSSES]
    many = [row for row in rows if row["n_rows"] * row["n_cols"] >= MANY_LOGITS]
    between = [row for row in rows if row not in few and row not in many]
    yield f"{MANY_LOGITS // 10**6} million logits and more", many
    yield f"{_range_of(between, 'n_rows')} rows of {_range_of(between, 'n_cols')}", between
    yield f"{_range_of(few, 'n_rows')} rows", few


def _in_copies(rows: Iterable[_Row], copies: float = 1) -> list[tuple[str, float]]:
    return _speeds(rows, lambda row: copies * row["copy_ms"])


def _speeds(rows: Iterable[_Row], least: Callable[[_Row], float]) -> list[tuple[str, float]]:
    return [(row["variant"], least(row) / row["median_ms"]) for row in rows]


def _range_of(rows: Iterable[_Row], field: str) -> str:
    return _range([row[field] for row in rows], ",")


def _range(numbers: Sequence[float], form: str) -> str:
    """The least and the greatest number, or the one that both are; a dash for none."""
    if not numbers:
        return "–"
    return " to ".join(dict.fromkeys(format(number, form) for number in (min(numbers), max(numbers))))


def table_of_speeds(lines: Iterable[Line]) -> str:
    """The lines in Markdown, with a column for each of TIMED_AS."""
    rows = [["", *TIMED_AS], ["---"] * (1 + len(TIMED_AS))]
    for line in lines:
        speeds = ([speed for variant, speed in line.speeds if variant in names] for names in TIMED_AS.values())
        rows.append([line.what, *(_range(found, ".2f") for found in speeds)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def time_of_a_call(host: Iterable[_Row]) -> str:
    """A sentence on what a call takes Python, from the part of a record that has these times."""
    us: dict[tuple[str, str], list[float]] = {}
    for row in host:
        us.setdefault((row["variant"], row["what"]), []).append(row["us"])
    ours, torch = (
        [_range(us[name, what], ".1f") for what in ("forward", "forward for a gradient")]
        for name in ("helpers.softmax", "torch.softmax")
    )
    return (
        f"A call of `softmax` takes Python {ours[0]} µs, torch {torch[0]}; where a gradient will be wanted, {ours[1]}, "
        f"and {torch[1]}."
    )


def speeds_of_gpu(gpu: str) -> str:
    """What README says of a GPU by this name: where its records are, its table, and the time of a call."""
    softmax, gradients, loss = (recorded.by_gpu(kind)[gpu] for kind in ("softmax", "gradients", "loss"))
    folder = f"helpers/recorded/{folder_of_gpu(gpu)}"
    links = (
        f"[rows]({folder}/softmax.json), [gradients, few rows, dimensions, calls]({folder}/gradients.json), "
        f"[losses]({folder}/loss.json)"
    )
    table = table_of_speeds(lines_of_speeds(softmax, gradients, loss))
    return f"**One {gpu}** ({links})\n\n{table}\n\n{time_of_a_call(gradients['host'])}\n"


def with_speeds(text: str) -> str:
    """README with what the records say now, between each comment that names a GPU and the one that ends its part."""
    return _BLOCK.sub(lambda found: f"<!-- speeds: {found[1]} -->\n{speeds_of_gpu(found[1])}", text)


if __name__ == "__main__":
    README.write_text(with_speeds(README.read_text(encoding="utf-8")), encoding="utf-8")
