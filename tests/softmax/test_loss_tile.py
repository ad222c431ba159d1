"""Losses of short rows, several a program: as torch has them, and when they are taken together, flat or not."""

import pytest
import torch
import torch.nn.functional as F

import needs
from helpers import DEVICE, traffic
from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.loss_flat import cross_entropy_flat_kernel
from helpers.softmax.kernels.loss_rows import cross_entropy_kernel
from helpers.softmax.kernels.loss_tiles import cross_entropy_tile_kernel
from helpers.softmax.launches import mailbox
from helpers.softmax.launches.launch import on_stream
from helpers.softmax.launches.losses import gradient_like, loss_launcher
from helpers.softmax.plans.losses import _FLAT, COUNTING_WORDS, LossOptions, plan_loss_tiles, words_to_add_up
from helpers.softmax.plans.rows import Flat, Tiles

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
IGNORED = -100
MANY = 10**6
EIGHT_FLAT_ROWS = Flat(256, 2, 96, USED=8)

each_kernel = pytest.mark.parametrize("kernel", ["tiles", "flat"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def inputs(M, N, dtype=torch.float32):
    x = (3 * torch.randn(M, N, device=DEVICE)).to(dtype)
    target = torch.randint(0, N, (M,), device=DEVICE)
    target[::4] = IGNORED
    return x, target


def launched(
    x, target, reduction="mean", smoothing=0.0, grad=True, looks=4096, into=None, ignored=IGNORED, kernel="tiles"
):
    """The loss, the gradient and the pairs from tiles of eight rows."""
    M, N = x.shape
    chosen = Tiles(1 << (N - 1).bit_length(), 1, 96, ROWS=8) if kernel == "tiles" else EIGHT_FLAT_ROWS
    launch = loss_launcher(x, LossOptions(ignored, reduction, smoothing, torch.float32), grad, True, chosen, looks)
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


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 7, 10, 64, 100, 1000])
def test_agrees_with_float64(N, dtype):
    assert_agrees(*inputs(19, N, dtype))


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 3, 7, 10, 16, 21, 31])
def test_flat_rows_agree_with_float64(N, dtype):
    assert_agrees(*inputs(19, N, dtype), kernel="flat")


@pytest.mark.thinned
@each_kernel
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_takes_every_reduction_and_any_smoothing(reduction, smoothing, kernel):
    assert_agrees(*inputs(19, 10), reduction, smoothing, kernel=kernel)


@pytest.mark.thinned
@each_kernel
@pytest.mark.parametrize("M", [1, 3, 4, 7, 8, 9, 300, 301])
def test_the_last_tile_may_be_empty_in_part(M, kernel):
    assert_agrees(*inputs(M, 5), kernel=kernel)


@each_kernel
def test_a_program_that_may_not_look_counts_the_targets_itself(kernel):
    assert_agrees(*inputs(300, 5), looks=0, kernel=kernel)


def test_rows_may_lie_apart():
    x, target = inputs(19, 10)
    assert_agrees(F.pad(x, (0, 6))[:, :10], target)


@each_kernel
@pytest.mark.parametrize("N", [1, 2, 10])
def test_the_gradient_may_be_written_over_the_logits(N, kernel):
    x, target = inputs(19, N)
    _, right = wanted(x, target)
    _, gradient, _ = launched(x, target, into=x, kernel=kernel)
    assert gradient.data_ptr() == x.data_ptr()
    torch.testing.assert_close(x.double(), right, rtol=2e-6, atol=2e-8)


@each_kernel
def test_special_values_are_those_of_torch(kernel):
    x, target = inputs(19, 10)
    x[1, 3], x[2, 4], x[3], x[5, 5] = float("nan"), float("inf"), -float("inf"), -float("inf")
    target[5] = 5
    assert_agrees(x, target, "none", kernel=kernel)


@each_kernel
def test_an_ignored_row_has_no_part_in_anything_even_if_it_holds_nan(kernel):
    x, target = inputs(17, 10)
    x[4] = x[16] = float("nan")
    assert target[4] == target[16] == IGNORED
    loss, gradient, _ = launched(x, target, kernel=kernel)
    assert loss.isfinite()
    assert gradient[4].eq(0).all() and gradient[16].eq(0).all()
    assert gradient.isfinite().all()


@each_kernel
def test_a_class_may_be_the_one_that_is_ignored(kernel):
    x = inputs(19, 5)[0]
    target = torch.arange(19, device=DEVICE) % 5
    loss, gradient, _ = launched(x, target, ignored=2, kernel=kernel)
    want, right = wanted(x, torch.where(target == 2, IGNORED, target))
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    torch.testing.assert_close(gradient.double(), right, rtol=2e-6, atol=2e-8)


