"""What the compiler refuses, in words that say what to change; what it takes; and its own words where nothing fits."""

import ast

import pytest
import torch

import needs
from helpers.engine import frontend, kernel_text
from helpers.engine.compiler import refusal

HEAD = """import math
import torch
import triton
import triton.language as tl
FACTOR = 3.0
SCALE = tl.constexpr(3.0)
@triton.jit
def twice(x):
    return 2 * x
@triton.jit
def kern(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
"""
LOOP = "for i in range(0, N):\n    "
CASES = {
    "an integer becomes a float": (
        f"l = 0\n{LOOP}l += tl.load(x_ptr + i)\ntl.store(y_ptr, l)",
        "`l = 0` is an integer (int32) and becomes a float (fp32) in the loop: begin with `0.0`.",
    ),
    "an integer among others": (
        f"m, l = 1.0, 0\n{LOOP}l += tl.load(x_ptr + i)\ntl.store(y_ptr, l)",
        "`m, l = (1.0, 0)`: l is an integer (int32) and becomes a float (fp32) in the loop: begin with `0.0`.",
    ),
    "in a while loop": (
        "l = 0\ni = 0\nwhile i < N:\n    l += tl.load(x_ptr + i)\n    i += 1\ntl.store(y_ptr, l)",
        "`l = 0` is an integer (int32)",
    ),
    "a number becomes a tile": (
        f"l = 0.0\n{LOOP}l += tl.load(x_ptr + tl.arange(0, BLOCK))\ntl.store(y_ptr, tl.sum(l, axis=0))",
        "becomes a tile of 16 numbers (fp32) in the loop: begin with a tile, such as `l = tl.zeros(",
    ),
    "a float becomes another float": (
        f"l = tl.load(x_ptr).to(tl.bfloat16)\n{LOOP}l = l + tl.load(x_ptr + i)\ntl.store(y_ptr, l)",
        "convert with `.to(tl.bfloat16)`",
    ),
    "nothing becomes a number": (
        f"m = None\n{LOOP}m = tl.load(x_ptr + i)\ntl.store(y_ptr, m)",
        "`m = None` is not a number or a tile",
    ),
    "an address as a number": (
        "tl.store(y_ptr, tl.max(x_ptr, axis=0))",
        "`tl.store(y_ptr, tl.max(x_ptr, axis=0))`: an address stands where numbers belong: load them first",
    ),
    "an address in a formula": ("tl.store(y_ptr, tl.exp(x_ptr))", "an address stands where numbers belong"),
    "whole numbers in a formula": (
        "tl.store(y_ptr, tl.exp(tl.program_id(0)))",
        "whole numbers stand where floats belong",
    ),
    "a mask without columns": (
        "tl.store(y_ptr, tl.sum(tl.load(x_ptr, mask=tl.arange(0, BLOCK) < N)))",
        "the mask is a tile, and the address is a single one",
    ),
    "branches of two types": (
        "if N > 5:\n    l = 0\nelse:\n    l = 1.5\ntl.store(y_ptr, l)",
        "l is an integer (int32) after one branch and a float (fp32) after the other",
    ),
    "a number of another type in a branch": (
        "l = 0.5\nif N > 5:\n    l = 0\ntl.store(y_ptr, l)",
        "l is a float (fp32) before the branch and an integer (int32) in it: give it one type.",
    ),
    "a tile in a branch": (
        "l = 0.5\nif N > 5:\n    l = tl.zeros([BLOCK], tl.float32)\ntl.store(y_ptr, 1.0)",
        "l is a float (fp32) before the branch and a tile of 16 numbers (fp32) in it: give it one type.",
    ),
    "cdiv of triton": (
        "tl.store(y_ptr, triton.cdiv(N, BLOCK))",
        "triton.cdiv is for numbers outside kernels: write tl.cdiv here.",
    ),
    "defined in a loop": (f"{LOOP}l = tl.load(x_ptr + i)\ntl.store(y_ptr, l)", "l has a value only where"),
    "break": (f"{LOOP}if i > 3:\n        break", "Triton has no `break`"),
    "continue": (f"{LOOP}if i > 3:\n        continue", "Triton has no `continue`"),
    "return in a loop": (f"{LOOP}if i > 3:\n        return", "`if i > 3:`: Triton has no `return` inside a loop"),
    "append": (f"es = []\n{LOOP}es.append(tl.load(x_ptr))", "`es.append(tl.load(x_ptr))`: Triton has no lists"),
    "a list grows": (f"es = []\n{LOOP}es += [tl.load(x_ptr)]", "`es += [tl.load(x_ptr)]`: Triton has no lists"),
    "an element assigned": ("es = [0.0, 1.0]\nes[0] = 2.0", "neither a list nor a tile has elements that can be"),
    "a list comprehension": ("es = [i for i in range(3)]", "Triton has no lists that change"),
    "a dict": ("d = {}", "Triton has no dicts"),
    "a set": ("d = {1, 2}", "Triton has no sets"),
    "try": ("try:\n    tl.store(y_ptr, 0.0)\nfinally:\n    pass", "Triton has no exceptions"),
    "lambda": ("f = lambda x: x", "Triton has no `lambda`"),
    "a function inside": ("def f(x):\n    return x\ntl.store(y_ptr, f(0.0))", "no functions within a kernel"),
    "walrus": ("if (k := N) > 3:\n    tl.store(y_ptr, k)", "Triton has no `:=`"),
    "else of a loop": ("for i in range(3):\n    pass\nelse:\n    pass", "Triton has no `else` of a loop"),
    "over a list": ("for i in [0, 1]:\n    tl.store(y_ptr, i)", "goes over range, tl.range or tl.static_range"),
    "enumerate": ("for i, j in enumerate(range(3)):\n    pass", "enumerate is Python's. A loop of a kernel goes"),
    "for ever": ("while True:\n    pass", "this one never ends"),
    "a tile as a condition": ("if tl.arange(0, 8) > 0:\n    pass", "the condition is a tile"),
    "three compared": ("tl.store(y_ptr, 0.0, mask=0 < N < 3)", "compares two values at a time"),
    "in": ("if N in (1, 2):\n    pass", "Triton has no `in`"),
    "arange of N": ("tl.store(y_ptr + tl.arange(0, N), 0.0)", "the bounds of tl.arange must be known to the compiler"),
    "arange of 7": ("tl.store(y_ptr + tl.arange(0, 7), 0.0)", "lie a power of 2 apart"),
    "zeros of N": ("tl.zeros((N,), tl.float32)", "the sizes of a tile must be numbers or tl.constexpr"),
    "torch": ("tl.store(y_ptr, torch.exp(tl.load(x_ptr)))", "torch.exp is a function of Python, which no GPU has"),
    "math": ("tl.store(y_ptr, math.exp(tl.load(x_ptr)))", "math.exp is a function of Python"),
    "float": ("tl.store(y_ptr, float(N))", "float(…) is Python's"),
    "sum": ("tl.store(y_ptr, sum(tl.load(x_ptr + tl.arange(0, 8))))", "sum is a function of Python: use tl.sum"),
    "a global": ("tl.store(y_ptr, FACTOR)", "a kernel cannot read the global FACTOR"),
    "misspelt": ("tl.store(y_ptr, nowhere)", "nowhere is not defined here"),
    "not in triton": ("tl.store(y_ptr, tl.tanh(1.0))", "triton.language has no tanh"),
    "a pointer indexed": ("tl.store(y_ptr, x_ptr[0])", "neither a pointer nor a tile has elements with a number"),
    "a tile stored through one pointer": ("tl.store(y_ptr, tl.arange(0, 8))", "tl.store takes pointers, and then"),
    "tiles of two sizes": ("x = tl.arange(0, 8) + tl.arange(0, 16)", "one tile has 8 numbers, and the other 16"),
    "a power": ("tl.store(y_ptr, tl.load(x_ptr) ** 2)", "Triton has no `**`"),
    "print of a tile": ("print(tl.load(x_ptr + tl.arange(0, 8)))", "a text comes first, and then"),
    "print of a number": ("print(N)", "tl.device_print"),
    "keepdim": ("x = tl.max(tl.load(x_ptr + tl.arange(0, 8)), axis=0, keepdim=True)", "keepdim is called keep_dims"),
    "dim": ("x = tl.sum(tl.load(x_ptr + tl.arange(0, 8)), dim=0)", "dim is called axis"),
    "other before mask": (
        'c = tl.arange(0, 8)\ntl.store(y_ptr + c, tl.load(x_ptr + c, -float("inf"), c < N))',
        "the second argument of tl.load is the mask",
    ),
    "a number in place of a mask": (
        "c = tl.arange(0, 8)\ntl.store(y_ptr + c, tl.load(x_ptr + c, 0.0))", "`tl.load(x_ptr + c, 0.0)`: the second",
    ),
    "calls itself": ("kern(y_ptr, x_ptr, N, BLOCK)", "no functions that call themselves"),
}  # fmt: skip
if needs.TRITON >= (3, 8):
    del CASES["walrus"]
