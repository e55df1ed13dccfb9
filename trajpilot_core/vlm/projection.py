"""Written labels -> labels of the bank: the label itself, or the nearest one by the text encoder.

Shapes: V labels of the bank, E width of the text space. Source: paper, appendix on vision-language baselines.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.features import TextConfig
from trajpilot_core.corpora.records.labels import normalise
from trajpilot_core.encoders.text.base import TextEncoder
from trajpilot_core.encoders.text.registry import load_text_encoder
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import InputError

RANKED = 5
TEXTS_AT_ONCE = 256


class Ranked(NamedTuple):
    """The labels of the bank that replace one written label."""

    ids: tuple[str, ...]
    """Best five label ids."""
    scores: tuple[float, ...]
    """Their cosines with the label, or with the text if it is not a label; descending, ties by smaller id."""
    is_exact: bool


class Projection:
    """The bank, and the written labels looked up in it; `text_of`: label id -> its text."""

    def __init__(
        self, label_ids: Sequence[str], labels: Sequence[str], vectors_VE: NDArray[np.float32], encoder: TextEncoder
    ) -> None:
        order = np.argsort(np.array(label_ids, dtype=object))
        self._ids = [label_ids[row] for row in order]
        self.text_of = dict(zip(label_ids, labels, strict=True))
        self._bank = np.asarray(vectors_VE[order], np.float32)
        self._row = {normalise(labels[row]): place for place, row in enumerate(order)}
        self._encoder = encoder
        self._known: dict[str, Ranked] = {}

    def look_up(self, written: Iterable[str]) -> None:
        """Rank the bank for every new text; texts outside the bank are encoded together."""
        new = [text for text in dict.fromkeys(written) if text not in self._known]
        exact = {text: self._row[normalise(text)] for text in new if normalise(text) in self._row}
        for text, row in exact.items():
            self._known[text] = self._nearest(self._bank[row], first=row)
        others = [text for text in new if text not in exact]
        for at in range(0, len(others), TEXTS_AT_ONCE):
            part = others[at : at + TEXTS_AT_ONCE]
            for text, vector in zip(part, self._encoder.embed(part), strict=True):
                self._known[text] = self._nearest(vector, first=None)

    def __getitem__(self, text: str) -> Ranked:
        """Return the ranked labels of a text that was looked up."""
        return self._known[text]

    def _nearest(self, vector_E: NDArray[np.float32], first: int | None) -> Ranked:
        """Return the nearest labels; `first`: row of the label itself, in case another label has the same vector."""
        if vector_E.shape != self._bank.shape[1:]:
            raise InputError(
                f"the text encoder returns {vector_E.shape[-1]} numbers, but the bank has {self._bank.shape[1]}: it "
                "was made with another encoder; run text_bank again"
            )
        cosines = self._bank @ vector_E
        if first is not None:
            cosines[first] = max(1.0, float(cosines.max()))
        best = np.argsort(-cosines, kind="stable")[:RANKED]
        if first is not None:
            best = np.array([first, *[row for row in best if row != first]])[:RANKED]
        ids = tuple(self._ids[row] for row in best)
        return Ranked(ids, tuple(float(cosines[row]) for row in best), first is not None)


def load_projection(inputs: Inputs, cfg: TextConfig, device: str) -> Projection:
    """Return the bank of a run, with the encoder that made it; reads text_bank."""
    table = inputs.table("text_bank", ["label_id", "label"])
    vectors = np.asarray(inputs.vectors("text_bank", "vector"), np.float32)
    encoder = load_text_encoder(cfg, device)
    return Projection(table["label_id"].to_pylist(), table["label"].to_pylist(), vectors, encoder)
