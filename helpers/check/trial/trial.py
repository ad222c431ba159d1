"""What one call of an answer showed: what came back, what kernels did, or how it ended. The calls are in call.py."""

from __future__ import annotations

import numbers
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

import torch

from helpers.check.problems.problem import Problem
from helpers.check.trial.crashes import Stop, chain_of, place_of, stop_of
from helpers.check.trial.starter import instructions_of
from helpers.engine import interpreter, kernel_text
from helpers.engine.compiler.compile import reason
from helpers.engine.compiler.refusal import Refusal, why
from helpers.engine.isolate import End
from helpers.engine.memory import Access


@dataclass
class Trial:
    """What one call showed. Tensors are on the CPU."""

    end: End = End.RETURNED
    raised: str = ""
    """Where it did not return: the error in one sentence, or how the process ended."""
    error: str = ""
    """The name of the error's type."""
    unwritten: bool = False
    """Nothing was attempted: NotImplementedError, or no result and no work."""
    outside: dict[str, Any] = field(default_factory=dict)
    """The fields of the Access that left its tensor."""
    got: str = ""
    """What came back in place of tensors of the right shapes and dtypes, in words."""
    got_kind: str = ""
    """What of it is wrong: it is no "pair", or its "order", "type", "shape", "dtype" or "device"."""
    got_none: bool = False
    returns_none: bool = False
    """None came back from a return that names something."""
    got_shape: list[int] | None = None
    """The shape of a tensor that came back in its place."""
    results: list[torch.Tensor] = field(default_factory=list)
    """The tensors that came back, if all have the shapes and dtypes that were asked for."""
    pair: list[float] | None = None
    answer: Any = None
    """What came back in place of a tensor: a number, a text, None, or a list of these."""
    input_changed: bool = False
    shares_storage: bool = False
    contiguous: bool = True
    kernels: int = 0
    stores: int = 0
    loads: int = 0
    """Elements stored and loaded, without the words of a counter that hands out rows to programs."""
    moved: list[int] = field(default_factory=list)
    """How many elements of the inputs and the results each program has loaded and stored, without the programs that
    have loaded and stored nothing at all; of the launch in which the fewest are left out."""
    most_stored: int = 0
    """Elements of the largest result that one program has stored, the one that has stored the most."""
    stored_by_kernels: int = 0
    eager: list[str] = field(default_factory=list)
    """Names of the PyTorch operations that read something, other than to copy or to fill."""
    copied: int = 0
    """Loads by PyTorch's operations."""
    joined: list[int] = field(default_factory=list)
    """Elements of the tensors that operations of PyTorch took which are neither elementwise nor a sum nor a copy."""
    most_bytes: int = 0
    """The most bytes in use at once of what operations of PyTorch have made, or taken from elsewhere."""
    programs: int = 0
    tile: int = 1
    """Lanes of the widest access."""
    loaded: torch.Tensor | None = None
    """How often each element of x was loaded by kernels."""
    stored: torch.Tensor | None = None
    """How often each element of the largest result was stored by kernels."""
    left_unwritten: int = 0
    """Elements of the results that still hold the contents of memory before the call."""
    race: str = ""
    """What two programs do to one element, in an order that is not known."""
    not_looked_at: str = ""
    """A sentence, where no race shows and there may be one."""
    reordered: str = ""
    """What becomes another in another order of the programs."""
    race_of_lanes: str = ""
    """What two lanes of one program do to one element, with no barrier between."""
    most_of_a_program: float = 1.0
    """Of the loads of the inputs, the share of the program that loads most."""
    launches: list[dict[str, Any]] = field(default_factory=list)
    """The distinct launches of kernels, as verdict.launch_of makes them."""
    printed: str = ""
    sampled: bool = False
    """Only some programs were run, and only `rows` count: results, loaded and stored have no others."""
    rows: list[int] = field(default_factory=list)
    """The numbers of the rows that these programs have stored."""
    missing: str = ""
    """Why not every row can have been stored by a program, as far as those show that were run."""
    of_rows: int = 0
    """How many rows x has, of which `rows` are some."""
    skipped: bool = False
    """It was not run to its end, since that takes very long, or no row shows anything."""
    again: list[torch.Tensor] = field(default_factory=list)
    """What a second call returned, after x had got other numbers."""
    again_raised: str = ""
    overwritten: bool = False
    """The second call has changed what the first had returned."""
    line: str = ""
    """Where it raised an error: the answer's line, as text."""
    cause: str = ""
    """The id of the mistake in that line, where crashes.py knows it."""
    refused: dict[str, str] = field(default_factory=dict)
    """The fields of the Refusal, where the compiler's front end refused a launch."""
    code: str = ""
    """Where nothing came back: the answer's instructions, see starter.py."""

    @property
    def y(self) -> torch.Tensor | None:
        """The first result."""
        return self.results[0] if self.results else None

    def plain(self) -> dict[str, Any]:
        """Its fields as plain values and tensors, to be sent to another process."""
        return {**asdict(self), "end": self.end.value}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Trial:
        """The trial that `plain` was made of."""
        return cls(**{**plain, "end": End(plain["end"])})


