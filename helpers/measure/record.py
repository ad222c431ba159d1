"""`python -m helpers.measure.record` times every kernel of the course on this GPU, and records it with its origin."""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import json
import multiprocessing
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path

import torch
import triton
from tqdm import tqdm

from helpers import draw, kernels, lies, peers, recorded, timing
from helpers.choosing import launches
from helpers.choosing.functions import softmax_of
from helpers.choosing.launches import ELEMENTS, Launch, Shape, candidates
from helpers.engine.files import write_whole
from helpers.engine.runtime import DEVICE, ON_GPU
from helpers.kernels import DTYPES
from helpers.measure import gradients, losses, pace, policy, sweep, why
from helpers.recorded import valid
from helpers.softmax import cross_entropy, softmax

COLUMNS = (
    256, 512, 781, 1024, 2048, 3001, 4096, 8192, 12288, 16384, 32001, 32768, 50257, 65536, 128256, 131072, 151936,
    262144, 524288, 1048576,
)  # fmt: skip
FEW_ROWS = ((1, 131072), (8, 131072), (64, 131072), (1, 1048576), (8, 1048576), *((2**k, 131072) for k in range(1, 11)))
COPIES = tuple(4 * elements for elements in (1024 * 512, 1024 * 4096, 4096 * 4096, 2**28)) + (2 * 2**28,)
COUNTED = (
    *(("single tile", n_cols) for n_cols in (4096, 8192, 16384, 32768)),
    *((variant, n_cols) for variant in ("two-pass", "online") for n_cols in (4096, 8192, 16384, 32768, 131072)),
    *(("helpers.softmax", n_cols) for n_cols in (8192, 65536, 524288)),
)
"""Kernels and row lengths whose DRAM traffic is counted."""

SOFTMAXES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "eager": kernels.eager_softmax,
    "torch.softmax": lambda x: torch.softmax(x, dim=1),
    "single tile": kernels.single_tile_softmax,
    "persistent": kernels.persistent_softmax,
    "two-pass": kernels.two_pass_softmax,
    "online": kernels.online_softmax,
    "split row": kernels.split_row_softmax,
    "helpers.softmax": softmax,
}
"""The contestants under the names by which the lessons ask for them."""

NCU = (
    "ncu", "--csv", "--print-units", "base", "--clock-control", "none",
    "--kernel-name", "regex:^(single_tile|two_pass|online|tile|shared)_kernel$",
    "--metrics", "dram__bytes_read.sum,dram__bytes_write.sum",
)  # fmt: skip
"""Reads the hardware counters of the launches that matter, and leaves the clocks alone."""

PARTS = ("lies", "variants", "launches", "plan", "why", "loss", "gradients", "pace", "policy")
"""The records, in the order in which they are made."""

TIMED_AGAIN = ("persistent", "helpers.softmax", "Liger", "QuACK", "cluster")
RENEWED = (*TIMED_AGAIN, "dimensions", "few_rows", "cross_entropy", "images")
"""What can be timed again within a record: one kernel, or one peer; other dimensions and Python's share; few rows; our
loss; losses of images."""

LONGEST = {"single tile": 65536, "persistent": 65536}


