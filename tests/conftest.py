"""The order of the tests."""

from pathlib import Path

import pytest

LONGEST = ("orchestration", "crashes")
"""Folders with few tests that take minutes. They go first: else one worker does them alone in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest folders first; files keep their order, which `--no-loadscope-reorder` hands to the workers."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(here).parts[0] not in LONGEST)
