"""What a sandbox does: answers requests, one after the other, until the grader closes its end.

One process runs the cells of one learner for one exercise and then calls the answer that they define. Another, in which
no learner's code has run, carries out what a driver has been recorded to ask for. Whatever is returned is plain data.
"""

from __future__ import annotations

import importlib
import math
import resource
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from helpers import check, traffic, xray
from helpers.check import calling, place, trial
from helpers.check.trial import Trial
from helpers.engine import isolate, kernel_text
from helpers.engine.runtime import INTERPRETED
from helpers.instructor.sandbox import cells, language, replay, transcript, trials, wire
from helpers.xray import verdict
from helpers.xray.compile import compile_kernel

CELLS_CPU_S = 30
"""Seconds of processor time that the cells of an exercise may take."""
CALL_LIMITS = isolate.Limits(wall_s=60, together_s=150)
"""Of calls: more time on the clock than in a notebook, because a machine that grades is busy."""

_notebook: dict[str, Any] = {}
"""The names that the cells have defined, where cells have run."""


def warm_up() -> None:
    """Does once, in the zygote, what every sandbox would begin with."""
    torch.set_num_threads(1)
    InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    if INTERPRETED:
        traffic.self_test()
    else:
        with suppress(Exception):  # where nothing compiles, each kernel is told why
            verdict.compile_first()


def serve(messages: socket.socket) -> None:
    """Answers requests until there are no more."""
    with xray.compiled_by(partial(_by_the_grader, messages)):
        while True:
            try:
                request = wire.receive(messages, trusted=True)
            except EOFError:
                return
            try:
                answer = {"answer": _DO[request.pop("do")](**request)}
            except BaseException as error:
                answer = {"failed": trial.sentence(error)}
            wire.send(messages, answer)


def _by_the_grader(messages: socket.socket, request: xray.CompileRequest) -> dict[str, Any]:
    """The compiler inside a sandbox: the grader has the kernel compiled, once for all."""
    wire.send(messages, {"compile": request.plain()})
    answer = wire.receive(messages, trusted=True)
    if "failed" in answer:
        raise ValueError(answer["failed"])
    return answer["figures"]


def _try_out() -> None:
    """Raises RuntimeError unless a cell can do here what those of lessons do, and what it defines can be called."""
    imports = "import sched, tabnanny\nfrom helpers import check, kernels\n"
    cell = imports + "def answer():\n    return open('tried', 'w').write('1')"
    made = _define([cell], "answer", every_cell=True)
    if made["failed"] or "function" not in made:
        raise RuntimeError(f"a cell that only imports fails: {made['failed']}")
    (tried,) = _answers("answer", [()], None)
    if tried["answer"] != 1:
        raise RuntimeError(f"a function that writes a file fails: {tried['raised']} {tried['printed'][-500:]}")


def _compile(request: dict[str, Any]) -> dict[str, Any]:
    """The figures of a kernel, by its text, or why it does not compile."""
    asked = xray.CompileRequest.of(request)
    language.require(asked.text)
    try:
        figures = compile_kernel(asked)
    except ValueError as error:
        return {"failed": str(error)}
    return {"figures": figures}


def _judge(tasks: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The compiler's answers to the tasks of a verdict."""
    for task in tasks:
        language.require(task["text"])
    return [dict(told) for told in verdict.judge_each(tasks)]


def _read(content: bytes) -> list[dict[str, Any]]:
    return cells.read_cells(content)


def _define(sources: list[str], answer: str, every_cell: bool) -> dict[str, Any]:
    """Runs cells, and says what `answer` then is; `failed` has the errors of cells, which stop nothing."""
    chosen = range(len(sources)) if every_cell else cells.needed(sources, answer)
    shell = InteractiveShell.instance()
    if "" not in sys.path:
        sys.path.insert(0, "")  # for modules that a cell writes
    failed = []
    most, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(most, math.ceil(time.process_time()) + CELLS_CPU_S), hard))
    for index in chosen:
        result = shell.run_cell(cells.untimed(sources[index]), store_history=False, silent=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            failed.append((type(error).__name__, trial.sentence(error)))
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
    _notebook.update(shell.user_ns)
    found = {"cells": len(chosen), "failed": failed, "defined": answer in _notebook}
    value = _notebook.get(answer)
    module = str(getattr(value, "__module__", ""))
    if not _is_kernel(value) and callable(value):
        return {**found, "function": str(getattr(value, "__name__", "function")), "module": module}
    return {**found, "value": _plain(value)}


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "fn") and hasattr(value, "arg_names")


