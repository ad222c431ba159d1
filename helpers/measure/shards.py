"""`python -m helpers.measure.shards` times rows that lie over several GPUs of this machine, one process for each.

With `--gpus 2 4` it does so for 2, and then for 4; `--out FILE` also writes a record, `shards.json` in the folder of
this GPU under helpers/recorded.

Each function is timed in chains of CALLS calls, so that the start of a call hides behind the one before it. A time is
that of the slowest rank, and its share that of a copy of the shard in the same turns: 1 reads a shard once and writes
it once. Before that, each function is held against torch on the whole row, and ours is called AGAIN times in a row,
whose results must have the same bits on all ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from helpers.engine.files import write_whole
from helpers.softmax import parallel
from helpers.table import Table

SHAPES = ((8192, 128256), (8192, 32768), (4096, 131072), (512, 32768))
"""Rows, and columns of all shards together."""
LATENCIES = (1, 1024, 65536)
"""Rows whose pairs are gathered."""
CALLS, REPEATS, AGAIN = 20, 15, 1000
LOSS, TRAINING, PROBABILITIES = "loss", "loss and gradient", "softmax"

ShardStep = Callable[[torch.Tensor, torch.Tensor, Any, int], Any]
"""A function of a shard, the targets, the group and the shard's first class."""


