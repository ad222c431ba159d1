"""What Triton's compiler takes and what it refuses, a snippet each: the interpreter must agree with every line.

A snippet is the middle of a kernel. Before it stand

    cols = tl.arange(0, BLOCK)                           # BLOCK is 16
    v = tl.load(x + cols, mask=cols < N, other=0.0)      # N is 13

and where it makes an `out`, a tile or a scalar, this is stored to y. Beside a snippet that is taken stands what y then
holds, as a function of x[:N]. `above` is what stands at the top of the kernel's file, `more` further parameters.

    python tests/proofs/snippets.py

compiles each for a real GPU, in a process that compiles, and writes down what the compiler says.
"""

from __future__ import annotations

import ast
import json
import linecache
import os
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests/kit")]

import torch

from needs import TRITON

N, BLOCK = 13, 16
Expected = Callable[[torch.Tensor], Any]


@dataclass(frozen=True)
class Snippet:
    """The middle of a kernel, and what y holds after it; no `expected` means that the compiler refuses it."""

    body: str
    expected: Expected | None = None
    above: str = ""
    more: dict[str, Any] = field(default_factory=dict)


def _of_16(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (0, BLOCK - N))


TAKEN: dict[str, Snippet] = {
    # Loops and branches
    "for over range": Snippet("l = 0.0\nfor i in range(0, N):\n    l += tl.load(x + i)\nout = l", lambda x: x.sum()),
    "for over tl.range": Snippet(
        "l = 0.0\nfor i in tl.range(0, N, 1, num_stages=2):\n    l += tl.load(x + i)\nout = l", lambda x: x.sum()
    ),
    "for over tl.static_range": Snippet("for i in tl.static_range(3):\n    v += i\nout = v", lambda x: x + 3),
    "a range that goes down": Snippet(
        "k = 0\nfor i in range(N, 0, -1):\n    k = k * 2 % 1000 + i\nout = k",
        lambda x: __import__("functools").reduce(lambda k, i: k * 2 % 1000 + i, range(N, 0, -1), 0),
    ),
    "the variable of a loop is a tensor": Snippet(
        "at = 0\nfor i in range(0, N):\n    at = i\nout = tl.zeros((BLOCK,), tl.float32)\n"
        "for i in range(0, N):\n    out += tl.load(x + i.to(tl.int64))",
        lambda x: x.sum(),
    ),
    "for in for": Snippet(
        "l = 0.0\nfor i in range(0, 3):\n    for j in range(i, 4):\n        l += 1.0\nout = l", lambda x: 9.0
    ),
    "while": Snippet("i = 0\nwhile i < N:\n    i += 2\nout = i", lambda x: 14),
    "if on a number of the launch": Snippet("out = v\nif N > 3:\n    out = v * 2", lambda x: 2 * x),
    "if and else that give a name the same type": Snippet(
        "if N > 20:\n    out = v\nelse:\n    out = v + 1.0", lambda x: x + 1
    ),
    "if on a constexpr, of different types": Snippet("if BLOCK > 8:\n    out = v\nelse:\n    out = 1", lambda x: x),
    "elif": Snippet("if N > 20:\n    out = v\nelif N > 10:\n    out = v * 3\nelse:\n    out = v * 2", lambda x: 3 * x),
    "return before the end": Snippet(
        "tl.store(y + cols, v, mask=cols < N)\nif N > 3:\n    return\ntl.store(y + cols, v * 2, mask=cols < N)",
        lambda x: x,
    ),
    "a conditional expression": Snippet("out = v * 2 if N > 3 else v", lambda x: 2 * x),
    "pass": Snippet("if N > 3:\n    pass\nout = v", lambda x: x),
    "a walrus is no statement of the compiler, a pair is": Snippet("a, b = v, 1.0\nout = a + b", lambda x: x + 1),
    # Names and numbers
    "a constexpr from outside": Snippet("out = v + SHIFT", lambda x: x + 2, above="SHIFT = tl.constexpr(2)"),
    "a name of one's own for a constexpr": Snippet(
        "HALF: tl.constexpr = BLOCK // 2\nout = v + tl.sum(tl.arange(0, HALF))", lambda x: x + 28
    ),
    "infinity written out": Snippet('out = tl.maximum(v, -float("inf"))', lambda x: x),
    "numbers of a tuple are tensors": Snippet(
        'm, l = -float("inf"), 0.0\nm = tl.maximum(m, tl.max(v))\nout = m.to(tl.float64) + l.to(tl.float64)',
        lambda x: x.max().clamp(min=0),
    ),
    "a list is a tuple": Snippet("two = [v, 2.0]\nout = two[0] * two[1]", lambda x: 2 * x),
    "a list made from a tuple": Snippet("two = [a * 2 for a in (v, v)]\nout = two[0] + two[1]", lambda x: 4 * x),
    "a float of the launch is a tensor": Snippet(
        "out = v * scale.to(tl.float64)", lambda x: x * 0.5, more={"scale": 0.5}
    ),
    "None of the launch": Snippet("out = v\nif other is None:\n    out = v * 2", lambda x: 2 * x, more={"other": None}),
    "assert": Snippet("assert N > 3\nout = v", lambda x: x),
    "tl.static_assert": Snippet('tl.static_assert(BLOCK == 16, "a tile of 16")\nout = v', lambda x: x),
    "tl.device_assert": Snippet('tl.device_assert(N == 13, "thirteen")\nout = v', lambda x: x),
    "tl.static_print": Snippet('tl.static_print("BLOCK", BLOCK)\nout = v', lambda x: x),
    "print": Snippet('print("N", N)\nout = v', lambda x: x),
    "tl.device_print": Snippet('tl.device_print("N", N)\nout = v', lambda x: x),
    "an f-string of constexprs": Snippet('tl.static_assert(BLOCK == 16, f"{BLOCK} is not 16")\nout = v', lambda x: x),
    "a docstring": Snippet('"""Doubles."""\nout = v * 2', lambda x: 2 * x),
    # What is an operator of tiles
    "and of two tiles": Snippet("out = ((v > 0) and (v < 3)).to(tl.float32)", lambda x: ((x > 0) & (x < 3)).float()),
    "or of two tiles": Snippet("out = ((v < 0) or (v > 3)).to(tl.float32)", lambda x: ((x < 0) | (x > 3)).float()),
    "and of a scalar and a tile": Snippet("out = tl.where(N > 3 and v > 0, v, 0.0)", lambda x: x.clamp(min=0)),
    "not of a tile": Snippet("out = (not (v > 0)).to(tl.float32)", lambda x: (x <= 0).float()),
    "max of two tiles": Snippet("out = max(v, v * 2)", lambda x: torch.maximum(x, 2 * x)),
    "min of a tile and a number": Snippet("out = min(v, 0.5)", lambda x: x.clamp(max=0.5)),
    "min of constexprs": Snippet("out = v + tl.sum(tl.arange(0, min(BLOCK, 8)))", lambda x: x + 28),
    "//, %, <<, &, ~ of integers": Snippet(
        "k = cols // 3 + cols % 3 + (cols << 1) + (cols & 5) + ~cols\nout = k",
        lambda x: (k := torch.arange(N)) // 3 + k % 3 + (k << 1) + (k & 5) + ~k,
    ),
    "a tile of two dimensions": Snippet("out = tl.sum(v[:, None] * v[None, :], axis=1)", lambda x: x * x.sum()),
    "methods": Snippet(
        "out = v.to(tl.float32) - v.max(axis=0) + v.sum()", lambda x: x - x.max().clamp(min=0) + x.sum()
    ),
    "methods of tl.math": Snippet(
        "out = (v - v.max(axis=0)).exp() + v.abs().sqrt()", lambda x: (x - x.max().clamp(min=0)).exp() + x.abs().sqrt()
    ),
    ".T, trans and reshape": Snippet("out = v.reshape(4, 4).T.trans().reshape(BLOCK)", lambda x: x),
    # Functions
    "a function of one's own": Snippet(
        "out = twice(v)", lambda x: 2 * x, above="@triton.jit\ndef twice(a):\n    return a * 2"
    ),
    "a function that returns a pair": Snippet(
        "a, b = both(v)\nout = a + b",
        lambda x: 3 * x,
        above="@triton.jit\ndef both(a):\n    return a, a * 2",
    ),
    "a function of one's own passed as a constexpr": Snippet(
        "out = apply(v, twice)",
        lambda x: 2 * x,
        above="@triton.jit\ndef twice(a):\n    return a * 2\n\n\n"
        "@triton.jit\ndef apply(a, f: tl.constexpr):\n    return f(a)",
    ),
    "a constexpr function": Snippet(
        "out = v + tl.sum(tl.arange(0, half(BLOCK)))",
        lambda x: x + 28,
        above="@triton.constexpr_function\ndef half(n):\n    return n // 2",
    ),
    "tl.reduce with a function of one's own": Snippet(
        "out = tl.reduce(v, 0, larger)",
        lambda x: x.max().clamp(min=0),
        above="@triton.jit\ndef larger(a, b):\n    return tl.where(a > b, a, b)",
    ),
    "tl.reduce of two tiles": Snippet(
        "m, l = tl.reduce((v, v), 0, both)\nout = m + l",
        lambda x: x.max().clamp(min=0) + x.sum(),
        above="@triton.jit\ndef both(a, b, c, d):\n    return tl.maximum(a, c), b + d",
    ),
    "tl.associative_scan": Snippet(
        "out = tl.associative_scan(v, 0, plus)",
        lambda x: x.cumsum(0),
        above="@triton.jit\ndef plus(a, b):\n    return a + b",
    ),
    "tl.cumsum": Snippet("out = tl.cumsum(v, axis=0)", lambda x: x.cumsum(0)),
    "tl.softmax": Snippet("out = tl.softmax(v)", lambda x: _of_16(x).softmax(0)[:N]),
    "tl.sort and tl.flip": Snippet(
        "out = tl.flip(tl.sort(v), 0)", lambda x: _of_16(x).sort(descending=True).values[:N]
    ),
    "tl.cdiv": Snippet("out = v + tl.cdiv(N, 4)", lambda x: x + 4),
    "tl.where, tl.exp, tl.log": Snippet("out = tl.log(tl.exp(tl.where(v > 0, v, 0.0)))", lambda x: x.clamp(min=0)),
    "exp2 with log2(e)": Snippet("out = tl.exp2(v * 1.4426950408889634)", torch.exp),
    "fp64": Snippet("out = tl.exp(v.to(tl.float64))", torch.exp),
    "bf16": Snippet("out = (v.to(tl.bfloat16) + v.to(tl.bfloat16)).to(tl.float32)", lambda x: 2 * x.bfloat16().float()),
    "from triton.language import": Snippet(
        "out = exp(load(x + arange(0, BLOCK), mask=cols < N, other=0.0))",
        torch.exp,
        above="from triton.language import arange, exp, load",
    ),
    "another name for triton.language": Snippet(
        "out = lang.exp(v).to(lang.float32)", torch.exp, above="import triton.language as lang"
    ),
    "a mask and a number": Snippet("out = tl.load(x + cols, mask=(cols < N) & (N > 0), other=0.0)", lambda x: x),
    "a cache modifier": Snippet('out = tl.load(x + cols, mask=cols < N, cache_modifier=".cg")', lambda x: x),
    "an eviction policy": Snippet('out = tl.load(x + cols, mask=cols < N, eviction_policy="evict_first")', lambda x: x),
    "integers and floats to bf16 and back": Snippet(
        "a = cols.to(tl.bfloat16).to(tl.float64) + v.to(tl.float64).to(tl.bfloat16).to(tl.float16)\nout = a",
        lambda x: torch.arange(N) + x.bfloat16().float(),
    ),
    "dot of bf16": Snippet(
        "a = (v[:, None] + tl.zeros((1, BLOCK), tl.float32)).to(tl.bfloat16)\nout = tl.max(tl.dot(a, a.T), axis=1)",
        lambda x: (16 * (a := _of_16(x).bfloat16().float())[:, None] * a).max(1).values[:N],
    ),
    "a volatile load": Snippet("out = tl.load(x + cols, mask=cols < N, volatile=True)", lambda x: x),
    "an atomic addition": Snippet("tl.atomic_add(y + cols, v, mask=cols < N)", lambda x: x),
    "a table of pointers": Snippet(
        "p = tl.load(table).to(tl.pointer_type(tl.float32))\nout = tl.load(p + cols, mask=cols < N)",
        lambda x: x,
        more={"table": "x"},
    ),
    "a block pointer": Snippet(
        "p = tl.make_block_ptr(x, (N,), (1,), (0,), (BLOCK,), (0,))\n"
        'out = tl.load(p, boundary_check=(0,), padding_option="zero")',
        lambda x: x,
    ),
    "a tensor descriptor": Snippet(
        "d = tl.make_tensor_descriptor(x, (N,), (1,), (BLOCK,))\nout = d.load([0])", lambda x: x
    ),
    "an annotated number": Snippet("out: tl.float32 = v * 2", lambda x: 2 * x),
    "a name defined in both branches": Snippet("if N > 3:\n    k = 1\nelse:\n    k = 2\nout = v + k", lambda x: x + 1),
    "a global that a dead branch reads": Snippet(
        "out = v\nif BLOCK == 1:\n    out = v * SCALE", lambda x: x, above="SCALE = 0.5"
    ),
}

