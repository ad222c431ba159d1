"""Which text is a kernel in Triton's language, and nothing else: it may then run where traffic is counted.

The interpreter runs a kernel as Python, which could do anything. A GPU's compiler knows the same functions as a small
language: arithmetic, loops, conditions, and the names of `triton.language`. Here stands what of it is allowed, by name
(vocabulary.py) and by form; all else is refused. A text is parsed once: that tree is checked, and that tree is what
runs. No statement of it runs before all of it is checked.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from helpers.engine import kernel_text
from helpers.instructor.sandbox import constants, parser, vocabulary
from helpers.instructor.sandbox.constants import NotConstant

LONGEST_KERNEL = 100_000
"""Characters that the text of a kernel may have."""


class NotTriton(ValueError):
    """The text says something that Triton's language, as it is graded here, does not have."""


@dataclass(frozen=True)
class _Module:
    """A module as kernels see it: the names it may be asked for, and where they are found."""

    names: frozenset[str]
    found_in: Any
    inner: Mapping[str, _Module]


_MATH = _Module(vocabulary.LANGUAGE_MATH, tl.math, {})
_NAN = _Module(frozenset({"ALL", "NONE"}), tl.PropagateNan, {})
_LANGUAGE = _Module(vocabulary.LANGUAGE, tl, {"math": _MATH, "PropagateNan": _NAN})
_TRITON = _Module(vocabulary.HELPER_FUNCTIONS, triton, {"language": _LANGUAGE})
_MODULES = {
    "triton": _TRITON,
    "triton.language": _LANGUAGE,
    "triton.language.math": _MATH,
    "math": _Module(vocabulary.PYTHON_MATH, math, {}),
}
_DEFINED_IN = dict.fromkeys(("core", "standard", "random"), _LANGUAGE)
"""Modules of triton.language from which it has its own names, as kernel_text.source writes them."""

_FOR_CONSTANTS = {
    "abs", "all", "any", "bool", "divmod", "enumerate", "pow", "reversed", "round", "sorted", "str", "sum", "tuple",
    "zip",
}  # fmt: skip
"""Builtins that a triton.constexpr_function may call too: Python runs it, on constants."""

_REASONS = {
    "inline_asm_elementwise": "assembly is not graded here, because no interpreter runs it",
    "libdevice": "the functions of libdevice are not graded here, because the interpreter lacks them; tl.math has some",
}

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.For, ast.While, ast.Return, ast.Expr, ast.Pass, ast.Break,
    ast.Continue, ast.Assert,
)  # fmt: skip
_EXPRESSIONS = (
    ast.IfExp, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Call, ast.keyword, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Constant, ast.Name, ast.Attribute, ast.Starred, ast.ListComp, ast.comprehension,
    ast.JoinedStr, ast.FormattedValue, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop,
    ast.boolop,
)  # fmt: skip
_NODES = _STATEMENTS + _EXPRESSIONS


def require(text: str) -> None:
    """Raises NotTriton unless `text`, as kernel_text.source makes it, defines kernels and constants alone."""
    _checked(text)


def load_checked(text: str, name: str) -> Any:
    """The kernel `name` that `text` defines. Raises NotTriton."""
    tree, written, names = _checked(text)
    made = kernel_text.made(tree, written, {**names, "__builtins__": _BUILTINS})
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if name not in functions:
        raise NotTriton(f"{name} is not a kernel")
    for one, function in functions.items():
        if not kernel_text.reads_as(made[one], function):
            raise NotTriton(f"{one} does not read as it was written")
    return made[name]


_BUILTINS = {name: getattr(builtins, name) for name in vocabulary.PYTHON_BUILTINS | _FOR_CONSTANTS}


def _checked(text: str) -> tuple[ast.Module, str, dict[str, Any]]:
    """The tree of a text that is a kernel, without its imports; the text it is of; what its imports stand for.

    Raises NotTriton.
    """
    if len(text) > LONGEST_KERNEL:
        raise NotTriton(f"a kernel of {len(text):,} characters")
    try:
        with parser.reading(NotTriton, NotConstant):
            written = kernel_text.plain(text)
            tree, read = ast.parse(written), _Text()
            for statement in tree.body:
                read.take(statement)
            read.finish()
            compile(tree, "<kernel>", "exec")  # what Python itself refuses, such as an argument that is given twice
    except NotConstant as error:
        raise NotTriton(str(error)) from None
    except parser.NotPython as error:
        raise NotTriton(f"not Python: {error}") from None
    tree.body = [statement for statement in tree.body if not isinstance(statement, ast.Import | ast.ImportFrom)]
    return tree, written, read.imported


