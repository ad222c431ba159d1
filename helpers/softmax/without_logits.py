"""The functions that lesson 15 arrives at: the loss of a linear layer, whose logits x Wᵀ never exist as a whole.

x (M, H) holds M tokens, W (V, H) the weights of V classes, target (M,) the class of each token in int64, −100 for one
that is ignored. The letters: m a running maximum, l a running sum of exp(s − m), s a tile of logits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def loss_in_place(logits: torch.Tensor, target: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """The sum of some losses, over n. Its gradient takes the place of the logits."""
    counts = target != -100
    at = torch.where(counts, target, 0)[:, None]
    lse = torch.logsumexp(logits, dim=1, keepdim=True)
    losses = torch.where(counts, (lse - logits.gather(1, at))[:, 0], 0.0)
    logits.sub_(lse).exp_()
    logits.scatter_add_(1, at, torch.full_like(lse, -1.0))
    logits.div_(n).masked_fill_(~counts[:, None], 0.0)
    return losses.sum() / n


def chunked_loss(
    x: torch.Tensor, W: torch.Tensor, target: torch.Tensor, ROWS: int = 16
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The mean loss of all tokens that count, and its gradients dx and dW, in PyTorch, for chunks of ROWS tokens.

    A chunk loads W twice, and loads and stores dW once. If no token counts, the loss is NaN, and the gradients are 0.
    """
    loss, dx, dW = x.new_zeros(()), torch.zeros_like(x), torch.zeros_like(W)
    n = (target != -100).sum()
    for start in range(0, len(x), ROWS):
        rows = slice(start, start + ROWS)
        logits = x[rows] @ W.T
        loss += loss_in_place(logits, target[rows], n)
        torch.mm(logits, W, out=dx[rows])
        dW.addmm_(logits.T, x[rows])
    return loss, dx, dW


@triton.jit
def walk_kernel(
    loss_ptr, lse_ptr, x_ptr, w_ptr, target_ptr, x_row, x_col, w_row, w_col, M, V, H,
    BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Each program stores the losses and log-sum-exps of BLOCK_M tokens. It walks over the classes in tiles of BLOCK_V,
    whose logits it adds up in steps of BLOCK_H."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    target = tl.load(target_ptr + rows, mask=rows < M, other=-100)
    m = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    x_target = tl.zeros((BLOCK_M,), tl.float32)
    for first in range(0, V, BLOCK_V):
        cols = first + tl.arange(0, BLOCK_V).to(tl.int64)
        s = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
        for start in range(0, H, BLOCK_H):
            h = start + tl.arange(0, BLOCK_H).to(tl.int64)
            of_x, of_w = (rows < M)[:, None] & (h < H)[None, :], (cols < V)[:, None] & (h < H)[None, :]
            x = tl.load(x_ptr + rows[:, None] * x_row + h[None, :] * x_col, mask=of_x, other=0.0)
            w = tl.load(w_ptr + cols[:, None] * w_row + h[None, :] * w_col, mask=of_w, other=0.0)
            s = tl.dot(x, w.T, s, input_precision="ieee")
        s = tl.where((cols < V)[None, :], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        l = l * tl.exp(m - shift) + tl.sum(tl.exp(s - shift[:, None]), axis=1)
        m = m_new
        x_target += tl.sum(tl.where(cols[None, :] == target[:, None], s, 0.0), axis=1)
    lse = m + tl.log(l)
    loss = tl.where(target == -100, 0.0, lse - x_target)
    tl.store(loss_ptr + rows, loss, mask=rows < M)
    tl.store(lse_ptr + rows, lse, mask=rows < M)


def walked_losses(
    x: torch.Tensor, W: torch.Tensor, target: torch.Tensor, BLOCK_M: int = 32, BLOCK_V: int = 64
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of each token, 0 if it is ignored, and its log-sum-exp: x is loaded ⌈V / BLOCK_V⌉ times, W ⌈M / BLOCK_M⌉
    times, and no logit is stored."""
    (M, H), V = x.shape, len(W)
    losses, lse = torch.empty(M, device=x.device), torch.empty(M, device=x.device)
    walk_kernel[(triton.cdiv(M, BLOCK_M),)](
        losses, lse, x, W, target, *x.stride(), *W.stride(), M, V, H, BLOCK_M=BLOCK_M, BLOCK_V=BLOCK_V, BLOCK_H=32
    )
    return losses, lse
