"""What a sandbox makes of cells: which it runs, what of them it leaves out, and the GPU that it may pretend."""

import inspect
import json
import time
from contextlib import nullcontext

import pytest
import torch
from traitlets.config import Config

from helpers.instructor.sandbox import cells, cuda, shell

ANSWER = "def answer():\n    return 1"


@pytest.fixture
def define(workshop):
    """What a sandbox says after it has run cells."""

    def defined(*sources, answer="answer", **options):
        with workshop.sandbox() as sandbox:
            return sandbox.ask({"do": "define", "sources": list(sources), "answer": answer, **options}, 60)

    return defined


# What is read


@pytest.mark.thinned(0)
@pytest.mark.parametrize("sources", [["x"] * 2_001, ["x" * (1 << 20), "y"]], ids=["cells", "code"])
def test_a_notebook_has_a_limit(sources):
    def notebook(sources):
        return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]}).encode()

    assert len(cells.read_cells(notebook(sources[:-1]))) == len(sources) - 1
    with pytest.raises(cells.Unreadable, match="more than 2,000 cells or 1,048,576 characters"):
        cells.read_cells(notebook(sources))


def test_a_notebook_of_version_3_has_the_cells_of_its_sheets():
    old = {
        "worksheets": [{"cells": [{"cell_type": "code", "input": "x = 1"}, {"cell_type": "markdown", "source": "x"}]}]
    }
    assert [cell["source"] for cell in cells.read_cells(json.dumps(old).encode())] == ["x = 1"]


def test_a_number_of_any_length_may_stand_beside_the_code():
    cell = b'{"cell_type": "code", "source": "x = 1", "execution_count": ' + b"9" * 5_000 + b"}"
    content = b'{"cells": [' + cell + b"]}"
    assert [cell["source"] for cell in cells.read_cells(content)] == ["x = 1"]


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_an_answer_that_was_turned_into_text_is_code_as_it_was_handed_out(kind):
    def read(**marks):
        cell = {"cell_type": kind, "source": ANSWER, "metadata": {"nbgrader": {"grade_id": "answer", **marks}}}
        return [one["source"] for one in cells.read_cells(json.dumps({"cells": [cell]}).encode())]

    assert (read(cell_type="code"), read(cell_type="markdown"), read()) == ([ANSWER], [], [])


# After a statement that fails


@pytest.mark.thinned
@pytest.mark.parametrize(
    "above",
    ["1 / 0", "import nowhere", "undefined", "assert False", "raise SystemExit", "raise KeyboardInterrupt",
     "input('name? ')", "%no_such_magic", "open('data.csv')", "return 3", "await nothing", "exit(1)",
     "torch.ones(1, device='cuda')", "for i in range(3):\n    1 / 0", "raise BaseException"],
)  # fmt: skip
def test_the_rest_of_a_cell_is_run(define, above):
    found = define(f"import torch\n{above}\n{ANSWER}")
    assert found["defined"] and [number for *_, number, _ in found["failed"]] == [2]


@pytest.mark.parametrize("above", ["!echo hello", "!no-such-program", "%pip --version", "%%time", "x = !ls"])
def test_a_command_of_the_system_needs_no_terminal(define, above):
    found = define(f"{above}\n{ANSWER}")
    assert found["defined"] and found["failed"] == []


def test_a_cell_under_timeit_is_told_that_its_names_are_gone(define):
    found = define(f"\n%%timeit -n 1\n{ANSWER}", own=[0])
    ((_, error, said, number, line),) = found["failed"]
    assert not found["defined"] and (error, number, line) == ("UsageError", 2, "%%timeit -n 1")
    assert said == "what a cell defines under %%timeit is gone when the cell ends: leave that line out"


def test_statements_are_run_in_order_after_one_that_fails(define):
    found = define("order = []\norder.append(1)\n1 / 0\norder.append(2)\nanswer = order")
    assert found["value"] == [1, 2]


