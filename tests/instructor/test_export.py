"""Grades as other systems read them."""

import csv
import io
from types import SimpleNamespace

import pytest

from helpers.instructor.collect.person import Person
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import export
from helpers.instructor.report.export import Grades, doubled, encoded, unmatched, written

GRADES = Grades(
    {
        "ada": {"01": 3.5, "02": 4}, "grace_4711": {"01": 2}, "r2d2": {}, "=cmd()": {}, "@home": {"02": 1},
        "\ttab": {"02": 0}, "+1": {}, "-1": {}, "＝1": {},
    },
    {"01": 4, "02": 8},
    {
        "ada": Person("ada", "Ada Lovelace", "ada@x.org", "", "ada"),
        "grace_4711": Person("grace_4711", "Grace Hopper", "", "4711", sis="s-1", section="A"),
        "@home": Person("@home", "=HYPERLINK(1)", "+home@x.org", "4712", "@home"),
        "+1": Person("+1", username="=cmd|' /C calc'!A0"),
    },
    {"ada": ["01 (26.0 h)", "02"]},
    {"ada": {"01": "7", "02": "8"}},
)  # fmt: skip
ONE = Grades(
    {"ada": {"01": 3.5}, "bo": {}}, {"01": 4}, {"bo": Person(participant="Teilnehmer/in9")}, {}, {"ada": {"01": "7"}}
)


def rows(form, found=GRADES):
    return {row[0]: row for row in csv.reader(io.StringIO(written(found, form), newline=""))}


def test_a_row_of_csv_says_who_it_is_has_every_lesson_the_sum_and_what_was_late():
    assert rows("csv")["ada"] == ["ada", "Ada Lovelace", "ada@x.org", "", "ada", "3.5", "4", "7.5", "01 (26.0 h); 02"]


def test_the_head_of_csv_has_the_most_points_of_every_lesson_and_of_all():
    head = ["student", "name", "email", "id", "username", "01 (4)", "02 (8)", "total (12)", "late"]
    assert rows("csv")["student"] == head


def test_a_lesson_not_handed_in_is_empty_and_not_zero():
    assert rows("csv")["grace_4711"][5:] == ["2", "", "2", ""]
    assert rows("csv")["'\ttab"][6] == "0"


@pytest.mark.parametrize("student", ["=cmd()", "\ttab", "-1", "＝1"])
@pytest.mark.parametrize(("form", "column"), [("csv", 0), ("canvas", 0)])
def test_a_name_that_a_spreadsheet_would_run_is_text(form, column, student):
    names = [row[column] for row in csv.reader(io.StringIO(written(GRADES, form), newline=""))]
    assert f"'{student}" in names and student not in names


@pytest.mark.parametrize("form", ["csv", "canvas"])
def test_a_name_holds_nothing_that_a_terminal_would_run(form):
    eve = Grades({"eve": {}}, {"01": 4}, {"eve": Person("eve", "E\x1b[2Jve")})
    assert "\x1b" not in written(eve, form)


def test_canvas_matches_by_id_whatever_the_name():
    assert rows("canvas")["Grace Hopper"] == ["Grace Hopper", "4711", "s-1", "", "A", "2", ""]
    assert rows("canvas")["'=HYPERLINK(1)"][:4] == ["'=HYPERLINK(1)", "4712", "", "@home"]


def test_what_a_system_matches_stays_as_it_is_unless_it_could_run():
    assert "@home" in rows("moodle") and "'=cmd|' /C calc'!A0" in rows("moodle")
    assert "+home@x.org" in written(Grades({"@home": {}}, {"01": 4}, GRADES.people), "moodle")


def test_canvas_has_the_points_possible_below_the_head():
    lines = written(GRADES, "canvas").splitlines()
    assert lines[0] == "Student,ID,SIS User ID,SIS Login ID,Section,01,02"
    assert lines[1] == "    Points Possible,,,,,4,8"


def test_moodle_knows_a_student_by_username_email_or_id_number():
    found = Grades({"ada": {"01": 3.5, "02": 4}}, GRADES.most, {"ada": Person("", "Ada", "ada@x.org", "7", "ada")})
    assert written(found, "moodle").splitlines() == ["username,email,idnumber,name,01,02", "ada,ada@x.org,7,Ada,3.5,4"]


