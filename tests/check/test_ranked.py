"""A function of ranks as a check sees it: what is told of a call, and that nothing else is read from what was sent."""

import math
from random import Random

import pytest
import torch
import torch.distributed as dist

from exercises import SOLUTIONS, STUBS
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_13 import BYTES_SENT, SHOWN_BY
from helpers.check.problems.sharded import errors, loss_cases, softmax_cases
from helpers.check.trial.ranked import Ranked, Sharded, arguments, on_ranks
from helpers.ranks.meeting import Fault

INF = float("inf")
ROWS, SIZES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2, 0, 1]


def seen(answer, *args):
    return Ranked.of(on_ranks(answer, ROWS, SIZES, *args))


def gathers(shard, group):
    found = [torch.empty(len(shard)) for _ in range(group.size())]
    dist.all_gather(found, shard.sum(dim=1), group=group)
    return torch.stack(found)


def test_each_rank_is_given_a_view_of_its_columns_and_where_they_begin():
    given = arguments(Sharded(ROWS, SIZES, [0, 2]))
    assert [(shard.shape[1], start) for shard, _, start in given] == [(2, 0), (0, 2), (1, 2)]
    assert all(shard.stride() == (3, 1) for shard, *_ in given)


def test_beside_a_shard_lies_nothing_of_the_others():
    for (shard,) in arguments(Sharded(ROWS, SIZES)):
        whole = shard.as_strided((2, 3), (3, 1), 0)
        assert whole.nansum() == shard.sum()


def test_what_all_ranks_return_and_send_is_told():
    found = seen(gathers)
    assert (found.fault, found.collectives, found.sent, found.left, found.kept) == ("", 1, (8, 8, 8), 0, True)
    sums = torch.tensor([[3.0, 9.0], [0.0, 0.0], [3.0, 6.0]], dtype=torch.float64)
    assert all(torch.equal(one.tensors[0], sums) for one in found.returned)


def says_where_it_is(shard, group):
    return torch.tensor([dist.get_rank(), group.rank(), group.size()]), *gathers(shard, group)


def test_the_group_may_be_the_last_of_several_that_make_up_the_world():
    given = arguments(Sharded(ROWS, [2, 1], None, "bfloat16", groups=2))
    assert [shard[0].tolist() for (shard,) in given] == [[4, 5], [1, 2], [6], [3]]
    assert {shard.dtype for (shard,) in given} == {torch.bfloat16}
    found = Ranked.of(on_ranks(says_where_it_is, ROWS, [2, 1], None, "float32", 2))
    assert [one.tensors[0].tolist() for one in found.returned] == [[1, 0, 2], [3, 1, 2]]
    assert all(one.tensors[1].tolist() == [3, 9] for one in found.returned)
    assert (found.kinds, found.sent) == ((("all_gather",),) * 2, (8, 8))


CASES = {"sharded_softmax": softmax_cases(Random(1)), "sharded_loss": loss_cases(Random(1))}


@pytest.mark.parametrize("name", CASES)
def test_cases_have_many_ranks_a_part_of_the_world_empty_shards_and_each_dtype(name):
    cases = [case for case, _ in CASES[name].values()]
    worlds = [case for case in cases if case.groups == 1]
    assert {len(case.sizes) for case in worlds} >= {1, 2, 3, 5, 9}
    assert {case.sizes.index(0) for case in worlds if 0 in case.sizes} >= {0, 3}
    for some in ([case for case in cases if case.groups > 1], worlds):
        assert {case.dtype for case in some} == {"float32", "bfloat16", "float16"}


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_values_is_on_ranks_that_are_all_of_the_world_and_in_float32(name):
    of_world = [case for case, (one, _) in CASES[name].items() if (one.groups, one.dtype) == (1, "float32")]
    values = {case.split(": ")[1].split(",")[0] for case in CASES[name]}
    assert {case.split(": ")[1].split(",")[0] for case in of_world} == values


def rounded_twice(case):
    """The right softmax of a case, by terms that are rounded to the shards' dtype before they are divided."""
    x = torch.tensor(case.rows)
    y = torch.exp(x - x.amax(dim=1, keepdim=True)).to(getattr(torch, case.dtype)).float()
    return (y / y.sum(dim=1, keepdim=True)).to(getattr(torch, case.dtype)).double()


def test_a_16_bit_result_is_rounded_once():
    one, right = CASES["sharded_softmax"]["two ranks: random numbers, bfloat16"]
    want = torch.tensor(right, dtype=torch.float64)
    assert errors(want.bfloat16().double(), want, one).max() <= 1
    assert errors(rounded_twice(one), want, one).max() > 1


def begins(shard, group):
    dist.all_reduce(shard.sum(dim=1), group=group, async_op=True)


