"""The store by which a request is compiled only once: what came of it, in memory and on disk."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import triton

from helpers.engine.files import write_whole

_KEPT_IN_MEMORY = 1024
_LONGEST = 1_000
"""Characters of a text in an answer."""
LARGEST_ENTRY = 64 << 10
"""Bytes that a file may have; larger ones are not kept."""
MOST_ENTRIES, LARGEST_CACHE, OLDEST_S = 5_000, 64 << 20, 90 * 24 * 3600
"""Files, their bytes together, and the seconds since they were written: beyond them the oldest are removed."""
_WRITTEN_BETWEEN = 100
"""Files that a process writes before it looks at all of them again."""

answers: dict[str, dict[str, str]] = {}
"""The compiler's answers to the tasks of verdict.py that are in memory, by key."""


def file_of(key: str) -> Path:
    """Where the entry with this key is kept on disk."""
    return Path(triton.knobs.cache.dir) / "xray" / f"{key}.json"


def known_answers(together: str, keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """The answers with these keys that are in memory, or on disk in the one file of all keys `together`."""
    wanted = set(keys)
    if not wanted <= set(answers):
        with suppress(OSError, ValueError, TypeError, AttributeError):
            data = json.loads(file_of(together).read_text(encoding="utf-8"))
            for key in wanted & set(data):
                keep_in_memory(answers, key, _modest(data[key]))
    return {key: answers[key] for key in wanted & set(answers)}


def keep_answers(together: str, found: dict[str, dict[str, str]]) -> None:
    """Puts answers in memory and, if the folder can be written, on disk, in one file."""
    found = {key: _modest(answer) for key, answer in found.items()}
    for key, answer in found.items():
        keep_in_memory(answers, key, answer)
    keep_on_disk(together, found)


def _modest(answer: Mapping[str, Any]) -> dict[str, str]:
    """The reason and the meaning in an answer, if neither of them is long."""
    return {name: str(answer[name])[:_LONGEST] for name in ("reason", "meaning") if name in answer}


def keep_on_disk(key: str, data: dict[str, Any]) -> None:
    """Writes an entry if it is not large and the folder can be written, and then removes surplus entries."""
    content = json.dumps(data).encode()
    if len(content) > LARGEST_ENTRY:
        return
    with suppress(OSError):
        write_whole(file_of(key), content)
        if next(_count) % _WRITTEN_BETWEEN == 0:
            remove_oldest(file_of(key).parent)


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


def keep_in_memory(kept: dict[Any, Any], key: Any, value: Any) -> None:
    """Keeps a value in memory; if there are too many, the one that came first goes."""
    while key not in kept and len(kept) >= _KEPT_IN_MEMORY:
        kept.pop(next(iter(kept), None), None)
    kept[key] = value
