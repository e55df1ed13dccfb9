"""Corpora without a decoder."""

import pytest
from egoexo_fixture import pretend_probe


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open no video."""
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
