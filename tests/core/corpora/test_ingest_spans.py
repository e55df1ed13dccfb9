"""Annotated segments in place of moments, closed vocabularies, and what ingest writes besides its four tables."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from egoexo_fixture import RecordingSink, ingest, pretend_probe
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.annotation import SIMULATED, CorpusCount, Details
from schemas.config import IngestConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import (
    AnnotatedPoint,
    Candidate,
    CorpusReading,
    Listing,
    Published,
    TakeFiles,
    by_start,
    span_point,
)
from trajpilot_core.corpora.records.annotations import fit_to_video, span_intervals
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.corpora.spec import CorpusSpec

DURATION_S = 12.0
SPANS = IngestConfig(corpus="goalstep", dev_min=1, interval_cap_s=2.0)
times = st.floats(0, 15, width=32) | st.sampled_from([0.0, 3.0, DURATION_S])


def a_take(name: str, scenario: str, corpus: str) -> TakeFiles:
    known = {"participant": None, "capture": name, "video": f"{name}.mp4"}
    return TakeFiles(uid=name, corpus=corpus, take_id=f"made:{name}", name=name, scenario=scenario, **known)


def a_corpus(
    takes: Sequence[tuple[str, str, Sequence[AnnotatedPoint]]], corpus: str = "made", **known: object
) -> CorpusSpec:
    """Return a corpus of takes (name, scenario, points); those whose name begins with test are test takes."""
    candidates = [
        Candidate(
            a_take(name, scenario, corpus),
            "test" if name.startswith("test") else "train",
            by_start(points),
            "made.json",
        )
        for name, scenario, points in takes
    ]
    reading = CorpusReading(
        candidates=tuple(sorted(candidates, key=lambda c: c.take.take_id)),
        rejects=(),
        n_in=sum(len(c.points) for c in candidates),
        released={c.take.take_id: c.released for c in candidates},
        scenarios=frozenset(c.take.scenario for c in candidates),
        **known,  # type: ignore[arg-type]
    )
    paper = {"labels": Published(3, "IngestConfig.corpus"), "takes, test": Published(7, "")}
    return replace(
        CORPORA["egoper"],
        read=lambda *_: reading,
        listing=lambda *_: Listing((), ()),
        published=paper,
        splits="annotations/splits.json",
        unit="descriptions",
    )


def read(monkeypatch: pytest.MonkeyPatch, root: Path, spec: CorpusSpec) -> RecordingSink:
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe(DURATION_S))
    monkeypatch.setitem(CORPORA, "goalstep", spec)
    return ingest(root, SPANS)


def step(start_s: float, end_s: float, label: str = "Stir", label_id: str = "7", offset: int = 0) -> AnnotatedPoint:
    return span_point((start_s, end_s), f"text of {label}", offset, label=label, label_id=label_id)


FOUR = [step(0, 2, offset=0), step(1, 3, "Cut", "8", 1), step(3, 9, "stir", "9", 2), step(9, 10, offset=3)]
TRAIN = [(f"train{i}", "tea", FOUR) for i in range(3)]


@settings(max_examples=120)
@given(st.lists(st.tuples(times, times), max_size=20), st.none() | st.floats(0.05, 5), st.sampled_from([1.0, 0.6]))
def test_intervals_stay_inside_what_was_annotated_the_video_and_the_cap(
    spans: list[tuple[float, float]], cap_s: float | None, share: float
) -> None:
    annotated = np.array(spans, np.float64).reshape(-1, 2)
    middle_s = annotated.mean(axis=1)
    config = IngestConfig(interval_cap_s=cap_s, central_share=share)
    found = fit_to_video(middle_s, *span_intervals(annotated, cap_s), DURATION_S, config)
    kept = ~(found.is_outside | found.is_empty)
    start_s, end_s = found.start_s[kept], found.end_s[kept]
    assert (start_s >= annotated[kept, 0]).all()
    assert (end_s <= np.minimum(annotated[kept, 1], DURATION_S)).all()
    assert (end_s - start_s >= config.min_segment_s - 1e-9).all()
    assert cap_s is None or (end_s - start_s <= 2 * cap_s + 1e-6).all()
    inside = kept & (annotated[:, 1] <= DURATION_S)
    assert np.allclose((found.start_s + found.end_s)[inside] / 2, middle_s[inside]), "the middle stays the middle"


def test_a_segment_without_length_one_turned_round_and_one_past_the_video_are_lost_by_their_codes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = [step(2, 2, offset=4), step(6, 5, offset=5), step(12, 14, offset=6), step(9, 14.5, offset=7)]
    sink = read(monkeypatch, tmp_path, a_corpus([*TRAIN, ("test", "tea", [*FOUR, *bad])]))
    assert sink.codes() == {"SEGMENT_EMPTY": 2, "SEGMENT_OUTSIDE": 1, "SEGMENT_CLIPPED": 0}
    assert {row.source_offset for row in sink.of(RejectCode.SEGMENT_EMPTY)} == {4, 5}
    (clipped,) = [row for row in sink.rows("segments") if row["start_s"] == 9.75]
    assert clipped["end_s"] == 12.0
    runs = [row["run"] for row in sink.rows("segments") if row["take_id"] == "made:test"]
    assert runs == [0, 0, 1, 2, 2], "a lost segment leaves a hole that no window crosses"


def test_ids_of_a_closed_vocabulary_are_never_merged_and_every_segment_has_its_details(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = FOUR[0]._replace(details=Details(error_type="Slip", annotated_start_s=0.0, annotated_end_s=2.0))
    sink = read(monkeypatch, tmp_path, a_corpus([*TRAIN, ("test", "tea", [told, *FOUR[1:]])]))
    names = {(row["label_id"], row["label"]) for row in sink.rows("labels")}
    assert names == {("7", "Stir"), ("8", "Cut"), ("9", "stir")}, "names are not normalised"
    details, segments = sink.rows("details"), sink.rows("segments")
    assert segments[0]["raw_text"] == "text of Stir"
    assert [row["segment_id"] for row in details] == [row["segment_id"] for row in segments]
    assert [row["error_type"] for row in details if row["take_id"] == "made:test"] == ["Slip", None, None, None]
    assert (details[2]["annotated_start_s"], details[2]["annotated_end_s"]) == (3.0, 9.0)


def test_labels_are_counted_by_scenario_and_masks_let_through_what_training_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    takes = [*TRAIN, ("train9", "coffee", FOUR[:1]), ("test", "coffee", FOUR[1:2])]
    rows = {
        (r["scenario"], r["label_id"]): r for r in read(monkeypatch, tmp_path, a_corpus(takes)).rows("scenario_labels")
    }
    assert sum(row["n_train"] + row["n_dev"] + row["n_test"] for row in rows.values()) == 14
    assert {place for place, row in rows.items() if not row["is_allowed"]} == {("coffee", "8")}


def test_counts_stand_beside_the_papers_except_for_simulated_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = (CorpusCount(what="events", ours=5, paper=376, setting="x"),)
    takes = [*TRAIN, ("test", "tea", FOUR)]
    found = {r["what"]: r for r in read(monkeypatch, tmp_path, a_corpus(takes, counts=own)).rows("counts")}
    assert {what: (row["ours"], row["paper"]) for what, row in found.items()} == {
        "takes, train": (3, None),
        "takes, test": (1, 7),
        "segments, train": (12, None),
        "segments, test": (4, None),
        "labels": (3, 3),
        "scenarios": (1, None),
        "events": (5, 376),
    }
    simulated = read(monkeypatch, tmp_path, a_corpus(takes, corpus=SIMULATED, counts=own)).rows("counts")
    assert {row["paper"] for row in simulated} == {None}
