"""The predictor stage on a small procedure graph: what it writes, what helps, and that workers change nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from planning_fixture import World, model_files, planning_data
from planning_world import Memory, WorldSize, planning_world, run_stage

from schemas.arrow import rows_of
from schemas.results import CurvePoint
from schemas.training import AlignmentConfig, PredictorConfig, TrainConfig
from trajpilot_core.data.chains import chains_of, load_chain_models, open_model_files, trajectory_latents
from trajpilot_core.data.cross_fitting import noted_fitted
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.errors import TrainingError
from trajpilot_core.evaluation.trained_rows import judge_trained
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.stages import alignment, predictor
from trajpilot_core.training import dev_scores, fit_predictor
from trajpilot_core.training.fit_predictor import (
    PredictorTask,
    kept,
    measurer,
    new_predictor,
    predictor_task,
    variant_latents,
    window_loss,
)

TRAIN = TrainConfig(epochs=6, patience=None, lr=3e-3, batch=32, precision="fp32")
ALIGNMENT = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN.replace(epochs=12))
CFG = PredictorConfig(width=32, layers=1, heads=2, hidden=64, queries=4, dropout=0.0, train=TRAIN)
SHORT = CFG.replace(train=TRAIN.replace(epochs=1))
SIZE = WorldSize(tasks=2, steps=4, alternatives=3, train=16, dev=4, test=2, motion_strength=2.0, max_horizon=5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = planning_world(SIZE)
    run_stage(alignment.STAGE, ALIGNMENT, memory, tmp_path_factory.mktemp("alignment"))
    run_stage(predictor.STAGE, CFG, memory, tmp_path_factory.mktemp("predictor"))
    return memory


def trained_again(trained: Memory, scratch: Path) -> Memory:
    """The predictors after an epoch, on a copy of the tables that may be changed before."""
    memory = Memory(dict(trained.tables), dict(trained.entries))
    run_stage(predictor.STAGE, SHORT, memory, scratch)
    return memory


def best(memory: Memory, variant: str) -> float:
    rows = memory.tables["predictor_curves"].to_pylist()
    wanted = (f"final/{variant}", "dev", "M@1")
    return float(max(r["value"] for r in rows if (r["model"], r["split"], r["quantity"]) == wanted))


def test_true_trajectories_help_on_dev_and_the_stage_counts_windows_and_writes_three_checkpoints(
    trained: Memory,
) -> None:
    assert best(trained, "traj") > best(trained, "no_traj") + 0.2
    assert best(trained, "no_traj") > best(trained, "majority")
    windows = sum(row["split"] != "test" for row in trained.tables["windows"].to_pylist())
    assert trained.counts == (windows, windows)
    models = trained.models("predictors")
    assert set(models.keys) == {f"final/s0/{v}" for v in ("traj", "no_traj", "endpoint_traj")}
    fitted = sorted(r["take_id"] for r in trained.tables["folds"].to_pylist() if r["fold"] == -1)
    assert noted_fitted(models.about) == {"final": fitted}
    assert all(np.isfinite(value).all() for key in models.keys for value in models.read(key).values())


def test_lost_windows_are_rejected_once_and_test_ones_left_to_evaluation(trained: Memory, tmp_path: Path) -> None:
    looks = trained.tables["features"]
    lost = {"egoexo4d:0000:0000", "egoexo4d:0016:0000", "egoexo4d:0021:0000"}  # of train, dev and test
    kept = looks.filter(pa.array([s not in lost for s in looks["segment_id"].to_pylist()]))
    memory = trained_again(Memory({**trained.tables, "features": kept}, trained.entries), tmp_path)
    n_in, n_out = memory.counts
    assert n_in == trained.counts[0]
    assert n_in - n_out == sum(row.n_units for row in memory.rejects) == 2 * 3, "one window of each horizon"
    assert {row.take for row in memory.rejects} == {"egoexo4d:0000", "egoexo4d:0016"}


def test_a_fit_on_a_test_take_shows_in_the_models_though_the_folds_deny_it(
    trained: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fit_predictor.fit_takes
    monkeypatch.setattr(fit_predictor, "fit_takes", lambda *a: torch.cat([real(*a), torch.tensor([21])]))
    memory = trained_again(trained, tmp_path)
    assert "egoexo4d:0021" in noted_fitted(memory.models("predictors").about)["final"]


def test_the_models_read_back_score_what_the_curves_say(trained: Memory) -> None:
    data = load_planning_data(trained, "evaluation")
    (chain,) = chains_of(data)
    models = load_chain_models(open_model_files(trained), chain, 0, "cpu")
    latents = trajectory_latents(models.e_tau, data.motions)
    per_horizon = []
    for horizon, windows in data.windows.items():
        rows = windows.segments[windows.split == 1]
        out = models.traj(data.features[rows[:, 0]], data.features[rows[:, -1]], latents[rows], horizon)
        answers = (out @ data.bank.T).argmax(-1)[:, 1:-1]
        per_horizon.append((answers == data.labels[rows[:, 1:-1]]).double().mean().item())
    assert np.mean(per_horizon) == pytest.approx(best(trained, "traj"))
    assert models.endpoint_traj is not None
    assert not models.traj.training


def test_fold_chains_have_models_of_their_own_and_two_processes_give_the_bytes_of_one(tmp_path: Path) -> None:
    memory = planning_world(replace(SIZE, train=6, dev=2, test=1, max_horizon=4))
    cfg = ALIGNMENT.replace(folds=2, seeds=(3,), train=SHORT.train)
    run_stage(alignment.STAGE, cfg, memory, tmp_path / "alignment")
    other = Memory(dict(memory.tables), dict(memory.entries))
    for workers, own in ((1, memory), (2, other)):
        run_stage(predictor.STAGE, SHORT, own, tmp_path / str(workers), workers)
    assert other.parts("predictors") == memory.parts("predictors")
    assert other.models("predictors").about == memory.models("predictors").about
    assert other.tables["predictor_curves"].equals(memory.tables["predictor_curves"])
    assert set(memory.models("predictors").keys) == {
        *(f"final/s3/{variant}" for variant in ("traj", "no_traj", "endpoint_traj")),
        *(f"fold{k}/s3/{variant}" for k in range(2) for variant in ("traj", "no_traj")),
    }
    files = open_model_files(memory)
    fold0 = load_chain_models(files, chains_of(load_planning_data(memory, "scorer"))[1], 3, "cpu")
    assert fold0.endpoint_traj is None
    assert files.seeds == (3,)


def test_a_masked_goal_is_neither_input_nor_target_of_the_loss_unless_it_is_kept_as_target() -> None:
    data = planning_data()
    task = predictor_task(data, model_files(data).e_tau, chains_of(data)[0], 0, "cpu", PredictorConfig())
    seen = CFG.replace(trajectory_dropout=0.0)
    masked = seen.replace(goal_dropout=1 - 1e-9)
    torch.manual_seed(0)
    model, goal = new_predictor(task, seen).eval(), int(task.fit[3][0, -1])

    def loss(of: PredictorTask, cfg: PredictorConfig) -> float:
        return window_loss(model, of, cfg, "traj", 3, torch.tensor([0])).item()

    for name in ("features", "latents", "labels"):
        changed = getattr(task, name).clone()
        changed[goal] = (changed[goal] + 1) % len(task.bank) if name == "labels" else 1 - changed[goal]
        other = replace(task, **{name: changed})
        as_target, seen_target = (cfg.replace(masked_goal_target="kept") for cfg in (masked, seen))
        assert loss(task, masked) == loss(other, masked), name
        assert loss(task, seen) != loss(other, seen), name
        assert (loss(task, as_target) != loss(other, as_target)) == (name == "labels"), name
        assert loss(other, seen_target) == loss(other, seen), "without masks nothing changes"


def test_a_variant_sees_exactly_its_trajectories_and_dropout_drops_whole_samples_at_its_rate() -> None:
    latents = torch.randn(2, 5, 4)
    ends = variant_latents(latents, "endpoint_traj")
    assert torch.equal(variant_latents(latents, "traj"), latents)
    assert not variant_latents(latents, "no_traj").any()
    assert torch.equal(ends[:, [0, -1]], latents[:, [0, -1]])
    assert not ends[:, 1:-1].any()
    assert abs(kept(20_000, 0.1, torch.device("cpu")).double().mean().item() - 0.9) < 0.01
    assert kept(100, 0.0, torch.device("cpu")).all()


def curve(scores: list[float], majority: float = 0.1, previous: float = 0.2) -> list[CurvePoint]:
    def row(model: str, epoch: int, value: float) -> CurvePoint:
        return CurvePoint(model=model, seed=0, epoch=epoch, split="dev", quantity="M@1", value=value)

    floors = [row("final/majority", 0, majority), row("final/previous", 0, previous)]
    return [*floors, *(row("final/traj", i + 1, s) for i, s in enumerate(scores))]


def test_trained_means_above_the_floors_no_longer_rising_and_not_fallen(trained: Memory) -> None:
    for scores, verdict in (
        ([0.1, 0.3, 0.5, 0.505, 0.5, 0.505, 0.51, 0.5], "holds"),
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], "undertrained"),
        ([0.15, 0.15, 0.15, 0.15], "undertrained"),
        ([0.9], "undertrained"),
        ([0.3, 0.5, 0.6, 0.6, 0.6, 0.6, 0.3, 0.1], "undertrained"),
        ([0.3, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.501], "holds"),
        ([0.3, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.499], "undertrained"),
        ([0.2, 0.21, 0.205, 0.2, 0.205, 0.205, 0.2, 0.201], "holds"),
    ):
        assert judge_trained(curve(scores), "final/traj", 0).verdict == verdict, scores
    rows = rows_of(CurvePoint, trained.tables["predictor_curves"])
    assert judge_trained(rows, "final/traj", 0).detail.startswith("dev M@1")
    without = [row for row in rows if row.model != "final/previous"]
    assert judge_trained(without, "final/traj", 0).verdict == "undertrained"


def test_windows_without_a_step_to_plan_are_refused_before_anything_is_trained() -> None:
    data = planning_data(World(horizons=(2, 3)))
    with pytest.raises(TrainingError, match="windows of 2 segments have no step to plan between Start and Goal"):
        predictor_task(data, model_files(data).e_tau, chains_of(data)[0], 0, "cpu", PredictorConfig())


def test_memory_that_runs_out_in_the_dev_measure_changes_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    data = planning_data()  # with 15 and 12 dev windows of its horizons
    task = predictor_task(data, model_files(data).e_tau, chains_of(data)[0], 0, "cpu", PredictorConfig())
    forward, model = CausalPredictor.forward, new_predictor(task, CFG).eval()
    monkeypatch.setattr(dev_scores, "ROWS_PER_CALL", 6)
    with torch.no_grad():
        expected = measurer(model, task, "traj")()
    for full in (1, 4):
        sizes: list[int] = []

        def planted(
            self: CausalPredictor, start: torch.Tensor, *rest: object, full: int = full, sizes: list[int] = sizes
        ) -> torch.Tensor:
            sizes.append(len(start))
            if len(sizes) == full:
                raise torch.OutOfMemoryError("planted")
            return forward(self, start, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(CausalPredictor, "forward", planted)
        with torch.no_grad():
            assert measurer(model, task, "traj")() == expected
        assert sum(sizes) == 15 + 12 + 6, "the parts before it are not done again"
        assert sizes.count(3) > 1
