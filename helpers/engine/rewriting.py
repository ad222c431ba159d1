"""Gives the interpreter the meaning that Triton's compiler gives to a kernel's text.

The interpreter runs a kernel as Python, and sometimes Python means something else: `a and b` of two tiles is the second
tile, and so is `max(a, b)`; the variable of a loop is an int without `.to`, and so are the numbers of a tuple. The
interpreter also does not replace names that are imported from triton.language, and loses what a kernel captures.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MEANING = "__compiled_meaning"
_FACTORY = "__factory"


class _AsCompiled(ast.NodeTransformer):
    """Replaces what the compiler understands in another way than Python by calls of the Meaning of that name."""

    def __init__(self, scope: Mapping[str, Any], own: frozenset[str]) -> None:
        self.scope = scope
        self.own = own

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        node.value = _call("value", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and "constexpr" not in ast.unparse(node.annotation):
            node.value = _call("value", node.value)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        present = ast.Name(id=node.target.id, ctx=ast.Load())
        made = ast.Assign([node.target], _call("value", ast.BinOp(present, node.op, node.value)))
        return ast.copy_location(made, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        method = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        return _call("logical", ast.Constant(method), *(ast.Lambda(nothing, value) for value in node.values))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) == 1:  # a chain is one that Triton takes from 3.9 on
            return self.generic_visit(node)
        terms = [node.left, *node.comparators]
        pairs = zip(terms[:-1], node.ops, terms[1:], strict=True)
        links = [ast.Compare(copy.deepcopy(left), [op], [copy.deepcopy(right)]) for left, op, right in pairs]
        return self.visit(ast.BoolOp(ast.And(), links))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call("negation", node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not isinstance(node.ctx, ast.Load) or node.id in self.own:
            return node
        value = self.scope.get(node.id, getattr(builtins, node.id, None))
        if any(value is known for known in (builtins.range, builtins.max, builtins.min)):
            return _meaning(node.id)
        where = getattr(value, "__module__", None) or ""
        if callable(value) and where.startswith("triton.language.") and isinstance(value, type | types.FunctionType):
            return ast.Attribute(_meaning("language"), value.__name__, ast.Load())
        return node


def _meaning(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(_MEANING, ast.Load()), name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(_meaning(name), list(args), [])


class Meaning:
    """What a rewritten kernel calls; `language` is triton.language and `semantic` makes its tensors."""

    def __init__(self, language: Any, semantic: Any) -> None:
        self.language = language
        self.semantic = semantic

    def value(self, value: Any) -> Any:
        """What a name holds after it was assigned: numbers are tensors, also in a tuple, and a list is a tuple."""
        if type(value) in (list, tuple):
            return tuple(map(self.value, value))
        return self.semantic.to_tensor(value, False)

    def logical(self, method: str, *operands: Callable[[], Any]) -> Any:
        """`and` or `or`: all tensors take part, element by element; a constant that decides ends it."""
        tensors, value = [], None
        for operand in operands:
            value = operand()
            if isinstance(value, self.language.tensor):
                tensors.append(value)
            elif bool(value) is (method == "logical_or"):
                return value
        while len(tensors) > 1:
            last = tensors.pop()
            tensors[-1] = getattr(tensors[-1], method)(last)
        return tensors[0] if tensors else value

    def negation(self, value: Any) -> Any:
        """`not`: of a tensor, element by element."""
        return value.__not__() if isinstance(value, self.language.tensor) else not value

    def range(self, start: Any, stop: Any = None, step: Any = 1, **options: Any) -> Iterator[Any]:
        """Python's range and Triton's: the variable of the loop is a tensor, int32 unless a bound is wider."""
        bounds = (0, start, step) if stop is None else (start, stop, step)
        types = [self.semantic.to_tensor(bound).dtype for bound in bounds]
        wide = functools.reduce(self.semantic.integer_promote_impl, types)
        for i in builtins.range(*map(int, bounds)):
            yield self.semantic.cast(self.semantic.to_tensor(i), wide)

    def max(self, *values: Any, **kwargs: Any) -> Any:
        """The largest, element by element where one is a tensor."""
        return self._chosen("max", values, kwargs)

    def min(self, *values: Any, **kwargs: Any) -> Any:
        """The smallest, element by element where one is a tensor."""
        return self._chosen("min", values, kwargs)

    def _chosen(self, name: str, values: tuple, kwargs: dict[str, Any]) -> Any:
        if any(isinstance(value, self.language.tensor) for value in values):
            return getattr(self.language.core, f"builtin_{name}")(*values, **kwargs)
        return getattr(builtins, name)(*values, **kwargs)


def rewritten(function: types.FunctionType, tree: ast.Module, filename: str, meaning: Meaning) -> types.FunctionType:
    """The function that `tree` defines, with the globals, the defaults and the captured variables of `function`.

    `tree` is the text of `function` without decorators, its lines numbered as in `filename`.
    """
    captured = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    scope = function.__globals__ | {name: cell.cell_contents for name, cell in captured.items()}
    definition = tree.body[0]
    own = frozenset(function.__code__.co_varnames + function.__code__.co_cellvars)
    definition.body = [_AsCompiled(scope, own).visit(statement) for statement in definition.body]
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    definition.args.defaults = [ast.Constant(None) for _ in definition.args.defaults]
    definition.args.kw_defaults = [default and ast.Constant(None) for default in definition.args.kw_defaults]
    factory = ast.parse(f"def {_FACTORY}({', '.join((_MEANING, *captured))}):\n    return {definition.name}")
    factory.body[0].body.insert(0, definition)
    namespace: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(factory), filename, "exec"), function.__globals__, namespace)
    made = namespace[_FACTORY](meaning, *(cell.cell_contents for cell in captured.values()))
    made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made
