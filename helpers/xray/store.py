"""The store by which a request is compiled only once: source text in memory, reports in memory and on disk."""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import time
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton

from helpers.engine import compiled, kernel_text
from helpers.engine.files import write_whole
from helpers.xray.figures import KernelReport

if TYPE_CHECKING:
    from helpers.xray.request import CompileRequest

_FORMAT = 2
_KEPT_IN_MEMORY = 1024
_LONGEST = 1_000
"""Characters of a text in an answer."""
LARGEST_ENTRY = 64 << 10
"""Bytes that a file may have; larger ones are not kept."""
MOST_ENTRIES, LARGEST_CACHE, OLDEST_S = 5_000, 64 << 20, 90 * 24 * 3600
"""Files, their bytes together, and the seconds since they were written: beyond them the oldest are removed."""
_WRITTEN_BETWEEN = 100
"""Files that a process writes before it looks at all of them again."""

reports: dict[str, KernelReport] = {}
"""The entries in memory, by key."""

answers: dict[str, dict[str, str]] = {}
"""The compiler's answers to the tasks of verdict.py that are in memory, by key."""

_texts: dict[Any, str] = {}


def source_of(kernel: Any) -> str:
    """The kernel's text for another process, made again only if something that the kernel names has changed."""
    try:
        mark = _mark(kernel)
        if mark not in _texts:
            _remember(_texts, mark, kernel_text.source(kernel))
        return _texts[mark]
    except TypeError:  # a global without a hash; kernel_text.source has a sentence about it
        return kernel_text.source(kernel)


def _mark(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """Something hashable that is equal for equal kernels: code, signature, and the values of the names used."""
    if type(value).__name__ == "constexpr":
        value = value.value
    function = getattr(value, "fn", None)
    if function in inside:
        return None
    if isinstance(function, types.FunctionType) and not (function.__module__ or "").startswith("triton."):
        code = function.__code__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        names = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}
        used = [name for name in (*code.co_names, *code.co_freevars) if name in names]
        marks = tuple((name, _mark(names[name], (*inside, function))) for name in used)
        return code, str(inspect.signature(function)), kernel_text.decorator(value), marks
    return (type(value), repr(value)) if isinstance(value, int | float) else value


def key_of(request: CompileRequest) -> str:
    """Names a report by a hash of everything that the report depends on."""
    constants = [(name, type(value).__name__, repr(value)) for name, value in request.constants]
    asked = replace(request, constants=tuple(constants))
    return hashlib.sha256(repr((_FORMAT, triton.__version__, compiled.assemblers(), asked)).encode()).hexdigest()


def _file(key: str) -> Path:
    return Path(triton.knobs.cache.dir) / "xray" / f"{key}.json"


def known(key: str) -> KernelReport | None:
    """The report of this key, from memory or from disk."""
    if key not in reports and (report := _read(_file(key))):
        _remember(reports, key, report)
    return reports.get(key)


def keep(key: str, report: KernelReport) -> KernelReport:
    """Puts a report in memory and, if the folder can be written, on disk; returns the report."""
    _remember(reports, key, report)
    _write(key, asdict(report))
    return report


def known_answers(together: str, keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """The answers with these keys that are in memory, or on disk in the one file of all keys `together`."""
    wanted = set(keys)
    if not wanted <= set(answers):
        with suppress(OSError, ValueError, TypeError, AttributeError):
            data = json.loads(_file(together).read_text(encoding="utf-8"))
            for key in wanted & set(data):
                _remember(answers, key, _modest(data[key]))
    return {key: answers[key] for key in wanted & set(answers)}


def keep_answers(together: str, found: dict[str, dict[str, str]]) -> None:
    """Puts answers in memory and, if the folder can be written, on disk, in one file."""
    found = {key: _modest(answer) for key, answer in found.items()}
    for key, answer in found.items():
        _remember(answers, key, answer)
    _write(together, found)


def _modest(answer: Mapping[str, Any]) -> dict[str, str]:
    """The reason and the meaning in an answer, if neither of them is long."""
    return {name: str(answer[name])[:_LONGEST] for name in ("reason", "meaning") if name in answer}


def _write(key: str, data: dict[str, Any]) -> None:
    """Writes an entry if it is not large and the folder can be written, and then removes surplus entries."""
    content = json.dumps(data).encode()
    if len(content) > LARGEST_ENTRY:
        return
    with suppress(OSError):
        write_whole(_file(key), content)
        if next(_count) % _WRITTEN_BETWEEN == 0:
            remove_oldest(_file(key).parent)


_count = itertools.count()


def remove_oldest(folder: Path, now: float | None = None) -> None:
    """Removes entries that are too old, then the oldest until the others are few and small enough.

    Raises OSError if the folder cannot be read.
    """
    entries = sorted(((found.stat(), found.path) for found in os.scandir(folder)), key=lambda one: -one[0].st_mtime)
    oldest = (time.time() if now is None else now) - OLDEST_S
    size = 0
    for number, (about, path) in enumerate(entries):
        size += about.st_size
        if about.st_mtime < oldest or number >= MOST_ENTRIES or size > LARGEST_CACHE:
            Path(path).unlink(missing_ok=True)


def _remember(kept: dict[Any, Any], key: Any, value: Any) -> None:
    while key not in kept and len(kept) >= _KEPT_IN_MEMORY:
        kept.pop(next(iter(kept), None), None)
    kept[key] = value


def _read(path: Path) -> KernelReport | None:
    """The report in a file, or None if there is no file or the file is damaged."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        for name in ("loads", "stores"):
            data[name] = data[name] and {int(bits): int(number) for bits, number in data[name].items()}
        report = KernelReport(**data)
        report.table()
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return report
