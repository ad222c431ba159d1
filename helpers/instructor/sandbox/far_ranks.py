"""A rank whose meeting with the others is the grader's: the learner's end of their messages.

This process has one rank's shard. What it learns of the other shards has come from the grader, in collectives whose
number and bytes the grader has counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.check.trial import ranked
from helpers.instructor.sandbox.callee import Ask, asked
from helpers.ranks.group import joined, leave


class FarWire:
    """A helpers.ranks.group.Wire to the grader: calls are gathered, and sent when this rank waits, or asks."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._calls: list[list[Any]] = []
        self._told: tuple[dict[str, Any], bytes] = {}, b""

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
        """Raises RuntimeError if the ranks cannot go on."""
        if header["do"] == "call":
            self._calls.append([header, bytes(payload)])
        else:
            self._told = self._answer_to(header)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The answer to the last message."""
        return self._told

    def tell(self) -> None:
        """Sends the calls so far."""
        self._answer_to({"do": "hear"})

    def _answer_to(self, header: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        calls, self._calls = self._calls, []
        header, payload = asked(self._ask, header, events=calls)
        return header, payload


def called_as_rank(
    answer: Callable[..., Any], given: list[Any], rank: int, world: int, groups: int, ask: Ask
) -> list[Any]:
    """What the answer returns as a rank, as ranked.called_on_rank has it; raises what the answer raises."""
    wire = FarWire(ask)
    group = joined(wire, rank, world, "", "")
    try:
        found = ranked.called_on_rank(answer, given, ranked.own_group(group, groups))
        wire.tell()
        return found
    finally:
        leave()
