"""What an instructor runs: solutions → lessons, executing the solutions, and a class: hand out, grade, give back.

Nothing here is imported by a notebook. See `python -m helpers.instructor --help`.
"""
