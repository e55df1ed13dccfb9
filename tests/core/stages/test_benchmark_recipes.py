"""The recipe of each benchmark, on a simulated world in the files of its corpus, through every stage that is built."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
from layouts_fixture import court_world, small_world
from once import Worlds
from video_fixture import decoded_here

from deployments.recipes import recipe
from deployments.recipes.simulated import soak
from schemas.arrow import rows_of
from schemas.config import FeatureConfig, PipelineConfig, RecipeName, RunOptions
from schemas.planners import PlannersConfig
from schemas.results import Judgement, Metric
from schemas.world import WorldConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.evaluation.comparison import open_side
from trajpilot_core.methods import METHODS
from trajpilot_core.paper.published import CLOSED_FULL, CLOSED_OVERALL, CLOSED_ROWS, CLOSED_SETTINGS
from trajpilot_core.report.tables.results import anticipation_tables, results_of
from trajpilot_core.stages import EVERY_STAGE, stages_of
from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
from trajpilot_core.studies.paper_tables.labels.planning import CLOSED_PANEL

WORLDS: dict[RecipeName, str] = {
    "atomic_closed": "egoexo4d",
    "keystep": "keystep",
    "goalstep": "goalstep",
    "egoper": "egoper",
    "epic_kitchens": "epic_kitchens",
    "epic_kitchens_patches": "epic_kitchens",
    "basketball": "basketball",
    "atomic_anticipation": "egoexo4d",
}
EK100 = ("visual_only_probe", "no_traj", "scorer", "oracle")
"""Rows of the paper's table."""
LIKE_ANOTHER = ("goalstep", "egoper", "epic_kitchens_patches", "atomic_closed", "atomic_anticipation")
"""Run the stages of keystep, EPIC-KITCHENS or the demo; their readers, rows and patches have tests of their own."""
KEPT = ("goal_dropout", "head", "bridge_weight", "twin_goal_dropout", "anticipates")
"""Settings of the recipe's predictor that its small one keeps."""
FEW = 0.9
"""Share that a stage may lose: in pictures of 64 px odometry finds few corners."""


def a_world(layout: str) -> WorldConfig:
    fewer = {"train_takes": 7, "test_takes": 3, "broken": "none"}
    if layout == "epic_kitchens":  # every clip is decoded and encoded for every row with a token
        return small_world(layout, segments=4, **fewer | {"train_takes": 5, "test_takes": 2})
    if layout in ("keystep", "goalstep", "egoper"):  # all stages
        more = fewer | {"train_takes": 9, "test_takes": 4}
        size_px = 64 if layout == "keystep" else 160  # poses from video: windows need the motion of every segment
        return small_world(layout, size_px=size_px, segments=8 if layout == "goalstep" else 6, **more)
    return court_world(**fewer) if layout == "basketball" else small_world(layout, segments=6, **fewer)


def in_small(config: PipelineConfig, root: Path) -> PipelineConfig:
    """The recipe with encoders and trainings of seconds, and poses that need no weights."""
    small, weights = soak(), root / "tiny.pt"
    write_tiny_checkpoint(weights, has_predictor=True)
    has_poses = spec_of(config.ingest.corpus).download.pose_file is not None
    source = "aria" if has_poses else "odometry"
    is_classes = config.evaluation.vocabulary == "classes"  # means over the horizons: every one needs dev windows
    tiny = FeatureConfig(model="tiny", size_px=64, n_frames=4, checkpoint=str(weights), precision="fp32")
    own, encoder = config.features, config.probe.encoder
    return config.replace(
        ingest=config.ingest.replace(video="full", dev_min=3, max_horizon=4 if is_classes else 8),
        trajectories=config.trajectories.replace(source=source),
        video_motions=config.video_motions.replace(source="odometry"),
        features=tiny.replace(tokens=own.tokens, ahead_tubelets=own.ahead_tubelets),
        text_bank=small.text_bank.replace(descriptions=config.text_bank.descriptions),
        alignment=small.alignment,
        predictor=small.predictor.replace(**{name: getattr(config.predictor, name) for name in KEPT}),
        scorer=small.scorer.replace(decoding=config.scorer.decoding, anticipates=config.scorer.anticipates),
        planners=planners_in_small(config.planners),
        probe=config.probe.replace(
            encoder=encoder and tiny.replace(tokens=encoder.tokens, ahead_tubelets=encoder.ahead_tubelets),
            **{"heads": 4, "blocks": 1, "rates": (1e-3,), "decays": (1e-3,), "epochs": 1, "precision": "fp32"},
        ),
        evaluation=small.evaluation.replace(vocabulary=config.evaluation.vocabulary),
        report=small.report,
        outcome=config.outcome.replace(train=config.outcome.train.replace(epochs=2), probe_heads=4, probe_blocks=1),
        action_token=config.action_token.replace(
            train=config.action_token.train.replace(epochs=1, batch=32), rates=(1e-3,), epochs=1
        ),
    )


