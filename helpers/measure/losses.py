"""Times of the loss, of a copy of its logits and of other projects' losses: `record --only loss` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from tqdm import tqdm

from helpers import timing
from helpers.engine.runtime import DEVICE
from helpers.kernels import DTYPES
from helpers.softmax import cross_entropy

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""The mean cross-entropy of logits (M, V) and targets (M,)."""

VOCABULARIES = ((8192, 32000), (4096, 50257), (4096, 128256), (2048, 151936), (2048, 262144))
"""Rows and columns: the vocabularies of Llama 2, GPT-2, Llama 3, Qwen 2.5 and Gemma 3."""
FEW_ROWS_OF_LOGITS = ((2048, 32000), (1, 32000), (16, 32000), (256, 32000), (1, 151936), (16, 151936), (256, 151936))
IMAGES = ((8, 21, 512, 512), (4, 19, 1024, 1024), (8, 150, 128, 128), (4, 1000, 56, 56), (32, 2, 512, 512))
"""Images, classes, lines and places, as of a segmentation: PASCAL VOC, Cityscapes, ADE20K, ImageNet's classes, two."""
PASSES = ("loss and gradient", "forward", "loss alone")
"""A training step; its forward pass, in which some compute the gradient; and the loss of logits that need none."""
READERS = ((8192, 1), (16384, 4), (32768, 8))
"""Bytes that a program reads, and its warps: what reading alone takes is the time of the fastest of these."""
READING = "reading"
"""Its name among the contestants, in the pass without a gradient."""
_OFF, _OTHERS_OFF = 0.02, 0.04
"""By how much of it our loss may be off, and another. On an H100 torch's, of 8 million places in bfloat16, was 3 % off.
"""
_REPEATS = 20
_BUSY_MS = 1.0
"""For how long the GPU is kept busy before a step: a loss and its gradient take Python several calls."""


class LossLayout(NamedTuple):
    """M rows of V logits."""

    dtype: str
    n_rows: int
    n_cols: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the logits; the classes lie in the second dimension."""
        return self.n_rows, self.n_cols

    def in_record(self) -> dict[str, Any]:
        """What a row of the record says of it."""
        return self._asdict()


class ImageLayout(NamedTuple):
    """Logits of images, contiguous; the classes lie in the second dimension of the shape."""

    dtype: str
    shape: tuple[int, ...]

    def in_record(self) -> dict[str, Any]:
        """What a row of the record says of it."""
        return {"dtype": self.dtype, "layout": " × ".join(map(str, self.shape))}


def image_layouts() -> list[ImageLayout]:
    """The images of the record, in float32 and bfloat16."""
    return [ImageLayout(dtype, shape) for dtype in ("fp32", "bf16") for shape in IMAGES]


def losses_of_images_here(layout: ImageLayout) -> dict[str, Loss]:
    """The contestants for images: ours, torch's and, in bfloat16, torch.compile's. Others take rows alone."""
    return _ours_and_torchs(compiled=layout.dtype == "bf16")


def _ours_and_torchs(compiled: bool) -> dict[str, Loss]:
    """Our loss, torch's, and if wanted torch.compile's, which takes seconds for each shape."""
    found: dict[str, Loss] = {"helpers.softmax": cross_entropy, "torch": F.cross_entropy}
    if compiled:
        torch.compiler.reset()
        found["torch.compile"] = torch.compile(F.cross_entropy, dynamic=False)
    return found


def loss_layouts() -> list[LossLayout]:
    """The layouts of the record: vocabularies of language models in every dtype; few rows in bfloat16."""
    many = [LossLayout(dtype, *shape) for dtype in DTYPES for shape in VOCABULARIES]
    return [*many, *(LossLayout("bf16", *shape) for shape in FEW_ROWS_OF_LOGITS)]


def losses_here(layout: LossLayout) -> dict[str, Loss]:
    """The contestants: ours, torch's, Liger's where it can be imported; in bfloat16 torch.compile's and QuACK's too.

    These two have a part only in the dtype of training: they take seconds for each length.
    """
    found = _ours_and_torchs(compiled=layout.dtype == "bf16" and layout.n_rows >= 1024)
    if find_spec("liger_kernel"):
        apply = import_module("liger_kernel.ops.cross_entropy").LigerCrossEntropyFunction.apply
        found["Liger"] = lambda x, target: apply(x, target, None)[0]
    if layout.dtype == "bf16" and find_spec("quack"):
        found["QuACK"] = _quack_loss
    return found


def _quack_loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """QuACK's with a mean of ours: its own hands a gradient of stride 0 on, which its backward refused in 0.2.4."""
    losses = import_module("quack.cross_entropy").cross_entropy(x, target, reduction="none")
    return losses @ torch.full_like(losses, 1 / len(losses))


