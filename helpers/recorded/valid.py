"""Whether a folder of measurements can be taken into the course: `problems` lists what speaks against it.

`make record` writes the folder of a GPU, and a pull request adds it. Nobody can measure it again without that GPU, so
whatever can be known of it is asked: its form, its origin, and whether a memory of that kind can be that fast.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.engine.files import NotRegular, read_regular
from helpers.gpu.datasheets import DATASHEETS, PEAK_GBPS, sold_as
from helpers.kernels import DTYPES

KINDS = ("softmax",)
OPTIONAL_KINDS = (
    "launches",
    "plan",
    "loss",
    "gradients",
    "pace",
    "policy",
    "lies",
    "why",
    "shards",
    "decode",
    "sample",
    "linear_loss",
)
"""What a record may lack: who looks for it finds none for this GPU. Launches alone take seven minutes."""
LARGEST_RECORD = 4 << 20
"""Bytes of a file; an H200's largest has a tenth of that."""

_SCHEMA = Path(__file__).with_name("schema.json")
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|tmp|root|home|Users|mnt|opt|usr)\b|[A-Z]:\\\\|site-packages")
_BEYOND_CACHE = 2**28
"""Bytes moved from which on no GPU's L2 cache was measured."""
_FASTER_THAN_A_COPY = 1.05
_PARTS = ("few_rows", "softmax", "gradient", "dimensions", "losses", "images")
"""Of records: lists of rows that have a median between quartiles."""
_OTHER_BYTES = ("gradient", "loss alone")
"""What moves more bytes than a copy, or fewer."""
_FIRST = datetime.date(2026, 1, 1)


def folder_of_gpu(gpu: str) -> str:
    """The folder that holds the records of a GPU of this name."""
    return re.sub(r"\W+", "_", gpu).lower()


def problems(folder: Path, today: datetime.date) -> list[str]:
    """What speaks against the records in a folder, in a sentence each; none for a folder that can be taken."""
    found = [f"{name} does not belong in the folder of a record." for name in _strangers(folder)]
    records = {}
    for kind in (*KINDS, *OPTIONAL_KINDS):
        path = folder / f"{kind}.json"
        if kind in OPTIONAL_KINDS and not path.exists():
            continue
        try:
            records[kind] = json.loads(read_regular(path, LARGEST_RECORD), parse_constant=_refuse)
        except (NotRegular, ValueError, RecursionError) as error:
            found.append(f"{path.name}: {error}.")
    for kind, record in records.items():
        wrong = list(_wrong_form(kind, record))
        found += [f"{kind}.json: {why}" for why in wrong or _wrong_facts(kind, record, folder.name, today)]
        if wrong:
            records = {other: record for other, record in records.items() if other != kind}
    origins = {tuple(record["origin"][key] for key in ("gpu", "target")) for record in records.values()}
    if len(origins) > 1:
        found.append(f"the records come from several GPUs: {', '.join(' '.join(one) for one in sorted(origins))}.")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number that can be measured")


def _strangers(folder: Path) -> list[str]:
    known = {f"{kind}.json" for kind in (*KINDS, *OPTIONAL_KINDS)} | {"bandwidth.png"}
    return sorted({path.name for path in folder.iterdir()} - known)


def _wrong_form(kind: str, record: Any) -> Iterator[str]:
    try:
        from jsonschema import Draft202012Validator
    except ImportError:  # no lesson needs it; and what was measured for minutes is written by now
        yield "its form cannot be checked without jsonschema, which `make install` brings."
        return
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    validator = Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{kind}"})
    for error in sorted(validator.iter_errors(record), key=str)[:5]:
        yield f"at {error.json_path}: {error.message[:200]}."


def _wrong_facts(kind: str, record: Mapping[str, Any], folder: str, today: datetime.date) -> Iterator[str]:
    origin = record["origin"]
    yield from _wrong_origin(origin, folder, today)
    for path in sorted(set(_MACHINE_PATH.findall(json.dumps(record)))):
        yield f"it names a path of a machine, {path}."
    peak = PEAK_GBPS.get(sold_as(origin["gpu"]), max(PEAK_GBPS.values()))
    for what, nbytes, copy_us, fastest_us in _timed(kind, record):
        if nbytes < _BEYOND_CACHE:
            continue
        if nbytes / copy_us / 1e3 > peak:
            yield f"{what}: a copy at {nbytes / copy_us / 1e3:,.0f} GB/s, where the memory has {peak:,} at most."
        if copy_us / fastest_us > _FASTER_THAN_A_COPY:
            yield f"{what}: {copy_us / fastest_us:.2f} times as fast as a copy of the same bytes."
    if kind in ("softmax", "loss", "gradients"):
        for row in _rows_of(record):
            if not row["low_ms"] <= row["median_ms"] <= row["high_ms"]:
                yield f"{_name(row)}: its median is outside of its quartiles."
    if kind == "launches":
        yield from _wrong_launches(record)
    if kind == "linear_loss":
        for cell in record["cells"]:
            for name, (low, median, high) in [*cell["ms"].items(), *cell["alone_ms"].items()]:
                if not low <= median <= high:
                    yield f"{name} at {cell['M']} × {cell['H']} × {cell['V']}: its median is outside of its quartiles."


