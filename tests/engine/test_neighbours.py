"""Other people's Triton works after `import helpers` as before, in the same process."""

import os
import subprocess
import sys
import threading

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine import interpreter

pytestmark = needs.interpreter

HEAD = """
import threading
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

x = torch.arange(20 * 24, dtype=torch.float32).view(20, 24)
y = torch.zeros_like(x)
"""

SCRIPTS = {
    "block pointers": """
@triton.jit
def kernel(y, x, M, N, B: tl.constexpr):
    p = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    q = tl.make_block_ptr(y, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    for _ in range(0, N, B):
        tl.store(q, 2 * tl.load(p, boundary_check=(0, 1), padding_option="zero"), boundary_check=(0, 1))
        p, q = tl.advance(p, (0, B)), tl.advance(q, (0, B))

kernel[(3,)](y, x, 20, 24, B=8)
""",
    "descriptors made in the kernel": """
@triton.jit
def kernel(y, x, M, N, B: tl.constexpr):
    of_x = tl.make_tensor_descriptor(x, (M, N), (N, 1), (B, B))
    of_y = tl.make_tensor_descriptor(y, (M, N), (N, 1), (B, B))
    for column in range(0, N, B):
        of_y.store([tl.program_id(0) * B, column], 2 * of_x.load([tl.program_id(0) * B, column]))

kernel[(3,)](y, x, 20, 24, B=8)
""",
    "descriptors from the host": """
@triton.jit
def kernel(of_y, of_x, N, B: tl.constexpr):
    for column in range(0, N, B):
        of_y.store([tl.program_id(0) * B, column], 2 * of_x.load([tl.program_id(0) * B, column]))

kernel[(3,)](TensorDescriptor.from_tensor(y, [8, 8]), TensorDescriptor.from_tensor(x, [8, 8]), 24, B=8)
""",
    "a table of pointers": """
@triton.jit
def kernel(y, table, N, B: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, B)
    x = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(y + row * N + cols, 2 * tl.load(x + cols, mask=cols < N), mask=cols < N)

kernel[(20,)](y, torch.tensor([row.data_ptr() for row in x]), 24, B=32)
""",
    "threads": """
@triton.jit
def kernel(y, x, N, B: tl.constexpr):
    cols = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + cols, 2 * tl.load(x + cols, mask=cols < N), mask=cols < N)

lock = threading.Lock()  # plain Triton launches from one thread at a time
def work(rows):
    with lock:
        kernel[(5,)](y[rows], x[rows], 120, B=32)

threads = [threading.Thread(target=work, args=(slice(5 * i, 5 * i + 5),)) for i in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    "autotune and heuristics": """
@triton.autotune([triton.Config({"B": 32})], key=["N"])
@triton.heuristics({"EVEN": lambda args: args["N"] % 2 == 0})
@triton.jit
def kernel(y, x, N, B: tl.constexpr, EVEN: tl.constexpr):
    cols = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(y + cols, 2 * tl.load(x + cols, mask=cols < N), mask=cols < N)

kernel[lambda args: (triton.cdiv(480, args["B"]),)](y, x, 480)
""",
}
if needs.TRITON >= (3, 9):
    del SCRIPTS["block pointers"]


PLAIN = pytest.mark.skipif(
    triton.__version__.startswith("3.6."), reason="Triton 3.6 interprets no loop with NumPy 2.4: make install"
)


@pytest.mark.thinned(0)
@pytest.mark.parametrize(
    "first", [pytest.param("", marks=PLAIN, id="plain"), pytest.param("import helpers", id="with")]
)
def test_plain_scripts_give_the_same_with_and_without_helpers(first, tmp_path):
    for number, (name, script) in enumerate(SCRIPTS.items()):
        text = f"{first}{HEAD}{script}\nprint({name!r}, torch.equal(y, 2 * x), flush=True)\n"
        (tmp_path / f"{number}.py").write_text(text, encoding="utf-8")
    run_all = f"import runpy\nfor number in range({len(SCRIPTS)}):\n    runpy.run_path(f'{{number}}.py')\n"
    path = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", run_all]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"{name} True" for name in SCRIPTS], done.stderr
    assert done.returncode == 0


@triton.jit
def breaking_kernel(y_ptr, N):
    for i in range(0, N):
        if i == 2:
            break
        tl.store(y_ptr + i, 1.0)


@triton.jit
def doubling_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, 2 * tl.load(x_ptr + cols))


@pytest.fixture
def installed(monkeypatch):
    """This file's kernels are another package's."""
    monkeypatch.setattr(interpreter, "_is_learners", lambda fn: False)


def test_a_kernel_of_another_package_does_what_it_does_in_plain_triton(installed):
    y = torch.zeros(4, device=DEVICE)
    breaking_kernel[(1,)](y, 4)
    assert y.tolist() == [1, 1, 0, 0]


def test_a_kernel_of_another_package_is_held_to_the_compiler_where_it_is_counted(installed):
    with interpreter.watching(lambda launch: None), pytest.raises(interpreter.KernelError, match="Break"):
        breaking_kernel[(1,)](torch.zeros(4, device=DEVICE), 4)


def test_what_is_installed_is_another_packages_and_the_rest_a_learners():
    assert not interpreter._is_learners(tl.max.fn)
    assert interpreter._is_learners(breaking_kernel.fn)


def test_a_launch_leaves_nothing_replaced_in_triton_language():
    """Whether it is the first launch of this process or not."""

    def meanings():
        return [
            {name: getattr(owner, name) for name in {*dir(owner), "__annotations__"}}
            for owner in (tl, tl.core, tl.math, tl.tensor, tl.dtype)
        ]

    before = meanings()
    x = torch.ones(8, device=DEVICE)
    doubling_kernel[(1,)](torch.zeros_like(x), x, BLOCK=8)
    assert meanings() == before


def test_threads_launch_one_after_the_other():
    x, results, errors = torch.ones(8, device=DEVICE), [torch.zeros(8, device=DEVICE) for _ in range(4)], []

    def work(y):
        try:
            for _ in range(10):
                doubling_kernel[(1,)](y, x, BLOCK=8)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(y,)) for y in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and all(torch.equal(y, 2 * x) for y in results)


def test_a_process_forked_during_a_launch_can_launch():
    with interpreter._one_at_a_time:
        child = os.fork()
        if child == 0:
            free = []
            thread = threading.Thread(target=lambda: free.append(interpreter._one_at_a_time.acquire(timeout=5)))
            thread.start()
            thread.join()
            os._exit(0 if free == [True] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_pointer_that_is_none_is_not_followed():
    with pytest.raises(interpreter.OutOfBounds, match="through a pointer to no tensor"):
        doubling_through_table_kernel[(1,)](torch.zeros(1, device=DEVICE), torch.zeros(1, dtype=torch.int64))


@triton.jit
def doubling_through_table_kernel(y_ptr, table_ptr):
    tl.store(y_ptr, 2 * tl.load(tl.load(table_ptr).to(tl.pointer_type(tl.float32))))


@triton.autotune([triton.Config({"BLOCK": 8}), triton.Config({"BLOCK": 4})], key=[])
@triton.jit
def tuned_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, 2 * tl.load(x_ptr + cols))


def test_an_autotuned_kernel_runs_once_with_its_first_configuration():
    x, launches = torch.ones(8, device=DEVICE), []
    y = torch.zeros_like(x)
    with interpreter.watching(launches.append):
        tuned_kernel[lambda given: (8 // given["BLOCK"],)](y, x)
    assert [launch.grid for launch in launches] == [(1,)] and torch.equal(y, 2 * x)


@triton.jit
def ticket_kernel(y_ptr, x_ptr, counter_ptr, N, BLOCK: tl.constexpr):
    row = tl.atomic_add(counter_ptr, 1)
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + row * N + cols, tl.load(x_ptr + row * N + cols, mask=cols < N), mask=cols < N)


def test_a_counter_that_hands_out_rows_is_counted_and_told_apart():
    x, launches = torch.ones(4, 8, device=DEVICE), []
    with interpreter.watching(launches.append):
        ticket_kernel[(4,)](torch.zeros_like(x), x, torch.zeros(1, dtype=torch.int32, device=DEVICE), 8, BLOCK=8)
    assert (launches[0].loads, launches[0].stores, len(launches[0].tickets)) == (36, 36, 4)
