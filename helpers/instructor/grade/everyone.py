"""Grades a class: every change since the last time, on the processors of this machine or on a Dask cluster.

The result of every submission is a file of its own, written whole as soon as there is one; the gradebook is made from
these files alone. So a run that is interrupted, at any point, has lost nothing, and the next one goes on from there.
"""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError
from tqdm.auto import tqdm

from helpers.engine.files import NotRegular, write_whole
from helpers.instructor.collect import course as courses
from helpers.instructor.collect.names import listed
from helpers.instructor.collect.submissions import Submission, submitted
from helpers.instructor.grade import notebook, rehearsal
from helpers.instructor.grade.allowance import Allowance
from helpers.instructor.grade.exercise import Grader
from helpers.instructor.grade.jobs import Died, Endless, Job, limited
from helpers.instructor.grade.workshop import Workshop
from helpers.instructor.publish.notebooks import NotebookError
from helpers.instructor.report import gradebook
from helpers.instructor.report.gradebook import Result
from helpers.instructor.report.rule import rule_of
from helpers.instructor.sandbox import walls
from helpers.instructor.sandbox.client import NoSandbox
from helpers.table import Table

TRIES = 3
"""How often a submission is begun whose grader ends without a result."""
_ENTER_EVERY_S = 5

AtWork = Callable[[Iterable[str]], object]
"""Is told the submissions that are being graded, as in "ada, 02_your_first_kernel", or what is prepared for them."""


@dataclass(frozen=True)
class Task:
    """One submission to be graded, with all that it takes save its content, which is read when its turn comes."""

    submission: Submission
    key: str
    released: bytes
    """The lesson as it was handed out."""
    held_back: str
    """The text of private/cases.py."""
    gpu: bool
    kinds: tuple[str, ...] = walls.ENOUGH
    """The kinds of walls behind which it may be graded."""
    before: str = ""
    """The text of the result of the same notebook, if it has one and is graded once more."""


class OfItsOwn(str):
    """An error raised while a submission was graded: the next run would raise it again."""

    @classmethod
    def of(cls, error: BaseException) -> str:
        """An error in words, as this if another run does not help: a machine's failures, and Dask's, pass."""
        said = f"{type(error).__name__}: {error}"
        passes = isinstance(error, notebook.NotGraded | NoSandbox | OSError | MemoryError)
        return said if passes or type(error).__module__.startswith("distributed") else cls(said)


