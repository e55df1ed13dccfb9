"""The picture of diagnostics: all numbers are drawn; the paper's stand next to recorded takes of its corpus alone."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.evaluation.feature_distances import KINDS, QUANTITIES
from trajpilot_core.report.drawing.svg_grid import NothingToDraw
from trajpilot_core.report.figures.diagnostics import diagnostics

PAIRS = [
    PairDistance(split=split, pairs=kind, quantity=name, value=0.1 + at, low=0.1, high=9.0, n_pairs=1_234, n_takes=9)
    for split in ("test", "train")
    for at, kind in enumerate(KINDS)
    for name in QUANTITIES
]
SHARES = [
    ProgressShare(split="test", horizon=h, space=space, share=37.5, low=1, high=99, chance=50, n_windows=77, n_takes=9)
    for h in (3, 4)
    for space in ("raw", "standardised")
]


@dataclass
class Kept:
    """What the stage committed."""

    pairs: list[PairDistance] = field(default_factory=lambda: PAIRS)
    shares: list[ProgressShare] = field(default_factory=lambda: SHARES)
    said: str = ""
    config: PipelineConfig = field(default_factory=PipelineConfig)

    def table(self, stage: str, name: str) -> pa.Table:
        assert stage == "diagnostics"
        held = {"pair_distances": (PairDistance, self.pairs), "progress_shares": (ProgressShare, self.shares)}
        return table_of(*held[name])

    def warning(self) -> str:
        return self.said


def test_every_kind_split_and_horizon_is_drawn() -> None:
    drawn = diagnostics(Kept())
    text = drawn.content.decode()
    for shown in ("l1, raw", "l1, standardised", "cosine", "37.5", "test takes", "train takes", "random order"):
        assert shown in text
    for name in ("adjacent", "far", "same action", "random"):
        assert text.count(f">{name}<") == 3, "at the ticks of three panels"
    assert "<title>test takes, same action, other recording: 2.10</title>" in text
    assert "test: up to 1,234 pairs of a kind, 77 windows of a horizon" in drawn.caption


def test_published_values_stand_next_to_recorded_atomic_descriptions_alone() -> None:
    config = PipelineConfig()
    other = config.replace(ingest=config.ingest.replace(corpus="egoper"))
    assert "l1, raw 0.171, 0.205, 0.256, 0.369; cosine 0.975" in diagnostics(Kept()).caption
    assert "Published" not in diagnostics(Kept(said="SIMULATED WORLD")).caption
    assert "Published" not in diagnostics(Kept(config=other)).caption


def test_a_corpus_without_pairs_and_windows_has_no_picture() -> None:
    with pytest.raises(NothingToDraw):
        diagnostics(Kept([], []))
