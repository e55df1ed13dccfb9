"""The originals' modules, imported from checkouts without being put on the path, and our weights under their names."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from schemas.planners import EndpointPlannerConfig, SchemaConfig, ViterbiPlanNetConfig
from trajpilot_core.models.planners.planner import PlannerShape

SCHEMA_ORIGIN = "github.com/WenliangGuo/SCHEMA at 15e64be0d3fd01ee79d4a9cff976159923364d54"
VITERBI_PLAN_NET_ORIGIN = "github.com/Gigi-G/ViterbiPlanNet at 47a698b8ff859232c562a216241af32be36278ab"
UNUSED = (
    "state_decoder.logit_scale",
    "action_decoder.logit_scale",
    "action_decoder.proj.weight",
    "action_decoder.proj.bias",
)
"""Parameters of SCHEMA that nothing reads: they never get a gradient."""
Rules = Sequence[tuple[str, str]]
SHARED_RULES: Rules = (
    (r"^state_encoder\.features\.", "state_encoder.state_encoder."),
    (r"^state_encoder\.sentences\.", "state_encoder.desc_encoder."),
    (r"^state_encoder\.log_temperature$", "state_encoder.logit_scale"),
    (r"^task_head\.1\.", "task_decoder.0."),
    (r"^task_head\.4\.", "task_decoder.3."),
)
SCHEMA_RULES: Rules = (
    *SHARED_RULES,
    (r"^state_decoder\.ends\.", "state_decoder.feat_encode."),
    (r"^state_decoder\.out\.", "state_decoder.state_proj."),
    (r"^(state|action)_decoder\.task\.", r"\1_decoder.query_embed."),
    (r"\.own\.norm\.", ".self_attn.ln."),
    (r"\.own\.", ".self_attn."),
    (r"\.memory\.norm\.", ".cross_attn.ln."),
    (r"\.memory\.", ".cross_attn."),
    (r"\.attention\.out\.", ".attention.out_proj."),
    (r"\.hidden\.", ".mlp."),
    (r"\.norms\.0\.", ".norm1."),
    (r"\.norms\.1\.", ".norm2."),
    (r"\.norms\.2\.", ".norm3."),
)
VITERBI_PLAN_NET_RULES: Rules = (
    *SHARED_RULES,
    (r"^ends\.", "viterbi_plan.encoder."),
    (r"^emission\.1\.", "viterbi_plan.projection_mlp.0."),
    (r"^emission\.4\.", "viterbi_plan.projection_mlp.3."),
)


@contextmanager
def borrowed(name: str, folder: Path) -> Iterator[None]:
    """Let `import NAME.x` find the files of `folder` while this lasts; what was imported lives on, its names do not."""
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    before = {known: module for known, module in sys.modules.items() if known.split(".")[0] == name}
    for known in before:
        del sys.modules[known]
    sys.modules[name] = package
    try:
        yield
    finally:
        for known in [known for known in sys.modules if known.split(".")[0] == name]:
            del sys.modules[known]
        sys.modules.update(before)


def module_of(original: Path, project: str, name: str) -> ModuleType:
    """Import one file of `models/` of an original."""
    with borrowed("models", original / project / "models"):
        return import_module(f"models.{name}")


def renamed(state: Mapping[str, Tensor], rules: Rules) -> dict[str, Tensor]:
    """Return our weights under an original's names; query, key and value become the one matrix they are there."""
    found = {}
    for name, tensor in joined(state).items():
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        found[name] = tensor
    return found


def joined(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join `query` and `key_value` of every attention to `in_proj`."""
    found = {name: tensor for name, tensor in state.items() if ".attention.key_value." not in name}
    for name in [name for name in found if ".attention.query." in name]:
        pair = [found.pop(name), state[name.replace(".query.", ".key_value.")]]
        found[name.replace(".query.", ".in_proj_")] = torch.cat(pair)
    return found


def load(original: nn.Module, weights: Mapping[str, Tensor], unused: Sequence[str] = ()) -> nn.Module:
    """Load weights into an original, in evaluation mode.

    Raises:
        ValueError: a parameter of either side is without counterpart, `unused` ones of the original excepted.
    """
    wanted = {name for name, _ in original.named_parameters()} - set(unused)
    if wanted != set(weights):
        raise ValueError(f"without counterpart: {sorted(wanted ^ set(weights))}; extend the rules of the renaming")
    original.load_state_dict(dict(weights), strict=False)
    return original.eval()


def settings(cfg: EndpointPlannerConfig, tasks: int) -> SimpleNamespace:
    """Return our settings as the originals' command line has them."""
    return SimpleNamespace(
        attn_heads=cfg.heads,
        mlp_ratio=cfg.mlp_ratio,
        num_layers=cfg.layers,
        dropout=cfg.dropout,
        uncertain=False,
        dataset="crosstask",
        num_tasks=tasks,
        no_state_task=isinstance(cfg, SchemaConfig) and not cfg.has_task_input,
    )


def schema_original(original: Path, cfg: SchemaConfig, shape: PlannerShape, horizon: int, ours: nn.Module) -> Any:
    """Return SCHEMA's own network with the weights of `ours`."""
    network = module_of(original, "SCHEMA", "procedure_model").ProcedureModel(
        shape.feature_width,
        shape.text_width,
        cfg.width,
        horizon,
        shape.actions,
        shape.tasks,
        settings(cfg, shape.tasks),
    )
    return load(network, renamed(ours.state_dict(), SCHEMA_RULES), UNUSED)


def viterbi_plan_net_original(
    original: Path, cfg: ViterbiPlanNetConfig, shape: PlannerShape, horizon: int, ours: nn.Module
) -> Any:
    """Return ViterbiPlanNet's own network with the weights of `ours`."""
    network = module_of(original, "ViterbiPlanNet", "procedure_model").ProcedureModel(
        shape.feature_width, shape.text_width, cfg.width, horizon, shape.actions, settings(cfg, shape.tasks)
    )
    return load(network, renamed(ours.state_dict(), VITERBI_PLAN_NET_RULES))
