"""Turns a kernel, also one defined in a notebook cell, into source text that another process can run or compile."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import linecache
import math
import sys
import textwrap
import types
from collections.abc import Iterable, Mapping
from typing import Any

from helpers.engine import compiled, shadowing

DECORATOR_OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline")
"""Options of @triton.jit that change the compiled kernel."""


class SourceLost(ValueError):
    """The text of a kernel cannot be found."""


def source(kernel: Any, functions: Iterable[Any] = ()) -> str:
    """Returns the text of a module that defines `kernel` and all that it names: imports, constants, other kernels.

    The text also defines `functions`, which the kernel is given as arguments. Raises ValueError if the source cannot be
    found or a global name refers to something that has no source form, and SourceLost if two of these functions mean
    different things by one name.
    """
    parts = dict(_IMPORTS)
    _collect(kernel, kernel.fn.__name__, parts)
    for function in functions:
        own = dict(_IMPORTS)
        _define(function.fn.__name__, function, own)
        for name in own:
            if parts.setdefault(name, own[name]) != own[name]:
                raise SourceLost(f"{kernel.fn.__name__} and its argument {function.fn.__name__} have two {name}")
    return "\n".join(parts.values()) + "\n"


_IMPORTS = {"triton": "import triton", "tl": "import triton.language as tl"}


def load(text: str, name: str) -> Any:
    """Runs text made by `source` and returns the kernel called `name`."""
    return made(ast.parse(text), text, {})[name]


def made(tree: ast.Module, text: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """What the syntax tree `tree` of `text` defines, given the `known` names. Triton reads kernels again in `text`."""
    known_as = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
    filename = f"<kernel {known_as}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace = {"__name__": f"kernel_{known_as}", "__file__": filename, **names}
    exec(compile(tree, filename, "exec"), namespace)
    return namespace


def reads_as(kernel: Any, function: ast.FunctionDef) -> bool:
    """True if the text in which Triton reads the kernel is the text of `function`."""
    found = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body[0]
    return ast.dump(found) == ast.dump(function)


def plain(text: str) -> str:
    """The text as `ast` writes it: without comments, docstrings or layout of its own. Raises SyntaxError."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            _drop_remarks(node)
    return ast.unparse(tree) + "\n"


def definition(kernel: Any, name: str | None = None) -> str:
    """Returns the text of the kernel's `def`, without decorators, docstring and hints; under another `name` if given.

    Of the annotations, only constexpr means something to Triton, so it stays. If one of the kernel's own names is that
    of a Python builtin, such as max, it gets another name (shadowing.py). Raises ValueError if the source cannot be
    found or another text stands in its place: for a function made by `exec`, Python 3.13 finds the text of `python -c`.
    """
    lost = SourceLost(f"the source of {kernel.fn.__name__} cannot be found; define it in a cell or a file")
    try:
        function = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise lost from error
    if not isinstance(function, ast.FunctionDef) or function.name != kernel.fn.__name__:
        raise lost
    function.decorator_list, function.returns = [], None
    for argument in ast.walk(function.args):
        hint = getattr(argument, "annotation", None)
        if hint is not None:
            argument.annotation = _CONSTEXPR if "constexpr" in ast.unparse(hint) else None
    function.name = name or function.name
    _drop_remarks(function)
    return ast.unparse(shadowing.without_shadows(_WithoutHints().visit(function), _names_of(kernel.fn)))


_CONSTEXPR = ast.parse("tl.constexpr", mode="eval").body


class _WithoutHints(ast.NodeTransformer):
    """Drops what annotates a variable, unless it is constexpr."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if "constexpr" in ast.unparse(node.annotation):
            node.annotation = _CONSTEXPR
        elif node.value is not None:
            return ast.copy_location(ast.Assign([node.target], node.value), node)
        return node


def _drop_remarks(function: ast.FunctionDef) -> None:
    """Drops docstrings, and whatever else is a text alone in its line."""
    kept = [
        statement
        for statement in function.body
        if not (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and type(statement.value.value) is str
        )
    ]
    function.body = kept or [ast.Pass()]


def _names_of(function: types.FunctionType) -> dict[str, Any]:
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def _collect(kernel: Any, name: str, parts: dict[str, str]) -> None:
    text = definition(kernel, name)
    function = kernel.fn
    known = vars(builtins) | {shadowing.carried(name): value for name, value in _names_of(function).items()}
    nodes = list(ast.walk(ast.parse(text)))
    local = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in local | {name} | set(parts) and node.id in known:
            _define(node.id, known[node.id], parts)
    parts[name] = f"@{decorator(kernel)}\n{text}"


def decorator(kernel: Any) -> str:
    """The kernel's decorator with the options that the compiler asks for."""
    if type(kernel).__name__ == "ConstexprFunction":
        return "triton.constexpr_function"
    chosen = compiled.decorated_with(kernel)
    options = [f"{option}={_plain(chosen[option])!r}" for option in DECORATOR_OPTIONS if chosen.get(option)]
    return f"triton.jit({', '.join(options)})" if options else "triton.jit"


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool) else [item if isinstance(item, int) else str(item) for item in value]


def _define(name: str, value: Any, parts: dict[str, str]) -> None:
    if getattr(builtins, name, None) is value:
        return
    if isinstance(value, types.ModuleType):
        parts[name] = f"import {value.__name__} as {name}"
    elif hasattr(value, "fn") and not _is_tritons(value.fn):
        _collect(value, name, parts)
    elif isinstance(value, int | float | str | type(None)):
        parts[name] = f"{name} = {_literal(value)}"
    elif type(value).__name__ == "dtype" and _is_tritons(type(value)):
        parts[name] = f"from triton.language import {_name_of_dtype(value)} as {name}"
    elif type(value).__name__ == "constexpr":
        parts[name] = f"{name} = tl.constexpr({_literal(value.value)})"
    elif isinstance(value, types.FunctionType) and not _is_tritons(value):
        raise ValueError(f"the kernel calls {name}, a function of Python; decorate it with @triton.jit")
    elif getattr(value, "__module__", None) and hasattr(value, "__name__"):
        parts[name] = f"from {getattr(value, 'fn', value).__module__} import {value.__name__} as {name}"
    else:
        raise ValueError(f"the kernel uses the global {name}, a {type(value).__name__}; pass it as an argument instead")


def _name_of_dtype(value: Any) -> str:
    """What triton.language calls a dtype that it has."""
    language = vars(sys.modules[type(value).__module__])
    return next(name for name, one in language.items() if type(one) is type(value) and one == value)


def _is_tritons(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "triton"


def _literal(value: Any) -> str:
    """Text that evaluates to `value`: repr, save for infinities and NaN, whose repr is no Python."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    return repr(value)
