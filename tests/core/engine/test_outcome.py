"""What counts as damage when a stage decides whether its input is too bad, and what its table says."""

from dataclasses import replace

import pytest

from schemas.annotation import CorpusCount
from schemas.artifacts import ArtifactRef, Manifest
from trajpilot_core.engine.execution.outcome import Outcome, check_ratio
from trajpilot_core.errors import InputError


def manifest(n_in: int, rejected: dict[str, int]) -> Manifest:
    counts = {"n_in": n_in, "n_out": n_in - sum(rejected.values()), "rejected": rejected}
    return Manifest(format=1, stage="s", version=1, key="k", config={}, inputs={}, entries={}, libraries={}, **counts)


def test_damage_is_measured_against_what_the_filters_leave() -> None:
    check_ratio(manifest(100, {"ANNOTATOR_NOT_CHOSEN": 60, "UNSURE": 20, "VIDEO_MISSING": 2}), 0.1)
    with pytest.raises(InputError, match=r"3 of 20 rows \(15%\).*VIDEO_MISSING 3"):
        check_ratio(manifest(100, {"ANNOTATOR_NOT_CHOSEN": 80, "VIDEO_MISSING": 3}), 0.1)


def test_counts_are_shown_next_to_the_papers_and_the_message_counts_the_equal_ones() -> None:
    rows = (
        CorpusCount(what="labels", ours=375, paper=375, setting="x"),
        CorpusCount(what="scenarios", ours=17, paper=16, setting="ingest.keystep.skip_scenarios"),
        CorpusCount(what="own", ours=4, paper=None, setting=""),
    )
    ref = ArtifactRef(stage="ingest", uri="x", fingerprint="x", rows=1)
    outcome = Outcome(ref, 0, 1, 0, {}, n_in=1, n_out=1, seconds=1.0, cached=False, unit=None, counts=rows)
    told = {row["figure"]: (row["count"], row["meaning"]) for row in outcome.summary()}
    assert told["labels"] == (375, "as in the paper")
    assert told["scenarios"] == (17, "the paper has 16; ours depends on ingest.keystep.skip_scenarios")
    assert told["own"] == (4, "not stated in the paper")
    assert outcome.message().endswith("rejected 0; 1 of 2 counts equal the paper's")
    assert "paper" not in replace(outcome, counts=rows[2:]).message()
    nothing = replace(outcome, computed=0, unit="take", counts=())
    assert nothing.message() == "no take to compute"
    assert replace(nothing, rejected={"DECODE_FAILED": 1}).message().endswith("rejected 1")
