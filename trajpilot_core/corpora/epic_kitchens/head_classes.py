"""Which class each column of V-JEPA 2's released heads for EPIC-KITCHENS-100 stands for.

The heads do not say: their training numbered the classes in the order in which CPython iterates over a set of the pairs
of the training file, added row by row. It is rebuilt literally here, and a digest holds that this interpreter iterates
as the one that the digest was made with. Source: facebookresearch/vjepa2 at c2963a47, evaluation of anticipation.
"""

import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from trajpilot_core.errors import CheckpointError

Pair = tuple[int, int]
MADE_UP = 4000
"""Pairs of the made-up training file by which the order of sets is checked; the released one has 3,568."""
MADE_UP_DIGEST = "2c7160612a63b155639d610872b5e5b68a1a8e595183f789cfdb939b8466760b"
"""Of its classes by column. Made with CPython 3.11.7; 3.10, 3.12 and 3.13 give the same."""


class HeadClasses(NamedTuple):
    """Class of each column of the three heads."""

    verbs: tuple[int, ...]
    nouns: tuple[int, ...]
    actions: tuple[Pair, ...]
    """Pairs of verb and noun."""

    def digest(self) -> str:
        """Return sha256 (hex) over all three."""
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()


def head_classes(pairs: Iterable[Pair]) -> HeadClasses:
    """Return the classes by column, of the (verb, noun) of every training row in the order of the file."""
    actions = set()
    for pair in pairs:
        actions.add(pair)
    verbs, nouns = set(), set()
    for verb, _ in actions:
        verbs.add(verb)
    for _, noun in actions:
        nouns.add(noun)
    return HeadClasses(tuple(verbs), tuple(nouns), tuple(actions))


def made_up_pairs() -> list[Pair]:
    """Return the rows of a training file that does not exist: verbs to 96, nouns to 299, no pair twice."""
    return [(i * 7919 % 97, i * 104729 // 97 % 300) for i in range(MADE_UP)]


def check_order() -> None:
    """Check that this interpreter iterates over sets as the one that the digest was made with.

    Raises:
        CheckpointError: it does not; the columns of a released head would be taken for others.
    """
    found = head_classes(made_up_pairs()).digest()
    if found != MADE_UP_DIGEST:
        raise CheckpointError(
            f"this Python iterates over sets in another order (digest {found[:12]}, expected {MADE_UP_DIGEST[:12]}); "
            "so the columns of a released head cannot be named; use CPython 3.11"
        )
