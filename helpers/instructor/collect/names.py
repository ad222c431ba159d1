"""Names of students as names of folders, and files that nobody has handed in.

A student is called as the folder is: letters, marks and signs of every script stay, composed, so that one name has one
form. Only what a file system or a terminal cannot hold is written as %XX, as is % itself: no two names become one.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Sequence

LONGEST_BYTES = 180
"""Bytes of a folder's name: file systems allow 255, suffixes included."""
_NOT_IN_NAMES = {"Cc", "Cs", "Zl", "Zp"}
"""Categories of characters: control, halves of characters, and what ends a line or a paragraph."""
_OF_SYSTEMS = re.compile(
    r"\.(?!\.?$)|~\$|(__MACOSX|__pycache__|\$RECYCLE\.BIN|System Volume Information|lost\+found|Icon\r|"
    r"(eh)?thumbs\.db|desktop\.ini|[^/]*:Zone\.Identifier)$",
    re.IGNORECASE,
)
_NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)


def composed(text: str) -> str:
    """The text with every letter in its composed form (NFC), which is one where macOS and others differ."""
    return unicodedata.normalize("NFC", text)


def folder_name(name: str) -> str:
    """The name of the folder of a student of this name; another one for every other name. Never empty or hidden."""
    safe = "".join(map(_escaped, composed(name).replace("%", "%25")))
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe.encode()) > LONGEST_BYTES:
        digest = hashlib.sha256(safe.encode()).hexdigest()[:12]
        safe = safe.encode()[: LONGEST_BYTES - 13].decode(errors="ignore") + "~" + digest
    return safe or "%"


def _escaped(letter: str) -> str:
    if letter != "/" and unicodedata.category(letter) not in _NOT_IN_NAMES:
        return letter
    return "".join(f"%{byte:02X}" for byte in os.fsencode(letter))


def unusable(folder: str) -> str:
    """Why the folder of a student cannot have this name; "" where it can."""
    if any(unicodedata.category(letter) in _NOT_IN_NAMES for letter in folder):
        return "its name holds a control character, or bytes that are not UTF-8; rename it"
    if len(folder.encode()) > LONGEST_BYTES:
        return f"its name has {len(folder.encode())} bytes; {LONGEST_BYTES} are the most; rename it"
    return ""


def printable(text: str) -> str:
    """A name as it is, save for what a terminal would take for a command, which is shown as \\x1b or \\udc80 is."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def listed(names: Iterable[str], most: int = 3) -> str:
    """Names in a line, the first few of many."""
    names = [printable(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def of_system(parts: Sequence[str]) -> bool:
    """Whether a path leads to what a system has made among the files of people: hidden, checkpoints, __MACOSX, …"""
    return any(_OF_SYSTEMS.match(part) for part in parts)


def is_notebook(name: str) -> bool:
    """Whether a file is called as notebooks are; browsers append .txt or .json."""
    return bool(_NOTEBOOK.search(name))


def without_suffix(name: str) -> str:
    """The name of a file without .ipynb or .zip, however written."""
    return re.sub(r"\.zip$", "", _NOTEBOOK.sub("", re.sub(r"\.zip$", "", name, flags=re.I)), flags=re.I)
