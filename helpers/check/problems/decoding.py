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
from helpers.check.problems.axes import Asked, Dimension, Sizes, derived
from helpers.check.problems.kind import Kind, Output
from helpers.check.problems.problem import Inputs, Make


def group_of(q: torch.Tensor, k: torch.Tensor) -> int:
    """Query heads that share a head of keys."""
    return len(q) // max(1, len(k))


def as_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
    """The same problem as attention has it: q (H, 1, d), k and v (H, N, d)."""
    G = group_of(q, k)
    return q[:, None], k.repeat_interleave(G, 0), v.repeat_interleave(G, 0)


def _decoded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
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


def _of_row(group: int) -> Callable[[torch.Generator, torch.Tensor], Inputs]:
    """All queries have these scores, but for random parts; keys are made of them in column 0, where queries hold 1.

    They hold 1 in the last column too, so that a second call with the columns turned round has the same scores.
    """

    def make(generator: torch.Generator, s: torch.Tensor) -> Inputs:
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


def _apart_by_level(group: int) -> Make:
    """The queries of a group whose scores lie at levels of their own, thousands apart."""

    def make(generator: torch.Generator) -> Inputs:
        q, k, v = _random(2, group, 150, 16)(generator)
        q[:, 0], k[..., 0] = 4 * (torch.arange(len(q)) % group - 1) * 1000.0, 1.0
        return q, k, v

    return make


def _drawn(generator: torch.Generator, sizes: Sizes) -> Inputs:
    """`H` heads of keys, each with `G` heads of queries."""
    return _random(*(sizes.get(letter, 1) for letter in "HGND"))(generator)


_HEADS = Dimension("head of keys", usual=2, many="heads of keys")
_KEYS = Dimension("key", usual=50, near=64, beyond=1100, empty=True)
_COLUMNS = Dimension("column", usual=16, near=16, beyond=128)


def _asked(group: int, **dimensions: Dimension) -> Asked:
    """Decoding in S parts; the letters of q leave out the group, since its heads lie one after the other."""
    return Asked(
        dimensions={"H": _HEADS, **dimensions, "N": _KEYS, "D": _COLUMNS},
        tensors={"q": "HD", "k": "HND", "v": "HND"},
        draw=_drawn,
        of_row=_of_row(group),
        row="scores",
        length=200,
        few={"S": 2},
        options=({"S": 1, "H": 9}, {"S": 3, "BLOCK_N": 16}, {"S": 41, "BLOCK_N": 128, "H": 1, "N": 107}),
    )


ONE_A_HEAD: dict[str, Make] = {
    **derived(_asked(1)),
    "7 keys": _random(3, 1, 7, 16),
    "3 keys, scores around −1,000": lambda g: _of_row(1)(g, -1000 + torch.randn(3, generator=g)),
    "several tiles in each part, steep scores": _random(1, 1, 1100, 16, size=1.6),
    "4,000 equal scores in bfloat16": _equal(1, 4000, 0.0, 1.40625, torch.bfloat16),
    "2,300 equal scores in float16, values of 300": _equal(1, 2300, 0.0, 300.0, torch.float16),
}
"""By name, makers of the problems with one query head a head of keys."""

GROUPS: dict[str, Make] = {
    **derived(_asked(4, G=Dimension("query head for each", usual=4, many="query heads for each", near=16, beyond=33))),
    "queries at different levels": _apart_by_level(4),
    "3 keys, scores around −1,000": lambda g: _of_row(4)(g, -1000 + torch.randn(3, generator=g)),
    "several tiles in each part, steep scores": _random(1, 4, 1100, 16, size=1.6),
    "4,000 equal scores in bfloat16": _equal(4, 4000, 0.0, 1.40625, torch.bfloat16),
    "2,300 equal scores in float16, values of 300": _equal(4, 2300, 0.0, 300.0, torch.float16),
}
"""By name, makers of the problems with several query heads a head of keys."""

_ON_GPU = (
    "small random values", "7 keys", "several tiles in each part, steep scores", "scores that rise, from −500 to 500",
    "scores of −inf at the start", "128 columns", "bfloat16", "float16", "strides of their own", "S = 3, BLOCK_N = 16",
    "no keys",
)  # fmt: skip

_TELLING = (
    "small random values", "7 keys", "several tiles in each part, steep scores", "queries at different levels",
    "scores that rise, from −500 to 500", "scores around −1,000", "scores of −inf at the start", "strides of their own",
    "no keys",
)  # fmt: skip

DECODE = Kind(
    (
        Output("o", lambda q, k, v: (tuple(q.shape), q.dtype), _allowed(0)),
        Output("the log-sum-exps", lambda q, k, v: (tuple(q.shape[:1]), torch.float32), _allowed(1)),
    ),
    _decoded,
    telling=_TELLING,
    on_gpu=_ON_GPU,
)
