"""Planning in latents as stages: absent unless asked for, honest about what rows see, and in the tables where it is."""

import pyarrow.compute as pc
import pytest
import torch
from latent_fixture import CFG
from planning_world import Memory, fit_tables, planning_world, run_stage
from stored_world import SIZE

from deployments.recipes import recipe
from schemas.config import PipelineConfig, RunOptions
from schemas.results import CurvePoint
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import SPLITS, load_planning_data, rows_of_takes
from trajpilot_core.engine.key import resolve_config
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.evaluation import latent_plans
from trajpilot_core.evaluation.latent_plans import LatentWindows, check_latent_sight, load_latents
from trajpilot_core.evaluation.latent_scores import judge_latents
from trajpilot_core.evaluation.predictions import SCHEMA
from trajpilot_core.methods.latent import ENTRY, ROWS
from trajpilot_core.methods.sight import probe_rows
from trajpilot_core.retrieval.bank import fit_end_keys, neighbour_bank
from trajpilot_core.stages import EVERY_STAGE, STAGES, latent, stages_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory, folder = planning_world(SIZE), tmp_path_factory.mktemp("latents")
    fit_tables(memory, ["egoexo4d:0000"])
    run_stage(latent.STAGE, CFG, memory, folder)
    latent.PLANS.run(Work(memory, CFG, (), memory, Runtime("", "cpu", 1, folder)))  # type: ignore[arg-type]
    return memory


def test_every_row_answers_every_test_window_and_brings_what_the_evaluation_reads(made: Memory) -> None:
    table = made.table(ENTRY)
    assert table.schema == SCHEMA
    windows = made.table("windows").filter(pc.equal(made.table("windows")["split"], "test"))
    places = sum(windows["horizon"].to_pylist())
    counted = dict(zip(*(c.to_pylist() for c in table["variant"].value_counts().flatten()), strict=True))
    assert counted == {row.id: places for row in ROWS}
    assert all(0 <= score <= 1 for scores in table["top_scores"].to_pylist() for score in scores)


def test_conditions_have_a_copy_and_shuffles_of_one_checkpoint_and_energies_are_compared_with_other_motion(
    made: Memory,
) -> None:
    rows = made.table("latent_conditions").to_pylist()
    conditions = ["copy", "none", "text", "trajectory", "text_and_trajectory", "shuffled_text", "shuffled_trajectory"]
    assert [row["condition"] for row in rows] == conditions
    assert all(row["gain"] == 0.0 for row in rows if row["condition"] == "none")
    models = [key for entry, key in made.opened if entry == "latent_models"]
    assert models.count("final/s0/next_both") == models.count("final/s0/next_none"), "shuffles have no training"
    rows = made.table("energy_correlations").to_pylist()
    assert len({(row["energy"], row["distance"], row["motion"]) for row in rows}) == 8
    assert {row["horizon"] for row in rows} == set(range(3, SIZE.max_horizon + 1))
    assert all(row["pearson"] is None or abs(row["pearson"]) <= 1 for row in rows)


def test_a_run_has_these_stages_only_where_it_asks_and_no_other_key_changes() -> None:
    plain, asked = PipelineConfig(), recipe("atomic_latent")
    assert list(stages_of(plain)) == list(STAGES)
    assert set(stages_of(asked)) - set(STAGES) == {"latent", "latent_plans"}
    names = list(stages_of(asked))
    assert names.index("latent_plans") < names.index("evaluation")
    run = RunOptions(device="cpu")
    for name, stage in STAGES.items():
        one, other = (resolve_config(stage, config, run).content() for config in (plain, asked))
        assert (one == other) == (name not in ("evaluation", "report")), name
    assert "latent_predictions" not in EVERY_STAGE["evaluation"].under(plain).reads
    assert "latent_predictions" in EVERY_STAGE["evaluation"].under(asked).reads


def test_settings_that_do_not_fit_are_refused() -> None:
    asked = recipe("atomic_latent")
    closed = asked.replace(evaluation=asked.evaluation.replace(vocabulary="classes"))
    tokens = asked.replace(latent=asked.latent.replace(target="temporal"))
    for config, message in ((closed, "vocabulary=labels"), (tokens, r"features\.tokens=temporal")):
        with pytest.raises(InputError, match=message):
            EVERY_STAGE["latent"].completed(config)  # type: ignore[misc]


def looked_at(made: Memory) -> tuple[object, ...]:
    data = load_planning_data(made, "latent_plans")
    chain = chains_of(data)[0]
    fitted = rows_of_takes(data.segment_take, fit_takes(data, chain))
    keys = fit_end_keys(data.features, fitted, CFG.key_width)
    models = load_latents(made.models("latent_models"), data, chain, 0, "cpu")
    windows = data.windows[3]
    rows = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
    few = windows.segments[probe_rows(windows.take, rows)]
    return models, data, few, neighbour_bank(data, chain, keys, 3), keys, fitted


def test_a_search_that_sees_middle_latents_or_motion_is_caught(made: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    found = looked_at(made)
    check_latent_sight(*found)

    def by_latent(windows: LatentWindows, motion: torch.Tensor, name: str) -> torch.Tensor:
        true = latent_plans.targets_of(windows.data.features[windows.segments[:, 1:-1]], "pooled")
        return latent_plans.l1_between(windows.roll_out(motion), true[:, None]).mean(-1)

    def by_motion(windows: LatentWindows, motion: torch.Tensor, name: str) -> torch.Tensor:
        return (motion - windows.motions_of(windows.segments)[:, None]).abs().mean((-2, -1))

    for energy in (by_latent, by_motion):
        monkeypatch.setattr(LatentWindows, "energy", energy)
        with pytest.raises(LeakError, match="CEM"):
            check_latent_sight(*found)


def points(values: list[float], quantity: str = "-l1", floor: float = -1.0) -> list[CurvePoint]:
    common = {"model": "final/plan_none", "seed": 0, "split": "dev"}
    rows = [CurvePoint(**common, epoch=i, quantity=quantity, value=value) for i, value in enumerate(values, 1)]
    return [*rows, CurvePoint(**common, epoch=1, quantity=f"{quantity} of copy", value=floor)]


def test_a_training_is_trained_that_beats_copying_rises_no_more_and_keeps_its_lead() -> None:
    curves = ([-0.9] * 8, [-1.1] * 8, [-0.9] * 7 + [-0.5], [-0.9] * 7 + [-0.92], [-0.9] * 7 + [-0.95])
    verdicts = [judge_latents(points(values))[0].verdict for values in curves]
    assert verdicts == ["holds", "undertrained", "undertrained", "holds", "undertrained"]
