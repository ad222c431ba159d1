"""The editions of a lesson: which one a notebook was handed out by, and what is said where that costs points."""

import json
from pathlib import Path

import pytest

from handed_in import CHOOSING, LOSS, LYING, MASKED, TILE, TWO_PASS, mark, notebook, solved, written
from helpers.instructor.publish import editions
from helpers.instructor.publish.editions import Edition, edition_of, fingerprint, noted
from helpers.instructor.publish.notebooks import NotebookError

ROOT = Path(__file__).resolve().parents[2]


def released(lesson):
    return (ROOT / "lessons" / f"{lesson}.ipynb").read_bytes()


def sources(book):
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]


def result(grade_id, points=0.0, **others):
    return {
        "grade_id": grade_id,
        "points": points,
        "max_points": 4.0,
        "attempted": True,
        "answer": "def",
        "note": "",
        **others,
    }


def older(lesson):
    """A solved notebook of an older edition of lesson 04, whose driver was another; and that edition."""
    book, given = solved(lesson), notebook(lesson)
    for cell in (*book["cells"], *given["cells"]):
        if cell["id"] == "driver":
            cell["source"] = "".join(cell["source"]).replace("BLOCK=512", "BLOCK=1024")
    return book, Edition("abc1234", "2026-01-01", frozenset(map(fingerprint, sources(given))))


OLDER, EDITION = older(TWO_PASS)


def note(book, lesson=TWO_PASS, known=(EDITION,), **others):
    """What is said of the one exercise of a lesson."""
    graded = next(mark(cell) for cell in book["cells"] if mark(cell).endswith("-check"))
    (told,) = noted([result(graded, **others)], sources(book), released(lesson), known)
    return told["note"]


def first_edition(lesson):
    """The solved notebook of the first edition of lessons 03 and 04, whose given code had 32-bit offsets."""
    try:
        return json.loads(editions._git(ROOT, "show", f"ba6afcc:solutions/{lesson}.ipynb"))
    except NotebookError:
        pytest.skip("this is no full clone")


# The table


def test_the_table_holds_every_edition_of_the_history():
    try:
        found = editions.history()
    except NotebookError as error:
        pytest.skip(str(error))
    known = {(lesson, one.cells) for lesson, own in editions.known_editions().items() for one in own}
    current = {
        (path.stem, frozenset(map(fingerprint, sources(json.loads(path.read_bytes())))))
        for path in (ROOT / "lessons").glob("*.ipynb")
    }
    earlier = {(lesson, frozenset(one["cells"])) for lesson, own in found.items() for one in own}
    missing = sorted(lesson for lesson, _ in earlier - current - known)
    assert not missing, f"run `python -m helpers.instructor editions`: editions of {missing} are not in the table"


def test_every_lesson_has_editions_the_newest_first():
    assert set(editions.known_editions()) == {path.stem for path in (ROOT / "lessons").glob("*.ipynb")}
    assert all([one.date for one in own] == sorted((one.date for one in own), reverse=True)
               for own in editions.known_editions().values())  # fmt: skip


def test_what_is_written_is_read_again(tmp_path, monkeypatch):
    table = tmp_path / "editions.json"
    found = {"01_tiny": [{"commit": "a1", "date": "2026-01-01", "cells": ["x"]},
                         {"commit": "b2", "date": "2026-02-01", "cells": ["x", "y"]}]}  # fmt: skip
    monkeypatch.setattr(editions, "history", lambda repository: found)
    assert editions.write_editions(ROOT, table) == 2
    assert editions.known_editions(table) == {
        "01_tiny": (Edition("b2", "2026-02-01", frozenset("xy")), Edition("a1", "2026-01-01", frozenset("x")))
    }


def test_a_folder_without_history_has_no_editions(tmp_path):
    with pytest.raises(NotebookError, match="which is not there"):
        editions.history(tmp_path)


def test_spaces_at_the_ends_of_lines_are_no_other_code():
    assert fingerprint("x = 1  \r\ny = 2\n") == fingerprint("x = 1\ny = 2")
    assert fingerprint("x = 1\n  y = 2") != fingerprint("x = 1\ny = 2")


# The edition of a notebook


def test_a_notebook_of_this_lesson_is_of_this_edition():
    edition = edition_of(sources(solved(TILE)), released(TILE), editions.of_lesson(released(TILE)))
    assert edition.commit == ""


def test_a_notebook_of_an_older_lesson_is_of_that_edition():
    book = first_edition(MASKED)
    assert edition_of(sources(book), released(MASKED), editions.of_lesson(released(MASKED))).commit == "ba6afcc"


def test_of_editions_that_share_as_much_the_newest_counts():
    this = frozenset(map(fingerprint, sources(notebook(TILE))))
    older = [Edition("b", "2", this), Edition("a", "1", this)]
    assert edition_of(sources(notebook(TILE)), released(TILE), older).commit == ""
    found = [Edition("b", "2", frozenset({fingerprint("z")})), Edition("a", "1", frozenset({fingerprint("z")}))]
    assert edition_of(["z"], released(TILE), found).commit == "b"


