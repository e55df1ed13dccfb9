"""Goal-dropout twins as trainings: with goals masked, of their own keys, and nothing else is trained for them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from other_run import trained_root, whole
from planning_fixture import model_files, planning_data
from planning_world import Memory
from pydantic import ValidationError
from stored_world import SETTINGS, counts, options, run_world, stages_on

from deployments.recipes import RECIPES
from schemas.config import PipelineConfig
from schemas.training import GOAL_DROPOUT, PredictorConfig
from trajpilot_core.data.chains import chains_of
from trajpilot_core.data.cross_fitting import TWINNED, twin_of
from trajpilot_core.engine.key import resolve_inputs
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.stage import AnyStage, Source
from trajpilot_core.stages import STAGES, scorer
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.training import fit_predictor
from trajpilot_core.training.fit_predictor import new_predictor, predictor_task, variant_latents, window_loss

TWINS = {f"final/s0/{twin_of(variant)}" for variant in TWINNED}
CLOSED = {"keystep", "goalstep", "egoper"}


def with_twins(dropout: float | None = GOAL_DROPOUT, base: PipelineConfig = SETTINGS) -> PipelineConfig:
    return base.replace(predictor=base.predictor.replace(twin_goal_dropout=dropout))


@pytest.fixture(scope="module")
def memory() -> Memory:
    return whole()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which everything is trained, twins aside."""
    return trained_root(tmp_path_factory)


@pytest.fixture(scope="module")
def twins(root: Path, memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, after they were switched on."""
    copy = Path(shutil.copytree(root, tmp_path_factory.mktemp("with") / "root"))
    done = run_world(copy, memory, with_twins())
    assert counts(done) == {"alignment": (3, 0), "predictor": (7, 2), "scorer": (1, 0)}
    return copy


def planned(root: Path, stages: dict[str, AnyStage], config: PipelineConfig) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(stages, config, options(root))}


def test_twins_that_anticipate_are_trained_in_every_chain_and_nothing_else_again(
    root: Path, twins: Path, memory: Memory
) -> None:
    """What was trained before stays, but for twins that were selected with the goal.

    The planted fault, a setting that enters all keys: no training is reused.
    """
    stages, base = stages_on(memory), with_twins()
    keyed = {**stages, "predictor": replace(stages["predictor"], outside_shards=("pretrained",))}
    ahead = base.replace(
        predictor=base.predictor.replace(anticipates=True), scorer=base.scorer.replace(anticipates=True)
    )
    kept = base.replace(predictor=base.predictor.replace(masked_goal_target="kept"))
    for before, those, config, counted in (
        (root, stages, ahead, (7, 7)),  # two a chain, and one of the ends
        (twins, stages, ahead, (7, 7)),
        (twins, stages, kept, (7, 2)),
        (root, stages, base, (7, 2)),
        (root, keyed, base, (0, 9)),
    ):
        row = planned(before, those, config)["predictor"]
        assert (row.reused, row.compute) == counted


def test_a_scorer_rests_on_no_twin_and_one_that_did_would_be_seen(
    root: Path, twins: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rests_on(of: Path) -> list[Source]:
        inputs = resolve_inputs(LocalFolder(str(of)), STAGES["scorer"], stages_on(memory))
        return scorer.sources(inputs, SETTINGS.scorer, "")

    assert rests_on(root) == rests_on(twins)
    monkeypatch.setattr(scorer, "is_twin", lambda name: False)
    assert rests_on(root) != rests_on(twins)


def test_a_twin_is_given_and_asked_what_its_original_with_goal_dropout_would_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault, no goal of a twin is masked, makes it its original."""
    data = planning_data()
    task = predictor_task(data, model_files(data).e_tau, chains_of(data)[0], 0, "cpu", PredictorConfig())
    latents = torch.randn(2, 5, 4)
    cfg = PredictorConfig(width=16, layers=1, heads=2, hidden=16, queries=2, dropout=0.0)
    model = new_predictor(task, cfg).eval()

    def loss(of: PredictorConfig, name: str) -> float:
        torch.manual_seed(1)
        return window_loss(model, task, of, name, 3, torch.arange(8)).item()

    for variant in TWINNED:
        assert torch.equal(variant_latents(latents, twin_of(variant)), variant_latents(latents, variant))
        half = loss(cfg.replace(twin_goal_dropout=0.5), twin_of(variant))
        assert half == loss(cfg.replace(goal_dropout=0.5), variant)
        assert half != loss(cfg, variant)
        assert loss(cfg.replace(twin_goal_dropout=0.5), variant) == loss(cfg, variant)
        with monkeypatch.context() as patched:
            patched.setattr(fit_predictor, "goal_dropout_of", lambda cfg, variant: cfg.goal_dropout)
            assert loss(cfg.replace(twin_goal_dropout=0.5), twin_of(variant)) == loss(cfg, variant)


def test_recipes_of_closed_vocabularies_and_of_anticipation_have_twins_and_no_other_has() -> None:
    with pytest.raises(ValidationError, match="set goal_dropout to 0 or twin_goal_dropout to null"):
        PredictorConfig(goal_dropout=0.5, twin_goal_dropout=0.5)
    found = {name: build().predictor for name, build in RECIPES.items()}
    heads = {name for name, cfg in found.items() if cfg.head == "classes"}
    anticipate = {name for name, cfg in found.items() if cfg.anticipates}
    assert anticipate == {"atomic_anticipation", "demo_anticipation", "vlm_zero_shot", "vlm_sft"}
    assert {name for name, cfg in found.items() if cfg.twin_goal_dropout is not None} == heads | anticipate
    assert heads > CLOSED
    assert {found[name].twin_goal_dropout for name in heads | anticipate} == {GOAL_DROPOUT}
