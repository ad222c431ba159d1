"""One query a head and many keys: inputs on which wrong kernels go wrong, and the right results.

An answer is a function of q (H, d), k and v (H / G, N, d): query head h reads the head h // G of keys and values. It
returns o (H, d) in q's dtype, and the log-sum-exp of each query's scores (H,) in float32, base e. Without keys, or with
scores of −inf alone, these are 0 and −inf.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from helpers.check.problems.attention import ATTENTION
from helpers.check.problems.cases import INF
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make, reserved


def group_of(q: torch.Tensor, k: torch.Tensor) -> int:
    """Query heads that share a head of keys."""
    return len(q) // max(1, len(k))


def as_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
    """The same problem as attention has it: q (H, 1, d), k and v (H, N, d)."""
    G = group_of(q, k)
    return q[:, None], k.repeat_interleave(G, 0), v.repeat_interleave(G, 0)


def decoded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
    """o and the log-sum-exps, in float64."""
    return _expected(_versions(q, k, v), q, k, v)[0]


def _allowed(place: int) -> Callable[..., torch.Tensor]:
    """The error allowed of attention's result at this place."""

    def allowed(want: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return _expected(_versions(q, k, v), q, k, v)[1][place]

    return allowed


def _versions(*inputs: torch.Tensor) -> tuple[int, ...]:
    """Numbers that change as soon as one of the tensors is written to."""
    return tuple(one._version for one in inputs)


@lru_cache(maxsize=128)
def _expected(versions: tuple[int, ...], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Inputs, Inputs]:
    """The right results and the errors allowed; kept, since each known mistake is held against them."""
    inputs = as_attention(q, k, v)
    wants = ATTENTION.expected(*inputs)
    errors = (result.allowed(want, *inputs)[:, 0] for result, want in zip(ATTENTION.results, wants, strict=True))
    return tuple(want[:, 0] for want in wants), tuple(errors)


def _random(heads: int, group: int, N: int, d: int, dtype: torch.dtype = torch.float32, size: float = 1.0) -> Make:
    """`heads` heads of keys; values lie around 1."""

    def make(generator: torch.Generator) -> Inputs:
        q = size * torch.randn(group * heads, d, generator=generator)
        k, v = (torch.randn(heads, N, d, generator=generator) for _ in range(2))
        return q.to(dtype), (size * k).to(dtype), (v + 1.0).to(dtype)

    return make


def _scored(scores: Callable[[torch.Generator], torch.Tensor], group: int = 1) -> Make:
    """All queries have these scores, but for random parts; keys are made of them in column 0, where queries hold 1.

    They hold 1 in the last column too, so that a second call with the columns turned round has the same scores.
    """

    def make(generator: torch.Generator) -> Inputs:
        s = scores(generator)
        q, k = (0.1 * torch.randn(rows, 16, generator=generator) for rows in (group, len(s)))
        q[:, 0], q[:, -1], k[:, 0] = 1.0, 1.0, 4 * s
        return q, k[None], torch.randn(1, len(s), 16, generator=generator) + 2.0

    return make


def _equal(group: int, N: int, score: float, value: float, dtype: torch.dtype = torch.float32) -> Make:
    """Scores that are equal, and so exact; values near `value`, or all the same in 16 bits."""

    def make(generator: torch.Generator) -> Inputs:
        q, k = torch.zeros(group, 16), torch.zeros(1, N, 16)
        q[:, 0], q[:, -1], k[..., 0] = 1.0, 1.0, 4 * score
        spread = 0.0 if dtype.itemsize == 2 else 0.5
        v = value + spread * torch.randn(1, N, 16, generator=generator)
        return q.to(dtype), k.to(dtype), v.to(dtype)

    return make


def _minus_inf(N: int, hidden: slice) -> Callable[[torch.Generator], torch.Tensor]:
    def scores(generator: torch.Generator) -> torch.Tensor:
        s = 3 * torch.randn(N, generator=generator)
        s[hidden] = -INF
        return s

    return scores


def _laid_out(group: int) -> Make:
    """Heads, rows and columns of q, k and v that lie apart, each in a way of its own."""

    def make(generator: torch.Generator) -> Inputs:
        q = torch.randn(20, 3 * group, generator=generator)[4:20, group:].T
        k = torch.randn(2, 16, 50, generator=generator)[..., :45].transpose(1, 2)
        v = torch.randn(2, 45, 32, generator=generator)[..., ::2] + 1.0
        return q, k, v

    return make


def _far_apart(group: int) -> Make:
    """Rows of keys and of values 2³⁰ elements apart, in memory that is reserved and hardly touched."""

    def make(generator: torch.Generator) -> Inputs:
        q = torch.randn(group, 16, generator=generator).half()
        k, v = (reserved(2 * 2**30 + 16).as_strided((1, 3, 16), (16, 2**30, 1)) for _ in range(2))
        return q, *(one.copy_(torch.randn(1, 3, 16, generator=generator)) for one in (k, v))

    return make


def _apart_by_level(group: int) -> Make:
    """The queries of a group whose scores lie at levels of their own, thousands apart."""

    def make(generator: torch.Generator) -> Inputs:
        q, k, v = _random(2, group, 150, 16)(generator)
        q[:, 0], k[..., 0] = 4 * (torch.arange(len(q)) % group - 1) * 1000.0, 1.0
        return q, k, v

    return make


def _of_groups(G: int) -> dict[str, Make]:
    """Problems whose numbers are hard, for G query heads a head of keys."""
    return {
        "scores that rise, from −100 to 100": _scored(lambda g: torch.linspace(-100, 100, 400), G),
        "scores that fall, from 100 to −100": _scored(lambda g: torch.linspace(100, -100, 400), G),
        "scores around 1,000": _scored(lambda g: 1000 + torch.randn(170, generator=g), G),
        "scores around −1,000": _scored(lambda g: -1000 + torch.randn(170, generator=g), G),
        "3 keys, scores around −1,000": _scored(lambda g: -1000 + torch.randn(3, generator=g), G),
        "equal scores": _equal(G, 300, 0.0, 3.0),
        "equal scores of −4,000,000": _equal(G, 102, -4e6, 3.0),
        "every other score −inf": _scored(_minus_inf(200, slice(1, None, 2)), G),
        "a first part of only −inf": _scored(_minus_inf(240, slice(0, 131)), G),
        "a last part of only −inf": _scored(_minus_inf(240, slice(100, None)), G),
        "only scores of −inf": _scored(_minus_inf(90, slice(None)), G),
        "bfloat16": _random(2, G, 300, 32, torch.bfloat16),
        "float16, 64 columns": _random(1, G, 170, 64, torch.float16),
        "4,000 equal scores in bfloat16": _equal(G, 4000, 0.0, 1.40625, torch.bfloat16),
        "2,300 equal scores in float16, values of 30": _equal(G, 2300, 0.0, 30.0, torch.float16),
        "heads, rows and columns that lie apart": _laid_out(G),
        "rows 2³⁰ elements apart": _far_apart(G),
        "no keys": _random(2, G, 0, 16),
    }


ONE_A_HEAD: dict[str, Make] = {
    "small random values": _random(2, 1, 100, 16),
    "one key": _random(1, 1, 1, 16),
    "7 keys": _random(3, 1, 7, 16),
    "40 keys": _random(2, 1, 40, 16),
    "several tiles in each part": _random(1, 1, 1100, 16, size=1.6),
    "768 keys": _random(1, 1, 768, 16),
    "5 heads": _random(5, 1, 20, 16),
    "40 columns": _random(1, 1, 250, 40),
    "128 columns": _random(1, 1, 130, 128),
    **_of_groups(1),
}
"""By name, makers of the problems with one query head a head of keys."""

GROUPS: dict[str, Make] = {
    "4 query heads a head of keys": _random(2, 4, 100, 16),
    "1 query head a head of keys": _random(2, 1, 50, 16),
    "9 query heads, 3 heads of keys": _random(3, 3, 30, 16),
    "8 query heads, one key": _random(1, 8, 1, 16),
    "17 query heads, 7 keys": _random(1, 17, 7, 16),
    "several tiles in each part": _random(1, 4, 1100, 16, size=1.6),
    "768 keys": _random(1, 4, 768, 16),
    "queries at different levels": _apart_by_level(4),
    "8 query heads, 40 columns": _random(1, 8, 250, 40),
    "128 columns": _random(1, 4, 130, 128),
    **_of_groups(4),
}
"""By name, makers of the problems with several query heads a head of keys."""

_ON_GPU = (
    "small random values", "4 query heads a head of keys", "7 keys", "17 query heads, 7 keys",
    "several tiles in each part", "scores that rise, from −100 to 100", "a first part of only −inf", "128 columns",
    "bfloat16", "float16, 64 columns", "heads, rows and columns that lie apart", "no keys",
)  # fmt: skip

_TELLING = (
    "small random values", "4 query heads a head of keys", "7 keys", "9 query heads, 3 heads of keys",
    "several tiles in each part", "queries at different levels", "scores that rise, from −100 to 100",
    "scores around −1,000", "a first part of only −inf", "no keys",
)  # fmt: skip

DECODE = Kind(
    (
        Output("o", lambda q, k, v: (tuple(q.shape), q.dtype), _allowed(0)),
        Output("the log-sum-exps", lambda q, k, v: (tuple(q.shape[:1]), torch.float32), _allowed(1)),
    ),
    decoded,
    telling=_TELLING,
    on_gpu=_ON_GPU,
)
