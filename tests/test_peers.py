"""Kernels of other projects: named where nothing can run, asked for where they are installed, and judged like all."""

import pytest
import torch

from helpers import peers, timing
from helpers.engine import child


@pytest.fixture
def on_gpu(monkeypatch):
    """A machine with a GPU on which one of the peers can be imported."""
    monkeypatch.setattr(peers, "ON_GPU", True)
    offered = {"A": peers._Peer(lambda: True, lambda: abs), "B": peers._Peer(lambda: False, never)}
    monkeypatch.setattr(peers, "_PEERS", offered)


def never():
    raise AssertionError("a package that is not installed was imported")


def test_without_a_gpu_all_peers_have_their_names(monkeypatch):
    monkeypatch.setattr(peers, "ON_GPU", False)
    assert set(peers.installed()) == {"Liger", "QuACK", "cluster"}


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


@pytest.mark.parametrize(
    ("version", "capability", "has"),
    [
        ("3.7.1", (9, 0), False),
        ("3.8.0", (9, 0), True),
        ("3.10.0+git1", (10, 0), True),
        ("3.9.0", (8, 9), False),
    ],
)
def test_a_cluster_needs_a_gpu_that_has_them_and_a_triton_that_crosses_them(version, capability, has):
    assert peers.has_clusters(version, capability) is has


CLUSTERS = {
    100: (128, 1, 1),
    4096: (4096, 1, 4),
    32768: (32768, 1, 16),
    32769: (65536, 16, 2),
    131072: (131072, 16, 4),
    262144: (262144, 16, 8),
}
"""By columns: lanes, programs, warps of each."""


def cluster_of(n_cols):
    from helpers.peers import cluster

    return cluster.cluster_of(n_cols)


@pytest.mark.parametrize("n_cols", CLUSTERS)
def test_a_row_that_one_program_cannot_hold_is_held_by_sixteen(n_cols):
    assert child.call(cluster_of, n_cols, interpret=False) == CLUSTERS[n_cols]
