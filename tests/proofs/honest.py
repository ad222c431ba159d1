"""Honest notebooks in many hands: cells that stop, that speak of CUDA, that stand elsewhere, and Triton put otherwise."""

from copy import deepcopy
from textwrap import indent

import needs
from handed_in import (
    EAGER,
    MASKED,
    ONLINE,
    TILE,
    TWO_PASS,
    HandedIn,
    before,
    code,
    mark,
    notebook,
    solved,
    written,
)  # fmt: skip

KERNEL = """@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + cols, e / tl.sum(e, axis=0))
"""
DRIVER = """def my_softmax(x):
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(M,)](y, x, x.stride(0), BLOCK=N)
    return y
"""
RIGHT = f"{KERNEL}\n\n{DRIVER}"
WRONG = RIGHT.replace("tl.exp(x - tl.max(x, axis=0))", "x")
STABLE = """def my_softmax(x):
    e = torch.exp(x - x.amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)
"""
MERGE = """def merge(a, b):
    m = max(a[0], b[0])
    if m == -INF:
        return m, 0.0
    return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)
"""

ABOVE = {
    "pip-bang": "!pip list",
    "pip-magic": "%pip install einops",
    "nvidia-smi": "!nvidia-smi",
    "widget": "%matplotlib widget",
    "unknown-magic": "%load_ext autotime",
    "cuda-tensor": 'a = torch.randn(4, 8, device="cuda")\nb = torch.randn(4, 8).cuda()\nprint((a + b).mean())',
    "device-properties": "props = torch.cuda.get_device_properties(0)\nSMS = props.multi_processor_count\nprint(SMS)",
    "tutorial-device": "DEVICE = triton.runtime.driver.active.get_active_torch_device()",
    "missing-package": "import seaborn as sns\nsns.set_theme()",
    "missing-file": 'with open("data.csv") as file:\n    rows = file.readlines()',
    "input": 'name = input("Your name? ")\nprint("Hello", name)',
    "network": 'import urllib.request\npage = urllib.request.urlopen("https://example.org").read()',
    "old-variable": "assert old_variable == 3",
    "failed-experiment": "x = torch.randn(4, 7)\nprint(x.view(8, 4))",
    "assert-on-gpu": "assert torch.cuda.is_available(), 'this needs a GPU'",
    "exit": "import sys\nif not torch.cuda.is_available():\n    sys.exit('no GPU')",
}
"""What stands above a right answer, in its cell, and does not run where there is no GPU, no network, no terminal."""

BELOW = {
    "test-on-cuda": 'x = torch.randn(64, 512, device="cuda")\nassert torch.allclose(my_softmax(x), torch.softmax(x, 1))',
    "events": "start = torch.cuda.Event(enable_timing=True)\nstart.record()\nmy_softmax(torch.randn(4, 8, device='cuda'))\ntorch.cuda.synchronize()",
    "do-bench": "print(triton.testing.do_bench(lambda: my_softmax(torch.randn(64, 512, device='cuda'))))",
    "asserts-wrongly": "assert my_softmax(torch.ones(2, 8)).sum() == 3",
}

