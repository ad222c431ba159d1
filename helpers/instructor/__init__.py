"""What an instructor runs: solutions → lessons, and re-executing the solutions.

Nothing here is imported by a notebook. See ``python -m helpers.instructor --help``.
"""
