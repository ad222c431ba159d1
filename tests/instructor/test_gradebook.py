"""What enters the gradebook, what a person has entered there, and the pages that its formgrader shows."""

import os
import shutil
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.api import Gradebook

from helpers.instructor.collect.course import COURSE_ID
from helpers.instructor.collect.person import Person
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import export, gradebook, late
from helpers.instructor.report.gradebook import Result
from helpers.instructor.report.rule import RULE, rule_of

LESSON, CELLS = "02_lesson", {"first-check": 4, "second-check": 2}


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A course directory with one lesson of two graded cells."""
    directory = tmp_path_factory.mktemp("course")
    cells = []
    for name, points in CELLS.items():
        marks = {"grade": False, "solution": True, "grade_id": f"{name}-answer", "locked": False, "schema_version": 3}
        cells.append(new_code_cell("pass", metadata={"nbgrader": marks}))
        marks = {**marks, "grade": True, "solution": False, "grade_id": name, "points": points, "locked": True}
        cells.append(new_code_cell("check.first(answer)", metadata={"nbgrader": marks}))
    path = directory / "release" / LESSON / f"{LESSON}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", sysconfig.get_path("scripts"), prepend=os.pathsep)  # where nbgrader finds alembic
        with Gradebook(f"sqlite:///{directory / 'gradebook.db'}", COURSE_ID) as book:
            book.add_assignment(LESSON)
            book.add_notebook(LESSON, LESSON)
            for name, points in CELLS.items():
                book.add_grade_cell(name, LESSON, LESSON, max_score=points, cell_type="code")
                book.add_solution_cell(f"{name}-answer", LESSON, LESSON)
    return directory


@pytest.fixture
def course(original, tmp_path):
    """A copy of it, for one test."""
    return Path(shutil.copytree(original, tmp_path / "course"))


def result(first=4.0, second=0.0, note="", answer="y = x", student="ada"):
    exercises = [
        {
            "grade_id": name, "check": "single_tile", "points": points, "max_points": CELLS[name], "attempted": True,
            "passed": points == CELLS[name], "findings": [["a case", points == CELLS[name], "seen"]],
            "diagnosis": None, "printed": "", "left_out": [], "note": note, "speed": None, "error": "", "answer": "",
        }
        for name, points in {"first-check": first, "second-check": second}.items()
    ]  # fmt: skip
    return Result(student, LESSON, {"exercises": exercises, "answers": {"first-check-answer": answer}, "problem": ""})


def grades(course, student="ada"):
    """Score, points by hand and whether a person has to look, by cell."""
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        (notebook,) = book.find_submission(LESSON, student).notebooks
        return {one.name: (one.score, one.manual_score, one.needs_manual_grade) for one in notebook.grades}


def by_hand(course, cell, points):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.find_grade(cell, LESSON, LESSON, "ada").manual_score = points
        book.db.commit()


def page(course, student="ada"):
    return course / "autograded" / student / LESSON / f"{LESSON}.ipynb"


def test_points_enter_cell_by_cell(course):
    assert gradebook.enter(course, [result(4.0, 1.5)]) == (1, [])
    assert grades(course) == {"first-check": (4.0, None, False), "second-check": (1.5, None, False)}


def test_the_same_result_changes_nothing(course):
    gradebook.enter(course, [result()])
    assert gradebook.enter(course, [result()]) == (0, [])


def test_other_points_replace_the_earlier_ones(course):
    gradebook.enter(course, [result(4.0)])
    assert gradebook.enter(course, [result(0.0)]) == (1, [])
    assert grades(course)["first-check"] == (0.0, None, False)


def test_points_that_a_person_has_entered_stay_when_the_answer_is_graded_again(course):
    gradebook.enter(course, [result(0.0)])
    by_hand(course, "first-check", 3.0)
    gradebook.enter(course, [result(4.0)])
    assert grades(course)["first-check"][:2] == (3.0, 3.0)


def test_a_person_looks_again_at_points_by_hand_after_the_answer_has_changed(course):
    gradebook.enter(course, [result(0.0)])
    by_hand(course, "first-check", 3.0)
    gradebook.enter(course, [result(4.0, 2.0)])
    assert {name: look for name, (_, _, look) in grades(course).items()} == {"first-check": True, "second-check": False}


def test_a_note_asks_a_person_to_look(course):
    gradebook.enter(course, [result(note="the check itself failed")])
    assert all(look for _, _, look in grades(course).values())


@pytest.mark.parametrize("points", [-1, 4.5, float("nan"), float("inf"), None, "4"])
def test_points_that_the_exercise_does_not_have_enter_nothing(course, points):
    changed, refused = gradebook.enter(course, [result(points), result(student="grace")])
    assert changed == 1 and refused[0].startswith("ada, 02_lesson: not entered (NotebookError: ada, single_tile: ")
    assert not page(course).exists() and grades(course, "grace")["first-check"][0] == 4.0


@pytest.mark.parametrize(
    ("written", "entered"),
    [
        ("2026-11-22 10:00:00 UTC", "2026-11-22 10:00:00"),
        ("nonsense", None),
        ("", None),
        ("9" * 500, None),
    ],
    ids=["a time", "nonsense", "empty", "a long number"],
)
def test_the_time_of_handing_in_is_the_one_that_nbgrader_noted(course, written, entered):
    path = course / "submitted" / "ada" / LESSON / "timestamp.txt"
    path.parent.mkdir(parents=True)
    path.write_text(written)
    gradebook.enter(course, [result()])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        found = book.find_submission(LESSON, "ada").timestamp
    assert (found and str(found)) == entered


def test_a_page_holds_the_lesson_with_the_answers_and_the_reports(course):
    gradebook.enter(course, [result(answer="y = 2 * x")])
    link, first, check, second, _ = nbformat.read(page(course), as_version=4).cells
    assert link.source.endswith("(../../../lab/tree/submitted/ada/02_lesson/02_lesson.ipynb)")
    assert first.source == "y = 2 * x" and "is not in the notebook that was handed in" in second.source
    assert check.source == "check.first(answer)" and check.outputs[0].data["text/plain"] == "4"


def test_cells_of_the_student_s_own_stand_on_a_page_where_they_stood(course):
    one = result()
    one.data["own"] = [[0, "at the top"], [2, "below the check"], [2, "and another"], [9, "at the end"]]
    gradebook.enter(course, [one])
    cells = nbformat.read(page(course), as_version=4).cells
    own = "Written or changed by the student:"
    assert [cell.source for cell in cells][1:10] == [
        own, "at the top", "y = x", "check.first(answer)", own, "below the check", own, "and another",
        "# This cell is not in the notebook that was handed in.",
    ]  # fmt: skip
    assert cells[-1].source == "at the end"


def test_a_link_to_a_notebook_is_one_whatever_the_name(course):
    gradebook.enter(course, [result(student="å) [b] c")])
    cells = nbformat.read(course / "autograded" / "å) [b] c" / LESSON / f"{LESSON}.ipynb", as_version=4).cells
    assert "/%C3%A5%29%20%5Bb%5D%20c/" in cells[0].source


# What a person has entered


def entered(course, **changed):
    """What is read of a submission with these fields in its first graded cell."""
    gradebook.enter(course, [result(1.0, 2.0)])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        grade = book.find_grade("first-check", LESSON, LESSON, "ada")
        for name, value in changed.items():
            setattr(grade, name, value)
        book.db.commit()
    return gradebook.entered_by_hand(course).get(("ada", LESSON), gradebook.NOT_BY_HAND)


@pytest.mark.parametrize(
    ("changed", "points"),
    [({}, {}), ({"manual_score": 3.0}, {"first-check": 3.0}), ({"manual_score": 0.0}, {"first-check": 0.0}),
     ({"extra_credit": 1.0}, {"first-check": 2.0})],
    ids=["nothing", "points", "none", "extra credit"],
)  # fmt: skip
def test_points_that_a_person_has_entered_are_read(course, changed, points):
    assert entered(course, **changed).points == points


def test_a_comment_is_read_by_its_cell(course):
    gradebook.enter(course, [result()])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.find_comment("first-check-answer", LESSON, LESSON, "ada").manual_comment = "Well done."
        book.db.commit()
    assert gradebook.entered_by_hand(course)["ada", LESSON].comments == {"first-check-answer": "Well done."}


def test_a_penalty_for_lateness_is_read_with_its_lesson(course):
    gradebook.enter(course, [result()])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.find_submission(LESSON, "ada").notebooks[0].late_submission_penalty = 1.5
        book.db.commit()
    assert gradebook.entered_by_hand(course)["ada", LESSON].penalty == 1.5


def test_a_page_of_an_earlier_notebook_with_the_same_points_is_replaced(course):
    gradebook.enter(course, [result(answer="y = x")])
    kept = gradebook.kept(course, "ada", LESSON)
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    os.utime(kept, ns=(page(course).stat().st_mtime_ns + 1,) * 2)
    assert gradebook.enter(course, [result(answer="y = 3 * x")])[0] == 1
    assert nbformat.read(page(course), as_version=4).cells[1].source == "y = 3 * x"


def test_a_page_that_was_removed_is_written_again(course):
    gradebook.enter(course, [result()])
    page(course).unlink()
    assert gradebook.enter(course, [result()])[0] == 1 and page(course).exists()


def test_a_student_who_is_not_known_yet_is_added(course):
    gradebook.enter(course, [result(student="new")])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        assert [student.id for student in book.students] == ["new"]


def test_a_result_shows_its_report_again(course):
    (exercise, _) = result(1.0).data["exercises"]
    exercise["diagnosis"] = {"id": "m_start", "name": "m does not begin.", "question": "Where?", "hint": 2}
    report = gradebook.report_of(exercise)
    assert (report.exercise, report.points, report.max_points, report.passed) == ("single_tile", 1.0, 4, False)
    assert (report.diagnosis.id, report.diagnosis.hint, report.findings[0].seen) == ("m_start", 2, "seen")


# Points by rule


def ruled(course, rule, **changed):
    """What a rule with this expression makes of the first exercise of a result, which has 1 of 4 points."""
    (course / "private").mkdir(exist_ok=True)
    (course / RULE).write_text(f"def points(exercise):\n    return {rule}\n")
    one = result(1.0, 2.0)
    named = {"id": "load_unmasked", "name": "No mask.", "question": "Why?", "hint": 1}
    one.data["exercises"][0] |= {"passed": False, "diagnosis": named} | changed
    one.data["exercises"][0]["findings"] = [["a", True, ""], ["b", False, "seen"]]
    return rule_of(course)(one.data)["exercises"][0], one


BY_SHARE = "exercise['max_points'] * sum(ok for _, ok, _ in exercise['findings']) / len(exercise['findings'])"
BY_MISTAKE = "{'load_unmasked': 3}.get(exercise['diagnosis']['id'], 0)"


@pytest.mark.parametrize(
    ("rule", "changed", "points"),
    [(BY_SHARE, {}, 2.0), (BY_MISTAKE, {}, 3.0), (BY_SHARE, {"note": "look"}, 1.0), (BY_SHARE, {"points": 4.0}, 4.0),
     (BY_SHARE, {"attempted": False}, 1.0)],
    ids=["by share of cases", "by mistake", "to look at", "right", "not attempted"],
)  # fmt: skip
def test_a_rule_gives_points_for_attempts_that_are_not_right(rule, changed, points, course):
    assert ruled(course, rule, **changed)[0]["points"] == points


def test_points_by_rule_are_entered_and_the_check_s_come_back_without_it(course):
    one = ruled(course, BY_SHARE)[1]
    gradebook.enter(course, [one])
    assert grades(course)["first-check"][0] == 2.0
    (course / RULE).unlink()
    gradebook.enter(course, [one])
    assert grades(course)["first-check"][0] == 1.0


def test_a_rule_is_not_asked_twice(course):
    once = ruled(course, "exercise['points'] + 1")[0]
    assert once["points"] == 2.0 and rule_of(course)({"exercises": [once]})["exercises"] == [once]


@pytest.mark.parametrize(("rule", "said"), [("1 / 0", "ZeroDivisionError"), ("5", "5.0 of 4"), ("-1", "-1.0 of 4")])
def test_a_rule_that_gives_no_points_is_one_sentence(rule, said, course):
    with pytest.raises(NotebookError, match=rf"^private/points.py, single_tile: .*{said}"):
        ruled(course, rule)


# Late work

PLUGIN = """
from nbgrader.plugins import LateSubmissionPlugin

