"""What passes between the grader and a sandbox: messages of plain values, tensors and the text of kernels.

A message is JSON behind its length. Nothing in it is code, and whatever arrives is checked before it is used: a sandbox
may send anything.
"""

from __future__ import annotations

import base64
import json
import math
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

LONGEST_MESSAGE = 64 << 20
"""Bytes that a message from a sandbox may have."""
MOST = 1 << 20
"""Values that it may have: each costs the grader memory."""
_LONGEST_NAME = 200
"""Characters of the name of a kernel."""
_MOST_KEYS, _MOST_DIMENSIONS, _LARGEST_INT = 2_000, 4, 1 << 60
"""Of a dict and a tensor from a sandbox: what else a message may hold costs the grader hours."""

_LENGTH = struct.Struct("!Q")
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64,
        torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip
_WHOLE = 1 << 20
"""Elements of a storage up to which a strided tensor is sent with what lies between its own elements."""
_TRUSTED = 1 << 30
"""Bytes that a message to a sandbox may have."""


class Garbled(ValueError):
    """Something other than a message arrived."""


@dataclass(frozen=True)
class Kernel:
    """The text of a kernel and everything that it names, and its name; inert where it arrives."""

    text: str
    name: str

    @property
    def fn(self) -> SimpleNamespace:
        """What checks ask a kernel for, to say that they take its driver instead."""
        return SimpleNamespace(__name__=self.name)

    run = None


@dataclass(frozen=True)
class Opaque:
    """Something that cannot be sent; it has the repr that it had."""

    shown: str

    def __repr__(self) -> str:
        return self.shown


def encode(value: Any) -> Any:
    """`value` as JSON can hold it: numbers, text, None, bytes, dtypes, tensors, kernels, and containers of these."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, Kernel):
        return {"kernel": [value.text, value.name]}
    if isinstance(value, torch.Tensor):
        return _encoded_tensor(value)
    return {"opaque": repr(value)[:100]}


def _encoded_tensor(x: torch.Tensor) -> dict[str, Any]:
    x, name = x.detach(), str(x.dtype).removeprefix("torch.")
    size = x.untyped_storage().nbytes() // x.element_size()
    if x.is_contiguous() and size == x.numel():
        return {"tensor": [name, list(x.shape), _content(x)]}
    layout = [name, list(x.shape), list(x.stride()), x.storage_offset(), size]
    flat = torch.as_strided(x, (size,), (1,), 0) if _is_sent_whole(size, x.shape) else x.contiguous()
    return {"strided": [*layout, _content(flat)]}


def _is_sent_whole(size: int, shape: Sequence[int]) -> bool:
    """Whether a storage of this size is sent for a tensor of this shape: it is small, or smaller than the tensor."""
    return size <= max(_WHOLE, math.prod(shape))


def _content(x: torch.Tensor) -> str:
    flat = x.contiguous().as_strided((x.numel(),), (1,))
    return base64.b64encode(flat.view(torch.uint8).numpy().tobytes()).decode()


def decode(value: Any, trusted: bool = False) -> Any:
    """What `encode` was given. Raises Garbled for anything else.

    Large tensors, and tensors whose elements overlap, keep their strides only if the sender is `trusted`; else they
    come contiguous.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return _writable(value) if trusted else _printable(value)
    if isinstance(value, list):
        return [decode(item, trusted) for item in value]
    try:
        ((kind, data),) = value.items()
        if kind == "tuple":
            return tuple(decode(data, trusted))
        if not trusted:
            _require_modest(kind, data)
        if kind == "dict":
            return {decode(key): decode(item, trusted) for key, item in data}
        if kind == "strided":
            return _strided(data, trusted)
        return _DECODERS[kind](data)
    except Garbled:
        raise
    except Exception as error:
        raise Garbled(f"not a message: {error!r}"[:200]) from None


_CONTROL = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that turn text around; a line may end, and a page too."""


def _writable(text: str) -> str:
    """The text without the halves of characters that Python holds and no file can."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _printable(text: str) -> str:
    """What can be written of the text, without control characters; a carriage return ends a line, as in Python."""
    text = _writable(text)
    if text.isprintable():
        return text
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", re.sub(r"\r(?!\n)", "\n", text))


