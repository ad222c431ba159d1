"""Attention: queries, keys and values on which wrong kernels go wrong, and what is right.

An answer is a function of q (H, L, d), k (H, N, d) and v (H, N, d). It returns o (H, L, d) in q's dtype, and the
log-sum-exp of each query's scores (H, L) in float32, base e. The scores are q kᵀ / √d. A query that sees no key has
o = 0 and a log-sum-exp of −inf, as in torch.
"""

from __future__ import annotations

import torch

from helpers.check.problems.axes import Asked, Dimension, Sizes, derived
from helpers.check.problems.cases import INF
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make, With

_EPS = torch.finfo(torch.float32).eps


def _random(heads: int, L: int, N: int, d: int, dtype: torch.dtype = torch.float32, size: float = 1.0) -> Make:
    def make(generator: torch.Generator) -> Inputs:
        q, k, v = (torch.randn(heads, rows, d, generator=generator) for rows in (L, N, N))
        return tuple(x.to(dtype) for x in (size * q, size * k, v + 1.0))

    return make


def _of_row(generator: torch.Generator, s: torch.Tensor) -> Inputs:
    """70 queries with these scores, but for random parts; keys are made of them in column 0, where queries hold 1."""
    q, k = (0.1 * torch.randn(1, rows, 16, generator=generator) for rows in (70, len(s)))
    q[..., 0], k[..., 0] = 1.0, 4 * s
    return q, k, torch.randn(1, len(s), 16, generator=generator) + 2.0


def _equal(L: int, N: int, score: float, value: float, dtype: torch.dtype = torch.float32) -> Make:
    """Scores that are equal, and so exact; values near `value`, or all the same in 16 bits."""

    def make(generator: torch.Generator) -> Inputs:
        q, k = torch.zeros(1, L, 16), torch.zeros(1, N, 16)
        q[..., 0], k[..., 0] = 1.0, 4 * score
        spread = 0.0 if dtype.itemsize == 2 else 0.5
        v = value + spread * torch.randn(1, N, 16, generator=generator)
        return q.to(dtype), k.to(dtype), v.to(dtype)

    return make


def _drawn(generator: torch.Generator, sizes: Sizes) -> Inputs:
    return _random(*(sizes[letter] for letter in "HLND"))(generator)


_ASKED = Asked(
    dimensions={
        "H": Dimension("head", usual=2, beyond=9),
        "L": Dimension("query", usual=20, many="queries", near=64, beyond=200),
        "N": Dimension("key", usual=50, near=32, beyond=1100, empty=True),
        "D": Dimension("column", usual=16, near=16, beyond=128),
    },
    tensors={"q": "HLD", "k": "HND", "v": "HND"},
    draw=_drawn,
    of_row=_of_row,
    row="scores",
    length=200,
    options=({"BLOCK_M": 16, "BLOCK_N": 64, "N": 150}, {"BLOCK_M": 128, "BLOCK_N": 16, "L": 200, "N": 200}),
)
"""There is no case of what the text does not ask for: NaN, and no heads, queries or columns, an empty grid on a GPU."""

QUERIES: dict[str, Make] = {
    **derived(_ASKED),
    "more queries than keys": _random(2, 90, 33, 16),
    "more keys than queries": _random(2, 33, 130, 16),
    "several tiles of keys, steep scores": _random(1, 20, 200, 16, size=1.6),
    "128 scores around −1,000": lambda generator: _of_row(generator, -1000 + torch.randn(128, generator=generator)),
    "4,000 equal scores in bfloat16": With(_equal(16, 4000, 0.0, 1.40625, torch.bfloat16), BLOCK_M=16),
    "2,300 equal scores in float16, values of 3,000": With(_equal(16, 2300, 0.0, 3000.0, torch.float16), BLOCK_M=16),
}
"""By name, makers of the problems on which wrong attention goes wrong."""

_ON_GPU = (
    "small random values", "more queries than keys", "more keys than queries",
    "BLOCK_M = 128, BLOCK_N = 16, 200 queries, 200 keys", "scores that rise, from −500 to 500",
    "scores of −inf at the start", "128 columns", "bfloat16", "float16", "strides of their own", "no keys",
)  # fmt: skip


