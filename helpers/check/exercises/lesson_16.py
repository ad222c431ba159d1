"""Lesson 16, in your own project: an operator with its gradient, a test that tells kernels apart, launches to judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from helpers.check.exercise import AnswersExercise, Given, TensorExercise, ValuesExercise
from helpers.check.judge import stopped, untouched
from helpers.check.mistakes.edited import Answer, Edit, Edited
from helpers.check.mistakes.operator import OF_OPERATOR
from helpers.check.mistakes.recognise import Explains, Seen, shown_by, with_hints
from helpers.check.mistakes.stops import ERRORS, GENERAL
from helpers.check.problems import boxes, operating
from helpers.check.report import Finding, Report
from helpers.check.trial.starter import starters
from helpers.check.trial.trial import Trial, shown
from helpers.softmax import taken_home

# 16.2


def _kernels(draw: Random) -> Given:
    """All kernels in any order, each with a seed; whether it is right."""
    names = draw.sample(
        [*boxes.RIGHT_KERNELS, *boxes.WRONG_KERNELS], len(boxes.RIGHT_KERNELS) + len(boxes.WRONG_KERNELS)
    )
    return {name: ((name, draw.randrange(2**31)), name in boxes.RIGHT_KERNELS) for name in names}


def _said(trial: Trial) -> Any:
    """True or False, as the test said; AssertionError is False."""
    return False if trial.error == "AssertionError" else trial.answer


def _judge_tests(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """Which kernels were told apart; points are the share of wrong ones refused times that of right ones accepted."""
    tried = dict(zip(given, trials, strict=True))
    if all(untouched(exercise, trial) and not trial.printed for trial in trials):
        return exercise.untouched()
    found = {name: _told_apart(name, tried[name]) for name in (*boxes.RIGHT_KERNELS, *boxes.WRONG_KERNELS)}
    seen = [Seen(name, given[name][0], tried[name], one.ok) for name, one in found.items()]
    named = None if all(one.ok for one in found.values()) else exercise.named(seen)
    shares = [
        sum(found[name].ok for name in names) / len(names) for names in (boxes.RIGHT_KERNELS, boxes.WRONG_KERNELS)
    ]
    kept = math.floor(2 * exercise.points * math.prod(shares)) / (2 * exercise.points)
    because = "Points are the share of wrong kernels that you refuse, times the share of right ones that you accept."
    return exercise.judged(
        tuple(found.values()), kept=kept, diagnosis=named, shown_by=shown_by(named, seen), because=because,
        printed=next((trial.printed for trial in trials if trial.printed), ""), most_ways=len(found),
    )  # fmt: skip


def _told_apart(name: str, trial: Trial) -> Finding:
    right, said = name in boxes.RIGHT_KERNELS, _said(trial)
    case = f"{'right' if right else 'wrong'}: {name}"
    if trial.raised and said is not False:
        return stopped(case, trial)
    if not isinstance(said, bool):
        said = "None; is a return missing?" if said is None else shown(said)
        return Finding(case, False, f"expected True or False, got {said}")
    return Finding(case, said == right, "accepted" if said else "refused")


def _refused(seen: Sequence[Seen]) -> list[str]:
    return [one.case for one in seen if _said(one.trial) is False]


def _accepted(seen: Sequence[Seen]) -> list[str]:
    return [one.case for one in seen if _said(one.trial) is True]


class _OfTests(Answer):
    """The course's own test. No two edits are tried at once: a mistake is known by the kernels that it accepts."""

    def cases(self, seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
        """See Answer."""
        return [], []


_TESTED = _OfTests(taken_home.looks_right, through=boxes.said_of_kernel)


def _mistake(id: str, name: str, question: str, hint: int, explains: Explains, *edits: Edit) -> Edited:
    return Edited(id, name, question, hint, explains, _TESTED, edits)


def _accepts(*wrong: int) -> Explains:
    """One of these wrong kernels, by their places, is accepted."""
    names = {list(boxes.WRONG_KERNELS)[place] for place in wrong}
    return lambda seen: 1.0 * bool(names.intersection(_accepted(seen)))


_LONGEST = "torch.zeros(3, 5000)"
_COMPARED = "not torch.allclose(y.double(), want, within[x.dtype], 1e-7, equal_nan=True)"
_OF_TESTS = (
    *GENERAL,
    _mistake(
        "says_neither",
        "Something other than True or False comes back.",
        "What does the last line return if no input has shown a fault?",
        5,
        lambda seen: 1.0 * any(not one.trial.raised and not isinstance(one.trial.answer, bool) for one in seen),
        ("    return True", "    return y"),
    ),
    _mistake(
        "all_accepted",
        "Every kernel is accepted, the wrong ones too.",
        "Which line returns False, and for which kernel has it ever run?",
        5,
        lambda seen: 1.0 * (set(_accepted(seen)) >= {*boxes.RIGHT_KERNELS, *boxes.WRONG_KERNELS}),
        ("return False", "pass"),
    ),
    _mistake(
        "right_refused_all",
        "Every right kernel is refused.",
        "A row of only −inf has NaN: is NaN equal to NaN? And how far apart are two float16 next to 0?",
        1,
        lambda seen: 1.0 * (set(_refused(seen)) >= {*boxes.RIGHT_KERNELS}),
        (", equal_nan=True", ""),
        (_COMPARED, "not torch.equal(y, want)"),
    ),
    _mistake(
        "right_refused",
        "A right kernel is refused.",
        "How far apart may two right results be, rounded in another order, and what did nobody promise?",
        1,
        lambda seen: 1.0 * bool({*boxes.RIGHT_KERNELS}.intersection(_refused(seen))),
        ("y.shape != x.shape", "not y.is_contiguous() or y.shape != x.shape"),
        (_COMPARED, "not torch.equal(y.nan_to_num(), torch.softmax(x, dim=1).nan_to_num())"),
    ),
    _mistake(
        "lengths_left_out",
        "A kernel is accepted that fails at other lengths, or at other numbers of rows.",
        "Which of your rows leaves lanes idle, which is longer than any tile, and is a number of rows odd?",
        2,
        _accepts(0, 1, 2),
        ("5, 101", "8, 64", "3, 5000", "4, 8192", "4, 3000", "4, 4096", "6, 100)[:, :70", "8, 99)[:, :64",
         "9, 200)[::2, ::3", "8, 99)[:, 3:67"),
        ("3, 5000", "3, 500", "4, 3000", "4, 300", ":2500", ":250"),
    ),
    _mistake(
        "strides_left_out",
        "A kernel is accepted that takes strides for granted.",
        "Which strides has x.t(), which x[:, :70], and is x ever one of these?",
        3,
        _accepts(3, 4),
        (" + strided:", ":"),
        ("torch.randn(6, 100)[:, :70]", "torch.randn(6, 70)", "[::2, ::3]", "", "short.t()", "short"),
    ),
    _mistake(
        "values_left_out",
        "A kernel is accepted that fails for large values, or for −inf.",
        "What is exp(1000), and where in a row does a mask put −inf?",
        3,
        _accepts(5, 6),
        ("short + 1000", "short + 10"),
        (f"{_LONGEST}, hidden", _LONGEST),
        ("[1, :2500]", "[1, 2500:]"),
    ),
    _mistake(
        "dtypes_left_out",
        "A kernel is accepted that is wrong in 16 bits.",
        "Which dtypes does x have in your test, of which dtype is the result, and how long is a row in 16 bits?",
        4,
        _accepts(7, 8),
        (" or y.dtype != x.dtype", ""),
        (", torch.bfloat16: 1e-2, torch.float16: 2e-3", ""),
    ),
    _mistake(
        "tolerance_too_wide",
        "A kernel is accepted whose numbers are not near enough.",
        "How large are the numbers of a row of 5,000, and how many digits has each dtype?",
        1,
        _accepts(9, 10),
        ("1e-5", "1e-2", "2e-3", "1e-2"),
        ("1e-7", "1e-2"),
    ),
    _mistake(
        "never_asked_twice",
        "A kernel is accepted whose second call returns the first one's result.",
        "Does fn ever get two inputs of one shape and dtype, and are both results compared?",
        2,
        _accepts(11),
        ("-short, short + 1000", "short[:4] + 1000", _LONGEST, "torch.zeros(2, 5000)"),
    ),
)  # fmt: skip

# 16.3

LAUNCHES: dict[str, tuple[tuple[Any, ...], str]] = {
    "A, times too large": ((5,), "how often has the kernel run when the first call returns, and what does a run add?"),
    "A, repair": (("reset_to_zero", "restore_value", "pre_hook"), "what should out hold again before each run?"),
    "B, columns stored": ((1024,), "which configuration is kept for this key, and how many lanes has it?"),
    "B, repair": (("key",), "by what does the autotuner know that a launch is another one?"),
    "C, M a tl.constexpr": ((4,), "does a constant that is compiled in ever serve another value?"),
    "C, M an integer": ((3,), "what does Triton know of an integer: that it is 1, that 16 divides it, or neither?"),
    "C, repair": (("do_not_specialize",), "which argument of triton.jit leaves one binary for all M?"),
}  # fmt: skip
"""By the key of an answer: what is right, and a question for whoever says something else."""


def _judge_launches(exercise: ValuesExercise, found: Mapping[str, Any]) -> Report:
    exercise.require_keys(found, list(LAUNCHES))
    if all(one is None for one in found.values()):
        return exercise.untouched()
    findings = []
    for key, (right, question) in LAUNCHES.items():
        said = found[key]
        if isinstance(said, str):
            said = said.partition("=")[0].strip()
        ok = not isinstance(said, bool) and said in right
        wrong = "not filled in yet" if said is None else f"it is not {shown(said)}: {question}"
        findings.append(Finding(key, ok, shown(said) if ok else wrong))
    share = sum(one.ok for one in findings) / len(findings)
    return exercise.judged(findings, kept=math.floor(2 * exercise.points * share) / (2 * exercise.points))


_LOADS, _STORES = 4, 3
"""Of each element of x: two calls forward, and one backward."""

EXERCISES = (
    TensorExercise(
        name="operator",
        number="16.1",
        points=5,
        about=(
            "Checks softmax(x, dim) as an operator of PyTorch: trained(x, dy, dim) returns y and the gradient of x, "
            "for tensors of three dimensions, along any of them, with any strides of x and dy."
        ),
        kind=operating.OPERATOR,
        makers=operating.OPERATOR_CASES,
        loads=_LOADS,
        stores=_STORES,
        uncounted=operating.COPIED,
        starters=starters(taken_home.trained),
        known=with_hints(OF_OPERATOR, out_of_bounds=2, offsets_overflow=2, **dict.fromkeys(ERRORS, 5)),
        why="Why does backward keep y, and not x?",
        ours=taken_home.trained,
    ),
    AnswersExercise(
        name="looks_right",
        number="16.2",
        points=6,
        about=(
            "Checks a test looks_right(fn) on seventeen kernels that it cannot see into: five are right, twelve wrong. "
            "It returns True for right ones and False for wrong ones; an AssertionError counts as False."
        ),
        draw=_kernels,
        judge=_judge_tests,
        through=boxes.said_of_kernel,
        known=with_hints(_OF_TESTS, **dict.fromkeys(ERRORS, 5)),
        why="Why does a tolerance of 0.01 accept zeros for a softmax of 16,384 numbers, and which one does not?",
        ours=taken_home.looks_right,
    ),
    ValuesExercise(
        name="launches",
        number="16.3",
        points=3,
        about="Checks what three launches of right kernels do: what comes out of them, how many binaries, the repair.",
        judge=_judge_launches,
    ),
)
