"""A kernel's source, with all that it names, and the kernel that another process makes of it."""

import ast
import linecache
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from helpers import DEVICE
from helpers.engine import kernel_text
from small_kernels import (
    calling_kernel,
    constexpr_kernel,
    copy_kernel,
    documented_kernel,
    exp_kernel,
    max_kernel,
    quarter,
)

MINUS_INF = tl.constexpr(-float("inf"))
TABLE = [1.0, 2.0]
F32 = tl.float32
in_quarters = quarter


@triton.jit
def infinite_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.maximum(tl.load(x_ptr + cols, mask=cols < N), MINUS_INF), mask=cols < N)


@triton.jit
def alias_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, in_quarters(tl.load(x_ptr + cols, mask=cols < N)), mask=cols < N)


@triton.jit
def list_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < N) * TABLE, mask=cols < N)


def output(kernel):
    """What a kernel of (y_ptr, x_ptr, N, BLOCK) makes of a short row."""
    x = torch.linspace(-1, 1, 5, device=DEVICE)
    y = torch.zeros(5, device=DEVICE)
    kernel[(1,)](y, x, 5, BLOCK=8)
    return y


def remade(kernel):
    return kernel_text.load(kernel_text.source(kernel), kernel.fn.__name__)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(copy_kernel, id="on its own"),
        pytest.param(documented_kernel, id="with a docstring, a comment and a default"),
        pytest.param(calling_kernel, id="that calls kernels that call kernels"),
        pytest.param(constexpr_kernel, id="that names a tl.constexpr"),
        pytest.param(infinite_kernel, id="that names an infinite tl.constexpr"),
        pytest.param(alias_kernel, id="that calls a kernel by another name"),
        pytest.param(max_kernel, id="that names a kernel of Triton"),
    ],
)
def test_a_kernel_made_again_from_its_source_gives_the_same_result(kernel):
    assert torch.equal(output(remade(kernel)), output(kernel))


def test_a_kernel_made_again_has_a_source_itself():
    assert kernel_text.source(remade(calling_kernel)) == kernel_text.source(calling_kernel)


def test_the_source_holds_what_the_kernel_names_and_nothing_else():
    module = ast.parse(kernel_text.source(calling_kernel))
    imported = {name.asname or name.name for node in module.body if isinstance(node, ast.Import) for name in node.names}
    assigned = {node.targets[0].id for node in module.body if isinstance(node, ast.Assign)}
    defined = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    assert (imported, assigned, defined) == ({"triton", "tl"}, {"HALF"}, {"halve", "quarter", "calling_kernel"})


def test_the_source_imports_a_function_of_triton_from_where_it_comes():
    assert "from triton.language.math import exp as tl_exp" in kernel_text.source(exp_kernel)


def test_the_source_imports_a_kernel_of_triton_from_where_it_comes():
    assert "from triton.language.standard import max as tl_max" in kernel_text.source(max_kernel)


@pytest.mark.parametrize("value", [1.5, -0.0, float("inf"), -float("inf"), float("nan"), 3, True, "a", None], ids=repr)
def test_the_text_of_a_constant_gives_the_constant_again(value):
    again = eval(kernel_text._literal(value))
    assert type(again) is type(value) and repr(again) == repr(value)


def test_a_definition_has_no_decorators():
    assert kernel_text.definition(copy_kernel).startswith("def copy_kernel(")


def test_a_kernel_whose_source_is_lost_is_refused_with_what_to_do():
    exec("def lost(x_ptr): pass", scope := {})
    with pytest.raises(ValueError, match="the source of lost cannot be found; define it in a cell or a file"):
        kernel_text.source(SimpleNamespace(fn=scope["lost"]))


@pytest.mark.parametrize("other", ["import triton", "def another(x_ptr): pass", "    or half a line"])
def test_another_text_in_the_place_of_a_kernel_is_not_taken_for_its_source(monkeypatch, other):
    monkeypatch.setitem(linecache.cache, "<replaced>", (len(other), None, [other], "<replaced>"))
    exec(compile("def replaced(x_ptr): pass", "<replaced>", "exec"), scope := {"__name__": __name__})
    with pytest.raises(ValueError, match="the source of replaced cannot be found"):
        kernel_text.source(SimpleNamespace(fn=scope["replaced"]))


@triton.jit
def dtype_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(F32))


def test_a_global_may_be_a_dtype():
    assert "from triton.language import float32 as F32" in kernel_text.source(dtype_kernel)


def test_a_global_that_cannot_be_written_down_is_refused_by_its_name():
    with pytest.raises(ValueError, match="the kernel uses the global TABLE, a list; pass it as an argument instead"):
        kernel_text.source(list_kernel)
