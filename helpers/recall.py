"""Three questions from earlier lessons at the start of each, with other numbers every time: answered by `predict`.

They earn no points. A question that was once answered right is noted in progress.json, next to the points, and comes
after the others from then on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from helpers import predict
from helpers.engine import notes
from helpers.engine.numbers import counted
from helpers.engine.words import say
from helpers.table import Table

RECALL = "recall"
"""The entry of the file that is kept here."""
ASKED = 3
_NAMES = ("first", "second", "third")


@dataclass(frozen=True)
class Recall:
    """A question of a lesson: `draw` makes its text, the right number and the reason, with numbers of its own."""

    id: str
    lesson: int
    draw: Callable[[random.Random], tuple[str, float, str]]


def _eager_bytes(draw: random.Random) -> tuple[str, float, str]:
    M, N = draw.choice((1000, 2000, 4000)), draw.choice((500, 1500, 2500))
    text = f"The eager chain on {M:,} × {N:,} float32 numbers: how many MB does it load and store, all together?"
    return text, 8 * 4 * M * N / 1e6, "5 loads and 3 stores per element, of 4 bytes each"


def _largest_term(draw: random.Random) -> tuple[str, float, str]:
    scores = draw.sample(range(-300, 900), 3)
    listed = ", ".join(map(str, scores))
    return f"A row has the scores {listed}. The stable softmax subtracts one number: which?", max(scores), "the largest"


def _copy_time(draw: random.Random) -> tuple[str, float, str]:
    megabytes, gbps = draw.choice((200, 400, 600)), draw.choice((2000, 4000))
    text = f"A copy moves {gbps:,} GB/s. How many µs does it take for a tensor of {megabytes} MB?"
    return text, 2 * megabytes * 1e3 / gbps, "each byte is read and written"


def _address(draw: random.Random) -> tuple[str, float, str]:
    stride, row, column = draw.choice((8, 16, 512)), draw.randrange(2, 9), draw.randrange(1, 8)
    text = f"Rows lie {stride} elements apart. Which element of x does program {row} load for column {column}?"
    return text, row * stride + column, "row · stride + column"


def _fused_trips(draw: random.Random) -> tuple[str, float, str]:
    loads, stores = draw.choice(((5, 3), (2, 1), (3, 1), (3, 2)))
    trips = f"{counted(loads, 'load')} and {counted(stores, 'store')} per element"
    text = f"A kernel makes {trips}: by these, how many times as long as a copy does it take?"
    return text, (loads + stores) / 2, "a copy makes two trips"


def _idle_lanes(draw: random.Random) -> tuple[str, float, str]:
    columns = draw.randrange(130, 4000)
    tile = 1 << (columns - 1).bit_length()
    return (
        f"A row of {columns:,} columns in one tile: how many lanes are masked off?",
        tile - columns,
        f"the tile has {tile:,}",
    )


def _view(draw: random.Random) -> tuple[str, float, str]:
    width, columns, row = draw.choice((10, 100, 640)), draw.randrange(2, 9), draw.randrange(2, 6)
    text = f"x = wide[:, :{columns}], and wide has {width} columns. How many elements after x_ptr does row {row} begin?"
    return text, row * width, "the stride is that of the wide tensor"


def _padding(draw: random.Random) -> tuple[str, float, str]:
    top = -draw.randrange(2, 9)
    text = f"A row's largest score is {top}. Lanes past its end hold 0 instead of −inf. Which m does tl.max find?"
    return text, 0, "0 is larger than every score of this row"


def _two_pass_loads(draw: random.Random) -> tuple[str, float, str]:
    BLOCK = draw.choice((512, 1024, 4096))
    columns = draw.randrange(BLOCK + 1, 8 * BLOCK)
    tiles = -(-columns // BLOCK)
    text = f"The two-pass kernel, {columns:,} columns, BLOCK = {BLOCK:,}: how often does a program call tl.load?"
    return text, 3 * tiles, f"{tiles} tiles, three times each"


def _registers(draw: random.Random) -> tuple[str, float, str]:
    warps = draw.choice((1, 2, 4, 8, 16))
    BLOCK = 32 * warps * draw.choice((4, 8, 16, 32))
    shared = f"{counted(warps, 'warp')} of 32 threads"
    text = f"A tile of {BLOCK:,} numbers is held by {shared}. How many does each thread hold?"
    return text, BLOCK / (32 * warps), "BLOCK divided by 32 · num_warps"


def _factor(draw: random.Random) -> tuple[str, float, str]:
    m, grown = draw.randrange(-5, 5), draw.randrange(1, 4)
    text = f"m grows from {m} to {m + grown}. By which factor is the old l multiplied?"
    return text, math.exp(-grown), "exp(old m − new m)"


def _merged(draw: random.Random) -> tuple[str, float, str]:
    m, l_a, l_b = draw.randrange(-3, 4), 1 + draw.randrange(1, 9) / 4, 1 + draw.randrange(1, 9) / 4
    text = f"The pairs ({m}, {l_a}) and ({m + 1}, {l_b}) are merged. What is l? (exp(−1) is 0.368.)"
    return text, l_a * math.exp(-1) + l_b, "the smaller maximum's sum is multiplied by exp(−1)"


def _warp_registers(draw: random.Random) -> tuple[str, float, str]:
    registers = draw.randrange(33, 128)
    text = f"A thread needs {registers} registers. How many does its warp take, in portions of 256?"
    return text, -(-32 * registers // 256) * 256, "32 threads, rounded up"


def _median(draw: random.Random) -> tuple[str, float, str]:
    times = [draw.randrange(40, 60) / 10 for _ in range(4)] + [draw.randrange(80, 150)]
    draw.shuffle(times)
    return (
        f"Five runs take {', '.join(f'{t:g}' for t in times)} µs. Which number is reported?",
        sorted(times)[2],
        "the median",
    )


def _claimed(draw: random.Random) -> tuple[str, float, str]:
    megabytes, us = draw.choice((100, 200, 400)), draw.choice((10, 20, 50))
    text = f"A softmax of {megabytes} MB is said to take {us} µs. How many GB/s would that be?"
    return text, 2 * megabytes * 1e3 / us, "2 × size over time; does a copy reach that?"


def _places(draw: random.Random) -> tuple[str, float, str]:
    rows, parts = draw.randrange(3, 9), draw.randrange(3, 9)
    text = (
        f"{rows} rows of {parts} slices, slice 0 of all rows first, no help: on how many places at least does it end?"
    )
    return text, (parts - 1) * rows + 1, "all but the last slice of every row, and one more"


def _loads_of_keys(draw: random.Random) -> tuple[str, float, str]:
    L, BLOCK_M = draw.choice((1024, 2048, 4096)), draw.choice((32, 64, 128))
    text = f"Attention of {L:,} tokens in tiles of {BLOCK_M} queries: how often is each element of K loaded?"
    return text, L // BLOCK_M, "once for each tile of queries"


def _causal_loads(draw: random.Random) -> tuple[str, float, str]:
    tiles = draw.randrange(5, 12)
    text = f"A causal kernel has {tiles} tiles of 64 queries, and skips tiles of 64 keys that none sees. "
    return text + "How often is an element of K loaded on average?", (tiles + 1) / 2, "1, 2, … tiles: their mean"


def _triples(draw: random.Random) -> tuple[str, float, str]:
    parts, d = draw.choice((8, 16, 32)), draw.choice((64, 128))
    text = f"A query's keys lie in {parts} parts, d = {d}. How many numbers do the parts leave for the merge?"
    return text, parts * (d + 2), "m, l and d numbers of o for each part"


def _fused_loss(draw: random.Random) -> tuple[str, float, str]:
    M, N = draw.choice((1000, 2000, 4000)), draw.choice((32_000, 50_000, 128_000))
    text = f"The fused loss with its gradient, {M:,} rows of {N:,} logits: how many million loads and stores together?"
    return text, 2 * M * N / 1e6, "each logit is loaded once, and its gradient stored once"


def _sum_of_values(draw: random.Random) -> tuple[str, float, str]:
    m, grown, o = draw.randrange(-3, 4), draw.randrange(1, 4), draw.randrange(2, 9)
    text = f"A triple has m = {m} and o = {o}. A new score raises m to {m + grown}: what becomes of the old o?"
    return text, o * math.exp(-grown), "it shrinks as l does, by exp(old m − new m)"


def _pairs(draw: random.Random) -> tuple[str, float, str]:
    BLOCK = draw.choice((512, 1024, 4096))
    columns = draw.randrange(BLOCK + 1, 20 * BLOCK)
    text = f"A row of {columns:,} columns lies in slices of {BLOCK:,}. How many numbers do they leave for the merge?"
    return text, 2 * -(-columns // BLOCK), "m and l of each slice, the last one too"


def _link_bytes(draw: random.Random) -> tuple[str, float, str]:
    rows = draw.choice((1000, 2000, 4096))
    text = f"{rows:,} rows lie over several GPUs. How many kB does each GPU send for their loss, without a gradient?"
    return text, 12 * rows / 1000, "m, l and the target's logit of each row, 4 bytes each"


def _share(draw: random.Random) -> tuple[str, float, str]:
    m, l_a, l_b = draw.randrange(-3, 4), draw.randrange(1, 9), draw.randrange(1, 9)
    text = f"Two parts have m = {m}, and l is {l_a} in the first and {l_b} in the second: "
    return text + "how probable is the second one's pick?", l_b / (l_a + l_b), "its share of l"


def _chunks(draw: random.Random) -> tuple[str, float, str]:
    chunks = draw.choice((4, 6, 10, 12))
    text = f"The loss of a linear layer and its gradients are computed in {chunks} chunks of tokens: "
    return text + "how often is each element of W loaded?", 2 * chunks, "once a chunk for the logits, once for dx"


QUESTIONS = (
    Recall("eager bytes", 1, _eager_bytes),
    Recall("largest score", 1, _largest_term),
    Recall("time of a copy", 1, _copy_time),
    Recall("address of a lane", 2, _address),
    Recall("trips against a copy", 2, _fused_trips),
    Recall("idle lanes", 3, _idle_lanes),
    Recall("stride of a view", 3, _view),
    Recall("padding with 0", 3, _padding),
    Recall("loads of two passes", 4, _two_pass_loads),
    Recall("elements a thread", 4, _registers),
    Recall("rescaling", 5, _factor),
    Recall("merge", 5, _merged),
    Recall("registers of a warp", 6, _warp_registers),
    Recall("median", 8, _median),
    Recall("GB/s said", 8, _claimed),
    Recall("places", 9, _places),
    Recall("pairs of a row", 9, _pairs),
    Recall("trips of the loss", 10, _fused_loss),
    Recall("sum of values", 11, _sum_of_values),
    Recall("loads of K", 11, _loads_of_keys),
    Recall("loads of K, causal", 11, _causal_loads),
    Recall("numbers of the parts", 12, _triples),
    Recall("bytes over the link", 13, _link_bytes),
    Recall("share of a part", 14, _share),
    Recall("loads of W", 15, _chunks),
)
"""What may be asked, by the lesson that it is from."""


@dataclass(frozen=True)
class _Asked:
    """The questions that are asked at the start of a lesson, and the seed of their numbers."""

    seed: int
    ids: tuple[str, ...]

    def drawn(self) -> list[tuple[Recall, str, float, str]]:
        """Each question with its text, the right number and the reason."""
        by_id = {question.id: question for question in QUESTIONS}
        known = [by_id[one] for one in self.ids]
        return [(question, *question.draw(random.Random(f"{self.seed} {question.id}"))) for question in known]


_asked: dict[int, _Asked] = {}


def quiz(
    lesson: int, first: float | None = None, second: float | None = None, third: float | None = None
) -> Table | None:
    """Prints three questions from lessons before `lesson`, and returns a table of the answers; None without any.

    Without an answer, in a session that has not asked yet, numbers are drawn again; then they stay until it ends. The
    right number is shown once an answer is given; 2 % off is right too. Raises ValueError for a lesson before which
    there is none, and TypeError, as `predict.guess` does, for an answer that is not a number.
    """
    answers = dict(zip(_NAMES, (first, second, third), strict=True))
    if lesson not in _asked:
        begun = any(answer is not None for answer in answers.values())
        _asked[lesson] = (begun and _from_file(lesson)) or choose_questions(
            lesson, random.SystemRandom().randrange(2**31)
        )
    drawn = dict(zip(_NAMES, _asked[lesson].drawn(), strict=True))
    for name, (question, text, _, _) in drawn.items():
        say(f"{name} (from lesson {question.lesson:02}): {text}")
    topic = f"questions before lesson {lesson:02}"
    predict.guess(topic, **answers)
    numbers = {name: number for name, (_, _, number, _) in drawn.items() if answers[name] is not None}
    right = [name for name, number in numbers.items() if is_near(answers[name], number)]
    _note(lesson, [drawn[name][0].id for name in right])
    if not numbers:
        return None
    table = predict.with_answers(topic, right=numbers)
    return Table(table.head, table.rows, [f"{name}: {drawn[name][3]}." for name in numbers if name not in right])


def is_near(answer: float, right: float) -> bool:
    """Whether an answer is right: within 2 %, for people who compute in their heads."""
    return math.isclose(answer, right, rel_tol=0.02, abs_tol=1e-9)


def choose_questions(lesson: int, seed: int) -> _Asked:
    """Three questions from lessons before this one: the ones that were never answered right come first.

    Raises ValueError where there are fewer than three.
    """
    earlier = [question for question in QUESTIONS if question.lesson < lesson]
    if len(earlier) < ASKED:
        raise ValueError(f"no questions come before lesson {lesson}; lesson 2 is the first that has some.")
    random.Random(seed).shuffle(earlier)
    chosen = sorted(earlier, key=lambda question: question.id in once_right())[:ASKED]
    return _Asked(seed, tuple(question.id for question in sorted(chosen, key=QUESTIONS.index)))


def once_right() -> set[str]:
    """The questions that were once answered right, by their ids."""
    right = notes.entry(RECALL).get("right")
    return {question.id for question in QUESTIONS} & set(filter(_is_text, right if isinstance(right, list) else ()))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _from_file(lesson: int) -> _Asked | None:
    """The questions that an earlier session asked at the start of this lesson."""
    match notes.entry(RECALL).get(str(lesson)):
        case [int(seed), str(a), str(b), str(c)] if {a, b, c} <= {question.id for question in QUESTIONS}:
            return _Asked(seed, (a, b, c))
    return None


def _note(lesson: int, right: list[str]) -> None:
    asked = _asked[lesson]
    now_right = sorted(once_right() | set(right))
    notes.put({RECALL: notes.entry(RECALL) | {"right": now_right, str(lesson): [asked.seed, *asked.ids]}})
