"""A lesson is added by its own files alone: its notebook, its exercises. CONTRIBUTING's "How to add" says no more."""

import json
import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from exercises import ROOT

EXERCISES = '''
"""Lesson 99, a toy: each column is scaled and shifted."""

import torch

from helpers.check.exercise import TensorExercise
from helpers.check.mistakes.recognise import Mistake, where
from helpers.check.problems.kind import Kind, Output

AFFINE = Kind(
    (Output("the rows", lambda x, *_: (tuple(x.shape), x.dtype), lambda want, *_: 1e-6 + 1e-6 * want.abs()),),
    lambda x, scale, shift: (x.double() * scale.double() + shift.double(),),
)


def rows(M, N):
    return lambda generator: tuple(torch.randn(size, generator=generator) for size in ((M, N), (N,), (N,)))


def is_not_shifted(seen):
    scale, _ = seen.others
    return seen.trial.y is not None and torch.allclose(seen.trial.y, seen.x * scale)


EXERCISES = (
    TensorExercise(
        name="affine",
        number="99.1",
        points=2,
        about="Checks a kernel that scales and shifts each column.",
        kind=AFFINE,
        makers={"4 rows of 64": rows(4, 64), "7 rows of 100": rows(7, 100), "one row": rows(1, 1000)},
        loads=3,
        known=(Mistake("not_shifted", "Nothing is shifted.", "What is added to x · scale?", 1, where(is_not_shifted)),),
    ),
)
'''
ANSWER = """
@triton.jit
def affine_kernel(y_ptr, x_ptr, scale_ptr, shift_ptr, N, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    mask = cols < N
    ### BEGIN SOLUTION
    x = tl.load(x_ptr + row * N + cols, mask=mask)
    scale, shift = tl.load(scale_ptr + cols, mask=mask), tl.load(shift_ptr + cols, mask=mask)
    tl.store(y_ptr + row * N + cols, x * scale + shift, mask=mask)
    ### END SOLUTION


def affine(x, scale, shift):
    y = torch.empty_like(x)
    affine_kernel[(len(x),)](y, x, scale, shift, x.shape[1], BLOCK=1024)
    return y
"""
NAME = "99_toy"


def graded(grade_id, **options):
    of_nbgrader = {"grade": False, "locked": False, "schema_version": 3, "solution": False, "task": False, **options}
    return {"nbgrader": {"grade_id": grade_id, **of_nbgrader}}


def toy():
    """The notebook: a text, the imports, the answer, its check."""
    new = nbformat.v4
    cells = [
        new.new_markdown_cell("### Exercise 99.1 · affine", id="text"),
        new.new_code_cell(
            "import torch\nimport triton\nimport triton.language as tl\nfrom helpers import check", id="setup"
        ),
        new.new_code_cell(ANSWER.strip(), id="affine", metadata=graded("affine", solution=True)),
        new.new_code_cell(
            "check.affine(affine)",
            id="affine-check",
            metadata=graded("affine-check", grade=True, locked=True, points=2),
        ),
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return new.new_notebook(cells=cells, metadata=kernel)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout with two more files, and nothing else changed."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("helpers", "lessons", "solutions"):
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
        )
    (copy / "helpers" / "check" / "exercises" / "lesson_99.py").write_text(EXERCISES, encoding="utf-8")
    nbformat.write(toy(), copy / "solutions" / f"{NAME}.ipynb")
    return copy


def run(checkout, *arguments, status=0):
    """What an instructor's command prints in the copy."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "TQDM_DISABLE": "1"}
    command = [sys.executable, "-m", "helpers.instructor", *map(str, arguments)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def published(checkout):
    """The checkout after the two commands that CONTRIBUTING names for a new lesson."""
    run(checkout, "execute", NAME)
    run(checkout, "lessons")
    return checkout


def test_its_solution_runs_and_passes_its_check(published):
    solved = nbformat.read(published / "solutions" / f"{NAME}.ipynb", as_version=4)
    (output,) = solved.cells[-1].outputs
    assert output.data["text/plain"] == "2"


def test_its_lesson_has_no_solution(published):
    lesson = nbformat.read(published / "lessons" / f"{NAME}.ipynb", as_version=4)
    assert "shift_ptr + cols" not in lesson.cells[2].source and "your code here" in lesson.cells[2].source


def test_it_is_an_assignment_of_a_course(published, tmp_path):
    run(published, "course", tmp_path / "course")
    assert (tmp_path / "course" / "source" / NAME / f"{NAME}.ipynb").exists()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("change", "points", "named"),
    [((), 2, None), ((" + shift,", ","), 0, "not_shifted"), (("    tl.store", "    pass  #"), 0, None)],
    ids=["the solution", "the known mistake", "not attempted"],
)
def test_it_is_graded_behind_walls(published, tmp_path, change, points, named):
    handed = toy()
    handed.cells[2].source = handed.cells[2].source.replace(*change) if change else handed.cells[2].source
    nbformat.write(handed, tmp_path / f"{NAME}.ipynb")
    told = json.loads(run(published, "grade-one", tmp_path / f"{NAME}.ipynb", "--json", status=0 if points else 1))
    (exercise,) = told["exercises"]
    assert (exercise["points"], exercise["max_points"]) == (points, 2)
    assert (exercise["diagnosis"] or {}).get("id") == named
