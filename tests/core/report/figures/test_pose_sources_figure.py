"""The picture of pose sources: every row of the table with both metrics, and its warning."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.poses import POSE_METRICS, PoseScore
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.report.drawing.svg_grid import NothingToDraw
from trajpilot_core.report.figures.diagnostics import pose_sources

ROWS = pose_rows(("aria", "odometry"))
COMMON = {"sources": ("aria", "odometry"), "against": None, "n_windows": 1_234, "n_takes": 9}
NO_ENDS = {"low": float("-inf"), "high": float("inf")}
SCORES = [
    PoseScore.model_validate({**COMMON, "row": row.name, "seed": seed, "metric": metric, "value": 10.0 + at, **ends})
    for at, row in enumerate(ROWS)
    for ends in (NO_ENDS if row.name == "no trajectory" else {"low": 8.0, "high": 30.5},)
    for seed in (None, 0)
    for metric in POSE_METRICS
]


@dataclass
class Kept:
    """What the stage committed."""

    scores: list[PoseScore] = field(default_factory=lambda: SCORES)
    said: str = ""
    config: PipelineConfig = field(default_factory=PipelineConfig)

    def table(self, stage: str, name: str) -> pa.Table:
        assert (stage, name) == ("pose_sources", "pose_scores")
        return table_of(PoseScore, self.scores)

    def warning(self) -> str:
        return self.said


def test_every_row_is_drawn_with_both_metrics_under_their_names() -> None:
    drawn = pose_sources(Kept())
    text = drawn.content.decode()
    for at, row in enumerate(ROWS):
        name = row.name.replace(">", "&gt;")
        ending = "too few takes" if row.name == "no trajectory" else "[+8.0, +30.5]"
        for metric in ("Mid M@1", "Full M@1"):
            assert f"<title>{name}, {metric}: {10.0 + at:+.1f} {ending}</title>" in text
    assert text.count(">Mid M@1<") == text.count(">Full M@1<") == 1, "at the ticks, in place of numbers"
    assert "1,234 test windows of 9 takes" in drawn.caption
    assert pose_sources(Kept()).content == drawn.content


def test_a_simulated_corpus_is_named_in_the_picture_and_nothing_scored_draws_nothing() -> None:
    assert b"SIMULATED" in pose_sources(Kept(said="SIMULATED WORLD")).content
    assert b"SIMULATED" not in pose_sources(Kept()).content
    with pytest.raises(NothingToDraw):
        pose_sources(Kept([]))
