"""Sentences that a cell prints, in lines that a notebook shows whole."""

from __future__ import annotations

import textwrap

WIDTH = 72
"""Characters of a line: in JupyterLab's own font a window of 700 px shows 74."""


def say(sentence: str) -> None:
    """Prints a sentence, broken between words; its second line and those after it are indented."""
    print(textwrap.fill(sentence, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))
