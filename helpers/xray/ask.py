"""What a notebook calls: an answer at once, an answer later, or an answer only if there is one already."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import Any

from helpers.engine import child
from helpers.xray import kept
from helpers.xray.compile import compile_kernel
from helpers.xray.figures import Report
from helpers.xray.question import Question, question_of


def report(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> Report:
    """Compiles `kernel` as a launch with these arguments would, for `target`, and returns what came of it.

    Tensors give dtype and alignment only; nothing runs and no GPU is needed. `target` defaults to the GPU that kernels
    run on, and to sm_90 where there is none. Reports are kept in memory and on disk, in a folder `xray` below Triton's
    own cache, so that the same question is compiled once.

    Raises TypeError for arguments that the kernel does not take or lacks, or that no launch can have; ValueError for a
    target not among TARGETS, for a num_warps or num_stages that no launch can have, for a kernel whose source cannot be
    found, and, with the compiler's reason, for one that does not compile or needs more shared memory than there is;
    RuntimeError where the process that compiles died.
    """
    return _answer(question_of(kernel, args, kwargs, target, num_warps, num_stages))


def submit(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> Future[Report]:
    """Asks for what `report` returns, without waiting: the result of the Future, or the exception that it raises.

    Arguments that are wrong in themselves are refused here, as `report` refuses them. Questions are answered one at a
    time; `cancel` withdraws one whose turn has not come.
    """
    question = question_of(kernel, args, kwargs, target, num_warps, num_stages)
    future: Future[Report] = Future()
    threading.Thread(target=_settle, args=(future, question), daemon=True).start()
    return future


def cached(
    kernel: Any,
    *args: Any,
    target: str | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
    **kwargs: Any,
) -> Report | None:
    """What `report` returns if it is in memory or on disk, and None if it would have to be compiled."""
    question = question_of(kernel, args, kwargs, target, num_warps, num_stages)
    return kept.known(kept.key_of(question, kept.source_of(kernel)))


def _answer(question: Question) -> Report:
    text = kept.source_of(question.kernel)
    key = kept.key_of(question, text)
    return kept.known(key) or kept.keep(key, _compiled(question, text))


_turn = threading.Lock()


def _settle(future: Future[Report], question: Question) -> None:
    with _turn:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(_answer_at_last(question))
            except BaseException as error:
                future.set_exception(error)


def _answer_at_last(question: Question) -> Report:
    """Asks again, once, where a call of another thread timed out and took the child with it."""
    try:
        return _answer(question)
    except (RuntimeError, CancelledError):
        return _answer(question)


def _compiled(question: Question, text: str) -> Report:
    name, *rest = question.kernel.fn.__name__, *question[1:]
    try:
        figures = child.call(compile_kernel, text, name, *rest, interpret=False)
    except ValueError as error:
        raise ValueError(str(error)) from None
    return Report(question.target, question.num_warps, **figures)
