"""Learning management systems: the paths of their exports, with names as they write them, and their columns."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import helpers.instructor
from helpers.instructor.collect.lms import GRADE_TABLES, SYSTEMS, examples
from helpers.instructor.collect.paths import understood_as
from helpers.instructor.collect.person import Person
from helpers.instructor.collect.roster import read_roster

LESSONS = ("01_eager_softmax", "02_your_first_kernel", "03_masking")
L = LESSONS[1]


def read(*paths, **more):
    """Student, lesson and lateness by path."""
    found = understood_as(paths, LESSONS, **more)
    return {path: (one.student, one.lesson[:2], one.late) for path, one in zip(paths, found, strict=True)}


def one(path, **more):
    return understood_as([path], LESSONS, **more)[0]


# All systems

EXAMPLES = [(system, *example) for system in SYSTEMS.values() for example in system.examples.items()]


@pytest.mark.parametrize(("system", "path", "student"), EXAMPLES, ids=[path for _, path, _ in EXAMPLES])
def test_a_system_reads_its_own_examples(system, path, student):
    found = one(path.replace("02_…", L))
    assert (found.system, found.student, found.lesson) == (system.name, student, L)


def test_the_help_of_grade_shows_every_example():
    command = [sys.executable, "-m", "helpers.instructor", "grade", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert examples() in shown
    assert all(system.title in shown and path in shown and student in shown for system, path, student in EXAMPLES)


@pytest.mark.parametrize("form", GRADE_TABLES)
def test_a_table_that_a_system_exports_is_a_roster_with_the_same_columns(form, tmp_path):
    columns = GRADE_TABLES[form][1].columns
    cells = {name: f"{name} of Ada" for name in columns.values()}
    (tmp_path / "roster.csv").write_text(",".join(columns) + "\n" + ",".join(cells.values()), encoding="utf-8")
    assert read_roster(tmp_path / "roster.csv") == [Person(**cells)]


HEADINGS = [
    (field, heading) for one in SYSTEMS.values() for field, several in one.headings.items() for heading in several
]


@pytest.mark.parametrize(("field", "heading"), HEADINGS)
def test_a_heading_of_a_system_is_understood_in_a_roster(field, heading, tmp_path):
    (tmp_path / "roster.csv").write_text(f"folder,{heading.title()}\nada,x", encoding="utf-8")
    assert read_roster(tmp_path / "roster.csv") == [Person(folder="ada", **{field: "x"})]


def test_no_other_module_knows_a_system_by_its_name():
    names = {*SYSTEMS, *GRADE_TABLES, *(system.title for system in SYSTEMS.values())}
    known = {
        path.name
        for path in Path(helpers.instructor.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert known == {"lms.py"}


# Canvas


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"lovelaceada_12345_67890_{L}.ipynb", ("lovelaceada_12345", "02", False)),
        (f"lovelaceada_LATE_12345_67890_{L}-1.ipynb", ("lovelaceada_12345", "02", True)),
        (f"müßigjürgen_12346_67891_{L} (1).ipynb", ("müßigjürgen_12346", "02", False)),
        (f"mc_adams_12347_67892_{L}.IPYNB", ("mc_adams_12347", "02", False)),
        ("anon_a1B2c_67893_02.ipynb", ("anon_a1B2c", "02", False)),
        ("LATE_anon_a1B2c_67893_hw.ipynb", ("anon_a1B2c", "", True)),
        ("lovelaceada_12345_text.html", ("lovelaceada_12345", "", False)),
        ("lovelaceada_12345_67890_hw.zip/02.ipynb", ("lovelaceada_12345", "02", False)),
        ("शर्माऋषि_4_5_02.ipynb", ("शर्माऋषि_4", "02", False)),
    ],
)
def test_canvas(path, expected):
    assert read(path)[path] == expected
    assert one(path).system == "canvas"


def test_canvas_gives_the_id_and_the_number_of_the_upload():
    found = one(f"lovelaceada_LATE_12345_67890_{L}.ipynb")
    assert (found.who.id, found.who.name, found.upload) == ("12345", "lovelaceada", 67890)


def test_the_number_of_a_lesson_is_not_one_of_canvas():
    found = one(f"group_1_{L}.ipynb")
    assert (found.student, found.lesson) == ("group_1", L)


def test_folders_of_assignments_around_files_of_canvas_are_nobody_s():
    paths = [f"hw2/ada_1_2_{L}.ipynb", f"hw2/bob_3_4_{L}.ipynb", "hw3/ada_1_7_03.ipynb"]
    assert [found[:2] for found in read(*paths).values()] == [("ada_1", "02"), ("bob_3", "02"), ("ada_1", "03")]


# Moodle


@pytest.mark.parametrize(
    ("path", "student", "name", "number"),
    [
        (f"Ada Lovelace_4711_assignsubmission_file_/{L}.ipynb", "Ada Lovelace_4711", "Ada Lovelace", "4711"),
        (f"Ada Lovelace_4711_assignsubmission_file/{L}.ipynb", "Ada Lovelace_4711", "Ada Lovelace", "4711"),
        (f"Ada Lovelace_4711_assignsubmission_file_{L}.ipynb", "Ada Lovelace_4711", "Ada Lovelace", "4711"),
        (f"Participant_4718_assignsubmission_file_/{L}.ipynb", "Participant_4718", "Participant", "4718"),
        (
            f"Group A-Ada O'Brien_9_assignsubmission_file_/{L}.ipynb",
            "Group A-Ada O'Brien_9",
            "Group A-Ada O'Brien",
            "9",
        ),
        (f"Default group_assignsubmission_file/{L}.ipynb", "Default group", "Default group", ""),
        (f"Ada_1_assignsubmission_file_/Eve_2_assignsubmission_file_{L}.ipynb", "Ada_1", "Ada", "1"),
        (f"Ada_1_assignsubmission_file_/src/hw_2_3_{L}.ipynb", "Ada_1", "Ada", "1"),
        ("Ada_1_assignsubmission_onlinetext/onlinetext.html", "Ada_1", "Ada", "1"),
    ],
)
def test_moodle(path, student, name, number):
    found = one(path)
    assert (found.system, found.student, found.who.name, found.who.participant) == ("moodle", student, name, number)


def test_two_of_one_name_in_moodle_stay_two():
    paths = [f"Kim Lee_{number}_assignsubmission_file/{L}.ipynb" for number in (1, 2)]
    assert [found[0] for found in read(*paths).values()] == ["Kim Lee_1", "Kim Lee_2"]


# Blackboard

HOMEWORK = "Homework_2_{}_attempt_2026-11-2{}-13-45-02"


def test_blackboard_leaves_the_login_where_the_title_is_taken_away():
    paths = [HOMEWORK.format(login, 0) + f"_{L}.ipynb" for login in ("ada_l", "bob_l")]
    paths.append(HOMEWORK.format("ada_l", 0) + ".txt")
    assert [found[0] for found in read(*paths).values()] == ["ada_l", "bob_l", "ada_l"]


def test_a_login_that_the_roster_knows_is_recognised_where_the_title_cannot_be():
    paths = [HOMEWORK.format(login, 0) + f"_{L}.ipynb" for login in ("u_ada", "u_bob")]
    assert [found[0] for found in read(*paths).values()] == ["ada", "bob"]
    assert [found[0] for found in read(*paths, usernames=["u_ada", "u_bob"]).values()] == ["u_ada", "u_bob"]


def test_each_assignment_of_blackboard_has_its_own_title():
    stems = [f"{title}_{login}" for title in ("HW1", "Second_HW") for login in ("ada_l", "bob_l")]
    paths = [f"{stem}_attempt_2026-11-20-13-45-02_0{1 + (at > 1)}.ipynb" for at, stem in enumerate(stems)]
    assert [found[0] for found in read(*paths).values()] == ["ada_l", "bob_l"] * 2


def test_attempts_in_blackboard_sort_by_time():
    first, second = (one(HOMEWORK.format("ada", day) + f"_{L}.ipynb") for day in (0, 1))
    assert first.student == second.student == "ada" and first.attempt < second.attempt


def test_a_student_of_blackboard_cannot_name_another():
    assert one(HOMEWORK.format("ada", 0) + "_x_" + HOMEWORK.format("eve", 1) + f"_{L}.ipynb").student == "ada"


def test_the_title_of_an_assignment_may_say_the_lesson():
    assert one(f"{L}_ada_attempt_2026-11-20-13-45-02_homework.ipynb").lesson == L


# Brightspace


@pytest.mark.parametrize(
    ("path", "student", "attempt"),
    [
        (f"123-45 - Ada Lovelace - Nov 20, 2026 145 PM/{L}.ipynb", "Ada Lovelace_123", "2026-11-20-13-45"),
        (f"123-45 - Ada Lovelace - Nov 9, 2026 1145 AM/{L}.ipynb", "Ada Lovelace_123", "2026-11-09-11-45"),
        (f"124-45 - Mary-Ann Smith - 2 November, 2026 1345/{L}.ipynb", "Mary-Ann Smith_124", "2026-11-02-13-45"),
        (f"124-45 - Bo Li - Nov 20, 2026 1205 AM - {L}.ipynb", "Bo Li_124", "2026-11-20-00-05"),
        (f"124-45 - Bo Li - 20 月 2026 1205/{L}.ipynb", "Bo Li_124", ""),
    ],
)
def test_brightspace(path, student, attempt):
    found = one(path)
    assert (found.system, found.student, found.attempt, found.lesson) == ("brightspace", student, attempt, L)


# ILIAS


def test_ilias_knows_login_and_id():
    found = one(f"Exercise 1/Submissions/Lovelace_Ada_alovelace_1234/{L}.ipynb")
    assert (found.system, found.student) == ("ilias", "Lovelace_Ada_alovelace_1234")
    assert (found.who.name, found.who.username, found.who.id, found.late) == (
        "Ada Lovelace",
        "alovelace",
        "1234",
        False,
    )


@pytest.mark.parametrize("said", ["Late Submission", "Verspaetete Abgabe"])
def test_ilias_says_what_is_late(said):
    found = one(f"Lovelace_Ada_alovelace_1234/{said} - {L}.ipynb")
    assert found.late and found.sure == 4


def test_older_versions_of_ilias_put_the_time_before_the_file():
    found = one(f"Team 12/Lovelace_Ada_alovelace_1234/20261120134502_{L}.ipynb")
    assert (found.attempt, found.sure) == ("20261120134502", 4)


# GitHub Classroom


def test_github_classroom_puts_the_user_after_the_assignment():
    found = one(f"hw-2-submissions/hw-2-ada-l/lessons/{L}.ipynb")
    assert (found.system, found.student, found.who.username, found.lesson) == ("github", "ada-l", "ada-l", L)


# Sakai, Teams, Google Classroom, Gradescope

SAKAI = "Homework 2/{}/Submission attachment(s)/{}.ipynb"
TEAMS = "Student Work/Submitted files/{}/Homework 2/Version 1/{}.ipynb"


@pytest.mark.parametrize("people", [("Ada", "Ben"), ("Ada",)], ids=["several", "one"])
@pytest.mark.parametrize("lessons", [LESSONS[:1], LESSONS[:2]], ids=["a lesson", "two lessons"])
@pytest.mark.parametrize(
    ("form", "called"),
    [
        (SAKAI, "Lovelace, {}({}l)"),
        (TEAMS, "{} Lovelace"),
        ("Classroom/Softmax/Homework/{} - {}.ipynb", "{} Lovelace"),
        ("assignment_1_export/{}/{}.ipynb", "submission_4{}"),
    ],
    ids=["sakai", "teams", "classroom", "gradescope"],
)
def test_one_student_alone_is_called_as_among_others(form, called, lessons, people):
    names = [called.format(name, name.lower()) for name in people]
    found = read(*(form.format(name, lesson) for name in names for lesson in lessons))
    assert [student for student, _, _ in found.values()] == [name for name in names for _ in lessons]


def test_sakai_says_the_login():
    found = one(SAKAI.format("Lovelace, Ada(alovelace)", L))
    assert (found.system, found.who.name, found.who.username) == ("sakai", "Lovelace, Ada", "alovelace")


def test_a_later_version_in_teams_is_a_later_attempt():
    first, second = (one(TEAMS.format("Ada", L).replace("Version 1", f"Version {n}")) for n in (9, 10))
    assert first.system == "teams" and first.attempt < second.attempt
