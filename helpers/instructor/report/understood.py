"""What a class has understood: exercises in numbers, the commonest mistakes, and answers that are strangely alike."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import nbformat
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.check.exercises import EXERCISES
from helpers.draw import Picture
from helpers.engine.files import write_whole
from helpers.instructor.report.gradebook import Result
from helpers.instructor.report.pages import page_of
from helpers.instructor.sandbox import parser
from helpers.table import Table

_MOST_NAMED = 3
_LEAST_RARE = 3
"""So many unusual statements have to be in common."""
_SHARE = 0.6
"""The share of unusual statements, of the answer with fewer, that must be in common."""
_LONGEST_WORDS = 90
"""Characters of the words on a mistake."""
_ERROR = "error"
"""The diagnosis, by its id, that only says that an answer stops with an error."""
_LONGEST = 20_000
"""Characters of an answer that are compared."""


@dataclass(frozen=True)
class Understood:
    """How a class did in one exercise."""

    name: str
    handed_in: int
    attempted: int
    passed: int
    mistakes: tuple[tuple[str, int], ...]
    """Names of mistakes and how many made them, the commonest first."""

    @property
    def number(self) -> str:
        """As in "5.3"."""
        return EXERCISES[self.name].number if self.name in EXERCISES else ""


@dataclass(frozen=True)
class Alike:
    """A group of students, and how many of their unusual statements in a lesson they have in common."""

    students: tuple[str, ...]
    lesson: str
    common: int
    of: int


def by_exercise(results: Iterable[Result]) -> list[Understood]:
    """Every exercise that was handed in, in the order of the course."""
    found: dict[str, list[dict]] = defaultdict(list)
    for result in sorted(results, key=lambda result: result.lesson):
        for exercise in result.data["exercises"]:
            found[exercise["check"]].append(exercise)
    return [_exercise(name, answers) for name, answers in found.items()]


def _exercise(name: str, answers: Sequence[dict]) -> Understood:
    wrong = [answer for answer in answers if answer["attempted"] and not answer["passed"]]
    diagnoses = [a["diagnosis"] for a in wrong if a["diagnosis"] and not _stopped(a)]
    said = {one["id"]: one["name"].rstrip(".") for one in reversed(diagnoses)}
    named = Counter(said[one["id"]] for one in diagnoses)
    for error, stopped in _by_error(wrong).items():
        named[f"{error}, as in: {stopped[0]}"] = len(stopped)
    if unnamed := [answer for answer in wrong if not answer["diagnosis"] and not _stopped(answer)]:
        named[f"no known mistake, as in: {_first_wrong(unnamed[0])}"] = len(unnamed)
    attempted = sum(answer["attempted"] for answer in answers)
    passed = sum(answer["passed"] for answer in answers)
    return Understood(name, len(answers), attempted, passed, tuple(named.most_common()))


def _stopped(answer: dict) -> bool:
    """Whether all that is known of a wrong answer is the error that it stops with."""
    known = answer["diagnosis"] and answer["diagnosis"]["id"] != _ERROR
    return bool(answer.get("error")) and not known


def _by_error(wrong: Sequence[dict]) -> dict[str, list[str]]:
    """Of the answers that stop with an error, by its type: the finding on each."""
    found: dict[str, list[str]] = defaultdict(list)
    for answer in filter(_stopped, wrong):
        seen = next((seen for _, ok, seen in answer["findings"] if not ok), "")
        found[answer["error"]].append(_cut(seen.removeprefix(f"{answer['error']}: ")))
    return found


def _first_wrong(answer: dict) -> str:
    """The first finding on a wrong answer, as that it stands under another name."""
    case, seen = next(((case, seen) for case, ok, seen in answer["findings"] if not ok), ("", answer.get("note", "")))
    return _cut(": ".join(filter(None, [case, seen])) or "nothing was seen")


def _cut(words: str, most: int = _LONGEST_WORDS) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def overview(found: Sequence[Understood], groups: Sequence[Alike] = ()) -> Table:
    """A line for each exercise, and below, groups of answers to look at."""
    rows = [
        [
            f"{one.number} {one.name}",
            str(one.handed_in),
            str(one.attempted),
            str(one.passed),
            "; ".join([f"{count} × {name}" for name, count in one.mistakes[:_MOST_NAMED]] + _others(one)) or "–",
        ]
        for one in found
    ]
    notes = [
        f"{one.lesson}: {', '.join(one.students[:-1])} and {one.students[-1]} share {one.common} of {one.of} "
        f"unusual statements."
        for one in groups
    ]
    return Table(["exercise", "handed in", "attempted", "passed", "commonest mistakes"], rows, notes, "lrrrl")


def _others(one: Understood) -> list[str]:
    """How many failures have none of the names that the table gives."""
    others = sum(count for _, count in one.mistakes[_MOST_NAMED:])
    return [f"{others} × other mistakes"] if others else []


def chart(found: Sequence[Understood]) -> Picture:
    """A bar for each exercise: passed, attempted, not attempted; next to it the commonest mistake."""
    drawn = Figure(figsize=(10, 1.1 + 0.42 * len(found)), layout="constrained")
    axes = drawn.subplots()
    places = range(len(found))[::-1]
    parts = (
        ("passed", [one.passed for one in found], "#0072B2"),
        ("attempted, not right", [one.attempted - one.passed for one in found], "#E69F00"),
        ("not attempted", [one.handed_in - one.attempted for one in found], "#CCCCCC"),
    )
    left = [0] * len(found)
    for label, counts, colour in parts:
        axes.barh(places, counts, left=left, color=colour, label=label, height=0.7)
        left = [a + b for a, b in zip(left, counts, strict=True)]
    for place, one, end in zip(places, found, left, strict=True):
        said = f"{one.mistakes[0][1]} × {one.mistakes[0][0]}" if one.mistakes else ""
        axes.annotate(
            _cut(said, 60), (end, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9,
            parse_math=False,
        )  # fmt: skip
    axes.set_yticks(list(places), [f"{one.number} {one.name}" for one in found])
    most = max([1, *left])
    axes.set_xlim(0, 1.9 * most)
    axes.set_xticks([tick for tick in MaxNLocator(integer=True).tick_values(0, most) if tick <= most])
    axes.set_xlabel("students; at each bar the commonest mistake", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    drawn.legend(loc="outside upper center", ncols=3, frameon=False)
    counts = (f"{one.number} {one.name}: {one.passed} of {one.handed_in} passed" for one in found)
    return Picture(drawn, f"Exercises of a class. {'; '.join(counts)}." if found else "No exercises.")


_BODY = """
{{ table }}
<p>{{ figure }}</p>
"""


def write_page(course: Path, found: Sequence[Understood], groups: Sequence[Alike]) -> Path:
    """Writes the table and the figure to report.html, and the figure to report.png; the path of the page."""
    figure, path = chart(found), course / "report.html"
    write_whole(path.with_suffix(".png"), figure.png())
    shown = {"table": Markup(overview(found, groups)._repr_html_()), "figure": Markup(figure._repr_html_())}
    write_whole(path, page_of(_BODY, "What the class has understood", **shown))
    return path


def given(course: Path) -> dict[str, set[str]]:
    """The statements of a course's own cells, handed out or solved, by lesson: what everybody may have."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in ("release", "source"):
        for path in (course / folder).glob("*/*.ipynb"):
            for cell in nbformat.read(path, as_version=4).cells:
                if cell.cell_type == "code":
                    found[path.stem] |= statements(cell.source)
    return found


