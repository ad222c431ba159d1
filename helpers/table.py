"""Small tables, as aligned text and as HTML that follows JupyterLab's theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class Table:
    """Rows of cells under a head, with notes below. The first column is left-aligned, the others right-aligned."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
        self.head, self.rows, self.notes = head, rows, notes

    def __repr__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        text = []
        for first, *rest in lines:
            right = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            text.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
        return "\n".join([*text, *self.notes])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            sides = ["left"] + ["right"] * (len(cells) - 1)
            styled = (f'<{tag} style="text-align:{s}">{escape(c)}</{tag}>' for c, s in zip(cells, sides, strict=True))
            return f"<tr>{''.join(styled)}</tr>"

        body = "".join(line(row, "td") for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead>{line(self.head, 'th')}</thead><tbody>{body}</tbody></table>{notes}"
