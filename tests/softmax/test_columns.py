"""Softmax over a dimension that others lie behind: in one tile, or shared by programs, a word for each neighbour."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, ON_GPU
from helpers.engine import child, compiled, interpreter
from helpers.softmax.kernels.columns import columns_kernel, group_and_part, lines_of_group_ahead
from helpers.softmax.kernels.streamed import strided_kernel
from helpers.softmax.launches.columns import columns_launcher
from helpers.softmax.launches.launch import LOOKS
from helpers.softmax.plans.columns import Group, SharedGroup, Streamed, ThreeLaunches, plan_columns
from helpers.softmax.plans.gpu import Chip
from helpers.softmax.plans.layout import Axis, axes_of, neighbours_in_a_vector
from tiles import BY_PROGRAMS, LONG, SHARED, TEAMS, assert_agrees, launched, with_looks

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
STREAMED = Streamed(8, 64, 4)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def launcher(x, dim, chosen=None):
    outer, inner, columns = axes_of(x.shape, x.stride(), dim)
    if inner.size == 1:
        outer, inner = inner, outer
    return columns_launcher(x, dim, outer, inner, columns, chosen)


LAYOUTS = {
    "channels": lambda: (torch.randn(2, 21, 64, device=DEVICE), 1),
    "channels of an odd image": lambda: (torch.randn(2, 21, 49, device=DEVICE), 1),
    "channels last": lambda: (torch.randn(2, 6, 6, 21, device=DEVICE).permute(0, 3, 1, 2), 1),
    "the first": lambda: (torch.randn(300, 40, device=DEVICE), 0),
    "transposed": lambda: (torch.randn(70, 33, device=DEVICE).t(), 1),
    "some of the channels": lambda: (torch.randn(2, 30, 64, device=DEVICE)[:, 4:25], 1),
    "apart": lambda: (torch.randn(40, 60, device=DEVICE)[:, ::2], 1),
    "three behind": lambda: (torch.randn(5, 100, 3, device=DEVICE), 1),
}


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_as_it_is_planned(name, dtype):
    x, dim = LAYOUTS[name]()
    x = x.to(dtype)
    assert_agrees(launched(launcher(x, dim), x), x, dim)


@pytest.mark.parametrize(
    ("dtype", "shape", "fetches"),
    [
        (torch.float32, (64, 1024, 1024), True),
        (torch.bfloat16, (64, 1024, 1024), True),
        (torch.float32, (2048, 512, 49), True),
        (torch.bfloat16, (512, 2048, 49), False),
    ],
    ids=["32 bits", "16 bits", "32 bits, several columns taken for one", "16 bits, several columns taken for one"],
)
def test_tiles_are_fetched_ahead_where_that_pays(dtype, shape, fetches):
    """Measured on an H200: 16-bit columns that are taken together took longer so."""
    x = torch.empty(shape, dtype=dtype, device="meta")
    not_here, here = (
        columns_launcher(x, 1, *axes_of(shape, x.stride(), 1), gpu=Chip(fetches_ahead=pays)) for pays in (False, True)
    )
    assert not_here.named["AHEAD"] == 0
    assert (here.named["AHEAD"] > 0) == fetches


@triton.jit
def _places_ahead(
    place_ptr, x_ptr, SPLIT, outer_stride, col_stride, INNER, N,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, HALF: tl.constexpr, LINES: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """The elements, counted from x_ptr, whose lines a program for each part of a group would fetch."""
    group, part = group_and_part(SPLIT)
    at = lines_of_group_ahead(x_ptr, group, part, SPLIT, outer_stride, 1, col_stride, INNER, N, WIDTH, BLOCK, AHEAD)
    places = (at.to(tl.int64) - x_ptr.to(tl.int64)) // (x_ptr.dtype.element_ty.primitive_bitwidth // 8)
    tile = tl.program_id(0) * HALF * LINES + tl.arange(0, HALF)[:, None] * LINES + tl.arange(0, LINES)[None, :]
    tl.store(place_ptr + tile, places)


@pytest.mark.parametrize(("dtype", "line"), [(torch.float32, 32), (torch.bfloat16, 64)], ids=str)
def test_half_the_tile_a_group_further_is_fetched_by_lines_and_nothing_outside_the_tensor(dtype, line):
    outer, N, inner, WIDTH, BLOCK, split, groups = 2, 300, 90, 64, 128, 3, 4
    x, lines = torch.zeros(outer, N, inner, dtype=dtype, device=DEVICE), WIDTH // line
    places = torch.zeros(groups, split, BLOCK // 2, lines, dtype=torch.int64, device=DEVICE)
    sizes = split, N * inner, inner, inner, N
    _places_ahead[(groups * split,)](places, x, *sizes, WIDTH, BLOCK, BLOCK // 2, lines, 1)
    further = torch.tensor([1, 2, 3, 3]).view(groups, 1, 1, 1)
    cols = (torch.arange(split)[:, None, None] * BLOCK + torch.arange(BLOCK // 2)[:, None]).clamp(max=N - 1)
    neighbours = (further % 2 * WIDTH + torch.arange(lines) * line).clamp(max=inner - 1)
    assert torch.equal(places.cpu(), further // 2 * N * inner + cols * inner + neighbours)


@pytest.mark.thinned(2)
@BY_PROGRAMS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [8, 20, 49])
def test_columns_that_programs_share(inner, dtype, chosen):
    x = torch.randn(2, 300, inner, device=DEVICE).to(dtype)
    assert_agrees(launched(launcher(x, 1, chosen), x), x, 1)


@pytest.mark.thinned
@pytest.mark.parametrize("TEAM", [2, 5, 10, 16])
def test_teams_of_any_size(TEAM):
    x = torch.randn(2, 300, 12, device=DEVICE)
    assert_agrees(launched(launcher(x, 1, SHARED.replaced(TEAM=TEAM)), x), x, 1)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [8, 20, 49, 300])
@pytest.mark.parametrize("SPLIT", [1, 3, 10])
def test_columns_in_three_launches(SPLIT, inner, dtype):
    x = torch.randn(2, 300, inner, device=DEVICE).to(dtype)
    assert_agrees(launched(launcher(x, 1, LONG.replaced(SPLIT=SPLIT)), x), x, 1)


@pytest.mark.thinned(0)
def test_more_parts_than_are_merged_at_a_time():
    x = torch.randn(1, 1300, 6, device=DEVICE)
    assert_agrees(launched(launcher(x, 1, LONG.replaced(BLOCK=2, SPLIT=650)), x), x, 1)


def test_columns_that_lie_apart_in_three_launches():
    x = torch.randn(40, 2, 300, device=DEVICE).permute(1, 2, 0)[:, ::2]
    assert_agrees(launched(launcher(x, 1, LONG), x), x, 1)


@BY_PROGRAMS
def test_a_program_that_finds_pairs_missing_writes_the_same_bits(chosen):
    x = torch.randn(2, 300, 20, device=DEVICE)
    helping, waiting = (with_looks(launcher(x, 1, chosen), looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, x), launched(waiting, x))


@needs.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(4096, 512), (2000, 196), (50257, 128)], ids=str)
def test_so_it_does_in_the_tiles_that_are_planned(shape, dtype):
    x = torch.randn(*shape, device=DEVICE).to(dtype)
    helping, waiting = (with_looks(launcher(x, 0), looks) for looks in (0, LOOKS))
    assert torch.equal(launched(helping, x), launched(waiting, x))


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n_cols", [17, 20, 21, 24])
def test_a_second_tile_holds_the_rest_of_the_columns(n_cols, dtype):
    x = torch.randn(2, n_cols, 20, device=DEVICE).to(dtype)
    chosen = Group(16, 16, 1, 128, REST=8)
    assert_agrees(launched(launcher(x, 1, chosen), x), x, 1)


@pytest.mark.thinned
@pytest.mark.parametrize("value", [-float("inf"), float("inf"), float("nan"), torch.finfo(torch.float32).min], ids=str)
@pytest.mark.parametrize("columns", [slice(299, 300), slice(None), slice(32, 64)], ids=str)
@pytest.mark.parametrize("chosen", [None, SHARED, TEAMS, LONG], ids=["one tile", "shared", "teams", "three launches"])
def test_special_values_are_those_of_torch(value, columns, chosen):
    x = torch.randn(2, 300, 12, device=DEVICE)
    x[1, columns, 3:5] = value
    y = launched(launcher(x, 1, chosen), x)
    torch.testing.assert_close(y, torch.softmax(x, 1), equal_nan=True, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_that_is_streamed(name):
    x, dim = LAYOUTS[name]()
    assert_agrees(launched(launcher(x, dim, STREAMED), x), x, dim)


@pytest.mark.parametrize(
    "values",
    [torch.arange(300.0), -torch.arange(300.0), torch.full((300,), -1000.0), torch.full((300,), -float("inf"))],
    ids=["ascending", "descending", "very negative", "only −inf"],
)
def test_columns_that_are_streamed(values):
    x = values[:, None].expand(300, 20).to(DEVICE)[None] + torch.randn(2, 1, 20, device=DEVICE)
    torch.testing.assert_close(launched(launcher(x, 1, STREAMED), x), torch.softmax(x, 1), equal_nan=True)


PLANS = {
    # 256 bytes of neighbours in one warp, and a smaller tile for the rest of the columns.
    (262144, 21, 4): Group(64, 16, 1, 128, REST=8),
    (262144, 21, 2): Group(128, 16, 1, 128, REST=8),
    (262144, 19, 2): Group(128, 16, 1, 128, REST=4),
    (262144, 32, 4): Group(64, 32, 2, 168),
    (262144, 25, 2): Group(128, 32, 1, 168),
    (262144, 2, 4): Group(1024, 2, 2, 168),
    # One tile of as many bytes of neighbours as fit.
    (3136, 256, 4): Group(64, 256, 8, 128),
    (3136, 256, 2): Group(64, 256, 4, 128),
    (3136, 128, 2): Group(64, 128, 4, 96),
    (3136, 33, 2): Group(64, 64, 2, 96),
    (3136, 512, 4): Group(32, 512, 8, 128),
    (8, 1500, 4): Group(8, 2048, 8, 128),
    (3, 1000, 4): Group(4, 1024, 4, 168),
    # Several programs rather than one tile of less than a line, in teams where they are many.
    (1024, 1024, 4): SharedGroup(64, 256, 4, 168, SPLIT=4),
    (1024, 1024, 2): SharedGroup(64, 512, 4, 168, SPLIT=2),
    (1024, 512, 2): SharedGroup(128, 256, 4, 168, SPLIT=2),
    (64, 512, 2): SharedGroup(64, 256, 4, 168, SPLIT=2),
    (32, 1024, 2): SharedGroup(32, 512, 4, 168, SPLIT=2),
    (4096, 700, 2): SharedGroup(64, 256, 4, 128, SPLIT=3),
    (16384, 2048, 4): SharedGroup(64, 256, 4, 168, SPLIT=8),
    (16384, 4096, 4): SharedGroup(64, 256, 4, 168, SPLIT=16, TEAM=8),
    (16384, 4096, 2): SharedGroup(64, 512, 4, 168, SPLIT=8),
    (4096, 16384, 4): SharedGroup(64, 256, 4, 168, SPLIT=64, TEAM=8),
    (1024, 65536, 2): SharedGroup(64, 512, 4, 168, SPLIT=128, TEAM=8),
    (512, 32768, 4): SharedGroup(32, 512, 4, 168, SPLIT=64, TEAM=8),
    # Elements that are moved one by one.
    (49, 512, 4): SharedGroup(64, 128, 4, 128, SPLIT=4),
    (49, 512, 2): Group(32, 512, 8, 128),
    (49, 256, 2): Group(32, 256, 4, 96),
    (49, 4096, 2): SharedGroup(64, 128, 4, 128, SPLIT=32, TEAM=8),
    # More than the GPU holds at the same time.
    (512, 131072, 4): ThreeLaunches(64, 128, 4, 128, SPLIT=256),
    (512, 131072, 2): ThreeLaunches(64, 256, 4, 168, SPLIT=512),
    (512, 2**24 + 1, 4): ThreeLaunches(64, 128, 4, 128, SPLIT=1024),
    (20, 2**20, 4): ThreeLaunches(1024, 8, 4, 128, SPLIT=1024, FOLD=32),
    (49, 2**20, 2): ThreeLaunches(64, 32, 2, 128, SPLIT=1024),
}
"""By neighbours, columns and bytes of an element."""


@pytest.mark.parametrize("layout", PLANS, ids=str)
def test_what_is_planned(layout):
    assert plan_columns(*layout) == PLANS[layout]


@pytest.mark.parametrize(
    ("layout", "chosen"),
    [
        ((3136, 256, 2), Group(32, 256, 4, 96)),
        ((3136, 256, 4), Group(64, 256, 8, 128)),
        ((4096, 4096, 2), SharedGroup(64, 128, 4, 128, SPLIT=32, TEAM=8)),
        ((49, 65536, 2), SharedGroup(64, 128, 4, 128, SPLIT=512, TEAM=32)),
    ],
    ids=str,
)
def test_neighbours_that_are_moved_one_by_one_take_a_register_each(layout, chosen):
    assert plan_columns(*layout, vectors=False) == chosen


@pytest.mark.parametrize("inner", [2**31 - 1, 2**31, 2**32 + 5])
def test_neighbours_may_be_more_than_32_bits_count(inner):
    x, y = torch.randn(8, device=DEVICE), torch.full((8,), 7.0, device=DEVICE)
    columns_kernel[(1,)](y, x, 0, 1, 0, 0, 1, 0, inner, 1, VEC=1, WIDTH=8, BLOCK=1, REST=0)
    assert (y == 1).all()


def test_a_tile_that_reaches_farther_than_32_bits_is_streamed():
    near, far = (torch.empty(1, device="meta").as_strided((300, 8), (stride, 1)) for stride in (2**20, 2**24))
    assert launcher(near, 0).kernel is columns_kernel and launcher(far, 0).kernel is strided_kernel


@pytest.mark.skipif(ON_GPU, reason="counted in the interpreter: CUDA_VISIBLE_DEVICES= make test")
@pytest.mark.parametrize("name", LAYOUTS)
def test_each_element_is_loaded_once_and_stored_once(name):
    x, dim = LAYOUTS[name]()
    launches = []
    with interpreter.watching(launches.append):
        launched(launcher(x, dim), x)
    (launch,) = launches
    assert (launch.loads, launch.stores) == (x.numel(), x.numel())


@pytest.mark.parametrize(
    ("inner", "first", "V"),
    [(64, 0, 4), (6, 0, 2), (49, 0, 1), (64, 1, 1)],
    ids=["64", "6", "49", "begins elsewhere"],
)
def test_vectors_are_as_wide_as_every_stride_allows(inner, first, V):
    x = torch.randn(2 * 21 * inner + first, device=DEVICE)[first:].view(2, 21, inner)
    assert launcher(x, 1).named["VEC"] == V


def test_dimensions_of_size_1_end_no_stride():
    assert axes_of((3, 4, 1, 5, 7), (140, 35, 1000, 7, 1), 4)[0] == Axis(60, 7, 7)


def test_a_vector_begins_where_every_column_does():
    assert neighbours_in_a_vector(Axis(2, 126, 84), Axis(4, 1, 1), Axis(21, 6, 4), 4) == 2


def ptx_of_columns(neighbours, V):
    """In a process that compiles: PTX of a kernel for 16-bit columns that lie `neighbours` apart."""
    names = columns_kernel.arg_names
    sizes = dict(zip(names[2:10], (40 * neighbours, 1, neighbours) * 2 + (neighbours, 40), strict=True))
    letters = {"VEC": V, "WIDTH": 64, "BLOCK": 64, "REST": 0, "POLICY": ""}
    signature = {
        "y_ptr": "*bf16",
        "x_ptr": "*bf16",
        **dict.fromkeys(sizes, "i32"),
        **dict.fromkeys(letters, "constexpr"),
    }
    for name in ("x_inner", "y_inner"):
        signature[name] = "constexpr"
        letters[name] = 1
    divisible = [i for i, name in enumerate(names) if name.endswith("_ptr") or sizes.get(name, 1) % 16 == 0]
    return compiled.compile_without_launch(
        columns_kernel, signature, letters, divisible, "sm_90", {"num_warps": 4}
    ).asm["ptx"]


@pytest.mark.parametrize(("neighbours", "V", "bits"), [(56, 8, "v4.b32"), (60, 4, "v2.b32")])
def test_neighbours_are_moved_together_even_where_their_number_is_no_multiple_of_16(neighbours, V, bits):
    assert f"ld.global.{bits}" in child.call(ptx_of_columns, neighbours, V, interpret=False)
