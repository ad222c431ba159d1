"""One page for each student: the report on every exercise, the diagnosis, the hint it points to, and the own answer.

Everything on a page is written by us or escaped, and the page forbids scripts, links to elsewhere and forms: nothing of
what a student has handed in runs where it is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import nbformat

from helpers.engine.files import write_whole
from helpers.instructor.collect.course import lessons_of
from helpers.instructor.report.gradebook import Result, report_of

FOLDER = "feedback"

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="viewport" content="width=device-width">
<title>Feedback for {student}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222;
        --jp-border-color1: #999 }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #ccc }}
h3 {{ margin: 1.8rem 0 .4rem }}
pre {{ background: #f6f6f6; padding: .7rem; overflow-x: auto; font-size: 14px }}
table {{ border-collapse: collapse }}
td, th {{ padding: .15rem .8rem .15rem 0; vertical-align: top; text-align: left }}
.hint {{ border-left: 4px solid #56B4E9; padding-left: 8px }}
summary {{ cursor: pointer; color: #0072B2 }}
</style>
</head>
<body>
<h1>Feedback for {student}</h1>
<table><thead><tr><th>lesson</th><th>points</th></tr></thead><tbody>{overview}</tbody></table>
{lessons}
</body>
</html>
"""


def write(course: Path, results: Iterable[Result]) -> list[Path]:
    """Writes feedback/STUDENT.html for every student among the results, and returns the paths."""
    released = lessons_of(course)
    of_student: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.student, result.lesson)):
        if result.lesson in released:
            of_student.setdefault(result.student, []).append(result)
    paths = []
    for student, own in of_student.items():
        path = course / FOLDER / f"{student}.html"
        write_whole(path, page(student, own, released).encode("utf-8", errors="replace"))
        paths.append(path)
    return paths


def page(student: str, results: Iterable[Result], released: Mapping[str, Path]) -> str:
    """The page of one student."""
    results = list(results)
    rows = "".join(
        f"<tr><td><a href='#{name}'>{name}</a></td><td>{result.points:g} of {result.max_points:g}</td></tr>"
        for result in results
        for name in [escape(result.lesson)]
    )
    lessons = "\n".join(_lesson(result, released[result.lesson]) for result in results)
    return _PAGE.format(student=escape(student), overview=rows, lessons=lessons)


def _lesson(result: Result, released: Path) -> str:
    parts = [f"<h2 id='{escape(result.lesson)}'>{escape(result.lesson)}</h2>"]
    unread = bool(result.data["problem"])
    if unread:
        parts.append(
            f"<p>Your notebook could not be graded: {escape(result.data['problem'])}. Please hand it in again.</p>"
        )
    lesson = _read(released)
    for exercise in result.data["exercises"]:
        parts.append(_exercise(exercise, lesson, result.data["answers"], noted=not unread))
    return "\n".join(parts)


def _exercise(exercise: dict[str, Any], lesson: _Lesson, answers: Mapping[str, str], noted: bool) -> str:
    title = lesson.titles.get(exercise["grade_id"], exercise["check"])
    parts = [f"<h3>{escape(title)}: {exercise['points']:g} of {exercise['max_points']:g} points</h3>"]
    parts.append(report_of(exercise)._repr_html_())
    if noted and exercise["note"]:
        parts.append(f"<p>{escape(exercise['note'])}.</p>")
    parts += [f"<p>A cell stopped with <code>{escape(error)}</code></p>" for error in exercise["failed"][:3]]
    if isinstance(exercise.get("speed"), float):
        parts.append(f"<p>On a GPU it reaches {exercise['speed']:.2f} of the speed of a copy.</p>")
    if exercise["diagnosis"] and not exercise["passed"]:
        hints = lesson.hints.get(exercise["grade_id"], [])
        number = exercise["diagnosis"]["hint"]
        if 0 < number <= len(hints):
            symptom, text = hints[number - 1]
            parts.append(f"<p class='hint'><b>Hint {number}: {escape(symptom)}.</b> {escape(text)}</p>")
    own = [answers[name] for name in lesson.solutions.get(exercise["grade_id"], ()) if name in answers]
    if own and exercise["attempted"]:
        shown = escape("\n\n".join(own)[:20_000])
        parts.append(f"<details><summary>Your answer</summary><pre>{shown}</pre></details>")
    return "\n".join(parts)


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