def eager_softmax_of_shard(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
    """The softmax by torch's operations, with an all-reduce for the maximum and one for the sum."""
    m = x.float().amax(1, keepdim=True)
    dist.all_reduce(m, dist.ReduceOp.MAX, group=group)
    e = torch.exp(x.float() - m)
    l = e.sum(1, keepdim=True)
    dist.all_reduce(l, group=group)
    return (e / l).to(x.dtype)


class _EagerLosses(torch.autograd.Function):
    """The loss by torch's operations and three all-reduces, as others compute it; the probabilities are kept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
        m = x.float().amax(1)
        dist.all_reduce(m, dist.ReduceOp.MAX, group=group)
        shifted = x.float() - m[:, None]
        local = target - start
        is_here = (local >= 0) & (local < x.shape[1])
        at = local.where(is_here, 0)[:, None]
        x_target = shifted.gather(1, at)[:, 0].masked_fill(~is_here, 0)
        dist.all_reduce(x_target, group=group)
        e = shifted.exp_()
        l = e.sum(1)
        dist.all_reduce(l, group=group)
        e.div_(l[:, None])
        ctx.dtype = x.dtype
        ctx.save_for_backward(e, at, is_here)
        return l.log() - x_target

    @staticmethod
    def backward(ctx: Any, by: torch.Tensor) -> tuple:
        y, at, is_here = ctx.saved_tensors
        gradient = y.scatter_add(1, at, -is_here[:, None].float()) * by[:, None]
        return gradient.to(ctx.dtype), None, None, None


def eager_loss(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
    """The mean of `_EagerLosses`."""
    return _EagerLosses.apply(x, target, group, start).mean()


def our_loss(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
    """The mean loss by helpers.softmax.parallel."""
    return parallel.cross_entropy(x, target, group=group, start=start)


def _of_dtensor(x: torch.Tensor, target: torch.Tensor, group: Any) -> torch.Tensor:
    """The mean loss of shards of equal size."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    return F.cross_entropy(DTensor.from_local(x, DeviceMesh.from_group(group, x.device.type), [Shard(1)]), target)


def torchs_loss(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
    """The mean loss by torch's loss_parallel."""
    from torch.distributed.tensor.parallel import loss_parallel

    with loss_parallel():
        return _of_dtensor(x, target, group)


def _with_gradient(loss: ShardStep) -> ShardStep:
    def both(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(loss(x, target, group, start), x)[0]

    return both


def _torchs_gradient(x: torch.Tensor, target: torch.Tensor, group: Any, start: int) -> torch.Tensor:
    from torch.distributed.tensor.parallel import loss_parallel

    x = x.detach().requires_grad_()
    with loss_parallel():  # backward too
        _of_dtensor(x, target, group).backward()
    return x.grad


SHARD_STEPS: dict[tuple[str, str], ShardStep] = {
    ("helpers.softmax.parallel", PROBABILITIES): lambda x, target, group, start: parallel.softmax(x, group=group),
    ("one gather of pairs", PROBABILITIES): lambda x, target, group, start: parallel.softmax_by_gather(x, group),
    ("two all-reduces", PROBABILITIES): eager_softmax_of_shard,
    ("helpers.softmax.parallel", LOSS): our_loss,
    ("three all-reduces", LOSS): eager_loss,
    ("torch's loss_parallel", LOSS): torchs_loss,
    ("helpers.softmax.parallel", TRAINING): _with_gradient(our_loss),
    ("three all-reduces", TRAINING): _with_gradient(eager_loss),
    ("torch's loss_parallel", TRAINING): _torchs_gradient,
}
"""By contestant and what it computes."""


_PROJECTS = {"megatron": "megatron-core", "liger_kernel": "liger-kernel"}


def peer_steps(group: Any) -> dict[tuple[str, str], ShardStep]:
    """Other projects' losses, as far as they are installed, for a group of all ranks: Megatron-LM's two and Liger's."""
    losses: dict[str, ShardStep] = {}
    if find_spec("megatron"):
        parallel_state = import_module("megatron.core.parallel_state")
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size(group))
        eager = import_module("megatron.core.tensor_parallel").vocab_parallel_cross_entropy
        fused = import_module("megatron.core.fusions.fused_cross_entropy").fused_vocab_parallel_cross_entropy
        losses["Megatron-LM"] = lambda x, target, group, start: eager(x[:, None], target[:, None]).mean()
        losses["Megatron-LM, fused"] = lambda x, target, group, start: fused(x[:, None], target[:, None], group).mean()
    if find_spec("liger_kernel"):
        ligers = import_module("liger_kernel.ops.vocab_parallel_cross_entropy").LigerVocabParallelCEFunction.apply
        options = -100, 0.0, "pytorch", "global"
        losses["Liger"] = lambda x, target, group, start: ligers(x[:, None], target[:, None], group, *options).mean()
    return {
        (name, what): step
        for name, loss in losses.items()
        for what, step in ((LOSS, loss), (TRAINING, _with_gradient(loss)))
    }


def wrong_steps(steps: Mapping[tuple[str, str], ShardStep], group: Any, device: torch.device) -> list[str]:
    """The contestants whose results differ from torch's on the whole row, which every rank makes for itself."""
    torch.manual_seed(0)
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    whole = (4 * torch.randn(33, 96 * world)).to(device, torch.bfloat16)
    target = torch.randint(0, whole.shape[1], (33,)).to(device)
    leaf = whole.double().requires_grad_()
    loss = F.cross_entropy(leaf, target)
    want = {PROBABILITIES: leaf.detach().softmax(1), LOSS: loss.detach(), TRAINING: torch.autograd.grad(loss, leaf)[0]}
    found = []
    for (name, what), step in steps.items():
        shard = whole.chunk(world, 1)[rank].contiguous()
        right = want[what] if what == LOSS else want[what].chunk(world, 1)[rank]
        got = step(shard, target, group, rank * shard.shape[1])
        got = got.full_tensor() if hasattr(got, "full_tensor") else got
        if not torch.allclose(got.double(), right, rtol=2e-2, atol=1e-5):
            found.append(f"{name}, {what}")
    return found


def _rank(rank: int, world: int, folder: str, gpus: Sequence[int]) -> None:
    """One process: rank 0 writes what is found on `world` GPUs, and the origin of a record of all these `gpus`."""
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    store = dist.FileStore(f"{folder}/store", world)
    dist.init_process_group("nccl", store=store, rank=rank, world_size=world, device_id=device)
    group = dist.group.WORLD
    steps = SHARD_STEPS | peer_steps(group)
    wrong = wrong_steps(steps, group, device)
    rows = [row for M, C in SHAPES for row in _times(steps, M, C // world, group, device, wrong)]
    found = {
        "gpus": world, "dtype": "bf16", "wrong": wrong, "differing": _differing(group, device), "rows": rows,
        "gathers": [{"rows": M, "us": round(1000 * _chain(_gather_of(M, group, device), group), 2)} for M in LATENCIES],
    }  # fmt: skip
    if rank == 0:
        origin = shards_origin(gpus)  # at once, for the clocks of a busy GPU
        Path(folder, "found.json").write_text(json.dumps([found, origin]))
    dist.destroy_process_group()


def _times(
    steps: Mapping[tuple[str, str], ShardStep], M: int, n: int, group: Any, device: torch.device, wrong: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each contestant: its time, and the copy's right before it."""
    torch.manual_seed(dist.get_rank(group))
    x = (3 * torch.randn(M, n, device=device)).to(torch.bfloat16)
    target, y = torch.randint(0, n * dist.get_world_size(group), (M,), device=device), torch.empty_like(x)
    dist.broadcast(target, 0, group=group)
    start, rows = dist.get_rank(group) * n, []
    for (name, what), step in steps.items():
        if f"{name}, {what}" in wrong:
            continue
        copy = _chain(lambda: y.copy_(x), group)
        took = _chain(lambda step=step: step(x, target, group, start), group)
        row = {"name": name, "what": what, "M": M, "C": n * dist.get_world_size(group)}
        rows.append({**row, "us": round(1000 * took, 2), "copy_us": round(1000 * copy, 2)})
    return rows


def _chain(call: Callable[[], object], group: Any) -> float:
    """Milliseconds of a call, in a chain, on the slowest rank: the median of REPEATS chains."""
    for _ in range(3):
        call()
    times = []
    for _ in range(REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier(group)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        torch.cuda.synchronize()
        slowest = torch.tensor(begin.elapsed_time(end) / CALLS, device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
        times.append(slowest.item())
    return statistics.median(times)


def _gather_of(M: int, group: Any, device: torch.device) -> Callable[[], object]:
    """A gather of M pairs."""
    pairs, found = (torch.zeros(n * 2 * M, device=device) for n in (1, dist.get_world_size(group)))
    return lambda: dist.all_gather_into_tensor(found, pairs, group=group)


def _differing(group: Any, device: torch.device) -> int:
    """How many of AGAIN losses have other bits than the first loss of rank 0, and of as many softmaxes than the first
    of their rank."""
    x = torch.randn(64, 4096, device=device).to(torch.bfloat16)
    target = torch.arange(64, device=device) * 50
    start = dist.get_rank(group) * 4096
    losses = torch.stack([our_loss(x, target, group, start) for _ in range(AGAIN)]).float()
    first = losses[:1].clone()
    dist.broadcast(first, 0, group=group)
    y = parallel.softmax(x, group=group)
    differing = (losses != first).sum() + sum((parallel.softmax(x, group=group) != y).any() for _ in range(AGAIN))
    dist.all_reduce(differing, group=group)
    return int(differing)


def table_of_shards(found: Mapping[str, Any], origin: Mapping[str, str]) -> Table:
    """A line for each shape and contestant, of what was found on one number of GPUs."""
    rows = [
        [f"{row['M']} × {row['C']}", row["what"], row["name"], f"{row['us']:.1f}", f"{row['copy_us'] / row['us']:.2f}"]
        for row in found["rows"]
    ]
    head = ["logits", "what", "by", "µs", "share of a copy of the shard"]
    notes = [f"{found['gpus']} × {origin['gpu']}, torch {origin['torch']}, {found['dtype']}, chains of {CALLS} calls"]
    notes += [f"a gather of the pairs of {row['rows']:,} rows: {row['us']:.1f} µs" for row in found["gathers"]]
    notes.append(
        f"of {AGAIN:,} losses on each rank, and as many softmaxes, {found['differing']} had other bits than the first"
    )
    notes += [f"left out, because its result is wrong: {name}" for name in found["wrong"]]
    return Table(head, rows, notes, align="lllrr")


def shards_origin(gpus: Sequence[int]) -> dict[str, str]:
    """The origin of what is measured here now on so many GPUs, with the versions of NCCL and of other projects."""
    from helpers.measure.record import origin_here

    command = " ".join(["python -m helpers.measure.shards --gpus", *map(str, gpus)])
    peers = {project: version(project) for module, project in _PROJECTS.items() if find_spec(module)}
    return origin_here() | {"nccl": ".".join(map(str, torch.cuda.nccl.version())), **peers, "command": command}


def _measured_on(world: int, gpus: Sequence[int]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is found on `world` GPUs, and the origin of a record of all these numbers of `gpus`."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (world, folder, gpus), nprocs=world)
        return json.loads(Path(folder, "found.json").read_text())


def main() -> None:
    """Measures, and prints a table for each number of GPUs; with --out, also writes a record."""
    there = torch.cuda.device_count()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", default=[there], help="the first so many; by default all")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not 2 <= min(options.gpus) <= max(options.gpus) <= there:
        parser.error(f"rows lie over at least 2 GPUs; there are {there}.")
    found, origins = zip(*(_measured_on(world, options.gpus) for world in options.gpus), strict=True)
    origin = origins[-1]
    if options.out:
        write_whole(options.out, (json.dumps({"origin": origin, "shards": found}, indent=1) + "\n").encode())
    for measured in found:
        print(table_of_shards(measured, origin))


if __name__ == "__main__":
    main()
