"""The loss of a linear layer by rows: in chunks of logits, which leave gradients, or without logits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from triton import cdiv
from triton.tools.tensor_descriptor import TensorDescriptor

from helpers.softmax.kernels.linear_loss import log_sum_exp_kernel, scale_kernel
from helpers.softmax.launches.launch import gpu_of
from helpers.softmax.launches.losses import loss_of, scaled
from helpers.softmax.plans.linear_loss import BLOCK_M, BLOCK_V, classes_of_part, rows_of_chunk
from helpers.softmax.plans.losses import LossOptions

_BLOCK_H, _STAGES, _WARPS = 64, 3, 8
_SCALED = 8192
"""Elements that a program scales."""


def in_chunks(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    target: torch.Tensor,
    options: LossOptions,
    wanted: Sequence[bool] = (False, False, False),
    factor: float = 1.0,
    arrived: torch.Tensor | None = None,
    rows: int | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """The losses (M,) of rows x (M, H) and classes `weight` (V, H), in float32; and the gradients of x, the weight and
    the bias that are `wanted`, each times `factor`, of the sum of the losses, or of each times `arrived` (M,).

    A chunk has as many `rows` as planned, or these. Its gradient lies where its logits were. The weight's is summed in
    the products themselves.
    """
    (M, H), V = x.shape, len(weight)
    options = options._replace(reduction="none", loss_dtype=torch.float32)
    rows = rows or rows_of_chunk(M, H, V, x.element_size(), gpu_of(x.get_device()))
    whole_words = 16 // x.element_size()
    memory = x.new_empty(rows, cdiv(V, whole_words) * whole_words)[:, :V]
    losses = torch.empty(M, device=x.device)
    dx, dw = (torch.empty_like(one) if want else None for one, want in zip((x, weight), wanted, strict=False))
    db = torch.zeros(V, device=x.device) if bias is not None and wanted[2] else None
    for first in range(0, M, rows):
        of = slice(first, min(M, first + rows))
        z, classes = memory[: of.stop - first], target[of]
        if bias is None:
            torch.mm(x[of], weight.T, out=z)
        else:
            torch.addmm(bias, x[of], weight.T, out=z)
        losses[of] = loss_of(z, classes, options, z if any(wanted) else None)
        if arrived is not None:
            scaled(z, z, classes, arrived[of], options)
        if dx is not None:
            torch.addmm(dx[of], z, weight, beta=0, alpha=factor, out=dx[of])
        if dw is not None:
            torch.addmm(dw, z.T, x[of], beta=min(first, 1), alpha=factor, out=dw)
        if db is not None:
            db += z.sum(0, dtype=torch.float32)
    return losses, [dx, dw, None if db is None else (factor * db).to(bias.dtype)]


def without_logits(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, ignore_index: int
) -> torch.Tensor:
    """The losses (M,) in float32, from one walk of each tile of rows over the classes. A class that is none is NaN."""
    (M, H), V = x.shape, len(weight)
    each = classes_of_part(M, V, gpu_of(x.get_device()))
    lse = torch.empty(cdiv(V, each), M, device=x.device)
    picked = torch.full((M,), math.nan, device=x.device)
    described = all(map(_is_describable, (x, weight)))
    tensors = x, weight
    if described:
        blocks = [BLOCK_M, _BLOCK_H], [BLOCK_V, _BLOCK_H]
        tensors = tuple(TensorDescriptor.from_tensor(one, block) for one, block in zip(tensors, blocks, strict=True))
    with torch.cuda.device_of(x):
        log_sum_exp_kernel[cdiv(M, BLOCK_M), len(lse)](
            lse, picked, *tensors, x if bias is None else bias.contiguous(), target.contiguous(), *x.stride(),
            *weight.stride(), M, V, each, H, bias is not None, described, BLOCK_M, BLOCK_V, _BLOCK_H, _STAGES,
            num_warps=_WARPS,
        )  # fmt: skip
    losses = torch.logsumexp(math.log(2) * lse, 0) - picked
    return losses.masked_fill_(target == ignore_index, 0.0)


def _is_describable(x: torch.Tensor) -> bool:
    """Whether the GPU's copies of whole tiles take this matrix: from compute capability 9.0 on, by its alignment."""
    if x.is_cuda and torch.cuda.get_device_capability(x.device) < (9, 0):
        return False
    row, col = x.stride()
    return col == 1 and row > 0 and row * x.element_size() % 16 == 0 and x.data_ptr() % 16 == 0


def scale(y: torch.Tensor, factor: torch.Tensor) -> None:
    """Multiplies a dense y by one float32 on its device, which the host does not wait for; by 1 nothing is moved."""
    with torch.cuda.device_of(y):
        scale_kernel[(cdiv(y.numel(), _SCALED),)](y, factor, y.numel(), BLOCK=_SCALED)
