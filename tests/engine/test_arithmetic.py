"""What the interpreter computes: reductions and scans of every axis and dtype, in which order, how exactly."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, traffic
from helpers.engine.arithmetic import reduced, scanned
from helpers.engine.interpreter import KernelError

pytestmark = needs.interpreter

MANY = 16384


@triton.jit
def added(a, b):
    return a + b


@triton.jit
def larger(a, b):
    if a > b:
        found = a
    else:
        found = b
    return found


@triton.jit
def larger_by_another(a, b):
    return larger(a, b)


@triton.jit
def last(a, b):
    return b


@triton.jit
def merged(m_a, l_a, m_b, l_b):
    m = tl.maximum(m_a, m_b)
    return m, l_a * tl.exp(m_a - m) + l_b * tl.exp(m_b - m)


@triton.jit
def reduce_kernel(y_ptr, x_ptr, HOW: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    if HOW == "added":
        tl.store(y_ptr, tl.reduce(x, 0, added))
    elif HOW == "larger":
        tl.store(y_ptr, tl.reduce(x, 0, larger))
    elif HOW == "larger by another":
        tl.store(y_ptr, tl.reduce(x, 0, larger_by_another))
    else:
        tl.store(y_ptr, tl.reduce(x, 0, last))


@triton.jit
def pairs_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    m, l = tl.reduce((x, x * 0 + 1.0), 0, merged)
    tl.store(y_ptr, m)
    tl.store(y_ptr + 1, l)


@triton.jit
def along_kernel(y_ptr, x_ptr, AXIS: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    found = tl.reduce(x, AXIS, added, keep_dims=True)
    tl.store(y_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :], x * 0 + found)


@triton.jit
def scan_kernel(y_ptr, x_ptr, REVERSE: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.associative_scan(tl.load(x_ptr + cols), 0, added, reverse=REVERSE))


def launched(kernel, x, *options):
    y = torch.zeros_like(x)
    kernel[(1,)](y, x, *options)
    return y


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


def test_a_sum_of_one_s_own_is_as_exact_as_a_tree():
    x = random(MANY).abs()
    assert launched(reduce_kernel, x, "added", MANY)[0].item() == pytest.approx(x.double().sum().item(), rel=5e-7)


def test_pairs_are_merged():
    x = random(MANY)
    m, l = launched(pairs_kernel, x, MANY)[:2].tolist()
    assert m == x.max().item()
    assert l == pytest.approx((x.double() - m).exp().sum().item(), rel=1e-6)


@pytest.mark.parametrize(
    ("how", "expected"), [("larger", torch.max), ("larger by another", torch.max), ("last", lambda x: x[-1])]
)
def test_a_function_may_branch_and_may_depend_on_the_order(how, expected):
    x = random(32)
    assert launched(reduce_kernel, x, how, 32)[0] == expected(x)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_an_axis_is_kept_where_it_is_asked_for(axis):
    x = random(4, 8)
    expected = x.sum() if axis is None else x.sum(axis, keepdim=True)
    torch.testing.assert_close(launched(along_kernel, x, axis, 4, 8), expected.expand(4, 8))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_gives_the_sums_so_far(reverse):
    x = random(64)
    expected = x.flip(0).cumsum(0).flip(0) if reverse else x.cumsum(0)
    torch.testing.assert_close(launched(scan_kernel, x, reverse, 64), expected)


def test_neighbours_are_combined_first():
    assert reduced(lambda first, second: ([f"({a}{b})" for a, b in zip(*first, *second, strict=True)],), (
        ["a", "b", "c", "d"],
    )) == (["((ab)(cd))"],)  # fmt: skip


def test_a_scan_takes_as_few_steps_one_after_another_as_a_tree():
    steps = []

    def combine(first, second):
        steps.append(len(first[0]))
        return (first[0] + second[0],)

    (found,) = scanned(combine, (torch.arange(64).numpy(),))
    assert found.tolist() == torch.arange(64).cumsum(0).tolist()
    assert len(steps) == 2 * 6


@triton.jit
def cast_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, tl.load(x_ptr + cols).to(tl.bfloat16).to(tl.float32))


def test_a_bfloat16_is_rounded_to_the_nearest():
    x = random(64)
    torch.testing.assert_close(launched(cast_kernel, x, 64), x.bfloat16().float(), rtol=0, atol=0)


# The reductions and scans of Triton's own


@triton.jit
def multiplied(a, b):
    return a * b


@triton.jit
def own_kernel(y_ptr, x_ptr, HOW: tl.constexpr, AXIS: tl.constexpr, KEEP: tl.constexpr, SHAPE: tl.constexpr):
    size: tl.constexpr = SHAPE[0] * SHAPE[1] * SHAPE[2]
    x = tl.load(x_ptr + tl.arange(0, size))
    if SHAPE[0] > 1:
        x = tl.reshape(x, SHAPE)
    elif SHAPE[1] > 1:
        x = tl.reshape(x, [SHAPE[1], SHAPE[2]])
    if HOW == "sum":
        y = tl.sum(x, AXIS, keep_dims=KEEP)
    elif HOW == "sum in float32":
        y = tl.sum(x, AXIS, keep_dims=KEEP, dtype=tl.float32)
    elif HOW == "reduced":
        y = tl.reduce(x, AXIS, added, keep_dims=KEEP)
    elif HOW == "max":
        y = tl.max(x, AXIS, keep_dims=KEEP)
    elif HOW == "min":
        y = tl.min(x, AXIS, keep_dims=KEEP)
    elif HOW == "max with its place":
        y, place = tl.max(x, AXIS, return_indices=True, keep_dims=KEEP)
    elif HOW == "argmax":
        y = tl.argmax(x, AXIS, keep_dims=KEEP)
    elif HOW == "argmin":
        y = tl.argmin(x, AXIS, keep_dims=KEEP)
    elif HOW == "cumsum":
        y = tl.cumsum(x, AXIS)
    elif HOW == "cumsum from behind":
        y = tl.cumsum(x, AXIS, reverse=True)
    elif HOW == "cumprod":
        y = tl.cumprod(x, AXIS)
    elif HOW == "scanned":
        y = tl.associative_scan(x, AXIS, tl.standard._sum_combine)
    elif HOW == "products scanned":
        y = tl.associative_scan(x, AXIS, multiplied)
    elif HOW == "sort":
        y = tl.sort(x)
    elif HOW == "flip":
        y = tl.flip(x, AXIS)
    else:
        y = tl.fma(x, x, x)
    if y.type.is_block():
        tl.store(y_ptr + tl.arange(0, y.numel), tl.reshape(y, [y.numel]))
    else:
        tl.store(y_ptr, y)


def by_triton(how, x, axis, keep_dims=False):
    y = torch.full((x.numel(),), torch.nan, device=DEVICE)
    own_kernel[(1,)](y, x.contiguous(), how, axis, keep_dims, (*[1] * (3 - x.dim()), *x.shape))
    return y.double()


def summed_in_pairs(x, axis, keep_dims):
    """The sum of neighbours, then of pairs, and so on, each rounded to the dtype of x."""
    total = x.reshape(-1) if axis is None else x.movedim(axis, 0)
    while len(total) > 1:
        total = total[0::2] + total[1::2]
    if keep_dims:
        return total[0].reshape([1] * x.dim()) if axis is None else total[0].unsqueeze(axis)
    return total[0]


def with_argument(name):
    def of(x, axis, keep_dims):
        if axis is None:
            found = getattr(x.reshape(-1), name)(0)
            return found.reshape([1] * x.dim()) if keep_dims else found
        return getattr(x, name)(axis, keepdim=keep_dims)

    return of


EXACT = {
    "sum": summed_in_pairs,
    "reduced": summed_in_pairs,
    "max": with_argument("amax"),
    "min": with_argument("amin"),
    "max with its place": with_argument("amax"),
    "argmax": with_argument("argmax"),
    "argmin": with_argument("argmin"),
}
SCANS = {
    "cumsum": torch.cumsum,
    "cumsum from behind": lambda x, axis: x.flip(axis).cumsum(axis).flip(axis),
    "cumprod": torch.cumprod,
    "scanned": torch.cumsum,
    "products scanned": torch.cumprod,
}
SHAPES = ((64,), (4, 16), (2, 4, 8))
SIXTEEN_BITS = (torch.bfloat16, torch.float16)


def axes(shape, without=()):
    return [axis for axis in (*range(len(shape)), -1, None) if axis not in without]


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", (*SIXTEEN_BITS, torch.float32))
@pytest.mark.parametrize("shape", SHAPES, ids=len)
@pytest.mark.parametrize("how", EXACT)
def test_a_reduction_of_any_axis_has_a_gpu_s_numbers(how, shape, dtype):
    x = random(*shape).to(dtype)
    for axis in axes(shape, (None,) if how in ("argmax", "argmin", "max with its place") else ()):
        for keep_dims in (False, True):
            expected = EXACT[how](x, axis, keep_dims).double().reshape(-1)
            tolerance = 1e-6 if dtype == torch.float32 else 0.0  # NumPy sums float32 in an order of its own
            torch.testing.assert_close(
                by_triton(how, x, axis, keep_dims)[: expected.numel()], expected, rtol=tolerance, atol=tolerance
            )


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("shape", SHAPES, ids=len)
@pytest.mark.parametrize("how", SCANS)
def test_a_scan_of_any_axis_is_rounded_to_no_fewer_bits_than_its_tile_has(how, shape, dtype):
    x = (random(*shape).abs() + 0.5).clamp(max=1.5).to(dtype)
    for axis in axes(shape, without=(None,)):
        expected = SCANS[how](x.double(), axis).reshape(-1)
        # A tree of 64 leaves has 6 steps down and 6 steps up.
        torch.testing.assert_close(by_triton(how, x, axis), expected, rtol=12 * torch.finfo(dtype).eps / 2, atol=1e-3)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_a_sum_of_sixteen_bits_is_rounded_after_each_step(dtype):
    below = 2 / torch.finfo(dtype).eps
    x = torch.full((64,), 1.0, dtype=dtype, device=DEVICE)
    x[0] = below
    assert by_triton("sum", x, 0)[0] == summed_in_pairs(x, 0, False) != x.double().sum()
    assert by_triton("sum in float32", x, 0)[0] == x.double().sum()


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("shape", SHAPES, ids=len)
def test_tiles_of_sixteen_bits_are_sorted_and_flipped(shape, dtype):
    x = random(*shape).to(dtype)
    torch.testing.assert_close(by_triton("sort", x, None), x.sort(-1).values.double().reshape(-1), rtol=0, atol=0)
    for axis in range(len(shape)):
        torch.testing.assert_close(by_triton("flip", x, axis), x.flip(axis).double().reshape(-1), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_a_fused_multiply_add_is_rounded_once(dtype):
    x = random(64).to(dtype)
    expected = (x.double() * x.double() + x.double()).to(dtype).double()
    torch.testing.assert_close(by_triton("fma", x, None), expected, rtol=0, atol=0)


@triton.jit
def places_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    value, place = tl.reduce((x, tl.arange(0, BLOCK)), 0, tl.standard._argmax_combine_tie_break_left)
    tl.store(y_ptr, value)
    tl.store(y_ptr + 1, place)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_a_maximum_that_no_function_has_converted_is_a_number_s(dtype):
    x, y = random(32).to(dtype), torch.zeros(2, device=DEVICE)
    places_kernel[(1,)](y, x, 32)
    assert y.tolist() == [x.max().item(), x.argmax().item()]


@triton.jit
def printing_kernel(x_ptr, HEX: tl.constexpr):
    tl.device_print("x", tl.load(x_ptr + tl.arange(0, 2)), hex=HEX)


def test_a_bfloat16_is_printed_as_a_number(capsys):
    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, device=DEVICE)
    printing_kernel[(1,)](x, False)
    assert "[ 1.5 -2. ]" in capsys.readouterr().out
    printing_kernel[(1,)](x, True)
    assert "0x3fc0" in capsys.readouterr().out


@pytest.mark.parametrize("how", ("sum", "argmax", "reduced", "cumsum", "products scanned", "fma"))
def test_arithmetic_on_eight_bits_is_refused_as_no_gpu_has_it(how):
    x = random(64).to(torch.float8_e5m2)
    with pytest.raises(KernelError, match=r"no arithmetic on fp8e5\. Convert it first, as in x\.to\(tl\.float32\)"):
        by_triton(how, x, 0)
    assert by_triton("max", x, 0)[0] == x.float().max()  # which tl.max converts
    torch.testing.assert_close(by_triton("sum in float32", x, 0)[0], x.double().sum(), rtol=1e-6, atol=0)


def test_a_triton_that_sums_elsewhere_is_named(monkeypatch):
    from triton.runtime import interpreter as tri

    monkeypatch.setattr(tri.ReduceOps, "apply_impl", lambda self, inputs: tri.ReduceOps.sum(self, *inputs))
    with pytest.raises(RuntimeError, match=r"whose sum is 2\.5 was summed as .* helpers/engine/arithmetic\.py"):
        traffic.self_test.__wrapped__()


@triton.jit
def cumsum_kernel(y_ptr, x_ptr, BLOCK: tl.constexpr, REVERSE: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.cumsum(tl.load(x_ptr + at), axis=0, reverse=REVERSE))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_running_sum_of_many_numbers_is_as_exact_as_in_pairs(reverse):
    x = torch.full((16384,), 0.1, device=DEVICE)
    y = torch.empty_like(x)
    cumsum_kernel[(1,)](y, x, BLOCK=16384, REVERSE=reverse)
    want = x.double().cumsum(0)
    torch.testing.assert_close(y.double(), want.flip(0) if reverse else want, rtol=2e-6, atol=0)