_TELLING = (
    "small random values", "more queries than keys", "more keys than queries", "several tiles of keys, steep scores",
    "200 queries", "2 heads, 64 queries, 32 keys, 16 columns", "3 heads, 65 queries, 33 keys, 17 columns",
    "scores that rise, from −500 to 500", "scores that fall, from 500 to −500", "scores around −1,000",
    "128 scores around −1,000", "scores around 1,000", "scores of −inf at the start", "scores of −inf, every other one",
    "scores of −inf alone", "strides of their own", "bfloat16", "no keys",
)  # fmt: skip


def scores_of(q: torch.Tensor, k: torch.Tensor, causal: bool = False) -> torch.Tensor:
    """The scores (H, L, N) in float64, −inf for keys that a query does not see."""
    s = q.double() @ k.double().mT * q.shape[-1] ** -0.5
    if not causal:
        return s
    return s.masked_fill(torch.arange(s.shape[2]) > torch.arange(s.shape[1])[:, None], -INF)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False) -> Inputs:
    """o and the log-sum-exp, in float64."""
    p, lse = _weights(q, k, causal)
    return p @ v.double(), lse


def _weights(q: torch.Tensor, k: torch.Tensor, causal: bool) -> Inputs:
    s = scores_of(q, k, causal)
    lse = torch.logsumexp(s, -1)
    return torch.softmax(s, -1).masked_fill((lse == -INF)[..., None], 0.0), lse


def _score_error(q: torch.Tensor, k: torch.Tensor, causal: bool) -> torch.Tensor:
    """How far each exponent may be off in float32, (H, L, N); 0 in rows whose scores are all the same, where errors are
    the same too."""
    s, d = scores_of(q, k, causal), q.shape[-1]
    if not s.numel():
        return s
    finite = s.where(s.isfinite(), 0.0)
    products = q.double().abs() @ k.double().where(k.isfinite(), 0.0).abs().mT * d**-0.5
    error = _EPS * (3 * finite.abs() + 3 * finite.abs().amax(-1, keepdim=True) + (1 + d**0.5 / 4) * products)
    differ = s.masked_fill(~s.isfinite(), -INF).amax(-1) > s.masked_fill(~s.isfinite(), INF).amin(-1)
    return error * differ[..., None]


