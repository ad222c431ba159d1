"""A mistake as an edit of the course's own answer: what it does is found by running the answer, edited.

Edits compose: where no single mistake explains an answer, two of them together may.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations
from typing import Any

import torch

from helpers.check.mistakes.recognise import Explains, Mistake, Seen
from helpers.check.problems.kind import Kind
from helpers.check.problems.problem import Inputs
from helpers.check.report import Diagnosis
from helpers.check.trial import trial
from helpers.check.trial.call import UnwrittenMemoryIsNaN
from helpers.engine import child, isolate, pickled
from helpers.engine.interpreter import within_tensors
from helpers.engine.isolate import End
from helpers.engine.kernel_text import made
from helpers.engine.runtime import INTERPRETED

Edit = tuple[str, ...]
"""Old text, new text, old text, new text, …"""

_OF_WRONG, _OF_ALL = 0.8, 0.9
"""The shares of the wrong cases, and of all, that an edit must explain."""


class NotInAnswer(ValueError):
    """An edit of text that the answer does not have."""


class Answer:
    """The course's own answer, the text of these functions, of which the last is called with the arguments of a case.

    `through` is what the answer is tried through, as an exercise has it; `arguments` takes them out of a case; `rtol`
    is how nearly numbers are what an edit makes them.
    """

    most_pairs = 1000
    """Two edits at once are tried so often, however fast a machine is."""
    is_quick = False
    """Whether edits end in a moment: pairs need no fork, and are tried even if one mistake explains nearly all."""

    def __init__(
        self,
        *parts: Callable,
        through: Callable | None = None,
        arguments: Callable[[Seen], tuple] = lambda case: case.x,
        rtol: float = 1e-5,
    ) -> None:
        self.parts, self.through, self.arguments, self.rtol = parts, through, arguments, rtol

    def mistake(self, id: str, name: str, question: str, hint: int, *edits: Edit) -> Edited:
        """A mistake that each of these edits makes."""
        return Edited(id, name, question, hint, self.gives(*edits), self, edits)

    def named(self, name: Diagnosis, hint: int, *edits: Edit) -> Edited:
        """A mistake of this name, with the hint that it points to in an exercise."""
        return self.mistake(name.id, name.name, name.question, hint, *edits)

    def gives(self, *edits: Edit) -> Explains:
        """Explains what one of these edits makes of the answer: most of the wrong cases, and nearly all."""
        return lambda seen: max(self.share(edit, seen) for edit in edits)

    def share(self, edit: Edit, seen: Sequence[Seen]) -> float:
        """The mean of the shares of the wrong cases, and of all, that an edit explains; 0 if they are too small."""
        wrong, right = self.cases(seen)
        of_wrong, of_right = [], []
        for agreed, cases in ((of_wrong, wrong), (of_right, right)):
            for case in cases:
                agreed.append(self.agrees(edit, case))
                missed = of_wrong.count(False), (of_wrong + of_right).count(False)
                if missed[0] > (1 - _OF_WRONG) * len(wrong) or missed[1] > (1 - _OF_ALL) * len(wrong + right):
                    return 0.0
        return 0.5 * (sum(of_wrong) / len(wrong) + sum(of_wrong + of_right) / len(wrong + right)) if wrong else 0.0

    def cases(self, seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
        """The wrong and the right cases that came to an end of their own."""
        ended = [case for case in seen if case.trial.end in (End.RETURNED, End.RAISED)]
        return [case for case in ended if not case.ok], [case for case in ended if case.ok]

    def agrees(self, edit: Edit, case: Seen) -> bool:
        """Whether the edited answer does in this case what the learner's did."""
        answer = edited(self.parts, edit)
        call = answer if self.through is None else lambda *given: self.through(answer, *given)
        ran = trial.of_numbers(call, self.arguments(case))
        return case.trial.error == ran.error and _near(case.trial.answer, ran.answer, self.rtol)


