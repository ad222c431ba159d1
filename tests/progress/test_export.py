"""progress.export: two files that torch and triton run, without this course."""

import os
import subprocess
import sys

import pytest

from exercises import SOLUTIONS
from helpers import progress
from helpers.check import kept


def alone(folder, *command):
    """A program in a folder, by a Python in which the course cannot be imported."""
    (folder / "helpers.py").write_text("raise ImportError('the course is not at home')\n", encoding="utf-8")
    python = [sys.executable, "-W", "ignore", "-m", *command]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(folder)}
    return subprocess.run(python, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def passed(monkeypatch):
    """What has passed its check in this session."""
    monkeypatch.setattr(kept, "_passed", found := {})
    return found


def test_the_files_pass_their_own_tests_where_nobody_knows_the_course(tmp_path, passed):
    passed |= {name: SOLUTIONS[name].answered() for name in ("operator", "looks_right")}
    progress.export(str(tmp_path / "my_softmax.py"))
    ran = alone(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore")
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr


def test_an_answer_that_is_wrong_at_home_fails_there(tmp_path, passed):
    passed["operator"] = SOLUTIONS["operator"].answered("tl.sum(dy * y, axis=0)", "tl.sum(dy, axis=0)")
    progress.export(str(tmp_path / "own.py"))
    ran = alone(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", "float64 or rows")
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_what_has_not_passed_is_the_course_s_and_constants_and_functions_of_one_s_own_come_along(tmp_path, passed):
    code = "from math import inf as INF, sqrt as root\nSIZES = (5, 101)\n"
    code += "def drawn(): return torch.randn(*SIZES) - 0 * root(1) * (INF < 0)\n"
    code += "def looks_right(fn):\n    return bool((fn(drawn()) >= 0).all())\n"
    passed["looks_right"] = SOLUTIONS["looks_right"].answered(code=code)
    progress.export(str(tmp_path / "my_softmax.py"))
    text = (tmp_path / "test_my_softmax.py").read_text(encoding="utf-8")
    assert all(
        line in text
        for line in ("SIZES = (5, 101)\n", "INF = float('inf')\n", "from math import sqrt as root\n", "def drawn():")
    )
    assert "def softmax(x, dim=-1):" in (tmp_path / "my_softmax.py").read_text(encoding="utf-8")


def test_an_answer_that_needs_the_course_stays_here(tmp_path, passed):
    code = (
        "from helpers import traffic\ndef looks_right(fn):\n    return traffic.count(fn, torch.randn(3, 5)).loads > 0\n"
    )
    passed["looks_right"] = SOLUTIONS["looks_right"].answered(code=code)
    with pytest.raises(ValueError, match="traffic is the course's own, and stays here"):
        progress.export(str(tmp_path / "my_softmax.py"))
    assert not list(tmp_path.iterdir())


def test_an_operator_that_allocates_on_the_course_s_device_is_told_of_x_s(tmp_path, passed):
    passed["operator"] = SOLUTIONS["operator"].answered("device=x.device", "device=DEVICE")
    with pytest.raises(ValueError, match="make it on x.device"):
        progress.export(str(tmp_path / "my_softmax.py"))


def test_an_earlier_file_of_another_text_is_kept(tmp_path, passed):
    (tmp_path / "my_softmax.py").write_text("mine\n", encoding="utf-8")
    progress.export(str(tmp_path / "my_softmax.py"))
    assert (tmp_path / "my_softmax.py.bak").read_text(encoding="utf-8") == "mine\n"
    progress.export(str(tmp_path / "my_softmax.py"))
    assert (tmp_path / "my_softmax.py.bak").read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize("name", ["softmax", "my-softmax.py", "1.py"])
def test_a_file_that_python_cannot_import_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="a name that Python can import"):
        progress.export(str(tmp_path / name))
