"""Lesson 13, one row, many GPUs: bytes over the link, softmax and loss of a sharded row, bugs and what shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from helpers.check.exercise import AnswersExercise, Given, ValuesExercise
from helpers.check.judge import stopped
from helpers.check.mistakes.recognise import Seen, shown_by, with_hints
from helpers.check.mistakes.sharded_loss import LOSS_OF_SHARDS, loss_of_shard
from helpers.check.mistakes.sharded_softmax import SOFTMAX_OF_SHARDS, softmax_of_shard
from helpers.check.problems.sharded import (
    FEW_RANKS,
    HOLD,
    MOST_BYTES_A_ROW,
    MOST_COLLECTIVES,
    agree,
    dtypes_of,
    errors,
    loss_cases,
    losses_of,
    parts_of,
    softmax_cases,
)
from helpers.check.report import Diagnosis, Finding, Report, first_lines
from helpers.check.trial.ranked import Ranked, Returned, Rows, Sharded, arguments, on_ranks
from helpers.check.trial.trial import Trial, is_number, number, shown
from helpers.check.values import judge_values
from helpers.engine.isolate import End
from helpers.engine.numbers import counted

# 13.1 and 13.4

BYTES_SENT = {"gather the logits": 4000, "three all-reduces": 12, "gather the pairs": 8}
_NUMBERS = tuple(BYTES_SENT.values())


def _one_is(given: Sequence[float], wrong: Callable[[int, float], Sequence[float]]) -> bool:
    """Whether one of the numbers is a wrong one of its way."""
    return any(given[way] in wrong(way, value) for way, value in enumerate(_NUMBERS))


_OF_BYTES: tuple[tuple[Callable[[list[float]], bool], Diagnosis], ...] = (
    (
        lambda given: _one_is(given, lambda way, value: [value / 4]),
        Diagnosis("numbers_for_bytes", "Numbers are counted, not bytes.", "How many bytes has a float32?", 2),
    ),
    (
        lambda given: _one_is(given, lambda way, value: [value / 2, 2 * value] if way == 0 else []),
        Diagnosis("bytes_of_another_dtype", "Numbers of another size are counted.", "How many bytes has a float32?", 2),
    ),
    (
        lambda given: _one_is(given, lambda way, value: [times * value for times in (2, 3, 4, 8)]),
        Diagnosis(
            "bytes_of_all_ranks",
            "The bytes are counted more than once.",
            "What does one rank hand in, whoever receives it, and whatever steps a collective takes inside?",
            3,
        ),
    ),
    (
        lambda given: given[1] == 4,
        Diagnosis(
            "one_all_reduce", "One all-reduce is counted for three.", "How many numbers of a row cross in all three?", 1
        ),
    ),
    (
        lambda given: given[2] in (4, 12),
        Diagnosis("numbers_of_a_pair", "A pair is two numbers.", "What does a shard's part of a row need?", 1),
    ),
)

SHOWN_BY = {"without_maximum": "a large logit", "smoothed": "shifted shard", "mean_of_means": "uneven counts"}
_INPUTS = ("equal shards", "a large logit", "uneven shards", "shifted shard", "uneven counts")
_OF_SHOWN = (
    (
        "smoothed",
        ("uneven shards",),
        Diagnosis(
            "widths_for_values",
            "Widths alone do not show it.",
            "If all shards have the same mean, what is the mean of a wide and of a narrow one?",
            3,
        ),
    ),
    (
        "mean_of_means",
        ("uneven shards",),
        Diagnosis(
            "columns_for_rows",
            "Columns are taken for rows.",
            "Of what does this function take a mean, and how many?",
            4,
        ),
    ),
    (
        "without_maximum",
        ("shifted shard",),
        Diagnosis(
            "any_shift_cancels",
            "A shift that is a little off cancels.",
            "How far must the maxima lie apart before exp of the difference is inf?",
            2,
        ),
    ),
)


def _bytes_sent(exercise: ValuesExercise, answers: Mapping[str, Any]) -> Report:
    exercise.require_keys(answers, list(BYTES_SENT))
    answers = {way: number(answers[way]) for way in BYTES_SENT}
    if all(value is None for value in answers.values()):
        return exercise.untouched()
    findings = [_bytes_finding(way, answers[way]) for way in BYTES_SENT]
    given = [answers[way] if is_number(answers[way]) else -1 for way in BYTES_SENT]
    wrong = not all(finding.ok for finding in findings)
    named = next((one for shows, one in _OF_BYTES if wrong and shows(given)), None)
    return exercise.judged(findings, diagnosis=named)


def _bytes_finding(way: str, value: Any) -> Finding:
    if value is None:
        return Finding(way, False, "not filled in yet")
    if not is_number(value):
        return Finding(way, False, f"needs a number of bytes; it is {shown(value)}")
    ok = value == BYTES_SENT[way]
    return Finding(way, ok, f"{value:g} bytes for each row" + ("" if ok else ": count again"))


# 13.2 and 13.3


def _softmax_starter(case: Sharded) -> list[torch.Tensor]:
    """What the ranks return as the exercise is handed out: without a collective."""
    return [torch.softmax(shard, dim=1) for (shard,) in arguments(case)[case.members]]


def _loss_starter(case: Sharded) -> list[torch.Tensor]:
    """As `_softmax_starter`: gradients, and losses of 0."""
    return [torch.zeros_like(shard) for shard, _, _ in arguments(case)[case.members]]


Starter = Callable[[Sharded], list[torch.Tensor]]


def _is_starter(one: Trial, case: Sharded, starter: Starter) -> bool:
    seen = Ranked.of(one.answer)
    if seen is None or seen.fault or seen.collectives or one.printed:
        return False
    parts = parts_of(seen, case)
    if parts is None or (case.target is not None and any(losses_of(seen))):
        return False
    return all(agree(a, b.double()) for a, b in zip(parts, starter(case), strict=True))


def _judged(exercise: AnswersExercise, given: Given, trials: Sequence[Trial], starter: Starter) -> Report:
    """The report on a function of ranks: right in every case, then within the budget.

    A right answer that moves too much keeps half of the points.
    """
    tried = [(one, args) for (args, _), one in zip(given.values(), trials, strict=True) if one.end is not End.NOT_RUN]
    if tried and all(one.code in exercise.starters or _is_starter(one, args, starter) for one, args in tried):
        return exercise.untouched()
    findings, seen = [], []
    for (case, (args, want)), one in zip(given.items(), trials, strict=True):
        findings.append(_compared(case, args, one, want))
        seen.append(Seen(case, args, one, findings[-1].ok))
    printed = first_lines(next((one.printed for one in trials if one.printed), ""))
    if not all(finding.ok for finding in findings):
        named = exercise.named(seen)
        return exercise.judged(findings, diagnosis=named, printed=printed, shown_by=shown_by(named, seen))
    moved = _moved(seen)
    named = None if moved.ok else _overspent(seen)
    return exercise.judged([*findings, moved], kept=1.0 if moved.ok else 0.5, diagnosis=named, printed=printed)


TOO_MANY_COLLECTIVES = Diagnosis(
    "too_many_collectives",
    "The result is right, with more collectives than it takes.",
    "Which numbers of a row does each collective bring, and could one gather bring all of them?",
    0,
)
COLUMNS_CROSS = Diagnosis(
    "columns_cross",
    "The result is right, and numbers of columns cross the link.",
    "How many numbers of a row are enough for all the others, however many columns it has?",
    0,
)


def _overspent(seen: Sequence[Seen]) -> Diagnosis:
    many = any(Ranked.of(case.trial.answer).collectives > MOST_COLLECTIVES for case in seen)
    return TOO_MANY_COLLECTIVES if many else COLUMNS_CROSS


def _moved(seen: Sequence[Seen]) -> Finding:
    """Whether every case keeps within the budget."""
    found = [(case, Ranked.of(case.trial.answer)) for case in seen]
    most = max(one.collectives for _, one in found)
    rows = max(max(one.sent) / len(case.x.rows) for case, one in found if len(one.sent) <= FEW_RANKS)
    said = f"{counted(most, 'collective')}, and {rows:g} bytes a row from a rank"
    if most > MOST_COLLECTIVES:
        said += f": {counted(MOST_COLLECTIVES, 'collective')} is enough, and more cost half of the points"
    elif rows > MOST_BYTES_A_ROW:
        said += f": {MOST_BYTES_A_ROW} bytes are more than enough, and the rest costs half of the points"
    ok = most <= MOST_COLLECTIVES and rows <= MOST_BYTES_A_ROW
    return Finding("over the link", ok, said, extra=True)


def _compared(case: str, args: tuple, one: Trial, want: object) -> Finding:
    if one.raised:
        return stopped(case, one)
    seen = Ranked.of(one.answer)
    if seen is None:
        return Finding(case, False, "the ranks did not say what they returned")
    if seen.fault:
        kind = f"{seen.fault} {seen.error}"
        return Finding(case, False, seen.said, seen.error, kind=kind)
    parts = parts_of(seen, args)
    if parts is None:
        return Finding(case, False, _not_a_part(seen, args))
    if not seen.kept:
        return Finding(case, False, "an input was overwritten")
    if seen.left:
        said = f"{counted(seen.left, 'collective')} of a rank never waited for: what it fills may not be there yet"
        return Finding(case, False, said)
    if (dtype := next((one for one in dtypes_of(seen) if one != args.dtype), None)) is not None:
        return Finding(
            case, False, f"what a rank returns for its shard must be {args.dtype}, as that is; it is {dtype}"
        )
    right, loss = want if isinstance(want, tuple) else (want, None)
    if loss is not None and (finding := _wrong_loss(case, seen, loss)):
        return finding
    within = f"{HOLD:g}" if args.dtype == "float32" else "a rounding"
    return _wrong_rows(case, parts, right, args) or Finding(case, True, f"within {within} of float64")


def _not_a_part(seen: Ranked, case: Sharded) -> str:
    def fits(one: Returned, size: int) -> bool:
        return parts_of(Ranked(returned=(one,)), case._replace(sizes=[size])) is not None

    rank = next(rank for rank, size in enumerate(case.sizes) if not fits(seen.returned[rank], size))
    part = f"a tensor ({len(case.rows)}, {case.sizes[rank]})"
    wanted = part if case.target is None else f"a loss and {part}"
    return f"rank {rank} must return {wanted}; got {seen.returned[rank].words}"


def _wrong_loss(case: str, seen: Ranked, want: float) -> Finding | None:
    losses = losses_of(seen)
    if in_16_bits := next((one.dtypes[0] for one in seen.returned if "float16" in one.dtypes[0]), None):
        return Finding(case, False, f"the loss must be float32; it is {in_16_bits}")
    if all(agree(torch.tensor(one), torch.tensor(want)) for one in losses):
        return None
    listed = ", ".join(f"{one:.6g}" for one in losses)
    alike = len(set(losses)) == 1 or all(one != one for one in losses)
    return Finding(case, False, f"expected the loss {want:.6g}, got {losses[0]:.6g} on all ranks" if alike
                   else f"expected the loss {want:.6g} on all ranks, got {listed}")  # fmt: skip


def _wrong_rows(case: str, parts: Sequence[torch.Tensor], right: Rows, sharded: Sharded) -> Finding | None:
    wants = torch.tensor(right, dtype=torch.float64).split(list(sharded.sizes), dim=1)
    for rank, (got, want) in enumerate(zip(parts, wants, strict=True)):
        error = errors(got, want, sharded)
        if (error <= 1).all():
            continue
        row, column = divmod(int(error.argmax()), error.shape[1])
        worst = f"expected {want[row, column].item():.6g}, got {got[row, column].item():.6g}"
        return Finding(
            case, False, f"rank {rank} is wrong, the worst at row {row}, column {column} of its part: {worst}"
        )
    return None


EXERCISES = (
    ValuesExercise(
        name="bytes_sent",
        number="13.1",
        points=2,
        about="Checks how many bytes a rank sends for each row, in three ways to bring a sharded row together.",
        judge=_bytes_sent,
    ),
    AnswersExercise(
        name="sharded_softmax",
        number="13.2",
        points=4,
        about="Checks a function of (shard, group) that returns a rank's part of the softmax, with one collective.",
        draw=softmax_cases,
        judge=partial(_judged, starter=_softmax_starter),
        through=on_ranks,
        known=with_hints(SOFTMAX_OF_SHARDS, error=1),
        why="Why are 8 bytes a row enough, however wide the shards are?",
        ours=softmax_of_shard,
    ),
    AnswersExercise(
        name="sharded_loss",
        number="13.3",
        points=5,
        about=(
            "Checks a function of (shard, target, start, group) that returns the mean loss and the gradient of the "
            "shard, with one collective."
        ),
        draw=loss_cases,
        judge=partial(_judged, starter=_loss_starter),
        through=on_ranks,
        known=LOSS_OF_SHARDS,
        why="Why does the gradient of the logits need no further collective?",
        ours=loss_of_shard,
    ),
    ValuesExercise(
        name="shown_by",
        number="13.4",
        points=3,
        about="Checks which inputs show the bugs of three functions.",
        judge=partial(judge_values, right=SHOWN_BY, choices=_INPUTS, named=_OF_SHOWN),
    ),
)
