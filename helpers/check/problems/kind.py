"""A kind of problem: which tensors an answer is to return, which ones are right, and how exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from helpers.check.problems.problem import Inputs, Wants


@dataclass(frozen=True)
class Output:
    """One of the tensors that an answer is to return."""

    name: str
    """In a message, if several are asked for: "the losses"."""
    like: Callable[..., tuple[tuple[int, ...], torch.dtype]]
    """Its shape and dtype, for the inputs."""
    allowed: Callable[..., torch.Tensor]
    """The absolute error allowed of each number, for the right result in float64 and the inputs; inf allows all."""
    one_a_row: str = ""
    """What a row has one number of, if it has: "loss"."""


@dataclass(frozen=True)
class Kind:
    """All problems with the same results; `expected` has the right ones, in float64 on the CPU, for the inputs."""

    results: tuple[Output, ...]
    expected: Callable[..., tuple[torch.Tensor, ...]]
    telling: Sequence[str] = ()
    """Cases that tell known mistakes apart, and take little time: they are tried first."""
    on_gpu: Sequence[str] = ()
    """Cases that also run on the GPU, if there is one, after all passed interpreted."""
    turned: int = 0
    """The input that has other numbers in a second call."""

    def wants(self, *inputs: torch.Tensor) -> Wants:
        """Shape and dtype of each result."""
        return tuple(result.like(*inputs) for result in self.results)

    def wrong(self, inputs: Inputs, got: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Which numbers of each result are wrong, as masks on the CPU; of the first results, if there are fewer."""
        given = tuple(one.cpu() for one in inputs)
        return tuple(
            ~close(one.double().cpu(), want, result.allowed(want, *given))
            for one, want, result in zip(got, self.expected(*given), self.results, strict=False)
        )

    def is_right(self, inputs: Inputs, got: Sequence[torch.Tensor]) -> bool:
        """Whether these are the right results."""
        return not any(bool(wrong.any()) for wrong in self.wrong(inputs, got))

    def is_zero(self, inputs: Inputs) -> bool:
        """Whether every number of the right results is 0."""
        return not any(bool((want != 0).any()) for want in self.expected(*inputs))

    def largest_error(self, inputs: Inputs) -> float:
        """The largest error allowed of a result, as a fraction of its largest number."""
        wants = self.expected(*inputs)
        errors = [
            float(result.allowed(want, *inputs).nan_to_num(0, 0).max() / _largest(want))
            for result, want in zip(self.results, wants, strict=True)
            if want.numel()
        ]
        return max(errors, default=0.0)


def _largest(want: torch.Tensor) -> float:
    return float(want.nan_to_num(0, 0, 0).abs().max()) or 1.0


def close(got: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Where two tensors of float64 differ by no more than is allowed: infinitely much if anything is right.

    NaN equals NaN, and an infinity itself.
    """
    return ((got - want).abs() <= allowed) | (got == want) | (got.isnan() & want.isnan()) | torch.isinf(allowed)