if needs.TRITON >= (3, 9):
    del CASES["three compared"]
TAKEN = {
    "a float from the start": f"l = 0.0\n{LOOP}l += tl.load(x_ptr + i)\ntl.store(y_ptr, l)",
    "an integer counted": f"l = 0\n{LOOP}l += 1\ntl.store(y_ptr, l)",
    "a while loop": "i = 0\nwhile i < N:\n    i += 1\ntl.store(y_ptr, i)",
    "an early return": "if N > 3:\n    return\ntl.store(y_ptr, 0.0)",
    "static_range and a tuple": "a = (1.0, 2.0)\nfor i in tl.static_range(2):\n    tl.store(y_ptr + i, a[i])",
    "a list that stays": "a = [1.0, 2.0]\ntl.store(y_ptr, a[0])",
    "a function of one's own": "tl.store(y_ptr, twice(tl.load(x_ptr)))",
    "a constexpr global": "tl.store(y_ptr, SCALE)",
    "methods": "tl.store(y_ptr, tl.load(x_ptr + tl.arange(0, 8)).max(axis=0))",
    "maximum of Python": "tl.store(y_ptr, max(tl.load(x_ptr), 0.0))",
    "infinity of Python": 'tl.store(y_ptr, -float("inf"))',
    "print and assert": 'print("N", N)\nassert N > 0\ntl.store(y_ptr, 0.0)',
}


