"""Grades as other systems read them."""

import csv
import io

import pytest

from helpers.instructor.report.export import Grades, written

GRADES = Grades(
    {
        "ada": {"01": 3.5, "02": 4}, "grace_4711": {"01": 2}, "r2d2": {}, "=cmd()": {}, "@home": {"02": 1},
        "\ttab": {"02": 0}, "+1": {}, "-1": {},
    },
    {"01": 4, "02": 8},
    dict.fromkeys(("grace_4711", "r2d2", "=cmd()", "@home", "\ttab", "+1", "-1"), ("", ""))
    | {"ada": ("Ada", "Lovelace")},
)  # fmt: skip


def rows(form):
    return {row[0]: row for row in csv.reader(io.StringIO(written(GRADES, form), newline=""))}


def test_a_row_of_csv_has_every_lesson_and_the_sum():
    assert rows("csv")["ada"] == ["ada", "3.5", "4", "7.5"]


def test_the_head_of_csv_has_the_most_points_of_every_lesson_and_of_all():
    assert rows("csv")["student"] == ["student", "01 (4)", "02 (8)", "total (12)"]


def test_a_lesson_not_handed_in_is_empty_and_not_zero():
    assert rows("csv")["grace_4711"] == ["grace_4711", "2", "", "2"]
    assert rows("csv")["'\ttab"][2] == "0"


@pytest.mark.parametrize("form", ["csv", "canvas", "moodle"])
@pytest.mark.parametrize("student", ["=cmd()", "@home", "\ttab", "+1", "-1"])
def test_a_name_that_a_spreadsheet_would_run_is_text(form, student):
    assert f"'{student}" in rows(form) and student not in rows(form)


def test_canvas_knows_a_student_by_name_and_by_the_number_at_the_end_of_theirs():
    assert rows("canvas")["Lovelace, Ada"] == ["Lovelace, Ada", "", "", "ada", "", "3.5", "4"]
    assert rows("canvas")["grace_4711"] == ["grace_4711", "4711", "", "", "", "2", ""]


def test_a_number_elsewhere_in_a_name_is_not_canvas_s():
    assert rows("canvas")["r2d2"][:4] == ["r2d2", "", "", "r2d2"]


def test_a_login_that_a_spreadsheet_would_run_is_text_too():
    assert rows("canvas")["'@home"][3] == "'@home"


def test_canvas_has_the_points_possible_below_the_head():
    lines = written(GRADES, "canvas").splitlines()
    assert lines[0] == "Student,ID,SIS User ID,SIS Login ID,Section,01,02"
    assert lines[1] == "    Points Possible,,,,,4,8"


def test_moodle_knows_a_student_by_username():
    assert written(GRADES, "moodle").splitlines()[:2] == ["username,01,02", "ada,3.5,4"]


def test_lines_end_as_csv_asks():
    assert written(GRADES, "csv").count("\r\n") == len(GRADES.points) + 1