def _plain(value: Any) -> Any:
    """`value` with kernels as their text."""
    if _is_kernel(value):
        return wire.Kernel(kernel_text.source(value), value.fn.__name__)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value) if type(value) in (list, tuple) else list(map(_plain, value))
    return trial.number(value)


def _each(try_one: Callable[[Any], Trial], inputs: list[Any]) -> list[dict[str, Any]]:
    return [one.plain() for one in place.try_each(try_one, inputs, CALL_LIMITS)]


def _answers(answer: str, given: list[tuple], through: str | None) -> list[dict[str, Any]]:
    """The trials of a function of plain values, or of what a function of helpers does with it."""
    fn = _notebook[answer]
    if through is not None:
        module, _, name = through.partition(":")
        fn = partial(getattr(importlib.import_module(module), name), fn)
    return _each(partial(trial.of_numbers, fn), given)


def _softmaxes(answer: str, inputs: list[torch.Tensor], blocks: list[int | None]) -> list[dict[str, Any]]:
    """The trials of a function of a matrix, on these matrices, each with its BLOCK."""

    def called(given: tuple[torch.Tensor, int | None]) -> Trial:
        x, BLOCK = given
        return calling.of_softmax(_notebook[answer], x, BLOCK=BLOCK)

    return _each(called, list(zip(inputs, blocks, strict=True)))


def _plans(answer: str, layouts: list[list[Any]], blocks: list[int | None]) -> list[dict[str, Any]]:
    """What a driver asks for, for a matrix of each layout, with its BLOCK."""

    def recorded(given: tuple[torch.Tensor, int | None]) -> dict[str, Any]:
        return transcript.transcript(_notebook[answer], *given)

    decoys = [replay.decoy(*layout) for layout in layouts]
    found = isolate.call_each(recorded, list(zip(decoys, blocks, strict=True)), CALL_LIMITS)
    return [{**(one.value or Trial(one.end, one.said).plain()), "printed": one.printed} for one in found]


def _replays(plans: list[dict[str, Any]], inputs: list[torch.Tensor]) -> list[dict[str, Any]]:
    """The trials of recorded drivers, each on its matrix."""

    def replayed(given: tuple[dict[str, Any], torch.Tensor]) -> Trial:
        plan, x = given
        if "steps" not in plan:
            return trials.failure(plan)
        recording = replay.Recording(plan)
        one = calling.of_softmax(recording, x, again=recording.again)
        one.device_forgotten = bool(plan.get("device_forgotten"))
        return one

    return _each(replayed, list(zip(plans, inputs, strict=True)))


def _checked(name: str, answer: Any) -> dict[str, Any]:
    """The report of a check on an answer that holds kernels: their text is all of it that is code."""
    report = check.report_on(name, _with_kernels(answer))
    findings = [[f.case, f.ok, f.seen] for f in report.findings]
    return {
        "attempted": report.attempted, "findings": findings, "kept": report.kept, "max_points": report.max_points,
        "diagnosis": report.diagnosis and report.diagnosis.plain(),
    }  # fmt: skip


def _with_kernels(value: Any) -> Any:
    if isinstance(value, wire.Kernel):
        return language.load_checked(value.text, value.name)
    if isinstance(value, dict):
        return {key: _with_kernels(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_with_kernels, value))
    return value


_DO: dict[str, Callable[..., Any]] = {
    "try out": _try_out,
    "read": _read,
    "define": _define,
    "answers": _answers,
    "softmaxes": _softmaxes,
    "plans": _plans,
    "replay": _replays,
    "check": _checked,
    "compile": _compile,
    "judge": _judge,
}
