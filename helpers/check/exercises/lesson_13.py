"""Lesson 13, one row, many GPUs: bytes over the link, softmax and loss of a sharded row, bugs and what shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from helpers import ranks
from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import judge_answers, stopped
from helpers.check.report import Finding, Report
from helpers.check.trial import trial
from helpers.check.trial.trial import Trial, is_number

_HOLD = 1e-5
_LIMIT_S = 5

# 13.1 and 13.4

BYTES_SENT = {"gather the logits": 4000, "three all-reduces": 12, "gather the pairs": 8}
SHOWN_BY = {"without_maximum": "apart", "smoothed": "different shards", "mean_of_means": "uneven counts"}
_INPUTS = ("equal", "apart", "uneven shards", "different shards", "uneven counts")


def _bytes_sent(exercise: ValuesExercise, answers: Mapping[str, Any]) -> Report:
    exercise.require_keys(answers, list(BYTES_SENT))
    if all(value is None for value in answers.values()):
        return exercise.untouched()
    return exercise.judged([_bytes_finding(way, answers[way]) for way in BYTES_SENT])


def _bytes_finding(way: str, value: Any) -> Finding:
    if value is None:
        return Finding(way, False, "not filled in yet")
    if not is_number(value):
        return Finding(way, False, f"needs a number of bytes; it is {trial.shown(value)}")
    ok = value == BYTES_SENT[way]
    return Finding(way, ok, f"{value:g} bytes for each row" + ("" if ok else ": count again"))


def _shown_by(exercise: ValuesExercise, answers: Mapping[str, Any]) -> Report:
    exercise.require_keys(answers, list(SHOWN_BY))
    if all(value is None for value in answers.values()):
        return exercise.untouched()
    findings = []
    for name, right in SHOWN_BY.items():
        value = answers[name]
        known = value in _INPUTS if isinstance(value, str) else False
        said = f"{value!r}" if known else f"needs one of {', '.join(map(repr, _INPUTS))}; it is {trial.shown(value)}"
        findings.append(Finding(name, value == right, said if value == right or not known else f"{said}: not that one"))
    return exercise.judged(findings)


# 13.2 and 13.3


def softmax_on_ranks(answer: Callable[..., Any], rows: list[list[float]], sizes: list[int]) -> list[Any]:
    """The fault in a sentence or "", collectives, and the rows of all ranks' results side by side."""
    return _on_ranks(lambda shard, group: answer(shard, group), _split(rows, sizes), sizes)


def loss_on_ranks(
    answer: Callable[..., Any], rows: list[list[float]], sizes: list[int], target: list[int]
) -> list[Any]:
    """As `softmax_on_ranks`, of gradients; the losses of the ranks come last."""
    starts = [sum(sizes[:rank]) for rank in range(len(sizes))]
    given = [(shard, torch.tensor(target), start) for shard, start in zip(_split(rows, sizes), starts, strict=True)]
    return _on_ranks(answer, given, sizes)


def _split(rows: list[list[float]], sizes: list[int]) -> Sequence[torch.Tensor]:
    return torch.tensor(rows).split(sizes, dim=1)


def _on_ranks(answer: Callable[..., Any], given: Sequence[Any], sizes: list[int]) -> list[Any]:
    try:
        seen = ranks.count(answer, *given, limit_s=_LIMIT_S)
    except ranks.RankError as error:
        return [str(error), 0, []]
    losses = [result[0] for result in seen.results if isinstance(result, tuple)]
    parts = [result[1] if isinstance(result, tuple) else result for result in seen.results]
    for rank, (part, size) in enumerate(zip(parts, sizes, strict=True)):
        if not isinstance(part, torch.Tensor) or part.dim() != 2 or part.shape[1] != size:
            return [f"rank {rank} must return its part of {size} columns; got {trial.shown(part)}", 0, []]
    return ["", seen.collectives, torch.cat(parts, 1).tolist(), [float(loss) for loss in losses]]


_SIZES = {"equal shards": [6] * 4, "shards of four widths": [9, 1, 12, 2], "an empty shard": [8, 0, 16]}


def _rows(draw: Random, far: bool) -> list[list[float]]:
    rows = [[draw.gauss(0, 2) for _ in range(24)] for _ in range(4)]
    if far:
        rows[0][:12] = [value + 200 for value in rows[0][:12]]
        rows[1][12:] = [-float("inf")] * 12
    return rows


def _softmax_cases(draw: Random) -> Given:
    cases = {}
    for case, sizes in (*_SIZES.items(), ("maxima far apart, shards of only −inf", [6] * 4)):
        rows = _rows(draw, case not in _SIZES)
        cases[case] = (rows, sizes), torch.tensor(rows, dtype=torch.float64).softmax(1).tolist()
    return cases


def _loss_cases(draw: Random) -> Given:
    cases = {}
    for case, sizes in (*_SIZES.items(), ("maxima far apart, shards of only −inf", [6] * 4)):
        rows, target = _rows(draw, case not in _SIZES), [draw.randrange(12) for _ in range(3)] + [-100]
        x = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor(target))
        cases[case] = (rows, sizes, target), (torch.autograd.grad(loss, x)[0].tolist(), loss.item())
    return cases


def _judge(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    return judge_answers(exercise, given, trials, _compare)


def _compare(case: str, one: Trial, want: Any) -> Finding:
    if one.raised:
        return stopped(case, one)
    said, collectives, rows, *losses = one.answer
    if said:
        return Finding(case, False, said)
    right, loss = want if isinstance(want, tuple) else (want, None)
    if not torch.allclose(torch.tensor(rows), torch.tensor(right), rtol=_HOLD, atol=_HOLD):
        sums = ", ".join(f"{sum(row):.4g}" for row in rows)
        return Finding(case, False, f"wrong: the rows of all ranks side by side add up to {sums}")
    if loss is not None and not all(abs(one - loss) <= _HOLD * (1 + abs(loss)) for one in losses[0]):
        return Finding(case, False, f"expected the loss {loss:.6g} on all ranks, got {losses[0]}")
    if collectives != 1:
        return Finding(case, False, f"right, with {collectives} collectives; one is enough")
    return Finding(case, True, f"within {_HOLD:g} of float64, with one collective")


EXERCISES = (
    ValuesExercise(
        name="bytes_sent",
        number="13.1",
        points=2,
        about="Checks how many bytes a rank sends for each row, in three ways to take the softmax of a sharded row.",
        judge=_bytes_sent,
    ),
    AnswersExercise(
        name="sharded_softmax",
        number="13.2",
        points=4,
        about="Checks a function of (shard, group) that returns a rank's part of the softmax, with one collective.",
        draw=_softmax_cases,
        judge=_judge,
        through=softmax_on_ranks,
    ),
    AnswersExercise(
        name="sharded_loss",
        number="13.3",
        points=5,
        about=(
            "Checks a function of (shard, target, start, group) that returns the mean loss and the gradient of the "
            "shard, with one collective."
        ),
        draw=_loss_cases,
        judge=_judge,
        through=loss_on_ranks,
    ),
    ValuesExercise(
        name="shown_by",
        number="13.4",
        points=3,
        about="Checks which inputs show the bugs of three functions.",
        judge=_shown_by,
    ),
)
