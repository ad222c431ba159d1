"""What a learner has attempted and passed: a table after each lesson, a page to keep, and two files to take home."""

from helpers.progress.export import export
from helpers.progress.overview import table
from helpers.progress.page import show

__all__ = ["export", "show", "table"]
