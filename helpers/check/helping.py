"""Exercise 9.3: programs of a row that publish, look and help: the judge, and the known mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from helpers.check.exercise import AnswersExercise, Given
from helpers.check.judge import handed_out, stopped, untouched
from helpers.check.mistakes import names
from helpers.check.mistakes.recognise import Mistake, Seen, raised, recognised, shown_by
from helpers.check.mistakes.shared import GENERAL
from helpers.check.problems.shared_rows import FAIR, LOOKS_ALLOWED, ONE_PLACE, SHARED_LAUNCHES, SLOW, drawn_numbers
from helpers.check.report import Finding, Report
from helpers.check.trial.trial import Trial, is_number, shown
from helpers.engine.isolate import End
from helpers.engine.numbers import counted
from helpers.gpu.sharing import PATIENCE, SharedEnd, near, pair_of_row, pair_of_slice


def shared_cases(draw: Random) -> Given:
    """By case: its name and a seed, and how many slices at most are loaded for others; None where nothing is asked."""
    most = {FAIR: 0, SLOW: 0, ONE_PLACE: 4}
    return {case: ((case, draw.randrange(2**31)), most.get(case)) for case in SHARED_LAUNCHES}


def judge_shared(exercise: AnswersExercise, given: Given, trials: Sequence[Trial]) -> Report:
    """The report on a program of a row, from what became of the launches of all cases."""
    tried = [trial for trial in trials if trial.end is not End.NOT_RUN]
    if all(untouched(exercise, trial) or _is_handed_out(exercise, trial) for trial in tried):
        return exercise.untouched()
    findings = [_finding(at, trial, most) for (at, most), trial in zip(given.values(), trials, strict=True)]
    seen = [Seen(f.case, at, trial, f.ok) for f, (at, _), trial in zip(findings, given.values(), trials, strict=True)]
    named = None if all(finding.ok for finding in findings) else exercise.named(seen)
    return exercise.judged(findings, diagnosis=named, shown_by=shown_by(named, seen))


_At = tuple[str, int]
"""A launch, and the seed that its numbers and orders are drawn with."""


def _is_handed_out(exercise: AnswersExercise, trial: Trial) -> bool:
    """Whether the programs stored nothing and returned their own pairs."""
    return bool(_ends(trial)) and handed_out(exercise, trial) and all(
        end.loads == end.needless == 0 and not end.stores and end.early == len(end.results)
        for end in _ends(trial)
    )  # fmt: skip


def _ends(trial: Trial) -> list[SharedEnd]:
    return [SharedEnd(*end) for end in trial.answer] if isinstance(trial.answer, list) else []


def _pair(result: Any) -> tuple[float, float] | None:
    """What a program returned as a pair of numbers; None where it is something else."""
    fits = isinstance(result, list | tuple) and len(result) == 2 and all(map(is_number, result))
    return tuple(result) if fits else None


def _parts(at: _At) -> int:
    return 1 + max(part for _, part in SHARED_LAUNCHES[at[0]].grid)


def _right(at: _At, row: int) -> tuple[float, float]:
    return pair_of_row(drawn_numbers(*at), row, _parts(at))


def _own(at: _At, row: int, part: int) -> tuple[float, float]:
    return pair_of_slice(drawn_numbers(*at)(row, part))


def _finding(at: _At, trial: Trial, most_loads: int | None) -> Finding:
    case, ends = at[0], _ends(trial)
    if trial.raised:
        return stopped(case, trial)
    if len(ends) != SHARED_LAUNCHES[case].runs():
        return Finding(case, False, "what became of the programs is not known")
    said = (_said(at, end, most_loads) for end in ends)
    return next((Finding(case, False, wrong) for wrong in said if wrong), Finding(case, True, ""))


def _said(at: _At, end: SharedEnd, most_loads: int | None) -> str:
    """The fault of one run of a launch, in words."""
    launch, results, waiting = SHARED_LAUNCHES[at[0]], end.results, end.waiting
    for row, part, result in results:
        pair, right = _pair(result), _right(at, row)
        if pair is None:
            return f"expected (m, l), got {shown(result)}"
        if not near(pair, right):
            got, wanted = (f"m = {m:g} and l = {l:g}" for m, l in (pair, right))
            return f"the program of slice {part} of row {row} says {got}; the row has {wanted}"
    if end.stores:
        return f"stored as a word: {end.stores[0]}"
    if waiting:
        places = counted(launch.places, "place")
        return f"hangs on {places}: after {PATIENCE:,} rounds {waiting} wait, and {end.never_started} cannot start"
    if sorted((row, part) for row, part, _ in results) != sorted(launch.grid):
        return "not every program has ended"
    if end.looks > LOOKS_ALLOWED:
        return f"a program looks {end.looks:,} times; {LOOKS_ALLOWED:,} are the most"
    if end.reloaded:
        return f"{counted(end.reloaded, 'program')} loaded the slice that x holds"
    if end.needless:
        return f"slices are loaded whose pair was there: {end.needless}"
    if most_loads is not None and end.loads > most_loads:
        return f"{end.loads} slices are loaded for others; {most_loads} are enough"
    if end.unpublished:
        return f"{counted(end.unpublished, 'program')} did not publish the pair of x"
    if end.early:
        return f"{counted(end.early, 'program')} ended while words of the row were missing"
    return ""


def _in_any(shows: Callable[[_At, SharedEnd], bool], *, all_of: bool = False) -> Callable[[Sequence[Seen]], float]:
    """Explains the share of the wrong cases in which a run, or with `all_of` every run, shows the mistake."""

    def explains(seen: Sequence[Seen]) -> float:
        wrong = [case for case in seen if not case.ok]
        quantifier = all if all_of else any
        found = sum(
            bool(_ends(one.trial)) and quantifier(shows(one.x, end) for end in _ends(one.trial)) for one in wrong
        )
        return found / len(wrong) if wrong else 0.0

    return explains


def _once(shows: Callable[[_At, SharedEnd], bool]) -> Callable[[Sequence[Seen]], float]:
    """Explains all that is wrong as soon as one run shows it: whatever else goes wrong may follow from it."""
    share = _in_any(shows)
    return lambda seen: 1.0 if share(seen) else 0.0


def _stores(what: str) -> Callable[[Sequence[Seen]], float]:
    return _once(lambda at, end: what in end.stores)


def _wrong_results(at: _At, end: SharedEnd) -> list[tuple[int, int, tuple[float, float]]]:
    pairs = ((row, part, _pair(result)) for row, part, result in end.results)
    return [(row, part, pair) for row, part, pair in pairs if pair and not near(pair, _right(at, row))]


def _sums_as_they_are(at: _At, end: SharedEnd) -> bool:
    """Every wrong result has the row's m and the sum of the slices' sums."""
    wrong = _wrong_results(at, end)

    def added(row: int) -> float:
        return sum(_own(at, row, part)[1] for part in range(_parts(at)))

    return bool(wrong) and all(math.isclose(pair[1], added(row), rel_tol=1e-5) for row, _, pair in wrong)


def _own_pairs(at: _At, end: SharedEnd) -> bool:
    wrong = _wrong_results(at, end)
    return bool(wrong) and all(near(pair, _own(at, row, part)) for row, part, pair in wrong)


def _merged_too_early(seen: Sequence[Seen]) -> float:
    """Words were missing when a program ended, or the results are wrong where programs have to help, and only there."""
    fair_is_right = any(one.case == FAIR and one.ok for one in seen)
    return _once(
        lambda at, end: bool(_wrong_results(at, end)) and (fair_is_right or bool(end.early) and not _own_pairs(at, end))
    )(seen)


def _merged(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The merge of pairs; (nan, nan) where numbers that are no pairs overflow."""
    m = max(m for m, _ in pairs)
    try:
        return m, sum(l * math.exp(part - m) for part, l in pairs)
    except OverflowError:
        return math.nan, math.nan


