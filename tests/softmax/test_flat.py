"""Short rows that are no whole vectors, moved as the flat memory that they are; and when they are."""

import pytest
import torch

import gradients
from helpers import DEVICE, ON_GPU
from helpers.engine import child, compiled, interpreter
from helpers.softmax import function, softmax
from helpers.softmax.kernels.flat import flat_gradient_kernel, flat_kernel
from helpers.softmax.launches.rows import flat_launcher, gradient_rows_launcher, rows_launcher
from helpers.softmax.plans.gradients import plan_gradient
from helpers.softmax.plans.rows import Flat, Tile, plan_rows
from tiles import assert_agrees, launched

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHORT = {2: Flat(256, 2, 96, USED=8), 4: Flat(256, 2, 96, USED=8)}
"""Eight rows a program, of at most 32 columns, by bytes of an element."""


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def launcher(x):
    return rows_launcher(x, *x.shape, x.shape[1], SHORT[x.element_size()])


def gradient_launcher(y):
    return gradient_rows_launcher(*y.shape, y.element_size(), True, SHORT[y.element_size()])


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_rows", [1, 3, 8, 16, 29])
@pytest.mark.parametrize("n_cols", [1, 2, 3, 7, 9, 12, 17, 31])
def test_rows_of_every_length(n_cols, n_rows, dtype):
    x = torch.randn(n_rows, n_cols, device=DEVICE).to(dtype)
    assert_agrees(launched(launcher(x), x), x, 1)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_rows", [1, 3, 8, 16, 29])
@pytest.mark.parametrize("n_cols", [2, 3, 7, 9, 12, 17, 31])
def test_the_gradient_of_rows_of_every_length(n_cols, n_rows, dtype):
    y = torch.softmax(torch.randn(n_rows, n_cols, device=DEVICE), 1).to(dtype)
    dy = torch.randn(n_rows, n_cols, device=DEVICE).to(dtype)
    gradients.assert_agrees(gradients.launched(gradient_launcher(y), dy, y), dy, y)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [3, 9, 31])
def test_as_it_is_planned(n_cols, dtype):
    x = torch.randn(1001, n_cols, device=DEVICE).to(dtype)
    y, dy = softmax(x), torch.randn(1001, n_cols, device=DEVICE).to(dtype)
    assert_agrees(y, x, 1)
    gradients.assert_agrees(function.softmax_gradient(dy, y, 1), dy, y)


@pytest.mark.parametrize("value", [-float("inf"), float("inf"), float("nan"), torch.finfo(torch.float32).min], ids=str)
@pytest.mark.parametrize("columns", [slice(0, 1), slice(8, 9), slice(None)], ids=str)
def test_special_values_are_those_of_torch_and_stay_in_their_row(value, columns):
    x = torch.randn(20, 9, device=DEVICE)
    x[5, columns] = x[19, columns] = value
    y = launched(launcher(x), x)
    torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [float("inf"), float("nan")], ids=str)
def test_what_arrives_stays_in_its_row(value):
    y, dy = torch.softmax(torch.randn(20, 9, device=DEVICE), 1), torch.randn(20, 9, device=DEVICE)
    dy[5, 8] = dy[19, 0] = value
    want = torch._softmax_backward_data(dy, y, 1, y.dtype)
    dx = gradients.launched(gradient_launcher(y), dy, y)
    torch.testing.assert_close(dx, want, equal_nan=True, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(ON_GPU, reason="counted in the interpreter: CUDA_VISIBLE_DEVICES= make test")
def test_each_element_is_loaded_once_and_stored_once():
    x, dy = torch.randn(29, 9), torch.randn(29, 9)
    launches = []
    with interpreter.watching(launches.append):
        y = launched(launcher(x), x)
        gradients.launched(gradient_launcher(y), dy, y)
    n = x.numel()
    assert [(launch.loads, launch.stores) for launch in launches] == [(n, n), (2 * n, n)]


PLANS = {
    # Behind one another, and no whole vectors.
    (9, 4, 1, False, True): Flat(1024, 2, 96, USED=112),
    (9, 2, 1, False, True): Flat(2048, 2, 96, USED=224),
    (19, 4, 4, True, True): Flat(1024, 2, 96, USED=52),
    (31, 2, 1, False, True): Flat(2048, 2, 96, USED=64),
    # Whole vectors, longer rows, and rows that lie apart.
    (8, 2, 8, False, True): Tile(8, 1, 96, ROWS=128),
    (20, 4, 4, False, True): Tile(16, 1, 80, ROWS=32, REST=4),
    (33, 2, 8, True, True): Tile(32, 2, 96, ROWS=16),
    (9, 2, 1, False, False): Tile(16, 4, 96, ROWS=64),
    (16, 2, 1, False, False): Tile(16, 4, 96, ROWS=32),
    (100, 4, 1, False, False): Tile(128, 4, 96, ROWS=8),
    (256, 4, 1, False, False): Tile(256, 4, 96, ROWS=2),
    (257, 4, 1, False, False): Tile(256, 1, 80, ROWS=2, REST=64),
}
"""By columns, bytes of an element, V, EDGES, and whether the rows lie one behind another, for many rows."""


@pytest.mark.parametrize("layout", PLANS, ids=str)
def test_what_is_planned(layout):
    assert plan_rows(10**6, *layout) == PLANS[layout]


@pytest.mark.parametrize(("first", "apart", "kernel"), [(0, 0, "flat"), (1, 0, "tile"), (0, 1, "tile")], ids=str)
def test_rows_that_begin_elsewhere_or_lie_apart_are_not_moved_flat(first, apart, kernel):
    x = torch.zeros(first + 5 * (9 + apart), device=DEVICE)[first:].view(5, 9 + apart)[:, :9]
    found = function.launcher_of(x, 1).kernel.__name__
    assert found == f"{kernel}_kernel"


def compiled_with(kernel, n_cols, itemsize):
    """In a process that compiles: PTX, and registers that are spilled, of a kernel as it is planned for sm_90."""
    V = 16 // itemsize
    gradient = kernel == "flat_gradient_kernel"
    kernel = flat_gradient_kernel if gradient else flat_kernel
    plan = plan_gradient(n_cols, itemsize, 1, False) if gradient else plan_rows(1000, n_cols, itemsize, 1, False, True)
    launch = flat_launcher(kernel, 1000, n_cols, itemsize, plan)
    pointers = [name for name in kernel.arg_names if name.endswith("_ptr")]
    signature = {name: {4: "*fp32", 2: "*bf16"}[itemsize] for name in pointers} | {"M": "i32"}
    constants = {name: value for name, value in launch.named.items() if name not in signature}
    assert constants["VEC"] == V
    signature |= dict.fromkeys(constants, "constexpr")
    return compiled.compile_without_launch(
        kernel, signature, constants, range(len(pointers)), "sm_90", launch.options
    ).asm["ptx"]


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("kernel", ["flat_kernel", "flat_gradient_kernel"])
def test_they_are_moved_in_whole_vectors(kernel, itemsize):
    ptx = child.call(compiled_with, kernel, 9, itemsize, interpret=False)
    assert "ld.global.v4.b32" in ptx and "st.global.v4.b32" in ptx
