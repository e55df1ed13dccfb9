"""V-JEPA 2's predictor next to the original, weights and inputs from the formula (tests/fixtures/formula.py).

Recorded from github.com/facebookresearch/vjepa2 at c2963a47, release 2.1 at be434e46 and 16de6c80, in float64 and 12
digits (benchmarks/epic_probe of our commit ca04742); compared within 1e-9.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkout import DATA
from formula import filled, numbers
from planners_fixture import check_close
from torch import Tensor

from schemas.config import FeatureConfig
from schemas.features import TUBELET
from trajpilot_core.encoders.video import vjepa_predictor
from trajpilot_core.encoders.video.frozen_vjepa import FrozenVjepa
from trajpilot_core.encoders.video.tiny import load_tiny, write_tiny_checkpoint
from trajpilot_core.encoders.video.vjepa_predictor import (
    VjepaPredictor,
    VjepaPredictorShape,
    load_predictor,
    predictor_state,
    shape_of,
    with_shape,
)
from trajpilot_core.errors import CheckpointError

RECORDED = json.loads((DATA / "epic_probe" / "vjepa2.json").read_text())
THEIRS, THEIRS_2_1 = RECORDED["predictor"], RECORDED["predictor_2_1"]
PREDICTOR = VjepaPredictorShape(embed=10, width=32, depth=2, heads=2, hidden=128, mask_tokens=3)
PREDICTOR_2_1 = dataclasses.replace(PREDICTOR, depth=4, release="2.1", levels=4)
GRID, TUBELETS, RATE_HZ = 3, 4, 8.0
AHEAD_S = (1.0, 1.75)
"""One for each clip: 4 and 7 tubelets are skipped."""


def predictor() -> VjepaPredictor:
    return filled(VjepaPredictor(PREDICTOR))


def predictor_2_1(*, interpolate_rope: bool) -> VjepaPredictor:
    return filled(VjepaPredictor(dataclasses.replace(PREDICTOR_2_1, interpolate_rope=interpolate_rope)))


def predicted(network: VjepaPredictor, ahead_s: tuple[float, ...] = AHEAD_S) -> Tensor:
    """What a predictor says of the context of the formula, of a tubelet so many seconds later, as their code counts."""
    context = numbers(len(AHEAD_S), TUBELETS * GRID**2, network.shape.levels * PREDICTOR.embed, phase=0.3)
    skipped = (torch.tensor(ahead_s) * RATE_HZ / TUBELET).to(torch.int64)
    places = context.shape[1] + GRID**2 * skipped[:, None] + torch.arange(GRID**2)
    with torch.no_grad():
        return network(context, places, GRID)


@pytest.mark.usefixtures("double")
def test_predicted_tokens_are_those_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: another mask token, another moment, interpolated positions."""
    network = predictor()
    check_close(predicted(network), THEIRS["predicted"])
    with monkeypatch.context() as planted:
        planted.setattr(vjepa_predictor, "MASK_INDEX", 0)
        wrong = [predicted(network)]
    wrong.append(predicted(network, (1.25, 1.75)))
    network.spec = dataclasses.replace(network.spec, release="2.1")
    for other in (*wrong, predicted(network)):
        with pytest.raises(AssertionError):
            check_close(other, THEIRS["predicted"])


def released(path: Path, network: VjepaPredictor) -> str:
    """Write a file in the layout of the released weights."""
    state = {f"module.backbone.{name}": value for name, value in network.state_dict().items()}
    torch.save({"encoder": {}, "predictor": state, "epoch": 1}, path)
    return str(path)


@pytest.mark.usefixtures("double")
def test_tokens_of_release_2_1_are_those_of_the_original() -> None:
    """Planted: positions as they are, no mark of video, release 2.0's rotation, levels in another order."""
    plain = predicted(predictor_2_1(interpolate_rope=False))
    check_close(plain, THEIRS_2_1["plain"])
    check_close(predicted(predictor_2_1(interpolate_rope=True)), THEIRS_2_1["scaled"])
    unmarked, turned, other = (predictor_2_1(interpolate_rope=True) for _ in range(3))
    torch.nn.init.zeros_(unmarked.video_mod_embed)
    turned.spec = dataclasses.replace(turned.spec, release="2.0")
    torch.nn.init.zeros_(other.predictor_embed[0].weight[:, :10])
    for wrong in (plain, *map(predicted, (unmarked, turned, other))):
        with pytest.raises(AssertionError):
            check_close(wrong, THEIRS_2_1["scaled"])


