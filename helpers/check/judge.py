"""From the observations in the trials of a function to the report on it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from helpers.check.mistakes.recognise import (
    Mistake,
    Seen,
    any_of,
    best_explained,
    most_are_refused,
    shown_by,
    tail_never_loaded,
    where,
)
from helpers.check.problems.problem import ENDS, MANY, Problem, flat_where_overlapping
from helpers.check.report import Accesses, Diagnosis, Finding, Report, first_lines
from helpers.check.trial.place import Tried
from helpers.check.trial.trial import Trial, is_number, same
from helpers.check.trial.withheld import decoy
from helpers.engine.compiler.refusal import Refusal
from helpers.engine.compiler.verdict import VERDICT_TARGETS, SeenLaunch, Verdict
from helpers.engine.isolate import End
from helpers.engine.numbers import counted

if TYPE_CHECKING:
    from helpers.check.exercise import AnswersExercise, FunctionExercise, Given, TensorExercise

Pair = tuple[float, float]
"""(m, l): the maximum of a part of a row, and its sum of exp(x − m)."""

TORCH_AT_WORK = Diagnosis(
    "torch_at_work",
    "PyTorch does a part of the kernel's work.",
    "Which of its operations could happen inside the kernel, on the tile?",
    0,
)
TRITON_S_SOFTMAX = Diagnosis(
    "triton_s_softmax",
    "Triton's own softmax does the kernel's work.",
    "Which four steps does tl.softmax take, and which line of your own takes each of them?",
    0,
)
STORED_TWICE = Diagnosis(
    "stored_twice",
    "A program stores an element twice, and on a GPU either store may come last.",
    "Which element is it, and could its value be right before anything is stored?",
    0,
)
OVER_BUDGET = Diagnosis(
    "over_budget",
    "The result is right, and the trips to memory are too many.",
    "Which load, or store, in the kernel or around it, moves something that was on the chip already?",
    0,
)
ANOTHER_EXERCISE = Diagnosis(
    "another_exercise",
    "The result is right, and the kernel is another exercise's.",
    "How often does the kernel that this lesson is about load each element, and which programs take part in a row?",
    0,
)
RACE = Mistake(
    "race",
    "Programs depend on the order in which they run.",
    "On a GPU they run side by side: which of them stores what another one loads or stores?",
    0,
    where(lambda seen: bool(seen.trial.race), weight=0.6),
)
RACE_OF_LANES = Mistake(
    "race_of_lanes",
    "Lanes of a program depend on the order in which they run.",
    "On a GPU no lane waits for another one: which one loads, or stores again, what another has stored?",
    0,
    where(lambda seen: bool(seen.trial.race_of_lanes), weight=0.6),
)
"""Both are named even where all results are right."""


NOT_COMPILED = Mistake(
    "does_not_compile",
    "No GPU can run the kernel: its compiler refuses it.",
    "Which line does the message name?",
    0,
    any_of(where(lambda seen: bool(seen.trial.refused), weight=0.5), most_are_refused),
)
"""What stands in for the diagnosis that `refused_by_compiler` makes of the compiler's words."""


_ENOUGH_WRONG, CERTAIN = 3, 0.85
"""The number of wrong cases, and the share of all that a mistake explains, with which further cases say no more, and no
second mistake is looked for."""


def is_settled(exercise: TensorExercise, tried: Tried) -> bool:
    """Whether these cases say enough of a wrong answer; so they do if one has used up the time of all."""
    if any(trial.end in (End.OUT_OF_TIME, End.NOT_RUN) for _, trial in tried.values()):
        return True
    _, seen = _found(exercise, tried)
    if sum(not case.ok for case in seen) < _ENOUGH_WRONG:
        return False
    return best_explained((*exercise.known, RACE, NOT_COMPILED), seen)[1] >= CERTAIN


_FARTHEST = 5
"""A case that is too slow for the interpreter counts as right if its rows are longer than any that have run to their
end, and at most this many times as long. So an answer cannot give up whatever it is wrong at."""


def _is_unseen(trial: Trial) -> bool:
    """Whether it was given up, and not for its many rows: of these, other cases show the same numbers."""
    return trial.skipped and not trial.sampled


