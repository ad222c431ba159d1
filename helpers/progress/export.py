"""What a learner takes home: lesson 16's operator and test as two files that need torch and triton alone."""

from __future__ import annotations

import ast
import builtins
import linecache
import symtable
import sys
import types
from pathlib import Path
from typing import Any

import torch

from helpers.check.kept import answer_of

_OURS = "helpers.softmax.taken_home"
_IMPORT = "import ", "from "
_HEAD = '''"""A softmax for PyTorch, with its gradient, in Triton. Written in lesson 16 of "Softmax in Triton"."""'''
_OPERATORS = """
# The same two functions as operators that torch.compile knows, and does not look into


def _like(x, *_):
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


_op = torch.library.custom_op
rows_operator = _op("my_softmax::rows", rows_softmax, mutates_args=(), schema="(Tensor x) -> Tensor")
gradient_operator = _op(
    "my_softmax::gradient", rows_gradient, mutates_args=(), schema="(Tensor y, Tensor dy) -> Tensor"
)
rows_operator.register_fake(_like)
gradient_operator.register_fake(_like)
rows_operator.register_autograd(
    lambda ctx, dy: gradient_operator(*ctx.saved_tensors, dy),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)
"""
_TEST_HEAD = '''"""Run by `pytest {test}`: on a GPU; without one, or with TRITON_INTERPRET=1, in the interpreter."""

import os

import torch

os.environ.setdefault("TRITON_INTERPRET", "0" if torch.cuda.is_available() else "1")

import {module}  # triton reads the variable when it is imported

DEVICE = torch.device("cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda")
'''
_TESTS = """
def test_rows_are_right():
    with DEVICE:
        assert looks_right(lambda x: {module}.softmax(x, dim=1))


def test_gradients_are_those_of_float64_along_each_dimension():
    for shape, dim in (((2, 3, 5), -1), ((2, 3, 5), 1), ((2, 3, 5), 0), ((70,), 0), ((0, 5), 1)):
        x, dy = (torch.randn(shape, device=DEVICE) for _ in range(2))
        wide = x.double().requires_grad_()
        {module}.softmax(x.requires_grad_(), dim).backward(dy)
        torch.softmax(wide, dim).backward(dy.double())
        torch.testing.assert_close(x.grad, wide.grad.float())


def test_gradients_are_those_of_differences():
    x = torch.randn(2, 7, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck({module}.softmax, x, eps=1e-2, atol=1e-3)  # in float32: a large step
"""
_TEST_OF_OPERATORS = """

def test_torch_compile_can_trust_the_operators():
    x = torch.randn(3, 70, device=DEVICE, requires_grad=True)
    torch.library.opcheck({module}.rows_operator, (x,))
"""


def export(path: str = "my_softmax.py") -> None:
    """Writes your operator of 16.1 to `path`, and your test of 16.2 to test_….py next to it.

    What has not passed its check in this session is the course's. An existing file of another text is kept, under its
    name and .bak. Raises ValueError for a name that cannot be imported, and for an answer that needs a name of helpers.
    """
    at = Path(path)
    if at.suffix != ".py" or not at.stem.isidentifier():
        raise ValueError(f"the file must have a name that Python can import, such as my_softmax.py; it is {at.name!r}.")
    test = at.with_name(f"test_{at.name}")
    operator, tested = answer_of("operator"), answer_of("looks_right")
    softmax = operator.__globals__["softmax"]
    parts = _parts(softmax)
    if "DEVICE" in parts:
        raise ValueError("your operator makes a tensor on DEVICE, which is the course's: make it on x.device.")
    has_operators = {"rows_softmax", "rows_gradient"} <= parts.keys()
    names = {"module": at.stem, "test": test.name}
    more = [_OPERATORS] if has_operators else []
    home = [_imports(_HEAD, parts), *_texts(parts), *more]
    of_test = _parts(tested)
    tests = [_TESTS, _TEST_OF_OPERATORS] if has_operators else [_TESTS]
    head = _imports(_TEST_HEAD.format(**names), of_test)
    _write(at, home)
    _write(test, [head, *_texts(of_test), *(one.format(**names) for one in tests)])


