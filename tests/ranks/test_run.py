"""Ranks run a learner's function, and return what it returns."""

import contextlib
import os
import random
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import triton
import triton.language as tl

import needs
from helpers import DEVICE, ON_GPU, ranks
from helpers.engine import child, isolate, pickled
from helpers.ranks import running
from helpers.ranks.group import packed
from helpers.ranks.meeting import Fault


def softmax_of_shard(shard, group):
    """The softmax of a row that lies over the ranks, with one all-gather of pairs."""
    m = shard.amax(-1)
    l = torch.exp(shard - m[:, None]).sum(-1)
    pairs = [torch.empty_like(m).expand(2, -1).contiguous() for _ in range(group.size())]
    dist.all_gather(pairs, torch.stack((m, l)), group=group)
    m_all, l_all = torch.stack(pairs).unbind(1)
    m = m_all.amax(0)
    return torch.exp(shard - m[:, None]) / (l_all * torch.exp(m_all - m)).sum(0)[:, None]


@triton.jit
def _twice_kernel(y_ptr, x_ptr, N, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    tl.store(y_ptr + cols, 2 * tl.load(x_ptr + cols, mask=cols < N), mask=cols < N)


def test_each_rank_returns_its_part():
    x = torch.randn(5, 37, device=DEVICE)
    parts = ranks.run(softmax_of_shard, *x.tensor_split(4, dim=1))
    torch.testing.assert_close(torch.cat(parts, 1), x.softmax(1))


@needs.forked_ranks
def test_waiting_begins_anew_when_ranks_have_met():
    def sleeps_and_meets(group):
        for _ in range(4):
            time.sleep(0.7)
            dist.barrier(group=group)

    assert ranks.run(sleeps_and_meets, world=2, limit_s=2) == [None] * 2


def test_a_view_is_sent_without_the_rest_of_its_tensor():
    x = torch.ones(1000, 1000)
    assert all(len(packed([view])) == 4_000 for view in (x[:1], x[:, 0]))


def test_one_number_of_a_view_is_sent():
    assert len(packed([torch.ones(1, 2)[:, 0].clone()])) == 4


def test_a_closure_launches_a_kernel_on_each_rank():
    offset = 3

    def twice(shard, group):
        y = torch.empty_like(shard)
        _twice_kernel[(1,)](y, shard, len(shard), BLOCK=8)
        dist.all_reduce(y, group=group)
        return y + offset

    x = torch.arange(5.0, device=DEVICE)
    first, second = ranks.run(twice, x, 10 * x)
    assert first.tolist() == second.tolist() == (22 * x + offset).tolist()


def test_a_tuple_is_several_arguments_and_plain_values_come_back():
    found = ranks.run(lambda a, b, group: {"sum": a + b, "at": (group.rank(), [None])}, (1, 2), (3, 4))
    assert found == [{"sum": 3, "at": (0, [None])}, {"sum": 7, "at": (1, [None])}]


def test_there_are_four_ranks_of_a_function_without_shards():
    assert ranks.run(lambda group: dist.get_rank(group)) == [0, 1, 2, 3]
    assert ranks.run(lambda group: dist.get_world_size(), world=2) == [2, 2]


def numbers(group):
    return torch.rand(1, device=DEVICE).item(), random.random(), np.random.rand()


def test_each_rank_draws_random_numbers_of_its_own():
    for of_ranks in zip(*ranks.run(numbers), strict=True):
        assert len(set(of_ranks)) == 4


def test_random_numbers_are_the_same_after_the_same_seed_and_others_at_the_next_run():
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append([ranks.run(numbers, world=2) for _ in range(2)])
    assert found[0] == found[1] and found[0][0] != found[0][1]


@pytest.mark.parametrize("value", [np.float64(1.5), np.float32(0.5), np.int64(3), np.bool_(True)], ids=repr)
def test_a_number_of_numpy_s_comes_back_as_one_of_python_s(value):
    ((found,),) = ranks.run(lambda group: [value], world=1)
    assert found == value and type(found) in (float, int, bool)


@needs.forked_ranks
def test_a_rank_starts_no_ranks():
    error = fault_of(lambda group: ranks.run(numbers), world=2)
    assert (error.rank, error.error) == (0, "RuntimeError")
    assert "this process is rank 0 of 2 already, and a rank starts no ranks. Use its group" in str(error)


def test_gradients_are_averaged_by_torch_s_module():
    def gradient(shard, group):
        module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, device=DEVICE), process_group=group)
        module(shard).sum().backward()
        return module.module.weight.grad

    x = torch.randn(4, 3, device=DEVICE)
    for found in ranks.run(gradient, *x.chunk(2)):
        torch.testing.assert_close(found, x.sum(0, keepdim=True) / 2)


def test_the_gradient_of_a_rank_is_found_there():
    def gradient(shard, group):
        shard = shard.requires_grad_()
        (found,) = torch.autograd.grad(shard.softmax(-1).square().sum(), shard)
        dist.barrier(group)
        return found

    torch.randn(3, requires_grad=True).sum().backward()  # as in a notebook that has used autograd
    x = torch.randn(2, 4, device=DEVICE)
    want = [gradient_of_squares(part) for part in x]
    for got, right in zip(ranks.run(gradient, *x), want, strict=True):
        torch.testing.assert_close(got, right)


