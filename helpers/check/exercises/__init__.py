"""The exercises: each file `lesson_NN.py` here has the exercises of a lesson, and is found by its name; warm_ups.py has
what lessons check for no points.

A file's `EXERCISES` give each exercise its name, number, points, cases, and known mistakes with their hints.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from helpers.check.exercise import Exercise

LESSONS = tuple(
    import_module(f"{__name__}.{module.name}")
    for module in sorted(iter_modules(__path__), key=lambda module: module.name)
    if module.name.startswith("lesson_")
)

EXERCISES: dict[str, Exercise] = {exercise.name: exercise for lesson in LESSONS for exercise in lesson.EXERCISES}
"""By name, in the order of the course."""
