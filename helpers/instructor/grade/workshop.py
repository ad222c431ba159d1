"""The warm processes that sandboxes are forked from, kept for as long as a run of grading lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from helpers import xray
from helpers.engine.compiler import verdict
from helpers.engine.isolate import End
from helpers.instructor.sandbox import lent, requests, walls
from helpers.instructor.sandbox.client import Budget, Ended, NoSandbox, Sandbox, Zygote

COMPILING_CPU_S = 60
"""Seconds of processor time that the compiler may take for one kernel; an honest one takes 8."""
COMPILING_S = 300
"""Seconds on the clock after which this machine is too busy to compile: no fault of the kernel's."""


class Workshop:
    """Two warm processes: from one come sandboxes that interpret kernels, from the other sandboxes that compile them.

    `budget` is what the submission in progress has used, and `failures` what this machine has failed at meanwhile.
    Raises NoSandbox where no walls of these kinds hold.
    """

    def __init__(self, kinds: Sequence[str] = walls.ENOUGH) -> None:
        torch.set_num_threads(1)  # several graders share the processors
        self.interpreting = Zygote(interpret=True, kinds=kinds)
        self.kind = self.interpreting.kind
        self._compiling: list[Zygote] = []
        self.compiling_s = COMPILING_S
        self.budget = Budget()
        self.failures: list[str] = []

    def for_submission(self) -> Workshop:
        """The same processes, with a budget of its own."""
        found = copy(self)
        found.budget, found.failures = Budget(), []
        return found

    def sandbox(
        self, given: lent.Lent | None = lent.NOTHING, devices: Sequence[Path] = (), of_rank: bool = False
    ) -> Sandbox:
        """A new process to run one learner's code in, with what of the course is `given` to it, or without that code.

        Without it: to carry out what it asks of the GPU, or, with the whole course (None), to judge it. Raises
        NoSandbox where this machine makes none; that is written down.
        """
        with self._written_down():
            zygote = self.compiling() if devices else self.interpreting
            asked = {"given": given, "devices": devices, "of_rank": of_rank}
            return Sandbox(zygote, compile=self._answer, budget=self.budget, failed=self.failures.append, **asked)

    def compiling(self) -> Zygote:
        """The process that sandboxes which compile are forked from, started where it is first asked for."""
        if not self._compiling:
            self._compiling.append(Zygote(interpret=False, kinds=(self.kind,)))
        return self._compiling[0]

    @contextmanager
    def _written_down(self) -> Iterator[None]:
        try:
            yield
        except NoSandbox as error:
            self.failures.append(str(error))
            raise

    def compiled(self, request: xray.CompileRequest) -> dict[str, Any]:
        """The figures of a kernel, compiled in a sandbox: an xray.Compiler. Raises ValueError, or NoSandbox."""
        try:
            answer = self._in_compiler({"do": "compile", "request": request.plain()}, COMPILING_CPU_S)
        except Ended as error:
            raise ValueError(str(error)) from None
        if "figures" not in answer:
            raise ValueError(str(answer.get("failed")))
        return answer["figures"]

    def _in_compiler(self, request: dict[str, Any], processor_s: float) -> Any:
        """Raises Ended where the kernel takes too long, and NoSandbox where this machine does."""
        seconds = self.compiling_s
        budget = Budget(seconds, processor_s, least_waiting_s=0, least_processor_s=0)
        with self._written_down(), Sandbox(self.compiling(), budget=budget) as sandbox:
            try:
                return sandbox.ask(request, seconds)
            except Ended as error:
                if error.end is End.OUT_OF_TIME and budget.wall_s >= seconds:
                    raise NoSandbox(f"the compiler took more than {seconds:g} seconds on this machine") from None
                raise

    def judged(self, tasks: list[dict[str, Any]]) -> Sequence[verdict.Told]:
        """What the compiler says of the launches of an answer, asked in a sandbox: a verdict.Judge.

        Raises NoSandbox where this machine was too busy to say.
        """
        try:
            told = self._in_compiler({"do": "judge", "tasks": tasks}, verdict.COMPILER_LIMITS.together_s)
            told = [{str(name): str(said) for name, said in one.items()} for one in told]
            with self._written_down():
                if busy := next((one["busy"] for one in told if "busy" in one), ""):
                    raise NoSandbox(busy)
            return told
        except (Ended, AttributeError, TypeError) as error:
            return [{"unknown": f"the compiler did not answer: {error}"}] * len(tasks)

    def _answer(self, sent: dict[str, Any]) -> dict[str, Any]:
        """What a sandbox that asks for a kernel is told: {"figures": …} or {"failed": …}."""
        try:
            with xray.compiled_by(self.compiled):
                figures = asdict(xray.answer(requests.request_from(sent)))
        except (TypeError, ValueError, KeyError) as error:
            return {"failed": str(error)}
        return {"figures": {name: value for name, value in figures.items() if name not in ("target", "num_warps")}}

    def close(self) -> None:
        """Ends both, and every sandbox that came from them."""
        self.interpreting.close()
        for zygote in self._compiling:
            zygote.close()