def test_a_notebook_that_shares_no_cell_is_of_none():
    assert edition_of(["print(1)"], released(TILE), editions.of_lesson(released(TILE))) is None


# Another lesson's


@pytest.mark.parametrize("lesson", [path.stem for path in sorted((ROOT / "lessons").glob("*.ipynb"))])
def test_a_notebook_of_a_lesson_is_of_no_other(lesson):
    assert editions.of_another_lesson(sources(solved(lesson)), released(lesson)) == ""


def test_a_notebook_that_came_under_this_number_in_an_earlier_edition_is_of_the_lesson_that_it_is():
    said = editions.of_another_lesson(sources(solved(LYING)), released(CHOOSING))
    assert said.startswith("this is 08_benchmarks_that_lie as the edition of commit ")


def test_a_few_cells_of_another_lesson_do_not_make_a_notebook_its():
    some = sources(notebook(LYING))[1:8]
    assert editions.of_another_lesson([*some, *sources(notebook(CHOOSING))], released(CHOOSING)) == ""
    assert editions.of_another_lesson(some, released(CHOOSING)) == ""


def test_a_notebook_of_another_lesson_has_no_points_and_says_which_it_is(workshop):
    from helpers.instructor.grade.exercise import Grader
    from helpers.instructor.grade.notebook import grade_notebook

    told = grade_notebook(Grader(workshop, {}), written(solved(MASKED)), released(TWO_PASS))
    assert "this is 03_masking" in told["problem"] and told["exercises"][0]["note"] == told["problem"]


# What is said


def test_points_lost_by_the_code_of_an_older_edition_name_its_commit():
    said = note(OLDER)
    assert "the edition of commit abc1234 (2026-01-01), whose given code in cell driver is not" in said


def test_full_points_are_no_case_for_an_edition():
    assert note(OLDER, points=4.0) == ""


def test_what_was_not_attempted_is_no_case_for_an_edition():
    assert note(OLDER, attempted=False) == ""


def test_another_note_stays():
    assert note(OLDER, note="look") == "look"


def test_a_wrong_answer_in_this_edition_has_no_note():
    assert note(solved(TWO_PASS)) == ""


def test_given_code_of_no_edition_is_named():
    book = solved(TWO_PASS)
    driver = next(cell for cell in book["cells"] if cell["id"] == "driver")
    driver["source"] = "".join(driver["source"]).replace("BLOCK=512", "BLOCK=256")
    said = note(book)
    assert said.startswith("edition unknown: the given code in cell driver is that of no edition")


def test_given_code_that_the_answer_does_not_need_may_change():
    book = solved(TWO_PASS)
    changed = next(cell for cell in book["cells"] if cell["id"] == "setup")
    changed["source"] = "".join(changed["source"]) + "\nimport os"
    assert note(book) == ""


@pytest.mark.parametrize("attempted", [True, False])
def test_given_code_that_is_gone_is_named_with_what_it_defines(attempted):
    book = solved(TWO_PASS)
    book["cells"] = [cell for cell in book["cells"] if cell["id"] != "setup"]
    said = note(book, attempted=attempted)
    assert said.startswith("given code is gone: cell setup, alone in defining ") and "triton" in said


def test_a_name_that_nothing_reads_is_not_missed():
    book = solved(TWO_PASS)
    setup = next(cell for cell in book["cells"] if cell["id"] == "setup")
    setup["source"] = "".join(setup["source"]).replace(" banner,", "")
    for cell in book["cells"]:
        cell["source"] = "\n".join(line for line in "".join(cell["source"]).splitlines() if "banner(" not in line)
    assert note(book) == ""


def test_of_an_older_edition_no_code_is_called_gone():
    book = {**OLDER, "cells": [cell for cell in OLDER["cells"] if cell["id"] != "setup"]}
    assert "the edition of commit abc1234" in note(book)


def test_given_code_that_is_gone_is_no_case_where_nothing_was_answered():
    book = solved(TWO_PASS)
    book["cells"] = [cell for cell in book["cells"] if cell["id"] != "setup"]
    assert note(book, attempted=False, answer="") == ""


def test_the_learner_s_answer_to_another_exercise_is_no_given_code():
    book = solved(LOSS)
    (both,) = noted([result("both-check")], sources(book), released(LOSS), ())
    assert both["note"] == ""


@pytest.mark.thinned(0)
def test_a_graded_notebook_of_the_first_edition_is_not_a_silent_zero(workshop):
    from helpers.instructor.grade.exercise import Grader
    from helpers.instructor.grade.notebook import grade_notebook

    told = grade_notebook(Grader(workshop, {}), written(first_edition(MASKED)), released(MASKED))
    (exercise,) = told["exercises"]
    assert exercise["points"] == 0 and "grade it in a checkout of that commit" in exercise["note"]
