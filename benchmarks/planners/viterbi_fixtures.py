"""What the original ViterbiPlanNet answers: its differentiable Viterbi layer, then the network with its losses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.planners.cases import (
    SHAPE,
    VITERBI_HORIZONS,
    Batch,
    batch,
    marked_dropout,
    soft_viterbi_case,
    viterbi_plan_net,
    without_attention_dropout,
)
from benchmarks.planners.originals import module_of, viterbi_plan_net_original


def fixtures(original: Path) -> Mapping[str, Any]:
    """Return the layer's outputs, and those of the network by horizon."""
    networks = {f"network_h{horizon}": network(original, horizon) for horizon in VITERBI_HORIZONS}
    return {"layer": layer(original), **networks}


def layer(original: Path) -> Mapping[str, Any]:
    emission, transition, direction = soft_viterbi_case()
    leaf = emission.requires_grad_()
    path = module_of(original, "ViterbiPlanNet", "modules").StructuredDecoding().DVL(transition, leaf)
    return {"path": path, "gradient": torch.autograd.grad((path * direction).sum(), leaf)[0]}


def network(original: Path, horizon: int) -> Mapping[str, Any]:
    ours, given = viterbi_plan_net(horizon), batch(horizon)
    theirs = viterbi_plan_net_original(original, ours.cfg, SHAPE, horizon, ours)
    with torch.no_grad():
        outputs = theirs.forward_once(given.features, given.descriptions, given.transition)
    return {
        "path": outputs["action"].reshape(len(given.features), horizon, -1),
        "second_path": outputs["viterbi_logits"],
        "evaluation": loss(theirs, given),
        "training": loss(without_attention_dropout(theirs.train()), given),
    }


def loss(theirs: Any, given: Batch) -> Mapping[str, Any]:
    features = given.features.clone().requires_grad_()
    with marked_dropout():
        losses = theirs(features, given.descriptions, given.labels, given.transition, given.tasks)[2]
    total = losses["action"] + losses["state_encode"] + losses["task"]  # as its main.py
    return {
        "terms": {"action": losses["action"], "state": losses["state_encode"], "task": losses["task"]},
        "total": total,
        "gradient": torch.autograd.grad(total, features)[0],
    }
