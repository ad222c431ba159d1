"""What a check returns: a bare number for the grader, a table for the learner."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Finding:
    """One case: its name, whether the answer was right there, and what was seen."""

    case: str
    ok: bool
    seen: str


@dataclass(frozen=True)
class Report:
    """The result of a check. As text it is its points, which is what nbgrader reads; in Jupyter it is a table."""

    exercise: str
    max_points: float
    attempted: bool
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """True where the exercise was attempted and every case is right."""
        return self.attempted and all(finding.ok for finding in self.findings)

    @property
    def points(self) -> float:
        """All points for an answer that is right everywhere, none otherwise."""
        return self.max_points if self.passed else 0

    def __repr__(self) -> str:
        return f"{self.points:g}"

    def summary(self) -> str:
        """One sentence: not attempted, wrong, or right."""
        if not self.attempted:
            return f"{self.exercise}: not attempted yet. Fill in the cell above and run both again."
        right = sum(finding.ok for finding in self.findings)
        if self.passed:
            return f"{self.exercise}: right in all {right} cases, {self.points:g} of {self.max_points:g} points."
        return f"{self.exercise}: right in {right} of {len(self.findings)} cases, not finished yet."

    def _repr_html_(self) -> str:
        border = "var(--jp-border-color1, #999)" if not self.attempted else "#0072B2" if self.passed else "#D55E00"
        head = f"<p style='border-left:4px solid {border};padding-left:8px'><b>{escape(self.summary())}</b></p>"
        if not self.attempted or self.passed:
            return head
        rows = "".join(
            f"<tr><td style='text-align:left'>{'✓' if ok else '✗'} {escape(case)}</td>"
            f"<td style='text-align:left'>{escape(seen)}</td></tr>"
            for case, ok, seen in self._lines()
        )
        return f"{head}<table><tbody>{rows}</tbody></table>"

    def _lines(self) -> list[tuple[str, bool, str]]:
        """Wrong cases first, those that failed in the same words together; then the right ones in one line."""
        wrong: dict[str, list[str]] = {}
        for finding in self.findings:
            if not finding.ok:
                wrong.setdefault(finding.seen, []).append(finding.case)
        lines = [(_listed(names), False, seen) for seen, names in wrong.items()]
        right = [finding.case for finding in self.findings if finding.ok]
        return [*lines, (_listed(right, most=99), True, "")] if right else lines


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more cases" if len(names) > most else ""
    return "; ".join(names[:most]) + more
