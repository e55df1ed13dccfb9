"""Text of a model -> labels: only text without readable JSON fails, everything else is repaired and counted.

A written label becomes the label of the bank, or the nearest one by the text encoder.
Shapes: V labels of the bank, E width of the text space. Source: paper, appendix on vision-language baselines;
docs/decisions/vlm.md.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.features import TextConfig
from trajpilot_core.corpora.records.annotations import normalise
from trajpilot_core.encoders.text.base import TextEncoder
from trajpilot_core.encoders.text.registry import load_text_encoder
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import text_fault
from trajpilot_core.store.reading import Inputs

NAMES = ("action_name", "action", "name", "label")
"""Keys under which an object names its action; prompts ask for the first one."""
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)```", re.DOTALL)
BEGUN = re.compile(r'\{\s*"sequence"')
OPEN_PLACE = "-1"
BEGINNINGS = 200
"""Opening brackets of a text that are tried as the start of JSON; an answer of 256 tokens has fewer."""
RANKED = 5
TEXTS_AT_ONCE = 256


@dataclass(frozen=True)
class Parsed:
    """A parsed answer."""

    labels: tuple[str | None, ...]
    """As written; None for an open place. Empty if nothing could be parsed."""
    is_repaired: bool = False
    """The sequence was longer or shorter than requested."""

    @property
    def is_failed(self) -> bool:
        """Nothing could be parsed."""
        return not self.labels


FAILED = Parsed(())


def without_thoughts(text: str) -> str:
    """Return a text without the parts in thinking tags; an unclosed tag removes the rest of the text."""
    rest = THOUGHT.sub("", text)
    return re.split(r"<think>", rest, flags=re.IGNORECASE)[0].replace("</think>", "")


def parse_sequence(text: str, items: int) -> Parsed:
    """Parse a sequence of `items` labels.

    A list that is too long is cut, one that is too short is filled with its last label; both count as repaired. Text
    before and after it, fences and thoughts are ignored. The last readable list that is the value of `sequence` counts;
    without one, the last list.
    """
    plain = without_thoughts(text)
    values = [value for part in (*FENCE.findall(plain), plain) for value in _values(part)]
    sequences = [value["sequence"] for value in values if isinstance(value, dict) and "sequence" in value]
    lists = [value for value in (sequences or values) if isinstance(value, list) and value]
    if not lists:
        return FAILED
    labels = [_label(item) for item in lists[-1]]
    is_repaired = len(labels) != items
    labels = (labels + [labels[-1]] * items)[:items]
    return Parsed(tuple(labels), is_repaired)


def parse_label(text: str) -> Parsed:
    """Parse the label of one segment: the first line that is not empty, without quotes and a final full stop."""
    plain = without_thoughts(text)
    fenced = FENCE.search(plain)
    lines = [line.strip() for line in (fenced.group(1) if fenced else plain).splitlines() if line.strip()]
    label = lines[0].strip("\"'`").rstrip(".").strip() if lines else ""
    return Parsed((label,)) if label else FAILED


def _values(text: str) -> list[JsonValue]:
    """Return the outermost complete JSON objects and lists of a text, in order."""
    values: list[JsonValue] = []
    decoder, at = json.JSONDecoder(), 0
    for _ in range(BEGINNINGS):
        brackets = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
        if not brackets:
            return values
        at = min(brackets)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if BEGUN.match(text, at):
                return values  # a list inside a sequence that was cut off is not the sequence
            at += 1
        else:
            values.append(value)
    return values


def _label(item: Any) -> str | None:
    """Return the label of an item of the list; None if it has none, or one that cannot be stored in a file."""
    if isinstance(item, dict):
        item = next((item[name] for name in NAMES if name in item), None)
    if not isinstance(item, str):
        return None
    label = item.strip()
    return label if label and label != OPEN_PLACE and text_fault(label) is None else None


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
