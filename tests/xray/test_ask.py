"""A report at once, later, or only where there is one already; and which compiler is asked."""

import os
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from helpers import xray
from helpers.engine import child
from helpers.engine.compiler import verdict
from helpers.engine.compiler.request import request_of
from helpers.xray import compile
from helpers.xray.ask import in_a_child
from small_kernels import ROW, SAME, compiled, copy_kernel, never


def test_another_compiler_answers_what_is_not_kept_and_is_gone_afterwards(folder):
    usual = compiled(copy_kernel)
    figures = {name: value for name, value in asdict(usual).items() if name not in ("target", "num_warps")}
    with xray.compiled_by(lambda request: figures | {"registers": len(request.name)}):
        other = compiled(copy_kernel, num_warps=2)
    assert other.registers == len("copy_kernel")
    assert compiled(copy_kernel, num_warps=8).registers == usual.registers


@pytest.fixture
def held(folder):
    """Holds every answer of the compiler back until `release` is set; `asked` is set when it is asked."""
    events = SimpleNamespace(release=threading.Event(), asked=threading.Event())

    def wait(request):
        events.asked.set()
        assert events.release.wait(60)
        return in_a_child(request)

    with xray.compiled_by(wait):
        yield events
    events.release.set()


def test_submit_does_not_wait_for_the_answer(held):
    future = xray.submit(**SAME)
    assert not future.done()
    held.release.set()
    assert future.result(60) == xray.report(**SAME)


def test_a_question_whose_turn_has_not_come_can_be_withdrawn(held):
    first = xray.submit(**SAME)
    assert held.asked.wait(60)
    second = xray.submit(**{**SAME, "num_warps": 8})
    assert second.cancel()
    held.release.set()
    assert first.result(60).num_warps == 4
    with pytest.raises(CancelledError):
        second.result(60)


def test_submit_gives_the_exception_that_report_raises(folder):
    with pytest.raises(ValueError, match="must be a power of 2"):
        xray.submit(**{**SAME, "BLOCK": 7}).result(60)


def test_submit_refuses_wrong_arguments_at_once():
    with pytest.raises(ValueError, match="num_warps must be"):
        xray.submit(**SAME, num_warps=3)


@pytest.mark.parametrize("failure", [RuntimeError("the child died"), CancelledError()], ids=["died", "cancelled"])
def test_a_question_is_asked_again_when_another_call_ended_the_child(folder, failure):
    failures = [failure]

    def fail_first(request):
        if failures:
            raise failures.pop()
        return in_a_child(request)

    with xray.compiled_by(fail_first):
        assert xray.submit(**SAME).result(60).num_warps == 4


def test_calls_of_the_main_thread_and_questions_do_not_disturb_each_other(folder):
    futures = [xray.submit(**SAME, num_warps=num_warps) for num_warps in (1, 2, 8)]
    pids = {child.call(os.getpid, interpret=False) for _ in range(20)}
    assert len(pids) == 1
    assert [future.result(60).num_warps for future in futures] == [1, 2, 8]


def test_cached_compiles_nothing(folder):
    with xray.compiled_by(never):
        assert xray.cached(**SAME) is None


def test_cached_finds_what_was_reported(folder):
    assert xray.report(**SAME) is xray.cached(**SAME)


def test_a_tile_that_the_compiler_does_not_finish_is_told_its_size_and_the_limit():
    request = request_of(SAME["kernel"], (ROW, ROW, 5), {"BLOCK": 1 << 17}, "sm_90", 4, None)
    limits = replace(verdict.COMPILER_LIMITS, cpu_s=1)
    with pytest.raises(ValueError, match="did not finish copy_kernel with BLOCK=131,072 in 1 s of a processor"):
        child.call(compile.figures_of, request, limits, interpret=False)


PASS_FAILED = "note: Pipeline failed while executing [`TritonGPURemoveLayoutConversions` on 'builtin.module' operation]"


def failing_compiler(request):
    """Prints and raises what Triton does if one of its passes fails."""
    print(PASS_FAILED)
    raise ValueError("copy_kernel does not compile for sm_90: PassManager::run failed")


def test_a_pass_of_the_compiler_that_fails_is_no_refusal_of_the_kernel(monkeypatch, folder):
    monkeypatch.setattr(compile, "compile_kernel", failing_compiler)
    monkeypatch.setattr(verdict, "compiled_whole", lambda request, load: failing_compiler(request))
    request = request_of(SAME["kernel"], (ROW, ROW, 5), {"BLOCK": 8}, "sm_90", 4, None)
    with pytest.raises(ValueError, match="TritonGPURemoveLayoutConversions, failed. The fault is the compiler's"):
        compile.figures_of(request)
    found = verdict.verdict_on([{"asks": request.plain()}], verdict.judge_each)
    assert not found.refusals and found.missing.startswith("Not compiled here: copy_kernel for sm_")
