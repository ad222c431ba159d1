"""Make my-lessons/, where a learner works: a copy of each lesson, which nothing here ever writes over.

When a lesson has a newer edition, that is laid next to the copy, with the learner's cells carried over; a copy that
nobody has touched gives way to it. What a copy was made from is kept in my-lessons/.editions.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]
PUBLISHED, MINE, PROGRESS = "lessons", "my-lessons", "progress.json"

RENAMED = {
    "02_fused_single_tile": "02_your_first_kernel",
    "06_choosing_a_variant": "07_choosing_a_variant",
    "07_benchmarks_that_lie": "08_benchmarks_that_lie",
    "08_one_row_many_programs": "09_one_row_many_programs",
}
"""The earlier names of lessons, and the present ones."""

CARRIED = "**From your copy of the earlier edition:** the next cell, which the newer edition has changed too."


class Merged(NamedTuple):
    """A newer edition with a learner's cells, and how many of these the newer edition has changed or dropped."""

    notebook: dict
    both_changed: int


def carry_over(earlier: dict, mine: dict, newer: dict) -> Merged:
    """The newer edition of a notebook with every cell that the learner changed or added since the earlier one.

    A cell is known by its id. Of several with one id, as copies have in VS Code, the first one that was changed is that
    cell; the others, and those without an id, are cells that the learner added. One that both have changed stands after
    the newer edition's, under a line that says so: nothing of the learner's is lost, and what runs last is theirs.
    Raises ValueError where fewer than half of the earlier edition's cells can be found, and some other exception for
    anything but a notebook.
    """
    was, now, theirs = _sources(earlier), _sources(newer), _sources(mine)
    if 2 * len(was.keys() & theirs.keys()) < len(was):
        raise ValueError("the cells have other ids")
    replaced: dict[str, dict] = {}
    after: dict[str | None, list[dict]] = {}
    used = {*now} - {None}
    place, both_changed, met = None, 0, {None}
    for cell in mine["cells"]:
        name, source = cell.get("id"), "".join(cell["source"])
        place = name if name in now else place
        if source in was.get(name, []) or source in now.get(name, []):
            continue
        is_first = name in was and name not in met
        met.add(name)
        if is_first and len(was[name]) == 1 and now.get(name) == was[name]:
            replaced[name] = {"source": source, **{key: cell[key] for key in ("attachments",) if key in cell}}
            continue
        if is_first:
            both_changed += 1
            text = {"cell_type": "markdown", "id": _unused(f"{name}-carried", used), "metadata": {}, "source": CARRIED}
            after.setdefault(place, []).append(text)
        after.setdefault(place, []).append(_bare(cell, _unused(name or "cell", used)))
    cells = after.pop(None, [])
    for cell in newer["cells"]:
        cells.append(cell | replaced.get(cell.get("id"), {}))
        cells += after.pop(cell.get("id"), [])
    return Merged(newer | {"cells": cells}, both_changed)


def _sources(notebook: dict) -> dict[str | None, list[str]]:
    """The texts of a notebook's cells by their ids."""
    sources: dict[str | None, list[str]] = {}
    for cell in notebook["cells"]:
        sources.setdefault(cell.get("id"), []).append("".join(cell["source"]))
    return sources


def _unused(name: str, used: set[str]) -> str:
    """A cell's id that no other cell has, and that is then used."""
    while name in used:
        name = f"{name[:58]}-mine"
    used.add(name)
    return name


