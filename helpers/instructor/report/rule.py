"""Points by an instructor's own rule, from results that are there: nothing is run for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from helpers.instructor.collect.course import names_in
from helpers.instructor.publish.notebooks import NotebookError

RULE = Path("private") / "points.py"
"""Where an instructor may put `points(exercise)`, which is given an exercise of a result."""


def rule_of(course: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """From the data of a result to the same with the points of the instructor's rule; without one they are the check's.

    The rule is asked for the points of attempts that have not all of them and about which there is no note; the check's
    stay in `checked`. Raises NotebookError for a file without a rule; what it returns, for points that are none.
    """
    path = course / RULE
    if not path.exists():
        return lambda data: data
    points = names_in(path.read_text(encoding="utf-8"), RULE).get("points")
    if not callable(points):
        raise NotebookError(f"{RULE} needs a function points(exercise).")
    return lambda data: {**data, "exercises": [_by(points, one) for one in data["exercises"]]}


def _by(points: Callable[[dict[str, Any]], Any], exercise: dict[str, Any]) -> dict[str, Any]:
    most = exercise["max_points"]
    settled = "checked" in exercise or exercise["note"] or not exercise["attempted"] or exercise["points"] == most
    if settled:
        return exercise
    try:
        found = float(points(deepcopy(exercise)))
    except Exception as error:
        raise NotebookError(f"{RULE}, {exercise['check']}: {type(error).__name__}: {error}") from error
    if not (math.isfinite(found) and 0 <= found <= most):
        raise NotebookError(f"{RULE}, {exercise['check']}: {found} of {most:g} points are not accepted.")
    return {**exercise, "points": found, "checked": exercise["points"]}