class Elsewhere(Exception):
    """A call in another process has not returned: `trial` has all that is known of it."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial.raised)
        self.trial = trial


def of_numbers(fn: Callable[..., Any], args: tuple) -> Trial:
    """Calls fn(*args), which is to return numbers, and says what came back."""
    try:
        got = fn(*args)
    except BaseException as error:
        return failed(error, fn)
    trial = Trial(answer=_plain(got), unwritten=got is None, got_none=got is None, code=instructions_of(fn))
    try:
        m, l = map(number, got)
        trial.pair = [float(m), float(l)] if is_number(m) and is_number(l) else None
    except (TypeError, ValueError, OverflowError):
        pass
    if trial.pair is None:
        trial.got = "None; is a return missing?" if got is None else shown(got)
    return trial


def number(value: Any) -> Any:
    """A real number of any numeric type, a tensor or array of one element included, as Python's own int or float.

    Anything else as it is, True and False among it. Of a class that a notebook defines, nothing but the number is left.
    """
    with suppress(Exception):  # an object that is not a number may raise anything when asked for one
        if isinstance(value, torch.Tensor) or hasattr(value, "dtype"):
            value = value.item()
        if isinstance(value, numbers.Real | Decimal) and type(value) not in (bool, int, float):
            return int(value) if _is_whole(value) else float(value)
    return value


def _is_whole(value: Any) -> bool:
    try:
        return value == int(value)
    except (OverflowError, ValueError):  # of an infinity, and of NaN
        return False


def shown(value: Any) -> str:
    """A value as text of at most 80 characters, for a message."""
    try:
        text = repr(value)
    except Exception:  # of an object of the learner's own making
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:79]}…"


def is_number(value: Any) -> bool:
    """Whether this is a number of Python's own; True and False are none, nor is an integer that no float can hold."""
    return not isinstance(value, bool) and (isinstance(value, float) or isinstance(value, int) and abs(value) < 2**1023)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    value = str.__str__(value) if isinstance(value, str) else number(value)
    return value if type(value) in (bool, int, float, str, type(None)) else shown(value)


def describe(trial: Trial, returned: object, problem: Problem) -> list[torch.Tensor]:
    """The results in what came back, if they are what was asked for; else `trial` has in words what came back."""
    one = len(problem.wants) == 1
    parts = (returned,) if one else returned
    if returned is None:
        trial.got, trial.got_none = "None" if trial.returns_none else "None; is a return missing?", True
        return []
    if not isinstance(parts, tuple | list) or len(parts) != len(problem.wants):
        trial.got, trial.got_kind = kind_of(returned), "pair"
        return []
    wants = [(torch.Size(shape), dtype) for shape, dtype in problem.wants]
    shapes = [shape for shape, _ in wants]
    if [getattr(part, "shape", None) for part in parts] == shapes[::-1] != shapes:
        trial.got, trial.got_kind = "these in another order", "order"
        return []
    for part, want in zip(parts, wants, strict=True):
        if kind := _other_than(part, *want, problem.x.device):
            trial.got, trial.got_kind = _described(part, problem.x.device), kind
            trial.got_shape = None if kind == "type" else list(part.shape)
            return []
    return list(parts)


