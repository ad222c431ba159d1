"""A function behind walls: which sandbox is asked for what, and what becomes of a sandbox that ends."""

import contextlib
from dataclasses import dataclass, field, replace

import pytest
import torch

from helpers.check import EXERCISES
from helpers.check.problems import cases, losses, misled
from helpers.check.problems.problem import Problems, With
from helpers.check.trial.trial import Trial
from helpers.engine.compiler import verdict
from helpers.engine.isolate import End
from helpers.instructor.grade import remote
from helpers.instructor.grade.answer import CALLS_S, BehindWalls
from helpers.instructor.sandbox import language, wire
from helpers.instructor.sandbox.client import Ended
from helpers.kernels import single_tile_kernel

MAKERS = Problems({"small": lambda g: torch.randn(2, 3, generator=g)}, cases.SOFTMAX.wants, 7)
ROW = torch.empty(64)
TAKEN = verdict.launch_of(single_tile_kernel, (ROW, ROW, 64, 64, 1, 64), {"BLOCK": 64})
HELD_BACK = {"wide": lambda g: torch.randn(1, 8, generator=g)}


@dataclass
class Sandbox:
    """Answers each kind of request as it was told, and notes the requests."""

    answers: dict
    asked: list = field(default_factory=list)
    seconds: list = field(default_factory=list)

    def ask(self, request, seconds, device=None, processor_s=None):
        self.asked.append(request)
        self.seconds.append(seconds)
        answer = self.answers[request["do"]]
        if isinstance(answer, Exception):
            raise answer
        return answer(request)

    def did(self):
        return [request["do"] for request in self.asked]


def plans(request):
    return [{"steps": [{"kernel": [f"kernel {n}"]} for n in (1, 2)], "printed": "hello"} for _ in request["problems"]]


def right(request):
    return [Trial(results=[torch.softmax(one["inputs"][0], 1)], kernels=1).plain() for one in request["problems"]]


def returned(request):
    given = [one["inputs"] for one in request["problems"]]
    trials = [Trial(results=[torch.softmax(x, 1)]).plain() for (x,) in given]
    return [{"trial": one, "inputs": list(x), "changed": False} for one, x in zip(trials, given, strict=True)]


def place(**answers):
    """A function behind walls, its own sandbox, and the one that carries out what it asks of the GPU."""
    learner = Sandbox({"plans": plans, "results": returned, **answers})
    device = Sandbox({"replay": right, **answers})
    workshop = type("Workshop", (), {"sandbox": lambda self: contextlib.nullcontext(device)})()
    return BehindWalls("mine", workshop, learner), learner, device


def tried(kernel, **options):
    walls, learner, device = place(**options)
    return walls.drivers(MAKERS, kernel), walls, learner, device


def test_a_softmax_in_torch_is_asked_for_in_the_learner_s_sandbox():
    found, _, learner, device = tried(kernel=False)
    assert (learner.did(), device.did()) == (["results"], [])
    assert torch.equal(found["small"][1].y, torch.softmax(found["small"][0].x, 1))


def test_a_kernel_runs_in_a_sandbox_without_the_learner_s_code_on_inputs_that_theirs_never_sees():
    found, _, learner, device = tried(kernel=True)
    assert (learner.did(), device.did()) == (["plans"], ["replay"])
    assert torch.equal(device.asked[0]["problems"][0]["inputs"][0], found["small"][0].x)
    assert not any(isinstance(one, torch.Tensor) for one in learner.asked[0]["problems"][0]["inputs"])


def test_the_cases_held_back_are_tried_once_in_a_sandbox_of_their_own_and_judged_with_the_others():
    _, walls, learner, _ = tried(kernel=False)
    before, other = list(learner.asked), Sandbox(dict(learner.answers))
    walls.others = lambda: contextlib.nullcontext(other)
    report = walls.report_with(HELD_BACK, EXERCISES["eager"])
    assert learner.asked == before and [len(request["problems"]) for request in other.asked] == [1]
    assert {one.case for one in report.findings if one.ok} == {"small", "wide"}


