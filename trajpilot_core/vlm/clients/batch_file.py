"""Requests that another program answers, on any machine: they are written by `trajpilot vlm requests`.

Whoever has the files answers them (`vllm run-batch -i IN -o OUT --model MODEL`); `trajpilot vlm collect` reads the
answers back by digest. This client answers nothing itself.
"""

from collections.abc import Iterator, Mapping, Sequence

from schemas.vlm import VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError


class BatchFileClient:
    """Says which answers are missing."""

    is_stub = False

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Refuse: an answer that is not there must be collected first.

        Raises:
            InputError: there is a request without an answer.
        """
        if requests:
            raise InputError(
                f"{len(requests)} requests of a take have no answer yet (the first is {requests[0].digest()}); write "
                "them with `trajpilot vlm requests`, have them answered, and read them with `trajpilot vlm collect`"
            )
        return iter(())
