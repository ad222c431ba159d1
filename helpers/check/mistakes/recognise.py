"""How a check recognises a mistake; the mistakes themselves are listed in the other files here and in exercises/.

A mistake is recognised by what it does, never by the source text. Either its output is known: `gives` carries the
mistake out on the same inputs (simulate.py) and compares. Or its traffic, or its end, shows it: `where` asks that of
the trials. Last, `only` names the kind of input on which an answer that nothing else explains goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from helpers.check.mistakes import simulate as sim
from helpers.check.mistakes.simulate import INF
from helpers.check.problems import cases
from helpers.check.problems.kind import Kind
from helpers.check.problems.problem import MANY, changed
from helpers.check.report import Diagnosis
from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End


@dataclass(frozen=True, eq=False)
class Seen:
    """One case: its input, a tensor or the arguments of a function, what became of it, and whether that was right. It
    equals itself alone."""

    case: str
    x: Any
    trial: Trial
    ok: bool
    others: tuple[torch.Tensor, ...] = ()
    """The inputs besides x."""
    options: Mapping[str, int] = field(default_factory=dict)
    """What the driver was given besides, as far as it takes it."""

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """All inputs of a function of tensors."""
        return self.x, *self.others


Explains = Callable[[Sequence[Seen]], float]


@dataclass(frozen=True)
class Mistake(Diagnosis):
    """A diagnosis that can be looked for: `explains` returns the share of the trials that it explains, from 0 to 1."""

    explains: Explains


def recognised(name: Diagnosis, hint: int, explains: Explains) -> Mistake:
    """A mistake of this name, with the hint that it points to in an exercise, recognised by `explains`."""
    return Mistake(name.id, name.name, name.question, hint, explains)


_Named = TypeVar("_Named", bound=Diagnosis)


def with_hints(mistakes: Sequence[_Named], of_others: int | None = None, /, **hints: int) -> tuple[_Named, ...]:
    """The same mistakes, with the given hints by id; the others keep theirs, or have the hint `of_others`.

    Raises ValueError for an id that none of them has.
    """
    if unknown := set(hints) - {mistake.id for mistake in mistakes}:
        raise ValueError(f"no mistake here has the id {', '.join(sorted(unknown))}")
    others = {one.id: one.hint if of_others is None else of_others for one in mistakes}
    return tuple(replace(one, hint=hints.get(one.id, others[one.id])) for one in mistakes)


def best_explained(mistakes: Sequence[Mistake], seen: Sequence[Seen]) -> tuple[Mistake | None, float]:
    """The mistake that explains most of the trials, the first of several that tie, and how much of them; None if none
    explains any."""
    best, most = None, 0.0
    for mistake in mistakes:
        if (explained := mistake.explains(seen)) > most:
            best, most = mistake, explained
        if most >= 1:
            break
    return best, most


def shown_by(mistake: Mistake | None, seen: Sequence[Seen]) -> str:
    """The first wrong case that shows a mistake by itself; "" if none does."""
    wrong = (case for case in seen if mistake and not case.ok)
    return next((case.case for case in wrong if mistake.explains([case]) > 0), "")


def gives(*results: sim.Simulation, rtol: float = 2e-3) -> Explains:
    """Explains what one of `results` reproduces: at least four fifths of the wrong cases, and nine tenths of all.

    Nothing where less than a sixth of the wrong cases that were run returned. `rtol` is how nearly, in float32.
    """

    def share(result: sim.Simulation, seen: Sequence[Seen]) -> float:
        answered = [case for case in seen if case.trial.y is not None]
        ran = [case for case in seen if case.trial.end is not End.NOT_RUN]
        if 6 * sum(not case.ok for case in answered) < sum(not case.ok for case in ran):
            return 0.0
        wrong = _agreement([case for case in answered if not case.ok], result, rtol, least=0.8)
        right = _agreement([case for case in answered if case.ok], result, rtol, least=0.8) if wrong else None
        if not wrong or right is None:
            return 0.0
        every = sum(wrong + right) / len(wrong + right)
        return 0.0 if every < 0.9 else 0.5 * (sum(wrong) / len(wrong) + every)

    return lambda seen: max(share(result, seen) for result in results)


def _agreement(seen: Sequence[Seen], result: sim.Simulation, rtol: float, least: float) -> list[bool] | None:
    """Whether `result` is what came back, case by case; None as soon as it cannot be so for a share of `least`."""
    agreed: list[bool] = []
    for case in seen:
        agrees = _agrees(case, result, rtol)
        if agrees is not None:
            agreed.append(agrees)
        if agreed.count(False) > (1 - least) * len(seen):
            return None
    return agreed


def _agrees(seen: Seen, result: sim.Simulation, rtol: float) -> bool | None:
    """Whether `result` is what came back; None where it cannot be said, as of a sample of very many rows.

    A tile that is larger than the row may hold several rows: both sizes are tried.
    """
    if seen.trial.sampled:
        return None
    tile, row = seen.trial.tile, 1 << (seen.x.shape[1] - 1).bit_length()
    tiles = (tile, row) if tile > row else (tile if tile >= 16 else row,)
    agreed = [_agrees_in_tiles(seen, result, rtol, tile) for tile in tiles]
    return None if None in agreed else any(agreed)


def _agrees_in_tiles(seen: Seen, result: sim.Simulation, rtol: float, tile: int) -> bool | None:
    try:
        expected = result(seen.x, tile).to(seen.x.dtype).float()
    except (IndexError, RuntimeError):
        return None
    rtol = rtol if seen.x.dtype == torch.float32 else 1e-2
    close = torch.isclose(seen.trial.y.float(), expected, rtol=rtol, atol=1e-6, equal_nan=True)
    close = close[~seen.x.isnan().all(dim=1)] if _is_tall(seen) else close
    return close.float().mean().item() > 0.99 and cases.is_right(seen.x, expected) == seen.ok


def _is_tall(seen: Seen) -> bool:
    """The case has more rows than are run: only a sample of the programs runs, and most rows hold nothing but NaN."""
    return len(seen.x) > MANY


def where(shows: Callable[[Seen], bool], weight: float = 1.0) -> Explains:
    """Explains everything as soon as one wrong case shows it."""
    return lambda seen: weight * any(shows(case) for case in seen if not case.ok)


def only(has: Callable[[Seen], bool]) -> Explains:
    """Explains a little where every wrong case has it: the more, the fewer right ones have it too, and half at most."""

    def explains(seen: Sequence[Seen]) -> float:
        wrong, right = ([has(case) for case in seen if case.ok == ok] for ok in (False, True))
        if not wrong or not right or not all(wrong):
            return 0.0
        return max(0.0, 0.5 - sum(right) / len(right))

    return explains


def any_of(*explanations: Explains) -> Explains:
    """Explains what the best of several does."""
    return lambda seen: max(explains(seen) for explains in explanations)


def if_some_wrong(has: Callable[[Seen], bool], explains: Explains) -> Explains:
    """As `explains`, if some wrong case has this."""
    return lambda seen: explains(seen) if any(has(case) and not case.ok for case in seen) else 0.0


# What the traffic, or the end, of a call shows


def ended(end: End) -> Explains:
    """A call ended in this way."""
    return where(lambda case: case.trial.end is end)


def too_slow(seen: Sequence[Seen]) -> float:
    """All that ran is right, and the others were given up, or the time was over before them."""

    def unseen(case: Seen) -> bool:
        return case.trial.skipped or case.trial.end is End.NOT_RUN

    return 1.0 * (any(case.ok for case in seen) and all(case.ok or unseen(case) for case in seen))


def came_back(kind: str) -> Explains:
    """In place of the result something of another kind came back: another "type", "shape", "dtype" or "device"."""
    return where(lambda case: case.trial.got_kind == kind)


def raised(error: str, weight: float = 1.0) -> Explains:
    """A call raised an error of this type."""
    return where(lambda case: case.trial.error == error, weight)


on_the_wrong_device = any_of(came_back("device"), raised("WrongDevice"))
"""The result lies on another device than x, or would on a GPU; or a tensor that a kernel is given would."""


def stopped_by(cause: str) -> Explains:
    """A call stopped with an error that has this cause."""
    return where(lambda case: case.trial.cause == cause, weight=0.9)


def most_are_refused(seen: Sequence[Seen]) -> float:
    """The compiler refuses most of the wrong cases, and no line of theirs has a cause of its own."""
    wrong = [case.trial for case in seen if not case.ok]
    return 0.95 * (2 * sum(bool(trial.refused) and not trial.cause for trial in wrong) > len(wrong))


def triton_said(words: str) -> Explains:
    """Triton refused a line of the kernel in these words, of its own."""
    return where(lambda case: words in case.trial.raised)


def returns_the_first_result(kind: Kind) -> Explains:
    """A second call, with other numbers in x, has returned a result that was right for the first ones."""

    def shows(seen: Seen) -> bool:
        trial, later = seen.trial, (changed(seen.x), *seen.others)
        if not trial.again or not trial.results or not kind.is_right(seen.inputs, trial.results):
            return False
        zeros = list(map(torch.zeros_like, trial.again))  # if these are right, they do not tell what is kept
        first, second, of_zeros = (
            [bool(wrong.any()) for wrong in kind.wrong(inputs, got)]
            for inputs, got in ((seen.inputs, trial.again), (later, trial.again), (seen.inputs, zeros))
        )
        return any(not a and b and c for a, b, c in zip(first, second, of_zeros, strict=True))

    return where(shows)


def unmasked(action: str) -> Explains:
    """Every lane of the last tile is switched on, and exactly the lanes that the row does not fill lie outside."""

    def shows(seen: Seen) -> bool:
        access = seen.trial.outside
        return bool(
            access
            and access["action"] == action
            and access["lanes"] == access["tile"]
            and seen.x.shape[1] % access["tile"]
            and 0 < access["outside"] <= access["tile"] - seen.x.shape[1] % access["tile"]
        )

    return where(shows)


def one_lane_too_many(seen: Seen) -> bool:
    """Of the last tile, one lane more is switched on than the row has columns left."""
    access = seen.trial.outside
    last = bool(access) and access["lanes"] == seen.x.shape[1] % access["tile"] + 1 < access["tile"]
    return last and access["outside"] == 1


def takes_rows_for_columns(seen: Seen) -> bool:
    """In a row that x does not have, the number of lanes that are switched on is that of rows."""
    access = seen.trial.outside
    M, N = seen.x.shape
    beyond = bool(access) and access["outside"] == access["lanes"] == M != N and M > 1  # one lane holds one row
    return beyond and access["element"] >= seen.x.shape[0] * seen.x.stride(0)


def wraps(seen: Seen) -> bool:
    """The element outside lies so far before its tensor that a 32-bit offset has wrapped around."""
    return seen.trial.outside.get("element", 0) <= -(2**28)


def _rows_never_stored(seen: Seen) -> torch.Tensor | None:
    stored = seen.trial.stored
    return None if stored is None or seen.trial.sampled else (stored == 0).all(dim=1)


def later_rows_never_stored(seen: Seen) -> bool:
    """As many rows are stored as there are programs, which are fewer than the rows."""
    if seen.trial.missing:
        return seen.trial.programs < seen.trial.of_rows
    rows = _rows_never_stored(seen)
    return rows is not None and 0 < seen.trial.programs < len(rows) and int((~rows).sum()) == seen.trial.programs


def some_rows_never_stored(seen: Seen) -> bool:
    """Some rows are stored, and others not."""
    rows = _rows_never_stored(seen)
    return bool(seen.trial.missing) or (rows is not None and 0 < int(rows.sum()) < len(rows))


def _only_row_0_is_stored(seen: Sequence[Seen]) -> list[Seen]:
    """The wrong cases of several rows, if of none of them another row than the first is ever stored."""
    several = [case for case in seen if not case.ok and len(case.x) > 1 and not case.trial.sampled]
    several = [case for case in several if case.trial.stored is not None]
    rows = [missing for missing in map(_rows_never_stored, several) if missing is not None]
    return several if rows and all(not missing[0] and missing[1:].all() for missing in rows) else []


def _loads_other_rows(seen: Seen) -> bool:
    return seen.trial.loaded is not None and bool((seen.trial.loaded[1:] > 0).any())


def takes_row_0(seen: Sequence[Seen]) -> float:
    """Of several rows, with a program for each, no other than the first is ever loaded or stored."""
    return 1.0 * any(not _loads_other_rows(case) for case in _only_row_0_is_stored(seen))


def stores_to_row_0(seen: Sequence[Seen]) -> float:
    """Programs load rows of their own, and all of them store to the first."""
    return 1.0 * any(_loads_other_rows(case) for case in _only_row_0_is_stored(seen))


def takes_the_same_rows(seen: Seen) -> bool:
    """The first rows, two or more, are each stored by every program, and no other row is."""
    stored, programs = seen.trial.stored, seen.trial.programs
    if stored is None or seen.trial.sampled or programs < 2:
        return False
    taken = int((stored == programs).all(dim=1).sum())
    first = stored[:taken] == programs
    return 1 < taken < len(stored) and bool(first.all()) and not stored[taken:].any()


def leaves_out_minus_inf(seen: Sequence[Seen]) -> float:
    """In every wrong case just entries of −inf or NaN are never stored."""
    missing = [
        (case.x, case.trial.stored == 0)
        for case in seen
        if not case.ok and case.trial.stored is not None and not case.trial.sampled
    ]
    left_out = any(bool(unstored.any()) for _, unstored in missing)
    return 0.99 * (left_out and not any(bool(unstored[x > -INF].any()) for x, unstored in missing))


def number_at_a_time(seen: Sequence[Seen]) -> float:
    """Time ran out, and what kernels load and store where it did not is one number at a time."""
    slow = any(not case.ok and case.trial.end in (End.OUT_OF_TIME, End.NOT_RUN) for case in seen)
    answered = [case for case in seen if case.trial.y is not None and case.x.shape[1] >= 8]
    return 1.0 * (slow and bool(answered) and all(case.trial.kernels and case.trial.tile == 1 for case in answered))


def has_no_programs(seen: Seen) -> bool:
    """Kernels are launched, no launch has a program, and so nothing is stored."""
    trial = seen.trial
    return bool(trial.y is not None and trial.kernels and not trial.programs and not trial.stored_by_kernels)


def stores_rows_one_apart(seen: Seen) -> bool:
    """Every row is stored from an element on whose number is the row's own, which is not a stride that x has."""
    stored = seen.trial.stored
    if stored is None or len(stored) < 2 or seen.x.stride(0) == 1:
        return False
    M, N = stored.shape
    at = torch.arange(M * N)
    rows_here = at.clamp(max=M - 1) - (at - N + 1).clamp(min=0) + 1
    return torch.equal(stored.flatten(), rows_here.clamp(min=0))


