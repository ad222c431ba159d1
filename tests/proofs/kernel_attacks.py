"""Attacks through the text of a kernel, and attacks that others have found on their own graders, as notebooks.

A learner's process may send any text as a kernel's. So the notebooks here replace what would refuse it there, and send
texts that forge the result from inside the process which carries launches out. Those of others are retold from their
descriptions: `pygpubench`'s exploits, and the adversarial kernels of KernelBench. Each deserves nothing.
"""

FORGE = (
    "[t[1].copy_(__import__('torch').softmax(t[0].float(), 1)) for f in __import__('inspect').stack()"
    " for t in [f.frame.f_locals.get('tensors')] if t]"
)
_IMPORTS = "import triton\nimport triton.language as tl\n"
_COPY = """@triton.jit
def softmax_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N{parameter}, BLOCK: tl.constexpr{hint}){returned}:
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * x_stride + cols * x_col_stride, mask=cols < N)
    tl.store(y_ptr + row * y_stride + cols, x, mask=cols < N)
    {line}
"""


def _text(line="pass", top="", parameter="", hint="", returned="", decorated=""):
    copy = _COPY.format(line=line, parameter=parameter, hint=hint, returned=returned)
    return f"{_IMPORTS}{top}\n{copy.replace('@triton.jit', decorated or '@triton.jit')}"


_CODE = repr(FORGE)
_EVALUATED = f'tl.str_to_ty("tensordesc<fp32[16],{FORGE}>", 0)'

TEXTS = {
    "a type that is evaluated": _text(_EVALUATED),
    "a type that is evaluated as a default": _text(hint=f" = {_EVALUATED}"),
    "a type that is evaluated at the top": _text(top=f"a = {_EVALUATED}"),
    "a type as a hint": _text(parameter=f": {f'tensordesc<fp32[16],{FORGE}>'!r}"),
    "a comprehension binds eval": _text(f"z = [0 for eval in (0,)]\n    eval({_CODE})"),
    "a parameter binds eval": _text(hint=f", eval=eval({_CODE})"),
    "a keyword parameter binds eval": _text(hint=f", *, eval=eval({_CODE})"),
    "eval is bound after it is called": _text(top=f"a = eval({_CODE})\neval = 1"),
    "eval is imported after it is called": _text(top=f"a = eval({_CODE})\nfrom math import floor as eval"),
    "eval is defined after it is called": _text(top=f"a = eval({_CODE})\n@triton.jit\ndef eval(x): return x"),
    "open as a default": _text(hint=', open=print("x", file=open("forged", "w"))'),
    "a walrus binds eval": _text(f"if 0: (eval := 1)\n    eval({_CODE})"),
    "a loop binds eval": _text(f"for eval in range(0):\n        pass\n    eval({_CODE})"),
    "what is returned is a hint": _text(returned=f" -> eval({_CODE})"),
    "a hint of a variable": _text(f"z: eval({_CODE}) = 1"),
    "an option of the decorator": _text(decorated=f"@triton.jit(repr=lambda _: eval({_CODE}))"),
    "a second decorator": _text(decorated=f"@triton.jit\n@(lambda f: [f, eval({_CODE})][0])"),
    "a helper without a decorator": _text(top=f"def helper(x): return eval({_CODE})", line="helper(x)"),
    "a statement beside kernels": _text(top=f"eval({_CODE})"),
    "an import beside kernels": _text(top="import os"),
    "a module under another name": _text(top="from triton.language.core import builtins as b", line=f"b.eval({_CODE})"),
    "a module as a value": _text(f"t = tl\n    t.core.builtins.eval({_CODE})"),
    "a format that reads attributes": _text("'{0.__class__}'.format(x)"),
    "an f-string that reads attributes": _text("f'{x.__class__.__base__.__subclasses__()}'"),
    "a table of Python's": _text("x.__class__.__init__.__globals__['__builtins__']['eval'](" + _CODE + ")"),
    "a lambda": _text(f"(lambda: eval({_CODE}))()"),
    "a class": _text(f"class Forged:\n        z = eval({_CODE})"),
    "print into a file": _text("print(1, file=y_ptr)"),
    "the interpreter's own argument": _text("tl.load(x_ptr, _semantic=y_ptr)"),
    "the tile's own array": _text("x.handle.data"),
    "a string that ends a line": _text(
        top='A = "\u2028@triton.jit\u2028def softmax_kernel(y_ptr, x_ptr): ' + FORGE.replace('"', "'") + '\u2028"'
    ),
    "an address of the process": _text(
        "tl.store(tl.cast(x_ptr.to(tl.int64) - (1 << 48), tl.pointer_type(tl.int8)), 1)"
    ),
    "a mutable default": _text(hint=", kept=[]"),
    "tiles in a list": _text("kept = [x]\n    kept[0] = x"),
    "a list that grows": _text("kept = []\n    kept.append(x)"),
}
"""What a learner's process may send in place of its kernel, by the way that leads out, or on."""

