"""What a check returns: a bare number for the grader, a table for the learner."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any


@dataclass(frozen=True)
class Diagnosis:
    """A named mistake: what is wrong, a question that leads to the repair, and the hint to open, 1 to 3, or 0.

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
    """One case: its name, whether the answer was right there, and what was seen.

    `error` is the name of the type of an error that the answer raised.
    """

    case: str
    ok: bool
    seen: str
    error: str = ""


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Its repr is its points, which is what nbgrader reads; as text (`print`) and in Jupyter it says what was tried, what
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
    """What could not be found out, and costs no points."""
    most_ways: int = 4
    """As many different ways of being wrong have a line of their own; the others share one."""

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
            return f"{self.exercise}: not attempted yet. Fill in the cell above and run both again."
        right = sum(finding.ok for finding in self.findings)
        if self.passed:
            return f"{self.exercise}: right in all {right} cases, {self.points:g} of {self.max_points:g} points."
        points = f"{self.points:g} of {self.max_points:g} points" if self.points else "not finished yet"
        return f"{self.exercise}: right in {right} of {len(self.findings)} cases, {points}."

    def __str__(self) -> str:
        lines = [self.summary(), *([self.note] if self.note else [])]
        if self.attempted and not self.passed:
            if self.diagnosis:
                lines += [self.diagnosis.name, " ".join([self.diagnosis.question, *self._hint()])]
            lines += [f"{'✓' if ok else '✗'} {cases}{': ' if seen else ''}{seen}" for cases, ok, seen in self._lines()]
        return "\n".join(lines + (["Printed in one case:", self.printed] if self.printed else []))

    def _repr_html_(self) -> str:
        border = "var(--jp-border-color1, #999)" if not self.attempted else "#0072B2" if self.passed else "#D55E00"
        html = f"<b>{escape(self.summary())}</b>" + (f"<br>{escape(self.note)}" if self.note else "")
        if self.diagnosis and not self.passed:
            html += f"<br><b>{escape(self.diagnosis.name)}</b> <i>{escape(self.diagnosis.question)}</i>"
            html += "".join(f" {escape(hint)}" for hint in self._hint())
        html = f"<p style='border-left:4px solid {border};padding-left:8px'>{html}</p>"
        if self.attempted and not self.passed:
            rows = "".join(
                f"<tr><td style='text-align:left'>{'✓' if ok else '✗'} {escape(case)}</td>"
                f"<td style='text-align:left'>{escape(seen)}</td></tr>"
                for case, ok, seen in self._lines()
            )
            html += f"<table><tbody>{rows}</tbody></table>"
        if self.printed:
            html += f"<details><summary>Printed in one case</summary><pre>{escape(self.printed)}</pre></details>"
        return html

    def _hint(self) -> list[str]:
        return [f"Hint {self.diagnosis.hint} below goes on from there."] if self.diagnosis.hint else []

    def _lines(self) -> list[tuple[str, bool, str]]:
        """Wrong cases first, those that failed in the same words together and the fifth way on in one line; then the
        right ones in one line."""
        wrong: dict[str, list[str]] = {}
        for finding in self.findings:
            if not finding.ok:
                wrong.setdefault(finding.seen, []).append(finding.case)
        lines = [(_listed(names), False, seen) for seen, names in list(wrong.items())[: self.most_ways]]
        if others := [name for names in list(wrong.values())[self.most_ways :] for name in names]:
            lines.append((_listed(others, most=99), False, "wrong as well"))
        right = [finding.case for finding in self.findings if finding.ok]
        return [*lines, (_listed(right, most=99), True, "")] if right else lines


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more cases" if len(names) > most else ""
    return "; ".join(names[:most]) + more
