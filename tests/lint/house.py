"""The rules of the house: what stands at its top, one meaning for each name, private parts of others, long tests."""

import ast
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 500

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

WINGS = {"engine", "instructor", "make", "measure"}
"""What lies at the top of helpers although no lesson imports it: rooms for the other users."""

SAME_MEANING = {
    "CHECKOUT": "the folder of this repository, for programs that start before the course is installed",
    "EXERCISES": "exercises: those of a lesson, and of all lessons",
    "Launch": "how a kernel is launched: in choosing a variant and its numbers, in softmax all arguments by name",
    "c": "the object that a configuration of JupyterHub and nbgrader fills",
    "count": "counts what a function moves: between memory and programs, or between ranks",
    "cross_entropy": "the loss of logits and classes: of whole rows, and of rows that lie over several ranks",
    "main": "what a module does when it is started as a program",
    "merge": "exercise 5.1: its check, and the course's answer to it",
    "merge_kernel": "merges what the parts of a row have left: sums of a softmax, or the sums and values of attention",
    "run": "has several run that may wait for each other: programs on a GPU of paper, or ranks",
    "show": "what a lesson calls to see the room of its name: the picker, or the page that is kept",
    "softmax": "the softmax: of whole rows, and of rows that lie over several ranks",
}
"""The public names that several modules define, and the one meaning that they have in all of them."""

PRIVATE_PARTS = {
    "Triton": (
        re.compile(r"triton\.(_C|backends|compiler|runtime)\b"),
        {"engine/compiled.py", "engine/frontend.py", "engine/interpreter.py"},
    ),
    "torch": (re.compile(r"torch\.(?!ops\.|_check$)(\w+\.)*_(?!_)"), {"engine/torch_parts.py"}),
}
"""How the private parts of each are called, and the files that may use them: of Triton, two for its compiler and one
for its interpreter. torch documents its operators, and torch._check."""


def defined(source: str) -> set[str]:
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


def top_of_repository(root: Path) -> Iterator[str]:
    """At the top lie the course and what tools look for there. A copy without git does not know what belongs to it."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True)
    top = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    if not listed.returncode:
        yield from (f"{name}: not in COURSE or TOOLS, or no longer there" for name in top ^ (COURSE | set(TOOLS)))


def imported_by_lessons(root: Path) -> set[str]:
    """What stands at the top of helpers and is imported in a cell of a lesson."""
    names = set()
    for path in sorted((root / "lessons").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for node in ast.walk(ast.parse("".join(cell["source"]))) if cell["cell_type"] == "code" else ():
                if isinstance(node, ast.ImportFrom) and node.module == "helpers":
                    names |= {name.name for name in node.names if find_spec(f"helpers.{name.name}")}
                elif isinstance(node, ast.ImportFrom) and node.module.startswith("helpers."):
                    names.add(node.module.split(".")[1])
                elif isinstance(node, ast.Import):
                    names |= {name.name.split(".")[1] for name in node.names if name.name.startswith("helpers.")}
    return names


def top_of_helpers(root: Path) -> Iterator[str]:
    """At the top of helpers lie what lessons import, and the wings."""
    top = {path.stem for path in (root / "helpers").iterdir() if not path.name.startswith(("_", "."))}
    for name in top ^ imported_by_lessons(root) ^ WINGS:
        yield f"helpers/{name}: a lesson imports what lies at the top of helpers, and nothing else lies there"


def doubled_names(root: Path) -> Iterator[str]:
    """A public name is defined in one module, or means the same in each."""
    modules = defaultdict(list)
    for path in sorted((root / "helpers").rglob("*.py")):
        for name in defined(path.read_text(encoding="utf-8")):
            modules[name].append(str(path.relative_to(root)))
    doubled = {name: paths for name, paths in modules.items() if len(paths) > 1}
    for name in doubled.keys() ^ SAME_MEANING.keys():
        yield f"{name}: defined in {', '.join(modules[name])}; SAME_MEANING has the names with one meaning in several"


_NAMING = "Mistake", "Diagnosis", "mistake"
"""What makes a mistake of an id."""


def doubled_mistakes(root: Path) -> Iterator[str]:
    """The id of a mistake stands in one place: whoever recognises it by something else takes its name from there."""
    places = defaultdict(list)
    for path in sorted((root / "helpers" / "check").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in _NAMING
            if named and node.args and isinstance(node.args[0], ast.Constant):
                places[node.args[0].value].append(str(path.relative_to(root)))
    for mistake, paths in places.items():
        if len(paths) > 1:
            yield f"{mistake}: defined in {', '.join(paths)}"


def used(source: str) -> set[str]:
    """The whole dotted names that a module imports, takes from what it has imported, or has in a string."""
    names, stands_for = set(), {}
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            whole = {alias.asname or alias.name: of + alias.name for alias in node.names}
            names |= set(whole.values())
            stands_for |= {name: value for name, value in whole.items() if "." not in name}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            attributes, value = [], node
            while isinstance(value, ast.Attribute):
                attributes, value = [value.attr, *attributes], value.value
            first = getattr(value, "id", "")
            names.add(".".join([stands_for.get(first, first), *attributes]))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def private_parts(root: Path) -> Iterator[str]:
    """What touches a private part of Triton or torch lies in few files."""
    for path in sorted((root / "helpers").rglob("*.py")):
        name, names = path.relative_to(root / "helpers").as_posix(), used(path.read_text(encoding="utf-8"))
        for whose, (private, faces) in PRIVATE_PARTS.items():
            if name not in faces and (found := sorted(filter(private.match, names))):
                yield f"helpers/{name}: {found[0]} is a private part of {whose}, for {', '.join(sorted(faces))} alone"


def long_test_files(root: Path) -> Iterator[str]:
    """A file of tests with more lines has several concerns."""
    for path in sorted((root / "tests").rglob("test_*.py")):
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > MOST_LINES:
            yield f"{path.relative_to(root)}: {lines} lines, more than {MOST_LINES}"


def one_letter_for_the_sum(root: Path) -> Iterator[str]:
    """The sum of exp(x − m) is l in code, texts and pictures; formulas have LaTeX's ell."""
    paths = [
        *(root / "helpers").rglob("*.py"),
        *(root / "helpers").rglob("*.md"),
        *(root / "solutions").glob("*.ipynb"),
    ]
    for path in sorted(paths):
        if "\N{SCRIPT SMALL L}" in path.read_text(encoding="utf-8"):
            yield f"{path.relative_to(root)}: the sum is l, and in a formula \\ell"


RULES = (
    top_of_repository,
    top_of_helpers,
    doubled_names,
    doubled_mistakes,
    private_parts,
    long_test_files,
    one_letter_for_the_sum,
)