def changes(shard, group):
    shard.mul_(2)
    return shard


def changes_the_target(shard, target, start, group):
    target.clamp_(min=0)
    return 0.0, shard


def test_a_collective_that_nobody_waits_for_and_an_input_that_is_overwritten_are_told():
    assert seen(begins).left == 1 and seen(begins).returned[0].is_none
    assert not seen(changes).kept and seen(changes).left == 0
    assert not seen(changes_the_target, [-100, 1]).kept


def leaves(shard, group):
    return gathers(shard, group) if shard.shape[1] else shard


def differs(shard, group):
    dist.barrier(group=group) if group.rank() else gathers(shard, group)


def raises(shard, group):
    return shard.nothing


@pytest.mark.parametrize(
    ("answer", "fault", "rank"), [(leaves, Fault.DEADLOCK, 1), (differs, Fault.MISMATCH, 0), (raises, Fault.RAISED, 0)]
)
def test_why_ranks_stop_is_told_with_the_rank(answer, fault, rank):
    found = seen(answer)
    assert (found.fault, found.rank) == (fault, rank) and f"ank {rank} " in found.said


@pytest.mark.parametrize(
    "sent",
    [
        None,
        [],
        ["", [], [], []],
        ["", [["all_gather"]], [8], [0], []],
        ["", [["all_gather"]], [8], [0], [None]],
        ["", [["all_gather"]], [8], [0], [[["tensor", "float32", [2, 2], [1.0]], True]]],
        ["", [["all_gather"]], [8], [0], [[["tensor", "float32", [1], ["a"]], True]]],
        ["", [["all_gather"]], [8], [0], [[["unheard of"], True]]],
        *(
            ["", [["all_gather"]], [8], [0], [[found, True]]]
            for found in (["number", 10**400], ["tensor", "x", [INF], []])
        ),
        ["stopped", 3, 0, ""],
    ],
)
def test_anything_else_than_an_account_of_ranks_is_none(sent):
    assert Ranked.of(sent) is None


@pytest.mark.parametrize("name", ["sharded_softmax", "sharded_loss"])
def test_starter_code_is_not_attempted_and_a_collective_is_an_attempt(name):
    assert not EXERCISES[name].report_on(STUBS[name].answered()).attempted
    tried = STUBS[name].answered("    # your code here\n    pass\n", "    dist.barrier(group=group)\n")
    report = EXERCISES[name].report_on(tried)
    assert report.attempted and not report.passed


def test_the_course_s_own_functions_are_right_and_no_answer():
    for name in ("sharded_softmax", "sharded_loss"):
        report = EXERCISES[name].report_on(EXERCISES[name].ours)
        wrong = [finding.case for finding in report.findings if not finding.ok]
        assert (wrong, report.points) == (["your own code"], 0)


BYTES = {
    "numbers_for_bytes": [1000, 3, 2],
    "bytes_of_all_ranks": [16_000, 48, 32],
    "one_all_reduce": [4000, 4, 8],
    "numbers_of_a_pair": [4000, 12, 4],
    "bytes_of_another_dtype": [2000, 12, 8],
}


@pytest.mark.parametrize(("id", "given"), BYTES.items(), ids=BYTES)
def test_a_wrong_count_of_bytes_is_named(id, given):
    report = EXERCISES["bytes_sent"].report_on(dict(zip(BYTES_SENT, given, strict=True)))
    assert not report.passed and report.diagnosis.id == id


@pytest.mark.parametrize("value", [math.nan, "8", True, None, [8]])
def test_anything_else_than_the_right_number_of_bytes_is_wrong(value):
    assert not EXERCISES["bytes_sent"].report_on({**BYTES_SENT, "gather the pairs": value}).passed


def test_numbers_of_bytes_may_be_tensors():
    assert EXERCISES["bytes_sent"].report_on({way: torch.tensor(value) for way, value in BYTES_SENT.items()}).passed


SHOWN = {
    "widths_for_values": ("smoothed", "uneven shards"),
    "columns_for_rows": ("mean_of_means", "uneven shards"),
    "any_shift_cancels": ("without_maximum", "shifted shard"),
}


@pytest.mark.parametrize(("id", "choice"), SHOWN.items(), ids=SHOWN)
def test_an_input_that_does_not_show_a_bug_is_named(id, choice):
    name, value = choice
    report = EXERCISES["shown_by"].report_on({**SHOWN_BY, name: value})
    assert not report.passed and report.diagnosis.id == id


def test_the_solution_keeps_the_words_of_the_exercise():
    assert EXERCISES["shown_by"].report_on(SOLUTIONS["shown_by"].answered()).passed
    assert not EXERCISES["shown_by"].report_on({**SHOWN_BY, "smoothed": "uneven"}).passed
