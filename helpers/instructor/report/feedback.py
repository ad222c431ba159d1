"""One page for each student: the report on every exercise, the diagnosis, the hint it points to, and the own answer.

Points and comments come from the gradebook. Everything on a page is written by us or escaped (pages.py): nothing of
what a student has handed in runs where it is opened.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
from markupsafe import Markup

from helpers.engine.files import read_regular, write_whole
from helpers.instructor.collect.course import RETURNED, lessons_of
from helpers.instructor.collect.ledger import read_ledger, who_is
from helpers.instructor.collect.lms import SYSTEMS
from helpers.instructor.collect.names import listed
from helpers.instructor.collect.person import Person
from helpers.instructor.report.gradebook import NOT_BY_HAND, ByHand, Result, report_of
from helpers.instructor.report.pages import page_of

FOLDER = "feedback"
EXCHANGE = "nbgrader"
"""In place of a system: the exchange of nbgrader."""
RETURNS = EXCHANGE, *(name for name, system in SYSTEMS.items() if system.returned)
"""The systems to which pages can be given back."""

_BODY = """
<table>
<thead><tr><th scope="col">lesson</th><th scope="col">points</th><th scope="col">state</th></tr></thead>
<tbody>
{% for lesson in lessons %}
<tr>
<th scope="row"><a href="#{{ lesson.name }}">{{ lesson.name }}</a></th><td>{{ lesson.points }}</td>
<td>{{ lesson.state }}</td>
</tr>
{% endfor %}
{% for name, most in missing.items() %}
<tr><th scope="row">{{ name }}</th><td>0 of {{ "%g" | format(most) }}</td><td>not handed in</td></tr>
{% endfor %}
<tr><th scope="row">total</th><td>{{ total }}</td><td></td></tr>
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
<p>These points were {{ exercise.given }}. The check gives {{ exercise.checked }}.</p>
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


def write(
    course: Path,
    results: Iterable[Result],
    entered: Entered,
    people: Sequence[Person] = (),
    only: Collection[str] | None = None,
) -> list[Path]:
    """Writes feedback/STUDENT.html for every student among the results, or for `only` these; returns the paths.

    A page has a line for each lesson that anybody has handed in, and the name that the roster `people` has.
    """
    released = lessons_of(course)
    of_student: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.student, result.lesson)):
        if result.lesson in released:
            of_student.setdefault(result.student, []).append(result)
    begun = {one.lesson: released[one.lesson] for own in of_student.values() for one in own}
    known = who_is(of_student, people, read_ledger(course))
    paths = []
    for student, own in of_student.items():
        if only is None or student in only:
            path = course / FOLDER / f"{student}.html"
            write_whole(path, page(student, own, begun, entered, known[student].name))
            paths.append(path)
    return paths


def give_back(
    course: Path, results: Iterable[Result], entered: Entered, form: str, people: Sequence[Person] = ()
) -> tuple[list[Path], list[str]]:
    """Pages of one lesson each, as a system takes them: returned/LESSON-FORM.zip of one in `SYSTEMS`, or EXCHANGE's
    folders for `nbgrader release_feedback`. The paths, and by lesson a sentence on hand-ins that have another origin.
    """
    released, ledger = lessons_of(course), read_ledger(course)
    results = [one for one in results if one.lesson in released]
    known = who_is({one.student for one in results}, people, ledger)
    zips: dict[Path, dict[str, bytes]] = {}
    paths: list[Path] = []
    left: dict[str, list[str]] = {}
    for one in sorted(results, key=lambda one: (one.lesson, one.student)):
        student, lesson = one.student, one.lesson
        shown = page(student, [one], {lesson: released[lesson]}, entered, known[student].name)
        if form == EXCHANGE:
            folder, handed = course / FOLDER / student / lesson, course / "submitted" / student / lesson
            notes = [handed / name for name in ("timestamp.txt", "submission_secret.txt")]
            if all(path.is_file() for path in notes):
                write_whole(folder / f"{lesson}.html", shown)
                for path in notes:
                    write_whole(folder / path.name, read_regular(path, 1000))
                paths.append(folder)
                continue
        elif student in ledger and ledger[student].system == form and lesson in ledger[student].lessons:
            if match := re.search(SYSTEMS[form].returned, ledger[student].lessons[lesson].path):
                archive = course / RETURNED / f"{lesson}-{form}.zip"
                zips.setdefault(archive, {})[f"{match[0]}_{lesson}.html"] = shown
                continue
        left.setdefault(lesson, []).append(student)
    for path, pages in zips.items():
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, shown in pages.items():
                archive.writestr(name, shown)
        write_whole(path, packed.getvalue())
    why = "no page for hand-ins that have not come as files from there"
    return [*paths, *zips], [f"{lesson}: {why}: {listed(own, 20)}." for lesson, own in left.items()]


