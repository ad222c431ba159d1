"""Modes that see PyTorch's operations without loading its compiler."""

import subprocess
import sys

import pytest
import torch

from helpers.engine.modes import Mode


class Noted(Mode):
    """Notes the operations that it sees."""

    def __init__(self):
        super().__init__()
        self.names = []
        self.compiled = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name)
        self.compiled |= torch.compiler.is_dynamo_compiling()
        return func(*args, **(kwargs or {}))


def test_a_mode_sees_every_operation():
    with Noted() as noted:
        torch.ones(2) + 1
    assert noted.names == ["aten::ones", "aten::add"]


@pytest.mark.thinned(0)
def test_the_first_count_of_a_process_imports_no_compiler():
    script = (
        "import sys, torch; from helpers import traffic\n"
        "traffic.count(torch.exp, torch.ones(2, 2))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_torch_s_compiler_is_kept_out_of_a_mode():
    compiled = torch.compile(lambda x: torch.exp(x) + 1, backend="eager")
    with Noted() as noted:
        y = compiled(torch.zeros(2))
    assert torch.equal(y, torch.full((2,), 2.0))
    assert "aten::exp" in noted.names
    assert not noted.compiled
