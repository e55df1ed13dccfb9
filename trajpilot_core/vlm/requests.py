"""Requests: parts of each question, their order, and the texts of the prompts (templates/).

Source: paper, appendix on vision-language baselines (content, order and form of the answer; the wording is ours).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schemas.base import canonical_json
from schemas.vlm import CompletedVlm, Question, Section, VlmMessage, VlmPart, VlmRequest
from trajpilot_core.store.reading import Inputs
from trajpilot_core.vlm.material import AskedWindow, PromptMaterial, load_material

TEMPLATES = Path(__file__).parent / "templates"
QUESTIONS = ("plan", "anticipate", "segment", "fill_system", "fill", "continue")
NAMES = (*QUESTIONS, "bank", "exemplars", "sequences", "incomplete")
"""Templates, each with the suffix .txt; {items} is the only placeholder, and braces of JSON are doubled."""
START, GOAL = "START:", "GOAL:"


@cache
def prompts() -> Mapping[str, str]:
    """Return name -> text of the templates."""
    return {name: (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8").strip() for name in NAMES}


def prompt(name: str, items: int = 0) -> str:
    """Return one text with the number of labels filled in."""
    return prompts()[name].format(items=items)


def prompts_digest() -> str:
    """Return the sha256 of names and texts: part of every key."""
    joined = "".join(f"{name}\n{text}\n" for name, text in prompts().items())
    return hashlib.sha256(joined.encode()).hexdigest()


@dataclass(frozen=True)
class Asking:
    """What all requests of a run share."""

    config: CompletedVlm
    material: PromptMaterial

    def bank(self) -> VlmPart:
        """Return the bank as a part of a prompt."""
        return listed("bank", prompt("bank"), self.material.bank)


def load_asking(inputs: Inputs, cfg: CompletedVlm) -> Asking:
    """Read what all requests of a run share."""
    return Asking(cfg, load_material(inputs))


def listed(section: Section, head: str, lines: Sequence[str]) -> VlmPart:
    """Return a heading and its lines."""
    return VlmPart(section=section, text="\n".join([head, *lines]))


def from_user(parts: Sequence[VlmPart]) -> VlmMessage:
    """Return one message; each text but the last ends with a line break, because templates join parts without one."""
    ended = [part.replace(text=f"{part.text}\n") if part.text else part for part in parts[:-1]]
    return VlmMessage(role="user", parts=(*ended, parts[-1]))


def window_request(asking: Asking, horizon: int, start: Sequence[str], goal: Sequence[str] | None) -> VlmRequest:
    """Ask for the whole window from the digests of the frames of Start and, if a goal is given, of Goal."""
    question: Question = "plan" if goal is not None else "anticipate"
    frames = [VlmPart(section="frames", text=START, frames=tuple(start))]
    if goal is not None:
        frames.append(VlmPart(section="frames", text=GOAL, frames=tuple(goal)))
    instruction = VlmPart(section="instruction", text=prompt(question, horizon))
    cfg, bank = asking.config, asking.bank()
    parts = [bank, *frames, instruction] if cfg.bank_first else [*frames, instruction, bank]
    return VlmRequest(
        question=question,
        model=cfg.model,
        messages=(from_user(parts),),
        items=horizon,
        max_tokens=cfg.new_tokens,
    )


def segment_request(asking: Asking, segment_id: str, scenario: str, frames: Sequence[str]) -> VlmRequest:
    """Ask for the label of one segment; examples of style come first, then the frames."""
    cfg = asking.config
    examples = asking.material.exemplars(segment_id, scenario, cfg.exemplars, cfg.seed)
    parts = [
        listed("exemplars", prompt("exemplars"), examples),
        VlmPart(section="frames", frames=tuple(frames)),
        VlmPart(section="instruction", text=prompt("segment", 1)),
    ]
    return VlmRequest(
        question="segment",
        model=cfg.model,
        adapter=cfg.adapter,
        messages=(from_user(parts if examples else parts[1:]),),
        items=1,
        max_tokens=cfg.segment_tokens,
    )


def fill_request(
    asking: Asking, window: AskedWindow, scenario: str, start: str | None, goal: str | None, *, has_goal: bool
) -> VlmRequest:
    """Ask a text model for the steps between recognised labels (None: could not be parsed); without `has_goal`, for
    those after Start."""
    cfg, horizon = asking.config, window.horizon
    examples = asking.material.sequences(window, scenario, cfg.sequences, cfg.seed)
    ends: list[str | int] = [start or -1, *[-1] * (horizon - 2), (goal or -1) if has_goal else -1]
    parts = [
        listed("sequences", prompt("sequences"), [canonical_json(list(labels)) for labels in examples]),
        VlmPart(section="instruction", text=prompt("fill" if has_goal else "continue", horizon)),
        VlmPart(section="incomplete", text=f"{prompt('incomplete')}\n{canonical_json(list(ends))}"),
    ]
    parts = parts if examples else parts[1:]
    ordered = [asking.bank(), *parts] if cfg.bank_first else [*parts, asking.bank()]
    system = VlmPart(section="instruction", text=prompt("fill_system"))
    return VlmRequest(
        question="fill" if has_goal else "continue",
        model=cfg.filler,
        messages=(VlmMessage(role="system", parts=(system,)), from_user(ordered)),
        items=horizon,
        max_tokens=cfg.new_tokens,
    )
