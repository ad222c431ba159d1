"""Parses what learners have written: every text is read, or is NotPython, and nothing else is raised.

The tools that read Python and Jupyter's magics raise more than a SyntaxError: RecursionError, MemoryError, ValueError
(ast, symtable), IndexError and RuntimeError (IPython). A text that makes them raise is its author's mistake, and never
a failure of the grader.
"""

from __future__ import annotations

import ast
import re
import symtable
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from IPython.core.inputtransformer2 import TransformerManager


class NotPython(ValueError):
    """A text that cannot be read; says why, and has the number of the line, or 0 if that is not known."""

    def __init__(self, why: str, line: int = 0) -> None:
        super().__init__(why)
        self.line = line


@contextmanager
def reading(*others: type[Exception]) -> Iterator[None]:
    """Raises, in place of any exception in the block that is none of `others`, NotPython. Warnings are not shown."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except (NotPython, *others):
        raise
    except SyntaxError as error:
        raise NotPython(error.msg or "invalid syntax", error.lineno or 0) from None
    except Exception as error:
        raise NotPython(f"{type(error).__name__}: {error}".removesuffix(": ")) from None


def with_line_ends(text: str) -> str:
    """The text with every line ended as Python ends it: a carriage return ends one too, alone or before a line feed."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def tree_of(text: str) -> ast.Module:
    """The syntax tree of a text. Raises NotPython."""
    with reading():
        return ast.parse(text)


def names_of(text: str) -> symtable.SymbolTable:
    """Python's table of the names of a text. Raises NotPython."""
    with reading():
        return symtable.symtable(text, "<cell>", "exec")


def untimed(cell: str) -> str:
    """A cell without a first line `%%time` or `%%capture`: under it Jupyter hides the source of kernels."""
    return re.sub(r"\A\s*%%(time|capture)\b[^\n]*", "", cell)


_MOST_WORK = 300_000
"""Characters that IPython may read of one cell: it reads all of it again for each magic, some 200,000 a second."""
_MAGIC = re.compile(r"^[ \t]*[%!?,;/]|=[ \t]*[%!]|\?[ \t]*$", re.MULTILINE)


def as_python(cell: str) -> str:
    """A cell with Jupyter's magics as the calls that they stand for. Raises NotPython, with the line."""
    found = _as_python(cell)
    if isinstance(found, NotPython):
        raise NotPython(str(found), found.line)
    return found


@lru_cache(maxsize=4_096)
def _as_python(cell: str) -> str | NotPython:
    text = untimed(with_line_ends(cell))
    magics = list(_MAGIC.finditer(text))
    if len(text) * len(magics) > _MOST_WORK:
        return NotPython(
            "these magics in a cell of this length are not read", 1 + text.count("\n", 0, magics[0].start())
        )
    lines = text.split("\n")
    try:
        return _transformed(lines)
    except NotPython as error:
        return NotPython(str(error), error.line or _first_unreadable(lines))


def _transformed(lines: list[str]) -> str:
    with reading():
        return TransformerManager().transform_cell("\n".join(lines))


def _first_unreadable(lines: list[str]) -> int:
    """The number of a line up to which a cell cannot be transformed, while it can be up to the line before."""
    can, cannot = 0, len(lines)
    while cannot - can > 1:
        middle = (can + cannot) // 2
        try:
            _transformed(lines[:middle])
            can = middle
        except NotPython:
            cannot = middle
    return cannot
