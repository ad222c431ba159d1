"""Lesson 01, eager softmax: where exp overflows, and the stable form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from helpers import kernels
from helpers.check.exercise import TensorExercise, ValuesExercise, WrongArgument
from helpers.check.mistakes import names
from helpers.check.mistakes import simulate as sim
from helpers.check.mistakes.recognise import Mistake, Seen, gives, recognised, with_hints
from helpers.check.mistakes.shared import TENSOR
from helpers.check.problems import cases
from helpers.check.problems.problem import Make
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial import trial

# 1.1


def _overflow(exercise: ValuesExercise, limits: Mapping[torch.dtype, float | None]) -> Report:
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    if not isinstance(limits, Mapping) or not set(dtypes) <= set(limits):
        keys = ", ".join(map(str, dtypes))
        raise WrongArgument(f"check.overflow takes a dict with the keys {keys}; got {trial.shown(limits)}.")
    if all(limits[dtype] is None for dtype in dtypes):
        return exercise.untouched()
    findings = [_overflow_finding(dtype, trial.number(limits[dtype])) for dtype in dtypes]
    wrong = [dtype for dtype, finding in zip(dtypes, findings, strict=True) if not finding.ok]
    return exercise.judged(findings, diagnosis=_overflow_mistake(limits, wrong) if wrong else None)


def _overflow_finding(dtype: torch.dtype, limit: float | None) -> Finding:
    name = str(dtype).removeprefix("torch.")
    if not trial.is_number(limit) or not math.isfinite(limit):
        return Finding(name, False, f"needs a finite number; it is {trial.shown(limit)}")
    stored, largest = torch.tensor(limit, dtype=dtype).item(), _largest_with_finite_exp(dtype)
    if stored > largest:
        return Finding(name, False, f"exp({limit:.7g}) is already inf; {limit:.7g} is stored as {stored:.9g}")
    if stored < largest and largest - limit > 0.01:
        spacing = _spacing(dtype, limit)
        higher = stored + spacing if spacing > 0.01 else limit + 0.01
        return Finding(name, False, f"exp({higher:g}) is finite too; the limit is higher")
    return Finding(name, True, f"exp({limit:g}) is finite, and inf for every number that is 0.01 larger")


def _largest_with_finite_exp(dtype: torch.dtype) -> float:
    """The largest number of the dtype whose exp the dtype holds."""
    x = torch.tensor(math.log(torch.finfo(dtype).max), dtype=dtype)
    return (x - _spacing(dtype, x.item()) if x.double().exp().to(dtype).isinf() else x).item()


def _spacing(dtype: torch.dtype, x: float) -> float:
    """How far x and the next number of the dtype lie apart."""
    return torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(max(1.0, abs(x))))


LARGEST_NUMBER = Diagnosis(
    "largest_number",
    "The largest number itself is taken, not the number whose exp it is.",
    "finfo.max is what exp(x) may be at most: which x has that exp?",
    1,
)
ROUNDED_UP = Diagnosis(
    "rounded_up",
    "A number is close to the limit, and the dtype rounds it up past it.",
    "As which number of the dtype is it stored, and is the exp of that still finite?",
    2,
)

OTHER_BASE = Diagnosis(
    "other_base",
    "The limit is that of powers of 10 or of 2, not of e.",
    "Of which number is exp(x) a power?",
    1,
)
DTYPES_SWAPPED = Diagnosis(
    "dtypes_swapped",
    "The limits of bfloat16 and float16 are swapped.",
    "Which of the two has the largest number?",
    1,
)


def _overflow_mistake(limits: Mapping[torch.dtype, float], wrong: Sequence[torch.dtype]) -> Diagnosis | None:
    """The mistake that every wrong limit shows, if it is one of these."""
    found = {dtype: trial.number(limits[dtype]) for dtype in wrong}
    if not all(map(trial.is_number, found.values())):
        return None
    logs = {dtype: math.log(torch.finfo(dtype).max) for dtype in (*wrong, torch.bfloat16, torch.float16)}
    swapped = {torch.bfloat16: logs[torch.float16], torch.float16: logs[torch.bfloat16]}
    shown: dict[Diagnosis, Callable[[torch.dtype, float], bool]] = {
        LARGEST_NUMBER: lambda dtype, limit: limit > 0.9 * torch.finfo(dtype).max,
        ROUNDED_UP: lambda dtype, limit: abs(limit - logs[dtype]) < 0.05,
        OTHER_BASE: lambda dtype, limit: any(abs(limit * math.log(base) - logs[dtype]) < 0.5 for base in (2, 10)),
        DTYPES_SWAPPED: lambda dtype, limit: dtype in swapped and abs(limit - swapped[dtype]) < 1,
    }
    return next((one for one, shows in shown.items() if all(shows(*each) for each in found.items())), None)


# 1.2

AROUND_60: dict[str, Make] = {
    "around +60": cases.randn(3, 32, shift=60.0),
    "around −60": cases.randn(3, 32, shift=-60.0),
}
"""Where exp alone is finite: right for a naive softmax, and not for every wrong shift."""

STABLE: dict[str, Make] = {
    "small random values": cases.randn(4, 128),
    "large values, around +1000": cases.randn(4, 128, shift=1000.0),
    "very negative values, around −1000": cases.randn(4, 128, shift=-1000.0),
    "a wide range in one row": cases.randn(4, 128, scale=60.0),
    "rows at very different levels": lambda g: torch.randn(3, 128, generator=g) + torch.tensor([[-500.0], [0], [500]]),
    "one column": cases.randn(3, 1, scale=0.1),
    "very negative values, around −10⁵": cases.randn(2, 64, scale=5.0, shift=-1e5),
    "one row": cases.randn(1, 64),
    "equal maxima": cases.few_values(3, 128),
    "a maximum far above the rest, in several columns": cases.spikes(128, 0, 1, 63, 64, 126, 127),
    "−inf and NaN": cases.specials(64),  # without +inf: exp(x − logsumexp), as right as any, gives 0 in its row
    "−inf and NaN in one column": cases.specials(1),
}

_OTHERS: dict[str, Make] = {
    "bfloat16, one column": cases.randn(3, 1, dtype=torch.bfloat16),  # of longer rows, 16 bits round each operation
    "float16, one column": cases.randn(3, 1, dtype=torch.float16),
    "float64": cases.randn(4, 128, dtype=torch.float64, scale=3.0),
    "rows of 3000 columns": cases.randn(2, 3000),
    "a maximum behind 2000 columns": lambda g: torch.zeros(2, 2500).index_fill_(1, torch.tensor([2300]), 1000.0),
    "rows with gaps between them": lambda g: torch.randn(4, 160, generator=g)[:, :128],
    "columns with gaps between them": lambda g: torch.randn(4, 256, generator=g)[:, ::2],
}
"""Other dtypes, longer rows and gaps in memory, which the lessons on kernels have cases of their own for."""


def _scores_over_maximum(x: torch.Tensor, B: int) -> torch.Tensor:
    e = torch.exp(x.float() / sim.maximum(x, B))
    return e / e.sum(dim=1, keepdim=True)


def _nan_replaced(x: torch.Tensor, B: int) -> torch.Tensor:
    e = torch.exp(x.float())
    return torch.nan_to_num(e / e.sum(dim=1, keepdim=True))


def _inf_replaced(x: torch.Tensor, B: int) -> torch.Tensor:
    e = torch.nan_to_num(torch.exp(x.float()))
    return e / e.sum(dim=1, keepdim=True)


_EAGER = (
    *with_hints(
        TENSOR,
        no_maximum=2,
        maximum_after_exp=2,
        only_large=2,
        fewer_digits=0,
        only_16_bit=0,
        nothing_returned=1,
        no_tensor=1,
        wrong_shape=1,
        wrong_dtype=1,
        input_overwritten=1,
        input_returned=1,
        values_missing=1,
        shapes=1,
    ),
    Mistake(
        "divided_by_exp_m",
        "The maximum is taken out after exp, by a division.",
        "What is exp(1000) before it is divided by anything?",
        2,
        gives(sim.divided_by_exp_m),
    ),
    Mistake(
        "one_maximum",
        "One maximum is taken for all rows.",
        "What becomes of a row whose entries lie far below that maximum?",
        3,
        gives(sim.in_two_passes(lambda x, B: x.float().max())),
    ),
    Mistake(
        "maximum_of_columns",
        "The maximum is taken down the columns.",
        "Along which dimension do the entries of one row lie?",
        3,
        gives(sim.in_two_passes(lambda x, B: x.float().amax(dim=0, keepdim=True))),
    ),
    Mistake(
        "sum_of_columns",
        "The sum is taken down the columns.",
        "Along which dimension do the entries of one row lie?",
        3,
        gives(lambda x, B: sim.no_division(x, B) / sim.no_division(x, B).sum(dim=0, keepdim=True)),
    ),
    Mistake(
        "softmax_of_columns",
        "The softmax of each column is computed.",
        "Along which dimension do the entries of one row lie?",
        3,
        gives(lambda x, B: torch.softmax(x.float(), dim=0)),
    ),
    Mistake(
        "one_sum",
        "One sum is taken for all rows.",
        "What does each row of the result add up to, and what should it?",
        3,
        gives(lambda x, B: sim.no_division(x, B) / sim.no_division(x, B).sum()),
    ),
    Mistake(
        "shift_in_one_place",
        "The maximum is subtracted in one of two places.",
        "In the numerator and in the sum: by which number is each exponential smaller than exp(x)?",
        3,
        gives(sim.in_two_passes(m_of_l=sim.constant(0.0)), sim.in_two_passes(m_of_y=sim.constant(0.0))),
    ),
    Mistake(
        "other_than_maximum",
        "Something other than the maximum is subtracted, or the maximum is added.",
        "What is then the largest exponent in a row, and what should it be?",
        2,
        gives(
            sim.in_two_passes(lambda x, B: x.float().mean(dim=1, keepdim=True)),
            sim.in_two_passes(lambda x, B: x.float().amin(dim=1, keepdim=True)),
            sim.in_two_passes(lambda x, B: x.float().abs().amax(dim=1, keepdim=True)),
            sim.in_two_passes(lambda x, B: -sim.maximum(x, B)),
            sim.in_two_passes(lambda x, B: x.float().argmax(dim=1, keepdim=True).float()),
            sim.in_two_passes(lambda x, B: x[:, :1].float()),
        ),
    ),
    Mistake(
        "cut_off",
        "The scores are cut off instead of shifted.",
        "Which scores does the cut make equal, and would a shift of the whole row?",
        2,
        gives(*(sim.cut_at(limit) for limit in (50.0, 80.0, 85.0, 88.0, 88.5, 88.7))),
    ),
    Mistake(
        "divided_by_maximum",
        "The scores are divided by the maximum.",
        "A softmax stays the same if one number is subtracted from all scores: does it, if all are divided by one?",
        2,
        gives(_scores_over_maximum),
    ),
    Mistake(
        "nan_replaced",
        "NaN or inf is replaced by a number, and the right number is lost.",
        "Where does the first inf come from, and which step before it keeps every exponent at or below 0?",
        2,
        gives(_nan_replaced, _inf_replaced),
    ),
    recognised(
        names.SCORES_STORED,
        1,
        gives(sim.scores),
    ),
)


def _in_small_float32(mistake: Mistake) -> Mistake:
    """The mistake, looked for in the cases that are none of _OTHERS, as long as one of them is wrong."""

    def explains(seen: Sequence[Seen]) -> float:
        plain = [case for case in seen if case.case not in _OTHERS]
        return mistake.explains(seen if all(case.ok for case in plain) else plain)

    return replace(mistake, explains=explains)


EXERCISES = (
    ValuesExercise(
        name="overflow",
        number="1.1",
        points=2,
        about=(
            "Checks, for each dtype, the largest x whose exp is still finite: exact to 0.01, or to the dtype's "
            "own spacing."
        ),
        judge=_overflow,
    ),
    TensorExercise(
        name="eager",
        number="1.2",
        points=2,
        about=(
            "Checks a softmax written with PyTorch operations against float64, on values that overflow the naive form."
        ),
        kind=cases.SOFTMAX,
        makers={**STABLE, **AROUND_60, **_OTHERS},
        known=tuple(map(_in_small_float32, _EAGER)),
        why="Why can the denominator not be 0, if a row has a single finite number?",
        ours=kernels.eager_softmax,
    ),
)
