"""What a model wrote -> labels: only text without readable JSON fails, all else is repaired and counted.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from trajpilot_core.incoming import text_fault

NAMES = ("action_name", "action", "name", "label")
"""Keys under which an object names its action; the first is what prompts ask for."""
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)```", re.DOTALL)
BEGUN = re.compile(r'\{\s*"sequence"')
OPEN_PLACE = "-1"
BEGINNINGS = 200
"""Brackets of a text at which JSON is looked for: an answer of 256 tokens has fewer worth it."""


@dataclass(frozen=True)
class Parsed:
    """An answer that was read."""

    labels: tuple[str | None, ...]
    """As written; None where a place was left open. Empty where nothing could be read."""
    is_repaired: bool = False
    """It was longer or shorter than asked."""

    @property
    def is_failed(self) -> bool:
        """Nothing could be read."""
        return not self.labels


FAILED = Parsed(())


def without_thoughts(text: str) -> str:
    """Return a text without what stands between tags of thinking; of thoughts without an end nothing is left."""
    rest = THOUGHT.sub("", text)
    return re.split(r"<think>", rest, flags=re.IGNORECASE)[0].replace("</think>", "")


def parse_sequence(text: str, items: int) -> Parsed:
    """Read a sequence of so many labels.

    A list that is too long is cut, one that is too short is filled with its last label, and both are counted as
    repaired. Text in front, behind, fences and thoughts do not matter. The last readable list of labels that is the
    value of `sequence` counts; without one, the last list.
    """
    plain = without_thoughts(text)
    found = [value for part in (*FENCE.findall(plain), plain) for value in _values(part)]
    named = [value["sequence"] for value in found if isinstance(value, dict) and "sequence" in value]
    lists = [value for value in (named or found) if isinstance(value, list) and value]
    if not lists:
        return FAILED
    labels = [_label(item) for item in lists[-1]]
    is_repaired = len(labels) != items
    labels = (labels + [labels[-1]] * items)[:items]
    return Parsed(tuple(labels), is_repaired)


def parse_label(text: str) -> Parsed:
    """Read the label of one segment: the first line that is not empty, without quotes and a final point."""
    plain = without_thoughts(text)
    fenced = FENCE.search(plain)
    lines = [line.strip() for line in (fenced.group(1) if fenced else plain).splitlines() if line.strip()]
    label = lines[0].strip("\"'`").rstrip(".").strip() if lines else ""
    return Parsed((label,)) if label else FAILED


def _values(text: str) -> list[JsonValue]:
    """Return the outermost JSON objects and lists of a text, in order; what is cut off is none."""
    found: list[JsonValue] = []
    decoder, at = json.JSONDecoder(), 0
    for _ in range(BEGINNINGS):
        begins = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
        if not begins:
            return found
        at = min(begins)
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if BEGUN.match(text, at):
                return found  # a list inside of a sequence that was cut off is not the sequence
            at += 1
        else:
            found.append(value)
    return found


def _label(item: Any) -> str | None:
    """Return the label that an item of the list names; None where it names none, or one that no file can hold."""
    if isinstance(item, dict):
        item = next((item[name] for name in NAMES if name in item), None)
    if not isinstance(item, str):
        return None
    label = item.strip()
    return label if label and label != OPEN_PLACE and text_fault(label) is None else None