class _Text:
    """What the top level of a text defines, statement by statement; the kernels are read when all of it is known."""

    def __init__(self) -> None:
        self.modules: dict[str, _Module] = {}
        self.imported: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.functions: dict[str, ast.FunctionDef] = {}

    def take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, module, value in _imports(statement):
                _require_free(name, self.imported, self.constants, self.functions)
                self.imported[name] = value
                if module is not None:
                    self.modules[name] = module
        elif isinstance(statement, ast.Assign) and all(isinstance(one, ast.Name) for one in statement.targets):
            value = self._constant(statement.value)
            for target in statement.targets:
                _require_free(target.id, self.imported, self.constants, self.functions)
                self.constants[target.id] = value
        elif isinstance(statement, ast.FunctionDef):
            _require_free(statement.name, self.imported, self.constants, self.functions)
            self._require_declaration(statement)
            self.functions[statement.name] = statement
        else:
            raise NotTriton(f"kernels alone are read, not `{ast.unparse(statement)[:80]}`")

    def finish(self) -> None:
        """Reads the bodies of all functions."""
        parameters = {one.arg for function in self.functions.values() for one in _parameters(function)}
        for function in self.functions.values():
            known = {*self.imported, *self.constants, *self.functions} - set(self.modules)
            allowed = vocabulary.PYTHON_BUILTINS | (_FOR_CONSTANTS if _is_of_constants(function) else set())
            bound = _Bound(function).names
            for name in bound:
                _require_free(name, self.modules)
            reader = _Reader(self.modules, known | allowed, bound, vocabulary.KEYWORDS | parameters)
            for statement in function.body:
                reader.visit(statement)

    def _require_declaration(self, function: ast.FunctionDef) -> None:
        """Raises NotTriton unless decorator, parameters, defaults and hints fit a kernel."""
        if not _is_of_constants(function) and not _is_jit(function):
            raise NotTriton(f"{function.name} is not decorated with triton.jit alone")
        if function.returns is not None or function.type_comment or getattr(function, "type_params", None):
            raise NotTriton(f"{function.name} has a hint of what it returns")
        if function.args.kwarg:
            raise NotTriton(f"{function.name} takes **{function.args.kwarg.arg}")
        for parameter in _parameters(function):
            if parameter.annotation is not None and not self._is_constexpr(parameter.annotation):
                raise NotTriton(
                    f"the hint `{ast.unparse(parameter.annotation)[:80]}`; tl.constexpr is the one that counts"
                )
        for default in (*function.args.defaults, *filter(None, function.args.kw_defaults)):
            self._constant(default)

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and self._is_constexpr(node.func) and len(node.args) == 1 and not node.keywords:
            return self._constant(node.args[0])
        if isinstance(node, ast.Attribute) and (place := _place(node, self.modules)):
            module, name = place
            value = getattr(module.found_in, name, None) if name in module.names else None
            if isinstance(value, float | tl.dtype):
                return value
        return constants.value_of(node, self.constants)

    def _is_constexpr(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return self.imported.get(node.id) is tl.constexpr
        return isinstance(node, ast.Attribute) and _place(node, self.modules) == (_LANGUAGE, "constexpr")


def _require_free(name: str, *taken: Mapping[str, Any]) -> None:
    """Raises NotTriton for a name that may not be bound, or that already stands for something."""
    if name.startswith("__"):
        raise NotTriton(f"the name {name}")
    if hasattr(builtins, name):
        raise NotTriton(f"{name}, which is Python's, is given another meaning")
    if any(name in one for one in taken):
        raise NotTriton(f"{name} is assigned to, which stands for something else")


def _imports(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, _Module | None, Any]]:
    """The names that an import binds: each with its module, or with None and the value it stands for."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            module = _MODULES.get(alias.name)
            if module is None or ("." in alias.name and not alias.asname):
                raise NotTriton(_refused(f"a kernel uses the module {alias.name}", alias.name.rpartition(".")[2]))
            yield alias.asname or alias.name, module, module.found_in
        return
    origin = str(statement.module)
    inner = origin.removeprefix("triton.language.")
    module = _MODULES.get(origin) or (_DEFINED_IN.get(inner) if inner != origin else None)
    for alias in statement.names:
        said = f"a kernel uses {alias.name} of {'.' * statement.level}{origin}"
        if module is None or statement.level:
            raise NotTriton(_refused(said, inner.rpartition(".")[2], alias.name))
        if alias.name in module.inner:
            yield alias.asname or alias.name, module.inner[alias.name], module.inner[alias.name].found_in
        elif alias.name in module.names and hasattr(module.found_in, alias.name):
            yield alias.asname or alias.name, None, getattr(module.found_in, alias.name)
        else:
            raise NotTriton(_refused(said, alias.name))


def _refused(said: str, *names: str) -> str:
    reason = next((_REASONS[name] for name in names if name in _REASONS), "")
    return f"{said}: {reason}" if reason else said


def _place(node: ast.expr, modules: Mapping[str, _Module]) -> tuple[_Module, str] | None:
    """Module and name of an expression such as tl.load or tl.math.exp; None where it does not begin with a module."""
    if not isinstance(node, ast.Attribute):
        return None
    if isinstance(node.value, ast.Name):
        module = modules.get(node.value.id)
    else:
        outer = _place(node.value, modules)
        module = outer and outer[0].inner.get(outer[1])
        if outer and module is None and outer[1] not in outer[0].names:
            raise NotTriton(_refused(f"{ast.unparse(node)} is not a name of Triton's language", outer[1], node.attr))
    return (module, node.attr) if module else None


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [node for node in ast.walk(function.args) if isinstance(node, ast.arg)]


def _is_jit(function: ast.FunctionDef) -> bool:
    """Whether the decorator is `triton.jit`, alone or with options that kernel_text.source keeps, written out."""
    if len(function.decorator_list) != 1:
        return False
    (decorator,) = function.decorator_list
    if not isinstance(decorator, ast.Call):
        return ast.unparse(decorator) == "triton.jit"
    values = [value for option in decorator.keywords for value in _items(option.value)]
    return (
        ast.unparse(decorator.func) == "triton.jit"
        and not decorator.args
        and all(option.arg in kernel_text.DECORATOR_OPTIONS for option in decorator.keywords)
        and all(isinstance(value, ast.Constant) and isinstance(value.value, int | str) for value in values)
    )


def _is_of_constants(function: ast.FunctionDef) -> bool:
    return [ast.unparse(one) for one in function.decorator_list] == ["triton.constexpr_function"]


def _items(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.List) else [value]


class _Bound(ast.NodeVisitor):
    """The local names of a function; the variables of a comprehension are none of them."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.names = {one.arg for one in _parameters(function)}
        for statement in function.body:
            self.visit(statement)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for part in (node.iter, *node.ifs):
            self.visit(part)