def contestants(n_rows: int, n_cols: int, dtype: str) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Returns the variants and peers that take rows of n_cols, and torch.softmax compiled for just that shape.

    Peers that refuse the shape or answer wrongly are left out, and, in fp16, peers that compile each length separately:
    they would take most of the minutes.
    """
    chosen = {name: fn for name, fn in SOFTMAXES.items() if n_cols <= LONGEST.get(name, n_cols)}
    others = peers.installed()
    torch.compiler.reset()
    others["torch.compile"] = torch.compile(lambda x: torch.softmax(x, dim=1), dynamic=False)
    if dtype == "fp16":
        others = {name: fn for name, fn in others.items() if name in ("Liger", "cluster")}
    others["eager"] = chosen.pop("eager")  # its sums of a million terms are wrong in fp16
    for name, fn in others.items():
        if why := peers.refusal(fn, n_rows, n_cols, dtype):
            tqdm.write(f"{name} left out at {n_rows} × {n_cols} {dtype}: {why[:100]}", file=sys.stderr)
        else:
            chosen[name] = fn
    return chosen


def origin_here() -> dict[str, str]:
    """The origin of a measurement made now: GPU, driver, clocks while busy, versions, date, command."""
    query = "driver_version,clocks.sm,clocks.mem,clocks.max.sm"
    smi = shutil.which("nvidia-smi")
    answer = [""] * 4
    if smi:
        command_line = [smi, f"--query-gpu={query}", "--format=csv,noheader"]
        answer = subprocess.run(command_line, capture_output=True, text=True).stdout.strip().split("\n")[0].split(", ")
    driver, sm, memory, sm_max = (answer + [""] * 4)[:4]
    return {
        "gpu": torch.cuda.get_device_name(),
        "target": "sm_{}{}".format(*torch.cuda.get_device_capability()),
        "driver": driver or "unknown",
        "clocks": f"SM {sm} (at most {sm_max}), memory {memory}" if sm else "unknown",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python -m helpers.measure.record", *sys.argv[1:]]),
    }


def measure_softmaxes(dtypes: list[str], columns: list[int], keep: Callable[[dict], None]) -> None:
    """Times copies and every variant, and keeps the record as it grows: what fails late loses nothing."""
    dram = dram_bytes() if shutil.which("ncu") else []
    copies = [{"nbytes": size, "gbps": round(timing.copy_roof(size).gbps, 1)} for size in COPIES]
    record: dict = {"origin": origin_here() | versions(), "copies": copies, "dram": dram}
    record["few_rows"] = []
    for n_rows, n_cols in tqdm(dict.fromkeys(FEW_ROWS), desc="timing few rows", unit="shape"):
        record["few_rows"] += _timed(n_rows, n_cols, "fp32")
    record["softmax"] = []
    for dtype, n_cols in tqdm([(dtype, n) for dtype in dtypes for n in columns], desc="timing", unit="shape"):
        record["softmax"] += _timed(ELEMENTS // n_cols, n_cols, dtype)
        keep(record)


def renew_rows(dtypes: list[str], columns: list[int], path: Path) -> None:
    """Times every contestant at some dtypes and lengths of a record, and keeps it as it grows.

    A time takes the place of the same contestant's; peers that are missing here keep theirs.
    """
    record = json.loads(path.read_text(encoding="utf-8"))
    for dtype, n_cols in tqdm([(dtype, n) for dtype in dtypes for n in columns], desc="timing", unit="shape"):
        timed = _timed(ELEMENTS // n_cols, n_cols, dtype)
        record["softmax"] = with_rows(record["softmax"], timed)
        record["origin"][f"{dtype} anew"] = _anew()
        write_whole(path, _as_json(record))


def with_rows(rows: list[dict], timed: list[dict]) -> list[dict]:
    """The rows, a `timed` one in the place of the same contestant's, or behind the others of its shape."""
    by_shape: dict[tuple[str, int, int], dict[str, dict]] = {}
    for row in (*rows, *timed):
        by_shape.setdefault(_shape_of(row), {})[row["variant"]] = row
    return [row for of_shape in by_shape.values() for row in of_shape.values()]


def _shape_of(row: dict) -> tuple[str, int, int]:
    return row["dtype"], row["n_rows"], row["n_cols"]


def _timed(n_rows: int, n_cols: int, dtype: str) -> list[dict]:
    rows = timing.measure_shape(contestants(n_rows, n_cols, dtype), n_rows, n_cols, dtype)
    return [_rounded(asdict(row)) for row in rows]


def versions() -> dict[str, str]:
    """Versions of the peers that are installed, by package."""
    packages = ("liger_kernel", "quack-kernels", "nvidia-cutlass-dsl")
    found = {package: next(metadata.distributions(name=package), None) for package in packages}
    return {package: distribution.version for package, distribution in found.items() if distribution}


