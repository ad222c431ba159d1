"""What `python -m helpers.measure.…` does for a module that measures one thing: times, a table, and a record."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from helpers.engine.files import write_whole
from helpers.measure.record import origin_here
from helpers.measure.why import record_text
from helpers.table import Table


def run_command(
    module: str, about: str | None, measured: Callable[[], Mapping[str, Any]], table: Callable[[Mapping], Table]
) -> None:
    """Measures, and prints a table; with --out, also writes a record, with its origin."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("times are measured on a GPU; there is none.")
    found = measured()
    if options.out:
        origin = origin_here() | {"command": f"python -m helpers.measure.{module}"}
        write_whole(options.out, record_text({"origin": origin, **found}).encode())
    print(table(found))
