"""The effects of labels and takes of one chain that Scorer+ reads: no seed and no trained model changes them.

Shapes: V labels, T takes that the chain was fitted on, S segments.
Source: docs/decisions/scorer-plus.md.
"""

from dataclasses import fields
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import ScorerPlusConfig
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.errors import StoreError
from trajpilot_core.retrieval.random_effects import RandomEffects, Sizes, fit_effects
from trajpilot_core.store.tensors import Models, Tensors

ENTRY = "label_effects"


class LabelEffects(NamedTuple):
    """What labels and takes add to the segments of one chain."""

    motion: RandomEffects
    """On head motion."""
    looks: RandomEffects
    """On features."""
    recognition: RandomEffects
    """On features and head motion together."""


def fit_label_effects(data: PlanningData, takes: Tensor, plus: ScorerPlusConfig) -> LabelEffects:
    """Fit the effects on `takes`, long of shape (T,)."""
    rows = rows_of_takes(data.segment_take, takes)
    labels_S, take_S = data.labels[rows], torch.searchsorted(takes, data.segment_take[rows])
    sizes = Sizes(len(data.bank), len(takes))

    def effects(x_SC: Tensor, directions: int) -> RandomEffects:
        """Fit the effects on numbers (S, C) of the segments."""
        return fit_effects(x_SC, labels_S, take_S, sizes, directions, plus.effects)

    return LabelEffects(
        effects(data.motions[rows].flatten(1), plus.motion_directions),
        effects(data.features[rows].float().mean(1), plus.look_directions),
        effects(endpoint_vectors(data, rows), plus.recognition_directions),
    )


def endpoint_vectors(data: PlanningData, rows: Tensor) -> Tensor:
    """Return float32 of shape (*rows, D + 96): pooled feature and motions of segments, `rows` long of any shape."""
    return torch.cat([data.features[rows].float().mean(-2), data.motions[rows].flatten(-2)], dim=-1)


def stored_effects(effects: LabelEffects) -> Tensors:
    """Return the effects as the store writes them: `motion/label` and so on -> array of its shape."""
    return {
        f"{name}/{field.name}": getattr(part, field.name).cpu().numpy()
        for name, part in effects._asdict().items()
        for field in fields(part)
    }


def read_effects(models: Models, chain: str, sizes: Sizes, device: str) -> LabelEffects:
    """Read the effects of one chain onto a device.

    Raises:
        StoreError: there are none, or those of other labels or takes.
    """
    found = models.read(chain)

    def part(name: str) -> RandomEffects:
        return RandomEffects(
            *(torch.tensor(found[f"{name}/{field.name}"], device=device) for field in fields(RandomEffects))
        )

    if not found:
        raise StoreError(f"the effects of chain {chain} were left out: Scorer+ was off; run the stage {ENTRY}")
    effects = LabelEffects(*(part(name) for name in LabelEffects._fields))
    have = Sizes(len(effects.motion.label), len(effects.motion.take))
    if have != sizes:
        raise StoreError(
            f"the effects of chain {chain} are of {have.labels} labels and {have.takes} takes, not of "
            f"{sizes.labels} and {sizes.takes}; run the stage {ENTRY}"
        )
    return effects
