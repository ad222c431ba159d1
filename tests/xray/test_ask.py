"""A report at once, later, or only where there is one already; and which compiler is asked."""

import os
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from helpers import xray
from helpers.engine import child
from helpers.xray.ask import in_a_child
from small_kernels import SAME, compiled, copy_kernel, never


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
