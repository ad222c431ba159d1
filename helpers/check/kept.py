"""What a notebook keeps of its checks: the answers that passed, in memory; in engine/notes.py's file the best points,
the trips that were counted, and the mistakes that were named.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any

from helpers.check import failed_cells
from helpers.check.exercise import Exercise, FunctionExercise, WrongArgument
from helpers.check.exercises import EXERCISES
from helpers.check.exercises.warm_ups import WARM_UPS
from helpers.check.report import Report
from helpers.engine import notes
from helpers.engine.runtime import begin_once

_passed: dict[str, Any] = {}
_last_checked: list[str] = []


def remembered(exercise: Exercise) -> Callable[[Any], Report]:
    """The check of an exercise as notebooks call it: its report, after what comes of it is kept.

    An answer of another kind, such as a list for a function, has a report as well.
    """

    def check(answer: Any) -> Report:
        begin_once()
        try:
            report = exercise.report_on(answer)
        except WrongArgument as error:
            report = exercise.misunderstood(error)
        remember(report, answer)
        ours = text_of(exercise.ours) if report.passed and exercise.points and exercise.ours else ""
        return replace(
            report, failed_cell=failed_cells.earlier_version(exercise.name, answer), why=exercise.why, ours=ours
        )

    check.__name__ = check.__qualname__ = exercise.name
    check.__doc__ = exercise.about
    return check


def text_of(ours: Callable) -> str:
    """The kernels that a function of the course launches, as text; all that it calls, if a class is among that; its
    own text, if it launches none."""
    reached = [ours]
    for one in reached:
        for fn in _functions_of(one):
            globals_used = {step.argval for step in dis.get_instructions(fn) if step.opname == "LOAD_GLOBAL"}
            for called in (fn.__globals__.get(name) for name in sorted(globals_used)):
                own = {part.__module__ for part in _functions_of(called)} == {fn.__module__}
                if own and called not in reached:
                    reached.append(called)
    whole = any(isinstance(one, type) for one in reached)
    shown = [getattr(one, "fn", one) for one in reached[1:] if whole or hasattr(one, "fn")]
    return "\n\n".join(map(inspect.getsource, shown or [ours]))


def _functions_of(value: object) -> list[FunctionType]:
    """A function, that of a kernel, or a class's static methods."""
    held = vars(value).values() if isinstance(value, type) else [getattr(value, "fn", value)]
    return [fn for fn in (getattr(one, "__func__", one) for one in held) if isinstance(fn, FunctionType)]


COUNTED_TRIPS, NAMED_MISTAKES = "counted", "mistakes"
"""The entries of the file that say more than points, each a dict by exercise."""


def remember(report: Report, answer: Any) -> None:
    """Keeps an answer that has passed, forgets an earlier one where this has not, and notes what its check has shown.

    The notes go to the directory in which the notebook began, where it can be written to. A warm-up leaves none.
    """
    name = report.exercise
    if name not in EXERCISES:
        _passed.pop(name, None)
        _passed.update({name: answer} if report.passed else {})
        return
    _last_checked[:] = [name]
    if not report.attempted:
        _passed.pop(name, None)
        return
    entries: dict[str, Any] = {name: max(report.points, points().get(name, 0))}
    if report.passed:
        _passed[name] = answer
        entries |= _with(COUNTED_TRIPS, name, _counted(report))
    else:
        _passed.pop(name, None)
        if report.diagnosis:
            met = named_mistakes().get(name, {}) | {report.diagnosis.id: report.diagnosis.name}
            entries |= _with(NAMED_MISTAKES, name, met)
    notes.put(entries)


def _with(entry: str, name: str, value: Any) -> dict[str, Any]:
    """An entry of the file with another value for one exercise; nothing without a value."""
    return {entry: notes.entry(entry) | {name: value}} if value else {}


def _counted(report: Report) -> list[float]:
    """Loads and stores for each element, as the check of a kernel has counted them; nothing for another answer."""
    return next((list(finding.trips) for finding in report.findings if finding.trips), [])


def last_checked() -> str | None:
    """The exercise whose check was called last in this session."""
    return _last_checked[0] if _last_checked else None


def points() -> dict[str, float]:
    """The best points by exercise. Of a strange file numbers count."""
    return {
        name: min(number, EXERCISES[name].points)
        for name, number in notes.entries().items()
        if name in EXERCISES and _is_size(number)
    }


def _is_size(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number < float("inf")


def counted_trips() -> dict[str, tuple[float, float]]:
    """Loads and stores per element of the learner's own kernels, by exercise, as their checks counted them."""
    found = {}
    for name, pair in notes.entry(COUNTED_TRIPS).items():
        if name in EXERCISES and isinstance(pair, list) and len(pair) == 2 and all(map(_is_size, pair)):
            found[name] = (float(pair[0]), float(pair[1]))
    return found


def named_mistakes() -> dict[str, dict[str, str]]:
    """The mistakes that checks have named: by exercise and id their sentences, in the order in which they were met.

    Notes of the third edition have sentences alone.
    """
    found = {}
    for name, met in notes.entry(NAMED_MISTAKES).items():
        said = {one: one for one in met if isinstance(one, str)} if isinstance(met, list) else met
        if name in EXERCISES and isinstance(said, dict):
            found[name] = {id: one for id, one in said.items() if isinstance(one, str)}
    return found


def yours_or_ours(name: str) -> Callable:
    """Returns the learner's function for exercise `name` where its check has passed, else the course's, and says so."""
    ours = _ours(name)
    if name in _passed:
        print(f"From here on: your {getattr(_passed[name], '__name__', 'function')}.")
        return _passed[name]
    print(f"From here on: the course's {ours.__name__}, until yours passes its check.")
    return ours


def answer_of(name: str) -> Callable:
    """Returns the learner's function for exercise `name` if its check has passed, else the course's."""
    return _passed.get(name) or _ours(name)


def yours(name: str, **options: object) -> dict[str, Callable]:
    """Returns {"yours": fn} for a comparison where the learner's function has passed its check, else an empty dict.

    `options`, such as BLOCK=8192, are passed on to the function in every call.
    """
    if name not in _passed:
        if not isinstance(EXERCISES.get(name), FunctionExercise):
            _ours(name)
        return {}
    mine = partial(_passed[name], **options)
    mine.exercise = name  # under which timing.compare notes its speed
    return {"yours": mine}


def _ours(name: str) -> Callable:
    known = {exercise.name: exercise.ours for exercise in (*EXERCISES.values(), *WARM_UPS) if exercise.ours}
    if name not in known:
        said = f"{name!r} asks for no function" if name in EXERCISES else f"no exercise is called {name!r}"
        raise ValueError(f"{said}; there are {', '.join(known)}.")
    return known[name]
