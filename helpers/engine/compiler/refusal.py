"""Says why Triton's compiler refuses a kernel, in words that tell what to change.

A refusal is recognised by the place in the kernel that the compiler's error names, and by the code at that place.
Triton's own words are read only for types that change, in a loop or between the branches of an `if` (`_CHANGES`), and
for tiles and addresses that do not fit (`_SAID`). If nothing is recognised, the compiler's words stand as they are.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import triton

from helpers.engine.compiler.compile import reason
from helpers.engine.frontend import is_of_triton

_CHANGES = re.compile(
    r"variable (?P<name>\w+) has initial type (?P<first>.+) but is re-assigned to (?P<then>.+) in loop"
    r"|variable (?P<none>\w+) is not a triton value"
    r"|type for (?P<both>\w+) between then block \((?P<yes>.+)\) and else block \((?P<no>.+)\)"
    r"|value for `(?P<before>\w+)` is of type (?P<was>.+), but the (?:then|else) block redefines it as (?P<now>.+)"
)
"""Triton's words for a variable whose type changes."""

_SAID = {
    r"'pointer_type' object|but got pointer<": "an address stands where numbers belong: load them first, with tl.load.",
    r"but got u?int\d+$": "whole numbers stand where floats belong: which name holds the numbers that were loaded?",
    r"incompatible dimensions at index (\d+): (\d+) and (\d+)": (
        r"along axis \1 one tile has \2 numbers, and the other \3: make them as long, or lay one of them along another "
        r"axis, with [:, None] or [None, :]."
    ),
    "Mask argument cannot be block type": "the mask is a tile, and the address is a single one: add the columns to it.",
}
"""Triton's words about tiles and addresses, and what they mean."""

_OWN_PASS = re.compile(r"Pipeline failed while executing \[`(?!Convert)(\w+)`")
"""A pass of the compiler that has failed, as MLIR prints it. The passes that convert refuse what a GPU
lacks: they are left out."""

_AT = re.compile(r":(\d+):\d+: error: (.+)")
"""The line of a kernel, and the fault in it, as MLIR prints them."""


@dataclass(frozen=True)
class Refusal:
    """A kernel that the compiler refuses: the reason in the compiler's words, and its meaning if that is known."""

    kernel: str
    target: str
    reason: str
    meaning: str = ""


@dataclass(frozen=True)
class _Fault:
    """The node that an error is about, its line, the function around it; the kernel's text, and Triton's words."""

    node: ast.AST
    line: str
    function: ast.FunctionDef
    module: ast.Module
    words: str


def why(error: BaseException, text: str) -> tuple[str, str]:
    """The reason and the meaning of a compiler's error about a kernel of `text`."""
    words, fault = reason(error), _fault(error, text)
    for explain in _EXPLAIN if fault else ():
        if meaning := explain(fault):
            return words, meaning if meaning.startswith("`") else f"`{fault.line}`: {meaning}"
    if fault:
        return f"{_bare(words)} (in `{fault.line}`)", ""
    return words, _grown_list(text) or _other_before_mask(text)


def why_printed(text: str, printed: str) -> tuple[str, str]:
    """The reason and the meaning of what the compiler `printed` about a kernel of `text`, if it names a line."""
    said = _AT.search(printed)
    if not said or not 0 < int(said[1]) <= len(text.splitlines()):
        return "", ""
    line = text.splitlines()[int(said[1]) - 1].strip()
    return f"{said[2]} (in `{line}`)", f"`{line}`: {_LISTS}" if "[" in line else ""


def compilers_fault(text: str, printed: str) -> str:
    """What to say of a kernel of `text` with which a pass of the compiler has failed, by what it `printed`; "" if none
    has."""
    failed = _OWN_PASS.search(printed)
    if not failed:
        return ""
    line = why_printed(text, printed)[0].rpartition(" (in ")[2].rstrip(")") or "what its loops change"
    return (
        f"a pass of the compiler of Triton {triton.__version__}, {failed[1]}, failed. The fault is the compiler's, not "
        f"the program's, and another version may have none; for a GPU with this one, write {line} in another way"
    )


