"""Which text is a kernel: what learners write is taken, what is more than Triton's language is refused."""

import ast
import builtins
import textwrap

import pytest
import torch
import triton
import triton.language as lang
import triton.language as tl
from triton.language import exp, load

from exercises import SOLUTIONS
from helpers import DEVICE, kernels
from helpers.engine import kernel_text
from helpers.instructor.sandbox import constants, dialect, language, vocabulary

IMPORTS = "import triton\nimport triton.language as tl\n"
BODY = f"{IMPORTS}@triton.jit\ndef kernel(y_ptr, x_ptr, N: tl.constexpr):\n    "

# What is taken


@pytest.mark.parametrize("name", ["single_tile", "masked", "two_pass", "online"])
def test_the_solutions_are_triton(name):
    language.require(kernel_text.source(SOLUTIONS[name].answered().__globals__["softmax_kernel"]))


@pytest.mark.parametrize(
    "kernel", [v for v in vars(kernels).values() if hasattr(v, "arg_names")], ids=lambda v: v.fn.__name__
)
def test_the_course_s_kernels_are_triton(kernel):
    language.require(kernel_text.source(kernel))


@pytest.mark.parametrize(
    "line",
    [
        "x = tl.load(x_ptr + tl.arange(0, N)); tl.store(y_ptr, x.sum())",
        "tl.store(y_ptr, tl.max(x_ptr, axis=0).to(y_ptr.type.element_ty))",
        "for i in tl.static_range(0, N, 2):\n        tl.atomic_add(y_ptr + i, 1.0, sem='relaxed')",
        "while N > 1 and not N == 3:\n        tl.debug_barrier()",
        "x = tl.math.exp(tl.full([N], float('-inf'), tl.float32)) if N else min(1, 2)",
        "tl.static_assert(N > 0, f'N is {N}'); tl.device_print('x', N); tl.static_print(N)",
        "p = tl.make_block_ptr(x_ptr, shape=(N,), strides=(1,), offsets=(0,), block_shape=(8,), order=(0,))\n"
        "    x = tl.load(p, boundary_check=(0,), padding_option='zero'); p = tl.advance(p, (8,))",
        "d = tl.make_tensor_descriptor(x_ptr, shape=[N, N], strides=[N, 1], block_shape=[1, 8])\n"
        "    d.store([0, 0], d.load([0, 0]))",
        "x = tl.arange(0, N); tl.static_assert(x.numel == N and x.dtype.int_bitwidth == 32 and x.dtype.name == 'fp32')",
        "x = tl.arange(0, N).to(tl.float32); x = (x - x.max(0)).exp(); tl.store(y_ptr, x / x.sum(axis=0))",
        "for _ in tl.range(0, N, num_stages=2, loop_unroll_factor=1):\n        pass",
        "M: tl.constexpr = 2 * N; x = tl.zeros([M], dtype=tl.float32)",
        "x, y = tl.split(tl.zeros([4, 2], tl.float32)); z = [tl.exp(part) for part in (x, y)]",
        "x = tl.maximum(x_ptr, N, propagate_nan=tl.PropagateNan.ALL)",
        "x = tl.load(x_ptr, eviction_policy='evict_first', cache_modifier='.cg', volatile=True)",
    ],
)
def test_a_line_is_triton(line):
    language.require(BODY + line)


HALF = tl.constexpr(0.5)
EPSILON = 2.0**-20


@triton.constexpr_function
def doublings(n):
    return max(0, n.bit_length() - 1)


@triton.jit
def sum(a, b):
    return a + b


@triton.jit
def usual_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + cols, e / tl.sum(e, axis=0), mask=cols < N)


@triton.jit
def shadowing_kernel(output, input, stride, N: "tl.constexpr", BLOCK: lang.constexpr = 4 * 4):
    """Python's names for tiles of its own, hints, a docstring, names imported one by one."""
    row: tl.tensor = lang.program_id(0)
    cols = lang.arange(0, BLOCK)
    x = load(input + row * stride + cols, mask=cols < N, other=-float("inf"))
    max = x.max(axis=0)
    tl.static_assert(cols.numel == BLOCK, f"not {BLOCK}")
    e = exp(x - max) * HALF
    l = tl.reduce(e, 0, sum)
    tl.store(output + row * stride + cols, e / l, mask=cols < N)


@triton.jit
def method_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + cols, mask=cols < N, other=-float("inf"))
    e = (x - x.max(0)).exp()
    tl.store(y_ptr + tl.program_id(0) * stride + cols, e / e.sum(axis=0), mask=cols < N)


@pytest.mark.parametrize(
    "kernel", [usual_kernel, shadowing_kernel, method_kernel], ids=lambda kernel: kernel.fn.__name__
)
def test_a_kernel_that_is_taken_does_what_it_did(kernel):
    again = language.load_checked(kernel_text.source(kernel), kernel.fn.__name__)
    x = torch.randn(3, 13, device=DEVICE)
    y = torch.empty_like(x)
    again[(3,)](y, x, 13, 13, BLOCK=16)
    assert torch.allclose(y, torch.softmax(x, dim=1))


