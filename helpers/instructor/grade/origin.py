"""Whose work an answer is: kernels of the course are known by what they do, whatever they and their parts are called.

A learner's process has none of them (sandbox/lent.py) where the walls hide files. Where they do not, this still tells a
kernel that was taken from there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from helpers import kernels
from helpers.instructor.sandbox import parser

_KERNELS = [Path(kernels.__file__), *Path(kernels.__file__).with_name("softmax").rglob("*.py")]
"""Where the course has its kernels."""


def is_borrowed(module: str, launched: Iterable[str], sources: Iterable[str]) -> bool:
    """Whether an answer is a function of `module` of the course, or launches a kernel of the course.

    `launched` are the texts of kernels, `sources` the learner's cells: everything in them is the learner's own.
    """
    return module.startswith("helpers") or bool(_bodies(launched) & _of_the_course() - _bodies(sources))


@cache
def _of_the_course() -> frozenset[str]:
    return frozenset(_bodies(path.read_text(encoding="utf-8") for path in _KERNELS))


def _bodies(texts: Iterable[str]) -> set[str]:
    """What the functions of these texts do, with names numbered as they come."""
    found = set()
    for text in texts:
        with suppress(parser.NotPython), parser.reading():
            tree = parser.tree_of(parser.as_python(text))
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and not _is_long(node)]
            found |= {_Numbered().body_of(function) for function in functions}
            found |= _bodies(_written(tree))
    return found


_MOST_NODES = 10_000
"""Nodes of a function's syntax tree; the course's longest kernel has some hundreds."""


def _is_long(function: ast.FunctionDef) -> bool:
    """Whether no kernel of the course is so long: functions within functions would be read again and again."""
    return next(islice(ast.walk(function), _MOST_NODES, None), None) is not None


def _written(tree: ast.Module) -> Iterator[str]:
    """The programs that a program has as text, such as a module that a cell writes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "def " in node.value:
            yield node.value


class _Numbered(ast.NodeTransformer):
    """Gives the variables of a function numbers for names, and leaves out its docstring and its hints."""

    def __init__(self) -> None:
        self.numbers: dict[str, str] = {}

    def body_of(self, function: ast.FunctionDef) -> str:
        """The statements of a function, which is left as it is."""
        copy = ast.parse(ast.unparse(function)).body[0]
        first, *rest = copy.body
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        arguments = [self.visit(argument) for argument in ast.walk(copy.args) if isinstance(argument, ast.arg)]
        statements = [self.visit(statement) for statement in (rest if is_text and rest else copy.body)]
        return ast.unparse(ast.Module([ast.Expr(ast.Constant(len(arguments))), *statements], []))

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """A variable."""
        return ast.Name(self._number(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """A parameter."""
        return ast.arg(self._number(node.arg))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """An assignment with a hint, as one without."""
        return self.visit(ast.Assign([node.target], node.value, lineno=0)) if node.value else ast.Pass()

    def _number(self, name: str) -> str:
        return self.numbers.setdefault(name, f"v{len(self.numbers)}")