def _other_than(part: object, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> str:
    """What of a result is wrong, as a Trial has it in `got_kind`; "" if nothing is."""
    if other_than_tensor(part):
        return "type"
    found = {"shape": part.shape == shape, "dtype": part.dtype == dtype, "device": part.device == device}
    return next((kind for kind, ok in found.items() if not ok), "")


def _described(part: object, device: torch.device) -> str:
    if kind := other_than_tensor(part):
        return kind
    return f"{tuple(part.shape)} {part.dtype}" + ("" if part.device == device else f" on {part.device}")


def keep_results(trial: Trial, results: list[torch.Tensor], problem: Problem, rows: list[int] | None = None) -> None:
    """Puts the results of a call, or these rows of them, into its trial, as they are now."""
    given = {one.untyped_storage().data_ptr() for one in problem.inputs if one.numel()}
    trial.shares_storage = any(y.untyped_storage().data_ptr() in given for y in results)
    trial.contiguous = all(y.is_contiguous() for y in results)
    shown = results if rows is None else [y[rows] for y in results]
    trial.results = [y.detach().cpu().contiguous().clone() for y in shown]


def kind_of(value: object) -> str:
    """The name of a value's class, with its article; of another package's class, that too."""
    module, own = type(value).__module__.partition(".")[0], type(value).__name__
    name = own[:50] if module in ("builtins", "__main__", "torch") else f"{module}.{own}"[:80]
    return f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"


def other_than_tensor(y: object) -> str:
    """What `y` is, where it is not a plain tensor with a number in each place; nothing where it is one."""
    name = kind_of(y)
    if not isinstance(y, torch.Tensor):
        return name
    if y.layout is not torch.strided:
        return f"a tensor in the layout {y.layout}, not a dense one"
    if type(y) not in (torch.Tensor, torch.nn.Parameter):
        return f"{name}, which is a tensor of another class"
    return ""


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where two tensors are equal, NaN in the same places included."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(0), b.nan_to_num(0))


def failed(error: BaseException, fn: Callable | None = None) -> Trial:
    """The trial of a call of fn that raised `error`."""
    if isinstance(error, Elsewhere):
        return error.trial
    if isinstance(error, NotImplementedError):
        said = sentence(error) + _where(stop_of(error, fn))
        return Trial(End.NOT_IMPLEMENTED, said, type(error).__name__, code=instructions_of(fn), unwritten=True)
    said = _text(error)
    stop = stop_of(error, fn)
    cause = getattr(error, "cause", type(error))
    cause = cause if isinstance(cause, type) else type(error)
    # torch's allocator on the CPU raises a plain RuntimeError.
    no_memory = issubclass(cause, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in said
    access = getattr(error, "access", None)
    names_line = isinstance(error, interpreter.KernelError | interpreter.OutOfBounds) or hasattr(error, "node")
    return Trial(
        End.OUT_OF_MEMORY if no_memory else End.RAISED,
        sentence(error, said) + ("" if names_line else _where(stop)),
        cause.__name__,
        line=stop.line,
        cause="" if no_memory else stop.cause,
        refused=_refusal(error) if isinstance(error, interpreter.NotCompilable) else {},
        outside=asdict(access) if isinstance(access, Access) else {},
    )


def _refusal(error: interpreter.NotCompilable) -> dict[str, str]:
    name, text = error.kernel.fn.__name__, ""
    try:
        text = kernel_text.source(error.kernel)
    except kernel_text.SourceLost:
        pass
    except ValueError as said:  # what the kernel names has no place in one
        return asdict(Refusal(name, "", str(said)))
    functions = (one.src for one in chain_of(error) if isinstance(getattr(one, "src", None), str))
    reason, meaning = why(error.original, "\n".join([text, *map(textwrap.dedent, functions)]))
    return asdict(Refusal(name, "", reason, meaning))


def _where(stop: Stop) -> str:
    return f" ({place_of(stop)}: `{stop.line}`)" if stop.line else ""


def sentence(error: BaseException, said: str | None = None) -> str:
    """The type of an error and its message, in one line; of Triton's compiler the line of the kernel and the reason.

    `said` is the message where the caller has it: an error may take long to tell it.
    """
    if hasattr(error, "node") and hasattr(error, "src"):
        return f"{type(error).__name__}: {reason(error)}"
    text = " ".join((_text(error) if said is None else said).split())[:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _text(error: BaseException) -> str:
    """The beginning of what an error says; nothing where it cannot be said."""
    try:
        return str(error)[:2000]
    except Exception:
        return ""