@dataclass
class GradingRun:
    """What a run of `grade` has done."""

    results: list[Result] = field(default_factory=list)
    graded: int = 0
    new: set[tuple[str, str]] = field(default_factory=set)
    """Students and lessons that were graded in this run."""
    passed_over: list[str] = field(default_factory=list)
    not_graded: list[str] = field(default_factory=list)
    sandbox: str = ""
    seconds: float = 0.0
    slowest: list[tuple[float, str]] = field(default_factory=list)
    """Seconds of the submissions that took longest, and what they took, in words."""
    otherwise: list[str] = field(default_factory=list)
    """A sentence for each result that differs from the one before of the same notebook."""

    def table(self) -> Table:
        """One line per lesson, and below them what the instructor should know."""
        rows = []
        for lesson in sorted({result.lesson for result in self.results}):
            own = [result for result in self.results if result.lesson == lesson]
            full = sum(result.points == result.max_points for result in own)
            none = sum(_is_blank(result.data) for result in own)
            mean = sum(result.points for result in own) / len(own)
            look = sum(any(exercise["note"] for exercise in result.data["exercises"]) for result in own)
            new = sum((result.student, lesson) in self.new for result in own)
            points = f"{mean:.1f} of {own[0].max_points:g}"
            rows.append([lesson, *map(str, (len(own), new, full, none)), points, str(look)])
        head = ["lesson", "submissions", "new", "full points", "not attempted", "mean", "to look at"]
        return Table(head, rows, self.notes())

    def notes(self) -> list[str]:
        """The notes below the table."""
        unchanged = len(self.results) - self.graded
        lines = [f"{self.graded} graded in {self.seconds:.0f} s, {unchanged} unchanged."]
        lines += self.otherwise
        if self.slowest:
            lines.append(f"The slowest: {'; '.join(said for _, said in self.slowest)}.")
        if self.sandbox:
            lines.append(f"Sandbox: {self.sandbox}: {walls.MEANING[self.sandbox]}.")
        looks = [*self._looks(new=True), *self._looks(new=False)]
        return [_printable(line) for line in (*lines, *self._speeds(), *looks, *self.passed_over, *self.not_graded)]

    def _looks(self, new: bool) -> list[str]:
        """The notes on results of this run, or of earlier runs."""
        looks = Counter(
            f"{result.student}, {exercise['check']}: {exercise['note']}"
            for result in self.results
            for exercise in result.data["exercises"]
            if exercise["note"] and new == ((result.student, result.lesson) in self.new)
        )
        return [*(["Of earlier runs:"] if looks and self.new and not new else []), *looks]

    def _speeds(self) -> list[str]:
        """The speed of each kernel that was timed on a GPU, and why others were not."""
        found = [
            (exercise["speed"], f"{result.student}, {exercise['check']}")
            for result in self.results
            for exercise in result.data["exercises"]
            if exercise.get("speed") is not None
        ]
        fractions = [f"{who} {one:.2f}" for one, who in found if isinstance(one, float)]
        reasons = Counter(one for one, _ in found if isinstance(one, str))
        lines = [f"Speed on a GPU, as a fraction of a copy's: {'; '.join(fractions)}."] if fractions else []
        return [*lines, *(f"{count} kernels {reason}." for reason, count in reasons.items())]


def _is_blank(data: dict[str, Any]) -> bool:
    """Whether a notebook that could be read has no answer."""
    return not (data.get("problem") or any(exercise["attempted"] for exercise in data["exercises"]))


