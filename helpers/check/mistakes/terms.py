"""Mistakes in the terms of a softmax: in its numerators, or in the numbers whose sum is the denominator."""

from __future__ import annotations

import torch

from helpers.check.mistakes import names
from helpers.check.mistakes import simulate as sim
from helpers.check.mistakes.recognise import Mistake, gives, recognised


def _exp_then_m(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) - m


def _exp_then_largest(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) - torch.exp(m)


def _exponent(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return x - m


def _score(x: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return x


def _whole(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=1, keepdim=True)


TERMS = (
    Mistake(
        "maximum_after_exp",
        "The maximum is subtracted after exp, not before it.",
        "exp(1000) is inf: what can a subtraction still change, and on which side of exp does it help?",
        3,
        gives(sim.in_terms(_exp_then_m, _exp_then_m), sim.in_terms(_exp_then_largest, _exp_then_largest)),
    ),
    Mistake(
        "exponent_reversed",
        "The exponent is m − x.",
        "Which entry of a row has the largest probability, and which exponent is the largest?",
        3,
        gives(sim.in_two_passes(term=lambda exponent: torch.exp(-exponent))),
    ),
    Mistake(
        "mean_of_terms",
        "The exponentials are divided by their mean or by the maximum, or multiplied by their sum.",
        "What does each row of the result add up to, and what should it?",
        3,
        gives(
            lambda x, B: torch.softmax(x.float(), dim=1) * x.shape[1],
            lambda x, B: sim.no_division(x, B) / sim.maximum(x, B),
            lambda x, B: sim.no_division(x, B) * sim.no_division(x, B).sum(dim=1, keepdim=True),
        ),
    ),
    recognised(
        names.LOGARITHM_RETURNED,
        3,
        gives(
            lambda x, B: torch.log_softmax(x.float(), dim=1),
            lambda x, B: x.float() - sim.maximum(x, B) - sim.no_division(x, B).sum(dim=1, keepdim=True),
        ),
    ),
    recognised(
        names.SCORES_ADDED,
        3,
        gives(*(sim.in_terms(sim.exps, term) for term in (_score, _exponent))),
    ),
    Mistake(
        "scores_divided",
        "Scores are divided by the sum, not their exponentials.",
        "Can a probability be negative, and what is the numerator of softmax?",
        3,
        gives(*(sim.in_terms(above, below) for above in (_score, _exponent) for below in (sim.exps, above))),
    ),
    recognised(
        names.EXP_OF_THE_SUM,
        3,
        gives(
            sim.in_terms(sim.exps, lambda x, m: torch.exp(_whole(x) - m)),
            sim.in_terms(sim.exps, lambda x, m: torch.exp(_whole(x - m))),
        ),
    ),
)
