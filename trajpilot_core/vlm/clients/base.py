"""What answers requests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from schemas.vlm import VlmReply, VlmRequest
from trajpilot_core.arrays import Image


class Client(Protocol):
    """Answers requests, each once and in any order; what is answered is kept before the next is asked."""

    is_stub: bool
    """Its answers are made up."""

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answer to every request.

        Args:
            frames: digest -> (S, S, 3) RGB of what they show.

        Raises:
            InputError: it cannot answer all of them.
        """
        ...
