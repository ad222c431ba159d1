"""Runs a function on several ranks, and says in one sentence why they did not all return."""

from __future__ import annotations

import contextlib
import inspect
import io
import random
import select
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from helpers.engine import child, pickled
from helpers.engine.isolate import Limits
from helpers.engine.numbers import counted, refuse_below_one
from helpers.engine.processes import Watch
from helpers.engine.runtime import DEVICE, ON_GPU
from helpers.engine.torch_parts import COMPILER, FUNCTIONAL_COLLECTIVES, DisableTorchDispatch
from helpers.ranks import processes
from helpers.ranks.group import Wire, cut, messages_in
from helpers.ranks.meeting import Call, Ending, Fault, Meeting, RankError
from helpers.ranks.processes import MOST_PRINTED, ForkedRank, StartedRank

MOST_RANKS = 16
"""More processes than this help nobody to understand anything."""

_LOOK_S = 0.2
_PROGRAM_LIMIT_S = 120
"""At least, for ranks that first import torch, and compile."""


def run(function: Callable[..., Any], *shards: Any, world: int | None = None, limit_s: int = 20) -> list[Any]:
    """Calls `function(shard, group)` on each of `world` ranks, and returns what each of them has returned.

    There is one shard for each rank, such as x.chunk(4, dim=-1), and by default one rank for each shard; a shard that
    is a tuple is several arguments. Without shards the function is called with the group alone, on 4 ranks. `group` is
    a process group of torch.distributed, and also its default group. The function may be defined in a notebook, with
    its kernels. It returns tensors, numbers, text, or lists, tuples and dicts of them, without gradients' history. What
    ranks print is printed when all have ended.

    Each rank draws random numbers of its own, with torch, NumPy's global functions and `random`. They follow from
    torch's generator here, from which this draws one number: after torch.manual_seed they are the same again.

    Shards on DEVICE arrive on the rank's own: with a GPU for each rank, on that GPU. Shards on the CPU stay there, and
    have collectives too. Tensors are returned on DEVICE.

    Raises RankError, a sentence with the rank and the line: if a rank raises; if ranks wait for each other, or call
    different collectives, as soon as no rank can go on; if one takes `limit_s` seconds of processor time, sleeps for as
    long, or prints more than 50,000 characters; or if its process dies. With a GPU for each rank the limit is at least
    120 seconds. No process is left then. Raises ValueError if shards and `world` do not fit, and
    RuntimeError in a process that is a rank already.
    """
    return _results(function, shards, world, limit_s)[0]


def calls_of(
    function: Callable[..., Any], shards: Sequence[Any], world: int | None, limit_s: int = 20
) -> tuple[list[Any], list[list[Call]]]:
    """What each rank returns, and the collectives that it calls."""
    return _results(function, shards, world, limit_s)


def _results(
    function: Callable[..., Any],
    shards: Sequence[Any],
    world: int | None,
    limit_s: int,
    inner: str = "",
    programs: bool = False,
) -> tuple[list[Any], list[list[Call]]]:
    """`inner` is the backend that moves the numbers; with `programs`, ranks are not forked."""
    arguments = _arguments(function, shards, world)
    refuse_below_one(limit_s=limit_s)
    if dist.is_initialized():
        raise RuntimeError(
            f"this process is rank {dist.get_rank()} of {dist.get_world_size()} already, and a rank starts no ranks. "
            "Use its group, or torch.distributed.new_group for a part of it."
        )
    seed = _drawn_seed()
    if ON_GPU and torch.cuda.device_count() < len(arguments):
        given = pickled.dumps((function, shards))
        results, calls, printed = child.call(_in_child, given, len(arguments), limit_s, seed, interpret=True)
        print(printed, end="")
        if isinstance(results, RankError):
            raise results
        return _map(lambda x: x.to(DEVICE), results), calls
    limits = Limits(cpu_s=limit_s, waits_s=limit_s)
    if ON_GPU:
        inner, programs = "nccl", True
    if programs:
        limits = Limits(cpu_s=max(limit_s, _PROGRAM_LIMIT_S), waits_s=max(limit_s, _PROGRAM_LIMIT_S))
    with _started(partial(_with_numbers_of_its_own, function, seed), arguments, inner, programs, limits) as members:
        results = Run(members, limits).results()
    return results if not ON_GPU else (_map(lambda x: x.to(DEVICE), results[0]), results[1])


