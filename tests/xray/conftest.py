"""What the tests of the X-ray share."""

import pytest

from helpers.xray import ask


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache on disk and in memory; returns the folder where reports go."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(ask, "reports", {})
    return tmp_path / "xray"
