"""Small tables, as aligned text and as HTML that follows JupyterLab's theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class Tabular:
    """Shows itself by the table that its `table()` returns, as text and as HTML. A dataclass needs `repr=False` too."""

    def table(self) -> Table:
        """The table to show."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return repr(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


class Table:
    """Rows of cells under a head, with notes below.

    `align` has an "l" or "r" for each column; by default the first is left-aligned and the others right-aligned.
    """

    def __init__(
        self, head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), align: str = ""
    ) -> None:
        self.head, self.rows, self.notes = head, rows, notes
        self.align = align or "l" + "r" * (len(head) - 1)

    def __repr__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        text = []
        for line in lines:
            cells = zip(line, widths, self.align, strict=True)
            text.append(
                "  ".join(c.ljust(width) if side == "l" else c.rjust(width) for c, width, side in cells).rstrip()
            )
        return "\n".join([*text, *self.notes])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            sides = ("left" if side == "l" else "right" for side in self.align)
            styled = (f'<{tag} style="text-align:{s}">{escape(c)}</{tag}>' for c, s in zip(cells, sides, strict=True))
            return f"<tr>{''.join(styled)}</tr>"

        body = "".join(line(row, "td") for row in self.rows)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead>{line(self.head, 'th')}</thead><tbody>{body}</tbody></table>{notes}"
