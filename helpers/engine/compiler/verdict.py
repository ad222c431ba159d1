"""Asks a compiler for real GPUs whether it takes the launches of an answer.

`launch_of` describes a launch at the moment when it is seen, as plain data that any process can be sent. The
interpreter has already asked the compiler's front end before the launch (engine/frontend.py). Here each kernel is
compiled to machine code for every target, once for each choice of dtypes and options, with the largest tile that was
launched, of LARGEST_TILE numbers at most: a smaller tile needs no more shared memory or registers. One compilation
takes from 120 ms to 4 s.
"""

from __future__ import annotations

import hashlib
import math
import re
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from helpers.engine import isolate, kernel_text
from helpers.engine.compiler import store
from helpers.engine.compiler.compile import DoesNotFit, Load, compiled_whole
from helpers.engine.compiler.refusal import Refusal, compilers_fault, why, why_printed
from helpers.engine.compiler.request import CannotAsk, CompileRequest, request_of_launch
from helpers.engine.isolate import OF_PROCESSOR_TIME, End
from helpers.gpu.architectures import ARCHITECTURES

VERDICT_TARGETS = (next(iter(ARCHITECTURES)), "sm_90")
"""The oldest GPUs that Triton compiles for, and the H200 of the record."""

LARGEST_TILE = 65_536
"""Numbers of the largest tile that is compiled, if a smaller one was launched too. Twice the tile takes 12 s."""

COMPILER_LIMITS = isolate.Limits(cpu_s=30, waits_s=240, memory=4 << 30, printed=1_000_000, together_s=120)
"""The compiler's limits, for one launch and for all launches.

A compiler that exceeds its processor time gives up. If it waits for longer than `waits_s`, this machine has failed.
"""

SeenLaunch = Mapping[str, Any]
"""{"asks": a CompileRequest's fields}, {"refused": …, "kernel": …} or {"unknown": …}. The last two may also have the
"text" of the kernel and its "name".
"""

Told = Mapping[str, str]
"""The answer to one task: {"reason": …, "meaning": …}, both empty if the compiler took it; {"reason": …, "fits": "no"}
if its GPU lacks the shared memory; {"unknown": …} if the compiler has no answer to this kernel; {"busy": …} if this
machine has failed.
"""

Judge = Callable[[list[dict[str, Any]]], Sequence[Told]]
"""Answers tasks as `judge_each` does, in a process that can compile."""


@dataclass(frozen=True)
class Verdict:
    """What the compiler says about all launches together: what it refused, or why it could not be asked.

    `busy` says what this machine has failed at: at another time it may compile the same launches. `too_large` are
    kernels that some GPUs have too little shared memory for, and others enough.
    """

    refusals: tuple[Refusal, ...] = ()
    unknown: str = ""
    busy: str = ""
    too_large: tuple[Refusal, ...] = ()

    @property
    def missing(self) -> str:
        """A sentence if something was not compiled; otherwise empty."""
        if self.unknown:
            return f"Not compiled here: {self.unknown}"
        return f"Not compiled here: {self.busy}. This machine was busy: run the check again." if self.busy else ""