def _fault(error: BaseException, text: str) -> _Fault | None:
    """The code that the innermost error of this chain is about, among the errors about a function of `text` that is not
    Triton's own."""
    found = None
    current: BaseException | None = error
    while current is not None:
        source, node = getattr(current, "src", None), getattr(current, "node", None)
        lines = range(1, len(source.splitlines()) + 1) if source and not is_of_triton(source) else ()
        if getattr(node, "lineno", 0) in lines and source.strip() in text:
            found = source, node
        current = current.__cause__
    if found is None:
        return None
    source, node = found
    (function,) = ast.parse(source).body[:1]
    lines = source.splitlines()
    return _Fault(node, lines[node.lineno - 1].strip()[:160], function, ast.parse(text), reason(error))


# What stands there

_LISTS = (
    "Triton has no lists that change. Tiles lie in registers, and how many there are must be known before the kernel "
    "starts: load the tile again, or keep one tile under one name."
)
_NO_BRANCH_OUT = "a loop runs to its end. Say with a mask, or with tl.where, which elements count."

_NOT_IN_THE_LANGUAGE: dict[type[ast.AST], str] = {
    ast.Break: f"Triton has no `break`: {_NO_BRANCH_OUT}",
    ast.Continue: f"Triton has no `continue`: {_NO_BRANCH_OUT}",
    ast.Dict: "Triton has no dicts; use a name for each value.",
    ast.DictComp: "Triton has no dicts; use a name for each value.",
    ast.Set: "Triton has no sets; use a name for each value.",
    ast.SetComp: "Triton has no sets; use a name for each value.",
    ast.ListComp: _LISTS,
    ast.GeneratorExp: _LISTS,
    ast.Try: "Triton has no exceptions; a kernel says with a mask which elements there are.",
    ast.Raise: "Triton has no exceptions; check the arguments in the function that launches the kernel.",
    ast.With: "Triton has no `with`.",
    ast.Lambda: "Triton has no `lambda`; write a function of its own, decorated with @triton.jit.",
    ast.FunctionDef: "Triton has no functions within a kernel; define it outside, with @triton.jit.",
    ast.arg: "Triton has no functions within a kernel; define it outside, with @triton.jit.",
    ast.ClassDef: "Triton has no classes.",
    ast.NamedExpr: "Triton has no `:=`; assign in a line of its own.",
    ast.Global: "Triton has no `global`; a kernel hands its results on by tl.store.",
    ast.Nonlocal: "Triton has no `nonlocal`; a kernel hands its results on by tl.store.",
    ast.Delete: "Triton has no `del`; leave the line out.",
    ast.Import: "import outside the kernel.",
    ast.ImportFrom: "import outside the kernel.",
    ast.Yield: "a kernel returns nothing: it stores its results with tl.store.",
    ast.Match: "Triton has no `match`; use `if`.",
    ast.JoinedStr: "Triton has no text of numbers that only the GPU knows.",
    ast.Starred: "Triton has no `*` here; name each value.",
}


def _not_in_the_language(fault: _Fault) -> str:
    if fault.node is fault.function or _is_kernel_itself(fault):
        return ""
    return _NOT_IN_THE_LANGUAGE.get(type(fault.node), "")


def _is_kernel_itself(fault: _Fault) -> bool:
    return isinstance(fault.node, ast.FunctionDef) and fault.node.name == fault.function.name


def _return_in_a_loop(fault: _Fault) -> str:
    if isinstance(fault.node, ast.If | ast.For | ast.While | ast.Return | ast.FunctionDef) and any(
        isinstance(node, ast.Return) for loop in _loops(fault.function) for node in ast.walk(loop)
    ):
        return f"Triton has no `return` inside a loop: {_NO_BRANCH_OUT}"
    return ""