def alike(results: Iterable[Result], given: Mapping[str, set[str]]) -> list[Alike]:
    """Groups of any size that share statements which hardly anybody else has, the strangest first; also whoever
    have the same code to the letter.

    Names are left out of the comparison, and so are statements that the course has or many have, for an exercise of
    five lines has few right answers.
    """
    by_lesson: dict[str, dict[str, set[str]]] = defaultdict(dict)
    same: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for result in results:
        texts = [*result.data["answers"].values(), *(source for _, source in result.data.get("own", ()))]
        found = set().union(*map(statements, texts))
        by_lesson[result.lesson][result.student] = found - given.get(result.lesson, set())
        same[result.lesson, *texts].append(result.student)
    copies = [
        Alike(tuple(sorted(own)), lesson, size, size)
        for (lesson, *_), own in same.items()
        if len(own) > 1 and (size := len(by_lesson[lesson][own[0]])) >= _LEAST_RARE
    ]
    found = [*copies, *(one for lesson, students in by_lesson.items() for one in _alike(lesson, students))]
    kept: list[Alike] = []
    for one in sorted(found, key=lambda one: (-one.common, -len(one.students), one.lesson, one.students)):
        if not any(one.lesson == other.lesson and {*one.students} <= {*other.students} for other in kept):
            kept.append(one)
    return kept


def _alike(lesson: str, students: dict[str, set[str]]) -> Iterator[Alike]:
    """The groups of a lesson: whoever hold the same statement, and pairs of them if it is rare in a large class.

    A statement counts for a group if no more students have it than the group has members, or 1 in 50.
    """
    holders: dict[str, set[str]] = defaultdict(set)
    for student, found in students.items():
        for one in found:
            holders[one].add(student)
    rare_if = len(students) // 50
    groups = {tuple(sorted(own)) for own in holders.values()}
    groups |= {pair for own in groups if len(own) <= rare_if for pair in combinations(own, 2)}
    for group in groups:
        most = max(len(group), rare_if)
        unusual = [{one for one in students[student] if len(holders[one]) <= most} for student in group]
        count, of = len(set.intersection(*unusual)), min(map(len, unusual))
        if len(group) > 1 and count >= _LEAST_RARE and count >= _SHARE * of:
            yield Alike(group, lesson, count, of)


def statements(text: str) -> set[str]:
    """The statements of an answer, with every name that it binds itself left out, and its comments."""
    text = text[:_LONGEST]
    try:
        with parser.reading():
            found = {_anonymous(node) for node in ast.walk(parser.tree_of(text)) if isinstance(node, ast.stmt)}
    except parser.NotPython:
        found = {line.strip() for line in text.splitlines() if line.strip()}
    return found | _comments(text)


def _anonymous(statement: ast.stmt) -> str:
    """A statement as text without the names of variables; of one that holds others, only its head."""
    within = {"body", "orelse", "finalbody", "handlers", "cases"}
    kept = {name: [] if name in within else value for name, value in ast.iter_fields(statement)}
    copy = deepcopy(type(statement)(**{name: [ast.Pass()] if name == "body" else v for name, v in kept.items()}))
    ast.copy_location(copy, statement)
    for node in ast.walk(copy):
        if isinstance(node, ast.Name):
            node.id = "_"
        elif isinstance(node, ast.arg):
            node.arg = "_"
    return ast.unparse(copy)


def _comments(text: str) -> set[str]:
    try:
        with parser.reading():
            tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except parser.NotPython:
        return set()
    return {token.string for token in tokens if token.type == tokenize.COMMENT}
