"""Every kernel of helpers.kernels against float64: shapes, dtypes, strides, special values; refused arguments."""

import functools
import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

import needs
from helpers import DEVICE, kernels
from helpers.check.problems import cases
from helpers.engine import interpreter

INF = float("inf")
KERNELS = {
    "eager": kernels.eager_softmax,
    "single tile": kernels.single_tile_softmax,
    "several rows": kernels.several_rows_softmax,
    "several rows, 4": functools.partial(kernels.several_rows_softmax, rows=4, num_warps=1),
    "persistent": kernels.persistent_softmax,
    "persistent, 3 stages": functools.partial(kernels.persistent_softmax, num_stages=3, programs=2),
    "two-pass": functools.partial(kernels.two_pass_softmax, BLOCK=64),
    "online": functools.partial(kernels.online_softmax, BLOCK=64),
    "split row": functools.partial(kernels.split_row_softmax, BLOCK=64),
}
FUSED = {name: fn for name, fn in KERNELS.items() if name != "eager"}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(params=KERNELS.values(), ids=KERNELS.keys())
def softmax(request):
    return request.param


@pytest.fixture(params=FUSED.values(), ids=FUSED.keys())
def fused(request):
    return request.param


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def expected(x):
    return torch.softmax(x.double(), dim=1)


def error(y, want):
    return (y.double() - want).norm().item() / max(want.norm().item(), 1e-300)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (1, 7), (5, 63), (4, 64), (3, 65), (2, 781)], ids=str)
def test_agrees_with_float64_in_every_shape_and_dtype(fused, shape, dtype):
    x = (torch.randn(shape, device=DEVICE) * 4).to(dtype)
    y = fused(x)
    assert y.dtype == dtype and y.shape == x.shape and y.is_contiguous()
    assert error(y, expected(x)) <= 2 * error(torch.softmax(x, dim=1), expected(x)) + torch.finfo(torch.float32).eps


@pytest.mark.thinned
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, ::3],
        lambda x: x[:, :100],
        lambda x: x[::2, 50:171],
        lambda x: x.t(),
        lambda x: x[:1].expand(4, -1),
        lambda x: x[2:, 7:8],
    ],
    ids=["every third column", "gap between rows", "every second row", "transposed", "expanded", "one column"],
)
def test_takes_any_strides(softmax, view):
    x = view(torch.randn(8, 300, device=DEVICE))
    torch.testing.assert_close(softmax(x).double(), expected(x), rtol=2e-5, atol=1e-7)


@pytest.mark.thinned
@pytest.mark.parametrize("shift", [-1000.0, -80.0, 0.0, 80.0, 1000.0])
def test_large_and_very_negative_values_do_not_overflow(softmax, shift):
    x = torch.randn(3, 200, device=DEVICE) + shift
    torch.testing.assert_close(softmax(x).double(), expected(x), rtol=1e-4, atol=1e-7)


@pytest.mark.thinned
@pytest.mark.parametrize("first, last", [(0.0, 30.0), (30.0, 0.0), (-300.0, 300.0), (300.0, -300.0)])
def test_ascending_and_descending_rows(softmax, first, last):
    x = torch.linspace(first, last, 500, device=DEVICE).repeat(2, 1)
    torch.testing.assert_close(softmax(x).double(), expected(x), rtol=1e-4, atol=1e-7)


def special(name):
    x = torch.randn(4, 200)
    if name == "scattered −inf":
        x[:, ::3] = -INF
    elif name == "a start of only −inf, longer than a tile":
        x[1, :130] = -INF
    elif name == "an end of only −inf":
        x[1, 60:] = -INF
    elif name == "a row of only −inf":
        x[2] = -INF
    elif name == "NaN":
        x[1, 150] = float("nan")
    elif name == "NaN after −inf":
        x[1] = -INF
        x[1, 199] = float("nan")
    elif name == "+inf":
        x[0, 10] = x[3, 199] = INF
    elif name == "+inf and −inf":
        x[0] = -INF
        x[0, 100] = INF
    return x.to(DEVICE)


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "name",
    [
        "scattered −inf",
        "a start of only −inf, longer than a tile",
        "an end of only −inf",
        "a row of only −inf",
        "NaN",
        "NaN after −inf",
        "+inf",
        "+inf and −inf",
    ],
)
def test_infinities_and_nan_come_out_as_in_torch(softmax, name, dtype):
    x = special(name).to(dtype)
    y, want = softmax(x), torch.softmax(x, dim=1)
    assert torch.equal(y.isnan(), want.isnan())
    assert torch.equal(y[x == -INF].nan_to_num(7), want[x == -INF].nan_to_num(7))
    torch.testing.assert_close(y, want, rtol=2e-2 if dtype != torch.float32 else 2e-5, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)], ids=str)
