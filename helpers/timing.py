"""Times kernels on a GPU against a copy of the same bytes; where there is no GPU, shows recorded measurements instead.

A time is the median of many launches, each on a cold L2 cache, the contestants taking turns so that a drifting clock
drifts for all of them. A CPU is never timed.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from tqdm.auto import tqdm

from helpers import recorded
from helpers.engine import notes
from helpers.engine.numbers import refuse_below_one
from helpers.engine.runtime import DEVICE, ON_GPU, bars_are_off
from helpers.kernels import DTYPES
from helpers.table import Table, Tabular

_FLUSH = 256 * 2**20
"""Bytes to overwrite so that an L2 cache holds nothing else; the largest has 126 MB."""

_BUSY_MS = 0.2
"""For how long the GPU is kept busy before a launch: Python puts it into the queue in less."""

_NO_GPU = (
    "there is no GPU here, and the time of an interpreted kernel means nothing. "
    "timing.compare and timing.copy_roof show recorded measurements instead."
)


@dataclass(frozen=True)
class Measurement:
    """The median of `repeats` times in milliseconds, and the quartiles around it."""

    median_ms: float
    low_ms: float
    high_ms: float
    repeats: int

    def __str__(self) -> str:
        return f"{self.median_ms:.4f} ms (half of {self.repeats} runs within {self.low_ms:.4f} – {self.high_ms:.4f})"


@dataclass(frozen=True)
class Roof:
    """Bandwidth of a copy that reads and writes `nbytes` each, in GB/s of both together, and where it was measured."""

    gbps: float
    nbytes: int
    origin: str

    def __str__(self) -> str:
        one_way = f"{self.nbytes / 1e6:,.1f} MB"
        return f"{self.gbps:,.0f} GB/s for a copy that reads {one_way} and writes {one_way} ({self.origin})"


@dataclass(frozen=True)
class Row:
    """One contestant at one shape. `copy_ms` is the copy of the same bytes timed in the same turns."""

    variant: str
    dtype: str
    n_rows: int
    n_cols: int
    median_ms: float
    low_ms: float
    high_ms: float
    copy_ms: float

    @property
    def of_copy(self) -> float:
        """Speed as a fraction of the copy's: 1.0 means that it takes no longer than moving the bytes."""
        return self.copy_ms / self.median_ms

    @property
    def useful_gbps(self) -> float:
        """Bytes of the input and the output, each once, over the time: GB/s that the caller sees."""
        itemsize = DTYPES[self.dtype].itemsize
        return 2 * self.n_rows * self.n_cols * itemsize / self.median_ms / 1e6


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Rows of one dtype, their origin, the names asked for that the record does not hold, and further notes."""

    rows: tuple[Row, ...]
    origin: str
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        """The names of the contestants, in the order in which they were given."""
        return list(dict.fromkeys(row.variant for row in self.rows))

    @property
    def in_dtype(self) -> str:
        """The dtype in words, such as " in fp32", for a figure or a note; empty without rows."""
        return f" in {self.rows[0].dtype}" if self.rows else ""

    def table(self) -> Table:
        """One line per shape and one column per variant: speed as a fraction of the copy's."""
        shapes = dict.fromkeys((row.n_rows, row.n_cols) for row in self.rows)
        cells = {(row.n_rows, row.n_cols, row.variant): f"{row.of_copy:.2f}" for row in self.rows}
        rows = [[f"{m:,} × {n:,}", *(cells.get((m, n, v), "–") for v in self.variants)] for m, n in shapes]
        notes = [f"Speed{self.in_dtype} as a fraction of a copy of the same bytes; {self.origin}."]
        if self.missing:
            notes.append(f"Not in the record, so timed only where there is a GPU: {', '.join(self.missing)}.")
        return Table(["rows × columns", *self.variants], rows, [*notes, *self.notes])


def record(gpu: str | None = None) -> dict:
    """Returns recorded measurements with their origin: of `gpu`, else of the present GPU, else of the NVIDIA H200.

    Raises ValueError, naming the records there are, for a GPU that has none.
    """
    records = recorded.by_gpu("softmax")
    if gpu is not None and gpu not in records:
        raise ValueError(f"no record of {gpu!r}; there are records of {', '.join(records)}.")
    present = torch.cuda.get_device_name() if ON_GPU else None
    return records[gpu or (present if present in records else recorded.REFERENCE)]


def recorded_origin(data: dict | None = None) -> str:
    """Returns the words that accompany every recorded figure: GPU, versions and date."""
    return recorded.origin_in_words((data or record())["origin"])


