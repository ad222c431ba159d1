"""The page of one student: whose results, which hint, which answer, and nothing on it that would run."""

import re

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers.instructor.report import feedback
from helpers.instructor.report.gradebook import Result

LESSON = "02_lesson"
HINTS = "\n".join(
    f"<details><summary>Hint {number} · {symptom}.</summary>\n\nTry <b>{symptom}</b>.</details>"
    for number, symptom in enumerate(("zero", "NaN", "slow"), start=1)
)


@pytest.fixture
def course(tmp_path):
    """A course directory with one lesson of two exercises, of which the first has hints."""
    cells = []
    for number, name in ((1, "first"), (2, "second")):
        cells.append(new_markdown_cell(f"## Exercise 2.{number} · {name}"))
        cells.append(new_code_cell("pass", metadata={"nbgrader": {"grade_id": name, "solution": True}}))
        marks = {"grade_id": f"{name}-check", "grade": True}
        cells.append(new_code_cell(f"check.{name}(answer)", metadata={"nbgrader": marks}))
        cells += [new_markdown_cell(HINTS)] if number == 1 else []
    path = tmp_path / "release" / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), path)
    (tmp_path / "gradebook.db").touch()
    return tmp_path


def exercise(name="first", points=0.0, of=4.0, hint=0, **changed):
    named = {"id": "m", "name": "Named.", "question": "Why?", "hint": hint} if hint else None
    return {
        "grade_id": f"{name}-check", "check": name, "points": points, "max_points": of, "attempted": True,
        "passed": points == of, "findings": [["a case", points == of, "seen"]], "diagnosis": named, "printed": "",
        "left_out": [], "note": "", "speed": None, "error": "", "answer": "", **changed,
    }  # fmt: skip


def result(*exercises, student="ada", lesson=LESSON, problem=""):
    answers = {"first": "y = 'first answer'", "second": "y = 'second answer'"}
    return Result(student, lesson, {"exercises": list(exercises), "answers": answers, "problem": problem})


def page(course, *exercises, student="ada", **options):
    (path,) = feedback.write(course, [result(*exercises, student=student, **options)])
    return path.read_text(encoding="utf-8")


def test_a_page_has_points_and_most_points_of_lesson_and_exercise(course):
    shown = page(course, exercise(points=1.5), exercise("second", 2.0, 2.0))
    assert "<td>3.5 of 6</td>" in shown
    assert "Exercise 2.1, first: 1.5 of 4 points" in shown and "Exercise 2.2, second: 2 of 2 points" in shown


def test_everybody_has_a_page_of_their_own_results(course):
    results = [result(exercise(points=points), student=name) for name, points in (("ada", 1), ("alan", 2))]
    ada, alan = (path.read_text() for path in feedback.write(course, results))
    assert "<td>1 of 4</td>" in ada and "<td>2 of 4</td>" not in ada and "<td>2 of 4</td>" in alan


def test_lessons_that_the_course_does_not_have_are_left_out(course):
    assert feedback.write(course, [result(exercise(), lesson="99_gone")]) == []


@pytest.mark.parametrize(("number", "symptom"), [(1, "zero"), (2, "NaN"), (3, "slow")])
def test_the_hint_is_the_one_that_the_diagnosis_points_to(course, number, symptom):
    shown = page(course, exercise(hint=number))
    assert re.findall(r"<b>(Hint \d: \w+)\.</b> (.*?)</p>", shown) == [(f"Hint {number}: {symptom}", f"Try {symptom}.")]


def test_a_hint_that_the_lesson_does_not_have_is_left_out(course):
    assert "class='hint'" not in page(course, exercise(hint=4))


def test_an_exercise_without_hints_has_not_those_of_the_one_before(course):
    assert "class='hint'" not in page(course, exercise("second", hint=1))


def test_a_right_answer_is_given_no_hint(course):
    assert "class='hint'" not in page(course, exercise(points=4.0, hint=1))


def test_the_answer_shown_is_that_of_the_exercise(course):
    (shown,) = re.findall("<pre>(.*?)</pre>", page(course, exercise("second")))
    assert shown == "y = &#x27;second answer&#x27;"


def test_an_answer_that_was_not_attempted_is_not_shown(course):
    assert "Your answer" not in page(course, exercise(attempted=False))


def test_a_notebook_that_cannot_be_read_is_said_once(course):
    cut = "it is cut off"
    shown = page(course, exercise(note=cut), exercise("second", note=cut), problem=cut)
    assert shown.count(cut) == 1 and "Please hand it in again." in shown


def test_a_note_is_shown(course):
    assert "<p>look at this.</p>" in page(course, exercise(note="look at this"))


@pytest.mark.parametrize(("speed", "shown"), [(0.5, True), ("not timed: no GPU", False), (None, False)])
def test_a_speed_is_shown_where_one_was_measured(course, speed, shown):
    assert ("of the speed of a copy" in page(course, exercise(speed=speed))) is shown


MARKUP = "<script>alert(1)</script>"


@pytest.mark.parametrize(
    "given",
    [
        {"note": MARKUP}, {"left_out": [{"number": 1, "line": MARKUP, "said": MARKUP}]}, {"printed": MARKUP}, {"findings": [[MARKUP, False, MARKUP]]},
        {"diagnosis": {"id": "m", "name": MARKUP, "question": MARKUP, "hint": 0}},
    ],
    ids=["note", "error", "printed", "finding", "diagnosis"],
)  # fmt: skip
def test_markup_of_an_exercise_is_text(course, given):
    shown = page(course, exercise(**given))
    assert "<script" not in shown and "&lt;script&gt;" in shown


def test_markup_of_a_problem_an_answer_or_a_name_is_text(course):
    one = result(exercise(), problem=MARKUP)
    one.data["answers"]["first"] = MARKUP
    shown = feedback.page(MARKUP, [one], {LESSON: course / "release" / LESSON / f"{LESSON}.ipynb"})
    assert "<script" not in shown and shown.count("&lt;script&gt;") == 4


def test_a_page_may_load_and_run_nothing(course):
    assert "default-src 'none'" in page(course, exercise())


def test_letters_that_utf_8_does_not_have_do_not_stop_the_class(course):
    assert "a lone ?" in page(course, exercise(note="a lone \ud800"))