def test_empty_tensors_give_empty_tensors(softmax, shape):
    assert softmax(torch.empty(shape, device=DEVICE)).shape == shape


def test_the_input_is_left_alone(softmax):
    x = torch.randn(3, 100, device=DEVICE)
    before = x.clone()
    y = softmax(x)
    assert torch.equal(x, before) and y.data_ptr() != x.data_ptr()


@pytest.mark.thinned
@pytest.mark.parametrize("strides", [(2**30, 1), (1, 2**30)], ids=["row 3", "column 3"])
def test_offsets_beyond_32_bits_are_right(fused, strides):
    # Memory that is never touched is never taken: only four pages of these 6 GB exist.
    base = torch.empty(3 * 2**30 + 4, dtype=torch.bfloat16, device=DEVICE)
    x = base.as_strided((4, 4), strides)
    x.copy_(torch.randn(4, 4))
    torch.testing.assert_close(fused(x), torch.softmax(x, dim=1))


@pytest.mark.thinned
@needs.gpu
def test_more_than_2_to_the_31_elements(fused):
    x = torch.randn(2**20 + 2, 2**11, dtype=torch.bfloat16, device=DEVICE)
    fn = fused if "BLOCK" not in getattr(fused, "keywords", {}) else fused.func
    torch.testing.assert_close(fn(x)[-2:], torch.softmax(x[-2:], dim=1))


@pytest.mark.parametrize("BLOCK", [16, 128, 1024])
@pytest.mark.parametrize("fn", [kernels.two_pass_softmax, kernels.online_softmax, kernels.split_row_softmax])
def test_the_result_does_not_depend_on_the_tile(fn, BLOCK):
    x = torch.randn(2, 300, device=DEVICE)
    torch.testing.assert_close(fn(x, BLOCK=BLOCK), torch.softmax(x, dim=1))


@pytest.mark.parametrize("rows", [1, 2, 8, 64])
def test_the_result_does_not_depend_on_the_rows_of_a_program(rows):
    x = torch.randn(11, 50, device=DEVICE)
    torch.testing.assert_close(kernels.several_rows_softmax(x, rows=rows), torch.softmax(x, dim=1))


def test_the_copy_is_a_copy():
    x = torch.randn(7, 130, device=DEVICE)[:, ::2]
    assert torch.equal(kernels.copy(x), x)


def test_the_naive_chain_overflows_where_the_stable_one_does_not():
    x = torch.tensor([[100.0, 101.0]], device=DEVICE)
    assert kernels.eager_softmax(x, stable=False).isnan().all()
    assert not kernels.eager_softmax(x).isnan().any()


@pytest.mark.thinned
@pytest.mark.parametrize(
    "x, exception, says",
    [
        ([[1.0]], TypeError, "x must be a torch.Tensor; it is a list"),
        (torch.zeros(3), ValueError, r"two dimensions, \(M, N\); its shape is \(3,\)"),
        (torch.zeros(2, 3, 4), ValueError, "two dimensions"),
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, r"torch.int64. Use x.float\(\)"),
        (torch.zeros(2, 3, device="meta"), ValueError, r"x is on meta, .* Use x.to\(DEVICE\)"),
    ],
    ids=["a list", "one dimension", "three dimensions", "integers", "another device"],
)
def test_arguments_that_make_no_sense_are_refused_by_name(softmax, x, exception, says):
    with pytest.raises(exception, match=says):
        softmax(x.to(DEVICE) if isinstance(x, torch.Tensor) and x.device.type != "meta" else x)