def test_names_of_python_s_builtins_travel_under_others():
    text = kernel_text.source(shadowing_kernel)
    bound = {
        node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and type(node.ctx) is ast.Store
    }
    assert "max_" in bound and not bound & set(vars(builtins))
    assert "def sum_(a, b):" in text and "input_, stride" in text


@triton.jit
def both_names_kernel(y_ptr, max, max_):
    tl.store(y_ptr, max + max_)


def test_a_name_that_cannot_travel_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="has the names max and max_; rename one of them"):
        kernel_text.source(both_names_kernel)


def test_a_function_of_constants_is_taken_with_python_s_arithmetic():
    text = f"{IMPORTS}@triton.constexpr_function\ndef f(n):\n    return sum([abs(n), round(2.5)])\n"
    assert language.load_checked(text, "f").fn(3) == 5


@pytest.mark.parametrize(
    ("value", "is_"),
    [("-2 ** 10", -1024), ("1 / 4", 0.25), ("float('-inf')", -float("inf")), ("tl.constexpr(3)", 3), ("'a'", "a"),
     ("(1, 2)", (1, 2)), ("not None", True), ("tl.constexpr(tl.float32)", tl.float32), ("1 << 20", 1 << 20)],
)  # fmt: skip
def test_a_constant_is_a_literal_or_arithmetic_on_literals(value, is_):
    text = f"{IMPORTS}C = {value}\n@triton.jit\ndef kernel(y_ptr, n=C):\n    tl.store(y_ptr, n)\n"
    default = language.load_checked(text, "kernel").fn.__defaults__[0]
    assert getattr(default, "value", default) == is_


# What is refused


@pytest.mark.parametrize(
    "line",
    [
        "import os", "y_ptr.handle.data", "y_ptr.__class__", "getattr(y_ptr, 'x')", "eval('1')", "open('x')",
        "__import__('os')", "globals()", "(lambda: 1)()", "y_ptr.x = 1", "tl.core", "tl.sys", "tl = N",
        "triton.runtime", "tl.load.__globals__", "interpreter_semantic", "exec('x')", "def f(): pass",
        "class A: pass", "with x: pass",
        "try:\n        pass\n    except: pass", "vars()", "type(x_ptr)", "breakpoint()", "input()", "x = yield",
        "global y", "'{0.__class__}'.format(x_ptr)", "f'{x_ptr.__class__}'", "del x_ptr", "raise ValueError",
        "triton.cdiv.__wrapped__", "tl.math.sys", "super()", "kept = [0] * 99; kept[0] = tl.load(x_ptr)",
        "tl.str_to_ty('tensordesc<fp32[16],print(1)>', 0)", "z = [0 for eval in (0,)]", "eval = 1", "(eval := 1)",
        "for open in (1,):\n        pass", "tl.tensor", "tl.dtype('fp32')", "tl.PropagateNan", "x = tl", "m = triton",
        "print(N, file=y_ptr)", "tl.static_print(N, file=y_ptr)", "tl.load(x_ptr, _semantic=y_ptr)", "tl.load(**x_ptr)",
        "tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "x: print('x') = 1", "x: int", "a, *b = x_ptr",
        "nowhere", "x = 'a\\x1b'", "x = b'a'", "x = 1j", "x = ...", "tl.load.fn", "tl.math.tl", "tl.language",
        "hasattr", "[x for x in y for y in N]", "match N:\n        case 1: pass", "async def f(): pass", "{1: 2}",
        "{x for x in N}", "N.value.real", "tl.extra.libdevice.exp(x_ptr)", "__builtins__",
        "x = tl.pointer_type(tl.float32)", "list.__subclasses__()", "print.__self__", "x[0] += 1", 
        "_compiled_meaning.semantic", "assert N, eval('1')", "z = [part for part in (0,)]; x = part",
    ],
)  # fmt: skip
def test_a_line_is_more_than_triton(line):
    with pytest.raises(language.NotTriton):
        language.require(BODY + line)


