"""The warm processes that sandboxes are forked from, kept for as long as a run of grading lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from helpers import xray
from helpers.instructor.sandbox import lent
from helpers.instructor.sandbox.client import Ended, NoSandbox, Sandbox, Zygote
from helpers.xray import verdict

COMPILING_S = 30
"""Seconds that the compiler may take for one kernel."""


class Workshop:
    """Two warm processes: from one come sandboxes that interpret kernels, from the other those that compile them."""

    def __init__(self) -> None:
        torch.set_num_threads(1)  # several graders share the processors
        self.interpreting = Zygote(interpret=True)
        self.kind = self.interpreting.kind
        self._compiling: Zygote | None = None

    def sandbox(self, given: lent.Lent | None = lent.NOTHING) -> Sandbox:
        """A new process to run one learner's code in, with what of the course is `given` to it, or without that code.

        Without it: to carry out what it asks of the GPU, or, with the whole course (None), to judge it.
        """
        return Sandbox(self.interpreting, compile=self._answer, given=given)

    def compiling(self) -> Zygote:
        """The process that sandboxes which compile are forked from, started where it is first asked for."""
        if self._compiling is None:
            self._compiling = Zygote(interpret=False)
        return self._compiling

    def compiled(self, request: xray.CompileRequest) -> dict[str, Any]:
        """The figures of a kernel, compiled in a sandbox: an xray.Compiler. Raises ValueError."""
        try:
            with Sandbox(self.compiling()) as sandbox:
                answer = sandbox.ask({"do": "compile", "request": request.plain()}, COMPILING_S)
        except Ended as error:
            raise ValueError(str(error)) from None
        if "figures" not in answer:
            raise ValueError(str(answer.get("failed")))
        return answer["figures"]

    def judged(self, tasks: list[dict[str, Any]]) -> Sequence[verdict.Told]:
        """What the compiler says of the launches of an answer, asked in a sandbox: a verdict.Judge."""
        try:
            with Sandbox(self.compiling()) as sandbox:
                told = sandbox.ask({"do": "judge", "tasks": tasks}, 2 * verdict.COMPILER_LIMITS.together_s)
            return [{str(name): str(said) for name, said in one.items()} for one in told]
        except (Ended, NoSandbox, AttributeError, TypeError) as error:
            return [{"unknown": f"the compiler did not answer: {error}"}] * len(tasks)

    def _answer(self, sent: dict[str, Any]) -> dict[str, Any]:
        """What a sandbox that asks for a kernel is told: {"figures": …} or {"failed": …}."""
        try:
            with xray.compiled_by(self.compiled):
                figures = asdict(xray.answer(xray.CompileRequest.of(sent)))
        except (TypeError, ValueError, KeyError) as error:
            return {"failed": str(error)}
        return {"figures": {name: value for name, value in figures.items() if name not in ("target", "num_warps")}}

    def close(self) -> None:
        """Ends both, and every sandbox that came from them."""
        self.interpreting.close()
        if self._compiling is not None:
            self._compiling.close()