DRIVERS = {
    "empty-on-cuda": DRIVER.replace("torch.empty_like(x)", 'torch.empty((M, N), device="cuda", dtype=x.dtype)'),
    "empty-on-cuda-0": DRIVER.replace("torch.empty_like(x)", 'torch.empty((M, N), device="cuda:0", dtype=x.dtype)'),
    "empty-on-a-device": DRIVER.replace(
        "torch.empty_like(x)", 'torch.empty((M, N), device=torch.device("cuda"), dtype=x.dtype)'
    ),
    "empty-then-cuda": DRIVER.replace("torch.empty_like(x)", "torch.empty(M, N, dtype=x.dtype).cuda()"),
    "to-cuda": DRIVER.replace("torch.empty_like(x)", 'torch.empty(M, N, dtype=x.dtype).to("cuda")'),
    "x-to-cuda": DRIVER.replace("    M, N", "    x = x.cuda()\n    M, N"),
    "new-empty-cuda": DRIVER.replace("torch.empty_like(x)", 'x.new_empty(M, N, device="cuda")'),
    "synchronize": DRIVER.replace("    return", "    torch.cuda.synchronize()\n    return"),
    "asserts-is-cuda": DRIVER.replace("    M, N", "    assert x.is_cuda and x.is_contiguous()\n    M, N"),
    "asserts-device-type": DRIVER.replace("    M, N", '    assert x.device.type == "cuda"\n    M, N'),
    "torch-where-no-cuda": DRIVER.replace(
        "    M, N", "    if not x.is_cuda:\n        return torch.softmax(x, dim=1)\n    M, N"
    ),
    "device-guard": DRIVER.replace(
        "    softmax_kernel[", "    with torch.cuda.device(x.device):\n        softmax_kernel["
    ).replace("    return", "    return"),
    "asserts-available": DRIVER.replace(
        "    M, N", "    if not torch.cuda.is_available():\n        raise RuntimeError('no GPU')\n    M, N"
    ),
    "device-idiom": 'device = "cuda" if torch.cuda.is_available() else "cpu"\n\n\n'
    + DRIVER.replace("torch.empty_like(x)", "torch.empty(M, N, dtype=x.dtype, device=device)"),
    "device-idiom-object": 'device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n\n\n'
    + DRIVER.replace("torch.empty_like(x)", "torch.empty(M, N, dtype=x.dtype, device=device)"),
    "asserts-its-device": DRIVER.replace(
        "    M, N", "    assert x.device == DEVICE or x.device.type == torch.device(DEVICE).type\n    M, N"
    ),
    "inference-mode": "@torch.inference_mode()\n" + DRIVER,
    "no-grad": "@torch.no_grad()\n" + DRIVER,
}
"""Drivers that are right beside a GPU."""

TRITON = {
    "another-alias": ("", "import triton.language as lang\n\n\n" + RIGHT.replace("tl.", "lang.")),
    "numel-and-dtype": (
        "",
        RIGHT.replace(
            "    e = ", "    tl.static_assert(cols.numel == BLOCK)\n    tl.static_print(x.dtype.name)\n    e = "
        ),
    ),
    "methods": (
        "",
        RIGHT.replace("tl.exp(x - tl.max(x, axis=0))", "(x - x.max(0)).exp()").replace("tl.sum(e, axis=0)", "e.sum(0)"),
    ),
    "autotune": (
        "",
        "@triton.autotune(configs=[triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=['BLOCK'])\n"
        + RIGHT,
    ),
    "block-pointers": (
        "",
        RIGHT.replace(
            "    row = tl.program_id(0)\n    cols = tl.arange(0, BLOCK)\n",
            "    row = tl.program_id(0)\n"
            "    xs = tl.make_block_ptr(x_ptr + row * stride, (BLOCK,), (1,), (0,), (BLOCK,), (0,))\n"
            "    ys = tl.make_block_ptr(y_ptr + row * stride, (BLOCK,), (1,), (0,), (BLOCK,), (0,))\n",
        )
        .replace("x_ptr + row * stride + cols", "xs")
        .replace("y_ptr + row * stride + cols", "ys")
        .replace("e / tl.sum(e, axis=0))", "(e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty))"),
    ),
    "names-of-triton": (
        "",
        "from triton.language import arange, exp, load, program_id, store\n\n\n"
        + RIGHT.replace("tl.arange", "arange")
        .replace("tl.exp", "exp")
        .replace("tl.load", "load")
        .replace("tl.program_id", "program_id")
        .replace("tl.store", "store"),
    ),
    "heuristics": (
        "",
        "@triton.heuristics({'BLOCK': lambda args: args['stride']})\n" + RIGHT.replace(", BLOCK=N)", ")"),
    ),
}
if needs.TRITON >= (3, 9):
    del TRITON["block-pointers"]

