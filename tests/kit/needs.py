"""What some tests need of the machine, as marks; the reason of a skip says how to run the test all the same."""

import os
from importlib.metadata import version
from importlib.util import find_spec

import pytest

from helpers import ON_GPU

TRITON = tuple(map(int, version("triton").split(".")[:2]))
"""Major and minor version. From 3.8 on there is `:=`, from 3.9 on `a < b < c`, and no block pointer."""

gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU: make test on a machine with one")
interpreter = pytest.mark.skipif(ON_GPU, reason="about the interpreter: CUDA_VISIBLE_DEVICES= make test")
forked_ranks = pytest.mark.skipif(ON_GPU, reason="about ranks that are forked: CUDA_VISIBLE_DEVICES= make test")
root = pytest.mark.skipif(os.geteuid() != 0, reason="about root's rights: make test as root")
a_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere: make test as another user")
nbgrader = pytest.mark.skipif(not find_spec("nbgrader"), reason="nbgrader is not installed: make install")
distributed = pytest.mark.skipif(not find_spec("distributed"), reason="Dask is not installed: make install")
