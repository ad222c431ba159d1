"""The house of `helpers/`: what stands at its top, that a name has one meaning, and the names of the first edition."""

import ast
import json
import re
import subprocess
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HELPERS = ROOT / "helpers"
MOST_LINES = 500

WINGS = {"engine", "gpu", "instructor", "make", "measure", "recorded"}
"""What lies at the top of helpers although a lesson need not import it: rooms for whoever else uses them."""

SAME_MEANING = {
    "CHECKOUT": "the folder of this repository, for programs that start before the course is installed",
    "EXERCISES": "exercises: those of a lesson, and of all lessons",
    "c": "the object that a configuration of JupyterHub and nbgrader fills",
    "main": "what a module does when it is started as a program",
    "merge": "exercise 5.1: its check, and the course's answer to it",
}
"""The public names that several modules define, and the one meaning that they have in all of them."""


def defined(source):
    """The public functions, classes and constants at the top of a module."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in filter(None, targets):
            parts = [part for part in ast.walk(target) if isinstance(part, ast.Name)]
            names |= {part.id for part in parts if isinstance(part.ctx, ast.Store)}
    return {name for name in names if not name.startswith("_")}


def doubled():
    """The public names that several modules of helpers define, each with these modules."""
    modules = defaultdict(list)
    for path in sorted(HELPERS.rglob("*.py")):
        for name in defined(path.read_text(encoding="utf-8")):
            modules[name].append(str(path.relative_to(HELPERS)))
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def imported_by_lessons():
    """What stands at the top of helpers and is imported in a cell of a lesson."""
    names = set()
    for path in sorted((ROOT / "lessons").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            nodes = ast.walk(ast.parse("".join(cell["source"]))) if cell["cell_type"] == "code" else ()
            for node in nodes:
                if isinstance(node, ast.ImportFrom) and node.module == "helpers":
                    names |= {name.name for name in node.names if find_spec(f"helpers.{name.name}")}
                elif isinstance(node, ast.ImportFrom) and node.module.startswith("helpers."):
                    names.add(node.module.split(".")[1])
                elif isinstance(node, ast.Import):
                    names |= {name.name.split(".")[1] for name in node.names if name.name.startswith("helpers.")}
    return names


# What stands at the top

COURSE = {"README.md", "environment.yml", "lessons", "solutions", "helpers", "tests"}
TOOLS = {
    ".ci": "what runs everything on a bare machine",
    ".devcontainer": "VS Code and Codespaces look for it here, and the container is built from it",
    ".github": "a forge looks here for workflows, CONTRIBUTING and SECURITY",
    ".gitattributes": "git",
    ".gitignore": "git",
    ".vscode": "VS Code",
    "AGENTS.md": "assistants read it at the top",
    "CHANGELOG.md": "what has moved, for those who update",
    "CITATION.cff": "forges and Zenodo look for it here",
    "LICENSE": "of the code: whoever takes the course over looks for it here",
    "LICENSE-TEXT": "of notebooks and texts, beside it",
    "Makefile": "make",
    "pyproject.toml": "pip, uv, pytest, ruff",
}
"""The files of tools that must stand beside the course, and who looks for them there."""


def test_the_top_of_the_repository_holds_the_course_and_what_tools_look_for_there():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this copy has no git, which knows what belongs to the repository")
    assert {line.partition("/")[0] for line in listed.stdout.splitlines()} == COURSE | set(TOOLS)


def test_the_top_of_helpers_holds_what_lessons_import_and_the_wings():
    top = {path.stem for path in HELPERS.iterdir() if not path.name.startswith(("_", "."))}
    assert top == imported_by_lessons() | WINGS


# One name, one meaning


def test_a_public_name_is_defined_in_one_module_unless_it_means_the_same_in_each():
    assert {name: modules for name, modules in doubled().items() if name not in SAME_MEANING} == {}


def test_every_name_that_may_be_defined_twice_is():
    assert set(SAME_MEANING) - set(doubled()) == set()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(): pass", {"f"}),
        ("async def f(): pass", {"f"}),
        ("class C:\n    x = 1", {"C"}),
        ("A, (B, C) = 1, (2, 3)", {"A", "B", "C"}),
        ("A: int = 1", {"A"}),
        ("for A in (1, 2):\n    pass", {"A"}),
        ("a.b, c[0] = 1, 2", set()),
        ("_A = 1\ndef _f(): pass", set()),
        ("import a\nfrom b import c", set()),
        ("def f():\n    A = 1", {"f"}),
    ],
    ids=["function", "async", "class", "tuple", "annotated", "loop", "of another", "private", "imported", "inner"],
)
def test_what_a_module_defines_is_found(source, names):
    assert defined(source) == names


# Private parts of Triton


def test_private_parts_of_triton_are_imported_in_one_file_for_its_interpreter_and_two_for_its_compiler():
    private = re.compile(r"(?:from |import |\")triton\.(?:_C|backends|compiler|runtime)\b")
    files = {path for path in HELPERS.rglob("*.py") if private.search(path.read_text(encoding="utf-8"))}
    names = {f"engine/{name}.py" for name in ("compiled", "frontend", "interpreter")}
    assert {path.relative_to(HELPERS).as_posix() for path in files} == names


# The tests


def test_no_file_of_tests_has_so_many_lines_that_it_has_several_concerns():
    files = {path for path in (ROOT / "tests").rglob("*.py") if "proofs" not in path.parts}
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}
