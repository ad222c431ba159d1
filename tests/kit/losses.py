"""Logits, their targets, and a loss with its gradient beside torch's, for the tests of cross_entropy."""

import torch
import torch.nn.functional as F

from helpers import DEVICE
from helpers.softmax import cross_entropy

IGNORED = -100


def logits(*shape, dtype=torch.float32):
    return (4 * torch.randn(*shape, device=DEVICE)).to(dtype)


def classes(M, V):
    """Targets, the third of which is to be ignored."""
    target = torch.randint(0, V, (M,), device=DEVICE)
    target[2::3] = IGNORED
    return target


def with_gradient(loss_of, x, target, upstream=None, **options):
    """The loss and the gradient of the logits, for an upstream gradient of 1 where none is given."""
    x = x.detach().clone().requires_grad_()
    loss = loss_of(x, target, **options)
    upstream = torch.ones_like(loss) if upstream is None else upstream.to(loss.dtype)
    return loss.detach(), torch.autograd.grad(loss, x, upstream)[0]


def error(got, want):
    return (got.double() - want).norm().item() / max(want.norm().item(), 1e-300)


def assert_agrees(x, target, upstream=None, **options):
    """Loss and gradient are at most twice as far from float64 as torch's own."""
    ours = with_gradient(cross_entropy, x, target, upstream, **options)
    torchs = with_gradient(F.cross_entropy, x, target, upstream, **options)
    want = with_gradient(F.cross_entropy, x.double(), target, upstream, **options)
    for got, other, right in zip(ours, torchs, want, strict=True):
        assert got.dtype == other.dtype and got.shape == other.shape
        assert error(got, right) <= 2 * error(other, right) + 2 * torch.finfo(torch.float32).eps
