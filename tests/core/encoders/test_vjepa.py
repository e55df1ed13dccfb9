"""The encoder agrees with transformers' VJEPA2Model, and its checkpoints load strictly and safely."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from schemas.features import Release, n_parameters
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder, VjepaSpec
from trajpilot_core.encoders.video.vjepa_checkpoint import encoder_state, file_sha256, load_encoder
from trajpilot_core.errors import CheckpointError

if TYPE_CHECKING:
    from transformers import VJEPA2Model

FRAMES, SIDE = 8, 96
SMALL = VjepaSpec(64, 4, 2, 128)


def randomised(encoder: VjepaEncoder, scale: float = 0.3) -> VjepaEncoder:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for value in encoder.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * scale)
    return encoder.eval()


def clips(n: int = 2, frames: int = FRAMES, side: int = SIDE) -> Tensor:
    return torch.randn((n, 3, frames, side, side), generator=torch.Generator().manual_seed(1))


def theirs(encoder: VjepaEncoder) -> "VJEPA2Model":
    """transformers' model with our weights; the video embedding is folded into the patch embedding's bias."""
    from transformers import VJEPA2Config, VJEPA2Model

    spec, state = encoder.spec, encoder.state_dict()
    config = VJEPA2Config(
        hidden_size=spec.width,
        num_hidden_layers=spec.depth,
        num_attention_heads=spec.heads,
        mlp_ratio=spec.hidden / spec.width,
        crop_size=SIDE,
        frames_per_clip=FRAMES,
        tubelet_size=2,
        patch_size=16,
        pred_hidden_size=32,
        pred_num_attention_heads=2,
        pred_num_hidden_layers=1,
        attn_implementation="eager",
    )
    folded: dict[str, Tensor] = {}
    for name, value in state.items():
        if name.startswith("blocks."):
            _, layer, rest = name.split(".", 2)
            if rest.startswith("attn.qkv"):
                for part, third in zip(("query", "key", "value"), value.chunk(3), strict=True):
                    folded[f"layer.{layer}.attention.{part}.{rest.rsplit('.', 1)[1]}"] = third
            else:
                folded[f"layer.{layer}.{rest.replace('attn.', 'attention.')}"] = value
    embedding = "embeddings.patch_embeddings.proj"
    shift = state["video_mod_embed"].flatten() if spec.release == "2.1" else 0.0
    last = "norms_block.3" if spec.release == "2.1" else "norm"
    folded |= {
        f"{embedding}.weight": state["patch_embed.proj.weight"],
        f"{embedding}.bias": state["patch_embed.proj.bias"] + shift,
        "layernorm.weight": state[f"{last}.weight"],
        "layernorm.bias": state[f"{last}.bias"],
    }
    model = VJEPA2Model(config).eval()
    model.encoder.load_state_dict(folded, strict=True)
    return model


def tokens_of(model: "VJEPA2Model", clip: Tensor) -> Tensor:
    with torch.inference_mode():
        out: Tensor = model(pixel_values_videos=clip.transpose(1, 2), skip_predictor=True).last_hidden_state
    return out


def relative(ours: Tensor, reference: Tensor) -> float:
    """Relative L2 error."""
    return float((ours - reference).norm() / reference.norm())


def test_release_2_0_equals_transformers() -> None:
    """Reference: transformers' VJEPA2Model as it is, which equals Meta's 2.0 code (docs/decisions/vjepa.md).

    Exactly, but for the order in which sums are rounded. Planted fault: the rotation of release 2.1.
    """
    encoder = randomised(VjepaEncoder(VjepaSpec(64, 4, 2, 128, release="2.0")))
    with torch.inference_mode():
        reference = tokens_of(theirs(encoder), clips())
        assert relative(encoder(clips()), reference) < 1e-6
        encoder.spec = VjepaSpec(64, 4, 2, 128, release="2.1")
        encoder._rotations.clear()
        encoder.norms_block = torch.nn.ModuleList([encoder.norm])
        encoder.patch_embed_img, encoder.video_mod_embed = (
            encoder.patch_embed,
            torch.nn.Parameter(torch.zeros(1, 1, 64)),
        )
        assert relative(encoder(clips()), reference) > 1e-2


def test_release_2_1_equals_transformers_with_its_rotation_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """V-JEPA 2.1 differs by interleaved frequencies and scaled positions; both are put into transformers here."""
    from transformers.models.vjepa2 import modeling_vjepa2

    def interleaved(x: Tensor, pos: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        freq = pos.unsqueeze(-1) / 10000 ** (torch.arange(half) / half)
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        turned: Tensor = torch.view_as_real(pairs * torch.polar(torch.ones_like(freq), freq)).flatten(-2)
        return turned

    stock_ids = modeling_vjepa2.VJEPA2RopeAttention.get_position_ids

    def scaled_ids(self: Any, x: Tensor, masks: Any = None) -> tuple[Tensor, ...]:
        time, row, column = stock_ids(self, x, masks)
        scale = 15 / (self.grid_size - 1) if encoder.spec.interpolate_rope else 1.0
        return time, row * scale, column * scale

    for interpolate in (True, False):
        encoder = randomised(VjepaEncoder(VjepaSpec(64, 4, 2, 128, interpolate_rope=interpolate)))
        stock = tokens_of(theirs(encoder), clips())
        with monkeypatch.context() as replaced, torch.inference_mode():
            replaced.setattr(modeling_vjepa2, "rotate_queries_or_keys", interleaved)
            replaced.setattr(modeling_vjepa2.VJEPA2RopeAttention, "get_position_ids", scaled_ids)
            ours = encoder(clips())
            assert relative(ours, tokens_of(theirs(encoder), clips())) < 1e-6
            assert (ours - stock).abs().max() > 1e-2, "the test must be able to tell the releases apart"


def test_the_last_level_of_the_hierarchy_is_the_output() -> None:
    encoder = randomised(VjepaEncoder(SMALL))
    with torch.inference_mode():
        levels, output = encoder(clips(), hierarchical=True), encoder(clips())
    assert levels.shape == (2, 4 * 36, 4 * 64)
    assert torch.equal(levels[..., -64:], output)


def test_levels_lie_at_the_quarters() -> None:
    levels = {12: (2, 5, 8, 11), 24: (5, 11, 17, 23), 40: (9, 19, 29, 39), 48: (11, 23, 37, 47), 2: (0, 0, 1, 1)}
    assert {depth: VjepaSpec(64, depth, 1, 64).levels for depth in levels} == levels


RELEASED_COUNTS = {
    "vit_base": (86_833_152, 158),
    "vit_large": (304_680_960, 302),
    "vit_giant": (1_013_267_968, 494),
    "vit_gigantic": (1_845_216_768, 590),
}
"""Parameters and keys of the released builders, as docs/decisions/vjepa.md lists them."""


def test_sizes_have_the_released_parameter_counts_and_are_counted_without_torch() -> None:
    found = {}
    for model in RELEASED_COUNTS.keys() | {"vit_huge", "tiny"}:
        for release in get_args(Release):
            with torch.device("meta"):
                encoder = VjepaEncoder(dataclasses.replace(SIZES[model], release=release))
            n = sum(value.numel() for value in encoder.parameters())
            assert n_parameters(model, release) == n
            found |= {model: (n, len(encoder.state_dict()))} if release == "2.1" else {}
    assert found.items() >= RELEASED_COUNTS.items()


def test_released_layouts_load_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    encoder, path = randomised(VjepaEncoder(SMALL)), tmp_path / "v.pt"
    expected = encoder(clips())
    for part in ("target_encoder", "ema_encoder", "encoder"):
        for prefix in ("module.backbone.", "module.", "backbone.", ""):
            state = {prefix + name: value for name, value in encoder.state_dict().items()}
            rest = {"predictor": {"module.x": torch.zeros(1)}, "epoch": 3, "opt": {"lr": 0.1}}
            torch.save({part: state, **rest}, path)
            loaded, digest = load_encoder(str(path), "tiny", interpolate_rope=True)
            assert digest == file_sha256(str(path))
            assert torch.equal(loaded(clips()), expected), (part, prefix)
    good = dict.fromkeys(("patch_embed.proj.weight", "norms_block.3.weight"), torch.ones(1))
    bad = dict.fromkeys(good, torch.zeros(1))
    state = encoder_state({"encoder": bad, "ema_encoder": bad, "target_encoder": good}, "x.pt")
    assert state["norms_block.3.weight"] == 1, "the averaged weights are preferred"


def test_every_layout_of_the_older_release_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files hold a table of positions that nothing reads; in a file of 2.1 it is a fault.

    As `facebook/vjepa2-...` lies on the hub, too; with its classifier every name has a prefix.
    """
    monkeypatch.setitem(SIZES, "tiny", SMALL)
    encoder = randomised(VjepaEncoder(VjepaSpec(64, 4, 2, 128, release="2.0")))
    save_file(encoder.state_dict(), tmp_path / "v.safetensors")
    state = {f"module.backbone.{name}": value for name, value in encoder.state_dict().items()}
    state["module.backbone.pos_embed"] = torch.zeros(1, 32, 64)
    torch.save({"target_encoder": state, "encoder": {}, "predictor": {}}, tmp_path / "vitl.pt")
    for n, prefix in enumerate(("", "vjepa2.")):
        names = {prefix + name: value.clone() for name, value in theirs(encoder).state_dict().items()}
        save_file(names, tmp_path / f"hub{n}.safetensors")
    with torch.inference_mode():
        for path in tmp_path.iterdir():
            loaded, _ = load_encoder(str(path), "tiny", interpolate_rope=True)
            assert loaded.spec.release == "2.0", path
            assert torch.equal(loaded(clips()), encoder(clips())), path


