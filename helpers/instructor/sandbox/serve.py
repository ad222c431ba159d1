"""What a sandbox does: answers requests, one after the other, until the grader closes its end.

One process runs the cells of one learner for one exercise and then calls the answer that they define. Another, in which
no learner's code has run, carries out what a driver has been recorded to ask for. Whatever is returned is plain data.
"""

from __future__ import annotations

import importlib
import io
import math
import os
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial
from typing import Any

import torch
from traitlets.config import Config

from helpers import traffic
from helpers.check.problems import misled
from helpers.check.problems.problem import Problem
from helpers.check.trial import call, place, ranked, trial
from helpers.check.trial.starter import instructions_of
from helpers.check.trial.trial import Trial
from helpers.engine import interpreter, isolate, kernel_text
from helpers.engine.compiler import verdict
from helpers.engine.compiler.request import CompileRequest
from helpers.engine.runtime import INTERPRETED
from helpers.instructor.sandbox import (
    callee,
    cells,
    cuda,
    far_gpu,
    far_ranks,
    language,
    lent,
    replay,
    requests,
    transcript,
    trials,
    wire,
)
from helpers.instructor.sandbox.shell import CellShell
from helpers.xray.ask import compiled_by
from helpers.xray.compile import compile_kernel

CELLS_CPU_S = 30
"""Seconds of processor time that the cells of an exercise may take."""
_MOST_FAILURES = 50
"""Statements of which it is said that they could not be run."""

_notebook: dict[str, Any] = {}
"""The names that the cells have defined, where cells have run."""
_given: list[Any] = []
"""What the answer was last given as a rank."""


def warm_up() -> None:
    """Does once, in the zygote, what every sandbox would begin with."""
    torch.set_num_threads(1)
    CellShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    if INTERPRETED:
        traffic.self_test()
    else:
        with suppress(Exception):  # where nothing compiles, each kernel is told why
            verdict.compile_first()


def serve(messages: socket.socket) -> None:
    """Answers requests until there are no more."""
    with compiled_by(partial(_by_the_grader, messages)):
        while True:
            try:
                request = wire.receive(messages, trusted=True)
            except EOFError:
                return
            wire.send(messages, _done(messages, request))


