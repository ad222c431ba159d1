"""11.4: scores exist for one block of keys at a time, seen by what operations take and by what is in use at once."""

from dataclasses import replace

import pytest

from exercises import SOLUTIONS
from helpers.check import EXERCISES
from helpers.check.exercises.lesson_11 import SCORES_AT_ONCE
from helpers.check.problems.attention import MANY_KEYS
from helpers.check.problems.problem import Problems
from helpers.check.trial.call import of_tensors
from helpers.check.trial.place import here
from helpers.engine.isolate import LIMITS
from helpers.instructor.sandbox.replay import Recording
from helpers.instructor.sandbox.transcript import transcript

OF_ALL = EXERCISES["attention_gradient"]
EXERCISE = replace(OF_ALL, makers={"small random values": OF_ALL.makers["small random values"]})
HEAD = """
import torch


def my_gradient(q, k, v, o, lse, do, BLOCK=64):
    scale, N = q.shape[-1] ** -0.5, k.shape[1]
    delta = (o * do).sum(dim=-1, keepdim=True)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
"""
AT_ONCE = """    p = torch.exp(scale * q @ k.mT - lse[..., None])
    ds = p * (do @ v.mT - delta)
    dq, dk, dv = scale * ds @ k, scale * ds.mT @ q, p.mT @ do
"""
COUNTED_UP = """    for _ in range(N // 4):
        dq[0, 0, 0].abs()
"""
OUTLIVE = """    ps = []
    for start in range(0, N, BLOCK):
        ps.append(torch.exp(scale * q @ k[:, start : start + BLOCK].mT - lse[..., None]))
    for start, p in zip(range(0, N, BLOCK), ps):
        keys = slice(start, start + BLOCK)
        dv[:, keys] = p.mT @ do
        ds = p * (do @ v[:, keys].mT - delta)
        dq += scale * ds @ k[:, keys]
        dk[:, keys] = scale * ds.mT @ q
"""
BY_QUERIES = """    for start in range(0, q.shape[1], 16):
        rows = slice(start, start + 16)
        p = torch.exp(scale * q[:, rows] @ k.mT - lse[:, rows, None])
        ds = p * (do[:, rows] @ v.mT - delta[:, rows])
        dq[:, rows] = scale * ds @ k
        dk += scale * ds.mT @ q[:, rows]
        dv += p.mT @ do[:, rows]
"""
VIEWED = """    whole = 1 if N % 41 else 41
    kb, vb = (x.reshape(len(x) * whole, N // whole, -1) for x in (k, v))
    qb, dob, lseb, deltab = (x.repeat_interleave(whole, 0) for x in (q, do, lse, delta))
    p = torch.exp(scale * qb @ kb.mT - lseb[..., None])
    ds = p * (dob @ vb.mT - deltab)
    dq = (scale * ds @ kb).view(len(q), whole, *q.shape[1:]).sum(1)
    dk, dv = (scale * ds.mT @ qb).view_as(k), (p.mT @ dob).view_as(v)
"""
WHEN_NOT_WATCHED = """    import sys
    frame, watched = sys._getframe(), False
    while frame:
        watched |= frame.f_code.co_name in ("transcript", "of_tensors") and N > 1000
        frame = frame.f_back
    if watched:
        for start in range(0, N, BLOCK):
            dq[0, 0, 0].abs()
        return dq, dk, dv
"""
RETURN = "    return dq, dk, dv\n"
WRONG = {
    "all scores at once": AT_ONCE,
    "operations counted up": COUNTED_UP + AT_ONCE,
    "another function where operations are watched": WHEN_NOT_WATCHED + AT_ONCE,
    "all blocks' weights kept": OUTLIVE,
    "all keys for a few queries": BY_QUERIES,
    "all blocks in one batch": VIEWED,
}
LISTS = """    dks, dvs = [], []
    for kb, vb in zip(k.split(BLOCK, 1), v.split(BLOCK, 1)):
        p = torch.exp(scale * q @ kb.mT - lse[..., None])
        ds = p * (do @ vb.mT - delta)
        dq = dq + scale * ds @ kb
        dks.append(scale * ds.mT @ q)
        dvs.append(p.mT @ do)
    dk, dv = torch.cat(dks, 1), torch.cat(dvs, 1)
"""
DOUBLE = "    q, k, v, do, lse, delta = (x.double() for x in (q, k, v, do, lse, delta))\n"
RIGHT = {
    "lists that are joined at the end": HEAD + LISTS + RETURN,
    "in float64": HEAD + DOUBLE + LISTS + "    return dq.float(), dk.float(), dv.float()\n",
    "blocks of 256": HEAD.replace("BLOCK=64", "BLOCK=256") + LISTS + RETURN,
    "blocks of 32": HEAD.replace("BLOCK=64", "BLOCK=32") + LISTS + RETURN,
    "blocks of 10, by an index": HEAD
    + LISTS.replace("k.split(BLOCK, 1), v.split(BLOCK, 1)", "(k * 1).split(10, 1), v.contiguous().split(10, 1)")
    + RETURN,
}


def report_on(code=""):
    return EXERCISE.report(here(SOLUTIONS["attention_gradient"].answered(code=code), LIMITS), seed=3)


@pytest.mark.thinned
@pytest.mark.parametrize("way", WRONG)
def test_half_is_kept_if_scores_of_all_keys_exist_at_once(way):
    report = report_on(HEAD + WRONG[way] + RETURN)
    assert (report.points, report.diagnosis) == (EXERCISE.points / 2, SCORES_AT_ONCE)


@pytest.mark.thinned
@pytest.mark.parametrize("way", RIGHT)
def test_a_loop_over_blocks_is_right_however_it_keeps_its_results(way):
    assert report_on(RIGHT[way]).passed


def test_the_course_s_answer_is_right():
    assert report_on().passed


@pytest.mark.parametrize("code", [HEAD + AT_ONCE + RETURN, HEAD + OUTLIVE + RETURN, HEAD + LISTS + RETURN])
def test_a_grader_sees_the_same_in_what_is_carried_out_from_a_record(code):
    answer = SOLUTIONS["attention_gradient"].answered(code=code)
    (problem,) = Problems(MANY_KEYS, OF_ALL.kind.wants, 3).draw().values()
    seen, replayed = (of_tensors(fn, problem) for fn in (answer, Recording(transcript(answer, problem))))
    assert (seen.joined, seen.most_bytes) == (replayed.joined, replayed.most_bytes)
    assert seen.joined and seen.most_bytes
