"""The flow of the pipeline over a finished run, and the flow that predicts."""

import shutil
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from prefect import flow
from prefect.artifacts import Artifact
from whole_run import EXAMPLES, Ran

from deployments.recipes.simulated import soak
from flows.pipeline import full_pipeline, predict
from schemas.artifacts import ArtifactRef
from schemas.config import PipelineConfig, RunOptions
from schemas.predict import Plan, PlanQuery
from tasks.stage import run_stage
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Made(NamedTuple):
    config: PipelineConfig
    run: RunOptions
    refs: dict[str, ArtifactRef]


@pytest.fixture(scope="module")
def made(prefect_server: str, ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("runs") / "root"
    shutil.copytree(ran.root, root, ignore=shutil.ignore_patterns("prefect"))
    shutil.copytree(ran.world, root / "world")
    run = RunOptions(root=str(root), data_root=str(root / "world"), device="cpu", workers=1, max_reject_ratio=0.6)
    config = soak().replace(report=soak().report.replace(examples=EXAMPLES))
    return Made(config, run, full_pipeline(config, run))


def table(made: Made, stage: str, entry: str) -> pa.Table:
    folder = open_folder(made.run.root)
    manifest = current_manifest(folder, stage)
    assert manifest is not None
    return read_entry_table(folder, manifest, entry)


def test_every_stage_ran_with_rows_that_balance_and_the_report_says_that_it_is_simulated(made: Made) -> None:
    assert list(made.refs) == list(STAGES)
    for stage in made.refs:
        manifest = current_manifest(open_folder(made.run.root), stage)
        assert manifest is not None
        assert manifest.n_in == manifest.n_out + units_lost(manifest.rejected), stage
    page = (Path(made.run.root) / "reports" / "report.html").read_text()
    assert "SIMULATED WORLD" in page
    summary = str(Artifact.get("report-summary").data)  # type: ignore[union-attr]
    assert "demo: " in summary
    assert "SIMULATED WORLD" in summary


def test_a_second_run_computes_nothing_and_its_states_are_called_cached(made: Made) -> None:
    @flow(name="look")
    def look() -> set[str | None]:
        return {run_stage(stage, made.config, made.run, return_state=True).name for stage in made.refs}

    assert look() == {"Cached"}


def test_the_flow_predict_writes_a_plan_and_shows_it_as_a_table_and_a_page(made: Made) -> None:
    window = next(w for w in table(made, "ingest", "windows").to_pylist() if w["split"] == "test")
    segments = {s["segment_id"]: s for s in table(made, "ingest", "segments").to_pylist()}
    (video,) = {t["video"] for t in table(made, "ingest", "takes").to_pylist() if t["take_id"] == window["take_id"]}
    ends = (segments[window["segment_ids"][at]] for at in (0, -1))
    start, goal = (f"{s['start_s']!r}-{s['end_s']!r}" for s in ends)
    query = PlanQuery(video=f"{made.run.data_root}/{video}", start=start, goal=goal, horizon=window["horizon"])
    folder = Path(predict(query, made.run))
    plan = Plan.model_validate_json((folder / "plan.json").read_text())
    assert plan.own_take is not None
    assert folder.parent == Path(made.run.root)
    shown = {key: Artifact.get(key) for key in ("predict-plan", "predict-summary")}
    assert all(shown.values())
    assert "SIMULATED" in str(shown["predict-summary"].data)  # type: ignore[union-attr]
    assert str(shown["predict-plan"].data).count("step") >= plan.horizon  # type: ignore[union-attr]


def test_weights_that_would_fail_later_stop_the_run_before_its_first_stage(made: Made, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"no weights")
    config = made.config.replace(features=made.config.features.replace(checkpoint=str(tmp_path / "weights.pt")))
    with pytest.raises(InputError, match="not started, because the run would fail later"):
        full_pipeline(config, made.run.replace(root=str(tmp_path / "root")))
    assert not (tmp_path / "root" / "artifacts").exists()