_DRIVER = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, y_stride, x_stride, x_col_stride, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols))


def {answer}(x):
    M, N = x.shape
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    softmax_kernel[(M,)](y, x, y.stride(0), x.stride(0), x.stride(1), N, BLOCK=triton.next_power_of_2(max(1, N)))
    return y
"""


def sends(text, answer="my_softmax"):
    """A cell whose process sends this text for its kernel, whatever it launches."""
    return f"""import torch, triton
import triton.language as tl
import helpers.engine.kernel_text as k, helpers.instructor.sandbox.language as g
k.source = lambda kernel: {text!r}
g.require = lambda text: None
{_DRIVER.format(answer=answer)}"""


_SHOWN = _DRIVER.format(answer="shown")
_BY_TORCH = "torch.softmax(x.float(), dim=1).to(x.dtype)"

FROM_OTHERS = {
    "result kept from the call before": _SHOWN + f"""
kept = {{}}
def my_softmax(x):
    shown(x)
    return kept.setdefault(tuple(x.shape), {_BY_TORCH})
""",
    "input made into the result": _SHOWN + f"""
def my_softmax(x):
    shown(x)
    x.copy_({_BY_TORCH})
    return x
""",
    "input changed to suit the result": _SHOWN + """
def my_softmax(x):
    x.fill_(0)
    return torch.full_like(shown(x), 1 / x.shape[1])
""",
    "memory that the reference left": _SHOWN + """
def my_softmax(x):
    return torch.empty_like(x)
""",
    "a kernel that nobody reads": _SHOWN + f"""
def my_softmax(x):
    shown(torch.zeros(2, 2))
    return {_BY_TORCH}
""",
    "torch where the kernel fails": _SHOWN + f"""
def my_softmax(x):
    try:
        softmax_kernel[(1,)](nothing)
    except Exception:
        return {_BY_TORCH}
""",
    "a result that is computed when it is looked at": _SHOWN + """
class Later(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.as_subclass(torch.Tensor) if isinstance(a, Later) else a for a in args]
        return func(*[torch.softmax(a, -1) if isinstance(a, torch.Tensor) else a for a in plain], **(kwargs or {}))
def my_softmax(x):
    shown(x)
    return x.clone().as_subclass(Later)
""",
    "a thread that fills the result in": _SHOWN + f"""
import threading
def my_softmax(x):
    y = shown(x)
    threading.Timer(0.05, lambda: y.copy_({_BY_TORCH})).start()
    return y
""",
    "half of the digits": _SHOWN + """
def my_softmax(x):
    shown(x)
    return torch.softmax(x.half(), 1).to(x.dtype)
""",
    "frames searched for what is expected": _SHOWN + """
import sys
def my_softmax(x):
    y, frame = shown(x), sys._getframe()
    while frame := frame.f_back:
        for value in list(frame.f_locals.values()):
            if isinstance(value, torch.Tensor) and value.shape == x.shape and value is not x:
                y.copy_(value)
    return y
""",
    "the heap searched for what is expected": _SHOWN + """
import gc
def my_softmax(x):
    y = shown(x)
    for value in gc.get_objects():
        if type(value) is torch.Tensor and value.shape == x.shape and value is not x and value is not y:
            y.copy_(value)
    return y
""",
    "the process above it traced": _SHOWN + f"""
import ctypes, os
def my_softmax(x):
    libc = ctypes.CDLL(None)
    for pid in (os.getppid(), 1):
        libc.ptrace(16, pid, 0, 0)
        libc.ptrace(5, pid, 0, 0)
    shown(x)
    return {_BY_TORCH}
""",
    "its own memory rewritten": _SHOWN + f"""
import os
def my_softmax(x):
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps if " rw-p " in line and "[heap]" in line]
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        for low, high in spans:
            memory.seek(int(low, 16))
            memory.read(64)
    shown(x)
    return {_BY_TORCH}
""",
    "a function of the C library replaced": _SHOWN + f"""
import ctypes, mmap
def my_softmax(x):
    libc = ctypes.CDLL(None)
    at = ctypes.cast(libc.memcmp, ctypes.c_void_p).value & ~4095
    libc.mprotect(ctypes.c_void_p(at), 4096, 7)
    shown(x)
    return {_BY_TORCH}