def _write(path: Path, parts: list[str]) -> None:
    text = "\n\n\n".join(part.strip("\n") for part in parts) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") != text:
        path.replace(path.with_name(f"{path.name}.bak"))
    path.write_text(text, encoding="utf-8")
    print(f"{path.name}: {text.count(chr(10))} lines")


def _imports(head: str, parts: dict[str, str]) -> str:
    lines = [text for text in parts.values() if text.startswith(_IMPORT) and f"\n{text}\n" not in head]
    return "\n\n".join([head, *(["\n".join(sorted(lines))] if lines else [])])


def _texts(parts: dict[str, str]) -> list[str]:
    return [text for text in parts.values() if text and not text.startswith(_IMPORT)]


def _parts(answer: Any) -> dict[str, str]:
    """By name the texts of what the answer needs, itself last: functions, kernels, classes, constants, imports."""
    parts: dict[str, str] = {}
    _collect(answer.__name__, answer, parts)
    return parts


def _collect(name: str, value: Any, parts: dict[str, str]) -> None:
    if name in parts:
        return
    if name == "DEVICE":
        parts[name] = ""
        return
    module = value.__name__ if isinstance(value, types.ModuleType) else str(getattr(_function(value), "__module__", ""))
    name_there = str(getattr(value, "__name__", name))
    if module.startswith("helpers.") and module != _OURS:
        raise ValueError(f"{name} is the course's own, and stays here: write what you need of it yourself.")
    if isinstance(value, types.ModuleType):
        whole = value.__name__
        parts[name] = f"import {whole}" if whole == name else f"import {whole} as {name}"
    elif module not in ("__main__", _OURS) and getattr(sys.modules.get(module), name_there, None) is value:
        parts[name] = f"from {module} import {name_there}" + f" as {name}" * (name_there != name)
    elif code := _code(value):
        text = _definition(code, name)
        parts[name] = ""  # on its way: a function may call itself
        known = _function(value).__globals__
        for used in sorted(_globals_in(text) & known.keys() - vars(builtins).keys()):
            _collect(used, known[used], parts)
        parts[name] = parts.pop(name) or text
    elif isinstance(value, int | float | str | tuple | torch.dtype | type(None)):
        parts[name] = f"{name} = float({str(value)!r})" if isinstance(value, float) else f"{name} = {value!r}"
    else:
        raise ValueError(f"{name} cannot be written to a file: it is a {type(value).__name__}.")


def _function(value: Any) -> Any:
    """The function of Python in a kernel; of a class, one of its methods."""
    if isinstance(value, type):
        methods = (getattr(one, "__func__", one) for one in vars(value).values())
        return next((one for one in methods if isinstance(one, types.FunctionType)), None)
    return getattr(value, "fn", value)


def _code(value: Any) -> types.CodeType | None:
    return getattr(_function(value), "__code__", None)


def _globals_in(text: str) -> set[str]:
    """The names that the text of a definition takes from around it."""
    tables = [symtable.symtable(text, "", "exec")]
    for table in tables:
        tables.extend(table.get_children())
    around = {one.get_name() for one in tables[0].get_symbols() if one.is_referenced()}
    return around | {one.get_name() for table in tables[1:] for one in table.get_symbols() if one.is_global()}


def _definition(code: types.CodeType, name: str) -> str:
    """The text of the definition of `name` in the file, or the cell, that this code is from."""
    lines = linecache.getlines(code.co_filename)
    for node in ast.parse("".join(lines)).body:
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        if getattr(node, "name", None) == name and first <= code.co_firstlineno <= node.end_lineno:
            return "".join(lines[first - 1 : node.end_lineno]).rstrip()
    raise ValueError(f"the text of {name} cannot be found: define it in a cell with def, then run its check again.")
