"""The command that plants bugs tells the noticed from the unnoticed, and those whose text has moved from both."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

import planted

pytestmark = pytest.mark.proof  # of a command of the proofs

TABLE = """
[[module]]
file = "sums.py"
tests = ["test_sums.py"]

[[module.bug]]
what = "one too many"
text = "a + b"
instead = "a + b + 1"

[[module.bug]]
what = "nothing tests it"
text = "a - b"
instead = "b - a"
tests = ["test_sums.py::test_sum"]
gpu = true
"""
MODULE = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n"
TEST = "from sums import add\n\n\ndef test_sum():\n    assert add(1, 2) == 3\n"


@pytest.fixture
def checkout(tmp_path):
    """A checkout of a module with two functions, of which one is tested."""
    files = {
        planted.TABLES / "small.toml": TABLE, "pyproject.toml": "", "sums.py": MODULE, "test_sums.py": TEST,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run_here(tests, checkout):
    """The tests of the checkout, without pytest."""
    module = {}
    exec((checkout / "sums.py").read_text(encoding="utf-8"), module)
    return planted.Outcome(module["add"](1, 2) == 3, "test_sums.py::test_sum", 0.5, "assert 1 == 3")


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_bugs_are_told_apart(checkout, capsys):
    unnoticed = planted.plant(planted.bugs(checkout), checkout, run_here)
    assert [bug.what for bug in unnoticed] == ["nothing tests it"]
    noticed, passed = capsys.readouterr().out.splitlines()
    assert noticed.startswith("noticed ") and noticed.endswith("sums.py: one too many  test_sum")
    assert passed.startswith("NOT NOTICED ") and "sums.py: nothing tests it" in passed


def test_bugs_are_planted_one_at_a_time_in_a_copy(checkout):
    before, seen = contents(checkout), []

    def look(tests, copy):
        seen.append((copy != checkout, (copy / "sums.py").read_text(encoding="utf-8")))
        return run_here(tests, copy)

    planted.plant(planted.bugs(checkout), checkout, look)
    bugs = [MODULE.replace("a + b", "a + b + 1"), MODULE.replace("a - b", "b - a")]
    assert seen == [(True, bugs[0]), (True, bugs[1]), (True, MODULE)]
    assert contents(checkout) == before


def test_tests_that_fail_without_a_bug_are_an_error(checkout):
    (checkout / "sums.py").write_text(MODULE.replace("return a + b", "return 5 * (a + b)"), encoding="utf-8")
    with pytest.raises(ValueError, match="test_sums.py::test_sum fails without a bug too"):
        planted.plant(planted.bugs(checkout), checkout, run_here)


def test_tests_that_have_noticed_a_bug_are_run_without_it_once_for_each_file():
    assert planted._by_file(["a::x", "b", "a::y", "c::z", "b::x", "a::x"]) == [("a::x", "a::y"), ("b",), ("c::z",)]


def test_pytest_says_whether_tests_pass_and_which_does_not(checkout):
    assert planted.run(["test_sums.py"], checkout).passed
    (checkout / "sums.py").write_text(MODULE.replace("a + b", "a"), encoding="utf-8")
    failed = planted.run(["test_sums.py"], checkout)
    assert (failed.passed, failed.failed) == (False, "test_sums.py::test_sum")
    assert "assert 1 == 3" in failed.said


def test_one_test_of_a_file_can_be_run_alone(checkout):
    (checkout / "test_sums.py").write_text(f"{TEST}\n\ndef test_that_fails():\n    assert False\n", encoding="utf-8")
    assert planted.run(["test_sums.py::test_sum"], checkout).passed


def test_a_change_of_the_same_size_in_the_same_second_is_seen(checkout):
    at = (checkout / "sums.py").stat().st_mtime
    assert planted.run(["test_sums.py"], checkout).passed
    (checkout / "sums.py").write_text(MODULE.replace("a + b", "a - b"), encoding="utf-8")
    os.utime(checkout / "sums.py", (at, at))
    assert not planted.run(["test_sums.py"], checkout).passed


SUBPROCESS = """
import subprocess, sys


def test_what_a_new_python_imports():
    subprocess.run([sys.executable, "-c", "import sums; assert sums.add(1, 2) == 3"], check=True)
"""


def test_what_a_test_starts_sees_the_copy_too(checkout):
    (checkout / "test_sums.py").write_text(SUBPROCESS, encoding="utf-8")
    assert planted.run(["test_sums.py"], checkout).passed


def test_tests_that_do_not_come_to_an_end_have_not_passed(checkout):
    outcome = planted.run(["test_sums.py"], checkout, limit_s=0.01)
    assert (outcome.passed, outcome.failed) == (False, "no end after 0.01 seconds")


LEFT_BEHIND = """
import os, subprocess