def test_float64_is_refused_by_every_kernel(fused):
    with pytest.raises(TypeError, match="torch.float64"):
        fused(torch.zeros(2, 3, dtype=torch.float64, device=DEVICE))


def test_a_tensor_that_requires_a_gradient_is_refused(softmax):
    x = torch.randn(2, 3, device=DEVICE, requires_grad=True)
    with pytest.raises(ValueError, match="no backward pass. Use x.detach()"):
        softmax(x)
    with torch.no_grad():
        assert softmax(x).shape == x.shape


@pytest.mark.parametrize(
    "fn",
    [kernels.single_tile_softmax, kernels.several_rows_softmax, kernels.persistent_softmax, kernels.copy],
)
def test_a_row_that_fits_no_tile_is_refused(fn):
    with pytest.raises(ValueError, match="x has 131073 columns. Use online_softmax"):
        fn(torch.empty(1, 131073, device=DEVICE))


@pytest.mark.thinned
@pytest.mark.parametrize("BLOCK", [0, 3, 100, 2**18, 64.0, None])
@pytest.mark.parametrize("fn", [kernels.two_pass_softmax, kernels.online_softmax, kernels.split_row_softmax])
def test_a_block_that_is_no_power_of_two_is_refused(fn, BLOCK):
    with pytest.raises(ValueError, match="BLOCK must be a power of two"):
        fn(torch.zeros(1, 10, device=DEVICE), BLOCK=BLOCK)


@pytest.mark.parametrize("rows", [0, 3, -4, 2.0, 16384])
def test_a_number_of_rows_that_makes_no_tile_is_refused(rows):
    with pytest.raises(ValueError, match="rows must be a power of two, at most 8192 of 16 elements each"):
        kernels.several_rows_softmax(torch.zeros(1, 10, device=DEVICE), rows=rows)


def test_a_row_cut_into_more_slices_than_a_grid_takes_is_refused():
    with pytest.raises(ValueError, match="into 65536 slices, more than 65535; use a larger BLOCK"):
        kernels.split_row_softmax(torch.empty(1, 2**16, device=DEVICE), BLOCK=1)


@pytest.mark.parametrize("num_warps", [3, 0, 64, "4"])
def test_a_number_of_warps_that_is_no_power_of_two_is_refused(fused, num_warps):
    with pytest.raises(ValueError, match="num_warps must be a power of two between 1 and 32"):
        fused(torch.zeros(1, 10, device=DEVICE), num_warps=num_warps)


# How many programs, of how many warps


def launches(fn, x):
    """What the interpreter sees of the launches of fn(x)."""
    seen = []
    with interpreter.watching(seen.append):
        fn(x)
    return seen


@pytest.mark.parametrize(
    ("BLOCK", "num_warps"), [(1, 1), (512, 1), (1024, 2), (2048, 4), (8192, 16), (16384, 32), (131072, 32)]
)
def test_a_warp_has_512_elements_of_a_tile_from_1_to_32_warps(BLOCK, num_warps):
    assert kernels.default_num_warps(BLOCK) == num_warps


@needs.interpreter
@pytest.mark.parametrize(
    ("n_cols", "rows"), [(1, 2048), (16, 128), (17, 64), (1024, 2), (1025, 1), (2048, 1), (4096, 1)]
)
def test_a_program_of_several_rows_has_2048_elements(n_cols, rows):
    x = torch.zeros(2 * rows + 1, n_cols, device=DEVICE)
    (launch,) = launches(kernels.several_rows_softmax, x)
    assert launch.grid == (3,) and launch.tile == rows * triton.next_power_of_2(n_cols)