def test_the_sizes_have_as_many_parameters_as_the_original() -> None:
    with torch.device("meta"):
        networks = {model: VjepaPredictor(shape_of(model, "2.1")) for model in THEIRS_2_1["parameters"]}
        default = VjepaPredictor(VjepaPredictorShape(1408))
    count = {model: sum(value.numel() for value in network.parameters()) for model, network in networks.items()}
    assert count == THEIRS_2_1["parameters"]
    assert sum(value.numel() for value in default.parameters()) == THEIRS["parameters"]


def test_a_released_file_loads_and_answers_as_what_was_saved(tmp_path: Path) -> None:
    for saved in (predictor(), predictor_2_1(interpolate_rope=True)):
        path = released(tmp_path / "vitg.pt", saved)
        loaded = with_shape(predictor_state(path), saved.shape, path)
        torch.testing.assert_close(predicted(loaded), predicted(saved))


def test_what_is_no_such_predictor_is_refused(tmp_path: Path) -> None:
    path = released(tmp_path / "vitg.pt", predictor())
    with pytest.raises(CheckpointError, match=r"not one of V-JEPA 2\.0 with 3 blocks"):
        with_shape(predictor_state(path), dataclasses.replace(PREDICTOR, depth=3), path)
    with pytest.raises(CheckpointError, match=r"not one of V-JEPA 2\.0 with 12 blocks"):
        load_predictor(path, "vit_giant")
    with pytest.raises(CheckpointError, match="there is no file"):
        load_predictor(str(tmp_path / "absent.pt"), "vit_giant")
    torch.save({"encoder": {}}, path)
    with pytest.raises(CheckpointError, match="contains no 'predictor'"):
        load_predictor(path, "vit_giant")
    path = released(tmp_path / "vitG.pt", predictor_2_1(interpolate_rope=True))
    with pytest.raises(CheckpointError, match=r"not one of V-JEPA 2\.1 with 24 blocks of 384 on 4 levels"):
        load_predictor(path, "vit_gigantic")
    with pytest.raises(CheckpointError, match="tokens of its teacher, 1664 wide, but those of vit_base are 768 wide"):
        load_predictor(path, "vit_base")


def embedded(tmp_path: Path, **changes: Any) -> FrozenVjepa:
    """The demo's encoder on clips of 4 frames of 32 pixels."""
    cfg = FeatureConfig(model="tiny", size_px=32, n_frames=4, tokens="temporal", precision="fp32")
    return load_tiny(cfg.replace(**changes), "cpu", tmp_path)


def test_the_predicted_token_stands_behind_those_of_the_tubelets(tmp_path: Path) -> None:
    clips = np.random.default_rng(0).integers(0, 255, (2, 4, 32, 32, 3), dtype=np.uint8)
    plain = embedded(tmp_path / "plain")
    ahead, later = (embedded(tmp_path / str(n), ahead_tubelets=n) for n in (2, 5))
    assert (plain.tokens, ahead.tokens) == (2, 3)
    seen, found, other = (one.embed(clips) for one in (plain, ahead, later))
    assert found.shape == (2, 3 * 256)
    assert np.array_equal(found[:, : 2 * 256], seen)
    assert np.isfinite(found).all()
    assert not np.array_equal(found[:, 2 * 256 :], other[:, 2 * 256 :])
    assert len({plain.digest, ahead.digest, later.digest}) == 3
    cfg = ahead.config
    assert cfg.token_shape == (256, 3)


