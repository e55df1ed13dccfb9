"""The rules of ingest: intervals, labels, windows, splits, filters, and that order never matters."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from egoexo_fixture import (
    SMALL,
    EgoExoCorpus,
    annotate,
    describe,
    healthy,
    ingest,
    list_sources,
    steps,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from other_run import output_of, whole, with_takes
from stored_world import SETTINGS, run_world

from schemas.config import IngestConfig
from schemas.places import OtherRun
from trajpilot_core.corpora.records.annotations import (
    fit_to_video,
    label_rows,
    midpoint_intervals,
    normalise,
    read_paraphrases,
    run_numbers,
)
from trajpilot_core.corpora.records.splits import dev_captures
from trajpilot_core.corpora.records.tables import window_rows
from trajpilot_core.errors import InputError

pytestmark = pytest.mark.usefixtures("no_decoder")
DURATION_S = 60.0
times = st.lists(st.floats(0, 80, width=32) | st.sampled_from([0.0, 3.0, 3.0, DURATION_S]), max_size=25).map(sorted)
caps = st.none() | st.floats(0.05, 5)


def ingested(tmp_path: Path, *descriptions: Any, config: IngestConfig = SMALL, **changes: Any) -> Any:
    """Ingest one test take with these descriptions, without training takes."""
    corpus = EgoExoCorpus(tmp_path)
    corpus.add("only", "val", [annotate(descriptions)], **changes)
    return ingest(corpus.write(), config)


@settings(max_examples=120)
@given(times, caps, st.floats(0.3, 1))
def test_segments_are_sorted_disjoint_inside_the_video_and_hold_their_time_point(
    anchors: list[float], cap_s: float | None, share: float
) -> None:
    anchor_s = np.array(anchors, np.float64)
    for central in (1.0, share):
        config = IngestConfig(interval_cap_s=cap_s, central_share=central)
        found = fit_to_video(anchor_s, *midpoint_intervals(anchor_s, DURATION_S, cap_s), DURATION_S, config)
        kept = ~(found.is_outside | found.is_empty)
        start_s, end_s = found.start_s[kept], found.end_s[kept]
        assert (start_s >= 0).all()
        assert (end_s <= DURATION_S).all()
        assert (end_s - start_s >= config.min_segment_s - 1e-9).all()
        assert (start_s[1:] >= end_s[:-1]).all()
        if central == 1:
            assert (start_s <= anchor_s[kept]).all()
            assert (anchor_s[kept] <= end_s).all()
        if cap_s is not None:
            assert (end_s - start_s <= 2 * cap_s + 1e-6).all()


def test_midpoints_mirrored_ends_and_the_cap() -> None:
    anchor_s = np.array([5.0, 7.0, 8.0, 20.0])
    free, capped = (np.array(midpoint_intervals(anchor_s, DURATION_S, cap)).T.tolist() for cap in (None, 2.0))
    assert free == [[4.0, 6.0], [6.0, 7.5], [7.5, 14.0], [14.0, 26.0]]
    assert capped == [[4.0, 6.0], [6.0, 7.5], [7.5, 10.0], [18.0, 22.0]]
    assert np.array(midpoint_intervals(np.array([1.0]), DURATION_S, 2.0)).ravel().tolist() == [0.0, 3.0]
    assert np.array(midpoint_intervals(np.array([1.0]), DURATION_S, None)).ravel().tolist() == [0.0, DURATION_S]


def test_equal_times_keep_the_outer_halves_and_lose_what_lies_between() -> None:
    anchor_s = np.array([2.0, 4.0, 4.0, 4.0, 6.0])
    spans = midpoint_intervals(anchor_s, DURATION_S, 2.0)
    found = fit_to_video(anchor_s, *spans, DURATION_S, IngestConfig(min_segment_s=0.0))
    assert list(zip(*(s.tolist() for s in spans), strict=True))[1:4] == [(3.0, 4.0), (4.0, 4.0), (4.0, 5.0)]
    assert found.is_empty.tolist() == [False, False, True, False, False]


@settings(max_examples=120)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60), st.integers(3, 8))
def test_every_window_is_consecutive_in_one_run_of_one_take(rows: list[tuple[int, bool]], horizon: int) -> None:
    rows.sort(key=lambda row: row[0])
    take = np.array([t for t, kept in rows if kept], np.int64)
    parts = [np.array([kept for t, kept in rows if t == number], bool) for number in range(4)]
    run = np.concatenate([run_numbers(part) for part in parts])
    found = {tuple(w) for w in window_rows(take, run, horizon).tolist()}
    wanted = set()
    kept_row = np.cumsum([kept for _, kept in rows]) - 1 if rows else np.zeros(0, int)
    for first in range(len(rows) - horizon + 1):  # brute force over the unfiltered sequence
        span = rows[first : first + horizon]
        if all(kept for _, kept in span) and len({t for t, _ in span}) == 1:
            wanted.add(tuple(range(int(kept_row[first]), int(kept_row[first]) + horizon)))
    assert found == wanted


@settings(max_examples=120)
@given(st.text(max_size=40) | st.from_regex(r"(c |the person'?s? |C, )*[a-zA-Z .'-]{0,20}", fullmatch=True))
def test_normalisation_is_idempotent_and_has_single_spaces(text: str) -> None:
    label = normalise(text)
    assert normalise(label) == label
    assert label == " ".join(label.split())


LABELS_OF = {
    "C touches the screw of the hub with his right hand.": "touches the screw of the hub with his right hand",
    "  c  Cuts\tthe CARROT, quickly! ": "cuts the carrot quickly",
    "A person cuts the carrot": "cuts the carrot",
    "The person: cuts the carrot": "cuts the carrot",
    "The camera wearer cuts the carrot": "cuts the carrot",
    "Cuts the carrot": "cuts the carrot",
    "C doesn't cut": "doesnt cut",
    "C cuts the ca\uff32rot": "cuts the carrot",
    "C w\u00e4scht": "w\u00e4scht",
    "C wa\u0308scht": "w\u00e4scht",
    "C pours \u00bd cup": "pours 1 2 cup",
    "Person A talks": "a talks",
    "#C C cuts the leaf. #unsure": "cuts the leaf",
    "<unsure> C cuts the leaf": "cuts the leaf",
    "C cuts the leaf.\u00a0#\u00a0Unsure": "cuts the leaf",
    "C cuts <br/> the leaf #summary": "cuts the leaf",
    "C turns bolt #5 by < 90 degrees": "turns bolt 5 by 90 degrees",
    "#C": "",
    "C.": "",
    "...": "",
    "\u0000": "",
}


def test_labels_drop_subject_punctuation_case_and_unicode_forms() -> None:
    assert {text: normalise(text) for text in LABELS_OF} == LABELS_OF


def test_order_of_the_json_entries_does_not_change_the_tables(tmp_path: Path) -> None:
    def build(root: Path, seed: int) -> Any:
        order = random.Random(seed)
        corpus = healthy(root, n_train=5, n_test=2)
        corpus.train["uid-train_0"] = [annotate(steps(6), "z"), annotate(steps(7), "m"), annotate(steps(7, 1.2), "k")]
        extra = [describe("C b.", 4.0), describe("C a.", 4.0), describe("C a.", 4.0, best_exo={})]
        corpus.train["uid-train_1"] = [annotate([*steps(), *extra])]
        for annotations in (corpus.train, corpus.val):
            for entries in annotations.values():
                order.shuffle(entries)  # type: ignore[arg-type]
                for entry in entries:  # type: ignore[attr-defined]
                    order.shuffle(entry["descriptions"])
        order.shuffle(corpus.takes)
        for name in ("train", "val", "splits"):
            pairs = list(getattr(corpus, name).items())
            order.shuffle(pairs)
            setattr(corpus, name, dict(pairs))
        return ingest(corpus.write())

    first = build(tmp_path / "first", 0)
    for seed in range(1, 6):
        other = build(tmp_path / str(seed), seed)
        assert all(first.tables[name].equals(other.tables[name]) for name in first.tables)
        assert Counter(first.codes()) == Counter(other.codes()) or "TS_REORDERED" in other.codes()


def test_one_annotator_is_taken_most_accepted_first_then_smaller_uid(tmp_path: Path) -> None:
    corpus = healthy(tmp_path, n_train=0)
    unsure = [describe(f"C is unsure {i}.", 1.0 + i, unsure=True) for i in range(9)]
    corpus.val["uid-test_0"] = [annotate(steps(5), "b"), annotate([*steps(5), *unsure], "a"), annotate(steps(4), "0")]
    sink = ingest(corpus.write())
    assert {row["annotation_uid"] for row in sink.rows("segments")} == {"a"}
    assert sink.codes() == {"ANNOTATOR_NOT_CHOSEN": 9, "UNSURE": 9}


def test_filters_are_settings_and_read_strings_and_nulls(tmp_path: Path) -> None:
    given = [
        describe("C sees.", 1.0, ego_visible="1", unsure="0"),
        describe("C hides.", 2.0, ego_visible="0"),
        describe("C is blind.", 3.0, ego_visible=None),
        describe("C doubts.", 4.0, unsure="1"),
        describe("C is calm.", 5.0, unsure=None),
        describe("O helps.", 6.0, subject="O"),
        {"text": "C is old.", "timestamp": 7, "narration_subject": "C", "ego_visible": True, "unsure": False},
        describe("C is nobody.", 8.0, subject=None),
    ]
    sink = ingested(tmp_path / "a", *given)
    assert [row["label"] for row in sink.rows("segments")] == ["sees", "is calm", "is old"]
    assert sink.codes() == {"NOT_EGO_VISIBLE": 2, "UNSURE": 1, "NOT_WEARER": 2}
    config = SMALL.replace(subjects=("C", "O"), drop_unsure=False, require_ego_visible=False)
    sink = ingested(tmp_path / "b", *given, config=config)
    labels = [row["label"] for row in sink.rows("segments")]
    assert labels == ["sees", "hides", "is blind", "doubts", "is calm", "helps", "is old"]


def test_a_text_that_is_tagged_unsure_is_dropped_and_other_tags_leave_the_label_alone(tmp_path: Path) -> None:
    tagged = ["C cuts the leaf. #unsure", "C cuts <unsure>", "C cuts\u00a0#\u00a0Unsure.", "C cuts \uff03unsure"]
    plain = ["C cuts the leaf.", "#C C cuts the leaf. #summary", "C is unsure."]
    given = [describe(text, 1.0 + i) for i, text in enumerate([*tagged, *plain])]
    sink = ingested(tmp_path / "a", *given)
    labels = [(row["label"], row["raw_text"]) for row in sink.rows("segments")]
    assert labels == [("cuts the leaf", plain[0]), ("cuts the leaf", plain[1]), ("is unsure", plain[2])]
    assert sink.codes() == {"UNSURE": 4}
    kept = ingested(tmp_path / "b", *given, config=SMALL.replace(drop_unsure=False))
    assert {row["label"] for row in kept.rows("segments")} == {"cuts the leaf", "cuts", "is unsure"}


def test_a_filtered_description_does_not_break_a_run_and_a_lost_segment_does(tmp_path: Path) -> None:
    given = steps(7)
    given[3] = describe("C is unsure.", given[3]["timestamp"], unsure=True)
    sink = ingested(tmp_path / "a", *given)
    assert [(row["position"], row["run"]) for row in sink.rows("segments")] == [(i, 0) for i in range(6)]
    assert Counter(row["horizon"] for row in sink.rows("windows")) == {3: 4, 4: 3, 5: 2, 6: 1}
    given[3] = describe("C.", given[3]["timestamp"])
    sink = ingested(tmp_path / "b", *given)
    assert [(row["position"], row["run"]) for row in sink.rows("segments")] == [(i, i // 3) for i in range(6)]
    assert Counter(row["horizon"] for row in sink.rows("windows")) == {3: 2}
    assert sink.rows("windows")[1]["window_id"] == "egoexo4d:uid-only:h3:0003"


def test_duplicates_go_before_midpoints_are_taken(tmp_path: Path) -> None:
    sink = ingested(tmp_path, *steps(3), *steps(3))
    assert sink.codes()["DUPLICATE"] == 3
    assert [row["start_s"] for row in sink.rows("segments")] == [0.25, 1.75, 3.25]


@settings(max_examples=200)
@given(st.sets(st.text(max_size=5)), st.integers(0, 3), st.floats(0.01, 0.4), st.integers(1, 5), st.randoms())
def test_dev_is_a_share_of_the_captures_whatever_their_order(
    captures: set[str], seed: int, share: float, least: int, order: random.Random
) -> None:
    config = IngestConfig(dev_share=share, dev_min=least, dev_seed=seed)
    listed = sorted(captures) * 2
    dev = dev_captures(listed, config)
    order.shuffle(listed)
    assert dev_captures(listed, config) == dev
    assert dev <= captures
    assert len(dev) == min(len(captures), max(least, round(share * len(captures))))


def test_dev_is_drawn_by_capture_else_participant_else_take(tmp_path: Path) -> None:
    corpus = EgoExoCorpus(tmp_path)
    for index in range(40):
        record = corpus.add(f"t{index}", "train", capture=f"c{index // 4}", participant_uid=index // 8 or None)
        if index >= 24:
            for key in ("capture_name", "root_dir"):
                del record["capture"][key]
            del record["capture_uid"]
        if index >= 32:
            record["participant_uid"] = None
    sink = ingest(corpus.write(), SMALL.replace(dev_share=0.4))
    takes = sink.rows("takes")
    groups: dict[str, set[str]] = {}
    for row in takes:
        groups.setdefault(row["capture"], set()).add(row["split"])
    assert all(len(splits) == 1 for splits in groups.values())
    assert set(groups) == {*(f"c{i}" for i in range(6)), "participant:3", *(f"take:uid-t{i}" for i in range(32, 40))}
    assert sum(splits == {"dev"} for splits in groups.values()) == round(0.4 * 15)
    of_segments = {(row["take_id"], row["split"]) for row in sink.rows("segments")}
    assert of_segments == {(row["take_id"], row["split"]) for row in takes}


def test_paraphrases_share_an_answer_and_other_texts_are_their_own(tmp_path: Path) -> None:
    table = 'text,label_id\n"C cuts the carrot, slowly.",cut\nSLICES THE CARROT,cut\n'
    corpus = healthy(tmp_path, n_train=0)
    given = ["C slices the carrot.", "C cuts the carrot slowly.", "C washes up."]
    corpus.val["uid-test_0"] = [annotate([describe(text, 1.0 + i) for i, text in enumerate(given)])]
    write(tmp_path / "groups.csv", table.encode())
    sink = ingest(corpus.write(), SMALL.replace(paraphrase_table="groups.csv"))
    assert [row["label_id"] for row in sink.rows("segments")] == ["cut", "cut", "washes up"]
    cut = sink.rows("labels")[0]
    assert (cut["label"], cut["paraphrases"], cut["n_test"]) == (
        "cuts the carrot slowly",
        ["cuts the carrot slowly", "slices the carrot"],
        2,
    )


def test_a_bad_or_missing_paraphrase_table_is_an_error_with_its_place(tmp_path: Path) -> None:
    for content, said in (
        (b"a,b\n", "expected text, label_id"),
        (b"", "expected text, label_id"),
        (b"text,label_id\nx\n", "line 2"),
        (b"text,label_id\nC x.,1\nx,2\n", "in the groups '1' and '2'"),
        (b"text,label_id\n\xff,1\n", "at byte 14"),
        (b'text,label_id\n"x,1\n', "no CSV"),
    ):
        with pytest.raises(InputError, match=said):
            read_paraphrases(content, "groups.csv")
    with pytest.raises(InputError, match=r"--set ingest\.paraphrase_table=null"):
        ingest(healthy(tmp_path).write(), SMALL.replace(paraphrase_table="groups.csv"))


def test_the_label_of_a_group_is_its_most_frequent_training_text() -> None:
    texts = "g c train, g b train, g b train, g c test, g c test, g a dev, h z test, h y dev, i q train, i p train"
    rows = label_rows([tuple(one.split()) for one in texts.split(", ")])  # type: ignore[misc]
    assert [(r.label_id, r.label, r.n_train, r.n_dev, r.n_test) for r in rows] == [
        ("g", "b", 3, 1, 2),
        ("h", "y", 0, 1, 1),
        ("i", "p", 2, 0, 0),
    ]
    assert rows[0].paraphrases == ("a", "b", "c")


names = st.text("abcdef", min_size=1, max_size=2)


@given(st.sets(names), st.dictionaries(names, st.booleans()), st.integers(1, 5))
def test_known_captures_stay_what_they_are_and_others_fill_dev_up(
    captures: set[str], known: dict[str, bool], least: int
) -> None:
    config = IngestConfig(dev_min=least)
    dev = dev_captures(captures, config, known)
    assert {capture for capture in dev if capture in known} == {c for c in captures if known.get(c)}
    assert dev_captures(captures, config, {}) == dev_captures(captures, config)
    inherited, new = sum(known.get(capture, False) for capture in captures), captures - known.keys()
    wanted = max(config.dev_min, round(config.dev_share * len(captures)))
    assert len(dev) == inherited + min(len(new), max(0, wanted - inherited))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> OtherRun:
    """A run whose dev is two captures of the small corpus, one of three that it has in training, and none in test."""
    root = tmp_path_factory.mktemp("other") / "root"
    captures = {8: "capture-train_2", 9: "capture-train_3", 0: "capture-train_0", 11: "capture-train_4"}
    changes = {f"egoexo4d:{number:04d}": {"capture": capture} for number, capture in captures.items()}
    run_world(root, with_takes(whole(), changes), SETTINGS, until="ingest")
    return output_of(root, "ingest")


@pytest.fixture
def corpus(tmp_path: Path) -> EgoExoCorpus:
    return healthy(tmp_path, n_train=8)


def dev_of(corpus: EgoExoCorpus, config: IngestConfig) -> set[str]:
    return {row["name"] for row in ingest(corpus.write(), config).rows("takes") if row["split"] == "dev"}


def test_ingest_holds_out_the_dev_captures_of_the_other_run(corpus: EgoExoCorpus, other: OtherRun) -> None:
    inherits = SMALL.replace(splits_of=other)
    assert dev_of(corpus, inherits) == {"train_2", "train_3"}
    many = dev_of(corpus, inherits.replace(dev_min=5))
    assert {"train_2", "train_3"} < many
    assert len(many) == 5
    assert not {"train_0", "train_4"} & many, "they are known there and are not dev"
    assert dev_of(corpus, SMALL) != {"train_2", "train_3"}, "the planted fault: nothing is inherited"


def test_a_run_that_is_not_there_stops_ingest_where_it_is_planned(corpus: EgoExoCorpus, other: OtherRun) -> None:
    root = corpus.write()
    list_sources(root, SMALL.replace(splits_of=other))
    gone = SMALL.replace(splits_of=other.replace(place=str(root)))
    with pytest.raises(InputError, match=r"ingest\.splits_of: no output of the stage ingest under"):
        list_sources(root, gone)