def test_an_unknown_layout_lists_its_keys(tmp_path: Path) -> None:
    for content, message in (
        ({"weights": {"a": torch.zeros(1)}, "step": 3}, "step, weights"),
        ({"target_encoder": {"module.cls_token": torch.zeros(1)}}, r"module\.cls_token"),
        ([torch.zeros(1)], "contains a list"),
    ):
        torch.save(content, tmp_path / "v.pt")
        with pytest.raises(CheckpointError, match=message):
            load_encoder(str(tmp_path / "v.pt"), "tiny", interpolate_rope=True)


def test_loading_is_strict(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt"
    write_tiny_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"does not fit vit_base .*256 wide and 2 deep: set features\.model=tiny"):
        load_encoder(str(path), "vit_base", interpolate_rope=True)
    content = torch.load(path, weights_only=True)
    state = content["target_encoder"]
    missing = {name: value for name, value in state.items() if name != "module.backbone.blocks.1.mlp.fc1.bias"}
    for own in (missing, state | {"module.backbone.pos_embed": torch.zeros(1)}):
        torch.save(content | {"target_encoder": own}, path)
        with pytest.raises(CheckpointError, match="does not fit"):
            load_encoder(str(path), "tiny", interpolate_rope=True)


def test_a_wrong_digest_and_damage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny.pt"
    write_tiny_checkpoint(path)
    with pytest.raises(CheckpointError, match="expected 00"):
        load_encoder(str(path), "tiny", interpolate_rope=True, sha256="00")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="refused"):
        load_encoder(str(path), "tiny", interpolate_rope=True)
    with pytest.raises(CheckpointError, match="cannot read"):
        load_encoder(str(tmp_path / "none.pt"), "tiny", interpolate_rope=True)


def test_bf16_stays_close_to_float32(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path / "tiny.pt")
    encoder, _ = load_encoder(str(tmp_path / "tiny.pt"), "tiny", interpolate_rope=True)
    clip = clips(side=64)
    with torch.inference_mode():
        exact = encoder(clip).mean(1)
        rough = encoder.bfloat16()(clip.bfloat16()).float().mean(1)
    assert torch.cosine_similarity(exact, rough).min() > 0.999