AROUND = {
    "benchmark-loop": RIGHT
    + "\n\nimport time\nwhile time.perf_counter() < float('inf'):\n    my_softmax(torch.randn(64, 512, device=DEVICE))\n",
    "tutorial-imports": "from triton.runtime import driver\nproperties = driver.active.utils.get_device_properties(DEVICE.index)\nNUM_SM = properties['multiprocessor_count']\n\n\n"
    + RIGHT,
    "sms-of-the-gpu": "NUM_SM = torch.cuda.get_device_properties('cuda').multi_processor_count\n\n\n"
    + RIGHT.replace("(y_ptr, x_ptr, stride, BLOCK", "(y_ptr, x_ptr, stride, M, BLOCK")
    .replace("    row = tl.program_id(0)\n", "")
    .replace("    x = tl.load", "    for row in range(tl.program_id(0), M, tl.num_programs(0)):\n        x = tl.load")
    .replace("    e = tl.exp", "        e = tl.exp")
    .replace("    tl.store", "        tl.store")
    .replace("[(M,)](y, x, x.stride(0), ", "[(min(M, NUM_SM),)](y, x, x.stride(0), M, "),
    "seeded-on-cuda": "torch.manual_seed(0)\ntorch.cuda.manual_seed_all(0)\ntorch.backends.cuda.matmul.allow_tf32 = True\n\n\n"
    + RIGHT,
    "default-device": "torch.set_default_device('cuda')\n\n\n" + RIGHT,
    "plots": "import matplotlib.pyplot as plt\n%matplotlib inline\nplt.plot([1, 2])\nplt.show()\n\n\n" + RIGHT,
    "try-except-device": "try:\n    dev = torch.device('cuda')\n    torch.zeros(1, device=dev)\nexcept Exception:\n    dev = torch.device('cpu')\n\n\n"
    + RIGHT.replace("torch.empty_like(x)", "torch.empty(M, N, device=dev, dtype=x.dtype)"),
    "with-device": RIGHT.replace(
        "    y = torch.empty_like(x)\n",
        "    with torch.device('cuda'):\n        y = torch.empty(M, N, dtype=x.dtype)\n",
    ),
    "raises-without-gpu": "if not torch.cuda.is_available():\n    raise SystemError('please switch the GPU on')\n\n\n"
    + RIGHT,
    "only-with-gpu": "if torch.cuda.is_available():\n    print(torch.cuda.get_device_name(0))\n\n\n" + RIGHT,
    "defined-only-with-gpu": RIGHT.replace("def my_softmax", "def _kernel_softmax")
    + "\nif torch.cuda.is_available():\n    my_softmax = _kernel_softmax\nelse:\n    my_softmax = lambda x: torch.softmax(x, dim=1)\n",
    "stream": RIGHT.replace("    softmax_kernel[", "    assert torch.cuda.current_device() == 0\n    softmax_kernel["),
    "class": RIGHT.replace("def my_softmax(x):", "def launch(x):")
    + "\n\nclass Softmax(torch.nn.Module):\n    def forward(self, x):\n        return launch(x)\n\n\nmy_softmax = Softmax().to('cuda')\n",
    "tqdm": "from tqdm.notebook import tqdm\nfor i in tqdm(range(3)):\n    pass\n\n\n" + RIGHT,
    "widgets": "import ipywidgets as widgets\nfrom IPython.display import display, clear_output\ndisplay(widgets.IntSlider())\nclear_output()\n\n\n"
    + RIGHT,
    "timeit": RIGHT + "\n%timeit -n 1 -r 1 my_softmax(torch.randn(4, 8, device=DEVICE))\n",
    "environment": "import os\nassert os.environ['CUDA_HOME']\n%env CUDA_LAUNCH_BLOCKING=1\n\n\n" + RIGHT,
    "colab": "from google.colab import drive\ndrive.mount('/content/drive')\n%cd /content/drive/MyDrive\n\n\n" + RIGHT,
    "saves-and-reads": "torch.save(torch.ones(3), 'x.pt')\nprint(torch.load('x.pt', map_location='cuda'))\n\n\n"
    + RIGHT,
    "own-assertion-fails": RIGHT
    + "\nx = torch.randn(3, 8)\nassert torch.equal(my_softmax(x), torch.softmax(x, 1)), 'not the same to the bit'\n",
    "deletes": RIGHT + "\ndel x_not_there\ndel softmax_kernel_2\n",
    "await": "import asyncio\nawait asyncio.sleep(0.01)\nawait nothing_like_this()\n\n\n" + RIGHT,
    "return-at-the-top": RIGHT + "\nreturn my_softmax\n",
    "star": "from triton.language import *\nfrom nowhere_at_all import *\n\n\n" + RIGHT,
    "warnings-are-errors": "import warnings\nwarnings.simplefilter('error')\n\n\n" + RIGHT,
    "interrupted": "raise KeyboardInterrupt\n\n\n" + RIGHT,
    "a-dataclass": f"{KERNEL}\nfrom dataclasses import dataclass\n\n@dataclass\nclass Softmax:\n    kernel: object = softmax_kernel\n"
    + indent(DRIVER.replace("my_softmax(x)", "__call__(self, x)").replace("softmax_kernel[", "self.kernel["), "    ")
    + "\n\nmy_softmax = Softmax()\n",
    "letters-of-other-scripts": RIGHT.replace("stride,", "schrittgröße,")
    .replace("* stride", "* schrittgröße")
    .replace("cols", "spälten"),
    "a-grid-of-three-and-keywords-alone": RIGHT.replace(
        "[(M,)](y, x, x.stride(0), BLOCK=N)", "[lambda meta: (M, 1, 1)](BLOCK=N, stride=x.stride(0), x_ptr=x, y_ptr=y)"
    ),
}
"""Whole answers to exercise 2.1."""