def losses(gpu: str, dtype: str, columns: int | None = None) -> list[dict]:
    """The recorded times of losses in a dtype, of rows of `columns` or of all, as `helpers.measure.losses` has them.

    Raises ValueError for a GPU that has no record of losses.
    """
    data = recorded.find("loss", gpu)
    if data is None:
        raise ValueError(f"no record of losses on {gpu!r}; recorded are {', '.join(recorded.by_gpu('loss'))}.")
    return [row for row in data["losses"] if row["dtype"] == dtype and columns in (None, row["n_cols"])]


def losses_origin(gpu: str) -> str:
    """The words next to every recorded time of a loss: GPU, versions and date."""
    return recorded.origin_in_words(recorded.find("loss", gpu)["origin"])


def paces(gpu: str) -> Table:
    """Recorded speeds of programs that wait for words: as they come, fetching ahead, in turn, and both.

    Raises ValueError for a GPU that has no record of them.
    """
    data = recorded.find("pace", gpu)
    if data is None:
        raise ValueError(f"no record of paces on {gpu!r}; recorded are {', '.join(recorded.by_gpu('pace'))}.")
    rows = [
        [f"{what}, {dtype}, {n_rows:,} × {n_cols:,}", *(f"{copy_us / us:.3f}" if us else "–" for us in times)]
        for what, dtype, n_rows, n_cols, copy_us, times in data["paces"]
    ]
    notes = [
        f"Speed as a fraction of a copy of the same bytes; {recorded.origin_in_words(data['origin'])}.",
        "–: the GPU holds nearly all programs at once, and none is left to fetch for.",
    ]
    return Table(["", "as they come", "ahead", "in turn", "both"], rows, notes)


def measured_origin() -> str:
    """Returns the words that accompany every figure that is measured here."""
    return f"measured here on one {torch.cuda.get_device_name()}"


def measure(fn: Callable[[], object]) -> Measurement:
    """Times `fn()` on the GPU: warm-up, then at least 20 launches, each with a cold L2 cache.

    Raises RuntimeError where there is no GPU.
    """
    return measure_in_turns({"fn": fn})["fn"]


class Queue(Protocol):
    """What timing asks of a GPU's queue. `start.elapsed_time(end)` are the milliseconds between two of its marks."""

    def record(self) -> Any:
        """Puts a mark into the queue."""

    def flush(self) -> None:
        """Leaves nothing of use in the L2 cache, and keeps the GPU busy until the next launch is in the queue."""

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""