each_count = pytest.mark.parametrize(
    ("grad", "own"), [(True, False), (False, False), (False, True)], ids=["gradient", "alone", "alone, own targets"]
)
"""How the targets that count are counted: by some programs before, or by each as it reads them."""


@pytest.mark.thinned
@each_count
@pytest.mark.parametrize("programs", [1, 2, 5])
def test_any_number_of_programs_share_the_tiles(programs, grad, own):
    x, target = inputs(300, 10)
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(programs, 2), dtype=torch.int64, device=DEVICE)
    loss, gradient = torch.empty((), device=DEVICE), torch.empty_like(x)
    letters = grad, own, False, "mean", 0.0, 1, 8, 1 if INTERPRETED else 32, 16, 2
    cross_entropy_tile_kernel[(programs,)](
        gradient, loss, x, target, loss, words, 10, 300, 10, IGNORED, 4096, *letters, num_warps=1
    )
    want, right = wanted(x, target)
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    if grad:
        torch.testing.assert_close(gradient.double(), right, rtol=2e-6, atol=2e-8)


@pytest.mark.thinned
@each_kernel
@pytest.mark.parametrize("wrong", [10, 15, 16, -1, 2**32 + 3, 2**40])
@pytest.mark.parametrize("row", [5, 18])
def test_a_target_that_is_no_class_makes_its_row_nan_and_no_other(row, wrong, kernel):
    x, target = inputs(19, 10)
    target[row] = wrong
    loss, gradient, _ = launched(x, target, "sum", kernel=kernel)
    assert loss.isnan()
    assert gradient[row].isnan().all()
    assert gradient.isfinite().all(dim=1).sum() == 18


@each_kernel
def test_where_all_rows_are_ignored_the_mean_is_nan(kernel):
    x, target = inputs(19, 10)
    assert launched(x, torch.full_like(target, IGNORED), kernel=kernel)[0].isnan()


def test_each_row_that_counts_leaves_its_pair_and_the_last_word_is_their_number():
    x, target = inputs(19, 10)
    _, _, pairs = launched(x, target)
    m = torch.tensor([word >> 32 for word in pairs[:-1].tolist()]).to(torch.int32).view(torch.float32)
    counts = (target != IGNORED).cpu()
    assert torch.equal(m[counts], x.cpu().max(1).values[counts])
    assert torch.tensor([pairs[-1].item() & 0xFFFFFFFF]).to(torch.int32).view(torch.float32).item() == counts.sum()


def test_flat_rows_leave_only_the_number_of_those_that_count():
    x, target = inputs(19, 10)
    *_, pairs = launched(x, target, kernel="flat")
    assert pairs[-1] == launched(x, target)[2][-1] and pairs[:-1].eq(0).all()


@each_kernel
def test_a_loss_alone_writes_no_gradient(kernel):
    x, target = inputs(19, 10)
    before, (right, _) = x.clone(), wanted(x, target)
    loss, gradient, _ = launched(x, target, grad=False, kernel=kernel)
    torch.testing.assert_close(loss.double(), right, rtol=2e-6, atol=0)
    assert torch.equal(x, before) and gradient.eq(7).all()


@needs.interpreter
def test_each_logit_is_read_once_and_its_gradient_written_once():
    x, target = inputs(24, 1000)
    counted = traffic.count(lambda x: launched(x, target, into=x), x)
    assert 1 <= counted.loads / x.numel() < 1.01 and 1 <= counted.stores / x.numel() < 1.01


@needs.interpreter
@pytest.mark.parametrize("M", [16, 19])
def test_of_flat_rows_too_even_the_target_s_logit(M):
    x, target = inputs(M, 21)
    counted = traffic.count(lambda x: launched(x, target, "none", into=x, kernel="flat"), x)
    launch = next(one for one in counted.operations if one.name == "cross_entropy_flat_kernel")
    assert launch.loads == launch.stores == x.numel() + M  # and a target, and a loss, of each row


@pytest.mark.thinned(0)
@each_kernel
def test_it_is_the_same_from_run_to_run(kernel):
    x, target = inputs(300, 10)
    runs = [launched(x, target, kernel=kernel) for _ in range(3)]
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@pytest.mark.thinned
@each_count
@pytest.mark.parametrize("programs", [1, 2, 5])
def test_any_number_of_programs_share_the_flat_tiles(programs, grad, own):
    x, target = inputs(303, 10)
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(programs, 2), dtype=torch.int64, device=DEVICE)
    loss, gradient = torch.empty((), device=DEVICE), torch.empty_like(x)
    letters = 10, grad, own, False, "mean", 0.0, 4, 12, 16, 16, 128, 1 if INTERPRETED else 32, 2
    cross_entropy_flat_kernel[(programs,)](
        gradient, loss, x, target, loss, words, 303, IGNORED, 4096, *letters, num_warps=1
    )
    want, right = wanted(x, target)
    torch.testing.assert_close(loss.double(), want, rtol=2e-6, atol=0)
    if grad:
        torch.testing.assert_close(gradient.double(), right, rtol=2e-6, atol=2e-8)