def _hidden(tried: Tried, seen: Sequence[Seen]) -> list[int]:
    """The places of the cases that were given up, and about which the others say too little."""
    sizes = [sum(map(torch.numel, problem.inputs)) / max(1, len(problem.x)) for problem, _ in tried.values()]
    ran = [size for size, case in zip(sizes, seen, strict=True) if case.ok and not case.trial.skipped]
    longest = max(ran, default=0)
    told = [longest < size <= _FARTHEST * longest for size in sizes]
    return [n for n, case in enumerate(seen) if _is_unseen(case.trial) and not told[n]]


def _found(exercise: TensorExercise, tried: Tried, on: str = "") -> tuple[list[Finding], list[Seen]]:
    findings, seen = [], []
    for case, (problem, trial) in tried.items():
        few = shown_rows(problem, trial)
        findings.append(_finding(exercise, f"{on}{case}", few, trial))
        seen.append(Seen(case, few.x, trial, findings[-1].ok, few.inputs[1:], few.options))
    for n in _hidden(tried, seen):
        said = "not run to its end, after very many loads and stores: larger tiles take fewer"
        findings[n], seen[n] = replace(findings[n], ok=False, seen=said), replace(seen[n], ok=False)
    return findings, seen


def judge_tensors(
    exercise: TensorExercise,
    tried: Tried,
    on_gpu: Callable[[], Tried],
    compiled: Callable[[Sequence[SeenLaunch]], Verdict],
) -> Report:
    """The report on a function of tensors: right in every case and in any order of the programs, then a kernel that
    GPUs have, its own work and within the budget, then right on the GPU.

    `tried` has the problem of every case and its trial; `on_gpu` makes further trials of some of them; `compiled` has
    the launches of all compiled.
    """
    if not any(_attempted(exercise, problem, trial) for problem, trial in tried.values()):
        return exercise.untouched()
    printed = first_lines(next((trial.printed for _, trial in tried.values() if trial.printed), ""))
    findings, seen = _found(exercise, tried)
    race = raced(seen)
    if not all(finding.ok for finding in findings):
        findings += [_reach(case) for case in seen if tail_never_loaded(case)][:1]
        certain = race and race.right_here
        named = race.named if certain else exercise.named(seen, RACE, RACE_OF_LANES, NOT_COMPILED)
        findings = [*([race.finding] if race and named is race.named else []), *findings]
        case = shown_by(named, seen)
        named = _with_hint(exercise, refused_at_launch(seen)) if named is NOT_COMPILED else named
        report = exercise.judged(findings, diagnosis=named, printed=printed, shown_by=case)
        return replace(report, accesses=_accesses(seen, case))
    if race:
        return exercise.judged([race.finding, *findings], diagnosis=race.named, printed=printed)
    diagnosis, kept, note = None, 1.0, ""
    if exercise.loads is not None:
        verdict = compiled([launch for case in seen for launch in case.trial.launches])
        own, budget = own_work(seen), _budget(exercise, seen)
        findings += [own, budget]
        if not own.ok:
            diagnosis, kept = not_own_work(seen), 0.0
        elif not budget.ok:
            diagnosis, kept = STORED_TWICE if _is_within(exercise, seen) else _overspent(exercise, seen), 0.5
        elif other := _asked_for(exercise, seen):
            findings.append(other)
            diagnosis, kept = ANOTHER_EXERCISE, 0.5
        findings += compiled_findings(verdict)
        if verdict.refusals:
            diagnosis, kept = _with_hint(exercise, refused_by_compiler(verdict.refusals[0])), 0.0
        else:
            note = verdict.missing
    if unseen := next((case.trial.not_looked_at for case in seen if case.trial.not_looked_at), ""):
        findings.append(Finding("programs side by side", True, unseen, extra=True))
        note = note or unseen
    if kept:
        again, _ = _found(exercise, on_gpu(), on="on the GPU: ")
        failed = [finding for finding in again if not finding.ok]
        findings += failed
        kept = 0.0 if failed else kept
    return exercise.judged(findings, kept=kept, diagnosis=diagnosis, printed=printed, note=note)


def shown_rows(problem: Problem, trial: Trial) -> Problem:
    """The rows that a trial says something about; of very many whose call did not return, the first few."""
    rows = len(problem.x)
    if trial.sampled:
        return problem.of_rows([row for row in trial.rows if row < rows])
    return problem.of_rows(range(ENDS)) if rows > MANY else problem