class Late(LateSubmissionPlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        days_of_grace, days = 1, total_seconds_late / 86_400
        return {formula}
"""
TENTH_A_DAY = "0.1 * score * max(0, days - days_of_grace)"


@pytest.fixture
def two_days_late(course):
    """A course in which ada has handed in two days after the formgrader's due date, and has 5 points."""
    folder = course / "submitted" / "ada" / LESSON
    folder.mkdir(parents=True)
    (folder / "timestamp.txt").write_text("2026-11-22 10:00:00 UTC")
    (course / "private").mkdir()
    gradebook.enter(course, [result(4.0, 1.0)])
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.update_or_create_assignment(LESSON, duedate="2026-11-20 10:00:00 UTC")
    return course


def lost(course, formula=TENTH_A_DAY, extension=""):
    """What is said of late work, the points that count, and those that are lost."""
    (course / late.FORMULA).write_text(PLUGIN.replace("{formula}", formula))
    said = late.count_late(course, [Person(folder="ada", extension=extension)])
    entered = gradebook.entered_by_hand(course).get(("ada", LESSON), gradebook.NOT_BY_HAND)
    return said, export.grades(course).points["ada"][LESSON], entered.penalty


def test_late_work_loses_what_the_formula_says_in_page_and_export(two_days_late):
    assert lost(two_days_late) == ([f"ada, {LESSON}: 48.0 h late, 0.5 points less."], 4.5, 0.5)
    assert export.grades(two_days_late).late["ada"] == [f"{LESSON} (48.0 h, 0.5 points less)"]


@pytest.mark.parametrize(
    ("extension", "points"), [("1", 5.0), ("02:2", 5.0), ("2:2", 5.0), ("03:2", 4.5), ("3:2 02:0.5", 4.75)]
)
def test_days_that_the_roster_gives_are_not_late(extension, points, two_days_late):
    assert lost(two_days_late, extension=extension)[1] == points


def test_an_extension_of_no_days_takes_one_back(two_days_late):
    assert lost(two_days_late, extension="9")[1] == 5.0 and lost(two_days_late)[1] == 5.0
    assert lost(two_days_late, extension="0")[1] == 4.5


@pytest.mark.parametrize(("formula", "points"), [("None", 5.0), ("-1", 5.0), ("99", 0.0), ("score", 0.0)])
def test_a_formula_takes_nothing_or_all_at_most(formula, points, two_days_late):
    assert lost(two_days_late, formula)[1] == points


@pytest.mark.parametrize(("formula", "said"), [("1 / 0", "ZeroDivisionError"), ("1e999", "takes inf points off")])
def test_a_formula_that_fails_is_one_sentence(formula, said, two_days_late):
    with pytest.raises(NotebookError, match=rf"^private/late.py.*{said}"):
        lost(two_days_late, formula)


def test_without_a_formula_a_penalty_that_was_entered_stands(two_days_late):
    with Gradebook(f"sqlite:///{two_days_late / 'gradebook.db'}", COURSE_ID) as book:
        book.find_submission(LESSON, "ada").notebooks[0].late_submission_penalty = 1.5
        book.db.commit()
    assert late.count_late(two_days_late) == [] and export.grades(two_days_late).points["ada"][LESSON] == 3.5


def test_a_file_without_a_formula_is_named(two_days_late):
    (two_days_late / late.FORMULA).write_text("from nbgrader.plugins import LateSubmissionPlugin")
    with pytest.raises(NotebookError, match="needs a class"):
        late.count_late(two_days_late)


def test_without_a_formula_late_work_loses_nothing(two_days_late):
    assert late.count_late(two_days_late) == [] and export.grades(two_days_late).points["ada"][LESSON] == 5.0


# What is exported


def test_points_of_all_exercises_are_exported_and_those_that_a_person_has_entered(course):
    gradebook.enter(course, [result(1.0, 2.0), result(4.0, 2.0, student="grace")])
    by_hand(course, "first-check", 3.0)
    found = export.grades(course)
    assert (found.points, found.most) == ({"ada": {LESSON: 5.0}, "grace": {LESSON: 6.0}}, {LESSON: 6.0})


def test_a_student_who_has_handed_in_nothing_is_exported_with_their_name(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.add_student("ada", first_name="Ada", last_name="Lovelace")
        book.add_student("nameless")
    found = export.grades(course)
    assert found.points == {"ada": {}, "nameless": {}}
    assert {student: one.name for student, one in found.people.items()} == {"ada": "Ada Lovelace", "nameless": ""}


def test_a_lesson_has_the_points_of_all_its_exercises():
    assert (result(1.0, 2.0).points, result().max_points) == (3.0, 6)


def test_a_result_has_a_file_for_each_student_and_lesson(course):
    assert len({gradebook.kept(course, student, lesson) for student in "ab" for lesson in "cd"}) == 4


def test_what_an_answer_printed_is_shown_again():
    (exercise, _) = result().data["exercises"]
    assert gradebook.report_of({**exercise, "printed": "hello"}).printed == "hello"


def test_a_lesson_that_the_gradebook_lacks_is_said_with_what_to_do(course):
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", COURSE_ID) as book:
        book.remove_assignment(LESSON)
    changed, (refused,) = gradebook.enter(course, [result()])
    assert changed == 0
    assert refused.startswith(f"ada, {LESSON}: not in the gradebook; run `python -m helpers.instructor course ")