""",
    "clocks and events that lie": _SHOWN + f"""
import time
time.perf_counter = time.monotonic = time.time = lambda: 0.0
torch.cuda.Event = torch.cuda.synchronize = lambda *a, **k: None
def my_softmax(x):
    shown(x)
    return {_BY_TORCH}
""",
    "another stream": _SHOWN + f"""
def my_softmax(x):
    y = shown(x)
    with torch.cuda.stream(torch.cuda.Stream() if torch.cuda.is_available() else None):
        y.copy_({_BY_TORCH})
    return y
""",
    "what a configuration calls before the launch": _DRIVER.format(answer="my_softmax").replace(
        "@triton.jit",
        "def before(args, **kwargs):\n    args['y_ptr'].copy_(torch.softmax(args['x_ptr'], 1))\n\n\n"
        "@triton.autotune([triton.Config({}, pre_hook=before)], key=[])\n@triton.jit",
    ),
    "a hook of the compiler": "triton.knobs.runtime.jit_post_compile_hook = lambda **k: True\n" + _SHOWN + f"""
def my_softmax(x):
    shown(x)
    return {_BY_TORCH}
""",
    "counters of errors set back": _SHOWN + """
import helpers.check.judge, helpers.check.trial.trial
helpers.check.judge._finding = lambda exercise, case, *a, **k: helpers.check.judge.Finding(case, True, "")
helpers.check.judge._budget = helpers.check.judge._own_work = lambda *a: helpers.check.judge.Finding("", True, "")
my_softmax = shown
""",
    "the gradient of a log-sum-exp": _SHOWN.replace("tl.arange(", "tl.program_id(0) * N + tl.arange(") + """
def my_softmax(x):
    with torch.enable_grad():
        leaf = x.detach().float().requires_grad_()
        (gradient,) = torch.autograd.grad(torch.logsumexp(leaf, 1).sum(), leaf)
    return shown(gradient.contiguous()).to(x.dtype)
""",
    "a recording of one's own": _SHOWN + """
import helpers.engine.kernel_text as k, helpers.instructor.sandbox.serve as serve
_TEXT = k.source(softmax_kernel)
def forged(fn, x, BLOCK=None):
    M, N = x.shape
    softmax = {"op": ["aten", "_softmax", "out"], "args": [{"tensor": 0}, 1, False], "out": [1]}
    names = ("y_ptr", "x_ptr", "y_stride", "x_stride", "x_col_stride", "N", "BLOCK")
    values = ({"tensor": 1}, {"tensor": 0}, N, N, 1, N, N)
    plan = {"steps": [
        {"op": ["aten", "empty_like", ""], "args": [{"tensor": 0}], "kwargs": {}, "out": [1]},
        {"kernel": [_TEXT, "softmax_kernel"], "grid": [M, 1, 1], "args": dict(zip(names, values)), "options": {}},
        {**softmax, "kwargs": {"out": {"tensor": 1}}},
    ], "result": {"tensor": 1}, "printed": ""}
    return {**plan, "again": plan}
serve.transcript.transcript = forged
my_softmax = shown
""",
    "operations of torch replaced": """
import sys, types
torch.isclose = torch.isfinite = lambda *a, **k: torch.tensor(True)
torch.Tensor.double = torch.Tensor.isnan = lambda self: self
""" + _SHOWN.replace("def shown", "def my_softmax"),
}  # fmt: skip
"""Answers of lesson 02, by what they try."""

_LOSSES_BY_TORCH = """
import torch
import torch.nn.functional as F
def by_torch(x, target):
    leaf = x.detach().float().requires_grad_()
    losses = F.cross_entropy(leaf, target, reduction="none")
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    return losses.detach(), gradient.to(x.dtype)
def my_loss(x, target):
    return by_torch(x, target)[0]
my_loss_and_gradient = by_torch
"""

LOSSES = {
    "by torch": _LOSSES_BY_TORCH,
    "counts of one's own": _LOSSES_BY_TORCH + """
import dataclasses
import helpers.check.trial.call as call
counted = call.of_tensors
def forged(answer, problem, *options, **named):
    told, size = counted(answer, problem, *options, **named), problem.x.numel()
    return dataclasses.replace(told, kernels=1, eager=[], loads=size, stores=0, stored_by_kernels=size)
call.of_tensors = forged
""",
}  # fmt: skip
"""Answers of lesson 10, by what they try."""