FILLED = ["x.new_zeros(x.shape)", "torch.ones_like(x)", "x.new_full(x.shape, float('nan'))", "torch.zeros_like(x)"]
"""Ways to make the result that write it once more than it needs."""

OF_A_CLASS = """from typing import NamedTuple


class Number(float):
    pass


class Pair(NamedTuple):
    m: float
    l: float


""" + MERGE.replace("return m, 0.0", "return Pair(Number(m), Number(0))").replace(
    "return m, a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)",
    "return Pair(l=Number(a[1] * math.exp(a[0] - m) + b[1] * math.exp(b[0] - m)), m=Number(m))",
)


def _unmarked(book):
    """Every mark lost, as a tool loses it that keeps text alone."""
    for cell in book["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    return {**book, "nbformat_minor": 2}


def _check_above():
    book = solved(TILE)
    at = {mark(cell): index for index, cell in enumerate(book["cells"])}
    first, second = at["single"], at["single-check"]
    book["cells"][first], book["cells"][second] = book["cells"][second], book["cells"][first]
    return book


def _answer_below(answer):
    """The stub stays as it was handed out, and the answer stands below the check."""
    book = notebook(TILE)
    at = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == "single-check") + 1
    book["cells"][at:at] = [code(answer), code("check.single_tile(my_softmax)")]
    return book


def _answer_at_the_end():
    book = notebook(TILE)
    book["cells"] += [code(KERNEL), code(DRIVER)]
    return book


def _split():
    """The marked cell keeps the kernel; the driver moved to a cell of its own, below the check."""
    book = solved(TILE, "none", single=KERNEL)
    at = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == "single-check") + 1
    book["cells"].insert(at, code(DRIVER))
    return book


def _pasted():
    """The answer cell was copied as JupyterLab does it, without marks; the marked one was deleted."""
    book = solved(TILE)
    for cell in book["cells"]:
        if mark(cell) == "single":
            cell["metadata"] = {}
    return book


def _one_cell():
    """All code of the lesson up to the check, merged into one cell by the student."""
    book = solved(TILE)
    end = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == "single-check")
    cells = [cell for cell in book["cells"][:end] if cell["cell_type"] == "code"]
    merged = "\n\n".join("".join(cell["source"]) for cell in cells)
    return {**book, "cells": [code(merged), *book["cells"][end:]]}


def _replaced(lesson, grade_id, *pairs):
    book = deepcopy(solved(lesson))
    for cell in book["cells"]:
        if mark(cell) == grade_id:
            text = "".join(cell["source"])
            for old, new in pairs:
                assert old in text, (lesson, old)
                text = text.replace(old, new)
            cell["source"] = text
    return book