def _below_N(x: torch.Tensor, row_stride: int, col_stride: int) -> torch.Tensor:
    """Which elements have a place below the number of columns, counted from the first: (M, N), bool."""
    M, N = x.shape
    return torch.arange(M)[:, None] * row_stride + torch.arange(N) * col_stride < N


def stores_at_strides_of_x(seen: Sequence[Seen]) -> float:
    """Kernels store outside the result, and just where x has gaps."""
    outside = [case for case in seen if not case.ok and case.trial.outside.get("action") == "store"]
    return 0.98 * (bool(outside) and all(is_strided(case) and not wraps(case) for case in outside))


def masked_by_place(seen: Sequence[Seen]) -> float:
    """Of several rows just those elements are loaded, or stored once, whose place in memory has a number below N.

    Places are counted in x with its strides, or without one of them, and in the result, which has no gaps.
    """
    several = [case for case in seen if not case.ok and len(case.x) > 1 and not case.trial.sampled]
    several = [case for case in several if case.trial.loaded is not None and case.trial.stored is not None]

    def places_loaded(strides: Callable[[torch.Tensor], tuple[int, int]]) -> bool:
        below = [_below_N(case.x, *strides(case.x)) for case in several]
        equal = all(torch.equal(case.trial.loaded > 0, one) for case, one in zip(several, below, strict=True))
        return equal and not all(one.all() for one in below)

    loaded = any(map(places_loaded, (torch.Tensor.stride, lambda x: (x.stride(0), 1), lambda x: (0, x.stride(1)))))
    stored = all(
        torch.equal(case.trial.stored, 1 * _below_N(case.x, case.x.shape[1], 1)) and case.trial.programs >= len(case.x)
        for case in several
    )
    return 1.0 * (bool(several) and (loaded or stored))