@triton.jit
def reading_kernel(most_ptr, x_ptr, n, BLOCK: tl.constexpr):
    """Each program reads BLOCK of n elements and stores the largest: about the least that a loss must do."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=-float("inf"))
    tl.store(most_ptr + tl.program_id(0), tl.max(x.to(tl.float32), axis=0))


def readers(x: torch.Tensor) -> dict[tuple[int, int], Callable[[], object]]:
    """By bytes and warps of READERS, the call that reads all of x, contiguous, and writes next to nothing."""
    found = {}
    for nbytes, num_warps in READERS:
        BLOCK = nbytes // x.element_size()
        most = torch.empty(triton.cdiv(x.numel(), BLOCK), device=x.device)
        grid, options = (len(most),), {"BLOCK": BLOCK, "num_warps": num_warps}
        found[nbytes, num_warps] = partial(reading_kernel[grid], most, x, x.numel(), **options)
    return found


def refusal_of_loss(loss: Loss, x: torch.Tensor, target: torch.Tensor, off: float = _OFF) -> str | None:
    """Why a contestant has no part: the first line of its error, or what is wrong; None where loss and gradient are
    right: the loss but for `off` of it. The gradient is compared with float64 in the first 16 rows, or the first image.
    """
    first = 16 if x.dim() == 2 else 1
    want, some = F.cross_entropy(x.float(), target).item(), x[:first].double().softmax(1)
    some.scatter_add_(1, target[:first].unsqueeze(1), torch.full_like(some[:, :1], -1))
    some /= target.numel()
    leaf = x.clone().requires_grad_()
    try:
        value = loss(leaf, target)
        (gradient,) = torch.autograd.grad(value, leaf)
    except Exception as refused:
        return next((line for line in str(refused).splitlines() if line.strip()), type(refused).__name__)
    if not abs(value.item() - want) <= off * abs(want):
        return f"its loss is {value.item():.5g} where {want:.5g} is right"
    rounding = (some.to(x.dtype).double() - some).norm()
    if not (gradient[:first].double() - some).norm() <= 0.02 * some.norm() + 2 * rounding:
        return "its gradient is wrong"
    return None


def steps_of(losses: Mapping[str, Loss], x: torch.Tensor, target: torch.Tensor) -> dict[tuple[str, str], Callable]:
    """By contestant and pass, the timed call.

    Every contestant has logits of its own, since some write the gradient over them.
    """

    def both(loss: Loss, x: torch.Tensor) -> Callable[[], object]:
        return lambda: torch.autograd.grad(loss(x, target), x)

    def forward(loss: Loss, x: torch.Tensor) -> Callable[[], object]:
        return lambda: loss(x, target)

    steps = {(name, PASSES[0]): both(loss, x.clone().requires_grad_()) for name, loss in losses.items()}
    eager = {name: loss for name, loss in losses.items() if name != "torch.compile"}
    steps |= {(name, PASSES[1]): forward(loss, x.clone().requires_grad_()) for name, loss in eager.items()}
    return steps | {(name, PASSES[2]): forward(loss, x) for name, loss in eager.items()}


def measure_losses(
    layouts: Sequence[LossLayout | ImageLayout], contestants: Callable[[Any], dict[str, Loss]]
) -> list[dict[str, Any]]:
    """A row for each contestant, pass and layout: its times, the copy's in the same turns, and the memory it needs
    besides the logits, as a multiple of theirs; and a row for reading them. A wrong loss raises ValueError."""
    turns = tqdm(layouts, desc="timing losses", unit="layout")
    return [row for layout in turns for row in _measured(layout, contestants(layout))]


def _right(
    layout: LossLayout | ImageLayout, contestants: Mapping[str, Loss], x: torch.Tensor, target: torch.Tensor
) -> dict[str, Loss]:
    """The contestants that compute this; ours and torch's have to."""
    where, right = f"{' × '.join(map(str, layout.shape))} {layout.dtype}", {}
    for name, loss in contestants.items():
        off = _OFF if name == "helpers.softmax" else _OTHERS_OFF
        if (why := refusal_of_loss(loss, x, target, off)) is None:
            right[name] = loss
        elif name in ("helpers.softmax", "torch"):
            raise ValueError(f"{name} at {where}: {why}")
        else:
            tqdm.write(f"{name} left out at {where}: {why[:100]}")
    return right


def _measured(layout: LossLayout | ImageLayout, contestants: Mapping[str, Loss]) -> list[dict[str, Any]]:
    x = (3 * torch.randn(layout.shape, device=DEVICE)).to(DTYPES[layout.dtype])
    n_rows, n_cols, *places = layout.shape
    target = torch.randint(0, n_cols, (n_rows, *places), device=DEVICE)
    y = torch.empty_like(x)
    steps = steps_of(_right(layout, contestants, x, target), x, target)
    peaks = {key: _memory_of(step) / (x.numel() * x.element_size()) for key, step in steps.items()}
    functions = {"copy": lambda: y.copy_(x), **steps, **readers(x)}
    times = timing.measure_in_turns(functions, _REPEATS, timing.CudaQueue(_BUSY_MS))
    copy = times.pop("copy").median_ms
    reading = READING, PASSES[2]
    times[reading] = min((times.pop(launch) for launch in READERS), key=lambda time: time.median_ms)
    peaks[reading] = 0.0
    return [
        {
            "variant": name, "pass": which, **layout.in_record(), "median_ms": round(one.median_ms, 5),
            "low_ms": round(one.low_ms, 5), "high_ms": round(one.high_ms, 5), "copy_ms": round(copy, 5),
            "peak": round(peaks[name, which], 3),
        }
        for (name, which), one in times.items()
    ]  # fmt: skip


def _memory_of(step: Callable[[], object]) -> float:
    """Bytes that a step needs at its peak, besides what there was before."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def text_of_losses(origin: Mapping[str, str], rows: Sequence[dict], images: Sequence[dict] = ()) -> str:
    """The record as JSON, a line for each row."""
    parts = {"losses": rows, "images": images}
    lines = [
        f'"{part}": [\n{_comma_lines(json.dumps(row, ensure_ascii=False) for row in found)}\n]'
        for part, found in parts.items()
        if found
    ]
    return f'{{\n"origin": {json.dumps(dict(origin), indent=1, ensure_ascii=False)},\n{_comma_lines(lines)}\n}}\n'


def _comma_lines(parts: Iterable[str]) -> str:
    return ",\n".join(parts)
