"""Losses that programs hand in: their sum or mean, whichever comes last."""

import math

import pytest
import torch
import triton
import triton.language as tl

import needs
from helpers import DEVICE
from helpers.engine.runtime import INTERPRETED
from helpers.softmax.kernels.add_up import count_targets, hand_in
from helpers.softmax.launches.losses import loss_columns_launcher, loss_launcher
from helpers.softmax.plans.losses import COUNTING_WORDS, MOST_IN_A_GROUP, LossOptions, counts_its_own, words_to_add_up

IGNORED = -100
LARGEST = 256 - 2**-16
"""The largest float32 that fits in a group of 4096."""
MANY = 300
"""More targets than one program counts at a time."""


@triton.jit(do_not_specialize=["M"])
def handing_in_kernel(
    loss_ptr, handed_ptr, target_ptr, pair_ptr, word_ptr, first, M, ignore_index,
    REDUCTION: tl.constexpr, THREADS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Each program hands in the loss of one of M rows, from the `first` on."""
    row = first + tl.program_id(0)
    count_targets(word_ptr, target_ptr, row, M, M, ignore_index, REDUCTION, THREADS, 1)
    loss = tl.load(handed_ptr + row)
    hand_in(
        loss, None, loss_ptr, target_ptr, pair_ptr + M, word_ptr, word_ptr + 2, row, M, M, ignore_index,
        True, REDUCTION, THREADS, GROUP,
    )  # fmt: skip


def handed_in(losses, reduction="sum", group=4, targets=None, words=None, first=0):
    """What becomes of the losses, in groups of a few, and the word that backward divides by."""
    losses = torch.as_tensor(losses, dtype=torch.float32, device=DEVICE)
    M = len(losses)
    targets = torch.zeros(M, dtype=torch.int64) if targets is None else targets
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(M, group), dtype=torch.int64) if words is None else words
    loss = torch.full((M if reduction == "none" else 1,), -1.0, device=DEVICE)
    pairs = torch.zeros(M + 1, dtype=torch.int64, device=DEVICE)
    tensors = loss, losses, targets.to(DEVICE), pairs, words.to(DEVICE)
    handing_in_kernel[(M - first,)](
        *tensors, first, M, IGNORED, reduction, 1 if INTERPRETED else 32, group, num_warps=1
    )
    return loss.cpu(), pairs[M].item()


def random_losses(M):
    return torch.rand(M, generator=torch.Generator().manual_seed(0)) * 20


@pytest.mark.parametrize("M", [1, 3, 4, 5, 8, 9, 33])
def test_the_sum_is_that_of_the_numbers_however_many_groups_they_are(M):
    losses = random_losses(M)
    assert handed_in(losses)[0].item() == pytest.approx(math.fsum(losses.tolist()), rel=2e-7)


def test_in_one_group_losses_from_a_64th_on_are_added_without_an_error():
    losses = random_losses(MANY) + 1 / 64
    (total,) = handed_in(losses, group=MOST_IN_A_GROUP)[0]
    assert total == torch.tensor(math.fsum(losses.tolist()), dtype=torch.float32)


def test_an_odd_number_of_units_is_not_rounded():
    losses = torch.full((8,), (2**23 + 1) * 2.0**-29)
    assert handed_in(losses, group=8)[0].item() == 8 * losses[0].item()


def test_in_one_group_their_order_changes_no_bit():
    losses = random_losses(MANY) / 100
    assert handed_in(losses, group=MANY)[0] == handed_in(losses.flip(0), group=MANY)[0]


@pytest.mark.parametrize("loss", [1e-3, 1e-2, 0.1])
def test_the_error_of_many_small_losses_is_no_more_than_half_a_unit_each(loss):
    """Of cutting off it would be the same for each of them, and up to a unit."""
    losses = torch.linspace(0.9 * loss, loss, MANY)
    (total,) = handed_in(losses, group=MANY)[0]
    assert total.item() == pytest.approx(math.fsum(losses.tolist()), rel=1e-7, abs=MANY * 2**-30)


def test_losses_of_nearly_certain_targets_keep_their_digits():
    """The least are log(1 + k · 2⁻²³), just below 64 k units: cut off, each would be a unit less."""
    losses = torch.log1p(torch.arange(MANY, dtype=torch.float32) % 8 * 2**-23)
    (total,) = handed_in(losses, group=MANY)[0]
    assert total.item() == pytest.approx(math.fsum(losses.tolist()), rel=1e-6)


@pytest.mark.parametrize("group", [4, 16])
@pytest.mark.parametrize("other", [2.0**18, 1e30, float("inf"), float("nan"), -1.0], ids=str)
def test_a_loss_that_does_not_fit_is_added_as_any_other(other, group):
    for row in (0, 5, 8):
        losses = random_losses(9)
        losses[row] = other
        (total,) = handed_in(losses, group=group)[0]
        torch.testing.assert_close(total, losses.sum(), equal_nan=True)


def test_all_losses_may_not_fit():
    assert handed_in(torch.full((9,), 2.0**20))[0].item() == 9 * 2**20


def test_as_many_losses_as_a_group_may_have_fit_if_each_does():
    """The last one finds what the others have left in the group's word."""
    M, units = MOST_IN_A_GROUP, int(LARGEST * 2**29)
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(M, M), dtype=torch.int64)
    words[2] = (M - 1) * (2**49 + units)
    losses = torch.full((M,), LARGEST)
    (total,) = handed_in(losses, group=M, words=words, first=M - 1)[0]
    assert total == torch.tensor(M * LARGEST, dtype=torch.float32)


