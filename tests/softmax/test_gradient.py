"""The gradient of softmax: the kernels themselves, right however many sums are missing, each element moved once."""

import pytest
import torch

from gradients import assert_agrees, launched
from helpers import DEVICE, ON_GPU
from helpers.engine import interpreter
from helpers.softmax import function
from helpers.softmax.launches.launch import LOOKS
from helpers.softmax.launches.rows import gradient_rows_launcher, shared_gradient_launcher
from helpers.softmax.plans.gradients import plan_gradient
from helpers.softmax.plans.layout import vectors
from helpers.softmax.plans.rows import Flat, Shared, Tile, shared_plan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK = 256
ROWS = 4000 if ON_GPU else 2


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def probabilities_and_gradient(*shape, dtype=torch.float32):
    """y and dy."""
    y = torch.softmax(torch.randn(shape, device=DEVICE), -1)
    return y.to(dtype), torch.randn(shape, device=DEVICE).to(dtype)


def shared(M, N, itemsize, num_warps=1, looks=0):
    V, EDGES = vectors(N, 16 // itemsize, True)
    chosen = shared_plan(N, BLOCK, num_warps, 96)
    return shared_gradient_launcher(M, N, itemsize, V, EDGES, chosen, looks=looks)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1, 2, 7, 8, 9, 33, 64, 255, 781, 2048, 2051])
def test_rows_of_every_length(n_cols, dtype):
    y, dy = probabilities_and_gradient(3, n_cols, dtype=dtype)
    launcher = gradient_rows_launcher(3, n_cols, y.element_size(), True)
    assert_agrees(launched(launcher, dy, y), dy, y)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [257, 1001, 1024])
@pytest.mark.parametrize("num_warps", [1, 4])
def test_rows_that_are_shared(n_cols, dtype, num_warps):
    y, dy = probabilities_and_gradient(3, n_cols, dtype=dtype)
    assert_agrees(launched(shared(3, n_cols, y.element_size(), num_warps), dy, y), dy, y)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [1000, 1001])
def test_a_program_that_finds_sums_missing_writes_the_same_bits(n_cols, dtype):
    y, dy = probabilities_and_gradient(ROWS, n_cols, dtype=dtype)
    helping, waiting = (shared(ROWS, n_cols, y.element_size(), looks=looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, dy, y), launched(waiting, dy, y))


@pytest.mark.thinned(1)
@pytest.mark.parametrize("column", [0, 1, 998, 999, 1000], ids=lambda column: f"column {column}")
def test_the_elements_before_and_after_the_whole_vectors_count(column):
    y, dy = probabilities_and_gradient(5, 1001)
    dy[:, column] = 1e4
    for launcher in shared(5, 1001, 4), gradient_rows_launcher(5, 1001, 4, True, Tile(1024, 1, 96)):
        assert_agrees(launched(launcher, dy, y), dy, y)


def test_a_sum_of_zero_has_come_too():
    y, dy = probabilities_and_gradient(3, 1000)
    assert not launched(shared(3, 1000, 4), torch.zeros_like(dy), y).any()


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")], ids=str)
def test_special_values_are_those_of_torch(value):
    y, dy = probabilities_and_gradient(3, 1001)
    dy[1, 500] = value
    want = torch._softmax_backward_data(dy, y, 1, y.dtype)
    for launcher in shared(3, 1001, 4), gradient_rows_launcher(3, 1001, 4, True):
        torch.testing.assert_close(launched(launcher, dy, y), want, equal_nan=True, rtol=1e-4, atol=1e-6)


def test_rows_that_begin_anywhere_are_moved_one_by_one():
    base, dy = torch.softmax(torch.randn(3 * 64 + 1, device=DEVICE), 0), torch.randn(3, 64, device=DEVICE)
    y = base[1:].view(3, 64)
    assert_agrees(launched(gradient_rows_launcher(3, 64, 4, False), dy, y), dy, y)


def test_the_gradient_of_rows_with_too_many_words_is_torch_s(monkeypatch):
    monkeypatch.setattr(function, "_MOST_GRADIENT_COLUMNS", 10)
    y, dy = probabilities_and_gradient(3, 11)
    assert torch.equal(function.softmax_gradient(dy, y, 1), torch._softmax_backward_data(dy, y, 1, y.dtype))


@pytest.mark.skipif(ON_GPU, reason="counted in the interpreter: CUDA_VISIBLE_DEVICES= make test")
@pytest.mark.parametrize("n_cols", [33, 64, 781, 2048])
def test_each_element_is_loaded_once_and_stored_once(n_cols):
    y, dy = probabilities_and_gradient(4, n_cols)
    launcher, launches = gradient_rows_launcher(4, n_cols, 4, True), []
    with interpreter.watching(launches.append):
        launched(launcher, dy, y)
    (launch,) = launches
    assert (launch.loads, launch.stores) == (2 * 4 * n_cols, 4 * n_cols)


GRADIENT_PLANS = {
    (8, 4, 4, False): Tile(8, 1, 96, ROWS=32),
    (64, 4, 4, False): Tile(64, 1, 96, ROWS=4),
    (2048, 4, 4, False): Tile(2048, 2, 96),
    # Short rows whose vectors have edges, or which have none, take more warps.
    (9, 2, 1, False, False): Tile(16, 8, 96, ROWS=64),
    (9, 4, 1, False, False): Tile(16, 4, 96, ROWS=32),
    # At a multiple of 16 bytes, the shortest ones are moved flat.
    (9, 2, 1, False): Flat(4096, 4, 96, USED=448),
    (9, 4, 1, False): Flat(1024, 2, 96, USED=112),
    (63, 2, 8, True): Flat(4096, 4, 96, USED=64),
    (33, 4, 4, True): Tile(32, 2, 80, ROWS=16),
    (65, 2, 8, True): Tile(64, 4, 80, ROWS=16),
    (325, 4, 4, True): Tile(512, 1, 96),
    # A slice is 4 kB of each for one warp, 16 kB for four, and of more than 128 slices, or 64 of 16 bits, 32 kB.
    (2052, 4, 4, False): Shared(1024, 1, 96, SPLIT=3),
    (32768, 4, 4, False): Shared(1024, 1, 96, SPLIT=32),
    (32769, 4, 4, True): Shared(1024, 1, 96, SPLIT=32),
    (32772, 4, 4, False): Shared(4096, 4, 80, SPLIT=9),
    (65544, 2, 8, False): Shared(8192, 4, 96, SPLIT=9),
    (64 * 8192, 2, 8, False): Shared(8192, 4, 96, SPLIT=64),
    (64 * 8192 + 8, 2, 8, False): Shared(16384, 4, 168, SPLIT=33),
    (128 * 4096, 4, 4, False): Shared(4096, 4, 80, SPLIT=128),
    (128 * 4096 + 4, 4, 4, False): Shared(8192, 4, 168, SPLIT=65),
    (256 * 8192 + 4, 4, 4, False): Shared(8192, 8, 128, SPLIT=257),
    # Elements that are moved one by one need more registers.
    (4096, 2, 1, False): Shared(1024, 1, 168, SPLIT=4),
    (32769, 2, 1, False): Shared(4096, 4, 168, SPLIT=9),
    (2**20 + 1, 2, 1, False): Shared(8192, 8, 128, SPLIT=129),
}
"""By columns, bytes of an element, V and EDGES; False where the tensors begin elsewhere."""


@pytest.mark.parametrize("layout", GRADIENT_PLANS, ids=str)
def test_what_is_planned(layout):
    assert plan_gradient(*layout) == GRADIENT_PLANS[layout]
