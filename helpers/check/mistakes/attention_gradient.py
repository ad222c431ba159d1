"""The known mistakes of the gradient of attention, in PyTorch: each is told by the gradients that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from helpers.check.mistakes.attention_walk import wrong_only
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, any_of, came_back, where
from helpers.check.mistakes.shared import MEMORY_USED_AGAIN
from helpers.check.mistakes.stops import GENERAL
from helpers.check.problems.attention import ATTENTION_GRADIENT
from helpers.check.problems.problem import Inputs

BLOCK = 64
"""Keys of a block in the code that is given."""

T = torch.Tensor


@dataclass(frozen=True)
class _Way:
    """How an answer goes about a block of keys. The defaults are right."""

    scale: Callable[[int], float] = lambda d: d**-0.5
    """Of the scores, for d."""
    p: Callable[[T, T], T] = lambda s, lse: torch.exp(s - lse)
    delta: Callable[[T, T, T], T] = lambda q, o, do: (o * do).sum(-1, keepdim=True)
    dv: Callable[[T, T, T], T] = lambda p, ds, do: p.mT @ do
    ds: Callable[[T, T, T], T] = lambda p, dp, delta: p * (dp - delta)
    of_q: Callable[[T, T, float], T] = lambda ds, k, scale: scale * ds @ k
    of_k: Callable[[T, T, float], T] = lambda ds, q, scale: scale * ds.mT @ q
    last_dq: bool = False
    finish: Callable[..., Inputs] = lambda dq, dk, dv: (dq, dk, dv)

    def __call__(self, *inputs: T) -> Inputs:
        """dq, dk and dv."""
        q, k, v, o, lse, do = (x.float() for x in inputs)
        scale, lse, delta = q.shape[-1] ** -0.5, lse[..., None], self.delta(q, o, do)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for start in range(0, k.shape[1], BLOCK):
            keys = slice(start, start + BLOCK)
            p = self.p(self.scale(q.shape[-1]) * q @ k[:, keys].mT, lse)
            ds = self.ds(p, do @ v[:, keys].mT, delta)
            dv[:, keys], dk[:, keys] = self.dv(p, ds, do), self.of_k(ds, q, scale)
            dq = self.of_q(ds, k[:, keys], scale) + (0 if self.last_dq else dq)
        return self.finish(dq, dk, dv)


_RIGHT = _Way()


def _gives(*changes: dict[str, object]) -> Explains:
    """Explains what the right way with one of these changes returns, wherever something came back."""
    ways = [replace(_RIGHT, **one) for one in changes]

    def explains(seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if case.trial.results]
        if not any(not case.ok for case in answered):
            return 0.0
        return max(sum(_agrees(case, way) for case in answered) / len(answered) * 1.0 for way in ways)

    return lambda seen: share if (share := explains(seen)) >= 0.85 else 0.0


def _agrees(seen: Seen, way: _Way) -> bool:
    """Whether each result is this one, to some digits of the largest number in it, and fewer of that in all three."""
    results = way(*seen.inputs)
    of_all = max(map(_largest, results))
    return all(
        torch.isclose(got.float(), one, 1e-3, 1e-4 * _largest(one) + 1e-6 * of_all + 1e-6, equal_nan=True).all()
        for got, one in zip(seen.trial.results, results, strict=True)
    )


def _largest(x: T) -> float:
    """The largest of the numbers that are finite."""
    return float(x.nan_to_num(0.0, 0.0, 0.0).abs().amax()) if x.numel() else 0.0


ATTENTION_GRADIENT_MISTAKES = (
    *GENERAL,
    Mistake(
        "no_three",
        "Something other than dq, dk and dv comes back.",
        "Which three tensors are asked for, and in which order?",
        3,
        lambda seen: max(came_back(kind)(seen) for kind in ("pair", "order", "type")),
    ),
    Mistake(
        "shape_of_gradient",
        "A gradient has the wrong shape.",
        "Which tensor is each of them the gradient of?",
        3,
        came_back("shape"),
    ),
    Mistake(
        "dtype_of_gradient",
        "A gradient has the wrong dtype.",
        "Which dtype has the tensor that it is the gradient of?",
        3,
        came_back("dtype"),
    ),
    Mistake(
        "input_of_backward_changed",
        "An input is overwritten.",
        "Which line changes a tensor in place, and whose is it?",
        3,
        where(lambda seen: seen.trial.input_changed),
    ),
    MEMORY_USED_AGAIN,
    Mistake(
        "no_lse",
        "The log-sum-exp is not subtracted.",
        "What do the weights of a query add up to, and what does exp(s) add up to?",
        1,
        _gives({"p": lambda s, lse: torch.exp(s)}),
    ),
    Mistake(
        "softmax_of_block",
        "The weights are a softmax of one block.",
        "Over which keys do the weights of a query add up to 1, and which number says so?",
        1,
        _gives({"p": lambda s, lse: torch.softmax(s, -1)}),
    ),
    Mistake(
        "weights_of_base_2",
        "2 is raised to a power, not e.",
        "Of which base is the log-sum-exp?",
        1,
        _gives({"p": lambda s, lse: torch.exp2(s - lse)}),
    ),
    Mistake(
        "scores_not_scaled",
        "The scores are not scaled.",
        "With which factor were the scores made that the log-sum-exp is of?",
        1,
        _gives({"scale": lambda d: 1.0}, {"scale": lambda d: 1 / d}, {"scale": lambda d: d**0.5}),
    ),
    Mistake(
        "no_delta",
        "The term delta is not subtracted.",
        "A weight that grows takes from all others: which term says so?",
        2,
        _gives({"ds": lambda p, dp, delta: p * dp}),
    ),
    Mistake(
        "delta_added",
        "The term delta is added, or the difference has the wrong sign.",
        "What is ds for the weight of a value that is just as good as the mean?",
        2,
        _gives({"ds": lambda p, dp, delta: p * (dp + delta)}, {"ds": lambda p, dp, delta: p * (delta - dp)}),
    ),
    Mistake(
        "delta_of_others",
        "The term delta is made of other tensors than o and do.",
        "Which two rows does delta multiply, number by number?",
        2,
        _gives({"delta": lambda q, o, do: do.sum(-1, keepdim=True)},
               {"delta": lambda q, o, do: o.sum(-1, keepdim=True)},
               {"delta": lambda q, o, do: (o * o).sum(-1, keepdim=True)},
               {"delta": lambda q, o, do: (do * do).sum(-1, keepdim=True)},
               {"delta": lambda q, o, do: (q * do).sum(-1, keepdim=True)},
               {"delta": lambda q, o, do: (o * do).mean(-1, keepdim=True)}),
    ),
    Mistake(
        "ds_without_p",
        "The slope ds is not weighed with p.",
        "How much does a score matter whose weight is nearly 0?",
        2,
        _gives({"ds": lambda p, dp, delta: dp - delta}, {"ds": lambda p, dp, delta: p * dp - delta}),
    ),
    Mistake(
        "dq_without_scale",
        "The factor scale is missing in dq or in dk.",
        "The scores are scale · q k: what is their slope in q, and what in k?",
        2,
        _gives({"of_q": lambda ds, k, scale: ds @ k}, {"of_k": lambda ds, q, scale: ds.mT @ q},
               {"of_q": lambda ds, k, scale: ds @ k, "of_k": lambda ds, q, scale: ds.mT @ q}),
    ),
    Mistake(
        "scale_twice",
        "The factor scale is applied twice.",
        "Which of ds, dq and dk holds the factor already?",
        2,
        _gives({"of_q": lambda ds, k, scale: scale**2 * ds @ k, "of_k": lambda ds, q, scale: scale**2 * ds.mT @ q},
               {"of_q": lambda ds, k, scale: scale**2 * ds @ k}, {"of_k": lambda ds, q, scale: scale**2 * ds.mT @ q}),
    ),
    Mistake(
        "dq_of_last_block",
        "The gradient dq holds the part of the last block alone.",
        "Which keys does a query get its gradient from, and what becomes of the earlier blocks' parts?",
        3,
        _gives({"last_dq": True}),
    ),
    Mistake(
        "dk_of_p",
        "The tensors p and ds have changed places.",
        "Which of the two does dv take, and which one dk?",
        1,
        _gives({"of_k": lambda ds, q, scale: ds.mT @ q, "dv": lambda p, ds, do: ds.mT @ do},
               {"dv": lambda p, ds, do: ds.mT @ do}),
    ),
    Mistake(
        "dv_wrong",
        "Only dv is wrong, and all else is right.",
        "Which weights does a value enter o with, and which rows of do does it meet?",
        1,
        wrong_only(ATTENTION_GRADIENT, 2),
    ),
    Mistake(
        "dq_wrong",
        "The gradient dq is wrong, and dv is right.",
        "ds has a row for each query: which rows does it weigh, and are the parts of all blocks added?",
        2,
        any_of(wrong_only(ATTENTION_GRADIENT, 0), wrong_only(ATTENTION_GRADIENT, 0, 1)),
    ),
    Mistake(
        "dk_wrong",
        "Only dk is wrong, and all else is right.",
        "ds turned over has a row for each key: which rows does it weigh?",
        2,
        wrong_only(ATTENTION_GRADIENT, 1),
    ),
)  # fmt: skip
