"""What an instructor runs: solutions → lessons, executing the solutions, and a class: hand out, grade, give back.

Nothing here is imported by a notebook. See `python -m helpers.instructor --help`.
"""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
"""The folder of the whole course."""
