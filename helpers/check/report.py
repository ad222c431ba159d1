"""What a check returns: a bare number for the grader, a table for the learner."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from helpers.engine.numbers import counted


@dataclass(frozen=True)
class Diagnosis:
    """A named mistake: the fault, a question that leads to the repair, and the hint to open, 1 to 4, or 0.

    `id` is what code calls it, the same in every exercise; the words may change.
    """

    id: str
    name: str
    question: str
    hint: int

    def plain(self) -> dict[str, Any]:
        """Its fields as plain values."""
        return {"id": self.id, "name": self.name, "question": self.question, "hint": self.hint}


@dataclass(frozen=True)
class Finding:
    """One case: its name, whether the answer was right there, and the outcome.

    `error` is the name of the type of an error that the answer raised. Findings of one `kind` share a line, findings of
    none only if they say the same. One with `extra` is about all cases together, and is not counted as a case.
    """

    case: str
    ok: bool
    seen: str
    error: str = ""
    kind: str = ""
    extra: bool = False
    trips: tuple[float, float] | None = None
    """Loads and stores per element, if it is about these and they are few enough."""


class Accesses(NamedTuple):
    """How often each element of some rows of x was loaded in a case, and of the result stored, by the rows' numbers."""

    case: str
    loaded: dict[int, list[int]]
    stored: dict[int, list[int]]

    def _repr_html_(self) -> str:
        from helpers import draw  # matplotlib, which a grader does not need

        summary = f"The loads and stores of your kernel: {self.case}"
        picture = draw.accesses(self.loaded, self.stored)._repr_html_()
        return f"<details><summary>{escape(summary)}</summary>{picture}</details>"


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Its repr is its points, which nbgrader reads; as text (`print`) and in Jupyter it says what was tried, what
    went wrong first, and which mistake that looks like.
    """

    exercise: str
    max_points: float
    attempted: bool
    findings: tuple[Finding, ...]
    kept: float = 0
    """Points for an answer of which not every finding is right."""
    diagnosis: Diagnosis | None = None
    printed: str = ""
    """The first lines that the answer printed in one of the cases."""
    note: str = ""
    """What could not be found out, and costs no points in a notebook; where it is graded, somebody has to look."""
    most_ways: int = 4
    """As many different ways of being wrong have a line of their own; the others share one."""
    shown_by: str = ""
    """The case that shows the diagnosis, whose line is the first."""
    because: str = ""
    """Why an answer that is not right has the points that it has, in a sentence."""
    failed_cell: str = ""
    """That the last run of the answer's cell failed, and an earlier version is judged."""
    accesses: Accesses | None = None
    """The loads and stores of kernels in a wrong case, if these show something."""
    why: str = ""
    """For an answer that has passed: a question about it."""
    ours: str = ""
    """For an answer that has passed: the text of the course's own."""

    @property
    def passed(self) -> bool:
        """True where the exercise was attempted and every finding is right."""
        return self.attempted and all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """All points for an answer that is right everywhere; a right one that makes too many trips keeps half."""
        return self.max_points if self.passed else self.kept

    def __repr__(self) -> str:
        return f"{self.points:g}"

    def summary(self) -> str:
        """One sentence: not attempted, wrong, or right."""
        if not self.attempted:
            said = (
                "Write your answer into its cell, under the name that stands there, run that cell, and then this check"
            )
            return f"{self.exercise}: not attempted yet: the result is that of the empty cell. {said}."
        cases = [finding.ok for finding in self.findings if not finding.extra]
        most = f"{self.max_points:g} point{'s' * (self.max_points != 1)}"
        if self.passed:
            every = "all " * (len(cases) > 1)
            earned = f", {self.points:g} of {most}" if self.max_points else ""
            return f"{self.exercise}: right in {every}{counted(len(cases), 'case')}{earned}."
        points = f"{self.points:g} of {most}" if self.points else "not finished yet"
        if cases and all(cases):
            said = f"{self.exercise}: all results are right ({counted(len(cases), 'case')}), but {points}."
        else:
            said = f"{self.exercise}: right in {sum(cases)} of {counted(len(cases), 'case')}, {points}."
        return f"{said} {self.because}".rstrip()

    def __str__(self) -> str:
        lines = [line for line in (self.failed_cell, self.summary(), self.note) if line]
        if self.attempted and not self.passed:
            if self.diagnosis:
                lines += [self.diagnosis.name, " ".join([self.diagnosis.question, *self._hint()])]
            lines += [f"{'✓' if ok else '✗'} {cases}{': ' if seen else ''}{seen}" for cases, ok, seen in self._lines()]
        return "\n".join(lines + (["Printed in one case:", self.printed] if self.printed else []))

    def _repr_html_(self) -> str:
        border = "var(--jp-border-color1, #999)" if not self.attempted else "#0072B2" if self.passed else "#D55E00"
        html = f"<b>{escape(self.failed_cell)}</b><br>" if self.failed_cell else ""
        html += f"<b>{escape(self.summary())}</b>" + (f"<br>{escape(self.note)}" if self.note else "")
        if self.diagnosis and not self.passed:
            html += f"<br><b>{escape(self.diagnosis.name)}</b> <i>{escape(self.diagnosis.question)}</i>"
            html += "".join(f" {escape(hint)}" for hint in self._hint())
        html = f"<p style='border-left:4px solid {border};padding-left:8px'>{html}</p>"
        if self.attempted and not self.passed:
            html += f"<table>{_HEAD}<tbody>{''.join(map(_row, self._lines()))}</tbody></table>"
            html += self.accesses._repr_html_() if self.accesses else ""
        if self.passed and self.ours:
            summary = f"{self.why} (And the course's own answer, to compare.)"
            html += f"<details><summary>{escape(summary)}</summary><pre>{escape(self.ours)}</pre></details>"
        if self.printed:
            html += f"<details><summary>Printed in one case</summary><pre>{escape(self.printed)}</pre></details>"
        return html

    def _hint(self) -> list[str]:
        return [f"More in Hint {self.diagnosis.hint} below."] if self.diagnosis.hint else []

    def _lines(self) -> list[_Line]:
        """Wrong cases first, the one that shows the diagnosis before all others, failures of one kind in one
        line, and the fifth way on in one line together; then the right ones in one line."""
        wrong: dict[str, list[Finding]] = {}
        for finding in sorted(self.findings, key=lambda finding: finding.case != self.shown_by):
            if not finding.ok:
                wrong.setdefault(finding.kind or finding.seen, []).append(finding)
        lines = [
            _Line(_listed([one.case for one in same]), False, _cut(same[0].seen, 600))
            for same in list(wrong.values())[: self.most_ways]
        ]
        if others := [one.case for same in list(wrong.values())[self.most_ways :] for one in same]:
            lines.append(_Line(_listed(others, most=99), False, "wrong as well"))
        right = [finding.case for finding in self.findings if finding.ok]
        return [*lines, _Line(_listed(right, most=99), True, "")] if right else lines


_HEAD = "<thead><tr><th scope='col' {0}>case</th><th scope='col' {0}>what was seen</th></tr></thead>".format(
    "style='text-align:left'"
)


class _Line(NamedTuple):
    cases: str
    ok: bool
    seen: str


def _row(line: _Line) -> str:
    """A line as a row of a table. That of the right cases is folded, so that it takes no room from what went wrong."""
    left = "style='text-align:left'"
    if line.ok:
        cases = escape(line.cases)
        return f"<tr><td colspan=2 {left}><details><summary>✓ the others</summary>✓ {cases}</details></td></tr>"
    case, seen = escape(line.cases), escape(line.seen)
    return f"<tr><td {left}>✗ {case}</td><td {left}>{seen}</td></tr>"


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {counted(len(names) - most, 'more case')}" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_lines(printed: str) -> str:
    """The beginning of the printed text: 20 lines of 200 characters."""
    return "\n".join(_cut(line, 200) for line in printed.splitlines()[:20])
