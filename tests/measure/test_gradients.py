"""Who is timed for the gradient, and which peers are left out."""

from types import SimpleNamespace

import pytest

from helpers.measure import gradients


@pytest.fixture
def with_quack(monkeypatch):
    """QuACK can be imported, Liger cannot."""
    monkeypatch.setattr(gradients, "find_spec", lambda name: name == "quack")
    monkeypatch.setattr(gradients, "import_module", lambda _: SimpleNamespace(softmax_bwd=abs))


@pytest.mark.parametrize(("dtype", "peers"), [("fp32", {"QuACK"}), ("bf16", {"QuACK"}), ("fp16", set())])
def test_quack_has_a_part_but_in_fp16(with_quack, dtype, peers):
    assert set(gradients.gradients(dtype, 8)) == {"torch.softmax", "helpers.softmax"} | peers


@pytest.mark.thinned(0)
def test_the_compiled_gradient_has_a_part_at_some_lengths(with_quack):
    assert ["torch.compile" in gradients.gradients("fp16", n_cols) for n_cols in (1024, 1025)] == [True, False]