def _wrong_origin(origin: Mapping[str, str], folder: str, today: datetime.date) -> Iterator[str]:
    if folder != folder_of_gpu(origin["gpu"]):
        yield f"the record of {origin['gpu']} belongs into the folder {folder_of_gpu(origin['gpu'])}, not {folder}."
    for said in (origin["date"], *(said[:10] for part, said in origin.items() if part.endswith(" anew"))):
        try:
            date = datetime.date.fromisoformat(said)
        except ValueError:
            yield f"{said} is not a date."
        else:
            if not _FIRST <= date <= today:
                yield f"its date, {date}, is before the course began or after today."
    sheet = DATASHEETS.get(sold_as(origin["gpu"]))
    if sheet and sheet.architecture != origin["target"]:
        yield f"its target is {origin['target']}, and a {origin['gpu']} is {sheet.architecture}."


def _wrong_launches(record: Mapping[str, Any]) -> Iterator[str]:
    known = len(record["launches"])
    for shape in (*record["shapes"], *record["held_out"]):
        if any(index >= known for index, _ in shape["launches"]):
            yield f"{_name(shape)}: a launch that is not listed."
    both = {_name(shape) for shape in record["shapes"]} & {_name(shape) for shape in record["held_out"]}
    if both:
        yield f"{sorted(both)[0]} is in the table and held out from it."


def _rows_of(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of all _PARTS of a record."""
    return [row for part in _PARTS for row in record.get(part, ())]


def _name(shape: Mapping[str, Any]) -> str:
    variant = f"{shape['variant']} at " if "variant" in shape else ""
    where = shape["layout"] if "layout" in shape else f"{shape['n_rows']} × {shape['n_cols']}"
    return f"{variant}{where} {shape['dtype']}"


def _timed(kind: str, record: Mapping[str, Any]) -> Iterator[tuple[str, int, float, float]]:
    """A contestant timed with a copy: its name, the bytes that a copy moves, the copy's microseconds and its own."""
    if kind == "softmax":
        for copy in record["copies"]:
            microseconds = 2 * copy["nbytes"] / copy["gbps"] / 1e3
            yield f"a copy of {copy['nbytes']} bytes", 2 * copy["nbytes"], microseconds, microseconds
        for row in (*record["few_rows"], *record["softmax"]):
            yield _name(row), _moved(row), 1e3 * row["copy_ms"], 1e3 * row["median_ms"]
    elif kind == "gradients":
        for row in record["gradient"]:  # it moves half again the bytes, of which more are read, which is faster
            yield _name(row), _moved(row), 1e3 * row["copy_ms"], 1e3 * row["median_ms"] / 1.3
    elif kind == "launches":
        for shape in (*record["shapes"], *record["held_out"]):
            fastest = min(time for _, time in shape["launches"])
            yield _name(shape), _moved(shape), shape["functions"]["copy"], fastest
    elif kind == "plan":
        for dtype, n_rows, n_cols, copy_us, plans in record["plans"]:
            shape = {"dtype": dtype, "n_rows": n_rows, "n_cols": n_cols}
            yield _name(shape), _moved(shape), copy_us, min(time for _, time in plans)
    elif kind == "pace":
        for what, dtype, n_rows, n_cols, copy_us, times in record["paces"]:
            shape = {"dtype": dtype, "n_rows": n_rows, "n_cols": n_cols}
            yield f"{what} at {_name(shape)}", _moved(shape), copy_us, min(time for time in times if time)
    elif kind == "policy":
        for what, dtype, outer, n_cols, inner, *times in record["policies"]:
            shape = {"dtype": dtype, "n_rows": outer * inner, "n_cols": n_cols}
            for copy_us, *both in times:
                if what not in _OTHER_BYTES:
                    yield f"{what} at {_name(shape)}", _moved(shape), copy_us, min(both)
    elif kind == "shards":
        of_softmax = [(on, row) for on in record["shards"] for row in on["rows"] if row["what"] == "softmax"]
        for found, row in of_softmax:  # a loss alone writes nothing
            shard = {"dtype": found["dtype"], "n_rows": row["M"], "n_cols": row["C"] // found["gpus"]}
            yield f"{row['name']} at {_name(shard)}", _moved(shard), row["copy_us"], row["us"]
    elif kind == "decode":
        read = DTYPES[record["dtype"]].itemsize * 2 * record["heads"] * record["keys"] * record["columns"]
        of = record["grouped"]
        alone = record["lesson_11_ms"], record["ours_ms"], record["torchs_ms"], *record["parts_ms"].values()
        together = of["ours_ms"], of["torchs_ms"], *of["query_head_ms"].values(), *of["tile_ms"].values()
        for what, reading, times in (("one query a head", record, alone), ("a group", of, together)):
            yield what, read, 1e3 * reading["reading_ms"], 1e3 * min(times)
    elif kind == "sample":
        for cell in record["cells"]:
            yield _name(cell), _moved(cell) // 2, 1e3 * cell["reading_ms"], 1e3 * min(cell["ms"].values())
    elif kind == "loss":
        for row in record["losses"]:
            if row["pass"] == "loss and gradient":  # a loss alone writes nothing
                yield _name(row), _moved(row), 1e3 * row["copy_ms"], 1e3 * row["median_ms"]


def _moved(shape: Mapping[str, Any]) -> int:
    return 2 * shape["n_rows"] * shape["n_cols"] * DTYPES[shape["dtype"]].itemsize