def test_moodle_gets_no_column_and_no_line_without_that_by_which_it_knows_the_others():
    lines = written(GRADES, "moodle").splitlines()
    assert lines[:2] == ["username,name,01,02", "ada,Ada Lovelace,3.5,4"] and "Grace" not in "".join(lines)
    (said,) = unmatched(GRADES, "moodle")
    assert "grace_4711" in said and "ada" not in said and said.endswith("Moodle would refuse the file with them.")


def test_moodle_is_told_of_a_lesson_without_points_that_it_is_not_0():
    assert written(Grades({"ada": {}}, {"01": 4}, GRADES.people), "moodle").splitlines()[1].endswith(",-")


def test_a_worksheet_of_moodle_knows_a_student_by_the_number_of_the_assignment():
    found = rows("moodle-worksheet", ONE)
    head = ["Identifier", "Full name", "Email address", "Grade", "Maximum grade", "Last modified (grade)"]
    assert found["Identifier"] == head
    assert found["Participant 7"] == ["Participant 7", "ada", "", "3.5", "4", "-"]
    assert found["Teilnehmer/in9"][3] == ""


def test_of_several_numbers_of_moodle_none_is_guessed():
    found = Grades({"bo": {"01": 1}}, {"01": 4}, {"bo": Person(participant="7 9")})
    assert rows("moodle-worksheet", found)[""][1] == "bo"


def test_a_number_of_another_lesson_is_none_of_this_one():
    people, numbers = {"bo": Person(participant="7")}, {"bo": {"02": "7"}}
    assert "Participant" not in written(Grades({"bo": {}}, {"01": 4}, people, participants=numbers), "moodle-worksheet")


def test_a_worksheet_of_several_lessons_is_refused():
    with pytest.raises(NotebookError, match="--lessons NAME"):
        written(GRADES, "moodle-worksheet")


def test_lines_end_as_csv_asks():
    assert written(GRADES, "csv").count("\r\n") == len(GRADES.points) + 1


def test_csv_has_a_mark_for_spreadsheets_and_files_for_systems_have_none():
    marked = {form: encoded("x", form).startswith(b"\xef\xbb\xbf") for form in ("csv", "canvas", "moodle")}
    assert marked == {"csv": True, "canvas": False, "moodle": False}


@pytest.mark.parametrize(("form", "named"), [("canvas", ["r2d2"]), ("moodle", ["r2d2"]), ("csv", [])])
def test_who_cannot_be_matched_is_named(form, named):
    found = " ".join(unmatched(GRADES, form))
    assert all(name in found for name in named) and "ada" not in found and bool(found) == bool(named)


@pytest.mark.parametrize(("seconds", "said"), [(5400, ["02_tile (1.5 h)"]), (0, [])])
def test_what_the_formgrader_calls_late_is_late_by_so_many_hours(seconds, said):
    submission = SimpleNamespace(
        name="02_tile",
        assignment=SimpleNamespace(duedate="2026-01-01"),
        late_submission_penalty=0.0,
        student=SimpleNamespace(id="ada"),
        total_seconds_late=seconds,
    )
    assert export._late(submission, {}) == said


SHARED = Grades(
    {"ada": {"01": 4}, "ada_l": {"01": 3}, "bo": {}}, {"01": 4},
    {"ada": Person(id="7", email="a@x"), "ada_l": Person(id="7", email="a@x"), "bo": Person(id="8", username="bo")},
    participants={"ada": {"01": "5"}, "bo": {"01": "5"}},
)  # fmt: skip


@pytest.mark.parametrize(
    ("form", "said"),
    [("csv", ["ada, ada_l have the same email, a@x.", "ada, ada_l have the same id, 7."]),
     ("canvas", ["ada, ada_l have the same ID, 7."]),
     ("moodle", ["ada, ada_l have the same idnumber, 7."]),
     ("moodle-worksheet", ["ada, bo have the same Identifier, Participant 5."])],
)  # fmt: skip
def test_whom_a_system_would_take_for_one_is_named(form, said):
    assert doubled(SHARED, form) == said and doubled(Grades({}, {"01": 4}), form) == []


def test_a_system_gets_its_own_numbers_alone():
    found = Grades({"ada": {}, "bo": {}}, {"01": 4}, SHARED.people, numbers={"ada": "brightspace", "bo": "canvas"})
    assert [row[1] for row in rows("canvas", found).values()][2:] == ["", "8"]
    assert "7" not in written(found, "moodle") and doubled(found, "canvas") == []
    several = Grades({"ada": {}}, {"01": 4}, {"ada": Person(id="canvas:7 moodle:9")})
    assert rows("canvas", several)["ada"][1] == "7" and "9,ada," in written(several, "moodle")
