"""Loaded lines that outlive written ones in the L2 cache, and such that do not: `record --only policy` times both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, product
from typing import NamedTuple

import torch
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES
from helpers.measure.planned import planned_launch
from helpers.softmax.launches.launch import current_stream

POLICIES = ("", "evict_last")
"""The letter POLICY: loaded lines stay as long as written ones, or longer."""

PLACES = 4
"""Inputs, and results, that launches take in turn: the next launch must not find its input in the cache."""

BEHIND = 20
"""Launches one behind another that are timed together."""


class Input(NamedTuple):
    """What is computed over the N columns of an (outer, N, inner) tensor, as `planned_launch` has it."""

    what: str
    dtype: str
    outer: int
    N: int
    inner: int = 1


_SIZES = tuple(
    Input("softmax", dtype, rows, 8192)
    for dtype, least in (("fp32", 1024), ("bf16", 2048))
    for rows in (least, 2 * least, 4 * least, 16 * least)
)
"""Inputs of 34, 67, 134 and 537 MB."""

_SHAPES = ((512, 524288, 1), (1, 4096, 16384), (64, 64, 32768))

INPUTS = (
    *_SIZES,
    *(Input("softmax", dtype, *shape) for shape, dtype in product(_SHAPES, ("fp32", "bf16"))),
    Input("gradient", "fp32", 8192, 8192),
    Input("gradient", "bf16", 8192, 16384),
    Input("log_softmax", "bf16", 4096, 50257),
    Input("loss", "fp32", 4096, 50257),
    Input("loss", "bf16", 4096, 50257),
    Input("loss", "bf16", 2048, 32000),
    Input("loss alone", "bf16", 4096, 50257),
)


def measure_policies() -> list[list]:
    """For each of INPUTS: its fields, and the microseconds of a copy and of both POLICIES, of launches one behind
    another and of single ones, before which zeros are written all over the cache. GPU only."""
    return [[*one, *_times(one)] for one in tqdm(INPUTS, desc="timing policies", unit="case")]


def _times(of: Input) -> Iterator[list[float]]:
    shape = (of.outer, of.N, of.inner) if of.inner > 1 else (of.outer, of.N)
    inputs = [(3 * torch.randn(shape, device=DEVICE)).to(DTYPES[of.dtype]) for _ in range(PLACES)]
    results = [torch.empty_like(x) for x in inputs]
    planned = [planned_launch(of.what, x, y) for x, y in zip(inputs, results, strict=True)]
    stream, (launcher, _) = current_stream(inputs[0].get_device()), planned[0]
    functions: dict[str, Callable[[int], object]] = {"copy": lambda place: results[place].copy_(inputs[place])}
    for POLICY in POLICIES:
        launch = launcher.replaced(POLICY=POLICY)
        functions[POLICY] = lambda place, launch=launch: launch(planned[place][1], stream)
    for launches in (BEHIND, 1):
        times = timing.measure_in_turns({name: _in_turn(fn, launches) for name, fn in functions.items()})
        yield [round(1e3 * time.median_ms / launches, 2) for time in times.values()]


def _in_turn(launch: Callable[[int], object], launches: int) -> Callable[[], object]:
    """Launches so often, each time on the tensors of the next place."""
    places = cycle(range(PLACES))

    def all_of_them() -> None:
        for _ in range(launches):
            launch(next(places))

    return all_of_them