def _bare(cell: dict, name: str) -> dict:
    """A learner's cell without outputs, and without metadata, which would mark two cells as the same exercise."""
    kept = {key: cell[key] for key in ("cell_type", "source", "attachments") if key in cell}
    return (
        kept
        | {"id": name, "metadata": {}}
        | ({"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {})
    )


def committed(path: Path) -> bytes | None:
    """What git's last commit holds of a file; None without git, or without such a file in it."""
    command = ["git", "show", f"HEAD:./{path.name}"]
    try:
        shown = subprocess.run(command, cwd=path.parent, stdin=subprocess.DEVNULL, capture_output=True)
    except OSError:
        return None
    return shown.stdout if shown.returncode == 0 else None


def bring(checkout: Path, published: Callable[[Path], bytes | None] = committed) -> Iterator[str]:
    """Bring my-lessons/ to what lessons/ has; sentences say what has changed.

    `published` gives the published text of a lesson, from which the file in lessons/ differs where somebody has worked
    there: their work goes to my-lessons/ as well. A lesson that cannot be brought has a sentence too, and stays as it
    is; all others are brought. Raises OSError where my-lessons/ cannot be made.
    """
    mine = checkout / MINE
    if not mine.exists():
        yield f"{MINE}/ has your copies of the lessons: work there, and `git pull` never touches them."
    (mine / ".editions" / "worked").mkdir(parents=True, exist_ok=True)
    for earlier, now in RENAMED.items():
        yield from _unless_damaged(now, _rename(mine, earlier, now))
    edited: list[str] = []
    for path in sorted((checkout / PUBLISHED).glob("*.ipynb")):
        yield from _unless_damaged(path.stem, _bring_lesson(path, mine, published, edited))
    progress = checkout / PUBLISHED / PROGRESS
    if progress.is_file() and not (mine / PROGRESS).exists():
        _write(mine / PROGRESS, progress.read_bytes())
    if edited:
        yield (
            f"Somebody has worked in {PUBLISHED}/ ({', '.join(edited)}). That work is in {MINE}/ too: go on there, and "
            f"run `git checkout {PUBLISHED}` before the next `git pull`."
        )


def _unless_damaged(lesson: str, sentences: Iterator[str]) -> Iterator[str]:
    """The sentences about a lesson, the last of which says, if that is so, why it cannot be brought."""
    try:
        yield from sentences
    except Exception as error:  # whatever is wrong with a learner's file
        yield f"{lesson} cannot be brought up to date: {error}. Your copies of it stay as they are."


def _bring_lesson(
    path: Path, mine: Path, published: Callable[[Path], bytes | None], edited: list[str]
) -> Iterator[str]:
    """Bring one lesson, and add its name to `edited` if somebody has worked in lessons/."""
    text = path.read_bytes()
    edition = published(path) or text
    kept, taken = mine / ".editions" / path.name, mine / ".editions" / "worked" / path.name
    copies = _copies(mine, path.stem)
    if copies and not copies[-1].is_file():
        raise ValueError(f"{copies[-1].name} stands in a copy's place, and cannot be read; give it another name")
    if not copies:
        _write(mine / path.name, text)
    elif not kept.exists() and not _same(copies[-1].read_bytes(), edition):
        yield _lay_beside(copies[-1], None, edition)
    elif kept.exists() and kept.read_bytes() != edition:
        yield _lay_beside(copies[-1], kept.read_bytes(), edition)
    _write(kept, edition)
    if not _same(text, edition):
        edited.append(path.name)
        if copies and not (taken.exists() and taken.read_bytes() == text):
            beside = _free(mine, path.stem, "lessons")
            _write(beside, text)
            yield f"{PUBLISHED}/{path.name} has work in it that {MINE}/ had not: it is in {beside.name}."
        _write(taken, text)


def _rename(mine: Path, earlier: str, now: str) -> Iterator[str]:
    """Give copies of a lesson, and their kept progress, the name that it has now; nothing where that is taken."""
    copies = _copies(mine, earlier)
    if copies and not _copies(mine, now):
        kept = [mine / ".editions" / f"{earlier}.ipynb", mine / ".editions" / "worked" / f"{earlier}.ipynb"]
        for path in [*copies, *(path for path in kept if path.exists())]:
            path.rename(path.with_name(path.name.replace(earlier, now, 1)))
        yield f"{earlier} is called {now} now: your copy has the new name too."


def _write(path: Path, content: bytes) -> None:
    """Write a file in one step: it is whole, or as it was. Of a link, the file that it leads to is written."""
    path = path.resolve() if path.exists() else path
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    os.replace(partial, path)


def _same(one: bytes, other: bytes) -> bool:
    """Whether two notebooks are the same, whatever the ends of their lines."""
    try:
        return one == other or json.loads(one) == json.loads(other)
    except (ValueError, RecursionError):
        return False


def _number(path: Path) -> int:
    return int(re.search(r"\d*$", path.stem).group() or 1)


def _copies(mine: Path, stem: str) -> list[Path]:
    """The copies of a lesson, the newest last."""
    first = mine / f"{stem}.ipynb"
    return [first] * first.exists() + sorted(mine.glob(f"{stem}.newer*.ipynb"), key=_number)


def _free(mine: Path, stem: str, word: str) -> Path:
    """A name that no file has: stem.word.ipynb, stem.word2.ipynb, …"""
    number = 1 + max((_number(path) for path in mine.glob(f"{stem}.{word}*.ipynb")), default=0)
    return mine / f"{stem}.{word}{number if number > 1 else ''}.ipynb"


def _lay_beside(latest: Path, earlier: bytes | None, edition: bytes) -> str:
    """Lay a newer edition next to the latest copy, or in its place where nobody has touched it; say which."""
    content, lesson = latest.read_bytes(), latest.name.partition(".")[0]
    if earlier is not None and _same(content, earlier):
        _write(latest, edition)
        return f"{lesson} has a newer edition: {latest.name}, which you had not touched, is the newer one now."
    beside, also = _free(latest.parent, lesson, "newer"), ""
    try:
        if earlier is None:
            raise ValueError("what the copy was made from is not known")
        merged = carry_over(json.loads(earlier), json.loads(content), json.loads(edition))
        # A lone surrogate, half of a character, becomes a question mark.
        text = (json.dumps(merged.notebook, indent=1, ensure_ascii=False) + "\n").encode(errors="replace")
    except Exception as error:  # whatever is in the file
        _write(beside, edition)
        reason = error if isinstance(error, ValueError) else "parts of a notebook are missing in it"
        carried = f"without your cells ({reason})"
    else:
        _write(beside, text)
        carried = "with your cells carried over"
        if merged.both_changed:
            also = f"; where both have changed a cell ({merged.both_changed}), yours stands after the newer one"
    return f"{lesson} has a newer edition: {beside.name}, {carried}{also}. {latest.name} stays as it is."


def main() -> int:
    """Bring my-lessons/ up to date, and list the changes in it."""
    try:
        for sentence in bring(CHECKOUT):
            print(sentence, flush=True)
    except OSError as error:
        print(f"{MINE}/ cannot be brought up to date: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
