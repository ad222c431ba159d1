"""Reads a notebook that may be anything, and says on which of its cells an answer depends."""

from __future__ import annotations

import ast
import json
import symtable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from helpers.instructor.sandbox import parser

MOST_CELLS = 2_000
LONGEST_CODE = 1 << 20
"""Characters of code that all cells of a notebook may have together."""


class Unreadable(ValueError):
    """The file is not a notebook."""


def read_cells(content: bytes) -> list[dict[str, Any]]:
    """The code cells of a notebook, of any version of the format: their source, and of nbgrader's marks id and kind.

    A cell that was handed out as code and is text now is one of them, as it is for nbgrader.

    Raises Unreadable. Outputs, ids and everything else are left behind.
    """
    if not content.strip():
        raise Unreadable("the file is empty")
    try:
        notebook = json.loads(content, parse_int=str)  # of any length; no number of a notebook is computed with
        sheets = notebook.get("worksheets") or [notebook]  # version 3 and older
        cells = [cell for sheet in sheets for cell in sheet["cells"] if _is_code(cell)]
        found = [_read_cell(cell) for cell in cells]
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except MemoryError:
        raise Unreadable("it is too large") from None
    except ValueError as error:
        raise Unreadable(f"it is not JSON, as a notebook is ({error})"[:200]) from None
    except Exception:  # anything that JSON can hold may stand where a notebook has its cells
        raise Unreadable("it is JSON, but not that of a notebook") from None
    if len(found) > MOST_CELLS or sum(len(cell["source"]) for cell in found) > LONGEST_CODE:
        raise Unreadable(f"more than {MOST_CELLS:,} cells or {LONGEST_CODE:,} characters of code")
    return found


def _is_code(cell: dict[str, Any]) -> bool:
    return "code" in (cell.get("cell_type"), _marks(cell).get("cell_type"))


def _marks(cell: dict[str, Any]) -> dict[str, Any]:
    """nbgrader's marks of a cell, where there are any."""
    marks = (cell.get("metadata") or {}).get("nbgrader")
    return marks if isinstance(marks, dict) else {}


def _read_cell(cell: dict[str, Any]) -> dict[str, Any]:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    marks = _marks(cell)
    return {
        "source": parser.with_line_ends(text),
        "grade_id": str(marks.get("grade_id", "")),
        "grade": marks.get("grade") is True,
        "solution": marks.get("solution") is True,
    }


@dataclass(frozen=True)
class _Names:
    """What a cell does with names of the notebook: those it binds, those it changes, those it reads."""

    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]
    imports: frozenset[str] = frozenset()
    everything: bool = False
    """It imports a module's names with a star."""


def needed(sources: Sequence[str], answer: str, own: Sequence[int] = ()) -> list[int]:
    """The cells that bind or change a name on which `answer` or one of the cells `own` depends, directly or not, in
    order, and these cells themselves.

    A cell that is no Python binds nothing.
    """
    names = [_names(source) for source in sources]
    modules = frozenset[str]().union(*(cell.imports for cell in names))
    wanted, chosen = {answer}.union(*(names[index].reads for index in own)), set(own)
    while True:
        more = {
            index
            for index, cell in enumerate(names)
            if index not in chosen and (cell.everything or wanted & (cell.binds | cell.changes - modules))
        }
        if not more:
            return sorted(chosen)
        chosen |= more
        wanted |= {name for index in more for name in names[index].reads}


def bound(source: str) -> frozenset[str]:
    """The names that a cell binds; none where it is not Python."""
    return _names(source).binds


def names_read(source: str) -> frozenset[str]:
    """The names of the notebook that a cell reads; none where it is not Python."""
    return _names(source).reads


def _names(source: str) -> _Names:
    try:
        text = parser.as_python(source)
        tree, table = parser.tree_of(text), parser.names_of(text)
    except parser.NotPython:
        return _Names(frozenset(), frozenset(), frozenset())
    top = {symbol.get_name(): symbol for symbol in table.get_symbols()}
    binds = {name for name, symbol in top.items() if symbol.is_assigned() or symbol.is_imported()}
    reads = {name for name, symbol in top.items() if symbol.is_referenced()}
    for inner in _below(table):
        for symbol in inner.get_symbols():
            if symbol.is_global():
                (binds if symbol.is_assigned() else reads).add(symbol.get_name())
    imports = frozenset(name for name, symbol in top.items() if symbol.is_imported())
    return _Names(frozenset(binds), frozenset(_changed(tree)), frozenset(reads), imports, _has_star(tree))


def _below(table: symtable.SymbolTable) -> list[symtable.SymbolTable]:
    return [inner for child in table.get_children() for inner in (child, *_below(child))]


def _changed(tree: ast.Module) -> set[str]:
    """Names whose objects a cell changes at its top level: assigned into, deleted from, or a method called of."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(_base(node))
    for statement in tree.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                found.add(_base(node.value.func) if isinstance(node.value.func, ast.Attribute) else "")
    return found - {""}


def _base(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _has_star(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