def _drawn_seed() -> int:
    with DisableTorchDispatch():  # who counts operations counts the ranks'
        return int(torch.empty((), dtype=torch.int64, device="cpu").random_(2**62))


def _with_numbers_of_its_own(function: Callable[..., Any], seed: int, *given: Any) -> Any:
    """Calls the function in a rank, which draws other random numbers than the other ranks."""
    own = seed + dist.get_rank()
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)
    return function(*given)


def _in_child(
    given: bytes, world: int, limit_s: int, seed: int = 0
) -> tuple[list[Any] | RankError, list[list[Call]], str]:
    """As `_results`, in a process that sees no GPU; the error in place of results. And what ranks have printed."""
    function, shards = pickled.loads(given)
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            return *_results(function, shards, world, limit_s), printed.getvalue()
        except RankError as error:
            return error, [], printed.getvalue()


def _arguments(function: Any, shards: Sequence[Any], world: int | None) -> list[tuple]:
    """The arguments of each rank. Raises TypeError or ValueError for what cannot be run."""
    if not callable(function):
        raise TypeError(f"ranks run a function of (shard, group); got a {type(function).__name__}.")
    how = (
        "pass one shard for each rank, as in ranks.run(function, *x.chunk(4, dim=-1)), and (shard, target) for two "
        "arguments."
    )
    if world is None and len(shards) == 1 and _is_without_star(function, shards[0]):
        raise ValueError(f"1 rank is given a {type(shards[0]).__name__} of {len(shards[0])}: {how}")
    world = (len(shards) or 4) if world is None else world
    refuse_below_one(world=world)
    if world > MOST_RANKS:
        raise ValueError(f"world must be at most {MOST_RANKS}; it is {world}.")
    if shards and len(shards) != world:
        raise ValueError(f"{counted(world, 'rank')} and {counted(len(shards), 'shard')}: {how}")
    return [shard if isinstance(shard, tuple) else (shard,) for shard in shards] or [()] * world


def _is_without_star(function: Callable, shard: Any) -> bool:
    """Whether a sole shard is meant as several: a list of tensors, or a tuple that is not the function's arguments."""
    if isinstance(shard, list):
        return len(shard) > 1 and all(isinstance(one, torch.Tensor) for one in shard)
    if not isinstance(shard, tuple):
        return False
    try:
        inspect.signature(function).bind(*shard, None)
    except TypeError:
        return True
    except ValueError:  # it has no signature
        pass
    return False


