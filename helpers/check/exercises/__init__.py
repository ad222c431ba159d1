"""The table of exercises: a file for each lesson, and in it for each exercise its name, number, points, cases and known
mistakes with their hints."""

from __future__ import annotations

from helpers.check.exercise import Exercise
from helpers.check.exercises import (
    lesson_01,
    lesson_02,
    lesson_03,
    lesson_04,
    lesson_05,
    lesson_07,
    lesson_08,
    lesson_09,
)

LESSONS = (lesson_01, lesson_02, lesson_03, lesson_04, lesson_05, lesson_07, lesson_08, lesson_09)

EXERCISES: dict[str, Exercise] = {exercise.name: exercise for lesson in LESSONS for exercise in lesson.EXERCISES}
"""By name, in the order of the course."""
