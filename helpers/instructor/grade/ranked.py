"""A learner's function of ranks: each rank in a sandbox of its own, and their meeting here.

A rank's process has its shard alone. So a right result has come out of messages, and these pass through this process,
which counts their bytes and never looks into them. It believes nothing that a rank says of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from helpers.check.problems.sharded import agree
from helpers.check.trial.ranked import LIMIT_S, Ranked, Sharded, arguments, fault, told_of_ranks
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import NOT_RUN, End
from helpers.instructor.sandbox import trials
from helpers.instructor.sandbox.client import Budget, Ended, NoSandbox, Sandbox
from helpers.ranks.group import cut
from helpers.ranks.meeting import Call, Ending, Fault, Key, Meeting, RankError

_RANK_S = 4 * LIMIT_S
"""Seconds of processor time, or of waiting for nobody, after which a rank is given up."""
_MOST_CALLS, _MOST_BYTES = 1_000, 8 << 20
"""Of one rank in one case: its collectives, and what it hands over."""
_MOST_SAID = 20
"""Things that a call says for all ranks to agree on, at most."""
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
        """What answers the questions of a rank's sandbox, and waits with it: a client.Device."""
        return lambda sent: self._answer(rank, sent)

    def _answer(self, rank: int, sent: Any) -> dict[str, Any]:
        try:
            calls = [_call_in(event) for event in sent["events"]]
            (question,) = sent["question"]
            do = question["do"]
            key, line = (_key(question["key"]), _text(question.get("line", ""), 200)) if do != "hear" else (None, "")
        except Exception:  # a rank may send anything
            raise Ended("it takes part in collectives in no way that there is") from None
        with self._changed:
            for call_key, call in calls:
                self._call(rank, call_key, call)
            if key is None:
                return {"answer": [{}, b""]}
            if not self.meeting.is_open(rank, key):
                raise Ended("it waits for a collective that it has not called")
            return self._wait(rank, key, line) if do == "wait" else _told({"complete": self.meeting.is_complete(key)})

    def _call(self, rank: int, key: Key, call: Call) -> None:
        members = call.members
        if (
            rank not in members
            or len(set(members)) < len(members)
            or not set(members) <= set(range(self.meeting.world))
        ):
            raise Ended("it calls a collective of ranks that there are not")
        if len(call.parts) not in (1, len(members)) or (key[1] and len(members) != 2):
            raise Ended("it calls a collective in no way that there is")
        if key in self.meeting.made[rank]:
            raise Ended("it calls one collective twice")
        self._bytes[rank] += call.sent
        if len(self.meeting.made[rank]) >= _MOST_CALLS or self._bytes[rank] > _MOST_BYTES:
            raise Ended(
                f"it calls more than {_MOST_CALLS:,} collectives, or hands over more than {_MOST_BYTES >> 20} MB"
            )
        self.meeting.call(rank, key, members, call)
        self._look()

    def _wait(self, rank: int, key: Key, line: str) -> dict[str, Any]:
        self.meeting.wait(rank, key, line)
        self._look()
        if not self._changed.wait_for(lambda: self._over or rank in self._arrived, Budget.most_clock_s):
            raise NoSandbox(f"this machine was too busy for {Budget.most_clock_s:g} seconds")
        if rank not in self._arrived:
            return {"raised": ["RuntimeError", "the ranks cannot go on"]}
        handed = self._arrived.pop(rank)
        return _told({"sizes": list(map(len, handed))}, b"".join(handed))

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


def _told(header: dict[str, Any], payload: bytes = b"") -> dict[str, Any]:
    return {"answer": [header, payload]}


def _call_in(event: Any) -> tuple[Key, Call]:
    """The call that a rank has sent. Raises anything for another message.

    What it sends is what the others are handed: this is measured here, whatever it says of it.
    """
    header, payload = event
    parts = cut(payload, [_number(size) for size in header["sizes"]])
    if not isinstance(payload, bytes) or len(header["says"]) > _MOST_SAID:
        raise ValueError("no call")
    says = tuple(_text(one, 200) for one in header["says"])
    members = tuple(_number(one) for one in header["members"])
    call = Call(_text(header["kind"], 50), says, _text(header["line"], 200), len(payload), 0, parts, members)
    return _key(header["key"]), call


