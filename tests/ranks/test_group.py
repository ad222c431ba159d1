"""The group of a rank does what torch's own backends do; it is held against gloo."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import needs
from helpers import DEVICE, ranks
from helpers.ranks import group as rank_group
from helpers.ranks import running
from helpers.ranks.meeting import Fault, Meeting

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


def collectives(group):
    """One of each, with what it leaves on this rank."""
    world, rank = group.size(), group.rank()
    x = torch.arange(6.0).view(2, 3) + 10 * rank
    parts = [x + number for number in range(world)]
    found = {}
    for op in ("SUM", "MAX", "MIN", "PRODUCT"):
        found[op] = x.clone()
        dist.all_reduce(found[op], getattr(dist.ReduceOp, op), group=group)
    found["half"] = x.bfloat16()
    dist.all_reduce(found["half"], group=group)
    found["all_gather"] = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(found["all_gather"], x, group=group)
    found["single"] = torch.empty(2 * world, 3)
    dist.all_gather_into_tensor(found["single"], x, group=group)
    found["broadcast"] = x.clone()
    dist.broadcast(found["broadcast"], 1, group=group)
    reduced = x.clone()
    dist.reduce(reduced, 1, group=group)
    found["reduce"] = reduced if rank == 1 else None
    found["gather"] = [torch.empty_like(x) for _ in range(world)] if rank == 1 else None
    dist.gather(x, found["gather"], dst=1, group=group)
    found["scatter"] = torch.empty_like(x)
    dist.scatter(found["scatter"], parts if rank == 1 else None, src=1, group=group)
    found["reduce_scatter"] = torch.empty_like(x)
    dist.reduce_scatter(found["reduce_scatter"], parts, group=group)
    found["reduced single"] = torch.empty(1, 3)
    dist.reduce_scatter_tensor(found["reduced single"], torch.cat(parts)[:world], group=group)
    found["all_to_all"] = [torch.empty_like(x) for _ in range(world)]
    dist.all_to_all(found["all_to_all"], parts, group=group)
    sizes = [number + 1 for number in range(world)]
    found["uneven"] = torch.empty(world * (rank + 1))
    numbers = torch.arange(float(sum(sizes))) + 100 * rank
    dist.all_to_all_single(found["uneven"], numbers, [rank + 1] * world, sizes, group=group)
    found["objects"] = [None] * world
    dist.all_gather_object(found["objects"], {"rank": rank}, group=group)
    found["ring"] = torch.empty_like(x)
    after, before = (rank + 1) % world, (rank - 1) % world
    pair = [dist.P2POp(dist.isend, x, after, group), dist.P2POp(dist.irecv, found["ring"], before, group)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    found["empty"] = [torch.empty(0, 3) for _ in range(world)]
    dist.all_gather(found["empty"], torch.empty(0, 3), group=group)
    found["functional"] = functional.all_reduce(x, "sum", group) + 0
    found["gathered"] = functional.all_gather_tensor(x, 0, group) + 0
    pair, found["pair"] = dist.new_group([0, 2]), x.clone()
    if rank != 1:
        dist.all_reduce(found["pair"], group=pair)
    dist.barrier(group)
    return found


def test_it_does_what_gloo_does():
    ours, gloos = ranks.run(collectives, world=3), running._results(collectives, (), 3, 20, "gloo")[0]
    for got, want in zip(ours, gloos, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@needs.forked_ranks
def test_a_rank_hands_over_the_bytes_that_it_sends_and_no_others(monkeypatch):
    handed, call = [], Meeting.call

    def hears(self, rank, key, members, one):
        handed.append((one.kind, rank, one.sent, sum(map(len, one.parts))))
        call(self, rank, key, members, one)

    monkeypatch.setattr(Meeting, "call", hears)
    ranks.run(collectives, world=3)
    ranks.run(lambda group: dist.all_reduce(torch.ones(2), group=group), world=1)
    assert len({kind for kind, *_ in handed}) == 10
    assert all(sent == size for *_, sent, size in handed) and handed[-1] == ("all_reduce", 0, 0, 0)


def without_gpus(monkeypatch):
    """Has ranks take NCCL for their backend, which is not there: who asks it for anything raises AttributeError."""
    monkeypatch.setattr(rank_group, "_native", lambda *args: object())
    return lambda function, *shards, world=3: running._results(function, shards, world, 20, "nccl")


def test_a_group_of_gpus_has_collectives_of_cpu_tensors(monkeypatch):
    (ours, _), want = without_gpus(monkeypatch)(collectives), ranks.run(collectives, world=3)
    for got, right in zip(ours, want, strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=0)


@needs.forked_ranks
def test_numbers_on_a_gpu_are_the_backends(monkeypatch):
    def of_meta(group):
        dist.all_reduce(torch.ones(2, device="meta"), group=group)

    monkeypatch.setattr(rank_group, "_DEVICES", {"nccl": "meta"})  # a device that every machine has
    with pytest.raises(ranks.RankError, match="AttributeError.*'object' object has no attribute 'allreduce"):
        without_gpus(monkeypatch)(of_meta)


@needs.forked_ranks
def test_what_one_rank_sends_to_another_is_not_the_backends(monkeypatch):
    def ring(group):
        rank, world = group.rank(), group.size()
        x, found = torch.full((2,), float(rank)), torch.empty(2)
        works = dist.isend(x, (rank + 1) % world, group), dist.irecv(found, (rank - 1) % world, group)
        [work.wait() for work in works]
        return found[0].item()

    monkeypatch.setattr(rank_group, "_DEVICES", {"nccl": "cpu"})
    assert without_gpus(monkeypatch)(ring)[0] == [2.0, 0.0, 1.0]


@needs.forked_ranks
def test_a_gpu_here_and_a_cpu_there_are_a_mismatch(monkeypatch):
    def mixed(group):
        dist.all_reduce(torch.ones(2, device="meta" if group.rank() else "cpu"), group=group)

    monkeypatch.setattr(rank_group, "_DEVICES", {"nccl": "meta"})
    with pytest.raises(ranks.RankError, match=r"float32 \(2,\), on cpu") as raised:
        without_gpus(monkeypatch)(mixed)
    assert raised.value.fault is Fault.MISMATCH


def test_an_average_is_one_of_numbers():
    def average(group):
        x = torch.tensor([float(group.rank())])
        dist.all_reduce(x, dist.ReduceOp.AVG, group=group)
        return x.item()

    assert ranks.run(average, world=4) == [1.5] * 4


def test_what_nobody_waits_for_has_not_arrived():
    def impatient(group):
        x = torch.ones(2)
        work = dist.all_reduce(x, group=group, async_op=True)
        before = x.sum().item()
        work.wait()
        return before, x.sum().item(), work.is_completed()

    assert ranks.run(impatient, world=2) == [(2.0, 4.0, True)] * 2


def test_a_dtensor_takes_its_collectives_there():
    def of_dtensor(shard, group):
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.tensor import DTensor, Shard

        return DTensor.from_local(shard, DeviceMesh.from_group(group, shard.device.type), [Shard(1)]).full_tensor() + 0

    x = torch.randn(2, 6, device=DEVICE)
    for whole in ranks.run(of_dtensor, *x.chunk(2, 1)):
        assert torch.equal(whole, x)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x, group: dist.all_gather([x], x, group=group), "all_gather brings 2 tensors, and 1 are there"),
        (lambda x, group: dist.all_gather([x[1:], x], x, group=group), "brings float32 (3,), and float32 (2,) is"),
        (lambda x, group: dist.all_gather_into_tensor(x, x, group=group), "2 ranks need 2 times the elements of"),
        (lambda x, group: dist.all_to_all([x], [x], group=group), "needs a tensor for each of them; got 1"),
    ],
)
def test_a_call_that_cannot_be_right_raises(call, said):
    with pytest.raises(ranks.RankError) as raised:
        ranks.run(lambda group: call(torch.zeros(3), group), world=2)
    assert str(raised.value).startswith("Rank 0 raises ") and said in str(raised.value)
