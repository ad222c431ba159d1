"""The table of what has been attempted and passed, and the file it is kept in."""

import json
import re

import pytest

import needs
from exercises import SOLUTIONS
from helpers import check, progress
from helpers.check import Finding, Report, kept

ALL = str(sum(exercise.points for exercise in check.EXERCISES.values()))


@pytest.fixture(autouse=True)
def folder(nothing_passed_yet, tmp_path):
    return tmp_path


def report(exercise, points, of, attempted=True):
    return Report(exercise, of, attempted, (Finding("a case", points == of, ""),), kept=points)


def lines():
    return {line.split("  ")[0]: line.split() for line in repr(progress.table()).splitlines()}


def test_the_exercises_are_those_of_the_notebooks_with_their_points():
    assert {name: exercise.points for name, exercise in check.EXERCISES.items()} == {
        name: exercise.points for name, exercise in SOLUTIONS.items()
    }


def test_at_first_nothing_is_attempted_and_no_file_is_there(folder):
    assert lines()["1.2 eager"][-5:] == ["not", "attempted", "0", "of", "2"]
    assert lines()["lesson 05"][-6:] == ["3", "exercises", "passed", "0", "of", "8"]
    assert list(folder.iterdir()) == []


def test_a_check_is_kept_in_a_file_beside_the_notebook(folder):
    check.merge(SOLUTIONS["merge"].answered())
    assert lines()["5.1 merge"][-4:] == ["passed", "2", "of", "2"]
    assert lines()["together"][-3:] == ["2", "of", ALL]
    assert [path.name for path in folder.iterdir()] == ["progress.json"]


def test_a_wrong_answer_is_attempted_and_the_best_one_counts():
    kept.remember(report("online", 2.5, 5), None)
    kept.remember(report("online", 0, 5), None)
    assert lines()["5.3 online"][-4:] == ["attempted", "2.5", "of", "5"]


def test_a_better_answer_replaces_the_points_of_an_earlier_one():
    kept.remember(report("online", 1, 5), None)
    kept.remember(report("online", 2.5, 5), None)
    assert lines()["5.3 online"][-4:] == ["attempted", "2.5", "of", "5"]


def test_exercises_are_kept_beside_each_other():
    kept.remember(report("merge", 2, 2), None)
    kept.remember(report("online", 2.5, 5), None)
    assert lines()["5.1 merge"][-4:] == ["passed", "2", "of", "2"]
    assert lines()["together"][-3:] == ["4.5", "of", ALL]


def test_what_was_attempted_without_points_is_attempted():
    kept.remember(report("online", 0, 5), None)
    assert lines()["5.3 online"] == ["5.3", "online", "attempted", "0", "of", "5"]


def test_what_was_not_attempted_leaves_no_trace(folder):
    kept.remember(report("online", 0, 5, attempted=False), None)
    assert list(folder.iterdir()) == []


def test_deleting_the_file_loses_nothing_else(folder):
    kept.remember(report("online", 5, 5), None)
    (folder / "progress.json").unlink()
    assert lines()["5.3 online"][-5:] == ["not", "attempted", "0", "of", "5"]


@pytest.mark.parametrize(
    "content", ["", "{", "[1]", '{"online": "x", "nonsense": 3}', '{"online": NaN}', '{"online": -3}', "null", "\x00"]
)
def test_a_broken_file_counts_as_empty_and_is_replaced(folder, content):
    (folder / "progress.json").write_text(content)
    assert lines()["together"][-3:] == ["0", "of", ALL]
    kept.remember(report("merge", 2, 2), None)
    assert json.loads((folder / "progress.json").read_text())["merge"] == 2


def test_points_beyond_the_most_count_as_the_most(folder):
    (folder / "progress.json").write_text('{"merge": 99}')
    assert lines()["lesson 05"][-7:] == ["of", "3", "exercises", "passed", "2", "of", "8"]


def test_a_file_that_an_editor_has_marked_as_utf_8_is_read(folder):
    (folder / "progress.json").write_text('{"merge": 2}', encoding="utf-8-sig")
    assert lines()["lesson 05"][-7:] == ["of", "3", "exercises", "passed", "2", "of", "8"]


def test_a_cell_that_changes_the_working_directory_does_not_move_the_file(folder, monkeypatch):
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    kept.remember(report("merge", 2, 2), None)
    assert sorted(path.name for path in folder.iterdir()) == ["progress.json", "sub"]
    assert list((folder / "sub").iterdir()) == []


@needs.a_user
def test_a_folder_that_cannot_be_written_to_is_no_error(folder):
    folder.chmod(0o500)
    kept.remember(report("merge", 2, 2), None)
    assert lines()["5.1 merge"][-4:] == ["passed", "2", "of", "2"]


def test_where_the_file_cannot_be_written_points_last_as_long_as_the_kernel_and_the_table_says_so(folder):
    (folder / "progress.json").mkdir()
    kept.remember(report("merge", 2, 2), None)
    kept.remember(report("online", 1, 5), None)
    assert lines()["together"][-3:] == ["3", "of", ALL]
    assert f"progress.json cannot be written in {folder}" in repr(progress.table())
    assert [path.name for path in folder.iterdir()] == ["progress.json"]


def test_what_could_not_be_written_is_written_when_it_can_be(folder):
    (folder / "progress.json").mkdir()
    kept.remember(report("merge", 2, 2), None)
    (folder / "progress.json").rmdir()
    kept.remember(report("online", 1, 5), None)
    assert json.loads((folder / "progress.json").read_text()) == {"merge": 2, "online": 1}
    assert "cannot be written" not in repr(progress.table())


def opened(html):
    """The text of the lessons that are open, and of those that are folded."""
    parts = re.findall(r"<details( open)?>(.*?)</details>", html, flags=re.DOTALL)
    return [text for is_open, text in parts if is_open], [text for is_open, text in parts if not is_open]


def test_the_lesson_whose_check_was_called_last_is_open_and_the_others_are_folded():
    kept.remember(report("merge", 2, 2), None)
    kept.remember(report("single_tile", 0, 4, attempted=False), None)
    (this,), others = opened(progress.table()._repr_html_())
    assert "2.1 single_tile" in this and "<summary>lesson 02: 0 of 1 exercise passed, 0 of 4 points" in this
    assert len(others) == len({exercise.number.split(".")[0] for exercise in check.EXERCISES.values()}) - 1
    assert any("lesson 05: 1 of 3 exercises passed, 2 of 8 points" in text for text in others)
    assert "2.1 single_tile" in lines() and "5.1 merge" not in lines() and "lesson 05" in lines()


def test_in_a_session_without_a_check_the_first_lesson_is_open_that_is_not_finished(folder):
    first = {e.name: e.points for e in check.EXERCISES.values() if e.number.startswith("1.")}
    (folder / "progress.json").write_text(json.dumps(first))
    (this,), _ = opened(progress.table()._repr_html_())
    assert "2.1 single_tile" in this


def test_where_all_is_passed_and_nothing_checked_no_lesson_is_open(folder):
    (folder / "progress.json").write_text(json.dumps({e.name: e.points for e in check.EXERCISES.values()}))
    assert opened(progress.table()._repr_html_())[0] == []