def _type_changes(fault: _Fault) -> str:
    found = _CHANGES.search(_bare(fault.words))
    if not found:
        return ""
    if name := found["none"]:
        line, _ = _assigned_before(fault, name)
        return f"`{line or name}` is not a number or a tile, and changes in a loop: begin with one, such as 0.0."
    if name := found["both"]:
        return (
            f"{name} is {_kind(found['yes'])} after one branch and {_kind(found['no'])} after the other: give it the "
            "same type in both."
        )
    if name := found["before"]:
        return f"{name} is {_kind(found['was'])} before the branch and {_kind(found['now'])} in it: give it one type."
    return _changes_in_loop(fault, found["name"], found["first"], found["then"])


def _said(fault: _Fault) -> str:
    found = ((re.search(words, _bare(fault.words)), meaning) for words, meaning in _SAID.items())
    return next((said.expand(meaning) for said, meaning in found if said), "")


def _changes_in_loop(fault: _Fault, name: str, first: str, then: str) -> str:
    line, value = _assigned_before(fault, name)
    subject = "" if line == f"{name} = {ast.unparse(value) if value else ''}" else f": {name}"
    changed = f"`{line or fault.line}`{subject} is {_kind(first)} and becomes {_kind(then)} in the loop"
    if "[" in then and "[" not in first:
        return f"{changed}: begin with a tile, such as `{name} = tl.zeros([BLOCK], tl.float32)`, or sum the tile."
    if isinstance(value, ast.Constant) and type(value.value) is int and then in _FLOATS:
        return f"{changed}: begin with `{value.value}.0`."
    if "[" in first or "[" in then:
        return f"{changed}: a variable keeps its type and its shape in a loop."
    return f"{changed}: a variable keeps its type in a loop, so convert with `.to({_TL.get(first, first)})`."


def _assigned_before(fault: _Fault, name: str) -> tuple[str, ast.expr | None]:
    """The last assignment to a name before the loop, alone or with others, and its value; ("", None) for none."""
    found = [
        (node.lineno, ast.unparse(node), value)
        for node in ast.walk(fault.function)
        if isinstance(node, ast.Assign) and node.lineno < fault.node.lineno
        for target in node.targets
        for bound, value in _pairs(target, node.value)
        if ast.unparse(bound) == name
    ]
    return max(found, key=lambda one: one[0])[1:] if found else ("", None)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None]]:
    """Each name of an assignment with its value, if the two stand in the same place."""
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    values = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else []
    return list(zip(target.elts, values or [None] * len(target.elts), strict=True))


_FLOATS = {"fp16", "bf16", "fp32", "fp64"}
_TL = {"fp16": "tl.float16", "bf16": "tl.bfloat16", "fp32": "tl.float32", "fp64": "tl.float64"}
_TL |= {f"int{bits}": f"tl.int{bits}" for bits in (8, 16, 32, 64)}


def _kind(name: str) -> str:
    """Triton's name for a type, such as fp32, fp32[], <['16'], fp32> or fp32[constexpr[16]], in words."""
    name = re.sub(r"constexpr\[(\d+)\]|'", r"\1", name).removesuffix("[]")
    tile = re.fullmatch(r"<\[(?P<sizes>.*)\], (?P<of>.+)>", name) or re.fullmatch(r"(?P<of>\w+)\[(?P<sizes>.+)\]", name)
    if tile:
        return f"a tile of {tile['sizes']} numbers ({tile['of']})"
    if name in _FLOATS:
        return f"a float ({name})"
    return f"an integer ({name})" if name.startswith(("int", "uint")) else name


_LOOPS = "A loop of a kernel goes over range, tl.range or tl.static_range, and over nothing else."


def _loop_over_something_else(fault: _Fault) -> str:
    node = fault.node
    if not isinstance(node, ast.For | ast.While):
        return ""
    if node.orelse:
        return "Triton has no `else` of a loop."
    if isinstance(node, ast.For) and not isinstance(node.iter, ast.Call):
        return _LOOPS
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant):
        return "the condition of a `while` must be a value that the kernel computes; this one never ends."
    return ""


