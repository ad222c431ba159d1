"""The process group that a rank is given, and the messages by which it meets the others: a part of a rank's process.

Every collective is announced to the process that started the ranks (`meeting`). It answers once all ranks of the group
have called the same, with what they handed in; or it ends them, and says why. Asynchronous messages arrive in
`wait()`, and not before. With NCCL, or if gloo is asked for, that backend then moves the numbers that lie on its
device. All others come with the messages: so a group of GPUs also has collectives of CPU tensors. So does what one
rank sends to another: before the first such message NCCL makes a communicator of the two, and the sender waits until
the receiver is there. In a ring, in which all send first, they would wait for ever.

torch.distributed hands collectives to a subclass of ProcessGroup in Python under names that have changed (torch 2.11 to
2.13): `_NAMES` has both.
"""

from __future__ import annotations

import json
import linecache
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import helpers
from helpers.engine.torch_parts import DisableTorchDispatch, forget_backend, give_backend, name_of_group
from helpers.ranks.collectives import (
    Collective,
    agreement,
    arrived,
    filled_with,
    for_rank,
    handed_over,
    in_words,
    traffic_of,
)

BACKEND = "pipes"
"""The name under which torch.distributed knows our group."""

_HEAD = struct.Struct("!IQ")
_COURSE = str(Path(helpers.__file__).parent)
_LIBRARIES = (str(Path(torch.__file__).parent.parent), str(Path(json.__file__).parent.parent), _COURSE, "<frozen")
"""Files of a learner's do not begin so."""


class Wire:
    """One end of a rank's socket pair: messages, each a header of plain values and any number of bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
        """Sends a message; waits until it has been taken."""
        text = json.dumps(header).encode()
        self.connection.sendall(_HEAD.pack(len(text), len(payload)) + text)
        self.connection.sendall(payload)

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """Waits for a message. Raises EOFError if the other end is closed."""
        text, payload = _HEAD.unpack(self._exactly(_HEAD.size))
        return json.loads(self._exactly(text)), self._exactly(payload)

    def _exactly(self, size: int) -> bytes:
        content = bytearray(size)
        view = memoryview(content)
        while view:
            got = self.connection.recv_into(view)
            if not got:
                raise EOFError("the other end is closed")
            view = view[got:]
        return bytes(content)


def messages_in(received: bytearray) -> list[tuple[dict[str, Any], bytes]]:
    """Takes the whole messages from the beginning of the bytes received so far."""
    found = []
    while len(received) >= _HEAD.size:
        text, payload = _HEAD.unpack_from(received)
        end = _HEAD.size + text + payload
        if len(received) < end:
            break
        header = json.loads(received[_HEAD.size : _HEAD.size + text])
        found.append((header, bytes(received[_HEAD.size + text : end])))
        del received[:end]
    return found


def cut(content: bytes, sizes: Sequence[int]) -> tuple[bytes, ...]:
    """Bytes in parts of these sizes. Raises ValueError if these are not all of them."""
    if min(sizes, default=0) < 0 or sum(sizes) != len(content):
        raise ValueError(f"{len(content)} bytes are no parts of {sizes}")
    ends = list(accumulate(sizes))
    return tuple(content[end - size : end] for size, end in zip(sizes, ends, strict=True))


def is_learners(filename: str) -> bool:
    """Whether a line of this file may be a learner's: it belongs neither to Python, torch or triton, nor to helpers."""
    return not filename.startswith(_LIBRARIES)


def line_in(filename: str, number: int) -> str:
    """Such as "line 7: `dist.barrier()`", for a message."""
    text = linecache.getline(filename, number).strip()
    return f"line {number}: `{text[:100]}`" if text else f"line {number}"


