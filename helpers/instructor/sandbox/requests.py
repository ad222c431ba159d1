"""What a compile request from a sandbox may hold: a text to be read (`language`), names, and types of a grammar.

Triton evaluates a part of some types that it is given, and its options reach the command line of the assembler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from helpers.engine.compiler.request import LAUNCH_OPTIONS, CompileRequest
from helpers.gpu import architectures
from helpers.instructor.sandbox import language

_DTYPE = r"(?:i1|i8|i16|i32|i64|u1|u8|u16|u32|u64|fp16|bf16|fp32|fp64|fp8e5|fp8e4nv|fp8e4b8|fp8e5b16|fp8e4b15)"
_SIZES = r"\d{1,9}(?:, ?\d{1,9}){0,4}"
_KIND = re.compile(rf"constexpr|nvTmaDesc|\*?k?{_DTYPE}|tensordesc<{_DTYPE}\[{_SIZES}\]>", re.ASCII)
"""The types of arguments. After the sizes of a descriptor Triton would evaluate whatever else is written."""

_MOST, _DEEPEST = 200, 4
_LONGEST_NAME, _LONGEST_WORD = 200, 1_000


class BadRequest(ValueError):
    """A compile request holds what no launch asks for."""


def request_from(plain: Any) -> CompileRequest:
    """The request that a sandbox has sent; its text is not read. Raises BadRequest."""
    if not isinstance(plain, Mapping) or set(plain) != set(_FIELDS):
        raise BadRequest("not a compile request")
    for name, fits in _FIELDS.items():
        if not fits(plain[name]):
            raise BadRequest(f"a compile request with another {name}: {plain[name]!r}"[:200])
    fields = {name: _frozen(value) if isinstance(value, list | tuple) else value for name, value in plain.items()}
    return CompileRequest.of(fields)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _is_number(value: Any, least: int = 0, most: int = 1 << 16) -> bool:
    return type(value) is int and least <= value <= most


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and len(value) <= _LONGEST_NAME


def _is_kind(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list | tuple):
        return depth < _DEEPEST and _all(value, lambda part: _is_kind(part, depth + 1))
    return isinstance(value, str) and _KIND.fullmatch(value) is not None


def _is_constant(value: Any, depth: int = 0) -> bool:
    if isinstance(value, list | tuple):
        return depth < _DEEPEST and _all(value, lambda part: _is_constant(part, depth + 1))
    if isinstance(value, Mapping) and set(value) == {"function"}:
        return _is_name(value["function"])
    if isinstance(value, Mapping):
        return set(value) == {"dtype"} and isinstance(value["dtype"], str) and value["dtype"] in _DTYPES
    if isinstance(value, str):
        return len(value) <= _LONGEST_WORD and value.isprintable()
    return value is None or isinstance(value, bool | float) or _is_number(value, -(1 << 64), 1 << 64)


_DTYPES = {
    "void", "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp8e5", "fp8e4nv",
    "fp8e4b8", "fp8e5b16", "fp8e4b15", "fp16", "bf16", "fp32", "fp64",
}  # fmt: skip


def _is_place(value: Any) -> bool:
    """A parameter's number, or the path to a part of one that is a tuple."""
    return _is_number(value) or (isinstance(value, list | tuple) and _all(value, _is_number))


def _all(values: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(values, list | tuple) and len(values) <= _MOST and all(map(fits, values))


def _pairs(of_first: Callable[[Any], bool], of_second: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def fits(pair: Any) -> bool:
        return isinstance(pair, list | tuple) and len(pair) == 2 and of_first(pair[0]) and of_second(pair[1])

    return lambda values: _all(values, fits)


_FIELDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str) and len(value) <= language.LONGEST_KERNEL,
    "name": _is_name,
    "signature": _pairs(_is_name, _is_kind),
    "constants": _pairs(lambda place: _is_name(place) or _is_place(place), _is_constant),
    "divisible": lambda value: _all(value, _is_place),
    "target": lambda value: isinstance(value, str) and value in architectures.ARCHITECTURES,
    "num_warps": lambda value: value in (1, 2, 4, 8, 16, 32) and type(value) is int,
    "num_stages": lambda value: value is None or _is_number(value, 1, 64),
    "options": _pairs(
        lambda name: isinstance(name, str) and name in LAUNCH_OPTIONS,
        lambda value: isinstance(value, bool) or _is_number(value, 1, 1024),
    ),
}