def honest_styles():
    """Right answers that a grader could lose."""
    for name, text in ABOVE.items():
        yield HandedIn(f"above-{name}", TILE, 4, written(solved(TILE, "none", single=f"{text}\n\n\n{RIGHT}")))
    for name, text in BELOW.items():
        yield HandedIn(f"below-{name}", TILE, 4, written(solved(TILE, "none", single=f"{RIGHT}\n\n\n{text}")))
    for name, text in DRIVERS.items():
        yield HandedIn(f"driver-{name}", TILE, 4, written(solved(TILE, "none", single=f"{KERNEL}\n\n{text}")))
    for name, (above, text) in TRITON.items():
        yield HandedIn(f"triton-{name}", TILE, 4, written(solved(TILE, "none", single=above + text)))
    for name, text in AROUND.items():
        yield HandedIn(f"around-{name}", TILE, 4, written(solved(TILE, "none", single=text)))
    for number, made in enumerate(FILLED):
        filled = RIGHT.replace("torch.empty_like(x)", made)
        yield HandedIn(f"filled-before-{number}", TILE, 2, written(solved(TILE, "none", single=filled)))
    yield HandedIn("numbers-of-a-class", ONLINE, 2, written(solved(ONLINE, "none", merge=OF_A_CLASS)))
    yield HandedIn(
        "cell-between", TILE, 4, written(solved(TILE, "none", single=f"{KERNEL}\nprint(undefined)\n{DRIVER}"))
    )
    yield HandedIn("check-above-the-answer", TILE, 4, written(_check_above()))
    yield HandedIn("answer-below-the-check", TILE, 4, written(_answer_below(RIGHT)))
    yield HandedIn(
        "answer-below-a-wrong-one", TILE, 4, written(before(_answer_below(RIGHT), "single-check", code(WRONG)))
    )
    yield HandedIn("answer-at-the-end", TILE, 4, written(_answer_at_the_end()))
    yield HandedIn("answer-split", TILE, 4, written(_split()))
    yield HandedIn("marks-lost", TILE, 4, written(_unmarked(solved(TILE))))
    yield HandedIn("marks-lost-check-above", TILE, 4, written(_unmarked(_check_above())))
    yield HandedIn("mark-of-the-answer-lost", TILE, 4, written(_pasted()))
    yield HandedIn("one-cell", TILE, 4, written(_one_cell()))
    yield HandedIn(
        "eager-on-cuda", EAGER, 2, written(solved(EAGER, "none", stable=STABLE.replace("(x -", "(x.cuda() -")))
    )
    synchronized = STABLE.replace("    return", "    torch.cuda.synchronize()\n    return")
    yield HandedIn("eager-synchronized", EAGER, 2, written(solved(EAGER, "none", stable=synchronized)))
    limits = "limits = {t: math.log(torch.tensor(torch.finfo(t).max, device='cuda').item()) for t in (torch.float32, torch.bfloat16, torch.float16)}"
    yield HandedIn("limits-on-cuda", EAGER, 2, written(solved(EAGER, "none", overflow_limits=limits)))
    yield HandedIn(
        "merge-below-a-failure", ONLINE, 2, written(solved(ONLINE, "none", merge=f"import pandas_profiling\n{MERGE}"))
    )
    yield HandedIn(
        "masked-on-cuda", MASKED, 4, written(_replaced(MASKED, "masked", ("device=x.device", 'device="cuda"')))
    )
    yield HandedIn("two-pass-after-nvidia-smi", TWO_PASS, 4,
                   written(_replaced(TWO_PASS, "two-pass", ("@triton.jit", "!nvidia-smi\n!pip install -q triton\n@triton.jit", ))))  # fmt: skip
    yield HandedIn("online-on-cuda", ONLINE, 5,
                   written(before(solved(ONLINE, "online"), "online", code("def my_softmax(x):\n    M, N = x.shape\n"
                   "    y = torch.empty(M, N, dtype=x.dtype, device='cuda')\n    BLOCK = min(512, triton.next_power_of_2(N))\n"
                   "    softmax_kernel[(M,)](y, x, y.stride(0), x.stride(0), x.stride(1), N, BLOCK=BLOCK)\n    torch.cuda.synchronize()\n    return y"))))  # fmt: skip
