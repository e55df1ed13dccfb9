"""A finished root of the soak world, and what its evaluation said, for the tests of `predict`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deployments.recipes import soak
from schemas.config import RunOptions
from schemas.predict import Plan, PlanQuery
from schemas.world import soak_world
from trajpilot_core.pipeline import STAGES
from trajpilot_core.predict.run import Made, predict
from trajpilot_core.predict.trained import TrainedRoot, open_trained
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages.execute import execute
from trajpilot_core.stages.last import remember_run
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

LOCAL = ("file",)


@dataclass(frozen=True)
class Ready:
    """A root that has come as far as the evaluation."""

    run: RunOptions
    trained: TrainedRoot
    predictions: list[dict[str, Any]]
    segments: dict[str, dict[str, Any]]
    windows: dict[str, dict[str, Any]]

    def window(self, split: str, horizon: int = 5) -> dict[str, Any]:
        """The first window of a split and horizon that the evaluation (or the bank) uses."""
        return next(w for _, w in sorted(self.windows.items()) if (w["split"], w["horizon"]) == (split, horizon))

    def video(self, window: dict[str, Any]) -> Path:
        (video,) = (take.video for take in self.trained.takes if take.take_id == window["take_id"])
        return Path(self.run.data_root, video)

    def ends(self, window: dict[str, Any]) -> list[str]:
        """Start and Goal of a window as the command takes them."""
        ends = [self.segments[window["segment_ids"][at]] for at in (0, -1)]
        return [f"{s['start_s']!r}-{s['end_s']!r}" for s in ends]

    def query(self, window: dict[str, Any], **changes: object) -> PlanQuery:
        start, goal = self.ends(window)
        asked = {"video": str(self.video(window)), "start": start, "goal": goal, "horizon": window["horizon"]}
        return PlanQuery.model_validate(asked | changes)

    def predict(self, window: dict[str, Any], **changes: object) -> Made:
        return predict(self.query(window, **changes), self.run)

    def said(self, window: dict[str, Any], variant: str) -> list[dict[str, Any]]:
        """What the evaluation said about a window in a row, by position."""
        rows = [p for p in self.predictions if (p["window_id"], p["variant"]) == (window["window_id"], variant)]
        return sorted(rows, key=lambda row: row["position"])


def ready(folder: Path) -> Ready:
    """Make the world and run every stage but the report."""
    run = RunOptions(root=str(folder), data_root=str(folder / "world"), device="cpu", recipe="soak")
    write_world(soak_world(), folder / "world", 2, lambda done, total, what: None)
    remember_run(soak(), run)
    for name in [name for name in STAGES if name != "report"]:
        execute(STAGES[name], soak(), run, STAGES)
    trained = open_trained(run.root, LOCAL)
    manifest = current_manifest(trained.folder, "evaluation")
    assert manifest is not None
    return Ready(
        run,
        trained,
        read_entry_table(trained.folder, manifest, "predictions").to_pylist(),
        {row["segment_id"]: row for row in trained.inputs.table("segments").to_pylist()},
        {row["window_id"]: row for row in trained.inputs.table("windows").to_pylist()},
    )


def same_as_the_evaluation(plan: Plan, ready_: Ready, window: dict[str, Any]) -> list[str]:
    """Assert that every row of a plan is that of the evaluation on a window; return the rows."""
    for row in plan.rows:
        said = ready_.said(window, row.row)
        assert [step.label_id for step in row.steps] == [p["decoded_id"] for p in said], row.row
        assert [[top.label_id for top in s.top] for s in row.steps] == [list(p["top_ids"]) for p in said], row.row
        scores = np.array([[top.score for top in step.top] for step in row.steps])
        np.testing.assert_allclose(scores, np.array([p["top_scores"] for p in said]), atol=1e-4)
        assert row.opened == said[0]["opened"], row.row
        assert (row.gate is None) == (said[0]["gate"] is None)
        if row.gate is not None:
            assert abs(row.gate - said[0]["gate"]) < 1e-4
        assert (row.trusted.window_id if row.trusted else None) == said[0]["candidate"], row.row
    return [row.row for row in plan.rows]
