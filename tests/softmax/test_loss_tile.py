"""Losses of short rows, several a program: as torch has them, and when they are taken together."""

import pytest
import torch
import torch.nn.functional as F

import needs
from helpers import DEVICE, traffic
from helpers.engine.runtime import INTERPRETED
from helpers.softmax import mailbox
from helpers.softmax.launcher import on_stream
from helpers.softmax.loss_how import How
from helpers.softmax.loss_launch import gradient_like, loss_launcher, plan_of_rows_together
from helpers.softmax.loss_sum import COUNTERS, words_to_add_up
from helpers.softmax.loss_tile import cross_entropy_tile_kernel
from helpers.softmax.plan import Plan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
IGNORED = -100
MANY = 10**6


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def inputs(M, N, dtype=torch.float32):
    x = (3 * torch.randn(M, N, device=DEVICE)).to(dtype)
    target = torch.randint(0, N, (M,), device=DEVICE)
    target[::4] = IGNORED
    return x, target


def launched(x, target, reduction="mean", smoothing=0.0, grad=True, looks=4096, into=None, ignored=IGNORED):
    """The loss, the gradient and the pairs from tiles of eight rows."""
    M, N = x.shape
    BLOCK = 1 << (N - 1).bit_length()
    chosen = Plan("tiles", BLOCK, 1, 96, ROWS=8)
    launch = loss_launcher(x, How(ignored, reduction, smoothing, torch.float32), grad, True, chosen, looks)
    loss = torch.full((M,) if reduction == "none" else (), -1.0, device=DEVICE)
    gradient = gradient_like(x).fill_(7) if into is None else into
    pairs = torch.zeros(M + 1, dtype=torch.int64, device=DEVICE)
    on_stream(x, launch, (gradient, loss, x, target, pairs), mailbox.fresh)
    return loss, gradient, pairs


def wanted(x, target, reduction="mean", smoothing=0.0):
    x = x.detach().double().requires_grad_()
    loss = F.cross_entropy(x, target, ignore_index=IGNORED, reduction=reduction, label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), gradient


def assert_agrees(x, target, reduction="mean", smoothing=0.0, **how):
    (loss, gradient, _), (right, right_gradient) = (
        launched(x, target, reduction, smoothing, **how),
        wanted(x, target, reduction, smoothing),
    )
    torch.testing.assert_close(loss.double(), right, rtol=2e-6, atol=1e-6, equal_nan=True)
    by = TOLERANCE[x.dtype]
    torch.testing.assert_close(gradient.double(), right_gradient, rtol=by, atol=by / 100, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 7, 10, 64, 100, 1000])
def test_agrees_with_float64(N, dtype):
    assert_agrees(*inputs(19, N, dtype))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_takes_every_reduction_and_any_smoothing(reduction, smoothing):
    assert_agrees(*inputs(19, 10), reduction, smoothing)


@pytest.mark.parametrize("M", [1, 7, 8, 9, 300])
def test_the_last_tile_may_be_empty_in_part(M):
    assert_agrees(*inputs(M, 5))


def test_a_program_that_may_not_look_counts_the_targets_itself():
    assert_agrees(*inputs(300, 5), looks=0)


def test_rows_may_lie_apart():
    x, target = inputs(19, 10)
    assert_agrees(F.pad(x, (0, 6))[:, :10], target)


def test_the_gradient_may_be_written_over_the_logits():
    x, target = inputs(19, 10)
    _, right = wanted(x, target)
    _, gradient, _ = launched(x, target, into=x)
    assert gradient.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x.double(), right, rtol=2e-6, atol=2e-8)


def test_special_values_are_those_of_torch():
    x, target = inputs(19, 10)
    x[1, 3], x[2, 4], x[3], x[5, 5] = float("nan"), float("inf"), -float("inf"), -float("inf")
    target[5] = 5
    assert_agrees(x, target, "none")


def test_an_ignored_row_has_no_part_in_anything_even_if_it_holds_nan():
    x, target = inputs(19, 10)
    x[4] = float("nan")
    assert target[4] == IGNORED
    loss, gradient, _ = launched(x, target)
    assert loss.isfinite()
    assert gradient[4].eq(0).all()
    assert gradient.isfinite().all()


def test_a_class_may_be_the_one_that_is_ignored():
    x = inputs(19, 5)[0]
    target = torch.arange(19, device=DEVICE) % 5
    loss, gradient, _ = launched(x, target, ignored=2)
    want, right = wanted(x, torch.where(target == 2, IGNORED, target))
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    torch.testing.assert_close(gradient.double(), right, rtol=2e-6, atol=2e-8)


