"""A learner's function of ranks: each rank in a sandbox of its own, and their meeting here.

A rank's process has its shard alone. So a right result has come out of messages, and these pass through this process,
which counts them and never looks into them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from helpers.check.trial.ranked import arguments, fault, told_of_ranks
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import NOT_RUN, End
from helpers.instructor.sandbox import trials
from helpers.instructor.sandbox.client import Ended, Sandbox
from helpers.ranks.meeting import Call, Ending, Fault, Meeting, RankError

_RANK_S = 60
"""Seconds of processor time, or of waiting for nobody, after which a rank is given up."""
_MOST_CALLS, _MOST_BYTES = 1_000, 8 << 20
"""Of one rank in one case: its collectives, and what it hands in."""
_WRAPPING = 2 << 10
"""Bytes of a message besides its numbers, at most: what a rank says of its bytes is believed up to here."""
_FAULTS = {End.OUT_OF_TIME: Fault.OUT_OF_TIME, End.PRINTED_TOO_MUCH: Fault.PRINTED}


class Hall:
    """Where the ranks of one case meet: each is heard by a thread of its own."""

    def __init__(self, world: int) -> None:
        self.meeting = Meeting(world)
        self._changed = threading.Condition()
        self._arrived: dict[int, list[bytes]] = {}
        self._bytes = [0] * world
        self._over = False
        self.stopped: RankError | None = None
        """Why the ranks could not go on: known before the ranks that still wait are told to stop."""

    def device_of(self, rank: int) -> Callable[[Any], dict[str, Any]]:
        """What answers the questions of a rank's sandbox, and waits with it."""
        return lambda sent: self._answer(rank, sent)

    def _answer(self, rank: int, sent: Any) -> dict[str, Any]:
        with self._changed:
            try:
                for header, payload in sent["events"]:
                    self._call(rank, header, payload)
                (question,) = sent["question"]
                if question["do"] == "wait":
                    return self._wait(rank, _key(question["key"]), str(question["line"])[:200])
                if question["do"] == "ask":
                    return {"answer": [{"complete": self.meeting.is_complete(_key(question["key"]))}, b""]}
                return {"answer": [{}, b""]}
            except (LookupError, TypeError, ValueError, AttributeError):
                raise Ended("it takes part in collectives in no way that there is") from None

    def _call(self, rank: int, header: dict[str, Any], payload: Any) -> None:
        members = header["members"]
        if not isinstance(payload, bytes) or not isinstance(members, list) or rank not in members:
            raise Ended("it calls a collective in no way that there is")
        if not all(type(one) is int and 0 <= one < self.meeting.world for one in members):
            raise Ended("it calls a collective of ranks that there are not")
        self._bytes[rank] += len(payload)
        if len(self.meeting.made[rank]) >= _MOST_CALLS or self._bytes[rank] > _MOST_BYTES:
            raise Ended(f"it calls more than {_MOST_CALLS:,} collectives, or hands in more than {_MOST_BYTES >> 20} MB")
        says = tuple(str(one)[:200] for one in trials.items_of(header["says"])[:20])
        kind, line = str(header["kind"])[:50], str(header["line"])[:200]
        sent = max(int(header["sent"]), len(payload) - _WRAPPING)
        self.meeting.call(rank, _key(header["key"]), members, Call(kind, says, line, sent, 0, payload))
        self._look()

    def _wait(self, rank: int, key: tuple[str, str, int], line: str) -> dict[str, Any]:
        self.meeting.wait(rank, key, line)
        self._look()
        while rank not in self._arrived:
            if self._over:
                return {"raised": ["RuntimeError", "the ranks cannot go on"]}
            self._changed.wait()
        handed = self._arrived.pop(rank)
        return {"answer": [{"sizes": list(map(len, handed))}, b"".join(handed)]}

    def end(self, rank: int, ending: Ending) -> None:
        """A rank has ended."""
        with self._changed:
            self.meeting.end(rank, ending)
            self._look()

    def _look(self) -> None:
        """Lets those go on whose wait is over; if nobody runs any more, all stop."""
        self._arrived |= dict(self.meeting.arrivals())
        if not (self._over or self.meeting.running() or self._arrived):
            self._over, self.stopped = True, self.meeting.fault()
        self._changed.notify_all()


def _key(sent: Any) -> tuple[str, str, int]:
    group, channel, number = sent
    return str(group)[:100], str(channel)[:100], int(number)


def tried_on_ranks(
    learner: Sandbox,
    others: Callable[[], AbstractContextManager[Sandbox]],
    name: str,
    given: Sequence[tuple],
) -> list[Trial]:
    """The trials of the answer `name` of sandboxes: `learner`, and as many `others` as there are further ranks.

    After a call that ends a sandbox no other is made.
    """
    found: list[Trial] = []
    spent = threading.Event()
    with ExitStack() as to_close:
        sandboxes = [learner]
        sandboxes += [to_close.enter_context(others()) for _ in range(max(len(sizes) for _, sizes, *_ in given) - 1)]
        for args in given:
            found.append(_once(sandboxes[: len(args[1])], name, args, spent))
            if spent.is_set():
                break
    return found + [Trial(NOT_RUN.end, NOT_RUN.said) for _ in given[len(found) :]]


def _once(sandboxes: Sequence[Sandbox], name: str, args: tuple, spent: threading.Event) -> Trial:
    """The trial of one case; `spent` is set where it has ended a sandbox."""
    hall = Hall(len(sandboxes))
    sent: list[dict[str, Any]] = [{} for _ in sandboxes]
    failures: list[Exception] = []

    def serve(rank: int, own: tuple) -> None:
        request = {"do": "rank", "answer": name, "given": list(own), "rank": rank, "world": len(sandboxes)}
        try:
            answer = sandboxes[rank].ask(request, _RANK_S, hall.device_of(rank))
            sent[rank] = answer if isinstance(answer, dict) else {}
            hall.end(rank, _ending(rank, sent[rank]))
        except Ended as error:
            spent.set()
            hall.end(rank, Ending(_FAULTS.get(error.end, Fault.DIED), f"Rank {rank}: {error}."))
        except Exception as error:  # this machine has failed, which is said in the thread that asked
            failures.append(error)
            hall.end(rank, Ending(Fault.DIED, f"Rank {rank} was ended from outside."))

    given = enumerate(arguments(*args))
    threads = [threading.Thread(target=serve, args=one, daemon=True) for one in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    printed = "".join(str(one.get("printed", "")) for one in sent)[:5_000]
    code = str(next((one.get("code") for one in sent if one.get("code")), ""))[:2_000]
    answer = (
        fault(hall.stopped) if hall.stopped else told_of_ranks(hall.meeting.made, [one.get("found") for one in sent])
    )
    return Trial(answer=answer, code=code, printed=printed)


def _ending(rank: int, sent: dict[str, Any]) -> Ending:
    one = trials.received(sent.get("trial"))
    if one.end is End.RETURNED:
        return Ending()
    kind = _FAULTS.get(one.end, Fault.DIED if one.end is End.DIED else Fault.RAISED)
    return Ending(kind, f"Rank {rank} raises {one.raised}", one.error)