def _attempted(exercise: TensorExercise, problem: Problem, trial: Trial) -> bool:
    if untouched(exercise, trial) or trial.end is End.NOT_RUN or (trial.sampled and not trial.raised):
        return False
    if trial.raised or not trial.results:
        return True
    if exercise.loads is not None:
        if not trial.kernels or not _loads_as_starter(exercise, problem, trial):
            return True
        if not trial.stored_by_kernels:
            return bool(trial.eager)
    return _is_starter(exercise, problem, trial) is False


def untouched(exercise: FunctionExercise, trial: Trial) -> bool:
    """Whether nothing was done, by an answer as it is handed out."""
    return trial.unwritten and handed_out(exercise, trial)


def handed_out(exercise: FunctionExercise, trial: Trial) -> bool:
    """Whether the answer's instructions, where they are known, are the same as in the handed-out exercise."""
    return not trial.code or trial.code in exercise.starters


def _loads_as_starter(exercise: TensorExercise, problem: Problem, trial: Trial) -> bool:
    """Whether the loads are those of the starter code, which may load one number of each row besides, such as its
    target."""
    few = len(problem.x) * (len(problem.inputs) > 1)
    loads = problem.options.get(exercise.starter_loads_by, exercise.starter_loads)
    return 0 <= trial.loads - loads * problem.x.numel() <= few


def _is_starter(exercise: TensorExercise, problem: Problem, trial: Trial) -> bool | None:
    """Whether this is what the starter code loads and stores; None if it stores nothing but NaN, which is also what
    many a wrong answer stores."""
    if exercise.starter is None:
        return False
    if exercise.loads is not None and not _loads_as_starter(exercise, problem, trial):
        return False
    made = exercise.starter(*problem.inputs)
    stored = [y.to(dtype) for y, (_, dtype) in zip(made, problem.wants, strict=False)]
    if not all(map(same, trial.results, stored)):
        return False
    return None if all(y.isnan().all() for y in stored) else True


def _finding(exercise: TensorExercise, case: str, problem: Problem, trial: Trial) -> Finding:
    if trial.raised:
        return stopped(case, trial)
    if trial.skipped and exercise.loads is not None:
        return Finding(case, True, "not run to its end, which takes very long")
    if trial.got_none:
        return Finding(case, False, f"got {trial.got}")
    if not trial.results:
        expected = f"expected {_wanted(problem)}, got {trial.got}"
        return Finding(case, False, expected, kind=trial.got_kind and f"got {trial.got_kind}")
    if exercise.loads is not None and not trial.kernels and any(y.numel() for y in trial.results):
        return Finding(case, False, "no Triton kernel was launched")
    if trial.input_changed:
        return Finding(case, False, "the input was overwritten")
    if trial.shares_storage:
        return Finding(case, False, "the result lies in the input's memory")
    if [tuple(y.shape) for y in trial.results] != [shape for shape, _ in problem.wants]:
        return Finding(case, False, "got a result of another shape")
    if trial.missing:
        return Finding(case, False, f"rows are missing: {trial.missing}")
    found = _compare(exercise, case, problem, trial.results, trial.rows)
    if exercise.loads is not None and not trial.stored_by_kernels and not exercise.kind.is_zero(problem.inputs):
        return Finding(case, False, "the kernel stored nothing" if trial.programs else "the grid has 0 programs")
    if found.ok and trial.left_unwritten:
        numel = sum(map(torch.numel, trial.results))
        left = f"{trial.left_unwritten} of {numel} elements are never stored: they are NaN here by accident"
        return Finding(case, False, left)
    if found.ok:
        return _again(exercise, case, problem, trial) or found
    if _is_starter(exercise, problem, trial):
        return Finding(case, False, exercise.starter_shows)
    if exercise.loads is not None and _is_of_decoys(exercise, problem, trial):
        return Finding(case, False, "the result does not come from what kernels load of x")
    return found


def _wanted(problem: Problem) -> str:
    """The tensors that were asked for, in words."""
    tensors = [f"a tensor {tuple(shape)} {dtype}" for shape, dtype in problem.wants]
    return tensors[0] if len(tensors) == 1 else f"({', '.join(tensors)})"