@pytest.mark.parametrize("programs", [1, 2, 5])
def test_any_number_of_programs_share_the_tiles(programs):
    x, target = inputs(300, 10)
    words = torch.zeros(COUNTERS + words_to_add_up(programs, 2), dtype=torch.int64, device=DEVICE)
    loss, gradient = torch.empty((), device=DEVICE), torch.empty_like(x)
    letters = True, False, "mean", 0.0, 1, 8, 1 if INTERPRETED else 32, 16, 2
    cross_entropy_tile_kernel[(programs,)](
        gradient, loss, x, target, loss, words, 10, 300, 10, IGNORED, 4096, *letters, num_warps=1
    )
    want, right = wanted(x, target)
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    torch.testing.assert_close(gradient.double(), right, rtol=2e-6, atol=2e-8)


@pytest.mark.parametrize("wrong", [10, 15, 16, -1, 2**40])
def test_a_target_that_is_no_class_makes_its_row_nan_and_no_other(wrong):
    x, target = inputs(19, 10)
    target[5] = wrong
    loss, gradient, _ = launched(x, target, "sum")
    assert loss.isnan()
    assert gradient[5].isnan().all()
    assert gradient.isfinite().all(dim=1).sum() == 18


def test_where_all_rows_are_ignored_the_mean_is_nan():
    x, target = inputs(19, 10)
    assert launched(x, torch.full_like(target, IGNORED))[0].isnan()


def test_each_row_that_counts_leaves_its_pair_and_the_last_word_is_their_number():
    x, target = inputs(19, 10)
    _, _, pairs = launched(x, target)
    m = torch.tensor([word >> 32 for word in pairs[:-1].tolist()]).to(torch.int32).view(torch.float32)
    counts = (target != IGNORED).cpu()
    assert torch.equal(m[counts], x.cpu().max(1).values[counts])
    assert torch.tensor([pairs[-1].item() & 0xFFFFFFFF]).to(torch.int32).view(torch.float32).item() == counts.sum()


@needs.interpreter
def test_each_logit_is_read_once_and_its_gradient_written_once():
    x, target = inputs(24, 1000)
    counted = traffic.count(lambda x: launched(x, target, into=x), x)
    assert 1 <= counted.loads / x.numel() < 1.01 and 1 <= counted.stores / x.numel() < 1.01


def test_it_is_the_same_from_run_to_run():
    x, target = inputs(300, 10)
    runs = [launched(x, target) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


def tiles(BLOCK, num_warps, maxnreg, ROWS):
    return Plan("tiles", BLOCK, num_warps, maxnreg, ROWS=ROWS)


@pytest.mark.parametrize(
    ("shape", "V", "plan"),
    [
        # 1024 elements a warp, or 512 or 256 that are moved one by one.
        ((MANY, 64, 2), 8, tiles(64, 1, 96, 16)),
        ((MANY, 512, 4), 4, tiles(512, 1, 96, 2)),
        ((MANY, 10, 2), 1, tiles(16, 1, 96, 32)),
        ((MANY, 1, 4), 1, tiles(1, 1, 64, 256)),
        ((MANY, 21, 2), 1, tiles(32, 1, 64, 8)),
        ((MANY, 128, 4), 1, tiles(128, 1, 64, 2)),
        # Longer rows in tiles of 4096: two warps of 16 bits, four of float32.
        ((MANY, 1000, 2), 8, tiles(1024, 2, 128, 4)),
        ((MANY, 3072, 2), 8, tiles(4096, 2, 128, 1)),
        ((MANY, 1000, 4), 4, tiles(1024, 4, 96, 4)),
        ((MANY, 1536, 4), 4, tiles(2048, 4, 96, 2)),
        # No tiles for few rows, for longer ones, and for longer ones whose elements are moved one by one.
        ((2112, 1000, 2), 8, tiles(1024, 2, 128, 4)),
        ((2111, 1000, 2), 8, None),
        ((MANY, 3080, 2), 8, None),
        ((MANY, 1540, 4), 4, None),
        ((MANY, 129, 4), 1, None),
    ],
    ids=str,
)
def test_plan(shape, V, plan):
    assert plan_of_rows_together(*shape, V) == plan


@pytest.mark.parametrize(("N", "together"), [(512, True), (520, False)])
def test_longer_rows_have_a_program_each_where_nobody_adds_their_losses_up(N, together):
    assert (plan_of_rows_together(MANY, N, 2, 8, "none") is not None) == together


@pytest.mark.parametrize(("M", "together"), [(2112, True), (2111, False)])
def test_rows_are_taken_together_where_it_is_planned(M, together):
    launch = loss_launcher(torch.empty(M, 10, device=DEVICE), How(IGNORED, "mean", 0.0, torch.float32), True)
    assert (launch.kernel is cross_entropy_tile_kernel) == together