def _printable(line: str) -> str:
    """A line that may quote a student, without what a terminal would take for a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def grade(
    course: Path,
    jobs: int = 1,
    scheduler: str | None = None,
    lessons: Iterable[str] | None = None,
    gpu: bool = False,
    progress: bool = True,
    workshop: Workshop | None = None,
    kinds: Sequence[str] = walls.ENOUGH,
    students: Collection[str] | None = None,
    again: bool = False,
) -> GradingRun:
    """Grades everything in submitted/ that has changed, enters it into the gradebook, and reports on it.

    Of `lessons` and `students` (their folders) alone, where these are named. `again` grades the others, too,
    with other inputs, and keeps the result that there was.

    Either `jobs` processes of this machine do it, or the workers of the Dask `scheduler`. With `gpu`, right kernels are
    also timed, on the GPU of whatever machine grades them. A `workshop` that is given is used and stays open; else
    learners' code runs behind the first of `kinds` of walls that holds.

    Raises NotebookError for a folder that is not a course directory, into which nothing was handed in, or whose
    private/cases.py fails on the course's solutions; NoSandbox where no such walls hold. Nothing is graded then.
    """
    began = time.monotonic()
    released = courses.lessons_of(course)
    wanted = list(lessons or released)
    found, passed_over = submitted(course, list(released))
    found = [one for one in found if one.lesson in wanted and (students is None or one.student in students)]
    if not found:
        of = "" if students is None else f" of {listed(sorted(students))}"
        nothing = f"There is nothing{of} in {course / 'submitted'} for {', '.join(wanted)}."
        raise NotebookError("\n".join([nothing, *passed_over]))
    run = GradingRun(passed_over=passed_over)
    private = course / courses.HELD_BACK
    held_back = private.read_text(encoding="utf-8") if private.exists() else ""
    held_back_cases, rule = notebook.load_held_back(held_back), rule_of(course)
    tasks = []
    for submission in found:
        task = _task(course, submission, released[submission.lesson].read_bytes(), held_back, gpu, tuple(kinds), again)
        if isinstance(task, Result):
            run.results.append(task)
        else:
            tasks.append(task)
    own = workshop
    try:
        with tqdm(total=len(tasks), desc="grading", unit="notebook", disable=not progress) as bar:
            at_work: AtWork = lambda names: bar.set_postfix_str(listed(names))  # noqa: E731
            if own is None and tasks and (held_back_cases or not scheduler):
                at_work(["sandboxes start"])
                own = Workshop(kinds)
            if own is not None and tasks:
                rehearsal.require_cases(own, held_back_cases, course)
            on_cluster = scheduler and tasks
            outcomes = _on_cluster(tasks, scheduler, at_work) if on_cluster else _here(tasks, jobs, own, at_work)
            _grade_all(course, run, outcomes, bar.update)
    finally:
        if own is not None and own is not workshop:
            own.close()
    _enter(course, run, run.results)
    run.results = [replace(result, data=rule(result.data)) for result in run.results]
    run.results.sort(key=lambda result: (result.lesson, result.student))
    run.seconds = time.monotonic() - began
    return run


def _task(
    course: Path,
    submission: Submission,
    released: bytes,
    held_back: str,
    gpu: bool,
    kinds: tuple[str, ...] = walls.ENOUGH,
    again: bool = False,
) -> Task | Result:
    """The task of grading; or the result, where it is known and not asked for `again`, or nothing could be read."""
    student, lesson = submission.student, submission.lesson
    try:
        contents = submission.contents()
    except NotRegular as error:
        exercises = [notebook.unreadable(cell, str(error)) for cell in courses.graded_cells(released)]
        data = {"key": "", "exercises": exercises, "answers": {}, "problem": str(error), "sandbox": "", "seconds": 0.0}
        write_whole(gradebook.kept(course, student, lesson), json.dumps(data, indent=1).encode())
        return Result(student, lesson, data)
    key = notebook.result_key(contents, released, held_back, gpu)
    try:
        before = gradebook.kept(course, student, lesson).read_text(encoding="utf-8")
        data = json.loads(before)
    except (OSError, ValueError):
        data = {}
    if data.get("key") == key and not again:
        return Result(student, lesson, data)
    same = data.get("key", "").rpartition("-")[2] == key.rpartition("-")[2]
    return Task(submission, key, released, held_back, gpu, kinds, before if same else "")


def _grade_all(
    course: Path, run: GradingRun, outcomes: Iterator[tuple[Task, dict[str, Any] | str]], update: Callable[[], Any]
) -> None:
    """Keeps the outcomes in whatever order they come, and enters the results from time to time."""
    waiting: list[Result] = []
    entered_at = time.monotonic()
    for task, data in outcomes:
        update()
        student, lesson = task.submission.student, task.submission.lesson
        if isinstance(data, str):
            advice = "look at it by hand" if isinstance(data, OfItsOwn) else "run it again"
            run.not_graded.append(f"{_name(task)}: could not be graded ({data}); {advice}.")
            continue
        data = {"key": task.key, **data}
        try:
            new = json.dumps(data, indent=1).encode()
            if task.before:
                write_whole(gradebook.free(course, student, lesson), task.before.encode())
            write_whole(gradebook.kept(course, student, lesson), new)
        except OSError as error:  # such as a full disk
            run.not_graded.append(f"{_name(task)}: could not be kept ({error}); run it again.")
            continue
        except (TypeError, ValueError) as error:  # of one student, which is not to stop the class
            run.not_graded.append(f"{_name(task)}: could not be kept ({error}); look at it by hand.")
            continue
        result = Result(student, lesson, data)
        if task.before and (was := Result(student, lesson, json.loads(task.before)).points) != result.points:
            run.otherwise.append(f"{_name(task)}: {result.points:g} points now, {was:g} before.")
        run.results.append(result)
        run.graded += 1
        run.new.add((student, lesson))
        run.sandbox = data["sandbox"]
        run.slowest = sorted([*run.slowest, _took(result)], reverse=True)[:_SLOWEST]
        waiting.append(result)
        if time.monotonic() - entered_at > _ENTER_EVERY_S:
            _enter(course, run, waiting)
            waiting, entered_at = [], time.monotonic()


_SLOWEST = 5


def _took(result: Result) -> tuple[float, str]:
    seconds, processor_s = (float(result.data.get(name, 0)) for name in ("seconds", "processor_s"))
    return seconds, f"{result.student}, {result.lesson}: {seconds:.0f} s, {processor_s:.0f} s of a processor"


def _enter(course: Path, run: GradingRun, results: list[Result]) -> None:
    """Enters results into the gradebook; where that fails, says so, because the next run does it again."""
    try:
        refused = gradebook.enter(course, results)[1]
    except (OSError, SQLAlchemyError) as error:
        refused = [f"The gradebook could not be written ({error}); run it again."]
    run.not_graded += [line for line in refused if line not in run.not_graded]


_one_at_a_time = threading.Lock()
_workshop: Workshop | None = None
"""That of this process, if it is a worker of a cluster."""


def grade_task(task: Task, contents: Sequence[bytes], workshop: Workshop) -> dict[str, Any]:
    """The result for one task, the best of its notebooks. Raises as notebook.graded_result does."""
    results = []
    for content in contents:
        grader = Grader(workshop.for_submission(), notebook.load_held_back(task.held_back), task.gpu)
        results.append(notebook.graded_result(grader, content, task.released))
    return max(results, key=lambda data: Result("", "", data).points)


def grade_on_worker(task: Task, contents: Sequence[bytes]) -> dict[str, Any]:
    """The same on a worker of a cluster, one task at a time, which ends if it takes too long: Dask starts another."""
    workshop = _workshop_here(task.kinds)
    with _one_at_a_time, limited():
        return grade_task(task, contents, workshop)


def _workshop_here(kinds: Sequence[str]) -> Workshop:
    """The workshop of this process. Raises NoSandbox."""
    global _workshop
    with _one_at_a_time:
        if _workshop is None:
            _workshop = Workshop(kinds)
        return _workshop


def _walls_here(kinds: Sequence[str]) -> str:
    """On a worker of a cluster: why nothing can be graded there; empty where all is well."""
    try:
        _workshop_here(kinds)
    except NoSandbox as error:
        return str(error)
    return ""


def _here(
    tasks: list[Task], jobs: int, given: Workshop | None, at_work: AtWork = lambda names: None
) -> Iterator[tuple[Task, dict[str, Any] | str]]:
    """Grades on this machine, `jobs` tasks at a time."""
    tries: Counter[str] = Counter()
    left = {_name(task): task for task in tasks}
    taken = Allowance()
    while left:
        workshop = given or Workshop(next(iter(left.values())).kinds)
        at_work(["the compiler starts"])
        with suppress(NoSandbox):  # where none compiles, each report says so
            workshop.compiling()  # once, and not in every job
        try:
            for name, outcome in _each(workshop, jobs, left, taken, at_work):
                if isinstance(outcome, Died | NoSandbox):
                    tries[name] += 1
                    if tries[name] < TRIES:
                        continue
                    outcome = str(outcome)
                yield left.pop(name), outcome
        finally:
            if workshop is not given:
                workshop.close()
        given = None  # where jobs have died, what they have used may be broken


def _each(
    workshop: Workshop, jobs: int, tasks: Mapping[str, Task], taken: Allowance, at_work: AtWork
) -> Iterator[tuple[str, Any]]:
    """The outcomes of tasks, as they come; Died or NoSandbox where another try may help."""
    waiting = list(tasks)[::-1]
    running: dict[str, Job] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                task = tasks[name]
                if why := taken.too_much(task.submission.student):
                    yield name, why
                    continue
                try:
                    contents = task.submission.contents()
                except NotRegular as error:
                    yield name, str(error)
                    continue
                running[name] = Job(partial(grade_task, task, contents, workshop))
                at_work(running)
            ready = wait([job.told for job in running.values()]) if running else []
            for name in [name for name, job in running.items() if job.told in ready]:
                outcome = _outcome(running.pop(name))
                if not isinstance(outcome, Died | NoSandbox):
                    taken.add(tasks[name].submission.student, outcome)
                yield name, outcome
    finally:
        for job in running.values():
            job.end()


def _outcome(job: Job) -> Any:
    """The result of a job, why there is none, or the error after which it can be tried again."""
    try:
        return job.outcome()
    except (Died, NoSandbox) as error:
        return error
    except Endless as error:
        return OfItsOwn(error)
    except Exception as error:
        return OfItsOwn.of(error)


def _name(task: Task) -> str:
    return f"{task.submission.student}, {task.submission.lesson}"


def _on_cluster(
    tasks: list[Task], scheduler: str, at_work: AtWork = lambda names: None
) -> Iterator[tuple[Task, dict[str, Any] | str]]:
    """Grades on the workers of a Dask cluster; a task whose worker ends is given to another one.

    Requests over a lost connection are made again. Raises NotebookError where distributed is not
    installed, where nobody answers at that address, and where a worker has other code.
    """
    try:
        from distributed import Client, as_completed
        from distributed.utils import CancelledError
    except ModuleNotFoundError:
        raise NotebookError("Grading on a cluster needs Dask, which `make install` brings.") from None
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise NotebookError(f"No Dask scheduler answers at {scheduler} ({error}).") from None
    unpacked = _unpacking()
    with client:
        for worker, engine in client.run(notebook.engine).items():
            if engine != notebook.engine():
                raise NotebookError(f"The worker {worker} has another version of the course or its packages.")
        for worker, why in client.run(_walls_here, tasks[0].kinds).items():
            if why:
                raise NotebookError(f"The worker {worker}: {why}")
        waiting, running, done, losses, taken = tasks[::-1], {}, as_completed(), 0, Allowance()
        most = 4 * max(1, sum(client.nthreads().values()))
        while waiting or running:
            while waiting and len(running) < most:
                task = waiting.pop()
                if why := taken.too_much(task.submission.student):
                    yield task, why
                    continue
                try:
                    sent = pickle.dumps((grade_on_worker, task, task.submission.contents()))
                    future = client.submit(unpacked, sent, pure=False, retries=TRIES)
                except NotRegular as error:
                    yield task, str(error)
                    continue
                running[future] = task
                done.add(future)
            if not running:
                break
            at_work(map(_name, running.values()))
            future = next(done)
            try:
                error = future.exception()
                outcome = future.result() if error is None else OfItsOwn.of(error)
            except (CancelledError, OSError):  # with its connection a client loses everything that it has asked for
                losses += 1
                if losses > TRIES or not _is_connected_again(client):
                    gone = f"The scheduler at {scheduler} is gone; results so far are kept, run it again."
                    raise NotebookError(gone) from None
                waiting += running.values()
                running, done = {}, as_completed()
                continue
            task = running.pop(future)
            taken.add(task.submission.student, outcome)
            yield task, outcome


def _unpacking() -> Callable[[bytes], Any]:
    """A function that calls a pickled one, and that Dask's scheduler can read without importing this course.

    A scheduler reads what it passes on. The course imports torch, during which a scheduler on a busy machine answers
    nobody, for so long that clients and workers take it for dead. This function is not one of a module, so that it
    travels as it is.
    """

    def unpacked(sent: bytes) -> Any:
        import pickle

        work, *given = pickle.loads(sent)
        return work(*given)

    return unpacked


def _is_connected_again(client: Any) -> bool:
    """Whether a client of Dask whose connection was lost has one again; it tries for as long as it may connect."""
    while client.status == "connecting":
        time.sleep(0.1)
    return client.status == "running"


def default_jobs() -> int:
    """One job for each processor that this process may use."""
    return len(os.sched_getaffinity(0))