class OfTensors(Answer):
    """An answer that is a function of tensors."""

    most_pairs = 500
    most_cases = 8
    """Wrong cases, and right ones, on which an edit is run."""

    def __init__(self, *parts: Callable, kind: Kind, rtol: float = 2e-3) -> None:
        super().__init__(*parts, rtol=rtol)
        self.kind = kind

    def cases(self, seen: Sequence[Seen]) -> tuple[list[Seen], list[Seen]]:
        """Of the cases that have returned the telling ones, then the smallest; none if few have."""
        ran = [case for case in seen if case.trial.end is not End.NOT_RUN]
        returned = [case for case in ran if case.trial.results and not case.trial.sampled]
        returned.sort(key=lambda case: (case.case not in self.kind.telling, _size(case)))
        wrong, right = ([case for case in returned if case.ok == ok] for ok in (False, True))
        few = 6 * len(wrong) < sum(not case.ok for case in ran)
        return ([], []) if few else (wrong[: self.most_cases], right[: self.most_cases])

    def agrees(self, edit: Edit, case: Seen) -> bool:
        """Whether the edited answer returns what the learner's did, and neither alone is right."""
        results = self.results(edit, case)
        if results is None or [one.shape for one in results] != [one.shape for one in case.trial.results]:
            return False
        if not all(_are_near(*both, self.rtol) for both in zip(case.trial.results, results, strict=True)):
            return False
        return len({self.kind.is_right(case.inputs, one) for one in (case.trial.results, results)}) == 1

    def results(self, edit: Edit, case: Seen) -> Inputs | None:
        """What the edited answer returns in this case; None if it does not."""
        return _results(self.parts, edit, case.inputs, tuple(case.options.items()))


@dataclass(frozen=True)
class Edited(Mistake):
    """A mistake that edits of an answer make, each of them by itself."""

    answer: Answer
    edits: tuple[Edit, ...]


def two_at_once(
    known: Iterable[Mistake], seen: Sequence[Seen], one_of_them: Mistake | None = None
) -> tuple[Mistake | None, float]:
    """Two mistakes that together explain an answer, and how much of it; the first has its question.

    Pairs are tried on one wrong case, edits that explain something, the first ones of a mistake and the first mistakes
    before others; pairs with `one_of_them` alone, if it is given.
    """
    edits = [(one, edit) for one in known if isinstance(one, Edited) for edit in one.edits]
    depth = [one.edits.index(edit) for one, edit in edits]
    wrong = edits[0][0].answer.cases(seen)[0] if edits else []
    if not wrong:
        return None, 0.0
    answer = edits[0][0].answer
    some = [answer.share(edit, seen) > 0 for _, edit in edits]
    places = ((n, m) for n, m in combinations(range(len(edits)), 2) if edits[n][0] is not edits[m][0])
    if one_of_them:
        places = (pair for pair in places if any(edits[n][0] is one_of_them and some[n] for n in pair))
        wrong = [one for one in wrong if not any(answer.agrees(edit, one) for edit in one_of_them.edits)] or wrong
    places = sorted(places, key=lambda pair: (not any(some[n] for n in pair), sum(depth[n] for n in pair), sum(pair)))
    pairs = [(edits[n], edits[m]) for n, m in places[: answer.most_pairs]]
    both = [(*first, *second) for (_, first), (_, second) in pairs]
    best, most = None, 0.0
    for at in _interpreted(_agreeing, answer, both, wrong[0]):
        if (share := answer.share(both[at], seen)) > most:
            (a, _), (b, _) = pairs[at]
            name = f"Two things at once. {a.name} And: {b.name}"
            best, most = answer.mistake(a.id, name, a.question, a.hint, both[at]), share
    return best, most


def _agreeing(answer: Answer, edits: Sequence[Edit], case: Seen) -> list[int]:
    """The places of the edits that agree with a case, tried in a fork: two edits may make a loop that never ends."""

    def agrees(edit: Edit) -> bool:
        try:
            return answer.agrees(edit, case)
        except NotInAnswer:
            return False

    if answer.is_quick:
        return [at for at, edit in enumerate(edits) if agrees(edit)]
    return [at for at, one in enumerate(isolate.call_each(agrees, edits)) if one.value is True]


def _interpreted(function: Callable[..., Any], *task: Any) -> Any:
    """function(*task), on a machine with a GPU in the process that interprets kernels."""
    if INTERPRETED:
        return function(*task)
    return pickled.loads(child.call(_far, pickled.dumps((function, task)), interpret=True))


def _far(content: bytes) -> bytes:
    function, task = pickled.loads(content)
    return pickled.dumps(function(*task))


_BETWEEN = "\n# the next part\n"


@cache
def _text(parts: tuple[Callable, ...]) -> str:
    return _BETWEEN.join(textwrap.dedent(inspect.getsource(getattr(part, "fn", part))) for part in parts)