def test_a_predictor_of_four_levels_reads_them_all_and_adds_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = dataclasses.replace(vjepa_predictor.PREDICTORS["tiny"], release="2.1", levels=4, depth=4, mask_tokens=3)
    plain = embedded(tmp_path / "plain")
    path = tmp_path / "tiny.pt"
    write_tiny_checkpoint(path)
    content = torch.load(path, weights_only=True)
    torch.manual_seed(0)
    own = {f"module.{name}": 0.1 * torch.randn_like(one) for name, one in VjepaPredictor(newer).state_dict().items()}
    torch.save({**content, "predictor": own}, path)
    monkeypatch.setattr(vjepa_predictor, "shape_of", lambda *_, **__: newer)
    ahead = embedded(tmp_path, ahead_tubelets=1, checkpoint=str(path))
    clips = np.random.default_rng(0).integers(0, 255, (2, 4, 32, 32, 3), dtype=np.uint8)
    assert np.array_equal(ahead.embed(clips)[:, : 2 * 256], plain.embed(clips))
    every = ahead.every_token(torch.from_numpy(clips), torch.tensor([1, 1]))
    seen = plain.every_token(torch.from_numpy(clips), None)
    assert every.shape == (2, seen.shape[1] + 4, 256)
    assert torch.equal(every[:, : seen.shape[1]], seen)
    np.testing.assert_allclose(
        ahead.embed(clips)[:, 2 * 256 :], every[:, seen.shape[1] :].mean(1).numpy(), rtol=2e-3, atol=2e-3
    )


def test_a_clip_s_predicted_token_does_not_depend_on_the_others(tmp_path: Path) -> None:
    clips = np.random.default_rng(1).integers(0, 255, (3, 4, 32, 32, 3), dtype=np.uint8)
    ahead = embedded(tmp_path, ahead_tubelets=1)
    np.testing.assert_allclose(ahead.embed(clips)[1], ahead.embed(clips[1:2])[0], atol=2e-3)


def test_a_predicted_token_needs_temporal_ones_and_a_file_that_has_a_predictor(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set tokens to temporal"):
        FeatureConfig(ahead_tubelets=4)
    write_tiny_checkpoint(tmp_path / "tiny.pt")
    with pytest.raises(CheckpointError, match="contains no 'predictor'"):
        embedded(tmp_path, ahead_tubelets=1, checkpoint=str(tmp_path / "tiny.pt"))


TINY = {
    "module.backbone.blocks.0.attn.proj.weight": (0.046206973, -0.00084966375, 0.0049058637, -0.010498874),
    "module.backbone.patch_embed_img.proj.weight": (-0.19791713, -0.0427979, -0.036660805, -0.12509911),
    "module.backbone.video_mod_embed": (-0.12358043, 0.19513649, 0.38501635, -0.24353136),
}
"""The first numbers of some weights of the demo's encoder."""


def test_the_demo_s_encoder_has_the_same_weights_with_and_without_a_predictor(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "tiny.pt", tmp_path / "b" / "tiny.pt"
    for path, has in ((first, False), (second, True)):
        path.parent.mkdir()
        write_tiny_checkpoint(path, has_predictor=has)
    plain, ahead = (torch.load(path, weights_only=True) for path in (first, second))
    assert set(ahead) == {*plain, "predictor"} == {"target_encoder", "epoch", "predictor"}
    weights = plain["target_encoder"]
    assert all(torch.equal(value, ahead["target_encoder"][name]) for name, value in weights.items())
    check_tiny(weights)
    write_tiny_checkpoint(first, seed=1)  # planted: other draws
    with pytest.raises(AssertionError, match="not close"):
        check_tiny(torch.load(first, weights_only=True)["target_encoder"])


def check_tiny(weights: dict[str, Tensor]) -> None:
    """Compare the demo's weights with recorded ones.

    A normal number is a root of a logarithm times a cosine: some roundings of a radius that is below 6, times a gain.
    """
    close = 8 * torch.finfo(torch.float32).eps * 6
    for name, first in TINY.items():
        torch.testing.assert_close(weights[name].flatten()[:4], torch.tensor(first), rtol=0.0, atol=close)