class _Reader(ast.NodeVisitor):
    """Refuses everything outside the language; `known` are the names of values other than `local` ones."""

    def __init__(
        self, modules: Mapping[str, _Module], known: set[str], local: set[str], keywords: frozenset[str] | set[str]
    ) -> None:
        self.modules, self.known, self.local, self.keywords = modules, known, local, keywords

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _NODES):
            raise NotTriton(f"{type(node).__name__} in a kernel")
        super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in self.modules:
            raise NotTriton(f"{node.id} is a module, and a kernel names what it has, as in {node.id}.…")
        if isinstance(node.ctx, ast.Load) and node.id not in self.local and node.id not in self.known:
            hidden = hasattr(builtins, node.id) or node.id.startswith("__")
            raise NotTriton(f"the name {node.id}" if hidden else f"{node.id} is not defined")

    def visit_Constant(self, node: ast.Constant) -> None:
        constants.value_of(node, {})

    def visit_Starred(self, node: ast.Starred) -> None:
        if not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"{ast.unparse(node)} is assigned to")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"{ast.unparse(node)} is assigned to")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in self.keywords:
            raise NotTriton(f"the argument {node.arg or '**'}")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        hint = _place(node.annotation, self.modules)
        if hint != (_LANGUAGE, "constexpr") or node.value is None:
            raise NotTriton(f"the hint `{ast.unparse(node.annotation)[:80]}`; tl.constexpr is the one that counts")
        for part in (node.target, node.value):
            self.visit(part)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        if (
            len(node.generators) != 1
            or node.generators[0].is_async
            or not isinstance(node.generators[0].target, ast.Name)
        ):
            raise NotTriton("a comprehension of several loops")
        (loop,) = node.generators
        _require_free(loop.target.id, self.modules)
        self.visit(loop.iter)
        inside = _Reader(self.modules, self.known, self.local | {loop.target.id}, self.keywords)
        for part in (*loop.ifs, node.elt):
            inside.visit(part)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr.startswith("_") or not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"the attribute {node.attr}")
        place = _place(node, self.modules)
        if place is None:
            if node.attr not in vocabulary.ATTRIBUTES:
                raise NotTriton(f"the attribute {node.attr}")
            self.visit(node.value)
        elif place[1] not in place[0].names:
            raise NotTriton(_refused(f"{ast.unparse(node)} is not a name of Triton's language", node.attr))
