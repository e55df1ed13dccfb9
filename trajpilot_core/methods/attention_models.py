"""The models of retrieval attention that a run has, and what they plan for windows.

Axes: B windows of one horizon H, E text space. Source: docs/decisions/retrieval-attention.md.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import ATTENTION_VARIANTS, AttentionConfig, AttentionVariant
from trajpilot_core.data.chains import fit_takes, frozen
from trajpilot_core.data.cross_fitting import attention_row, model_key
from trajpilot_core.data.planning import rows_of_takes
from trajpilot_core.models.retrieval_attention import AttentionShape, RetrievalAttention, SegmentTables, inputs_of
from trajpilot_core.retrieval.bank import ChainView
from trajpilot_core.retrieval.neighbours import (
    EndKeys,
    NeighbourBank,
    end_keys,
    find_neighbours,
    fit_end_keys,
    found_windows,
    neighbour_bank,
)
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_attention import WINDOWS_AT_ONCE


class AttentionModels(NamedTuple):
    """The frozen models of one seed."""

    config: AttentionConfig
    of_variant: Mapping[AttentionVariant, RetrievalAttention]
    keys: EndKeys
    """Made again from the fitting takes, as the trainings made them."""

    def rows(self) -> set[str]:
        """Return the rows of the tables that they answer."""
        return {attention_row(variant) for variant in self.of_variant}


class AttentionRows(NamedTuple):
    """What rows need for windows of one horizon."""

    models: AttentionModels
    bank: NeighbourBank


def load_attention(entry: Models | None, view: ChainView, seed: int, device: str) -> AttentionModels | None:
    """Build the models of one seed, in evaluation mode.

    Args:
        entry: `attention_models`; None: there is none.
        view: the final chain.
        seed: which models.
        device: where they run.

    Returns:
        None where the run has trained none.
    """
    name = view.chain
    there = [] if entry is None else [v for v in ATTENTION_VARIANTS if model_key(name, seed, v) in entry.keys]
    if entry is None or not there:
        return None
    config = AttentionConfig.model_validate_json(entry.about["config"])
    shape = AttentionShape.from_json(entry.about["shape"])
    models = {v: frozen(RetrievalAttention(config, shape), entry, model_key(name, seed, v), device) for v in there}
    fitted = rows_of_takes(view.data.segment_take, fit_takes(view.data, name))
    return AttentionModels(config, models, fit_end_keys(view.data.features, fitted, config.key_width))


def attention_rows(models: AttentionModels | None, view: ChainView, horizon: int) -> AttentionRows | None:
    """Return what rows need for windows of a horizon; None without models."""
    if models is None:
        return None
    return AttentionRows(models, neighbour_bank(view.data, view.chain, models.keys, horizon))


@torch.inference_mode()
def attention_plans(rows: AttentionRows, view: ChainView, segments_BH: Tensor) -> dict[str, Tensor]:
    """Return row of the tables -> (B, H, E), its plans; neighbours are found once for all of them.

    Args:
        rows: models and bank.
        view: the final chain; latents, states and features are read when this is called.
        segments_BH: windows; their ends alone are read.
    """
    data, models = view.data, rows.models
    tables = SegmentTables(data.features, view.latents, view.states, data.read_labels)
    plans: dict[str, list[Tensor]] = {attention_row(variant): [] for variant in models.of_variant}
    for segments in torch.split(segments_BH, WINDOWS_AT_ONCE):
        keys = end_keys(models.keys, data.features, segments)
        near = find_neighbours(rows.bank, keys, data.segment_take[segments[:, 0]], models.config.neighbours)
        found = found_windows(segments, near, rows.bank.segments)
        for variant, model in models.of_variant.items():
            inputs = inputs_of(tables, found, variant)
            plans[attention_row(variant)].append(model(*inputs, data.read_bank, segments.shape[1]))
    return {row: torch.cat(parts) for row, parts in plans.items()}
