"""Columns whose few neighbours are no multiple of 16 bytes: several of them are taken for one, of more neighbours."""

import re

import pytest
import torch

import gradients
from helpers import DEVICE, ON_GPU
from helpers.engine import child, compiled, interpreter
from helpers.softmax import function, softmax
from helpers.softmax.kernels.columns import folded_columns_kernel
from helpers.softmax.launches.columns import columns_launcher, gradient_columns_launcher
from helpers.softmax.launches.launch import LOOKS
from helpers.softmax.plans.columns import Group, SharedGroup, ThreeLaunches, plan_columns, plan_columns_gradient
from helpers.softmax.plans.layout import Axis, columns_in_a_vector
from tiles import assert_agrees, launched, with_looks

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ONE_TILE = Group(64, 8, 2, 128, FOLD=8)
SHARED = SharedGroup(64, 2, 2, 128, SPLIT=3, FOLD=8)
LONG = ThreeLaunches(64, 2, 2, 128, SPLIT=2, FOLD=8)
FOLDS = pytest.mark.parametrize(
    "chosen",
    [ONE_TILE, ONE_TILE.replaced(WIDTH=128, FOLD=16, BLOCK=4), SHARED, SHARED.replaced(TEAM=2), LONG],
    ids=["one tile", "of 16 columns", "shared", "teams", "three launches"],
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def launcher(x, chosen=None):
    outer, columns, inner = x.shape
    axes = Axis(outer, x.stride(0), columns * inner), Axis(inner, 1, 1), Axis(columns, inner, inner)
    return columns_launcher(x, 1, *axes, chosen)


def gradient_launcher(y, chosen=None):
    outer, columns, inner = y.shape
    return gradient_columns_launcher(outer, inner, columns, y.element_size(), True, chosen)


@pytest.mark.thinned
@FOLDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [3, 7])
def test_softmax(inner, dtype, chosen):
    x = torch.randn(3, 48, inner, device=DEVICE).to(dtype)
    assert_agrees(launched(launcher(x, chosen), x), x, 1)


@pytest.mark.thinned
@FOLDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [3, 7])
def test_its_gradient(inner, dtype, chosen):
    y = torch.softmax(torch.randn(3, 48, inner, device=DEVICE), 1).to(dtype)
    dy = torch.randn(3, 48, inner, device=DEVICE).to(dtype)
    gradients.assert_agrees(gradients.launched(gradient_launcher(y, chosen), dy, y), dy, y, 1)


@pytest.mark.thinned
@FOLDS
@pytest.mark.parametrize("value", [-float("inf"), float("inf"), float("nan"), torch.finfo(torch.float32).min], ids=str)
@pytest.mark.parametrize("columns", [slice(47, 48), slice(None), slice(8, 16)], ids=str)
def test_special_values_are_those_of_torch(value, columns, chosen):
    x = torch.randn(2, 48, 7, device=DEVICE)
    x[1, columns, 3:5] = value
    y = launched(launcher(x, chosen), x)
    torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chosen", [SHARED, SHARED.replaced(TEAM=2)], ids=["shared", "teams"])
def test_a_program_that_finds_words_missing_writes_the_same_bits(chosen):
    x, dy = torch.randn(2, 48, 7, device=DEVICE), torch.randn(2, 48, 7, device=DEVICE)
    helping, waiting = (with_looks(launcher(x, chosen), looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, x), launched(waiting, x))
    y = torch.softmax(x, 1)
    helping, waiting = (with_looks(gradient_launcher(y, chosen), looks) for looks in (0, LOOKS))
    assert torch.equal(gradients.launched(helping, dy, y), gradients.launched(waiting, dy, y))


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 96, 49), (1, 512, 49), (2, 3000, 3), (1, 2048, 25)], ids=str)
def test_as_it_is_planned(shape, dtype):
    x, dy = torch.randn(shape, device=DEVICE).to(dtype), torch.randn(shape, device=DEVICE).to(dtype)
    y = softmax(x, 1)
    assert_agrees(y, x, 1)
    gradients.assert_agrees(function.softmax_gradient(dy, y, 1), dy, y, 1)


