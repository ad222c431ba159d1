"""`python -m helpers.measure.linear_loss` times the loss of a linear layer on the GPU of this machine, in bfloat16.

It prints a table; `--out FILE` also writes a record, `linear_loss.json` in this GPU's folder under helpers/recorded.

All contestants take turns, with the L2 cache flushed before each. The unit is the time of the products that nobody can
leave out: three for a loss with its gradients, one for a loss alone. Memory is counted beyond the inputs and their
gradients. Errors are relative errors of the norm, against float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.softmax import cross_entropy, linear_cross_entropy
from helpers.softmax.launches.linear_loss import in_chunks
from helpers.softmax.plans.losses import LossOptions
from helpers.table import Table

LinearLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""The mean loss of inputs (M, H), weights (V, H) and targets (M,)."""

LAYERS = ((8192, 4096, 128256), (8192, 2048, 151936), (16384, 2304, 32768))
LINEAR_LOSS, WHOLE_LOGITS = "helpers.softmax", "torch, whole logits"
CHUNKED = (8192, 4096, 128256)
NUMBERS_OF_CHUNKS = (1, 2, 4, 8, 16, 32)
_REPEATS, _BUSY_MS = 10, 2.0
_AT_A_TIME = 512
"""Rows whose logits are made in float32 at a time, for the right results."""


