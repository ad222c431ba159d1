"""What a learner has done in all lessons, gathered from the notes next to the notebooks: works in any session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F

from helpers import kernels, predict, timing, traffic
from helpers.check import kept
from helpers.check.exercise import AnswersExercise, Exercise, TensorExercise
from helpers.check.exercises import EXERCISES
from helpers.check.trial.ranked import on_ranks
from helpers.engine.runtime import DEVICE
from helpers.progress.overview import lesson_number, state_of


@dataclass(frozen=True)
class Rung:
    """A step of the ladder: loads and stores per element of a kernel that the learner wrote, or of PyTorch's way.

    What has several inputs, or several ranks, has no such numbers: both are None.
    """

    number: str
    name: str
    loads: float | None
    stores: float | None
    mine: bool
    gpu: str = ""
    speeds: tuple[float, ...] = ()
    """As fractions of a copy's speed, where the learner's kernel was timed on `gpu`."""

    @property
    def trips(self) -> str:
        """Loads and stores in words."""
        return "within its budget" if self.loads is None else f"{self.loads:.1f} + {self.stores:.1f}"

    @property
    def speed(self) -> str:
        """The slowest and the fastest of the speeds in words; "" without any."""
        if not self.speeds:
            return ""
        low, high = (f"{speed:.2f}" for speed in (min(self.speeds), max(self.speeds)))
        return f"{low if low == high else f'{low} to {high}'} of a copy's speed"


@dataclass(frozen=True)
class Gathered:
    """All that progress.show tells."""

    ladder: tuple[Rung, ...]
    mistakes: tuple[tuple[str, str], ...]
    """Pairs of an exercise, with its number, and a mistake that its check has named."""
    predictions: tuple[predict.Prediction, ...]
    passed: int
    exercises: int
    points: float
    most: float
    next: str
    """The first exercise that has not passed, with its number; "" if all have."""

    @property
    def own(self) -> list[Rung]:
        """The learner's kernels."""
        return [rung for rung in self.ladder if rung.mine]

    @property
    def near(self) -> int:
        """How many predictions were within 10 %."""
        return sum(prediction.is_near for prediction in self.predictions)


def gathered() -> Gathered:
    """Everything that the notes have by now, the lessons in their order."""
    best, trips, speeds, met = kept.points(), kept.counted_trips(), timing.speeds_of_yours(), kept.named_mistakes()
    own = []
    for exercise in EXERCISES.values():
        uncounted = _asks_for_more(exercise) and state_of(best.get(exercise.name), exercise.points) == "passed"
        if exercise.name in trips or uncounted:
            gpu, fractions = speeds.get(exercise.name, ("", []))
            both = trips.get(exercise.name, (None, None))
            own.append(Rung(exercise.number, _spelled(exercise.name), *both, True, gpu, tuple(fractions)))
    ladder = sorted([*of_pytorch(), *own], key=lambda rung: (lesson_number(rung.number), rung.mine, rung.number))
    missing = (one for one in EXERCISES.values() if state_of(best.get(one.name), one.points) != "passed")
    following = next((f"{one.number} {_spelled(one.name)}" for one in missing), "")
    return Gathered(
        tuple(ladder),
        tuple(
            (f"{EXERCISES[name].number} {_spelled(name)}", said)
            for name in EXERCISES
            for said in met.get(name, {}).values()
        ),
        tuple(predict.predictions()),
        sum(state_of(best.get(name), one.points) == "passed" for name, one in EXERCISES.items()),
        len(EXERCISES),
        sum(best.values()),
        sum(one.points for one in EXERCISES.values()),
        following,
    )


def _asks_for_more(exercise: Exercise) -> bool:
    """Whether an exercise asks for kernels whose loads are counted over several inputs, or for a function of ranks."""
    kernel = isinstance(exercise, TensorExercise) and callable(exercise.loads)
    return kernel or (isinstance(exercise, AnswersExercise) and exercise.through is on_ranks)


@cache
def of_pytorch() -> tuple[Rung, ...]:
    """The ways of PyTorch that lessons 01 and 10 begin with, counted on the spot."""
    x = torch.linspace(-3, 3, 8 * 256, device=DEVICE).reshape(8, 256)
    target = torch.arange(8, device=DEVICE)

    def trained(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(F.cross_entropy(x, target), x)[0]

    return (
        _rung("1", "softmax in PyTorch, eager", kernels.eager_softmax, x),
        _rung("10", "F.cross_entropy and its backward", trained, x.clone().requires_grad_()),
    )


def _spelled(name: str) -> str:
    return name.replace("_", " ")


def _rung(number: str, name: str, fn: Callable, x: torch.Tensor) -> Rung:
    counted = traffic.count(fn, x)
    return Rung(number, name, counted.loads_per_element, counted.stores_per_element, mine=False)