def _is_of_decoys(exercise: TensorExercise, problem: Problem, trial: Trial) -> bool:
    """Whether the results are right for the numbers that all but kernels and operations have seen."""
    shown = (decoy(flat_where_overlapping(one)) if one.is_floating_point() else one for one in problem.inputs)
    inputs = (
        other if other.shape == one.shape else other.as_strided(one.shape, one.stride())
        for other, one in zip(shown, problem.inputs, strict=True)
    )
    return exercise.kind.is_right(tuple(inputs), trial.results)


def _again(exercise: TensorExercise, case: str, problem: Problem, trial: Trial) -> Finding | None:
    """The fault of the second call, if there was one."""
    if trial.again_raised:
        return Finding(case, False, f"called again with other numbers: {trial.again_raised}")
    if trial.overwritten:
        return Finding(case, False, "a second call overwrites what the first has returned")
    if not trial.again:
        return None
    found = _compare(exercise, case, problem.changed(), trial.again)
    return None if found.ok else Finding(case, False, f"called again with other numbers: {found.seen}")


def stopped(case: str, trial: Trial) -> Finding:
    """The finding on a call that did not return. Errors of one type in one line are of one kind."""
    return Finding(case, False, trial.raised, trial.error, kind=trial.line and f"{trial.error} {trial.line}")


def _compare(
    exercise: TensorExercise, case: str, problem: Problem, got: Sequence[torch.Tensor], rows: Sequence[int] = ()
) -> Finding:
    """Whether these are the right results; `rows` are the numbers of their rows, if these are not all."""
    kind, inputs = exercise.kind, problem.inputs
    wants = kind.expected(*inputs)
    for result, want, y, wrong in zip(kind.results, wants, got, kind.wrong(inputs, got), strict=True):
        if wrong.any():
            worst = at_worst(want, y, wrong, rows)
            if not want.dim():
                said = f"{result.name} is wrong, {worst}"
            elif result.one_a_row:
                said = f"the {result.one_a_row} of {int(wrong.sum())} of {counted(len(wrong), 'row')} is wrong, {worst}"
            else:
                of = f" of {result.name}" if len(kind.results) > 1 else ""
                said = f"{int(wrong.sum())} of {wrong.numel()} elements{of} are wrong, {worst}"
            return Finding(case, False, f"{said} (seed {problem.seed})")
    return Finding(case, True, f"within {kind.largest_error(inputs):.0e} of float64")


def at_worst(want: torch.Tensor, got: torch.Tensor, wrong: torch.Tensor, rows: Sequence[int] = ()) -> str:
    """Where the error of `got`, (), (M,) or (M, N), is the largest of all that are `wrong`, and both numbers there.

    What the dtype of `got` cannot hold is 0, and of several places the one of the largest right number is told. `rows`
    has the numbers of the rows, if these are not all.
    """
    error = (got.double() - want).abs().nan_to_num(nan=torch.inf).masked_fill(~wrong, -1)
    size = want.abs().nan_to_num(nan=torch.inf).masked_fill(error < error.max(), -1)
    at = tuple(int(index) for index in torch.unravel_index(size.argmax(), want.shape))
    expected = want[at].item() if want[at].to(got.dtype) != 0 else 0.0
    row = [f"row {rows[one] if rows else one}" for one in at[:1]]
    place = f"the worst at {', '.join([*row, *(f'column {col}' for col in at[1:])])}: " if at else ""
    return f"{place}expected {expected:.6g}, got {got[at].item():.6g}"


_DRAWN_ROWS = 3


def _accesses(seen: Sequence[Seen], case: str) -> Accesses | None:
    """The loads and stores of a few rows in this case, or in the first wrong one that shows something: some
    element is never stored or stored twice, or not all are loaded equally often."""
    for one in sorted(seen, key=lambda one: one.case != case):
        loaded, stored = one.trial.loaded, one.trial.stored
        if one.ok or one.trial.sampled or loaded is None or stored is None or loaded.dim() + stored.dim() != 4:
            continue
        if (
            not loaded.numel()
            or len(loaded) != len(stored)
            or bool((stored == 1).all() and (loaded == loaded[0, 0]).all())
        ):
            continue
        odd = (stored != 1).any(dim=1) | (loaded != loaded[:, :1]).any(dim=1)
        rows = sorted(sorted(range(len(odd)), key=lambda row: not odd[row])[:_DRAWN_ROWS])
        return Accesses(one.case, *({row: counts[row].tolist() for row in rows} for counts in (loaded, stored)))
    return None


