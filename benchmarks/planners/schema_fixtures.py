"""What the original SCHEMA answers: state encoder, one decoder layer, both decoders, losses, gradient."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.planners.cases import SCHEMA_CASES, SHAPE, Batch, batch, marked_dropout, query, schema
from benchmarks.planners.originals import schema_original


def fixtures(original: Path) -> Mapping[str, Any]:
    """Return each case's outputs by name."""
    return {name: answers(original, *case) for name, case in SCHEMA_CASES.items()}


def answers(original: Path, has_task_input: bool, horizon: int) -> Mapping[str, Any]:
    ours, given = schema(has_task_input, horizon), batch(horizon)
    theirs = schema_original(original, ours.cfg, SHAPE, horizon, ours)
    states, _, contrast, sentences = theirs.state_encoder(given.features, given.descriptions)
    task_logits = theirs.task_decoder(states.reshape(len(states), -1))
    decoded = theirs.state_decoder(states, sentences, task_logits)
    memory = sentences.flatten(0, 1)[:, None].expand(-1, len(states), -1)
    tokens = query(horizon, ours.cfg.width).transpose(0, 1)
    with torch.no_grad():
        outputs = theirs.forward_once(given.features, given.descriptions, given.tasks)
    return {
        "states": states,
        "sentences": sentences,
        "contrast": contrast,
        "task_logits": task_logits,
        "layer": theirs.state_decoder.decoder.layers[0](tokens, memory, memory).transpose(0, 1),
        "decoded_states": decoded,
        "action_logits": outputs["action"].reshape(len(states), horizon, -1),
        "evaluation": loss(theirs, given),
        "training": loss(theirs.train(), given),
    }


def loss(theirs: Any, given: Batch) -> Mapping[str, Any]:
    features = given.features.clone().requires_grad_()
    with marked_dropout():
        losses = theirs(features, given.descriptions, given.labels, given.tasks)[2]
    total = losses["action"] + losses["state_encode"] + losses["task"] + 0.1 * losses["state_decode"]  # as its main.py
    names = {"action": "action", "state": "state_encode", "middle": "state_decode", "task": "task"}
    return {
        "terms": {ours: losses[name] for ours, name in names.items()},
        "total": total,
        "gradient": torch.autograd.grad(total, features)[0],
    }