def launch_lengths() -> list[int]:
    """Row lengths that pick's table is made of: up to three aligned and three unaligned ones a tile."""
    lengths: set[int] = {1}
    for BLOCK in (2**k for k in range(1, 21)):
        aligned = (BLOCK * 9 // 16, BLOCK * 3 // 4, BLOCK)
        lengths |= {n for n in (*aligned, aligned[0] + 1, aligned[1] + 1, BLOCK - 1) if n > BLOCK // 2}
    return sorted(lengths)


def held_out_lengths() -> list[int]:
    """Row lengths between the table's, and some that vocabularies and images have."""
    between = (n for BLOCK in (2**k for k in range(7, 21)) for n in (BLOCK * 21 // 512 * 16, BLOCK * 7 // 8 + 3))
    return sorted({781, 1000, 5000, 32000, 50000, 50257, 128256, 151936, 500000, *between})


def measure_launches(dtypes: list[str]) -> tuple[list[Shape], list[Shape]]:
    """Times every candidate launch at the shapes of pick's table, and at those held out to test it."""
    few = (1, 8, 64, 512, 4096)
    table = _shapes([dtype for dtype in dtypes if dtype != "fp16"], launch_lengths(), few)
    held_out = _shapes(dtypes, held_out_lengths(), (1, 64, 4096))
    _compile(table)
    return tuple(
        [time_launches(*shape) for shape in tqdm(shapes, desc=f"timing launches, {name}", unit="shape")]
        for name, shapes in (("table", table), ("held out", held_out))
    )


def _shapes(dtypes: list[str], lengths: list[int], few: tuple[int, ...]) -> list[tuple[str, int, int]]:
    """Each dtype × length, with `few` rows and with enough to make ELEMENTS, at most 2²².

    Left out are shapes beyond ELEMENTS, and those so small that every launch takes the time of a launch.
    """
    return [
        (dtype, n_rows, n_cols)
        for dtype in dtypes
        for n_cols in lengths
        for n_rows in sorted({*few, min(2**22, ELEMENTS // n_cols)})
        if 2**12 <= n_rows * n_cols <= ELEMENTS
    ]


def time_launches(dtype: str, n_rows: int, n_cols: int) -> Shape:
    """Checks and times every candidate launch, torch.softmax, the eager chain and a copy at one shape."""
    functions = {name: SOFTMAXES[name] for name in ("torch.softmax", "eager")}
    launches = {launch: softmax_of(launch) for launch in candidates(n_cols)}
    copy, times = timing.time_shape({**functions, **launches}, n_rows, n_cols, dtype, repeats=20)
    microseconds = {key: round(1000 * time.median_ms, 2) for key, time in times.items()}
    named = {"copy": round(1000 * copy.median_ms, 2), **{name: microseconds.pop(name) for name in functions}}
    return Shape(dtype, n_rows, n_cols, named, microseconds)


def _compile(shapes: list[tuple[str, int, int]], variant: str = "") -> None:
    """Compiles what the launches at these shapes, or of one variant, need, on all processors.

    Triton keeps what it has compiled on disk, where the process that measures finds it.
    """
    needed = {
        (launch, dtype, n_cols % 16 == 0): (launch, dtype, n_cols)
        for dtype, _, n_cols in shapes
        for launch in candidates(n_cols)
        if n_cols > 1 and launch.variant.startswith(variant)
    }
    largest_first = sorted(needed.values(), key=lambda one: one[0].BLOCK / one[0].num_warps, reverse=True)
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        started = [processes.submit(_launch_once, *one) for one in largest_first]
        for _ in tqdm(as_completed(started), total=len(started), desc="compiling", unit="kernel"):
            pass


def _launch_once(launch: Launch, dtype: str, n_cols: int) -> None:
    softmax_of(launch)(torch.zeros(2, n_cols, dtype=kernels.DTYPES[dtype], device=DEVICE))


def renewed(rows: list[dict], variant: str, time: Callable[[str, int, int], list[dict]]) -> list[dict]:
    """The rows of a part of a record with what `time` says of a variant for each dtype and shape that the part has."""
    shapes = tqdm(dict.fromkeys(map(_shape_of, rows)), desc=f"timing {variant}", unit="shape")
    timed = [row for shape in shapes for row in time(*shape)]
    return with_rows([row for row in rows if row["variant"] != variant], timed)


def time_variant(variant: str) -> Callable[[str, int, int], list[dict]]:
    """What times a variant, or a peer, at a dtype and shape, and leaves out what it does not take."""
    fn = (SOFTMAXES | peers.installed()).get(variant)
    if fn is None:
        sys.exit(f"{variant} cannot be had here: it is not installed, or this GPU or this Triton does not take it.")

    def time(dtype: str, n_rows: int, n_cols: int) -> list[dict]:
        if n_cols > LONGEST.get(variant, n_cols) or (variant == "QuACK" and dtype == "fp16"):
            return []
        if variant not in SOFTMAXES and (why := peers.refusal(fn, n_rows, n_cols, dtype)):
            tqdm.write(f"{variant} left out at {n_rows} × {n_cols} {dtype}: {why[:100]}", file=sys.stderr)
            return []
        return [_rounded(asdict(row)) for row in timing.measure_shape({variant: fn}, n_rows, n_cols, dtype)]

    return time


def time_gradient_of(variant: str) -> Callable[[str, int, int], list[dict]]:
    """What times a variant's gradient at a dtype and shape; nothing where it has none."""

    def time(dtype: str, n_rows: int, n_cols: int) -> list[dict]:
        fn = gradients.gradients(dtype, n_cols).get(variant)
        return gradients.time_gradient(dtype, n_rows, n_cols, 20, {variant: fn}) if fn else []

    return time


def renew_variant(variant: str, folder: Path) -> None:
    """Times a variant, or a peer, again wherever the records of rows and of gradients have a shape that it takes."""
    path = folder / "softmax.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    for part in ("few_rows", "softmax"):
        record[part] = renewed(record[part], variant, time_variant(variant))
    record["origin"][f"{variant} anew"] = _anew()
    write_whole(path, _as_json(record))
    path.with_name("bandwidth.png").write_bytes(picture(record))
    path = folder / "gradients.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    if variant == "helpers.softmax" or variant not in SOFTMAXES:
        record["few_rows"] = renewed(record["few_rows"], variant, time_variant(variant))
    record["gradient"] = renewed(record["gradient"], variant, time_gradient_of(variant))
    record["origin"][f"{variant} anew"] = _anew()
    write_whole(path, _as_lines(record))


def renew_launches(variant: str, text: str) -> tuple[str, int]:
    """The record of launches with this variant's timed again, and their number.

    A time is scaled by what a copy takes now and took then.
    """
    record = launches.from_data(json.loads(text))
    both = [*record.shapes, *record.held_out]
    asked = [(launch, shape) for shape in both for launch in shape.launches if launch.variant == variant]
    _compile([(shape.dtype, shape.n_rows, shape.n_cols) for _, shape in asked], variant)
    times = {}
    for launch, shape in tqdm(asked, desc=f"timing {variant}", unit="launch"):
        of_shape = shape.n_rows, shape.n_cols, shape.dtype
        copy, timed = timing.time_shape({launch: softmax_of(launch)}, *of_shape, repeats=20)
        scale = shape.functions["copy"] / copy.median_ms
        times[launch, *of_shape] = round(scale * timed[launch].median_ms, 2)

    def renewed(shape: Shape) -> Shape:
        now = {one: times.get((one, shape.n_rows, shape.n_cols, shape.dtype), us) for one, us in shape.launches.items()}
        return replace(shape, launches=now)

    origin = {**record.origin, f"{variant} anew": _anew()}
    return launches.as_json(origin, *(list(map(renewed, part)) for part in (record.shapes, record.held_out))), len(
        asked
    )


def with_measured(text: str, measured: dict[str, list[dict]], part: str, anew: str) -> bytes:
    """The record of gradients with what was `measured` again; `anew` says when, and how.

    Of few rows, peers that are missing here keep theirs.
    """
    record = json.loads(text)
    if part == "few_rows":
        measured = {part: with_rows(record[part], measured[part])}
    return _as_lines(record | measured | {"origin": record["origin"] | {f"{part} anew": anew}})


def with_our_losses(text: str, measured: list[dict], anew: str) -> str:
    """The record of losses with the rows of ours, and of reading, `measured` again, each with the copy of its turns."""
    record = json.loads(text)
    ours = {row["variant"] for row in measured}
    others = [row for row in record["losses"] if row["variant"] not in ours]
    origin = record["origin"] | {"cross_entropy anew": anew}
    return losses.text_of_losses(origin, measured + others, record.get("images", ()))


def with_images(text: str, measured: list[dict], anew: str) -> str:
    """The record of losses with the losses of images as they are `measured` now."""
    record = json.loads(text)
    return losses.text_of_losses(record["origin"] | {"images anew": anew}, record["losses"], measured)


def _anew() -> str:
    here = origin_here()
    found = {"torch": here["torch"], "triton": here["triton"], **versions()}
    return f"{here['date']}, {', '.join(map(' '.join, found.items()))}: {here['command']}"


def _as_json(record: dict) -> bytes:
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def _as_lines(record: dict) -> bytes:
    """As JSON with a line for each row."""
    parts = [
        f"{json.dumps(name)}: {json.dumps(part, indent=1)}"
        if isinstance(part, dict)
        else f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in part) + "\n]"
        for name, part in record.items()
    ]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _rounded(row: dict) -> dict:
    return {key: round(value, 5) if isinstance(value, float) else value for key, value in row.items()}


def figure(record: dict) -> draw.Picture:
    """Returns the README's picture: useful bandwidth against row length, fp32, from a record."""
    shown = ("eager", "torch.softmax", "single tile", "two-pass", "online", "helpers.softmax")
    rows = [timing.Row(**row) for row in record["softmax"] if row["dtype"] == "fp32" and row["variant"] in shown]
    return draw.bandwidth(timing.Comparison(tuple(rows), timing.recorded_origin(record)))


def picture(record: dict) -> bytes:
    """The figure as PNG, which says itself what it shows, and of when."""
    shown = figure(record)
    return shown.png({"Title": timing.recorded_origin(record), "Description": shown.alt})


def dram_bytes() -> list[dict]:
    """Returns bytes moved between DRAM and chip per element, fp32, from the hardware counters that `ncu` reads."""
    launched = [sys.executable, "-m", "helpers.measure.record", "--once", "dram"]
    report = subprocess.run([*NCU, *launched], capture_output=True, text=True)
    counted = _parse_ncu(report.stdout, report.stderr)
    return [
        {"variant": variant, "n_cols": n_cols, **per_element}
        for (variant, n_cols), per_element in zip(COUNTED, counted, strict=True)
    ]


def launch_counted() -> None:
    """Launches each of COUNTED once, for `ncu` to look on."""
    for variant, n_cols in COUNTED:
        SOFTMAXES[variant](torch.randn(ELEMENTS // n_cols, n_cols, device=DEVICE))
    torch.cuda.synchronize()


def _parse_ncu(report: str, errors: str) -> list[dict[str, float]]:
    """Returns the elements of four bytes read and written per element, for each launch in order.

    Raises RuntimeError with ncu's words where a counter is missing or has no value or launches are missing, and for a
    kernel that reads less than its input: the counters then belong to another kernel.
    """
    table = report[report.find('"ID"') :]
    names = {"dram__bytes_read.sum": "read_per_element", "dram__bytes_write.sum": "write_per_element"}
    launches: dict[str, dict[str, str]] = {}
    for line in csv.DictReader(io.StringIO(table)):
        launches.setdefault(line["ID"], {})[line["Metric Name"]] = line["Metric Value"]
    try:
        counted = [
            {name: round(float(values[metric].replace(",", "")) / (4 * ELEMENTS), 3) for metric, name in names.items()}
            for values in launches.values()
        ]
    except (KeyError, ValueError):
        counted = []
    if len(counted) != len(COUNTED):
        raise RuntimeError(f"ncu counted {len(counted)} launches of {len(COUNTED)}: {(report + errors).strip()[-400:]}")
    if least := [per_element for per_element in counted if per_element["read_per_element"] < 0.9]:
        raise RuntimeError(
            f"ncu counted {least[0]['read_per_element']} elements read per element of the input, and a softmax reads "
            "each at least once: the counters caught another kernel. Check --kernel-name in helpers/measure/record.py."
        )
    return counted


def main(home: Path = recorded.HOME) -> None:
    """Parses the command line, measures, and writes to the folder of this GPU in `home`."""
    parser = argparse.ArgumentParser(prog="python -m helpers.measure.record", description=__doc__)
    parser.add_argument("--only", choices=[*PARTS, *RENEWED], help="one record; default: all")
    parser.add_argument("--dtypes", type=_dtypes, help="with --only variants: these alone, in the record that is there")
    parser.add_argument("--columns", type=_lengths, help="with --only variants: these row lengths alone")
    parser.add_argument("--once", choices=["dram", "why"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    some = options.dtypes or options.columns
    if some and options.only != "variants":
        parser.error("--dtypes and --columns are for --only variants; other records are made whole.")
    if not ON_GPU:
        sys.exit("helpers.measure.record needs a CUDA GPU: an interpreted kernel has no time worth recording.")
    if options.once:
        {"dram": launch_counted, "why": why.launch_counted_whys}[options.once]()
        return
    dtypes, columns = options.dtypes or list(DTYPES), options.columns or list(COLUMNS)
    folder = home / valid.folder_of_gpu(torch.cuda.get_device_name())
    if options.only in (None, "lies"):  # first, because nothing may have been warmed up
        path = folder / "lies.json"
        measured = lies.run_all()
        write_whole(path, _as_json({"origin": origin_here()} | measured))
        print(f"wrote {path}")
    if options.only in (None, "variants"):
        path = folder / "softmax.json"
        if some and path.exists():
            renew_rows(dtypes, columns, path)
        else:
            measure_softmaxes(dtypes, columns, lambda record: write_whole(path, _as_json(record)))
        record = json.loads(path.read_text(encoding="utf-8"))
        path.with_name("bandwidth.png").write_bytes(picture(record))
        print(f"wrote {path}: {len(record['softmax'])} measurements on one {record['origin']['gpu']}")
    if options.only in (None, "launches"):
        shapes = measure_launches(dtypes)
        path = folder / "launches.json"
        write_whole(path, launches.as_json(origin_here(), *shapes).encode())
        print(f"wrote {path}: {sum(map(len, shapes))} shapes")
    if options.only in (None, "plan"):
        path = folder / "plan.json"
        sweep.compile_ahead(sweep.layouts())
        swept = sweep.sweep(sweep.layouts())
        write_whole(path, sweep.text(origin_here(), swept).encode())
        print(f"wrote {path}: {len(swept)} layouts")
    if options.only in (None, "why"):
        path = folder / "why.json"
        measured = why.measure_why()  # before the origin, which has the clocks of a busy GPU
        write_whole(path, why.record_text({"origin": origin_here()} | measured).encode())
        print(f"wrote {path}")
    if options.only in (None, "pace"):
        path = folder / "pace.json"
        measured = pace.measure_paces()  # before the origin, which has the clocks of a busy GPU
        write_whole(path, why.record_text({"origin": origin_here(), "paces": measured}).encode())
        print(f"wrote {path}: {len(measured)} cases")
    if options.only in (None, "policy"):
        path = folder / "policy.json"
        measured = policy.measure_policies()  # before the origin, as above
        write_whole(path, why.record_text({"origin": origin_here(), "policies": measured}).encode())
        print(f"wrote {path}: {len(measured)} cases")
    if options.only in TIMED_AGAIN:
        renew_variant(options.only, folder)
        print(f"wrote {folder}: {options.only} in softmax.json and gradients.json")
    if options.only == "persistent":
        path = folder / "launches.json"
        renewed, number = renew_launches("persistent", path.read_text(encoding="utf-8"))
        write_whole(path, renewed.encode())
        print(f"wrote {path}: {number} times of the persistent kernel")
    if options.only in ("dimensions", "few_rows"):
        path = folder / "gradients.json"
        measure = gradients.measure_dimensions if options.only == "dimensions" else gradients.measure_few_rows
        measured = measure()
        write_whole(path, with_measured(path.read_text(encoding="utf-8"), measured, options.only, _anew()))
        print(f"wrote {path}: {len(measured[options.only])} times")
    if options.only == "cross_entropy":
        path = folder / "loss.json"
        rows = losses.measure_losses(losses.loss_layouts(), lambda layout: {"helpers.softmax": cross_entropy})
        write_whole(path, with_our_losses(path.read_text(encoding="utf-8"), rows, _anew()).encode())
        print(f"wrote {path}: {len(rows)} times of our loss, and of reading")
    if options.only == "images":
        path = folder / "loss.json"
        images = losses.measure_losses(losses.image_layouts(), losses.losses_of_images_here)
        write_whole(path, with_images(path.read_text(encoding="utf-8"), images, _anew()).encode())
        print(f"wrote {path}: {len(images)} times of losses of images")
    if options.only in (None, "loss"):
        path = folder / "loss.json"
        rows = losses.measure_losses(losses.loss_layouts(), losses.losses_here)
        images = losses.measure_losses(losses.image_layouts(), losses.losses_of_images_here)
        write_whole(path, losses.text_of_losses(origin_here() | versions(), rows, images).encode())
        print(f"wrote {path}: {len(rows) + len(images)} measurements")
    if options.only in (None, "gradients"):
        path = folder / "gradients.json"
        measured = gradients.measure_gradients()  # before the origin, which has the clocks of a busy GPU
        write_whole(path, _as_lines({"origin": origin_here() | versions()} | measured))
        print(f"wrote {path}")
    print(sending(folder, valid.problems(folder, datetime.date.today())))


def _dtypes(text: str) -> list[str]:
    names = text.replace(" ", "").split(",")
    if unknown := set(names) - set(DTYPES):
        raise argparse.ArgumentTypeError(f"of {', '.join(DTYPES)}; not {', '.join(sorted(unknown))}.")
    return names


def _lengths(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def sending(folder: Path, problems: list[str]) -> str:
    """What to do with the folder of a record, given what speaks against it."""
    if problems:
        return "\n".join(["The course cannot take this record yet:", *problems])
    return (
        f"The course can take this record: git add helpers/recorded/{folder.name}, and open a pull request, as "
        ".github/CONTRIBUTING.md says."
    )


if __name__ == "__main__":
    main()
