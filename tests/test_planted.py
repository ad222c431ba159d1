"""The table of planted bugs fits the code, and the command that plants them tells the noticed from the unnoticed."""

import ast

import pytest

import planted

BUGS = planted.bugs(planted.CHECKOUT)


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_a_bug_can_be_planted_and_is_still_a_program(bug):
    source = (planted.CHECKOUT / bug.file).read_text(encoding="utf-8")
    with_bug = bug.planted(source)
    assert with_bug != source
    if bug.file.endswith(".py"):
        assert ast.dump(ast.parse(with_bug)) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("test", sorted({test for bug in BUGS for test in bug.tests}))
def test_the_tests_that_must_notice_a_bug_are_there(test):
    assert (planted.CHECKOUT / test.partition("::")[0]).exists()


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
    return planted.Outcome(module["add"](1, 2) == 3, "test_sums.py::test_sum", 0.5)


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
    assert seen == [(True, MODULE), (True, bugs[0]), (True, MODULE), (True, bugs[1])]
    assert contents(checkout) == before


def test_tests_that_fail_without_a_bug_are_an_error(checkout):
    (checkout / "sums.py").write_text(MODULE.replace("a + b", "a"), encoding="utf-8")
    with pytest.raises(ValueError, match="test_sums.py must pass before a bug is planted: test_sums.py::test_sum"):
        planted.plant(planted.bugs(checkout), checkout, run_here)


def test_pytest_says_whether_tests_pass_and_which_does_not(checkout):
    assert planted.run(["test_sums.py"], checkout).passed
    (checkout / "sums.py").write_text(MODULE.replace("a + b", "a"), encoding="utf-8")
    failed = planted.run(["test_sums.py"], checkout)
    assert (failed.passed, failed.said) == (False, "test_sums.py::test_sum")


def test_tests_that_do_not_come_to_an_end_have_not_passed(checkout):
    outcome = planted.run(["test_sums.py"], checkout, limit_s=0.01)
    assert (outcome.passed, outcome.said) == (False, "no end after 0.01 seconds")


def test_tests_that_are_not_there_are_an_error(checkout):
    with pytest.raises(ValueError, match="pytest did not run test_none.py"):
        planted.run(["test_none.py"], checkout)


def test_a_text_that_does_not_occur_once_is_an_error(checkout):
    bug = planted.bugs(checkout)[0]
    for source in ("", "a + b, a + b"):
        with pytest.raises(ValueError, match="not once"):
            bug.planted(source)


def test_filters_choose_by_table_file_and_words(checkout):
    assert len(planted.bugs(checkout, ["small"])) == 2
    assert [bug.what for bug in planted.bugs(checkout, ["sums.py", "nothing"])] == ["nothing tests it"]
    assert planted.bugs(checkout, ["large"]) == []


def test_a_bug_has_the_tests_of_its_module_unless_it_has_its_own(checkout):
    assert [(bug.tests, bug.gpu) for bug in planted.bugs(checkout)] == [
        (("test_sums.py",), False),
        (("test_sums.py::test_sum",), True),
    ]