REFUSED: dict[str, Snippet] = {
    # Statements
    "break": Snippet("for i in range(0, N):\n    break"),
    "continue": Snippet("for i in range(0, N):\n    continue"),
    "return in a loop": Snippet("for i in range(0, N):\n    if i > 3:\n        return"),
    "while with else": Snippet("i = 0\nwhile i < N:\n    i += 1\nelse:\n    i = 0"),
    "for with else": Snippet("for i in range(0, N):\n    v += 1\nelse:\n    v = v"),
    "try": Snippet("try:\n    v += 1\nfinally:\n    v += 1"),
    "raise": Snippet('raise ValueError("no")'),
    "del": Snippet("del v"),
    "global": Snippet("global k\nk = 1"),
    "import": Snippet("import math"),
    "a function in a kernel": Snippet("def f(a):\n    return a\nout = f(v)"),
    "a class in a kernel": Snippet("class A:\n    pass"),
    "with open": Snippet("with open('file'):\n    pass"),
    "match": Snippet("match N:\n    case 1:\n        pass"),
    "yield": Snippet("yield v"),
    "two targets": Snippet("a = b = v"),
    # Expressions
    "a dict": Snippet("d = {1: v}"),
    "a set": Snippet("s = {1, 2}"),
    "a dict comprehension": Snippet("d = {i: i for i in (1, 2)}"),
    "a generator": Snippet("s = sum(i for i in (1, 2))"),
    "a list comprehension over range": Snippet("s = [i for i in range(3)]"),
    "lambda": Snippet("f = lambda a: a\nout = f(v)"),
    "walrus": Snippet("if (k := N) > 3:\n    v += 1"),
    "a chain of comparisons": Snippet("out = tl.where(0 < cols < N, v, 0.0)"),
    "in": Snippet("if N in (1, 2):\n    v += 1"),
    "a list that grows": Snippet("tiles = []\nfor i in range(0, N):\n    tiles.append(v)"),
    "a list that grows by +=": Snippet("tiles = []\nfor i in range(0, N):\n    tiles += [v]"),
    "an item assigned": Snippet("a = [v, v]\na[0] = v"),
    "a tile's element assigned": Snippet("v[0] = 1.0"),
    "a tile's element": Snippet("out = v[0]"),
    "a slice of a tile": Snippet("out = v[0:8]"),
    "a pointer indexed": Snippet("out = x[cols]"),
    "an attribute assigned": Snippet("v.name = 1"),
    "an f-string of a number of the launch": Snippet('tl.device_print(f"{N}")'),
    # Loops
    "for over a list": Snippet("for a in [v, v]:\n    v += a"),
    "for over a tile": Snippet("for a in v:\n    pass"),
    "for over enumerate": Snippet("for i, a in enumerate([v, v]):\n    v += a"),
    "static_range up to a number of the launch": Snippet("for i in tl.static_range(N):\n    v += i"),
    "range up to a float": Snippet("for i in range(0, 3.0):\n    v += 1"),
    # Types
    "l = 0 becomes a float in the loop": Snippet("l = 0\nfor i in range(0, N):\n    l += tl.load(x + i)\nout = l"),
    "l = 0 becomes a float in while": Snippet(
        "l = 0\ni = 0\nwhile i < N:\n    l += tl.load(x + i)\n    i += 1\nout = l"
    ),
    "a scalar becomes a tile in the loop": Snippet("l = 0.0\nfor i in range(0, N):\n    l += v\nout = l"),
    "a tile becomes wider in the loop": Snippet(
        "l = v\nfor i in range(0, N):\n    l = tl.sum(v[:, None] * v[None, :], axis=0, keep_dims=True)\nout = v"
    ),
    "fp32 becomes fp64 in the loop": Snippet(
        "l = 0.0\nfor i in range(0, N):\n    l += v.sum().to(tl.float64)\nout = l"
    ),
    "a branch changes the type": Snippet("l = 0\nif N > 3:\n    l = 1.0\nout = l"),
    "two branches of two types": Snippet("if N > 3:\n    k = 1\nelse:\n    k = 1.0\nout = v + k"),
    "a conditional expression of two types": Snippet("out = v if N > 3 else 0.0"),
    "a name first defined in a branch": Snippet("if N > 3:\n    k = 1\nout = v + k"),
    "a name first defined in a loop": Snippet("for i in range(0, N):\n    k = i\nout = v + k"),
    "if of a tile": Snippet("if v > 0:\n    v += 1"),
    "a constexpr assigned in a loop": Snippet("K: tl.constexpr = 1\nfor i in range(0, N):\n    K = 2"),
    "a name twice a constexpr": Snippet("K: tl.constexpr = 1\nK: tl.constexpr = 2"),
    "functions that return two types": Snippet(
        "out = f(v, N)", above="@triton.jit\ndef f(a, n):\n    if n > 3:\n        return a\n    return 1"
    ),
    # Sizes
    "arange up to a number of the launch": Snippet("out = tl.arange(0, N)"),
    "arange of 13": Snippet("out = tl.sum(tl.arange(0, 13))"),
    "arange up to a name": Snippet("half = BLOCK // 2\nout = tl.sum(tl.arange(0, half))"),
    "zeros of 13": Snippet("out = tl.zeros((13,), tl.float32)"),
    "tiles that do not fit each other": Snippet("out = v + tl.arange(0, 8)"),
    "an axis too many": Snippet("out = tl.sum(v, axis=1)"),
    # Names
    "a name that is nowhere": Snippet("out = v + nowhere"),
    "a global number": Snippet("out = v + SHIFT", above="SHIFT = 2"),
    "a global list": Snippet("out = v + SHIFTS[0]", above="SHIFTS = [2]"),
    "a function without triton.jit": Snippet("out = twice(v)", above="def twice(a):\n    return a * 2"),
    "math.exp": Snippet("out = math.exp(v)", above="import math"),
    "torch.exp": Snippet("out = torch.exp(v)", above="import torch"),
    "np.exp": Snippet("out = np.exp(v)", above="import numpy as np"),
    "sum of Python": Snippet("out = sum(v)"),
    "float of a tile": Snippet("out = float(v)"),
    "a method that a tile has not": Snippet("out = v.clone()"),
    "an attribute of triton.language that is not there": Snippet("out = tl.exponential(v)"),
    "exp of integers": Snippet("out = tl.exp(cols)"),
    "exp of bf16": Snippet("out = tl.exp(v.to(tl.bfloat16))"),
    "load of a number": Snippet("out = tl.load(N + cols)"),
    "store with the arguments swapped": Snippet("tl.store(v, y + cols)"),
    "a mask for another tile": Snippet("out = tl.load(x + cols, mask=tl.arange(0, 8) < N)"),
    "other without a mask": Snippet("out = tl.load(x + cols, other=0.0)"),
    "a constexpr without .to": Snippet("out = v + BLOCK.to(tl.float32)"),
    "a false static_assert": Snippet("tl.static_assert(BLOCK == 8)"),
    "a static_assert on a number of the launch": Snippet("tl.static_assert(N == 13)"),
    "too many values": Snippet("a, b, c = v, v"),
    "a function with an argument too few": Snippet(
        "out = plus(v)", above="@triton.jit\ndef plus(a, b):\n    return a + b"
    ),
    "a shift by a float": Snippet("out = cols << 1.0"),
    "** of a tile": Snippet("out = v**2"),
    "a descriptor whose rows are not contiguous": Snippet("d = tl.make_tensor_descriptor(x, (N,), (2,), (BLOCK,))"),
}

