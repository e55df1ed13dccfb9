"""The guard on prompts: a request that tells what it asks for, or rests on test takes, is refused before it is sent."""

import json
from collections.abc import Collection, Sequence

from schemas.vlm import Section, VlmRequest
from trajpilot_core.errors import LeakError
from trajpilot_core.vlm.material import PromptMaterial
from trajpilot_core.vlm.prompts import Prompts

WITHOUT_LABELS: tuple[Section, ...] = ("instruction", "frames", "incomplete")
"""Sections that name no label but recognised endpoints."""


def constants_of(prompts: Prompts, items: int) -> frozenset[str]:
    """Return the texts of prompts that are the same for all windows of so many labels: they cannot tell one."""
    return frozenset(prompts.text(name, items) for name in prompts.texts) | {"START:", "GOAL:", ""}


def check_request(
    request: VlmRequest, hidden: Collection[str], given: Collection[str], material: PromptMaterial, prompts: Prompts
) -> None:
    """Refuse a request that leaks.

    Args:
        hidden: true labels that it may not tell: those of the middle and, without a goal, of the goal; of a segment its
            own, which may stand among the examples of style alone.

    Raises:
        LeakError: a hidden label stands outside of bank and sequences, the bank is not in alphabetical order or not the
            whole one, or a sequence or an example is none of the training takes.
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
            told = sorted(label for label in hidden if label and label in rest)
            if told:
                raise LeakError(
                    f"the prompt tells {told[0]!r} in its section {part.section}, which is what it asks for"
                )
        elif part.section == "bank":
            _check_bank(_after(lines, prompts.text("bank")), material)
        elif part.section == "exemplars":
            _check_examples(_after(lines, prompts.text("exemplars")), material)
        else:
            _check_sequences(_after(lines, prompts.text("sequences")), request.items, material)


def _open_places(text: str, given: Collection[str]) -> str:
    """Return what an incomplete sequence says besides open places and recognised labels."""
    try:
        held = json.loads(text)
    except ValueError:
        return text
    if not isinstance(held, list):
        return text
    inner = [str(item) for item in held[1:-1]]
    ends = [str(item) for item in (held[0], held[-1]) if item not in given]
    return "\n".join([*inner, *ends])


def _after(lines: Sequence[str], head: str) -> list[str]:
    """Return the lines behind a heading. Raises LeakError if the section does not begin with it."""
    heading = head.splitlines()
    if list(lines[: len(heading)]) != heading:
        raise LeakError(f"a section of the prompt begins with {lines[:1]}, not with its heading {heading[:1]}")
    return list(lines[len(heading) :])


def _check_bank(lines: Sequence[str], material: PromptMaterial) -> None:
    if list(lines) != sorted(lines):
        raise LeakError("the bank is not in alphabetical order: another order tells how frequent its labels are")
    if tuple(lines) != material.bank:
        raise LeakError(f"the prompt lists {len(lines)} labels, and the bank has {len(material.bank)} others")


def _check_examples(lines: Sequence[str], material: PromptMaterial) -> None:
    known = frozenset(material.training_labels)
    strangers = [line for line in lines if line not in known]
    if strangers:
        raise LeakError(f"the example {strangers[0]!r} is no label of a training take")


def _check_sequences(lines: Sequence[str], items: int, material: PromptMaterial) -> None:
    for line in lines:
        labels = tuple(json.loads(line))
        if len(labels) != items or labels not in material.training_sequences:
            raise LeakError(f"the sequence {line} is none of a training take")
