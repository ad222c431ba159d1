"""sample: one column of each row, drawn by its probability, from one read of the logits and without a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.compiler import is_compiling

from helpers.engine.runtime import DEVICE
from helpers.softmax.launches.sample import picks_of
from helpers.softmax.torch_side import is_compilable, is_plain

_SEEDS = 2**63 - 1


def sample(
    logits: torch.Tensor, *, temperature: float | torch.Tensor = 1.0, generator: torch.Generator | None = None
) -> torch.Tensor:
    """One column of each row of `logits` (…, N), drawn with probability softmax(logits / temperature): int64 (…).

    `logits` are float32, bfloat16 or float16, of any strides; rows that no single stride runs through are copied.
    Arithmetic is in float32. `temperature` is a number, or a tensor that expands to (…). At 0 the column is that of
    the largest logit, the first one of equals. A logit of −inf is never picked; logits of +inf share all probability.

    A call draws one int64 from `generator`, or from torch's default one of the device; on a GPU it does not wait for
    it, and each replay of a CUDA graph draws anew. With this seed and the logits, a row's column depends on nothing but
    the row's number: not on other rows, on how many there are, or on what else the GPU does.

    Random numbers have 31 bits, and float32 rounds them, and sums, to 24: a column's probability is off by some 2⁻²⁴ of
    that of its tile of 512 columns, and a tile's by some 2⁻²⁴ of the row's. Of 131,072 equal columns none is off by a
    part in a thousand. Columns with less than 10⁻⁷ of their tile's probability are picked too often or never; in a row,
    all of these together have less than 0.01 %. The same holds for a tile within its row.

    A row with NaN, without a logit above −inf, or with a temperature in a tensor that is below 0 or NaN, gets −1 on a
    GPU, since an error would have to wait for it; on a CPU it raises RuntimeError, as in torch.multinomial. Raises
    TypeError for other logits, or a temperature that is neither a number nor a tensor; ValueError for no columns, a
    number below 0 or not finite, or a tensor that does not expand to (…); and what torch raises for a generator of
    another device.
    """
    _require(logits, temperature)
    shape, N = logits.shape[:-1], logits.shape[-1]
    number, temperatures = temperature, None
    if isinstance(temperature, torch.Tensor):
        number, temperatures = None, temperature.to(logits.device, torch.float32).expand(shape).contiguous()
    rows = logits.detach().reshape(math.prod(shape), N)
    if not len(rows):
        return torch.empty(shape, dtype=torch.int64, device=logits.device)
    seed = torch.randint(_SEEDS, (1,), generator=generator, device=logits.device)
    if is_compiling():
        return _operator(rows, seed, number, temperatures).view(shape)
    picks = picks_of(rows, seed, number, temperatures)
    if logits.is_cpu and (picks < 0).any():
        raise RuntimeError(
            f"no column of row {(picks < 0).nonzero()[0].item()} can be drawn: it has NaN, no logit above −inf, or a "
            "temperature that is below 0 or NaN."
        )
    return picks.view(shape)


def _require(logits: Any, temperature: Any) -> None:
    if not isinstance(logits, torch.Tensor):
        raise TypeError(f"logits must be a torch.Tensor; they are a {type(logits).__name__}.")
    if not (is_compilable if is_compiling() else is_plain)(logits, casts=True):
        raise TypeError(
            f"logits must be an ordinary tensor of float32, bfloat16 or float16 on {DEVICE.type}, outside of torch's "
            f"transforms and modes; they are {logits.dtype} on {logits.device.type}."
        )
    if not logits.dim() or not logits.shape[-1]:
        raise ValueError(f"logits must have at least one column; their shape is {tuple(logits.shape)}.")
    if isinstance(temperature, torch.Tensor):
        wanted, given = logits.shape[:-1], temperature.shape
        if len(given) > len(wanted) or any(n not in (1, m) for n, m in zip(given[::-1], wanted[::-1], strict=False)):
            raise ValueError(f"temperature must expand to {tuple(wanted)}; its shape is {tuple(given)}.")
    elif not isinstance(temperature, int | float):
        raise TypeError(f"temperature must be a number or a tensor; it is a {type(temperature).__name__}.")
    elif not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be 0 or more, and finite; it is {temperature}.")


@torch.library.custom_op("softmax_in_triton::sample", mutates_args=())
def _operator(
    x: torch.Tensor, seed: torch.Tensor, temperature: float | None, temperatures: torch.Tensor | None
) -> torch.Tensor:
    return picks_of(x, seed, temperature, temperatures)


_operator.register_fake(lambda x, seed, temperature, temperatures: seed.new_empty(len(x)))
