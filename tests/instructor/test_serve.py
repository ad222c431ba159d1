"""What a sandbox does when it is asked: each request, with the limits and the words that go with it."""

import pytest
import torch

import needs
from helpers.check.problems import losses, misled
from helpers.check.problems.problem import inputs_of
from helpers.engine.compiler import verdict
from helpers.instructor.grade.benchmarks import SimulatedDevice
from helpers.instructor.sandbox import language, serve, walls
from helpers.instructor.sandbox.client import Ended
from helpers.kernels import single_tile_kernel
from posed import posed

X = torch.empty(64)

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(y_ptr, x_ptr, away, N: tl.constexpr):
    cols = tl.arange(0, N)
    tl.store(y_ptr + cols, tl.load(x_ptr - away + cols))
"""

STANDS_FOR_X = 2 * (1 << 48) + (1 << 47)
"""The address that a kernel is given for its second tensor."""


@pytest.fixture
def sandbox(workshop):
    with workshop.sandbox() as one:
        yield one


def defined(sandbox, *sources, **options):
    return sandbox.ask({"do": "define", "sources": list(sources), "answer": "answer", **options}, 60)


def asked(sandbox, what, **given):
    return sandbox.ask({"do": what, "answer": "answer", **given}, 60)


# Cells


def test_cells_have_seconds_of_a_processor_of_their_own(sandbox):
    limit = "import resource\nanswer = resource.getrlimit(resource.RLIMIT_CPU)[0]"
    assert 30 < defined(sandbox, limit)["value"] < walls.SandboxLimits().cpu_s


def test_a_module_that_a_cell_writes_can_be_imported(sandbox):
    cells = ["with open('mine.py', 'w') as file:\n    file.write('found = 3')", "import mine\nanswer = mine.found"]
    assert defined(sandbox, *cells, every_cell=True)["value"] == 3


def test_every_cell_is_run_where_that_is_asked_for(sandbox):
    needed, every = (defined(sandbox, "answer = 1", "1 / 0", every_cell=every)["failed"] for every in (False, True))
    assert needed == [] and every[0][:2] == (1, "ZeroDivisionError")


def test_the_first_cell_below_the_check_is_below(sandbox):
    assert defined(sandbox, "x = 1", "answer = 1", above=1)["below"]


def test_a_cell_below_the_check_is_not_run(sandbox):
    assert defined(sandbox, "answer = 1", "answer = 2", above=1)["value"] == 1


def test_what_is_absent_is_no_function(sandbox):
    assert "function" not in defined(sandbox, "from helpers.kernels import eager_softmax as answer")


def test_a_request_that_fails_says_why(sandbox):
    with pytest.raises(Ended, match="KeyError: 'answer'"):
        asked(sandbox, "answers", given=[()])


def test_a_package_that_is_not_shown_is_named(sandbox):
    far = "import sys, types\nfar = sys.modules['far'] = types.ModuleType('far')\nfar.__file__ = '/nowhere/far.py'"
    defined(sandbox, far, every_cell=True)
    with pytest.raises(Ended, match="the package far lies in /nowhere/far.py, which is not shown inside"):
        sandbox.ask({"do": "try out"}, 60)


# Calls


def test_calls_of_one_answer_follow_each_other_in_one_process(sandbox):
    defined(sandbox, "calls = []\ndef answer():\n    calls.append(1)\n    return len(calls)")
    assert [one["answer"] for one in asked(sandbox, "answers", given=[()] * 6)] == [1, 2, 3, 4, 5, 6]


ROW = [[1, 3], [3, 1], 0, 3, torch.float32]


def planned(*inputs, **options):
    """A problem as a driver may know it: layouts in place of matrices."""
    return {"inputs": inputs, "wants": (), "options": options}


BLOCKS = "import torch\ndef answer(x, BLOCK=2):\n    print('made')\n    return torch.full_like(x, BLOCK)"


def test_a_softmax_is_called_twice_and_what_it_returns_comes_back(sandbox):
    defined(sandbox, BLOCKS)
    (found,) = asked(sandbox, "results", problems=[posed(torch.zeros(1, 3)).plain()])
    assert (found["trial"]["results"][0][0, 0], found["trial"]["again"][0][0, 0], found["printed"]) == (2, 2, "made\n")


def test_a_driver_is_recorded_with_the_block_of_its_case_and_what_it_prints(sandbox):
    defined(sandbox, BLOCKS)
    found = asked(sandbox, "plans", problems=[planned(ROW, **options) for options in ({}, {"BLOCK": 16})])
    assert [one["printed"] for one in found] == ["made\n"] * 2
    assert [step["args"][1] for one in found for step in one["steps"] if "full_like" in step["op"]] == [2, 16]


@needs.interpreter
def test_a_recorded_kernel_reaches_nothing_but_its_tensors(sandbox):
    """It reads what lies, in the process that is forked from the same one, where None lies in its own.

    Its pointer is the address that stands for x, the second tensor, less that address, and more than None's.
    """
    defined(
        sandbox,
        f"{KERNEL}\ndef answer(x):\n    y = torch.empty_like(x)\n"
        f"    kernel[(1,)](y, x, ({STANDS_FOR_X} - id(None)) // 4, N=16)\n    return y",
    )
    (plan,) = asked(sandbox, "plans", problems=[planned([[1, 16], [16, 1], 0, 16, torch.float32])])
    assert "steps" in plan
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [posed(torch.zeros(1, 16)).plain()]}, 60)
    assert one["error"] == "OutOfBounds", one


LOGITS = [[5, 128], [128, 1], 0, 640, torch.float32]
OF_LOSSES = posed(*inputs_of(losses.LOGITS["small random values"], "", 7), kind=losses.LOSSES)
LOSS = """
import torch
def answer(x, target):
    print("made")
    return torch.logsumexp(x, 1) - x.gather(1, target[:, None])[:, 0]