def test_an_answer_that_its_own_statement_fails_to_define_is_not_defined(define):
    found = define("answer = 1 / 0")
    ((_, *error, _, _),) = found["failed"]
    assert not found["defined"] and error == ["ZeroDivisionError", "ZeroDivisionError: division by zero"]


def test_a_cell_that_is_not_python_runs_not_at_all(define):
    found = define("answer = 1\ndef broken(:", every_cell=True)
    assert not found["defined"] and found["failed"][0][3:] == (2, "def broken(:")


@pytest.mark.parametrize(
    ("source", "number", "line"),
    [("x = 1\n1 / 0", 2, "1 / 0"), ("\n\n1 / 0", 3, "1 / 0"), ("%%time\n1 / 0", 2, "1 / 0"),
     ("%no_such_magic here", 1, "%no_such_magic here"), ("x = [\n  1 / 0,\n]", 1, "x = [")],
    ids=["the second", "below empty lines", "in a timed cell", "a magic", "of several lines"],
)  # fmt: skip
def test_a_failure_has_its_line_as_it_was_written(define, source, number, line):
    assert define(source, every_cell=True)["failed"][0][3:] == (number, line)


def test_a_syntax_error_is_told_in_its_own_words(define):
    (failed,) = define("x = (1\ny = 2", every_cell=True)["failed"]
    assert failed[2] == "SyntaxError: '(' was never closed"


def test_of_a_long_line_the_beginning_is_told(define):
    assert define(f"missing('{'x' * 500}')", every_cell=True)["failed"][0][4] == f"missing('{'x' * 191}"


def test_what_failed_in_one_cell_has_not_failed_in_the_next(define):
    assert [cell for cell, *_ in define("1 / 0", "1 / 0", every_cell=True)["failed"]] == [0, 1]


def test_of_very_many_failures_some_are_told(define):
    assert len(define("x\n" * 200, every_cell=True)["failed"]) == 50


def test_a_statement_that_computes_for_too_long_is_stopped():
    with pytest.raises(TimeoutError), shell.within(cpu_s=0.1, waits_s=60):
        while True:
            pass


def test_waiting_takes_nothing_from_the_processor_time_of_a_statement_nor_computing_from_its_waiting():
    with shell.within(cpu_s=0.05, waits_s=60):
        time.sleep(0.2)
    with shell.within(cpu_s=60, waits_s=0.1):
        end = time.process_time() + 0.5
        while time.process_time() < end:
            pass


def test_every_statement_of_a_cell_has_the_limits(monkeypatch):
    given = []
    monkeypatch.setattr(shell, "within", lambda *limits: given.append(limits) or nullcontext())
    shell.CellShell(config=Config({"HistoryManager": {"enabled": False}})).run("x = 1\ny = 2")
    assert given == [(shell.STATEMENT_CPU_S, shell.STATEMENT_WAITS_S)] * 2 == [(15, 30)] * 2


@pytest.mark.parametrize("statement", ["exit()", "quit()"])
def test_what_would_end_a_notebook_s_kernel_fails_alone(statement):
    shell_of_cells = shell.CellShell(config=Config({"HistoryManager": {"enabled": False}}))
    (failure,) = shell_of_cells.run(f"x = 1\n{statement}\ny = 2")
    assert "exit() ends the kernel of a notebook" in failure.said and shell_of_cells.user_ns["y"] == 2


def test_a_statement_that_waits_is_stopped():
    with pytest.raises(TimeoutError), shell.within(60, 0.1):
        time.sleep(60)


def test_after_a_statement_its_time_is_not_counted_any_more():
    with shell.within(60, 0.05):
        pass
    time.sleep(0.1)


# Which cells are run


def test_cells_above_the_check_are_run_and_those_below_are_told_of(define):
    found = define(ANSWER, "def answer():\n    return 2", above=1)
    assert found["defined"] and found["below"]
    assert not define(ANSWER, "other = 3", above=1)["below"]