def test_that_leaves_a_process_behind():
    said = os.open("said", os.O_WRONLY)
    subprocess.Popen(["sh", "-c", f"sleep 10; echo alive >&{said}"], pass_fds=[said])
"""


def test_what_tests_leave_running_ends_with_them(checkout):
    (checkout / "test_sums.py").write_text(LEFT_BEHIND, encoding="utf-8")
    os.mkfifo(checkout / "said")
    heard = os.open(checkout / "said", os.O_RDONLY | os.O_NONBLOCK)
    assert planted.run(["test_sums.py"], checkout).passed
    os.set_blocking(heard, True)
    with open(heard) as pipe:
        assert pipe.read() == ""


READS_A_PIPE = """
import os


def test_that_reads_what_is_open():
    os.read({0}, 99)
"""


def test_tests_share_no_file_with_who_runs_them(checkout):
    heard, said = os.pipe()
    (checkout / "test_sums.py").write_text(READS_A_PIPE.format(heard), encoding="utf-8")
    os.write(said, b"a task")
    planted.run(["test_sums.py"], checkout)
    os.close(said)
    with open(heard) as pipe:
        assert pipe.read() == "a task"


def test_tests_that_are_not_there_are_an_error(checkout):
    bug, _ = planted.bugs(checkout)
    for test in ("test_none.py", "test_sums.py::test_none"):
        with pytest.raises(ValueError, match=f"{test} fails without a bug too"):
            planted.plant([replace(bug, tests=(test,))], checkout)


def test_tests_that_are_left_out_are_an_error(checkout):
    (checkout / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '-k nothing'\n", encoding="utf-8")
    with pytest.raises(ValueError, match="pytest found no tests in test_sums.py"):
        planted.run(["test_sums.py"], checkout)


def test_a_bug_that_ends_pytest_itself_is_noticed(checkout):
    (checkout / "sums.py").write_text("import os\n\nos.abort()\n", encoding="utf-8")
    assert not planted.run(["test_sums.py"], checkout).passed


def test_a_text_that_does_not_occur_once_is_an_error(checkout):
    bug = planted.bugs(checkout)[0]
    for source in ("", "a + b, a + b"):
        with pytest.raises(ValueError, match="not once"):
            bug.planted(source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (None, "its file is gone"),
        ("a - b", "its text occurs 0 times"),
        ("a + b, a + b", "its text occurs 2 times"),
        ("def a + b", "the file is no program with it"),
        ("1  # a + b", "it changes nothing"),
        ("a + b", ""),
    ],
)
def test_a_bug_says_why_it_cannot_be_planted(checkout, source, reason):
    (checkout / "sums.py").unlink()
    if source is not None:
        (checkout / "sums.py").write_text(source, encoding="utf-8")
    assert planted.bugs(checkout)[0].misfit(checkout) == reason


@pytest.mark.parametrize(("gone", "adrift"), [(0, []), (1, []), (2, ["sums.py"])])
def test_a_few_bugs_that_have_moved_are_named_and_more_than_a_quarter_of_a_file_fail(checkout, gone, adrift):
    bug = planted.bugs(checkout)[0]
    found = [replace(bug, what=str(number), text="gone" if number < gone else bug.text) for number in range(4)]
    assert planted.moved(found, checkout) == (found[:gone], adrift)


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order_of_the_tables():
    numbers = list(range(100))
    drawn = [planted.sample(numbers, 10, seed) for seed in range(100)]
    assert all(len(one) == 10 and one == sorted(one) for one in drawn)
    assert set().union(*drawn) == set(numbers) and drawn[3] == planted.sample(numbers, 10, seed=3) != drawn[4]
    assert planted.sample(numbers, 200, seed=5) == numbers


def test_a_bug_more_changes_a_sample_by_at_most_one():
    numbers = list(range(100))
    before = planted.sample(numbers, 10, seed=3)
    assert all(len(set(before) - set(planted.sample([more, *numbers], 10, seed=3))) <= 1 for more in range(100, 200))


def test_bugs_may_be_planted_side_by_side(checkout, capsys):
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as workers:
        unnoticed = planted.plant(planted.bugs(checkout), checkout, run_here, workers.map)
    assert [bug.what for bug in unnoticed] == ["nothing tests it"]


def test_filters_choose_by_table_file_and_words(checkout):
    assert len(planted.bugs(checkout, ["small"])) == 2
    assert [bug.what for bug in planted.bugs(checkout, ["sums.py", "nothing"])] == ["nothing tests it"]
    assert planted.bugs(checkout, ["large"]) == []


def test_a_bug_has_the_tests_of_its_module_unless_it_has_its_own(checkout):
    assert [(bug.tests, bug.gpu) for bug in planted.bugs(checkout)] == [
        (("test_sums.py",), False),
        (("test_sums.py::test_sum",), True),
    ]
