"""Who is in the class: rosters as people write them and as systems export them, and who is meant."""

import pytest

from helpers.instructor.collect.ledger import (
    Collected,
    Known,
    absent,
    in_several_folders,
    read_ledger,
    who_is,
    write_ledger,
)
from helpers.instructor.collect.person import Person, meant_by, numbers_of
from helpers.instructor.collect.roster import read_roster, roster_of, without
from helpers.instructor.publish.notebooks import NotebookError


def roster(folder, text, encoding="utf-8"):
    (folder / "roster.csv").write_bytes(text.encode(encoding))
    return read_roster(folder / "roster.csv")


@pytest.mark.parametrize(
    ("text", "person"),
    [
        ("folder,name,email,id\nada,Ada Lovelace,ada@x.org,4711\n",
         Person("ada", "Ada Lovelace", "ada@x.org", "4711")),
        ("Name;E-Mail\r\nAda Lovelace;ada@x.org\r\n", Person(name="Ada Lovelace", email="ada@x.org")),
        ("First name\tLast name\tID number\nAda\tLovelace\t4711", Person(name="Ada Lovelace", id="4711")),
        ("Student,ID,SIS User ID,SIS Login ID,Section,02 (12)\n"
         "    Points Possible,,,,,4\n\"Lovelace, Ada\",4711,s1,ada,A,4\n\"Student, Test\",9,,,A,",
         Person(name="Lovelace, Ada", id="4711", sis="s1", username="ada", section="A")),
        ("Identifier,Full name,Email address,Status,Grade\nParticipant 4718,Ada Lovelace,ada@x.org,Submitted,",
         Person(name="Ada Lovelace", email="ada@x.org", participant="Participant 4718")),
        ('"identifier","github_username","name"\n"","ada-l","Ada Lovelace"',
         Person(name="Ada Lovelace", username="ada-l")),
    ],
    ids=["by hand", "semicolons", "tabs", "Canvas", "worksheet of Moodle", "GitHub Classroom"],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_roster_is_read(text, person, encoding, tmp_path):
    assert roster(tmp_path, text, encoding) == [person]


@pytest.mark.parametrize(
    ("text", "encoding", "said"),
    [
        ("name\nJürgen", "latin-1", "is not UTF-8"),
        ("grade,comment\n4,good", "utf-8", "has no column"),
        ("", "utf-8", "has no column"),
        ("folder\nada\nada", "utf-8", "several lines for the folder ada"),
        ("name,id\nAda,7\nBo,8\nEve,7", "utf-8", "several lines for the id 7"),
        ("name,email\nAda,a@x\nBo,A@x", "utf-8", "several lines for the email a@x"),
        ("name,canvas id\nAda,7\nEve,7", "utf-8", "several lines for the id canvas:7"),
        ("name,id,canvas id\nAda,7,8", "utf-8", "say whose its numbers are"),
        ("name,login\nAda,al\nBo,al", "utf-8", "several lines for the username al"),
        ("name,extension\nAda,two days", "utf-8", "Ada: the extension 'two days' is not days"),
        ("name,extension\nAda,02:-1", "utf-8", "Ada: the extension '02:-1' is not days"),
        ("name,extenson\nAda,3", "utf-8", "a column extenson: is it extension"),
        ("name,canvs id\nAda,7", "utf-8", "a column canvs id: is it canvas id"),
        ("name,usrname\nAda,al", "utf-8", "a column usrname: is it username"),
        ("name,sis\nAda,1\nBo,1", "utf-8", "several lines for the sis 1"),
    ],
)
def test_what_is_no_roster_is_refused_in_a_sentence(text, encoding, said, tmp_path):
    with pytest.raises(NotebookError, match=said):
        roster(tmp_path, text, encoding)


def test_a_roster_that_is_given_and_missing_is_an_error_and_the_course_s_own_is_optional(tmp_path):
    assert roster_of(tmp_path) == []
    with pytest.raises(NotebookError, match="cannot be read"):
        roster_of(tmp_path, tmp_path / "roster.csv")
    roster(tmp_path, "name\nAda")
    assert roster_of(tmp_path) == [Person(name="Ada")]


def test_an_extension_for_a_lesson_that_there_is_not_is_refused(tmp_path):
    (tmp_path / "roster.csv").write_text("name,extension\nAda,2:3 99:1")
    with pytest.raises(NotebookError, match=r"roster\.csv: Ada has more days for 99, and no lesson begins so\."):
        roster_of(tmp_path)


def test_decomposed_letters_in_a_roster_are_composed(tmp_path):
    assert roster(tmp_path, "folder\nJu\u0308rgen")[0].folder == "Jürgen"


@pytest.mark.parametrize(("cell", "folder"), [("100%25", "100%25"), ("../x", "%2E.%2Fx"), ("ada/", "ada")])
def test_the_folder_of_a_roster_is_that_in_submitted(cell, folder, tmp_path):
    assert roster(tmp_path, f"folder\n{cell}")[0].folder == folder


# Who is meant

KIM1, KIM2 = Person("k1", "Kim Lee", "k1@x", "1", "kim1", "11 12"), Person("k2", "Kim Lee", "k2@x", "2", "kim2", "21")
ADA = Person("", "Ada Lovelace", "ada@x", "3", "ada_l")


@pytest.mark.parametrize(
    ("one", "person"),
    [
        (Person(folder="k1"), KIM1),
        (Person(name="kimlee", id="2"), KIM2),
        (Person(name="Kim Lee", participant="12"), KIM1),
        (Person(name="Kim Lee", participant="99"), None),
        (Person(name="Kim Lee"), None),
        (Person(username="KIM2"), KIM2),
        (Person(folder="ada@x"), ADA),
        (Person(folder="ada_l"), ADA),
        (Person(folder="Ada Lovelace"), ADA),
        (Person(name="lovelaceada"), ADA),
        (Person(name="Group A-Ada Lovelace"), ADA),
        (Person(name="Ada Lovelace", id="4"), None),
        (Person(name="Ada Lovelace", username="other"), None),
        (Person(name="Eve"), None),
    ],
)
def test_the_person_who_is_meant(one, person):
    assert meant_by([KIM1, KIM2, ADA], one) == person


GRACE, LUKASZ = Person("", "Grace Hopper", "g@x", "12346"), Person("", "Łukasz Żółw", "l@x", "999")
SYSTEMS = {
    "hoppergrace_12346": Known(Person(name="hoppergrace", id="12346"), "canvas"),
    "Łukasz Żółw_12346": Known(Person(name="Łukasz Żółw", id="12346"), "brightspace"),
}


def test_numbers_of_two_systems_are_not_compared():
    known = who_is(SYSTEMS, [GRACE, LUKASZ], SYSTEMS)
    assert {student: one.email for student, one in known.items()} == dict(zip(SYSTEMS, ("g@x", "l@x"), strict=True))
    assert absent(SYSTEMS, [GRACE, LUKASZ], SYSTEMS) == []


@pytest.mark.parametrize(
    ("people", "system"),
    [([GRACE, LUKASZ], "canvas"), ([Person(name="Łukasz Żółw", id="12346")], "brightspace"), ([ADA], ""), ([], "")],
)
def test_the_roster_has_the_numbers_of_the_system_whose_names_agree(people, system):
    assert numbers_of(people, [(known.who, known.system) for known in SYSTEMS.values()]) == system


def test_the_numbers_of_the_only_system_are_those_of_the_roster_whatever_the_names():
    assert numbers_of([GRACE], [(Person(name="other", id="1"), "canvas"), (Person(name="x"), "moodle")]) == "canvas"


SEVERAL = "name,canvas id,moodle id,brightspace id\nGrace Hopper,12346,,\nAda Lovelace,7,8,\nŁukasz Żółw,,8000,12346\n"


def test_a_roster_has_numbers_of_several_systems_in_a_column_each(tmp_path):
    people = roster(tmp_path, SEVERAL)
    assert [one.id_for("canvas") for one in people] == ["12346", "7", ""]
    assert [one.id_for("moodle") for one in people] == ["", "8", "8000"]
    assert {student: one.name for student, one in who_is(SYSTEMS, people, SYSTEMS).items()} == {
        "hoppergrace_12346": "Grace Hopper", "Łukasz Żółw_12346": "Łukasz Żółw"
    }  # fmt: skip


def test_by_the_number_of_one_system_nobody_is_known_who_has_it_in_another(tmp_path):
    people = roster(tmp_path, SEVERAL)
    ledger = {"x": Known(Person(name="x", id="8"), "canvas"), "y": Known(Person(name="y", id="7"), "canvas")}
    assert {student: one.name for student, one in who_is(ledger, people, ledger).items()} == {
        "x": "x", "y": "Ada Lovelace"
    }  # fmt: skip


def test_who_has_several_folders_is_told_what_to_do():
    ledger = {
        "lovelaceada_3": Known(Person(name="lovelaceada", id="3"), "canvas"),
        "ada_l": Known(Person(username="ada_l"), "github"),
        "kim1": Known(Person(username="kim1"), "github"),
    }
    (said,) = in_several_folders(ledger, [ADA, KIM1], ledger)
    assert said.startswith("Ada Lovelace of the roster has several folders, ada_l, lovelaceada_3.") and "move" in said


def test_no_two_students_are_the_same_person_by_name_alone():
    ledger = {f"Kim Lee_{n}": Known(Person(name="Kim Lee", participant=n), "moodle") for n in "78"}
    known = who_is(ledger, [Person(name="Kim Lee", email="kim@x")], ledger)
    assert [one.email for one in known.values()] == ["", ""]


def test_who_has_handed_in_nothing_is_known():
    assert absent(["k1", "ada_l", "stranger"], [KIM1, KIM2, ADA], {}) == [KIM2]


# What is kept


def test_what_was_collected_is_read_as_it_was_written(tmp_path):
    assert read_ledger(tmp_path) == {}
    ledger = {"Jürgen": Known(Person(name="Jürgen"), "moodle", {"02": Collected("a/b", "2026", True, "7")})}
    write_ledger(tmp_path, ledger)
    assert read_ledger(tmp_path) == ledger


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_roster_without_a_person_is_otherwise_the_same(encoding, tmp_path):
    text = 'name;email\r\n"Lee; Kim";k@x\r\nAda Lovelace;a@x\r\n'
    people = roster(tmp_path, text, encoding)
    assert without(tmp_path / "roster.csv", people[1]) == 'name;email\r\n"Lee; Kim";k@x\r\n'.encode(encoding)


def test_a_student_is_known_with_what_the_roster_says():
    people = [Person("ada", "Ada Lovelace", "ada@x.org", "4711")]
    assert who_is(["ada", "bob"], people, {}) == {"ada": people[0], "bob": Person("bob")}


@pytest.mark.parametrize("known", ["Hopper, Grace Brewster", "Grace Brewster Hopper"])
def test_a_name_may_begin_with_the_last_one(known):
    assert meant_by([Person(name=known), Person(name="Ada")], Person(name="Grace Brewster Hopper")).name == known
