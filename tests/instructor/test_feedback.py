"""The page of one student: whose results, which hint, which answer, and nothing on it that would run."""

import re
import shutil
import zipfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from helpers import check
from helpers.instructor import REPOSITORY
from helpers.instructor.collect.ledger import Collected, Known, write_ledger
from helpers.instructor.collect.person import Person
from helpers.instructor.report import feedback, gradebook
from helpers.instructor.report.gradebook import ByHand, Result

LESSON = "02_lesson"
HINTS = "\n".join(
    f"<details><summary>Hint {number} · {symptom}.</summary>\n\nTry <b>{symptom}</b>.</details>"
    for number, symptom in enumerate(("zero", "NaN", "slow"), start=1)
)

MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def course(tmp_path):
    """A course directory with one lesson of two exercises, of which the first has hints."""
    cells = []
    for number, name in ((1, "first"), (2, "second")):
        cells.append(new_markdown_cell(f"## Exercise 2.{number} · {name}"))
        cells.append(new_code_cell("pass", metadata={"nbgrader": {"grade_id": name, "solution": True}}))
        marks = {"grade_id": f"{name}-check", "grade": True, "points": 4}
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
    return Result(student, lesson, {"exercises": list(exercises), "answers": {}, "problem": problem})


def page(course, *exercises, student="ada", by_hand=gradebook.NOT_BY_HAND, **options):
    one = result(*exercises, student=student, **options)
    (path,) = feedback.write(course, [one], {(student, LESSON): by_hand})
    return path.read_text(encoding="utf-8")


def test_a_page_has_points_and_most_points_of_lesson_and_exercise(course):
    shown = page(course, exercise(points=1.5), exercise("second", 2.0, 2.0))
    assert "<td>3.5 of 6</td>" in shown
    assert "Exercise 2.1, first: 1.5 of 4 points" in shown and "Exercise 2.2, second: 2 of 2 points" in shown


def test_everybody_has_a_page_of_their_own_results(course):
    results = [result(exercise(points=points), student=name) for name, points in (("ada", 1), ("alan", 2))]
    ada, alan = (path.read_text() for path in feedback.write(course, results, {}))
    assert "<td>1 of 4</td>" in ada and "<td>2 of 4</td>" not in ada and "<td>2 of 4</td>" in alan


def test_a_page_has_the_name_that_the_roster_has(course):
    (path,) = feedback.write(course, [result(exercise())], {}, [Person(folder="ada", name="Ada Lovelace")])
    assert path.name == "ada.html" and "<h1>Feedback for Ada Lovelace</h1>" in path.read_text()


def test_a_lesson_that_others_have_handed_in_is_missing_and_counts_in_the_total(course):
    other = course / "release" / "03_other" / "03_other.ipynb"
    shutil.copytree(course / "release" / LESSON, other.parent)
    other.with_name(f"{LESSON}.ipynb").rename(other)
    results = [result(exercise(points=3.0)), result(exercise(), student="bo", lesson="03_other")]
    (path,) = feedback.write(course, results, {}, only={"ada"})
    rows = re.findall(r"<tr>.*?</tr>", path.read_text().split("</table>")[0], re.DOTALL)
    assert "03_other</th><td>0 of 8</td><td>not handed in<" in rows[-2] and "<td>3 of 12</td>" in rows[-1]


@pytest.mark.parametrize(
    ("changed", "state"),
    [({"points": 4.0}, "right"), ({}, "2.1, first: not right"),
     ({"attempted": False}, "2.1, first: not attempted"), ({"points": 2.0}, "2.1, first: right in part")],
)  # fmt: skip
def test_a_lesson_has_a_state_in_words(changed, state, course):
    assert f"<td>{state}</td>" in page(course, exercise(**changed))


def test_of_a_lesson_whose_points_a_person_has_entered_or_that_cannot_be_read_the_state_says_so(course):
    assert "first: points entered by hand</td>" in page(course, exercise(), by_hand=ByHand({"first-check": 3.0}, {}))
    assert "<td>could not be read</td>" in page(course, exercise(), problem="it is cut off")


