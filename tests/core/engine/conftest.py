"""A corpus of the toy stages and the options of a run over it."""

from pathlib import Path

import pytest
from toy_stages import options, write_corpus

from schemas.config import RunOptions


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    return options(tmp_path / "root", corpus)