class CudaQueue:
    """The queue of the CUDA GPU that kernels run on; each flush keeps it busy for `busy_ms` milliseconds."""

    def __init__(self, busy_ms: float = _BUSY_MS) -> None:
        self._flushed = torch.empty(_FLUSH, dtype=torch.int8, device=DEVICE)
        self._turns = turns_of_flush(_flush_ms(), busy_ms)

    def record(self) -> torch.cuda.Event:
        """Puts a mark into the queue."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def flush(self) -> None:
        """Overwrites the L2 cache for `busy_ms`: meanwhile Python puts the next launch into the queue."""
        for _ in range(self._turns):
            self._flushed.zero_()

    def synchronize(self) -> None:
        """Waits until the GPU has done everything in its queue."""
        torch.cuda.synchronize()


def turns_of_flush(flush_ms: float, busy_ms: float = _BUSY_MS) -> int:
    """How many flushes of flush_ms each keep the GPU busy for busy_ms."""
    return math.ceil(busy_ms / flush_ms)


@cache
def _flush_ms() -> float:
    """How long the GPU takes to overwrite _FLUSH bytes."""
    flush = torch.empty(_FLUSH, dtype=torch.int8, device=DEVICE)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    for event in events:
        flush.zero_()
        event.record()
    torch.cuda.synchronize()
    return events[1].elapsed_time(events[2])


def measure_in_turns(
    functions: Mapping[Hashable, Callable[[], object]], repeats: int | None = None, queue: Queue | None = None
) -> dict[Hashable, Measurement]:
    """Times several functions, one launch of each in turn: `repeats` each, or 20 to 200 in about 200 ms each.

    The L2 cache is overwritten before every launch, as in `triton.testing.do_bench`, and for long enough that the
    launch is waiting in the queue when the GPU gets to it: the time is the GPU's, not Python's.
    The queue is that of the CUDA GPU where none is given. Raises RuntimeError without a GPU.
    """
    if queue is None:
        if not ON_GPU:
            raise RuntimeError(_NO_GPU)
        queue = CudaQueue()

    def once(fn: Callable[[], object]) -> tuple[Any, Any]:
        queue.flush()
        start = queue.record()
        fn()
        return start, queue.record()

    for fn in functions.values():
        fn()
    estimate = [once(fn) for fn in functions.values() for _ in range(3)]
    queue.synchronize()
    slowest = max(start.elapsed_time(end) for start, end in estimate)
    repeats = repeats or int(min(200, max(20, 200 / max(slowest, 1e-3))))
    marks: dict[Hashable, list] = {name: [] for name in functions}
    for _ in range(repeats):
        for name, fn in functions.items():
            marks[name].append(once(fn))
    queue.synchronize()
    return {name: _summary([start.elapsed_time(end) for start, end in pairs]) for name, pairs in marks.items()}


def _summary(times: list[float]) -> Measurement:
    low, median, high = statistics.quantiles(times, n=4)
    return Measurement(median, low, high, len(times))


def copy_roof(nbytes: int) -> Roof:
    """Returns the bandwidth that a copy of `nbytes` reaches: the most that a kernel with one read and one write can.

    Measured on the GPU; without one, the recorded copy nearest in size. Raises ValueError for anything but a whole
    number of at least 1.
    """
    refuse_below_one(nbytes=nbytes)
    if not ON_GPU:
        nearest = min(record()["copies"], key=lambda copy: abs(copy["nbytes"] - nbytes))
        return Roof(nearest["gbps"], nearest["nbytes"], recorded_origin())
    x = torch.randint(0, 256, (nbytes,), dtype=torch.uint8, device=DEVICE)
    y = torch.empty_like(x)
    return Roof(2 * nbytes / measure(lambda: y.copy_(x)).median_ms / 1e6, nbytes, measured_origin())


def compare(
    functions: Mapping[str, Callable[[torch.Tensor], object]],
    columns: int | Iterable[int] = (256, 512, 781, 1024, 2048, 4096, 8192, 16384, 32768),
    *,
    elements: int = 2**28,
    dtype: str = "fp32",
) -> Comparison:
    """Times functions of one (M, N) tensor for each N in `columns`, M = elements // N, and a copy of the same bytes.

    On a GPU every function is first run once and compared with torch.softmax; a wrong one raises ValueError, because
    the speed of a wrong kernel means nothing. Without a GPU the rows come from the record, found by name, dtype and
    columns. Notes name the lengths that it does not hold, and say so where its numbers of rows are not those asked for.
    Raises TypeError for `functions` that are not a dict of functions and for `columns` that are not whole numbers;
    ValueError for another dtype and for columns below 1.
    """
    _refuse_other_than_functions(functions)
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}; it is {dtype!r}.")
    columns = _whole_numbers(columns)
    if not ON_GPU:
        return _recorded_comparison(list(functions), columns, elements, dtype)
    rows: list[Row] = []
    quiet = bars_are_off()
    for n_cols in tqdm(columns, desc=f"timing {dtype}", delay=2, leave=False, disable=quiet):
        rows += measure_shape(functions, max(1, elements // n_cols), n_cols, dtype)
    _note_yours(functions, rows)
    return Comparison(tuple(rows), measured_origin())


SPEEDS = "speeds"
"""The entry of a notebook's file that has, by exercise, the GPU and the speeds of the learner's function on it."""


def _note_yours(functions: Mapping[str, Callable], rows: Iterable[Row]) -> None:
    """Notes the speeds, of a copy, of a function that `check.yours` has given."""
    noted, gpu = notes.entry(SPEEDS), torch.cuda.get_device_name()
    for name, fn in functions.items():
        if exercise := getattr(fn, "exercise", None):
            of_copy = {f"{r.n_rows} × {r.n_cols} {r.dtype}": round(r.of_copy, 3) for r in rows if r.variant == name}
            match noted.get(exercise):
                case {"gpu": str(before), "of_copy": dict(earlier)} if before == gpu:
                    of_copy = earlier | of_copy
            notes.put({SPEEDS: noted | {exercise: {"gpu": gpu, "of_copy": of_copy}}})


def speeds_of_yours() -> dict[str, tuple[str, list[float]]]:
    """By exercise, the GPU on which the learner's function was timed, and its speeds as fractions of a copy's."""
    found = {}
    for exercise, one in notes.entry(SPEEDS).items():
        match one:
            case {"gpu": str(gpu), "of_copy": dict(of_copy)}:
                found[exercise] = gpu, [speed for speed in of_copy.values() if isinstance(speed, int | float)]
    return found


def _refuse_other_than_functions(functions: object) -> None:
    if not isinstance(functions, Mapping):
        raise TypeError(
            'functions must be a dict of names and functions, such as {"mine": softmax}; '
            f"it is a {type(functions).__name__}."
        )
    for name, fn in functions.items():
        if not callable(fn):
            raise TypeError(
                f"{name!r} must be the function itself, as in {{{name!r}: softmax}}; it is a {type(fn).__name__}."
            )


def _whole_numbers(columns: object) -> list[int]:
    try:
        numbers = [operator.index(n) for n in (columns if isinstance(columns, Iterable) else [columns])]
    except TypeError:
        raise TypeError(f"columns must be row lengths, such as (1024, 4096); it is {columns!r}.") from None
    if any(n < 1 for n in numbers):
        raise ValueError(f"columns must be at least 1; they are {', '.join(map(str, numbers))}.")
    return numbers


def measure_shape(
    functions: Mapping[str, Callable[[torch.Tensor], object]], n_rows: int, n_cols: int, dtype: str
) -> list[Row]:
    """Checks and times the functions and a copy, in turns, on one random (n_rows, n_cols) tensor. GPU only."""
    copy, times = time_shape(functions, n_rows, n_cols, dtype)
    return [
        Row(name, dtype, n_rows, n_cols, time.median_ms, time.low_ms, time.high_ms, copy.median_ms)
        for name, time in times.items()
    ]


def time_shape(
    functions: Mapping[Hashable, Callable[[torch.Tensor], object]],
    n_rows: int,
    n_cols: int,
    dtype: str,
    repeats: int | None = None,
) -> tuple[Measurement, dict[Hashable, Measurement]]:
    """As `measure_shape`: the time of the copy, and that of each function."""
    if not ON_GPU:
        raise RuntimeError(_NO_GPU)
    x = torch.randn(n_rows, n_cols, device=DEVICE, dtype=torch.float32).to(DTYPES[dtype])
    y = torch.empty_like(x)
    for name, fn in functions.items():
        _refuse_wrong(name, fn(x), x)
    copy = object()
    contestants = {name: (lambda fn=fn: fn(x)) for name, fn in functions.items()}
    times = measure_in_turns({copy: lambda: y.copy_(x), **contestants}, repeats)
    return times.pop(copy), times


def _refuse_wrong(name: Hashable, y: object, x: torch.Tensor) -> None:
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        raise ValueError(f"{name!r} does not return a tensor of x's shape {tuple(x.shape)}; it is not timed.")
    sample = torch.linspace(0, x.shape[0] - 1, min(64, x.shape[0]), device=x.device, dtype=torch.float64).long()
    expected = torch.softmax(x[sample].double(), dim=1)
    # In fp16, each result of a row of a million columns has few bits, whichever kernel computes it.
    rounding = ((expected.to(x.dtype).double() - expected).norm() / expected.norm()).item()
    error = ((y[sample].double() - expected).norm() / expected.norm()).item()
    if not error < 1e-2 + rounding:
        raise ValueError(f"{name!r} is wrong (relative error {error:.1e} against float64); it is not timed.")


def _recorded_rows(columns: list[int], elements: int, dtype: str) -> list[Row]:
    """The recorded rows of a dtype; where few rows of a length were recorded apart and are asked for, only those."""
    parts = (record().get("few_rows", ()), record()["softmax"])
    few, many = ([Row(**row) for row in part if row["dtype"] == dtype] for part in parts)
    asked = {(max(1, elements // n_cols), n_cols) for n_cols in columns}
    few = [row for row in few if (row.n_rows, row.n_cols) in asked]
    apart = {row.n_cols for row in few}
    many = [row for row in many if row.n_cols not in apart or (row.n_rows, row.n_cols) in asked]
    return list({(row.variant, row.n_cols): row for row in few + many}.values())


def _recorded_comparison(names: list[str], columns: list[int], elements: int, dtype: str) -> Comparison:
    rows = _recorded_rows(columns, elements, dtype)
    missing = tuple(name for name in names if name not in {row.variant for row in rows})
    named = [row for row in rows if row.variant in names]
    found = [row for row in named if row.n_cols in columns]
    found.sort(key=lambda row: (row.n_cols, names.index(row.variant)))
    notes = []
    lengths = {row.n_cols for row in named or rows}
    if absent := [f"{n:,}" for n in columns if n not in lengths]:
        notes.append(f"Not in the record: {', '.join(absent)} columns.")
    if any(row.n_rows != max(1, elements // row.n_cols) for row in found):
        notes.append(f"The record has its own numbers of rows; elements={elements:,} is used only on a GPU.")
    return Comparison(tuple(found), recorded_origin(), missing, tuple(notes))
