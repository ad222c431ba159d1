"""What Triton's compiler takes, read off the Triton that is installed; vocabulary.py is the written list.

    python -m helpers.instructor.sandbox.dialect       # writes vocabulary.py again

A new Triton may have new names, and each of them is a decision: what it does in the interpreter, where a kernel runs as
Python, is read before it is written down.
"""

from __future__ import annotations

import builtins
import inspect
import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
import triton.language as tl

from helpers.engine import frontend

LEFT_OUT = {
    "inline_asm_elementwise": "assembly, which the interpreter cannot run",
    "map_elementwise": "the interpreter cannot run it",
    "getattr": "reads an attribute by its name",
    "hasattr": "reads an attribute by its name",
    "handle": "what the interpreter or the compiler holds in a tile",
    "kind": "an enumeration of Python",
    "mangle": "of the compiler's own",
    "to_ir": "of the compiler's own",
    "codegen_name": "of the compiler's own",
    "cache_key_part": "of the compiler's own",
    "with_element_ty": "of the compiler's own",
    "file": "where static_print writes",
    "flush": "where static_print writes",
    "self": "the tile of a method",
}
"""What the compiler takes and no kernel may name here, with the reason."""

_CLASSES = {"constexpr", "range", "static_range"}
"""Of triton.language: the classes that a kernel calls; from the others Triton makes types and values."""

_FIELDS = {
    "dtype", "element_ty", "int_bitwidth", "itemsize", "name", "nbytes", "numel", "primitive_bitwidth", "scalar",
    "shape", "strides", "T", "type", "value", "block_shape", "fp_mantissa_width", "exponent_bias",
}  # fmt: skip
"""Attributes of tiles, types and constants that are not methods: numbers, names, and further types."""


_VALUES = (tl.tensor, tl.tensor_descriptor, tl.constexpr)
_TYPES = (tl.dtype, tl.pointer_type, tl.block_type)
_PLACES = {
    "LANGUAGE": [tl], "LANGUAGE_MATH": [tl.math], "HELPER_FUNCTIONS": [triton], "PYTHON_MATH": [math],
    "PYTHON_BUILTINS": [builtins], "ATTRIBUTES": [*_VALUES, *_TYPES],
}  # fmt: skip


def language() -> set[str]:
    """The names of triton.language that stand for an operation, a dtype or a constant."""
    return _public(tl, lambda value: _is_operation(value) or isinstance(value, tl.dtype)) | _CLASSES


def language_math() -> set[str]:
    """The names of triton.language.math that stand for an operation."""
    return _public(tl.math, _is_operation)


def helper_functions() -> set[str]:
    """The names of triton itself that a kernel may call."""
    return _public(triton, _is_operation)


def python_math() -> set[str]:
    """The functions and numbers of Python's math."""
    return _public(math, lambda value: isinstance(value, float) or inspect.isbuiltin(value))


def python_builtins() -> set[str]:
    """Python's functions that the compiler knows."""
    return set(frontend.builtin_names()) - set(LEFT_OUT)


def attributes() -> set[str]:
    """The methods of tiles, descriptors and constants that stand for operations, what types tell, and their fields."""
    free = language()
    methods = {name for one in _VALUES for name in _public(one, callable) | _public(one, _is_operation)}
    methods = {
        name for name in methods if name in free or any(_is_operation(getattr(one, name, None)) for one in _VALUES)
    }
    told = {name for one in _TYPES for name in _public(one, callable) if name.startswith(("is_", "get_"))}
    return (methods | told | _FIELDS | {"logical_and", "logical_or"}) - set(LEFT_OUT)


def keywords() -> set[str]:
    """The names of the parameters of all these operations."""
    owners = (
        (tl, language()),
        (tl.math, language_math()),
        (tl.tensor, attributes()),
        (tl.tensor_descriptor, attributes()),
    )
    operations = [getattr(owner, name, None) for owner, names in owners for name in names]
    found = {name for one in operations if callable(one) for name in _parameters(one)}
    return {name for name in found if not name.startswith("_")} - set(LEFT_OUT)


def there_is(table: str) -> set[str]:
    """Every name that this Triton has where a table's names are found, whatever it stands for.

    Tables are written for one of the Tritons in pyproject.toml. A name that another one lacks leads nowhere there.
    """
    if table == "KEYWORDS":
        owners = [getattr(place, name, None) for place in (tl, tl.math, *_VALUES) for name in dir(place)]
        return {name for one in owners if callable(one) for name in _parameters(one)}
    return {name for place in _PLACES[table] for name in dir(place)}


def _public(owner: Any, wanted: Any) -> set[str]:
    found = {name: inspect.getattr_static(owner, name) for name in dir(owner) if not name.startswith("_")}
    return {name for name, value in found.items() if wanted(value)} - set(LEFT_OUT)


def _is_operation(value: Any) -> bool:
    """A builtin of the compiler, a kernel of Triton's library, or a function of constants."""
    value = value.fget if isinstance(value, property) else value
    if inspect.ismodule(value) or isinstance(value, type):
        return False
    of_library = hasattr(value, "fn") and (value.fn.__module__ or "").startswith("triton")
    return tl.core.is_builtin(value) or of_library


def _parameters(operation: Any) -> Iterator[str]:
    try:
        found = inspect.signature(getattr(operation, "fn", operation)).parameters.values()
    except (TypeError, ValueError):
        return
    yield from (one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD))


TABLES = {
    "LANGUAGE": language,
    "LANGUAGE_MATH": language_math,
    "HELPER_FUNCTIONS": helper_functions,
    "PYTHON_MATH": python_math,
    "PYTHON_BUILTINS": python_builtins,
    "ATTRIBUTES": attributes,
    "KEYWORDS": keywords,
}
"""What makes each table of vocabulary.py."""


def written_down() -> str:
    """The text of vocabulary.py for the Triton that is installed."""
    parts = ['"""What a kernel may name: an allow-list, written by `python -m helpers.instructor.sandbox.dialect`."""']
    for table, find in TABLES.items():
        words = textwrap.fill(" ".join(sorted(find())), 116, initial_indent="    ", subsequent_indent="    ")
        parts.append(f'{table} = frozenset(\n    """\n{words}\n    """.split()\n)\n"""{find.__doc__}"""')
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("vocabulary.py").write_text(written_down(), encoding="utf-8")
