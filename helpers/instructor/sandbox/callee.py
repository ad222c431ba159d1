"""A learner's end of calls that the grader makes: what the answer calls back is asked of the grader.

Nothing here judges: it passes on values, prints and errors.
"""

from __future__ import annotations

import builtins
import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any

import torch

from helpers.check.problems.problem import Problem
from helpers.check.trial import withheld
from helpers.check.trial.call import TWICE, UnwrittenMemoryIsNaN, with_options
from helpers.check.trial.starter import instructions_of
from helpers.check.trial.trial import Trial, describe, failed, keep_results, sentence
from helpers.instructor.sandbox import wire

Ask = Callable[[dict[str, Any]], Any]
"""Sends the grader a question, after the events so far, and returns what it tells."""

LONGEST_PRINTED = 5_000
"""Characters of what one call prints that are kept."""


def asked(ask: Ask, *question: Any, events: Sequence[Any] = ()) -> Any:
    """The answer to a question. Raises what its asking raises there."""
    told = ask({"events": list(events), "question": list(question)})
    if "raised" in told:
        name, said = told["raised"]
        raise getattr(builtins, name, RuntimeError)(said)
    return told["answer"]


def calling_back(ask: Ask, place: int, given: Sequence[Any]) -> Callable[..., Any]:
    """The function that the grader has given in this place: each call of it is a question.

    The question has the arguments, and for each the place in `given` of the very object, or None.
    """

    def function(*args: Any) -> Any:
        same = [next((at for at, one in enumerate(given) if one is arg), None) for arg in args]
        return asked(ask, "call", place, list(args), same)

    return function


def call_once(
    fn: Callable, given: Sequence[Any], functions: Sequence[int], plain: Callable, ask: Ask
) -> dict[str, Any]:
    """What a call returned or raised: its trial, its `result`, and what became of its arguments, both as wire.encode
    makes them of what `plain` makes of them."""
    args = list(given)
    for place in functions:
        args[place] = calling_back(ask, place, args)
    try:
        with redirect_stdout(io.StringIO()) as printed:
            result = fn(*args)
            found = {"result": wire.encode(result if isinstance(result, torch.Tensor) else plain(result))}
        one = Trial(code=instructions_of(fn))
    except BaseException as error:
        found, one = {}, failed(error, fn)
    left = [None if place in functions else plain(arg) for place, arg in enumerate(args)]
    return {"trial": one.plain(), "given": wire.encode(left), "printed": shortened(printed), **found}


def answered_by(fn: Callable, problem: Problem) -> dict[str, Any]:
    """What fn returned for the inputs of a problem, and what they then hold; what fn returns after a small x has got
    other numbers, and what the first results hold by then.

    What the answer does apart from its results shows here alone: tensors without a device, memory that nobody has
    written.
    """
    changes, devices = withheld.OwnChanges(*problem.inputs), withheld.Devices(fn)
    one, given = Trial(), with_options(fn, problem.options)
    try:
        with UnwrittenMemoryIsNaN(), changes, devices:
            returned = given(*problem.inputs)
        devices.require(returned)
    except BaseException as error:
        return {"trial": failed(error, fn).plain()}
    if returned is None:
        one.unwritten, one.code = True, instructions_of(fn)
    found = {"inputs": [tensor.clone() for tensor in problem.inputs], "changed": changes.changed}
    if results := describe(one, returned, problem):
        keep_results(one, results, problem)
    if results and problem.x.numel() <= TWICE and not one.shares_storage:
        problem.turn()
        try:
            with redirect_stdout(io.StringIO()), UnwrittenMemoryIsNaN():
                again = given(*problem.inputs)
        except BaseException as error:
            one.again_raised = sentence(error)
        else:
            one.again = [y.detach().cpu().contiguous() for y in describe(Trial(), again, problem)]
            found["later"] = [y.detach().cpu().contiguous() for y in results]
    return {"trial": one.plain(), **found}


def shortened(printed: io.StringIO) -> str:
    """The part of the printed text that is kept."""
    return printed.getvalue()[:LONGEST_PRINTED]
