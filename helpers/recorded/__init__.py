"""Every measurement of the course, with its origin. `python -m helpers.measure.record` writes a folder for each GPU.

A folder has at least the first of these files:

- `softmax.json`: times of every kernel and of a copy, few rows, DRAM counters; `bandwidth.png` shows them;
- `launches.json`: times of every launch that a rule may choose, at the shapes of its table and at others, held out;
- `plan.json`: times of the launch that `helpers.softmax` plans for a row, and of its alternatives;
- `loss.json`: times and memory of `helpers.softmax.cross_entropy`, of other losses and of a copy of the logits;
- `gradients.json`: the gradient, other dimensions and a copy, and what a call takes Python;
- `pace.json`: programs that wait for words, with and without what keeps memory busy meanwhile;
- `policy.json`: launches whose loaded lines outlive written ones in the L2 cache, and the same without;
- `lies.json`: what the benchmarks of `helpers.lies` say, the lying and the honest ones;
- `decode.json`: attention of one query a head and many keys, in parts (`helpers.measure.decode` writes it);
- `shards.json`: softmaxes and losses of rows that lie over several GPUs (`helpers.measure.shards` writes it);
- `sample.json`: one token drawn from each row, and frequencies (`helpers.measure.sample` writes it);
- `linear_loss.json`: the loss of a linear layer, whose logits are in chunks or nowhere (`helpers.measure.linear_loss`);
- `why.json`: what lesson 06 explains times with: memories, loads under way, counters, the X-ray of launches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from helpers.gpu.datasheets import sold_as

HOME = Path(__file__).parent
REFERENCE = "NVIDIA H200"
"""The GPU whose record is shown where no other is asked for."""


@cache
def by_gpu(kind: str, home: Path = HOME) -> dict[str, dict[str, Any]]:
    """The records of one kind, the name of its files, by the name of their GPU. Plain data, read once."""
    found = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(home.glob(f"*/{kind}.json")))
    return {record["origin"]["gpu"]: record for record in found}


def find(kind: str, target: str, home: Path = HOME) -> dict[str, Any] | None:
    """The record of one kind for a GPU: by name ("NVIDIA H100 80GB HBM3", "H100" for short) or architecture ("sm_90").

    A name goes before an architecture. Of several GPUs of one architecture REFERENCE is found, else the first by
    folder. None where no record has such a target.
    """
    records = by_gpu(kind, home)
    named = (records[gpu] for gpu in records if target in (gpu, gpu.removeprefix("NVIDIA "), sold_as(gpu)))
    reference_first = sorted(records, key=lambda gpu: gpu != REFERENCE)
    same_architecture = (records[gpu] for gpu in reference_first if records[gpu]["origin"]["target"] == target)
    return next(named, None) or next(same_architecture, None)


def origin_in_words(origin: Mapping[str, str]) -> str:
    """The words next to every recorded figure: GPU, versions and date; from when to when, if parts were timed later."""
    dates = sorted({origin["date"], *(said[:10] for part, said in origin.items() if part.endswith(" anew"))})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return f"recorded on one {origin['gpu']}, torch {origin['torch']}, triton {origin['triton']}, {when}"