def test_the_learner_s_own_cells_are_run_although_they_bind_nothing(define):
    assert define(ANSWER, "def broken(:", own=[1])["failed"][0][:2] == (1, "SyntaxError")


def test_what_the_learner_s_own_cells_need_is_run_first(define):
    assert define("import math", "x = 1", "y = math.pi", own=[2])["failed"] == []


def test_what_the_learner_s_own_cells_bind_is_told(define):
    assert define("other = 1", "def mine():\n    pass\nx = 2", own=[1])["binds"] == ["mine", "x"]


def test_names_are_bound_by_any_kind_of_statement():
    source = "import a.b as c\nfrom d import e\nfor f in ():\n    pass\nclass G: ...\nwith h as i:\n    j: int = 3"
    assert cells.bound(source) == {"c", "e", "f", "G", "i", "j"}


# A GPU that is pretended


GPU = {
    "made there": "torch.ones(2, device='cuda').sum()",
    "made there by number": "torch.ones(2, device='cuda:0').sum()",
    "made on a device": "torch.ones(2, device=torch.device('cuda', 0)).sum()",
    "moved": "torch.ones(2).cuda().sum()",
    "moved to": "torch.ones(2).to('cuda').sum()",
    "moved to by number alone": "torch.ones(2).to(0).sum()",
    "moved to, with a dtype": "torch.ones(2).to('cuda', torch.float16).sum()",
    "moved to by keyword": "torch.ones(2).to(device='cuda', dtype=torch.float16).sum()",
    "made like another": "torch.ones_like(torch.ones(2), device='cuda').sum()",
    "lies there": "2 * torch.ones(2).is_cuda",
    "its device": "2 * (torch.ones(2).device.type == 'cuda')",
    "number of its device": "2 + torch.ones(2).get_device()",
    "is there": "2 * torch.cuda.is_available()",
    "waits": "torch.cuda.synchronize() or 2",
    "properties": "torch.cuda.get_device_properties(0).multi_processor_count - 130",
    "capability": "torch.cuda.get_device_capability()[0] - 7",
    "how many": "torch.cuda.device_count() + 1",
    "an event's time": "1 + torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event())",
    "a block on it": "(torch.cuda.device(0).__enter__(), 2)[1]",
    "what else it has": "2 * (torch.cuda.OutOfMemoryError.__name__ == 'OutOfMemoryError')",
    "default device": "torch.set_default_device('cuda') or torch.ones(2).sum()",
    "the device of a block": "(torch.device('cuda').__enter__(), torch.ones(2).sum())[1]",
}


ALL = ", ".join(f"{name!r}: int({asked})" for name, asked in GPU.items())


def test_in_a_cell_a_gpu_is_pretended(define):
    assert define(f"import torch\nanswer = {{{ALL}}}", gpu=True)["value"] == dict.fromkeys(GPU, 2)


def test_in_a_function_a_gpu_is_pretended(workshop):
    source = f"import torch\ndef answer():\n    return list({{{ALL}}}.values())"
    with workshop.sandbox() as sandbox:
        sandbox.ask({"do": "define", "sources": [source], "answer": "answer", "gpu": True}, 60)
        (one,) = sandbox.ask({"do": "answers", "answer": "answer", "given": [()]}, 60)
    assert (one["raised"], one["answer"]) == ("", [2] * len(GPU))


def test_a_gpu_is_pretended_where_that_is_asked_for_alone(define):
    assert define("import torch\nanswer = torch.cuda.is_available()")["value"] is False


def test_a_function_keeps_its_parameters_beside_a_gpu():
    def answer(x, BLOCK=3): ...

    assert str(inspect.signature(cuda.beside_gpu(answer))) == "(x, BLOCK=3)"


def test_a_callable_that_does_not_tell_its_parameters_is_called_beside_a_gpu():
    class Answer:
        __signature__ = "none"

        def __call__(self, x):
            return x.is_cuda

    assert cuda.beside_gpu(Answer())(torch.ones(1)) is True
