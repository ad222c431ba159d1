"""Child processes for Triton's other mode: interpreted beside a GPU, compiling beside the interpreter."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any


def _follow_parent() -> None:
    """Leaves Ctrl-C to the parent, and ends when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


@functools.cache
def _pool(interpret: bool) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_follow_parent)


def call(function: Callable[..., Any], *args: Any, interpret: bool) -> Any:
    """Returns `function(*args)` as computed in a child process, which stays alive for the next call.

    `function` is a top-level function of a module. With `interpret` the child sees no GPU and runs kernels in Triton's
    interpreter; without, it can compile kernels for any target. What `function` raises is raised here, and RuntimeError
    where the child died.
    """
    setting = {"TRITON_INTERPRET": "1" if interpret else "0"}
    if interpret:
        setting["CUDA_VISIBLE_DEVICES"] = ""
    before = {name: os.environ.get(name) for name in setting}
    os.environ.update(setting)
    try:
        future = _pool(interpret).submit(function, *args)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    try:
        return future.result()
    except BrokenProcessPool as error:
        _pool.cache_clear()
        raise RuntimeError("the child process that ran this kernel died; run the cell again") from error
