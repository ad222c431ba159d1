"""Softmax kernels of other projects, to compare with where they are installed: none is needed by the course."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import torch

from helpers import timing
from helpers.engine.runtime import ON_GPU
from helpers.kernels import Softmax


def _liger() -> Softmax:
    return import_module("liger_kernel.ops.softmax").LigerSoftmaxFunction.apply


def _quack() -> Softmax:
    return import_module("quack.softmax").softmax


_PEERS = {"Liger": ("liger_kernel", _liger), "QuACK": ("quack", _quack)}


def installed() -> dict[str, Softmax]:
    """Functions of one (M, N) tensor by name: Liger-Kernel's (Triton) and QuACK's (CuTe), if they can be imported.

    Without a GPU, all of them: the record is searched for their names, and the functions are not called.
    """
    if not ON_GPU:
        return dict.fromkeys(_PEERS, torch.softmax)
    return {name: load() for name, (package, load) in _PEERS.items() if find_spec(package)}


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