def _reach(case: Seen) -> Finding:
    reached = int((case.trial.loaded > 0).any(dim=0).sum())
    said = f"{case.case}: kernels loaded {reached} of the row's {case.x.shape[1]} columns"
    return Finding("reach", False, said, extra=True)


class Raced(NamedTuple):
    """A race, what it is called, and whether the case that shows it is right here."""

    named: Mistake
    finding: Finding
    right_here: bool


def raced(seen: Sequence[Seen]) -> Raced | None:
    """The first race of programs, or else of lanes: one that shows in a right case comes first.

    What another order of the programs changes counts in a right case alone.
    """
    for named, of, words in ((RACE, _race_of_programs, "programs"), (RACE_OF_LANES, _race_of_lanes, "lanes")):
        shown = sorted((case for case in seen if of(case)), key=lambda case: not case.ok)
        if shown:
            case = shown[0]
            here = "right here, and wrong on a GPU: " if case.ok else ""
            finding = Finding(f"{words} side by side", False, f"{case.case}: {here}{of(case)}")
            return Raced(named, finding, case.ok)
    return None


def _race_of_programs(seen: Seen) -> str:
    return seen.trial.race or (seen.trial.reordered if seen.ok else "")


def _race_of_lanes(seen: Seen) -> str:
    return seen.trial.race_of_lanes


def _budget(exercise: TensorExercise, seen: Sequence[Seen]) -> Finding:
    """Whether every case keeps within the budget, and all together do, who have little room for anything else."""
    whole = _whole(exercise, seen)
    over = [case for case in whole if _is_over(exercise, case)]
    if _is_within(exercise, seen):
        if twice := next(filter(_stored_twice, whole), None):
            said = f"an element of the result is stored twice, in the case {twice.case}; once is enough"
            return Finding("trips to memory", False, f"{said}, and the rest costs half of the points", extra=True)
        loads, stores = (round(one, 1) for one in _per_element(exercise, whole))
        of_first = callable(exercise.loads)
        each = "for each element of the first tensor" if of_first else "per element"
        said, trips = f"{loads:.1f} loads and {stores:.1f} stores {each}", None if of_first else (loads, stores)
        return Finding("trips to memory", True, said, extra=True, trips=trips)
    some = 0 < 2 * len(over) < len(whole)
    shown = over[:1] if some else whole
    (loads, stores), enough = _per_element(exercise, shown), _enough(exercise, shown)
    where = f" in the case {over[0].case}" if some else ""
    return Finding(
        "trips to memory",
        False,
        f"each element was loaded {loads:.1f} times and stored {stores:.1f} times{where}; "
        f"{enough:.1f} and {exercise.stores:.1f} are enough, and the rest costs half of the points",
        extra=True,
    )


def _is_within(exercise: TensorExercise, seen: Sequence[Seen]) -> bool:
    """Whether each case, and all together, make no more loads and stores than are asked for."""
    whole = _whole(exercise, seen)
    loads, stores = _per_element(exercise, whole)
    together = loads <= _enough(exercise, whole) + exercise.buffer and stores <= exercise.stores + exercise.buffer
    return together and not any(_is_over(exercise, case) for case in whole)


def _overspent(exercise: TensorExercise, seen: Sequence[Seen]) -> Diagnosis:
    """Why the trips are too many."""
    judged = [replace(case, ok=not _is_over(exercise, case)) for case in _whole(exercise, seen)]
    return best_explained(exercise.overspent, judged)[0] or OVER_BUDGET


def _whole(exercise: TensorExercise, seen: Sequence[Seen]) -> list[Seen]:
    """The cases whose programs have all run, and whose trips count."""
    counted = (case for case in seen if case.case not in exercise.uncounted)
    return [case for case in counted if not case.trial.sampled and not case.trial.skipped]


def _is_over(exercise: TensorExercise, case: Seen) -> bool:
    """Whether a case takes more than is asked for, with room for a few numbers for each row and program.

    A program has no more room than it moves of the inputs and the results: idle ones make no room for others.
    """
    numel = case.x.numel()
    room = exercise.buffer * numel + max(_FEW * len(case.x), sum(min(_FEW, moved) for moved in case.trial.moved))
    too_many_loads = _loads(exercise, case.trial) > _enough(exercise, [case]) * numel + room
    return too_many_loads or case.trial.stores > exercise.stores * numel + room


