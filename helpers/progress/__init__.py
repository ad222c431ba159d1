"""What a learner has attempted and passed: a table at the end of each lesson, and a page to keep after the last one."""

from helpers.progress.overview import table
from helpers.progress.page import show

__all__ = ["show", "table"]