def page(
    student: str, results: Sequence[Result], released: Mapping[str, Path], entered: Entered, name: str = ""
) -> bytes:
    """The page of one student, who has this name. Points and comments that a person has entered count."""
    by_hand = {one.lesson: entered.get((student, one.lesson), NOT_BY_HAND) for one in results}
    lessons = [_lesson(one, _read(released[one.lesson]), by_hand[one.lesson]) for one in results]
    missing = {one: _read(path).most for one, path in sorted(released.items()) if one not in by_hand}
    most = sum(one.max_points for one in results) + sum(missing.values())
    total = f"{sum(_points(one, by_hand[one.lesson]) for one in results):g} of {most:g}"
    return page_of(_BODY, f"Feedback for {name or student}", lessons=lessons, missing=missing, total=total)


def _points(result: Result, entered: ByHand) -> float:
    """The points of a lesson that count."""
    own = (entered.points.get(one["grade_id"], one["points"]) for one in result.data["exercises"])
    return max(0, sum(own) - entered.penalty)


def _lesson(result: Result, lesson: _Lesson, entered: ByHand) -> dict[str, Any]:
    """What the page says of a lesson."""
    problem, exercises = result.data["problem"], result.data["exercises"]
    states = {one["grade_id"]: _state(one, entered) for one in exercises}
    titles = {name: lesson.titles.get(name, name).removeprefix("Exercise ") for name in states}
    each = "; ".join(f"{titles[name]}: {state}" for name, state in states.items())
    return {
        "name": result.lesson,
        "points": f"{_points(result, entered):g} of {result.max_points:g}",
        "state": "could not be read" if problem else "right" if {*states.values()} == {"right"} else each,
        "penalty": f"{entered.penalty:g} points" if entered.penalty else "",
        "problem": problem,
        "exercises": [_exercise(one, lesson, entered, read=not problem) for one in exercises],
    }


def _state(exercise: dict[str, Any], entered: ByHand) -> str:
    """An exercise in a word or two."""
    if exercise["grade_id"] in entered.points:
        return "points entered by hand"
    if exercise["points"] == exercise["max_points"]:
        return "right"
    if not exercise["attempted"]:
        return "not attempted"
    return "right in part" if exercise["points"] else "not right"


def _exercise(exercise: dict[str, Any], lesson: _Lesson, entered: ByHand, read: bool) -> dict[str, Any]:
    """What the page says of an exercise, of a notebook that could be read or not."""
    name, most = exercise["grade_id"], f"{exercise['max_points']:g}"
    points = entered.points.get(name, exercise["points"])
    cells = (*lesson.solutions.get(name, ()), name)
    changed = name in entered.points or "checked" in exercise
    return {
        "title": lesson.titles.get(name, exercise["check"]),
        "points": f"{points:g} of {most}",
        "given": "entered by hand" if name in entered.points else "given by your instructor's rule",
        "checked": f"{exercise.get('checked', exercise['points']):g} of {most}" if changed else "",
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
    """What a page says of a lesson: its points; by graded cell the title of its exercise, hints, cells to fill in."""

    def __init__(self, path: Path) -> None:
        self.titles: dict[str, str] = {}
        self.hints: dict[str, list[tuple[str, str]]] = {}
        self.solutions: dict[str, tuple[str, ...]] = {}
        self.most = 0.0
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
                self.most += marks.get("points", 0)
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
