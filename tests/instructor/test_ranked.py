"""A function of ranks behind walls: a sandbox for each rank, and no way to the other shards but counted messages."""

import threading

import pytest

from corpus import RIGHT, WRONG
from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.instructor.collect.course import GradedCell
from helpers.instructor.grade.exercise import Grader, Handed
from helpers.instructor.grade.ranked import Hall
from helpers.instructor.sandbox.client import Ended
from helpers.ranks.meeting import Ending, Fault
from variants import proofs_but_for

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
        "a rank without columns leaves", "shards gathered", "never waited for", "sums as they are", "four ranks",
        "exit on rank 1", "a maximum, then a sum", "an error",
    ),
    "sharded_loss": (
        "a rank without a target leaves", "end counted", "mean of means", "a one on every rank",
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


def test_the_grader_sees_how_long_messages_are_whatever_a_rank_says_of_them(workshop):
    wrong = WRONG["sharded_softmax"]["logits of the widest shard"]
    code = wrong.code.replace("def softmax_of_shard(", SAYS_LITTLE)
    report = graded(workshop, "sharded_softmax", code=code)
    assert (report.diagnosis.id, report.points) == ("columns_cross", 2)


def header(**others):
    key = ["0", "", 1]
    return {"kind": "barrier", "says": [], "key": key, "members": [0, 1], "line": "", "sent": 0, "received": 0} | others


@pytest.mark.parametrize(
    "sent",
    [
        None,
        {"events": [], "question": []},
        {"events": [], "question": [{"do": "wait"}]},
        {"events": [[header(members=[0, 5]), b""]], "question": [{"do": "hear"}]},
        {"events": [[header(members=[1]), b""]], "question": [{"do": "hear"}]},
        {"events": [[header(), "text"]], "question": [{"do": "hear"}]},
        {"events": [[header(sent="many"), b""]], "question": [{"do": "hear"}]},
        {"events": [[header(), b""]] * 1_001, "question": [{"do": "hear"}]},
        {"events": [[header(), b"0" * (9 << 20)]], "question": [{"do": "hear"}]},
        {"events": [], "question": [{"do": "ask", "key": ["0", "", 7]}]},
    ],
)
def test_what_is_no_message_of_a_rank_ends_it(sent):
    with pytest.raises(Ended):
        Hall(2).device_of(0)(sent)


def test_a_rank_that_waits_for_one_that_has_ended_is_told_so():
    hall, told = Hall(2), []
    asked = {"events": [[header(), b""]], "question": [{"do": "wait", "key": ["0", "", 1], "line": ""}]}
    waiting = threading.Thread(target=lambda: told.append(hall.device_of(0)(asked)))
    waiting.start()
    hall.end(1, Ending())
    waiting.join(timeout=20)
    assert "raised" in told[0] and hall.stopped.fault is Fault.DEADLOCK
