"""The text of kernels: what each says of itself, and that lessons arrive at it letter for letter."""

import ast
import json
import re
from pathlib import Path

import pytest

import helpers.softmax
from helpers import kernels
from helpers.attention import decode
from helpers.softmax import picks, taken_home, without_logits

# What is said of them

HELPERS = Path(helpers.__file__).parent
GLOSSARY = {
    name: line
    for line in re.split(r"\n(?=- |\n)", helpers.softmax.__doc__)
    for name in re.findall("`([A-Z]+(?:_[A-Z]+)*)`", line)
    if line.startswith("- ")
}
"""The meta-parameters that the kernels of helpers.softmax share, with the lines in which they are explained."""


def compiled_functions():
    """Every function that Triton compiles, but for the exhibits of helpers.lies, which stand as they were published."""
    for path in sorted(HELPERS.rglob("*.py")):
        if HELPERS / "lies" in path.parents:
            continue
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(d) for d in node.decorator_list):
                yield pytest.param(module, node, id=f"{path.relative_to(HELPERS)}, {node.name}")


def constants(kernel):
    return {a.arg for a in kernel.args.args if a.annotation and "constexpr" in ast.unparse(a.annotation)}


def test_the_meta_parameters_of_all_softmax_kernels_are_those_that_the_glossary_explains():
    kernels_folder = HELPERS / "softmax" / "kernels"
    modules = [ast.parse(path.read_text(encoding="utf-8")) for path in kernels_folder.glob("*.py")]
    functions = [node for module in modules for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    assert set().union(*map(constants, functions)) == set(GLOSSARY)


@pytest.mark.parametrize(("module", "kernel"), list(compiled_functions()))
def test_a_kernel_says_what_a_program_does_and_what_each_constexpr_is(module, kernel):
    said = ast.get_docstring(kernel) or ""
    about = " ".join(ast.get_docstring(module).split())
    shared = set(GLOSSARY) if "Letters as in `helpers.softmax`." in about else set()
    assert said and constants(kernel) - shared <= set(re.findall(r"\w+", said))


def test_a_file_of_kernels_contains_kernels_alone():
    for path in (HELPERS / "softmax" / "kernels").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                assert "triton." in " ".join(map(ast.unparse, node.decorator_list)), f"{path.name}: {node.name}"
            assert not isinstance(node, ast.ClassDef), path.name


# The lessons

WRITTEN_IN = {
    "single_tile_kernel": ("03_masking", "softmax_kernel"),
    "two_pass_kernel": ("04_two_pass", "softmax_kernel"),
    "online_kernel": ("05_online", "softmax_kernel"),
    "split_statistics_kernel": ("09_one_row_many_programs", "pairs_kernel"),
    "split_write_kernel": ("09_one_row_many_programs", "write_kernel"),
    "losses_kernel": ("10_the_loss_in_one_trip", "loss_kernel"),
    "losses_and_gradient_kernel": ("10_the_loss_in_one_trip", "both_kernel"),
}
"""Kernels of helpers/kernels.py: the solution that arrives at each of them, and its name there."""

WRITTEN_IN_NO_LESSON = {
    "copy_kernel": "lesson 02 writes it for contiguous rows of a power of two",
    "several_rows_kernel": "lesson 07 offers it for short rows",
    "persistent_kernel": "lesson 06 shows it",
}
STARTERS = {
    "    first, end = 0, 0",
    '    lse, o = -float("inf"), tl.zeros((BLOCK_D,), tl.float32)',
    "    shift, l = 0.0, 0.0",
    "    loss, lse = l, m",
    "    loss = 0.0",
    "    loss, grad = 0.0, tl.zeros([BLOCK], tl.float32)",
}
"""Lines with which a lesson's starter code runs, and which its answer overwrites."""


def kernels_in(text):
    """The kernels that a text defines: by name their lines, without name, docstring, nbgrader's marks and starters."""
    found, lines = {}, text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(d) for d in node.decorator_list):
            said = node.body[0] if ast.get_docstring(node) else None
            docstring = range(said.lineno, said.end_lineno + 1) if said else ()
            own = [lines[at - 1] for at in range(node.lineno, node.end_lineno + 1) if at not in docstring]
            own[0] = own[0].replace(node.name, "kernel")
            found[node.name] = [line for line in own if " SOLUTION" not in line and line not in STARTERS]
    return found


def test_each_kernel_is_written_in_a_lesson_or_known_to_be_written_in_none():
    own = kernels_in(Path(kernels.__file__).read_text(encoding="utf-8"))
    assert own.keys() == WRITTEN_IN.keys() | WRITTEN_IN_NO_LESSON.keys()


OF_ONE_LESSON = {
    decode: "12_one_query_at_a_time",
    picks: "14_one_token",
    without_logits: "15_logits_that_never_exist",
    taken_home: "16_in_your_own_project",
}
"""Files of kernels that one lesson arrives at."""


def solved_in(lesson):
    cells = json.loads((HELPERS.parent / "solutions" / f"{lesson}.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return {name: lines for text in texts if "@triton.jit" in text for name, lines in kernels_in(text).items()}


@pytest.mark.parametrize("file", OF_ONE_LESSON, ids=lambda file: file.__name__)
def test_the_kernels_of_a_file_are_letter_for_letter_what_its_lesson_arrives_at(file):
    own, solved = kernels_in(Path(file.__file__).read_text(encoding="utf-8")), solved_in(OF_ONE_LESSON[file])
    own = {name: [line.removesuffix("  # fmt: skip") for line in lines] for name, lines in own.items()}
    assert own == {name: solved[name] for name in own}


@pytest.mark.parametrize("name", WRITTEN_IN)
def test_a_kernel_is_letter_for_letter_what_its_lesson_arrives_at(name):
    lesson, there = WRITTEN_IN[name]
    assert kernels_in(Path(kernels.__file__).read_text(encoding="utf-8"))[name] == solved_in(lesson)[there]
