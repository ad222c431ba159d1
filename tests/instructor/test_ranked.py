"""A function of ranks behind walls: a sandbox for each rank, and no way to the other shards but counted messages."""

import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed
from helpers.instructor.grade.ranked import Hall
from helpers.instructor.sandbox.client import Ended
from helpers.ranks.meeting import Ending, Fault
from variants import Variant, proofs_but_for

NAMES = "sharded_softmax", "sharded_loss"


def graded(workshop, name, *replaced, code=""):
    """The report on an answer as a grader makes it."""
    cells = list(SOLUTIONS[name].cells)
    for old, new in zip(replaced[::2], replaced[1::2], strict=True):
        cells = [cell.replace(old, new) for cell in cells]
    sources = [*cells, code] if code else cells
    answer = SOLUTIONS[name].answer
    cell = GradedCell(f"{name}-check", name, answer, EXERCISES[name].points, ())
    scored = Grader(workshop.for_submission(), {}).score(Handed(sources, len(sources)), cell)
    return scored.report


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_gets_full_points(name, workshop):
    report = graded(workshop, name)
    assert [finding for finding in report.findings if not finding.ok] == []
    assert report.points == EXERCISES[name].points


TOLD = {
    "sharded_softmax": (
        "a rank without columns leaves", "shards gathered", "never waited for", "sums_as_they_are, 0", "four ranks",
        "exit on rank 1", "a maximum, then a sum", "an error",
    ),
    "sharded_loss": (
        "a rank without a target leaves", "end counted", "mean_of_own_rows, 0", "one_hot_on_each_rank, 0",
        "0 / 0 in the gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "fault"), proofs_but_for([(name, one) for name in NAMES for one in TOLD[name]], 4))
def test_a_wrong_answer_is_named_as_in_a_notebook(name, fault, workshop):
    wrong = WRONG[name][fault]
    report = graded(workshop, name, *wrong.replaced, code=wrong.code)
    assert not report.passed and report.diagnosis.id == wrong.named


@pytest.mark.parametrize(
    ("name", "way"), proofs_but_for([(name, way) for name in NAMES for way in RIGHT[name]], 2)
)  # fmt: skip
def test_a_right_answer_written_differently_gets_full_points(name, way, workshop):
    right = RIGHT[name][way]
    report = graded(workshop, name, *right.replaced, code=right.code)
    assert report.points == EXERCISES[name].points


LOOKS_AT_OTHERS = """
def softmax_of_shard(shard, group):
    import gc
    found = [x for x in gc.get_objects() if isinstance(x, torch.Tensor) and x.dim() == 2 and len(x) == len(shard)]
    whole = max(found, key=lambda x: x.untyped_storage().nbytes())
    whole = whole.as_strided((len(shard), whole.untyped_storage().nbytes() // 4 // len(shard)), None or (1, 1))
    return torch.softmax(torch.cat([shard, whole], dim=1), dim=1)[:, : shard.shape[1]]
"""
SAYS_NOTHING = """from helpers.ranks import group as others
others.RankGroup.announce = lambda self, call, moves: type("Done", (), {"wait": lambda self: True})()
def softmax_of_shard("""
SAYS_LITTLE = """from helpers.ranks import group as others
others.traffic_of = lambda call, world, rank: (0, 0)
def softmax_of_shard("""


def test_an_answer_that_looks_for_the_other_shards_does_not_find_them(workshop):
    assert graded(workshop, "sharded_softmax", code=LOOKS_AT_OTHERS).points == 0


def test_without_messages_nothing_of_the_other_shards_arrives(workshop):
    report = graded(workshop, "sharded_softmax", "def softmax_of_shard(", SAYS_NOTHING)
    assert report.attempted and report.points == 0


WIDEST = WRONG["sharded_softmax"]["logits of the widest shard"].code
TWICE = WRONG["sharded_softmax"]["a maximum, then a sum"].code
COLUMNS_FOR_NOTHING = WIDEST.replace("def softmax_of_shard(", SAYS_LITTLE)
KEEPS_WHAT_CAME = """
brings, kept = softmax_of_shard, {}
def softmax_of_shard(shard, group):
    if kept.get("shard") is not shard:
        kept.update(shard=shard, y=brings(shard, group))
    return kept["y"]
"""
LOOKS_BESIDE_ITS_SHARD = """
def softmax_of_shard(shard, group):
    whole = shard.as_strided((len(shard), shard.stride(0)), (shard.stride(0), 1), 0)
    m = whole.amax(1, keepdim=True)
    shift = torch.where(m == -float("inf"), 0.0, m)
    return torch.exp(shard - shift) / torch.exp(whole - shift).sum(1, keepdim=True)
"""
OVERWRITES_AND_HIDES_IT = """
right = softmax_of_shard
def softmax_of_shard(shard, group):
    y = right(shard, group)
    shard.zero_()
    return y
from helpers.check.trial import ranked
torch.equal = ranked.same = lambda *given: True
"""
NOTHING_THE_SECOND_TIME = """
right, calls = softmax_of_shard, []
def softmax_of_shard(shard, group):
    calls.append(1)
    return right(shard, group) if len(calls) % 2 else print()
"""
OVERWRITES_IN_COMPANY = OVERWRITES_AND_HIDES_IT.replace(
    "    shard.zero_()", "    if group.size() > 1:\n        shard.zero_()"
)
OVERWRITES_IN_LARGE_COMPANY = OVERWRITES_IN_COMPANY.replace("size() > 1", "size() > 5")
SAYS_THAT_IT_SENDS = """
from helpers.instructor.sandbox.far_ranks import FarWire
tells = FarWire.send
FarWire.send = lambda self, header, payload=b"": tells(self, header | {{"sent": {sent}}}, payload)
"""


@pytest.mark.parametrize(
    ("code", "points", "named"),
    [
        pytest.param(COLUMNS_FOR_NOTHING, 2, "columns_cross", id="columns for nothing"),
        pytest.param(WIDEST + KEEPS_WHAT_CAME, 2, "columns_cross", id="columns for nothing the second time"),
        pytest.param(TWICE + KEEPS_WHAT_CAME, 2, "too_many_collectives", id="two collectives, then none"),
        pytest.param(LOOKS_BESIDE_ITS_SHARD, 0, "nothing_crosses", id="what lies beside a shard"),
        pytest.param(OVERWRITES_AND_HIDES_IT, 0, None, id="overwritten and hidden"),
        pytest.param(NOTHING_THE_SECOND_TIME, 0, None, id="nothing the second time"),
        pytest.param(OVERWRITES_IN_COMPANY, 0, None, id="overwritten in company alone"),
        pytest.param(OVERWRITES_IN_LARGE_COMPANY, 0, None, id="overwritten by nine ranks alone"),
        pytest.param(SAYS_THAT_IT_SENDS.format(sent="float('inf')"), 4, None, id="it sends inf"),
        pytest.param(SAYS_THAT_IT_SENDS.format(sent="10**400"), 4, None, id="it sends 10**400"),
    ],
)
def test_nothing_that_a_rank_says_of_itself_is_believed(code, points, named, workshop):
    report = graded(workshop, "sharded_softmax", code=code)
    assert report.points == points and (named is None or report.diagnosis.id == named)


@pytest.mark.parametrize(
    ("name", "way"), proofs_but_for([(name, way) for name in NAMES for way in [None, *RIGHT[name]]], 2)
)
def test_messages_are_counted_as_in_a_notebook(name, way, workshop):
    right = RIGHT[name][way] if way else Variant("", (), "")
    there = graded(workshop, name, *right.replaced, code=right.code)
    here = EXERCISES[name].report_on(SOLUTIONS[name].answered(*right.replaced, code=right.code))
    assert [one.seen for one in there.findings if one.extra] == [one.seen for one in here.findings if one.extra]


# What a rank sends, and who may wait for what

KEY = ["0", "", 1]


def header(**others):
    made = {"kind": "barrier", "says": [], "key": KEY, "members": [0, 1], "line": "", "sizes": [0]}
    return made | others


def asks(do, *calls, key=KEY, line=""):
    return {"events": list(calls), "question": [{"do": do, "key": key, "line": line}]}


@pytest.mark.parametrize(
    "sent",
    [
        None,
        {"events": [], "question": []},
        {"events": [], "question": [{"do": "wait"}]},
        asks("hear", [header(members=[0, 5]), b""]),
        asks("hear", [header(members=[1]), b""]),
        asks("hear", [header(members=[0, 0]), b""]),
        asks("hear", [header(key=["0", "0 to 1", 1], members=[0]), b""]),
        asks("hear", [header(), "text"]),
        asks("hear", [header(), b"more than it says"]),
        asks("hear", [header(sizes=[float("inf")]), b""]),
        asks("hear", [header(sizes=[0, 0, 0]), b""]),
        asks("hear", *[[header(), b""]] * 2),
        asks("hear", *[[header(key=["0", "", one]), b""] for one in range(1_001)]),
        asks("hear", [header(sizes=[9 << 20]), b"0" * (9 << 20)]),
        asks("ask", key=["0", "", 7]),
        asks("wait", key=["0", "", 7]),
        asks("wait", key=["0", "", float("inf")]),
    ],
)
def test_what_is_no_message_of_a_rank_ends_it(sent):
    with pytest.raises(Ended):
        Hall(2).device_of(0)(sent)


def test_who_is_no_member_or_has_got_it_waits_for_nothing():
    hall = Hall(3)
    with ThreadPoolExecutor() as pool:
        call = [header(sizes=[1]), b"x"]
        told = pool.map(lambda rank: hall.device_of(rank)(asks("wait", call)), range(2))
        assert [one["answer"] for one in told] == [[{"sizes": [1, 1]}, b"xx"]] * 2
    for rank in range(3):
        with pytest.raises(Ended, match="it waits for a collective that it has not called"):
            hall.device_of(rank)(asks("wait"))


def test_ranks_that_see_other_members_in_a_collective_do_not_go_on():
    hall = Hall(3)

    def meets(rank):
        told = hall.device_of(rank)(asks("wait", [header(members=[1, 2] if rank == 2 else [0, 1]), b""]))
        hall.end(rank, Ending())
        return "raised" in told

    with ThreadPoolExecutor() as pool:
        ends = pool.submit(hall.end, 1, Ending())
        assert list(pool.map(meets, (0, 2))) == [True, True] and ends.result() is None
    assert str(hall.stopped) == "Rank 2 calls barrier among ranks 1 and 2, and rank 0 barrier among ranks 0 and 1."


def test_a_rank_that_waits_for_one_that_has_ended_is_told_so():
    hall, told = Hall(2), []
    asked = asks("wait", [header(), b""])
    waiting = threading.Thread(target=lambda: told.append(hall.device_of(0)(asked)))
    waiting.start()
    hall.end(1, Ending())
    waiting.join(timeout=20)
    assert "raised" in told[0] and hall.stopped.fault is Fault.DEADLOCK


ODD = [None, True, -1, 3, 10**400, math.inf, math.nan, "", "x" * 300, b"", b"12345678", [], {}, [0], ["0", "", 1]]


def messages(draw, world):
    """What a rank sends: calls, most of which fit, each with a question; and odd things here and there."""

    def or_odd(value):
        return draw.choice(ODD) if draw.random() < 0.01 else value

    called = []
    for _ in range(draw.randrange(8)):
        group, channel = draw.choice([("0", ""), ("0", ""), ("1", ""), ("0", "0 to 1")])
        members = list(range(world)) if (group, channel) == ("0", "") else [0, 1]
        if draw.random() < 0.1:
            members = draw.sample(range(world + 1), draw.randint(1, world))
        key = [or_odd(group), or_odd(channel), or_odd(draw.randint(1, 2))]
        made = header(key=or_odd(key), members=or_odd(members), kind=or_odd(draw.choice(["barrier", "all_reduce"])))
        sizes = draw.choice([[8], [8], [4] * 2, [8 // world] * world])
        events = [[made | {"sizes": or_odd(sizes), "says": or_odd([])}, or_odd(b"12345678"[: sum(sizes)])]]
        called.append(key)
        question = {
            "do": or_odd(draw.choice(["wait", "wait", "hear", "ask"])),
            "key": draw.choice(called),
            "line": or_odd(""),
        }
        yield or_odd({"events": or_odd(events * draw.choice([0, 1, 1, 1])), "question": or_odd([or_odd(question)])})


@pytest.mark.parametrize("seed", range(20))
def test_whatever_ranks_send_all_of_them_come_to_an_end(seed):
    draw = random.Random(seed)
    for world in draw.choices((1, 2, 3), k=100):
        hall = Hall(world)

        def rank(number, sent, hall=hall):
            try:
                ending = Ending()
                for one in sent:
                    if "raised" in hall.device_of(number)(one):
                        break
            except Ended as error:
                ending = Ending(Fault.DIED, str(error))
            hall.end(number, ending)

        with ThreadPoolExecutor(world) as pool:
            ranks = [pool.submit(rank, number, list(messages(draw, world))) for number in range(world)]
            assert [one.result(timeout=60) for one in ranks] == [None] * world
        assert hall.stopped is None or str(hall.stopped)
