"""The kernels of rows that lie over several GPUs do what torch's operations do for other tensors."""

import pytest
import torch
import torch.nn.functional as F

from helpers import DEVICE, traffic, xray
from helpers.softmax.launches import shards
from helpers.softmax.launches.launch import on_stream
from helpers.softmax.launches.shards import HEAD_NUMBERS, ShardOptions

SIZES = [4000, 0, 9001, 31]
IGNORED = -100


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def parts(dtype):
    x = (4 * torch.randn(5, sum(SIZES), device=DEVICE)).to(dtype)
    x[0, :4000], x[1, 4000:], x[2] = -torch.inf, -torch.inf, -torch.inf
    x[3:, 12500] = 30  # the maximum of a shard, in its second tile
    target = torch.tensor([3, 13020, 4, IGNORED, 12500], device=DEVICE)
    return x.split(SIZES, 1), target


def by_kernels(x, target, options):
    """The messages of all shards, by kernels; and their launches."""
    found, begin = [], 0
    for shard in map(torch.Tensor.contiguous, x):
        launches = shards.launches_of(shard, len(x), begin, True, options)
        found.append((launches.message(shard, target), launches))
        begin += shard.shape[1]
    messages, launches = zip(*found, strict=True)
    return torch.stack(messages), launches


def by_torch(x, target, options):
    x, target, begin, found = [shard.cpu() for shard in x], target.cpu(), 0, []
    for shard in x:
        found.append(shards.message_of(shard, target, begin, True, options))
        begin += shard.shape[1]
    return torch.stack(found)


OPTIONS = [ShardOptions(False), ShardOptions(True, IGNORED), ShardOptions(True, IGNORED, 0.1)]


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=["softmax", "loss", "smoothed"])
def test_messages_their_merge_and_what_is_written_agree(options, dtype):
    x, target = parts(dtype)
    (got, launches), want = by_kernels(x, target, options), by_torch(x, target, options)
    torch.testing.assert_close(got[:, :-HEAD_NUMBERS].cpu(), want[:, :-HEAD_NUMBERS], rtol=1e-5, atol=1e-4)
    assert torch.equal(got.view(torch.int32)[:, -HEAD_NUMBERS:].cpu(), want.view(torch.int32)[:, -HEAD_NUMBERS:])
    rows, losses = launches[0].merged(got, target)
    wanted = shards.whole_rows(want, target.cpu(), options)
    known = [*rows[:10].view(2, 5), *([losses, rows.view(torch.int32)[10]] if options.loss else [])]
    for one, other in zip(known, wanted, strict=False):
        torch.testing.assert_close(one.cpu(), other.to(one.dtype), rtol=1e-5, atol=1e-4, equal_nan=True)
    by, begin = torch.linspace(0.5, 2, 5, device=DEVICE), 0
    for shard, launch in zip(x, launches, strict=True):
        shard = shard.contiguous()
        if options.loss:
            y = launch.written(shard, rows, by, target)
            right = shards.loss_gradient(shard.cpu(), wanted, by.cpu(), target.cpu(), begin, options)
        else:
            y = launch.written(shard, rows)
            right = shards.probabilities(shard.cpu(), wanted)
        torch.testing.assert_close(
            y.cpu(), right, equal_nan=True, rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-4
        )
        begin += shard.shape[1]


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("M", [1, 130])
def test_losses_are_added_up_and_what_arrives_is_shared_out(monkeypatch, reduction, M):
    monkeypatch.setattr(shards, "_ADDED", 64)  # three tiles of losses
    x, target = torch.randn(M, 3, device=DEVICE), torch.randint(0, 3, (M,), device=DEVICE)
    target[1::7] = IGNORED
    messages, (launches,) = by_kernels([x], target, ShardOptions(True, IGNORED, 0.1, reduction))
    rows, loss = launches.merged(messages, target)
    leaf = x.double().requires_grad_()
    want = F.cross_entropy(leaf, target, reduction=reduction, label_smoothing=0.1)
    torch.testing.assert_close(loss.double(), want.detach())
    got = launches.written(x, rows, torch.tensor(3.0, device=DEVICE), target)
    torch.testing.assert_close(got.double(), torch.autograd.grad(3 * want, leaf)[0], rtol=1e-4, atol=1e-6)