def kernel_text_of(body):
    return HEAD + "".join(f"    {line}\n" for line in body.splitlines())


def told(body):
    """What is said of a kernel with this body: the reason and its meaning, or None where the front end takes it."""
    text = kernel_text_of(body)
    x = torch.zeros(8)
    objection = frontend.objection(kernel_text.load(text, "kern"), (x, x, 3), {"BLOCK": 16})
    return objection and refusal.why(objection.error, text)


@pytest.mark.thinned
@needs.interpreter
@pytest.mark.parametrize("name", CASES)
def test_a_refusal_is_explained(name):
    body, meaning = CASES[name]
    assert meaning in told(body)[1]


@needs.interpreter
@pytest.mark.parametrize("name", TAKEN)
def test_what_the_compiler_takes_is_not_refused(name):
    assert told(TAKEN[name]) is None


@needs.interpreter
def test_no_advice_to_add_a_decorator_is_given_of_a_line_in_a_kernel():
    assert "jit" not in told("tl.store(y_ptr, tl.load(x_ptr + tl.arange(0, 8))[N])")[0]


# Where nothing fits


class Refused(Exception):
    """As Triton's CompilationError is made."""

    def __init__(self, src, node, error_message):
        self.src, self.node, self.error_message = src, node, error_message


def refused(body, words, kind=ast.For):
    text = kernel_text_of(body)
    source = text[text.index("def kern") :]
    node = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, kind))
    return refusal.why(Refused(source, node, words), text)


def test_words_that_have_moved_are_shown_as_they_are_with_the_line():
    assert refused(f"l = 0\n{LOOP}l += 1.0", "The type of l differs") == (
        "The type of l differs (in `for i in range(0, N):`)",
        "",
    )


def test_the_line_is_the_kernel_s_and_not_one_of_triton_s_library():
    outer = Refused("def kern(y_ptr, x_ptr, N, BLOCK: tl.constexpr):\n    x = tl.sum(y_ptr, 1)\n", None, "")
    outer.node = ast.parse(outer.src).body[0].body[0]
    outer.__cause__ = Refused("def sum(input):\n    return reduce(input)\n", ast.parse("return 1").body[0], "no axis 1")
    text = HEAD.partition("def kern")[0] + outer.src
    assert refusal.why(outer, text) == ("no axis 1 (in `x = tl.sum(y_ptr, 1)`)", "")


def test_an_error_about_no_line_is_shown_as_it_is():
    assert refusal.why(RuntimeError("error encountered during parsing"), kernel_text_of("pass")) == (
        "error encountered during parsing",
        "",
    )


def test_a_line_that_mlir_prints_is_read():
    printed = "<kernel kern 1a>:5:8: error: 'scf.yield' op must be the last operation\n#loc = 1"
    assert refusal.why_printed(HEAD, printed) == ("'scf.yield' op must be the last operation (in `FACTOR = 3.0`)", "")
    assert refusal.why_printed(HEAD, "<kernel kern 1a>:500:8: error: nowhere") == ("", "")


FAILED = "note: Pipeline failed while executing [`{}` on 'builtin.module' operation]: reproducer generated"


def test_a_pass_that_fails_is_the_compiler_s_fault_and_named_with_the_line_if_there_is_one():
    said = refusal.compilers_fault(HEAD, FAILED.format("TritonGPURemoveLayoutConversions"))
    assert "TritonGPURemoveLayoutConversions, failed. The fault is the compiler's, not the program's" in said
    assert "write what its loops change in another way" in said
    said = refusal.compilers_fault(
        HEAD, "<kernel kern 1a>:5:8: error: no\n" + FAILED.format("TritonGPUAccelerateMatmul")
    )
    assert "write `FACTOR = 3.0` in another way" in said


@pytest.mark.parametrize("printed", ["", "<kernel kern 1a>:5:8: error: no", FAILED.format("ConvertTritonGPUToLLVM")])
def test_what_a_gpu_lacks_is_refused_and_no_fault_of_the_compiler(printed):
    assert refusal.compilers_fault(HEAD, printed) == ""
