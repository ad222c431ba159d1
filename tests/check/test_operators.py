"""Lesson 16: right gradients, kernels that nobody sees into, and launches whose numbers Triton itself counts."""

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE, xray
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_16 import LAUNCHES
from helpers.check.kept import text_of
from helpers.check.problems import boxes
from helpers.check.problems.operating import OPERATOR
from helpers.softmax import taken_home


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_results_in_float32_that_are_rounded_once_are_right(dim, dtype):
    x, dy = (torch.randn(5, 7, 9).to(dtype) for _ in range(2))
    y = torch.softmax(x.float(), dim).to(dtype)
    dx = y.float() * (dy.float() - (dy.float() * y.float()).sum(dim, keepdim=True))
    assert OPERATOR.is_right((x, dy, torch.tensor(dim)), [y, dx.to(dtype)])
    assert not OPERATOR.is_right((x, dy, torch.tensor(dim)), [y, dx.to(dtype) * 1.1])


def test_the_gradient_that_is_taken_home_is_that_of_differences():
    x = torch.randn(2, 3, 5, device=DEVICE, requires_grad=True)
    for dim in range(3):
        with pytest.warns(UserWarning, match="not a double precision"):
            assert torch.autograd.gradcheck(lambda x, dim=dim: taken_home.softmax(x, dim), x, eps=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", boxes.RIGHT_KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_kernel_is_as_near_as_any_check_asks(name, dtype):
    from helpers.check.problems import cases

    x = (3 * torch.randn(5, 3000)).to(dtype)
    x[1, :2000], x[2] = -torch.inf, -torch.inf
    cut = dtype == torch.bfloat16 and name.endswith("cut to bfloat16")  # which a check of kernels refuses
    tensors = x, x[::2, ::3], x[:, :40].t()
    right = [boxes.said_of_kernel(lambda fn, one=one: cases.is_right(one, fn(one)), name, 0) for one in tensors]
    assert all(right) is not cut


@pytest.mark.parametrize("name", boxes.WRONG_KERNELS)
def test_a_wrong_kernel_is_wrong_whatever_its_tiles_and_says_nothing_of_itself(name):
    for seed in range(5):
        assert boxes.said_of_kernel(taken_home.looks_right, name, seed) is False
        assert boxes.said_of_kernel(lambda fn: fn.__name__, name, seed) == "fn"


def test_kernels_come_in_an_order_of_their_own_each_time():
    exercise = EXERCISES["looks_right"]
    orders = {tuple(exercise.draw(boxes.Random(seed))) for seed in range(5)}
    assert len(orders) == 5 and len({frozenset(order) for order in orders}) == 1


@pytest.mark.parametrize("x", [torch.ones(3), torch.ones(2, 0), torch.ones(2, 3, dtype=torch.float64), [1.0]])
def test_a_kernel_says_what_it_takes(x):
    with pytest.raises((TypeError, ValueError), match="a kernel takes"):
        boxes.said_of_kernel(lambda fn: fn(x), "one tile", 0)


@needs.interpreter  # beside a GPU the function is sent anew for each kernel, and counts nothing
def test_a_count_of_the_calls_is_refused():
    calls = iter(range(100))  # each of the children counts for itself
    report = EXERCISES["looks_right"].report_on(lambda fn: next(calls) < 1, seed=0)
    assert not report.passed and report.diagnosis.id in ("right_refused", "right_refused_all")


def test_points_are_shares_of_what_is_told_apart():
    def of_half(fn):
        x = torch.randn(1823, 781)
        return torch.allclose(fn(x), torch.softmax(x, dim=1))

    report = EXERCISES["looks_right"].report_on(of_half, seed=0)
    assert report.points in (2, 2.5) and report.max_points == 6  # four or five of twelve are refused, and no right one
    assert not EXERCISES["looks_right"].report_on(lambda fn: None).attempted


@triton.jit
def _constant(x_ptr, M: tl.constexpr):
    tl.store(x_ptr, M)


@triton.jit
def _integer(x_ptr, M):
    tl.store(x_ptr, M)


@triton.jit(do_not_specialize=["M"])
def _unasked(x_ptr, M):
    tl.store(x_ptr, M)


def test_beside_a_right_operator_stand_all_the_pieces_that_were_asked_for():
    text = text_of(EXERCISES["operator"].ours)
    assert all(
        f"{piece}(" in text for piece in ("def gradient_kernel", "def rows_gradient", "class RowSoftmax", "def softmax")
    )


def test_binaries_are_those_of_triton_s_own_specialisation():
    rows = 1, 16, 17, 48
    counted = [xray.binaries(kernel, M=rows) for kernel in (_constant, _integer, _unasked)]
    assert counted == [*LAUNCHES["C, M a tl.constexpr"][0], *LAUNCHES["C, M an integer"][0], 1]
    with pytest.raises(ValueError, match="_integer has no parameter N; it has x_ptr, M"):
        xray.binaries(_integer, N=rows)


def test_launches_have_their_points_one_by_one():
    exercise = EXERCISES["launches"]
    right = {key: answers[0] for key, (answers, _) in LAUNCHES.items()}
    assert exercise.report_on(right).points == exercise.report_on(right | {"A, repair": "restore_value"}).points == 3
    for repair in ('restore_value=["out_ptr"]', "pre_hook"):
        assert exercise.report_on(right | {"A, repair": repair}).passed
    wrong = exercise.report_on(right | {"C, M an integer": 4, "B, repair": None})
    assert wrong.points == 2 and [one.seen for one in wrong.findings if not one.ok][0] == "not filled in yet"
    assert not exercise.report_on(dict.fromkeys(right)).attempted
