"""Renames what a kernel calls by the name of one of Python's builtins, such as max, sum and input.

Learners may use such names. Text that is sent to another process does not bind them, so its reader knows what max is.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Set
from typing import Any


def carried(name: str) -> str:
    """The name by which a kernel's own variable, parameter or global is sent: max_ for max."""
    return f"{name}_" if hasattr(builtins, name) else name


def without_shadows(function: ast.FunctionDef, around: Mapping[str, Any]) -> ast.FunctionDef:
    """The function with its own names `carried`; `around` has the globals that it sees, and what it captures.

    Raises ValueError if the function already has a variable of the other name.
    """
    own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)} | _assigned(function.body)
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} | own
    shadows = {name for name in names if _is_shadow(name, own, around)}
    for name in shadows:
        if carried(name) in names:
            raise ValueError(f"the kernel {function.name} has the names {name} and {carried(name)}; rename one of them")
    return _Renamed(shadows, around).visit(function)


def _is_shadow(name: str, own: Set[str], around: Mapping[str, Any]) -> bool:
    builtin = getattr(builtins, name, None)
    return hasattr(builtins, name) and (name in own or around.get(name, builtin) is not builtin)


def _assigned(body: list[ast.stmt]) -> set[str]:
    """The names that statements bind, without the variables of comprehensions."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.comprehension):
            waiting += [node.iter, *node.ifs]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return found


class _Renamed(ast.NodeTransformer):
    def __init__(self, shadows: Set[str], around: Mapping[str, Any]) -> None:
        self.shadows, self.around = shadows, around

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.shadows:
            node.id = carried(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = carried(node.arg)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        targets = {one.id for loop in node.generators for one in ast.walk(loop.target) if isinstance(one, ast.Name)}
        inside = _Renamed(self.shadows | {name for name in targets if hasattr(builtins, name)}, self.around)
        node.generators[0].iter = self.visit(node.generators[0].iter)
        first, node.generators[0].iter = node.generators[0].iter, ast.Constant(None)
        made = inside.generic_visit(node)
        made.generators[0].iter = first
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = self.around.get(node.func.id) if isinstance(node.func, ast.Name) else None
        where = getattr(getattr(called, "fn", None), "__module__", None) or "triton"
        if not where.startswith("triton."):
            for keyword in node.keywords:
                keyword.arg = keyword.arg and carried(keyword.arg)
        return self.generic_visit(node)