def learners_line(frame: Any) -> str:
    """The innermost line of a learner's from this frame outwards; "" if there is none."""
    while frame is not None:
        if is_learners(frame.f_code.co_filename):
            return line_in(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return ""


def packed(tensors: Sequence[torch.Tensor]) -> bytes:
    """The numbers of tensors as bytes, one after the other, and nothing else."""
    flat = (x.as_strided((x.numel(),), (1,)) for x in (on_cpu(x).contiguous() for x in tensors))
    return b"".join(x.view(torch.uint8).numpy().tobytes() for x in flat)


def on_cpu(x: torch.Tensor) -> torch.Tensor:
    """x on the CPU, with no more memory than its numbers take: a view is saved with all of its tensor's."""
    x = x.detach().cpu().resolve_conj().resolve_neg()
    is_view = x.layout == torch.strided and x.untyped_storage().nbytes() > x.numel() * x.element_size()
    return x.clone() if is_view else x


class _Arriving(dist.Work):
    """A collective that has been announced; what the other ranks hand in arrives when somebody waits for it."""

    def __init__(self, group: RankGroup, call: Collective, key: list) -> None:
        super().__init__()
        self.group, self.call, self.key = group, call, key
        self.own = [x.detach().cpu().clone() for x in for_rank(call, group.size(), group.rank())]
        self.done = False

    def wait(self, timeout: Any = None) -> bool:
        if not self.done:
            self.done = True
            with DisableTorchDispatch():  # who counts operations counts the collective, not how it is made
                handed = self.group.meet(self.key, learners_line(sys._getframe()))
                if self.call.outputs:
                    self._fill(handed)
        return True

    def get_future(self) -> torch.futures.Future:
        """As DistributedDataParallel asks: it has arrived by then."""
        self.wait()
        found: torch.futures.Future = torch.futures.Future()
        found.set_result(list(self.call.outputs))
        return found

    def is_completed(self) -> bool:
        return self.done or self.group.is_complete(self.key)

    @torch.no_grad()
    def _fill(self, contents: list[bytes]) -> None:
        call, world, rank = self.call, self.group.size(), self.group.rank()
        handed: list[list[torch.Tensor]] = [[] for _ in range(world)]
        for other, content in zip((call.back, call.to) if call.kind == "send" else range(world), contents, strict=True):
            handed[other] = self.own if other == rank else arrived(content, call, world, rank, other)
        results = filled_with(call, handed, rank)
        if results and len(results) != len(call.outputs):
            n_ranks, n_outputs = len(results), len(call.outputs)
            raise ValueError(f"{call.kind} brings {n_ranks} tensors, and {n_outputs} are there to be filled.")
        for x, got in zip(call.outputs, results, strict=False):  # of a reduce, only the root is given one
            if x.numel() != got.numel() or x.dtype != got.dtype:
                raise ValueError(f"{call.kind} brings {in_words(got)}, and {in_words(x)} is there to be filled.")
            x.copy_(got.view(x.shape))


class RankGroup(dist.ProcessGroup):
    """The group of a rank. `inner` is the backend that moves the numbers that lie on its `device`, "cpu" or "cuda"; all
    others come with the messages."""

    def __init__(self, wire: Wire, rank: int, size: int, inner: Any = None, device: str = "") -> None:
        super().__init__(rank, size)
        self.wire, self.inner, self.device = wire, inner, device
        self.made: dict[str, int] = {}
        self.works: list[dist.Work] = []
        """Kept, since torch keeps only what C++ knows of them."""

    def getBackendName(self) -> str:
        return BACKEND

    @property
    def group_name(self) -> str:
        return name_of_group(self)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in sorted({"cpu", self.device or "cpu"})]

    def shutdown(self) -> None:
        """Has nothing to close: the wire is the rank's."""

    def announce(self, call: Collective, moves: Callable[[], dist.Work] | None) -> dist.Work:
        """Says that this rank calls a collective. Whoever waits for the result meets the other ranks; if a backend
        `moves` the numbers of all ranks, they meet before it does."""
        line = learners_line(sys._getframe())
        pair = call.kind == "send"
        channel = f"{call.back} to {call.to}, {call.root}" if pair else ""
        self.made[channel] = number = self.made.get(channel, 0) + 1
        ranks = dist.get_process_group_ranks(self)
        members = [ranks[call.back], ranks[call.to]] if pair else ranks
        key = [self.group_name, channel, number]
        sent, received = traffic_of(call, self.size(), self.rank())
        with DisableTorchDispatch():
            parts = [b""] if moves is not None else list(map(packed, handed_over(call, self.size(), self.rank())))
            said = {"do": "call", "key": key, "members": members, "kind": call.kind, "says": self._agreement(call)}
            said |= {"line": line, "sent": sent, "received": received, "sizes": list(map(len, parts))}
            self.wire.send(said, b"".join(parts))
            if moves is not None:
                self.meet(key, line)
                return moves()
            work = _Arriving(self, call, key)
        self.works.append(work)
        return work

    def is_moved(self, call: Collective) -> bool:
        """Whether the backend moves the numbers: no message from rank to rank, and no barrier, which has none."""
        return call.kind != "send" and any(x.device.type == self.device for x in (*call.inputs, *call.outputs))

    def _agreement(self, call: Collective) -> list[str]:
        """What all ranks must say alike, also of where the numbers are, unless they are where they are usually."""
        strays = {x.device.type for x in (*call.inputs, *call.outputs)} - {self.device or "cpu"}
        return agreement(call) + [f"on {device}" for device in sorted(strays)]

    def meet(self, key: list, line: str) -> list[bytes]:
        """Waits until all have called what `key` names, and returns what each of them hands over to this one."""
        self.wire.send({"do": "wait", "key": key, "line": line})
        header, content = self.wire.receive()
        return list(cut(content, header["sizes"]))

    def is_complete(self, key: list) -> bool:
        """Whether all have called what `key` names by now."""
        self.wire.send({"do": "ask", "key": key})
        return self.wire.receive()[0]["complete"]


