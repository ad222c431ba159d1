"""The loss of a linear layer: tokens, weights and targets on which wrong functions go wrong, and right results.

An answer is a function of x (M, H), W (V, H) and target (M,), as `helpers.softmax.without_logits` has them. It returns
the mean loss with its gradients dx and dW; or the loss of each token and its log-sum-exp, in float32.
"""

from __future__ import annotations

from functools import partial

import torch

from helpers.check.problems.axes import ONE_FAR_ABOVE, Asked, Dimension, Sizes, derived
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.losses import IGNORED, expected_losses
from helpers.check.problems.problem import Inputs, Make, With

_EPS = torch.finfo(torch.float32).eps


def _drawn(generator: torch.Generator, sizes: Sizes, size: float = 1.0) -> Inputs:
    """Logits about as large as `size`; every fourth token is ignored, if there are as many."""
    M, V, H = (sizes[letter] for letter in "MVH")
    x, W = (torch.randn(rows, H, generator=generator) for rows in (M, V))
    target = torch.randint(V, (M,), generator=generator)
    target[3::4] = IGNORED
    return x, size * W * H**-0.5, target


def _of_row(tokens: int, generator: torch.Generator, s: torch.Tensor) -> Inputs:
    """Tokens with these logits, but for random parts: W is made of them in column 0, where x holds 1. All of x is above
    0, so that −inf in W makes no NaN wherever it lies."""
    x, W = (0.1 * torch.randn(rows, 16, generator=generator) for rows in (tokens, len(s)))
    x = x.abs()
    x[:, 0], W[:, 0] = 1.0, s
    return x, W, torch.arange(tokens) * (len(s) - 1) // (tokens - 1)


def _ignored(first: int) -> Make:
    def make(generator: torch.Generator) -> Inputs:
        x, W, target = _drawn(generator, {"M": 40, "V": 50, "H": 20})
        return x, W, target.where(torch.arange(40) >= first, IGNORED)

    return make


_OWN: dict[str, Make] = {
    "the first tokens ignored": _ignored(20),
    "all tokens ignored": _ignored(40),
    "steep logits": lambda generator: _drawn(generator, {"M": 40, "V": 150, "H": 20}, size=8.0),
}
"""Whole chunks that do not count, and rows whose maximum moves."""


def _asked(**given: object) -> Asked:
    return Asked(tensors={"x": "MH", "W": "VH", "target": "M"}, row="logits", length=200, **given)


_HIDDEN = (" at the start", " at the end", ", every other one", ", all but the last", " alone")
_IN_CHUNKS = _asked(
    dimensions={
        "M": Dimension("token", usual=40, near=16, beyond=200),
        "V": Dimension("class", usual=30, many="classes", near=32, beyond=1500),
        "H": Dimension("number", usual=8, near=16, beyond=300),
    },
    draw=_drawn,
    of_row=partial(_of_row, 40),
    options=({"ROWS": 1, "M": 5}, {"ROWS": 7}, {"ROWS": 64, "M": 70}, {"ROWS": 100}),
    dtypes=(torch.float64,),
    left_out=dict.fromkeys((f"logits of −inf{words}" for words in _HIDDEN), "no class is hidden")
    | {f"logits {ONE_FAR_ABOVE}": "dx would be rounding alone"}
    | {
        f"{many} of {name} far apart in memory": "PyTorch's own operations find the offsets"
        for name, of in {"x": ("tokens", "numbers"), "W": ("classes", "numbers"), "target": ("tokens",)}.items()
        for many in of
    },
)
CHUNKS: dict[str, Make] = derived(_IN_CHUNKS) | _OWN
"""By name, makers of the problems on which wrong loops of chunks go wrong."""

_WALKED = _asked(
    dimensions={
        "M": Dimension("token", usual=40, near=32, beyond=150),
        "V": Dimension("class", usual=100, many="classes", near=64, beyond=1100),
        "H": Dimension("number", usual=20, near=32, beyond=200),
    },
    draw=_drawn,
    of_row=partial(_of_row, 20),
    options=({"BLOCK_M": 16, "BLOCK_V": 128, "V": 300}, {"BLOCK_M": 64, "BLOCK_V": 32, "M": 100, "V": 70}),
    left_out={"tokens of target far apart in memory": "by the text targets lie one after the other"},
)
WALKS: dict[str, Make] = derived(_WALKED) | _OWN
"""By name, makers of the problems on which wrong kernels go wrong."""

