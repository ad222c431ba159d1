"""Counts turns of phrase that readers stumble over: in texts of notebooks, in guides, and in docstrings and messages.

    python tests/lint/prose.py [--list]

prints how often each stands in 10,000 words, and with --list where. The rates of three widely read courses (fastai's
and Raschka's notebooks, gpu-mode's lecture 014) stand beside them.
"""

import ast
import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TURNS = {
    "is no NOUN": (
        r"(?<!here )\b(?:is|are|was|were) no (?!(?:longer|more|one|other|faster|slower|larger|smaller|better)\b)[a-z]+",
        0.5,
    ),
    "what is, as subject or object": (r"\b[Ww]hat (?:is|are|was|were|has|have|does not)\b(?![^.?!|]*\?)", 6.0),
    "those that": (r"\b[Tt]hose (?:that|of|which|who|whose|with|in)\b", 1.5),
    "as many": (r"\bas many\b", 1.0),
    "anew, for ever, so many": (r"\b(?:anew|for ever|so many(?! \w+ that))\b", 1.0),
    "beside": (r"\b[Bb]eside\b(?!\.py)", 0.0),
}
"""Each with the pattern that finds it, and the rate from which on it is a manner: a little above the courses'."""


def words(text: str) -> int:
    """Words that are words: with a letter in them."""
    return len(re.findall(r"[^\W\d_]+(?:['’-][^\W\d_]+)*", text))


def notebook_texts() -> Iterator[tuple[str, str]]:
    """The text cells of the solutions, folded parts included."""
    for path in sorted(ROOT.glob("solutions/*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield f"{path.name} {cell['id']}", "".join(cell["source"])


def guide_texts() -> Iterator[tuple[str, str]]:
    """The guides."""
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("helpers/**/*.md"), *ROOT.glob(".github/*.md")]):
        text = path.read_text(encoding="utf-8")
        yield str(path.relative_to(ROOT)), text


def code_texts() -> Iterator[tuple[str, str]]:
    """Docstrings, messages and comments of helpers: every string of at least three words."""
    for path in sorted(ROOT.glob("helpers/**/*.py")):
        source = path.read_text(encoding="utf-8")
        strings = [
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and words(node.value) > 2
        ]
        comments = re.findall(r"(?m)^\s*# (.*)$|  # (.*)$", source)
        yield str(path.relative_to(ROOT)), "\n".join([*strings, *(a or b for a, b in comments)])


PARTS = {"notebooks": notebook_texts, "guides": guide_texts, "code": code_texts}


@functools.cache
def texts_of(part: str) -> list[tuple[str, str]]:
    """The texts of a part, each with where it stands."""
    return list(PARTS[part]())


def found(texts: list[tuple[str, str]], pattern: str) -> list[tuple[str, str]]:
    """Where a turn stands, with the words around it."""
    hits = []
    for where, text in texts:
        for match in re.finditer(pattern, " ".join(text.split())):
            near = " ".join(text.split())[max(0, match.start() - 40) : match.end() + 40]
            hits.append((where, near))
    return hits


def rate(part: str, turn: str) -> float:
    """How often a turn stands in 10,000 words of a part."""
    total = sum(words(text) for _, text in texts_of(part))
    return 1e4 * len(found(texts_of(part), TURNS[turn][0])) / total


def too_frequent() -> Iterator[str]:
    """Each turn that a part has more often than those courses, with every place."""
    for part in PARTS:
        for turn, (pattern, courses) in TURNS.items():
            if rate(part, turn) > courses:
                yield f"{turn}: {rate(part, turn):.1f} in 10,000 words of {part}, more than {courses}"
                yield from (f"    {where}: … {near} …" for where, near in found(texts_of(part), pattern))


def main() -> None:
    """Print the rates, and what they count."""
    print(f"{'':32}", *(f"{part:>10}" for part in PARTS), "   courses")
    for turn, (pattern, courses) in TURNS.items():
        print(f"{turn:32}", *(f"{rate(part, turn):10.1f}" for part in PARTS), f"{courses:10.1f}")
        if "--list" in sys.argv:
            for part in PARTS:
                for where, near in found(texts_of(part), pattern):
                    print(f"    {part}: {where}: … {near} …")
    for part in PARTS:
        print(f"{part}: {sum(words(text) for _, text in texts_of(part))} words")


if __name__ == "__main__":
    main()
