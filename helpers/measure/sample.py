"""`python -m helpers.measure.sample` times one token drawn from each row of logits, on the GPU of this machine.

It prints a table; `--out FILE` also writes a record, `sample.json` in the folder of this GPU under helpers/recorded.

All contestants take turns, with the L2 cache flushed before each. Before that, each draws from rows whose probability
lies in one column. The unit is the time of reading the logits: a share of 1 takes no longer than that. Frequencies of
`helpers.softmax.sample` are held against the probabilities, over ten million draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES
from helpers.measure.losses import readers
from helpers.softmax import sample
from helpers.table import Table

Sampler = Callable[[torch.Tensor], torch.Tensor]
"""A column of each row of logits (M, N)."""

SAMPLED_ROWS, VOCABULARY_SIZES = (1, 16, 64, 512, 2048, 4096), (32000, 50257, 128256, 151936, 262144)
SAMPLED = ("fp32", "bf16")
DRAWS, LEAST = 10_000_000, 1e-3
"""Draws for the frequencies, and the probability from which on a column is looked at."""
SAMPLE, MULTINOMIAL, ARGMAX = "helpers.softmax", "softmax, multinomial", "torch's argmax"
_GUMBEL_TILE, _GUMBEL_WARPS = 4096, 8
_REPEATS = 20
_AT_A_TIME = 2**30
"""Logits that are drawn from at a time, for the frequencies."""
_BUSY_MS = 0.5
"""For how long the GPU is kept busy before a launch: torch's ways take Python several calls."""


