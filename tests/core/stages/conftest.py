"""What the tests of stages that decode share."""

from collections.abc import Iterator

import pytest
import video_fixture


@pytest.fixture
def decoded_here() -> Iterator[None]:
    """No decoder has a process of its own, which imports for a second."""
    with video_fixture.decoded_here():
        yield