def stores_nothing(seen: Sequence[Seen]) -> float:
    """In every wrong case kernels ran, and stored nothing."""
    wrong = [case.trial for case in seen if not case.ok and case.trial.y is not None]
    return 1.0 * (bool(wrong) and all(t.kernels and t.programs and not t.stored_by_kernels for t in wrong))


def is_nearly_right(seen: Sequence[Seen]) -> float:
    """Explains most of it where every number of every wrong case is right to a hundredth, in float32 too."""
    wrong = [case for case in seen if not case.ok]
    return 0.6 * (any(case.x.dtype == torch.float32 for case in wrong) and all(map(_is_near, wrong)))


def _is_near(seen: Seen) -> bool:
    if seen.trial.y is None:
        return False
    want = torch.softmax(seen.x.double(), dim=1)
    return torch.isclose(seen.trial.y.double(), want, rtol=1e-2, atol=1e-6, equal_nan=True).all().item()


def leaves_out_the_end(seen: Sequence[Seen]) -> float:
    """Some rows are stored from their first column on, and never to their last; none begins later."""
    rows = [(case, _rows_never_stored(case)) for case in seen if not case.ok]
    missing = [(case.trial.stored == 0).any(dim=0) for case, never in rows if never is not None and not never.any()]
    return 0.97 * (any(bool(one[-1]) for one in missing) and not any(bool(one[0]) for one in missing))