def edited_text(parts: tuple[Callable, ...], edit: Edit) -> str:
    """The text of these functions after an edit. Raises NotInAnswer for text that they do not have."""
    text = _text(parts)
    for old, new in zip(edit[::2], edit[1::2], strict=True):
        if old not in text:
            raise NotInAnswer(f"the answer has no {old!r}")
        text = text.replace(old, new)
    return text


@lru_cache(maxsize=1024)
def edited(parts: tuple[Callable, ...], edit: Edit) -> Callable[..., Any]:
    """The last of these functions after an edit. Raises NotInAnswer for text that they do not have."""
    text = edited_text(parts, edit)
    names = {name: one for name, one in vars(sys.modules[parts[-1].__module__]).items() if not name.startswith("__")}
    found = made(ast.parse(text), text, names)
    texts = dict(zip((part.__name__ for part in parts), text.split(_BETWEEN), strict=True))
    kernels = [part.__name__ for part in parts if hasattr(part, "run")]
    for name in kernels:
        called = [other for other in kernels if other != name and re.search(rf"\b{other}\b", texts[name])]
        if not any(re.search(rf"\b{name}\b", texts[other]) for other in kernels if other != name):
            found[name] = _Remembered(found[name], "".join(texts[one] for one in (name, *called)))
    return found[parts[-1].__name__]


class _Remembered:
    """A kernel whose launches are kept, by its text and its arguments: most edits leave one of two kernels as it is."""

    def __init__(self, kernel: Any, text: str) -> None:
        self.kernel, self.text = kernel, text

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return functools.partial(self.launch, grid)

    def launch(self, grid: tuple[int, ...], *args: Any, **options: Any) -> None:
        """Launches the kernel, or does to its arguments what the same launch has done."""
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        before = [_bytes(one) for one in tensors]
        given = [repr(one) for one in args if not isinstance(one, torch.Tensor)]
        key = self.text, tuple(grid), tuple(before), repr(given), repr(sorted(options.items()))
        if key not in _launched:
            self.kernel[grid](*args, **options)
            stored = [None if _bytes(one) == was else one.clone() for one, was in zip(tensors, before, strict=True)]
            while len(_launched) >= _MOST_LAUNCHES:
                del _launched[next(iter(_launched))]
            _launched[key] = stored
        for one, stored in zip(tensors, _launched[key], strict=True):
            if stored is not None:
                one.copy_(stored)


_launched: dict[tuple, list[torch.Tensor | None]] = {}
_MOST_LAUNCHES = 100


def _bytes(x: torch.Tensor) -> tuple:
    content = x.clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy() if x.numel() else b""
    return x.shape, x.dtype, hashlib.blake2b(content, digest_size=16).digest()


@lru_cache(maxsize=1024)
def _results(
    parts: tuple[Callable, ...], edit: Edit, inputs: Inputs, options: tuple[tuple[str, int], ...]
) -> Inputs | None:
    """What the edited function returns; None if it does not. A tensor equals itself alone."""
    return _interpreted(_run, parts, edit, inputs, options)


def _run(
    parts: tuple[Callable, ...], edit: Edit, inputs: Inputs, options: tuple[tuple[str, int], ...]
) -> Inputs | None:
    with within_tensors(compilable=True), UnwrittenMemoryIsNaN():
        try:
            found = edited(parts, edit)(*inputs, **dict(options))
        except (ArithmeticError, IndexError, RuntimeError, TypeError):
            return None
    return found if isinstance(found, tuple) else (found,)


def _size(case: Seen) -> int:
    """Bytes of memory, with the gaps."""
    return sum(one.untyped_storage().nbytes() for one in case.inputs)


def _near(a: Any, b: Any, rtol: float) -> bool:
    """Whether two answers, numbers or lists of them, are the same but for rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_near(x, y, rtol) for x, y in zip(a, b, strict=True))
    if trial.is_number(a) and trial.is_number(b):
        return a == b or math.isclose(a, b, rel_tol=rtol, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    return a == b


def _are_near(got: torch.Tensor, one: torch.Tensor, rtol: float) -> bool:
    """Whether nearly all numbers are the same but for rounding; integers are not rounded."""
    if not got.is_floating_point():
        return bool((got == one).float().mean() > 0.99) if got.numel() else True
    rtol, got, one = 1e-2 if got.dtype.itemsize == 2 else rtol, got.float(), one.to(got.dtype).float()
    atol = 0.5 * rtol * float(got.nan_to_num(0, 0, 0).abs().mean()) if got.numel() else 0.0
    return bool(torch.isclose(got, one, rtol, atol, equal_nan=True).float().mean() > 0.99) if got.numel() else True
