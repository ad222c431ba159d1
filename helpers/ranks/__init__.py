"""A function of (shard, group) on several ranks, each a process of its own, and what it sends between them.

    ranks.run(function, *shards)      each rank's result; a hang, an error or a mismatch is named in a sentence
    ranks.count(function, *shards)    the collectives of each rank, and the bytes that it sends and receives

Without enough GPUs, ranks are forked from this process, so that a call takes a fraction of a second; they interpret
kernels as it does, and may run functions of a notebook. Their messages go through socket pairs. No port is opened: gloo
has no other transport than TCP and always listens on one, even if it is given the loopback interface and a file store;
without a network it does not start.
With a GPU for each rank, ranks are new processes that compile kernels and use NCCL, which opens ports of its own;
`helpers.measure.shards`, lesson 13 and the tests of ranks have run so on 4 H200.

- `collectives`: what a collective hands each rank, and what it sends for that: plain functions of tensors;
- `group`: the process group that a rank is given, and its messages;
- `meeting`: which ranks have called what, and whether any of them can go on: the faults, each in a sentence;
- `processes`: how ranks start, and end; `running` and `counting`: the functions above.
"""

from helpers.ranks.counting import count
from helpers.ranks.meeting import RankError
from helpers.ranks.running import run

__all__ = ["RankError", "count", "run"]