@needs.interpreter
@pytest.mark.parametrize(
    ("fn", "grid"),
    [
        (kernels.copy, (5,)),
        (kernels.single_tile_softmax, (5,)),
        (partial(kernels.several_rows_softmax, rows=2), (3,)),
        (kernels.persistent_softmax, (4,)),
        (partial(kernels.persistent_softmax, programs=2), (2,)),
        (partial(kernels.persistent_softmax, programs=9), (5,)),
        (partial(kernels.two_pass_softmax, BLOCK=64), (5,)),
        (partial(kernels.online_softmax, BLOCK=64), (5,)),
        (partial(kernels.split_row_softmax, BLOCK=64), (5, 4)),
    ],
    ids=lambda value: getattr(value, "__name__", None) or str(getattr(value, "keywords", value)),
)
def test_the_grid_has_the_programs_that_the_rows_need(fn, grid):
    assert {launch.grid for launch in launches(fn, torch.zeros(5, 200, device=DEVICE))} == {grid}


@needs.interpreter
@pytest.mark.parametrize("fn", [kernels.two_pass_softmax, kernels.online_softmax, kernels.split_row_softmax])
@pytest.mark.parametrize(("n_cols", "BLOCK", "tile"), [(200, 64, 64), (200, 4096, 256), (1, 64, 1)])
def test_a_tile_is_no_longer_than_the_row_needs(fn, n_cols, BLOCK, tile):
    seen = launches(partial(fn, BLOCK=BLOCK), torch.zeros(1, n_cols, device=DEVICE))
    assert max(launch.tile for launch in seen) == tile


@needs.interpreter
@pytest.mark.parametrize("fn", [kernels.two_pass_softmax, kernels.online_softmax, kernels.split_row_softmax])
def test_a_streamed_row_comes_in_tiles_of_8192_by_default(fn):
    seen = launches(fn, torch.zeros(1, 20000, device=DEVICE))
    assert max(launch.tile for launch in seen) == 8192


@needs.interpreter
def test_stages_are_one_where_there_is_no_shared_memory():
    assert kernels.default_num_stages(1) == 1


@pytest.fixture
def shared_memory(monkeypatch):
    """A GPU whose programs can have 1000 bytes of shared memory."""
    monkeypatch.setattr(kernels, "ON_GPU", True)
    monkeypatch.setattr(kernels, "_shared_memory_bytes", lambda: 1000)


@pytest.mark.parametrize(("row_bytes", "stages"), [(400, 2), (999, 2), (1000, 1), (2000, 1)])
def test_two_stages_are_the_default_where_shared_memory_holds_a_row(shared_memory, row_bytes, stages):
    assert kernels.default_num_stages(row_bytes) == stages


@pytest.mark.parametrize(("stages", "row_bytes", "advice"), [(2, 1000, 1), (3, 500, 2), (4, 334, 3), (2, 1500, 1)])
def test_stages_that_do_not_fit_into_shared_memory_are_refused_with_those_that_do(
    shared_memory, stages, row_bytes, advice
):
    with pytest.raises(
        ValueError, match=f"{stages} stages keep .* rows of {row_bytes} bytes, .* Use num_stages={advice}"
    ):
        kernels._stages(stages, row_bytes)


@pytest.mark.parametrize(("stages", "row_bytes"), [(1, 5000), (2, 999), (3, 499), (4, 333)])
def test_stages_that_fit_are_taken(shared_memory, stages, row_bytes):
    assert kernels._stages(stages, row_bytes) == stages


@pytest.mark.parametrize(
    ("num_warps", "registers", "shared_bytes", "held"),
    [(16, 40, 64, 3), (16, 40, 32832, 3), (2, 34, 8208, 24), (32, 64, 131200, 1), (4, 255, 16, 2), (32, 168, 0, 1)],
)
def test_a_persistent_launch_has_the_programs_that_registers_and_shared_memory_allow(
    monkeypatch, num_warps, registers, shared_bytes, held
):
    monkeypatch.setattr(kernels, "ON_GPU", True)
    monkeypatch.setattr(kernels.compiled, "needs", lambda *launch: (registers, shared_bytes))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(multi_processor_count=132))
    assert kernels._resident_programs(kernels.persistent_kernel, (), {"num_warps": num_warps}) == 132 * held


@needs.gpu
def test_more_stages_than_shared_memory_holds_are_refused():
    with pytest.raises(ValueError, match="do not fit into"):
        kernels.persistent_softmax(torch.zeros(1, 32768, device=DEVICE), num_stages=9)


