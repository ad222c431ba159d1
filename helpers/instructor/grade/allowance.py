"""What all lessons of one student may take in a run of grading, so that nobody's notebooks hold up the class."""

from collections import Counter

MOST_PROCESSOR_S = 1_800
"""Seconds of processor time that all lessons of one student may take in a run; honest ones take 100."""
MOST_WAITING_S = 300
"""Seconds that they may wait, as when they sleep."""
_MOST_FAILED = 2
"""Lessons of one student that may fail to be graded before the others are left to the next run."""


class Allowance:
    """What the lessons of each student have taken in this run."""

    def __init__(self) -> None:
        self._processor_s: Counter[str] = Counter()
        self._waited_s: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def add(self, student: str, outcome: object) -> None:
        """Counts the outcome of a task: a result, or why there is none."""
        if isinstance(outcome, dict):
            self._processor_s[student] += outcome.get("processor_s", 0)
            self._waited_s[student] += outcome.get("waited_s", 0)
        else:
            self._failed[student] += 1

    def too_much(self, student: str) -> str:
        """Why no other lesson of a student is begun in this run; "" where one may be."""
        if self._processor_s[student] > MOST_PROCESSOR_S:
            return f"the others of this student have taken more than {MOST_PROCESSOR_S:,} s of a processor"
        if self._waited_s[student] > MOST_WAITING_S:
            return f"the others of this student have waited for more than {MOST_WAITING_S:,} s"
        if self._failed[student] >= _MOST_FAILED:
            return f"{_MOST_FAILED} others of this student could not"
        return ""