"""


def test_a_driver_of_losses_is_recorded_on_numbers_of_no_meaning_and_carried_out_on_a_problem(sandbox):
    defined(sandbox, LOSS)
    (plan,) = asked(sandbox, "plans", problems=[planned(LOGITS, OF_LOSSES.inputs[1])])
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [OF_LOSSES.plain()]}, 60)
    want, _ = losses.expected_losses(*OF_LOSSES.inputs)
    assert torch.allclose(one["results"][0].double(), want)
    assert plan["printed"] == "made\n" and "gather" in one["eager"]


@needs.interpreter
def test_a_recorded_kernel_of_losses_reaches_nothing_but_its_tensors(sandbox):
    defined(
        sandbox,
        f"{KERNEL}\ndef answer(x, target):\n    y = torch.empty(16, device=x.device)\n"
        f"    kernel[(1,)](y, x, ({STANDS_FOR_X} - id(None)) // 4, N=16)\n    return y",
    )
    (plan,) = asked(sandbox, "plans", problems=[planned(LOGITS, OF_LOSSES.inputs[1])])
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [OF_LOSSES.plain()]}, 60)
    assert one["error"] == "OutOfBounds", one


def test_a_driver_of_losses_that_fails_says_how(sandbox):
    defined(sandbox, "def answer(x, target):\n    raise ValueError(tuple(target.shape))")
    (plan,) = asked(sandbox, "plans", problems=[planned(LOGITS, OF_LOSSES.inputs[1])])
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [OF_LOSSES.plain()]}, 60)
    assert one["raised"].startswith("ValueError: (5,)") and one["results"] == []


def test_a_device_that_the_notebook_sets_for_all_it_makes_is_the_gpu_s(sandbox):
    cell = "import torch\ntorch.set_default_device('cuda')\ndef answer(x):\n    return torch.empty(x.shape).copy_(x)"
    defined(sandbox, cell, gpu=True)
    (plan,) = asked(sandbox, "plans", problems=[planned(ROW)])
    assert "steps" in plan, plan


def test_what_is_no_tensor_is_told_by_its_class(sandbox):
    defined(sandbox, "def answer(x, target):\n    return {1: x}")
    (plan,) = asked(sandbox, "plans", problems=[planned(LOGITS, OF_LOSSES.inputs[1])])
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [OF_LOSSES.plain()]}, 60)
    assert one["got"] == "a dict"


def test_a_tensor_of_a_class_of_the_notebook_s_own_is_told_by_its_class(sandbox):
    cell = "import torch\nclass Mine(torch.Tensor): ...\ndef answer(x):\n    return x.clone().as_subclass(Mine)"
    defined(sandbox, cell)
    (plan,) = asked(sandbox, "plans", problems=[planned(ROW)])
    (one,) = sandbox.ask({"do": "replay", "plans": [plan], "problems": [posed(torch.zeros(1, 3)).plain()]}, 60)
    assert one["got"] == "a Mine"


# Benchmarks


def benchmarked(sandbox, source):
    """The trial of a benchmark on a GPU that misleads in nothing, and that GPU."""
    defined(sandbox, source)
    device = SimulatedDevice(misled.steadied(misled.RUNS["an L2 cache"][0]), 1, (1, 1))
    return sandbox.ask({"do": "benchmark", "answer": "answer"}, 60, device.answer), device.gpu


def test_a_benchmark_has_the_seconds_of_the_sandbox_and_not_those_of_cells(sandbox):
    limit = "import resource\ndef answer(gpu, mine, theirs):\n    return resource.getrlimit(resource.RLIMIT_CPU)[0]"
    assert benchmarked(sandbox, limit)[0]["answer"] == walls.SandboxLimits().cpu_s


def test_of_what_a_benchmark_prints_the_beginning_is_kept(sandbox):
    one, _ = benchmarked(sandbox, "def answer(gpu, mine, theirs):\n    print('x' * 9_999)\n    return 1, 2")
    assert one["printed"] == "x" * 5_000


def test_the_last_launch_of_a_benchmark_arrives(sandbox):
    source = "import torch\ndef answer(gpu, mine, theirs):\n    x = torch.ones(8, 4096)\n    mine(x)\n    mine(x)"
    assert benchmarked(sandbox, source)[1].kernel_launches == 2


# Kernels as text


BAD = "import os\nimport triton\n@triton.jit\ndef kernel(y_ptr):\n    os.system('true')\n"


def test_a_text_is_read_before_it_is_compiled():
    asks = verdict.launch_of(single_tile_kernel, (X, X, 64, 64, 1, 64), {"BLOCK": 64})["asks"]
    assert serve._read_request(asks).name == "single_tile_kernel"
    with pytest.raises(language.NotTriton):
        serve._read_request({**asks, "text": BAD, "name": "kernel"})


def test_a_task_that_is_refused_leaves_the_others_in_their_places(monkeypatch):
    monkeypatch.setattr(serve.verdict, "judge_each", lambda tasks, load: [{"reason": task["asks"]} for task in tasks])
    monkeypatch.setattr(serve, "_refused", lambda task: task["refused"])
    tasks = [{"asks": "a", "refused": ""}, {"asks": "b", "refused": "no"}, {"asks": "c", "refused": ""}]
    assert [one["reason"] for one in serve._judge(tasks)] == ["a", "no", "c"]