@triton.jit
def gumbel_kernel(most_ptr, column_ptr, x_ptr, seed_ptr, N, BLOCK: tl.constexpr):
    """Each program stores the largest of x − log(−log u) over a tile of BLOCK columns, and its column; u is a random
    number for each logit, four from one call of Philox."""
    tiles = tl.cdiv(N, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    row, tile = program // tiles, program % tiles
    cols = (tile * BLOCK).to(tl.int32) + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    a, b, c, d = tl.rand4x(tl.load(seed_ptr), program * (BLOCK // 4) + tl.arange(0, BLOCK // 4))
    u = tl.join(tl.join(a, b), tl.join(c, d)).reshape(BLOCK)
    noisy = x - tl.log(-tl.log(tl.maximum(u, 1e-10)))
    most, lane = tl.max(noisy, axis=0, return_indices=True)
    tl.store(most_ptr + program, most)
    tl.store(column_ptr + program, tile * BLOCK + lane)


def gumbel_sample(x: torch.Tensor) -> torch.Tensor:
    """A column of each row of contiguous logits: that of the largest logit with Gumbel noise."""
    (M, N), tiles = x.shape, triton.cdiv(x.shape[1], _GUMBEL_TILE)
    most, column = torch.empty(M, tiles, device=x.device), torch.empty(M, tiles, dtype=torch.int64, device=x.device)
    seed = torch.randint(2**63 - 1, (1,), device=x.device)
    gumbel_kernel[M * tiles,](most, column, x, seed, N, BLOCK=_GUMBEL_TILE, num_warps=_GUMBEL_WARPS)
    return column.gather(1, most.argmax(1, keepdim=True))[:, 0]


def exponential_sample(x: torch.Tensor) -> torch.Tensor:
    """A column of each row by torch's operations: the largest probability over exponential noise."""
    p = torch.softmax(x, -1, dtype=torch.float32)
    return p.div_(torch.empty_like(p).exponential_()).argmax(-1)


def multinomial_sample(x: torch.Tensor) -> torch.Tensor:
    """A column of each row by torch's multinomial."""
    return torch.multinomial(torch.softmax(x, -1, dtype=torch.float32), 1)[:, 0]


def samplers() -> dict[str, Sampler]:
    """The contestants by name; argmax, which draws nothing, is among them."""
    return {
        SAMPLE: sample, MULTINOMIAL: multinomial_sample, "softmax, exponential noise": exponential_sample,
        "a kernel with Gumbel noise": gumbel_sample, ARGMAX: lambda x: x.argmax(-1),
    }  # fmt: skip


def wrong_samplers(n_rows: int, n_cols: int, dtype: torch.dtype) -> list[str]:
    """The contestants that miss the one column of a row that has all the probability."""
    x, at = torch.randn(n_rows, n_cols, device=DEVICE), torch.randint(n_cols, (n_rows,), device=DEVICE)
    x = x.scatter_(1, at[:, None], 100.0).to(dtype)
    return [name for name, draw in samplers().items() if not draw(x).equal(at)]


def frequencies(n_cols: int, dtype: torch.dtype, draws: int = DRAWS) -> dict[str, Any]:
    """χ² of `draws` draws of ours from a row of n_cols, over the columns of a probability above LEAST, and of how many
    columns it is."""
    torch.manual_seed(n_cols)
    x = 2 * torch.randn(n_cols, device=DEVICE)
    x[:: n_cols // 50 + 1] += 8.0 if n_cols > 10_000 else 0.0  # of many columns, some are probable
    x = x.to(dtype)
    p = torch.softmax(x.double(), -1)
    n_rows = min(draws, _AT_A_TIME // n_cols)
    count, left = torch.zeros_like(p), draws
    while left:
        rows = x.expand(min(n_rows, left), n_cols)
        count += torch.bincount(sample(rows), minlength=n_cols)
        left -= len(rows)
    seen = p > LEAST
    want = draws * p[seen]
    chi2 = ((count[seen] - want) ** 2 / want).sum().item()
    return {"n_cols": n_cols, "draws": draws, "columns": int(seen.sum()), "chi2": round(chi2, 2)}


def measured_samples(
    rows: tuple[int, ...] = SAMPLED_ROWS, columns: tuple[int, ...] = VOCABULARY_SIZES
) -> dict[str, Any]:
    """The record without its origin: times in milliseconds by dtype and shape, and frequencies by dtype and columns."""
    cells = []
    for dtype, n_rows, n_cols in tqdm([(d, m, n) for d in SAMPLED for m in rows for n in columns], desc="timing"):
        wrong = wrong_samplers(n_rows, n_cols, DTYPES[dtype])
        x = (2 * torch.randn(n_rows, n_cols, device=DEVICE)).to(DTYPES[dtype])
        reading = readers(x)
        calls = {**reading, **{name: partial(draw, x) for name, draw in samplers().items()}}
        times = timing.measure_in_turns(calls, _REPEATS, timing.CudaQueue(_BUSY_MS))
        took = {name: round(times[name].median_ms, 5) for name in samplers()}
        read = min(round(times[launch].median_ms, 5) for launch in reading)
        cells.append(
            {"dtype": dtype, "n_rows": n_rows, "n_cols": n_cols, "reading_ms": read, "ms": took, "wrong": wrong}
        )
    drawn = [{"dtype": d, **frequencies(n, DTYPES[d])} for d in SAMPLED for n in (5, 1000, 131072)]
    return {"cells": cells, "frequencies": drawn}


def table_of_samples(found: Mapping[str, Any]) -> Table:
    """A line for each shape: the time of reading, and of each contestant its share of it."""
    names = list(found["cells"][0]["ms"])
    lines = [
        [f"{cell['n_rows']:,} × {cell['n_cols']:,} {cell['dtype']}", f"{1000 * cell['reading_ms']:.1f}"]
        + [f"{cell['reading_ms'] / cell['ms'][name]:.2f}" for name in names]
        for cell in found["cells"]
    ]
    notes = ["Speed as a fraction of reading the logits. torch's argmax draws nothing."]
    notes += [
        f"{one['draws']:,} draws from {one['n_cols']:,} columns in {one['dtype']}: χ² is {one['chi2']:.1f} over the "
        f"{one['columns']} columns with p > {LEAST}"
        for one in found["frequencies"]
    ]
    notes += [
        f"wrong at {line[0]}: {name}"
        for line, cell in zip(lines, found["cells"], strict=True)
        for name in cell["wrong"]
    ]
    return Table(["rows × columns", "reading, µs", *names], lines, notes, align="lr" + "r" * len(names))


if __name__ == "__main__":
    from helpers.measure.command import run_command

    run_command("sample", __doc__, measured_samples, table_of_samples)
