"""The guard on prompts: a request that reveals its own answer, or uses test takes, is refused before it is sent."""

import json
from collections.abc import Collection, Sequence

from schemas.vlm import Section, VlmRequest
from trajpilot_core.errors import LeakError
from trajpilot_core.vlm.material import PromptMaterial
from trajpilot_core.vlm.requests import prompt, prompts

WITHOUT_LABELS: tuple[Section, ...] = ("instruction", "frames", "incomplete")
"""Sections that contain no label except recognised endpoints."""


def check_request(
    request: VlmRequest, hidden: Collection[str], given: Collection[str], material: PromptMaterial
) -> None:
    """Refuse a request that leaks.

    Args:
        hidden: true labels that must not appear: those of the middle steps and, without a goal, of the goal; for a
            segment its own label, which may only appear among the examples of style.

    Raises LeakError: a hidden label appears outside of bank and sequences, the bank is incomplete or not in
    alphabetical order, or a sequence or an example is not from the training takes.
    """
    texts = {prompt(name, request.items) for name in prompts()} | {"START:", "GOAL:", ""}
    constants = sorted(texts, key=len, reverse=True)  # the same for all windows with this many labels: they reveal none
    for part in (part for message in request.messages for part in message.parts):
        lines = part.text.splitlines()
        if part.section in WITHOUT_LABELS:
            rest = part.text
            for constant in constants:
                rest = rest.replace(constant, "")
            if part.section == "incomplete":
                rest = _open_places(rest, given)
            leaked = sorted(label for label in hidden if label and label in rest)
            if leaked:
                raise LeakError(f"section {part.section} of the prompt contains the hidden label {leaked[0]!r}")
        elif part.section == "bank":
            listed = _after(lines, prompt("bank"))
            if tuple(listed) != material.bank:
                raise LeakError(
                    f"the {len(listed)} labels listed in the prompt are not the {len(material.bank)} of the bank in "
                    "alphabetical order; another order may reveal how frequent labels are"
                )
        elif part.section == "exemplars":
            unknown = set(_after(lines, prompt("exemplars"))).difference(material.training_labels)
            if unknown:
                raise LeakError(f"the example {min(unknown)!r} is not a label of a training take")
        else:
            for line in _after(lines, prompt("sequences")):
                labels = tuple(json.loads(line))
                if len(labels) != request.items or labels not in material.training_sequences:
                    raise LeakError(f"the sequence {line} is not from a training take")


def _open_places(text: str, given: Collection[str]) -> str:
    """Return the contents of an incomplete sequence apart from open places and recognised labels."""
    try:
        items = json.loads(text)
    except ValueError:
        return text
    if not isinstance(items, list):
        return text
    inner = [str(item) for item in items[1:-1]]
    ends = [str(item) for item in (items[0], items[-1]) if item not in given]
    return "\n".join([*inner, *ends])


def _after(lines: Sequence[str], head: str) -> list[str]:
    """Return the lines after a heading. Raises LeakError if the section does not start with it."""
    heading = head.splitlines()
    if list(lines[: len(heading)]) != heading:
        raise LeakError(f"a section of the prompt starts with {lines[:1]}, not with its heading {heading[:1]}")
    return list(lines[len(heading) :])
