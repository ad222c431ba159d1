"""Problems of one's own for tests: tensors, and what a kind of answer is to return for them."""

from collections.abc import Mapping

import torch

from helpers.check.problems.cases import SOFTMAX
from helpers.check.problems.kind import Kind
from helpers.check.problems.problem import Make, Problem, Problems


def posed(*inputs: torch.Tensor, kind: Kind = SOFTMAX, **options: int) -> Problem:
    """The problem of these inputs, with options for the driver; by default a softmax is asked for."""
    return Problem(inputs, kind.wants(*inputs), options)


def drawn(makers: Mapping[str, Make], seed: int) -> dict[str, torch.Tensor]:
    """By case: the matrix that a maker draws."""
    return {case: problem.x for case, problem in Problems(makers, SOFTMAX.wants, seed).draw().items()}