def _key(sent: Any) -> Key:
    group, channel, number = sent
    return _text(group, 100), _text(channel, 100), _number(number)


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value[:most]


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no whole number")
    return value


def tried_on_ranks(
    learner: Sandbox,
    others: Callable[[], AbstractContextManager[Sandbox]],
    name: str,
    given: Sequence[Sharded],
) -> list[Trial]:
    """The trials of the answer `name` of sandboxes: `learner`, and as many `others` as there are further ranks.

    After a call that ends a sandbox no other is made. All of them together have the memory of one.
    """
    found: list[Trial] = []
    spent = threading.Event()
    with ExitStack() as to_close:
        sandboxes = [learner]
        sandboxes += [to_close.enter_context(others()) for _ in range(max(case.world for case in given) - 1)]
        for one in sandboxes:
            one.share_memory(len(sandboxes))
        for case in given:
            found.append(_trial(sandboxes[: case.world], name, case, spent))
            if spent.is_set():
                break
    return found + [Trial(NOT_RUN.end, NOT_RUN.said) for _ in given[len(found) :]]


def _trial(sandboxes: Sequence[Sandbox], name: str, case: Sharded, spent: threading.Event) -> Trial:
    """The trial of one case.

    What a process does to its own memory cannot be seen from here. So the ranks are called twice, and are given nothing
    new for the second call: whoever has overwritten a shard has it no more. The first call counts, before which no rank
    has heard of the other shards.
    """
    given = arguments(case)
    first = _once(sandboxes, name, given, spent, case.groups, case.members)
    if first.answer[0]:
        return first
    second = _once(sandboxes, name, [None] * len(given), spent, case.groups, case.members)
    one, again = Ranked.of(first.answer), Ranked.of(second.answer)
    if again is None or again.fault:
        return second
    if one is None or _is_same(one, again):
        return first
    return replace(first, answer=[*first.answer[:-1], [[found, False] for found, _ in first.answer[-1]]])


def _is_same(one: Ranked, again: Ranked) -> bool:
    """Whether a second call has returned on each rank what the first one has."""
    pairs = zip(one.returned, again.returned, strict=True)
    return all(len(a.tensors) == len(b.tensors) and all(map(agree, a.tensors, b.tensors)) for a, b in pairs)


def _once(
    sandboxes: Sequence[Sandbox],
    name: str,
    given: Sequence[tuple | None],
    spent: threading.Event,
    groups: int,
    members: slice,
) -> Trial:
    """The trial of one call, of which the results of `members` count; `spent` is set if it has ended a sandbox. A rank
    that is given None has what it had."""
    hall = Hall(len(sandboxes))
    sent: list[dict[str, Any]] = [{} for _ in sandboxes]
    failures: list[Exception] = []

    def serve(rank: int, own: tuple | None) -> None:
        place = {"rank": rank, "world": len(sandboxes), "groups": groups}
        request = {"do": "rank", "answer": name, "given": own and list(own), **place}
        ending = Ending(Fault.DIED, f"Rank {rank} was ended from outside.")
        try:
            answer = sandboxes[rank].ask(request, _RANK_S, hall.device_of(rank))
            sent[rank] = answer if isinstance(answer, dict) else {}
            ending = _ending(rank, sent[rank])
        except Ended as error:
            spent.set()
            ending = Ending(_FAULTS.get(error.end, Fault.DIED), f"Rank {rank}: {error}.")
        except Exception as error:  # this machine has failed, which is said in the thread that asked
            failures.append(error)
        finally:
            hall.end(rank, ending)

    threads = [threading.Thread(target=serve, args=one, daemon=True) for one in enumerate(given)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    printed = "".join(str(one.get("printed", "")) for one in sent)[:5_000]
    code = str(next((one.get("code") for one in sent if one.get("code")), ""))[:2_000]
    calls, found = hall.meeting.calls()[members], [one.get("found") for one in sent[members]]
    answer = fault(hall.stopped) if hall.stopped else told_of_ranks(calls, found)
    return Trial(answer=answer, code=code, printed=printed)


def _ending(rank: int, sent: dict[str, Any]) -> Ending:
    one = trials.received(sent.get("trial"))
    if one.end is End.RETURNED:
        return Ending()
    kind = _FAULTS.get(one.end, Fault.DIED if one.end is End.DIED else Fault.RAISED)
    return Ending(kind, f"Rank {rank} raises {one.raised}", one.error)
