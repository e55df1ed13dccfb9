"""What the stages with models say that they need, held against the real shapes and against what they take."""

import sys
from dataclasses import replace
from pathlib import Path

import measured_needs as measuring
import pytest
import torch
from one_horizon_loss import prediction_loss
from torch import Tensor

from schemas.config import PipelineConfig
from schemas.training import AlignmentConfig, PredictorConfig, ScorerConfig
from trajpilot_core.data import chains
from trajpilot_core.engine.needs import NeedsMachine
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.evaluation import predictions
from trajpilot_core.models import ranking, readout
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerShape
from trajpilot_core.retrieval import candidates
from trajpilot_core.stages import needs_of_trainings as stated
from trajpilot_core.training import dev_scores, scorer_queries

CONFIG = PipelineConfig()
SIZES = replace(paper_sizes(CONFIG), labels=300, feature_width=64, text_width=48)


def numbers(model: torch.nn.Module) -> int:
    return sum(value.numel() for value in model.state_dict().values())


def test_the_parameters_of_every_model_are_counted_as_they_are() -> None:
    alignment, predictor, scorer = AlignmentConfig(), PredictorConfig(width=96, hidden=128, layers=3), ScorerConfig()
    shape = PredictorShape(SIZES.feature_width, SIZES.tokens, SIZES.text_width, SIZES.longest)
    read = 2 * SIZES.feature_width + 2 * SIZES.text_width
    counted = [
        (stated.alignment_parameters(alignment, SIZES), TrajectoryEncoder(alignment, SIZES.text_width)),
        (stated.predictor_parameters(predictor, SIZES), CausalPredictor(predictor, shape)),
        (
            stated.scorer_parameters(SIZES, scorer),
            GateThenRankScorer(scorer, ScorerShape(read, SIZES.text_width, SIZES.longest - 2)),
        ),
    ]
    for said, model in counted:
        assert said == pytest.approx(numbers(model), rel=0.02)


def test_constants_and_counts_are_those_of_the_modules_that_compute() -> None:
    assert stated.SEGMENTS_PER_CALL == chains.SEGMENTS_PER_CALL
    assert stated.ROWS_PER_CALL == dev_scores.ROWS_PER_CALL
    assert stated.WINDOWS_AT_ONCE == scorer_queries.WINDOWS_AT_ONCE
    assert stated.ANSWERED_AT_ONCE == predictions.WINDOWS_AT_ONCE
    assert (stated.ROLL_OUT_PLANS, stated.LOGIT_CHUNK) == (candidates.ROLL_OUT_PLANS, ranking.LOGIT_CHUNK)
    assert stated.DECODED_AT_ONCE == readout.DECODED_AT_ONCE
    for folds in (1, 2, 5):
        found = chains.chains(folds)
        assert stated.n_chains(AlignmentConfig(folds=folds)) == len(found)
        variants = sum(len(chains.variants_of(chain)) for chain in found)
        assert variants == stated.FINAL_VARIANTS + stated.FOLD_VARIANTS * (len(found) - 1)


def test_the_disk_of_the_scorers_queries_is_what_the_scorer_itself_will_ask_for() -> None:
    for cfg in (ScorerConfig(), ScorerConfig(candidates=16)):
        shape = ScorerShape(2 * SIZES.feature_width + 2 * SIZES.text_width, SIZES.text_width, SIZES.longest - 2)
        each = scorer_queries.query_bytes(shape, cfg.candidates)
        train, dev = stated.query_counts(SIZES, cfg)
        assert (train, dev) == (65_536, 41_757)
        assert stated.query_disk(SIZES, cfg) == (train + dev) * each + dev * 8 * len(cfg.temperatures)


def saved_bytes(step, parameters: int) -> int:
    """Bytes of all tensors that a step keeps for its gradients, those of the model left out."""
    storages: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(value: Tensor) -> Tensor:
        alive.append(value)
        storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        step()
    return sum(storages.values()) - parameters


@pytest.mark.parametrize("layers", [2, 5])
def test_what_a_step_of_the_predictor_keeps_is_bounded_closely_by_the_formula(
    layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stated, "HOLES", 1.0)
    cfg = PredictorConfig(width=128, hidden=512, layers=layers, heads=4)
    model = CausalPredictor(cfg, PredictorShape(SIZES.feature_width, 1, SIZES.text_width, SIZES.longest))
    batch, horizon = 48, SIZES.longest
    ids = torch.randint(SIZES.labels, (batch, horizon))
    bank = torch.nn.functional.normalize(torch.randn(SIZES.labels, SIZES.text_width), dim=1)

    def step() -> Tensor:
        ends = torch.randn(2, batch, 1, SIZES.feature_width)
        out = model(ends[0], ends[1], torch.randn(batch, horizon, SIZES.text_width), horizon)
        return prediction_loss(out, bank[ids], ids, model.log_temperature, 0.5, None, SIZES.labels)

    kept = saved_bytes(step, 4 * numbers(model))
    said = stated.predictor_step(SIZES, cfg, batch) + stated.pool_bytes(SIZES, batch)
    assert kept <= said <= 1.6 * kept


def measured_on(folder: Path, names: tuple[str, ...]) -> list[measuring.Peak]:
    config = measuring.settings()
    run = measuring.written_root(folder, measuring.TINY, config, workers=1)
    return [measuring.peak_of(name, config, run) for name in names]


def test_a_batch_of_all_horizons_is_as_large_as_all_horizons_have_windows() -> None:
    sizes, machine = replace(SIZES, windows={"train": 600, "dev": 60, "test": 60}), NeedsMachine("cpu", 1)
    cfg = CONFIG.predictor
    batches = [cfg.replace(train=cfg.train.replace(batch=batch)) for batch in (100, 1024)]
    one = [stated.predictor_needs(sizes, each, machine) for each in batches]
    mixed = [stated.predictor_needs(sizes, each.replace(mixed_horizons=True), machine) for each in batches]
    assert one[0] == one[1] == mixed[0], "one horizon has 100 windows"
    assert mixed[1].host.bytes > one[1].host.bytes


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_stages_state_bounds_what_they_take_and_a_fraction_of_it_is_seen_to_be_wrong(tmp_path: Path) -> None:
    """The planted fault: the same measurements against a quarter of what was stated."""
    peaks = measured_on(tmp_path, ("text_bank", "alignment"))
    assert all(peak.is_right for peak in peaks), peaks
    planted = [peak._replace(stated=peak.stated // 4) for peak in peaks]
    assert not any(peak.is_right for peak in planted)
    assert not any(peak._replace(stated=3 * peak.stated).is_right for peak in peaks)