def planners_in_small(config: PlannersConfig) -> PlannersConfig:
    sizes = {
        "schema_net": {"width": 16, "heads": 2, "layers": 1},
        "pdpp": {
            "width": 32,
            "multiples": (1, 2),
            "times": 4,
            "sampling_steps": 2,
            "epoch_steps": 2,
            "average_start": 1,
        },
        "viterbi_plan_net": {"width": 16},
    }
    planners = {name: getattr(config, name) for name in sizes}
    short = {name: one.train.replace(batch=32, epochs=1) for name, one in planners.items()}
    made = {name: one.replace(train=short[name], **sizes[name]) for name, one in planners.items()}
    return config.replace(seeds=(0,), rates=(1.0,), has_ddpm_row=False, samplings=1, **made)


Place = tuple[Path, Path]
"""A corpus and the root of the recipes on it: what they have in common is computed once."""


@pytest.fixture(scope="module")
def places(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Place]:

    @functools.cache
    def made(layout: str) -> Place:
        folder = tmp_path_factory.mktemp(layout)
        (folder / "runs").mkdir()
        return worlds.copy(a_world(layout), folder / "world"), folder / "runs"

    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.campaign) if name in LIKE_ANOTHER else name for name in WORLDS]
)
def test_a_benchmark_runs_through_every_stage_that_is_built(name: RecipeName, places: Callable[[str], Place]) -> None:
    corpus, root = places(WORLDS[name])
    config = in_small(recipe(name), root)
    run = RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1, max_reject_ratio=FEW)
    done: dict[str, Outcome] = {}
    for stage in stages_of(config):
        with decoded_here():
            done[stage] = execute(EVERY_STAGE[stage], config, run, EVERY_STAGE)
        assert done[stage].n_out > 0 or (name, stage) == ("egoper", "report"), stage  # none of its windows has a class
    assert {"ingest", "trajectories", "features", "text_bank"} <= set(done)
    assert done["features"].n_out == done["ingest"].n_out
    assert done["ingest"].counts
    assert not any(count.paper for count in done["ingest"].counts), "a simulated corpus has no figure of the paper"
    if name.startswith("epic_kitchens"):
        assert {"probe", "action_token", "report"} <= set(done)
        assert done["probe"].n_out == done["action_token"].n_out == done["features"].n_out
        cells = {(cell.table, cell.row) for cell in cells_of([read_run(str(root))])}
        assert cells == {("ek100", row) for row in EK100}
    elif name == "atomic_anticipation":
        side = open_side(str(root))
        metrics, judgements = (side.table("evaluation", name) for name in ("metrics", "judgements"))
        results = results_of(rows_of(Metric, metrics), rows_of(Judgement, judgements))
        assert [table.id for table in anticipation_tables(results)] == ["anticipation"]
        assert {row.id for row in METHODS if row.anticipates and row.predictions is None} <= set(results.variants())
    elif "outcome" in done:
        cells = cells_of([read_run(str(root))])
        assert {cell.row for cell in cells} == {"no_traj", "attentive_probe", "scorer", "oracle"}
        assert {cell.table for cell in cells} == {"basketball_shot_outcome"}
    else:
        closed = cells_of([read_run(str(root))])
        tables = {CLOSED_PANEL} if name == "atomic_closed" else {CLOSED_OVERALL, CLOSED_FULL, CLOSED_SETTINGS}
        assert {cell.table for cell in closed} == tables
        assert {cell.row for cell in closed if cell.n_windows} == set(CLOSED_ROWS)


def test_a_corpus_without_plans_has_the_stages_of_its_probe_and_of_the_token_where_it_is_asked_for() -> None:
    config = recipe("demo_epic_kitchens")
    assert list(stages_of(config)) == [
        *("ingest", "trajectories", "video_motions", "features", "text_bank", "alignment"),
        *("probe", "action_token", "report"),
    ]
    alone = config.replace(action_token=config.action_token.replace(is_asked=False))
    assert list(stages_of(alone)) == ["ingest", "features", "probe", "report"]
