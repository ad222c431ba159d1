"""The values that a text may write down outside of its kernels: numbers, words, and arithmetic on them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

_LONGEST = 1_000
"""Characters of a word."""
_LARGEST = 1 << 1024
"""Of a whole number: no tile, stride or seed is larger."""

_OPERATORS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.inv,
}  # fmt: skip


class NotConstant(ValueError):
    """Something other than a number or a word is written, or too large a one."""


def value_of(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The value that an expression of literals and of `known` constants has. Nothing else is evaluated.

    Raises NotConstant for any other expression.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str | None):
        return _modest(node.value)
    if isinstance(node, ast.Name) and node.id in known:
        return known[node.id]
    if isinstance(node, ast.Tuple):
        return tuple(value_of(item, known) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not value_of(node.operand, known)
    if isinstance(node, ast.UnaryOp):
        return _modest(_calculated(node.op, value_of(node.operand, known)))
    if isinstance(node, ast.BinOp):
        return _modest(_calculated(node.op, value_of(node.left, known), value_of(node.right, known)))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and len(node.args) == 1 and not node.keywords:
        return _calculated(float, value_of(node.args[0], known))
    raise NotConstant(f"`{ast.unparse(node)[:80]}` is not a number or a word, where one must be written down")


def _calculated(op: Any, *values: Any) -> Any:
    work = float if op is float else _OPERATORS.get(type(op))
    if work is None or (op is not float and not all(isinstance(value, int | float) for value in values)):
        raise NotConstant("arithmetic on something other than numbers")
    if work in (operator.pow, operator.lshift) and not (abs(values[0]) < 1 << 64 and abs(values[1]) <= 1024):
        raise NotConstant("a number that is too large")
    try:
        return work(*values)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise NotConstant(f"a number that cannot be calculated: {error}") from None


def _modest(value: Any) -> Any:
    if isinstance(value, str) and (
        len(value) > _LONGEST or not value.replace("\n", "").replace("\t", "").isprintable()
    ):
        raise NotConstant("a text that is too long, or has characters that cannot be printed")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise NotConstant("a number that is too large")
    if isinstance(value, complex):
        raise NotConstant("a complex number")
    return value
