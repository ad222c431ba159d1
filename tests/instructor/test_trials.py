"""Trials that a sandbox has sent: every field has its type, or its default, whatever was sent."""

import pytest
import torch

from helpers.check.trial.trial import Trial
from helpers.engine.isolate import End
from helpers.instructor.grade.answer import _like, _of_length
from helpers.instructor.sandbox import wire
from helpers.instructor.sandbox.trials import failure, received
from posed import posed

X = torch.zeros(2, 3)
OUTSIDE = {"action": "load", "tensor": "x_ptr", "element": -5, "outside": 1, "lanes": 2, "tile": 4}


def test_a_trial_arrives_as_it_was_sent():
    sent = Trial(
        End.RAISED, "NameError: x", "NameError", outside=OUTSIDE, eager=["exp"], pair=[1.0, 2.0], loads=3, tile=8
    )
    assert received(sent.plain()) == sent


@pytest.mark.parametrize("sent", [None, 3, "text", [], {}, {"nonsense": 1}], ids=repr)
def test_what_is_not_a_trial_is_an_empty_one(sent):
    assert received(sent) == Trial()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("end", "nonsense"), ("end", 3), ("raised", 3), ("error", None), ("unwritten", 1), ("outside", [1]),
        ("got_shape", [-1]), ("got_shape", "23"), ("results", [1.0]), ("pair", [1.0]), ("pair", [1.0, 2.0, 3.0]),
        ("pair", ["a", "b"]), ("loads", -1), ("stores", 1.5), ("kernels", True), ("programs", 1 << 61), ("eager", [1]),
        ("loaded", "all"), ("outside", {"action": "load"}), ("outside", {**OUTSIDE, "tile": -1}),
        ("outside", {**OUTSIDE, "element": "0"}),
    ],
)  # fmt: skip
def test_a_field_of_another_type_has_its_default(name, value):
    assert getattr(received({name: value}), name) == getattr(Trial(), name)


def test_the_widest_access_has_between_one_lane_and_what_triton_allows():
    assert (received({"tile": 0}).tile, received({"tile": 1 << 40}).tile) == (1, 1 << 20)


def test_long_words_are_cut():
    longest = {"raised": 1000, "got": 300, "printed": 5000, "race": 300, "line": 300, "cause": 100, "code": 2000}
    sent = received(dict.fromkeys(longest, "x" * 100_000))
    assert {name: len(getattr(sent, name)) for name in longest} == longest


def test_what_a_compiler_is_said_to_have_refused_is_a_few_words():
    refused = received({"refused": {"reason": "x" * 100_000, 3: [4]}}).refused
    assert refused == {"reason": "x" * 1000, "3": "[4]"}
    assert len(received({"refused": {str(n): "" for n in range(100)}}).refused) == 10


def test_a_failure_keeps_how_it_failed_and_nothing_of_a_result():
    how = {"raised": "too slow", "error": "E", "unwritten": True, "line": "x = 1", "cause": "no_grid", "code": "LOAD"}
    how["refused"] = {"kernel": "mine", "reason": "unsupported"}
    sent = Trial(End.OUT_OF_TIME, **how, kernels=3, stored_by_kernels=6, results=[X], loads=6).plain()
    assert failure(sent) == Trial(End.OUT_OF_TIME, **how)


def test_a_failure_that_claims_to_have_returned_is_none():
    assert failure(Trial(results=[X], kernels=1).plain()).end is End.DIED


@pytest.mark.parametrize("y", [torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.float16)], ids=["shape", "dtype"])
def test_a_result_of_another_form_is_described_and_dropped(y):
    trial = _like(posed(X), Trial(results=[y]))
    assert trial.results == [] and trial.got == f"{tuple(y.shape)} {y.dtype}" and trial.got_shape == list(y.shape)


@pytest.mark.parametrize("name", ["loaded", "stored"])
def test_accesses_of_another_shape_are_dropped(name):
    assert getattr(_like(posed(X), Trial(**{name: torch.zeros(2, 2)})), name) is None
    assert getattr(_like(posed(X), Trial(**{name: torch.zeros(2, 3)})), name) is not None


@pytest.mark.parametrize("sent", [None, [], [{}], [{}] * 3], ids=["nothing", "none", "one", "three"])
def test_another_number_of_trials_than_asked_for_fails_them_all(sent):
    assert [one.raised for one in _of_length(sent, 2)] == ["it answered in part only"] * 2


# Words


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("\x1b]0;title\x07", "�]0;title�"), ("a\r\nb\tc", "a\r\nb\tc"), ("50%\rdone", "50%\ndone"),
     ("\u202eright", "�right"), ("é ℓ 👍🏽", "é ℓ 👍🏽"), ("\ud800", "?"), ("$\\frac{$", "$\\frac{$")],
)  # fmt: skip
def test_words_from_a_sandbox_have_no_control_characters(sent, kept):
    assert wire.decode(sent) == kept
    assert wire.decode({"opaque": sent}).shown == kept