def test_lessons_that_the_course_does_not_have_are_left_out(course):
    assert feedback.write(course, [result(exercise(), lesson="99_gone")], {}) == []


@pytest.mark.parametrize(("number", "symptom"), [(1, "zero"), (2, "NaN"), (3, "slow")])
def test_the_hint_is_the_one_that_the_diagnosis_points_to(course, number, symptom):
    shown = page(course, exercise(hint=number))
    assert re.findall(r"<b>(Hint \d: \w+)\.</b> (.*?)</p>", shown) == [(f"Hint {number}: {symptom}", f"Try {symptom}.")]


SPEAKS_OF = {
    "no_kernel": "launch",
    "only_16_bit": "32|16-bit",
    "not_float32": "32|16-bit",
    "small_grid": "program",
}
"""By mistake that a kernel of any lesson can have: what a hint that helps speaks of."""


@pytest.mark.parametrize("lesson", [path.stem for path in sorted((REPOSITORY / "lessons").glob("*.ipynb"))])
def test_the_hint_for_a_mistake_of_any_kernel_speaks_of_it(lesson):
    read = feedback._read(REPOSITORY / "lessons" / f"{lesson}.ipynb")
    for cell, hints in read.hints.items():
        known = check.EXERCISES[read.titles[cell].rpartition(", ")[2]].known or ()
        for mistake in [one for one in known if one.id in SPEAKS_OF and one.hint]:
            assert re.search(SPEAKS_OF[mistake.id], " ".join(hints[mistake.hint - 1])), (cell, mistake.id)


def test_a_hint_that_the_lesson_does_not_have_is_left_out(course):
    assert 'class="hint"' not in page(course, exercise(hint=4))


def test_an_exercise_without_hints_has_not_those_of_the_one_before(course):
    assert 'class="hint"' not in page(course, exercise("second", hint=1))


def test_a_right_answer_is_given_no_hint(course):
    assert 'class="hint"' not in page(course, exercise(points=4.0, hint=1))


def test_an_answer_is_shown_attempted_or_not(course):
    shown = page(course, exercise(answer="y = 1", attempted=False), exercise("second", answer="y < 2"))
    assert re.findall("<pre>(.*?)</pre>", shown) == ["y = 1", "y &lt; 2"]


def test_where_the_learner_has_written_nothing_no_answer_is_shown(course):
    assert "Your answer" not in page(course, exercise(attempted=False))


def test_a_notebook_that_cannot_be_read_is_said_once(course):
    cut = "it is cut off"
    shown = page(course, exercise(note=cut), exercise("second", note=cut), problem=cut)
    assert shown.count(cut) == 1 and "Please hand it in again." in shown and "not attempted" not in shown


def test_a_note_is_shown(course):
    assert "<p>look at this.</p>" in page(course, exercise(note="look at this"))


@pytest.mark.parametrize(("speed", "shown"), [(0.5, True), ("not timed: no GPU", False), (None, False)])
def test_a_speed_is_shown_where_one_was_measured(course, speed, shown):
    assert ("of the speed of a copy" in page(course, exercise(speed=speed))) is shown


@pytest.mark.parametrize(
    "given",
    [
        {"note": MARKUP}, {"left_out": [{"number": 1, "line": MARKUP, "said": MARKUP}]}, {"printed": MARKUP},
        {"findings": [[MARKUP, False, MARKUP]]}, {"answer": MARKUP},
        {"diagnosis": {"id": "m", "name": MARKUP, "question": MARKUP, "hint": 0}},
    ],
    ids=["note", "error", "printed", "finding", "answer", "diagnosis"],
)  # fmt: skip
def test_markup_of_an_exercise_is_text(course, given):
    shown = page(course, exercise(**given))
    assert "<script" not in shown and "&lt;script&gt;" in shown


def test_markup_of_a_problem_an_answer_or_a_name_is_text(course):
    one = result(exercise(answer=MARKUP), problem=MARKUP)
    shown = feedback.page(MARKUP, [one], {LESSON: course / "release" / LESSON / f"{LESSON}.ipynb"}, {}).decode()
    assert "<script" not in shown and shown.count("&lt;script&gt;") == 4


