"""Lesson 10, the loss in one trip: the loss of rows, slopes by differences, loss and gradient together, and trips."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Any

import torch

from helpers import kernels
from helpers.check.exercise import AnswersExercise, Given, TensorExercise, ValuesExercise
from helpers.check.judge import judge_answers, stopped
from helpers.check.mistakes.losses import GRADIENT_MISTAKES, LOSS_MISTAKES
from helpers.check.mistakes.recognise import Explains, Mistake, Seen, raised, where, with_hints
from helpers.check.mistakes.stops import ERRORS, GENERAL
from helpers.check.problems import losses
from helpers.check.problems.asking import Account, slopes_of
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial import trial
from helpers.check.trial.trial import Trial, is_number
from helpers.engine.isolate import End

# 10.1 and 10.3

_ZEROS_SHOW = "the losses are still 0, as the starter code makes them"


def zero_losses(x: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the starter code stores: losses of 0, and a gradient of 0 if one is asked for."""
    return torch.zeros(len(x)), torch.zeros_like(x)


# 10.2

_SLOPES_HOLD = 1e-4
"""How nearly slopes found by differences must be right: a difference to one side, with a small step, is near enough."""


def _slopes_cases(draw: Random) -> Given:
    rows = {
        "two equal logits": ([0.0, 0.0], 0),
        "three logits": ([1.0, 3.0, 2.0], 1),
        "the target far below the rest": ([4.0, -6.0, 5.0], 1),
        "the target far above the rest": ([0.0, 12.0, 1.0], 1),
        "random": ([draw.gauss(0, 2) for _ in range(6)], 4),
        "around 50": ([50.0 + draw.gauss(0, 1) for _ in range(4)], 2),
        "one logit": ([draw.gauss(0, 1)], 0),
    }
    return {case: ((x, target), _slopes(x, target)) for case, (x, target) in rows.items()}


def _slopes(x: list[float], target: int) -> list[float]:
    """softmax(x), less 1 at the target."""
    e = [math.exp(value - max(x)) for value in x]
    return [value / sum(e) - (i == target) for i, value in enumerate(e)]


def slopes_by_differences(loss: Callable[[list[float]], float], x: list[float]) -> list[float]:
    """The slope of loss(x) for each number of x, from two steps of 10⁻⁵, one to either side."""
    steps = ([value + h * (i == j) for j, value in enumerate(x)] for i in range(len(x)) for h in (1e-5, -1e-5))
    losses = [loss(step) for step in steps]
    return [(up - down) / 2e-5 for up, down in zip(losses[::2], losses[1::2], strict=True)]