def tiles(BLOCK, num_warps, maxnreg, ROWS):
    return Tiles(BLOCK, num_warps, maxnreg, ROWS=ROWS)


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
    assert plan_loss_tiles(*shape, V) == plan


@pytest.mark.parametrize(
    ("grad", "itemsize", "N", "plan"),
    [
        # 4 kB at a time: the shortest rows by four warps of few registers, longer ones by two.
        (False, 2, 2, Flat(2048, 4, 64, USED=1024)),
        (False, 2, 13, Flat(2048, 4, 64, USED=152)),
        (False, 2, 17, Flat(2048, 2, 96, USED=120)),
        (False, 2, 127, Flat(2048, 2, 96, USED=16)),
        (False, 4, 63, Flat(1024, 2, 96, USED=16)),
        (True, 4, 13, Flat(1024, 4, 64, USED=76)),
        (True, 4, 21, Flat(1024, 2, 96, USED=48)),
        # Gradients that need more registers: of 16 bits, of longer rows, and of both.
        (True, 2, 3, Flat(2048, 4, 96, USED=680)),
        (True, 2, 31, Flat(2048, 4, 96, USED=64)),
        (True, 4, 47, Flat(1024, 4, 96, USED=20)),
        (True, 2, 33, Flat(1024, 2, 96, USED=16)),
        (True, 2, 63, Flat(1024, 2, 96, USED=16)),
        # Not flat: a single class, and longer rows.
        (True, 2, 1, tiles(1, 1, 64, 256)),
        (False, 4, 65, tiles(128, 1, 64, 2)),
        (True, 4, 49, tiles(64, 1, 64, 4)),
        (True, 2, 65, tiles(128, 1, 64, 2)),
        (False, 2, 129, None),
    ],
    ids=str,
)
def test_plan_of_flat_rows(grad, itemsize, N, plan):
    assert plan_loss_tiles(MANY, N, itemsize, 1, flat=True, grad=grad) == plan


def test_vectors_and_few_rows_are_not_moved_flat():
    assert isinstance(plan_loss_tiles(MANY, 8, 2, 8, flat=True), Tiles)
    assert plan_loss_tiles(2111, 10, 2, 1, flat=True) is None


@pytest.mark.parametrize(("N", "together"), [(512, True), (520, False)])
def test_longer_rows_have_a_program_each_where_nobody_adds_their_losses_up(N, together):
    assert (plan_loss_tiles(MANY, N, 2, 8, "none") is not None) == together


@pytest.mark.parametrize(
    ("M", "N", "dtype", "grad", "kernel"),
    [
        (2112, 64, torch.float32, True, cross_entropy_tile_kernel),
        (2111, 64, torch.float32, True, cross_entropy_kernel),
        (2111, 10, torch.float32, True, cross_entropy_kernel),
        (2112, 10, torch.float32, True, cross_entropy_flat_kernel),
        (2112, 16, torch.float32, True, cross_entropy_tile_kernel),
        (2112, 63, torch.float32, True, cross_entropy_tile_kernel),
        (2112, 63, torch.float32, False, cross_entropy_flat_kernel),
        (2112, 63, torch.float16, True, cross_entropy_flat_kernel),
    ],
)
def test_rows_are_taken_together_where_it_is_planned(M, N, dtype, grad, kernel):
    x = torch.empty(M, N, dtype=dtype, device=DEVICE)
    assert loss_launcher(x, LossOptions(IGNORED, "mean", 0.0, torch.float32), grad).kernel is kernel


@pytest.mark.parametrize("itemsize", [2, 4])
def test_backward_makes_the_pairs_of_all_rows_that_may_be_moved_flat(itemsize):
    assert all(plan_loss_tiles(2112, N, itemsize, 1) for grad in (False, True) for N in _FLAT[grad][itemsize])


def test_rows_that_lie_apart_or_begin_within_a_vector_are_not_moved_flat():
    how = LossOptions(IGNORED, "mean", 0.0, torch.float32)
    apart, within = (
        torch.empty(2112, 13, device=DEVICE)[:, :10],
        torch.empty(2112 * 10 + 1, device=DEVICE)[1:].view(-1, 10),
    )
    assert (
        loss_launcher(apart, how, True).kernel is loss_launcher(within, how, True).kernel is cross_entropy_tile_kernel
    )
