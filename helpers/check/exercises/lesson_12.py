"""Lesson 12, one query a head and many keys: parts and their merge, and a tile of the queries of a group."""

from __future__ import annotations

import torch

from helpers.attention import decode
from helpers.check.exercise import TensorExercise
from helpers.check.mistakes.decode_groups import GROUPED_MISTAKES, OVERSPENT
from helpers.check.mistakes.decoding import DECODE_MISTAKES
from helpers.check.mistakes.recognise import with_hints
from helpers.check.mistakes.stops import ERRORS
from helpers.check.problems import decoding
from helpers.check.problems.cases import INF
from helpers.check.problems.problem import Inputs
from helpers.check.trial.trial import Trial

GIVEN_PARTS = 6
"""Parts of the keys in the driver that is given."""
ENOUGH_PARTS = 64
"""Parts of a head whose triples are within the budget, at 16 columns."""
STORES = 1 + ENOUGH_PARTS * (1 + 1 / 8) + 1 / 16
"""For each element of q, at 16 columns: o, the triples of so many parts, and the log-sum-exps."""


def decode_trips(inputs: Inputs, trial: Trial) -> int:
    """Loads that are enough: K and V once; q and a triple for each part of each query head.

    There is a program for each part of each head of keys. One that loads and stores nothing has no part.
    """
    q, k, v = inputs
    (H, D), G = q.shape, decoding.group_of(q, k)
    parts = min(max(len(trial.moved) * G, GIVEN_PARTS * H), ENOUGH_PARTS * H)
    return k.numel() + v.numel() + parts * (2 * D + 2)


def _starter(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Inputs:
    """What the kernels of 12.1 store as they are handed out."""
    return torch.zeros_like(q), torch.full(q.shape[:1], -INF)


EXERCISES = (
    TensorExercise(
        name="decode",
        number="12.1",
        points=5,
        about=(
            "Checks attention of one query a head: a function of q (H, d), k and v (H, N, d) that returns o (H, d) and "
            "the log-sum-exps (H,). The keys lie in parts, one for each program; K and V are loaded once."
        ),
        kind=decoding.DECODE,
        makers=decoding.ONE_A_HEAD,
        loads=decode_trips,
        stores=STORES,
        shared=True,
        starter=_starter,
        starter_loads=GIVEN_PARTS,
        starter_loads_by="S",
        starter_shows="o and lse are still what the starter code makes them",
        known=with_hints(DECODE_MISTAKES, **dict.fromkeys(ERRORS, 4)),
        why="Why does an empty part change nothing in the merge?",
        ours=decode.split_decode,
    ),
    TensorExercise(
        name="grouped",
        number="12.2",
        points=4,
        about=(
            "Checks attention of one query a head, G = H / heads of keys of which share a head of keys: a function of "
            "q (H, d), k and v (H / G, N, d) as check.decode takes it. K and V are loaded once for all G."
        ),
        kind=decoding.DECODE,
        makers=decoding.GROUPS,
        loads=decode_trips,
        stores=STORES,
        shared=True,
        known=with_hints(GROUPED_MISTAKES, **dict.fromkeys(ERRORS, 4)),
        overspent=OVERSPENT,
        why="Why are 16 rows no slower than 4, if memory decides?",
        ours=decode.grouped_decode,
    ),
)