def _map(change: Callable[[torch.Tensor], Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_map(change, one) for one in value)
    return {key: _map(change, one) for key, one in value.items()} if type(value) is dict else value


@contextlib.contextmanager
def _started(
    function: Callable, arguments: Sequence[tuple], inner: str, programs: bool, limits: Limits
) -> Iterator[list[ForkedRank | StartedRank]]:
    """The ranks, which end with the block."""
    members: list[ForkedRank | StartedRank] = []
    world = len(arguments)
    _warm()
    with contextlib.ExitStack() as to_end:
        folder = to_end.enter_context(tempfile.TemporaryDirectory()) if inner else ""
        for rank, given in enumerate(arguments):
            if programs:
                made = StartedRank(rank, world, pickled.dumps((function, given)), inner, folder, limits)
            else:

                def serve(wire: Wire, rank: int = rank, given: tuple = given) -> None:
                    processes.answer_as_rank(wire, function, given, rank, world, inner, folder)

                made = ForkedRank(rank, serve, limits, members)
            members.append(made)
            to_end.callback(made.end)
        try:
            yield members
        finally:
            for made in members:
                made.end()
            _show_prints(members)


def _warm() -> None:
    """Functional collectives import torch's compiler at their first call: better once here than in each rank."""
    if FUNCTIONAL_COLLECTIVES in sys.modules:
        import_module(COMPILER)


def _show_prints(members: Sequence[ForkedRank | StartedRank]) -> None:
    for made in members:
        for line in made.printed.text().splitlines():
            print(f"rank {made.rank}: {line}")


class Run:
    """Ranks at work: it takes their messages, answers them, and finds out why they do not return."""

    def __init__(self, members: Sequence[ForkedRank | StartedRank], limits: Limits) -> None:
        self.members, self.limits = members, limits
        self.meeting = Meeting(len(members))
        self.received = [bytearray() for _ in members]
        self.values: dict[int, Any] = {}
        self.watch = Watch(lambda: [pid for made in members for pid in made.pids()])

    def results(self) -> tuple[list[Any], list[list[Call]]]:
        """What each rank has returned, and its calls. Raises RankError."""
        while self.meeting.running():
            self._listen()
            for rank, handed in self.meeting.arrivals():
                self.watch.begin_waiting()
                self._send(rank, {"sizes": list(map(len, handed))}, b"".join(handed))
            self._limit()
        if (fault := self.meeting.fault()) is not None:
            raise fault
        return [self.values[rank] for rank in range(len(self.members))], self.meeting.calls()

    def _listen(self) -> None:
        """Takes what ranks say within a moment."""
        poll = select.poll()
        by_number = {}
        for made in self.members:
            for number in (made.prints, made.connection.fileno()) if made.rank not in self.meeting.ended else ():
                poll.register(number, select.POLLIN)
                by_number[number] = made
        for number, _ in poll.poll(1000 * _LOOK_S):
            made = by_number[number]
            if made.printed.read().is_full and made.rank not in self.meeting.ended:
                said = f"Rank {made.rank} printed more than {MOST_PRINTED:,} characters."
                self.meeting.end(made.rank, Ending(Fault.PRINTED, said))
            elif number != made.prints:
                self._take(made)

    def _take(self, made: ForkedRank | StartedRank) -> None:
        rank, received = made.rank, self.received[made.rank]
        try:
            part = made.connection.recv(1 << 20)
        except ConnectionError:
            part = b""
        received += part
        try:
            for header, payload in messages_in(received):
                self._hear(rank, header, payload)
        except Exception:  # other bytes than messages make json and torch.load raise anything
            self.meeting.end(rank, Ending(Fault.DIED, f"Rank {rank} wrote into a file that it has not opened."))
        if not part and rank not in self.meeting.ended:
            self._has_died(made)

    def _hear(self, rank: int, header: dict[str, Any], payload: bytes) -> None:
        """One message of a rank's."""
        meeting, do = self.meeting, header["do"]
        if do == "call":
            call = Call(header["kind"], tuple(header["says"]), *(header[key] for key in ("line", "sent", "received")))
            parts = cut(payload, header["sizes"])
            meeting.call(rank, tuple(header["key"]), header["members"], call._replace(parts=parts))
        elif do == "wait":
            meeting.wait(rank, tuple(header["key"]), header["line"])
        elif do == "ask":
            self._send(rank, {"complete": meeting.is_complete(tuple(header["key"]))})
        elif do == "returned":
            self.values[rank] = torch.load(io.BytesIO(payload), weights_only=True)
            meeting.end(rank, Ending())
        else:
            where = f" ({header['line']})" if header["line"] else ""
            message = f": {header['message']}" if header["message"] else ""
            said = f"Rank {rank} raises {header['error']}{where}{message}"
            meeting.end(rank, Ending(Fault.RAISED, said, header["error"]))

    def _send(self, rank: int, header: dict[str, Any], payload: bytes = b"") -> None:
        """Answers a rank, which does nothing but wait for it; a rank that has died says so by itself."""
        with contextlib.suppress(ConnectionError):
            Wire(self.members[rank].connection).send(header, payload)

    def _has_died(self, made: ForkedRank | StartedRank) -> None:
        how, line = made.ending(), made.line()
        if how.endswith("SIGXCPU"):
            said = f"did not come to an end within {counted(self.limits.cpu_s, 'second')} of processor time"
            fault, where = Fault.OUT_OF_TIME, f" ({line})" if line else ""
        else:
            fault, said, where = Fault.DIED, how, self._after(made.rank)
        self.meeting.end(made.rank, Ending(fault, f"Rank {made.rank} {said}{where}."))

    def _after(self, rank: int) -> str:
        """The last that is known of a rank that has died."""
        if (last := self.meeting.last(rank)) is None:
            return " before its first collective"
        return f" after it called {last.kind}" + (f" ({last.line})" if last.line else "")

    def _limit(self) -> None:
        """Ends ranks of which none does anything for too long, although some have not called a collective."""
        self.watch.look()
        if self.watch.waited_s < self.limits.waits_s:
            return
        for rank in self.meeting.running():
            made = self.members[rank]
            made.interrupt()
            made.ending()
            line = made.line()
            slept = f"slept or waited for {counted(int(self.limits.waits_s), 'second')}"
            said = f"Rank {rank} {slept}{f' ({line})' if line else ''}, outside of collectives."
            self.meeting.end(rank, Ending(Fault.OUT_OF_TIME, said))