@pytest.mark.thinned
@pytest.mark.parametrize(
    "text",
    [
        "import os", "print(1)", "from os import system", "from triton.language import *", "x = __import__('os')",
        "@print\ndef f(): pass", "@triton.jit\ndef f(x=open('x')): pass", "from triton import runtime",
        "import triton.runtime as tl", "def f(:", "a = eval('1')\neval = 1",
        "a = eval('1')\nfrom math import floor as eval",
        "from triton.language import load as open", "@triton.jit\ndef k(eval): pass", "@triton.jit\ndef print(x): pass",
        "@triton.jit\ndef k(x, eval=eval('1')): pass",
        "@triton.jit\ndef k(x, open=print('x', file=open('y', 'w'))): pass",
        "@triton.jit\ndef k(*, open): pass", "@triton.jit\ndef k(*eval): pass", "@triton.jit\ndef k(**options): pass",
        "@triton.jit\ndef k(x: eval('1')): pass", "@triton.jit\ndef k(x: 'tensordesc<fp32[16],print(1)>'): pass",
        "@triton.jit\ndef k(x) -> eval('1'): pass", "@triton.jit\ndef k(x=[]): pass", "@triton.jit\ndef k(x={}): pass",
        "@triton.jit(repr=eval('1'))\ndef k(x): pass", "@triton.jit(debug=eval('1'))\ndef k(x): pass",
        "@triton.jit\n@print\ndef k(x): pass", "@triton.jit\nasync def k(x): pass", "x = [eval('1')]", "x = f'{eval}'",
        "x = 9 ** 9 ** 9", "x = 1 << 99999", "x = 'a' * 99999", "x = 'a' * 3", "x = 1 / 0", "x = (-1) ** 0.5",
        "x: eval('1') = 1", "x = float(1, base=2)", f"x = '{1001 * 'a'}'", f"x = 1{400 * '0'}", "x = 'a' + 'b'",
        "x = tl.constexpr(eval('1'))", "x = tl.constexpr", "x = y", "x = 1\nx = 2", "tl = 3", "import math as sum",
        "from triton.language.core import builtins", "from triton.language.core import knobs", "import triton.language",
        "from ..language import load", "from triton.language.extra import libdevice", "x = 1; eval('1')", "if 1: pass",
        "from __future__ import annotations", "@triton.constexpr_function\ndef f(n):\n    return eval('1')",
        "@triton.jit\ndef f(x):\n    return abs(x)",
    ],
)  # fmt: skip
def test_text_beside_kernels_is_refused(text):
    with pytest.raises(language.NotTriton):
        language.require(IMPORTS + text if "import triton." not in text else text)


@pytest.mark.parametrize(("line", "said"), [
    ("tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "assembly is not graded here, because no interpreter"),
    ("tl.extra.libdevice.exp(x_ptr)", "the functions of libdevice are not graded here, because the interpreter lacks"),
    ("y_ptr.handle", "the attribute handle"), ("nowhere + 1", "nowhere is not defined"), ("x = tl", "tl is a module"),
])  # fmt: skip
def test_what_is_refused_is_named(line, said):
    with pytest.raises(language.NotTriton, match=said):
        language.require(BODY + line)


def test_a_text_that_is_refused_runs_no_statement(tmp_path):
    text = f"{IMPORTS}x = open({str(tmp_path / 'made')!r}, 'w')\n@triton.jit\ndef kernel(x): pass\n"
    with pytest.raises(language.NotTriton):
        language.load_checked(text, "kernel")
    assert not (tmp_path / "made").exists()


def test_a_name_that_the_text_does_not_define_is_not_a_kernel():
    with pytest.raises(language.NotTriton, match="tl is not a kernel"):
        language.load_checked(BODY + "pass", "tl")


def test_what_a_kernel_finds_of_python_is_what_the_table_says():
    kernel = language.load_checked(BODY + "pass", "kernel")
    assert "eval" not in kernel.fn.__globals__["__builtins__"]
    assert set(kernel.fn.__globals__["__builtins__"]) >= vocabulary.PYTHON_BUILTINS


def test_triton_reads_the_text_that_was_checked():
    """Lines end where Python's parser ends them: another one would show Triton what stands in a string."""
    text = textwrap.dedent(f"""
        {IMPORTS.splitlines()[0]}
        {IMPORTS.splitlines()[1]}
        A = "\u2028@triton.jit\u2028def kernel(y_ptr): eval('1')\u2028"
        @triton.jit
        def kernel(y_ptr):
            tl.store(y_ptr, 1)
    """)
    with pytest.raises(language.NotTriton):
        language.load_checked(text, "kernel")


# The table


@pytest.mark.parametrize("table", dialect.TABLES)
def test_what_is_written_down_is_what_the_compiler_takes(table):
    """Or what this Triton does not have at all: the list is that of one Triton, and others lack names of it."""
    assert not (getattr(vocabulary, table) & dialect.there_is(table)) - dialect.TABLES[table]()


@pytest.mark.parametrize("table", dialect.TABLES)
def test_nothing_that_is_written_down_evaluates_imports_opens_or_reflects(table):
    hidden = set(vars(builtins)) - vocabulary.PYTHON_BUILTINS - {"abs", "pow", "sum"}
    reflect = {"str_to_ty", "tensor", "dtype", "PropagateNan", "block_type", "pointer_type", "core", "semantic",
               "extra", "fn", "run", "handle", "base", "data", "format", "inline_asm_elementwise", "file"}  # fmt: skip
    if table in ("ATTRIBUTES", "KEYWORDS"):
        hidden, reflect = set(), reflect - {"dtype", "base"}
    assert not getattr(vocabulary, table) & (hidden | reflect)
    assert not any(name.startswith("_") for name in getattr(vocabulary, table))


def test_a_constant_of_another_kind_is_refused():
    with pytest.raises(constants.NotConstant):
        constants.value_of(ast.parse("f(1)", mode="eval").body, {})