def test_a_layout_is_shape_strides_offset_elements_of_the_storage_and_dtype():
    walls, learner, _ = place()
    shifted = {"shifted": lambda g: torch.randn(4, 10, generator=g)[1:, 2:5]}
    walls.drivers(replace(MAKERS, makers=shifted), kernel=True)
    assert learner.asked[0]["problems"][0]["inputs"] == [[[3, 3], [10, 1], 12, 40, torch.float32]]


def test_each_case_is_tried_with_its_own_block():
    walls, learner, _ = place()
    walls.drivers(replace(MAKERS, makers={**MAKERS.makers, "in tiles": With(HELD_BACK["wide"], BLOCK=16)}), kernel=True)
    (request,) = learner.asked
    assert request["do"] == "plans" and [one["options"] for one in request["problems"]] == [{}, {"BLOCK": 16}]


def test_the_texts_of_all_kernels_are_known_and_what_the_driver_printed():
    found, walls, *_ = tried(kernel=True)
    assert walls.kernels == {"kernel 1", "kernel 2"}
    assert found["small"][1].printed == "hello"


@pytest.mark.parametrize(("kernel", "asked"), [(True, "plans"), (True, "replay"), (False, "results")])
def test_a_sandbox_that_ends_fails_every_case(kernel, asked):
    found, *_ = tried(kernel, **{asked: Ended("it was killed", End.DIED)})
    assert {case: (one.end, one.raised) for case, (_, one) in found.items()} == {"small": (End.DIED, "it was killed")}


@pytest.mark.parametrize("sent", [None, [], [{}, {}], ["plan"]], ids=["nothing", "too few", "too many", "no plan"])
def test_what_is_no_plan_for_every_layout_fails_every_case(sent):
    found, *_ = tried(kernel=True, plans=lambda request: sent)
    assert found["small"][1].raised == "it did not say what it asks of the GPU"


def test_what_a_driver_or_its_kernels_print_is_told_and_cut():
    def printed(request):
        return [{"steps": [], "printed": "x" * 9999} for _ in request["problems"]]

    found, *_ = tried(kernel=True, plans=printed)
    assert found["small"][1].printed == "x" * 5000
    found, *_ = tried(kernel=True, replay=lambda request: [Trial(printed="of a kernel").plain()])
    assert found["small"][1].printed == "of a kernel"


def test_of_a_kernel_its_text_alone_is_kept_and_that_is_cut():
    def named(request):
        return [{"steps": [{"kernel": ["x" * 10**6, "its name"]}]}]

    _, walls, *_ = tried(kernel=True, plans=named)
    assert [len(text) for text in walls.kernels] == [language.LONGEST_KERNEL]


@pytest.mark.parametrize("steps", [3, "steps", [3, None], [{"kernel": 3}], [{}]], ids=repr)
def test_steps_that_are_none_hold_no_kernels(steps):
    _, walls, *_ = tried(kernel=True, plans=lambda request: [{"steps": steps}])
    assert walls.kernels == set()


def test_launches_that_the_learner_s_process_tells_of_are_not_believed():
    told = {**Trial().plain(), "launches": [TAKEN]}
    found, *_ = tried(kernel=False, results=lambda request: [{"trial": told}])
    assert found["small"][1].launches == []
    found, *_ = tried(kernel=True, replay=lambda request: [told])
    assert len(found["small"][1].launches) == 1


@pytest.mark.parametrize(("kernel", "asked"), [(True, "plans"), (False, "results")])
def test_all_calls_of_an_answer_have_so_many_seconds(kernel, asked):
    _, _, learner, device = tried(kernel)
    assert learner.seconds + device.seconds == [CALLS_S] * (2 if kernel else 1) and CALLS_S == 180


