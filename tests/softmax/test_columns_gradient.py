"""The gradient of softmax over a dimension that others lie behind: in one tile, shared by programs, or streamed."""

import pytest
import torch

import needs
from gradients import assert_agrees, launched
from helpers import DEVICE, ON_GPU
from helpers.engine import interpreter
from helpers.softmax.launches.columns import gradient_columns_launcher
from helpers.softmax.launches.launch import LOOKS
from helpers.softmax.plans.columns import (
    Group,
    SharedGroup,
    Streamed,
    ThreeLaunches,
    plan_columns,
    plan_columns_gradient,
)
from helpers.softmax.plans.gpu import Chip
from tiles import BY_PROGRAMS, LONG, SHARED, TEAMS, with_looks

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def probabilities_and_gradient(shape, dtype=torch.float32):
    y = torch.softmax(torch.randn(shape, device=DEVICE), 1).to(dtype)
    return y, torch.randn(shape, device=DEVICE).to(dtype)


def launcher(y, chosen=None):
    outer, columns, inner = y.shape
    return gradient_columns_launcher(outer, inner, columns, y.element_size(), True, chosen)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 21, 64), (1, 300, 40), (3, 64, 49), (1, 5000, 12), (4, 2, 3)], ids=str)
def test_columns_as_they_are_planned(shape, dtype):
    y, dy = probabilities_and_gradient(shape, dtype)
    assert_agrees(launched(launcher(y), dy, y), dy, y, 1)


@pytest.mark.parametrize(
    ("itemsize", "shape", "fetches"),
    [(2, (64, 1024, 1024), True), (4, (64, 1024, 1024), False), (2, (2048, 512, 49), False)],
    ids=["16 bits", "32 bits", "16 bits, several columns taken for one"],
)
def test_tiles_of_16_bits_are_fetched_ahead_where_that_pays(itemsize, shape, fetches):
    """Measured on an H200: the others took about as long so, or longer."""
    outer, N, inner = shape
    not_here, here = (
        gradient_columns_launcher(outer, inner, N, itemsize, True, gpu=Chip(fetches_ahead=pays))
        for pays in (False, True)
    )
    assert not_here.named["AHEAD"] == 0
    assert (here.named["AHEAD"] > 0) == fetches


@pytest.mark.thinned(2)
@BY_PROGRAMS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [8, 20, 49])
def test_columns_that_programs_share(inner, dtype, chosen):
    y, dy = probabilities_and_gradient((2, 300, inner), dtype)
    assert_agrees(launched(launcher(y, chosen), dy, y), dy, y, 1)


@pytest.mark.thinned
@pytest.mark.parametrize("TEAM", [2, 5, 10, 16])
def test_teams_of_any_size(TEAM):
    y, dy = probabilities_and_gradient((2, 300, 12))
    assert_agrees(launched(launcher(y, SHARED.replaced(TEAM=TEAM)), dy, y), dy, y, 1)


@pytest.mark.thinned(0)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [8, 20, 49, 300])
@pytest.mark.parametrize("SPLIT", [1, 3, 10])
def test_columns_in_three_launches(SPLIT, inner, dtype):
    y, dy = probabilities_and_gradient((2, 300, inner), dtype)
    assert_agrees(launched(launcher(y, LONG.replaced(SPLIT=SPLIT)), dy, y), dy, y, 1)


def test_columns_that_are_streamed():
    y, dy = probabilities_and_gradient((2, 100, 12))
    assert_agrees(launched(launcher(y, Streamed(8, 64, 4)), dy, y), dy, y, 1)


def test_more_programs_than_a_grid_has_are_torch_s():
    y, dy = probabilities_and_gradient((2, 300, 12))
    dx = launched(launcher(y, SHARED.replaced(SPLIT=2**31)), dy, y)
    assert torch.equal(dx, torch._softmax_backward_data(dy, y, 1, y.dtype))


@pytest.mark.thinned(0)
@BY_PROGRAMS
def test_a_program_that_finds_sums_missing_writes_the_same_bits(chosen):
    y, dy = probabilities_and_gradient((2, 300, 20))
    helping, waiting = (with_looks(launcher(y, chosen), looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, dy, y), launched(waiting, dy, y))


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 4096, 512), (3, 2000, 196), (2, 2050, 49), (1, 30000, 128)], ids=str)
def test_so_it_does_in_the_tiles_that_are_planned(shape, dtype):
    y, dy = probabilities_and_gradient(shape, dtype)
    helping, waiting = (with_looks(launcher(y), looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, dy, y), launched(waiting, dy, y))