def _require_modest(kind: str, data: Any) -> None:
    """Raises Garbled for a dict whose keys may collide, and for a tensor of a layout that no result here has."""
    if kind == "dict" and (len(data) > _MOST_KEYS or any(type(k) is int and abs(k) > _LARGEST_INT for k, _ in data)):
        raise Garbled("a dict with too many keys, or too large ones")
    for part in data[1:-1] if kind in ("tensor", "strided") else ():
        numbers = part if isinstance(part, list) else [part]
        if len(numbers) > _MOST_DIMENSIONS or not all(type(n) is int and 0 <= n < _LARGEST_INT for n in numbers):
            raise Garbled("a tensor of a shape that no result has")


def _flat(name: str, content: str) -> torch.Tensor:
    data = bytearray(base64.b64decode(content))
    return torch.frombuffer(data, dtype=_DTYPES[name]) if data else torch.empty(0, dtype=_DTYPES[name])


def _tensor(data: list[Any]) -> torch.Tensor:
    name, shape, content = data
    return _flat(name, content).reshape(shape)


def _strided(data: list[Any], trusted: bool) -> torch.Tensor:
    from helpers.check.problems.problem import overwrite, places_of, reserved

    name, shape, strides, offset, size, content = data
    flat = _flat(name, content)
    if not trusted:
        if math.prod(shape) > flat.numel():
            raise Garbled("a tensor of elements that overlap")
        if size > _WHOLE:
            return flat.reshape(shape)
        x = flat.as_strided(shape, strides, offset)
        return x if places_of(x).unique().numel() == x.numel() else x.contiguous()
    if _is_sent_whole(size, shape):
        return flat.as_strided(shape, strides, offset)
    return overwrite(reserved(size, _DTYPES[name]).as_strided(shape, strides, offset), flat.reshape(shape))


_DECODERS = {
    "bytes": base64.b64decode,
    "dtype": _DTYPES.__getitem__,
    "kernel": lambda data: Kernel(str(data[0]), _printable(str(data[1])[:_LONGEST_NAME])),
    "tensor": _tensor,
    "opaque": lambda data: Opaque(_printable(str(data)[:100])),
}


def send(connection: socket.socket, value: Any, seconds: float | None = None) -> None:
    """Sends one message; TimeoutError where it is not taken within `seconds`."""
    content = json.dumps(encode(value)).encode()
    connection.settimeout(seconds)
    connection.sendall(_LENGTH.pack(len(content)) + content)


def receive(
    connection: socket.socket,
    seconds: float | None = None,
    trusted: bool = False,
    wait: Callable[[], object] | None = None,
) -> Any:
    """The next message. EOFError where the other side has ended, TimeoutError after `seconds`, Garbled for another.

    A sender that is not `trusted` is kept from using up the memory of this process. `wait`, which stands for `seconds`,
    is called before each part of the message, and returns once there is one, or raises.
    """
    wait = wait or _waiting(connection, math.inf if seconds is None else seconds)
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, wait))
    longest = _TRUSTED if trusted else LONGEST_MESSAGE
    if length > longest:
        raise Garbled(f"a message of {length:,} bytes, where {longest:,} are allowed")
    content = _exactly(connection, length, wait)
    if not trusted and sum(map(content.count, (b",", b"[", b"{"))) > MOST:
        raise Garbled(f"a message of more than {MOST:,} values")
    try:
        return decode(json.loads(content), trusted)
    except (ValueError, RecursionError) as error:
        raise Garbled(str(error)[:200]) from None


def _waiting(connection: socket.socket, seconds: float) -> Callable[[], None]:
    stop_at = time.monotonic() + seconds

    def wait() -> None:
        left = stop_at - time.monotonic()
        if left <= 0 or not select.select([connection], [], [], None if left == math.inf else left)[0]:
            raise TimeoutError

    return wait


def _exactly(connection: socket.socket, length: int, wait: Callable[[], object]) -> bytes:
    content = bytearray()
    while len(content) < length:
        wait()
        try:
            part = connection.recv(min(1 << 20, length - len(content)))
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        content += part
    return bytes(content)