def gradient_of_squares(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(x.softmax(-1).square().sum(), x)[0]


def test_what_ranks_print_is_shown_with_their_number(capfd):
    ranks.run(lambda group: print("here"), world=2)
    assert capfd.readouterr().out == "rank 0: here\nrank 1: here\n"


# What goes wrong: a sentence, and nothing left running (conftest.py looks)


def fault_of(function, *shards, **options):
    with pytest.raises(ranks.RankError) as raised:
        ranks.run(function, *shards, **options)
    assert "\n" not in str(raised.value)
    return raised.value


def test_a_rank_that_raises_is_named_and_those_who_wait_for_it_are_not():
    def target_is_mine(shard, group):
        if group.rank() == 2:
            raise LookupError("no target of mine")
        dist.barrier(group)

    error = fault_of(target_is_mine, *range(4))
    assert (error.fault, error.rank, error.error) == (Fault.RAISED, 2, "LookupError")
    assert str(error).startswith("Rank 2 raises LookupError (line ")
    assert str(error).endswith('`raise LookupError("no target of mine")`): no target of mine')


def test_a_rank_that_skips_a_collective_is_named():
    def skips(shard, group):
        if group.rank() != 1:
            dist.all_reduce(shard, group=group)

    error = fault_of(skips, *torch.ones(3, 2, device=DEVICE))
    assert (error.fault, error.rank) == (Fault.DEADLOCK, 1)
    assert str(error).startswith("Ranks 0 and 2 wait in all_reduce (line ")
    assert "`dist.all_reduce(shard, group=group)`); rank 1 has returned without a collective: " in str(error)


def test_a_collective_in_another_order_is_a_mismatch():
    def swapped(shard, group):
        if group.rank() == 0:
            dist.barrier(group)
        dist.all_reduce(shard, group=group)
        if group.rank() != 0:
            dist.barrier(group)

    error = fault_of(swapped, *torch.ones(3, 2, device=DEVICE))
    assert (error.fault, error.rank) == (Fault.MISMATCH, 0)
    assert str(error).startswith("Rank 0 calls barrier (line ")
    assert "), and ranks 1 and 2 all_reduce of op=SUM, float32 (2,) (line " in str(error)


def test_a_root_that_is_no_rank_of_the_group_is_refused():
    error = fault_of(lambda shard, group: dist.reduce(shard, -1, group=group), *torch.ones(2, 3, device=DEVICE))
    assert error.error == "ValueError"
    assert str(error).endswith("src or dst must be a rank of the group, 0 to 1; it is -1.")


def test_shapes_that_differ_are_a_mismatch():
    def uneven(shard, group):
        dist.all_reduce(shard, dist.ReduceOp.MAX, group=group)

    error = fault_of(uneven, *torch.ones(8, device=DEVICE).tensor_split(3))
    assert (error.fault, error.rank) == (Fault.MISMATCH, 2)
    assert "all_reduce of op=MAX, float32 (2,)" in str(error) and "op=MAX, float32 (3,)" in str(error)


@pytest.fixture
def soon(monkeypatch):
    """Ranks that are programs, as on GPUs, have 15 seconds in place of 120."""
    monkeypatch.setattr(running, "_PROGRAM_LIMIT_S", 15)


def test_an_endless_loop_ends_with_its_line(soon):
    def loops(group):
        while group.rank() == 1:
            pass  # for ever
        dist.barrier(group)

    error = fault_of(loops, world=2, limit_s=1)
    assert (error.fault, error.rank) == (Fault.OUT_OF_TIME, 1)
    limit = "15 seconds" if ON_GPU and torch.cuda.device_count() > 1 else "1 second"
    assert str(error).startswith(f"Rank 1 did not come to an end within {limit} of processor time (line ")


def test_a_rank_that_sleeps_ends_with_its_line(soon):
    def sleeps(group):
        if group.rank() == 1:
            time.sleep(1000)
        dist.barrier(group)

    error = fault_of(sleeps, world=2, limit_s=1)
    assert (error.fault, error.rank) == (Fault.OUT_OF_TIME, 1)
    assert "`time.sleep(1000)`), outside of collectives." in str(error)


def test_a_rank_that_prints_without_end_is_named(capfd):
    def prints(group):
        while group.rank() == 1:
            print("again")
        dist.barrier(group)

    error = fault_of(prints, world=2)
    assert (error.fault, str(error)) == (Fault.PRINTED, "Rank 1 printed more than 50,000 characters.")
    assert 50_000 < len(capfd.readouterr().out) < 200_000


def test_a_rank_that_is_killed_is_named():
    def dies(group):
        dist.barrier(group)
        if group.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier(group)

    error = fault_of(dies, world=3)
    assert (error.fault, error.rank) == (Fault.DIED, 1)
    assert str(error).startswith("Rank 1 was killed by SIGKILL after it called barrier (line ")


def starts(group):
    """A process that leaves everybody who could know of it."""
    if not (found := os.fork()):
        os.setsid()
        time.sleep(1000)
    return found


def runs(pid):
    """Whether a process has not ended: one that nobody has waited for yet has a number, and no command."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def test_what_a_rank_has_started_ends_with_it():
    (pid,) = ranks.run(starts, world=1)
    assert not runs(pid)


def receives_first(shard, group):
    dist.recv(shard, (group.rank() - 1) % 2, group=group)
    dist.send(shard, (group.rank() + 1) % 2, group=group)


def test_a_message_that_is_received_before_it_is_sent_by_all_is_a_deadlock():
    error = fault_of(receives_first, *torch.ones(2, 1, device=DEVICE))
    assert error.fault is Fault.DEADLOCK
    assert str(error).startswith("Rank 0 waits in recv, with rank 1 (line ")


def test_it_is_one_also_if_a_backend_moves_the_messages():
    with pytest.raises(ranks.RankError, match="Rank 0 waits in recv, with rank 1 "):
        running._results(receives_first, torch.ones(2, 1).unbind(), None, 20, "gloo")


@pytest.mark.parametrize("value", [object(), lambda: 1], ids=["object", "function"])
def test_what_cannot_be_sent_is_named(value):
    said = f"Rank 0 raises TypeError: what the function returned, of type {type(value).__name__}, cannot be sent"
    assert said in str(fault_of(lambda group: value, world=1))


def test_a_rank_that_writes_into_our_connection_is_named():
    def writes(group):
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                os.write(number, b"\0\0\0\1" + bytes(8) + b"x" if number > 2 else b"")
        time.sleep(1000)

    error = fault_of(writes, world=1, limit_s=2)
    assert (error.fault, error.rank) == (Fault.DIED, 0)
    assert str(error) == "Rank 0 wrote into a file that it has not opened."


@needs.forked_ranks
def test_a_run_that_is_interrupted_leaves_nothing(monkeypatch):
    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(running.Run, "_listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ranks.run(lambda group: time.sleep(1000), world=2)


def of_one(shard, group):
    return shard


@pytest.mark.parametrize(
    ("error", "said", "args", "options"),
    [
        (TypeError, "ranks run a function of", (3,), {}),
        (ValueError, "2 ranks and 3 shards: pass one shard for each rank", (print, 1, 2, 3), {"world": 2}),
        (ValueError, "1 rank is given a tuple of 3: pass one shard for each rank", (of_one, (1, 2, 3)), {}),
        (ValueError, "1 rank is given a list of 2: pass one shard for each rank", (print, [*torch.ones(2)]), {}),
        (ValueError, "world must be a whole number of at least 1; it is 0", (print,), {"world": 0}),
        (ValueError, "world must be at most 16", (print,), {"world": 17}),
        (ValueError, "limit_s must be a whole number", (print,), {"limit_s": 0}),
    ],
)
def test_what_cannot_be_run_is_refused(error, said, args, options):
    with pytest.raises(error, match=said):
        ranks.run(*args, **options)


# The ways of a machine with GPUs


@pytest.mark.proof
def test_ranks_may_be_programs_of_their_own():
    x = torch.randn(3, 10)
    parts, _ = running._results(softmax_of_shard, x.chunk(2, 1), None, 20, "gloo", programs=True)
    torch.testing.assert_close(torch.cat(parts, 1), x.softmax(1))
    with pytest.raises(ranks.RankError, match="Rank 1 was killed by SIGKILL before its first"):
        running._results(lambda group: os.kill(os.getpid(), 9 * group.rank()), (), 2, 20, "gloo", programs=True)
    (pid,), _ = running._results(starts, (), 1, 20, "gloo", programs=True)
    assert not runs(pid)


def test_ranks_may_be_forks_of_a_process_that_interprets():
    given = pickled.dumps((softmax_of_shard, torch.eye(4).chunk(2)))
    results, calls, printed = child.call(running._in_child, given, 2, 20, interpret=True)
    assert [part.shape for part in results] == [(2, 4), (2, 4)] and len(calls[1]) == 1 and not printed
    given = pickled.dumps((lambda group: print("here") or 1 / 0, ()))
    error, calls, printed = child.call(running._in_child, given, 2, 20, interpret=True)
    assert str(error).startswith("Rank 0 raises ZeroDivisionError") and "rank 0: here" in printed


@needs.forked_ranks
def test_an_answer_that_is_checked_may_run_on_ranks():
    def answer(world):
        return ranks.run(lambda group: group.rank(), world=world)

    first, second = isolate.call_each(answer, [2, 3])
    assert (first.value, second.value) == ([0, 1], [0, 1, 2]), (first, second)


@needs.forked_ranks
def test_a_rank_has_one_socket_and_no_other_file_of_ours():
    def kinds(group):
        dist.barrier(group)
        opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return sorted(os.readlink(one).partition(":")[0] for one in opened if os.path.exists(one))

    with socket.socket(), open(__file__):
        for opened in ranks.run(kinds, world=2):
            assert opened == ["/dev/null", "pipe", "pipe", "pipe", "socket"]
