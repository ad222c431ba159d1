"""The calls of a notebook: wait for a report, get it later, or get it only if it is known already."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers.engine import child
from helpers.engine.compiler import store
from helpers.engine.compiler.request import CompileRequest, request_of
from helpers.xray.compile import figures_of
from helpers.xray.figures import KernelReport

Compiler = Callable[[CompileRequest], dict[str, Any]]
"""Returns the figures of a KernelReport; raises ValueError, with the reason, for a kernel that does not compile."""


def in_a_child(request: CompileRequest) -> dict[str, Any]:
    """Compiles in a child process, which stays for the next request. Notebooks and scripts use this compiler."""
    return child.call(figures_of, request, interpret=False)


reports: dict[str, KernelReport] = {}
"""The reports in memory, by key."""

_compiler: ContextVar[Compiler] = ContextVar("compiler", default=in_a_child)


@contextmanager
def compiled_by(compiler: Compiler) -> Iterator[None]:
    """In the block, and in tasks that `submit` starts in it, `compiler` answers requests that have no kept report."""
    before = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(before)


def report(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> KernelReport:
    """Compiles `kernel` as a launch with these arguments would, for `target`, and returns what came of it.

    It takes the launch options num_warps, num_stages, maxnreg, num_ctas and the others of request.LAUNCH_OPTIONS.
    Tensors give only dtype and alignment; nothing runs and no GPU is needed. By default `target` is the GPU that
    kernels run on, or sm_90 if there is none. Reports are kept in memory and on disk, in a folder `xray` below Triton's
    own cache, so that the same request is compiled once.

    Raises TypeError for arguments that the kernel does not take or lacks, or that no launch can have; ValueError for a
    target not among TARGETS, for a num_warps or num_stages that no launch can have, for a kernel whose source cannot be
    found, and, with the compiler's reason, for one that does not compile within 30 s of a processor or needs more
    shared memory than there is;
    RuntimeError if the process that compiles died.
    """
    return answer(request_of(kernel, args, kwargs, target, num_warps, num_stages))


def submit(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> Future[KernelReport]:
    """Asks for what `report` returns, without waiting: the result of the Future, or the exception that it raises.

    Arguments that are wrong in themselves are refused here, as `report` refuses them. Requests are answered one at a
    time; `cancel` withdraws one whose turn has not come.
    """
    request = request_of(kernel, args, kwargs, target, num_warps, num_stages)
    future: Future[KernelReport] = Future()
    threading.Thread(target=copy_context().run, args=(_settle, future, request), daemon=True).start()
    return future


def cached(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> KernelReport | None:
    """What `report` returns if it is in memory or on disk, and None if it would have to be compiled."""
    return _known(request_of(kernel, args, kwargs, target, num_warps, num_stages).key)


def answer(request: CompileRequest) -> KernelReport:
    """The report on a request, kept or compiled. Raises what the compiler raises."""
    key = request.key
    known = _known(key)
    if known is None:
        try:
            figures = _compiler.get()(request)
        except ValueError as error:
            raise ValueError(str(error)) from None  # without the traceback of another process
        known = KernelReport(request.target, request.num_warps, **figures)
        store.keep_in_memory(reports, key, known)
        store.keep_on_disk(key, asdict(known))
    return known


def _known(key: str) -> KernelReport | None:
    """The report of this key, from memory or from disk."""
    if key not in reports and (report := _read(store.file_of(key))):
        store.keep_in_memory(reports, key, report)
    return reports.get(key)


def _read(path: Path) -> KernelReport | None:
    """The report in a file, or None if there is no file or the file is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for name in ("loads", "stores"):
            data[name] = data[name] and {int(bits): int(number) for bits, number in data[name].items()}
        report = KernelReport(**data)
        report.table()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return report


_turn = threading.Lock()


def _settle(future: Future[KernelReport], request: CompileRequest) -> None:
    with _turn:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(_answer_at_last(request))
            except BaseException as error:
                future.set_exception(error)


def _answer_at_last(request: CompileRequest) -> KernelReport:
    """Asks once more if a call of another thread timed out and ended the child."""
    try:
        return answer(request)
    except (RuntimeError, CancelledError):
        return answer(request)
