"""One page for each student: the report on every exercise, the diagnosis, the hint it points to, and the own answer.

Points and comments come from the gradebook. Everything on a page is written by us or escaped (pages.py): nothing of
what a student has handed in runs where it is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup

from helpers.engine.files import write_whole
from helpers.instructor.collect.course import lessons_of
from helpers.instructor.report.gradebook import NOT_BY_HAND, ByHand, Result, report_of
from helpers.instructor.report.pages import page_of

FOLDER = "feedback"

_BODY = """
<table>
<thead><tr><th scope="col">lesson</th><th scope="col">points</th></tr></thead>
<tbody>
{% for lesson in lessons %}
<tr><th scope="row"><a href="#{{ lesson.name }}">{{ lesson.name }}</a></th><td>{{ lesson.points }}</td></tr>
{% endfor %}
</tbody>
</table>
{% for lesson in lessons %}
<h2 id="{{ lesson.name }}">{{ lesson.name }}</h2>
{% if lesson.penalty %}
<p>{{ lesson.penalty }} less for handing in late.</p>
{% endif %}
{% if lesson.problem %}
<p>Your notebook could not be graded: {{ lesson.problem }}. Please hand it in again.</p>
{% endif %}
{% for exercise in lesson.exercises %}
<h3>{{ exercise.title }}: {{ exercise.points }} points</h3>
{% if exercise.checked %}
<p>These points were entered by hand. The check gives {{ exercise.checked }}.</p>
{% endif %}
{% for comment in exercise.comments %}
<p class="comment"><b>Comment:</b> {{ comment }}</p>
{% endfor %}
{% if exercise.report %}
<div class="report">{{ exercise.report }}</div>
{% endif %}
{% if exercise.note %}
<p>{{ exercise.note }}.</p>
{% endif %}
{% if exercise.left_out %}
<details{{ "" if exercise.passed else " open" }}>
<summary>What of your notebook could not be run here, and was left out</summary>
<ul>
{% for one in exercise.left_out %}
<li>line {{ one.number }} of a cell, <code>{{ one.line }}</code>: {{ one.said }}</li>
{% endfor %}
</ul>
</details>
{% endif %}
{% if exercise.speed is float %}
<p>On a GPU it reaches {{ "%.2f" | format(exercise.speed) }} of the speed of a copy.</p>
{% endif %}
{% if exercise.hint %}
<p class="hint"><b>Hint {{ exercise.hint[0] }}: {{ exercise.hint[1] }}.</b> {{ exercise.hint[2] }}</p>
{% endif %}
{% if exercise.answer %}
<details><summary>Your answer</summary><pre>{{ exercise.answer }}</pre></details>
{% endif %}
{% endfor %}
{% endfor %}
"""


Entered = Mapping[tuple[str, str], ByHand]
"""What a person has entered in the gradebook, by student and lesson."""


def write(course: Path, results: Iterable[Result], entered: Entered) -> list[Path]:
    """Writes feedback/STUDENT.html for every student among the results, and returns the paths."""
    released = lessons_of(course)
    of_student: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.student, result.lesson)):
        if result.lesson in released:
            of_student.setdefault(result.student, []).append(result)
    paths = []
    for student, own in of_student.items():
        path = course / FOLDER / f"{student}.html"
        write_whole(path, page(student, own, released, entered))
        paths.append(path)
    return paths


def page(student: str, results: Iterable[Result], released: Mapping[str, Path], entered: Entered) -> bytes:
    """The page of one student. Points and comments that a person has entered count."""
    lessons = [
        _lesson(result, _read(released[result.lesson]), entered.get((student, result.lesson), NOT_BY_HAND))
        for result in results
    ]
    return page_of(_BODY, f"Feedback for {student}", lessons=lessons)


def _lesson(result: Result, lesson: _Lesson, entered: ByHand) -> dict[str, Any]:
    """What the page says of a lesson."""
    problem, exercises = result.data["problem"], result.data["exercises"]
    points = sum(entered.points.get(one["grade_id"], one["points"]) for one in exercises) - entered.penalty
    return {
        "name": result.lesson,
        "points": f"{max(0, points):g} of {result.max_points:g}",
        "penalty": f"{entered.penalty:g} points" if entered.penalty else "",
        "problem": problem,
        "exercises": [_exercise(one, lesson, entered, read=not problem) for one in exercises],
    }


def _exercise(exercise: dict[str, Any], lesson: _Lesson, entered: ByHand, read: bool) -> dict[str, Any]:
    """What the page says of an exercise, of a notebook that could be read or not."""
    name, most = exercise["grade_id"], f"{exercise['max_points']:g}"
    points = entered.points.get(name, exercise["points"])
    cells = (*lesson.solutions.get(name, ()), name)
    return {
        "title": lesson.titles.get(name, exercise["check"]),
        "points": f"{points:g} of {most}",
        "checked": f"{exercise['points']:g} of {most}" if name in entered.points else "",
        "comments": [entered.comments[cell] for cell in cells if cell in entered.comments],
        "report": Markup(report_of(exercise)._repr_html_()) if read else "",
        "note": exercise["note"] if read else "",
        "left_out": exercise.get("left_out", []),
        "passed": exercise["passed"],
        "speed": exercise.get("speed"),
        "hint": _hint(exercise, lesson),
        "answer": exercise.get("answer", ""),
    }


def _hint(exercise: dict[str, Any], lesson: _Lesson) -> tuple[int, str, str] | None:
    """The number, symptom and text of the hint that the diagnosis of a wrong answer points to."""
    if not exercise["diagnosis"] or exercise["passed"]:
        return None
    hints, number = lesson.hints.get(exercise["grade_id"], []), exercise["diagnosis"]["hint"]
    return (number, *hints[number - 1]) if 0 < number <= len(hints) else None


class _Lesson:
    """What a page says of a lesson: by graded cell the title of its exercise, its hints, and the cells to fill in."""

    def __init__(self, path: Path) -> None:
        self.titles: dict[str, str] = {}
        self.hints: dict[str, list[tuple[str, str]]] = {}
        self.solutions: dict[str, tuple[str, ...]] = {}
        title, last, waiting = "", "", []
        for cell in nbformat.read(path, as_version=4).cells:
            marks = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "markdown":
                if heading := re.search(r"^#+ (Exercise [\d.]+)", cell.source, re.MULTILINE):
                    title = heading[1]
                found = re.findall(
                    r"<details>\s*<summary>(?:Hint \d · )?(.*?)</summary>(.*?)</details>", cell.source, re.DOTALL
                )
                if found and last:
                    self.hints[last], last = [(_text(symptom).rstrip("."), _text(text)) for symptom, text in found], ""
            elif marks.get("grade"):
                last = marks["grade_id"]
                check = re.search(r"check\.(\w+)", cell.source)
                self.titles[last] = f"{title}, {check[1]}" if check else title
                self.solutions[last], waiting = tuple(waiting), []
            elif marks.get("solution"):
                waiting.append(marks["grade_id"])


@cache
def _read(path: Path) -> _Lesson:
    return _Lesson(path)


def _text(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html)).strip()
