"""Programs that wait for words, with and without what keeps memory busy meanwhile: `record --only pace` times them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES
from helpers.measure.planned import planned_launch
from helpers.softmax.launches.launch import Launch, current_stream
from helpers.softmax.plans.gpu import H200
from helpers.softmax.plans.pace import Pace, pace_of
from helpers.softmax.plans.rows import Shared

PACES = tuple(product((False, True), repeat=2))
"""Whether programs begin in turn, and whether they fetch ahead; none of them pauses."""


class Case(NamedTuple):
    """M rows of N columns: their softmax, or their mean loss with its gradient."""

    what: str
    dtype: str
    n_rows: int
    n_cols: int


CASES = (
    *(Case("softmax", dtype, *shape) for dtype in ("fp32", "bf16") for shape in ((64, 131072), (64, 1048576))),
    *(Case("loss", dtype, *shape) for dtype in ("fp32", "bf16") for shape in ((4096, 50257), (2048, 262144))),
)


def measure_paces() -> list[list]:
    """For each case: its letters, a copy's microseconds, and the times of PACES; None where there are too few
    programs for any to fetch ahead. GPU only."""
    return [[*case, *_times(case)] for case in tqdm(CASES, desc="timing paces", unit="case")]


def pace_if_fetching_pays(launcher: Launch, rows: int) -> Pace:
    """The pace of a launch whose programs share `rows`, on a GPU on which fetching ahead pays, whether it is this."""
    warps, registers = launcher.options["num_warps"], launcher.options["maxnreg"]
    return pace_of(rows, Shared(0, warps, registers, SPLIT=launcher.grid[0]), H200._replace(fetches_ahead=True))


def _times(case: Case) -> tuple[float, list[float | None]]:
    x = (3 * torch.randn(case.n_rows, case.n_cols, device=DEVICE)).to(DTYPES[case.dtype])
    y, stream = torch.empty_like(x), current_stream(x.get_device())
    planned, tensors = planned_launch(case.what, x, y)
    pace = pace_if_fetching_pays(planned, case.n_rows)
    no_pause = {"PAUSE": 0} if "PAUSE" in planned.named else {}
    calls: dict[tuple[bool, bool] | str, Callable[[], object]] = {
        (in_turn, ahead): partial(
            planned.replaced(TURNS=in_turn * pace.TURNS, AHEAD=ahead * pace.AHEAD, **no_pause), tensors, stream
        )
        for in_turn, ahead in PACES
        if pace.AHEAD or not ahead
    }
    times = timing.measure_in_turns({"copy": lambda: y.copy_(x), **calls})
    us = {pace: round(1e3 * time.median_ms, 2) for pace, time in times.items()}
    return us["copy"], [us.get(pace) for pace in PACES]
