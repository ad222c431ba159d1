"""Cells of a notebook whose last run failed: the names they were to define still have an earlier value, or none.

IPython tells this module of every cell that has run. Elsewhere nothing is known, and nothing is said.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import partial
from types import CodeType
from typing import Any

_said: dict[str, str] = {}
"""By name: what ended the last run of the cell that was to define it."""
_running = ""
"""The text of the cell that runs now."""

_DEFINES = re.compile(r"^\s*(?:async\s+)?(?:[def]{2,4}|class)\s+(\w+)|^(\w+)\s*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
"""A definition in a text that Python cannot parse; its `def` may be the misspelt word."""


def watch() -> None:
    """Has IPython tell of every cell from now on, if this process is a notebook's."""
    shell = _shell()
    if shell is not None:
        shell.events.register("pre_run_cell", _begins)
        shell.events.register("post_run_cell", _has_run)


def earlier_version(check: str, answer: Any) -> str:
    """The sentences that say that `answer`, given to check.`check`, is an earlier version; "" if it is not."""
    for name in _names(check, answer):
        if name in _said:
            return (
                f"The last run of the cell that defines {name} failed: {_said[name]}. Judged here is an "
                "earlier version. Repair that cell, run it, and then run this check again."
            )
    return ""


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _begins(info: Any) -> None:
    global _running
    _running = info.raw_cell


def _has_run(result: Any) -> None:
    error = result.error_before_exec or result.error_in_exec
    text = result.info.raw_cell
    text = text.partition("\n")[2] if text.startswith("%%") else text
    reached = _line(error) if error is not None else 0
    for name, last_line in _defined(text):
        if error is not None and last_line >= reached:
            _said[name] = _words(error, text, reached)
        else:
            _said.pop(name, None)
    name = getattr(error, "name", None) if isinstance(error, NameError) else None
    if name in _said and name not in dict(_defined(text)):
        print(
            f"{name} has no value yet: the last run of the cell that defines it failed: {_said[name]}. Repair that "
            "cell, run it, and then run this one again."
        )


def _line(error: BaseException) -> int:
    """The line of the cell that the run has reached; 0 if nothing of it has run."""
    if isinstance(error, SyntaxError):
        return 0
    shell, traceback = _shell(), error.__traceback__
    while traceback is not None:
        if shell is not None and traceback.tb_frame.f_globals is shell.user_global_ns:
            return traceback.tb_lineno
        traceback = traceback.tb_next
    return 0


def _words(error: BaseException, text: str, line: int) -> str:
    """The type of an error, what it says, and the line of the cell that it is about, if it is known."""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    said = ": ".join(filter(None, [type(error).__name__, " ".join(str(said).split())[:200]])).rstrip(".")
    number = (error.lineno or 0) if isinstance(error, SyntaxError) else line
    lines = text.splitlines()
    return f"{said} (line {number}: `{lines[number - 1].strip()[:160]}`)" if 0 < number <= len(lines) else said


def _defined(text: str) -> Iterator[tuple[str, int]]:
    """The names that a cell's text defines at its top level, each with the last line of the statement."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        for found in _DEFINES.finditer(text):
            yield found[1] or found[2], text.count("\n", 0, found.start()) + 1
        return
    for statement in statements:
        for name in _bound(statement):
            yield name, statement.end_lineno or 0


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif not isinstance(node, ast.Lambda):
        for part in ast.iter_child_nodes(node):
            yield from _bound(part)


def _names(check: str, answer: Any) -> Iterator[str]:
    """The names under which the notebook knows an answer, and the names that its functions and kernels use."""
    yield from re.findall(rf"\b{check}\(\s*(\w+)", _running)
    waiting, seen = [answer], set()
    while waiting:
        one = waiting.pop(0)
        one = one.func if isinstance(one, partial) else getattr(one, "fn", one)
        code = getattr(one, "__code__", None)
        if not isinstance(code, CodeType) or id(one) in seen or str(one.__module__).partition(".")[0] == "helpers":
            continue
        seen.add(id(one))
        for name in (one.__name__, *code.co_names):
            yield name
            waiting.append(one.__globals__.get(name))
