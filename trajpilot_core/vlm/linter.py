"""The guard on prompts: a request that reveals its own answer, or uses test takes, is refused before it is sent."""

import json
from collections.abc import Collection, Sequence

from schemas.vlm import Section, VlmRequest
from trajpilot_core.errors import LeakError
from trajpilot_core.vlm.material import PromptMaterial
from trajpilot_core.vlm.requests import Prompts

WITHOUT_LABELS: tuple[Section, ...] = ("instruction", "frames", "incomplete")
"""Sections that contain no label except recognised endpoints."""


def constants_of(prompts: Prompts, items: int) -> frozenset[str]:
    """Return the texts of prompts that are the same for all windows with this many labels: they reveal none."""
    return frozenset(prompts.text(name, items) for name in prompts.texts) | {"START:", "GOAL:", ""}


def check_request(
    request: VlmRequest, hidden: Collection[str], given: Collection[str], material: PromptMaterial, prompts: Prompts
) -> None:
    """Refuse a request that leaks.

    Args:
        hidden: true labels that must not appear: those of the middle steps and, without a goal, of the goal; for a
            segment its own label, which may only appear among the examples of style.

    Raises:
        LeakError: a hidden label appears outside of bank and sequences, the bank is incomplete or not in alphabetical
            order, or a sequence or an example is not from the training takes.
    """
    constants = constants_of(prompts, request.items)
    for part in (part for message in request.messages for part in message.parts):
        lines = part.text.splitlines()
        if part.section in WITHOUT_LABELS:
            rest = part.text
            for constant in sorted(constants, key=len, reverse=True):
                rest = rest.replace(constant, "")
            if part.section == "incomplete":
                rest = _open_places(rest, given)
            leaked = sorted(label for label in hidden if label and label in rest)
            if leaked:
                raise LeakError(f"section {part.section} of the prompt contains the hidden label {leaked[0]!r}")
        elif part.section == "bank":
            _check_bank(_after(lines, prompts.text("bank")), material)
        elif part.section == "exemplars":
            _check_examples(_after(lines, prompts.text("exemplars")), material)
        else:
            _check_sequences(_after(lines, prompts.text("sequences")), request.items, material)


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


def _check_bank(lines: Sequence[str], material: PromptMaterial) -> None:
    if list(lines) != sorted(lines):
        raise LeakError("the bank is not in alphabetical order: another order may reveal how frequent labels are")
    if tuple(lines) != material.bank:
        raise LeakError(
            f"the {len(lines)} labels listed in the prompt differ from the {len(material.bank)} of the bank"
        )


def _check_examples(lines: Sequence[str], material: PromptMaterial) -> None:
    known = frozenset(material.training_labels)
    unknown = [line for line in lines if line not in known]
    if unknown:
        raise LeakError(f"the example {unknown[0]!r} is not a label of a training take")


def _check_sequences(lines: Sequence[str], items: int, material: PromptMaterial) -> None:
    for line in lines:
        labels = tuple(json.loads(line))
        if len(labels) != items or labels not in material.training_sequences:
            raise LeakError(f"the sequence {line} is not from a training take")
