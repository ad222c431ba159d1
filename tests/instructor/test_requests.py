"""What a compile request from a sandbox may hold."""

import signal

import pytest
import torch
import triton.language as tl

from helpers import xray
from helpers.engine import isolate
from helpers.engine.compiler import verdict
from helpers.engine.compiler.request import CompileRequest
from helpers.engine.isolate import End, Outcome, out_of_time
from helpers.instructor.sandbox import requests, serve
from helpers.kernels import online_kernel, single_tile_kernel

ROW = torch.empty(64)
TAKEN = verdict.launch_of(single_tile_kernel, (ROW, ROW, 64, 64, 1, 64), {"BLOCK": 64, "num_warps": 8, "maxnreg": 64})
PLAIN = TAKEN["asks"]


def test_the_request_of_a_launch_is_taken_as_it_is():
    assert requests.request_from(PLAIN) == CompileRequest.of(PLAIN)


def test_lists_which_arrive_for_tuples_are_taken():
    sent = {name: list(map(list, value)) if name == "signature" else value for name, value in PLAIN.items()}
    assert requests.request_from(sent) == CompileRequest.of(PLAIN)


@pytest.mark.parametrize(
    "kind",
    [
        "*fp32",
        "i32",
        "constexpr",
        "*kbf16",
        "u1",
        "tensordesc<fp32[8, 8]>",
        "tensordesc<fp16[64]>",
        ("i32", ("*fp32",)),
    ],
    ids=str,
)
def test_a_type_of_the_grammar_is_taken(kind):
    assert requests.request_from(PLAIN | {"signature": (("x", kind),)}).signature == (("x", kind),)


@pytest.mark.parametrize(
    "kind",
    ["tensordesc<fp32[16],print(1)>", "tensordesc<fp32[8, 8],NVMMASharedLayout(1)>", "tensordesc<print(1)[8]>",
     "*fp32 ", "",
     "constexpr\n",
     "fp99", "**fp32", "tensordesc<fp32[]>", "tensordesc<fp32[a]>", 3, None, ((((("i32",),),),),), "kernel"],
    ids=str,
)  # fmt: skip
def test_another_type_is_refused(kind):
    with pytest.raises(requests.BadRequest):
        requests.request_from(PLAIN | {"signature": (("x", kind),)})


@pytest.mark.parametrize(
    "changed",
    [
        {"target": "sm_90 --help"}, {"target": "sm_99"}, {"num_warps": 3}, {"num_warps": True}, {"num_stages": 0},
        {"num_stages": "2"}, {"options": (("ptx_options", "--help"),)}, {"options": (("ptx_options", 1),)},
        {"options": (("maxnreg", "64; x"),)},
        {"name": "x.y"}, {"name": 3}, {"signature": (("x y", "i32"),)}, {"constants": (("N", b"x"),)},
        {"constants": (("N", {"dtype": "x"}),)}, {"constants": (("N", {"kernel": "x"}),)},
        {"constants": (("N", "\x1b[2J"),)},
        {"divisible": (-1,)}, {"divisible": ("0",)}, {"text": 3}, {"text": "x" * 200_000}, {"more": 1},
        {"signature": (("x", "i32"),) * 999}, {"signature": None}, {"constants": (("N", 1 << 99),)},
    ],
    ids=str,
)  # fmt: skip
def test_another_request_is_refused(changed):
    with pytest.raises(requests.BadRequest):
        requests.request_from(PLAIN | changed)


@pytest.mark.parametrize("sent", [None, [], {}, "x", 3], ids=str)
def test_what_is_no_request_is_refused(sent):
    with pytest.raises(requests.BadRequest):
        requests.request_from(sent)


def test_a_dtype_is_found_by_its_name_alone():
    sent = PLAIN | {"constants": (("N", {"dtype": "fp16"}),)}
    assert requests.request_from(sent).constants == (("N", tl.float16),)
    with pytest.raises(ValueError, match="'int3' is not a dtype"):
        CompileRequest.of(PLAIN | {"constants": (("N", {"dtype": "int3"}),)})


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (PLAIN | {"text": "import os\n"}, "a kernel uses the module os"),
        (PLAIN | {"signature": (("x", "tensordesc<fp32[16],print(1)>"),)}, "a compile request with another signature"),
    ],
    ids=["text", "type"],
)
def test_a_task_that_is_not_triton_is_a_kernel_that_is_refused(sent, said):
    (told,) = serve._judge([sent])
    assert told["reason"].startswith(said)
    assert said in serve._compile(sent)["failed"]


def test_the_course_s_requests_are_taken():
    launches = [verdict.launch_of(online_kernel, (ROW, ROW, 64, 64, 1, 64), {"BLOCK": 32}), TAKEN]
    assert all(isinstance(requests.request_from(one["asks"]), xray.CompileRequest) for one in launches)


# What the machine fails at


def failing(error):
    def load(text, name):
        raise error

    return verdict.judge_each([PLAIN], load)[0]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(28, "No space left on device"), "busy"), (FileNotFoundError("ptxas"), "busy"),
        (RuntimeError("`ptxas` failed with error code -9"), "busy"), (MemoryError(), "unknown"),
        (RuntimeError("Cannot allocate memory"), "unknown"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_the_machine_fails_at_is_not_a_refusal(error, told):
    assert failing(error)[told].startswith("the compiler could not work: ")


def test_an_assembler_that_used_up_its_processor_time_has_no_answer_to_the_kernel():
    found = failing(RuntimeError(f"`ptxas` failed with error code -{signal.SIGXCPU:d}"))["unknown"]
    assert found == "the assembler did not come to an end within 30 s of a processor"


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([out_of_time(240), "not run any more"], ["busy", "busy"]),
        ([out_of_time(30, isolate.OF_PROCESSOR_TIME), "not run any more"], ["unknown", "unknown"]),
    ],
    ids=["on the clock", "of a processor"],
)
def test_a_machine_is_busy_if_the_clock_has_run_out_and_not_the_processor_time(monkeypatch, ends, told):
    outcomes = [Outcome(end=End.OUT_OF_TIME, said=ends[0]), Outcome(end=End.NOT_RUN, said=ends[1])]
    monkeypatch.setattr(verdict.isolate, "call_each", lambda *_: outcomes)
    assert [next(iter(one)) for one in verdict.judge_each([PLAIN, PLAIN])] == told


def test_what_the_compiler_refuses_is_one():
    assert failing(ValueError("a kernel of 3 characters"))["reason"] == "a kernel of 3 characters"


def test_an_unknown_answer_is_asked_for_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    asked = []

    def judge(tasks):
        asked.append(len(tasks))
        return [{"unknown": "the compiler did not answer: killed"}] * len(tasks)

    for _ in range(2):
        assert verdict.verdict_on([TAKEN], judge).unknown
    assert asked == [2, 2]