def _done(messages: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    try:
        asked = {"ask": partial(_of_the_grader, messages)} if request["do"] in _ASKING else {}
        return {"answer": _DO[request.pop("do")](**request, **asked)}
    except BaseException as error:
        return {"failed": trial.sentence(error)}


def _by_the_grader(messages: socket.socket, request: CompileRequest) -> dict[str, Any]:
    """The compiler inside a sandbox: the grader has the kernel compiled, once for all."""
    wire.send(messages, {"compile": request.plain()})
    answer = wire.receive(messages, trusted=True)
    if "failed" in answer:
        raise ValueError(answer["failed"])
    return answer["figures"]


def _of_the_grader(messages: socket.socket, question: dict[str, Any]) -> Any:
    """What the grader tells; it may have requests of its own before."""
    wire.send(messages, question)
    while "do" in (told := wire.receive(messages, trusted=True)):
        wire.send(messages, _done(messages, told))
    return told


def _try_out() -> None:
    """Raises RuntimeError unless a cell can do here what lessons' cells do, and what it defines can be called."""
    for name, module in list(sys.modules.items()):
        path = str(getattr(module, "__file__", None))
        try:
            open(path if os.path.isabs(path) else os.devnull).close()
        except OSError as error:
            place = "which is not shown inside, because its folder holds more than packages"
            raise RuntimeError(f"the package {name.partition('.')[0]} lies in {error.filename}, {place}") from None
    imports = "import sched, tabnanny\nfrom helpers import check, kernels\n"
    cell = imports + "def answer():\n    return open('tried', 'w').write('1')"
    made = _define([cell], "answer")
    if made["failed"] or "function" not in made:
        raise RuntimeError(f"a cell that only imports fails: {made['failed']}")
    (tried,) = _answers("answer", [()])
    if tried["answer"] != 1:
        raise RuntimeError(f"a function that writes a file fails: {tried['raised']} {tried['printed'][-500:]}")


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    """The figures of a kernel, by its text, or why it does not compile."""
    try:
        asked = _read_request(request)
        figures = compile_kernel(asked, load=language.load_checked)
    except ValueError as error:
        return {"failed": str(error)}
    return {"figures": figures}


def _judge(tasks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The compiler's answers to the tasks of a verdict."""
    refused = [_refused(task) for task in tasks]
    taken = [task for task, reason in zip(tasks, refused, strict=True) if not reason]
    answers = iter(verdict.judge_each(taken, language.load_checked))
    return [{"reason": reason, "meaning": ""} if reason else dict(next(answers)) for reason in refused]


def _read_request(request: dict[str, Any]) -> CompileRequest:
    """The request, its text read. Raises ValueError."""
    asked = requests.request_from(request)
    language.require(asked.text)
    return asked


def _refused(task: dict[str, Any]) -> str:
    try:
        _read_request(task)
    except ValueError as error:
        return str(error)
    return ""


def _read(content: bytes) -> list[dict[str, Any]]:
    return cells.read_cells(content)


def _define(
    sources: list[str],
    answer: str,
    above: int | None = None,
    every_cell: bool = False,
    gpu: bool = False,
    own: Sequence[int] = (),
) -> dict[str, Any]:
    """Runs all of the first `above` cells, or the ones that `answer` depends on, and says what `answer` then is.

    Without `above` it is all cells. The cells `own` are run too, for they may be meant as an answer.

    `failed` has what could not be run of them, by cell, which has stopped nothing else; `binds` has the names that the
    cells `own` bind, and `below` says whether `answer` depends on a cell further down too. With `gpu` one is pretended.
    """
    shell = CellShell.instance()
    above = len(sources) if above is None else above
    if "" not in sys.path:
        sys.path.insert(0, "")  # for modules that a cell writes
    if gpu:
        shell.ast_transformers.append(cuda.CudaRenamed())
        shell.push({cuda.NAME: cuda.CUDA})
    needed = cells.needed(sources, answer, own)
    chosen = range(above) if every_cell else [index for index in needed if index < above]
    failed = []
    with _processor_limited(CELLS_CPU_S):
        for index in chosen:
            with cuda.PretendedGpu() if gpu else nullcontext():
                failed += [(index, *failure) for failure in shell.run(sources[index])]
    _notebook.update(shell.user_ns)
    found = {
        "failed": failed[:_MOST_FAILURES],
        "defined": answer in _notebook,
        "binds": sorted(set().union(*(cells.bound(sources[index]) for index in own))),
        "below": any(index >= above for index in needed),
    }
    value = _notebook.get(answer)
    module = str(getattr(value, "__module__", ""))
    if callable(value) and not _is_kernel(value) and not isinstance(value, lent.Absent):
        if gpu:
            _notebook[answer] = cuda.beside_gpu(value)
        return {**found, "function": str(getattr(value, "__name__", "function")), "module": module}
    return {**found, "value": _plain(value)}


@contextmanager
def _processor_limited(seconds: float) -> Iterator[None]:
    """The block may take this number of seconds of a processor, or this process ends."""
    most, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(most, math.ceil(time.process_time() + seconds)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _is_kernel(value: Any) -> bool:
    return not isinstance(value, lent.Absent) and hasattr(value, "fn") and hasattr(value, "arg_names")


def _plain(value: Any) -> Any:
    """`value` with kernels as their text."""
    if isinstance(value, lent.Absent):
        return wire.Opaque(repr(value))
    if _is_kernel(value):
        return wire.Kernel(kernel_text.source(value), value.fn.__name__)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value) if type(value) in (list, tuple) else list(map(_plain, value))
    return trial.number(value)


def _each(try_one: Callable[[Any], Trial], inputs: list[Any], in_turn: bool = False) -> list[dict[str, Any]]:
    with lent.answering():
        return [one.plain() for one in place.try_each(try_one, inputs, isolate.LIMITS, in_turn)]


def _answers(answer: str, given: list[tuple]) -> list[dict[str, Any]]:
    """The trials of a function of plain values."""
    return _each(partial(trial.of_numbers, _notebook[answer]), given, in_turn=True)


def _call(answer: str, given: list[Any], functions: list[int], ask: callee.Ask) -> dict[str, Any]:
    """What one call of an answer returned, see callee.call_once; `functions` are the places of those functions."""
    with lent.answering(), _processor_limited(isolate.LIMITS.cpu_s):
        return callee.call_once(_notebook[answer], given, functions, _plain, ask)


def _rank(answer: str, given: list[Any] | None, rank: int, world: int, groups: int, ask: callee.Ask) -> dict[str, Any]:
    """What the answer returned as one of several ranks, or the trial of its error. For None, it has what it had."""
    fn, printed = _notebook[answer], io.StringIO()
    if given is not None:
        _given[:] = given
    with lent.answering(), _processor_limited(ranked.LIMIT_S), redirect_stdout(printed):
        try:
            found, one = far_ranks.called_as_rank(fn, list(_given), rank, world, groups, ask), Trial()
        except BaseException as error:
            found, one = None, trial.failed(error, fn)
    told = {"found": found, "trial": one.plain(), "code": instructions_of(fn)}
    return {**told, "printed": callee.shortened(printed)}


def _of_outcome(one: isolate.Outcome) -> dict[str, Any]:
    return {**(one.value or {"trial": Trial(one.end, one.said).plain()}), "printed": one.printed}


def _benchmark(answer: str, ask: callee.Ask) -> dict[str, Any]:
    """The trial of a benchmark on one simulated GPU, which is the grader's; what it says of it is the answer."""
    gpu, printed = far_gpu.FarGpu(ask), io.StringIO()
    called = partial(misled.called, _notebook[answer], gpu, *gpu.kernels)
    with lent.answering(), redirect_stdout(printed):
        one = trial.of_numbers(called, ())
    gpu.asked("now")  # so that all has arrived
    one.printed = callee.shortened(printed)
    return one.plain()


def _results(answer: str, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a function of tensors returns for each problem, see callee.answered_by."""
    with lent.answering():
        given = [Problem(**one) for one in problems]
        found = isolate.call_each(partial(callee.answered_by, _notebook[answer]), given, isolate.LIMITS)
    return [_of_outcome(one) for one in found]


def _plans(answer: str, problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a driver asks for, problem by problem: in place of a tensor it is given, a problem may have its layout."""

    def recorded(problem: dict[str, Any]) -> dict[str, Any]:
        inputs = tuple(one if isinstance(one, torch.Tensor) else replay.decoy_of(*one) for one in problem["inputs"])
        return transcript.transcript(_notebook[answer], Problem(**{**problem, "inputs": inputs}))

    with lent.answering():
        found = isolate.call_each(recorded, problems, isolate.LIMITS)
    return [{**(one.value or Trial(one.end, one.said).plain()), "printed": one.printed} for one in found]


def _replays(plans: list[dict[str, Any]], problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trials of recorded drivers, each on its problem."""

    def replayed(given: tuple[dict[str, Any], dict[str, Any]]) -> Trial:
        plan, problem = given
        if "steps" not in plan:
            return trials.failure(plan)
        recording = replay.Recording(plan)
        with interpreter.within_tensors():
            return call.of_tensors(recording, Problem(**problem), again=recording.again)

    return _each(replayed, list(zip(plans, problems, strict=True)))


def _speed(plan: dict[str, Any], n_rows: int, n_cols: int, measure: str) -> float:
    """What `measure` says of a recorded driver, in a process in which no learner's code has run."""
    module, _, name = measure.partition(":")
    timer = getattr(importlib.import_module(module), name)
    (row,) = timer({"kernel": partial(replay.carry_out, plan)}, n_rows, n_cols, "fp32")
    return float(row.of_copy)


_DO: dict[str, Callable[..., Any]] = {
    "try out": _try_out,
    "read": _read,
    "define": _define,
    "answers": _answers,
    "call": _call,
    "rank": _rank,
    "benchmark": _benchmark,
    "results": _results,
    "plans": _plans,
    "replay": _replays,
    "compile": _compile,
    "judge": _judge,
    "speed": _speed,
}
_ASKING = {"benchmark", "call", "rank"}
"""What asks the grader back while it is done: its `ask` does."""