LATER: dict[str, Snippet] = {
    "a load past L1 that names how L1 evicts": Snippet(
        'out = tl.load(x + cols, mask=cols < N, cache_modifier=".cg", eviction_policy="evict_first")', lambda x: x
    ),  # ptxas, the last stage, refuses the instruction
}
"""What the compiler refuses after its front end, which is all that the interpreter asks; beside each, the reason."""

if TRITON >= (3, 8):
    TAKEN["walrus"] = REFUSED.pop("walrus")
if TRITON >= (3, 9):
    chain = REFUSED.pop("a chain of comparisons")
    TAKEN["a chain of comparisons"] = replace(chain, expected=lambda x: x * (torch.arange(N) > 0))
    REFUSED["a block pointer"] = replace(TAKEN.pop("a block pointer"), expected=None)


def text_of(snippet: Snippet) -> str:
    """The file of a kernel with the snippet in its middle."""
    more = "".join(f", {name}" for name in snippet.more)
    store = "tl.store(y + cols, out, mask=cols < N)" if "out" in _assigned(snippet.body) else ""
    return (
        f"import triton\nimport triton.language as tl\n\n{snippet.above}\n\n\n@triton.jit\n"
        f"def kernel(y, x, N{more}, BLOCK: tl.constexpr):\n"
        "    cols = tl.arange(0, BLOCK)\n"
        "    v = tl.load(x + cols, mask=cols < N, other=0.0)\n"
        f"{textwrap.indent(snippet.body, '    ')}\n    {store}\n"
    )


