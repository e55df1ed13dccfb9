"""Clients by the name of the setting (the only list); the clients for files and the stub, which send nothing.

`trajpilot vlm requests` writes files of requests, another program answers them on any machine (`vllm run-batch -i IN -o
OUT --model MODEL`), and `trajpilot vlm collect` reads the answers by digest.
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
    """Answers requests, each once and in any order; each answer is stored before the next request is sent."""

    is_stub: bool
    """The answers are not from a model."""

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answer to every request.

        Args:
            frames: digest -> (S, S, 3) RGB of their frames.

        Raises:
            InputError: a request cannot be answered.
        """
        ...


def client_of(cfg: VlmConfig, material: PromptMaterial) -> Client:
    """Return the client of these settings. Raises InputError if they do not allow sending frames to the server."""
    if cfg.backend == "http":
        from trajpilot_core.vlm.clients.http import HttpClient

        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers))
    return StubClient(material) if cfg.backend == "stub" else BatchFileClient()


class BatchFileClient:
    """Reports missing answers."""

    is_stub = False

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Send nothing: answers must be collected first.

        Raises:
            InputError: a request has no answer.
        """
        if requests:
            raise InputError(
                f"{len(requests)} requests of a take have no answer yet (the first is {requests[0].digest()}); write "
                "them with `trajpilot vlm requests`, answer them, and read the answers with `trajpilot vlm collect`"
            )
        return iter(())


NAME = "STUB"


class StubClient:
    """Continues each label with the most frequent next label in training; it sees no frames."""

    is_stub = True

    def __init__(self, material: PromptMaterial) -> None:
        pairs: dict[str, Counter[str]] = defaultdict(Counter)
        first: Counter[str] = Counter()
        for sequences in material.sequences_of.values():
            for _, labels in sequences:
                first[labels[0]] += 1
                for label, after in pairwise(labels):
                    pairs[label][after] += 1
        self._next = {label: _most_frequent(after) for label, after in pairs.items()}
        self._first = _most_frequent(first) if first else material.bank[0]

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answer to every request."""
        for request in requests:
            labels = [self._first]
            while len(labels) < request.items:
                labels.append(self._next.get(labels[-1], self._first))
            text = labels[0] if request.question == "segment" else json.dumps({"sequence": labels})
            yield VlmReply(request=request.digest(), text=text, answered_by=NAME)


def _most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent label; ties go to the first in alphabetical order."""
    return min(counted, key=lambda label: (-counted[label], label))
