"""What lesson 08 shows of the benchmarks: their source and their figures, measured on a GPU and elsewhere recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from typing import Any

import torch

from helpers import recorded, timing
from helpers.engine.runtime import DEVICE, ON_GPU
from helpers.gpu.real import RealGpu
from helpers.lies.benchmarks import LIES, Figures
from helpers.lies.exercise import believed, honest_benchmark
from helpers.lies.exhibit import published, repairs
from helpers.table import Table


class Shown:
    """Benchmarks and their figures: for each a name, the source to read and a table."""

    def __init__(self, parts: Sequence[tuple[str, str, Table]]) -> None:
        self.parts = parts

    def __repr__(self) -> str:
        return "\n\n".join(f"{name}\n\n{source}\n{table}" for name, source, table in self.parts)

    def _repr_html_(self) -> str:
        return "".join(
            f"<h4>{escape(name)}</h4><pre>{escape(source)}</pre>{table._repr_html_()}"
            for name, source, table in self.parts
        )


def see(*names: str) -> Shown:
    """The lying benchmarks of these names, and their figures. Raises ValueError for a name that is not in LIES."""
    return Shown([_part(name, ("lying",)) for name in names])


def expose(*names: str) -> Shown:
    """The honest benchmarks of these names, the figures of both, and why they differ. Raises ValueError as `see`."""
    return Shown([_part(name, ("lying", "honest")) for name in names])


def _part(name: str, ways: tuple[str, ...]) -> tuple[str, str, Table]:
    if name not in LIES:
        raise ValueError(f"no lie is called {name!r}; there are {', '.join(LIES)}.")
    lie = LIES[name]
    source = inspect.getsource(getattr(lie, ways[-1]))
    figures = {way: _figures(name, way) for way in ways}
    rows = [[label, *(_number(figures[way][label]) for way in ways)] for label in figures["lying"]]
    notes = [lie.why] if "honest" in ways else []
    return name, source, Table(["it says", *ways], rows, [*notes, f"{origin()[0].upper()}{origin()[1:]}."])


@cache
def _figures(name: str, way: str) -> Figures:
    """The figures of a benchmark: measured once where there is a GPU, recorded elsewhere."""
    return _run(name, way) if ON_GPU else _record()["lies"][name][way]


def _run(name: str, way: str) -> Figures:
    return getattr(LIES[name], way)(RealGpu())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"


def measured_or_recorded(measure: Callable[[], Any], name: str) -> Any:
    """The result of `measure()` where there is a GPU, and elsewhere the record's entry of this name."""
    return measure() if ON_GPU else _record()[name]


def origin() -> str:
    """Where the figures come from, in words: measured here, or recorded on which GPU, with versions and date."""
    return timing.measured_origin() if ON_GPU else timing.recorded_origin(_record())


def _record() -> dict[str, Any]:
    """The recorded result of `run_all`, with its `origin`."""
    return recorded.by_gpu("lies")[recorded.REFERENCE]


def run_all() -> dict[str, Any]:
    """Runs the exhibit and all benchmarks on this GPU, within a minute, and returns their figures.

    The keys are `published` (the exhibit as it was), its `repairs`, `lies` with the figures of both ways, and
    `believed` (the course's benchmark). Nothing in this process may have called torch.softmax before, because the
    exhibit's baseline is timed without a warm-up.
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
