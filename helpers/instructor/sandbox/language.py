"""Which text is a kernel in Triton's language, and nothing else: it may then run where traffic is counted.

The interpreter runs a kernel as Python, which could do anything. A GPU's compiler knows the same functions as a small
language: arithmetic, loops, conditions, and the names of `triton.language`. What is more than that is refused.
"""

from __future__ import annotations

import ast
import builtins
import math
from typing import Any

import triton
import triton.language as tl

from helpers.engine import kernel_text

LONGEST_KERNEL = 100_000
"""Characters that the text of a kernel may have."""


class NotTriton(ValueError):
    """The text says something that Triton's language does not have."""


_MODULES = {"triton": triton, "triton.language": tl, "triton.language.math": tl.math, "math": math}
_BUILTINS = {
    "range", "min", "max", "abs", "len", "list", "tuple", "float", "int", "bool", "isinstance", "print", "str",
}  # fmt: skip
_OF_VALUES = {name for name in vars(tl.tensor) if not name.startswith("_")} - {"handle"} | {
    "element_ty", "scalar", "primitive_bitwidth", "value", "T", "shape", "dtype", "is_floating", "is_int", "is_ptr",
    "is_fp16", "is_bf16", "is_fp32", "is_fp64", "itemsize", "type",
}  # fmt: skip
_NODES = (
    ast.arguments, ast.arg, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.IfExp, ast.For, ast.While, ast.Return,
    ast.Expr, ast.Pass, ast.Break, ast.Continue, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword,
    ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Constant, ast.Name, ast.Attribute, ast.Assert, ast.Starred,
    ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.ListComp, ast.comprehension, ast.JoinedStr,
    ast.FormattedValue, ast.NamedExpr,
)  # fmt: skip


def require(text: str) -> None:
    """Raises NotTriton unless `text`, as kernel_text.source makes it, defines kernels and constants alone."""
    if len(text) > LONGEST_KERNEL:
        raise NotTriton(f"a kernel of {len(text):,} characters")
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotTriton(f"no Python: {error}") from None
    names = {name: module for statement in body for name, module in _imports(statement)}
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            names[statement.name] = None
        elif isinstance(statement, ast.Assign):
            names.update({target.id: None for target in statement.targets if isinstance(target, ast.Name)})
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            _require_kernel(statement, names)
        elif isinstance(statement, ast.Assign):
            _Reader(names, set()).visit(statement)
        elif not isinstance(statement, ast.Import | ast.ImportFrom):
            raise NotTriton(f"beside kernels there is `{ast.unparse(statement)[:80]}`")


def load_checked(text: str, name: str) -> Any:
    """The kernel `name` that `text` defines. Raises NotTriton."""
    require(text)
    kernel = kernel_text.load(text, name)
    if not hasattr(kernel, "fn"):
        raise NotTriton(f"{name} is no kernel")
    return kernel


def _imports(statement: ast.stmt) -> list[tuple[str, Any]]:
    """The names that an import binds, with their modules, or with None where it is a name of one."""
    found: list[tuple[str, Any]] = []
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.name not in _MODULES:
                raise NotTriton(f"a kernel uses the module {alias.name}")
            found.append((alias.asname or alias.name.partition(".")[0], _MODULES[alias.name]))
    elif isinstance(statement, ast.ImportFrom):
        module = str(statement.module)
        if not (module == "math" or module.startswith("triton.language")) or statement.level:
            raise NotTriton(f"a kernel uses names of the module {module}")
        for alias in statement.names:
            if alias.name == "*" or _public(module.partition(".")[0], alias.name) is None:
                raise NotTriton(f"a kernel uses {alias.name} of {module}")
            found.append((alias.asname or alias.name, None))
    return found


def _public(module: str, name: str) -> Any:
    """What a public name of Triton's language or of math stands for; None where there is no such name."""
    found = None if name.startswith("_") else getattr(math if module == "math" else tl, name, None)
    return found if found is not None and type(found).__name__ != "module" else None


def _require_kernel(function: ast.FunctionDef, names: dict[str, Any]) -> None:
    if len(function.decorator_list) != 1 or not _is_jit(function.decorator_list[0]):
        raise NotTriton(f"{function.name} is not decorated with triton.jit alone")
    local = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    local |= {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    reader = _Reader(names, local)
    for part in (function.args, *function.body, *filter(None, [function.returns])):
        reader.visit(part)


def _is_jit(decorator: ast.expr) -> bool:
    """Whether this is `triton.jit`, alone or with options that kernel_text.source keeps, written out."""
    if not isinstance(decorator, ast.Call):
        return ast.unparse(decorator) == "triton.jit"
    values = [value for option in decorator.keywords for value in _items(option.value)]
    return (
        ast.unparse(decorator.func) == "triton.jit"
        and not decorator.args
        and all(option.arg in kernel_text.DECORATOR_OPTIONS for option in decorator.keywords)
        and all(isinstance(value, ast.Constant) for value in values)
    )


def _items(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.List) else [value]


class _Reader(ast.NodeVisitor):
    """Refuses what is not in the language; `names` are those of modules and of the text's own top level."""

    def __init__(self, names: dict[str, Any], local: set[str]) -> None:
        self.names, self.local = names, local

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _NODES):
            raise NotTriton(f"{type(node).__name__} in a kernel")
        super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id.startswith("__"):
            raise NotTriton(f"the name {node.id}")
        if isinstance(node.ctx, ast.Store) and self.names.get(node.id) is not None:
            raise NotTriton(f"{node.id} is assigned to")
        if isinstance(node.ctx, ast.Load) and not (node.id in self.local or node.id in self.names):
            hidden = hasattr(builtins, node.id) or node.id.startswith("interpreter")
            if hidden and node.id not in _BUILTINS:
                raise NotTriton(f"the name {node.id}")

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"{ast.unparse(node)} is assigned to")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_") or not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"the attribute {node.attr}")
        module = self._module(node.value)
        if module is None:
            if node.attr not in _OF_VALUES:
                raise NotTriton(f"the attribute {node.attr}")
            self.visit(node.value)
        elif self._module(node) is None:
            where = "math" if module is math else "triton.language"
            helper = module is triton and node.attr in ("cdiv", "next_power_of_2")
            if not helper and (module is triton or _public(where, node.attr) is None):
                raise NotTriton(f"{ast.unparse(node)} is not a name of Triton's language")

    def _module(self, node: ast.expr) -> Any:
        """The module that an expression such as `tl` or `tl.math` stands for, if it is one."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            outer = self._module(node.value)
            inner = getattr(outer, node.attr, None) if outer in (triton, tl) else None
            return inner if inner in (tl, tl.math) else None
        return None