@pytest.mark.thinned
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")], ids=str)
@pytest.mark.parametrize("chosen", [None, SHARED, TEAMS, LONG], ids=["one tile", "shared", "teams", "three launches"])
def test_special_values_are_those_of_torch(value, chosen):
    y, dy = probabilities_and_gradient((2, 300, 12))
    dy[1, 250, 3:5] = value
    want = torch._softmax_backward_data(dy, y, 1, y.dtype)
    torch.testing.assert_close(launched(launcher(y, chosen), dy, y), want, equal_nan=True, rtol=1e-4, atol=1e-6)


def test_where_y_is_0_so_is_the_gradient():
    y, dy = probabilities_and_gradient((2, 300, 12))
    y[0, 32:64], y[1] = 0, 0
    dx = launched(launcher(y, TEAMS), dy, y)
    assert not dx[0, 32:64].any() and not dx[1].any()


@pytest.mark.skipif(ON_GPU, reason="counted in the interpreter: CUDA_VISIBLE_DEVICES= make test")
@pytest.mark.parametrize("shape", [(2, 21, 64), (3, 64, 49)], ids=str)
def test_each_element_is_loaded_once_and_stored_once(shape):
    y, dy = probabilities_and_gradient(shape)
    launches = []
    with interpreter.watching(launches.append):
        launched(launcher(y), dy, y)
    (launch,) = launches
    assert (launch.loads, launch.stores) == (2 * y.numel(), y.numel())


PLANS = {
    # One tile of at least a line, or of all the neighbours.
    (3136, 256, 4): Group(32, 256, 16, 128),
    (3136, 256, 2): Group(32, 256, 8, 128),
    (16, 1000, 2): Group(16, 1024, 16, 128),
    # Lines of 128 bytes, shared by programs, in teams where they are many.
    (1984, 300, 4): SharedGroup(32, 256, 4, 168, SPLIT=2),
    (1984, 512, 2): SharedGroup(64, 256, 4, 168, SPLIT=2),
    (16384, 4096, 4): SharedGroup(32, 256, 4, 168, SPLIT=16),
    (16384, 4096, 2): SharedGroup(64, 256, 4, 168, SPLIT=16, TEAM=8),
    (2048, 32768, 4): SharedGroup(32, 256, 4, 168, SPLIT=128, TEAM=8),
    # Elements that are moved one by one.
    (49, 512, 4): Group(16, 512, 16, 128),
    (49, 1024, 2): Group(16, 1024, 16, 128),
    (49, 2048, 4): SharedGroup(32, 64, 2, 128, SPLIT=32, TEAM=8),
    (49, 65536, 2): SharedGroup(32, 64, 2, 128, SPLIT=1024, TEAM=32),
    # More than the GPU holds at the same time.
    (2048, 32769, 4): ThreeLaunches(64, 128, 4, 128, SPLIT=65),
    (512, 131072, 2): ThreeLaunches(64, 256, 4, 168, SPLIT=512),
    (64, 2**24, 4): ThreeLaunches(1024, 8, 4, 128, SPLIT=1024, FOLD=16),
}
"""By neighbours, columns and bytes of an element."""


@pytest.mark.parametrize("layout", PLANS, ids=str)
def test_what_is_planned(layout):
    assert plan_columns_gradient(*layout) == PLANS[layout]


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("inner", [1, 3, 16, 32, 49, 64, 4096])
@pytest.mark.parametrize("plan", [plan_columns, plan_columns_gradient])
def test_the_tiles_of_a_group_cover_its_columns_and_none_is_idle(plan, inner, itemsize):
    for columns in (2, 33, 256, 300, 512, 640, 1024, 3000, 16385, 131072, 10**6):
        chosen = plan(inner, columns, itemsize)
        if not isinstance(chosen, ThreeLaunches):
            assert chosen.SPLIT * chosen.BLOCK + chosen.REST >= columns > (chosen.SPLIT - 1) * chosen.BLOCK
            assert 32 * chosen.num_warps * chosen.maxnreg <= 65536
