"""Child processes for Triton's other mode: interpreted beside a GPU, compiling beside the interpreter."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any


def _follow_parent() -> None:
    """Leaves Ctrl-C to the parent, and ends when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


_pools: dict[bool, ProcessPoolExecutor] = {}
_starting = threading.Lock()


def _pool(interpret: bool) -> ProcessPoolExecutor:
    if interpret not in _pools:
        context = multiprocessing.get_context("spawn")
        _pools[interpret] = ProcessPoolExecutor(1, context, initializer=_follow_parent)
    return _pools[interpret]


def call(function: Callable[..., Any], *args: Any, interpret: bool, timeout: float | None = None) -> Any:
    """Returns `function(*args)` as computed in a child process, which stays alive for the next call.

    `function` is a top-level function of a module. With `interpret` the child sees no GPU and runs kernels in Triton's
    interpreter; without, it can compile kernels for any target, and run them on a GPU. What `function` raises is raised
    here; RuntimeError where the child died, and TimeoutError after `timeout` seconds. Time out and Ctrl-C end the
    child.
    """
    future = _submit(function, *args, interpret=interpret)
    try:
        return future.result(timeout)
    except BrokenProcessPool as error:
        _pools.pop(interpret, None)
        raise RuntimeError("the child process that ran this kernel died; run the cell again") from error
    except (TimeoutError, KeyboardInterrupt):
        end(interpret)
        raise


def prepare(function: Callable[..., Any], *args: Any, interpret: bool) -> None:
    """Starts the child and has it make a first call, without waiting for either."""
    _submit(function, *args, interpret=interpret)


def _submit(function: Callable[..., Any], *args: Any, interpret: bool) -> Future:
    setting = {"TRITON_INTERPRET": "1" if interpret else "0"}
    if interpret:
        setting["CUDA_VISIBLE_DEVICES"] = ""
    # A child inherits what putenv sets, and os.environ, which Triton reads in this process, keeps what it has.
    with _starting:
        for name, value in setting.items():
            os.putenv(name, value)
        try:
            return _pool(interpret).submit(function, *args)
        finally:
            for name in setting:
                os.putenv(name, os.environ[name]) if name in os.environ else os.unsetenv(name)


def end(interpret: bool) -> None:
    """Ends the child of this mode, whatever it is doing, and waits for its end; the next call starts a new one."""
    pool = _pools.pop(interpret, None)
    processes = list((pool and pool._processes or {}).values())
    for process in processes:
        process.kill()
    if pool:
        pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.join()
