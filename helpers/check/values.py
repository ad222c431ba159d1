"""Judges exercises that ask for plain values: a number for each question, or one of several choices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.check.exercise import ValuesExercise
from helpers.check.report import Diagnosis, Finding, Report
from helpers.check.trial.trial import is_number, number, shown


def judge_values(
    exercise: ValuesExercise,
    answers: Mapping[str, Any],
    *,
    right: Mapping[str, Any],
    named: Sequence[tuple[str, Sequence[Any], Diagnosis]],
    choices: Sequence[str] = (),
) -> Report:
    """The report on values, of which `right` has the right ones, and `named` the mistakes of wrong ones, by their keys.

    Without `choices` they are numbers, and may be off by 1 in 500.
    """
    exercise.require_keys(answers, list(right))
    given = {key: number(answers[key]) for key in right}
    if all(value is None for value in given.values()):
        return exercise.untouched()
    findings = [_finding(key, value, right[key], choices) for key, value in given.items()]
    wrong = {finding.case for finding in findings if not finding.ok}
    first = (one for key, those, one in named if key in wrong and any(_same(given[key], value) for value in those))
    return exercise.judged(findings, diagnosis=next(first, None))


def _same(value: Any, other: Any) -> bool:
    if is_number(value) and is_number(other):
        return math.isclose(value, other, rel_tol=0.002)
    return isinstance(value, str) and value == other


def _finding(key: str, value: Any, right: Any, choices: Sequence[str]) -> Finding:
    if value is None:
        return Finding(key, False, "not filled in yet")
    if not is_number(value) if not choices else not isinstance(value, str) or value not in choices:
        needed = f"one of {', '.join(map(repr, choices))}" if choices else "a number"
        return Finding(key, False, f"needs {needed}; it is {shown(value)}")
    ok, said = _same(value, right), repr(value) if choices else f"{value:g}"
    return Finding(key, ok, said if ok else f"{said}: {'not that one' if choices else 'count again'}")
