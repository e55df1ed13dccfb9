"""Text of a model -> labels: only text without readable JSON fails, everything else is repaired and counted.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from trajpilot_core.incoming import text_fault

NAMES = ("action_name", "action", "name", "label")
"""Keys under which an object names its action; prompts ask for the first one."""
THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"```[a-zA-Z]*\s*(.*?)```", re.DOTALL)
BEGUN = re.compile(r'\{\s*"sequence"')
OPEN_PLACE = "-1"
BEGINNINGS = 200
"""Opening brackets of a text that are tried as the start of JSON; an answer of 256 tokens has fewer."""


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