# What a person has entered


def test_points_entered_by_hand_are_those_of_exercise_and_lesson(course):
    shown = page(course, exercise(points=1.0), exercise("second", 2.0, 2.0), by_hand=ByHand({"first-check": 3.0}, {}))
    assert "<td>5 of 6</td>" in shown and "Exercise 2.1, first: 3 of 4 points" in shown
    assert shown.count("These points were entered by hand. The check gives 1 of 4.") == 1


def test_points_of_a_rule_say_so_and_what_the_check_gives(course):
    shown = page(course, exercise(points=2.5, checked=0.0))
    assert "<td>2.5 of 4</td>" in shown and "given by your instructor&#39;s rule. The check gives 0 of 4." in shown


@pytest.mark.parametrize("cell", ["first", "first-check"], ids=["the answer", "the check"])
def test_a_comment_is_shown_at_its_exercise_as_text(course, cell):
    shown = page(course, exercise(), exercise("second"), by_hand=ByHand({}, {cell: f"Look again. {MARKUP}"}))
    first, second = shown.split("Exercise 2.2")
    assert "Look again. &lt;script&gt;" in first and "Look again." not in second


def test_points_taken_off_for_lateness_are_said_and_counted(course):
    shown = page(course, exercise(points=4.0), by_hand=ByHand({}, {}, penalty=1.0))
    assert "<td>3 of 4</td>" in shown and "1 points less for handing in late." in shown


def test_a_penalty_takes_no_more_than_there_is(course):
    assert "<td>0 of 4</td>" in page(course, exercise(points=1.0), by_hand=ByHand({}, {}, penalty=2.0))


# Pages that go back


@pytest.mark.parametrize(
    ("system", "path", "name"),
    [("moodle", "Ada Lovelace_4711_assignsubmission_file/x.ipynb", "Ada Lovelace_4711_assignsubmission_file"),
     ("moodle", "all/Participant_4711_assignsubmission_file_x.ipynb", "Participant_4711_assignsubmission_file"),
     ("canvas", "submissions/lovelaceada_LATE_12345_67890_02_x.ipynb", "lovelaceada_LATE_12345_67890"),
     ("canvas", "anon_a1B2c_67890_02_x.ipynb", "anon_a1B2c_67890")],
)  # fmt: skip
def test_a_zip_for_a_system_has_a_page_for_each_student_whom_it_knows(system, path, name, course):
    write_ledger(course, {"ada": Known(Person(), system, {LESSON: Collected(path)})})
    results = [result(exercise(points=4.0)), result(exercise(), student="bo")]
    (made,), (left,) = feedback.give_back(course, results, {}, system)
    assert made.name == f"{LESSON}-{system}.zip"
    assert left.startswith(f"{LESSON}: no page for") and left.endswith(": bo.")
    with zipfile.ZipFile(made) as archive:
        assert archive.namelist() == [f"{name}_{LESSON}.html"]
        assert b"<td>4 of 4</td>" in archive.read(archive.namelist()[0])


# What could not be run


LEFT_OUT = [{"number": 3, "line": "!pip list", "said": "OSError: no pip", "error": "OSError"}]


@pytest.mark.parametrize(("points", "opened"), [(4.0, "<details>"), (0.0, "<details open>")], ids=["right", "wrong"])
def test_what_could_not_be_run_has_its_line_and_its_reason(course, points, opened):
    shown = page(course, exercise(points=points, left_out=LEFT_OUT))
    assert "<li>line 3 of a cell, <code>!pip list</code>: OSError: no pip</li>" in shown
    assert f"{opened}\n<summary>What of your notebook could not be run here" in shown


def test_where_everything_was_run_nothing_is_said_of_it(course):
    assert "could not be run" not in page(course, exercise())


def test_a_page_may_load_and_run_nothing(course):
    assert "default-src 'none'" in page(course, exercise())


def test_letters_that_utf_8_does_not_have_do_not_stop_the_class(course):
    assert "a lone ?" in page(course, exercise(note="a lone \ud800"))
