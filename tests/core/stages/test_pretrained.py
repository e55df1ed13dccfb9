"""A run that starts from another one: what it takes over, and what it refuses; the other run was trained here."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from other_run import (
    NEW,
    THERE,
    model_digests,
    other_root,
    output_of,
    ready_root,
    started,
    take,
    there_world,
    whole,
    with_takes,
    without,
)
from planning_world import Memory
from stored_world import SETTINGS, SIZE, counts, options, run_world, stages_on, world

from schemas.config import PipelineConfig
from schemas.training import PredictorConfig
from trajpilot_core.data.chains import alignment_config
from trajpilot_core.data.cross_fitting import CAPTURES, ELSEWHERE, draw_folds, noted_fitted, twin_of
from trajpilot_core.data.other_runs import OtherOutput
from trajpilot_core.engine.key import resolve_inputs
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.errors import InputError
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape
from trajpilot_core.stages import STAGES, pretrained
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.reading import Inputs
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.fit_predictor import start_weights

N_E_TAU, N_PREDICTORS = 3, 7
TRAINED = {"alignment": (0, N_E_TAU), "predictor": (0, N_PREDICTORS)}
REUSED = {"alignment": (N_E_TAU, 0), "predictor": (N_PREDICTORS, 0)}
CHEAP = SETTINGS.replace(alignment=SETTINGS.alignment.replace(folds=1))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run on all takes but two."""
    return other_root(tmp_path_factory)