def _condition_is_a_tile(fault: _Fault) -> str:
    if isinstance(fault.node, ast.If | ast.While | ast.IfExp):
        return "the condition is a tile, which is neither true nor false as a whole: use tl.where, or a mask."
    return ""


def _comparison(fault: _Fault) -> str:
    if not isinstance(fault.node, ast.Compare):
        return ""
    if len(fault.node.ops) > 1:
        return "the compiler compares two values at a time: write (a < b) & (b < c)."
    if isinstance(fault.node.ops[0], ast.In | ast.NotIn):
        return "Triton has no `in`; compare with each value, and join with `or`."
    return ""


def _list_method(fault: _Fault) -> str:
    if isinstance(fault.node, ast.Attribute) and fault.node.attr in ("append", "extend", "insert", "pop", "remove"):
        return _LISTS
    assigned = isinstance(fault.node, ast.Assign | ast.AugAssign | ast.Subscript)
    targets = getattr(fault.node, "targets", [getattr(fault.node, "target", fault.node)])
    if assigned and any(isinstance(getattr(target, "ctx", None), ast.Store) and _is_item(target) for target in targets):
        return "neither a list nor a tile has elements that can be assigned to. " + _LISTS
    return ""


def _grown_list(text: str) -> str:
    """What to say about a list that grows by `+=`, for which the compiler names no line; "" for none."""
    module = ast.parse(text)
    lists = {
        ast.unparse(target)
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List)
        for target in node.targets
    }
    for node in ast.walk(module):
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) in lists:
            return f"`{ast.unparse(node)}`: {_LISTS}"
    return ""


def _other_before_mask(text: str) -> str:
    """What to say about a number in the place of a load's mask, for which the compiler names no line; "" for none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".load") and len(node.args) > 1:
            second = node.args[1].operand if isinstance(node.args[1], ast.UnaryOp) else node.args[1]
            of_python = isinstance(second, ast.Call) and ast.unparse(second.func) == "float"
            if of_python or (isinstance(second, ast.Constant) and type(second.value) in (int, float)):
                return (
                    f"`{ast.unparse(node)}`: the second argument of tl.load is the mask, and the third is other. Name "
                    "them: mask=…, other=…."
                )
    return ""


def _is_item(target: ast.AST) -> bool:
    return isinstance(target, ast.Subscript)


def _name(fault: _Fault) -> str:
    if not isinstance(fault.node, ast.Name):
        return ""
    name = fault.node.id
    if any(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name
           for node in ast.walk(fault.function)):  # fmt: skip
        return f"{name} has a value only where an `if` or a loop has run: give it one before."
    if _of_the_module(fault, name):
        return (
            f"a kernel cannot read the global {name}: write its value out, pass it as an argument, or define "
            f"{name} = tl.constexpr(…). A function needs @triton.jit."
        )
    if name in ("enumerate", "zip", "reversed", "map", "filter"):
        return f"{name} is Python's. {_LOOPS}"
    if hasattr(builtins, name):
        instead = f": use tl.{name}." if hasattr(triton.language, name) else ", and a kernel cannot call it."
        return f"{name} is a function of Python{instead}"
    return f"{name} is not defined here."


def _of_the_module(fault: _Fault, name: str) -> bool:
    for node in fault.module.body:
        if isinstance(node, ast.Assign) and name in [ast.unparse(target) for target in node.targets]:
            return True
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return True
    return False


_CALLED_OTHERWISE = {"keepdim": "keep_dims", "keepdims": "keep_dims", "dim": "axis"}
"""Triton's words for arguments of reductions that PyTorch and NumPy call otherwise."""

_SHAPED = ("zeros", "full", "zeros_like", "ones", "empty")


