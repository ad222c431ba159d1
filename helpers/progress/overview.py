"""Which exercises have been attempted and passed, lesson by lesson: this lesson's open, the others' folded."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from helpers import recall
from helpers.check import kept
from helpers.check.exercises import EXERCISES
from helpers.engine import notes
from helpers.engine.numbers import counted
from helpers.table import Table

_HEAD = ["exercise", "state", "points"]


@dataclass(frozen=True)
class Lesson:
    """The exercises of a lesson, each with its state and points as a row of a table, and the sums of points."""

    number: str
    rows: list[list[str]]
    points: float
    most: float

    @property
    def folded(self) -> list[str]:
        """All of it in one row."""
        passed = sum(state == "passed" for _, state, _ in self.rows)
        state = f"{passed} of {counted(len(self.rows), 'exercise')} passed"
        return [f"lesson {self.number}", state, f"{self.points:g} of {self.most:g}"]


@dataclass(frozen=True, repr=False)
class Overview:
    """All lessons; `opened` is the number of the one that is open, and "" if none is."""

    lessons: list[Lesson]
    opened: str
    notes: list[str]

    def __repr__(self) -> str:
        rows = [row for one in self.lessons for row in (one.rows if one.number == self.opened else [one.folded])]
        return repr(Table(_HEAD, [*rows, self._together()], self.notes))

    def _repr_html_(self) -> str:
        html = "".join(map(self._lesson_html, self.lessons))
        name, _, points = self._together()
        return html + f"<p><b>{name}: {points} points</b></p>" + "".join(f"<p>{escape(n)}</p>" for n in self.notes)

    def _lesson_html(self, lesson: Lesson) -> str:
        name, state, points = lesson.folded
        opened = " open" * (lesson.number == self.opened)
        table = Table(_HEAD, lesson.rows)._repr_html_()
        return f"<details{opened}><summary>{name}: {state}, {points} points</summary>{table}</details>"

    def _together(self) -> list[str]:
        points, most = (sum(getattr(one, of) for one in self.lessons) for of in ("points", "most"))
        return ["together", "", f"{points:g} of {most:g}"]


def table() -> Overview:
    """Every exercise of the course: not attempted, attempted or passed, and the points of the best attempt.

    The lesson is open whose check was called last; before any, the first one that is not finished.
    """
    best = kept.points()
    by_lesson: dict[str, list] = {}
    for exercise in EXERCISES.values():
        by_lesson.setdefault(lesson_number(exercise.number), []).append(exercise)
    lessons = [
        Lesson(
            number,
            [[f"{e.number} {e.name}", state_of(best.get(e.name), e.points), _points(best, e)] for e in exercises],
            sum(best.get(e.name, 0) for e in exercises),
            sum(e.points for e in exercises),
        )
        for number, exercises in by_lesson.items()
    ]
    last = kept.last_checked()
    unfinished = (lesson.number for lesson in lessons if lesson.points < lesson.most)
    opened = lesson_number(EXERCISES[last].number) if last else next(unfinished, "")
    right = len(recall.once_right())
    said = [f"Questions from earlier lessons: {right} of {len(recall.QUESTIONS)} once right."] * bool(right)
    if (folder := notes.place_not_written()) is not None:
        said.append(f"{notes.FILE} cannot be written in {folder}: what is new here is forgotten with the kernel.")
    return Overview(lessons, opened, said)


def lesson_number(number: str) -> str:
    """The lesson of an exercise's number, as its notebook begins: "05" of "5.3"."""
    return number.partition(".")[0].zfill(2)


def state_of(points: float | None, most: float) -> str:
    """What has become of an exercise, by the points of its best attempt."""
    return "not attempted" if points is None else "passed" if points == most else "attempted"


def _points(best: dict[str, float], exercise: kept.Exercise) -> str:
    return f"{best.get(exercise.name, 0):g} of {exercise.points:g}"