def linear_losses() -> dict[str, LinearLoss]:
    """The contestants by name, as far as they can be had here."""
    found: dict[str, LinearLoss] = {
        LINEAR_LOSS: linear_cross_entropy,
        WHOLE_LOGITS: lambda x, w, target: F.cross_entropy(x @ w.T, target),
        "our loss, whole logits": lambda x, w, target: cross_entropy(x @ w.T, target, inplace=True),
    }
    if hasattr(F, "linear_cross_entropy"):
        chunks = getattr(torch.nn, "LinearCrossEntropyOptions", None)
        found["torch, chunks"] = partial(F.linear_cross_entropy, options=chunks and chunks())
    if find_spec("liger_kernel"):
        liger = import_module("liger_kernel.ops.fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction.apply
        found["Liger"] = lambda x, w, target: liger(x, w, target)[0]
    if find_spec("cut_cross_entropy"):
        found["cut cross-entropy"] = import_module("cut_cross_entropy").linear_cross_entropy
    return found


def step(loss: LinearLoss, x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The loss, and the gradients of x and w."""
    x, w = (one.detach().requires_grad_() for one in (x, w))
    value = loss(x, w, target)
    return value.detach(), *torch.autograd.grad(value, (x, w))


def right_results(x: torch.Tensor, w: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The loss, and the gradients of x and w, in float32."""
    x, w = x.float(), w.float()
    loss, dx, dw = torch.zeros((), device=x.device), torch.empty_like(x), torch.zeros_like(w)
    for some in torch.arange(len(x), device=x.device).split(_AT_A_TIME):
        z = x[some] @ w.T
        loss += F.cross_entropy(z, target[some], reduction="sum") / len(x)
        z = z.softmax(1).scatter_add_(1, target[some, None], z.new_full((len(some), 1), -1.0)) / len(x)
        dx[some] = z @ w
        dw.addmm_(z.T, x[some])
    return loss, dx, dw


def _errors(found: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> list[float]:
    return [
        float(f"{((one.float() - want).norm() / want.norm()).item():.3g}")
        for one, want in zip(found, right, strict=True)
    ]


def _peak_mib(call: Callable[[], object]) -> float:
    """MiB that a call adds at its peak, its results included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _times(calls: Mapping[Any, Callable[[], object]]) -> dict[Any, list[float]]:
    """The quartiles and the median between them, in milliseconds, of each call."""
    times = timing.measure_in_turns(calls, _REPEATS, timing.CudaQueue(_BUSY_MS))
    return {name: [round(ms, 4) for ms in (one.low_ms, one.median_ms, one.high_ms)] for name, one in times.items()}


def _inputs(M: int, H: int, V: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x, w = (torch.randn(n, H, device=DEVICE, dtype=torch.bfloat16) for n in (M, V))
    return x, w * H**-0.5, torch.randint(0, V, (M,), device=DEVICE)


def measured_losses(M: int, H: int, V: int) -> dict[str, Any]:
    """A cell of the record."""
    x, w, target = given = _inputs(M, H, V)
    losses, right = linear_losses(), right_results(*given)
    errors = {name: _errors(step(loss, *given), right) for name, loss in losses.items()}
    del right
    gradients = (x.numel() + w.numel()) * x.element_size() / 2**20
    peaks = {name: round(_peak_mib(partial(step, loss, *given)) - gradients, 1) for name, loss in losses.items()}
    alone = {name: partial(losses[name], *given) for name in (LINEAR_LOSS, WHOLE_LOGITS)}
    peaks_alone = {name: round(_peak_mib(call), 1) for name, call in alone.items()}
    z, dx, dw = x @ w.T, torch.empty_like(x), torch.empty_like(w)
    products = {"z": lambda: torch.mm(x, w.T, out=z), "dx": lambda: torch.mm(z, w, out=dx)}
    products["dw"] = lambda: torch.mm(z.T, x, out=dw)
    steps = {name: partial(step, loss, *given) for name, loss in losses.items()}
    # In the same turns: a GPU that computes for long lowers its clock.
    found = _times(products | {("step", name): call for name, call in steps.items()} | alone)
    return {
        "M": M, "H": H, "V": V, "products_ms": [found[name][1] for name in products],
        "ms": {name: found["step", name] for name in losses}, "alone_ms": {name: found[name] for name in alone},
        "peak_mib": peaks, "alone_peak_mib": peaks_alone, "errors": errors,
    }  # fmt: skip


def measured_chunks(M: int, H: int, V: int) -> list[dict[str, Any]]:
    """By number of chunks, the time of our loop, and the error of its weights' gradient."""
    given = _inputs(M, H, V)
    want = right_results(*given)[2]
    options, rows = LossOptions(-100, "mean", 0.0, torch.float32), {n: M // n for n in NUMBERS_OF_CHUNKS}
    calls = {
        n: partial(in_chunks, given[0], given[1], None, given[2], options, (True, True, False), 1 / M, rows=some)
        for n, some in rows.items()
    }
    errors = {n: _errors((call()[1][1],), (want,))[0] for n, call in calls.items()}
    del want
    return [{"chunks": n, "rows": rows[n], "ms": ms, "error": errors[n]} for n, ms in _times(calls).items()]


def table_of_linear_losses(found: Mapping[str, Any]) -> Table:
    """A line for each shape and contestant: its time in units of the products, its memory and its errors."""
    lines = [
        [
            f"{cell['M']:,} × {cell['H']:,} × {cell['V']:,}",
            name,
            f"{low:.2f} – {high:.2f}",
            f"{median / sum(cell['products_ms']):.2f}",
            f"{cell['alone_ms'][name][1] / cell['products_ms'][0]:.2f}" if name in cell["alone_ms"] else "",
            f"{cell['peak_mib'][name]:,.0f}",
            " ".join(f"{error:.1e}" for error in cell["errors"][name]),
        ]
        for cell in found["cells"]
        for name, (low, median, high) in cell["ms"].items()
    ]
    notes = [
        f"{one['chunks']} chunks of {one['rows']:,} rows: {one['ms'][1]:.2f} ms, error of the weights' gradient "
        f"{one['error']:.1e}"
        for one in found["chunks"]
    ]
    titles = ["rows × inputs × classes", "", "ms", "of the products", "alone", "MiB", "errors of loss, dx, dW"]
    return Table(titles, lines, notes, align="llrrrrl")


def measured_linear_losses() -> dict[str, Any]:
    """What is measured of all layers, and of numbers of chunks."""
    torch.manual_seed(0)
    cells = [measured_losses(*shape) for shape in tqdm(LAYERS, desc="timing")]
    return {"cells": cells, "chunks": measured_chunks(*CHUNKED)}


if __name__ == "__main__":
    from helpers.measure.command import run_command

    run_command("linear_loss", __doc__, measured_linear_losses, table_of_linear_losses)