def _judge_slopes(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    if all(_found(one) == [] and not one.printed for one in trials if one.end is not End.NOT_RUN):
        return exercise.untouched()  # as the starter code does
    return judge_answers(exercise, given, trials, _compare_slopes)


def _found(one: Trial) -> Any:
    """What came back; see asking.slopes_of."""
    return one.answer[0] if isinstance(one.answer, list) and one.answer else None


def _account(one: Trial) -> Account:
    """The question; `moved` has a place for each number that has moved."""
    asked, itself, moved, step = one.answer[1:]
    return Account(asked, itself, set(range(moved)), step)


def _listed(answer: Any, length: int) -> list[float] | None:
    """The numbers of an answer that is a list of this length."""
    ok = isinstance(answer, list) and len(answer) == length and all(map(is_number, answer))
    return [float(value) for value in answer] if ok else None


def _compare_slopes(case: str, one: Trial, want: list[float]) -> Finding:
    if one.raised:
        return stopped(case, one)
    found = _found(one)
    got = _listed(found, len(want))
    if got is None:
        said = "None; is a return missing?" if found is None else trial.shown(found)
        return Finding(case, False, f"expected a list of {len(want)} slopes, got {said}")
    wrong = [i for i, (a, b) in enumerate(zip(got, want, strict=True)) if not abs(a - b) <= _SLOPES_HOLD]
    moved = len(_account(one).moved)
    if not wrong and moved < len(want) - 1:
        said = f"the loss was asked for rows in which {moved} of {len(want)} numbers have moved"
        return Finding(case, False, f"{said}: from which losses do the slopes come?")
    if not wrong:
        return Finding(case, True, f"within {_SLOPES_HOLD:g} of the slopes")
    i = wrong[0]
    return Finding(case, False, f"slope {i} of {len(want)}: expected {want[i]:.6g}, got {got[i]:.6g}")


def _answered(seen: Sequence[Seen]) -> list[tuple[list[float], list[float]]]:
    """Slopes that came back, and the right ones, in the cases that have more than one logit."""
    pairs = ((_listed(_found(one.trial), len(one.x[0])), _slopes(*one.x)) for one in seen if len(one.x[0]) > 1)
    return [(got, want) for got, want in pairs if got is not None]


def _times(low: float, high: float) -> Explains:
    """All slopes are the right ones times one number between these."""

    def explains(seen: Sequence[Seen]) -> float:
        pairs = [(a, b) for got, want in _answered(seen) for a, b in zip(got, want, strict=True) if abs(b) > 0.01]
        factors = [a / b for a, b in pairs]
        if not factors or any(map(math.isnan, factors)):
            return 0.0
        spread = max(factors) - min(factors)
        return 1.0 * (low <= min(factors) and max(factors) <= high and spread <= 0.02 * max(map(abs, factors)))

    return explains


def _divided_by_logit(seen: Sequence[Seen]) -> float:
    """Slope times logit, over the right slope, is one number: the step that was not divided by."""
    listed = ((_listed(_found(one.trial), len(one.x[0])), *one.x) for one in seen if len(one.x[0]) > 1)
    steps = [
        a * value / b
        for got, x, target in listed
        for a, value, b in zip(got or (), x, _slopes(x, target), strict=False)
        if abs(b) > 0.01 and abs(value) > 0.1
    ]
    if len(steps) < 4 or any(map(math.isnan, steps)):
        return 0.0
    return 1.0 * (max(map(abs, steps)) > 0 and max(steps) - min(steps) <= 0.05 * max(map(abs, steps)))


def _all_zero(exactly: bool) -> Explains:
    """Every slope is 0: exactly, or but for rounding."""

    def explains(seen: Sequence[Seen]) -> float:
        values = [abs(a) for got, _ in _answered(seen) for a in got]
        if not values or not max(values) <= 1e-2 or any(map(math.isnan, values)):
            return 0.0
        return 1.0 if (max(values) == 0) == exactly else 0.5

    return explains


def _nearly_right(seen: Sequence[Seen]) -> float:
    """Every number is near its slope or, where the step has drowned in rounding, most are 0."""
    numbers = [(a, b) for got, want in _answered(seen) for a, b in zip(got, want, strict=True)]
    near = bool(numbers) and all(abs(a - b) <= 0.1 for a, b in numbers)
    drowned = sum(a == 0 for a, _ in numbers) > len(numbers) / 2
    return 0.4 * (near or drowned)


def _are_losses(seen: Sequence[Seen]) -> float:
    """All numbers of a case of several logits are nearly the same, and that is the loss."""
    several = [one for one in seen if len(one.x[0]) > 1]
    answered = [(got, one.x) for one in several if (got := _listed(_found(one.trial), len(one.x[0]))) is not None]
    losses = [(got, math.log(sum(math.exp(v - max(x)) for v in x)) + max(x) - x[t]) for got, (x, t) in answered]
    return 1.0 * (bool(losses) and all(abs(a - loss) <= 0.05 * (1 + abs(loss)) for got, loss in losses for a in got))


def _stay_moved(seen: Sequence[Seen]) -> float:
    """Every number is the sum of the slopes up to its own: the numbers before it have moved as well."""
    pairs = [(got, list(accumulate(want))) for got, want in _answered(seen)]
    return 1.0 * (
        bool(pairs) and all(abs(a - b) <= _SLOPES_HOLD for got, sums in pairs for a, b in zip(got, sums, strict=True))
    )


def _has_right_slopes(seen: Seen) -> bool:
    got, want = _listed(_found(seen.trial), len(seen.x[0])), _slopes(*seen.x)
    return got is not None and all(abs(a - b) <= _SLOPES_HOLD for a, b in zip(got, want, strict=True))


def _accounts(seen: Sequence[Seen]) -> list[Account]:
    """The questions in the wrong cases of several logits that have returned."""
    return [_account(one.trial) for one in seen if not one.ok and not one.trial.raised and len(one.x[0]) > 1]


def _asks_x_itself(seen: Sequence[Seen]) -> float:
    """Every loss that was asked for, and there are several, is that of the list x itself."""
    return 1.0 * any(account.itself == account.asked > 1 for account in _accounts(seen))


def _steps_drown(seen: Sequence[Seen]) -> float:
    """Numbers moved, and by less than 1e-10 everywhere."""
    accounts = _accounts(seen)
    return 1.0 * (bool(accounts) and all(0 < account.step < 1e-10 for account in accounts))


_OF_SLOPES = (
    Mistake(
        "number_as_list",
        "A list and a number are taken for one another.",
        "loss takes a list: how do you make one in which a single number of x has moved?",
        1,
        where(lambda seen: seen.trial.cause == "list_as_tensor", weight=0.95),
    ),
    Mistake(
        "autograd",
        "Gradients are asked of torch, and loss returns a plain number.",
        "Which losses, of which two rows, tell how fast the loss changes?",
        1,
        where(
            lambda seen: bool(seen.trial.raised) and "grad" in seen.trial.line or ".backward" in seen.trial.line, 0.96
        ),
    ),
    *GENERAL,
    Mistake(
        "row_changed",
        "The row that was given is changed.",
        "Who else uses the list x, and how do you get one of your own?",
        1,
        lambda seen: max(raised("GivenChanged", weight=0.9)(seen), _asks_x_itself(seen)),
    ),
    Mistake(
        "loss_not_asked",
        "The slopes do not come from losses.",
        "For which rows is loss to be asked, so that the slope at each number shows?",
        1,
        lambda seen: 1.0 * all(one.ok or _has_right_slopes(one) for one in seen),
    ),
    Mistake(
        "step_of_0",
        "Something is divided by 0.",
        "What stands below the line: the distance of two rows, or a number that can be 0?",
        3,
        raised("ZeroDivisionError", weight=0.9),
    ),
    Mistake(
        "step_counted_once",
        "The difference spans two steps, and is divided by one.",
        "How far apart are x + h and x − h?",
        2,
        _times(1.9, 2.1),
    ),
    Mistake(
        "step_counted_twice",
        "The difference spans one step, and is divided by two.",
        "How far apart are the two rows whose losses are subtracted?",
        2,
        _times(0.45, 0.55),
    ),
    Mistake(
        "slope_negative",
        "The slopes have the wrong sign.",
        "Which of the two losses is that of the larger logit?",
        2,
        _times(-2.1, -0.4),
    ),
    Mistake(
        "not_divided_by_step",
        "The differences are not divided by the step.",
        "What is the slope of a line that rises by 0.002 over 0.001, and what is 6 / 2 * 3 in Python?",
        2,
        _times(1e-20, 0.1),
    ),
    Mistake(
        "divided_by_logit",
        "The differences are divided by the logit, not by the step.",
        "How far apart are the two values of the logit that has moved?",
        2,
        _divided_by_logit,
    ),
    Mistake(
        "stay_moved",
        "Numbers that have moved stay moved.",
        "When the second number moves, does the first one have its old value again?",
        1,
        _stay_moved,
    ),
    Mistake(
        "all_moved",
        "All logits are moved at once.",
        "What happens to a softmax when the same number is added to every logit?",
        1,
        _all_zero(exactly=False),
    ),
    Mistake(
        "step_lost",
        "Every slope is 0.",
        "Is the step lost in rounding, as in 1.0 + 1e-18? Or do all logits move together, which changes no loss?",
        3,
        _all_zero(exactly=True),
    ),
    Mistake(
        "step_too_small",
        "The step is so small that the differences are lost in rounding.",
        "A loss has 16 digits: how many of them change at such a step, and how many at 1e-5?",
        3,
        _steps_drown,
    ),
    Mistake(
        "step_far_off",
        "The slopes are not near enough.",
        "How do they change if the step is 1e-5, and is anything rounded on the way?",
        3,
        _nearly_right,
    ),
    Mistake(
        "losses_returned",
        "Losses come back, not slopes.",
        "Which two losses does a slope compare?",
        2,
        _are_losses,
    ),
    Mistake(
        "no_list_of_slopes",
        "Something other than a slope for each logit comes back.",
        "How many logits has the row, and how many slopes has its loss?",
        1,
        where(lambda seen: not seen.trial.raised and _listed(_found(seen.trial), len(seen.x[0])) is None, weight=0.8),
    ),
)

# 10.4

TRIPS_OF_TRAINING = {
    "F.cross_entropy, and its backward": (3, 3),
    "one launch for the losses, another for the gradient": (2, 1),
    "losses and gradient in one launch": (1, 1),
    "that launch, and the backward of (2 * loss)": (2, 2),
}
"""Ways to train, and how often each of them loads and stores an element for each logit."""


def _trips(exercise: ValuesExercise, predicted: Mapping[str, Any]) -> Report:
    """Predicted loads and stores of each way."""
    exercise.require_keys(predicted, list(TRIPS_OF_TRAINING))
    if all(pair is None for pair in predicted.values()):
        return exercise.untouched()
    findings = [_trips_finding(way, predicted[way]) for way in TRIPS_OF_TRAINING]
    wrong = {finding.case for finding in findings if not finding.ok}
    named = next((d for d, way, pair in _MISCOUNTED if way in wrong and _pair(predicted[way]) == pair), None)
    return exercise.judged(findings, diagnosis=named)


def _pair(value: Any) -> tuple[float, float] | None:
    """A pair of numbers, to a tenth of a trip, or None."""
    try:
        loads, stores = map(trial.number, value)
    except (TypeError, ValueError):
        return None
    return (round(loads, 1), round(stores, 1)) if is_number(loads) and is_number(stores) else None


def _trips_finding(way: str, value: Any) -> Finding:
    if value is None:
        return Finding(way, False, "not filled in yet")
    pair = _pair(value)
    if pair is None:
        return Finding(way, False, f"needs a pair, (loads, stores); it is {trial.shown(value)}")
    ok = pair == TRIPS_OF_TRAINING[way]
    loads, stores = (
        f"{number:g} {trip}{'s' * (number != 1)}" for number, trip in zip(pair, ("load", "store"), strict=True)
    )
    said = f"{loads} and {stores} for each logit"
    return Finding(way, ok, said if ok else f"{said}: count again")


_TORCHS, _APART, _TOGETHER, _TWICE = TRIPS_OF_TRAINING
_ORDER = Diagnosis(
    "order_swapped",
    "Loads and stores have changed places.",
    "Which of the two numbers of a pair comes first?",
    2,
)
_MISCOUNTED = (
    (
        Diagnosis(
            "zeros_forgotten",
            "The gradient of the log-probabilities is forgotten.",
            "How many zeros are in the gradient of log-softmax's result, and who writes them?",
            1,
        ),
        _TORCHS,
        (2, 2),
    ),
    (
        Diagnosis(
            "gradient_not_read",
            "The backward of log-softmax is taken to read its own result alone.",
            "Which two tensors does dy − softmax · Σ dy need?",
            1,
        ),
        _TORCHS,
        (2, 3),
    ),
    (
        Diagnosis(
            "zeros_not_stored",
            "The gradient of the log-probabilities is taken to be read, and never written.",
            "Who writes the tensor of zeros that the backward of log-softmax reads?",
            1,
        ),
        _TORCHS,
        (3, 2),
    ),
    (
        Diagnosis(
            "forward_only",
            "Only the forward pass is counted.",
            "Which operations run when backward is called?",
            1,
        ),
        _TORCHS,
        (1, 1),
    ),
    (
        Diagnosis(
            "logits_kept",
            "The second launch is taken to find the logits where the first one left them.",
            "What is left of a program's registers when its launch ends?",
            2,
        ),
        _APART,
        (1, 1),
    ),
    (
        Diagnosis(
            "losses_as_large",
            "The losses are counted as if there were one for each logit.",
            "How many losses has a row of 151,936 logits?",
            2,
        ),
        _APART,
        (2, 2),
    ),
    (
        Diagnosis(
            "losses_loaded",
            "The second launch is taken to load more than the logits.",
            "How many numbers of a row does it need from the first launch?",
            2,
        ),
        _APART,
        (3, 1),
    ),
    (_ORDER, _APART, (1, 2)),
    (
        Diagnosis(
            "loaded_again",
            "The logits are taken to be loaded twice.",
            "Where are the logits at the moment when m and l are known?",
            2,
        ),
        _TOGETHER,
        (2, 1),
    ),
    (
        Diagnosis(
            "gradient_not_stored",
            "The gradient is taken to stay on the chip.",
            "Where does the layer before this one find the gradient?",
            2,
        ),
        _TOGETHER,
        (1, 0),
    ),
    (
        Diagnosis(
            "backward_for_nothing",
            "The backward of 2 * loss is taken to cost nothing.",
            "The gradient of loss lies in memory: what must become of each of its elements?",
            3,
        ),
        _TWICE,
        (1, 1),
    ),
    (
        Diagnosis(
            "product_not_stored",
            "The doubled gradient is taken to be stored nowhere.",
            "Where does the layer before this one find the gradient of 2 * loss?",
            3,
        ),
        _TWICE,
        (2, 1),
    ),
    (
        Diagnosis(
            "factor_not_loaded",
            "The gradient is taken to be doubled without a load.",
            "Where is the gradient when 2 arrives in backward?",
            3,
        ),
        _TWICE,
        (1, 2),
    ),
    (
        Diagnosis(
            "computed_again",
            "The gradient is taken to be computed a second time.",
            "What does it take to double a number that is already there?",
            3,
        ),
        _TWICE,
        (3, 2),
    ),
)
"""Mistakes of exercise 10.4: the way, and the count that each of them leads to there."""

_ROWS_APART = "n_as_stride", "offsets_overflow", "outside", "row_0_loaded", "stride_of_x_for_gradient"
"""Mistakes of which no hint of 10.3 speaks."""

EXERCISES = (
    TensorExercise(
        kind=losses.LOSSES,
        makers=losses.LOGITS,
        loads=1,
        stores=0,
        starter=zero_losses,
        starter_loads=1,
        starter_shows=_ZEROS_SHOW,
        name="row_loss",
        number="10.1",
        points=3,
        about=(
            "Checks a kernel that computes the cross-entropy of each row: a function of logits (M, V) and targets (M,) "
            "that returns M losses in float32, 0 for a target of −100. 1 load and no store per logit."
        ),
        known=with_hints(LOSS_MISTAKES, **dict.fromkeys(ERRORS, 4)),
        why="Why is the loss right even if the exponential of the target's logit is 0?",
        ours=kernels.row_losses,
    ),
    AnswersExercise(
        name="slopes",
        number="10.2",
        points=2,
        about=(
            "Checks a function that finds slopes by differences: slopes(loss, x) returns a list with the slope of "
            "loss(x) for each number of the list x."
        ),
        known=_OF_SLOPES,
        draw=_slopes_cases,
        judge=_judge_slopes,
        through=slopes_of,
        why="Why is a step of 10⁻⁵ better than one of 10⁻¹⁵?",
        ours=slopes_by_differences,
    ),
    TensorExercise(
        kind=losses.LOSSES_AND_GRADIENT,
        makers=losses.LOGITS,
        loads=1,
        starter=zero_losses,
        starter_loads=1,
        starter_shows=_ZEROS_SHOW,
        name="loss_and_gradient",
        number="10.3",
        points=4,
        about=(
            "Checks a kernel that stores the losses of all rows and the gradient of their sum in one launch. 1 load "
            "and 1 store per logit."
        ),
        known=with_hints(GRADIENT_MISTAKES, **dict.fromkeys(_ROWS_APART, 0), **dict.fromkeys(ERRORS, 4)),
        why="Why may the gradient be stored before anyone has asked for it?",
        ours=kernels.losses_and_gradient,
    ),
    ValuesExercise(
        name="trips",
        number="10.4",
        points=2,
        about="Checks how often four ways to train load something of the size of the logits, and store it.",
        judge=_trips,
    ),
)