def test_what_calls_an_answer_runs_here_and_the_answer_there():
    def sent(request):
        return {"trial": Trial().plain(), "given": [[3.0, 1.0]], "result": wire.encode((3.0, 1.0)), "printed": "hello"}

    def sorted_by(answer, row):
        return [*answer(row), *row]

    walls, learner, _ = place(call=sent)
    (one,) = walls.answers([([1.0, 3.0],)], sorted_by)
    assert [(request["do"], request["answer"], request["functions"]) for request in learner.asked] == [
        ("call", "mine", [])
    ]
    assert (one.answer, one.printed) == ([3.0, 1.0, 3.0, 1.0], "hello")


def test_after_a_call_that_ends_the_process_no_other_is_made():
    walls, learner, _ = place(call=Ended("it was killed", End.DIED))
    found = walls.answers([(1,), (2,)], lambda answer, number: answer(number))
    assert [(one.end, one.raised) for one in found] == [(End.DIED, "it was killed"), (End.NOT_RUN, "not run any more")]
    assert learner.did() == ["call"]


def test_what_a_call_asks_for_has_the_processor_time_of_a_call(monkeypatch):
    monkeypatch.setattr(remote, "_CALL_CPU_S", 0)
    walls, learner, _ = place()
    learner.ask = lambda request, seconds, device, processor_s: device({"question": ["call", 0, [], []]})
    found = walls.answers([(sum,), (sum,)], lambda answer, fn: answer(lambda: fn(range(10_000))))
    assert [one.end for one in found] == [End.OUT_OF_TIME, End.NOT_RUN]
    assert found[0].raised == "what it asks for takes more than 0 seconds of processor time"


@pytest.mark.parametrize(
    "sent",
    [None, 3, {}, {"inputs": [torch.zeros(2, 3)]}, {"trial": {"results": 3}}, {"trial": Trial().plain()}],
    ids=str,
)
def test_what_is_no_result_of_a_softmax_is_a_wrong_one(sent):
    found, *_ = tried(kernel=False, results=lambda request: [sent])
    assert found["small"][1].y is None


def test_losses_are_recorded_in_the_learner_s_sandbox_and_carried_out_in_another_one():
    told = {**Trial(results=[torch.zeros(3)]).plain(), "launches": [TAKEN]}
    walls, learner, device = place(replay=lambda request: [told] * 2)
    problems = Problems(losses.LOGITS, losses.LOSSES.wants, 7).only(["small random values", "one column"])
    found = walls.drivers(problems, kernel=True)
    assert (learner.did(), device.did()) == (["plans"], ["replay"])
    (five, _), (column, one) = found.values()
    layout, target = learner.asked[0]["problems"][1]["inputs"]
    assert layout == [[3, 1], [1, 1], 0, 3, torch.float32] and torch.equal(target, column.inputs[1])
    assert torch.equal(device.asked[0]["problems"][0]["inputs"][0], five.x)
    assert walls.kernels == {"kernel 1", "kernel 2"} and len(one.launches) == 1
    assert torch.equal(one.y, torch.zeros(3))


def test_a_benchmark_is_tried_on_gpus_of_the_grader_s():
    walls, learner, _ = place(benchmark=lambda request: Trial(answer=[1.0, 2.0], pair=[1.0, 2.0]).plain())
    (one,) = walls.answers([("an L2 cache",)], misled.attempt)
    assert set(learner.did()) == {"benchmark"} and one.raised == ""


def test_why_a_driver_cannot_be_recorded_is_said_in_place_of_its_speed():
    walls, *_ = place(plans=lambda request: [{"raised": "NameError: " + "x" * 999}])
    assert walls.speed() == ("NameError: " + "x" * 999)[:300]


def test_every_launch_is_shown_to_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))  # what is said of a kernel is kept
    walls, *_ = place()
    walls.workshop.judged = lambda tasks: [{"unknown": f"{len(tasks)} tasks"}] * len(tasks)
    assert walls.compiled([TAKEN]).unknown.endswith(": 2 tasks")
