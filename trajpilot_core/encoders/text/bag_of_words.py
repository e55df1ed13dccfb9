"""Offline substitute for a text encoder: a random projection of words and word pairs. For the demo only.

Texts that share words are close, others are not: it has no knowledge of language. Vectors of words follow from a hash,
so that no file, no download and no random state is needed.
"""

import hashlib
import itertools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trajpilot_core.encoders.text.base import unit_rows

BIGRAM_WEIGHT = 0.5
"""Weight of a pair of neighbouring words, so that their order counts ("pour water into cup"); a word has 1."""
WORD = re.compile(r"\w+")


class BagOfWords:
    """Sum of hashed word vectors and half-weighted bigram vectors, scaled to unit norm."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.digest = f"bag_of_words:v1:{width}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, width) float32 of unit norm; equal texts give equal bytes on every machine."""
        sums = np.empty((len(texts), self.width))
        for row, text in enumerate(texts):
            words = WORD.findall(text.casefold()) or [text]  # a text without words counts as one word
            pairs = [f"{first} {second}" for first, second in itertools.pairwise(words)]
            weighted = [self._vector(word) for word in words] + [BIGRAM_WEIGHT * self._vector(pair) for pair in pairs]
            sums[row] = np.sum(weighted, axis=0)
        return unit_rows(sums)

    def _vector(self, term: str) -> NDArray[np.float64]:
        """Return signs (width,), +1 or -1, from the bits of a hash of the term."""
        bits = np.unpackbits(np.frombuffer(hashlib.shake_256(term.encode()).digest(-(-self.width // 8)), np.uint8))
        return np.where(bits[: self.width] == 1, -1.0, 1.0)
