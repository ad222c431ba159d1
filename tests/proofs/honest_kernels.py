"""Answers of lesson 02 as learners write them who know more of Triton than the lesson says: each deserves all points."""

import needs

IMPORTS = "import torch\nimport triton\nimport triton.language as tl\n"
_HEAD = """@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, N: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, N)
    x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
"""
_STORE = "    tl.store(y_ptr + row * stride + cols, e / l)\n"
_STEPS = "    e = tl.exp(x - tl.max(x, axis=0))\n    l = tl.sum(e, axis=0)\n"
_DRIVER = """

def my_softmax(x):
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(M,)](y, x, x.stride(0), N)
    return y
"""


def _line(*lines, top="", head=_HEAD, steps=_STEPS, store=_STORE, driver=_DRIVER):
    more = "".join(f"    {line}\n" for line in lines)
    return f"{IMPORTS}{top}\n{head}{more}{steps}{store}{driver}"


_NO_N = _DRIVER.replace("x.stride(0), N)", "x.stride(0))")

STYLES = {
    "sizes and types asked for": _line(
        "tl.static_assert(cols.numel == N)", "tl.static_assert(x.dtype.name == 'fp32' and cols.dtype.int_bitwidth == 32)",
        "tl.static_assert(x_ptr.dtype.element_ty.is_floating())",
    ),
    "the language by another name": _line("z = lang.zeros([N], lang.float32)", "x = x + z", top="import triton.language as lang"),
    "functions imported": _line(top="from triton.language import exp, load, sum as total",
                                steps="    e = exp(x - tl.max(x, 0))\n    l = total(e, 0)\n"),
    "methods": _line(steps="    e = (x - x.max(0)).exp()\n    l = e.sum(axis=0)\n"),
    "names of Python's": _line("max = tl.max(x, axis=0)", steps="    e = tl.exp(x - max)\n    sum = tl.sum(e, axis=0)\n",
                               store=_STORE.replace("/ l", "/ sum")),
    "parameters with names of Python's": _line(
        head=_HEAD.replace("y_ptr, x_ptr", "output, input").replace("x_ptr +", "input +"),
        store=_STORE.replace("y_ptr", "output"), driver=_DRIVER.replace("y, x, x.str", "output=y, input=x, stride=x.str").replace(
            "(0), N)", "(0), N=N)")),
    "block pointers": f"""{IMPORTS}
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, N: tl.constexpr):
    row = tl.program_id(0)
    p = tl.make_block_ptr(x_ptr + row * stride, (N,), (1,), (0,), (N,), (0,))
    q = tl.make_block_ptr(y_ptr + row * stride, shape=(N,), strides=(1,), offsets=(0,), block_shape=(N,), order=(0,))
    x = tl.load(p).to(tl.float32)
{_STEPS}    tl.store(q, (e / l).to(y_ptr.dtype.element_ty))
{_DRIVER}""",
    "autotune": _line(head="@triton.autotune([triton.Config({}, num_warps=w) for w in (4, 8)], key=['stride'])\n" + _HEAD),
    "heuristics": _line(head="@triton.heuristics({'N': lambda args: args['x_ptr'].shape[1]})\n" + _HEAD, driver=_NO_N),
    "prints": _line("tl.static_print('N', N)", "if row == 1000000000:\n        tl.device_print('x', x)"),
    "a loop of one turn": _line(steps="    l = 0.0\n    for _ in tl.range(0, 1):\n        e = tl.exp(x - tl.max(x, axis=0))\n"
                                "        l += tl.sum(e, axis=0)\n    e = tl.exp(x - tl.max(x, axis=0))\n"),
    "a static loop": _line("for i in tl.static_range(2):\n        x += 0.0 * i"),
    "constants of the notebook": _line("x *= LOG2E", top="LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)",
                                       steps=_STEPS.replace("tl.exp", "tl.exp2")),
    "a function of constants": _line("tl.static_assert(doubled(N) == 2 * N)", top="@triton.constexpr_function\ndef doubled(n):\n    return n + n\n"),
    "a kernel that helps": _line(top="@triton.jit\ndef shifted(x, m):\n    '''x − m'''\n    return x - m\n",
                                 steps="    e = tl.exp(shifted(x, m=tl.max(x, 0)))\n    l = tl.sum(e, 0)\n"),
    "a reduction of one's own": _line(top="@triton.jit\ndef max(a, b):\n    return tl.maximum(a, b)\n@triton.jit\ndef add(a, b):\n    return a + b\n",
                                      steps="    e = tl.exp(x - tl.reduce(x, 0, max))\n    l = tl.reduce(e, axis=0, combine_fn=add)\n"),
    "NaN that spreads": _line("x = tl.maximum(x, x, propagate_nan=tl.PropagateNan.ALL)"),
    "hints and a docstring": _line(
        "m: tl.tensor = tl.max(x, axis=0)", "scale: float = 1.0",
        head=_HEAD.replace("y_ptr, x_ptr, stride", "y_ptr: torch.Tensor, x_ptr, stride: int").replace(
            "):\n", ") -> None:\n    '''One row.'''  # a remark\n", 1), steps=_STEPS.replace("tl.max(x, axis=0)", "m * scale")),
    "a default": _line(head=_HEAD.replace("N: tl.constexpr", "N: tl.constexpr, EPS: tl.constexpr = 2 ** -200"),
                       store=_STORE.replace("/ l", "/ (l + EPS)")),
    "math of Python's": _line("x = x * (1 / math.log(2))", top="import math", steps=_STEPS.replace("tl.exp", "tl.exp2")),
    "an assertion": _line("assert N > 0, 'N'", steps="    e = tl.exp(x - tl.max(x, axis=0))\n    l = tl.sum(e, axis=0)\n"),
    "hints to the compiler": _line("cols = tl.max_contiguous(tl.multiple_of(cols, N), N)", "tl.assume(stride >= 0)"),
    "options of the decorator": _line(head=_HEAD.replace("@triton.jit", "@triton.jit(do_not_specialize=['stride'], debug=True)")),
    "a tile of two dimensions": _line(steps="    t = tl.reshape(x, (1, N))\n    t = tl.exp(t - tl.max(t, axis=1)[:, None])\n"
                                      "    t = t / tl.sum(t, axis=1, keep_dims=True)\n    e = tl.reshape(t, (N,))\n    l = 1.0\n"),
}  # fmt: skip
"""By what is special about them."""

if needs.TRITON >= (3, 9):
    del STYLES["block pointers"]
