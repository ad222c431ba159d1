"""Softmax kernels to compare with, where they can run: other projects', and a cluster's. None is needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import torch
import triton

from helpers import timing
from helpers.engine.runtime import ON_GPU
from helpers.kernels import Softmax


class _Peer(NamedTuple):
    """Whether a peer can be had here, and its function."""

    is_here: Callable[[], bool]
    load: Callable[[], Softmax]


def _liger() -> Softmax:
    return import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction.apply


def _quack() -> Softmax:
    return import_module("quack.softmax").softmax


def _cluster() -> Softmax:
    return import_module("helpers.peers.cluster").cluster_softmax


def has_clusters(version: str, capability: tuple[int, int]) -> bool:
    """Whether this Triton compiles reductions over a cluster, and a GPU of this capability has clusters."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) >= (3, 8) and capability >= (9, 0)


_PEERS = {
    "Liger": _Peer(lambda: find_spec("liger_kernel") is not None, _liger),
    "QuACK": _Peer(lambda: find_spec("quack") is not None, _quack),
    "cluster": _Peer(lambda: has_clusters(triton.__version__, torch.cuda.get_device_capability()), _cluster),
}


def installed() -> dict[str, Softmax]:
    """Functions of one (M, N) tensor by name, as far as they can be had here: Liger-Kernel's (Triton), QuACK's (CuTe),
    and one by clusters (Gluon).

    Without a GPU, all of them: the record is searched for their names, and the functions are not called.
    """
    if not ON_GPU:
        return dict.fromkeys(_PEERS, torch.softmax)
    return {name: peer.load() for name, peer in _PEERS.items() if peer.is_here()}


def refusal(softmax: Softmax, n_rows: int, n_cols: int, dtype: str) -> str | None:
    """Why a function does not return the softmax of this shape; None if it does. GPU only.

    Several peers refuse long or unaligned rows, or get them wrong.
    """
    try:
        timing.time_shape({"it": softmax}, n_rows, n_cols, dtype, repeats=2)
    except Exception as refused:
        said = (line for line in str(refused).splitlines() if line.strip())
        return next(said, type(refused).__name__)
    return None
