"""A corpus of the toy stages and the options of a run over it."""

import os
from pathlib import Path

import pytest
from toy_stages import options, write_corpus

from schemas.config import RunOptions
from trajpilot_core.store import inventory


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk, as no test here cuts the power, and for the steps of file times."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.0)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    return options(tmp_path / "root", corpus)
