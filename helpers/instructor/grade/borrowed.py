"""Whose work an answer is: kernels of the course are known by their text, whatever they say of themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from helpers import kernels
from helpers.instructor.sandbox import cells

_KERNELS = [Path(kernels.__file__), *Path(kernels.__file__).with_name("softmax").glob("*.py")]
"""Where the course has its kernels."""


def is_borrowed(module: str, launched: Iterable[str], sources: Iterable[str]) -> bool:
    """Whether an answer is a function of `module` of the course, or launches a kernel of the course.

    `launched` are the texts of kernels, `sources` those of the learner's cells: what stands there is the learner's own.
    """
    return module.startswith("helpers") or bool(_bodies(launched) & _of_the_course() - _bodies(sources))


@cache
def _of_the_course() -> frozenset[str]:
    return frozenset(_bodies(path.read_text(encoding="utf-8") for path in _KERNELS))


def _bodies(texts: Iterable[str]) -> set[str]:
    """What the functions of these texts do, whatever they are called."""
    found = set()
    for text in texts:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            nodes = ast.walk(ast.parse(cells.as_python(text)))
            found |= {ast.unparse(_without_docstring(node)) for node in nodes if isinstance(node, ast.FunctionDef)}
    return found


def _without_docstring(function: ast.FunctionDef) -> ast.Module:
    first, *rest = function.body
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return ast.Module(rest if is_text and rest else function.body, [])