def launch_of(kernel: Any, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Describes what kernel[grid](*args, **kwargs) would compile, or why nothing could be compiled."""
    try:
        return {"asks": request_of_launch(kernel, args, kwargs, VERDICT_TARGETS[0]).plain()}
    except (CannotAsk, kernel_text.SourceLost) as error:
        return {"unknown": str(error), **_text_of(kernel)}
    except (TypeError, ValueError) as error:
        return {"refused": str(error), "kernel": kernel.fn.__name__}
    except Exception as error:  # such as a Triton without its compiler, or another one than is known here
        return {"unknown": str(error), **_text_of(kernel)}


def _text_of(kernel: Any) -> dict[str, str]:
    """The text of a kernel that cannot be compiled, if it is known: a judge reads it."""
    try:
        return {"text": kernel_text.source(kernel), "name": kernel.fn.__name__}
    except Exception:  # the launch is unknown already
        return {}


def verdict_on(launches: Iterable[SeenLaunch], judge: Judge) -> Verdict:
    """The compiler's verdict on these launches; `judge` is asked about launches without a known verdict.

    Raises ValueError for launches that `launch_of` has not made.
    """
    try:
        requests = list(dict.fromkeys(CompileRequest.of(one["asks"]) for one in launches if "asks" in one))
        refused = [Refusal(str(one["kernel"]), "", str(one["refused"])) for one in launches if "refused" in one]
        unknown = [str(one["unknown"]) for one in launches if "unknown" in one]
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a launch: {error!r}") from None
    tasks = _tasks(requests)
    told = _told(tasks, judge) if tasks else []
    busy, too_large = "", []
    taken = {replace(one, target="") for one, answer in zip(tasks, told, strict=True) if answer.get("reason") == ""}
    for request, answer in zip(tasks, told, strict=True):
        if answer.get("reason"):
            fits_others = answer.get("fits") == "no" and replace(request, target="") in taken
            found = Refusal(request.name, request.target, answer["reason"], answer.get("meaning", ""))
            (too_large if fits_others else refused).append(found)
        elif answer.get("unknown"):
            unknown.append(f"{request.name} for {request.target}: {answer['unknown']}")
        busy = busy or answer.get("busy", "")
    return Verdict(tuple(dict.fromkeys(refused)), next(iter(unknown), ""), busy, tuple(dict.fromkeys(too_large)))


def _tasks(requests: Sequence[CompileRequest]) -> list[CompileRequest]:
    """The request that says most for each kernel and choice of dtypes and options, for every target."""
    largest: dict[Any, CompileRequest] = {}
    for request in requests:
        kinds = tuple(kind for _, kind in request.signature if not isinstance(kind, str) or kind[:1] == "*")
        group = request.text, request.name, kinds, request.num_warps, request.num_stages, request.options
        if group not in largest or _says(request) > _says(largest[group]):
            largest[group] = request
    return [replace(request, target=target) for request in largest.values() for target in VERDICT_TARGETS]


def _says(request: CompileRequest) -> tuple[bool, int]:
    """Grows with what it says of smaller tiles: with its numbers up to LARGEST_TILE, and with smaller ones beyond.

    A tile is taken to have the two largest sizes, which are powers of two: a kernel of attention has three, and none of
    its tiles has all of them.
    """
    numbers = [value for _, value in request.constants if type(value) is int and value > 0]
    sizes = sorted(value for value in numbers if value.bit_count() == 1)
    says = math.prod(numbers)
    return (True, says) if math.prod(sizes[-2:]) <= LARGEST_TILE else (False, -says)


def _told(tasks: Sequence[CompileRequest], judge: Judge) -> list[Told]:
    """The answers to these tasks from memory or disk, if they are known."""
    keys = [f"{request.key}-answer" for request in tasks]
    together = hashlib.sha256("".join(sorted(keys)).encode()).hexdigest()
    known = store.known_answers(together, keys)
    open_ = [number for number, key in enumerate(keys) if key not in known]
    if open_:
        asked_for = [tasks[n].plain() for n in open_]
        answers = dict(zip([keys[n] for n in open_], judge(asked_for), strict=True))
        store.keep_answers(together, {k: dict(v) for k, v in answers.items() if "reason" in v} | known)
        known = known | answers
    return [known[key] for key in keys]


# What the process does that compiles


def judge_each(tasks: list[dict[str, Any]], load: Load = kernel_text.load) -> list[Told]:
    """The answer to each task, from forked children, one for each processor; `load` makes the kernels."""
    found = isolate.call_each(partial(_judge, load), tasks, COMPILER_LIMITS)
    told = [told_by(task, outcome) for task, outcome in zip(tasks, found, strict=True)]
    ended = [one for one, outcome in zip(told, found, strict=True) if outcome.end is End.OUT_OF_TIME]
    if not ended:
        return told
    why_not = min(
        ended, key=lambda one: "busy" in one
    )  # the rest has not been asked; a kernel counts before the machine
    asked = [outcome.end is not End.NOT_RUN and "busy" not in one for one, outcome in zip(told, found, strict=True)]
    return [one if was_asked else why_not for one, was_asked in zip(told, asked, strict=True)]


def _judge(load: Load, task: dict[str, Any]) -> dict[str, Any]:
    request = CompileRequest.of(task)
    try:
        compiled_whole(request, load)
    except DoesNotFit as error:
        return {"reason": str(error), "meaning": "", "fits": "no"}
    except Exception as error:
        if without := without_answer(error):
            return without
        reason, meaning = why(error, request.text)
        return {"reason": reason, "meaning": meaning}
    return {"reason": "", "meaning": ""}


OF_A_PROCESSOR = " s of a processor"

_OUT_OF_TIME = re.compile(rf"failed with error code -{signal.SIGXCPU:d}\b")
_TOO_LARGE = re.compile(r"failed with error code -\d+|Cannot allocate memory|Out of memory")
"""What the compiler, whose processes have limits of their own, says of a kernel that is too much for it."""
_FAILED = re.compile(rf"failed with error code -{signal.SIGKILL:d}\b|No space left on device")


def without_answer(error: BaseException | None) -> dict[str, str]:
    """Why the compiler has no answer: this machine has failed, or the kernel is too much; empty if it has one."""
    while error is not None:
        said = f"the compiler could not work: {type(error).__name__}: {error}"[:300]
        if _FAILED.search(str(error)) or isinstance(error, OSError):
            return {"busy": said}
        if _OUT_OF_TIME.search(str(error)):
            return {"unknown": f"the assembler did not come to an end within {COMPILER_LIMITS.cpu_s}{OF_A_PROCESSOR}"}
        if _TOO_LARGE.search(str(error)) or isinstance(error, MemoryError):
            return {"unknown": said}
        error = error.__cause__
    return {}


def told_by(task: Mapping[str, Any], outcome: isolate.Outcome) -> Told:
    """The answer to a task, by the end of the process that was to find it."""
    used_up = outcome.said.endswith(OF_PROCESSOR_TIME)
    if outcome.end is End.OUT_OF_TIME and not used_up:
        return {"busy": f"the compiler did not answer: {outcome.said}"}
    if outcome.end is not End.RETURNED:
        return {"unknown": f"the compiler did not answer: {outcome.said}"}
    if "reason" not in outcome.value:
        return outcome.value
    if outcome.value["reason"] and not outcome.value["meaning"]:
        if fault := compilers_fault(task["text"], outcome.printed):
            return {"unknown": fault}
        reason, meaning = why_printed(task["text"], outcome.printed)
        return outcome.value | {"reason": reason or outcome.value["reason"], "meaning": meaning}
    return outcome.value


def compile_first() -> None:
    """Compiles a first kernel, so that the children which `judge_each` forks find everything loaded."""
    request = CompileRequest(_FIRST, "first", (("y_ptr", "*fp32"),), (), (0,), "sm_90", 4, None)
    compiled_whole(request)


def launch_first(device: torch.device | str) -> None:
    """Runs the first kernel on the GPU `device`, for which Triton builds a launcher and CUDA makes a context."""
    kernel_text.load(_FIRST, "first")[(1,)](torch.zeros(256, device=device))
    torch.cuda.synchronize()


_FIRST = """import triton
import triton.language as tl
@triton.jit
def first(y_ptr):
    cols = tl.arange(0, 256)
    x = tl.load(y_ptr + cols, mask=cols < 200, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + cols, e / tl.sum(e, axis=0), mask=cols < 200)
"""