def tail_never_loaded(seen: Seen) -> bool:
    """Kernels loaded the row's beginning, and never its end."""
    loaded = seen.trial.loaded
    if loaded is None:
        return False
    missing = (loaded == 0).flatten(end_dim=-2).all(dim=0)
    return missing[-1].item() and not missing[0].item()


# Kinds of input


def is_16_bit(seen: Seen) -> bool:
    """The input is bfloat16 or float16."""
    return seen.x.dtype != torch.float32


def is_strided(seen: Seen) -> bool:
    """Rows, or columns, have gaps between them."""
    return seen.x.stride() != (seen.x.shape[1], 1) and seen.x.shape[0] > 1


def is_laid_out(seen: Seen) -> bool:
    """Something of the case lies apart, or in another order."""
    return not all(one.is_contiguous() for one in seen.inputs)


def has_minus_inf(seen: Seen) -> bool:
    """Some entries are −inf."""
    return (seen.x == -INF).any().item()


def has_nan(seen: Seen) -> bool:
    """Some entries are NaN or +inf, and not only because the case has very many rows."""
    return not _is_tall(seen) and bool((seen.x.isnan() | (seen.x == INF)).any())


def is_large(seen: Seen) -> bool:
    """Some entries are so large that their exp overflows."""
    return (seen.x > 88).any().item()


def is_longer_than_tile(seen: Seen) -> bool:
    """The row needs several tiles."""
    return seen.x.shape[1] > seen.trial.tile


def has_idle_lanes(seen: Seen) -> bool:
    """The last tile hangs over the end of the row."""
    return seen.x.shape[1] % seen.trial.tile > 0