def _assigned(body: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(body)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def kernel_of(name: str, snippet: Snippet) -> Any:
    """The kernel, defined as in a notebook's cell: its source can be found again."""
    text, file = text_of(snippet), f"<snippet {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = types.ModuleType("snippet")
    exec(compile(text, file, "exec"), module.__dict__)
    return module.kernel


def arguments(snippet: Snippet) -> tuple[tuple, dict[str, Any], torch.Tensor]:
    """What the kernel is launched with, and y."""
    x = torch.randn(N, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, x[:3]])[:N]  # 16-byte aligned, as torch does it
    y = torch.zeros(N)
    table = {"x": torch.tensor([x.data_ptr()])}
    more = {name: table.get(value, value) if isinstance(value, str) else value for name, value in snippet.more.items()}
    return (y, x, N), {**more, "BLOCK": BLOCK}, y


def compiler_says() -> dict[str, list[str] | None]:
    """For each snippet, the compiler's sentence and the line that it is about; None where it takes the kernel."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def _compiled(name: str, snippet: Snippet) -> list[str] | None:
    import contextlib
    import inspect
    import io

    from helpers.engine import compiled, frontend

    try:
        with contextlib.redirect_stdout(io.StringIO()):
            kernel = kernel_of(name, snippet)
            args, kwargs, _ = arguments(snippet)
            bound = inspect.signature(kernel.fn).bind(*args, **kwargs)
            signature, constants, divisible = {}, {}, []
            for index, parameter in enumerate(inspect.signature(kernel.fn).parameters.values()):
                value = bound.arguments[parameter.name]
                kind, aligned = compiled.argument_type(kernel, index, parameter, value)
                signature[parameter.name] = kind
                constants |= {parameter.name: value} if kind == "constexpr" else {}
                divisible += [index] if aligned else []
            compiled.compile_without_launch(kernel, signature, constants, divisible, "sm_90", {})
    except Exception as error:
        said = frontend.told(error)
        return [said.sentence, said.line]
    return None


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    print(json.dumps({name: _compiled(name, snippet) for name, snippet in {**TAKEN, **REFUSED, **LATER}.items()}))