# What torch.distributed calls, as Collectives


def _parts(x: torch.Tensor, like: torch.Tensor, world: int) -> list[torch.Tensor]:
    """The equal parts of x, one for each rank, each of the shape of `like`."""
    if x.numel() != world * like.numel():
        raise ValueError(f"{world} ranks need {world} times the elements of {in_words(like)}; got {in_words(x)}.")
    return list(x.view(world, *like.shape).unbind())


def _split(x: torch.Tensor, sizes: Sequence[int], world: int) -> list[torch.Tensor]:
    if not sizes and len(x) % world:
        raise ValueError(f"{in_words(x)} does not split into {world} equal parts; pass split sizes.")
    return list(x.split(list(sizes) or len(x) // world)) if len(x) or sizes else [x] * world


def _root(group: RankGroup, options: Any) -> int:
    if not 0 <= options.rootRank < group.size():
        raise ValueError(f"src or dst must be a rank of the group, 0 to {group.size() - 1}; it is {options.rootRank}.")
    return options.rootRank


def _op(options: Any) -> str:
    return options.reduceOp.op.name if hasattr(options.reduceOp, "op") else options.reduceOp.name


def _all_reduce(group: RankGroup, tensors: Any, options: Any) -> Collective:
    return Collective("all_reduce", tensors, tensors, _op(options))


def _reduce(group: RankGroup, tensors: Any, options: Any) -> Collective:
    return Collective("reduce", tensors, tensors, _op(options), _root(group, options))


def _broadcast(group: RankGroup, tensors: Any, options: Any) -> Collective:
    return Collective("broadcast", tensors, tensors, root=_root(group, options))


def _all_gather(group: RankGroup, outputs: Any, inputs: Any, options: Any = None) -> Collective:
    return Collective("all_gather", inputs, [x for of_one in outputs for x in of_one])


def _all_gather_single(group: RankGroup, output: Any, x: Any, options: Any = None) -> Collective:
    return _all_gather_singles(group, [output], [x])


def _all_gather_singles(group: RankGroup, outputs: Any, inputs: Any, options: Any = None) -> Collective:
    parts = [part for y, x in zip(outputs, inputs, strict=True) for part in _parts(y, x, group.size())]
    return Collective("all_gather", inputs, parts)


def _gather(group: RankGroup, outputs: Any, inputs: Any, options: Any) -> Collective:
    return Collective("gather", inputs, outputs[0] if outputs else [], root=_root(group, options))


def _scatter(group: RankGroup, outputs: Any, inputs: Any, options: Any) -> Collective:
    parts = _one_for_each(group, inputs[0]) if inputs else []
    return Collective("scatter", parts, outputs, root=_root(group, options))


def _reduce_scatter(group: RankGroup, outputs: Any, inputs: Any, options: Any) -> Collective:
    parts = [x for of_one in inputs for x in _one_for_each(group, of_one)]
    return Collective("reduce_scatter", parts, outputs, _op(options))


def _reduce_scatter_single(group: RankGroup, output: Any, x: Any, options: Any) -> Collective:
    return _reduce_scatter_singles(group, [output], [x], options)


def _reduce_scatter_singles(group: RankGroup, outputs: Any, inputs: Any, options: Any) -> Collective:
    parts = [_parts(x, y, group.size()) for y, x in zip(outputs, inputs, strict=True)]
    return _reduce_scatter(group, outputs, parts, options)


def _one_for_each(group: RankGroup, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    if len(tensors) != group.size():
        raise ValueError(f"a group of {group.size()} ranks needs a tensor for each of them; got {len(tensors)}.")
    return tensors


def _all_to_all(group: RankGroup, outputs: Any, inputs: Any, options: Any = None) -> Collective:
    _one_for_each(group, inputs)
    return Collective("all_to_all", inputs, outputs)


def _all_to_all_single(
    group: RankGroup, output: Any, x: Any, output_sizes: Any, sizes: Any, options: Any = None
) -> Collective:
    return _all_to_all(group, _split(output, output_sizes, group.size()), _split(x, sizes, group.size()))


def _barrier(group: RankGroup, opts: Any = None) -> Collective:
    return Collective("barrier", [], [])


def _send(group: RankGroup, tensors: Any, to: int, tag: int) -> Collective:
    return Collective("send", tensors, [], root=tag, to=to, back=group.rank())


def _recv(group: RankGroup, tensors: Any, back: int, tag: int) -> Collective:
    return Collective("send", [], tensors, root=tag, to=group.rank(), back=back)


_NAMES = {
    ("allreduce", "allreduce_coalesced"): _all_reduce,
    ("reduce",): _reduce,
    ("broadcast",): _broadcast,
    ("allgather",): _all_gather,
    ("all_gather_single", "_allgather_base"): _all_gather_single,
    ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"): _all_gather_singles,
    ("gather",): _gather,
    ("scatter",): _scatter,
    ("reduce_scatter",): _reduce_scatter,
    ("reduce_scatter_single", "_reduce_scatter_base"): _reduce_scatter_single,
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"): _reduce_scatter_singles,
    ("alltoall",): _all_to_all,
    ("all_to_all_single", "alltoall_base"): _all_to_all_single,
    ("barrier",): _barrier,
    ("send",): _send,
    ("recv",): _recv,
}


def _method(name: str, read: Callable[..., Collective]) -> Callable[..., dist.Work]:
    def method(self: RankGroup, *args: Any, **options: Any) -> dist.Work:
        call = read(self, *args, **options)
        moves = (lambda: getattr(self.inner, name)(*args, **options)) if self.is_moved(call) else None
        return self.announce(call, moves)

    return method


for _names, _read in _NAMES.items():
    for _name in _names:
        setattr(RankGroup, _name, _method(_name, _read))


def leave() -> None:
    """Ends what `joined` has made, so that this process can join another group."""
    dist.destroy_process_group()
    forget_backend(BACKEND)


_DEVICES = {"gloo": "cpu", "nccl": "cuda"}


def joined(wire: Wire, rank: int, world: int, inner: str, folder: str) -> dist.ProcessGroup:
    """Makes this process a rank, and returns the group of all ranks.

    `inner` is "gloo" or "nccl" if that backend is to move the numbers of CPUs or GPUs; the ranks then find each other
    through a file in `folder`.
    """

    def make(store: Any, rank: int, size: int, timeout: Any) -> RankGroup:
        if not inner:
            return RankGroup(wire, rank, size)
        return RankGroup(wire, rank, size, _native(inner, store, rank, size, timeout), _DEVICES[inner])

    dist.Backend.register_backend(BACKEND, make, devices=["cpu", "cuda"])
    store = dist.FileStore(f"{folder}/ranks", world) if inner else dist.HashStore()
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=world)
    return dist.group.WORLD


def _native(name: str, store: Any, rank: int, size: int, timeout: Any) -> dist.ProcessGroup:
    """torch's own group with one of its backends."""
    found = dist.ProcessGroup(store, rank, size)
    if name == "nccl":
        kind = dist.ProcessGroup.BackendType.NCCL
        backend = dist.ProcessGroupNCCL(store, rank, size, dist.ProcessGroupNCCL.Options())
    else:
        kind = dist.ProcessGroup.BackendType.GLOO
        backend = dist.ProcessGroupGloo(store, rank, size, timeout)
    give_backend(found, torch.device(_DEVICES[name]), kind, backend)
    return found