_FEW = 8


def _enough(exercise: TensorExercise, seen: Sequence[Seen]) -> float:
    """Loads for each element of x that these cases may take together."""
    if not callable(exercise.loads):
        return exercise.loads
    elements = sum(case.x.numel() for case in seen)
    return sum(exercise.loads(case.inputs, case.trial) for case in seen) / max(1, elements)


def _stored_twice(case: Seen) -> bool:
    """Kernels store an element of the largest result twice: on a GPU either store may come last."""
    return case.trial.stored is not None and bool((case.trial.stored > 1).any())


def compiled_findings(verdict: Verdict) -> list[Finding]:
    """A finding for each kernel that the compiler refuses; or one that says for which GPUs it takes all of them."""
    if verdict.refusals:
        refused = {refusal.kernel: refusal for refusal in reversed(verdict.refusals)}
        return [Finding(f"compiled: {name}", False, refusal.reason) for name, refusal in refused.items()]
    if verdict.missing:
        return [Finding("compiled", True, verdict.missing)]
    too_small = {one.target for one in verdict.too_large}
    fitting = " and ".join(target for target in VERDICT_TARGETS if target not in too_small)
    said = [f"compiled for {fitting}", *(one.reason for one in verdict.too_large)]
    return [Finding("compiled", True, "; ".join(said))]


def _with_hint(exercise: TensorExercise, refused: Diagnosis) -> Diagnosis:
    """With the hint that the exercise has for errors."""
    return replace(refused, hint=next((mistake.hint for mistake in exercise.known if mistake.id == "error"), 0))


def refused_at_launch(seen: Sequence[Seen]) -> Diagnosis:
    told = next(case.trial.refused for case in seen if case.trial.refused)
    return refused_by_compiler(
        Refusal(**{name: str(told.get(name, "")) for name in ("kernel", "target", "reason", "meaning")})
    )


def refused_by_compiler(refusal: Refusal) -> Diagnosis:
    said = refusal.meaning or f"The compiler's words: {refusal.reason}"
    return Diagnosis(NOT_COMPILED.id, f"No GPU can run {refusal.kernel}: its compiler refuses it.", said, 0)


def _per_element(exercise: TensorExercise, seen: Sequence[Seen]) -> tuple[float, float]:
    """Loads and stores for each element, over these cases, whose programs have all run."""
    elements = sum(case.x.numel() for case in seen)
    loads = sum(_loads(exercise, case.trial) for case in seen)
    return loads / elements, sum(case.trial.stores for case in seen) / elements


def _loads(exercise: TensorExercise, trial: Trial) -> int:
    """Elements loaded. If programs share a row, each loads what the others have stored: only loads of x count."""
    if not exercise.shared or callable(exercise.loads) or trial.loaded is None:
        return trial.loads
    return int(trial.loaded.sum()) + trial.copied


def _asked_for(exercise: TensorExercise, seen: Sequence[Seen]) -> Finding | None:
    """The fault of a right answer to another exercise; None where it answers this one. Long rows tell."""
    whole = _whole(exercise, seen)
    if callable(exercise.loads):
        of_one_head = [case for case in whole if len(case.inputs[-1]) == 1 and exercise.shared]
        return _not_shared(max(of_one_head, key=lambda case: case.inputs[-1].numel())) if of_one_head else None
    long = sorted((case for case in whole if case.x.shape[1] > _LONG), key=lambda case: -case.x.shape[1])
    for some in (whole, *([case] for case in long)):
        loads, _ = _per_element(exercise, some)
        if round(loads) < exercise.loads:
            where = "" if some is whole else f"{some[0].case}: "
            text = f"{where}this is lesson {_KERNELS.get(round(loads), '03')}'s kernel: it loads each element"
            return Finding(
                "the kernel asked for",
                False,
                f"{text} {loads:.1f} times, and {exercise.loads:.1f} times were asked for",
            )
    if not long:
        return None
    longest = long[0]
    if exercise.loads > 1 and longest.trial.tile >= longest.x.shape[1]:
        text = f"no row is streamed: {longest.case} is loaded in one tile of {longest.trial.tile:,}"
        return Finding("the kernel asked for", False, f"{text}, whatever BLOCK is")
    return _not_shared(longest) if exercise.shared else None