MANY_CHUNKS: dict[str, Make] = {
    "16 chunks, 256 numbers": With(lambda generator: _drawn(generator, {"M": 32, "V": 200, "H": 256}), ROWS=2),
    "32 chunks, 2,000 classes": With(lambda generator: _drawn(generator, {"M": 64, "V": 2000, "H": 2}), ROWS=2),
}
"""In the first W and dW are nearly all that moves; in the second the logits are nearly all that is in use."""


def _logits(x: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits (M, V) in float64, and how far each of them may be off in float32, with the exponent made of it."""
    x, W = x.double(), W.double()
    s = x @ W.T
    products = x.abs() @ W.where(W.isfinite(), 0.0).abs().T
    finite = s.where(s.isfinite(), 0.0).abs()
    largest = finite.amax(1, keepdim=True)
    return s, _EPS * (3 * finite + 3 * largest + (1 + x.shape[1] ** 0.5 / 4) * products)


def _gradients(x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> Inputs:
    """The mean loss, dx and dW in float64."""
    losses, slopes = expected_losses(_logits(x, W)[0], target)
    n = (target != IGNORED).sum()
    slopes = slopes / n.clamp(min=1)
    return losses.sum() / n, slopes @ W.double(), slopes.T @ x.double()


def _losses(x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> Inputs:
    """The losses and the log-sum-exps in float64."""
    s, _ = _logits(x, W)
    return expected_losses(s, target)[0], torch.logsumexp(s, 1)


def _loss_allowed(want: torch.Tensor, x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of the loss of each token, of its log-sum-exp, or of the mean loss."""
    _, off = _logits(x, W)
    size = want.where(want.isfinite(), 0.0).abs()
    each = 2 * off.amax(1) + _EPS * (8 + 0.75 * len(W) ** 0.5)
    return (each.amax() if want.dim() == 0 else each) + 3 * _EPS * size


def _slopes(x: torch.Tensor, W: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The size of each logit's slope, and how far it may be off."""
    s, off = _logits(x, W)
    p, counts = torch.softmax(s, 1), (target != IGNORED)[:, None]
    onehot = torch.zeros_like(p).scatter(1, target.clamp(min=0)[:, None], 1.0)
    off = off.clamp(max=1.0)
    error = p * (off + (p * off).sum(1, keepdim=True)) + 8 * _EPS * (p + onehot)
    n = counts.sum().clamp(min=1)
    return (p + onehot) * counts / n, error * counts / n


def _gradient_allowed(
    which: int, want: torch.Tensor, x: torch.Tensor, W: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """Of dx, the first of the two, or of dW."""
    size, off = _slopes(x, W, target)
    allowed = off + _EPS * (8 + 0.75 * max(len(x), len(W)) ** 0.5) * size
    return (allowed.T @ x.double().abs() if which else allowed @ W.double().abs()) + 1e-38


LOSS_AND_GRADIENTS = Kind(
    (
        Output("the loss", lambda x, W, target: ((), x.dtype), _loss_allowed),
        Output("dx", lambda x, W, target: (tuple(x.shape), x.dtype), partial(_gradient_allowed, 0)),
        Output("dW", lambda x, W, target: (tuple(W.shape), W.dtype), partial(_gradient_allowed, 1)),
    ),
    _gradients,
    telling=(
        "small random values", "15 tokens, 31 classes, 15 numbers", "16 tokens, 32 classes, 16 numbers",
        "17 tokens, 33 classes, 17 numbers", "ROWS = 7", "ROWS = 1, 5 tokens", "200 tokens", "the first tokens ignored",
        "all tokens ignored", "steep logits", "logits around 1,000", "strides of their own", "float64",
    ),
)  # fmt: skip
_TELLING = (
    "small random values", "31 tokens, 63 classes, 31 numbers", "32 tokens, 64 classes, 32 numbers",
    "33 tokens, 65 classes, 33 numbers", "200 numbers", "BLOCK_M = 16, BLOCK_V = 128, 300 classes",
    "the first tokens ignored", "steep logits", "logits that rise, from −500 to 500",
    "logits that fall, from 500 to −500", "logits around −1,000", "logits of −inf at the start", "strides of their own",
    "bfloat16",
)  # fmt: skip
LOSSES_WITHOUT_LOGITS = Kind(
    (
        Output("the losses", lambda x, W, target: ((len(x),), torch.float32), _loss_allowed, one_a_row="loss"),
        Output("the log-sum-exps", lambda x, W, target: ((len(x),), torch.float32), _loss_allowed),
    ),
    _losses,
    telling=_TELLING,
    on_gpu=_TELLING,
)
