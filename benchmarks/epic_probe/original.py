"""The original's modules, imported from a checkout without being put on the path.

Of the packages `timm` and `einops` it imports a function each that these networks never call: they are left out.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from benchmarks.epic_probe import cases
from benchmarks.planners.originals import borrowed
from trajpilot_core.encoders.video.vjepa_predictor import VjepaPredictorShape, shape_of, target_places

ORIGIN = (
    "github.com/facebookresearch/vjepa2 at c2963a47433ecca0ad4f06ec28bcfa8cb5b5cefb; of 2.1 its "
    "app/vjepa_2_1/models at be434e4621e78d7cb176ccbea23c136c2141a42f and 16de6c80c258eab97f0517f69399576f06568cb9"
)


@contextmanager
def without_packages() -> Iterator[None]:
    """Let the original import what it takes of packages that are not installed."""
    names = ("einops", "timm", "timm.models", "timm.models.layers")
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    modules = {name: ModuleType(name) for name in names}
    vars(modules["timm.models.layers"])["drop_path"] = vars(modules["einops"])["rearrange"] = None
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)


def module_of(original: Path, name: str) -> Any:
    """Import a module of the original."""
    with without_packages(), ExitStack() as names:
        for one in ("src", "evals", "app"):
            names.enter_context(borrowed(one, original / one))
        return import_module(name)


def probe_answers(original: Path) -> dict[str, Any]:
    """Return the original's logits, its focal losses, and their gradient at the tokens, with our weights."""
    shape = cases.PROBE
    package = "evals.action_anticipation_frozen"
    labels = [{number: number for number in range(count)} for count in (shape.verbs, shape.nouns, shape.actions)]
    classifier = module_of(original, f"{package}.models").AttentiveClassifier(
        *labels,
        embed_dim=shape.width,
        num_heads=shape.heads,
        depth=shape.blocks + 1,
        use_activation_checkpointing=False,
    )
    classifier.load_state_dict(cases.probe().state_dict(), strict=True)
    tokens = cases.probe_tokens().requires_grad_()
    logits: dict[str, Tensor] = classifier.eval()(tokens)
    focal = module_of(original, f"{package}.losses").sigmoid_focal_loss
    losses = {part: focal(logits[part], cases.classes()[:, place]) for place, part in enumerate(logits)}
    total = torch.stack([*losses.values()]).sum()
    gradient = torch.autograd.grad(total, tokens)[0]
    return {"logits": logits, "losses": losses, "total": total, "gradient": gradient}


def predictor_answers(original: Path) -> dict[str, Any]:
    """Return the positions and the tokens that the original predicts, with our weights."""
    side = 16 * cases.GRID
    network = _network(original, cases.PREDICTOR, side)
    network.load_state_dict(cases.predictor().state_dict(), strict=True)
    wrapper = module_of(original, "evals.action_anticipation_frozen.modelcustom.vit_encoder_predictor_concat_ar")
    anticipate = wrapper.AnticipativeWrapper(
        torch.nn.Identity(), network.eval(), frames_per_second=int(cases.RATE_HZ), crop_size=side, num_output_frames=2
    )
    with torch.no_grad():
        tokens = anticipate(cases.context(), torch.tensor(cases.AHEAD_S))
    parameters = sum(parameter.numel() for parameter in _network(original, VjepaPredictorShape(1408), 384).parameters())
    return {"predicted": tokens[:, cases.TUBELETS * cases.GRID**2 :], "parameters": parameters}


def _network(original: Path, shape: VjepaPredictorShape, side: int) -> Any:
    """Return the original's predictor of a size, for frames of so many pixels."""
    return module_of(original, "src.models.predictor").vit_predictor(
        img_size=side,
        embed_dim=shape.embed,
        patch_size=16,
        tubelet_size=2,
        num_frames=64,
        depth=shape.depth,
        num_heads=shape.heads,
        predictor_embed_dim=shape.width,
        num_mask_tokens=shape.mask_tokens,
        uniform_power=True,
        use_mask_tokens=True,
        use_sdpa=True,
        use_silu=False,
        wide_silu=False,
        use_rope=True,
    )


def predictor_2_1_answers(original: Path) -> dict[str, Any]:
    """Return what the original of release 2.1 predicts with our weights, positions scaled and as they are, and its
    parameters at the sizes of ViT-g and ViT-G."""
    found: dict[str, Any] = {}
    for name, is_scaled in (("scaled", True), ("plain", False)):
        network = _network_2_1(original, cases.PREDICTOR_2_1, 16 * cases.GRID, is_scaled)
        network.load_state_dict(cases.predictor_2_1(interpolate_rope=is_scaled).state_dict(), strict=True)
        context = cases.context(cases.PREDICTOR_2_1.levels)
        places = target_places(torch.tensor(cases.AHEAD_S), context.shape[1], cases.GRID, cases.RATE_HZ)
        seen = torch.arange(context.shape[1]).expand(len(context), -1)
        with torch.no_grad():
            found[name] = network.eval()(context, seen, places)[0]
    sizes = {model: shape_of(model, "2.1") for model in ("vit_giant", "vit_gigantic", "vit_base", "vit_large")}
    return found | {
        "parameters": {
            model: sum(one.numel() for one in _network_2_1(original, shape, 384, True).parameters())
            for model, shape in sizes.items()
        }
    }


def _network_2_1(original: Path, shape: VjepaPredictorShape, side: int, is_scaled: bool) -> Any:
    """Return the original's predictor of release 2.1, built as its hub entries build it."""
    return module_of(original, "app.vjepa_2_1.models.predictor").vit_predictor(
        img_size=(side, side),
        patch_size=16,
        use_mask_tokens=True,
        embed_dim=shape.embed,
        predictor_embed_dim=shape.width,
        teacher_embed_dim=shape.out,
        num_frames=64,
        tubelet_size=2,
        depth=shape.depth,
        num_heads=shape.heads,
        num_mask_tokens=shape.mask_tokens,
        use_rope=True,
        uniform_power=False,
        use_sdpa=True,
        use_silu=False,
        wide_silu=True,
        n_output_distillation=shape.levels,
        return_all_tokens=True,
        img_temporal_dim_size=1,
        interpolate_rope=is_scaled,
    )