def _not_shared(longest: Seen) -> Finding | None:
    """The fault of an answer whose programs do not share the longest row."""
    if longest.trial.most_of_a_program <= _SHARE:
        return None
    text = f"{longest.case}: one program loads {longest.trial.most_of_a_program:.0%} of the loads"
    return Finding("the kernel asked for", False, f"{text}; programs are to share the row")


_KERNELS = {1: "03", 2: "05"}
"""The lesson whose kernel loads each element so often."""

_LONG = 8192

_SHARE = 0.9
"""Of the loads of the longest row, the most that one program may load where programs are to share it."""


def own_work(seen: Sequence[Seen]) -> Finding:
    """Whether the kernels did all the work, and by steps of their own."""
    names = sorted({name for case in seen for name in case.trial.eager})
    if names:
        said = f"PyTorch computed {', '.join(names)}; the kernel is to do it"
        return Finding("your own kernel", False, said, extra=True)
    if kernels := _calls_softmax(seen):
        said = f"{kernels[0]} calls tl.softmax; the kernel is to take its steps"
        return Finding("your own kernel", False, said, extra=True)
    return Finding("your own kernel", True, "no PyTorch operation took part", extra=True)


def not_own_work(seen: Sequence[Seen]) -> Diagnosis:
    """The diagnosis where `own_work` is not ok."""
    return TRITON_S_SOFTMAX if _calls_softmax(seen) else TORCH_AT_WORK


def _calls_softmax(seen: Sequence[Seen]) -> list[str]:
    """The kernels whose text, which has neither comments nor docstrings, names Triton's softmax.

    The text of a kernel has the functions that it is given as arguments.
    """
    asked = [launch.get("asks", launch) for case in seen for launch in case.trial.launches]
    return sorted({str(one["name"]) for one in asked if _TRITON_S_SOFTMAX.search(str(one.get("text", "")))})


_TRITON_S_SOFTMAX = re.compile(r"\.softmax\b|\bimport softmax\b")


def judge_answers(
    exercise: AnswersExercise,
    given: Given,
    trials: Sequence[Trial],
    compare: Callable[[str, Trial, Any], Finding],
    starter: Pair | None = None,
) -> Report:
    """The report on a function that returns numbers, each of which `compare` holds against the right value.

    `starter` is what the starter code returns, where it returns something.
    """
    tried = [trial for trial in trials if trial.end is not End.NOT_RUN]
    if all(
        (untouched(exercise, trial) and not trial.printed) or (trial.pair is not None and tuple(trial.pair) == starter)
        for trial in tried
    ):
        return exercise.untouched()
    findings = [compare(case, trial, want) for (case, (_, want)), trial in zip(given.items(), trials, strict=True)]
    seen = [
        Seen(case, args, trial, finding.ok)
        for (case, (args, _)), trial, finding in zip(given.items(), trials, findings, strict=True)
    ]
    named = None if all(finding.ok for finding in findings) else exercise.named(seen)
    printed = first_lines(next((trial.printed for trial in trials if trial.printed), ""))
    return exercise.judged(findings, diagnosis=named, printed=printed, shown_by=shown_by(named, seen))


def compare_number(case: str, trial: Trial, want: float) -> Finding:
    """The finding on one answer that is to be a number."""
    if trial.raised:
        return stopped(case, trial)
    if not is_number(trial.answer):
        return Finding(case, False, f"expected a number, got {trial.got or repr(trial.answer)}")
    return Finding(case, trial.answer == want, f"expected {want:g}, got {trial.answer:g}")


def compare_pairs(case: str, trial: Trial, want: Pair) -> Finding:
    """The finding on one answer that is to be a pair (m, l)."""
    if trial.raised:
        return stopped(case, trial)
    if trial.pair is None:
        return Finding(case, False, f"expected a pair (m, l), got {trial.got}")
    m, l = trial.pair
    ok = m == want[0] and math.isclose(l, want[1], rel_tol=1e-12, abs_tol=1e-300)
    said = f"expected ({want[0]:.9g}, {want[1]:.9g}), got ({m:.9g}, {l:.9g})"
    if not ok and m == want[0] and math.isclose(l, want[1], rel_tol=1e-6):
        said += ": l has the digits of a float32; in Python's floats, with math.exp, it has 16"
    return Finding(case, ok, said)