def _call(fault: _Fault) -> str:
    if not isinstance(fault.node, ast.Call):
        return ""
    name = ast.unparse(fault.node.func)
    last = name.rpartition(".")[2]
    if name == fault.function.name:
        return "Triton has no functions that call themselves; use a loop."
    root = name.partition(".")[0]
    if last == "arange":
        return (
            "the bounds of tl.arange must be known to the compiler, numbers or tl.constexpr, and lie a power of 2 "
            f"apart, up to 1048576: use a BLOCK: tl.constexpr and a mask. Here: {_bare(fault.words)}."
        )
    for keyword in fault.node.keywords if root == "tl" else ():
        if keyword.arg in _CALLED_OTHERWISE:
            return f"in Triton, {keyword.arg} is called {_CALLED_OTHERWISE[keyword.arg]}."
    if name == "print":
        return 'in a kernel, a text comes first, and then what is to be printed: tl.device_print("x", x).'
    if last in _SHAPED:
        return f"the sizes of a tile must be numbers or tl.constexpr, and powers of 2. Here: {_bare(fault.words)}."
    if root == "triton" and hasattr(triton.language, last):
        return f"{name} is for numbers outside kernels: write tl.{last} here."
    if _is_of_python(fault, root):
        return f"{name} {_OF_PYTHON}"
    if name in ("float", "int", "bool"):
        return f"{name}(…) is Python's, and takes no number that only the GPU knows: convert with .to(tl.float32)."
    if name == "len":
        return "a tile has no len(…); its size is the BLOCK that it was made with."
    if last == "store":
        return (
            "tl.store takes pointers, and then a value of their type for each: tl.store(y_ptr + cols, y, mask=…). "
            f"Here: {_bare(fault.words)}."
        )
    return ""


def _bare(words: str) -> str:
    """Triton's words without the line that `reason` adds."""
    return re.sub(r" \(in `.*`\)$", "", words).rstrip(".")


_OF_PYTHON = "is a function of Python, which no GPU has: use triton.language's, such as tl.exp."


def _is_of_python(fault: _Fault, name: str) -> bool:
    """True if the name is that of an imported module other than Triton's."""
    return name in _imported(fault) and "triton" not in _imported_from(fault, name)


def _imported(fault: _Fault) -> set[str]:
    return {name for name, _ in _imports(fault.module)}


def _imported_from(fault: _Fault, name: str) -> str:
    return next((module for bound, module in _imports(fault.module) if bound == name), "")


def _imports(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in module.body:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            yield alias.asname or alias.name.partition(".")[0], getattr(node, "module", None) or alias.name


def _loops(function: ast.FunctionDef) -> list[Any]:
    return [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]


def _operation(fault: _Fault) -> str:
    if not isinstance(fault.node, ast.BinOp):
        return ""
    if isinstance(fault.node.op, ast.Pow):
        return "Triton has no `**`; write x * x, or tl.exp2(n * tl.log2(x))."
    return f"these two cannot be computed with each other. Here: {_bare(fault.words)}."


def _attribute(fault: _Fault) -> str:
    if not isinstance(fault.node, ast.Attribute):
        return ""
    where = ast.unparse(fault.node.value)
    if _is_of_python(fault, where):
        return f"{where}.{fault.node.attr} {_OF_PYTHON}"
    if where in _imported(fault):
        module = _imported_from(fault, where)
        if hasattr(sys.modules.get(module), fault.node.attr):
            return f"{where} stands for something other than {module} by now: which line has given it another value?"
        return f"{module} has no {fault.node.attr}."
    return f"neither a tile nor a number of a kernel has `.{fault.node.attr}`."


def _subscript(fault: _Fault) -> str:
    if isinstance(fault.node, ast.Subscript):
        return (
            "neither a pointer nor a tile has elements with a number: load with tl.load(x_ptr + i), and take one of a "
            "tile with a mask and tl.sum."
        )
    return ""


_EXPLAIN: tuple[Callable[[_Fault], str], ...] = (
    _type_changes, _said, _not_in_the_language, _return_in_a_loop, _loop_over_something_else, _condition_is_a_tile,
    _comparison, _list_method, _name, _call, _operation, _attribute, _subscript,
)  # fmt: skip
