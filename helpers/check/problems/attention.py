"""Attention: queries, keys and values on which wrong kernels go wrong, and what is right.

An answer is a function of q (H, L, d), k (H, N, d) and v (H, N, d). It returns o (H, L, d) in q's dtype, and the
log-sum-exp of each query's scores (H, L) in float32, base e. The scores are q kᵀ / √d. A query that sees no key has
o = 0 and a log-sum-exp of −inf, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from helpers.check.problems.cases import INF
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make, reserved

_EPS = torch.finfo(torch.float32).eps


def _random(heads: int, L: int, N: int, d: int, dtype: torch.dtype = torch.float32, size: float = 1.0) -> Make:
    def make(generator: torch.Generator) -> Inputs:
        q, k, v = (torch.randn(heads, rows, d, generator=generator) for rows in (L, N, N))
        return tuple(x.to(dtype) for x in (size * q, size * k, v + 1.0))

    return make


def _scored(L: int, scores: Callable[[torch.Generator], torch.Tensor], v: Make | None = None, d: int = 16) -> Make:
    """All queries have these scores, but for random parts; keys are made of them in column 0, where queries hold 1."""

    def make(generator: torch.Generator) -> Inputs:
        s = scores(generator)
        q, k = (0.1 * torch.randn(1, rows, d, generator=generator) for rows in (L, len(s)))
        q[..., 0], k[..., 0] = 1.0, s * d**0.5
        return q, k, v(generator) if v else torch.randn(1, len(s), d, generator=generator) + 2.0

    return make


def _equal(L: int, N: int, score: float, value: float, dtype: torch.dtype = torch.float32) -> Make:
    """Scores that are equal, and so exact; values near `value`, or all the same in 16 bits."""

    def make(generator: torch.Generator) -> Inputs:
        q, k = torch.zeros(1, L, 16), torch.zeros(1, N, 16)
        q[..., 0], k[..., 0] = 1.0, 4 * score
        spread = 0.0 if dtype.itemsize == 2 else 0.5
        v = value + spread * torch.randn(1, N, 16, generator=generator)
        return q.to(dtype), k.to(dtype), v.to(dtype)

    return make


def _first_of_minus_inf(generator: torch.Generator) -> torch.Tensor:
    s = 3 * torch.randn(150, generator=generator)
    s[:131] = -INF
    return s


def _every_other_minus_inf(generator: torch.Generator) -> torch.Tensor:
    s = torch.randn(70, generator=generator)
    s[1::2] = -INF
    return s


def _laid_out(generator: torch.Generator) -> Inputs:
    """Heads, rows and columns of q, k and v that lie apart, each in a way of its own."""
    q = torch.randn(20, 3, 40, generator=generator)[:, 1:, 4:20].transpose(0, 1)
    k = torch.randn(2, 16, 50, generator=generator)[..., :45].transpose(1, 2)
    v = torch.randn(2, 45, 32, generator=generator)[..., ::2]
    return q, k, v


def _keys_for_all_heads(generator: torch.Generator) -> Inputs:
    q, k, v = _random(3, 10, 40, 16)(generator)
    return q, k[:1].expand(3, 40, 16), v[:1].expand(3, 40, 16)


def _far_apart(generator: torch.Generator) -> Inputs:
    """Rows of keys and of values 2³⁰ elements apart, in memory that is reserved and hardly touched."""
    q = torch.randn(1, 3, 16, generator=generator).half()
    k, v = (reserved(2 * 2**30 + 16).as_strided((1, 3, 16), (16, 2**30, 1)) for _ in range(2))
    return q, *(one.copy_(torch.randn(1, 3, 16, generator=generator)) for one in (k, v))


def _no_keys(generator: torch.Generator) -> Inputs:
    return _random(2, 3, 0, 16)(generator)


QUERIES: dict[str, Make] = {
    "small random values": _random(2, 20, 20, 16),
    "one query and one key": _random(1, 1, 1, 16),
    "several tiles of keys": _random(1, 20, 200, 16, size=1.6),
    "200 queries in several programs": _random(1, 200, 200, 16),
    "more queries than keys": _random(2, 90, 33, 16),
    "more keys than queries": _random(2, 33, 130, 16),
    "scores that rise, from −100 to 100": _scored(70, lambda g: torch.linspace(-100, 100, 200)),
    "scores that fall, from 100 to −100": _scored(70, lambda g: torch.linspace(100, -100, 200)),
    "scores around 1,000": _scored(70, lambda g: 1000 + torch.randn(70, generator=g)),
    "scores around −1,000": _scored(70, lambda g: -1000 + torch.randn(70, generator=g)),
    "128 equal scores of −1,000": _equal(70, 128, -1000.0, 3.0),
    "equal scores": _equal(70, 100, 0.0, 3.0),
    "equal scores of −4,000,000": _equal(70, 100, -4e6, 3.0),
    "every other score −inf": _scored(70, _every_other_minus_inf),
    "a first tile of only −inf": _scored(150, _first_of_minus_inf),
    "only scores of −inf": _scored(70, lambda g: torch.full((70,), -INF)),
    "40 columns, values of which lie around 1": _random(1, 20, 50, 40),
    "128 columns": _random(1, 10, 40, 128),
    "bfloat16": _random(2, 40, 100, 32, torch.bfloat16),
    "float16, 64 columns": _random(1, 70, 40, 64, torch.float16),
    "4,000 equal scores in bfloat16": _equal(16, 4000, 0.0, 1.40625, torch.bfloat16),
    "2,300 equal scores in float16, values of 30": _equal(16, 2300, 0.0, 30.0, torch.float16),
    "heads, rows and columns that lie apart": _laid_out,
    "one head of keys for all": _keys_for_all_heads,
    "rows 2³⁰ elements apart": _far_apart,
    "no keys": _no_keys,
}
"""By name, makers of the problems on which wrong attention goes wrong."""

_ON_GPU = (
    "small random values", "several tiles of keys", "more queries than keys", "more keys than queries",
    "scores that rise, from −100 to 100", "a first tile of only −inf", "128 columns", "bfloat16", "float16, 64 columns",
    "heads, rows and columns that lie apart", "no keys",
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
    return torch.exp(s - lse.masked_fill(lse == -INF, 0.0)[..., None]), lse


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
    """What exponents that are off cost, and a sum of N terms; in 16 bits also a rounding of each weight and of o."""
    p, _ = _weights(q, k, causal)
    size, N = v.double().abs(), v.shape[1]
    if not N:
        return torch.zeros_like(want)
    off = _score_error(q, k, causal)
    allowed = (p * (off + off.amax(-1, keepdim=True)).clamp(max=1.0)) @ size + _EPS * (8 + 0.75 * N**0.5) * (p @ size)
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
        on_gpu=_ON_GPU,
    )


ATTENTION, CAUSAL = _kind(causal=False), _kind(causal=True)


# The gradient


def _backward(make: Make) -> Make:
    """The inputs of backward: q, k, v, o, the log-sum-exps, and the gradient of o."""

    def with_gradient(generator: torch.Generator) -> Inputs:
        q, k, v = make(generator)
        o, lse = attended(q, k, v)
        return q, k, v, o.float(), lse.float(), torch.randn(o.shape, generator=generator)

    return with_gradient


GRADIENTS: dict[str, Make] = {
    "small random values": _backward(_random(2, 10, 12, 8)),
    "one query and one key": _backward(_random(1, 1, 1, 16)),
    "130 keys, in several blocks": _backward(_random(2, 20, 130, 16)),
    "more queries than keys": _backward(_random(1, 150, 40, 16)),
    "steep scores": _backward(_random(1, 20, 300, 32, size=2.5)),
    "scores around 1,000": _backward(_scored(20, lambda g: 1000 + torch.randn(70, generator=g))),
    "500 keys": _backward(_random(1, 8, 500, 16)),
}
"""By name, makers of the inputs of backward: q, k, v, o, lse and do."""
FEW_AND_MANY_KEYS = {f"{keys} keys": _backward(_random(1, 32, keys, 16)) for keys in (64, 640)}
"""Two problems that show what grows with the number of keys."""


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


ATTENTION_GRADIENT = Kind((_gradient("dq", 0), _gradient("dk", 1), _gradient("dv", 2)), expected_gradients)