def test_more_programs_than_a_grid_has_are_torch_s():
    x, dy = torch.randn(3, 48, 7, device=DEVICE), torch.randn(3, 48, 7, device=DEVICE)
    chosen = SHARED.replaced(SPLIT=2**31)
    y = launched(launcher(x, chosen), x)
    assert torch.equal(y, torch.softmax(x, 1))
    dx = gradients.launched(gradient_launcher(y, chosen), dy, y)
    assert torch.equal(dx, torch.ops.aten._softmax_backward_data(dy, y, 1, y.dtype))


@pytest.mark.skipif(ON_GPU, reason="counted in the interpreter: CUDA_VISIBLE_DEVICES= make test")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_element_is_loaded_once_and_stored_once(dtype):
    x = torch.randn(2, 96, 49).to(dtype)
    launches = []
    with interpreter.watching(launches.append):
        y = launched(launcher(x), x)
        gradients.launched(gradient_launcher(y), x, y)
    assert [(launch.loads, launch.stores) for launch in launches] == [
        (x.numel(), x.numel()),
        (2 * x.numel(), x.numel()),
    ]


PLANS = {
    (49, 512, 2): Group(2048, 16, 8, 128, FOLD=32),
    (49, 256, 2): Group(1024, 16, 4, 128, FOLD=16),
    (49, 128, 2): Group(512, 16, 2, 128, FOLD=8),
    (49, 2048, 2): SharedGroup(2048, 16, 8, 128, SPLIT=4, FOLD=32),
    (3, 5000, 2): SharedGroup(32, 512, 4, 128, SPLIT=2, FOLD=8),
    (49, 128, 4): Group(512, 16, 4, 128, FOLD=8),
    (49, 256, 4): Group(1024, 16, 8, 128, FOLD=16),
    (49, 512, 4): SharedGroup(512, 16, 4, 96, SPLIT=4, FOLD=8),
    (49, 2048, 4): SharedGroup(512, 16, 4, 96, SPLIT=16, TEAM=8, FOLD=8),
    # More than the GPU holds at the same time.
    (49, 2**20, 4): ThreeLaunches(1024, 8, 4, 128, SPLIT=1024, FOLD=16),
    (49, 300_000, 2): ThreeLaunches(1024, 16, 4, 168, SPLIT=1024, FOLD=16),
    (3, 2_000_008, 2): ThreeLaunches(32, 512, 4, 168, SPLIT=489, FOLD=8),
}
"""By neighbours, columns and bytes of an element."""

GRADIENT_PLANS = {
    (49, 512, 2): SharedGroup(1024, 8, 4, 96, SPLIT=4, FOLD=16),
    (49, 256, 2): Group(2048, 8, 8, 128, FOLD=32),
    (49, 128, 2): Group(1024, 8, 4, 128, FOLD=16),
    (49, 128, 4): Group(512, 16, 4, 168, FOLD=8),
    (49, 256, 4): Group(1024, 16, 16, 96, FOLD=16),
    (49, 512, 4): SharedGroup(512, 16, 4, 168, SPLIT=4, FOLD=8),
    (49, 300_000, 2): PLANS[49, 300_000, 2],
}


