"""The site's page of exercises: what each one asks, and every mistake that its check names, with its question."""

from __future__ import annotations

import re
from collections.abc import Iterable

from helpers.check.exercise import Exercise


def mistakes_page(exercises: Iterable[Exercise]) -> str:
    """The page in Markdown: a heading for each exercise, and below it a table with a line for each mistake."""
    parts = [
        "# Exercises and known mistakes",
        "A check names the mistake that explains most of what was seen, and asks the learner its question.",
    ]
    for exercise in exercises:
        parts += [f"## {exercise.number} · check.{exercise.name}, {exercise.points:g} points", _plain(exercise.about)]
        lines = [f"| {_plain(mistake.name)} | {_plain(mistake.question)} |" for mistake in exercise.known]
        if lines:
            parts.append("\n".join(["| mistake | question |", "|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """A text in one line, in which Markdown finds nothing to format."""
    return re.sub(r"([\\`*_{}\[\]<>|$#~])", r"\\\1", " ".join(text.split()))
