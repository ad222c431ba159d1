"""tl.reduce and tl.associative_scan with a function of one's own: what they compute, in which order, how exactly."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine.arithmetic import reduced, scanned

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