def test_nobody_stores_a_sum_before_the_last_has_come():
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(5, 4), dtype=torch.int64)
    assert handed_in(random_losses(5), words=words, first=1)[0].item() == -1


@pytest.mark.parametrize("M", [9, MANY])
def test_a_mean_divides_by_the_targets_that_count_and_hands_their_number_on(M):
    losses, targets = random_losses(M), torch.zeros(M, dtype=torch.int64)
    targets[::3] = IGNORED
    losses[::3] = 0
    count = int((targets != IGNORED).sum())
    mean, word = handed_in(losses, "mean", targets=targets)
    assert mean.item() == pytest.approx(losses.sum().item() / count, rel=1e-6)
    assert torch.tensor([word & 0xFFFFFFFF], dtype=torch.int64).to(torch.int32).view(torch.float32).item() == count


def test_where_the_targets_have_not_been_counted_yet_the_last_one_counts_them():
    words = torch.zeros(COUNTING_WORDS + words_to_add_up(MANY, MANY), dtype=torch.int64)
    targets = torch.zeros(MANY, dtype=torch.int64)
    words[2], targets[1::3] = 2**49, IGNORED  # the loss of the first row, which counts most targets
    mean, _ = handed_in(torch.ones(MANY), "mean", MANY, targets, words, first=1)
    assert mean.item() == pytest.approx(299 / 200)


@triton.jit(do_not_specialize=["M"])
def counting_kernel(target_ptr, word_ptr, M, ignore_index, THREADS: tl.constexpr, ROUNDS: tl.constexpr):
    count_targets(word_ptr, target_ptr, tl.program_id(0), tl.num_programs(0), M, ignore_index, "mean", THREADS, ROUNDS)


@pytest.mark.thinned
@pytest.mark.parametrize(("num_warps", "programs"), [(1, 300), (4, 300), (1, 3)])
@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=needs.gpu)])  # the interpreter unrolls no loop
@pytest.mark.parametrize("M", [1, 256, 257, 256 * 256, 256 * 256 + 300, 256 * 1024 + 1])
def test_the_first_programs_count_all_targets_however_many_there_are(M, num_warps, programs, rounds):
    targets, words = torch.arange(M, device=DEVICE) % 3, torch.zeros(2, dtype=torch.int64, device=DEVICE)
    counting_kernel[(programs,)](targets, words, M, 2, 32 * num_warps, rounds, num_warps=num_warps)
    at_a_time = 256 if num_warps == 1 else 1024
    assert words[1].item() == (targets != 2).sum().item() + (min(256, programs, -(-M // at_a_time)) << 32)


def test_a_mean_of_nothing_is_nan():
    assert handed_in(torch.zeros(5), "mean", targets=torch.full((5,), IGNORED))[0].isnan()


def test_losses_that_nobody_reduces_are_stored():
    losses = random_losses(5)
    assert torch.equal(handed_in(losses, "none")[0], losses)


@pytest.mark.parametrize(
    ("reduction", "grad", "n_targets", "own"),
    [
        ("mean", False, 2**18 + 1, True),
        ("mean", False, 2**18, False),
        ("mean", True, 2**18 + 1, False),
        ("sum", False, 2**18 + 1, False),
    ],
)
def test_each_program_counts_its_own_targets_for_the_mean_of_very_many_losses_without_a_gradient(
    reduction, grad, n_targets, own
):
    assert counts_its_own(LossOptions(IGNORED, reduction, 0.0, torch.float32), grad, n_targets) == own


@pytest.mark.parametrize(
    ("shape", "own"),
    [
        ((2**18 + 4, 64), True),
        ((2**18, 64), False),
        ((2**18 + 4, 3), True),
        ((2**18, 3), False),
        ((2, 3, 2**17 + 2), True),
        ((2, 3, 2**17), False),
    ],
    ids=["tiles", "fewer in tiles", "flat rows", "fewer flat rows", "columns", "fewer columns"],
)
def test_a_launch_has_each_program_count_its_own_targets(shape, own):
    x, how = torch.empty(shape, device="meta"), LossOptions(IGNORED, "mean", 0.0, torch.float32)
    if x.dim() == 3:
        launchers = [loss_columns_launcher(x, how, None), loss_columns_launcher(x, how, x.stride())]
    else:
        launchers = [loss_launcher(x, how, False), loss_launcher(x, how, True)]
    given = [one.named["OWN"] for one in launchers]
    assert given == [own, False]