def _o_allowed(want: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """What exponents that are off cost, and a sum of N terms; in 16 bits also a rounding of each weight and of o.

    If exponents are off by e, a weight p is by p (e − Σ p e), to first order. Whoever subtracts m + log l has rounded
    that sum, by no more than log l.
    """
    p, lse = _weights(q, k, causal)
    size, N = v.double().abs(), v.shape[1]
    if not N:
        return torch.zeros_like(want)
    off = _score_error(q, k, causal)
    off = off * (1 - 2 * p) + (p * off).sum(-1, keepdim=True)
    log_l = (lse - scores_of(q, k, causal).amax(-1)).nan_to_num(0.0)
    off += torch.minimum(_EPS * lse.abs().nan_to_num(posinf=0.0), log_l)[..., None]
    allowed = (p * off.clamp(max=1.0)) @ size + _EPS * (8 + 0.75 * N**0.5) * (p @ size)
    if q.dtype.itemsize == 2:
        least = torch.finfo(q.dtype)
        allowed += 0.5 * least.eps * (p @ size) + 0.75 * least.eps * want.abs()
        allowed += 0.5 * least.smallest_normal * least.eps * (size.sum(1, keepdim=True) + 1)
    return allowed + torch.finfo(torch.float32).smallest_normal


def _lse_allowed(want: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    s = scores_of(q, k, causal)
    if not s.numel():
        return torch.zeros_like(want)
    m, lse = (one.where(one.isfinite(), 0.0).abs() for one in (s.amax(-1), want))
    return _score_error(q, k, causal).amax(-1) + _EPS * (4 + 0.75 * k.shape[1] ** 0.5 + 3 * m + 2 * lse)


def _kind(causal: bool) -> Kind:
    """Attention, causal or not."""
    return Kind(
        (
            Output("o", lambda q, k, v: (tuple(q.shape), q.dtype), lambda want, *x: _o_allowed(want, *x, causal)),
            Output(
                "the log-sum-exps",
                lambda q, k, v: (tuple(q.shape[:2]), torch.float32),
                lambda want, *x: _lse_allowed(want, *x, causal),
            ),
        ),
        lambda q, k, v: attended(q, k, v, causal),
        telling=_TELLING,
        on_gpu=_ON_GPU,
    )


ATTENTION, CAUSAL = _kind(causal=False), _kind(causal=True)


# The gradient


def _backward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, generator: torch.Generator) -> Inputs:
    """The inputs of backward: q, k, v, o, the log-sum-exps, and the gradient of o."""
    o, lse = attended(q, k, v)
    return q, k, v, o.float(), lse.float(), torch.randn(o.shape, generator=generator)


_OF_BACKWARD = {"q": "HLD", "k": "HND", "v": "HND", "o": "HLD", "lse": "HL", "do": "HLD"}
_MANY = {"H": "heads", "L": "queries", "N": "keys", "D": "columns"}

GRADIENTS: dict[str, Make] = derived(
    Asked(
        dimensions={
            "H": Dimension("head", usual=2, beyond=9),
            "L": Dimension("query", usual=20, many="queries", near=16, beyond=150),
            "N": Dimension("key", usual=100, near=64, beyond=500),
            "D": Dimension("column", usual=8, near=16, beyond=128),
        },
        tensors=_OF_BACKWARD,
        draw=lambda generator, sizes: _backward(*_drawn(generator, sizes), generator),
        of_row=lambda generator, s: _backward(*_of_row(generator, s), generator),
        row="scores",
        length=200,
        options=({"BLOCK": 16}, {"BLOCK": 128, "N": 200}),
        dtypes=(torch.float64,),
        left_out=dict.fromkeys(
            ("scores of −inf at the start", "scores of −inf at the end", "scores of −inf, every other one",
             "scores of −inf, all but the last", "scores of −inf alone"),
            "no key is hidden: k itself would hold −inf, and dq be 0 · −inf",
        )
        | {"scores around −2·10³⁷, one far above the others": "what is left of k in dq would be rounding alone"}
        | dict.fromkeys(
            ("every key at one place", "every column at one place"), "o and lse would not be those of q, k and v"
        )
        | {
            f"{_MANY[letter]} of {name} far apart in memory": "PyTorch's own operations find the offsets"
            for name, letters in _OF_BACKWARD.items()
            for letter in letters
        },
    )
)  # fmt: skip
"""By name, makers of the inputs of backward: q, k, v, o, lse and do."""
MANY_KEYS: dict[str, Make] = {
    "2,050 keys": lambda generator: _backward(*_random(1, 512, 2050, 8)(generator), generator)
}
"""A problem whose scores, all of them, take far more memory than its keys and the scores of a block."""


def expected_gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, do: torch.Tensor
) -> Inputs:
    """The gradients of q, k and v in float64, from o and the log-sum-exps as they are given."""
    q, k, v, o, lse, do = (x.double() for x in (q, k, v, o, lse, do))
    scale = q.shape[-1] ** -0.5
    p = torch.exp(q @ k.mT * scale - lse[..., None])
    ds = p * (do @ v.mT - (o * do).sum(-1, keepdim=True))
    return scale * ds @ k, scale * ds.mT @ q, p.mT @ do


def _gradient_sizes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
                    do: torch.Tensor) -> Inputs:  # fmt: skip
    """What the numbers of the gradients could be if no terms cancelled, times how far an exponent may be off."""
    q, k, v, o, lse, do = (x.double() for x in (q, k, v, o, lse, do))
    scale = q.shape[-1] ** -0.5
    p = torch.exp(q @ k.mT * scale - lse[..., None])
    off = 8 + lse.abs()[..., None] + q.abs() @ k.abs().mT * scale
    ds = off * p * (do.abs() @ v.abs().mT + (o * do).abs().sum(-1, keepdim=True))
    return scale * ds @ k.abs(), scale * ds.mT @ q.abs(), (off * p).mT @ do.abs()


def _gradient(name: str, place: int) -> Output:
    def allowed(want: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        size = _gradient_sizes(*inputs)[place]
        return 4 * _EPS * (1 + max(inputs[0].shape[1], inputs[1].shape[1]) ** 0.5 / 4) * size + 1e-30

    return Output(name, lambda *inputs: (tuple(inputs[place].shape), inputs[place].dtype), allowed)


ATTENTION_GRADIENT = Kind(
    (_gradient("dq", 0), _gradient("dk", 1), _gradient("dv", 2)),
    expected_gradients,
    turned=5,  # with another do, o and the log-sum-exps still belong to q, k and v
)
