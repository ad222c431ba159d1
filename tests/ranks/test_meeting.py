"""Who waits for whom, without processes: the faults do not depend on which rank was faster."""

from itertools import permutations

import pytest

from helpers.ranks.meeting import Call, Ending, Fault, Meeting, ranks_in_words

ORDERS = list(permutations(range(3)))
KEY = ("world", "", 1)
REDUCE, BARRIER = Call("all_reduce", ("float32 (2,)",), "line 3"), Call("barrier", (), "line 5")


def waits(meeting, rank, call, key=KEY):
    meeting.call(rank, key, range(meeting.world), call)
    meeting.wait(rank, key, call.line)


def test_what_all_have_called_arrives_once():
    meeting = Meeting(2)
    waits(meeting, 1, REDUCE._replace(parts=(b"b",)))
    assert meeting.arrivals() == [] and meeting.running() == [0]
    waits(meeting, 0, REDUCE._replace(parts=(b"a",)))
    assert sorted(meeting.arrivals()) == [(0, [b"a", b"b"]), (1, [b"a", b"b"])]
    assert meeting.arrivals() == [] and meeting.running() == [0, 1] and meeting.fault() is None
    assert meeting.is_complete(KEY) and not meeting.shared  # nothing is kept of it


def test_of_parts_each_member_gets_its_own():
    meeting = Meeting(2)
    waits(meeting, 1, REDUCE._replace(parts=(b"for 0", b"")))
    waits(meeting, 0, REDUCE._replace(parts=(b"", b"for 1")))
    assert sorted(meeting.arrivals()) == [(0, [b"", b"for 0"]), (1, [b"for 1", b""])]


def test_a_collective_is_open_to_who_has_called_it_and_has_not_got_it():
    meeting = Meeting(2)
    meeting.call(0, KEY, (0, 1), REDUCE)
    assert [meeting.is_open(rank, KEY) for rank in range(2)] == [True, False]
    meeting.wait(0, KEY, "")
    waits(meeting, 1, REDUCE)
    meeting.arrivals()
    assert not meeting.is_open(0, KEY) and all(call.taken for (call,) in meeting.calls())


@pytest.mark.parametrize("order", ORDERS)
def test_a_mismatch_is_the_same_in_every_order(order):
    meeting = Meeting(3)
    for rank in order:
        waits(meeting, rank, BARRIER if rank == 1 else REDUCE)
    assert meeting.arrivals() == []
    said = "Rank 1 calls barrier (line 5), and ranks 0 and 2 all_reduce of float32 (2,) (line 3)."
    assert str(meeting.fault()) == said and meeting.fault().fault is Fault.MISMATCH


class Unread(dict):
    """Collectives, of which only one by its key may be looked at."""

    def values(self):
        raise AssertionError("all collectives are looked at")


def test_whoever_calls_many_has_each_compared_with_its_own_calls_alone():
    meeting = Meeting(2)
    meeting.shared = Unread()
    for number in range(3):
        meeting.call(0, ("world", "", number), (0, 1), REDUCE)
        assert meeting.arrivals() == []


def test_ranks_that_see_other_members_are_a_mismatch():
    meeting = Meeting(3)
    for rank, members in ((0, (0, 1)), (2, (1, 2))):
        meeting.call(rank, KEY, members, REDUCE)
    said = (
        "Rank 2 calls all_reduce of float32 (2,) among ranks 1 and 2 (line 3), and rank 0 all_reduce of float32 (2,) "
    )
    assert str(meeting.mismatch()) == said + "among ranks 0 and 1 (line 3)."


def test_a_message_that_does_not_fit_names_who_sends_and_who_receives():
    meeting = Meeting(3)
    for rank, size in ((2, 4), (0, 3)):
        meeting.call(rank, ("world", "2 to 0, 0", 1), (2, 0), Call("send", (f"float32 ({size},)",)))
    assert str(meeting.mismatch()) == "Rank 2 calls send of float32 (4,), and rank 0 recv of float32 (3,)."


@pytest.mark.parametrize("order", ORDERS)
def test_a_rank_that_raises_comes_before_those_that_wait_for_it(order):
    meeting = Meeting(3)
    for rank in order:
        if rank == 0:
            waits(meeting, rank, REDUCE)
        else:
            meeting.end(rank, Ending(Fault.RAISED, f"Rank {rank} raises", "ValueError"))
    assert not meeting.running()
    assert (meeting.fault().rank, str(meeting.fault())) == (1, "Rank 1 raises")


def test_a_deadlock_names_the_last_collective_of_who_has_returned():
    meeting = Meeting(3)
    for rank in range(3):
        waits(meeting, rank, REDUCE)
    meeting.arrivals()
    for rank in (0, 2):
        waits(meeting, rank, BARRIER, ("world", "", 2))
    meeting.end(1, Ending())
    assert str(meeting.fault()) == (
        "Ranks 0 and 2 wait in barrier (line 5); rank 1 has returned after all_reduce (line 3): a collective needs all "
        "ranks of its group, in the same order."
    )


@pytest.mark.parametrize(
    ("ranks", "words"), [([2], "rank 2"), ([0, 1], "ranks 0 and 1"), ([0, 1, 3], "ranks 0, 1 and 3")]
)
def test_ranks_in_words(ranks, words):
    assert ranks_in_words(ranks) == words