def _all_wrong_are(result: Callable[[list[tuple[float, float]], int], tuple[float, float]]) -> Callable:
    """Whether every wrong result is what `result` makes of the row's pairs and the number of the program's slice."""

    def shows(at: _At, end: SharedEnd) -> bool:
        wrong = _wrong_results(at, end)
        rows = {row: [_own(at, row, part) for part in range(_parts(at))] for row, _, _ in wrong}
        return bool(wrong) and all(near(pair, result(rows[row], part)) for row, part, pair in wrong)

    return shows


def _waits_in_place(seen: Sequence[Seen]) -> float:
    return float(any(not one.ok and one.trial.error == "WaitsInPlace" for one in seen))


HELPED = (
    Mistake(
        "waits_in_place",
        "A program looks again and again, and lets no other one go on.",
        "On the simulated GPU, at which statement of yours do other programs have their turn?",
        2,
        _waits_in_place,
    ),
    Mistake(
        "exponent_above_0",
        "An exponent is so large that exp overflows.",
        "Each l was made with the m of its slice: which m is subtracted from it, so that no exponent is above 0?",
        3,
        raised("OverflowError", weight=0.95),
    ),
    *GENERAL,
    Mistake(
        "word_swapped",
        "m and l change places in a word.",
        "Which of the two does word(m, l) take first?",
        1,
        _stores("m and l swapped"),
    ),
    Mistake(
        "half_a_pair",
        "Half of a pair is published.",
        "A reader may look between two stores: what does it take for the pair then, and how is a pair stored at once?",
        1,
        _stores("half of a pair"),
    ),
    Mistake(
        "another_slice",
        "The pair of one slice is stored in the place of another.",
        "Which word belongs to the slice that x, or load, has given you?",
        1,
        _stores("the pair of another slice"),
    ),
    Mistake(
        "word_added",
        "A word is added to one that was there.",
        "Somebody may have helped before a program begins: what does its word hold then?",
        1,
        _stores("a word added to one that was there"),
    ),
    Mistake(
        "minus_inf_published",
        "A slice of only −inf publishes −inf as its maximum.",
        "What is −inf − (−inf) in the merge, and which number stands for such a maximum?",
        1,
        _stores("−inf, not the lowest number"),
    ),
    Mistake(
        "own_slice_loaded",
        "A program loads its own slice.",
        "Which slice does x hold?",
        1,
        _in_any(lambda at, end: 0 < end.reloaded == end.needless and not end.unpublished),
    ),
    Mistake(
        "published_late",
        "A program waits, or helps, before it has published the pair of its own slice.",
        "What do the others look for meanwhile, and in which line of yours does it come?",
        1,
        _once(lambda at, end: end.late > 0),
    ),
    Mistake(
        "not_published",
        "A program waits, or ends, and has not published the pair of its own slice.",
        "Where do the others look for it, and which line of yours stores it there, before anybody waits?",
        1,
        _once(lambda at, end: end.unpublished > 0),
    ),
    recognised(
        names.SUMS_AS_THEY_ARE,
        3,
        _once(_sums_as_they_are),
    ),
    Mistake(
        "unpacked_swapped",
        "m and l change places when a word is unpacked.",
        "Which of the two does pair(word) return first?",
        3,
        _once(_all_wrong_are(lambda pairs, part: _merged([pair[::-1] for pair in pairs]))),
    ),
    Mistake(
        "own_pair_twice",
        "The pair of a program's own slice is merged twice.",
        "With which pair does the merge begin, and is it among the words as well?",
        3,
        _once(_all_wrong_are(lambda pairs, part: _merged([*pairs, pairs[part]]))),
    ),
    Mistake(
        "merged_too_early",
        "A program merges before all pairs of the row are there.",
        "Which words does it look at before it goes on, and what does a word of 0 say?",
        2,
        _merged_too_early,
    ),
    Mistake(
        "own_pair",
        "A program returns the pair of its own slice.",
        "Which pairs does it take to know m and l of the row?",
        3,
        _once(_own_pairs),
    ),
    Mistake(
        "waits_forever",
        "A program waits for programs that cannot start.",
        "Who frees the place that a missing program needs, and what could a program do that has looked often enough?",
        2,
        _in_any(lambda at, end: end.waiting > 0),
    ),
    Mistake(
        "looks_too_often",
        "A program looks more than 1000 times.",
        "After how many looks does it help, all words of the row counted together?",
        2,
        _in_any(lambda at, end: end.looks > LOOKS_ALLOWED),
    ),
    Mistake(
        "helps_for_all",
        "Slices are loaded although their pair is there.",
        "For which slices of the row is help needed?",
        2,
        _in_any(lambda at, end: end.needless > 0),
    ),
    Mistake(
        "helps_at_once",
        "A program helps before the others have had time.",
        "Every program has a place, and some need 20 rounds: after how many looks, each with a yield, does yours help?",
        2,
        _in_any(lambda at, end: at[0] in (FAIR, SLOW) and end.loads > 0),
    ),
    Mistake(
        "help_not_published",
        "A program that helps keeps what it has computed.",
        "The next program finds the same pair missing: where would it look for it?",
        2,
        _in_any(lambda at, end: end.early > 0 and not _wrong_results(at, end)),
    ),
)
"""The mistakes of exercise 9.3; a mistake that others follow from comes before them."""