def test_the_mean_of_no_losses_is_nan_and_their_sum_nothing():
    for target in torch.full((4,), IGNORED, device=DEVICE), torch.empty(0, dtype=torch.int64, device=DEVICE):
        x = torch.randn(len(target), 3, device=DEVICE)
        for reduction in ("mean", "sum"):
            messages, (launches,) = by_kernels([x], target, ShardOptions(True, IGNORED, 0, reduction))
            rows, loss = launches.merged(messages, target)
            assert torch.equal(loss.isnan(), torch.tensor(reduction == "mean", device=DEVICE)) and not loss.nan_to_num()
            assert not launches.written(x, rows, torch.tensor(1.0, device=DEVICE), target).any()


def test_shards_that_do_not_follow_each_other_make_the_losses_nan():
    x, target = parts(torch.float32)
    messages, launches = by_kernels(x, target, OPTIONS[1])
    begins = messages.view(torch.int32)[:, -HEAD_NUMBERS + 1]
    begins[1] = 7  # an empty shard may begin anywhere
    rows, losses = launches[0].merged(messages, target)
    assert shards.do_follow(messages) and launches[0].do_follow(rows) and losses[4].isfinite()
    begins[2] += 1
    rows, losses = launches[0].merged(messages, target)
    assert not shards.do_follow(messages) and not launches[0].do_follow(rows)
    assert losses.isnan().tolist() == [True, True, True, False, True]  # the fourth row is ignored


def test_a_target_of_no_class_makes_its_row_nan():
    x, _ = parts(torch.float32)
    target = torch.tensor([IGNORED, 10**6, IGNORED, -1, 5], device=DEVICE)
    messages, launches = by_kernels(x, target, OPTIONS[1])
    rows, losses = launches[0].merged(messages, target)
    assert losses.isnan().tolist() == [False, True, False, True, False]
    y = launches[0].written(x[0].contiguous(), rows, torch.ones(5, device=DEVICE), target)
    assert y.isnan().all(1).tolist() == [False, True, False, True, False]


def test_no_rows_leave_a_message_of_their_sizes():
    x, target = [torch.empty(0, 7, device=DEVICE)], torch.empty(0, dtype=torch.int64, device=DEVICE)
    messages, (launches,) = by_kernels(x, target, OPTIONS[1])
    assert messages.view(torch.int32).tolist() == [[7, 0, 1]]
    assert launches.merged(messages, target)[1].shape == (0,)


def test_a_loss_reads_the_shard_once_and_its_gradient_once_more():
    shard = torch.randn(8, 20000, device=DEVICE)
    target = torch.arange(8, device=DEVICE)
    messages, (launches,) = by_kernels([shard], target, OPTIONS[1])
    seen = traffic.count(lambda x: launches.message(x, target), shard)
    assert seen.loads_per_element == pytest.approx(1, abs=1e-3) and seen.stores_per_element < 1e-3
    rows, losses = launches.merged(messages, target)
    seen = traffic.count(lambda x: launches.written(x, rows, losses, target), shard)
    assert seen.loads_per_element == pytest.approx(1, abs=2e-2) and seen.stores_per_element == 1


def test_the_gradient_of_a_softmax_in_two_halves():
    y, dy = torch.randn(3, 9000, device=DEVICE).softmax(1), torch.randn(3, 9000, device=DEVICE)
    dot, dx = torch.empty(3, device=DEVICE), torch.empty_like(y)
    on_stream(y, shards.first_half(y, dy), (dot, dy, y))
    on_stream(y, shards.second_half(y, dy), (dx, dy, y, dot))
    want = y.double() * (dy.double() - (dy.double() * y.double()).sum(1, keepdim=True))
    torch.testing.assert_close(dx.double(), want, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(shards.gradient_from_dots(dy.cpu(), y.cpu(), shards.dots(dy.cpu(), y.cpu())), dx.cpu())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_launches_compile_for_a_gpu_without_spilling(dtype):
    x, numbers, target = torch.empty(2, 32064, dtype=dtype), torch.empty(16), torch.zeros(2, dtype=torch.int64)
    launches = shards.ShardLaunches(x, 4, 0, True, ShardOptions(True, IGNORED, 0.1, "mean"))
    given = {
        launches.shard: (numbers, x, target),
        launches.merge: (numbers, numbers, numbers, target),
        launches.total: (x, numbers, numbers, target),
        launches.write: (x, x, numbers, x, target),
        shards.first_half(x, x): (numbers, x, x),
        shards.second_half(x, x): (x, x, x, numbers),
    }
    for launch, tensors in given.items():
        report = xray.report(launch.kernel, *tensors, **launch.named, **launch.options, target="sm_90")
        assert not report.spill_bytes, launch.kernel
