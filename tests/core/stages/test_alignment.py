"""E_tau and its stage: size, scale, folds, freezing, and that it learns what the motion carries."""

from pathlib import Path

import pytest
import torch
from planning_world import Memory, WorldSize, planning_world, run_stage
from torch.testing import assert_close

from schemas.training import AlignmentConfig, TrainConfig
from trajpilot_core.data import chains as chain_module
from trajpilot_core.data.chains import load_e_tau, trajectory_latents
from trajpilot_core.data.cross_fitting import chains, draw_folds, noted_fitted
from trajpilot_core.data.planning import load_motion_data
from trajpilot_core.errors import InputError
from trajpilot_core.models.predictor import TrajectoryEncoder, channel_scale
from trajpilot_core.stages import alignment
from trajpilot_core.training.dev_scores import recalls_at

TRAIN = TrainConfig(epochs=8, patience=None, lr=3e-3, batch=32, precision="fp32")
CFG = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN)
SIZE = WorldSize(tasks=2, steps=4, alternatives=2, train=14, dev=4, test=2, motion_strength=1.5)


def test_the_paper_size_has_0_9_million_parameters_and_outputs_are_unit_vectors_of_motions_in_order() -> None:
    paper = TrajectoryEncoder(AlignmentConfig(), 768)
    assert abs(sum(p.numel() for p in paper.parameters()) / 0.895e6 - 1) < 0.01
    model = TrajectoryEncoder(CFG, 24).eval()
    motions = torch.randn(5, 16, 6)
    out = model(motions)
    assert out.shape == (5, 24)
    assert_close(out.norm(dim=1), torch.ones(5))
    assert not torch.allclose(out, model(motions.flip(1)), atol=1e-4)


def test_the_scale_keeps_zero_motion_at_zero_and_never_divides_by_zero() -> None:
    motions = torch.randn(40, 16, 6) * torch.tensor([1, 2, 3, 4, 5, 0.0]) + torch.tensor([9, 0, 0, 0, 0, 0.0])
    scale = channel_scale(motions)
    assert_close(scale, motions.reshape(-1, 6).std(0, correction=0).where(scale != 1, torch.tensor(1.0)))
    assert scale[5] == 1
    assert torch.equal(torch.zeros(16, 6) / scale, torch.zeros(16, 6))


def test_recall_ranks_by_cosine_with_ties_to_the_smaller_id() -> None:
    predicted = torch.tensor([[0.9, 0.1, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    for ids, k, share in (([0, 0], 1, 1.0), ([1, 1], 1, 0.0), ([1, 1], 2, 1.0), ([2, 3], 3, 0.5)):
        assert recalls_at(predicted, torch.eye(4), torch.tensor(ids), (k,))[k] == share
    generator = torch.Generator().manual_seed(0)
    predicted, bank = torch.randn(5000, 4, generator=generator), torch.randn(30, 4, generator=generator)
    ids = torch.randint(30, (5000,), generator=generator)
    found = recalls_at(predicted, bank, ids, (1, 5))
    order = (predicted @ bank.T).argsort(dim=1, descending=True)
    for k in (1, 5):
        assert found[k] == pytest.approx(float((order[:, :k] == ids[:, None]).any(1).double().mean()))
    assert all(value != value for value in recalls_at(predicted[:0], bank, ids[:0], (1, 5)).values())


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = planning_world(SIZE)
    run_stage(alignment.STAGE, CFG, memory, tmp_path_factory.mktemp("scratch"))
    return memory


def test_the_stage_writes_what_it_declares(aligned: Memory) -> None:
    assert {"folds", "alignment_curves"} <= set(aligned.tables)
    assert set(aligned.entries) == {"e_tau"}
    assert aligned.counts == (200, 200)
    fitted = [r["take_id"] for r in aligned.tables["folds"].to_pylist() if r["fold"] == -1]
    assert noted_fitted(aligned.models("e_tau").about) == {"final": sorted(fitted)}
    told = {(r["split"], r["quantity"]) for r in aligned.tables["alignment_curves"].to_pylist()}
    assert told == {("train", "loss"), *((s, q) for s in ("train", "dev") for q in ("R@1", "R@5"))}


def test_a_fit_on_a_held_out_take_shows_in_the_model_though_the_folds_deny_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = planning_world(SIZE)
    real = chain_module.fitting_takes
    dev = 15
    monkeypatch.setattr(chain_module, "fitting_takes", lambda *a: torch.cat([real(*a), torch.tensor([dev])]))
    run_stage(alignment.STAGE, CFG.replace(folds=2, train=TRAIN.replace(epochs=1)), memory, tmp_path)
    told = noted_fitted(memory.models("e_tau").about)
    assert set(told) == {"final", "fold0", "fold1"}
    assert all(f"egoexo4d:{dev:04d}" in takes for takes in told.values())


def test_the_stored_model_is_the_best_epoch_far_above_chance_with_the_scale_of_the_fitting_takes(
    aligned: Memory,
) -> None:
    rows = aligned.tables["alignment_curves"].to_pylist()
    best = {k: max(r["value"] for r in rows if (r["split"], r["quantity"]) == ("dev", f"R@{k}")) for k in (1, 5)}
    assert best[1] > 4 / 16
    data = load_motion_data(aligned)
    model = load_e_tau(aligned.models("e_tau"), chains(1)[0], 0, "cpu")
    fold = {r["take_id"]: r["fold"] for r in aligned.tables["folds"].to_pylist()}
    fitted = torch.tensor([fold.get(data.take_ids[i], 0) == -1 for i in data.segment_take])
    assert_close(model.scale, channel_scale(data.motions[fitted]))
    dev = data.take_split[data.segment_take] == 1
    assert recalls_at(trajectory_latents(model, data.motions[dev]), data.bank, data.labels[dev], (5,))[5] == best[5]
    assert not any(p.requires_grad for p in model.parameters())


def test_folds_share_out_the_training_takes_and_only_those() -> None:
    takes = [f"t{i}" for i in range(23)]
    cross = draw_folds(takes, CFG.replace(folds=5))
    assert sorted(cross) == sorted(takes)
    assert set(cross.values()) == set(range(5))
    sizes = [list(cross.values()).count(k) for k in range(5)]
    assert max(sizes) - min(sizes) <= 1
    assert cross == draw_folds(takes[::-1], CFG.replace(folds=5))
    cheap = draw_folds(takes, CFG)
    assert list(cheap.values()).count(0) == round(0.15 * 23)
    assert set(cheap.values()) == {0, -1}
    with pytest.raises(InputError, match=r"alignment\.folds"):
        draw_folds(["a", "b"], CFG.replace(folds=5))
