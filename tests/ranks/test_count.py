"""Collectives of ranks are counted, with the bytes that each rank sends and receives."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from helpers import DEVICE, ranks, traffic
from helpers.ranks import counting, running
from helpers.ranks.meeting import Call

N, WORLD = 6, 3
BYTES = 4 * N


def all_gather(x, group):
    dist.all_gather([torch.empty_like(x) for _ in range(WORLD)], x, group=group)


def all_gather_into_tensor(x, group):
    dist.all_gather_into_tensor(x.new_empty(WORLD * N), x, group=group)


def gathered_functionally(x, group):
    return functional.all_gather_tensor(x, 0, group) + 0


def all_reduce(x, group):
    dist.all_reduce(x, dist.ReduceOp.MAX, group=group)


def reduced_functionally(x, group):
    return functional.all_reduce(x, "sum", group) + 0


def three_reductions(x, group):
    for _ in range(3):
        dist.all_reduce(x, group=group)


def reduce_scatter(x, group):
    dist.reduce_scatter(x.new_empty(N // WORLD), list(x.chunk(WORLD)), group=group)


def all_to_all(x, group):
    dist.all_to_all_single(torch.empty_like(x), x, group=group)


def asynchronous(x, group):
    dist.all_reduce(x, group=group, async_op=True).wait()


def ring(x, group):
    after, before = (group.rank() + 1) % WORLD, (group.rank() - 1) % WORLD
    pair = dist.P2POp(dist.isend, x, after, group), dist.P2POp(dist.irecv, torch.empty_like(x), before, group)
    for work in dist.batch_isend_irecv(list(pair)):
        work.wait()


@pytest.mark.thinned
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    ("function", "collectives", "sent", "received"),
    [
        (all_gather, 1, BYTES, BYTES * (WORLD - 1)),
        (all_gather_into_tensor, 1, BYTES, BYTES * (WORLD - 1)),
        (gathered_functionally, 1, BYTES, BYTES * (WORLD - 1)),
        (all_reduce, 1, BYTES, BYTES),
        (reduced_functionally, 1, BYTES, BYTES),
        (three_reductions, 3, 3 * BYTES, 3 * BYTES),
        (reduce_scatter, 1, BYTES - BYTES // WORLD, BYTES // WORLD),
        (all_to_all, 1, BYTES - BYTES // WORLD, BYTES - BYTES // WORLD),
        (asynchronous, 1, BYTES, BYTES),
        (ring, 2, BYTES, BYTES),
        (lambda x, group: dist.barrier(group), 1, 0, 0),
        (lambda x, group: None, 0, 0, 0),
    ],
)
def test_each_rank_sends_and_receives(function, collectives, sent, received):
    seen = ranks.count(function, *torch.ones(WORLD, N, device=DEVICE))
    assert (seen.collectives, seen.sent, seen.received) == (collectives, sent, received)
    assert all(len(calls) == collectives for calls in seen.calls)


def test_of_a_collective_with_a_root_the_root_sends_or_receives():
    def with_roots(x, group):
        dist.broadcast(x, 1, group=group)
        dist.gather(x, [torch.empty_like(x) for _ in range(WORLD)] if group.rank() == 1 else None, 1, group=group)

    seen = ranks.count(with_roots, *torch.ones(WORLD, N, device=DEVICE))
    assert [(call.sent, call.received) for call in seen.calls[1]] == [(BYTES, 0), (0, BYTES * (WORLD - 1))]
    assert [(call.sent, call.received) for call in seen.calls[0]] == [(0, BYTES), (BYTES, 0)]


def test_the_table_has_a_line_for_each_rank():
    seen = ranks.count(three_reductions, *torch.ones(WORLD, N, device=DEVICE))
    assert repr(seen).splitlines()[1].split() == ["0", "3", "all_reduce", "72", "72"]
    assert len(repr(seen).splitlines()) == 1 + WORLD
    assert len(seen.results) == WORLD


def test_a_message_is_a_send_on_one_rank_and_a_recv_on_the_other():
    seen = ranks.count(ring, *torch.ones(WORLD, N, device=DEVICE))
    assert [[call.kind for call in calls] for calls in seen.calls] == [["send", "recv"]] * WORLD


def test_a_collective_is_no_traffic_of_the_rank():
    def counted(x, group):
        seen = traffic.count(lambda x: dist.all_reduce(x, group=group), x)
        return seen.loads, seen.stores

    assert ranks.run(counted, *torch.ones(WORLD, N, device=DEVICE)) == [(0, 0)] * WORLD


def test_a_count_that_is_wrong_is_refused(monkeypatch):
    monkeypatch.setattr(counting, "calls_of", lambda *args: (None, [[Call("all_gather", (), "", 20, 20)]] * 3))
    counting._self_test.cache_clear()
    with pytest.raises(RuntimeError, match="counted as 1 collectives with 20 bytes sent and 20 received"):
        counting.count(all_gather)
    monkeypatch.setattr(counting, "calls_of", running.calls_of)
    counting._self_test()
