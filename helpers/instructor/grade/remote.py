"""An answer in a learner's process, as a function of this one: it is called with plain values, and judged here.

So whoever calls it, and holds what it must not see, runs in the grader's process: nothing of the learner's is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from helpers.check.problems.problem import Problem
from helpers.check.trial.call import unwritten
from helpers.check.trial.trial import Elsewhere, Trial, of_numbers, same
from helpers.engine.isolate import LIMITS, NOT_RUN, End
from helpers.instructor.sandbox import trials, wire
from helpers.instructor.sandbox.client import Ended, Sandbox

_PASSED_ON = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that a learner's own call has caused."""
_LONGEST_PRINTED = 5_000
_CALL_CPU_S = LIMITS.cpu_s + 1
"""Seconds that a call has of a processor: one more than its process allows it, where that can be unsaid. To answer
what all calls of a case ask for takes no more here."""
_MOST_QUESTIONS = 1 << 16
"""The number that may be asked in one case."""


class RemoteAnswer:
    """The answer `name` of a sandbox. Each of its calls may take `seconds`. `printed` has what they print.

    A call of it raises Elsewhere where the answer raised something, and Ended where its process has ended. Lists that
    are given hold afterwards what the answer has left in them.
    """

    def __init__(self, learner: Sandbox, name: str, seconds: float) -> None:
        self._learner, self._name, self._seconds = learner, name, seconds
        self.printed = self.code = ""
        self.ended: Ended | None = None
        self._questions, self._answered_s = 0, 0.0

    def __call__(self, *args: Any) -> Any:
        functions = [place for place, arg in enumerate(args) if callable(arg)]
        given = [None if callable(arg) else arg for arg in args]
        sent = self.ask({"do": "call", "given": given, "functions": functions}, partial(_called_back, args))
        for arg, left in zip(args, _decoded(sent.get("given"), list) or (), strict=False):
            _take_back(arg, left)
        return _decoded(sent.get("result"))

    def ask(self, request: dict[str, Any], device: Callable[[Any], dict[str, Any]] | None = None) -> dict[str, Any]:
        """What the learner's process sends. Raises Elsewhere where the answer has not returned."""

        def counted(sent: Any) -> dict[str, Any]:
            self._questions += 1
            if self._questions > _MOST_QUESTIONS:
                raise Ended(f"it asks for something more than {_MOST_QUESTIONS:,} times", End.OUT_OF_TIME)
            began = time.thread_time()
            told = device(sent)
            self._answered_s += time.thread_time() - began
            if self._answered_s > _CALL_CPU_S:
                said = f"what it asks for takes more than {_CALL_CPU_S} seconds of processor time"
                raise Ended(said, End.OUT_OF_TIME)
            return told

        try:
            sent = self._learner.ask({**request, "answer": self._name}, self._seconds, counted, _CALL_CPU_S)
        except Ended as error:
            self.ended = error
            raise
        sent = sent if isinstance(sent, dict) else {}
        self.printed = (self.printed + str(sent.get("printed", "")))[:_LONGEST_PRINTED]
        one = trials.received(sent.get("trial"))
        self.code = str(sent.get("code", one.code))[:2000]
        if one.end is not End.RETURNED:
            raise Elsewhere(trials.failure(sent["trial"]))
        return sent


def _take_back(arg: Any, left: Any) -> None:
    """Puts into a list, or into the lists of a tuple, what the answer has left in it."""
    if isinstance(arg, list) and isinstance(left, list):
        arg[:] = left
    elif isinstance(arg, tuple) and isinstance(left, list | tuple):
        for one, of_one in zip(arg, left, strict=False):
            _take_back(one, of_one)


def driven(through: Callable, given: Sequence[tuple], learner: Sandbox, name: str, seconds: float) -> list[Trial]:
    """The trials of an answer by which `through`, a function of helpers, is called with it and each of these arguments.

    Each call of it may take `seconds`. After one that has ended its process no other is made.
    """
    found: list[Trial] = []
    for args in given:
        answer = RemoteAnswer(learner, name, seconds)
        one = of_numbers(partial(through, answer), args)
        if answer.ended:
            one = Trial(answer.ended.end, str(answer.ended))
        elif not one.raised:
            one.code = answer.code
        one.printed = answer.printed
        found.append(one)
        if answer.ended:
            break
    return found + [Trial(NOT_RUN.end, NOT_RUN.said) for _ in given[len(found) :]]


def trial_of_results(sent: Any, problem: Problem) -> Trial:
    """The trial of a problem, from what callee.answered_by sends: of the answer's results no more than tensors."""
    sent = sent if isinstance(sent, dict) else {}
    one = trials.received(sent.get("trial"))
    if one.end is not End.RETURNED:
        return trials.failure(sent["trial"])
    after = sent.get("inputs")
    return Trial(
        **{name: getattr(one, name) for name in _OF_RESULTS},
        input_changed=sent.get("changed") is not False or not _all_same(after, problem.inputs),
        left_unwritten=sum(map(unwritten, one.results)),
        overwritten="later" in sent and not _all_same(sent["later"], one.results),
        printed=str(sent.get("printed", ""))[:_LONGEST_PRINTED],
    )


def _all_same(sent: Any, tensors: Sequence[torch.Tensor]) -> bool:
    sent = trials.items_of(sent)
    return len(sent) == len(tensors) and all(
        isinstance(one, torch.Tensor) and one.dtype == other.dtype and same(one, other)
        for one, other in zip(sent, tensors, strict=True)
    )


_OF_RESULTS = (
    "unwritten", "got", "got_kind", "got_none", "got_shape", "results", "shares_storage", "contiguous", "again",
    "again_raised", "code",
)  # fmt: skip


def _called_back(args: Sequence[Any], sent: Any) -> dict[str, Any]:
    """The answer to a question by which the learner's code calls one of the functions in its arguments."""
    what, place, given, same_as, *_ = [*_question(sent), None, None, None]
    if what != "call" or type(place) is not int or not 0 <= place < len(args) or not callable(args[place]):
        raise Ended("it calls what nobody has given to it")
    given, same_as = trials.items_of(given), trials.items_of(same_as)
    if len(same_as) != len(given):
        raise Ended("it calls a function in no way that there is")
    known = [at if type(at) is int and 0 <= at < len(args) and isinstance(args[at], list) else None for at in same_as]
    for value, at in zip(given, known, strict=True):
        if at is not None and isinstance(value, list):
            args[at][:] = value  # the very list, as the answer has left it
    values = [value if at is None else args[at] for value, at in zip(given, known, strict=True)]
    try:
        return {"answer": args[place](*values)}
    except _PASSED_ON as error:
        return _raised_there(error)


def _raised_there(error: Exception) -> dict[str, Any]:
    return {"raised": [type(error).__name__, str(error)[:300]]}


def _question(sent: Any) -> Sequence[Any]:
    found = trials.items_of(sent.get("question") if isinstance(sent, dict) else None)
    if len(found) < 2:
        raise Ended("it asks in no way that there is")
    return found


def _decoded(value: Any, kind: type = object) -> Any:
    """What callee.py has encoded; None for anything of another kind. Raises Ended for a value that is not encoded."""
    try:
        found = wire.decode(value)
    except wire.Garbled as error:
        raise Ended(f"its process sent {error}") from None
    return found if isinstance(found, kind) else None
