"""The claims as a flow: worlds as tasks in processes of their own, then tables and pages."""

from pathlib import Path

import pytest

from schemas.claims import ClaimsConfig
from schemas.config import PipelineConfig
from schemas.training import TrainConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def quick() -> PipelineConfig:
    """Trainings of one epoch: this is about orchestration, not about accuracy."""
    base = PipelineConfig()
    short = TrainConfig(epochs=1, patience=None, batch=64)
    return base.replace(
        ingest=base.ingest.replace(video="full", dev_min=1, central_share=0.6),
        features=base.features.replace(model="tiny", size_px=64, n_frames=2, batch=16),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=32),
        alignment=base.alignment.replace(width=16, layers=1, heads=2, hidden=16, folds=1, train=short),
        predictor=base.predictor.replace(width=16, layers=1, heads=2, hidden=16, queries=1, train=short),
        evaluation=base.evaluation.replace(bootstrap=100),
    )


def test_worlds_are_tasks_and_pages_say_what_was_run(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import claims as flow_module
    from trajpilot_core.studies.claims import collect
    from trajpilot_core.studies.claims.worlds import PlannedWorld, make

    cfg = ClaimsConfig()
    sizes = {"tasks": 2, "positions": 4, "alternatives": 2, "train_takes": 10, "test_takes": 6, "segments": 9}

    def small(name: str) -> PlannedWorld:
        world = make(name, 0, cfg)
        return world._replace(world=world.world.replace(**sizes))

    good, bad = small("sweep_k3_s2"), small("sweep_k3_s4")
    (tmp_path / "runs" / bad.folder / "world").mkdir(parents=True)
    (tmp_path / "runs" / bad.folder / "world" / "world.json").write_text("{}")
    monkeypatch.setattr(flow_module, "chosen", lambda config, names: (good, bad))
    monkeypatch.setattr(collect, "planned", lambda config: (good, bad))
    run = flow_module.claims_worlds(
        quick(), quick(), root=str(tmp_path / "runs"), docs=str(tmp_path / "docs"), device="cpu"
    )
    by_world = {world.name: [job for job in run.jobs if job.world == world.name] for world in (good, bad)}
    assert {job.status for job in by_world[good.name]} == {"done"}
    assert by_world[bad.name][0].status == "failed"
    assert "describes another world" in by_world[bad.name][0].note
    assert {job.status for job in by_world[bad.name][1:]} == {"not run"}
    page = (tmp_path / "docs" / "claims.html").read_text()
    assert "Simulated world" in page
    assert "describes another world" in page
    for name in ("claims/scores.parquet", "claims/run.json"):
        assert (tmp_path / "docs" / name).is_file()


def test_the_deployment_runs_the_recipes_that_are_fixed_for_the_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    from deployments import claims as deployment
    from deployments.recipes import claims, claims_controls

    seen: list[object] = []

    class Recorded:
        """Stands in for the flow."""

        def with_options(self, **options: object) -> "Recorded":
            return self

        def __call__(self, *arguments: object) -> str:
            seen.extend(arguments)
            return "run"

    monkeypatch.setattr(deployment, "claims_worlds", Recorded())
    assert deployment.claims.fn("root", "docs", 3, "cpu", ("base",)) == "run"  # type: ignore[comparison-overlap]
    assert seen == [claims(), claims_controls(), "root", "docs", "cpu", ("base",)]