@pytest.mark.filterwarnings("error")
def test_a_row_of_only_nan_gives_nan_without_a_warning(fused):
    assert fused(torch.full((2, 5), math.nan, device=DEVICE)).isnan().all()


@st.composite
def tensors(draw):
    """Small 2-D tensors: any dtype, gaps between rows and columns, transposed; values of any size, ±inf and NaN."""
    M, N = draw(st.integers(0, 4)), draw(st.integers(1, 150))
    row_step, col_step, skipped = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(0, 5))
    base = torch.randn(
        M * row_step, N * col_step + skipped, generator=torch.Generator().manual_seed(draw(st.integers(0, 9)))
    )
    base = base * draw(st.sampled_from([0.0, 1.0, 30.0])) + draw(st.sampled_from([0.0, 80.0, -1e4, 1e4]))
    for value in draw(st.lists(st.sampled_from([-INF, -INF, -INF, INF, math.nan]), max_size=3)):
        base[:, draw(st.integers(0, N - 1)) :: draw(st.integers(1, N))] = value
    base = base.to(draw(st.sampled_from(DTYPES))).to(DEVICE)
    x = base[::row_step, skipped::col_step]
    return x.t().contiguous().t() if draw(st.booleans()) else x


@pytest.mark.thinned(0)
@settings(max_examples=40, deadline=None, database=None)
@given(x=tensors(), BLOCK=st.sampled_from([16, 64, 128]))
def test_agrees_with_float64_on_whatever_hypothesis_draws(x, BLOCK):
    streamed = (kernels.two_pass_softmax, kernels.online_softmax, kernels.split_row_softmax)
    for softmax in (
        kernels.single_tile_softmax,
        kernels.several_rows_softmax,
        kernels.persistent_softmax,
        *(partial(f, BLOCK=BLOCK) for f in streamed),
    ):
        y = softmax(x)
        assert y.is_contiguous() and y.dtype == x.dtype
        assert cases.is_right(x, y)


# The losses of lesson 10


@pytest.mark.parametrize("loss", [kernels.row_losses, lambda x, target: kernels.losses_and_gradient(x, target)[0]])
@pytest.mark.parametrize(
    ("x", "target", "says"),
    [
        (lambda: torch.zeros(2, 3), lambda: torch.zeros(2), r"as int64; it is torch.float32 \(2,\)"),
        (lambda: torch.zeros(2, 3), lambda: torch.zeros(3, dtype=torch.int64), r"each of 2 rows as int64"),
        (lambda: torch.zeros(3, 2).t(), lambda: torch.zeros(2, dtype=torch.int64), r"Use x.contiguous\(\)"),
        (lambda: torch.zeros(1, 131073), lambda: torch.zeros(1, dtype=torch.int64), "holds a whole row in one tile"),
    ],
    ids=["float targets", "too many", "transposed", "too long"],
)
def test_a_loss_refuses_what_it_cannot_take(loss, x, target, says):
    with pytest.raises(ValueError, match=says):
        loss(x().to(DEVICE), target().to(DEVICE))


def test_no_rows_have_no_losses():
    losses, gradient = kernels.losses_and_gradient(
        torch.zeros(0, 5, device=DEVICE), torch.zeros(0, dtype=torch.int64, device=DEVICE)
    )
    assert losses.shape == (0,) and gradient.shape == (0, 5)


@pytest.mark.parametrize("wrong", [6, 7, 11, 2**40])
def test_a_target_past_the_row_makes_its_loss_and_gradient_nan_and_reads_nothing(wrong):
    """The rows lie in one tensor: past the end of the first are the numbers of the second."""
    x = torch.randn(3, 6, device=DEVICE)
    target = torch.tensor([wrong, 5, -1], device=DEVICE)
    losses, gradient = kernels.losses_and_gradient(x, target)
    for got in (losses, kernels.row_losses(x, target)):
        assert got[0].isnan() and got[1].isfinite() and got[2] == 0
    assert gradient[0].isnan().all() and gradient[1].isfinite().all() and not gradient[2].any()
