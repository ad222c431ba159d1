"""What a wrong kernel of losses would return, row by row, and how it is recognised by that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers.check.mistakes.recognise import Explains, Seen
from helpers.check.problems.kind import close
from helpers.check.problems.losses import IGNORED, LOSSES_AND_GRADIENT, expected_losses, is_class, loss_allowed


@dataclass(frozen=True)
class LossRow:
    """What a kernel may have of each row: float32 logits, the pair (m, l), the target's logit, 0 where ignored."""

    x: torch.Tensor
    target: torch.Tensor
    m: torch.Tensor
    l: torch.Tensor
    x_target: torch.Tensor
    kept: torch.Tensor
    tile: int

    @property
    def p(self) -> torch.Tensor:
        """The softmax."""
        return torch.exp(self.x - self.m[:, None]) / self.l[:, None]

    @property
    def onehot(self) -> torch.Tensor:
        """1 at the target, 0 elsewhere and in rows that are ignored."""
        return torch.zeros_like(self.x).scatter(1, self.column[:, None], 1.0) * self.kept[:, None]

    @property
    def column(self) -> torch.Tensor:
        """The target, or the nearest column if it is none."""
        return self.target.clamp(0, self.x.shape[1] - 1)

    @property
    def loss(self) -> torch.Tensor:
        """The right loss, also of rows that are ignored."""
        return self.m + torch.log(self.l) - self.x_target


def _row(seen: Seen) -> LossRow:
    x, target = seen.x.float(), target_of(seen)
    m = x.amax(dim=1)
    x_target = x.gather(1, target.clamp(0, x.shape[1] - 1)[:, None])[:, 0].where(target >= 0, 0.0)
    tile = max(seen.trial.tile, 1 << (x.shape[1] - 1).bit_length())
    return LossRow(x, target, m, torch.exp(x - m[:, None]).sum(dim=1), x_target, target != IGNORED, tile)


Of = Callable[[LossRow], torch.Tensor]


def gives_loss(*results: Of, ignored: float | None = 0.0) -> Explains:
    """Explains losses that one of `results` reproduces; ignored rows have the loss `ignored`, or None: a result's."""

    def of(row: LossRow, result: Of) -> torch.Tensor:
        return result(row) if ignored is None else torch.where(row.kept, result(row), ignored)

    return _explains(0, [lambda row, result=result: of(row, result) for result in results])


def gives_gradient(*results: Of, ignored: bool = True) -> Explains:
    """Explains a gradient that one of `results` reproduces; with `ignored`, it is 0 in rows that are."""

    def of(row: LossRow, result: Of) -> torch.Tensor:
        return torch.where(row.kept[:, None], result(row), 0.0) if ignored else result(row)

    return _explains(1, [lambda row, result=result: of(row, result) for result in results])


def target_of(seen: Seen) -> torch.Tensor:
    """The targets of a case."""
    return seen.others[0]


def losses_nearly_right(seen: Sequence[Seen]) -> float:
    """Explains a little if every loss is right to two hundredths, though some are wrong."""
    return _nearly_right(0, seen, lambda case, want: loss_allowed(want, *case.inputs))


def gradient_nearly_right(seen: Sequence[Seen]) -> float:
    """Explains a little if every slope is right to two hundredths, though some are wrong."""
    return _nearly_right(1, seen, lambda case, want: 0.0)


def _nearly_right(part: int, seen: Sequence[Seen], inexact: Callable[[Seen, torch.Tensor], Any]) -> float:
    def is_near(case: Seen) -> bool:
        want = expected_losses(*case.inputs)[part]
        got = case.trial.results[part].double()
        too_large_for_16_bits = want.isfinite() & (want.abs() > torch.finfo(torch.float16).max)
        near = close(got, want, 2e-2 * want.abs() + 1e-3 + inexact(case, want)) | too_large_for_16_bits
        return bool(near[is_class(*case.inputs)].all())

    answered = [case for case in seen if len(case.trial.results) > part]
    wrong = any(_is_wrong(case, part) for case in answered if not case.ok)
    return 0.45 * (wrong and all(map(is_near, answered)))


def _is_wrong(seen: Seen, part: int, got: torch.Tensor | None = None) -> bool:
    """Whether a number of this result, or of `got` in its place, is wrong."""
    results = list(expected_losses(*seen.inputs))
    results[part] = seen.trial.results[part] if got is None else got
    return bool(LOSSES_AND_GRADIENT.wrong(seen.inputs, results)[part].any())


def _explains(part: int, results: Sequence[Of]) -> Explains:
    """As `recognise.gives`: all cases in which this part is wrong, but for a fifth, and nine tenths of all.

    If the losses are right, no mistake in a loss explains a wrong gradient, though it may agree in most cases.
    """

    def agrees(seen: Seen, result: Of) -> bool:
        got, want = seen.trial.results[part].float(), result(_row(seen))
        want = want.to(seen.x.dtype).float() if part else want
        rtol = 2e-3 if not part or seen.x.dtype == torch.float32 else 1e-2
        judged = is_class(*seen.inputs)
        near = torch.isclose(got[judged], want[judged], rtol, 1e-6 if part else 1e-4, equal_nan=True).all()
        # An answer that is nearly right does not show a mistake that leaves this case right.
        return bool(near) and _is_wrong(seen, part, want) == _is_wrong(seen, part)

    def explains(seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if len(case.trial.results) > part and len(case.x)]
        wrong = [case for case in answered if not case.ok and _is_wrong(case, part)]
        best = 0.0
        # What a few cases show is too little to go by if the others have ended with an error.
        for result in results if wrong and 2 * len(answered) >= len(seen) else ():
            share = sum(agrees(case, result) for case in wrong) / len(wrong)
            every = sum(agrees(case, result) for case in answered) / len(answered)
            best = max(best, 0.5 * (share + every) if share >= 0.8 and every >= 0.9 else 0.0)
        return best

    return explains