@pytest.mark.parametrize("layout", PLANS, ids=str)
def test_what_is_planned(layout):
    assert plan_columns(*layout, vectors=False, per_vector=16 // layout[2]) == PLANS[layout]


@pytest.mark.parametrize("layout", GRADIENT_PLANS, ids=str)
def test_what_is_planned_for_the_gradient(layout):
    assert plan_columns_gradient(*layout, per_vector=16 // layout[2]) == GRADIENT_PLANS[layout]


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("inner", [3, 9, 49, 255])
@pytest.mark.parametrize("plan", [plan_columns, plan_columns_gradient])
def test_the_tiles_cover_all_columns_and_none_is_idle(plan, inner, itemsize):
    for columns in (40, 96, 512, 1000, 2048, 3000, 50256, 10**6):
        chosen = plan(inner, columns, itemsize, per_vector=16 // itemsize)
        assert columns % chosen.FOLD == 0 and (chosen.FOLD == 1 or chosen.FOLD * inner <= chosen.WIDTH)
        if chosen.FOLD > 1 and not isinstance(chosen, ThreeLaunches):
            assert chosen.SPLIT * chosen.BLOCK >= columns // chosen.FOLD > (chosen.SPLIT - 1) * chosen.BLOCK
            assert 32 * chosen.num_warps * chosen.maxnreg <= 65536


@pytest.mark.parametrize(
    ("inner", "n_cols"), [(49, 32), (49, 80), (257, 512), (257, 2**17)], ids=["few", "small", "wide", "wide and long"]
)
def test_what_gains_nothing_is_moved_as_it_was(inner, n_cols):
    for plan in (plan_columns, plan_columns_gradient):
        assert plan(inner, n_cols, 2, per_vector=8) == plan(inner, n_cols, 2)


@pytest.mark.parametrize(
    ("axes", "itemsize", "together"),
    [
        ((Axis(2, 512 * 49, 512 * 49), Axis(49, 1, 1), Axis(512, 49, 49)), 2, 8),
        ((Axis(2, 512 * 49, 512 * 49), Axis(49, 1, 1), Axis(512, 49, 49)), 4, 4),
        ((Axis(2, 40 * 6, 40 * 6), Axis(6, 1, 1), Axis(40, 6, 6)), 4, 2),
        ((Axis(2, 40 * 8, 40 * 8), Axis(8, 1, 1), Axis(40, 8, 8)), 4, 1),
        ((Axis(1, 1, 1), Axis(49, 1, 1), Axis(512, 49, 49)), 2, 8),
        ((Axis(2, 510 * 49, 510 * 49), Axis(49, 1, 1), Axis(510, 49, 49)), 2, 0),
        ((Axis(2, 512 * 49 + 1, 512 * 49), Axis(49, 1, 1), Axis(512, 49, 49)), 2, 0),
        ((Axis(2, 512 * 56, 512 * 49), Axis(49, 1, 1), Axis(512, 56, 49)), 2, 0),
        ((Axis(2, 512 * 49, 512 * 49), Axis(49, 512, 1), Axis(512, 1, 49)), 2, 0),
    ],
)
def test_columns_together_are_whole_vectors_or_none(axes, itemsize, together):
    assert columns_in_a_vector(*axes, itemsize) == together


def test_a_tensor_that_begins_elsewhere_is_moved_as_it_was():
    x = torch.randn(2 * 96 * 49 + 1, device=DEVICE)[1:].view(2, 96, 49)
    assert launcher(x).kernel is not folded_columns_kernel
    assert_agrees(launched(launcher(x), x), x, 1)


def ptx_of_a_fold():
    """In a process that compiles: PTX for 16-bit columns of 49 neighbours, eight of them taken for one."""
    names = folded_columns_kernel.arg_names
    sizes = dict(zip(names[2:10], (128 * 49, 1, 8 * 49) * 2 + (8 * 49, 16), strict=True))
    letters = {"VEC": 8, "WIDTH": 512, "FOLD": 8, "DISTINCT": 64, "BLOCK": 16, "POLICY": "", "x_inner": 1, "y_inner": 1}
    pointers = {"y_ptr": "*bf16", "x_ptr": "*bf16"}
    signature = pointers | dict.fromkeys(sizes, "i32") | dict.fromkeys(letters, "constexpr")
    divisible = [i for i, name in enumerate(names) if name in pointers or sizes.get(name, 1) % 16 == 0]
    return compiled.compile_without_launch(
        folded_columns_kernel, signature, letters, divisible, "sm_90", {"num_warps": 2}
    ).asm["ptx"]


def test_vectors_move_neighbours_that_alone_would_be_moved_one_by_one():
    ptx = child.call(ptx_of_a_fold, interpret=False)
    assert "ld.global.v4.b32" in ptx and "ld.global.b16" not in ptx


def test_what_threads_add_to_each_other_s_is_rounded_first():
    """Else each thread adds its own product, exact, to the rounded one of another, and finds other last bits than it.

    On an H200 racecheck saw threads write different bits of one sum to one place of shared memory.
    """
    ptx = child.call(ptx_of_a_fold, interpret=False)
    assert re.search(r"fma\.rn\.f32 .*, 0f00000000;", ptx)
