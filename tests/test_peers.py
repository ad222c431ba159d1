"""Kernels of other projects: named where nothing can run, asked for where they are installed, and judged like all."""

import pytest
import torch

from helpers import peers, timing


@pytest.fixture
def on_gpu(monkeypatch):
    """A machine with a GPU on which one of the peers can be imported."""
    monkeypatch.setattr(peers, "ON_GPU", True)
    monkeypatch.setattr(peers, "_PEERS", {"A": ("torch", lambda: abs), "B": ("no_such_package", never)})


def never():
    raise AssertionError("a package that is not installed was imported")


def test_without_a_gpu_all_peers_have_their_names(monkeypatch):
    monkeypatch.setattr(peers, "ON_GPU", False)
    assert set(peers.installed()) == {"Liger", "QuACK"}


def test_on_a_gpu_the_peers_are_those_that_are_installed(on_gpu):
    assert peers.installed() == {"A": abs}


def test_a_peer_that_answers_right_is_not_refused(monkeypatch):
    asked = []
    monkeypatch.setattr(timing, "time_shape", lambda *args, **kwargs: asked.append((*args, kwargs)))
    assert peers.refusal(torch.softmax, 4, 8, "bf16") is None
    assert asked == [({"it": torch.softmax}, 4, 8, "bf16", {"repeats": 2})]


def test_a_peer_that_fails_is_refused_with_the_first_line_of_its_error(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("N must be a multiple of 8\nassert N % 8 == 0")

    monkeypatch.setattr(timing, "time_shape", fail)
    assert peers.refusal(torch.softmax, 4, 7, "bf16") == "N must be a multiple of 8"


@pytest.mark.parametrize("words", [(), ("",), ("\n",)], ids=repr)
def test_a_peer_that_fails_without_a_word_is_refused_by_the_kind_of_its_error(monkeypatch, words):
    def fail(*_, **__):
        raise AssertionError(*words)

    monkeypatch.setattr(timing, "time_shape", fail)
    assert peers.refusal(torch.softmax, 4, 7, "bf16") == "AssertionError"
