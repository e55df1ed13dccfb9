"""Made-up answers for tests and rehearsals: the most frequent pairs of training labels. STUB wherever they show."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from schemas.vlm import VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.vlm.material import PromptMaterial

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