@pytest.fixture(scope="module")
def second(other: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a run on all takes that started from it."""
    root = Path(shutil.copytree(ready_root(tmp_path_factory), tmp_path_factory.mktemp("second") / "root"))
    assert counts(run_world(root, whole(), started(other), until="predictor")) == TRAINED
    return root


@pytest.fixture
def root(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root on all takes in which everything before alignment is done."""
    return Path(shutil.copytree(ready_root(tmp_path_factory), tmp_path / "root"))


def opened(root: Path, name: str) -> Inputs:
    return resolve_inputs(LocalFolder(str(root)), replace(STAGES["report"], reads=(name,)), STAGES)


def entry(root: Path, name: str) -> Models:
    return opened(root, name).models(name)


def folds_of(root: Path) -> dict[str, int]:
    """Training take -> fold."""
    return {row["take_id"]: row["fold"] for row in opened(root, "folds").table("folds").to_pylist()}


def fails(root: Path, memory: Memory, config: PipelineConfig) -> str:
    with pytest.raises(InputError) as refused:
        run_world(root, memory, config, until="predictor")
    return str(refused.value)


def test_e_tau_and_its_curves_are_those_of_the_same_chain_of_the_other_run(
    other: Path, second: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = model_digests(other, "alignment", "e_tau")
    assert model_digests(second, "alignment", "e_tau") == there
    assert len(set(there.values())) == N_E_TAU
    curves = [opened(root, "alignment_curves").table("alignment_curves") for root in (other, second)]
    assert curves[0].equals(curves[1])
    real = Models.read
    monkeypatch.setattr(  # planted: final is imported for a fold
        Models, "read", lambda self, key: real(self, key.replace("fold0", "final"))
    )
    run_world(root, whole(), started(other), until="alignment")
    assert model_digests(root, "alignment", "e_tau") != there


def test_every_training_begins_with_the_weights_of_its_own_model_there(other: Path, second: Path, root: Path) -> None:
    there = model_digests(other, "predictor", "predictors")
    assert model_digests(second, "predictor", "predictors") == there
    assert len(set(there.values())) == N_PREDICTORS
    alone = started(other, CHEAP)
    alone = alone.replace(predictor=alone.predictor.replace(pretrained=None))
    run_world(root, whole(), alone, until="predictor")
    begun = model_digests(root, "predictor", "predictors")
    assert not set(begun.values()) & set(there.values()), "without the setting weights are random"


def test_class_heads_begin_on_the_backbone_of_an_open_run(other: Path, root: Path) -> None:
    """What the recipes of closed vocabularies do with the models of `atomic`.

    The head begins as the open readout under the factor that was learned there: its rows are labels of norm 1, times
    that factor. The planted fault, the factor that a new model has, is another number.
    """
    base = SETTINGS.replace(predictor=SETTINGS.predictor.replace(head="classes", bridge_weight=0.15))
    run_world(root, whole(), started(other, base), until="predictor")
    closed, there = entry(root, "predictors"), entry(other, "predictors")
    for key in there.keys:
        begun, own = there.read(key), closed.read(key)
        head = {name for name in own if name.startswith("class_head.")}
        assert set(own) - set(begun) == head != set()
        assert all(np.array_equal(begun[name], own[name]) for name in begun), key
        assert own["class_head.weight"].shape[0] == opened(root, "text_bank").table("text_bank").num_rows
        norms, learned = np.linalg.norm(own["class_head.weight"], axis=1), np.exp(begun["log_temperature"])
        assert norms == pytest.approx(learned, rel=1e-5), key
        assert norms != pytest.approx(1 / base.predictor.temperature, rel=1e-3), "the planted fault"
        assert np.abs(own["class_head.bias"]).max() < 1e-20


def test_a_goal_dropout_twin_begins_as_the_twin_there_or_else_as_its_original(
    other: Path, root: Path, tmp_path: Path
) -> None:
    def with_twins(base: PipelineConfig) -> PipelineConfig:
        return base.replace(predictor=base.predictor.replace(twin_goal_dropout=0.5))

    def begun_with(there: Path) -> tuple[dict[str, str], dict[str, str]]:
        """Digests of the models there, and of those that began with them; trainings change no weight."""
        config = with_twins(started(there)).replace(ingest=started(other).ingest)
        done = run_world(root, whole(), config, until="predictor")
        trained.append(done["predictor"].computed)
        return tuple(model_digests(one, "predictor", "predictors") for one in (there, root))

    trained: list[int] = []
    there, here = begun_with(other)
    assert here == {**there, **{twin_of(key): there[key] for key in ("final/s0/traj", "final/s0/no_traj")}}
    having = Path(shutil.copytree(other, tmp_path / "having"))
    run_world(having, there_world(), with_twins(THERE), until="predictor")
    there, here = begun_with(having)
    assert here == there
    assert len(set(here.values())) == N_PREDICTORS + 2
    assert trained == [N_PREDICTORS + 2, 2], "what began with the same weights as before is not trained again"


def test_takes_keep_their_folds_and_models_name_those_they_were_fitted_on_there_and_here(
    other: Path, second: Path
) -> None:
    there, here = folds_of(other), folds_of(second)
    assert there.items() < here.items()
    assert {here[name] for name in NEW} == {0, 1}, "new takes are dealt out"
    e_tau, predictors = entry(second, "e_tau"), entry(second, "predictors")
    before = noted_fitted(entry(other, "e_tau").about)
    assert noted_fitted(e_tau.about) == before
    for chain, takes in noted_fitted(predictors.about).items():
        left_out = None if chain == "final" else int(chain.removeprefix("fold"))
        assert takes == [name for name, fold in here.items() if fold != left_out]
    assert noted_fitted(e_tau.about, ELSEWHERE) == {chain: [] for chain in before}
    assert noted_fitted(predictors.about, CAPTURES)["final"] == [f"c{number}" for number in range(6)]


def test_the_cheap_mode_imports_final_in_its_sizes_and_places_and_holds_out_what_it_has_not_seen(
    other: Path, root: Path
) -> None:
    """Seeds and folds are those of this run, whose horizon is shorter."""
    base = CHEAP.replace(alignment=CHEAP.alignment.replace(width=48, holdout_share=0.1))
    run_world(root, world(replace(SIZE, max_horizon=3)), started(other, base), until="scorer")
    e_tau, predictors = entry(root, "e_tau"), entry(root, "predictors")
    held = [name for name, fold in folds_of(root).items() if fold == 0]
    assert len(held) == 1
    assert held[0] in NEW
    assert e_tau.keys == ("final/s0/e_tau",)
    assert held[0] not in noted_fitted(predictors.about)["final"]
    found = alignment_config(e_tau)
    assert (found.width, found.train) == (THERE.alignment.width, THERE.alignment.train)
    assert (found.folds, found.holdout_share) == (1, 0.1)
    assert json.loads(predictors.about["shape"])["max_horizon"] == SIZE.max_horizon
    words = fails(root, there_world(), started(other, CHEAP))
    assert "fold 0 has no training take here" in words
    assert "alignment.folds=2" in words


def test_nothing_is_done_twice_and_a_moved_run_is_the_same_run(other: Path, second: Path, tmp_path: Path) -> None:
    root, moved = (Path(shutil.copytree(one, tmp_path / one.parent.name)) for one in (second, other))
    again = run_world(root, whole(), started(other), until="predictor")
    assert all(outcome.cached for outcome in again.values())
    config = started(moved).replace(ingest=started(other).ingest)
    rows = {row.stage: row for row in plan(stages_on(whole()), config, options(root))}
    assert "pretrained.place" in rows["alignment"].why
    assert (rows["alignment"].state, rows["alignment"].compute) == ("stale", 0)
    assert counts(run_world(root, whole(), started(moved), until="predictor")) == REUSED


DEV = {"split": "dev"}
HELD_OUT: tuple[tuple[str, dict[str, dict[str, str]], str], ...] = (
    ("alignment", {take(0): DEV, take(1): DEV}, "takes egoexo4d:0000 (dev here), egoexo4d:0001 (dev here)"),
    ("alignment", {NEW[0]: {**DEV, "capture": "c3"}}, "captures c3 (dev here)"),
    ("alignment", {take(8): {"split": "test"}}, "dev takes (its epochs were chosen on them) egoexo4d:0008 (test here)"),
    ("predictor", {take(11): {"capture": "c3"}}, "captures c3 (test here)"),
)


def test_models_that_have_seen_what_is_held_out_here_are_refused_by_name(other: Path, root: Path) -> None:
    for setting, changes, named in HELD_OUT:
        config = started(other)
        if setting == "predictor":  # E_tau is trained here, with folds of its own
            config = config.replace(alignment=THERE.alignment.replace(folds=1))
        words = fails(root, with_takes(whole(), changes), config)
        assert words.startswith(f"{setting}.pretrained: the chain final of {other}")
        assert named in words
        assert "--pretrained" in words


def test_a_fold_whose_models_have_seen_its_takes_is_refused_as_are_folds_that_are_not_inherited(
    other: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a run whose fold0 was fitted as its final."""
    there = folds_of(other)
    settings = [THERE.alignment.replace(fold_seed=seed) for seed in range(1, 50)]
    drawn = next(cfg for cfg in settings if draw_folds(list(there), cfg) != there)
    words = fails(root, there_world(), started(other).replace(alignment=drawn))
    assert words.startswith("predictor.pretrained: the chain fold")
    assert "(fold " in words
    real = pretrained.fits_of
    monkeypatch.setattr(pretrained, "fits_of", lambda *a: {**(found := real(*a)), "fold0": found["final"]})
    words = fails(root, whole(), started(other))
    left_out = [name for name, fold in there.items() if fold == 0]
    assert "the chain fold0" in words
    assert all(f"{name} (fold 0 here)" in words for name in left_out)


def test_what_a_run_before_the_other_one_has_seen_is_refused_too(other: Path, root: Path, tmp_path: Path) -> None:
    between = tmp_path / "between"
    run_world(between, without(whole(), (take(0), take(1))), started(other), until="alignment")
    config = started(other)
    config = config.replace(alignment=config.alignment.replace(pretrained=output_of(between, "alignment")))
    words = fails(root, with_takes(whole(), {take(0): DEV}), config)
    assert "takes egoexo4d:0000 (dev here)" in words
    assert "captures c0 (dev here)" in words
    fitted = noted_fitted(entry(between, "e_tau").about)["final"]
    assert fitted == [take(number) for number in range(2, 6)], "the leak checks know the takes of their own run only"
    run_world(root, whole(), config, until="alignment")
    noted = [noted_fitted(entry(one, "e_tau").about, ELSEWHERE) for one in (between, root)]
    assert [found["final"] for found in noted] == [[take(0), take(1)], []]
    assert folds_of(other).items() < folds_of(root).items(), "those that were in folds before keep them"


def test_models_that_the_other_run_lacks_another_text_space_and_a_place_that_may_not_be_opened_are_refused(
    other: Path, root: Path
) -> None:
    bank = whole().tables["text_bank"]
    at = bank.schema.get_field_index("encoder")
    renamed = bank.set_column(at, bank.schema.field(at), pa.array(["another"] * bank.num_rows))
    config = started(other)
    for memory, change, words in (
        (whole(), {"seeds": (0, 5)}, ("lacks final/s5/e_tau", "it has the seeds 0", "alignment.seeds")),
        (whole(), {"folds": 3}, ("has 2 folds and alignment.folds is 3", "set alignment.folds=2, or 1")),
        (Memory({**whole().tables, "text_bank": renamed}), {}, ("embedded by another, those of",)),
        (
            world(replace(SIZE, max_horizon=5)),
            {},
            ("size mismatch for step", "[4, 16]", "[5, 16]"),
        ),
    ):
        said = fails(root, memory, config.replace(alignment=config.alignment.replace(**change)))
        assert [part for part in words if part not in said] == []
    away = config.alignment.pretrained.replace(place="gs://bucket/run")
    away_too = config.replace(alignment=config.alignment.replace(pretrained=away))
    with pytest.raises(InputError, match=r"alignment\.pretrained: .* has the protocol 'gs'; allowed are file"):
        run_world(root, whole(), away_too, until="alignment")


def built(cfg: PredictorConfig, width: int = 32, classes: int = 0) -> CausalPredictor:
    return CausalPredictor(cfg, PredictorShape(width, 1, 32, 4, classes=classes))


def test_only_a_class_head_may_be_absent_there_and_what_no_shape_shows_is_compared(
    other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = started(other).predictor
    model = built(cfg, classes=5)
    assert model.class_head is not None
    before = model.class_head.weight.clone()
    assert start_weights(model, cfg, "final/s0/traj")
    assert torch.equal(model.class_head.weight, before)
    model.register_buffer("more", torch.zeros(1))
    with pytest.raises(InputError, match=r"(?s)does not fit .*Missing key\(s\) in state_dict: \"more\""):
        start_weights(model, cfg, "final/s0/traj")
    named = r"(?s)^predictor.pretrained: final/s0/traj of .*feature_mean: .*\[32\].*\[48\]"
    with pytest.raises(InputError, match=named):
        start_weights(built(cfg, 48), cfg, "final/s0/traj")
    for name, value in (("heads", 4), ("standardise", False)):
        changed = cfg.replace(**{name: value})
        with pytest.raises(InputError, match=f"predictor.{name} is {value} here and {getattr(cfg, name)} there"):
            start_weights(built(changed), changed, "final/s0/traj")
    newer = Models({"config": '{"of_tomorrow": 1}'}, (), lambda key: {})
    monkeypatch.setattr(OtherOutput, "models", lambda self, entry: newer)
    with pytest.raises(InputError, match="another version of this project wrote the settings"):
        start_weights(built(cfg), cfg, "final/s0/traj")
