"""Clients by the name of the setting, the only list; the one for files and the stub, which ask nobody.

Files of requests are written by `trajpilot vlm requests` and answered by another program, on any machine (`vllm
run-batch -i IN -o OUT --model MODEL`); `trajpilot vlm collect` reads the answers back by digest.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from schemas.vlm import VlmConfig, VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.answers import AnswerFolder
from trajpilot_core.vlm.material import PromptMaterial


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


def client_of(cfg: VlmConfig, material: PromptMaterial) -> Client:
    """Return who answers under these settings. Raises InputError if the settings do not allow to send frames there."""
    if cfg.backend == "http":
        from trajpilot_core.vlm.clients.http import HttpClient

        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers))
    return StubClient(material) if cfg.backend == "stub" else BatchFileClient()


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


NAME = "STUB"


class StubClient:
    """Follows from each label the one that most often comes next in training; it sees no frame."""

    is_stub = True

    def __init__(self, material: PromptMaterial) -> None:
        pairs: dict[str, Counter[str]] = defaultdict(Counter)
        first: Counter[str] = Counter()
        for held in material.sequences_of.values():
            for _, labels in held:
                first[labels[0]] += 1
                for one, after in pairwise(labels):
                    pairs[one][after] += 1
        self._next = {one: _most_frequent(after) for one, after in pairs.items()}
        self._first = _most_frequent(first) if first else material.bank[0]

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield an answer to every request."""
        for request in requests:
            labels = [self._first]
            while len(labels) < request.items:
                labels.append(self._next.get(labels[-1], self._first))
            text = labels[0] if request.question == "segment" else json.dumps({"sequence": labels})
            yield VlmReply(request=request.digest(), text=text, answered_by=NAME)


def _most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent label, of equally frequent ones the first in the alphabet."""
    return min(counted, key=lambda label: (-counted[label], label))
