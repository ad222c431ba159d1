"""What lesson 08 displays of a benchmark: its source, and its figures, measured on this GPU or recorded on another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any, NamedTuple

import torch

from helpers import predict, recorded, timing
from helpers.engine.runtime import DEVICE, ON_GPU
from helpers.gpu.real import RealGpu
from helpers.lies.benchmarks import LIES, Figures
from helpers.lies.exercise import believed, honest_benchmark
from helpers.lies.exhibit import published, repairs
from helpers.table import Table


class Part(NamedTuple):
    """A benchmark and its figures. `before` is the source of the benchmark that this one repairs, or empty."""

    name: str
    question: str
    source: str
    before: str
    table: Table

    def _repr_html_(self) -> str:
        asked = f"<p>{escape(self.question)}</p>" if self.question else ""
        lines = "\n".join(self._line(line) for line in self.source.splitlines())
        return f"<h4>{escape(self.name)}</h4>{asked}<pre>{lines}</pre>{self.table._repr_html_()}"

    def _line(self, line: str) -> str:
        """A line of source, in bold if the source that it repairs has no such line."""
        new = self.before and not line.startswith("def ") and line not in self.before.splitlines()
        return f"<b>{escape(line)}</b>" if new else escape(line)


class Shown:
    """Benchmarks and their figures, one below the other."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        texts = ([part.name, part.question, f"{part.source}\n{part.table}"] for part in self.parts)
        return "\n\n".join("\n\n".join(filter(None, text)) for text in texts)

    def _repr_html_(self) -> str:
        return "".join(part._repr_html_() for part in self.parts)


def see(*names: str) -> Shown:
    """The lying benchmarks of these names, each with a question and its figures.

    Raises ValueError for a name that is not in LIES.
    """
    return Shown([_part(name, ("lying",)) for name in names])


def expose(*names: str) -> Shown:
    """The honest benchmarks of these names, the figures of both, and why they differ.

    The guess that predict.guess keeps under the lie's name stands between the figures. Raises ValueError as `see` does.
    """
    return Shown([_part(name, ("lying", "honest")) for name in names])


def _part(name: str, ways: tuple[str, ...]) -> Part:
    if name not in LIES:
        raise ValueError(f"no lie is called {name!r}; there are {', '.join(LIES)}.")
    lie = LIES[name]
    sources = {way: inspect.getsource(getattr(lie, way)) for way in ways}
    figures = {way: _figures(name, way) for way in ways}
    columns = {head: figures[way] for head, way in zip(lie.heads, ways, strict=False)}
    notes = [f"{origin()[0].upper()}{origin()[1:]}."]
    if "honest" not in ways:
        return Part(name, lie.question, sources["lying"], "", _figures_table(columns, notes))
    guess = next((value for value in predict.guessed(name).values() if value is not None), None)
    if guess is not None:
        lying, honest = columns.items()
        columns = dict((lying, ("your guess", {lie.guessed: guess}), honest))
        predict.note(name, {lie.guessed: guess}, honest=figures["honest"])
    return Part(name, "", sources["honest"], sources["lying"], _figures_table(columns, [lie.why, *notes]))


def _figures_table(columns: Mapping[str, Figures], notes: Sequence[str]) -> Table:
    """A table with a row for each figure of the first column; the other columns may lack some of them."""
    labels = next(iter(columns.values()))
    rows = [[label, *(_number(c[label]) if label in c else "" for c in columns.values())] for label in labels]
    return Table(["it says", *columns], rows, list(notes))


@cache
def _figures(name: str, way: str) -> Figures:
    """The figures of a benchmark: measured once if there is a GPU, recorded if there is none."""
    return _run(name, way) if ON_GPU else _record()["lies"][name][way]


def _run(name: str, way: str) -> Figures:
    return getattr(LIES[name], way)(RealGpu())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def measured_or_recorded(measure: Callable[[], Any], name: str) -> Any:
    """The result of `measure()` if there is a GPU, or the record's entry of this name if there is none."""
    return measure() if ON_GPU else _record()[name]


def origin() -> str:
    """Says where the figures come from: measured here, or recorded on which GPU, with versions and date."""
    return timing.measured_origin() if ON_GPU else timing.recorded_origin(_record())


def _record() -> dict[str, Any]:
    """The recorded result of `run_all`, with its `origin`."""
    return recorded.by_gpu("lies")[recorded.REFERENCE]


def run_all() -> dict[str, Any]:
    """Runs the exhibit and all benchmarks on this GPU, in less than a minute, and returns their figures.

    The keys are `published` (the exhibit as it was), its `repairs`, `lies` (the figures of both benchmarks of each
    pair), and `believed` (the course's benchmark). Nothing in this process may have called torch.softmax before,
    because the exhibit's baseline is timed without a warm-up.
    """
    as_published = published(torch.randn(RealGpu.shape, device=DEVICE))
    found = {"published": as_published, "repairs": repairs(as_published), "lies": {}}
    found["believed"] = believed(honest_benchmark)
    for name in LIES:
        found["lies"][name] = {way: _run(name, way) for way in ("lying", "honest")}
        torch.cuda.empty_cache()
    return _rounded(found)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value
