"""`python -m helpers.measure.decode` times attention of one query a head and many keys, on the GPU of this machine.

It prints a table; `--out FILE` also writes a record, `decode.json` in the folder of this GPU under helpers/recorded.

All contestants take turns, with the L2 cache flushed before each. Before that, each is held against torch's result in
float32. The share of a time is that of reading K and V once: 1 takes no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from helpers import timing
from helpers.attention import attention, torchs_attention
from helpers.attention.decode import grouped_decode, split_decode
from helpers.attention.lesson import tiled_attention
from helpers.table import Table

KV_HEADS, KEYS, HEAD_DIM, GROUP = 8, 131072, 128, 4
"""Heads of K and V, keys of each, columns, and query heads that share a head of K and V where they do."""
SPLITS = (1, 2, 4, 8, 16, 32, 64)
ONE_READ, LESSON_11 = "reading K and V once", "lesson 11's kernel"
SHIPPED, TORCH = "helpers.attention", "torch"
_READ = 8192
"""Elements that a program of `read_once_kernel` reads."""
Contestant = tuple[str, int]
"""A name, and into how many parts the keys are split: 0 if nobody says so."""


@triton.jit
def read_once_kernel(sum_ptr, x_ptr, n, BLOCK: tl.constexpr):
    """The sum of BLOCK elements for each program, which reads them once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(sum_ptr + tl.program_id(0), tl.sum(x.to(tl.float32), axis=0))


def read_once(x: torch.Tensor) -> torch.Tensor:
    """The sums of each _READ elements of x, which has no gaps."""
    sums = torch.empty(triton.cdiv(x.numel(), _READ), device=x.device)
    read_once_kernel[(len(sums),)](sums, x, x.numel(), BLOCK=_READ)
    return sums


def decoders(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[Contestant, Callable[[], torch.Tensor]]:
    """Functions that return o (H, d), for q (H, d) and k and v (H / G, N, d)."""
    G = len(q) // len(k)
    rows = q[:, None]
    found: dict[Contestant, Callable[[], torch.Tensor]] = {}
    if G == 1:
        found[LESSON_11, 0] = lambda: tiled_attention(rows, k, v, BLOCK_M=16, BLOCK_N=64)[0][:, 0]
    for S in SPLITS:
        found["a program for each query head", S] = lambda S=S: split_decode(q, k, v, S)[0]
        if G > 1:
            found["the group in one tile", S] = lambda S=S: grouped_decode(q, k, v, S, BLOCK_N=64)[0]
    four = [x[None] for x in (rows, k, v)]
    found[SHIPPED, 0] = lambda: attention(*four, enable_gqa=G > 1)[0, :, 0]
    found[TORCH, 0] = lambda: torchs_attention(*four, enable_gqa=G > 1)[0, :, 0]
    return found


def wrong_decoders(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[str]:
    """The contestants whose result differs from that of float32."""
    G = len(q) // len(k)
    many = (x.float().repeat_interleave(G, 0) for x in (k, v))
    want = torchs_attention(q[:, None].float(), *many)[:, 0]
    close = {"rtol": 2e-2, "atol": 1e-2 * want.abs().max().item()}
    every = decoders(q, k, v).items()
    return [f"{name}, {S} parts" for (name, S), call in every if not torch.allclose(call().float(), want, **close)]


def _times(q: torch.Tensor, kv: torch.Tensor) -> dict[Contestant, float]:
    """Milliseconds of each contestant, by name and parts, and of reading K and V, which are the halves of `kv`."""
    calls = {(ONE_READ, 0): lambda: read_once(kv), **decoders(q, *kv)}
    return {name: round(took.median_ms, 5) for name, took in timing.measure_in_turns(calls).items()}


def _by_parts(times: Mapping[Contestant, float], name: str) -> dict[str, float]:
    return {str(S): ms for (one, S), ms in times.items() if one == name}


def measured_decode(heads: int = KV_HEADS, keys: int = KEYS) -> dict[str, Any]:
    """The record without its origin, of bfloat16."""
    torch.manual_seed(0)
    kv = torch.randn(2, heads, keys, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(GROUP * heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    wrong = wrong_decoders(q[:heads], *kv) + wrong_decoders(q, *kv)
    alone, grouped = _times(q[:heads], kv), _times(q, kv)
    name = "a program for each query head"
    return {
        "heads": heads, "keys": keys, "columns": HEAD_DIM, "dtype": "bf16",
        "sms": torch.cuda.get_device_properties(0).multi_processor_count, "wrong": wrong,
        "reading_ms": alone[ONE_READ, 0], "lesson_11_ms": alone[LESSON_11, 0], "parts_ms": _by_parts(alone, name),
        "ours_ms": alone[SHIPPED, 0], "torchs_ms": alone[TORCH, 0],
        "grouped": {
            "group": GROUP, "reading_ms": grouped[ONE_READ, 0], "query_head_ms": _by_parts(grouped, name),
            "tile_ms": _by_parts(grouped, "the group in one tile"),
            "ours_ms": grouped[SHIPPED, 0], "torchs_ms": grouped[TORCH, 0],
        },
    }  # fmt: skip


def table_of_decode(found: Mapping[str, Any]) -> Table:
    """A line for each contestant: its time, and its share of the time of reading K and V once."""
    grouped = found["grouped"]
    of = f"{found['heads']} query heads", f"{found['heads'] * grouped['group']} query heads"
    lines = [(of[0], LESSON_11, "–", found["lesson_11_ms"], found["reading_ms"])]
    for where, what, one in (
        (of[0], "a program for each query head", found | {"by_parts": found["parts_ms"]}),
        (of[1], "a program for each query head", grouped | {"by_parts": grouped["query_head_ms"]}),
        (of[1], "the group in one tile", grouped | {"by_parts": grouped["tile_ms"]}),
    ):
        lines += [(where, what, S, ms, one["reading_ms"]) for S, ms in one["by_parts"].items()]
    for where, one in zip(of, (found, grouped), strict=True):
        lines += [
            (where, name, "–", one[key], one["reading_ms"])
            for name, key in ((SHIPPED, "ours_ms"), (TORCH, "torchs_ms"))
        ]
    rows = [[where, what, str(S), f"{1000 * ms:.1f}", f"{reading / ms:.3f}"] for where, what, S, ms, reading in lines]
    note = f"{found['heads']} heads of {found['keys']:,} keys, {found['columns']} columns, {found['dtype']}"
    notes = [note, *(f"its result is wrong: {name}" for name in found["wrong"])]
    return Table(["", "by", "parts", "µs", "share of the time of reading"], rows, notes, align="lllrr")


if __name__ == "__main__":
    from helpers.measure.command import run_command

    run_command("decode", __doc__, measured_decode, table_of_decode)
